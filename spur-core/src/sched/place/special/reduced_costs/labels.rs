//! Labels: ways to use pieces of the fabric, joined from the last domain to the first. Of labels with equal
//! amounts only the best is kept.
//!
//! A label that takes less than its domains could take beyond the multipliers spends some of the slack. The
//! slack is counted for the multipliers of every number of layers. A label that spends more of any slack than
//! there is belongs to no choice that holds the job.

use crate::model::fabric::Layer;
use crate::sched::place::answer::Missed;

use super::instance::{Instance, Piece};
use super::label_table::LabelTable;
use super::multipliers::{Multipliers, Scope, spends};
use super::packed_cost::CostLayout;

/// The largest number of labels that are joined in one search.
const MOST: usize = 1 << 26;
/// The largest number of joined labels where the amount of each leaf matters, which makes many more labels,
/// and where nodes are distinguished.
const MOST_SHARED: usize = 1 << 22;
const MOST_OF_NODES: usize = 1 << 21;
/// The largest number of labels that are kept.
const MOST_KEPT: usize = 1 << 24;
/// Number of lanes of 16 bits in a packed vector. The top bit of each lane marks an overflow.
const LANES: usize = 8;
const LANE: u32 = 16;
const WIDEST: i64 = (1 << (LANE - 1)) - 1;
/// The index of no label.
pub(super) const NONE: u32 = u32::MAX;

/// One number for each set of multipliers.
type Lanes = [i64; LANES];

fn pack(lanes: &Lanes) -> u128 {
    lanes.iter().rev().fold(0, |packed, &lane| packed << LANE | u128::from(lane.unsigned_abs()))
}

/// Packs the lanes; `None` if one is negative or exceeds its limit.
fn pack_within(lanes: &Lanes, limits: &Lanes) -> Option<u128> {
    let fit = lanes.iter().zip(limits).all(|(lane, limit)| (0..=*limit).contains(lane));
    fit.then(|| pack(lanes))
}

/// The largest value of each lane of a packed sum.
struct Limit {
    /// The widest number less the limit, for each lane.
    rest: u128,
    /// The top bit of each lane, which is set if the lane exceeds its limit once `rest` is added.
    marks: u128,
}

impl Limit {
    fn new(limits: &Lanes) -> Self {
        Self { rest: pack(&limits.map(|limit| WIDEST - limit)), marks: pack(&[WIDEST + 1; LANES]) }
    }

    fn holds(&self, spent: u128) -> bool {
        (spent + self.rest) & self.marks == 0
    }
}

/// A label: one way to use a piece, or several pieces below one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Label {
    pub(super) takes: u32,
    /// The rank among labels of equal cost: labels whose leaves come first are first.
    pub(super) order: u32,
    spent: u128,
    /// The packed spans of the layers, then the packed slots.
    pub(super) head: u128,
    pub(super) tail: u128,
    /// The index of the link to the label's parts.
    pub(super) link: u32,
}

/// The index of a label of a piece, and of a label of the pieces behind it.
pub(super) type Link = (u32, u32);

/// The links of all labels below a piece: one step for each piece, the last piece first.
type Steps = Vec<(usize, Vec<Link>)>;

/// The slack that each piece spends under every set of multipliers.
struct Spends {
    /// The slack that a piece spends if it is skipped, and if it is used, without what is spent below it.
    skipped: Vec<Lanes>,
    used: Vec<Lanes>,
}

impl Spends {
    fn new(instance: &Instance<'_>, multipliers: &[Multipliers], lowest: Layer) -> Self {
        let count = instance.pieces.len();
        let mut spends = Self { skipped: vec![[0; LANES]; count], used: vec![[0; LANES]; count] };
        for (lane, multipliers) in multipliers.iter().enumerate() {
            for (at, (skipped, used)) in self::spends(instance, multipliers, lowest).into_iter().enumerate() {
                spends.skipped[at][lane] = skipped;
                spends.used[at][lane] = if multipliers.usable.contains(at) { used } else { WIDEST + 1 };
            }
        }
        spends
    }
}

/// A search for the best choice with known numbers of domains.
pub(super) struct LabelSearch<'g> {
    instance: &'g Instance<'g>,
    layout: CostLayout,
    spends: Spends,
    limits: Lanes,
    /// Number of lanes in use.
    known: usize,
    /// The lowest layer in the scope; pieces at it are taken whole.
    lowest: Layer,
    /// True if a leaf may take less than its capacity.
    divides: bool,
    most: usize,
    fronts: Vec<Vec<Label>>,
    steps: Vec<Steps>,
    work: usize,
    kept: usize,
}

