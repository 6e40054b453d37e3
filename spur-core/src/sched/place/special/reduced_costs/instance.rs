//! What lies below the domain that is to hold the job: every domain with room, what it costs to use it, and in which order
//! that counts.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::pareto::fill;
use crate::sched::place::problem::{Problem, position};
use crate::sched::place::special::fewest::largest;

use super::CapacityBounds;
use super::multipliers::Scope;

/// A domain below the holder, or a node.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// The domain; for a node, its leaf.
    pub(super) id: DomainId,
    pub(super) node: Option<Pos>,
    /// The most that it can take.
    pub(super) room: u32,
    /// What it takes is a multiple of this.
    pub(super) unit: u32,
    pub(super) slots: u64,
    /// The lowest layer that it counts for.
    pub(super) layer: Layer,
    /// What it takes at least, because it is sure to be used; none of the others is.
    pub(super) least: u32,
    /// The layers in order for which it counts, as bits: none if it is used in any case and so costs nothing.
    pub(super) counts: usize,
    /// The layers for which it counts if it is used in any case, as bits.
    sure: usize,
    /// The piece that it is directly below; None: the holder.
    pub(super) above: Option<usize>,
    /// Where the pieces below it end; they begin behind it.
    pub(super) end: usize,
}

/// Every domain with room below a holder, and the nodes where they are told apart.
pub(super) struct Instance<'p> {
    pub(super) problem: &'p Problem<'p>,
    /// A domain before those below it, in fabric order.
    pub(super) pieces: Vec<Piece>,
    /// The layers in the order in which using few of their domains counts.
    pub(super) order: Vec<Layer>,
}

impl<'p> Instance<'p> {
    /// `order` has every layer from the leaves to below the holder, and `node` where nodes are told apart.
    pub(super) fn new(
        problem: &'p Problem<'p>,
        holder: DomainId,
        order: Vec<Layer>,
        takes: &impl CapacityBounds,
    ) -> Self {
        let mut instance = Self { problem, pieces: Vec::new(), order };
        for &child in problem.fabric.domain(holder).children() {
            instance.add(child, None, takes);
        }
        instance.add_nodes(holder, None, takes);
        instance
    }

    fn add(&mut self, id: DomainId, above: Option<usize>, takes: &impl CapacityBounds) {
        let problem = self.problem;
        let (least, own) = takes.of(id);
        if own == 0 {
            return;
        }
        let domain = problem.fabric.domain(id);
        let layers = domain.layer()..=domain.cover();
        let counted = self.order.iter().enumerate().filter(|(_, layer)| layers.contains(layer));
        let counts = counted.fold(0, |bits, (at, _)| bits | 1 << at);
        let (counts, sure) = if least > 0 { (0, counts) } else { (counts, 0) };
        let at = self.pieces.len();
        self.pieces.push(Piece {
            id,
            node: None,
            room: own,
            unit: problem.unit(domain.cover()),
            slots: problem.slots(id),
            layer: domain.layer(),
            least,
            counts,
            sure,
            above,
            end: at,
        });
        for &child in domain.children() {
            self.add(child, Some(at), takes);
        }
        self.add_nodes(id, Some(at), takes);
        self.pieces[at].end = self.pieces.len();
    }

    /// Adds the nodes of a domain, if it is a leaf and nodes are told apart.
    fn add_nodes(&mut self, id: DomainId, above: Option<usize>, takes: &impl CapacityBounds) {
        let problem = self.problem;
        let layer = self.order.iter().position(|layer| *layer == Layer::NODE);
        let Some(layer) = layer.filter(|_| problem.fabric.domain(id).children().is_empty()) else { return };
        takes.each_of(id, |pos, room| {
            let end = self.pieces.len() + 1;
            self.pieces.push(Piece {
                id,
                node: Some(pos),
                room,
                unit: 1,
                slots: problem.slots_of_node(pos),
                layer: Layer::NODE,
                least: 0,
                counts: 1 << layer,
                sure: 0,
                above,
                end,
            });
        });
    }

    /// Whether the slots in use of a leaf depend on how much of the job it takes: nodes are shared and not told apart.
    pub(super) fn divides_leaves(&self) -> bool {
        self.problem.shares_nodes() && !self.order.contains(&Layer::NODE)
    }

    /// The pieces directly below one, or below the holder, in fabric order.
    pub(super) fn below(&self, piece: Option<usize>) -> Vec<usize> {
        let (mut at, end) = piece.map_or((0, self.pieces.len()), |piece| (piece + 1, self.pieces[piece].end));
        let mut below = Vec::new();
        while at < end {
            below.push(at);
            at = self.pieces[at].end;
        }
        below
    }

    /// The lowest of the layers that are looked at.
    pub(super) fn lowest(&self, scope: &Scope) -> Layer {
        let layers = self.order.iter().enumerate().filter(|(layer, _)| scope.covers(*layer));
        layers.map(|(_, layer)| *layer).min().unwrap_or(Layer::LEAF)
    }

    /// How few domains of one of the layers hold the job besides those that are used in any case, whatever else, and what the
    /// last of them takes; None where not all of them do.
    pub(super) fn fewest(&self, layer: usize) -> Option<(u32, u32)> {
        let held = self.pieces.iter().filter(|piece| piece.sure >> layer & 1 == 1);
        let left =
            held.fold(u64::from(self.problem.amount), |left, piece| left.saturating_sub(piece.room.into()));
        if left == 0 {
            return Some((0, 0));
        }
        let counts = |piece: &&Piece| piece.counts >> layer & 1 == 1;
        let mut rooms: Vec<u32> = self.pieces.iter().filter(counts).map(|piece| piece.room).collect();
        let (fewest, last) = largest(&mut rooms, left)?;
        Some((u32::try_from(fewest).ok()?, u32::try_from(last).ok()?))
    }

    /// How many domains of one of the layers are used in any case.
    pub(super) fn sure(&self, layer: usize) -> u32 {
        self.pieces.iter().fold(0, |count, piece| count + u32::from(piece.sure >> layer & 1 == 1))
    }

    /// How much of the job each of some leaves of the holder takes, which hold it together and are in fabric order: where that
    /// does not matter the first as much as it can and leaves to those that are sure to be used.
    pub(super) fn share(&self, holder: DomainId, leaves: &[(usize, u32)]) -> Vec<(DomainId, u32)> {
        let problem = self.problem;
        let ids = leaves.iter().map(|&(leaf, _)| self.pieces[leaf].id);
        if self.divides_leaves() {
            return ids.zip(leaves).map(|(id, &(_, takes))| (id, takes)).collect();
        }
        // Each goes by its first position.
        let first = |id: DomainId| position(problem.fabric.domain(id).range().start);
        let parts = ids.clone().zip(leaves).map(|(id, &(leaf, _))| {
            let Piece { least, room, .. } = self.pieces[leaf];
            (first(id), least, room)
        });
        let shares = fill(problem, holder, &parts.collect::<Vec<_>>(), &[]);
        ids.zip(shares).map(|(id, (_, share))| (id, share)).collect()
    }
}
