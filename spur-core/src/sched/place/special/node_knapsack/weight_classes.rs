//! The best nodes of one domain where so many of each weight are used, by a walk over them.
//!
//! The largest of each weight, as many as are used of it, hold the job with some slack: each node that is larger than the last
//! of them and left out, and each smaller one that is used, costs the difference. So what may still be wanted at a node is so
//! many of each weight and so much of the slack, which is little where nodes are alike or heavier ones are used for want of
//! room alone; next to that the walk is the one over amounts. What can be of no use is left out: nodes that cost more than
//! there is, and of nodes, leaves, and further domains that are alike all but the first few.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::Problem;
use crate::sched::place::special::outcome::NoChoice;

use super::dynamic_programme::{AT_ONCE, Candidate, Packed, Price, Scale, along, gcd};
use super::items::Items;

/// Numbers that one walk may work out, beyond which it is not tried.
const MOST: usize = 1 << 24;

/// How many nodes of one weight are used.
#[derive(Debug, Clone, Copy)]
struct Need {
    count: u32,
    /// What the last of so many of the largest takes.
    last: u32,
}

/// What makes nodes of a leaf alike: their weight, what they take and their slots.
type Kind = (usize, u32, u64);

/// What is wanted of a domain.
struct Wanted<'w, 'p, 'a> {
    items: &'w Items<'p, 'a>,
    /// What is used of every weight, the heaviest first.
    needs: Vec<Need>,
    /// How much more than the job the largest take.
    slack: u32,
}

/// The best nodes of a domain of which so many of each weight are used, the heaviest first; in fabric order.
pub(super) fn best_nodes(
    items: &Items<'_, '_>,
    holder: DomainId,
    counts: &[u32],
) -> Result<Vec<Candidate>, NoChoice> {
    let problem = items.problem;
    let wanted = Wanted::new(items, holder, counts).ok_or(NoChoice::Nowhere)?;
    let layer = problem.fabric.domain(holder).layer();
    let scale = Scale::new(problem, layer, problem.slots(holder), items.beside, false);
    let scale = scale.ok_or(NoChoice::Unknown)?;
    let mut known = KnownKinds::default();
    let nodes = wanted.of_use(holder, &mut known).nodes;
    match ClassProgramme::new(&wanted, holder, &nodes, &scale, true).best(problem, &scale) {
        // Where there is much slack the best nodes mostly take enough without being told to.
        Err(NoChoice::Unknown) => {
            let best = ClassProgramme::new(&wanted, holder, &nodes, &scale, false).best(problem, &scale)?;
            let takes: u64 = best.iter().map(|node| u64::from(node.takes)).sum();
            if takes >= problem.amount.into() { Ok(best) } else { Err(NoChoice::Unknown) }
        }
        found => found,
    }
}

impl<'w, 'p, 'a> Wanted<'w, 'p, 'a> {
    /// None where the largest do not hold the job.
    fn new(items: &'w Items<'p, 'a>, holder: DomainId, counts: &[u32]) -> Option<Self> {
        let mut takes = items.takes_by_weight(holder);
        let mut sum = 0;
        let mut needs = Vec::with_capacity(counts.len());
        for (takes, &count) in takes.iter_mut().zip(counts) {
            let Some(at) = (count as usize).checked_sub(1) else {
                needs.push(Need { count, last: 0 });
                continue;
            };
            if takes.len() <= at {
                return None;
            }
            let (larger, last, _) = takes.select_nth_unstable_by(at, |a, b| b.cmp(a));
            sum += larger.iter().map(|&takes| u64::from(takes)).sum::<u64>() + u64::from(*last);
            needs.push(Need { count, last: *last });
        }
        let slack = sum.checked_sub(items.problem.amount.into())?;
        Some(Self { items, needs, slack: u32::try_from(slack).unwrap_or(u32::MAX) })
    }

    fn weight_of(&self, node: &Candidate) -> usize {
        self.items.problem.weight_class(node.pos).unwrap_or(self.needs.len() - 1)
    }

    /// What of the slack it costs not to use a node, and to use it.
    fn costs(&self, node: &Candidate) -> (u32, u32) {
        let last = self.needs[self.weight_of(node)].last;
        (node.takes.saturating_sub(last), last.saturating_sub(node.takes))
    }

