//! Where messages go: standard error, as text or as JSON, which may become a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use spur_core::model::config::{LogFormat, LogLevel, LogLocal};

/// Begins to log; `RUST_LOG` overrides the configured level.
pub fn begin(log: &LogLocal) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match log.format {
        LogFormat::Plain => subscriber.with_ansi(false).init(),
        LogFormat::Json => subscriber.json().init(),
    }
}

/// Opens a log to write at its end.
///
/// # Errors
/// What the system says.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o640).open(path)
}

/// Sends what is written to standard error to this file from now on; called again, to the file that then has this name.
pub fn write_to(path: &Path) {
    if let Err(error) = open(path).and_then(|file| rustix::stdio::dup2_stderr(&file).map_err(Into::into)) {
        tracing::warn!(%error, log = %path.display(), "the log stays where it was");
    }
}
