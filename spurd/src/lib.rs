//! The Spur node daemon: what it knows about its node, and how it runs steps there.

pub mod inventory;
pub mod spool;
pub mod step;
