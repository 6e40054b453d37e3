//! The comparison of a job with its limits, for any source of the sums that limits count.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::counters::{Counters, Tally};
use super::super::holder::Holder;
use super::super::tres::Held;
use super::super::usage::Usage;
use super::{Asked, Rule, Stop};
use crate::id::JobId;
use crate::model::accounts::LimitKind;
use crate::model::accounts::usage::{Amount, Rate};
use crate::text::time::Time;
use crate::text::tres::TresKind;

/// The sums that limits are compared with, each for the holder and the resource of a limit.
pub trait Sums {
    /// Number of running jobs.
    fn jobs(&self, rule: &Rule) -> u64;
    /// Number of waiting and running jobs.
    fn submitted(&self, rule: &Rule) -> u64;
    /// The amount of the resource that running jobs hold.
    fn held(&self, rule: &Rule) -> Rate;
    /// The amount of the resource times seconds that running jobs may still use.
    fn promised(&self, rule: &Rule) -> Amount;
    /// The amount of the resource times seconds that was used, decayed; without a resource the seconds of
    /// runs.
    fn past(&self, rule: &Rule) -> Amount;
}

/// No jobs and no usage.
struct Nobody;

impl Sums for Nobody {
    fn jobs(&self, _: &Rule) -> u64 {
        0
    }

    fn submitted(&self, _: &Rule) -> u64 {
        0
    }

    fn held(&self, _: &Rule) -> Rate {
        Rate::default()
    }

    fn promised(&self, _: &Rule) -> Amount {
        Amount::ZERO
    }

    fn past(&self, _: &Rule) -> Amount {
        Amount::ZERO
    }
}

/// Starts that have not been applied yet, as the counters will count them.
#[derive(Clone, Debug, Default)]
pub struct Started(BTreeMap<Holder, StartedTally>);

#[derive(Clone, Debug, Default)]
struct StartedTally {
    jobs: u64,
    held: Held,
    /// Resources of each job times the seconds for which it may hold them.
    promised: BTreeMap<TresKind, Amount>,
}

impl Started {
    /// Counts a job that starts.
    pub fn add(&mut self, asked: &Asked<'_>) {
        let seconds = asked.seconds();
        let all = &asked.amounts.all;
        for holder in &*asked.rules.holders {
            let tally = self.0.entry(holder.clone()).or_default();
            tally.jobs += 1;
            tally.held.add(all);
            for kind in all.tres.0.keys().chain([&TresKind::Billing]) {
                let promised = tally.promised.entry(kind.clone()).or_default();
                *promised = promised.plus(Amount::of(all.rate(kind), seconds));
            }
        }
    }
}

/// The sums that counters and usage give, with starts that have not been applied yet.
#[derive(Clone, Copy, Debug)]
pub struct Running<'a> {
    /// The jobs and resources that limits count.
    pub counters: &'a Counters,
    /// The past usage that budgets count.
    pub usage: &'a Usage,
    /// Starts that have not been applied yet.
    pub started: &'a Started,
    /// Jobs that do not count: the judged jobs, for which nodes may be kept, and jobs that are about to lose
    /// their nominations.
    pub except: &'a [JobId],
    /// The present time.
    pub now: Time,
}

impl Running<'_> {
    /// The running jobs of a tally that do not count.
    fn excepted<'t>(&'t self, tally: &'t Tally) -> impl Iterator<Item = &'t JobId> {
        self.except.iter().filter(|job| tally.running.contains(job))
    }
}

impl Sums for Running<'_> {
    fn jobs(&self, rule: &Rule) -> u64 {
        let tally = self.counters.tally(&rule.holder);
        let running = tally.map_or(0, |tally| tally.running.len() - self.excepted(tally).count());
        running as u64 + self.started.0.get(&rule.holder).map_or(0, |started| started.jobs)
    }

    fn submitted(&self, rule: &Rule) -> u64 {
        let counted = self.except.iter().filter_map(|job| self.counters.counted(*job));
        let counted = counted.filter(|counted| counted.holders.contains(&rule.holder));
        let except: u64 = counted.map(|counted| counted.submitted).sum();
        let all = self.counters.tally(&rule.holder).map_or(0, |tally| tally.submitted);
        all.saturating_sub(except) + self.started.0.get(&rule.holder).map_or(0, |started| started.jobs)
    }

    fn held(&self, rule: &Rule) -> Rate {
        let Some(tres) = &rule.tres else { return Rate::default() };
        let running = self.counters.tally(&rule.holder).map_or(0, |tally| {
            let holdings =
                self.excepted(tally).filter_map(|job| self.counters.counted(*job)?.holding.as_ref());
            let except: u128 = holdings.map(|holding| holding.held.rate(tres).0).sum();
            tally.held.rate(tres).0.saturating_sub(except)
        });
        let more = self.started.0.get(&rule.holder).map_or(0, |started| started.held.rate(tres).0);
        Rate(running.saturating_add(more))
    }

    fn promised(&self, rule: &Rule) -> Amount {
        let Some(tres) = &rule.tres else { return Amount::ZERO };
        let started = self.started.0.get(&rule.holder).and_then(|started| started.promised.get(tres));
        let running = self.counters.promised(&rule.holder, tres, self.now, self.except);
        running.plus(started.copied().unwrap_or_default())
    }

    fn past(&self, rule: &Rule) -> Amount {
        match &rule.tres {
            Some(tres) => self.usage.past(&rule.holder, tres),
            None => self.usage.past_wall(&rule.holder),
        }
    }
}

