//! The node itself: its resources, its place in the network, its health, and the separation of its jobs.

pub(crate) mod fabric;
pub mod groups;
pub(crate) mod health;
pub mod inventory;
pub(crate) mod job_container;
