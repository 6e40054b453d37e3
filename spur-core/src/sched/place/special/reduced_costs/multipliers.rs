//! What can be told of the best choice beforehand: no less than so many domains of each layer, and what they take beyond
//! multipliers.
//!
//! With a multiplier for every domain of a layer, a choice takes no more than the multipliers of what it uses and what the domains
//! that are worth it take beyond their multipliers; how many it uses of each layer is known, so that a choice which holds the
//! job has only the difference to spend. Multipliers that leave least are found going down along each of them.

use std::rc::Rc;

use fixedbitset::FixedBitSet;

use crate::model::fabric::Layer;

use super::instance::Instance;

/// Rounds of going down at most.
const ROUNDS: usize = 12;

/// The multipliers of the layers in order, nothing for those that are not looked at, and what they leave.
#[derive(Debug, Clone)]
pub(super) struct Multipliers {
    pub(super) multipliers: Vec<i64>,
    /// By how much the multipliers and what the domains take beyond them are more than the job; less than nothing where so few
    /// domains do not hold it.
    pub(super) slack: i64,
    /// Which domains may be used, by what the multipliers of fewer layers leave to spend; of others nothing counts.
    pub(super) usable: Rc<FixedBitSet>,
}

/// Which of the layers in order are looked at.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    /// The first so many; the others only where they have a limit.
    pub(super) known: usize,
    /// By layer: the most domains that may be used, where that is searched for.
    pub(super) most: Vec<Option<u32>>,
}

impl Scope {
    /// Whether a layer is looked at.
    pub(super) fn covers(&self, layer: usize) -> bool {
        layer < self.known || self.most[layer].is_some()
    }
}

/// The domains down to the lowest of the layers that are looked at; what lies below is taken whole.
pub(super) struct LagrangianBounds<'g> {
    instance: &'g Instance<'g>,
    scope: &'g Scope,
    usable: Rc<FixedBitSet>,
    domains: Vec<BoundedDomain>,
    /// What the domains below each are worth; reused.
    sums: Vec<i32>,
}

/// A domain as it counts in a bound.
#[derive(Debug, Clone, Copy)]
struct BoundedDomain {
    /// The index of the one above.
    above: u32,
    /// What it takes if it is taken whole, and at most.
    whole: i32,
    room: i32,
    /// The layers for which it counts, as bits.
    counts: u32,
}

impl<'g> LagrangianBounds<'g> {
    /// `known` are the multipliers of fewer layers: domains that those leave no room for are left out.
    pub(super) fn new(instance: &'g Instance<'g>, scope: &'g Scope, known: &[Multipliers]) -> Self {
        let lowest = instance.lowest(scope);
        let (domains, sums) = (Vec::with_capacity(instance.pieces.len() + 1), Vec::new());
        let all = || (0..instance.pieces.len()).collect();
        let usable = Rc::new(known.last().map_or_else(all, |known| usable(instance, known)));
        let mut bounds = Self { instance, scope, usable, domains, sums };
        let number = |room: u32| i32::try_from(room).unwrap_or(i32::MAX);
        let mut numbers = vec![0_u32; instance.pieces.len()];
        let mut at = 0;
        // The first is the holder.
        bounds.domains.push(BoundedDomain { above: 0, whole: 0, room: i32::MAX, counts: 0 });
        while at < instance.pieces.len() {
            let piece = &instance.pieces[at];
            if !bounds.usable.contains(at) {
                at = piece.end;
                continue;
            }
            let is_whole = piece.layer <= lowest || piece.end == at + 1;
            numbers[at] = u32::try_from(bounds.domains.len()).unwrap_or(u32::MAX);
            bounds.domains.push(BoundedDomain {
                above: piece.above.map_or(0, |above| numbers[above]),
                whole: if is_whole { number(piece.room) } else { 0 },
                room: number(piece.room),
                counts: u32::try_from(piece.counts).unwrap_or(u32::MAX),
            });
            at = if is_whole { piece.end } else { at + 1 };
        }
        bounds
    }

    /// By how much so many domains of each layer may take more than the job.
    fn slack(&mut self, multipliers: &[i64], counts: &[u32]) -> i64 {
        let fees: Vec<i32> =
            fees(multipliers).into_iter().map(|fee| i32::try_from(fee).unwrap_or(i32::MAX / 2)).collect();
        self.sums.clear();
        self.sums.extend(self.domains.iter().map(|domain| domain.whole));
        for index in (1..self.domains.len()).rev() {
            let BoundedDomain { above, room, counts, .. } = self.domains[index];
            let worth = self.sums[index].min(room) - fees[counts as usize];
            self.sums[above as usize] += worth.max(0);
        }
        let paid: i64 =
            multipliers.iter().zip(counts).map(|(multiplier, &count)| multiplier * i64::from(count)).sum();
        paid + i64::from(self.sums[0]) - i64::from(self.instance.problem.amount)
    }

    /// How few domains of the last of the layers there may be where of those before it there are so many, and multipliers that
    /// say so.
    pub(super) fn fewest(&mut self, counts: &mut [u32], mut multipliers: Vec<i64>) -> Option<Multipliers> {
        let layer = self.scope.known - 1;
        let (fewest, last) = self.instance.fewest(layer)?;
        counts[layer] = fewest;
        if layer == 0 {
            multipliers[layer] = last.into();
        }
        self.settle(counts, multipliers)
    }

