//! Whether the limits of associations and QOS let jobs be submitted and started.
//!
//! A start is judged by the counters that `apply` keeps ([`counters`](super::counters)): what runs at once only becomes
//! less until the next start.

mod reasons;
mod rules;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

pub use reasons::reason;
pub use rules::{Rule, Rules, Setter};

use super::Cluster;
use super::amounts::Amounts;
use super::counters::{Counters, Holder};
use super::usage::{Payer, Usage};
use crate::id::JobId;
use crate::model::accounts::LimitKind;
use crate::model::accounts::usage::Amount;
use crate::model::config::AccountingEnforce;
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::text::memory::MemoryMb;
use crate::text::time::{Time, TimeLimit};
use crate::text::tres::{Tres, TresKind};

/// A job that is judged: what it would hold, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The request.
    pub spec: &'a JobSpec,
    /// The limits that apply to the job.
    pub rules: &'a Rules,
    /// The resources that the job would hold.
    pub amounts: &'a Amounts,
    /// The time limit that the job would start with.
    pub limit: TimeLimit,
    /// Whether the job may turn out to hold more than `amounts`.
    pub at_least: bool,
}

/// A job that is about to start.
#[derive(Clone, Debug)]
pub struct Starter {
    /// The job.
    pub job: JobId,
    /// The request.
    pub spec: Arc<JobSpec>,
    /// The partition.
    pub partition: Arc<str>,
    /// The resources that the job would hold.
    pub amounts: Amounts,
    /// The time limit that the job would start with.
    pub limit: TimeLimit,
}

/// Starts that have not been applied yet, as the counters will count them.
#[derive(Clone, Debug, Default)]
pub struct Started(BTreeMap<Holder, StartedTally>);

#[derive(Clone, Debug, Default)]
struct StartedTally {
    jobs: u64,
    tres: Tres,
    /// Resource-seconds.
    promised: BTreeMap<TresKind, u128>,
}

impl Started {
    /// Counts a job that starts.
    pub fn add(&mut self, asked: &Asked<'_>) {
        let seconds = u128::from(asked.limit.seconds().unwrap_or(u64::MAX));
        for holder in &asked.rules.holders {
            let tally = self.0.entry(holder.clone()).or_default();
            tally.jobs += 1;
            tally.tres.add(&asked.amounts.all);
            for (kind, amount) in &asked.amounts.all.0 {
                *tally.promised.entry(kind.clone()).or_default() += u128::from(*amount) * seconds;
            }
        }
    }
}

/// The limit that stops a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The limit.
    pub rule: Rule,
    /// The amount that is used of the limit; 0 of a limit of one job.
    pub used: u64,
    /// The amount that the job asks for.
    pub asked: u64,
}

impl Stop {
    /// Slurm's word for the limit.
    #[must_use]
    pub fn reason(&self) -> Reason {
        reason(self.rule.kind, self.rule.tres.as_ref(), matches!(self.rule.setter, Setter::Qos(_)))
    }
}

impl fmt::Display for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Rule { kind, tres, most, setter, .. } = &self.rule;
        let amount = |amount: u64| match (tres, kind.is_of_minutes()) {
            (Some(TresKind::Mem), false) => MemoryMb(amount).to_string(),
            _ => amount.to_string(),
        };
        let of = tres.as_ref().map_or_else(String::new, |tres| format!("{tres}="));
        write!(f, "{}={of}{} of {setter}: ", kind.short_name(), amount(*most))?;
        let (used, asked) = (amount(self.used), amount(self.asked));
        let unit = if kind.is_of_minutes() { " minutes" } else { "" };
        match kind {
            LimitKind::MaxTres | LimitKind::MaxTresPerNode | LimitKind::MaxTresMins | LimitKind::MaxWall => {
                write!(f, "the job asks for {asked}{unit}")
            }
            LimitKind::MinTres => write!(f, "the job asks for {asked} only"),
            LimitKind::GrpTresMins | LimitKind::GrpWall => {
                write!(f, "{used}{unit} are used or promised to running jobs, the job asks for {asked}")
            }
            LimitKind::GrpSubmitJobs
            | LimitKind::MaxSubmitJobs
            | LimitKind::MaxSubmitJobsPerUser
            | LimitKind::MaxSubmitJobsPerAccount => {
                write!(f, "{used} jobs wait or run, {asked} more are submitted")
            }
            _ => write!(f, "running jobs have {used}{unit}, the job asks for {asked}"),
        }
    }
}

