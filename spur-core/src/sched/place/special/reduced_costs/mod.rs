//! The best leaves over which a job of whole nodes is spread, in any number of layers and at every size; and
//! the best nodes of a job with tasks, where nodes are one more layer.
//!
//! The fewest domains of each layer that hold the job are found layer by layer, in the order in which spans
//! count. Lagrangian bounds ([`multipliers`]) give a lower bound, which is mostly reached. A choice then has
//! so little slack that few labels of each domain remain ([`labels`]).

mod instance;
mod label_table;
mod labels;
mod multipliers;
mod packed_cost;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::answer::Missed;
use crate::sched::place::problem::{Problem, Rank};
use crate::sched::place::special::comparison::{bound, is_over, ranked};

use instance::Instance;
use labels::{BestLabel, LabelSearch};
use multipliers::{LagrangianBounds, Multipliers, Scope};

/// The largest number of layers.
const MOST: usize = 8;
/// The largest number of open nodes of a domain where nodes are a layer.
const MOST_NODES: u32 = 1 << 16;

/// The bounds on the amounts of domains below a holder.
pub(super) trait CapacityBounds {
    /// The least amount that a domain takes (above 0 if it has to be used) and the most.
    fn of(&self, id: DomainId) -> (u32, u32);

    /// Calls `see` with every node of a leaf that takes anything, in fabric order, and its amount, where
    /// nodes are distinguished.
    fn each_of(&self, _leaf: DomainId, _see: impl FnMut(Pos, u32)) {}
}

impl<F: Fn(DomainId) -> (u32, u32)> CapacityBounds for F {
    fn of(&self, id: DomainId) -> (u32, u32) {
        self(id)
    }
}

/// The best choice below a holder: its rank, its leaves, and the amount of each. [`Missed::NONE`] if no
/// choice holds the job, or if the bounds prove every choice worse than `than`; [`Missed::UNKNOWN`] if the
/// problem is too large. `order` has every layer from the leaves to below the holder.
pub(super) fn best_below(
    problem: &Problem<'_>,
    holder: DomainId,
    order: &[Layer],
    takes: impl CapacityBounds,
    than: Option<&Rank>,
) -> Result<(Rank, Vec<(DomainId, u32)>), Missed> {
    // A choice that keeps the limits by chance is found faster than one under limits.
    for is_limited in [false, true] {
        let layered = Layered::new(problem, holder, order.to_vec(), &takes, is_limited)?;
        let (instance, found) = layered.found(holder, than)?;
        let shares = instance.share(holder, &found.leaves);
        let rank = ranked(problem, holder, shares.iter().copied());
        if !is_over(problem, &rank) {
            return Ok((rank, shares));
        }
    }
    Err(Missed::NONE)
}

/// The nodes of the best choice below a holder in fabric order, for tasks that fill them. [`Missed::NONE`] if
/// no choice holds the job, or if the bounds prove every choice worse than `than`; [`Missed::UNKNOWN`] if the
/// problem is too large. `order` has every layer from `node` to below the holder.
pub(super) fn best_nodes_below(
    problem: &Problem<'_>,
    holder: DomainId,
    order: &[Layer],
    takes: impl CapacityBounds,
    than: Option<&Rank>,
) -> Result<Vec<Pos>, Missed> {
    if problem.view.slots.nodes_of(holder) > MOST_NODES {
        return Err(Missed::UNKNOWN);
    }
    let layered = Layered::new(problem, holder, order.to_vec(), &takes, false)?;
    let (instance, found) = layered.found(holder, than)?;
    Ok(found.leaves.iter().filter_map(|&(at, _)| instance.pieces[at].node).collect())
}

/// The state of a search below one holder.
struct Layered<'p> {
    instance: Instance<'p>,
    scope: Scope,
    /// For each settled layer, the fewest domains that may hold the job besides those in every choice; for
    /// each other layer with a limit, the limit. `multipliers` has the Lagrangian bounds that prove them.
    counts: Vec<u32>,
    multipliers: Vec<Multipliers>,
}

impl<'p> Layered<'p> {
    /// Computes the fewest domains of each layer below a holder that may hold the job. `order` has every
    /// layer from the leaves to below the holder, and `node` where nodes are distinguished. With `is_limited`
    /// the limits on spans are enforced; otherwise only the necessary number of domains is checked.
    fn new(
        problem: &'p Problem<'p>,
        holder: DomainId,
        order: Vec<Layer>,
        takes: &impl CapacityBounds,
        is_limited: bool,
    ) -> Result<Self, Missed> {
        if order.len() > MOST {
            return Err(Missed::UNKNOWN);
        }
        let instance = Instance::new(problem, holder, order, takes);
        let mut most = vec![None; instance.order.len()];
        for (layer, most) in most.iter_mut().enumerate() {
            let caps = problem.span_caps.iter().filter(|(capped, _)| *capped == instance.order[layer]);
            let Some(cap) = caps.map(|(_, cap)| *cap).min() else { continue };
            // If the largest domains of a limited layer do not hold the job within the limit, no choice does.
            let (fewest, _) = instance.fewest(layer).ok_or(Missed::NONE)?;
            let left = cap.checked_sub(instance.sure(layer)).ok_or(Missed::NONE)?;
            if fewest > left {
                return Err(Missed::NONE);
            }
            *most = Some(left).filter(|_| is_limited);
        }
        let scope = Scope { known: 0, most };
        let mut layered = Self { instance, scope, counts: Vec::new(), multipliers: Vec::new() };
        layered.forget();
        while layered.is_short() && layered.tighten().is_some() {}
        Ok(layered)
    }

