//! Decides whether given shares are a placement that a problem allows, and ranks them node by node, whatever
//! found them.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::ask::Mode;

use super::{Criterion, Item, Means, Problem, Rank, rank, rank_node};

/// The part of one domain that a placement uses.
#[derive(Debug, Clone, Copy, Default)]
struct Used {
    /// The amount in the unit of the problem: nodes, or tasks.
    amount: u32,
    nodes: u32,
    /// The GPUs that the nodes bring; see [`LeafLoad`](crate::sched::place::LeafLoad).
    load: u32,
}

impl Problem<'_> {
    /// The rank of shares given in fabric order; `None` if the problem does not allow them.
    pub(crate) fn judge(&self, shares: &[(Pos, u32)]) -> Option<Rank> {
        let positions: Vec<Pos> = shares.iter().map(|(pos, _)| *pos).collect();
        if !self.suits_nodes(shares, &positions) {
            return None;
        }
        let holder = self.fabric.deepest_common(&positions)?;
        let used = self.used(shares, holder)?;
        self.suits_domains(&used, holder).then(|| self.rank_of(shares, &used, holder))
    }

    /// True if each node may be used with its share, and the nodes add up to the request.
    fn suits_nodes(&self, shares: &[(Pos, u32)], positions: &[Pos]) -> bool {
        let sum: u64 = shares.iter().map(|(_, share)| u64::from(*share)).sum();
        let may = |&(pos, share): &(Pos, u32)| {
            let amount = if !self.by_nodes || share == 1 { self.amount_of(share) } else { 0 };
            amount > 0
                && amount <= self.most_on(pos)
                && amount.is_multiple_of(self.units[0])
                && self.may_use(pos)
        };
        let nodes = u32::try_from(shares.len()).unwrap_or(u32::MAX);
        let counts = (self.ask.counts.iter()).all(|(set, need)| {
            positions.iter().filter(|pos| set.contains(pos.index())).count() >= *need as usize
        });
        sum == self.wanted_slots()
            && positions.windows(2).all(|pair| pair[0] < pair[1])
            && shares.iter().all(may)
            && self.nodes.is_none_or(|wanted| wanted == nodes)
            && self.required.iter().all(|pos| positions.binary_search(pos).is_ok())
            && counts
    }

    /// The amount that a share on one node counts for.
    fn amount_of(&self, share: u32) -> u32 {
        if self.by_nodes { 1 } else { share }
    }

    /// The use of the holder and of every domain below it; `None` if a node is in no domain.
    fn used(&self, shares: &[(Pos, u32)], holder: DomainId) -> Option<BTreeMap<DomainId, Used>> {
        let mut used: BTreeMap<DomainId, Used> = BTreeMap::new();
        for &(pos, share) in shares {
            self.fabric.leaf_of(pos)?;
            for id in self.fabric.path_up(pos) {
                let one = used.entry(id).or_default();
                one.amount += self.amount_of(share);
                one.nodes += 1;
                one.load = one.load.saturating_add(self.load_of(pos));
                if id == holder {
                    break;
                }
            }
        }
        Some(used)
    }

    /// True if the holder is low enough, every used domain keeps its own limits, no layer has more used
    /// domains than allowed, and every domain that must be used is used.
    fn suits_domains(&self, used: &BTreeMap<DomainId, Used>, holder: DomainId) -> bool {
        let is_over = |&(layer, cap): &(Layer, u32)| {
            let counts = |id: &&DomainId| {
                let domain = self.fabric.domain(**id);
                **id != holder && (domain.layer()..=domain.cover()).contains(&layer)
            };
            used.keys().filter(counts).count() > cap as usize
        };
        let suits = |(&id, used): (&DomainId, &Used)| {
            let domain = self.fabric.domain(id);
            let (fewest, most) = self.node_limits(id);
            let is_rounded = id == holder
                || used.amount.is_multiple_of(self.unit(domain.cover()))
                    && self.suits_node_unit(domain.layer()..=domain.cover(), used.nodes);
            let is_in_leaf = domain.layer() > Layer::LEAF
                || used.amount <= self.leaf_cap(id)
                    && self.leaf_nodes.is_none_or(|most| used.nodes <= most)
                    && self.may_bring(used.load);
            !self.is_barred(id) && (fewest..=most).contains(&used.nodes) && is_rounded && is_in_leaf
        };
        let layer = if used.values().all(|used| used.nodes == 1) {
            Layer::NODE
        } else {
            self.fabric.domain(holder).layer()
        };
        self.within.is_none_or(|within| layer <= within)
            && used.iter().all(suits)
            && !self.span_caps.iter().any(is_over)
            && self.forced_domains.iter().all(|id| used.contains_key(id))
            && self.limits.iter().all(|(id, (least, _))| *least == 0 || used.contains_key(id))
    }

    fn rank_of(&self, shares: &[(Pos, u32)], used: &BTreeMap<DomainId, Used>, holder: DomainId) -> Rank {
        let are_whole = self.view.slots.are_whole();
        let is_spread = self.ask.mode == Mode::Distributed;
        if let ([(pos, _)], true) = (shares, self.within == Some(Layer::NODE) || !are_whole && !is_spread)
            && let Some(item) = self.node::<Vec<i64>>(*pos, (0, u32::MAX))
        {
            return rank_node(self, *pos, &item);
        }
        let mut item = Item::<Vec<i64>>::nothing(self.layout.width());
        let square = |fields: &mut [i64], layer: usize, amount: u32| {
            fields[self.layout.tail(layer)] += i64::from(amount) * i64::from(amount);
        };
        for &(pos, share) in shares {
            self.charge_node(&mut item.cost, pos);
            if is_spread && !self.by_nodes {
                square(&mut item.cost, 0, share);
            }
        }
        for (&id, used) in used.iter().filter(|(id, _)| **id != holder) {
            let domain = self.fabric.domain(id);
            self.charge(&mut item.cost, domain.layer(), domain.cover(), self.slots(id));
            if is_spread {
                (domain.layer().index()..=domain.cover().index())
                    .for_each(|layer| square(&mut item.cost, layer, used.amount));
            }
        }
        Rank { even: self.evenness(shares, used, holder), ..rank(self, holder, &item) }
    }

    /// The least share (negated) and the largest share at each layer below the holder, from the top down;
    /// empty unless the placement is balanced.
    fn evenness(
        &self,
        shares: &[(Pos, u32)],
        used: &BTreeMap<DomainId, Used>,
        holder: DomainId,
    ) -> Vec<Criterion> {
        if self.ask.mode != Mode::Balanced {
            return Vec::new();
        }
        let lowest = usize::from(self.by_nodes);
        let layers = (lowest..self.fabric.domain(holder).layer().index()).rev();
        let of_layer = |layer: usize| -> [Criterion; 2] {
            let counts = |id: &DomainId| {
                let domain = self.fabric.domain(*id);
                *id != holder && (domain.layer().index()..=domain.cover().index()).contains(&layer)
            };
            let domains = used.iter().filter(|(id, _)| counts(id)).map(|(_, used)| used.amount);
            let nodes = shares.iter().filter(|_| layer == 0).map(|(_, share)| *share);
            let (least, most) = domains
                .chain(nodes)
                .fold((u32::MAX, 0), |(least, most), amount| (least.min(amount), most.max(amount)));
            [-i64::from(least), i64::from(most)].map(|value| Criterion { value, means: Means::Even })
        };
        layers.flat_map(of_layer).collect()
    }
}
