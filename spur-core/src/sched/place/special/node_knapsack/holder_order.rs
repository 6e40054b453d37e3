//! In which order domains are looked at, and which need not be: by what counts say of the best placement in each.

use crate::model::fabric::DomainId;
use crate::model::topology::ScoreBefore;
use crate::sched::place::problem::{reach, sum_of_largest};
use crate::sched::place::special::fewest::largest;

use super::super::tree_knapsack::{Beside, KnapsackItem};
use super::items::Items;

impl Items<'_, '_> {
    /// Of domains that can hold the job, those that may hold the best placement, and how few members of each may do: those
    /// that need fewest before the others, then those that leave least.
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

    /// The number of nodes, where that is given and the fewest members that have as many come first.
    pub(super) fn number_of_nodes(&self) -> Option<u32> {
        match self.beside {
            Beside::Nodes(nodes) if self.problem.ask.prefer.is_empty() && !self.is_mixed() => Some(nodes),
            _ => None,
        }
    }

    /// No fewer nodes of so many leaves of a domain hold the job: m of them take no more than m times any number above 0
    /// and what the nodes of the leaves that have most of it take beyond that number.
    fn fewest_nodes(&self, id: DomainId, leaves: usize, number: u32) -> u64 {
        let children = self.problem.fabric.domain(id).children();
        let beyond: Vec<u64> = children.iter().map(|&leaf| self.beyond(leaf, number)).collect();
        let most = sum_of_largest(beyond, leaves);
        u64::from(self.problem.amount).saturating_sub(most).div_ceil(number.max(1).into())
    }

    /// No fewer members of a domain have so many nodes that hold the job.
    fn fewest_members_with(&self, id: DomainId, nodes: u32) -> usize {
        let children = self.problem.fabric.domain(id).children();
        // One more than there are where not all of them do.
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

    /// What the nodes of a domain take beyond a number, in sum.
    fn beyond_below(&self, id: DomainId, number: u32) -> u64 {
        match self.problem.fabric.domain(id).children() {
            _ if self.room(id) == 0 => 0,
            _ if number == 0 => self.room(id).into(),
            [] => self.beyond(id, number),
            children => children.iter().map(|&child| self.beyond_below(child, number)).sum(),
        }
    }

    /// Whether no placement in a domain, of whose nodes something is known, can be as good as one in another that needs
    /// as few members for it.
    pub(super) fn is_behind(
        &self,
        id: DomainId,
        members: usize,
        than: DomainId,
        nodes: &[KnapsackItem],
    ) -> bool {
        if self.number_of_nodes().is_some() {
            let fewer = members.cmp(&self.members_used(than, nodes));
            // Equally many members may have more of what is below them in one domain than in the other.
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
            // Placements differ in nothing but what they leave.
            return self.by_waste(id, than).is_gt();
        }
        let fabric = self.problem.fabric;
        let most = nodes.len() as u64 - u64::from(self.by_waste(id, than).is_gt());
        let used = nodes.chunk_by(|a, b| fabric.leaf_of(a.pos) == fabric.leaf_of(b.pos)).count();
        let last = nodes.iter().map(|node| node.takes).min().unwrap_or(0);
        self.fewest_nodes(id, used, last) > most
    }

    /// Whether members of a domain consist of further domains.
    fn are_members_divided(&self, id: DomainId) -> bool {
        !self.problem.fabric.domain(id).children().is_empty() && !self.problem.lies_over_leaves(id)
    }

    /// How many members of a domain some nodes of it, which are in fabric order, lie in.
    fn members_used(&self, id: DomainId, nodes: &[KnapsackItem]) -> usize {
        let fabric = self.problem.fabric;
        let is_used = |&&child: &&DomainId| {
            let range = fabric.domain(child).range();
            let first = nodes.partition_point(|node| node.pos.index() < range.start);
            nodes.get(first).is_some_and(|node| range.contains(&node.pos.index()))
        };
        fabric.domain(id).children().iter().filter(is_used).count()
    }

    /// Of domains that can hold the job, those that need the fewest members for it, where that comes first: those
    /// that leave least before the others.
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
                // What the comparison below looks at first.
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
