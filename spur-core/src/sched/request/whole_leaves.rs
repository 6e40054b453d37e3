//! Whole leaves: jobs that have leaves to themselves, and the fewest nodes of a job.

use crate::id::NodeId;
use crate::model::fabric::Fabric;
use crate::model::job::{JobSpec, Sharing};
use crate::sched::inventory::{Inventory, fabric_for, others_of_leaves};

use super::constraints::Wisher;
use super::{BadRequest, Part, Request};

impl Inventory {
    /// The fewest nodes of a partition on which a job can run when nothing else does; `None` if it never can.
    pub(crate) fn fewest_nodes(&self, index: usize, spec: &JobSpec) -> Option<u32> {
        let partition = &self.partitions[index];
        let request = self.request(index, spec).ok()?;
        let slots =
            |class| request.need.slots(self.rooms.shape(class), self.rooms.amount(self.rooms.full(class)));
        let kinds = partition.classes.iter().map(|(class, count)| (slots(*class), *count)).collect();
        let fewest = fewest_nodes(kinds, request.min_slots())?;
        Some(fewest.max(request.min_nodes()))
    }

    /// The request of a job in a partition. A job that has whole leaves by a rule takes nodes whole, too,
    /// because no other job may use the rest.
    ///
    /// # Errors
    /// [`BadRequest`] as of [`Request::new`].
    pub(crate) fn request(&self, partition: usize, spec: &JobSpec) -> Result<Request, BadRequest> {
        let most = self.partitions[partition].partition.config.max_nodes;
        self.request_within(partition, spec, most.unwrap_or(u32::MAX))
    }

    /// The request of a job in a partition on at most `most_nodes` nodes, instead of the partition's limit.
    pub(crate) fn request_within(
        &self,
        partition: usize,
        spec: &JobSpec,
        most_nodes: u32,
    ) -> Result<Request, BadRequest> {
        let config = &self.partitions[partition].partition.config;
        let mut request = Request::within(spec, config, most_nodes)?;
        request.need.limits = self.limit_entries(partition);
        request.need.whole |=
            self.has_whole_rule() && self.with_whole_leaves(partition, spec, &request).is_some();
        Ok(request)
    }

    fn has_whole_rule(&self) -> bool {
        self.policy.topologies.iter().any(|config| config.rule.iter().any(|rule| rule.whole))
    }

    /// The fabric on which the job has whole leaves to itself at some time; `None` if it never has.
    fn with_whole_leaves(&self, partition: usize, spec: &JobSpec, request: &Request) -> Option<&Fabric> {
        let fabric = fabric_for(self, partition, spec).ok()?;
        let wisher = Wisher { inventory: self, partition, fabric, spec, request, gather_with: &[] };
        let stages = wisher.first_stages().ok()?;
        stages.iter().any(|stage| stage.ask().whole_leaves).then_some(fabric)
    }

    /// True if a job may close the unused rest of its leaves.
    pub(crate) fn may_close(&self, spec: &JobSpec) -> bool {
        spec.shape.sharing == Sharing::Topo || self.has_whole_rule()
    }

    /// The nodes that a job on the given nodes closes without using them: the rest of its leaves, where it
    /// has whole leaves to itself.
    pub(crate) fn closes(
        &self,
        spec: &JobSpec,
        partition: &str,
        nodes: impl Iterator<Item = NodeId>,
    ) -> Vec<NodeId> {
        let fabric = || {
            let partition = self.partition(Some(partition).filter(|_| self.may_close(spec))?)?;
            let request = Request::new(spec, &self.partitions[partition].partition.config).ok()?;
            self.with_whole_leaves(partition, spec, &request)
        };
        fabric().map_or_else(Vec::new, |fabric| others_of_leaves(fabric, &nodes.collect::<Vec<_>>()))
    }

    /// Adds the nodes that a job with whole leaves closes besides its own parts.
    pub(crate) fn close_leaves(&self, fabric: &Fabric, parts: &mut Vec<Part>) {
        let used: Vec<NodeId> = parts.iter().map(|part| part.node).collect();
        for node in others_of_leaves(fabric, &used) {
            let full = self.rooms.full(self.nodes[node.index()].class);
            parts.push(Part { node, slots: 0, taken: self.rooms.amount(full).into() });
        }
    }
}

/// The fewest idle nodes that hold `slots` slots, the largest first; `None` if all do not. Each kind of node
/// has its slots and its number of nodes.
pub(crate) fn fewest_nodes(mut kinds: Vec<(u32, u32)>, slots: u64) -> Option<u32> {
    kinds.retain(|(has, _)| *has > 0);
    kinds.sort_by_key(|(has, _)| std::cmp::Reverse(*has));
    let (mut left, mut fewest) = (slots, 0_u64);
    for (has, count) in kinds {
        let (has, count) = (u64::from(has), u64::from(count));
        let some = left.div_ceil(has).min(count);
        (left, fewest) = (left.saturating_sub(some * has), fewest + some);
    }
    if left == 0 { u32::try_from(fewest).ok() } else { None }
}
