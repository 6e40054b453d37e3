//! The leaves that a job of whole nodes is spread over best, in any number of layers, whatever the size.
//!
//! How few domains of each layer hold the job is told layer by layer, in the order in which they count: no fewer than
//! tolls allow ([`tolls`]), and mostly just as many. What a choice may take less than its domains could is then so little
//! that few ways to use each domain are left ([`ways`]).

mod ground;
mod scale;
mod table;
mod tolls;
mod ways;

use crate::model::fabric::{DomainId, Layer};
use crate::sched::place::problem::Problem;
use crate::sched::place::short::NoChoice;

use ground::Ground;
use tolls::{Survey, Tolls};
use ways::{Found, Search};

/// Layers that are told apart.
const MOST: usize = 8;

/// What there is to find below a domain.
pub(super) struct Layered {
    ground: Ground,
    /// How few domains of each layer may hold the job, besides those that are sure to be used, and the tolls that say so.
    counts: Vec<u32>,
    tolls: Vec<Tolls>,
}

impl Layered {
    /// For a domain over leaves; `takes` says what a domain takes at least, because it has to be used, and at most; `order` has every layer from the leaves to below it.
    pub(super) fn new(
        problem: &Problem<'_>,
        holder: DomainId,
        order: Vec<Layer>,
        takes: impl Fn(DomainId) -> (u32, u32),
    ) -> Result<Self, NoChoice> {
        if order.len() > MOST {
            return Err(NoChoice::Unknown);
        }
        let ground = Ground::new(problem, holder, order, takes);
        let mut layered = Self { ground, counts: Vec::new(), tolls: Vec::new() };
        if layered.exceeds(problem) {
            return Err(NoChoice::Nowhere);
        }
        while layered.is_short() && layered.survey().is_some() {}
        Ok(layered)
    }

    /// Whether the largest domains of a layer of which only so many may be used do not hold the job.
    fn exceeds(&self, problem: &Problem<'_>) -> bool {
        problem.span_caps.iter().any(|&(capped, cap)| {
            let layer = self.ground.order.iter().position(|layer| *layer == capped);
            layer.is_some_and(|layer| {
                self.ground.fewest(layer).is_none_or(|(fewest, _)| fewest + self.ground.sure(layer) > cap)
            })
        })
    }

    /// Whether nothing is known of some layers.
    fn is_short(&self) -> bool {
        self.counts.len() < self.ground.order.len()
    }

    /// Finds out how few domains of the next layer in order may hold the job; None where those before are too few.
    fn survey(&mut self) -> Option<()> {
        let before = self.tolls.last().map_or_else(Vec::new, |tolls| tolls.tolls.clone());
        let mut counts = self.counts.clone();
        let mut survey = Survey::new(&self.ground, counts.len() + 1, &self.tolls);
        self.tolls.push(survey.fewest(&mut counts, before)?);
        self.counts = counts;
        Some(())
    }

    /// No fewer domains of the first layers in order hold the job.
    pub(super) fn counts(&self) -> Vec<u32> {
        let mut counts = self.counts.clone();
        if let Some(last) = counts.last_mut().filter(|_| self.is_short()) {
            // These do not hold it, or there would be more of them.
            *last += 1;
        }
        counts.iter_mut().enumerate().for_each(|(layer, count)| *count += self.ground.sure(layer));
        counts
    }

    /// The leaves of the best choice in fabric order, and how much of the job each takes.
    pub(super) fn best(mut self) -> Result<Vec<(DomainId, u32)>, NoChoice> {
        if !self.is_short()
            && let Some(found) = self.search()?
        {
            return Ok(self.ground.share(&found.leaves));
        }
        // Some layer needs more: of each, more are tried until that will do, and those after it told anew.
        self.counts.clear();
        self.tolls.clear();
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
                return Ok(self.ground.share(&found.leaves));
            }
            self.settle(found.last);
        }
    }

    fn search(&self) -> Result<Option<Found>, NoChoice> {
        let mut search = Search::new(&self.ground, &self.tolls, &self.counts).ok_or(NoChoice::Unknown)?;
        search.best()
    }

    /// Allows more domains of the last layer; None where there are not as many.
    fn allow(&mut self, more: u32) -> Option<()> {
        let tolls = self.tolls.pop()?;
        let all = u32::try_from(self.ground.parts.len()).ok()?;
        let last = self.counts.last_mut().filter(|last| **last < all)?;
        *last = (*last + more).min(all);
        let mut survey = Survey::new(&self.ground, self.counts.len(), &self.tolls);
        self.tolls.push(survey.settle(&mut self.counts, tolls.tolls)?);
        Some(())
    }

    /// So many domains of the last layer will do.
    fn settle(&mut self, count: u32) {
        if let (Some(last), Some(tolls)) = (self.counts.last_mut(), self.tolls.last_mut()) {
            let toll = tolls.tolls.last().copied().unwrap_or(0);
            tolls.slack -= toll * i64::from(*last - count);
            *last = count;
        }
    }
}