    /// What of a domain can be of use.
    fn of_use(&self, id: DomainId, known: &mut KnownKinds) -> Part {
        let problem = self.items.problem;
        let domain = problem.fabric.domain(id);
        if domain.children().is_empty() {
            return self.of_leaf(id, known);
        }
        // Fewer domains come first, unless fewer of what is below them are preferred.
        let is_first = |child: DomainId| {
            let layer = problem.fabric.domain(child).layer();
            layer == Layer::LEAF || problem.layout.prefer.iter().all(|preferred| *preferred >= layer)
        };
        let mut part = Part::default();
        let mut seen: BTreeMap<usize, u32> = BTreeMap::new();
        for &child in domain.children().iter().filter(|&&child| self.items.room(child) > 0) {
            let below = self.of_use(child, known);
            let count = seen.entry(below.like).or_default();
            *count += 1;
            let is_needless = is_first(child) && !below.is_large && *count > self.most_alike(&below.kinds);
            if below.nodes.is_empty() || is_needless {
                continue;
            }
            part.add(below);
        }
        part.members.sort_unstable();
        let like = (problem.slots(id), domain.layer(), domain.cover(), std::mem::take(&mut part.members));
        part.like = known.number(like);
        part
    }

    fn of_leaf(&self, leaf: DomainId, known: &mut KnownKinds) -> Part {
        let problem = self.items.problem;
        let mut part = Part::default();
        self.items.each_of(leaf, |pos, takes| {
            let node = Candidate { pos, takes };
            let (weight, (unused, used)) = (self.weight_of(&node), self.costs(&node));
            let need = self.needs[weight].count;
            if need == 0 || used > self.slack {
                return;
            }
            let count = part.kinds.entry((weight, takes, problem.slots_of_node(pos))).or_default();
            if *count < need {
                *count += 1;
                part.is_large |= unused > 0;
                part.nodes.push(node);
            }
        });
        let domain = problem.fabric.domain(leaf);
        let kinds: Vec<(Kind, u32)> = part.kinds.iter().map(|(kind, count)| (*kind, *count)).collect();
        let next = known.kinds.len();
        let kinds = *known.kinds.entry(kinds).or_insert(next);
        part.like = known.number((problem.slots(leaf), domain.layer(), domain.cover(), vec![kinds]));
        part
    }

    /// How many domains with so many nodes of each kind are of use at most: as many have all nodes that are used.
    fn most_alike(&self, kinds: &BTreeMap<Kind, u32>) -> u32 {
        kinds.iter().map(|(kind, &count)| self.needs[kind.0].count.div_ceil(count)).max().unwrap_or(0)
    }
}

/// What of a domain can be of use.
#[derive(Default)]
struct Part {
    /// The nodes of use, in fabric order.
    nodes: Vec<Candidate>,
    kinds: BTreeMap<Kind, u32>,
    /// Whether some of it costs something where it is not used.
    is_large: bool,
    /// Domains with the same number are alike.
    like: usize,
    /// The numbers of its members.
    members: Vec<usize>,
}

impl Part {
    fn add(&mut self, below: Part) {
        self.nodes.extend(below.nodes);
        for (kind, count) in below.kinds {
            *self.kinds.entry(kind).or_default() += count;
        }
        self.is_large |= below.is_large;
        self.members.push(below.like);
    }
}

/// What domains were found to be like: their slots, their layers and the numbers of what they consist of.
type Like = (u64, Layer, Layer, Vec<usize>);

/// Numbers of what was found.
#[derive(Default)]
struct KnownKinds {
    kinds: BTreeMap<Vec<(Kind, u32)>, usize>,
    domains: BTreeMap<Like, usize>,
}

impl KnownKinds {
    fn number(&mut self, like: Like) -> usize {
        let next = self.domains.len();
        *self.domains.entry(like).or_insert(next)
    }
}

/// Numbers, one for each weight of which nodes are used.
type Numbers = SmallVec<[u32; 4]>;

/// A node on the walk.
struct Stop {
    node: Candidate,
    /// Which of the weights that are used it has.
    weight: usize,
    /// What of the slack it costs not to use it, and to use it.
    costs: (usize, usize),
    /// How many of the domains from the holder down to its leaf it shares with the node before it.
    shared: usize,
    /// Where its prices begin: by how many of these domains are in use.
    prices: usize,
    /// Least and most nodes of each weight that can still be wanted here.
    wanted: (Numbers, Numbers),
    /// Where the answers begin.
    answers: usize,
}

