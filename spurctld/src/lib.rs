//! The shell of the Spur controller: gives the pure machine of `spur-core` a clock, a disk and a network.
//!
//! Requests go through the [`inbox`] to the owner, the one thread that decides. Its decisions go to the
//! [`store`]. Once durable, they leave through the outbox: answers to clients, orders to nodes, and entries
//! to the [`replica`] for readers, to the planner, and to accounting.

mod agents;
mod alarm;
pub mod answer;
mod archive;
pub mod args;
pub mod blobs;
mod changes;
mod clock;
pub mod config_file;
pub mod detach;
mod disk_space;
mod effort;
pub mod fault;
mod feed;
mod history;
mod holders;
pub mod inbox;
pub mod log;
mod metrics;
pub mod moving;
mod outbox;
mod owner;
pub mod planner;
mod post;
mod programs;
mod recover;
pub mod reload;
pub mod replica;
mod reset;
mod rpc;
pub mod server;
mod standby;
mod statistics;
pub mod stop;
pub mod store;
mod tally;
mod wall;
mod warm;
pub mod watchers;
