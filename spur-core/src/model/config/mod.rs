//! The configuration: what the controller decides by, and what belongs to this host.

mod policy;

pub use policy::*;
