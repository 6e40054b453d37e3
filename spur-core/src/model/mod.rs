//! The nouns: jobs, nodes, fabrics, configuration, callers, with simple questions about them.
//!
//! The state of a cluster is in `cluster`; decisions are in `controller` and `sched`.

pub mod accounting;
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
pub mod fabric_report;
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
