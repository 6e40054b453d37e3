//! The client commands: `sbatch`, `srun`, `squeue` and others, and `spur` itself.
//!
//! A command reads its options by one table ([`options`]), calls the controller through its [`session`] and
//! writes to its [`out`]. Submissions are parsed without input or output, so that the simulator uses the same
//! code.

pub mod command;
pub mod commands;
pub mod error;
pub mod format;
pub mod options;
pub mod out;
pub mod place;
pub mod session;
pub mod settings;
pub mod terminal;
pub mod version;
pub mod zone;
