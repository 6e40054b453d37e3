//! How long a text may be that somebody gives: Slurm's limits where Slurm has one (`_test_strlen` in its `job_mgr.c`).
//!
//! A text is held in memory for as long as its job, is journalled, and is sent to everybody who lists jobs: what one user
//! writes costs all others.

/// A name, a comment, a constraint: whatever has no limit of its own.
pub const TEXT: usize = 1024;
/// A path.
pub const PATH: usize = 4096;
/// The indices of a job array.
pub const ARRAY: usize = 4 << 10;
/// A list of nodes.
pub const NODES: usize = 64 << 10;
/// A dependency.
pub const DEPENDENCY: usize = 128 << 10;
/// All arguments of a batch script together.
pub const ARGUMENTS: usize = 128 << 10;
/// The command line of a submission. What is longer is cut.
pub const COMMAND_LINE: usize = 64 << 10;
/// The command line of a step, of which a job may have thousands. What is longer is cut.
pub const STEP_LINE: usize = 4 << 10;

/// A text that is too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes are too many; at most {most} can be given")]
pub struct TooLong {
    /// How long it is, in bytes.
    pub length: usize,
    /// How long it may be.
    pub most: usize,
}

/// Refuses a text of more than `most` bytes.
///
/// # Errors
/// Its length, and how long it may be.
pub fn check(text: &str, most: usize) -> Result<(), TooLong> {
    match text.len() {
        length if length > most => Err(TooLong { length, most }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_byte_counts() {
        assert_eq!(check(&"x".repeat(TEXT), TEXT), Ok(()));
        let refused = check(&"x".repeat(TEXT + 1), TEXT).map_err(|error| error.to_string());
        assert_eq!(refused, Err("1025 bytes are too many; at most 1024 can be given".to_owned()));
    }
}
