//! Ways to use parts of the fabric: put together from the last domain to the first, and of those that take as much only
//! the best kept.
//!
//! What a way takes less than its domains could take beyond the tolls it spends of the slack, with the tolls of every
//! number of layers; one that spends more of any of them than there is belongs to no choice that holds the job.

use crate::model::fabric::Layer;
use crate::sched::place::short::choice::NoChoice;

use super::ground::{Ground, Part};
use super::scale::Scale;
use super::table::Table;
use super::tolls::{Scope, Tolls, fees};

/// Ways that are put together at most.
const MOST: usize = 1 << 26;
/// The same where it matters how much each leaf takes, which makes many more, and where nodes are told apart.
const MOST_SHARED: usize = 1 << 22;
const MOST_OF_NODES: usize = 1 << 21;
/// Ways that are kept at most.
const MOST_KEPT: usize = 1 << 24;
/// What is spent, in lanes of 16 bits, of which one is left to tell that it is too much.
const LANES: usize = 8;
const LANE: u32 = 16;
const WIDEST: i64 = (1 << (LANE - 1)) - 1;
/// No way, or none of a part.
pub(super) const NONE: u32 = u32::MAX;

/// A number for each of some tolls.
type Lanes = [i64; LANES];

fn pack(lanes: &Lanes) -> u128 {
    lanes.iter().rev().fold(0, |packed, &lane| packed << LANE | u128::from(lane.unsigned_abs()))
}

/// The same, if none is less than nothing or more than a limit.
fn pack_within(lanes: &Lanes, limits: &Lanes) -> Option<u128> {
    let fit = lanes.iter().zip(limits).all(|(lane, limit)| (0..=*limit).contains(lane));
    fit.then(|| pack(lanes))
}

/// Which bits are set if a lane is beyond its limit once the rest is added.
struct Limit {
    rest: u128,
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

/// A way to use a part, or some of the parts below one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Way {
    pub(super) takes: u32,
    /// Its place among those that cost the same: one whose leaves come first is before others.
    pub(super) order: u32,
    spent: u128,
    /// Domains of each layer, packed; then slots in them.
    pub(super) head: u128,
    pub(super) tail: u128,
    /// Where it was put together.
    pub(super) link: u32,
}

/// A way of a part and one of the parts behind it.
pub(super) type Link = (u32, u32);

/// How the ways to use what is below a part were put together: one step for each part, the last part first.
type Steps = Vec<(usize, Vec<Link>)>;

/// What tolls say about every part.
struct Spends {
    /// What is spent if it is not used, and if it is, besides what is spent below it.
    skipped: Vec<Lanes>,
    used: Vec<Lanes>,
}

impl Spends {
    /// What lies lower than a layer is taken whole.
    fn new(ground: &Ground<'_>, tolls: &[Tolls], lowest: Layer) -> Self {
        let count = ground.parts.len();
        let mut spends = Self { skipped: vec![[0; LANES]; count], used: vec![[0; LANES]; count] };
        let mut sums = vec![0_i64; count];
        for (lane, tolls) in tolls.iter().enumerate() {
            let fees = fees(&tolls.tolls);
            sums.fill(0);
            for (at, part) in ground.parts.iter().enumerate().rev() {
                if !tolls.usable.contains(at) {
                    spends.used[at][lane] = WIDEST + 1;
                    continue;
                }
                let fee = fees[part.counts];
                let is_whole = part.end == at + 1 || part.layer <= lowest;
                let below = if is_whole { part.room.into() } else { sums[at] };
                let worth = (below.min(part.room.into()) - fee).max(0);
                if let Some(above) = part.above {
                    sums[above] += worth;
                }
                spends.skipped[at][lane] = worth;
                spends.used[at][lane] = worth + fee - below;
            }
        }
        spends
    }
}

/// The best choice for known numbers of domains.
pub(super) struct Search<'g> {
    ground: &'g Ground<'g>,
    scale: Scale,
    spends: Spends,
    limits: Lanes,
    /// Lanes that are used.
    known: usize,
    /// What lies lower is taken whole.
    lowest: Layer,
    /// Whether a leaf may take less than it could.
    divides: bool,
    most: usize,
    fronts: Vec<Vec<Way>>,
    steps: Vec<Steps>,
    work: usize,
    kept: usize,
}

