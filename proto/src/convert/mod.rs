//! Conversion between messages and the core's types: all parsing of requests and all rendering of replies.
//!
//! A request becomes a value of the core or a [`BadField`]. Replies are made from a `Cluster` and, for facts
//! that are not durable, from an [`Outlook`](job::Outlook) or a [`Pulse`](node::Pulse) of the caller.

pub mod accounts;
pub mod agent;
pub mod config;
pub mod defrag;
pub mod job;
pub mod license;
pub mod node;
pub mod partition;
pub mod policy_tree;
pub mod priority;
pub mod reject;
pub mod reservation;
pub mod spec;
pub mod step;
#[cfg(test)]
mod tests;
pub mod topology;
pub mod usage;

use std::fmt::Display;
use std::str::FromStr;

use spur_core::cluster::FeatureLevel;
use spur_core::text::length;

/// A field of a message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct BadField {
    /// The option or field, as users know it.
    pub field: &'static str,
    /// The problem, and values that would work.
    pub problem: String,
}

impl BadField {
    /// Returns the error of a field.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// Refuses a text longer than `most` bytes.
fn fits(field: &'static str, text: &str, most: usize) -> Result<(), BadField> {
    length::check(text, most).map_err(|error| BadField::new(field, error.to_string()))
}

/// Returns the highest feature level that a daemon knows; a daemon that sends 0 knows the oldest only.
pub fn known_level(sent: u32) -> FeatureLevel {
    FeatureLevel(sent).max(FeatureLevel::OLDEST)
}

/// Parses a text with a grammar of its own.
fn read<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<T, BadField> {
    text.parse().map_err(|error: T::Err| BadField::new(field, error.to_string()))
}

/// Parses a text with a grammar of its own; `None` for an empty text.
fn read_if_set<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<Option<T>, BadField> {
    if text.is_empty() { Ok(None) } else { read(field, text).map(Some) }
}

/// Cuts a text to `most` bytes. The text is for people and accounting, so that no job should be refused for
/// its length.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// Boxes a text; `None` for an empty one.
fn boxed(written: &str) -> Option<Box<str>> {
    (!written.is_empty()).then(|| written.into())
}

/// Converts a count for the wire.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Converts a sum for the wire.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
