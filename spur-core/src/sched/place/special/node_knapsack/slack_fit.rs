//! The best nodes of a domain of which the best choice uses a known number of members and of what they consist of: the
//! fewest slots in those members, then in what they consist of, then in the nodes.

use std::cell::OnceCell;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::{smallest, sums_of_smallest};
use crate::sched::place::special::outcome::NoChoice;
use crate::sched::place::special::slack_bound::{Parts, SlackBound};
use crate::sched::place::special::slack_tables::{Prices, Used, choose};

use super::dynamic_programme::Candidate;
use super::items::{Items, Piece};

/// Slots of members and of what they consist of.
pub(super) struct Slots<'s, 'p, 'a> {
    items: &'s Items<'p, 'a>,
    members: &'s [DomainId],
    parts: &'s [Vec<(Piece, u32)>],
    /// Bits of a number of slots.
    bits: u32,
    /// By member and by leaf of it, where leaves are what it consists of: the slots of none of its nodes, of the one with
    /// the fewest, of the two with the fewest, and so on.
    leaves: Vec<Vec<OnceCell<Vec<u64>>>>,
}

impl<'s, 'p, 'a> Slots<'s, 'p, 'a> {
    /// None where that is not all that the choices in a domain differ in.
    pub(super) fn new(
        items: &'s Items<'p, 'a>,
        holder: DomainId,
        members: &'s [DomainId],
        parts: &'s [Vec<(Piece, u32)>],
    ) -> Option<Self> {
        let problem = items.problem;
        let fabric = problem.fabric;
        let are_nodes_alike = problem.per_node.is_some();
        let highest = if are_nodes_alike { Layer::LEAF.0 + 2 } else { Layer::LEAF.0 + 1 };
        let bits = u64::BITS - problem.slots(holder).leading_zeros();
        if members.is_empty() || fabric.domain(holder).layer().0 > highest || 3 * bits > 61 {
            return None;
        }
        let none = |part: &Vec<(Piece, u32)>| (0..part.len()).map(|_| OnceCell::new()).collect();
        let leaves = if are_nodes_alike { parts.iter().map(none).collect() } else { Vec::new() };
        Some(Self { items, members, parts, bits, leaves })
    }

    /// The best nodes, in fabric order; None where that takes too long to find.
    pub(super) fn best(&self, sizes: &Parts, slack_bound: &SlackBound) -> Option<Vec<Candidate>> {
        self.choose(sizes, slack_bound).ok()
    }

    /// The best nodes of exactly so many, in fabric order; None where that takes too long to find.
    pub(super) fn best_of(&self, sizes: &Parts, nodes: u32) -> Option<Vec<Candidate>> {
        let amount = self.items.problem.amount;
        let mut found =
            SlackBound::of_exactly(sizes, amount, nodes).map(|slack_bound| self.choose(sizes, &slack_bound));
        found.find(|found| *found != Err(NoChoice::Nowhere))?.ok()
    }

    fn choose(&self, sizes: &Parts, slack_bound: &SlackBound) -> Result<Vec<Candidate>, NoChoice> {
        let all: Vec<usize> = (0..self.parts.len()).collect();
        let used = choose(sizes, slack_bound, &all, self)?;
        let mut nodes = Vec::with_capacity(used.len());
        for Used { part, piece, less } in used {
            match &self.parts[part][piece].0 {
                Piece::Node(node) => nodes.push(*node),
                Piece::Domain(leaf) => {
                    let open = self.items.nodes_of(*leaf);
                    if less == 0 {
                        nodes.extend(open);
                        continue;
                    }
                    let slots: Vec<u64> = self.slots_of(&open).collect();
                    nodes.extend(smallest(&slots, open.len() - less).map(|node| open[node]));
                }
            }
        }
        nodes.sort_unstable_by_key(|node| node.pos);
        Ok(nodes)
    }

    fn slots_of(&self, nodes: &[Candidate]) -> impl Iterator<Item = u64> {
        nodes.iter().map(|node| self.items.problem.slots_of_node(node.pos))
    }

    /// What the nodes of a leaf have; see the field.
    fn leaf(&self, part: usize, piece: usize, id: DomainId) -> &[u64] {
        self.leaves[part][piece].get_or_init(|| {
            let mut slots = self.slots_of(&self.items.nodes_of(id)).collect();
            sums_of_smallest(&mut slots);
            slots
        })
    }
}

impl Prices for Slots<'_, '_, '_> {
    fn of_part(&self, part: usize) -> u64 {
        self.items.problem.slots(self.members[part]) << (2 * self.bits)
    }

    fn of_piece(&self, part: usize, piece: usize, less: usize) -> u64 {
        let problem = self.items.problem;
        match &self.parts[part][piece].0 {
            Piece::Node(node) => problem.slots_of_node(node.pos),
            Piece::Domain(id) => {
                let nodes = self.leaf(part, piece, *id);
                problem.slots(*id) << self.bits | nodes[nodes.len() - 1 - less]
            }
        }
    }

    fn of_any_of_piece(&self, part: usize, piece: usize) -> u64 {
        match &self.parts[part][piece].0 {
            Piece::Domain(id) => self.items.problem.slots(*id) << self.bits,
            Piece::Node(_) => self.of_piece(part, piece, 0),
        }
    }

    fn are_for_what_is_taken(&self) -> bool {
        self.items.problem.per_node.is_some()
    }
}
