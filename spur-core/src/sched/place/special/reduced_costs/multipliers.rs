//! Lagrangian bounds: a lower bound on the domains used at each layer, and the slack of a choice.
//!
//! There is a multiplier for each used domain of a layer. A choice takes at most the sum of the multipliers
//! of its domains, plus what the domains worth more take beyond their multipliers. The number of domains of
//! each layer is given, so a choice that holds the job can only spend the difference, the slack. Multipliers
//! with the least slack are found by coordinate descent.

use std::rc::Rc;

use fixedbitset::FixedBitSet;

use crate::model::fabric::Layer;

use super::instance::Instance;

/// The largest number of rounds of descent.
const ROUNDS: usize = 12;

/// The multipliers of the layers in order (0 for layers out of scope), and their slack.
#[derive(Debug, Clone)]
pub(super) struct Multipliers {
    pub(super) multipliers: Vec<i64>,
    /// The multipliers of all used domains and the amounts beyond them, less the job's amount. Negative if so
    /// few domains do not hold the job.
    pub(super) slack: i64,
    /// The domains that may be used under the slack of fewer layers; no other domain counts.
    pub(super) usable: Rc<FixedBitSet>,
}

/// The layers in order that a bound covers.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    /// Number of leading layers that are covered; further layers are covered only if they have a limit.
    pub(super) known: usize,
    /// For each layer, the largest number of domains that may be used, where a limit is enforced.
    pub(super) most: Vec<Option<u32>>,
}

impl Scope {
    /// True if a layer is covered.
    pub(super) fn covers(&self, layer: usize) -> bool {
        layer < self.known || self.most[layer].is_some()
    }
}

/// The domains down to the lowest covered layer; domains at that layer are taken whole.
pub(super) struct LagrangianBounds<'g> {
    instance: &'g Instance<'g>,
    scope: &'g Scope,
    usable: Rc<FixedBitSet>,
    domains: Vec<BoundedDomain>,
    /// The worth of the domains below each one; a reused buffer.
    sums: Vec<i32>,
}

/// A domain as it counts in a bound.
#[derive(Debug, Clone, Copy)]
struct BoundedDomain {
    /// The index of the parent.
    above: u32,
    /// The amount that the domain takes if it is taken whole, and the most that it can take.
    whole: i32,
    room: i32,
    /// The layers that the domain counts for, as bits by order.
    counts: u32,
}

impl<'g> LagrangianBounds<'g> {
    /// Sets up the bounds. `known` has the multipliers that were found for fewer layers. A domain whose use
    /// costs more than their slack is in no choice, so the bounds leave it out.
    pub(super) fn new(instance: &'g Instance<'g>, scope: &'g Scope, known: &[Multipliers]) -> Self {
        let lowest = instance.lowest(scope);
        let (domains, sums) = (Vec::with_capacity(instance.pieces.len() + 1), Vec::new());
        let all = || (0..instance.pieces.len()).collect();
        let usable = Rc::new(known.last().map_or_else(all, |known| usable(instance, known)));
        let mut bounds = Self { instance, scope, usable, domains, sums };
        let number = |room: u32| i32::try_from(room).unwrap_or(i32::MAX);
        let mut numbers = vec![0_u32; instance.pieces.len()];
        let mut at = 0;
        // The first entry is the holder.
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

    /// The slack under given multipliers and numbers of domains.
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

    /// Computes the fewest domains at the last covered layer, given the numbers of the layers before it, and
    /// the multipliers that prove it. `None` if no number works.
    pub(super) fn fewest(&mut self, counts: &mut [u32], mut multipliers: Vec<i64>) -> Option<Multipliers> {
        let layer = self.scope.known - 1;
        let (fewest, last) = self.instance.fewest(layer)?;
        counts[layer] = fewest;
        if layer == 0 {
            multipliers[layer] = last.into();
        }
        self.settle(counts, multipliers)
    }

    /// Like [`LagrangianBounds::fewest`], but starts from the number in `counts`.
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

    /// Lowers the slack by changing multipliers, as far as descent goes. Returns the slack.
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

    /// Moves along a direction, or against it, as long as the slack falls. Returns the slack.
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

/// The directions of descent: each multiplier by itself, and each with a higher layer's so that their sum
/// stays about equal.
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

/// The domains that may be used within the slack.
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

/// The slack that each usable domain spends by itself if it is skipped, and if it is used. Domains at or
/// below layer `lowest` are taken whole.
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

/// The sum of multipliers for every set of layers, indexed by the set's bits.
fn fees(multipliers: &[i64]) -> Vec<i64> {
    let fee = |layers: usize| {
        let paid = multipliers.iter().enumerate().filter(|(at, _)| layers >> at & 1 == 1);
        paid.map(|(_, multiplier)| multiplier).sum()
    };
    (0..1 << multipliers.len()).map(fee).collect()
}
