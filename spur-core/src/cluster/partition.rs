//! A partition's record: its configuration with names resolved.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::config::{PartitionConfig, PartitionState};

/// A partition as the controller knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// What the configuration says, with the state an operator may have set since.
    pub config: PartitionConfig,
    /// Its nodes, by number.
    pub nodes: Vec<NodeId>,
    /// The same as a set.
    pub members: FixedBitSet,
    /// Which of the cluster's topologies is used here.
    pub topology: Option<usize>,
}

impl Partition {
    /// A partition of which nothing is resolved yet.
    pub(super) fn of(config: PartitionConfig) -> Self {
        Self { config, nodes: Vec::new(), members: FixedBitSet::new(), topology: None }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// Whether submissions are taken.
    #[must_use]
    pub fn queues(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Down)
    }

    /// Whether jobs are started.
    #[must_use]
    pub fn starts(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Drain)
    }
}