/// The state that jobs are judged by.
#[derive(Clone, Copy, Debug)]
pub struct Judge<'a> {
    /// The jobs and resources that limits count.
    pub counters: &'a Counters,
    /// The past usage that budgets count; `None` for nothing.
    pub usage: Option<&'a Usage>,
    /// Starts that have not been applied yet.
    pub started: &'a Started,
    /// Jobs that do not count: those that are judged, for which nodes may be kept.
    pub except: &'a [JobId],
    /// Whether a job has to be able to run to its time limit within budgets.
    pub safe: bool,
    /// The time.
    pub now: Time,
}

impl Judge<'_> {
    /// The first limit that keeps a job from starting.
    #[must_use]
    pub fn start(&self, asked: &Asked<'_>) -> Option<Stop> {
        asked.rules.start.iter().find_map(|rule| self.over(rule, asked, 1))
    }

    /// The first limit of submissions that refuses so many more jobs; where their QOS is strict, also a limit that a job is
    /// over by itself.
    #[must_use]
    pub fn submit(&self, asked: &Asked<'_>, jobs: u64) -> Option<Stop> {
        let nobody =
            Judge { counters: &Counters::default(), usage: None, started: &Started::default(), ..*self };
        asked.rules.submit.iter().find_map(|rule| match rule.kind.counts_submitted() {
            true => self.over(rule, asked, jobs),
            false if asked.rules.strict => nobody.over(rule, asked, 1),
            false => None,
        })
    }

    /// The first limit that a job is over by itself, whatever runs.
    #[must_use]
    pub fn alone(&self, asked: &Asked<'_>) -> Option<Stop> {
        let nobody =
            Judge { counters: &Counters::default(), usage: None, started: &Started::default(), ..*self };
        nobody.start(asked)
    }

    /// Whether a limit leaves too little for a job.
    fn over(&self, rule: &Rule, asked: &Asked<'_>, jobs: u64) -> Option<Stop> {
        if asked.spec.exempt().any(|exempt| exempt.lifts(rule.kind, rule.tres.as_ref())) {
            return None;
        }
        let (used, wants) = match (&rule.tres, rule.kind) {
            (None, LimitKind::MaxWall) => (0, asked.limit.seconds().map_or(u64::MAX, |all| all.div_ceil(60))),
            (None, LimitKind::GrpWall) => return self.past_wall(rule),
            (None, kind) if kind.counts_submitted() => (self.submitted(&rule.holder), jobs),
            (None, _) => (self.jobs(&rule.holder), jobs),
            (Some(tres), kind) => return self.over_tres(rule, kind, tres, asked),
        };
        let stop = Stop { rule: rule.clone(), used, asked: wants };
        (used.saturating_add(wants) > rule.most).then_some(stop)
    }

    /// Whether a limit of resources leaves too little for a job.
    fn over_tres(&self, rule: &Rule, kind: LimitKind, tres: &TresKind, asked: &Asked<'_>) -> Option<Stop> {
        let wants = asked.amounts.all.get(tres);
        let seconds = asked.limit.seconds().unwrap_or(u64::MAX);
        let promises = u128::from(wants) * u128::from(seconds);
        let minutes = |seconds: u128| u64::try_from(seconds.div_ceil(60)).unwrap_or(u64::MAX);
        let most_seconds = u128::from(rule.most) * 60;
        let (used, asks, is_over) = match kind {
            LimitKind::MinTres => {
                // What is to be known of a job that may get more is known once its nodes are.
                let is_under = wants < rule.most && !asked.at_least;
                (0, wants, is_under)
            }
            LimitKind::MaxTres => (0, wants, wants > rule.most),
            LimitKind::MaxTresPerNode => {
                let wants = asked.amounts.on_node.get(tres);
                (0, wants, wants > rule.most)
            }
            LimitKind::MaxTresMins => (0, minutes(promises), promises > most_seconds),
            LimitKind::GrpTresMins => {
                let past = self.past(&rule.holder, |usage, payer| usage.past(payer, tres));
                let promised = if self.safe { self.promised(&rule.holder, tres) } else { 0 };
                let asks = if self.safe { promises } else { 0 };
                let is_over = past >= most_seconds || past + promised + asks > most_seconds;
                (minutes(past + promised), minutes(promises), is_over && wants > 0)
            }
            LimitKind::GrpTresRunMins | LimitKind::MaxTresRunMins | LimitKind::MaxTresRunMinsPerAccount => {
                let promised = self.promised(&rule.holder, tres);
                let is_over = wants > 0 && promised.saturating_add(promises) > most_seconds;
                (minutes(promised), minutes(promises), is_over)
            }
            _ => {
                let used = self.tres(&rule.holder, tres);
                (used, wants, wants > 0 && used.saturating_add(wants) > rule.most)
            }
        };
        is_over.then(|| Stop { rule: rule.clone(), used, asked: asks })
    }

    fn past_wall(&self, rule: &Rule) -> Option<Stop> {
        let used = self.past(&rule.holder, Usage::past_wall) / 60;
        let used = u64::try_from(used).unwrap_or(u64::MAX);
        (used >= rule.most).then(|| Stop { rule: rule.clone(), used, asked: 0 })
    }

    /// The jobs of an entity that run.
    fn jobs(&self, holder: &Holder) -> u64 {
        let tally = self.counters.tally(holder);
        let except = |tally: &&super::counters::Tally| {
            self.except.iter().filter(|job| tally.running.contains(job)).count()
        };
        let running = tally.map_or(0, |tally| tally.running.len() - except(&tally));
        running as u64 + self.started.0.get(holder).map_or(0, |started| started.jobs)
    }

    /// The jobs of an entity that wait or run.
    fn submitted(&self, holder: &Holder) -> u64 {
        let counted = self.except.iter().filter_map(|job| self.counters.counted(*job));
        let counted = counted.filter(|counted| counted.holders.contains(holder));
        let except: u64 = counted.map(|counted| counted.submitted).sum();
        let all = self.counters.tally(holder).map_or(0, |tally| tally.submitted);
        all.saturating_sub(except) + self.started.0.get(holder).map_or(0, |started| started.jobs)
    }

    /// The amount of a resource that running jobs of an entity hold.
    fn tres(&self, holder: &Holder, tres: &TresKind) -> u64 {
        let tally = self.counters.tally(holder);
        let all = tally.map_or(0, |tally| tally.tres.get(tres));
        let except = self.except.iter().filter(|job| tally.is_some_and(|tally| tally.running.contains(job)));
        let except = except.filter_map(|job| self.counters.counted(*job)?.holding.as_ref());
        let except: u64 = except.map(|held| held.tres.get(tres)).sum();
        let more = self.started.0.get(holder).map_or(0, |started| started.tres.get(tres));
        all.saturating_sub(except).saturating_add(more)
    }

    /// The seconds, or resource-seconds, that an entity has used, decayed, rounded down.
    fn past(&self, holder: &Holder, amount: impl Fn(&Usage, &Payer) -> Amount) -> u128 {
        let known = self.usage.zip(holder.payer());
        known.map_or(0, |(usage, payer)| u128::from(amount(usage, &payer).units()))
    }

    /// The resource-seconds that running jobs of an entity may still use.
    fn promised(&self, holder: &Holder, tres: &TresKind) -> u128 {
        let started = self.started.0.get(holder).and_then(|started| started.promised.get(tres));
        self.counters.promised(holder, tres, self.now, self.except) + started.copied().unwrap_or(0)
    }
}

