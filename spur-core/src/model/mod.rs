//! Nouns and small questions about them: what a job is, what a node has, what a caller may claim.
//!
//! Nothing here knows what is true right now (that is `cluster`) or decides anything (`controller`, `sched`).

pub mod accounts;
pub mod alloc;
pub mod array;
pub mod caller;
pub mod change;
pub mod clock;
pub mod config;
pub mod distribution;
pub mod exempt;
pub mod fabric;
pub mod history;
pub mod idset;
pub mod job;
pub mod layout;
pub mod node;
pub mod nomination;
pub mod note;
pub mod phase;
pub mod program;
pub mod reason;
pub mod report;
pub mod reservation;
pub mod step;
pub mod topology;
pub mod tres;
pub mod usage;
pub mod waits;