/// A choice: its leaves in fabric order with the amount of each, and the number of domains that it uses at
/// the last layer.
pub(super) struct BestLabel {
    pub(super) leaves: Vec<(usize, u32)>,
    pub(super) last: u32,
}

impl<'g> LabelSearch<'g> {
    /// Builds the search; `None` if numbers are too large. `multipliers` belong to the first layer in order,
    /// to the first two, and so on. `counts` has the number of domains used at each of these layers; for the
    /// last one, and for other layers in `scope`, it is an upper limit.
    pub(super) fn new(
        instance: &'g Instance<'g>,
        scope: &Scope,
        multipliers: &[Multipliers],
        counts: &[u32],
    ) -> Option<Self> {
        // Where there are more sets than lanes, the last sets are the tightest.
        let known: Vec<Multipliers> = multipliers
            .iter()
            .rev()
            .filter(|multipliers| multipliers.slack <= WIDEST)
            .take(LANES)
            .cloned()
            .collect();
        let mut limits = [0; LANES];
        limits.iter_mut().zip(&known).for_each(|(limit, multipliers)| *limit = multipliers.slack);
        let (count, lowest) = (instance.pieces.len(), instance.lowest(scope));
        // Before all layers are settled, only the fewest domains that hold the job matter.
        let divides = instance.divides_leaves() && scope.known == instance.order.len();
        Some(Self {
            instance,
            layout: CostLayout::new(instance, scope, counts, &multipliers.last()?.usable)?,
            spends: Spends::new(instance, &known, lowest),
            limits,
            known: known.len(),
            lowest,
            divides,
            most: match lowest {
                Layer::NODE => MOST_OF_NODES,
                _ if divides => MOST_SHARED,
                _ => MOST,
            },
            fronts: vec![Vec::new(); count],
            steps: vec![Vec::new(); count],
            work: 0,
            kept: 0,
        })
    }

    /// The best choice; `None` if so few domains do not hold the job.
    pub(super) fn best(&mut self) -> Result<Option<BestLabel>, Missed> {
        let instance = self.instance;
        let (labels, steps) = self.fold(None, self.limits)?;
        let enough = labels.iter().filter(|label| label.takes >= instance.problem.amount);
        let best = enough.min_by_key(|label| (label.head, label.tail, label.order));
        let Some((best, last)) = best.and_then(|label| Some((label, self.layout.last(label.head)?))) else {
            return Ok(None);
        };
        let mut leaves = Vec::new();
        self.follow(&steps, best.link, &mut leaves);
        Ok(Some(BestLabel { leaves, last }))
    }

    /// Collects the leaves of a label that was joined in the given steps.
    fn follow(&self, steps: &Steps, link: u32, leaves: &mut Vec<(usize, u32)>) {
        let mut link = link;
        for (piece, links) in steps.iter().rev() {
            let (label, rest) = links[link as usize];
            if label != NONE {
                let own = &self.steps[*piece];
                if own.is_empty() {
                    leaves.push((*piece, self.fronts[*piece][label as usize].takes));
                } else {
                    self.follow(own, self.fronts[*piece][label as usize].link, leaves);
                }
            }
            link = rest;
        }
    }

    /// Computes the labels of a piece that spend no more than `limits`.
    fn open(&mut self, at: usize, limits: &Lanes) -> Result<(), Missed> {
        let piece = &self.instance.pieces[at];
        let own = self.spends.used[at];
        let (head, tail) = self.layout.of(piece);
        if self.layout.add(0, head).is_none() {
            return Ok(());
        }
        if piece.end == at + 1 && self.divides {
            self.fronts[at] = self.divided(at, (head, tail), limits);
            return Ok(());
        }
        if piece.end == at + 1 || piece.layer <= self.lowest {
            if let Some(spent) = pack_within(&own, limits) {
                let label = Label { takes: piece.room, order: 0, spent, head, tail, link: 0 };
                self.fronts[at] = vec![label];
            }
            return Ok(());
        }
        let mut left = [0; LANES];
        for ((left, limit), own) in left.iter_mut().zip(limits).zip(own) {
            *left = (limit - own).min(WIDEST);
            if *left < 0 {
                return Ok(());
            }
        }
        let (inside, steps) = self.fold(Some(at), left)?;
        self.fronts[at] = self.close(piece, inside, &own, limits);
        self.steps[at] = steps;
        Ok(())
    }

