//! Real daemons, real jobs, real crashes: a cluster on loopback, without root, for every test.

mod client;
mod cluster;
mod life;
