//! Limits on the length of texts that users give. They equal Slurm's limits where Slurm has one
//! (`_test_strlen` in its `job_mgr.c`).
//!
//! A text is kept in memory as long as its job, is written to the journal, and is sent to everyone who lists
//! jobs. A long text of one user therefore costs all others.

/// Most bytes of a name, a comment, a constraint, and any text without a limit of its own.
pub const TEXT: usize = 1024;
/// Most bytes of a path.
pub const PATH: usize = 4096;
/// Most bytes of the indices of a job array.
pub const ARRAY: usize = 4 << 10;
/// Most bytes of a list of nodes.
pub const NODES: usize = 64 << 10;
/// Most bytes of a dependency.
pub const DEPENDENCY: usize = 128 << 10;
/// Most bytes of all arguments of a batch script together.
pub const ARGUMENTS: usize = 128 << 10;
/// Most bytes of the command line of a submission; a longer one is cut.
pub const COMMAND_LINE: usize = 64 << 10;
/// Most bytes of the command line of a step; a longer one is cut. A job may have thousands of steps.
pub const STEP_LINE: usize = 4 << 10;

/// Error for a text that is too long.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{length} bytes are too many; at most {most} can be given")]
pub struct TooLong {
    /// Length of the text in bytes.
    pub length: usize,
    /// Greatest length allowed in bytes.
    pub most: usize,
}

/// Refuses a text of more than `most` bytes.
///
/// # Errors
/// [`TooLong`] with the length of the text and the limit.
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
