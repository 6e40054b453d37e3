//! The Spur node daemon: what it knows about its node, and how it runs steps there.
//!
//! One task owns what the node knows ([`owner`](self)) and asks the pure [`spur_core::compute`] what to do about
//! everything that happens; around it stand the stream to the controller, the node's own service for clients, and
//! one task for each step.

pub mod args;
pub mod assemble;
mod binding;
mod clock;
mod condition;
pub mod daemon;
pub mod groups;
mod health;
pub mod inventory;
mod job_container;
pub mod log;
mod owner;
pub mod prolog;
mod register;
mod report;
mod rpc;
mod running;
pub mod settings;
pub mod spool;
pub mod step;
mod uplink;
