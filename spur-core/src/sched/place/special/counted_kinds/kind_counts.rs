//! How many nodes of each kind there are, and how many of each a job needs.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::{Problem, positions};

/// The nodes that may be used, by kind: one for each counted feature, or, where nodes weigh unequally much, one for each
/// weight, the heaviest first.
pub(super) struct KindCounts<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    kinds: usize,
    /// By kind: which counted feature its nodes have, if any.
    features: Vec<Option<usize>>,
    /// By domain and kind: its nodes; behind those of the kinds all of them.
    nodes: Vec<u32>,
}

impl<'p, 'a> KindCounts<'p, 'a> {
    /// None where some node is of two kinds, or where nodes of one weight are of several.
    pub(super) fn new(problem: &'p Problem<'a>) -> Option<Self> {
        let (fabric, weights) = (problem.fabric, problem.layout.weights);
        let are_weights = weights > 0;
        let kinds = if are_weights { weights + 1 } else { problem.ask.counts.len() };
        let features = if are_weights { vec![None; kinds] } else { (0..kinds).map(Some).collect() };
        let mut counts =
            Self { problem, kinds, features, nodes: vec![0; fabric.domain_count() * (kinds + 1)] };
        let mut known = vec![!are_weights; kinds];
        for leaf in fabric.domains_of(Layer::LEAF).filter(|&leaf| problem.room(leaf) > 0) {
            let row = leaf.index() * (kinds + 1);
            for pos in counts.usable(leaf) {
                let feature = feature(problem, pos).ok()?;
                counts.nodes[row + kinds] += 1;
                let Some(kind) = counts.kind_of(pos, feature) else { continue };
                counts.nodes[row + kind] += 1;
                if !std::mem::replace(&mut known[kind], true) {
                    counts.features[kind] = feature;
                }
                if counts.features[kind] != feature {
                    return None;
                }
            }
        }
        for (id, domain) in fabric.domains().filter(|(_, domain)| !domain.children().is_empty()) {
            for kind in 0..=kinds {
                let below =
                    domain.children().iter().map(|child| counts.nodes[child.index() * (kinds + 1) + kind]);
                counts.nodes[id.index() * (kinds + 1) + kind] = below.sum();
            }
        }
        Some(counts)
    }

    fn usable(&self, leaf: DomainId) -> impl Iterator<Item = Pos> + use<'a> {
        let (open, range) = (self.problem.view.slots.open(), self.problem.fabric.domain(leaf).range());
        positions(range).filter(|pos| open.contains(pos.index()))
    }

    fn kind_of(&self, pos: Pos, feature: Option<usize>) -> Option<usize> {
        let weights = self.problem.layout.weights;
        if weights == 0 { feature } else { Some(self.problem.weight_class(pos).unwrap_or(weights)) }
    }

    /// Nodes of a domain by kind, and behind them all.
    pub(super) fn of(&self, id: DomainId) -> &[u32] {
        let row = id.index() * (self.kinds + 1);
        &self.nodes[row..=row + self.kinds]
    }

    /// Whether a domain has as many nodes of each kind as that, and as the job needs in all.
    pub(super) fn holds(&self, id: DomainId, needs: &[u32]) -> bool {
        let nodes = self.of(id);
        nodes[self.kinds] >= self.problem.amount && nodes.iter().zip(needs).all(|(has, need)| has >= need)
    }

    /// The least that a job needs of each kind in any domain that may hold it; None where none does.
    pub(super) fn least(&self) -> Option<Vec<u32>> {
        let problem = self.problem;
        let highest = problem.within.unwrap_or(problem.fabric.top());
        let largest = problem.fabric.domains_covering(highest).into_iter().chain(problem.holder());
        largest.filter(|&id| problem.is_inside(id)).filter_map(|id| self.needs(id)).min()
    }

    /// What a job needs of each kind in a domain; None where that does not hold it.
    pub(super) fn needs(&self, id: DomainId) -> Option<Vec<u32>> {
        let problem = self.problem;
        let counts: Vec<u32> = problem.ask.counts.iter().map(|(_, count)| *count).collect();
        if problem.layout.weights == 0 {
            let are_few = counts.iter().map(|&count| u64::from(count)).sum::<u64>() <= problem.amount.into();
            return (are_few && self.holds(id, &counts)).then_some(counts);
        }
        let nodes = &self.of(id)[..self.kinds];
        let mut needs: Vec<u32> = Vec::with_capacity(self.kinds);
        for &has in nodes {
            let some = (0..=has.min(problem.amount)).find(|&some| {
                needs.push(some);
                let can_be = self.can_be(nodes, &needs, &counts);
                needs.pop();
                can_be
            })?;
            needs.push(some);
        }
        Some(needs)
    }

    /// Whether a job can have just so many nodes of the first few kinds, and others besides.
    fn can_be(&self, nodes: &[u32], taken: &[u32], counts: &[u32]) -> bool {
        let Some(left) = self.problem.amount.checked_sub(taken.iter().sum()) else { return false };
        let others = &nodes[taken.len()..];
        let mut wanted = 0;
        for (feature, &count) in counts.iter().enumerate() {
            let of = |kinds: &[u32], first: usize| -> u32 {
                let numbered = kinds.iter().zip(first..);
                numbered.filter(|(_, kind)| self.features[*kind] == Some(feature)).map(|(some, _)| some).sum()
            };
            let lacking = count.saturating_sub(of(taken, 0));
            if lacking > of(others, taken.len()) {
                return false;
            }
            wanted += lacking;
        }
        wanted <= left && left <= others.iter().sum()
    }

    /// The first nodes of some leaves, each of which is needed, that are what a job needs of each kind.
    pub(super) fn first_nodes(&self, leaves: &[DomainId], needs: &[u32]) -> Vec<Pos> {
        let (mut left, mut needs) = (self.problem.amount, needs.to_vec());
        let mut wanted: u32 = needs.iter().sum();
        let mut nodes = Vec::with_capacity(left as usize);
        for pos in leaves.iter().flat_map(|&leaf| self.usable(leaf)) {
            let kind = feature(self.problem, pos).ok().and_then(|feature| self.kind_of(pos, feature));
            let is_needed = kind.is_some_and(|kind| needs[kind] > 0);
            if left > 0 && (is_needed || left > wanted) {
                if let Some(kind) = kind.filter(|_| is_needed) {
                    (needs[kind], wanted) = (needs[kind] - 1, wanted - 1);
                }
                left -= 1;
                nodes.push(pos);
            }
        }
        nodes
    }
}

/// The counted feature that a node has, if any; an error if it has several.
fn feature(problem: &Problem<'_>, pos: Pos) -> Result<Option<usize>, ()> {
    let sets = problem.ask.counts.iter().enumerate();
    let mut has = sets.filter(|(_, (set, _))| set.contains(pos.index())).map(|(feature, _)| feature);
    let first = has.next();
    if has.next().is_some() { Err(()) } else { Ok(first) }
}