/// A choice: its leaves in fabric order with what each takes, and how many domains of the last layer it uses.
pub(super) struct Found {
    pub(super) leaves: Vec<(usize, u32)>,
    pub(super) last: u32,
}

impl<'g> Search<'g> {
    /// `tolls` are those of the first layer in order, of the first two, and so on; `counts` says how many domains of each
    /// of them are used, and of the last and of others in `scope` no more.
    pub(super) fn new(
        ground: &'g Ground<'g>,
        scope: &Scope,
        tolls: &[Tolls],
        counts: &[u32],
    ) -> Option<Self> {
        // Of more than there are lanes for, the last say most.
        let known: Vec<Tolls> =
            tolls.iter().rev().filter(|tolls| tolls.slack <= WIDEST).take(LANES).cloned().collect();
        let mut limits = [0; LANES];
        limits.iter_mut().zip(&known).for_each(|(limit, tolls)| *limit = tolls.slack);
        let (count, lowest) = (ground.parts.len(), ground.lowest(scope));
        // Before all layers are known, only how few domains hold the job matters.
        let divides = ground.is_shared() && scope.known == ground.order.len();
        Some(Self {
            ground,
            scale: Scale::new(ground, scope, counts, &tolls.last()?.usable)?,
            spends: Spends::new(ground, &known, lowest),
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

    /// The best choice; None where so few domains do not hold the job.
    pub(super) fn best(&mut self) -> Result<Option<Found>, NoChoice> {
        let ground = self.ground;
        let (ways, steps) = self.fold(None, self.limits)?;
        let enough = ways.iter().filter(|way| way.takes >= ground.amount);
        let best = enough.min_by_key(|way| (way.head, way.tail, way.order));
        let Some((best, last)) = best.and_then(|way| Some((way, self.scale.last(way.head)?))) else {
            return Ok(None);
        };
        let mut leaves = Vec::new();
        self.follow(&steps, best.link, &mut leaves);
        Ok(Some(Found { leaves, last }))
    }

    /// The leaves of a way that was put together in some steps.
    fn follow(&self, steps: &Steps, link: u32, leaves: &mut Vec<(usize, u32)>) {
        let mut link = link;
        for (part, links) in steps.iter().rev() {
            let (way, rest) = links[link as usize];
            if way != NONE {
                let own = &self.steps[*part];
                if own.is_empty() {
                    leaves.push((*part, self.fronts[*part][way as usize].takes));
                } else {
                    self.follow(own, self.fronts[*part][way as usize].link, leaves);
                }
            }
            link = rest;
        }
    }

    /// Finds the ways to use a part that spend no more than so much.
    fn open(&mut self, at: usize, limits: &Lanes) -> Result<(), NoChoice> {
        let part = &self.ground.parts[at];
        let own = self.spends.used[at];
        let (head, tail) = self.scale.of(part);
        if self.scale.add(0, head).is_none() {
            return Ok(());
        }
        if part.end == at + 1 && self.divides {
            self.fronts[at] = self.divided(at, (head, tail), limits);
            return Ok(());
        }
        if part.end == at + 1 || part.layer <= self.lowest {
            if let Some(spent) = pack_within(&own, limits) {
                let way = Way { takes: part.room, order: 0, spent, head, tail, link: 0 };
                self.fronts[at] = vec![way];
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
        self.fronts[at] = self.close(part, inside, &own, limits);
        self.steps[at] = steps;
        Ok(())
    }

    /// The ways to use a leaf, that which takes most first: of less the fullest nodes.
    fn divided(&self, at: usize, (head, tail): (u128, u128), limits: &Lanes) -> Vec<Way> {
        let (part, own) = (&self.ground.parts[at], self.spends.used[at]);
        let mut ways = Vec::new();
        if pack_within(&own, limits).is_none() {
            return ways;
        }
        let nodes = self.ground.slots_of_nodes(at);
        let mut takes = part.room;
        while takes > 0 && takes >= part.least {
            let mut lanes = own;
            lanes.iter_mut().take(self.known).for_each(|lane| *lane += i64::from(part.room - takes));
            let Some(spent) = pack_within(&lanes, limits) else { break };
            let order = u32::try_from(ways.len()).unwrap_or(NONE);
            let tail = tail + u128::from(nodes[takes as usize]);
            ways.push(Way { takes, order, spent, head, tail, link: order });
            takes -= part.unit.min(takes);
        }
        ways
    }

    /// Turns ways to use what is below a part into ways to use the part.
    fn close(&self, part: &Part, inside: Vec<Way>, own: &Lanes, limits: &Lanes) -> Vec<Way> {
        let (head, tail) = self.scale.of(part);
        let mut ways: Vec<Way> = Vec::with_capacity(inside.len());
        for way in inside {
            let most = way.takes.min(part.room);
            let takes = most - most % part.unit;
            let less = way.takes - takes;
            let mut spent = way.spent;
            let mut lanes = [0; LANES];
            for (lane, own) in lanes.iter_mut().zip(own).take(self.known) {
                *lane = i64::try_from(spent & ((1 << LANE) - 1)).unwrap_or(0) + own + i64::from(less);
                spent >>= LANE;
            }
            let is_enough = takes > 0 && takes >= part.least;
            let Some(spent) = pack_within(&lanes, limits).filter(|_| is_enough) else { continue };
            let Some(head) = self.scale.add(way.head, head) else { continue };
            let way = Way { takes, spent, head, tail: way.tail + tail, ..way };
            // Ways fall in what they take, and each is better than those before it that use as many of what is limited.
            let is_same = |last: &Way| last.takes == takes && self.scale.limited(last.head ^ way.head) == 0;
            if ways.last().is_some_and(is_same) {
                ways.pop();
            }
            ways.push(way);
        }
        ways
    }

    /// Puts the parts directly below one together.
    fn fold(&mut self, part: Option<usize>, limits: Lanes) -> Result<(Vec<Way>, Steps), NoChoice> {
        let limit = Limit::new(&limits);
        let most = if part.is_none() { self.ground.amount } else { u32::MAX };
        let mut ways = vec![Way { takes: 0, order: NONE, spent: 0, head: 0, tail: 0, link: NONE }];
        let mut steps = Vec::new();
        for child in self.ground.below(part).into_iter().rev() {
            self.open(child, &limits)?;
            let may_skip = self.ground.parts[child].least == 0;
            let skipped = pack_within(&self.spends.skipped[child], &limits).filter(|_| may_skip);
            self.work += ways.len() * (self.fronts[child].len() + 1);
            self.kept += ways.len();
            if self.work > self.most || self.kept > MOST_KEPT {
                return Err(NoChoice::Unknown);
            }
            let front = &self.fronts[child];
            let least = if skipped.is_some() { 0 } else { front.last().map_or(0, |way| way.takes) };
            let fullest = front.first().map_or(0, |way| way.takes);
            let (Some(first), Some(last)) = (ways.first(), ways.last()) else { break };
            let mut table = Table::new(
                last.takes.saturating_add(least).min(most),
                first.takes.saturating_add(fullest).min(most),
                &self.scale,
            );
            for (rest, way) in (0..).zip(&ways) {
                if let Some(skipped) = skipped.filter(|skipped| limit.holds(way.spent + skipped)) {
                    let same = Way { spent: way.spent + skipped, ..*way };
                    table.offer(same, (NONE, way.order), (NONE, rest));
                }
                for (own, used) in (0..).zip(front) {
                    let spent = way.spent + used.spent;
                    if !limit.holds(spent) {
                        continue;
                    }
                    let Some(head) = self.scale.add(way.head, used.head) else { continue };
                    let takes = way.takes.saturating_add(used.takes).min(most);
                    let both = Way { takes, spent, head, tail: way.tail + used.tail, ..*way };
                    table.offer(both, (used.order, way.order), (own, rest));
                }
            }
            let (next, links) = table.best();
            ways = next;
            steps.push((child, links));
        }
        Ok((ways, steps))
    }
}
