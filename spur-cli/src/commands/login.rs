//! The environment that a user has after logging in: `salloc --get-user-env`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::{Uid, User};
use tokio::process::Command;

use crate::error::Failure;

/// How long a shell may take that was given no time, as in Slurm.
const PATIENCE: Duration = Duration::from_secs(120);
/// What stands before and behind the variables: a shell may print other things.
const MARK: &[u8] = b"spur-login-environment\n";

/// The variables of a user, named or the one who asks; `said` is `TIMEOUT[MODE]`, as in Slurm.
///
/// # Errors
/// It is not root who asks; a timeout that is no number; a user that is not known; a shell that says nothing in time.
pub(super) async fn environment(user: Option<&str>, said: &str) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let patience = patience(said)?;
    if !Uid::effective().is_root() {
        bail!(Failure::new("you must be root to use --get-user-env"));
    }
    let name = match user {
        Some(name) => name.to_owned(),
        None => User::from_uid(Uid::current())?.context("this user is not known")?.name,
    };
    let mark = String::from_utf8_lossy(MARK);
    let script = format!("echo {mark}/usr/bin/env -0; echo {mark}");
    let shell = Command::new("su")
        .args(["-", &name, "-c", &script])
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let told = tokio::time::timeout(patience, shell).await;
    let told =
        told.with_context(|| format!("the shell of {name} took longer than {} s", patience.as_secs()))?;
    let told = told.context("su cannot be run")?.stdout;
    variables(&told).with_context(|| format!("the shell of {name} did not tell its environment"))
}

/// Seconds, perhaps with `S` or `L` behind them, which say where Slurm looks; a shell is asked in either case.
fn patience(said: &str) -> anyhow::Result<Duration> {
    let seconds = said.trim_end_matches(['s', 'S', 'l', 'L']);
    if seconds.is_empty() {
        return Ok(PATIENCE);
    }
    let seconds = seconds.parse().with_context(|| format!("--get-user-env={said}: write TIMEOUT[S|L]"))?;
    Ok(Duration::from_secs(seconds))
}

/// What stands between the marks.
fn variables(told: &[u8]) -> Option<Vec<(OsString, OsString)>> {
    let begin = told.windows(MARK.len()).position(|part| part == MARK)? + MARK.len();
    let length = told[begin..].windows(MARK.len()).position(|part| part == MARK)?;
    let pair = |variable: &[u8]| {
        let equals = variable.iter().position(|byte| *byte == b'=')?;
        Some((
            OsStr::from_bytes(&variable[..equals]).into(),
            OsString::from_vec(variable[equals + 1..].to_vec()),
        ))
    };
    Some(told[begin..begin + length].split(|byte| *byte == 0).filter_map(pair).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_stand_between_marks() {
        let told = [b"Welcome!\n", MARK, b"A=1\0B=two\nlines=2\0\n", MARK, b"bye\n"].concat();
        let pair = |(name, value): (&str, &str)| (name.into(), value.into());
        assert_eq!(variables(&told).unwrap(), [("A", "1"), ("B", "two\nlines=2")].map(pair));
        assert_eq!(variables(b"A=1\0"), None);
    }

    #[test]
    fn patience_has_seconds() {
        let seconds = |said: &str| patience(said).ok().map(|patience| patience.as_secs());
        for (said, expected) in
            [("", Some(120)), ("S", Some(120)), ("5", Some(5)), ("7L", Some(7)), ("x", None)]
        {
            assert_eq!(seconds(said), expected, "{said}");
        }
    }
}
