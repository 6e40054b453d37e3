//! The one door between messages and the core's types: what arrives is parsed once, what leaves is rendered here.
//!
//! Requests come in as [`BadField`] or as a value the core takes; what clients read is made from a `Cluster` and, for
//! what is not durable, from an [`Outlook`](job::Outlook) or a [`Pulse`](node::Pulse) that the caller keeps.

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

use spur_core::text::length;

/// A field of a message that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {problem}")]
pub struct BadField {
    /// The option or field, as users know it.
    pub field: &'static str,
    /// What is wrong with it and what would work.
    pub problem: String,
}

impl BadField {
    /// A field and what is wrong with it.
    pub fn new(field: &'static str, problem: impl Into<String>) -> Self {
        Self { field, problem: problem.into() }
    }
}

/// Refuses a text that is longer than what is kept of its kind.
fn fits(field: &'static str, text: &str, most: usize) -> Result<(), BadField> {
    length::check(text, most).map_err(|error| BadField::new(field, error.to_string()))
}

/// Reads a text with a grammar of its own.
fn read<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<T, BadField> {
    text.parse().map_err(|error: T::Err| BadField::new(field, error.to_string()))
}

/// The same where an empty text says nothing.
fn read_if_set<T: FromStr<Err: Display>>(field: &'static str, text: &str) -> Result<Option<T>, BadField> {
    if text.is_empty() { Ok(None) } else { read(field, text).map(Some) }
}

/// So much of a text as is kept of it. It is for people and for accounting, and nobody's job should fail for it.
fn cut(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

/// A text, if there is any.
fn boxed(written: &str) -> Option<Box<str>> {
    (!written.is_empty()).then(|| written.into())
}

/// A count as the wire has it.
fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A sum as the wire has it.
fn narrow(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
