//! Control groups: the names that spurd and spurstepd give them, and what both do with one.
//!
//! Below the node's group spurd makes one for each job, and spurstepd makes one for each step in it.

pub mod legacy;

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

use spur_core::id::{Attempt, StepId};

use crate::attempt::file_name;

/// The name of a job's group in its node's.
pub fn job_group(attempt: Attempt) -> String {
    format!("job_{}", file_name(attempt))
}

/// The name of a step's group in its job's.
pub fn step_group(step: StepId) -> String {
    format!("step_{}", step.label())
}

/// Writes a control file, if there is one.
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
