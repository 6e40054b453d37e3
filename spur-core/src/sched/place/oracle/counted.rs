//! Whole nodes and equal slots on fabrics of four layers and up to some hundred nodes, where no search may be cut: with a
//! budget of one step the answers have to be exact all the same.
//!
//! They are compared with every way to use every domain: for each number of nodes that its leaves come to, the least cost
//! of leaves that do and the first such list of them. That is simple, and slow.

use std::collections::BTreeMap;

use fixedbitset::FixedBitSet;

use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::model::topology::ScoreBefore;
use crate::sched::place::problem::{Frame, Meter, Problem};
use crate::sched::place::special::largest_first;
use crate::sched::place::{Ask, Placement, Segment, Slots, Strategy, View, place};

use super::case::Random;

/// A question that counts decide.
struct Question {
    fabric: Fabric,
    slots: Slots,
    idle: Slots,
    ask: Ask,
    /// Nodes that are wanted.
    nodes: u32,
    /// Multiples of nodes, segments included.
    units: Vec<(Layer, u32)>,
    /// Those to which what is open is rounded.
    multiples: Vec<(Layer, u32)>,
    /// The most of one leaf.
    cap: u32,
    /// What a score may look at.
    occupied: FixedBitSet,
    performance: Option<Vec<u32>>,
}

impl Question {
    fn new(random: &mut Random) -> Self {
        let fabric = random.four_layers();
        let whole = random.whole(&fabric);
        let idle = Slots::whole(&fabric, (0..fabric.len()).collect());
        let open = u32::try_from(whole.nodes()).expect("a few hundred").max(1);
        let mut question = Self {
            nodes: random.between(1, open),
            ask: Ask::nodes(1),
            slots: whole,
            idle,
            fabric,
            units: Vec::new(),
            multiples: Vec::new(),
            cap: u32::MAX,
            occupied: FixedBitSet::new(),
            performance: None,
        };
        match random.between(0, 5) {
            0 => question.share_equally(random),
            1 => question.cut_into_segments(random),
            2 | 3 => question.round(random),
            _ => question.ask = Ask::nodes(question.nodes),
        }
        question.constrain(random);
        question.ask.budget = 1;
        question
    }

    /// Tasks or shares of nodes that all take as many.
    fn share_equally(&mut self, random: &mut Random) {
        let room = random.between(1, 5);
        let open = self.slots.open().clone();
        let of = |index| if open.contains(index) { room } else { 0 };
        self.slots = Slots::tasks(&self.fabric, (0..self.fabric.len()).map(of).collect());
        self.idle = Slots::tasks(&self.fabric, vec![room; self.fabric.len()]);
        let each = random.between(1, room);
        match random.between(0, 5) {
            0 => {
                self.ask = Ask::tasks(self.nodes * each);
                self.ask.tasks_per_node = Some(each);
            }
            1 => {
                self.ask = Ask::tasks(self.nodes * each - random.between(0, each - 1));
                self.ask.max_tasks_per_node = Some(each);
            }
            2 => {
                self.round(random);
                self.ask = Ask::tasks(self.nodes * room);
                self.ask.multiples = self.multiples.iter().map(|&(layer, by)| (layer, by * room)).collect();
            }
            3 => self.ask = Ask::nodes(self.nodes),
            4 => self.round(random),
            _ => self.ask = Ask::tasks(self.nodes * room - random.between(0, room - 1)),
        }
        if random.one_in(3) {
            self.cap = random.between(1, 5);
            let shared = self.ask.tasks.is_none().then_some(1);
            let each = self.ask.tasks_per_node.or(self.ask.max_tasks_per_node).or(shared).unwrap_or(room);
            self.ask.max_slots_per_leaf = Some(self.cap * each);
        }
    }

    /// Segments of which each lies in one base block.
    fn cut_into_segments(&mut self, random: &mut Random) {
        let largest = self.fabric.domains_of(Layer::LEAF).map(|leaf| self.fabric.domain(leaf).range().len());
        let size = random.between(1, largest.max().and_then(|most| u32::try_from(most).ok()).unwrap_or(1));
        let spread = random.one_in(2);
        self.nodes = self.nodes.next_multiple_of(size);
        self.units.push((Layer::LEAF, size));
        self.cap = if spread { size } else { u32::MAX };
        self.ask = Ask::nodes(self.nodes);
        self.ask.strategy = Strategy::Block;
        self.ask.segment = Some(Segment { size, spread, consolidate: false });
    }

    /// Multiples of one layer or two.
    fn round(&mut self, random: &mut Random) {
        for _ in 0..random.between(1, 2) {
            let layer = self.layer(random);
            self.units.push((layer, random.between(2, 4)));
        }
        let unit = self.unit(self.fabric.top());
        self.nodes = self.nodes.next_multiple_of(unit);
        self.multiples = self.units.clone();
        self.ask = Ask::nodes(self.nodes);
        self.ask.multiples = self.units.clone();
    }