    /// The same for no fewer than there are in `counts`.
    pub(super) fn settle(&mut self, counts: &mut [u32], mut multipliers: Vec<i64>) -> Option<Multipliers> {
        let layer = self.scope.known - 1;
        loop {
            if self.scope.most[layer].is_some_and(|most| counts[layer] > most) {
                return None;
            }
            let slack = self.descend(&mut multipliers, counts);
            if slack >= 0 {
                return Some(Multipliers { multipliers, slack, usable: Rc::clone(&self.usable) });
            }
            let last = Some(multipliers[layer]).filter(|multiplier| *multiplier > 0)?;
            let more = u32::try_from((-slack + last - 1) / last).ok()?;
            counts[layer] += more;
        }
    }

    /// Lowers the slack as far as that goes.
    fn descend(&mut self, multipliers: &mut [i64], counts: &[u32]) -> i64 {
        let mut slack = self.slack(multipliers, counts);
        let directions = directions(&self.instance.order, self.scope, counts);
        let mut idle = 0;
        for direction in directions.iter().cycle().take(ROUNDS * directions.len()) {
            let before = slack;
            slack = self.follow(multipliers, counts, direction, slack);
            idle = if slack < before { 0 } else { idle + 1 };
            if slack < 0 || idle == directions.len() {
                break;
            }
        }
        slack
    }

    /// Goes along a direction, or against it, as long as that lowers the slack.
    fn follow(&mut self, multipliers: &mut [i64], counts: &[u32], direction: &[i64], mut slack: i64) -> i64 {
        for sign in [1, -1] {
            let (mut step, mut longest) = (sign, i64::MAX);
            loop {
                let next: Vec<i64> = multipliers
                    .iter()
                    .zip(direction)
                    .map(|(multiplier, by)| (multiplier + step * by).max(0))
                    .collect();
                let lower = if next == multipliers { slack } else { self.slack(&next, counts) };
                if lower < slack {
                    multipliers.copy_from_slice(&next);
                    slack = lower;
                    step = if step.abs() * 2 < longest { step * 2 } else { step };
                } else if step.abs() > 1 {
                    longest = step.abs();
                    step /= 2;
                } else {
                    break;
                }
            }
        }
        slack
    }
}

/// Each multiplier by itself, and each with that of a higher layer, so that what both of them take together stays about the same.
fn directions(order: &[Layer], scope: &Scope, counts: &[u32]) -> Vec<Vec<i64>> {
    let mut directions = Vec::new();
    let mut layers: Vec<usize> = (0..order.len()).filter(|&layer| scope.covers(layer)).collect();
    layers.sort_unstable_by_key(|&layer| order[layer]);
    for (at, &layer) in layers.iter().enumerate() {
        let mut alone = vec![0; order.len()];
        alone[layer] = 1;
        for &above in &layers[at + 1..] {
            let ratio = i64::from(counts[layer]) / i64::from(counts[above].max(1));
            for ratio in [ratio, ratio + 1].into_iter().filter(|ratio| *ratio > 0) {
                let mut both = alone.clone();
                both[above] = -ratio;
                directions.push(both);
            }
        }
        directions.push(alone);
    }
    directions
}

/// Which domains may be used with what multipliers leave to spend.
fn usable(instance: &Instance<'_>, known: &Multipliers) -> FixedBitSet {
    let mut spent: Vec<i64> =
        spends(instance, known, Layer::NODE).into_iter().map(|(_, used)| used).collect();
    let mut usable = FixedBitSet::with_capacity(instance.pieces.len());
    for at in known.usable.ones() {
        spent[at] += instance.pieces[at].above.map_or(0, |above| spent[above]);
        usable.set(at, spent[at] <= known.slack);
    }
    usable
}

/// What each domain that may be used spends by itself if it is not used, and if it is. What lies lower than a layer is taken
/// whole.
pub(super) fn spends(instance: &Instance<'_>, known: &Multipliers, lowest: Layer) -> Vec<(i64, i64)> {
    let fees = fees(&known.multipliers);
    let mut sums = vec![0_i64; instance.pieces.len()];
    let mut spends = vec![(0, 0); instance.pieces.len()];
    for at in known.usable.ones().rev() {
        let piece = &instance.pieces[at];
        let (room, fee) = (i64::from(piece.room), fees[piece.counts]);
        let is_whole = piece.end == at + 1 || piece.layer <= lowest;
        let below = if is_whole { room } else { sums[at] };
        let worth = (below.min(room) - fee).max(0);
        spends[at] = (worth, worth + fee - below);
        if let Some(above) = piece.above {
            sums[above] += worth;
        }
    }
    spends
}

/// What is paid for a domain, by the layers that it counts for.
fn fees(multipliers: &[i64]) -> Vec<i64> {
    let fee = |layers: usize| {
        let paid = multipliers.iter().enumerate().filter(|(at, _)| layers >> at & 1 == 1);
        paid.map(|(_, multiplier)| multiplier).sum()
    };
    (0..1 << multipliers.len()).map(fee).collect()
}