impl Stop {
    /// Ways to want nodes here.
    fn ways(&self) -> usize {
        let (least, most) = &self.wanted;
        least.iter().zip(most).map(|(least, most)| (most + 1).saturating_sub(*least) as usize).product()
    }

    /// Everything that can be wanted here, and which number of all that can be wanted anywhere it is.
    fn each_wanted(&self, strides: &[usize], mut see: impl FnMut(&[u32], usize)) {
        let (least, most) = &self.wanted;
        let mut left = least.clone();
        loop {
            see(&left, left.iter().zip(strides).map(|(left, stride)| *left as usize * stride).sum());
            let Some(next) = (0..left.len()).rev().find(|&weight| left[weight] < most[weight]) else { break };
            left[next] += 1;
            left[next + 1..].copy_from_slice(&least[next + 1..]);
        }
    }

    /// Which of the ways to want nodes here that is.
    fn way(&self, left: &[u32]) -> usize {
        let (least, most) = &self.wanted;
        let numbers = left.iter().zip(least.iter().zip(most));
        numbers
            .fold(0, |way, (left, (least, most))| way * (most - least + 1) as usize + (left - least) as usize)
    }
}

/// The nodes that may be used in one domain, in fabric order.
struct ClassProgramme {
    stops: Vec<Stop>,
    prices: Vec<Price>,
    /// Parts of the way down that can be told apart.
    depth: usize,
    /// Nodes of each weight that are used.
    counts: Numbers,
    /// How far apart numbers are that differ by one node of a weight.
    strides: Vec<usize>,
    /// Ways to want nodes.
    ways: usize,
    /// Parts of the slack that can be told apart.
    width: usize,
    /// How many answers there are in all.
    answers: usize,
}

impl ClassProgramme {
    /// `is_bound` says whether nodes have to hold the job.
    fn new(
        wanted: &Wanted<'_, '_, '_>,
        holder: DomainId,
        nodes: &[Candidate],
        scale: &Scale<'_>,
        is_bound: bool,
    ) -> Self {
        let used: Vec<usize> = (0..wanted.needs.len()).filter(|&own| wanted.needs[own].count > 0).collect();
        let counts: Numbers = used.iter().map(|&own| wanted.needs[own].count).collect();
        let costs = |node: &Candidate| if is_bound { wanted.costs(node) } else { (0, 0) };
        let unit = nodes.iter().map(costs).fold(0, |unit, (unused, used)| gcd(gcd(unit, unused), used));
        let slack = wanted.slack.checked_div(unit).unwrap_or(0) as usize;
        let mut strides = vec![0; counts.len()];
        let mut ways = 1_usize;
        for (stride, &count) in strides.iter_mut().zip(&counts).rev() {
            *stride = ways;
            ways = ways.saturating_mul(count as usize + 1);
        }
        let (stops, prices) = (Vec::with_capacity(nodes.len()), Vec::new());
        let mut walk = Self { stops, prices, depth: 1, counts, strides, ways, width: slack + 1, answers: 0 };
        along(wanted.items.problem, holder, nodes, scale, |node, shared, prices| {
            let weight = wanted.weight_of(&node);
            let weight = used.iter().position(|own| *own == weight).unwrap_or(0);
            let in_units = |cost: u32| cost.checked_div(unit).unwrap_or(0) as usize;
            let (unused, used) = costs(&node);
            let costs = (in_units(unused), in_units(used));
            let (first, none) = (walk.prices.len(), Numbers::new());
            walk.prices.extend(prices);
            let wanted = (none.clone(), none);
            walk.stops.push(Stop { node, weight, costs, shared, prices: first, wanted, answers: 0 });
            walk.depth = walk.depth.max(shared + 1);
        });
        walk.bound();
        walk
    }

    /// Finds what can still be wanted at each stop: no less than what is not before it, no more than what is not after.
    fn bound(&mut self) {
        let mut least = self.counts.clone();
        for stop in &mut self.stops {
            stop.wanted.0.clone_from(&least);
            least[stop.weight] = least[stop.weight].saturating_sub(1);
        }
        let mut most: Numbers = self.counts.iter().map(|_| 0).collect();
        for stop in self.stops.iter_mut().rev() {
            most[stop.weight] = self.counts[stop.weight].min(most[stop.weight] + 1);
            stop.wanted.1.clone_from(&most);
        }
        for stop in &mut self.stops {
            stop.answers = self.answers;
            let own = stop.ways().saturating_mul((stop.shared + 1).saturating_mul(self.width));
            self.answers = self.answers.saturating_add(own);
        }
    }

