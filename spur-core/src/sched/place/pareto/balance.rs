//! Balanced shares: among placements of equal span, from the top layer down, the largest least share, then the
//! smallest largest one.
//!
//! Shares are no sum, so they are found by narrowing bounds: each bound is the tightest under which the solver still
//! finds the spans it found without.

use crate::model::fabric::DomainId;
use crate::sched::place::problem::{Cost, Criterion, Item, Means, halve};

use super::Solver;

/// A balanced way to put the job into a domain.
pub(super) struct Balanced<C> {
    /// The least share, negated, and the largest, by layer from the top down.
    pub(super) even: Vec<Criterion>,
    /// The bounds that make it so.
    pub(super) bounds: Vec<(u32, u32)>,
    /// The best way within them.
    pub(super) best: Item<C>,
}

/// Balances the best placements in a domain.
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
    // What no steps were left for was taken for impossible.
    solver.exact &= exact && !problem.meter.is_spent();
    Balanced { even, bounds, best: chosen }
}