    fn constrain(&mut self, random: &mut Random) {
        if random.one_in(3) {
            self.ask.prefer = vec![self.layer(random)];
        }
        if random.one_in(4) {
            self.ask.must = Some(self.layer(random));
        }
        if random.one_in(3) {
            let most = random.between(1, 5);
            self.ask.max_nodes_per_leaf = Some(most);
            self.cap = self.cap.min(most);
        }
        if random.one_in(4) {
            self.score(random);
        }
    }

    /// A settable score, where the job fills the nodes that it gets.
    fn score(&mut self, random: &mut Random) {
        let room = self.slots.iter().next().map_or(1, |(_, room)| room);
        if !self.slots.are_whole() && self.ask.tasks != Some(self.nodes * room) {
            return;
        }
        self.occupied = (0..self.fabric.len()).filter(|_| random.one_in(3)).collect();
        self.occupied.grow(self.fabric.len());
        (self.ask.score, self.performance) = random.score(self.fabric.len());
    }

    /// The score of a holder in millionths.
    fn score_of(&self, id: DomainId) -> i64 {
        let range = self.fabric.domain(id).range();
        let size = range.len() as u64;
        let count = |set: &FixedBitSet| range.clone().filter(|&pos| set.contains(pos)).count() as u64;
        let share = |part: u64, whole: u64| (part * 1_000_000).checked_div(whole).unwrap_or(0).min(1_000_000);
        let known = self.performance.as_ref();
        let well = known
            .map_or(1_000_000, |known| range.clone().map(|pos| u64::from(known[pos])).sum::<u64>() / size);
        let weights = self.ask.score.weights;
        let terms = [
            (weights.resource_availability, share(count(self.slots.open()), size)),
            (weights.topology_alignment, share(self.nodes.into(), self.waste(id))),
            (weights.domain_utilisation, share(count(&self.occupied), size)),
            (weights.past_performance, well),
        ];
        terms.iter().map(|(weight, term)| i64::from(weight.0) * *term as i64 / 1_000_000).sum()
    }

    fn view(&self) -> View<'_> {
        let occupied = Some(&self.occupied).filter(|_| self.ask.score.weights.any());
        View { occupied, performance: self.performance.as_deref(), ..View::new(&self.slots, &self.idle) }
    }

    fn layer(&self, random: &mut Random) -> Layer {
        Layer(u8::try_from(random.between(1, self.fabric.top().0.into())).expect("a few"))
    }

    /// What a domain that counts up to a layer holds a multiple of.
    fn unit(&self, layer: Layer) -> u32 {
        super::unit(&self.units, layer)
    }

    /// Open nodes of a domain, rounded at the layers that carry a multiple.
    fn waste(&self, id: DomainId) -> u64 {
        super::open_nodes(&self.fabric, &self.slots, &self.multiples, id)
    }
}

/// What some leaves cost: preferred spans, spans from the top down, slots of what is used from the top down; then the leaves.
type Price = (Vec<u64>, Vec<usize>);

/// By how many nodes they come to: the best leaves.
type Ways = BTreeMap<u32, Price>;

impl Question {
    fn offer(ways: &mut Ways, takes: u32, price: Price) {
        match ways.get_mut(&takes) {
            Some(known) if *known <= price => {}
            Some(known) => *known = price,
            None => drop(ways.insert(takes, price)),
        }
    }

    /// What a domain costs by itself.
    fn charge(&self, id: DomainId) -> Vec<u64> {
        let domain = self.fabric.domain(id);
        let is_counted = |layer: Layer| domain.layer() <= layer && layer <= domain.cover();
        let layers = || (1..=self.fabric.top().0).rev().map(Layer);
        let preferred = self.ask.prefer.iter().map(|&layer| u64::from(is_counted(layer)));
        let spans = layers().map(|layer| u64::from(is_counted(layer)));
        let slots = layers().map(|layer| if is_counted(layer) { self.waste(id) } else { 0 });
        preferred.chain(spans).chain(slots).collect()
    }

    /// The ways to use what is below a domain, nothing included.
    fn inside(&self, id: DomainId) -> Ways {
        let width = self.ask.prefer.len() + 2 * self.fabric.top().index();
        let mut ways = Ways::from([(0, (vec![0; width], Vec::new()))]);
        for &child in self.fabric.domain(id).children() {
            let used = self.used(child);
            for (takes, (cost, leaves)) in ways.clone() {
                for (more, (other, those)) in &used {
                    let cost = cost.iter().zip(other).map(|(one, other)| one + other).collect();
                    Self::offer(&mut ways, takes + more, (cost, [&leaves[..], those].concat()));
                }
            }
        }
        ways
    }

    /// The ways to use a domain as a part of another.
    fn used(&self, id: DomainId) -> Ways {
        let domain = self.fabric.domain(id);
        let unit = self.unit(domain.cover());
        let own = self.charge(id);
        let mut ways = Ways::new();
        let inside = match domain.children() {
            [] => {
                Ways::from([(self.slots.nodes_of(id).min(self.cap), (vec![0; own.len()], vec![id.index()]))])
            }
            _ => self.inside(id),
        };
        for (takes, (cost, leaves)) in inside {
            if takes >= unit {
                let cost = cost.iter().zip(&own).map(|(one, own)| one + own).collect();
                Self::offer(&mut ways, takes - takes % unit, (cost, leaves));
            }
        }
        ways
    }

