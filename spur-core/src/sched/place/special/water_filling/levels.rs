//! The most even shares of the members of domains.

use smallvec::SmallVec;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::halve;

use super::share_bounds::ShareBounds;

/// The increase of the sum of squares per layer for one more unit, from the layer of a domain down.
type Step = SmallVec<[u64; 8]>;

/// The sums of a choice below its holder.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Number of units of each used leaf.
    pub(super) shares: Vec<(DomainId, u32)>,
    /// Number of used domains at each layer.
    pub(super) spans: Vec<u32>,
    /// The sum of the squares of their shares at each layer.
    pub(super) squares: Vec<u64>,
}

impl Tally {
    fn add(&mut self, layer: usize, units: u32) {
        self.spans[layer] += 1;
        self.squares[layer] = self.squares[layer].saturating_add(u64::from(units) * u64::from(units));
    }
}

impl ShareBounds<'_, '_> {
    /// The most even way to spread the whole job over a holder whose bounds are settled.
    pub(super) fn tally(&self, holder: DomainId) -> Tally {
        let layers = self.problem.fabric.domain(holder).layer().index();
        let mut tally = Tally { shares: Vec::new(), spans: vec![0; layers], squares: vec![0; layers] };
        self.give(holder, self.amount(), &mut tally);
        tally
    }

    fn give(&self, id: DomainId, units: u32, tally: &mut Tally) {
        let members = self.members(id);
        if members.is_empty() {
            tally.shares.push((id, units));
            self.node_shares(id, units).iter().for_each(|&(_, share)| tally.add(Layer::NODE.index(), share));
            return;
        }
        for (member, share) in self.split(&members, units) {
            let domain = self.problem.fabric.domain(member);
            (domain.layer().index()..=domain.cover().index()).for_each(|layer| tally.add(layer, share));
            self.give(member, share, tally);
        }
    }

    /// The members of a domain that may be used, each with the least and the most units that it gives.
    fn members(&self, id: DomainId) -> Vec<(DomainId, (u32, u32))> {
        let children = self.problem.fabric.domain(id).children().iter();
        children.map(|&child| (child, self.share(child).range())).filter(|(_, (_, most))| *most > 0).collect()
    }

    /// The most even shares of the used members of a domain.
    fn split(&self, members: &[(DomainId, (u32, u32))], units: u32) -> Vec<(DomainId, u32)> {
        let (level, over) = level(members, units);
        let mut shares: Vec<(DomainId, u32)> =
            members.iter().map(|&(id, bounds)| (id, at(level, bounds))).collect();
        for (place, _) in self.in_order(members, level).into_iter().take(over as usize) {
            shares[place].1 += 1;
        }
        shares.retain(|(_, share)| *share > 0);
        shares
    }

    /// The members at the level that may give one more unit, by index, in the order in which they do, each
    /// with the increase.
    fn in_order(&self, members: &[(DomainId, (u32, u32))], level: u32) -> Vec<(usize, Step)> {
        let at_level = members.iter().enumerate().filter(|(_, (_, bounds))| is_at(level, *bounds));
        let mut order: Vec<(usize, Step)> =
            at_level.map(|(place, &(id, _))| (place, self.step(id, level))).collect();
        order.sort_by(|(_, one), (_, other)| one.cmp(other));
        order
    }

    /// The increase of the sums of squares if a domain gives one unit more than `units`.
    fn step(&self, id: DomainId, units: u32) -> Step {
        let domain = self.problem.fabric.domain(id);
        let own = 2 * u64::from(units) + 1;
        let mut step = Step::from_elem(own, domain.cover().index() - domain.layer().index() + 1);
        if !domain.children().is_empty() {
            let members = self.members(id);
            let (level, over) = level(&members, units);
            let next = self.in_order(&members, level).into_iter().nth(over as usize);
            step.extend(next.into_iter().flat_map(|(_, below)| below));
        } else if !self.problem.by_nodes {
            // Where tasks are placed, nodes have shares, too.
            let (level, _) = level(&self.node_bounds(id), units);
            step.push(2 * u64::from(level) + 1);
        }
        step
    }

    /// The tasks of each used node of a leaf, in units; empty where nodes are placed.
    fn node_shares(&self, leaf: DomainId, units: u32) -> Vec<(Pos, u32)> {
        if self.problem.by_nodes {
            return Vec::new();
        }
        let nodes = self.node_bounds(leaf);
        let (level, mut over) = level(&nodes, units);
        let share = |(pos, bounds)| {
            let is_more = over > 0 && is_at(level, bounds);
            over -= u32::from(is_more);
            (pos, at(level, bounds) + u32::from(is_more))
        };
        nodes.into_iter().map(share).filter(|(_, share)| *share > 0).collect()
    }

    /// The nodes of a choice in fabric order, each with its share.
    pub(super) fn nodes(&self, shares: &[(DomainId, u32)]) -> Vec<(Pos, u32)> {
        let mut nodes = Vec::new();
        for &(leaf, units) in shares {
            match self.problem.by_nodes {
                true => nodes.extend(self.first_nodes(leaf, units).into_iter().map(|pos| (pos, 1))),
                false => {
                    let shares = self.node_shares(leaf, units).into_iter();
                    nodes.extend(shares.map(|(pos, share)| (pos, share * self.unit)));
                }
            }
        }
        nodes
    }
}

/// The units that a member gives at a level.
fn at(level: u32, (least, most): (u32, u32)) -> u32 {
    level.clamp(least, most)
}

/// True if a member is at the level and may give one unit more.
fn is_at(level: u32, (least, most): (u32, u32)) -> bool {
    (least..most).contains(&level)
}

/// The highest level at which the members give at most `units`, and the number of units that remain.
fn level<T>(members: &[(T, (u32, u32))], units: u32) -> (u32, u32) {
    let sum = |level: u32| -> u64 { members.iter().map(|(_, bounds)| u64::from(at(level, *bounds))).sum() };
    let highest = members.iter().map(|(_, (_, most))| *most).max().unwrap_or(0).min(units);
    let fits = halve(0, highest.saturating_add(1), |level| sum(level) <= u64::from(units));
    (fits, u32::try_from(u64::from(units).saturating_sub(sum(fits))).unwrap_or(u32::MAX))
}
