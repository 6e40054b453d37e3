//! The order in which domains are tried, and the domains that can be skipped, by what counts say of their
//! best placement.

use crate::model::fabric::DomainId;
use crate::model::topology::ScoreBefore;
use crate::sched::place::problem::{reach, sum_of_largest};
use crate::sched::place::special::fewest::largest;

use super::super::tree_knapsack::{Beside, KnapsackItem};
use super::items::Items;

impl Items<'_, '_> {
    /// The domains that may hold the best placement, each with a lower bound on the members that it needs:
    /// the fewest members first, then the least waste.
    pub(super) fn in_order(&self, holders: &[DomainId]) -> Vec<(DomainId, usize)> {
        let Some(nodes) = self.number_of_nodes() else {
            return self.with_fewest_members(holders).into_iter().map(|id| (id, 0)).collect();
        };
        let members = holders.iter().map(|&id| (id, self.fewest_members_with(id, nodes)));
        let mut order: Vec<(DomainId, usize)> = members.collect();
        order.sort_by(|(one, members), (other, than)| {
            members.cmp(than).then_with(|| self.by_waste(*one, *other))
        });
        order
    }

    /// The number of nodes, if it is given and the fewest members are decisive; otherwise `None`.
    pub(super) fn number_of_nodes(&self) -> Option<u32> {
        match self.beside {
            Beside::Nodes(nodes) if self.problem.ask.prefer.is_empty() && !self.is_mixed() => Some(nodes),
            _ => None,
        }
    }

    /// A lower bound on the nodes that hold the job within `leaves` leaves of a domain. For any `number`
    /// above 0, m nodes take at most m times the number plus what the nodes of the best leaves take beyond it
    /// (Lagrangian bound).
    fn fewest_nodes(&self, id: DomainId, leaves: usize, number: u32) -> u64 {
        let children = self.problem.fabric.domain(id).children();
        let beyond: Vec<u64> = children.iter().map(|&leaf| self.beyond(leaf, number)).collect();
        let most = sum_of_largest(beyond, leaves);
        u64::from(self.problem.amount).saturating_sub(most).div_ceil(number.max(1).into())
    }

    /// A lower bound on the number of a domain's members that are needed to hold the job on `nodes` nodes.
    fn fewest_members_with(&self, id: DomainId, nodes: u32) -> usize {
        let children = self.problem.fabric.domain(id).children();
        // One more than all members where even all do not reach the amount.
        let fewest = |mut sizes: Vec<u64>, amount: u64| {
            sizes.sort_unstable_by(|a, b| b.cmp(a));
            let all = sizes.len();
            reach(sizes, amount).unwrap_or(all + 1)
        };
        let counts = children.iter().map(|&child| self.problem.view.slots.nodes_of(child).into()).collect();
        let average = self.problem.amount / nodes.max(1);
        let by_room = [0, average / 2, average - average / 4, average].into_iter().map(|multiplier| {
            let worths = children.iter().map(|&child| self.beyond_below(child, multiplier)).collect();
            let paid = u64::from(nodes) * u64::from(multiplier);
            fewest(worths, u64::from(self.problem.amount).saturating_sub(paid))
        });
        by_room.fold(fewest(counts, nodes.into()), usize::max)
    }

    /// The sum over the nodes of a domain of the amount that each takes beyond `number`.
    fn beyond_below(&self, id: DomainId, number: u32) -> u64 {
        match self.problem.fabric.domain(id).children() {
            _ if self.room(id) == 0 => 0,
            _ if number == 0 => self.room(id).into(),
            [] => self.beyond(id, number),
            children => children.iter().map(|&child| self.beyond_below(child, number)).sum(),
        }
    }

    /// True if no placement in domain `id` can be as good as the known one in domain `than`, which uses
    /// `nodes`.
    pub(super) fn is_behind(
        &self,
        id: DomainId,
        members: usize,
        than: DomainId,
        nodes: &[KnapsackItem],
    ) -> bool {
        if self.number_of_nodes().is_some() {
            let fewer = members.cmp(&self.members_used(than, nodes));
            // Domains with equally many members may still differ in the number of domains below these
            // members.
            let is_told = [id, than].into_iter().all(|id| !self.are_members_divided(id));
            return if is_told { fewer.then_with(|| self.by_waste(id, than)).is_gt() } else { fewer.is_gt() };
        }
        if self.are_members_divided(id) || self.are_members_divided(than) {
            return false;
        }
        if !self.are_members_first() || !self.problem.lies_over_leaves(id) {
            return false;
        }
        if self.problem.by_nodes {
            // Placements in these domains differ in waste only.
            return self.by_waste(id, than).is_gt();
        }
        let fabric = self.problem.fabric;
        let most = nodes.len() as u64 - u64::from(self.by_waste(id, than).is_gt());
        let used = nodes.chunk_by(|a, b| fabric.leaf_of(a.pos) == fabric.leaf_of(b.pos)).count();
        let last = nodes.iter().map(|node| node.takes).min().unwrap_or(0);
        self.fewest_nodes(id, used, last) > most
    }

    /// True if the members of a domain consist of further domains.
    fn are_members_divided(&self, id: DomainId) -> bool {
        !self.problem.fabric.domain(id).children().is_empty() && !self.problem.lies_over_leaves(id)
    }

    /// Number of members of a domain that contain some of the nodes, which are in fabric order.
    fn members_used(&self, id: DomainId, nodes: &[KnapsackItem]) -> usize {
        let fabric = self.problem.fabric;
        let is_used = |&&child: &&DomainId| {
            let range = fabric.domain(child).range();
            let first = nodes.partition_point(|node| node.pos.index() < range.start);
            nodes.get(first).is_some_and(|node| range.contains(&node.pos.index()))
        };
        fabric.domain(id).children().iter().filter(is_used).count()
    }

    /// The domains that need the fewest members to hold the job, where that decides first, sorted by waste;
    /// otherwise all domains.
    pub(super) fn with_fewest_members(&self, holders: &[DomainId]) -> Vec<DomainId> {
        if !self.are_members_first() || holders.len() < 2 {
            return holders.to_vec();
        }
        let mut rooms: Vec<u32> = Vec::new();
        let (mut least, mut counted) = (u64::MAX, Vec::with_capacity(holders.len()));
        for &id in holders {
            rooms.clear();
            rooms.extend(self.problem.fabric.domain(id).children().iter().map(|&child| self.room(child)));
            let Some((count, _)) = largest(&mut rooms, self.problem.amount.into()) else { continue };
            least = least.min(count);
            if count == least {
                // The comparison below looks at these two first; computing them once saves time.
                let own = (self.problem.score(ScoreBefore::Fit, id), self.problem.slots(id));
                counted.push((count, own, id));
            }
        }
        counted.retain(|(count, _, _)| *count == least);
        counted.sort_by(|(_, own, one), (_, than, other)| {
            own.cmp(than).then_with(|| self.by_waste(*one, *other))
        });
        counted.into_iter().map(|(_, _, id)| id).collect()
    }
}
