//! Where messages go: standard error, as text or as JSON, which may become a file.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use spur_core::model::config::{LogFormat, LogLevel, LogLocal};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::EnvFilter;

/// Begins to log. `more` levels beyond the configured one; `RUST_LOG` overrides both.
pub fn begin(config: &LogLocal, more: u8) {
    let levels =
        [LevelFilter::ERROR, LevelFilter::WARN, LevelFilter::INFO, LevelFilter::DEBUG, LevelFilter::TRACE];
    let configured = match config.level {
        LogLevel::Error => 0,
        LogLevel::Warn => 1,
        LogLevel::Info => 2,
        LogLevel::Debug => 3,
        LogLevel::Trace => 4,
    };
    let level = levels[(configured + usize::from(more)).min(levels.len() - 1)];
    // Below the highest level the libraries underneath are of no interest.
    let filter = match level {
        LevelFilter::TRACE => EnvFilter::new("trace"),
        level => EnvFilter::new(format!("warn,spurctld={level},spur_core={level},spur_proto={level}")),
    };
    let filter = EnvFilter::try_from_default_env().unwrap_or(filter);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    let begun = match config.format {
        LogFormat::Plain => builder.with_ansi(false).try_init(),
        LogFormat::Json => builder.json().try_init(),
    };
    if let Err(error) = begun {
        tracing::warn!(%error, "logging was begun before");
    }
}

/// Sends what is written to standard error to the end of a file from now on; called again, to the file that then has this
/// name.
pub fn write_to(path: &Path) {
    let file = File::options().create(true).append(true).mode(0o640).open(path);
    if let Err(error) = file.and_then(|file| rustix::stdio::dup2_stderr(&file).map_err(Into::into)) {
        tracing::warn!(%error, log = %path.display(), "the log stays where it was");
    }
}
