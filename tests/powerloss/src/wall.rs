//! A changed wall-clock time for one process and its children.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The shared object that the build made.
const PRELOAD: &str = concat!(env!("OUT_DIR"), "/wall.so");

/// A wall clock that can be set.
#[derive(Clone, Debug)]
pub struct Wall {
    file: PathBuf,
}

impl Wall {
    /// Makes a clock that is `ahead` seconds ahead; it keeps them in this file.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn new(file: &Path, ahead: i64) -> io::Result<Wall> {
        let wall = Wall { file: file.to_owned() };
        wall.set(ahead)?;
        Ok(wall)
    }

    /// Sets the clock, also for the processes that already use it.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn set(&self, ahead: i64) -> io::Result<()> {
        let new = self.file.with_extension("new");
        fs::write(&new, ahead.to_string())?;
        fs::rename(new, &self.file)
    }

    /// A command that uses this clock, whatever environment it is given.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("env");
        command.arg(format!("LD_PRELOAD={PRELOAD}")).arg(format!("SPUR_WALL={}", self.file.display()));
        command.arg(program);
        command
    }
}
