//! The Spur node daemon: knows its node, and runs steps there.
//!
//! One task owns the node's state ([`owner`](self)) and asks the pure [`spur_core::compute`] for the effects
//! of every event. Around the owner run the stream to the controller, the node's own service for clients, and
//! one task for each step.

pub mod args;
pub mod assemble;
mod clock;
mod condition;
pub mod daemon;
pub mod launcher;
pub mod log;
pub mod node;
mod owner;
pub mod prolog;
mod rpc;
pub mod settings;
pub mod spool;
