//! Whole nodes of which some have to be used, because they are required or lighter than others, and limits on the domains of a
//! layer: with a budget of one step the answers have to be exact all the same.
//!
//! They are compared with every number of nodes that every domain could give: for each number, and so many domains of the
//! layers that are limited, the least cost and the first such nodes.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::fabric::{DomainId, Fabric, Layer, Pos};
use crate::model::topology::ScoreBefore;
use crate::sched::place::{Ask, Slots, View, Weights, place};

use super::case::Random;

/// A question that counts decide.
struct Question {
    fabric: Fabric,
    slots: Slots,
    idle: Slots,
    weights: Option<Weights>,
    ask: Ask,
    nodes: u32,
}

/// What some nodes cost, by weight, preferred spans, spans from the top down, and slots of what is used from the top down;
/// then how many each leaf gives, more before less.
type Price = (Vec<u64>, Vec<(usize, Reverse<u32>)>);

/// By how many nodes they are, and how many domains of each limited layer they touch: the best.
type Ways = BTreeMap<(u32, Vec<u32>), Price>;

impl Question {
    fn new(random: &mut Random) -> Self {
        let fabric = random.small_four_layers();
        let slots = random.whole(&fabric);
        let idle = Slots::whole(&fabric, (0..fabric.len()).collect());
        let open = u32::try_from(slots.nodes()).expect("a few").max(1);
        let nodes = random.between(1, open);
        let mut question = Self { ask: Ask::nodes(nodes), nodes, weights: None, slots, idle, fabric };
        if random.one_in(2) {
            let heaviest = random.between(2, 4);
            question.weights = Some(random.weights(&question.fabric, heaviest));
        }
        question.constrain(random);
        question.ask.budget = 1;
        question
    }

    fn constrain(&mut self, random: &mut Random) {
        if self.weights.is_none() || random.one_in(3) {
            let open: Vec<usize> = self.slots.open().ones().collect();
            let most = self.nodes.min(if random.one_in(2) { 2 } else { 6 });
            for _ in 0..random.between(0, most) {
                let any = random.between(0, u32::try_from(open.len()).expect("a few").max(1) - 1);
                self.ask.required.extend(open.get(any as usize).map(|&index| Pos(index as u32)));
            }
            self.ask.required.sort_unstable();
            self.ask.required.dedup();
        }
        if random.one_in(4) {
            // Several units are for those alone that are no matter of weight.
            let layer = if self.weights.is_some() { Layer::LEAF } else { self.layer(random) };
            let by = random.between(2, 3);
            self.ask.multiples.push((layer, by));
            if self.weights.is_none() && random.one_in(2) {
                self.ask.multiples.push((self.layer(random), random.between(2, 4)));
            }
            let unit = self.unit(self.fabric.top());
            self.nodes = self.nodes.next_multiple_of(unit);
            self.ask.nodes = Some((self.nodes, self.nodes));
        }
        if random.one_in(3) {
            self.ask.max_nodes_per_leaf = Some(random.between(1, 3));
        }
        if random.one_in(3) {
            self.ask.prefer = vec![self.layer(random)];
        }
        if random.one_in(4) {
            self.ask.must = Some(self.layer(random));
        }
        // Outlines that say no more than that.
        self.ask.contiguous = self.nodes == 1 && random.one_in(2);
        if random.one_in(10) {
            self.ask.adjacent = Some(1);
        }
        if random.one_in(5) {
            let domains: Vec<DomainId> = self.fabric.domains().map(|(id, _)| id).collect();
            let any = random.between(0, u32::try_from(domains.len()).expect("a few") - 1);
            self.ask.prefer_domain = Some(domains[any as usize]);
        }
        if self.weights.is_none() && random.one_in(2) {
            for _ in 0..random.between(1, 2) {
                let layer = self.layer(random);
                self.ask.max_spans.retain(|(known, _)| *known != layer);
                self.ask.max_spans.push((layer, random.between(1, 6)));
            }
        }
        if random.one_in(5) {
            (self.ask.score, _) = random.score(self.fabric.len());
        }
    }

    fn layer(&self, random: &mut Random) -> Layer {
        Layer(u8::try_from(random.between(1, self.fabric.top().0.into())).expect("a few"))
    }

    /// What a domain that counts up to a layer holds a multiple of.
    fn unit(&self, layer: Layer) -> u32 {
        super::unit(&self.ask.multiples, layer)
    }

