//! Which journal a controller has, and whether it is the latest copy of it.
//!
//! A journal has a history: a random name. Whoever copies the journal copies the name; whoever goes on from an old copy
//! begins a history of its own, whose ancestor the old one is. A node belongs to one history and tells how far into it
//! it has been led.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{HistoryId, JobId};
use crate::text::time::Time;

/// The history of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// Its name.
    pub id: HistoryId,
    /// The histories that it goes on from, the latest first; nodes of these may be led by it.
    #[serde(default)]
    pub ancestors: Vec<HistoryId>,
}

/// How far a node has been led.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The history that it belongs to, if any controller has led it yet.
    pub history: Option<HistoryId>,
    /// The latest reign within that.
    pub epoch: u64,
    /// What that reign's controller drew when it began; 0 if the node has not heard.
    pub reign: u64,
    /// The latest entry of the journal that the node has been told of.
    pub seq: u64,
    /// The largest job number.
    pub last_job: JobId,
}

/// Why a controller takes its own journal for an old copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// For people.
    pub why: Arc<str>,
    /// Since when.
    pub since: Time,
    /// The largest job number that anybody is known to have seen.
    pub last_job: JobId,
}