/// Compares jobs with their limits.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a, S> {
    /// The sums that limits are compared with.
    pub sums: &'a S,
    /// True if a job has to be able to run to its time limit within budgets.
    pub safe: bool,
}

impl<S: Sums> Judge<'_, S> {
    /// The first limit that keeps a job from starting.
    #[must_use]
    pub fn start(&self, asked: &Asked<'_>) -> Option<Stop> {
        asked.rules.start.iter().find_map(|rule| self.over(rule, asked, 1))
    }

    /// The first limit that refuses the submission of `jobs` more jobs. With strict rules, a limit that one
    /// job exceeds by itself refuses too.
    #[must_use]
    pub fn submit(&self, asked: &Asked<'_>, jobs: u64) -> Option<Stop> {
        let nobody = Judge { sums: &Nobody, safe: self.safe };
        asked.rules.submit.iter().find_map(|rule| match rule.kind.counts_submitted() {
            true => self.over(rule, asked, jobs),
            false if asked.rules.strict => nobody.over(rule, asked, 1),
            false => None,
        })
    }

    /// The first limit that a job exceeds by itself, whatever runs.
    #[must_use]
    pub fn alone(&self, asked: &Asked<'_>) -> Option<Stop> {
        Judge { sums: &Nobody, safe: self.safe }.start(asked)
    }

    /// The stop if a limit leaves too little for `jobs` jobs like the one that is asked about; `None` if it
    /// leaves enough.
    #[must_use]
    pub fn over(&self, rule: &Arc<Rule>, asked: &Asked<'_>, jobs: u64) -> Option<Stop> {
        if asked.spec.exempt().any(|exempt| exempt.lifts(rule.kind, rule.tres.as_ref())) {
            return None;
        }
        let (used, wants) = match (&rule.tres, rule.kind) {
            (None, LimitKind::MaxWall) => (0, asked.limit.seconds().map_or(u64::MAX, |all| all.div_ceil(60))),
            (None, LimitKind::GrpWall) => {
                let used = self.sums.past(rule).units() / 60;
                return (used >= rule.most).then(|| Stop::of(rule, used, 0));
            }
            (None, kind) if kind.counts_submitted() => (self.sums.submitted(rule), jobs),
            (None, _) => (self.sums.jobs(rule), jobs),
            (Some(tres), kind) => return self.over_tres(rule, kind, tres, asked),
        };
        (used.saturating_add(wants) > rule.most).then(|| Stop::of(rule, used, wants))
    }

    /// The stop if a limit of resources leaves too little for a job.
    fn over_tres(
        &self,
        rule: &Arc<Rule>,
        kind: LimitKind,
        tres: &TresKind,
        asked: &Asked<'_>,
    ) -> Option<Stop> {
        let (wants, most) = (asked.amounts.all.rate(tres), Rate::whole(rule.most));
        let promises = Amount::of(wants, asked.seconds());
        let most_seconds = Amount::of(most, 60);
        let wants_some = wants > Rate::default();
        let count = |rate: Rate| rate.rounded_up().count();
        let minutes = |amount: Amount| Amount(amount.0.div_ceil(60)).units_up();
        let (used, asks, is_over) = match kind {
            LimitKind::MinTres => {
                // The final amount of a job that may get more is known only once its nodes are chosen.
                let may_be_more = asked.at_least || (asked.bills_at_least && *tres == TresKind::Billing);
                (0, wants.count(), wants < most && !may_be_more)
            }
            LimitKind::MaxTres => (0, count(wants), wants > most),
            LimitKind::MaxTresPerNode => {
                let wants = asked.amounts.on_node.rate(tres);
                (0, count(wants), wants > most)
            }
            LimitKind::MaxTresMins => (0, minutes(promises), promises > most_seconds),
            LimitKind::GrpTresMins => {
                let past = self.sums.past(rule);
                let (promised, asks) = match self.safe {
                    true => (self.sums.promised(rule), promises),
                    false => (Amount::ZERO, Amount::ZERO),
                };
                let used = past.plus(promised);
                let is_over = past >= most_seconds || used.plus(asks) > most_seconds;
                (minutes(used), minutes(promises), wants_some && is_over)
            }
            LimitKind::GrpTresRunMins | LimitKind::MaxTresRunMins | LimitKind::MaxTresRunMinsPerAccount => {
                let promised = self.sums.promised(rule);
                let is_over = promised.plus(promises) > most_seconds;
                (minutes(promised), minutes(promises), wants_some && is_over)
            }
            _ => {
                let used = self.sums.held(rule);
                let is_over = used.0.saturating_add(wants.0) > most.0;
                (count(used), count(wants), wants_some && is_over)
            }
        };
        is_over.then(|| Stop::of(rule, used, asks))
    }
}