    /// Open nodes of a domain, rounded at the layers that carry a multiple.
    fn waste(&self, id: DomainId) -> u64 {
        super::open_nodes(&self.fabric, &self.slots, &self.ask.multiples, id)
    }

    /// The score of a holder in millionths, where nothing runs and nothing is known of nodes.
    fn score_of(&self, id: DomainId) -> u64 {
        let size = self.fabric.domain(id).range().len() as u64;
        let share = |part: u64, whole: u64| (part * 1_000_000).checked_div(whole).unwrap_or(0).min(1_000_000);
        let weights = self.ask.score.weights;
        let terms = [
            (weights.resource_availability, share(self.slots.nodes_of(id).into(), size)),
            (weights.topology_alignment, share(self.nodes.into(), self.waste(id))),
            (weights.past_performance, 1_000_000),
        ];
        terms.iter().map(|(weight, term)| u64::from(weight.0) * term / 1_000_000).sum()
    }

    /// The open nodes of a leaf in the order in which they are best used.
    fn nodes_of(&self, leaf: usize) -> Vec<Pos> {
        let range = self.fabric.domain(DomainId(leaf as u32)).range();
        let mut nodes: Vec<Pos> =
            range.filter(|&index| self.slots.open().contains(index)).map(|index| Pos(index as u32)).collect();
        nodes.sort_by_key(|pos| (!self.ask.required.contains(pos), self.weight(*pos), *pos));
        nodes
    }

    fn weight(&self, pos: Pos) -> u32 {
        self.weights.as_ref().map_or(0, |weights| weights.at(pos))
    }

    fn known_weights(&self) -> Vec<u32> {
        self.weights.iter().flat_map(|weights| weights.known().iter().rev().copied()).collect()
    }

    /// What a domain costs by itself, and for which of the limited layers it counts.
    fn charge(&self, id: DomainId) -> (Vec<u64>, Vec<u32>) {
        let domain = self.fabric.domain(id);
        let is_counted = |layer: Layer| domain.layer() <= layer && layer <= domain.cover();
        let layers = || (1..=self.fabric.top().0).rev().map(Layer);
        let weights = self.known_weights().into_iter().map(|_| 0);
        let preferred = self.ask.prefer.iter().map(|&layer| u64::from(is_counted(layer)));
        let spans = layers().map(|layer| u64::from(is_counted(layer)));
        let slots = layers().map(|layer| if is_counted(layer) { self.waste(id) } else { 0 });
        let limited = self.ask.max_spans.iter().map(|&(layer, _)| u32::from(is_counted(layer)));
        (weights.chain(preferred).chain(spans).chain(slots).collect(), limited.collect())
    }

    fn has_required(&self, id: DomainId) -> bool {
        let range = self.fabric.domain(id).range();
        self.ask.required.iter().any(|pos| range.contains(&pos.index()))
    }

    /// The ways to use what is below a domain, nothing included.
    fn inside(&self, id: DomainId) -> Ways {
        let (cost, limited) = self.charge(id);
        let nothing = (vec![0; cost.len()], Vec::new());
        let mut ways = Ways::from([((0, vec![0; limited.len()]), nothing)]);
        for &child in self.fabric.domain(id).children() {
            let used = self.used(child);
            let mut next = if self.has_required(child) { Ways::new() } else { ways.clone() };
            for ((takes, limited), (cost, leaves)) in &ways {
                for ((more, others), (other, those)) in &used {
                    let limited: Vec<u32> =
                        limited.iter().zip(others).map(|(one, other)| one + other).collect();
                    let are_few =
                        limited.iter().zip(&self.ask.max_spans).all(|(count, (_, cap))| count <= cap);
                    if takes + more > self.nodes || !are_few {
                        continue;
                    }
                    let cost = cost.iter().zip(other).map(|(one, other)| one + other).collect();
                    let price = (cost, [&leaves[..], those].concat());
                    let known = next.entry((takes + more, limited)).or_insert_with(|| price.clone());
                    *known = price.min(known.clone());
                }
            }
            ways = next;
        }
        ways
    }

    /// The ways to use a domain as a part of another, or a leaf as all there is.
    fn used(&self, id: DomainId) -> Ways {
        let domain = self.fabric.domain(id);
        let unit = self.unit(domain.cover());
        let (own, limited) = self.charge(id);
        let inside = match domain.children() {
            [] => self.of_leaf(id, own.len(), limited.len()),
            _ => self.inside(id),
        };
        let mut ways = Ways::new();
        for ((takes, others), (cost, leaves)) in inside {
            if takes > 0 && takes.is_multiple_of(unit) {
                let cost = cost.iter().zip(&own).map(|(one, own)| one + own).collect();
                let limited = others.iter().zip(&limited).map(|(one, own)| one + own).collect();
                ways.insert((takes, limited), (cost, leaves));
            }
        }
        ways
    }

