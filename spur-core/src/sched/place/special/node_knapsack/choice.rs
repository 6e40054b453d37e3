//! What a choice of nodes in one domain comes to, next to those in others of its layer.

use std::cmp::Ordering;

use crate::model::fabric::{DomainId, Layer};
use crate::model::topology::ScoreBefore;
use crate::sched::place::problem::Problem;

use super::dynamic_programme::{Candidate, below};
use super::items::Items;

/// The best choice in a domain.
#[derive(Debug)]
pub(super) struct Choice {
    holder: DomainId,
    /// The nodes in fabric order.
    pub(super) nodes: Vec<Candidate>,
    /// What comes before best fit; smaller is better.
    head: Vec<u32>,
    /// Slots of what is used below the holder, from the top down.
    tail: Vec<u64>,
}

impl Choice {
    pub(super) fn new(problem: &Problem<'_>, holder: DomainId, nodes: Vec<Candidate>) -> Self {
        let fabric = problem.fabric;
        let mut weights = vec![0_u32; problem.layout.weights];
        // By layer: domains that are used, and their slots.
        let mut used = vec![(0_u32, 0_u64); fabric.domain(holder).layer().index()];
        let mut before = None;
        for node in &nodes {
            if let Some(class) = problem.weight_class(node.pos) {
                weights[class] += 1;
            }
            used[0] = (used[0].0 + 1, used[0].1 + problem.slots_of_node(node.pos));
            let leaf = fabric.leaf_of(node.pos);
            if leaf == before {
                continue;
            }
            let is_new = |id: &DomainId| before.is_none_or(|before| !fabric.within(before, *id));
            for id in leaf.into_iter().flat_map(|leaf| below(problem, leaf, holder)).take_while(is_new) {
                let domain = fabric.domain(id);
                for (count, slots) in &mut used[domain.layer().index()..=domain.cover().index()] {
                    (*count, *slots) = (*count + 1, *slots + problem.slots(id));
                }
            }
            before = leaf;
        }
        let head = head(problem, holder, weights, |layer| used[layer.index()].0);
        Self { holder, nodes, head, tail: used.into_iter().rev().map(|(_, slots)| slots).collect() }
    }

    /// Whether it is better than another one.
    pub(super) fn is_better(&self, items: &Items<'_, '_>, other: &Self) -> bool {
        let start = |id: DomainId| items.problem.fabric.domain(id).range().start;
        let score = |id: DomainId| items.problem.score(ScoreBefore::None, id);
        let (one, than) = (self.holder, other.holder);
        (self.head.cmp(&other.head))
            .then_with(|| items.by_waste(one, than))
            .then_with(|| self.tail.cmp(&other.tail))
            .then_with(|| score(one).cmp(&score(than)))
            .then_with(|| start(one).cmp(&start(than)))
            .is_lt()
    }

    /// Whether no choice in a domain is better that uses none but the lightest nodes and no fewer domains of each layer than these.
    pub(super) fn is_before(
        &self,
        items: &Items<'_, '_>,
        id: DomainId,
        counts: impl Fn(Layer) -> u32,
    ) -> bool {
        let problem = items.problem;
        let least = head(problem, id, vec![0; problem.layout.weights], counts);
        self.head.cmp(&least).then_with(|| items.by_waste(self.holder, id)) == Ordering::Less
    }

    /// The domain that it lies in.
    pub(super) fn holder(&self) -> DomainId {
        self.holder
    }
}

/// What comes before best fit: heavier nodes, domains of preferred layers, domains from the top down.
fn head(
    problem: &Problem<'_>,
    holder: DomainId,
    weights: Vec<u32>,
    counts: impl Fn(Layer) -> u32,
) -> Vec<u32> {
    let top = problem.fabric.domain(holder).layer();
    let preferred = problem.layout.prefer.iter().copied().filter(|layer| *layer < top);
    let layers = preferred.chain((0..top.0).rev().map(Layer));
    let mut head = weights;
    head.extend(layers.map(counts));
    head
}
