//! Tasks on nodes that take unequally many, on fabrics of four layers and up to some sixty nodes, where no search may be cut:
//! with a budget of one step the answers have to be exact all the same.
//!
//! They are compared with every way to use every domain: for each number of tasks that its nodes come to, the least cost of
//! nodes that do and the first such list of them. That is simple, and slow.

use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::sched::place::{Ask, Placement, Slots, View, Weights, place};

use super::case::Random;

struct Question {
    fabric: Fabric,
    slots: Slots,
    weights: Option<Weights>,
    ask: Ask,
    tasks: u32,
}

/// What some nodes cost: those of each weight but the lightest, the heaviest first; preferred spans; spans from the top down to
/// `node`; slots of what is used likewise. Then the nodes.
type Price = (Vec<u64>, Vec<Pos>);

/// By how many tasks they come to, as far as those are wanted: the best nodes.
type Ways = BTreeMap<u32, Price>;

impl Question {
    fn new(random: &mut Random) -> Self {
        let fabric = random.small_four_layers();
        let (most, full) = (random.pick(&[3, 7, 16, 64]), random.between(2, 4));
        let slots: Vec<u32> = (0..fabric.len())
            .map(|_| if random.one_in(full) { 0 } else { random.between(1, most) })
            .collect();
        let heaviest = random.pick(&[1, 1, 1, 3]);
        let weights =
            (heaviest > 1).then(|| (0..fabric.len()).map(|_| random.between(1, heaviest)).collect());
        let slots = Slots::tasks(&fabric, slots);
        let tasks = random.between(1, u32::try_from(slots.total()).expect("some thousand").max(1));
        let mut ask = Ask { budget: 1, ..Ask::tasks(tasks) };
        let layer = |random: &mut Random| Layer(random.between(1, fabric.top().0.into()) as u8);
        if random.one_in(4) {
            ask.must = Some(layer(random));
        }
        if random.one_in(4) {
            ask.prefer = vec![layer(random)];
        }
        if random.one_in(4) {
            ask.max_tasks_per_node = Some(random.between(1, most));
        }
        Self { fabric, slots, weights: weights.map(Weights::new), ask, tasks }
    }

    /// Whether the answer has to be exact: where a higher domain could touch fewer of a preferred layer, or a heavier node is
    /// needed, it need not be.
    fn is_plain(&self) -> bool {
        self.ask.prefer.is_empty() && self.weights.is_none()
    }

    fn takes(&self, pos: Pos) -> u32 {
        self.slots.at(pos).min(self.ask.max_tasks_per_node.unwrap_or(u32::MAX))
    }

    fn layers(&self) -> impl Iterator<Item = Layer> + use<> {
        (0..=self.fabric.top().0).rev().map(Layer)
    }

    /// What something costs by itself that counts for some layers.
    fn charge(&self, from: Layer, to: Layer, slots: u64, weight: Option<u32>) -> Vec<u64> {
        let counts = |layer: Layer| u64::from(from <= layer && layer <= to);
        let weights = self.heavier().into_iter().map(|known| u64::from(Some(known) == weight));
        let preferred = self.ask.prefer.iter().map(|&layer| counts(layer));
        let spans = self.layers().map(counts);
        let all = self.layers().map(|layer| counts(layer) * slots);
        weights.chain(preferred).chain(spans).chain(all).collect()
    }

    /// The weights of open nodes but the lightest, the heaviest first.
    fn heavier(&self) -> Vec<u32> {
        let Some(weights) = &self.weights else { return Vec::new() };
        let mut known: Vec<u32> =
            self.slots.open().ones().map(|index| weights.at(Pos(index as u32))).collect();
        known.sort_unstable();
        known.dedup();
        known.into_iter().skip(1).rev().collect()
    }

    fn offer(&self, ways: &mut Ways, takes: u32, price: Price) {
        let known = ways.entry(takes.min(self.tasks)).or_insert_with(|| price.clone());
        if price < *known {
            *known = price;
        }
    }

    /// Every way to use what is below a domain, nothing included.
    fn inside(&self, id: DomainId) -> Ways {
        let domain = self.fabric.domain(id);
        let nothing = self.charge(Layer(1), Layer(0), 0, None);
        let mut ways = Ways::from([(0, (nothing, Vec::new()))]);
        let of_nodes = if domain.children().is_empty() { domain.range() } else { 0..0 };
        let nodes = of_nodes.map(|index| self.node(Pos(index as u32)));
        for used in domain.children().iter().map(|&child| self.used(child)).chain(nodes) {
            for (takes, (cost, nodes)) in ways.clone() {
                for (more, (other, those)) in &used {
                    self.offer(&mut ways, takes + more, (sum(&cost, other), [&nodes[..], those].concat()));
                }
            }
        }
        ways
    }

