//! Going into the background: the daemon starts itself anew in a session of its own, and the one that was started
//! waits until that one is ready or has failed.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use anyhow::Context;

/// Tells a daemon that somebody waits at its standard output for it to be ready.
const MARK: &str = "SPURCTLD_DETACHED";
/// What the daemon then says.
const READY: &str = "ready";

/// Starts the daemon in the background and waits until it is ready.
///
/// # Errors
/// A daemon that could not be started, or that failed before it was ready; it has said why on standard error.
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

/// Leaves the terminal, if this process was started by [`spawn`].
///
/// # Errors
/// What the system refuses.
pub fn leave_terminal() -> anyhow::Result<()> {
    if is_detached() {
        rustix::process::setsid().context("cannot begin a session")?;
    }
    Ok(())
}

/// Whether this process was started by [`spawn`].
pub fn is_detached() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Tells whoever started this process with [`spawn`] that it is ready.
pub fn say_ready() {
    if !is_detached() {
        return;
    }
    let mut output = std::io::stdout();
    let said = writeln!(output, "{READY}").and_then(|()| output.flush());
    // Nothing is ever said there again, and nobody listens.
    let null = File::options().write(true).open("/dev/null");
    let closed = null.and_then(|null| rustix::stdio::dup2_stdout(&null).map_err(Into::into));
    if let Err(error) = said.and(closed) {
        tracing::warn!(%error, "whoever started this daemon was not told that it is ready");
    }
}