    /// The nodes of the least price.
    fn best(&self, problem: &Problem<'_>, scale: &Scale<'_>) -> Result<Vec<Candidate>, NoChoice> {
        let widest = self.depth.saturating_mul(self.ways.saturating_mul(self.width));
        let (tail, all) = scale.bits();
        let at_once = if all < u64::BITS { AT_ONCE.0 } else { AT_ONCE.1 };
        let steps = self.answers.saturating_add(widest);
        if steps > MOST || !problem.meter.take(steps / at_once) {
            return Err(NoChoice::Unknown);
        }
        let is_short = self.stops.first().is_none_or(|stop| stop.wanted.0 != stop.wanted.1);
        if is_short {
            return Err(NoChoice::Nowhere);
        }
        let uses = if all < u64::BITS {
            self.prices_from_the_end::<u64>(tail)
        } else {
            self.prices_from_the_end::<Price>(tail)
        };
        uses.map(|uses| self.follow(&uses)).ok_or(NoChoice::Nowhere)
    }

    /// What is shared between the node at an index and the next one.
    fn shared_after(&self, index: usize) -> usize {
        self.stops.get(index + 1).map_or(0, |stop| stop.shared)
    }

    /// For every stop and everything that may be wanted there whether its node is used in the choice of the least price;
    /// None where nothing holds the job.
    fn prices_from_the_end<P: Packed>(&self, tail: u32) -> Option<Vec<bool>> {
        let (ways, width) = (self.ways, self.width);
        let mut after = vec![P::NEVER; self.depth * ways * width];
        after.chunks_mut(ways * width).for_each(|used| used[..width].fill(P::NOTHING));
        let mut here = after.clone();
        let mut uses = vec![false; self.answers];
        for (index, stop) in self.stops.iter().enumerate().rev() {
            let next = self.shared_after(index);
            let most_after = self.stops.get(index + 1).map_or(0, |next| next.wanted.1[stop.weight]);
            let mut answer = stop.answers;
            for used in 0..=stop.shared {
                let price = P::pack(self.prices[stop.prices + used], tail);
                stop.each_wanted(&self.strides, |left, way| {
                    let row = |used: usize, way: usize| (used * ways + way) * width;
                    let left = left[stop.weight];
                    let skips = (left <= most_after).then(|| &after[row(used.min(next), way)..][..width]);
                    let takes =
                        (left > 0).then(|| &after[row(next, way - self.strides[stop.weight])..][..width]);
                    let outcome = &mut here[row(used, way)..][..width];
                    choose(outcome, &mut uses[answer..answer + width], (skips, takes), stop.costs, price);
                    answer += width;
                });
            }
            std::mem::swap(&mut here, &mut after);
        }
        (after[ways * width - 1] != P::NEVER).then_some(uses)
    }

    /// The nodes that are used.
    fn follow(&self, uses: &[bool]) -> Vec<Candidate> {
        let (mut used, mut left, mut slack) = (0, self.counts.clone(), self.width - 1);
        let mut nodes = Vec::new();
        for (index, stop) in self.stops.iter().enumerate() {
            let next = self.shared_after(index);
            let way = used * stop.ways() + stop.way(&left);
            if uses[stop.answers + way * self.width + slack] {
                left[stop.weight] -= 1;
                slack -= stop.costs.1;
                nodes.push(stop.node);
                used = next;
            } else {
                slack -= stop.costs.0;
            }
            used = used.min(next);
        }
        nodes
    }
}

/// Works out the least prices for every part of the slack that may be left, and for which of them a node is used.
fn choose<P: Packed>(
    outcome: &mut [P],
    uses: &mut [bool],
    (skips, takes): (Option<&[P]>, Option<&[P]>),
    (unused, used): (usize, usize),
    price: P,
) {
    let least = |slack: usize, prices: Option<&[P]>, cost: usize| {
        slack.checked_sub(cost).and_then(|left| prices.map(|prices| prices[left])).unwrap_or(P::NEVER)
    };
    for (slack, (outcome, uses)) in outcome.iter_mut().zip(uses).enumerate() {
        let skip = least(slack, skips, unused);
        let take = least(slack, takes, used).plus(price);
        *uses = take <= skip && take != P::NEVER;
        *outcome = take.min(skip);
    }
}
