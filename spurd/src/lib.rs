//! The Spur node daemon: what it knows about its node, and how it runs steps there.
//!
//! One task owns what the node knows ([`owner`](self)) and asks the pure [`spur_core::compute`] what to do about
//! everything that happens; around it stand the stream to the controller, the node's own service for clients, and
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