    /// The labels of a leaf, the largest amount first; a smaller amount uses the nodes with the fewest slots.
    fn divided(&self, at: usize, (head, tail): (u128, u128), limits: &Lanes) -> Vec<Label> {
        let (piece, own) = (&self.instance.pieces[at], self.spends.used[at]);
        let mut labels = Vec::new();
        if pack_within(&own, limits).is_none() {
            return labels;
        }
        let nodes = self.instance.problem.slots_of_fullest(piece.id);
        let mut takes = piece.room;
        while takes > 0 && takes >= piece.least {
            let mut lanes = own;
            lanes.iter_mut().take(self.known).for_each(|lane| *lane += i64::from(piece.room - takes));
            let Some(spent) = pack_within(&lanes, limits) else { break };
            let order = u32::try_from(labels.len()).unwrap_or(NONE);
            let tail = tail + u128::from(nodes[takes as usize]);
            labels.push(Label { takes, order, spent, head, tail, link: order });
            takes -= piece.unit.min(takes);
        }
        labels
    }

    /// Turns labels of the pieces below a piece into labels of the piece.
    fn close(&self, piece: &Piece, inside: Vec<Label>, own: &Lanes, limits: &Lanes) -> Vec<Label> {
        let (head, tail) = self.layout.of(piece);
        let mut labels: Vec<Label> = Vec::with_capacity(inside.len());
        for label in inside {
            let most = label.takes.min(piece.room);
            let takes = most - most % piece.unit;
            let less = label.takes - takes;
            let mut spent = label.spent;
            let mut lanes = [0; LANES];
            for (lane, own) in lanes.iter_mut().zip(own).take(self.known) {
                *lane = i64::try_from(spent & ((1 << LANE) - 1)).unwrap_or(0) + own + i64::from(less);
                spent >>= LANE;
            }
            let is_enough = takes > 0 && takes >= piece.least;
            let Some(spent) = pack_within(&lanes, limits).filter(|_| is_enough) else { continue };
            let Some(head) = self.layout.add(label.head, head) else { continue };
            let label = Label { takes, spent, head, tail: label.tail + tail, ..label };
            // Amounts fall along the labels, so a later label with the same amount and use of limited layers
            // is better.
            let is_same =
                |last: &Label| last.takes == takes && self.layout.limited(last.head ^ label.head) == 0;
            if labels.last().is_some_and(is_same) {
                labels.pop();
            }
            labels.push(label);
        }
        labels
    }

    /// Joins the children of a piece.
    fn fold(&mut self, piece: Option<usize>, limits: Lanes) -> Result<(Vec<Label>, Steps), Missed> {
        let limit = Limit::new(&limits);
        let most = if piece.is_none() { self.instance.problem.amount } else { u32::MAX };
        let mut labels = vec![Label { takes: 0, order: NONE, spent: 0, head: 0, tail: 0, link: NONE }];
        let mut steps = Vec::new();
        for child in self.instance.below(piece).into_iter().rev() {
            self.open(child, &limits)?;
            let may_skip = self.instance.pieces[child].least == 0;
            let skipped = pack_within(&self.spends.skipped[child], &limits).filter(|_| may_skip);
            self.work += labels.len() * (self.fronts[child].len() + 1);
            self.kept += labels.len();
            if self.work > self.most || self.kept > MOST_KEPT {
                return Err(Missed::UNKNOWN);
            }
            let front = &self.fronts[child];
            let least = if skipped.is_some() { 0 } else { front.last().map_or(0, |label| label.takes) };
            let fullest = front.first().map_or(0, |label| label.takes);
            let (Some(first), Some(last)) = (labels.first(), labels.last()) else { break };
            let mut table = LabelTable::new(
                last.takes.saturating_add(least).min(most),
                first.takes.saturating_add(fullest).min(most),
                &self.layout,
            );
            for (rest, label) in (0..).zip(&labels) {
                if let Some(skipped) = skipped.filter(|skipped| limit.holds(label.spent + skipped)) {
                    let same = Label { spent: label.spent + skipped, ..*label };
                    table.offer(same, (NONE, label.order), (NONE, rest));
                }
                for (own, used) in (0..).zip(front) {
                    let spent = label.spent + used.spent;
                    if !limit.holds(spent) {
                        continue;
                    }
                    let Some(head) = self.layout.add(label.head, used.head) else { continue };
                    let takes = label.takes.saturating_add(used.takes).min(most);
                    let both = Label { takes, spent, head, tail: label.tail + used.tail, ..*label };
                    table.offer(both, (used.order, label.order), (own, rest));
                }
            }
            let (next, links) = table.best();
            labels = next;
            steps.push((child, links));
        }
        Ok((labels, steps))
    }
}
