//! What domains take of a job of whole nodes: all nodes that are open, or of these the lightest alone.

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;
use crate::sched::place::slots::count_both;

/// Domains that are asked together whether one of them has enough open nodes.
const AT_ONCE: usize = 16;

/// What there is room for; see the module.
pub(super) struct Rooms<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    lightest: Option<Lightest<'a>>,
}

/// The lightest nodes there are.
struct Lightest<'a> {
    nodes: &'a FixedBitSet,
    /// Open ones of each domain; none where a domain may not be used.
    rooms: Vec<u32>,
}

impl<'p, 'a> Rooms<'p, 'a> {
    /// Of the lightest nodes where nodes weigh unequally much; None where those are not known as a set.
    pub(super) fn new(problem: &'p Problem<'a>) -> Option<Self> {
        let lightest = match problem.view.weights {
            Some(weights) if problem.layout.weights > 0 => {
                let nodes = weights.set_of(problem.lightest_weight()?)?;
                Some(Lightest { nodes, rooms: count(problem, nodes) })
            }
            _ => None,
        };
        Some(Self { problem, lightest })
    }

    /// Whether heavier nodes are left out.
    pub(super) fn leave_some_out(&self) -> bool {
        self.lightest.is_some()
    }

    /// The most nodes of a domain that the job may have.
    pub(super) fn room(&self, id: DomainId) -> u32 {
        match &self.lightest {
            Some(lightest) => lightest.rooms[id.index()],
            None => self.problem.room(id),
        }
    }

    /// Whether the job may have so many nodes of a domain. Mostly the open ones are too few, and nothing else is asked.
    #[inline]
    pub(super) fn holds(&self, id: DomainId, nodes: u32) -> bool {
        self.problem.view.slots.nodes_of(id) >= nodes && self.room(id) >= nodes
    }

    /// The domains of a layer that can hold the job, in fabric order.
    pub(super) fn holders(&self, layer: Layer) -> Vec<DomainId> {
        let mut holders = Vec::new();
        self.each_with_enough_open(layer, |id| {
            if self.may_hold(id) {
                holders.push(id);
            }
        });
        holders
    }

    /// Of these the ones with the fewest slots.
    pub(super) fn tightest_holders(&self, layer: Layer) -> Vec<DomainId> {
        let (mut tightest, mut least) = (Vec::new(), u64::MAX);
        self.each_with_enough_open(layer, |id| {
            let slots = self.problem.slots(id);
            if slots > least || !self.may_hold(id) {
                return;
            }
            if slots < least {
                tightest.clear();
                least = slots;
            }
            tightest.push(id);
        });
        tightest
    }

    /// Whether a domain with enough open nodes can hold the job.
    fn may_hold(&self, id: DomainId) -> bool {
        self.room(id) >= self.problem.amount && self.problem.is_inside(id)
    }

    /// Shows the domains of a layer that have as many open nodes as the job wants, in fabric order.
    fn each_with_enough_open(&self, layer: Layer, mut see: impl FnMut(DomainId)) {
        let Problem { fabric, view, amount, .. } = *self.problem;
        let mut ids = fabric.domains_of(layer);
        for open in view.slots.nodes_by_domain(fabric, layer).chunks(AT_ONCE) {
            let ids = ids.by_ref().take(open.len());
            // Mostly none of several neighbours has enough.
            if open.iter().fold(0, |most, &open| most.max(open)) < amount {
                ids.for_each(drop);
                continue;
            }
            ids.zip(open).filter(|(_, open)| **open >= amount).for_each(|(id, _)| see(id));
        }
    }

    /// The domains of a part of the fabric that count for a layer and have room, in fabric order; itself if it does.
    pub(super) fn below(&self, part: DomainId, layer: Layer) -> Vec<DomainId> {
        let mut found = Vec::new();
        if self.holds(part, 1) {
            self.add_below(part, layer, &mut found);
        }
        found
    }

    pub(super) fn add_below(&self, part: DomainId, layer: Layer, found: &mut Vec<DomainId>) {
        let domain = self.problem.fabric.domain(part);
        if domain.layer() <= layer {
            found.push(part);
            return;
        }
        for &child in domain.children().iter().filter(|&&child| self.holds(child, 1)) {
            self.add_below(child, layer, found);
        }
    }

    /// What every leaf of a domain gives where the job needs all that there is, so that nothing is left to choose.
    pub(super) fn all_of(&self, holder: DomainId) -> Option<Vec<(DomainId, u32)>> {
        let amount = self.problem.amount;
        if self.room(holder) != amount {
            return None;
        }
        let leaves = self.below(holder, Layer::LEAF);
        let shares: Vec<(DomainId, u32)> = leaves.into_iter().map(|leaf| (leaf, self.room(leaf))).collect();
        (shares.iter().map(|(_, room)| room).sum::<u32>() == amount).then_some(shares)
    }

    /// Shows so many nodes of a leaf that the job may have, in fabric order: the first, or of nodes that are shared the fullest.
    pub(super) fn take_of(&self, leaf: DomainId, count: usize, see: impl FnMut(Pos)) {
        if self.problem.shares_nodes() {
            self.problem.fullest(leaf, count).into_iter().for_each(see);
        } else {
            self.nodes_of(leaf).take(count).for_each(see);
        }
    }

    /// The nodes of a leaf that the job may have, in fabric order.
    #[inline]
    fn nodes_of(&self, leaf: DomainId) -> impl Iterator<Item = Pos> {
        let is_light = |index| self.lightest.as_ref().is_none_or(|lightest| lightest.nodes.contains(index));
        let open = self.problem.view.slots.open_in(self.problem.fabric.domain(leaf).range());
        open.filter(move |pos| is_light(pos.index()))
    }
}

/// How many open nodes of a set every domain has.
fn count(problem: &Problem<'_>, nodes: &FixedBitSet) -> Vec<u32> {
    let open = problem.view.slots.open();
    let mut rooms: Vec<u32> = Vec::with_capacity(problem.fabric.domains().size_hint().0);
    for (id, domain) in problem.fabric.domains() {
        let room = match domain.children() {
            _ if problem.is_barred(id) => 0,
            [] => count_both(open, nodes, domain.range()),
            children => children.iter().map(|child| rooms[child.index()]).sum(),
        };
        rooms.push(room);
    }
    rooms
}
