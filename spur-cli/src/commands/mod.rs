//! The commands, one room each. A command is a function of a [`crate::session::Session`] and its words that
//! gives the exit code.

pub mod links;
pub mod query;
pub mod sbatch;
pub mod sinfo;
pub mod squeue;
pub mod watch;
