//! Starting a process under the recorder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::record::{Trace, TraceError, mark};

/// The shared object that the build made.
const PRELOAD: &str = concat!(env!("OUT_DIR"), "/recorder.so");

/// Records what processes do to one directory.
pub struct Recorder {
    root: PathBuf,
    log: PathBuf,
}

impl Recorder {
    /// Records what happens in `root`, which must be empty, into the file `log` outside it, which is begun anew.
    ///
    /// # Errors
    /// If the directory is not empty or not there, or the log cannot be written.
    pub fn new(root: &Path, log: &Path) -> io::Result<Self> {
        let root = root.canonicalize()?;
        if fs::read_dir(&root)?.next().is_some() {
            return Err(io::Error::new(
                io::ErrorKind::DirectoryNotEmpty,
                format!("{} is not empty", root.display()),
            ));
        }
        File::create(log)?;
        Ok(Self { root, log: log.canonicalize()? })
    }

    /// A command that is recorded, with all processes it starts that keep its environment.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env("LD_PRELOAD", PRELOAD);
        command.env("SPUR_POWERLOSS_ROOT", &self.root).env("SPUR_POWERLOSS_LOG", &self.log);
        command
    }

    /// Puts bytes into the records from outside, in their place among all others: what a client has just read.
    ///
    /// # Errors
    /// If the log cannot be written.
    pub fn mark(&self, said: &[u8]) -> io::Result<()> {
        OpenOptions::new().append(true).open(&self.log)?.write_all(&mark(said))
    }

    /// The records so far.
    ///
    /// # Errors
    /// If the log cannot be read or is not one.
    pub fn trace(&self) -> Result<Trace, TraceError> {
        Trace::read(&self.root, &self.log)
    }
}