    /// The leaves of the best choice.
    fn best(&self) -> Option<Vec<usize>> {
        let mut best: Option<(Vec<u64>, Vec<usize>)> = None;
        for (id, domain) in self.fabric.domains() {
            if self.ask.must.is_some_and(|must| domain.layer() > must) {
                continue;
            }
            let inside = match domain.children() {
                [] => self.used(id),
                _ => self.inside(id),
            };
            let enough = inside.into_iter().filter(|(takes, _)| *takes >= self.nodes);
            let Some((_, (cost, leaves))) = enough.min_by(|(_, one), (_, other)| one.cmp(other)) else {
                continue;
            };
            // A leaf costs nothing as its own holder. Spans of the holder's layer and those above are one.
            let cost = if domain.children().is_empty() { vec![0; cost.len()] } else { cost };
            let (preferred, others) = cost.split_at(self.ask.prefer.len());
            let (spans, slots) = others.split_at(self.fabric.top().index());
            let own = domain.layer();
            let preferred = preferred.iter().zip(&self.ask.prefer);
            let mut rank: Vec<u64> =
                preferred.map(|(&span, &layer)| if layer >= own { 1 } else { span }).collect();
            let score = |before: ScoreBefore| {
                let wanted = self.ask.score;
                let counts = wanted.weights.any() && wanted.before == before;
                counts.then(|| u64::MAX - self.score_of(id).unsigned_abs())
            };
            rank.push(own.0.into());
            rank.extend(score(ScoreBefore::Span));
            rank.extend(spans);
            rank.extend(score(ScoreBefore::Fit));
            rank.extend(
                (own.0..=self.fabric.top().0).map(|layer| self.waste(self.fabric.covering(id, Layer(layer)))),
            );
            rank.extend(slots);
            rank.extend(score(ScoreBefore::None));
            rank.push(domain.range().start as u64);
            if best.as_ref().is_none_or(|(known, _)| rank < *known) {
                best = Some((rank, leaves));
            }
        }
        best.map(|(_, leaves)| leaves)
    }

    /// Whether a placement has as many nodes as are wanted, and no more or others of any domain than it may.
    fn allows(&self, placement: &Placement) -> bool {
        let nodes = placement.positions();
        let open = nodes.iter().all(|pos| self.slots.open().contains(pos.index()));
        let are_multiples = self.fabric.domains().all(|(id, domain)| {
            let held = nodes.iter().filter(|pos| domain.range().contains(&pos.index())).count();
            let unit = self.unit(domain.cover()) as usize;
            let is_part = placement.common != Some(id) || domain.children().is_empty();
            let fits = !domain.children().is_empty() || held <= self.cap as usize;
            fits && (!is_part || held.is_multiple_of(unit))
        });
        open && are_multiples && nodes.len() == self.nodes as usize
    }

    /// The leaves that a placement is on.
    fn leaves(&self, placement: &Placement) -> Vec<usize> {
        let nodes = placement.positions().into_iter();
        let mut leaves: Vec<usize> =
            nodes.filter_map(|pos| Some(self.fabric.leaf_of(pos)?.index())).collect();
        leaves.dedup();
        leaves
    }
}

#[test]
fn exact_whatever_the_budget() {
    super::each_seed("whatever the budget", 400, |random| {
        let question = Question::new(random);
        let Question { fabric, ask, nodes, .. } = &question;
        let placed =
            super::exactly(place(fabric, &question.view(), ask), question.best(), |placement, leaves| {
                question.allows(placement) && question.leaves(placement) == *leaves
            });
        placed.map_err(|wrong| format!("{nodes} nodes, {ask:?}: {wrong}"))
    });
}

/// Where the best choice takes too long to find, the largest leaves of the largest domains are one that is allowed.
#[test]
fn the_largest_will_do() {
    let mut placed = 0;
    for seed in 0..super::cases(400) {
        let question = Question::new(&mut Random::new(seed));
        let Question { fabric, slots, ask, nodes, .. } = &question;
        if !slots.are_whole() || ask.segment.is_some() {
            continue;
        }
        let (view, frame) = (question.view(), Frame { within: ask.must, ..Frame::default() });
        let problem = Problem::new(fabric, &view, ask, Some(*nodes), frame, &Meter::new(1));
        let found = problem.and_then(|problem| largest_first(&problem));
        assert_eq!(found.is_some(), question.best().is_some(), "seed {seed}, {nodes} nodes: {ask:?}");
        if let Some(placement) = found {
            assert!(
                question.allows(&placement),
                "seed {seed}, {nodes} nodes: {ask:?}: {:?}",
                placement.shares
            );
            assert!(!placement.exact, "seed {seed}");
            placed += 1;
        }
    }
    assert!(placed > 0, "nothing was placed");
}