    fn of_leaf(&self, id: DomainId, width: usize, limited: usize) -> Ways {
        let nodes = self.nodes_of(id.index());
        let required = nodes.iter().filter(|pos| self.ask.required.contains(pos)).count();
        let most = nodes.len().min(self.ask.max_nodes_per_leaf.unwrap_or(u32::MAX) as usize);
        let known = self.known_weights();
        let way = |count: usize| {
            let mut cost = vec![0; width];
            for (field, weight) in cost.iter_mut().zip(&known) {
                *field = nodes[..count].iter().filter(|pos| self.weight(**pos) == *weight).count() as u64;
            }
            let takes = u32::try_from(count).expect("a few");
            ((takes, vec![0; limited]), (cost, vec![(id.index(), Reverse(takes))]))
        };
        (required.max(1)..=most).map(way).collect()
    }

    /// The nodes of the best choice.
    fn best(&self) -> Option<Vec<Pos>> {
        let mut best: Option<Price> = None;
        for (id, domain) in self.fabric.domains() {
            let range = domain.range();
            let has_all = self.ask.required.iter().all(|pos| range.contains(&pos.index()));
            let must = self.ask.adjacent.map(|_| Layer::LEAF).or(self.ask.must);
            if must.is_some_and(|must| domain.layer() > must) || !has_all {
                continue;
            }
            let (own_cost, limited) = self.charge(id);
            let is_leaf = domain.children().is_empty();
            let inside =
                if is_leaf { self.of_leaf(id, own_cost.len(), limited.len()) } else { self.inside(id) };
            let own = domain.layer();
            for ((takes, limited), (cost, leaves)) in inside {
                let caps = limited.iter().zip(&self.ask.max_spans);
                let are_few = caps
                    .into_iter()
                    .all(|(&count, &(layer, cap))| if layer >= own { cap > 0 } else { count <= cap });
                if takes != self.nodes || !are_few {
                    continue;
                }
                let (weights, cost) = cost.split_at(self.known_weights().len());
                let (preferred, others) = cost.split_at(self.ask.prefer.len());
                let (spans, slots) = others.split_at(self.fabric.top().index());
                let preferred = preferred.iter().zip(&self.ask.prefer);
                let score = |before: ScoreBefore| {
                    let wanted = self.ask.score;
                    let counts = wanted.weights.any() && wanted.before == before;
                    counts.then(|| u64::MAX - self.score_of(id))
                };
                let mut rank = weights.to_vec();
                rank.extend(preferred.map(|(&span, &layer)| if layer >= own { 1 } else { span }));
                let wanted = self.ask.prefer_domain;
                rank.extend(wanted.map(|wanted| u64::from(!self.fabric.within(id, wanted))));
                rank.push(own.0.into());
                rank.extend(score(ScoreBefore::Span));
                rank.extend(spans);
                rank.extend(score(ScoreBefore::Fit));
                let above = (own.0..=self.fabric.top().0).map(Layer);
                rank.extend(above.map(|layer| self.waste(self.fabric.covering(id, layer))));
                rank.extend(slots);
                rank.extend(score(ScoreBefore::None));
                let found = (rank, leaves);
                if best.as_ref().is_none_or(|known| found < *known) {
                    best = Some(found);
                }
            }
        }
        best.map(|(_, leaves)| {
            let nodes = leaves.iter().flat_map(|&(leaf, Reverse(count))| {
                self.nodes_of(leaf).into_iter().take(count as usize).collect::<Vec<_>>()
            });
            let mut nodes: Vec<Pos> = nodes.collect();
            nodes.sort_unstable();
            nodes
        })
    }
}

#[test]
fn exact_whatever_the_budget() {
    super::each_seed("some nodes sure, whatever the budget", 400, |random| {
        let question = Question::new(random);
        let Question { fabric, slots, idle, weights, ask, nodes } = &question;
        let view = View { weights: weights.as_ref(), ..View::new(slots, idle) };
        let placed = super::exactly(place(fabric, &view, ask), question.best(), |placement, nodes| {
            placement.positions() == *nodes
        });
        placed.map_err(|wrong| format!("{nodes} nodes, {ask:?}: {wrong}"))
    });
}
