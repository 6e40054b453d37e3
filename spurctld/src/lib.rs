//! The shell of the Spur controller: it gives the pure machine of `spur-core` a clock, a disk and a network.

pub mod store;
