//! The configuration file of the controller: its path, and reading it.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::Context;
use jiff::tz::TimeZone;
use spur_core::model::config::Config;

/// Default path of the configuration file.
const DEFAULT: &str = "/etc/spur/spur.toml";

/// A configuration file that can be read again.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    path: PathBuf,
}

impl ConfigFile {
    /// Returns the file that `-f` names, else `SPUR_CONF`, else the default path.
    pub fn find(named: Option<PathBuf>) -> Self {
        let path = named.or_else(|| std::env::var_os("SPUR_CONF").map(PathBuf::from));
        Self { path: path.unwrap_or_else(|| DEFAULT.into()) }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Time of the file's last modification; `None` if the file's metadata cannot be read.
    pub(crate) fn modified(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|file| file.modified()).ok()
    }

    /// Reads it.
    ///
    /// # Errors
    /// Fails if the file cannot be read; otherwise names every mistake in it.
    pub fn read(&self) -> anyhow::Result<Config> {
        let name = self.path.display().to_string();
        let text = std::fs::read_to_string(&self.path)
            .with_context(|| format!("cannot read the configuration {name}"))?;
        let config = Config::parse(&text, &name)?;
        if let Some(zone) = &config.policy.jobs.time_zone {
            TimeZone::get(zone).with_context(|| {
                format!("{name}: time_zone: this host knows no time zone `{zone}`; write e.g. Europe/Berlin")
            })?;
        }
        Ok(config)
    }
}
