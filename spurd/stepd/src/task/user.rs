//! The change from root to a user, and the login environment of a user, for batch jobs without one of their
//! own (`--export=NONE`).
//!
//! The user's own shell prints the environment, in the process that becomes the script, so that nothing else
//! waits for the shell.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use nix::unistd::User;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process_group};
use spur_core::text::login;
use step_wire::order::Identity;

use crate::task::say::say;

/// The variable by which sbatch, like Slurm's, requests the user's login environment for the script.
const LOGIN_ENVIRONMENT: &str = "SLURM_GET_USER_ENV";
/// Longest run time of the shell.
const PATIENCE: Duration = Duration::from_secs(120);

/// Returns the variables of a user's login environment.
///
/// # Errors
/// Explains why there are none: an unknown user, or a shell that cannot be run or takes too long.
fn environment(uid: u32) -> Result<BTreeMap<OsString, OsString>, String> {
    let user = User::from_uid(nix::unistd::Uid::from_raw(uid)).ok().flatten();
    let user = user.ok_or_else(|| format!("user {uid} is not known on this node"))?;
    let told = ask(&user.name, &user.dir, &user.shell, PATIENCE)?;
    let all = login::variables(&told)
        .ok_or_else(|| format!("{} did not tell its environment", user.shell.display()))?;
    let pair = |(name, value)| (OsString::from_vec(name), OsString::from_vec(value));
    Ok(all.into_iter().map(pair).collect())
}

/// Runs the shell as `su -` would, and returns its output up to the second mark.
fn ask(name: &str, home: &Path, shell: &Path, patience: Duration) -> Result<Vec<u8>, String> {
    // A leading `-` makes a login shell.
    let mut login = OsString::from("-");
    login.push(shell.file_name().unwrap_or(shell.as_os_str()));
    let told = |error: std::io::Error| format!("{}: {error}", shell.display());
    let mut child = Command::new(shell)
        .arg0(&login)
        .args(["-c", login::SCRIPT])
        .env_clear()
        .envs([("USER", name), ("LOGNAME", name), ("PATH", "/usr/local/bin:/usr/bin:/bin")])
        .envs([("HOME", home), ("SHELL", shell)])
        .current_dir(if home.is_dir() { home } else { Path::new("/") })
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()
        .map_err(told)?;
    let output = child.stdout.take().expect("it is a pipe");
    let read = read_to_mark(output, Instant::now() + patience).map_err(told);
    end(&mut child);
    read?.ok_or_else(|| format!("{} did not end within {} s", shell.display(), patience.as_secs()))
}

/// Reads until the second mark or the end; `None` if neither comes in time.
fn read_to_mark(mut output: ChildStdout, deadline: Instant) -> std::io::Result<Option<Vec<u8>>> {
    let (mut told, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let left = Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        if poll(&mut [PollFd::new(&output, PollFlags::IN)], Some(&left))? == 0 {
            return Ok(None);
        }
        let length = output.read(&mut buffer)?;
        told.extend_from_slice(&buffer[..length]);
        if length == 0 || login::is_whole(&told) {
            return Ok(Some(told));
        }
    }
}

/// Kills the shell and the remaining processes of its group.
fn end(child: &mut Child) {
    if let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
        // All processes may have ended by themselves.
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.wait();
}

/// Becomes the user, with an out-of-memory score of 0: spurstepd's score is that of its service, and would
/// protect the user's programs. Without root's rights only the score changes.
///
/// A process that changed its user cannot be traced until it executes a program: it may have memory and
/// descriptors of spurstepd's, and be outside its user's control groups.
pub(crate) fn become_user(who: &Identity) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Gid, Uid};
    // Where a container allows only raising the score, its own score stays.
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    if !rustix::process::geteuid().is_root() {
        // Orders for other users were refused before.
        return Ok(());
    }
    let groups: Vec<Gid> = who.groups.iter().map(|&group| Gid::from_raw(group)).collect();
    let (gid, uid) = (Gid::from_raw(who.gid), Uid::from_raw(who.uid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    // The kernel does the same, unless `fs.suid_dumpable` is set otherwise.
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// Adds the variables of the user's login environment that are not set, if the submission asks for that.
pub(super) fn log_in(uid: u32, environment: &mut BTreeMap<OsString, OsString>) {
    if environment.remove(OsStr::new(LOGIN_ENVIRONMENT)).is_none() {
        return;
    }
    match self::environment(uid) {
        Ok(variables) => {
            for (name, value) in variables {
                environment.entry(name).or_insert(value);
            }
        }
        Err(problem) => say(&format!("no login environment: {problem}; the job goes on without it")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a shell that first runs `first`.
    fn shell(directory: &Path, first: &str) -> std::path::PathBuf {
        let path = directory.join("shell");
        spur_tests::write_program(&path, &format!("{first}\nexec /bin/sh \"$@\""));
        path
    }

    #[test]
    fn a_login_shell_tells_its_environment() {
        let home = tempfile::tempdir().unwrap();
        let noisy = "echo welcome; export GREETING='two\nlines' HOSTNAME=x; sleep 1000 &";
        let told = ask("ann", home.path(), &shell(home.path(), noisy), Duration::from_secs(60)).unwrap();
        let variables = login::variables(&told).unwrap();
        let value = |name: &str| variables.get(name.as_bytes()).and_then(|value| str::from_utf8(value).ok());
        assert_eq!(value("GREETING"), Some("two\nlines"));
        assert_eq!(value("USER"), Some("ann"));
        assert_eq!(value("HOME"), home.path().to_str());
        assert_eq!(value("HOSTNAME"), None);
    }

    #[test]
    fn a_shell_that_tells_nothing_is_an_error() {
        let home = tempfile::tempdir().unwrap();
        let ask =
            |first: &str| ask("ann", home.path(), &shell(home.path(), first), Duration::from_millis(50));
        assert!(ask("sleep 1000").unwrap_err().contains("did not end within"));
        assert_eq!(login::variables(&ask("exit 1").unwrap()), None);
    }
}
