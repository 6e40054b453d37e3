//! The node itself: what it has, whether it is healthy, and what holds its jobs apart.

pub mod groups;
pub(crate) mod health;
pub mod inventory;
pub(crate) mod job_container;
