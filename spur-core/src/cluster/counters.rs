//! Counters of jobs and resources for limits, by association and QOS.
//!
//! After every journal entry the counters equal a recount of all jobs. They are kept only while limits are
//! enforced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::holder::Holder;
use super::limits::counted_seconds;
use super::tres::Held;
use super::{AccountChange, Cluster};
use crate::id::{JobId, NodeId};
use crate::model::accounts::qos::QosFlag;
use crate::model::accounts::usage::{Amount, Rate};
use crate::model::accounts::{Charged, Qos};
use crate::model::config::AccountingEnforce;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{Completing, Phase, Then};
use crate::text::time::{Time, TimeLimit};
use crate::text::tres::TresKind;

/// Time for which a job may still hold its resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// The job holds its resources until this time at the latest.
    Until(Time),
    /// Number of seconds left for a job that does not run: a pending or suspended one.
    Seconds(u64),
    /// The job has no time limit.
    Endless,
}

impl Rest {
    /// The time left to a job that has not begun: its whole time limit.
    #[must_use]
    pub fn of(limit: TimeLimit) -> Self {
        limit.seconds().map_or(Rest::Endless, Rest::Seconds)
    }

    /// Number of seconds left; `u64::MAX` without a time limit.
    #[must_use]
    pub fn seconds(self, now: Time) -> u64 {
        match self {
            Rest::Until(end) => end.since(now),
            Rest::Seconds(seconds) => seconds,
            Rest::Endless => u64::MAX,
        }
    }
}

/// Resources that a job holds, or that are reserved for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holding {
    /// The resources.
    pub held: Held,
    /// The time for which they may still be held.
    pub rest: Rest,
    /// The factor of this time in limits of resources times minutes; `None` for 1.
    pub time_factor: Option<Rate>,
}

impl Holding {
    /// Number of seconds that the rest of the time counts in limits of resources times minutes.
    fn seconds(&self, now: Time) -> u64 {
        counted_seconds(self.rest.seconds(now), self.time_factor)
    }
}

/// The entities for which one job counts, and its amounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// The entities for which the job counts.
    pub holders: Arc<[Holder]>,
    /// Number of submitted jobs that the record stands for; each task of an array counts as one.
    pub submitted: u64,
    /// Number of those that are pending and gain priority by age within limits.
    pub accruing: u64,
    /// The resources of a job that runs or for which nodes are reserved; `None` for any other job.
    pub holding: Option<Holding>,
}

/// Counters of one entity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Number of jobs that are pending, running, suspended, or ending before a requeue; each task of an
    /// array counts as one.
    pub submitted: u64,
    /// Number of pending jobs that gain priority by age within limits; each task of an array counts as one.
    pub accruing: u64,
    /// The resources of the jobs that run.
    pub held: Held,
    /// The jobs that run, or for which nodes are kept.
    pub running: BTreeSet<JobId>,
}

/// The counters of a cluster, by entity and by job.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    tallies: BTreeMap<Holder, Tally>,
    jobs: BTreeMap<JobId, Counted>,
    /// Number of times a counted job was removed or changed.
    freed: u64,
}

impl PartialEq for Counters {
    fn eq(&self, other: &Self) -> bool {
        (&self.tallies, &self.jobs) == (&other.tallies, &other.jobs)
    }
}

impl Counters {
    /// The counters of an entity; `None` if no job counts for it.
    #[must_use]
    pub fn tally(&self, holder: &Holder) -> Option<&Tally> {
        self.tallies.get(holder)
    }

    /// The entities and amounts that a job counts; `None` if the job is not counted.
    #[must_use]
    pub fn counted(&self, job: JobId) -> Option<&Counted> {
        self.jobs.get(&job)
    }

    /// Number of times a counted job was removed or changed. Each such change may free a part of some limit.
    #[must_use]
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// The amount of a resource that the running jobs of an entity may still use, in counts times seconds.
    /// The jobs in `except` are left out.
    #[must_use]
    pub fn promised(&self, holder: &Holder, tres: &TresKind, now: Time, except: &[JobId]) -> Amount {
        let running = self.tally(holder).into_iter().flat_map(|tally| &tally.running);
        let holdings = running.filter(|job| !except.contains(job));
        let holdings = holdings.filter_map(|job| self.counted(*job)?.holding.as_ref());
        let each = holdings.map(|holding| Amount::of(holding.held.rate(tres), holding.seconds(now)));
        each.fold(Amount::ZERO, Amount::plus)
    }

