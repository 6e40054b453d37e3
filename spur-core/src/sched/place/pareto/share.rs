//! The share of each chosen node, where tasks are placed: earlier nodes are filled first, within the bounds
//! of their domains.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;

use super::traceback::Chosen;

/// Gives every chosen node of a domain its share of the job, in total less than the job if the nodes cannot
/// hold it. `nodes` is sorted; `bounds` are by layer and may be empty.
pub(crate) fn share(
    problem: &Problem<'_>,
    holder: DomainId,
    nodes: &[Chosen],
    bounds: &[(u32, u32)],
) -> Vec<(Pos, u32)> {
    if problem.by_nodes {
        return nodes.iter().map(|&(pos, _, _)| (pos, 1)).collect();
    }
    fill(problem, holder, nodes, bounds)
}

/// Like [`share`], but each node gets an amount within its own range even where nodes are counted; leaves are
/// given by their first positions.
pub(crate) fn fill(
    problem: &Problem<'_>,
    holder: DomainId,
    chosen: &[Chosen],
    bounds: &[(u32, u32)],
) -> Vec<(Pos, u32)> {
    let mut shares = Vec::with_capacity(chosen.len());
    Sharing { problem, bounds }.give(holder, chosen, problem.amount, &mut shares);
    shares
}

/// A used member of a domain, the nodes chosen in it, and the least and the most that it may take.
type MemberSpan<'n> = (Option<DomainId>, &'n [Chosen], (u32, u32));

struct Sharing<'s, 'a> {
    problem: &'s Problem<'a>,
    bounds: &'s [(u32, u32)],
}

impl Sharing<'_, '_> {
    /// The least and the most that the chosen nodes of a domain may take together, as a part of the parent.
    fn span(&self, id: DomainId, nodes: &[Chosen]) -> (u32, u32) {
        let domain = self.problem.fabric.domain(id);
        let parts = self.parts(id, nodes);
        let unit = self.problem.unit(domain.cover());
        let mut lo: u32 = parts.iter().map(|(.., (lo, _))| lo).sum();
        let hi = parts.iter().fold(0, |sum: u32, (.., (_, hi))| sum.saturating_add(*hi));
        let mut hi = hi.min(self.problem.limit(id));
        if domain.layer() == Layer::LEAF {
            hi = hi.min(self.problem.leaf_cap(id));
        }
        let bounds = self.bounds.get(domain.layer().index()..=domain.cover().index());
        for &(least, most) in bounds.unwrap_or_default() {
            lo = lo.max(least);
            hi = hi.min(most);
        }
        (lo.div_ceil(unit) * unit, hi - hi % unit)
    }

    /// The used members of a domain, each with its nodes.
    fn parts<'n>(&self, id: DomainId, nodes: &'n [Chosen]) -> Vec<MemberSpan<'n>> {
        let children = self.problem.fabric.domain(id).children();
        if children.is_empty() {
            return nodes.chunks(1).map(|one| (None, one, (one[0].1, one[0].2))).collect();
        }
        let mut parts = Vec::new();
        let mut rest = nodes;
        for &child in children {
            let end = self.problem.fabric.domain(child).range().end;
            let (inside, after) = rest.split_at(rest.partition_point(|(pos, _, _)| pos.index() < end));
            rest = after;
            if !inside.is_empty() {
                parts.push((Some(child), inside, self.span(child, inside)));
            }
        }
        parts
    }

    fn give(&self, id: DomainId, nodes: &[Chosen], amount: u32, shares: &mut Vec<(Pos, u32)>) {
        let parts = self.parts(id, nodes);
        let mut later: u32 = parts.iter().map(|(.., (lo, _))| lo).sum();
        let mut left = amount;
        for (child, inside, (lo, hi)) in parts {
            later -= lo;
            let part = hi.min(left.saturating_sub(later));
            left -= part;
            match child {
                Some(child) => self.give(child, inside, part, shares),
                None => shares.push((inside[0].0, part)),
            }
        }
    }
}
