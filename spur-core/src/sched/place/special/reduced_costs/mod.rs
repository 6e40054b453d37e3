//! The leaves that a job of whole nodes is spread over best, in any number of layers, whatever the size; and the nodes of
//! tasks, which are one layer more.
//!
//! How few domains of each layer hold the job is told layer by layer, in the order in which they count: no fewer than
//! multipliers allow ([`multipliers`]), and mostly just as many. What a choice may take less than its domains could is then
//! so little that few labels of each domain are left ([`labels`]).

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

/// Layers that are told apart.
const MOST: usize = 8;
/// Open nodes of a domain that are told apart.
const MOST_NODES: u32 = 1 << 16;

/// What there is below a domain that is to hold a job.
pub(super) trait CapacityBounds {
    /// What a domain takes at least, because it has to be used, and at most.
    fn of(&self, id: DomainId) -> (u32, u32);

    /// Shows the nodes of a leaf that take something, in fabric order, and what they take, where they are told apart.
    fn each_of(&self, _leaf: DomainId, _see: impl FnMut(Pos, u32)) {}
}

impl<F: Fn(DomainId) -> (u32, u32)> CapacityBounds for F {
    fn of(&self, id: DomainId) -> (u32, u32) {
        self(id)
    }
}

/// The best choice below a domain: how good it is, its leaves, and how much of the job each takes; none that is worse than one
/// that is known. `order` has every layer from the leaves to below the domain.
pub(super) fn best_below(
    problem: &Problem<'_>,
    holder: DomainId,
    order: &[Layer],
    takes: impl CapacityBounds,
    than: Option<&Rank>,
) -> Result<(Rank, Vec<(DomainId, u32)>), Missed> {
    // What keeps the limits without looking for it is found sooner.
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

/// The nodes of the best choice below a domain in fabric order, for tasks that fill them; none that is worse than one that is
/// known. `order` has every layer from `node` to below the domain.
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

/// What there is to find below a domain.
struct Layered<'p> {
    instance: Instance<'p>,
    scope: Scope,
    /// How few domains of each of the first layers may hold the job, besides those that are sure to be used; of others with a
    /// limit, how many may; and the multipliers that say so.
    counts: Vec<u32>,
    multipliers: Vec<Multipliers>,
}

impl<'p> Layered<'p> {
    /// Finds out how few domains of each layer below a domain over leaves may hold the job; `order` has every layer from the leaves to below it, and `node` where nodes are told apart.
    /// With `is_limited` no more domains of a layer are used than may be; without that it is only known that no fewer would do.
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
            // The largest domains of a layer of which only so many may be used may not hold the job.
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

    /// Whether nothing is known of some layers.
    fn is_short(&self) -> bool {
        self.scope.known < self.instance.order.len()
    }

    /// Begins anew.
    fn forget(&mut self) {
        self.scope.known = 0;
        self.counts = self.scope.most.iter().map(|most| most.unwrap_or(0)).collect();
        self.multipliers.clear();
    }

    /// Finds out how few domains of the next layer in order may hold the job; None where those before are too few.
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

    /// No fewer domains of the first layers in order hold the job.
    fn counts(&self) -> Vec<u32> {
        let mut counts = self.counts[..self.scope.known].to_vec();
        if let Some(last) = counts.last_mut().filter(|_| self.is_short()) {
            // These do not hold it, or there would be more of them.
            *last += 1;
        }
        counts.iter_mut().enumerate().for_each(|(layer, count)| *count += self.instance.sure(layer));
        counts
    }

    /// The best choice in a holder, and what it was made of; none where every choice is worse than a known one, by no more than
    /// how few domains of the first layers hold the job.
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
        // Some layer needs more: of each, more are tried until that will do, and those after it told anew.
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

    /// Allows more domains of the last layer that is known; None where there are not as many, or no more may be used.
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

    /// So many domains of the last layer that is known will do.
    fn settle(&mut self, count: u32) {
        let layer = self.scope.known - 1;
        if let Some(multipliers) = self.multipliers.last_mut() {
            multipliers.slack -= multipliers.multipliers[layer] * i64::from(self.counts[layer] - count);
            self.counts[layer] = count;
        }
    }
}
