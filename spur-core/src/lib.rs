//! The pure half of Spur: the state of a cluster, the changes allowed to it, and the decisions about what
//! happens next.
//!
//! This crate uses no clock, disk, network, randomness or async code. Everything is a function of its
//! arguments: the same journal gives the same state, and the same state and request give the same placement.
//!
//! Modules depend on each other in one direction only: `text` ← `model` ← `cluster` ← `sched` ← `controller`
//! ← `sim`. `compute` depends on `model`.

pub mod cluster;
pub mod compute;
pub mod controller;
pub mod id;
pub mod model;
pub mod sched;
pub mod sim;
pub mod text;