    /// True if some layer is not settled.
    fn is_short(&self) -> bool {
        self.scope.known < self.instance.order.len()
    }

    /// Discards all results, so that no layer is settled.
    fn forget(&mut self) {
        self.scope.known = 0;
        self.counts = self.scope.most.iter().map(|most| most.unwrap_or(0)).collect();
        self.multipliers.clear();
    }

    /// Settles the next layer in order; `None` if the domains settled before are too few.
    fn tighten(&mut self) -> Option<()> {
        let none = || vec![0; self.instance.order.len()];
        let before = self.multipliers.last().map_or_else(none, |multipliers| multipliers.multipliers.clone());
        let scope = Scope { known: self.scope.known + 1, ..self.scope.clone() };
        let mut counts = self.counts.clone();
        let multipliers =
            LagrangianBounds::new(&self.instance, &scope, &self.multipliers).fewest(&mut counts, before)?;
        self.multipliers.push(multipliers);
        (self.scope, self.counts) = (scope, counts);
        Some(())
    }

    /// A lower bound on the number of domains at each of the first layers.
    fn counts(&self) -> Vec<u32> {
        let mut counts = self.counts[..self.scope.known].to_vec();
        if let Some(last) = counts.last_mut().filter(|_| self.is_short()) {
            // The settled numbers do not hold the job, so one more domain is needed.
            *last += 1;
        }
        counts.iter_mut().enumerate().for_each(|(layer, count)| *count += self.instance.sure(layer));
        counts
    }

    /// The best choice in a holder, with the instance that it refers to. [`Missed::NONE`] if no choice holds
    /// the job, or if the bounds prove every choice worse than `than`; [`Missed::UNKNOWN`] if the problem is
    /// too large.
    fn found(mut self, holder: DomainId, than: Option<&Rank>) -> Result<(Instance<'p>, BestLabel), Missed> {
        let Instance { problem, order, .. } = &self.instance;
        if than.is_some_and(|than| *than < bound(problem, holder, order, &self.counts())) {
            return Err(Missed::NONE);
        }
        if !self.is_short()
            && let Some(found) = self.search()?
        {
            return Ok((self.instance, found));
        }
        // Some layer needs more domains than its bound. Layer by layer, the number is raised until the layer
        // works, and the layers after it are settled anew.
        self.forget();
        loop {
            self.tighten().ok_or(Missed::NONE)?;
            let mut more = 1;
            let found = loop {
                if let Some(found) = self.search()? {
                    break found;
                }
                self.allow(more).ok_or(Missed::NONE)?;
                more *= 2;
            };
            if !self.is_short() {
                return Ok((self.instance, found));
            }
            self.settle(found.last);
        }
    }

    fn search(&self) -> Result<Option<BestLabel>, Missed> {
        let search = LabelSearch::new(&self.instance, &self.scope, &self.multipliers, &self.counts);
        search.ok_or(Missed::UNKNOWN)?.best()
    }

    /// Raises the number of domains at the last settled layer by `more`; `None` if there are no more, or the
    /// limit is reached.
    fn allow(&mut self, more: u32) -> Option<()> {
        let multipliers = self.multipliers.pop()?;
        let layer = self.scope.known - 1;
        let all = u32::try_from(self.instance.pieces.len()).ok()?;
        let most = self.scope.most[layer].map_or(all, |most| most.min(all));
        if self.counts[layer] >= most {
            return None;
        }
        self.counts[layer] = (self.counts[layer] + more).min(most);
        let mut bounds = LagrangianBounds::new(&self.instance, &self.scope, &self.multipliers);
        self.multipliers.push(bounds.settle(&mut self.counts, multipliers.multipliers)?);
        Some(())
    }

    /// Reduces the number of domains at the last settled layer to `count`, which is known to be enough.
    fn settle(&mut self, count: u32) {
        let layer = self.scope.known - 1;
        if let Some(multipliers) = self.multipliers.last_mut() {
            multipliers.slack -= multipliers.multipliers[layer] * i64::from(self.counts[layer] - count);
            self.counts[layer] = count;
        }
    }
}
