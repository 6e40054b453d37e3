//! The domains below the holder of a job: their capacity, their cost, and the order in which layers count.

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
    /// The largest amount that the piece can take.
    pub(super) room: u32,
    /// The amount of the piece is a multiple of this unit.
    pub(super) unit: u32,
    pub(super) slots: u64,
    /// The lowest layer that the piece counts for.
    pub(super) layer: Layer,
    /// The least amount that the piece takes if every choice uses it; 0 otherwise.
    pub(super) least: u32,
    /// The layers that the piece counts for, as bits by order; none if every choice uses it, because it then
    /// costs nothing.
    pub(super) counts: usize,
    /// The layers that the piece counts for if every choice uses it, as bits by order.
    sure: usize,
    /// The index of the parent piece; `None` if the holder is the parent.
    pub(super) above: Option<usize>,
    /// The index behind the last piece below this one; the pieces below begin right behind this one.
    pub(super) end: usize,
}

/// Every domain with capacity below a holder, and the nodes where they are distinguished.
pub(super) struct Instance<'p> {
    pub(super) problem: &'p Problem<'p>,
    /// The pieces in fabric order, each domain before the pieces below it.
    pub(super) pieces: Vec<Piece>,
    /// The layers in the order in which their spans count.
    pub(super) order: Vec<Layer>,
}

impl<'p> Instance<'p> {
    /// Builds the instance of a holder. `order` has every layer from the leaves to below the holder, and
    /// `node` if nodes are distinguished.
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

    /// Adds the nodes of a domain, if it is a leaf and nodes are distinguished.
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

    /// True if the slots used in a leaf depend on the amount that it takes: nodes are shared and not
    /// distinguished.
    pub(super) fn divides_leaves(&self) -> bool {
        self.problem.shares_nodes() && !self.order.contains(&Layer::NODE)
    }

    /// The children of a piece, or of the holder, in fabric order.
    pub(super) fn below(&self, piece: Option<usize>) -> Vec<usize> {
        let (mut at, end) = piece.map_or((0, self.pieces.len()), |piece| (piece + 1, self.pieces[piece].end));
        let mut below = Vec::new();
        while at < end {
            below.push(at);
            at = self.pieces[at].end;
        }
        below
    }

    /// The lowest layer in the scope.
    pub(super) fn lowest(&self, scope: &Scope) -> Layer {
        let layers = self.order.iter().enumerate().filter(|(layer, _)| scope.covers(*layer));
        layers.map(|(_, layer)| *layer).min().unwrap_or(Layer::LEAF)
    }

    /// The fewest domains of a layer that hold the job besides those that every choice uses, and the amount
    /// of the smallest of them. `None` if all of them do not hold it.
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

    /// Number of domains of a layer that every choice uses.
    pub(super) fn sure(&self, layer: usize) -> u32 {
        self.pieces.iter().fold(0, |count, piece| count + u32::from(piece.sure >> layer & 1 == 1))
    }

    /// The amount of the job that each of several leaves takes, which hold it together and are in fabric
    /// order. Where the split does not matter, earlier leaves take as much as possible and leave the least
    /// amount to leaves that must be used.
    pub(super) fn share(&self, holder: DomainId, leaves: &[(usize, u32)]) -> Vec<(DomainId, u32)> {
        let problem = self.problem;
        let ids = leaves.iter().map(|&(leaf, _)| self.pieces[leaf].id);
        if self.divides_leaves() {
            return ids.zip(leaves).map(|(id, &(_, takes))| (id, takes)).collect();
        }
        // A leaf is represented by its first position.
        let first = |id: DomainId| position(problem.fabric.domain(id).range().start);
        let parts = ids.clone().zip(leaves).map(|(id, &(leaf, _))| {
            let Piece { least, room, .. } = self.pieces[leaf];
            (first(id), least, room)
        });
        let shares = fill(problem, holder, &parts.collect::<Vec<_>>(), &[]);
        ids.zip(shares).map(|(id, (_, share))| (id, share)).collect()
    }
}
