//! Tests by counts: members cannot all be within some positions if they take more than is there.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::sched::inventory::amounts::{CPUS, RoomId};
use crate::sched::request::whole_leaves::fewest_nodes;

use super::search::{JointSearch, positions};

/// Number of members whose nodes are compared with the existing ones in every subset; of more, those that
/// want the most.
const MOST_COMPARED: usize = 8;

/// The members that have a slot on a node, one bit each.
type Mask = u32;

impl JointSearch<'_, '_> {
    /// True if the least that all members take may be there, by counts. Never false if there is a way to
    /// place them.
    pub(super) fn may_hold_all(&mut self, within: Option<&FixedBitSet>) -> bool {
        let count = self.members.len();
        let nodes = self.nodes_within(within);
        // For each member, the number of nodes by their slots.
        let mut rows: Vec<BTreeMap<u32, u32>> = vec![BTreeMap::new(); count];
        let mut cpus: BTreeMap<u64, u64> = BTreeMap::new();
        for &node in &nodes {
            let mut most = 0;
            for (member, row) in rows.iter_mut().enumerate() {
                let Some(room) = self.room_on(member, node) else { continue };
                most = most.max(self.rooms.amount(room)[CPUS]);
                *row.entry(self.slots_on(member, node)).or_default() += 1;
            }
            *cpus.entry(most).or_default() += 1;
        }
        let least: Option<Vec<u64>> =
            (0..count).map(|member| self.least_nodes(member, &rows[member])).collect();
        let Some(least) = least else { return false };
        self.have_cpus(&least, &cpus) && self.have_nodes(&least, &nodes)
    }

    /// The nodes within some positions, which belong to one fabric.
    fn nodes_within(&self, within: Option<&FixedBitSet>) -> Vec<NodeId> {
        match within {
            Some(_) => {
                let fabric = &self.members[0].eligible.fabric;
                positions(fabric, within).map(|pos| fabric.node(pos)).collect()
            }
            None => (0..self.left.first().map_or(0, Vec::len)).map(NodeId::at).collect(),
        }
    }

    /// The amount that a member has on a node; `None` if the node is not on its fabric or may not be used.
    fn room_on(&self, member: usize, node: NodeId) -> Option<RoomId> {
        self.members[member].eligible.position(node)?;
        self.left[member][node.index()]
    }

    /// The fewest nodes and slots that a member asks for.
    pub(super) fn asks_for(&self, member: usize) -> (u64, u64) {
        let ask = self.members[member].asks.last();
        let nodes = ask.and_then(|ask| ask.nodes).map_or(1, |(least, _)| u64::from(least));
        (nodes, ask.and_then(|ask| ask.tasks).map_or(nodes, u64::from).max(nodes))
    }

    /// The fewest nodes that hold a member, the largest first; `None` if all do not.
    fn least_nodes(&self, member: usize, row: &BTreeMap<u32, u32>) -> Option<u64> {
        let (nodes, slots) = self.asks_for(member);
        let most = if self.members[member].need.counts_nodes() { 1 } else { u32::MAX };
        let kinds = row.iter().map(|(has, count)| ((*has).min(most), *count)).collect();
        Some(u64::from(fewest_nodes(kinds, slots)?).max(nodes))
    }

    /// True if members that share nodes have enough CPUs beside the smallest nodes, which others take whole.
    fn have_cpus(&self, least: &[u64], cpus: &BTreeMap<u64, u64>) -> bool {
        let (mut whole, mut shared) = (0, 0_u64);
        for (member, nodes) in least.iter().enumerate() {
            let need = self.members[member].need;
            if need.whole {
                whole += nodes;
            } else {
                let slots = self.asks_for(member).1;
                shared = shared.saturating_add(need.cpus_of_slot().saturating_mul(slots).max(*nodes));
            }
        }
        let mut left = 0_u64;
        for (has, count) in cpus.iter().filter(|(has, _)| **has > 0) {
            let taken = whole.min(*count);
            whole -= taken;
            left = left.saturating_add(has * (count - taken));
        }
        whole == 0 && shared <= left
    }

    /// True if every set of members of which no two can share a node has as many nodes as its members take
    /// together.
    fn have_nodes(&mut self, least: &[u64], nodes: &[NodeId]) -> bool {
        let mut order: Vec<usize> = (0..self.members.len()).collect();
        order.sort_by_key(|member| (!self.members[*member].need.whole, std::cmp::Reverse(least[*member])));
        order.truncate(MOST_COMPARED);
        let mut masks: BTreeMap<Mask, u64> = BTreeMap::new();
        for &node in nodes {
            let mut mask = 0;
            for (bit, member) in order.iter().enumerate() {
                let is_there = self.room_on(*member, node).is_some();
                mask |= Mask::from(is_there && self.slots_on(*member, node) > 0) << bit;
            }
            *masks.entry(mask).or_default() += 1;
        }
        let mut shut_out = BTreeMap::new();
        (1..Mask::from(1_u8) << order.len()).all(|set: Mask| {
            let members: Vec<usize> =
                order.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1).map(|(_, m)| *m).collect();
            let wanted: u64 = members.iter().map(|member| least[*member]).sum();
            let has: u64 = masks.iter().filter(|(mask, _)| *mask & set != 0).map(|(_, count)| count).sum();
            wanted <= has || !self.are_apart(&members, nodes, &mut shut_out)
        })
    }

    /// True if no two of the members can share any node. `known` keeps the results for pairs.
    fn are_apart(
        &mut self,
        members: &[usize],
        nodes: &[NodeId],
        known: &mut BTreeMap<(usize, usize), bool>,
    ) -> bool {
        let mut members = members.to_vec();
        members.sort_unstable();
        let all = members.iter().enumerate();
        let mut pairs = all.flat_map(|(at, one)| members[at + 1..].iter().map(|other| (*one, *other)));
        pairs.all(|pair| *known.entry(pair).or_insert_with(|| self.two_are_apart(pair, nodes)))
    }

    /// True if one slot of a member leaves no slot to another one placed after it, on every node.
    fn two_are_apart(&mut self, (one, other): (usize, usize), nodes: &[NodeId]) -> bool {
        if self.members[one].need.whole || self.members[other].need.whole {
            return true;
        }
        let mut seen: BTreeMap<(RoomId, RoomId), bool> = BTreeMap::new();
        nodes.iter().all(|&node| {
            let rooms = (self.room_on(one, node), self.room_on(other, node));
            let (Some(room), Some(theirs)) = rooms else { return true };
            *seen.entry((room, theirs)).or_insert_with(|| {
                let shape = self.rooms.shape(self.rooms.class_of(room));
                let taken = self.members[one].need.takes(shape, self.rooms.amount(room), 1);
                let Some(taken) = taken else { return true };
                let left = self.rooms.minus(theirs, &taken);
                self.members[other]
                    .need
                    .slots(self.rooms.shape(self.rooms.class_of(left)), self.rooms.amount(left))
                    == 0
            })
        })
    }
}
