//! The node itself: its resources, its health, and the separation of its jobs.

pub mod groups;
pub(crate) mod health;
pub mod inventory;
pub(crate) mod job_container;