    fn set(&mut self, job: JobId, counted: Option<Counted>) {
        let before = self.jobs.remove(&job);
        if let Some(before) = before {
            self.freed += 1;
            for holder in &*before.holders {
                let Some(tally) = self.tallies.get_mut(holder) else { continue };
                tally.submitted -= before.submitted;
                tally.accruing -= before.accruing;
                if let Some(holding) = &before.holding {
                    tally.held.take(&holding.held);
                    tally.running.remove(&job);
                }
                if *tally == Tally::default() {
                    self.tallies.remove(holder);
                }
            }
        }
        let Some(counted) = counted else { return };
        for holder in &*counted.holders {
            let count = |tally: &mut Tally| {
                tally.submitted += counted.submitted;
                tally.accruing += counted.accruing;
                if let Some(holding) = &counted.holding {
                    tally.held.add(&holding.held);
                    tally.running.insert(job);
                }
            };
            match self.tallies.get_mut(holder) {
                Some(tally) => count(tally),
                None => count(self.tallies.entry(holder.clone()).or_default()),
            }
        }
        self.jobs.insert(job, counted);
    }
}

/// Everything that the counters of a job follow from, apart from the tree and the nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Weight {
    Nothing,
    Waits { spec: usize, tasks: usize, nomination: usize, accrues: bool },
    Holds { spec: usize, alloc: usize, ends: Time, suspended: bool },
    WaitsAgain,
}

impl Weight {
    /// The weight of a job. Addresses identify requests and allocations only while both are in memory.
    pub(super) fn of(job: &Job) -> Self {
        let spec = Arc::as_ptr(&job.spec).addr();
        match &job.phase {
            Phase::Pending(pending) => {
                let nomination = pending.nominated.as_ref().map_or(0, |kept| Arc::as_ptr(kept).addr());
                Weight::Waits {
                    spec,
                    tasks: job.task_count(),
                    nomination,
                    accrues: pending.accrued.is_some(),
                }
            }
            Phase::Running { alloc, started, .. } => {
                let alloc = Arc::as_ptr(alloc).addr();
                Weight::Holds { spec, alloc, ends: job.ends_at(*started), suspended: false }
            }
            Phase::Suspended(held) => {
                let alloc = Arc::as_ptr(&held.alloc).addr();
                Weight::Holds { spec, alloc, ends: job.ends_at(held.started), suspended: true }
            }
            Phase::Completing(Completing { then: Then::Requeue { .. }, .. }) => Weight::WaitsAgain,
            Phase::Completing(_) | Phase::Ended(_) => Weight::Nothing,
        }
    }
}

impl Cluster {
    /// The counters that limits are judged by.
    #[must_use]
    pub fn counters(&self) -> &Arc<Counters> {
        &self.counters
    }

    /// Recounts the jobs that have changed.
    pub(super) fn count_changed(&mut self) {
        for job in self.jobs.take_recounts() {
            self.count_job(job);
        }
    }

    /// Recounts the jobs on a node.
    pub(super) fn count_on(&mut self, node: NodeId) {
        if self.enforces(AccountingEnforce::Limits) {
            let jobs = self.node(node).map_or_else(Vec::new, |node| node.jobs.clone());
            jobs.into_iter().for_each(|job| self.count_job(job));
        }
    }

    /// Recounts all jobs; clears the counters if limits are not enforced.
    pub(super) fn count_all(&mut self) {
        self.counters = Arc::default();
        let counts = self.enforces(AccountingEnforce::Limits);
        self.jobs.watch(counts);
        if counts {
            for job in self.jobs.iter().map(|job| job.id).collect::<Vec<_>>() {
                self.count_job(job);
            }
        }
    }

