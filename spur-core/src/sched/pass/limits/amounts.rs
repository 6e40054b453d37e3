//! The resources that jobs hold on the nodes that were found for them.
//!
//! Most jobs take the same of each node, and many jobs take the same as another job before them. Their
//! amounts are computed once and shared.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::cluster::tres::{self, Amounts, Count, Devices, Held};
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{CPUS, ClassId, GRES, MEMORY};
use crate::sched::queue::Candidate;
use crate::sched::request::{Need, Part};

use super::{rules_of, tariff};

/// Number of different amounts that are kept.
const KEPT: usize = 16;

/// The amounts of the last jobs that took the same of each of their nodes, the newest first.
#[derive(Debug, Default)]
pub(super) struct Recent(VecDeque<(Alike, Arc<Amounts>)>);

/// Nodes of which a job takes the same, with everything else that the amounts follow from.
#[derive(Debug, PartialEq)]
struct Alike {
    nodes: u64,
    class: ClassId,
    partition: usize,
    taken: Arc<[u64]>,
    /// True if the amounts on one node are computed, too.
    on_node: bool,
}

impl Recent {
    /// The resources of the parts that a job takes of nodes in a partition.
    pub(super) fn amounts(
        &mut self,
        inventory: &Inventory,
        candidate: &Candidate,
        (partition, need): (usize, &Need),
        parts: &[Part],
    ) -> Arc<Amounts> {
        let spec = &candidate.spec;
        let on_node = rules_of(candidate, partition).is_some_and(|rules| rules.limit_nodes);
        let node = |part: &Part| inventory.nodes.get(part.node.index());
        let class = |part: &Part| node(part).map(|node| node.class);
        let is_alike = |one: &Part, other: &Part| {
            Arc::ptr_eq(&one.taken, &other.taken)
                && (one.slots > 0) == (other.slots > 0)
                && class(one) == class(other)
        };
        let used = parts.chunk_by(is_alike).filter(|alike| alike[0].slots > 0);
        let has_licenses = spec.extra.as_ref().is_some_and(|extra| !extra.licenses.is_empty());
        let mut chunks = used.clone();
        let alike = match (chunks.next(), chunks.next()) {
            (Some(all), None) if !has_licenses && !spec.shape.gets_shards() => class(&all[0]).map(|class| {
                let (nodes, taken) = (all.len() as u64, Arc::clone(&all[0].taken));
                Alike { nodes, class, partition, taken, on_node }
            }),
            _ => None,
        };
        if let Some((_, known)) = self.0.iter().find(|(known, _)| Some(known) == alike.as_ref()) {
            return Arc::clone(known);
        }
        let mut count = Count::default();
        for alike in used {
            let Some(node) = node(&alike[0]) else { continue };
            let (shape, taken) = (&*node.shape, &*alike[0].taken);
            let devices = taken[GRES..].iter().enumerate().filter(|(_, count)| **count > 0);
            let devices = devices.map(|(entry, count)| {
                let shards = tres::has_shards(spec, need.whole, shape, entry);
                Devices { entry, count: *count, shards }
            });
            let nodes = alike.len() as u64;
            count.add_nodes((nodes, Some(shape)), taken[CPUS], taken[MEMORY], devices);
        }
        let tariff = Some(tariff(inventory, partition));
        let amounts = Arc::new(match on_node {
            true => count.finish(spec, tariff),
            false => Amounts { all: count.all(spec, tariff), on_node: Held::default() },
        });
        if let Some(alike) = alike {
            self.0.truncate(KEPT - 1);
            self.0.push_front((alike, Arc::clone(&amounts)));
        }
        amounts
    }
}
