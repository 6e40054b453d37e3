//! Control groups: their names, and operations that spurd and spurstepd share.
//!
//! Below the node's group spurd creates one for each job, and spurstepd creates one for each step in it.

pub mod legacy;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use spur_core::id::{Attempt, StepId};

use crate::attempt::file_name;

/// Returns the name of a job's group below its node's.
pub fn job_group(attempt: Attempt) -> String {
    format!("job_{}", file_name(attempt))
}

/// Returns the name of a step's group below its job's.
pub fn step_group(step: StepId) -> String {
    format!("step_{}", step.label())
}

/// Writes a control file, if it exists.
///
/// # Errors
/// The system's error, with the file and the value.
pub fn set(file: &Path, value: &str) -> io::Result<()> {
    match write(file, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::new(error.kind(), format!("{} = {value}: {error}", file.display()))),
        Ok(()) => Ok(()),
    }
}

/// Writes a control file that exists.
///
/// # Errors
/// The system's error.
pub fn write(file: &Path, value: &str) -> io::Result<()> {
    OpenOptions::new().write(true).open(file)?.write_all(value.as_bytes())
}
