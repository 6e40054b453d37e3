//! The pure half of Spur: no clock, no disk, no network, no randomness.

pub mod id;
pub mod model;
pub mod sched;
