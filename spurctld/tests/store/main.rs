//! The durable store from outside, on a real disk.

mod accounting;
mod crash;
mod fixture;
mod journal;
mod postgres;
