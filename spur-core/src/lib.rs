//! The pure half of Spur: what is true of a cluster, what may change, and what should happen next.
//!
//! No clock, no disk, no network, no randomness, no async: everything here is a function of its arguments, so the
//! same journal gives the same state and the same state and request give the same placement.
//!
//! Rooms depend on each other in one direction only: `text` ← `model` ← `cluster` ← `sched` ← `controller` ← `sim`;
//! `compute` stands on `model`.

pub mod cluster;
pub mod compute;
pub mod controller;
pub mod id;
pub mod model;
pub mod sched;
pub mod sim;
pub mod text;
