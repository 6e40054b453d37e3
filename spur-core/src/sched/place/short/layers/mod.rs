//! The leaves that a job of whole nodes is spread over best, in any number of layers, whatever the size; and the nodes of
//! tasks, which are one layer more.
//!
//! How few domains of each layer hold the job is told layer by layer, in the order in which they count: no fewer than
//! tolls allow ([`tolls`]), and mostly just as many. What a choice may take less than its domains could is then so little
//! that few ways to use each domain are left ([`ways`]).

mod ground;
mod scale;
mod table;
mod tolls;
mod ways;

use crate::model::fabric::{DomainId, Layer, Pos};
use crate::sched::place::problem::Problem;
use crate::sched::place::short::choice::NoChoice;
use crate::sched::place::short::standing::{Standing, head};

use ground::Ground;
use tolls::{Scope, Survey, Tolls};
use ways::{Found, Search};

/// Layers that are told apart.
const MOST: usize = 8;
/// Open nodes of a domain that are told apart.
const MOST_NODES: u32 = 1 << 16;

/// What there is below a domain that is to hold a job.
pub(super) trait Takes {
    /// What a domain takes at least, because it has to be used, and at most.
    fn of(&self, id: DomainId) -> (u32, u32);

    /// Shows the nodes of a leaf that take something, in fabric order, and what they take, where they are told apart.
    fn each_of(&self, _leaf: DomainId, _see: impl FnMut(Pos, u32)) {}
}

impl<F: Fn(DomainId) -> (u32, u32)> Takes for F {
    fn of(&self, id: DomainId) -> (u32, u32) {
        self(id)
    }
}

/// The best choice below a domain: what it comes to, its leaves, and how much of the job each takes; None where it is worse than
/// one that is known. `order` has every layer from the leaves to below the domain.
pub(super) fn best_below(
    problem: &Problem<'_>,
    holder: DomainId,
    order: &[Layer],
    takes: impl Takes,
    than: Option<&Standing>,
) -> Result<Option<(Standing, Shares)>, NoChoice> {
    // What keeps the limits without looking for it is found sooner.
    for is_limited in [false, true] {
        let layered = Layered::new(problem, holder, order.to_vec(), &takes, is_limited)?;
        // What comes first is no less than that.
        let least = head(problem, holder, order, &layered.counts());
        if than.is_some_and(|standing| standing.is_before(&least)) {
            return Ok(None);
        }
        let shares = layered.best()?;
        let standing = Standing::new(problem, holder, order, &shares);
        if !standing.is_over(problem, order) {
            return Ok(Some((standing, shares)));
        }
    }
    Err(NoChoice::Nowhere)
}

/// The nodes of the best choice below a domain in fabric order, for tasks that fill them; None where it is worse than one that
/// is known: `is_worse` says so of choices that use no fewer domains of each of the first layers in order. `order` has every
/// layer from `node` to below the domain.
pub(super) fn best_nodes_below(
    problem: &Problem<'_>,
    holder: DomainId,
    order: &[Layer],
    takes: impl Takes,
    is_worse: impl Fn(&[u32]) -> bool,
) -> Result<Option<Vec<Pos>>, NoChoice> {
    if problem.view.slots.nodes_of(holder) > MOST_NODES {
        return Err(NoChoice::Unknown);
    }
    let layered = Layered::new(problem, holder, order.to_vec(), &takes, false)?;
    if is_worse(&layered.counts()) {
        return Ok(None);
    }
    let (ground, found) = layered.found()?;
    Ok(Some(found.leaves.iter().filter_map(|&(at, _)| ground.parts[at].node).collect()))
}

/// Leaves, and how much of a job each takes.
type Shares = Vec<(DomainId, u32)>;

/// What there is to find below a domain.
struct Layered<'p> {
    ground: Ground<'p>,
    scope: Scope,
    /// How few domains of each of the first layers may hold the job, besides those that are sure to be used; of others with a
    /// limit, how many may; and the tolls that say so.
    counts: Vec<u32>,
    tolls: Vec<Tolls>,
}

