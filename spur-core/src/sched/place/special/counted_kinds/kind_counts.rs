//! Number of nodes of each counted kind per domain, and the number that a job needs.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;

/// The nodes that may be used, by the counted feature that each has.
pub(super) struct KindCounts<'p, 'a> {
    pub(super) problem: &'p Problem<'a>,
    /// Number of nodes of each kind that the job needs.
    pub(super) needs: Vec<u32>,
    /// Number of nodes of every domain by kind; the last entry of each row is the number of all nodes.
    nodes: Vec<u32>,
}

impl<'p, 'a> KindCounts<'p, 'a> {
    /// Counts the nodes; `None` if some node is of two kinds.
    pub(super) fn new(problem: &'p Problem<'a>) -> Option<Self> {
        let fabric = problem.fabric;
        let needs: Vec<u32> = problem.ask.counts.iter().map(|(_, count)| *count).collect();
        let width = needs.len() + 1;
        let mut counts = Self { problem, needs, nodes: vec![0; fabric.domain_count() * width] };
        for leaf in fabric.domains_of(Layer::LEAF).filter(|&leaf| problem.room(leaf) > 0) {
            let row = &mut counts.nodes[leaf.index() * width..][..width];
            for pos in problem.open_nodes(leaf) {
                row[width - 1] += 1;
                if let Some(kind) = kind(problem, pos).ok()? {
                    row[kind] += 1;
                }
            }
        }
        for (id, domain) in fabric.domains().filter(|(_, domain)| !domain.children().is_empty()) {
            for kind in 0..width {
                let below = domain.children().iter().map(|child| counts.nodes[child.index() * width + kind]);
                counts.nodes[id.index() * width + kind] = below.sum();
            }
        }
        Some(counts)
    }

    /// Number of nodes of a domain by kind; the last entry is the number of all nodes.
    pub(super) fn of(&self, id: DomainId) -> &[u32] {
        let width = self.needs.len() + 1;
        &self.nodes[id.index() * width..][..width]
    }

    /// True if a domain has enough nodes of each kind and in all.
    pub(super) fn holds(&self, id: DomainId) -> bool {
        let amount = self.problem.amount;
        let needs = self.needs.iter().copied().chain([amount]);
        self.needs.iter().map(|need| u64::from(*need)).sum::<u64>() <= amount.into()
            && self.of(id).iter().zip(needs).all(|(has, need)| *has >= need)
    }

    /// The first nodes of the given leaves, all of which are needed, that serve each kind and the amount.
    pub(super) fn first_nodes(&self, leaves: &[DomainId]) -> Vec<Pos> {
        let (mut left, mut needs) = (self.problem.amount, self.needs.clone());
        let mut wanted: u32 = needs.iter().sum();
        let mut nodes = Vec::with_capacity(left as usize);
        for pos in leaves.iter().flat_map(|&leaf| self.problem.open_nodes(leaf)) {
            let kind = kind(self.problem, pos).ok().flatten().filter(|kind| needs[*kind] > 0);
            if left > 0 && (kind.is_some() || left > wanted) {
                if let Some(kind) = kind {
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
fn kind(problem: &Problem<'_>, pos: Pos) -> Result<Option<usize>, ()> {
    let sets = problem.ask.counts.iter().enumerate();
    let mut has = sets.filter(|(_, (set, _))| set.contains(pos.index())).map(|(kind, _)| kind);
    let first = has.next();
    if has.next().is_some() { Err(()) } else { Ok(first) }
}