impl Cluster {
    /// The first limit that keeps jobs from starting together. Jobs of `displaced` are about to lose the nodes that are
    /// kept for them.
    #[must_use]
    pub fn stops(&self, now: Time, starters: &[Starter], displaced: &[JobId]) -> Option<Stop> {
        if !self.enforces(AccountingEnforce::Limits) {
            return None;
        }
        let except: Vec<JobId> =
            starters.iter().map(|starter| starter.job).chain(displaced.iter().copied()).collect();
        let mut started = Started::default();
        for Starter { spec, partition, amounts, limit, .. } in starters {
            let rules = self.rules(spec, partition);
            let asked = Asked { spec, rules: &rules, amounts, limit: *limit, at_least: false };
            let safe = self.enforces(AccountingEnforce::Safe);
            let (counters, usage) = (&**self.counters(), Some(self.usage()));
            let judge = Judge { counters, usage, started: &started, except: &except, safe, now };
            if let Some(stop) = judge.start(&asked) {
                return Some(stop);
            }
            started.add(&asked);
        }
        None
    }

    /// The limits that apply to a job in a partition.
    #[must_use]
    pub fn rules(&self, spec: &JobSpec, partition: &str) -> Rules {
        Rules::new(self.accounts(), self.charged_in(spec, partition), &spec.owner.user)
    }
}
