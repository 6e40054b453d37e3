//! Processes that start under the recorder.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::record::{Trace, TraceError, mark};

/// The shared object that the build made.
const PRELOAD: &str = concat!(env!("OUT_DIR"), "/recorder.so");

/// The way in which a call fails that changes something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// An input/output error, once.
    Io,
    /// A lack of space, once.
    Full,
    /// Input/output errors from then on.
    Broken,
    /// A lack of space from then on.
    Filled,
    /// A write does half of its work and reports that; any other call is as usual.
    Short,
    /// A write does half of its work and fails; any other call fails.
    Torn,
}

impl Failure {
    /// All ways to fail.
    pub const ALL: [Failure; 6] =
        [Failure::Io, Failure::Full, Failure::Broken, Failure::Filled, Failure::Short, Failure::Torn];

    fn word(self) -> &'static str {
        match self {
            Failure::Io => "io",
            Failure::Full => "full",
            Failure::Broken => "broken",
            Failure::Filled => "filled",
            Failure::Short => "short",
            Failure::Torn => "torn",
        }
    }
}

/// Returns a command whose call number `number` that changes something in `root` fails. Such a call is a
/// write, a new size, a sync or a new name. Each process that it starts with its environment counts its own
/// calls.
///
/// # Errors
/// If the directory does not exist.
pub fn failing(
    program: impl AsRef<std::ffi::OsStr>,
    root: &Path,
    number: u32,
    failure: Failure,
) -> io::Result<Command> {
    let mut command = Command::new(program);
    command.env("LD_PRELOAD", PRELOAD).env("SPUR_POWERLOSS_ROOT", root.canonicalize()?);
    command.env("SPUR_POWERLOSS_FAIL", format!("{number} {}", failure.word()));
    Ok(command)
}

/// Records the actions of processes in one directory.
pub struct Recorder {
    root: PathBuf,
    log: PathBuf,
}

impl Recorder {
    /// Records the actions in `root`, which must be empty, into the file `log` outside it. The file is
    /// truncated first.
    ///
    /// # Errors
    /// If the directory is not empty or does not exist, or the log cannot be written.
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

    /// Puts bytes into the records from outside, in their position among all others: bytes that a client has
    /// just read.
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