    /// True if these changes may make jobs count for other associations or QOS, or their time by another
    /// factor. A change of limits alone does not.
    pub(super) fn moves_jobs(&self, changes: &[AccountChange]) -> bool {
        let tree = &self.accounts;
        changes.iter().any(|change| match change {
            AccountChange::Association(new) => tree.association(new.id).is_none_or(|old| {
                (&old.account, &old.user, &old.partition, &old.parent)
                    != (&new.account, &new.user, &new.partition, &new.parent)
            }),
            AccountChange::User(new) => {
                tree.user(&new.name).is_none_or(|old| old.default_account != new.default_account)
            }
            AccountChange::Qos(new) => tree.qos_numbered(new.id).is_none_or(|old| {
                let is_safe = |qos: &Qos| qos.flags.contains(&QosFlag::UsageFactorSafe);
                (old.usage_factor, is_safe(old)) != (new.usage_factor, is_safe(new))
            }),
            AccountChange::AssociationDeleted(_)
            | AccountChange::UserDeleted(_)
            | AccountChange::QosDeleted(_) => true,
            AccountChange::Account(_)
            | AccountChange::AccountDeleted(_)
            | AccountChange::FileQos(_)
            | AccountChange::UsageCleared(_)
            | AccountChange::QosUsageCleared(_)
            | AccountChange::UsageImported { .. }
            | AccountChange::ClusterAdded(_)
            | AccountChange::ClusterDeleted(_)
            | AccountChange::OfCluster { .. } => false,
        })
    }

    fn count_job(&mut self, id: JobId) {
        let counted = self.jobs.get(id).and_then(|job| self.weigh(job));
        if counted.as_ref() != self.counters.counted(id) {
            Arc::make_mut(&mut self.counters).set(id, counted);
        }
    }

    /// The entities and amounts that a job counts at this moment; `None` for a job that has ended, or is
    /// ending and will not be requeued.
    fn weigh(&self, job: &Job) -> Option<Counted> {
        let (charged, holding) = match &job.phase {
            Phase::Pending(pending) => match &pending.nominated {
                Some(kept) => {
                    let partition = &*kept.partition;
                    let held = self.amounts_proposed(&job.spec, partition, &kept.parts, kept.exclusive).all;
                    (self.charged_in(&job.spec, partition), Some((held, Rest::of(job.spec.time_limit))))
                }
                None => (self.charged_in(&job.spec, job.spec.partitions.first()?), None),
            },
            Phase::Running { alloc, started, .. } => {
                let end = job.ends_at(*started);
                let rest = if end.is_never() { Rest::Endless } else { Rest::Until(end) };
                (alloc.charged, Some((self.amounts_held(&job.spec, alloc).all, rest)))
            }
            Phase::Suspended(held) => {
                let rest = Rest::of(job.remaining(self.at()));
                let amounts = self.amounts_held(&job.spec, &held.alloc);
                (held.alloc.charged, Some((amounts.all, rest)))
            }
            Phase::Completing(Completing { then: Then::Requeue { .. }, alloc, .. }) => (alloc.charged, None),
            Phase::Completing(_) | Phase::Ended(_) => return None,
        };
        let user = &job.spec.owner.user;
        let holding = holding.map(|(held, rest)| {
            let time_factor = self.time_factor(charged);
            Holding { held, rest, time_factor }
        });
        // The owner has just judged the submission or the start by these limits.
        let holders = match self.derived.rules.get(charged, user) {
            Some(rules) => Arc::clone(&rules.holders),
            None => Holder::of(&self.accounts, charged, user).into(),
        };
        let submitted = job.task_count() as u64;
        let accrues = matches!(&job.phase, Phase::Pending(pending) if pending.accrued.is_some());
        Some(Counted { holders, submitted, accruing: if accrues { submitted } else { 0 }, holding })
    }

    /// The association and the QOS that a job counts for in the partition of this name; the default if there
    /// is no such partition.
    #[must_use]
    pub fn charged_in(&self, spec: &JobSpec, partition: &str) -> Charged {
        self.partition(partition).map_or_else(Charged::default, |found| self.charged(spec, found))
    }

    /// Counters from a recount of all jobs, for tests and checks.
    #[must_use]
    pub fn counted_anew(&self) -> Counters {
        let mut counters = Counters::default();
        if self.enforces(AccountingEnforce::Limits) {
            self.jobs.iter().for_each(|job| counters.set(job.id, self.weigh(job)));
        }
        counters
    }
}
