//! What each target does with its bytes. A target fails by a panic: a parser's own, an overflow, an answer that is not the
//! same when it is written and read again, or a cluster that is no longer sound.

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

/// The bytes as a text, if they are one.
fn text_of(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}
