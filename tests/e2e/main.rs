//! Real daemons, real jobs, real crashes: a cluster on loopback, without root, for every test.

mod chance;
mod client;
mod cluster;
mod crash;
mod life;
mod power;
mod steps;
mod wrong;
