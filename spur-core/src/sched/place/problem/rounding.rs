//! The slots of domains that count for waste, where multiples or barred domains leave some slots out.
//!
//! The job's unit is rounded: tasks and whole nodes are slots themselves. Where a job counts nodes that it
//! shares, the number of nodes of a domain is rounded down. The surplus nodes are those with the most
//! slots, which best fit would leave free as well. On nodes with equal slots the result is that of whole
//! nodes times the slots of a node.

use std::cell::OnceCell;

use crate::model::fabric::{Domain, DomainId};
use crate::sched::place::slots::bottom_up;

use super::{Problem, gcd, positions};

/// The slots of each domain after rounding.
#[derive(Debug, Clone)]
pub(super) enum Rounded {
    /// Rounding changes nothing: the plain sums hold.
    Not,
    /// The rounded slots of all domains.
    Known(Vec<u64>),
    /// The rounded slots where nodes are shared, computed on demand.
    Shared(Shared),
}

/// The slots of every domain once its number of nodes is rounded down, computed on demand.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    known: Vec<OnceCell<u64>>,
    /// The multiple of each layer that the number of nodes of its domains is rounded down to.
    multiples: Vec<u32>,
    /// The most slots of a node; `None` inside where some node has [`u16::MAX`] or more.
    peak: OnceCell<Option<u16>>,
}

impl Problem<'_> {
    /// Computes the slots of every domain after rounding.
    pub(super) fn round(&self) -> Rounded {
        let mut multiples = vec![1_u64; self.layout.layers];
        for &(layer, by) in &self.ask.multiples {
            let known = multiples[layer.index()];
            multiples[layer.index()] = known / gcd(known, u64::from(by)) * u64::from(by);
        }
        if self.counts_shares() && !self.ask.multiples.is_empty() {
            let known = vec![OnceCell::new(); self.fabric.domain_count()];
            // No domain has more nodes than [`u32::MAX`].
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

    /// True if the job counts nodes and takes only a share of each.
    fn counts_shares(&self) -> bool {
        self.ask.tasks.is_none() && !self.view.slots.are_whole()
    }
}

/// The sum of slots over the `count` nodes with the most slots.
fn most(slots: &[u16], count: u32) -> u64 {
    let (mut left, mut sum, mut below) = (count, 0, u16::MAX);
    while left > 0 {
        // A value that is not below `below` wraps round to less than every value that is.
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
    /// Number of slots of a domain after rounding.
    pub(super) fn of(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        match self {
            Rounded::Not => problem.view.slots.of(id),
            Rounded::Known(slots) => slots[id.index()],
            Rounded::Shared(shared) => shared.of(problem, id),
        }
    }

    /// A lower bound on the rounded slots of a domain, which is faster to compute.
    pub(super) fn no_fewer(&self, problem: &Problem<'_>, id: DomainId) -> u64 {
        match self {
            Rounded::Shared(shared) => shared.no_fewer(problem, id),
            Rounded::Not | Rounded::Known(_) => self.of(problem, id),
        }
    }

    /// Keeps only the domains with the fewest slots.
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

/// Keeps only the domains with the smallest `number`.
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

    /// A lower bound on the rounded slots of a domain: every surplus node counts as if it had the most
    /// slots of any node.
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

    /// True if rounding can leave nodes of a domain out.
    fn rounds(&self, domain: &Domain) -> bool {
        self.covered(domain).iter().any(|&by| by > 1)
    }

    /// Number of surplus nodes among `nodes` nodes of a domain.
    fn over(&self, domain: &Domain, nodes: u32) -> u32 {
        nodes - self.covered(domain).iter().fold(nodes, |nodes, &by| nodes - nodes % by)
    }

    /// The multiples of the layers that a domain counts for.
    fn covered(&self, domain: &Domain) -> &[u32] {
        &self.multiples[domain.layer().index()..=domain.cover().index()]
    }

    /// The slots of the nodes that rounding leaves in a domain, unordered.
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
