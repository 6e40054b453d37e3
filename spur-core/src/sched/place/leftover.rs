//! The last part of step 4 of the objective, at layer `node`: among nodes with equally many slots, the job
//! gets those on which it leaves the least of the scarcest resource that it asks for.
//!
//! Slot counts do not distinguish a node with 4 free GPUs from one with 7 for a job that wants 4 on each.
//! Solvers count slots; this module then exchanges nodes without changing any number that the solvers
//! compared.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};

use super::answer::Placement;
use super::ask::{Ask, Mode, Strategy};
use super::problem::{Means, Meter, Problem, Rank};
use super::slots::View;

/// Exchanges nodes of a placement for nodes with equally many slots that have less free, by `free`. A job on
/// one node may move to any leaf, because the node's leftover decides before slots above. A larger job keeps
/// the share of every leaf.
#[must_use]
pub fn least_left(view: &View<'_>, ask: &Ask, placement: Placement, free: &dyn Fn(Pos) -> u64) -> Placement {
    let is_bound = ask.contiguous
        || ask.adjacent.is_some()
        || ask.segment.is_some()
        || !ask.required.is_empty()
        || !ask.counts.is_empty();
    if view.slots.are_whole() || is_bound || ask.mode == Mode::Distributed {
        return placement;
    }
    let nodes = ask.nodes.map(|_| u32::try_from(placement.shares.len()).unwrap_or(u32::MAX));
    let is_flat = ask.strategy == Strategy::Flat || view.fabric.roots().is_empty();
    // Without a problem the caps of leaves are unknown here.
    if is_flat && ask.caps_leaves() {
        return placement;
    }
    let problem = match is_flat {
        true => None,
        false => match Problem::framed(view, ask, nodes, &Meter::of(view, ask)) {
            Some(problem) => Some(problem),
            None => return placement,
        },
    };
    let exchange = Exchange { view, problem, free };
    let shares = match placement.shares[..] {
        [share] => exchange.single(share),
        _ => exchange.several(&placement.shares),
    };
    match shares {
        Some(shares) => moved(view, placement, shares),
        None => placement,
    }
}

/// The placement with its shares on other nodes.
fn moved(view: &View<'_>, placement: Placement, shares: Vec<(Pos, u32)>) -> Placement {
    let positions: Vec<Pos> = shares.iter().map(|&(pos, _)| pos).collect();
    let common = view.fabric.deepest_common(&positions);
    let slots_of = |domain: Option<DomainId>| domain.map_or(0, |id| view.slots.of(id));
    // The waste of a single node is counted in its leaf here.
    let waste = (placement.waste + slots_of(common)).saturating_sub(slots_of(placement.common));
    Placement { spans: view.fabric.spans(&positions), common, waste, shares, ..placement }
}

/// The key of nodes that the solvers cannot distinguish.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Alike {
    leaf: Option<DomainId>,
    slots: u32,
    weight: u32,
}

struct Exchange<'a, 'v> {
    view: &'a View<'v>,
    /// The question; `None` where the job ignores the fabric.
    problem: Option<Problem<'a>>,
    free: &'a dyn Fn(Pos) -> u64,
}

impl Exchange<'_, '_> {
    fn alike(&self, pos: Pos) -> Alike {
        let leaf = self.problem.as_ref().and_then(|_| self.view.fabric.leaf_of(pos));
        let weight = self.view.weights.map_or(0, |weights| weights.at(pos));
        Alike { leaf, slots: self.view.slots.at(pos), weight }
    }

    /// A better node for a job on one node; `None` if there is none.
    fn single(&self, (pos, share): (Pos, u32)) -> Option<Vec<(Pos, u32)>> {
        let (own, had) = (self.alike(pos), (self.free)(pos));
        // Each leaf offers its best node.
        let mut best: BTreeMap<Option<DomainId>, (u64, Pos)> = BTreeMap::new();
        for (other, _) in self.view.slots.iter().filter(|(_, slots)| *slots == own.slots) {
            let (alike, left) = (self.alike(other), (self.free)(other));
            if left < had && alike.weight == own.weight {
                let known = best.entry(alike.leaf).or_insert((left, other));
                *known = (*known).min((left, other));
            }
        }
        let Some(problem) = &self.problem else {
            return best.get(&None).map(|(_, other)| vec![(*other, share)]);
        };
        let (before, _) = parts(problem.judge(&[(pos, share)])?)?;
        let judged = best.into_values().filter_map(|(left, other)| {
            let (same, rest) = parts(problem.judge(&[(other, share)])?)?;
            (same == before).then_some((left, rest, other))
        });
        let (_, _, other) = judged.min()?;
        Some(vec![(other, share)])
    }

    /// Better nodes in the same leaves for a job on several nodes; `None` if there are none.
    fn several(&self, shares: &[(Pos, u32)]) -> Option<Vec<(Pos, u32)>> {
        let mut groups: BTreeMap<(Alike, u32), Vec<(u64, Pos)>> = BTreeMap::new();
        for &(pos, share) in shares {
            groups.entry((self.alike(pos), share)).or_default().push(((self.free)(pos), pos));
        }
        let mut used: Vec<Pos> = shares.iter().map(|(pos, _)| *pos).collect();
        used.sort_unstable();
        let mut unused: BTreeMap<Alike, Vec<(u64, Pos)>> = BTreeMap::new();
        let open = self.view.slots.iter().filter(|(pos, _)| used.binary_search(pos).is_err());
        for (pos, slots) in open {
            if groups.keys().any(|(alike, _)| alike.slots == slots) {
                unused.entry(self.alike(pos)).or_default().push(((self.free)(pos), pos));
            }
        }
        let mut exchanged: Vec<(Pos, u32)> = Vec::with_capacity(shares.len());
        for ((alike, share), mut nodes) in groups {
            let count = nodes.len();
            nodes.extend(unused.remove(&alike).unwrap_or_default());
            nodes.sort_unstable();
            exchanged.extend(nodes.drain(..count).map(|(_, pos)| (pos, share)));
            unused.insert(alike, nodes);
        }
        exchanged.sort_unstable();
        let left = |shares: &[(Pos, u32)]| shares.iter().map(|(pos, _)| (self.free)(*pos)).sum::<u64>();
        if left(&exchanged) >= left(shares) {
            return None;
        }
        let is_as_good = |problem: &Problem<'_>| {
            let ranks = (problem.judge(shares), problem.judge(&exchanged));
            matches!(ranks, (Some(before), Some(after)) if before == after)
        };
        self.problem.as_ref().is_none_or(is_as_good).then_some(exchanged)
    }
}

/// Splits the rank of a job on one node after the step that compares slots in the node.
fn parts(rank: Rank) -> Option<(Rank, Rank)> {
    let Rank { head, even, mut tail } = rank;
    let at = tail.iter().position(|step| step.means == Means::Waste(Layer::NODE))?;
    let rest = tail.split_off(at + 1);
    Some((Rank { head, even, tail }, Rank { head: Vec::new(), even: Vec::new(), tail: rest }))
}
