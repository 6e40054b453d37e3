//! Nodes that are kept for a job while others make way for it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::alloc::{StartPart, Why};
use crate::id::{Attempt, NodeId};

/// What a waiting job gets as soon as its victims have ended. Nobody else is given it meanwhile. It is dropped when the
/// job or one of the nodes changes or fails, and a job that comes before it in the queue may take it over.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nomination {
    /// The partition it will run in.
    pub partition: Arc<str>,
    /// The reservation it will run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<Arc<str>>,
    /// What is kept of which node, in rank order.
    pub parts: Box<[StartPart]>,
    /// Whether it gets these nodes for itself.
    #[serde(default)]
    pub exclusive: bool,
    /// Why these nodes.
    #[serde(default)]
    pub why: Why,
    /// What was missing when it was decided, for people.
    #[serde(default)]
    pub detail: Box<str>,
    /// The domain that will hold all of it, if one does.
    #[serde(default)]
    pub place: Option<Arc<str>>,
    /// The attempts that were ending on its nodes when it was decided, its victims among them.
    #[serde(default)]
    pub victims: Box<[Attempt]>,
}

impl Nomination {
    /// Its nodes in rank order.
    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.parts.iter().map(|part| part.node)
    }

    /// What is kept on a node, if anything.
    #[must_use]
    pub fn on(&self, node: NodeId) -> Option<&StartPart> {
        self.parts.iter().find(|part| part.node == node)
    }
}