    /// The way to use a node, if it takes anything.
    fn node(&self, pos: Pos) -> Ways {
        let weight = self.weights.as_ref().map(|weights| weights.at(pos));
        let cost = self.charge(Layer::NODE, Layer::NODE, self.slots.at(pos).into(), weight);
        Ways::from_iter((self.takes(pos) > 0).then(|| (self.takes(pos), (cost, vec![pos]))))
    }

    /// The ways to use a domain as a part of another.
    fn used(&self, id: DomainId) -> Ways {
        let domain = self.fabric.domain(id);
        let own = self.charge(domain.layer(), domain.cover(), self.slots.of(id), None);
        let inside = self.inside(id).into_iter().filter(|(takes, _)| *takes > 0);
        inside.map(|(takes, (cost, nodes))| (takes, (sum(&cost, &own), nodes))).collect()
    }

    /// The nodes of the best choice.
    fn best(&self) -> Option<Vec<Pos>> {
        let may_hold = |layer: Layer| self.ask.must.is_none_or(|must| layer <= must);
        let domains = self.fabric.domains().filter(|(_, domain)| may_hold(domain.layer()));
        let in_domains = domains.filter_map(|(id, domain)| {
            let (_, (cost, nodes)) = self.inside(id).into_iter().find(|(takes, _)| *takes == self.tasks)?;
            Some((self.rank(domain.layer(), id, None, &cost), nodes))
        });
        let nodes = (0..self.fabric.len()).map(|index| Pos(index as u32));
        let alone = nodes.filter(|&pos| self.takes(pos) >= self.tasks).filter_map(|pos| {
            let weight = self.weights.as_ref().map(|weights| weights.at(pos));
            // A node costs nothing as its own holder but what it weighs.
            let cost = self.charge(Layer(1), Layer(0), 0, weight);
            Some((self.rank(Layer::NODE, self.fabric.leaf_of(pos)?, Some(pos), &cost), vec![pos]))
        });
        in_domains.chain(alone).min().map(|(_, nodes)| nodes)
    }

    /// Where the best choice of a holder stands among those of others.
    fn rank(&self, layer: Layer, id: DomainId, node: Option<Pos>, cost: &[u64]) -> Vec<u64> {
        let (weights, rest) = cost.split_at(self.heavier().len());
        let (preferred, rest) = rest.split_at(self.ask.prefer.len());
        let (spans, slots) = rest.split_at(self.layers().count());
        let preferred = preferred.iter().zip(&self.ask.prefer);
        let mut rank = weights.to_vec();
        rank.extend(preferred.map(|(&span, &own)| if own >= layer { 1 } else { span }));
        rank.push(layer.0.into());
        rank.extend(spans);
        rank.extend(node.map(|pos| u64::from(self.slots.at(pos))));
        let above = layer.max(Layer::LEAF).0..=self.fabric.top().0;
        rank.extend(above.map(|above| self.slots.of(self.fabric.covering(id, Layer(above)))));
        rank.extend(slots);
        rank.push(node.map_or(self.fabric.domain(id).range().start as u64, |pos| pos.0.into()));
        rank
    }

    /// Whether a placement gives its nodes as many tasks as they take, and the job all of its own.
    fn allows(&self, placement: &Placement) -> bool {
        let fit = placement.shares.iter().all(|&(pos, share)| (1..=self.takes(pos)).contains(&share));
        fit && placement.shares.iter().map(|(_, share)| share).sum::<u32>() == self.tasks
    }
}

fn sum(one: &[u64], other: &[u64]) -> Vec<u64> {
    one.iter().zip(other).map(|(one, other)| one + other).collect()
}

#[test]
fn tasks_whatever_the_budget() {
    super::each_seed("tasks whatever the budget", 200, |random| {
        let question = Question::new(random);
        let Question { fabric, slots, ask, .. } = &question;
        let view = View { weights: question.weights.as_ref(), ..View::new(slots, slots) };
        let answer = place(fabric, &view, ask);
        let is_exact = answer.as_ref().map_or_else(|missed| missed.exact, |placement| placement.exact);
        if !is_exact && !question.is_plain() {
            return Ok(answer.is_ok());
        }
        let suits = |placement: &Placement, nodes: &Vec<Pos>| {
            question.allows(placement) && placement.positions() == *nodes
        };
        super::exactly(answer, question.best(), suits).map_err(|wrong| format!("{ask:?}: {wrong}"))
    });
}
