//! The client commands: `sbatch`, `srun`, `squeue` and their kin, and `spur` itself.
//!
//! A command reads its options through one table ([`options`]), asks the controller through its [`session`] and
//! writes to its [`out`]. What people submit is read without input or output, so that the simulator reads it
//! with the same code.

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
