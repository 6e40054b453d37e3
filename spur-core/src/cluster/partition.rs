//! The record of a partition: its configuration with names resolved.

use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::config::{PartitionConfig, PartitionState};

/// A partition as the controller knows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Partition {
    /// The partition's section of the configuration, with the edits of commands.
    pub config: PartitionConfig,
    /// The nodes of the partition, by number.
    pub nodes: Vec<NodeId>,
    /// The nodes of the partition as a set of node numbers.
    pub members: FixedBitSet,
    /// Index of the partition's topology among the cluster's; `None` for a flat partition.
    pub topology: Option<usize>,
}

impl Partition {
    /// A partition with nothing resolved yet.
    pub(super) fn of(config: PartitionConfig) -> Self {
        Self { config, nodes: Vec::new(), members: FixedBitSet::new(), topology: None }
    }

    /// The name of the partition.
    #[must_use]
    pub fn name(&self) -> &Arc<str> {
        &self.config.name
    }

    /// True if submissions are accepted.
    #[must_use]
    pub fn queues(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Down)
    }

    /// True if jobs are started.
    #[must_use]
    pub fn starts(&self) -> bool {
        matches!(self.config.state, PartitionState::Up | PartitionState::Drain)
    }
}
