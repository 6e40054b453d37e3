//! Lines for the user in the standard error of a step, in Slurm's words.

use spur_core::id::StepId;

use crate::attempt::StepAttempt;

/// Returns the line about a step that is ended on a node before its time.
pub fn cancelled(step: StepAttempt, node: &str, cause: &str) -> String {
    let what = match step.step {
        StepId::BATCH => format!("JOB {}", step.attempt.job),
        number => format!("STEP {}.{number}", step.attempt.job),
    };
    let now = jiff::Zoned::now().strftime("%Y-%m-%dT%H:%M:%S");
    let cause = if cause.is_empty() { String::new() } else { format!(" {cause}") };
    format!("slurmstepd: error: *** {what} ON {node} CANCELLED AT {now}{cause} ***")
}
