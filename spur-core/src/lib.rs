//! The pure half of Spur: what a cluster is, what may happen to it, and who runs next.
//!
//! No clock, no disk, no network, no randomness, no async: whatever comes from outside is a value
//! in an argument, and the same values give the same answer every time.

pub mod text;
