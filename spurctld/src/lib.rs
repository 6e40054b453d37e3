//! The shell of the Spur controller: it gives the pure machine of `spur-core` a clock, a disk and a network.
//!
//! What is asked goes through the [`inbox`] to the owner, the one thread that decides. What it decides goes to the
//! [`store`] and, once durable, through the outbox to everybody else: answers to clients, orders to nodes, and
//! entries to the [`replica`] that reads are served from, to the planner, and to accounting.

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
