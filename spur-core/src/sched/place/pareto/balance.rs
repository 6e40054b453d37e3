//! Balanced shares: among placements of equal span, from the top layer down, the largest minimum share, then
//! the smallest maximum share.
//!
//! Minimum and maximum are no sums over domains, so bisection finds them: each bound is the tightest under
//! which the solver still reaches the spans that it reached without bounds.

use crate::model::fabric::DomainId;
use crate::sched::place::problem::{Cost, Criterion, Item, Means, halve};

use super::Solver;

/// A balanced way to put the job into a domain.
pub(super) struct Balanced<C> {
    /// The minimum share (negated) and the maximum share at each layer, from the top down.
    pub(super) even: Vec<Criterion>,
    /// The bounds on shares, by layer, under which `best` was found.
    pub(super) bounds: Vec<(u32, u32)>,
    /// The best way within the bounds.
    pub(super) best: Item<C>,
}

/// Balances the shares of the best placement in a domain.
pub(super) fn balance<C: Cost>(
    solver: &mut Solver<'_, '_, C>,
    holder: DomainId,
    best: &Item<C>,
) -> Balanced<C> {
    let problem = solver.problem;
    let head = &best.cost.fields()[..problem.layout.head()];
    let mut bounds = solver.bounds.clone();
    let mut even = Vec::new();
    let mut chosen = best.clone();
    let mut exact = true;
    let mut try_bounds = |bounds: &[(u32, u32)]| -> Option<Item<C>> {
        let mut bounded = solver.bounded(bounds.to_vec());
        let found = bounded.best(holder);
        exact &= bounded.exact;
        found.filter(|item| &item.cost.fields()[..head.len()] == head)
    };
    let lowest = usize::from(problem.by_nodes);
    for layer in (lowest..problem.fabric.domain(holder).layer().index()).rev() {
        let unit = problem.units[layer];
        let steps = problem.amount / unit;
        let least = halve(1, steps + 1, |least| {
            bounds[layer].0 = least * unit;
            try_bounds(&bounds).is_some()
        });
        bounds[layer].0 = least * unit;
        let under = halve(least - 1, steps, |most| {
            bounds[layer].1 = most * unit;
            try_bounds(&bounds).is_none()
        });
        bounds[layer].1 = (under + 1) * unit;
        let (least, most) = (i64::from(bounds[layer].0), i64::from(bounds[layer].1));
        even.extend([
            Criterion { value: -least, means: Means::Even },
            Criterion { value: most, means: Means::Even },
        ]);
        if let Some(found) = try_bounds(&bounds) {
            chosen = found;
        }
    }
    // A bound that the solver had no steps left for counts as impossible.
    solver.exact &= exact && !problem.meter.is_spent();
    Balanced { even, bounds, best: chosen }
}
