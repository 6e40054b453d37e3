//! Task prologs: the site's, and the user's own.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use step_wire::record::{LaunchFailure, LaunchStage};

use crate::task::say::{say, text};

/// Runs the site's task prolog; if it fails, the task does not run.
pub(super) fn task_prolog(
    prolog: &Path,
    environment: &mut BTreeMap<OsString, OsString>,
) -> Result<(), LaunchFailure> {
    let failure = |why: String| LaunchFailure {
        stage: LaunchStage::TaskProlog,
        message: format!("task prolog {}: {why}", prolog.display()),
    };
    let status = run_prolog(prolog, environment).map_err(|error| failure(text(&error)))?;
    if status.success() { Ok(()) } else { Err(failure(status.to_string())) }
}

/// Runs the user's own task prolog; if it fails, the task ends with its exit code.
pub(super) fn own_task_prolog(
    prolog: &Path,
    environment: &mut BTreeMap<OsString, OsString>,
) -> Result<(), i32> {
    let status = match run_prolog(prolog, environment) {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => {
            if let Some(signal) = status.signal() {
                say(&format!("user task_prolog did not exit normally. reason: signal {signal}"));
            }
            status.code().unwrap_or(1)
        }
        Err(error) => {
            let (path, why) = (prolog.display(), text(&error));
            say(&format!("run_command: user task_prolog can not be executed ({path}) {why}"));
            say("user task_prolog did not exit normally. reason: Run command failed - configuration error");
            1
        }
    };
    say(&format!("--task-prolog failed status={status}"));
    Err(status)
}

/// Runs a task prolog and, if it succeeds, obeys its output: `export NAME=value`, `unset NAME`, `print text`.
fn run_prolog(prolog: &Path, environment: &mut BTreeMap<OsString, OsString>) -> io::Result<ExitStatus> {
    let run = std::process::Command::new(prolog)
        .env_clear()
        .envs(&*environment)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !run.status.success() {
        return Ok(run.status);
    }
    for line in run.stdout.split(|&byte| byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"export ") {
            let at = rest.iter().position(|&byte| byte == b'=').unwrap_or(rest.len());
            let value = rest.get(at + 1..).unwrap_or_default();
            environment.insert(OsStr::from_bytes(&rest[..at]).into(), OsStr::from_bytes(value).into());
        } else if let Some(name) = line.strip_prefix(b"unset ") {
            environment.remove(OsStr::from_bytes(name.trim_ascii()));
        } else if let Some(rest) = line.strip_prefix(b"print ") {
            // As with any program, output that cannot be written is lost.
            let _ = io::stdout().write_all(&[rest, b"\n"].concat());
        }
    }
    Ok(run.status)
}
