//! Histories: the identity of a controller's journal, and the evidence that it is an old copy.
//!
//! A journal has a history, named by a random number, and a copy of the journal has the same one. A
//! controller that continues from an old copy begins a new history with the old one as an ancestor. A node
//! belongs to one history and reports the latest state of it that it has seen.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::id::{HistoryId, JobId};
use crate::text::time::Time;

/// The history of a journal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// The name of the history.
    pub id: HistoryId,
    /// The histories that this one continues, the latest first; their nodes are accepted.
    #[serde(default)]
    pub ancestors: Vec<HistoryId>,
}

/// The latest state of the journal that a node has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The history of the node; `None` if no controller has accepted it.
    pub history: Option<HistoryId>,
    /// The latest epoch in that history.
    pub epoch: u64,
    /// The random number of that reign; 0 if the node does not know it.
    pub reign: u64,
    /// Latest journal entry that was sent to the node.
    pub seq: u64,
    /// The largest job number that the node has seen.
    pub last_job: JobId,
}

/// The evidence that the controller's journal is an old copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doubt {
    /// The evidence, in words for administrators.
    pub why: Arc<str>,
    /// Time at which it was found.
    pub since: Time,
    /// The largest job number that any node or the accounting is known to have seen.
    pub last_job: JobId,
}
