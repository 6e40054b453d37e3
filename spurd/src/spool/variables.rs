//! Variables for prolog and epilog of a job, kept from its launch to the epilog, which a later spurd may run.

use std::fs;
use std::io;
use std::path::PathBuf;

use spur_core::id::Attempt;

use super::Spool;
use step_wire::attempt::file_name;

impl Spool {
    /// Stores the variables for prolog and epilog of an attempt.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn remember_variables(&self, attempt: Attempt, variables: &[(String, String)]) -> io::Result<()> {
        self.noted(fs::write(self.beside_job(attempt, "variables"), serde_json::to_vec(variables)?))
    }

    /// Stores the variables that describe the job's end for the epilog, in place of earlier ones.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn remember_end(&self, attempt: Attempt, end: &[(String, String)]) -> io::Result<()> {
        self.noted(fs::write(self.beside_job(attempt, "end"), serde_json::to_vec(end)?))
    }

    /// Returns the variables for prolog and epilog of an attempt: those of the job, then those of its end if
    /// it is known.
    pub fn variables(&self, attempt: Attempt) -> Vec<(String, String)> {
        let kept = |kind| -> Vec<(String, String)> {
            let text = fs::read(self.beside_job(attempt, kind)).unwrap_or_default();
            serde_json::from_slice(&text).unwrap_or_default()
        };
        kept("variables").into_iter().chain(kept("end")).collect()
    }

    pub(super) fn beside_job(&self, attempt: Attempt, kind: &str) -> PathBuf {
        self.root.join("jobs").join(format!("{}.{kind}", file_name(attempt)))
    }
}
