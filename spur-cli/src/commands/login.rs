//! Environment of a user after login: `salloc --get-user-env`.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use nix::unistd::{Uid, User};
use spur_core::text::login;
use tokio::io::AsyncReadExt;
use tokio::process::Command;

use crate::error::Failure;

/// Default time for the login shell, as in Slurm.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the variables of the user, by default the caller. `said` is `TIMEOUT[MODE]`, as in Slurm.
///
/// # Errors
/// A caller other than root, an invalid timeout, an unknown user, or a shell without an answer in time.
pub(super) async fn environment(user: Option<&str>, said: &str) -> anyhow::Result<Vec<(OsString, OsString)>> {
    let patience = patience(said)?;
    if !Uid::effective().is_root() {
        bail!(Failure::new("you must be root to use --get-user-env"));
    }
    let name = match user {
        Some(name) => name.to_owned(),
        None => User::from_uid(Uid::current())?.context("this user is not known")?.name,
    };
    let told = tokio::time::timeout(patience, ask(&name)).await;
    let told =
        told.with_context(|| format!("the shell of {name} took longer than {} s", patience.as_secs()))??;
    let all = login::variables(&told);
    let all = all.with_context(|| format!("the shell of {name} did not tell its environment"))?;
    let pair = |(name, value)| (OsString::from_vec(name), OsString::from_vec(value));
    Ok(all.into_iter().map(pair).collect())
}

/// Returns the output of the user's login shell, up to the complete environment or the shell's end.
async fn ask(name: &str) -> anyhow::Result<Vec<u8>> {
    let mut shell = Command::new("su")
        .args(["-", name, "-c", login::SCRIPT])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("su cannot be run")?;
    let mut output = shell.stdout.take().context("it is a pipe")?;
    let mut told = Vec::new();
    while !login::is_whole(&told) && output.read_buf(&mut told).await? > 0 {}
    Ok(told)
}

/// Parses seconds with an optional suffix `S` or `L`. In Slurm the suffix selects the source of the
/// environment; Spur always runs a shell.
fn patience(said: &str) -> anyhow::Result<Duration> {
    let seconds = said.trim_end_matches(['s', 'S', 'l', 'L']);
    if seconds.is_empty() {
        return Ok(PATIENCE);
    }
    let seconds = seconds.parse().with_context(|| format!("--get-user-env={said}: write TIMEOUT[S|L]"))?;
    Ok(Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

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
