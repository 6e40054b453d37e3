//! Detaching from the terminal. The command starts the daemon as a process in a session of its own, and waits
//! until the daemon is ready or has failed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::Context;

/// Environment variable set if a parent of the daemon waits for [`READY`] at its standard output.
const MARK: &str = "SPURCTLD_DETACHED";
/// Line that the daemon writes when it is ready.
const READY: &str = "ready";

/// Starts the daemon in the background and waits until it is ready.
///
/// # Errors
/// Fails if the daemon could not be started, or failed before it was ready; its standard error has the
/// reason.
pub fn spawn(arguments: impl IntoIterator<Item = OsString>) -> anyhow::Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut child = Command::new(program)
        .args(arguments)
        .arg("-D")
        .env(MARK, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start the daemon")?;
    let mut said = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut said).context("cannot hear the daemon")?;
    }
    if said.trim_end() == READY {
        return Ok(());
    }
    let status = child.wait().context("the daemon failed")?;
    anyhow::bail!("the daemon failed before it was ready ({status})")
}

/// Begins a new session if [`spawn`] started this process.
///
/// # Errors
/// Fails if the kernel refuses a new session.
pub fn leave_terminal() -> anyhow::Result<()> {
    if is_detached() {
        rustix::process::setsid().context("cannot begin a session")?;
    }
    Ok(())
}

/// True if [`spawn`] started this process.
pub fn is_detached() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Tells the process that called [`spawn`] that this daemon is ready.
pub fn say_ready() {
    if !is_detached() {
        return;
    }
    let mut output = std::io::stdout();
    let said = writeln!(output, "{READY}").and_then(|()| output.flush());
    // The parent reads one line only; later output must not fail on a closed pipe.
    let null = File::options().write(true).open("/dev/null");
    let closed = null.and_then(|null| rustix::stdio::dup2_stdout(&null).map_err(Into::into));
    if let Err(error) = said.and(closed) {
        tracing::warn!(%error, "whoever started this daemon was not told that it is ready");
    }
}
