//! How much each chosen node takes, where tasks are placed: earlier nodes are filled first, within what their domains
//! must hold.

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;

use super::traceback::Chosen;

/// What a chosen node may take, and what a part of the fabric over some of them may.
#[derive(Debug, Clone, Copy)]
struct Span {
    lo: u32,
    hi: u32,
}

/// Gives every chosen node of a domain its share of the job, less where there is not enough room for all; `nodes` is sorted,
/// `bounds` are by layer.
pub(crate) fn share(
    problem: &Problem<'_>,
    holder: DomainId,
    nodes: &[Chosen],
    bounds: &[(u32, u32)],
) -> Vec<(Pos, u32)> {
    if problem.by_nodes {
        return nodes.iter().map(|&(pos, _, _)| (pos, 1)).collect();
    }
    let mut shares = Vec::with_capacity(nodes.len());
    Sharing { problem, bounds }.give(holder, nodes, problem.amount, &mut shares);
    shares
}

/// A used member of a domain, the nodes chosen in it, and what it may take.
type MemberSpan<'n> = (Option<DomainId>, &'n [Chosen], Span);

struct Sharing<'s, 'a> {
    problem: &'s Problem<'a>,
    bounds: &'s [(u32, u32)],
}

impl Sharing<'_, '_> {
    /// What the chosen nodes of a domain may take together, as a part of the domain above.
    fn span(&self, id: DomainId, nodes: &[Chosen]) -> Span {
        let domain = self.problem.fabric.domain(id);
        let parts = self.parts(id, nodes);
        let unit = self.problem.unit(domain.cover());
        let mut lo: u32 = parts.iter().map(|(_, _, span)| span.lo).sum();
        let hi = parts.iter().fold(0, |sum: u32, (_, _, span)| sum.saturating_add(span.hi));
        let mut hi = hi.min(self.problem.limit(id));
        if domain.layer() == Layer::LEAF {
            hi = hi.min(self.problem.leaf_cap(id));
        }
        for &(least, most) in &self.bounds[domain.layer().index()..=domain.cover().index()] {
            lo = lo.max(least);
            hi = hi.min(most);
        }
        Span { lo: lo.div_ceil(unit) * unit, hi: hi - hi % unit }
    }

    /// The used members of a domain, each with its nodes.
    fn parts<'n>(&self, id: DomainId, nodes: &'n [Chosen]) -> Vec<MemberSpan<'n>> {
        let children = self.problem.fabric.domain(id).children();
        if children.is_empty() {
            return nodes.chunks(1).map(|one| (None, one, Span { lo: one[0].1, hi: one[0].2 })).collect();
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
        let mut later: u32 = parts.iter().map(|(_, _, span)| span.lo).sum();
        let mut left = amount;
        for (child, inside, span) in parts {
            later -= span.lo;
            let part = span.hi.min(left.saturating_sub(later));
            left -= part;
            match child {
                Some(child) => self.give(child, inside, part, shares),
                None => shares.push((inside[0].0, part)),
            }
        }
    }
}
