//! Slots of domains as they count for waste, where multiples, or domains that may not be used, leave some of them out.
//!
//! What a job counts is what is rounded. Tasks are slots, and so are whole nodes. Where a job counts nodes that it shares, the
//! number of nodes of a domain is rounded down, and those that are over are the ones with the most slots, which a best fit
//! would leave over as well: on nodes that all have the same slots that is so many times what it is for whole nodes.

use std::cell::Cell;

use crate::model::fabric::{DomainId, Layer};

use super::{Problem, gcd, positions};

/// Slots after rounding, by domain.
#[derive(Debug, Clone)]
pub(super) enum Rounded {
    /// Of all domains.
    Known(Vec<u64>),
    /// Of nodes that are shared, found out where they are asked for.
    Shared(Shared),
}

/// What is left of the shares of every domain; see the module.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    known: Vec<Cell<Option<u64>>>,
    /// By layer: what its domains hold a multiple of.
    multiples: Vec<u64>,
}

impl Problem<'_> {
    /// The slots of every domain as they count.
    pub(super) fn round(&self) -> Rounded {
        let mut multiples = vec![1_u64; self.layout.layers];
        for &(layer, by) in &self.ask.multiples {
            let known = multiples[layer.index()];
            multiples[layer.index()] = known / gcd(known, u64::from(by)) * u64::from(by);
        }
        if self.counts_shares() && !self.ask.multiples.is_empty() {
            let known = vec![Cell::new(None); self.fabric.domains().size_hint().0];
            return Rounded::Shared(Shared { known, multiples });
        }
        let down = |sum: u64, by: u64| sum - sum % by.max(1);
        let mut rounded: Vec<u64> = Vec::new();
        for (id, domain) in self.fabric.domains() {
            let sum = if domain.children().is_empty() {
                if self.is_barred(id) {
                    0
                } else if multiples[0] == 1 {
                    self.view.slots.of(id)
                } else {
                    let nodes = positions(domain.range());
                    nodes.map(|pos| down(u64::from(self.view.slots.at(pos)), multiples[0])).sum()
                }
            } else {
                domain.children().iter().map(|child| rounded[child.index()]).sum()
            };
            let covered = &multiples[domain.layer().index()..=domain.cover().index()];
            rounded.push(covered.iter().fold(sum, |sum, &by| down(sum, by)));
        }
        Rounded::Known(rounded)
    }

    /// Whether nodes are counted of which the job takes a share each.
    fn counts_shares(&self) -> bool {
        self.ask.tasks.is_none() && self.ask.tasks_per_node.is_none() && !self.view.slots.are_whole()
    }
}

/// What so many of the nodes with the most slots have.
fn most(slots: &[u16], count: u64) -> u64 {
    let (mut left, mut sum, mut below) = (count, 0, u16::MAX);
    while left > 0 && below > 0 {
        let (next, alike) = (
            slots.iter().fold(0, |most, &has| if has < below { has.max(most) } else { most }),
            |next: u16| slots.iter().fold(0_u64, |count, &has| count + u64::from(has == next)),
        );
        let taken = alike(next).min(left);
        (left, sum, below) = (left - taken, sum + taken * u64::from(next), next);
    }
    sum
}

impl Rounded {
    /// Slots of a domain.
    pub(super) fn of(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        match self {
            Rounded::Known(slots) => slots[id.index()],
            Rounded::Shared(shared) => shared.of(problem, id),
        }
    }
}

impl Shared {
    fn of(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        let known = &self.known[id.index()];
        known.get().unwrap_or_else(|| {
            let sum = self.sum(problem, id);
            known.set(Some(sum));
            sum
        })
    }

    fn sum(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        let domain = problem.fabric.domain(id);
        let (is_leaf, nodes) = (domain.children().is_empty(), u64::from(problem.view.slots.nodes_of(id)));
        let rounds = |layer: Layer| self.multiples[layer.index()] > 1;
        let covers_any = (domain.layer().0..=domain.cover().0).map(Layer).any(rounds);
        if is_leaf && problem.is_barred(id) {
            0
        } else if is_leaf && self.over(id, problem, nodes) == 0 {
            problem.view.slots.of(id)
        } else if is_leaf && let Some(small) = problem.view.slots.small_tasks() {
            let over = self.over(id, problem, nodes);
            problem.view.slots.of(id) - most(&small[domain.range()], over)
        } else if is_leaf || covers_any {
            self.left(problem, id).into_iter().map(u64::from).sum()
        } else {
            domain.children().iter().map(|&child| self.of(problem, child)).sum()
        }
    }

    /// How many of some nodes of a domain are over.
    fn over(&self, id: DomainId, problem: &Problem<'_>, nodes: u64) -> u64 {
        let domain = problem.fabric.domain(id);
        let covered = &self.multiples[domain.layer().index()..=domain.cover().index()];
        nodes - covered.iter().fold(nodes, |nodes, &by| nodes - nodes % by)
    }

    /// The slots of the nodes of a domain that are left, in no order.
    fn left(&self, problem: &Problem<'_>, id: DomainId) -> Vec<u32> {
        let domain = problem.fabric.domain(id);
        let mut nodes: Vec<u32> = match domain.children() {
            [] if problem.is_barred(id) => Vec::new(),
            [] => positions(domain.range())
                .map(|pos| problem.view.slots.at(pos))
                .filter(|&slots| slots > 0)
                .collect(),
            children => children.iter().flat_map(|&child| self.left(problem, child)).collect(),
        };
        let over = self.over(id, problem, nodes.len() as u64);
        let left = nodes.len() - usize::try_from(over).unwrap_or(nodes.len());
        if left < nodes.len() {
            nodes.select_nth_unstable(left);
            nodes.truncate(left);
        }
        nodes
    }
}
