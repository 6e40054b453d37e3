//! Tests of the durable store through its public interface, on a real disk and in a real database.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod accounting;
mod crash;
mod fixture;
mod journal;
mod postgres;
mod secured;