impl<'p> Layered<'p> {
    /// For a domain over leaves; `order` has every layer from the leaves to below it, and `node` where nodes are told apart.
    /// With `is_limited` no more domains of a layer are used than may be; without that it is only known that no fewer would do.
    fn new(
        problem: &'p Problem<'p>,
        holder: DomainId,
        order: Vec<Layer>,
        takes: &impl Takes,
        is_limited: bool,
    ) -> Result<Self, NoChoice> {
        if order.len() > MOST {
            return Err(NoChoice::Unknown);
        }
        let ground = Ground::new(problem, holder, order, takes);
        let mut most = vec![None; ground.order.len()];
        for (layer, most) in most.iter_mut().enumerate() {
            let caps = problem.span_caps.iter().filter(|(capped, _)| *capped == ground.order[layer]);
            let Some(cap) = caps.map(|(_, cap)| *cap).min() else { continue };
            // The largest domains of a layer of which only so many may be used may not hold the job.
            let (fewest, _) = ground.fewest(layer).ok_or(NoChoice::Nowhere)?;
            let left = cap.checked_sub(ground.sure(layer)).ok_or(NoChoice::Nowhere)?;
            if fewest > left {
                return Err(NoChoice::Nowhere);
            }
            *most = Some(left).filter(|_| is_limited);
        }
        let scope = Scope { known: 0, most };
        let mut layered = Self { ground, scope, counts: Vec::new(), tolls: Vec::new() };
        layered.forget();
        while layered.is_short() && layered.survey().is_some() {}
        Ok(layered)
    }

    /// Whether nothing is known of some layers.
    fn is_short(&self) -> bool {
        self.scope.known < self.ground.order.len()
    }

    /// Begins anew.
    fn forget(&mut self) {
        self.scope.known = 0;
        self.counts = self.scope.most.iter().map(|most| most.unwrap_or(0)).collect();
        self.tolls.clear();
    }

    /// Finds out how few domains of the next layer in order may hold the job; None where those before are too few.
    fn survey(&mut self) -> Option<()> {
        let none = || vec![0; self.ground.order.len()];
        let before = self.tolls.last().map_or_else(none, |tolls| tolls.tolls.clone());
        let scope = Scope { known: self.scope.known + 1, ..self.scope.clone() };
        let mut counts = self.counts.clone();
        let tolls = Survey::new(&self.ground, &scope, &self.tolls).fewest(&mut counts, before)?;
        self.tolls.push(tolls);
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
        counts.iter_mut().enumerate().for_each(|(layer, count)| *count += self.ground.sure(layer));
        counts
    }

    /// The leaves of the best choice in fabric order, and how much of the job each takes.
    fn best(self) -> Result<Shares, NoChoice> {
        let (ground, found) = self.found()?;
        Ok(ground.share(&found.leaves))
    }

    /// The best choice, and what it was made of.
    fn found(mut self) -> Result<(Ground<'p>, Found), NoChoice> {
        if !self.is_short()
            && let Some(found) = self.search()?
        {
            return Ok((self.ground, found));
        }
        // Some layer needs more: of each, more are tried until that will do, and those after it told anew.
        self.forget();
        loop {
            self.survey().ok_or(NoChoice::Nowhere)?;
            let mut more = 1;
            let found = loop {
                if let Some(found) = self.search()? {
                    break found;
                }
                self.allow(more).ok_or(NoChoice::Nowhere)?;
                more *= 2;
            };
            if !self.is_short() {
                return Ok((self.ground, found));
            }
            self.settle(found.last);
        }
    }

    fn search(&self) -> Result<Option<Found>, NoChoice> {
        let search = Search::new(&self.ground, &self.scope, &self.tolls, &self.counts);
        search.ok_or(NoChoice::Unknown)?.best()
    }

    /// Allows more domains of the last layer that is known; None where there are not as many, or no more may be used.
    fn allow(&mut self, more: u32) -> Option<()> {
        let tolls = self.tolls.pop()?;
        let layer = self.scope.known - 1;
        let all = u32::try_from(self.ground.parts.len()).ok()?;
        let most = self.scope.most[layer].map_or(all, |most| most.min(all));
        if self.counts[layer] >= most {
            return None;
        }
        self.counts[layer] = (self.counts[layer] + more).min(most);
        let mut survey = Survey::new(&self.ground, &self.scope, &self.tolls);
        self.tolls.push(survey.settle(&mut self.counts, tolls.tolls)?);
        Some(())
    }

    /// So many domains of the last layer that is known will do.
    fn settle(&mut self, count: u32) {
        let layer = self.scope.known - 1;
        if let Some(tolls) = self.tolls.last_mut() {
            tolls.slack -= tolls.tolls[layer] * i64::from(self.counts[layer] - count);
            self.counts[layer] = count;
        }
    }
}
