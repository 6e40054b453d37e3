//! The daemon's log: standard error or a file, as text or JSON.

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

/// Opens a log file for appending.
///
/// # Errors
/// Fails if the file cannot be created or opened.
pub fn open(path: &Path) -> io::Result<File> {
    File::options().create(true).append(true).mode(0o640).open(path)
}

/// Sends standard error to the end of a file. A second call reopens the file of this name, after log
/// rotation.
pub fn write_to(path: &Path) {
    if let Err(error) = open(path).and_then(|file| rustix::stdio::dup2_stderr(&file).map_err(Into::into)) {
        tracing::warn!(%error, log = %path.display(), "the log stays where it was");
    }
}
