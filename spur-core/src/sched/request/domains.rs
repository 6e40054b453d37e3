//! The domains of the layer at which one domain has to hold the whole job, numbered for counters.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::model::topology::Plugin;
use crate::sched::place::{Ask, BlockRule, Strategy};

use super::eligible_nodes::{EligibleNodes, NOWHERE};

/// The kind of the domains of a layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// The whole fabric is the only domain, number 0.
    Whole,
    /// Each node is a domain, with its own number.
    Nodes,
    /// Domains of the fabric, with their own numbers.
    Domains,
}

/// For every usable node, its domain at one layer (`None`: the whole fabric), and the range of domain
/// numbers.
#[derive(Clone, Debug)]
pub(crate) struct Domains {
    pub(crate) kind: Kind,
    pub(crate) of_node: Vec<u32>,
    pub(crate) count: usize,
    /// The domains of the fabric, where `kind` is [`Kind::Domains`].
    pub(crate) ids: Vec<DomainId>,
    /// True if the domains are all leaves of the fabric.
    pub(crate) are_leaves: bool,
    /// Number of positions of the largest of these domains, usable or not.
    pub(crate) largest: usize,
}

impl Domains {
    /// The domains of one layer.
    pub(crate) fn of(eligible: &EligibleNodes, layer: Option<Layer>) -> Self {
        let fabric = &eligible.fabric;
        let nodes = eligible.seats().len();
        let of_node = (0..).zip(eligible.seats()).map(|(node, seat)| match layer {
            _ if *seat == NOWHERE => NOWHERE,
            None => 0,
            Some(Layer::NODE) => node,
            Some(layer) => fabric.domain_at(Pos(*seat), layer).map_or(NOWHERE, |id| id.0),
        });
        let of_node = of_node.collect();
        let (kind, ids, count) = match layer {
            None => (Kind::Whole, Vec::new(), 1),
            Some(Layer::NODE) => (Kind::Nodes, Vec::new(), nodes),
            Some(layer) => (Kind::Domains, fabric.domains_covering(layer), fabric.domain_count()),
        };
        let are_leaves =
            kind == Kind::Domains && ids.iter().all(|id| fabric.domain(*id).children().is_empty());
        let largest = ids.iter().map(|id| fabric.domain(*id).range().len()).max().unwrap_or(0);
        Self { kind, of_node, count, ids, are_leaves, largest }
    }
}

/// The domains that were computed so far, by outline and layer.
#[derive(Debug, Default)]
pub(crate) struct DomainTable(BTreeMap<(usize, Option<Layer>), Arc<Domains>>);

impl DomainTable {
    /// The domains of which one has to hold a job.
    pub(crate) fn of(&mut self, eligible: &EligibleNodes, ask: &Ask) -> Arc<Domains> {
        let layer = layer(eligible, ask);
        let known = self.0.entry((eligible.outline, layer));
        Arc::clone(known.or_insert_with(|| Arc::new(Domains::of(eligible, layer))))
    }
}

/// The layer at which one domain has to hold the job; `None` for the whole fabric.
pub(crate) fn layer(eligible: &EligibleNodes, ask: &Ask) -> Option<Layer> {
    let top = eligible.fabric.top();
    match ask.strategy {
        Strategy::Flat => ask.must,
        Strategy::Tree => {
            // Adjacent leaves have one parent.
            let parents = ask.adjacent.and_then(|_| above_leaves(&eligible.fabric));
            Some(ask.must.into_iter().chain(parents).min().unwrap_or(top))
        }
        // Each segment is held by itself, so nothing follows for the whole job.
        Strategy::Block if ask.segment.is_some() => Some(ask.must.unwrap_or(top)),
        Strategy::Block => {
            let rule = BlockRule::new(&eligible.fabric, &eligible.idle);
            let holds = |nodes, slots| rule.containment(nodes, slots).within.unwrap_or(top);
            let by_nodes = ask.nodes.map(|(_, most)| holds(most, 0));
            let by_tasks = || holds(0, u64::from(ask.tasks.unwrap_or(0)));
            // Where the nodes are limited, the limit decides if the tasks need more nodes.
            let by_rule = if ask.is_limited { by_nodes.max(Some(by_tasks())) } else { by_nodes };
            Some(by_rule.unwrap_or_else(by_tasks)).into_iter().chain(ask.must).min()
        }
    }
}

/// The highest layer of a parent of leaves, so that some domain of it holds any adjacent leaves. `None` where
/// adjacent leaves need no common parent.
fn above_leaves(fabric: &Fabric) -> Option<Layer> {
    let is_leaf = |id: &DomainId| fabric.domain(*id).layer() == Layer::LEAF;
    let parents = fabric.inner().filter(|(_, domain, _)| domain.children().iter().any(is_leaf));
    parents.map(|(_, domain, _)| domain.layer()).max().filter(|_| fabric.plugin() == Plugin::Tree)
}
