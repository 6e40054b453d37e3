//! One function for each fuzz target.
//!
//! A target fails by a panic: a parser panics, a number overflows, a value differs after it was written and
//! read again, or the cluster violates an invariant.

mod disk;
mod files;
mod lines;
mod text;
mod wire;
mod world;

pub use disk::{journal, spool};
pub use files::{config, topology};
pub use lines::{formats, options, script};
pub use text::{changes, hostlist, times, words};
pub use wire::{nodes, requests, submission};

/// The bytes as text; `None` if they are not UTF-8.
fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
