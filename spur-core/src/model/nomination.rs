//! Nominations: nodes that are reserved for a job while its victims end.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::{StartPart, Why};
use crate::id::{Attempt, NodeId};

/// The resources that a pending job gets as soon as its victims have ended; no other job gets them meanwhile.
/// The nomination is dropped when the job or one of the nodes changes or fails. A job of higher priority may
/// take it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nomination {
    /// The partition in which the job will run.
    pub partition: Arc<str>,
    /// The reservation in which the job will run, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Arc<str>>,
    /// The reserved resources of each node, in rank order.
    pub parts: Box<[StartPart]>,
    /// True if the job gets these nodes exclusively.
    #[serde(default)]
    pub exclusive: bool,
    /// The reason for the choice of nodes.
    #[serde(default)]
    pub why: Why,
    /// The resources that were missing when it was decided, in words for users.
    #[serde(default)]
    pub detail: Box<str>,
    /// The domain that holds all of it, if one does.
    #[serde(default)]
    pub place: Option<Arc<str>>,
    /// The attempts that were ending on its nodes when it was decided, its victims included.
    #[serde(default)]
    pub victims: Box<[Attempt]>,
}

impl Nomination {
    /// The reserved nodes, in rank order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.parts.iter().map(|part| part.node)
    }

    /// The reserved resources of a node; `None` if the nomination does not include it.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&StartPart> {
        self.parts.iter().find(|part| part.node == node)
    }
}
