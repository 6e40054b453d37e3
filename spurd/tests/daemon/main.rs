//! The daemon with real processes, against a controller that the test plays.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking, in its helpers too")]

mod failing;
mod jobs;
mod power;
mod programs;
mod steps;
mod world;
