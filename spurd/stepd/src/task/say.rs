//! Lines of spurstepd's own in the standard error of a task.

use std::io::{self, Write};

/// The system's words for an error, without Rust's ` (os error N)`.
pub(super) fn text(error: &io::Error) -> String {
    let full = error.to_string();
    full.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A line of ours in the task's standard error.
pub(super) fn say(message: &str) {
    // A standard error that takes no bytes leaves no way to say so.
    let _ = writeln!(io::stderr(), "slurmstepd: error: {message}");
}
