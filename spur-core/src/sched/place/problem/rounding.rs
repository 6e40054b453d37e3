//! Slots of domains as they count for waste, where multiples, or domains that may not be used, leave some of them out.
//!
//! What a job counts is what is rounded. Tasks are slots, and so are whole nodes. Where a job counts nodes that it shares, the
//! number of nodes of a domain is rounded down, and those that are over are the ones with the most slots, which a best fit
//! would leave over as well: on nodes that all have the same slots that is so many times what it is for whole nodes.

use std::cell::OnceCell;

use crate::model::fabric::{Domain, DomainId};
use crate::sched::place::slots::bottom_up;

use super::{Problem, gcd, positions};

/// Slots after rounding, by domain.
#[derive(Debug, Clone)]
pub(super) enum Rounded {
    /// Nothing is rounded: slots are as they are counted.
    Not,
    /// The rounded slots of all domains.
    Known(Vec<u64>),
    /// The rounded slots of nodes that are shared, found out where they are asked for.
    Shared(Shared),
}

/// What is left of the shares of every domain once its number of nodes is rounded down.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    known: Vec<OnceCell<u64>>,
    /// By layer: what its domains hold a multiple of.
    multiples: Vec<u32>,
    /// The most slots of a node, if that is soon told.
    peak: OnceCell<Option<u16>>,
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
            let known = vec![OnceCell::new(); self.fabric.domain_count()];
            // No domain has as many nodes as that.
            let multiples = multiples.into_iter().map(|by| u32::try_from(by).unwrap_or(u32::MAX)).collect();
            return Rounded::Shared(Shared { known, multiples, peak: OnceCell::new() });
        }
        let down = |sum: u64, by: u64| sum - sum % by.max(1);
        Rounded::Known(bottom_up(self.fabric, |id, domain, below| {
            let sum = match below {
                Some(sum) => sum,
                None if self.is_barred(id) => 0,
                None if multiples[0] == 1 => self.view.slots.of(id),
                None => {
                    let slots = positions(domain.range()).map(|pos| u64::from(self.view.slots.at(pos)));
                    slots.map(|slots| down(slots, multiples[0])).sum()
                }
            };
            let covered = &multiples[domain.layer().index()..=domain.cover().index()];
            covered.iter().fold(sum, |sum, &by| down(sum, by))
        }))
    }

    /// Whether nodes are counted of which the job takes a share each.
    fn counts_shares(&self) -> bool {
        self.ask.tasks.is_none() && !self.view.slots.are_whole()
    }
}

/// What so many of the nodes with the most slots have.
fn most(slots: &[u16], count: u32) -> u64 {
    let (mut left, mut sum, mut below) = (count, 0, u16::MAX);
    while left > 0 {
        // What is not below goes round, to less than what is.
        let next = slots.iter().fold(0, |most, has| has.wrapping_sub(below).max(most)).wrapping_add(below);
        if next >= below {
            break;
        }
        let taken = slots.iter().map(|&has| u32::from(has == next)).sum::<u32>().min(left);
        (left, sum, below) = (left - taken, sum + u64::from(taken) * u64::from(next), next);
    }
    sum
}

impl Rounded {
    /// Slots of a domain.
    pub(super) fn of(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        match self {
            Rounded::Not => problem.view.slots.of(id),
            Rounded::Known(slots) => slots[id.index()],
            Rounded::Shared(shared) => shared.of(problem, id),
        }
    }

    /// A domain has no fewer slots than that, which is sooner told.
    pub(super) fn no_fewer(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        match self {
            Rounded::Shared(shared) => shared.no_fewer(problem, id),
            Rounded::Not | Rounded::Known(_) => self.of(problem, id),
        }
    }

    /// Keeps those of some domains that have the fewest slots.
    pub(super) fn keep_fewest(&self, problem: &Problem<'_>, domains: &mut Vec<DomainId>) {
        let Rounded::Shared(shared) = self else {
            return keep_least(domains, |id| self.of(problem, id));
        };
        let bounds: Vec<u64> = domains.iter().map(|&id| shared.no_fewer(problem, id)).collect();
        let bounded = || bounds.iter().copied().zip(domains.iter().copied());
        let Some((_, first)) = bounded().min() else { return };
        let mut least = shared.of(problem, first);
        for (bound, id) in bounded() {
            if bound <= least {
                least = least.min(shared.of(problem, id));
            }
        }
        let mut bounds = bounds.iter();
        domains.retain(|&id| {
            bounds.next().is_some_and(|bound| *bound <= least) && shared.of(problem, id) == least
        });
    }
}

/// Keeps those of some domains of which a number is least.
pub(crate) fn keep_least<T: Ord>(domains: &mut Vec<DomainId>, number: impl Fn(DomainId) -> T) {
    let least = domains.iter().map(|&id| number(id)).min();
    domains.retain(|&id| Some(number(id)) == least);
}

impl Shared {
    fn of(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        *self.known[id.index()].get_or_init(|| self.sum(problem, id))
    }

    fn sum(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        let domain = problem.fabric.domain(id);
        let slots = problem.view.slots;
        let over = || self.over(domain, slots.nodes_of(id));
        match domain.children() {
            [] if problem.is_barred(id) => 0,
            [] => match (over(), slots.small_tasks()) {
                (0, _) => slots.of(id),
                (over, Some(small)) => slots.of(id) - most(&small[domain.range()], over),
                _ => self.left(problem, id).into_iter().map(u64::from).sum(),
            },
            _ if self.rounds(domain) => self.left(problem, id).into_iter().map(u64::from).sum(),
            children => children.iter().map(|&child| self.of(problem, child)).sum(),
        }
    }

    /// A domain has no fewer slots than that, which is sooner told: as if each node that is over had as many as any.
    fn no_fewer(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        let domain = problem.fabric.domain(id);
        let slots = problem.view.slots;
        let peak = || self.peak.get_or_init(|| slots.small_tasks()?.iter().copied().max());
        match domain.children() {
            [] if problem.is_barred(id) => 0,
            [] => peak().map_or(0, |peak| {
                let over = self.over(domain, slots.nodes_of(id));
                slots.of(id).saturating_sub(u64::from(over) * u64::from(peak))
            }),
            _ if self.rounds(domain) => 0,
            children => children.iter().map(|&child| self.no_fewer(problem, child)).sum(),
        }
    }

    /// Whether nodes of a domain can be over.
    fn rounds(&self, domain: &Domain) -> bool {
        self.covered(domain).iter().any(|&by| by > 1)
    }

    /// How many of some nodes of a domain are over.
    fn over(&self, domain: &Domain, nodes: u32) -> u32 {
        nodes - self.covered(domain).iter().fold(nodes, |nodes, &by| nodes - nodes % by)
    }

    /// What a domain holds a multiple of, for each layer that it counts for.
    fn covered(&self, domain: &Domain) -> &[u32] {
        &self.multiples[domain.layer().index()..=domain.cover().index()]
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
        let left = nodes.len() - self.over(domain, u32::try_from(nodes.len()).unwrap_or(u32::MAX)) as usize;
        if left < nodes.len() {
            nodes.select_nth_unstable(left);
            nodes.truncate(left);
        }
        nodes
    }
}
