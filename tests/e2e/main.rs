//! Real daemons, real jobs, real crashes: a cluster on loopback, without root, for every test.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod again;
mod arrays;
mod beside;
mod chance;
mod client;
mod clients;
mod clocks;
mod cluster;
mod commands;
mod crash;
mod disk;
mod edits;
mod faults;
mod health;
mod het;
mod history;
mod hosts;
mod identity;
mod interactive;
mod job_container;
mod life;
mod logs;
mod matrix;
mod mpi;
mod no_kill;
mod nodes;
mod order;
mod pipes;
mod power;
mod power_saving;
mod preempt;
mod programs;
mod qos;
mod reboot;
mod reservation;
mod simulated;
mod site;
mod specialized;
mod steps;
mod suspend;
mod topology;
mod trust;
mod usage;
mod wrong;
