//! The planner: reads a cluster, returns a plan.
//!
//! This module owns the order of the queue, backfill, reservations and the reasons for which jobs wait.
//! [`place`] decides which nodes a job gets. The planner guarantees three things. The same cluster, time and
//! reservations give the same plan. Nothing is planned on what is in use or planned otherwise. Every job that
//! was considered leaves with a reason. The planner never reads a clock: counts bound how far a pass goes.
//!
//! # How to drive it
//!
//! [`plan`] does everything at once: for simulations, tests and `--test-only`. A daemon has a thread with a
//! [`Planner`] and a replica of the cluster, and repeats these steps:
//!
//! 1. Entries arrive: apply each to the replica and [`Planner::note`] it.
//! 2. Run a *quick pass* if a noted event could let a job start, or the time of [`next_event_time`] has come.
//!    Such events are a submission, a release, an end, a returned node, and a change of a job or of the
//!    policy. [`Planner::start_now`] starts what fits at once, at the cost of what has changed since the last
//!    quick pass. Send its starts to the controller.
//! 3. Run a *deep pass* whenever something has changed since the last one began. [`Planner::begin`] takes
//!    what it needs out of the replica, so entries may go on arriving. [`Pass::advance`] plans some jobs.
//!    After each slice send [`Pass::take_starts`]; then, if entries have arrived, do steps 1 and 2 before the
//!    next slice.
//! 4. When the pass is done, hand it to [`Planner::finish`]. The reservations are kept for quick passes; the
//!    plan's reasons and planned starts go to the code that shows them.
//!
//! A running deep pass is *not* abandoned because jobs came, ended or started: on a busy cluster no pass
//! would ever finish. The controller checks each start of the pass again: the attempt, the request and the
//! free resources of the nodes must still be the same. A refused start is dropped, and the next pass plans
//! the job anew. Abandon a pass (drop it) only when its copy of the cluster stays wrong: when the policy, the
//! accounts, a node, a partition or a reservation changed, or when a running job got other nodes, was
//! suspended, or wants its CPUs back. Reservations outlive all of that: [`Planner::start_now`] leaves out
//! those that are no longer valid. A plan must not be made from a replica that has not applied the starts of
//! the previous plan. Wait until the entries of those starts, or their refusals, have been applied.

pub mod defrag;
mod explain;
pub mod feasible;
pub mod forecast;
mod inventory;
pub mod licensed;
mod pass;
pub mod place;
pub mod plan;
mod planned_starts;
pub mod precedence;
mod preempt;
mod prospect;
mod queue;
mod quick;
pub mod replace;
pub mod request;
mod shorter_time;
pub mod site;
mod space;
mod state;
mod subject;
mod timeline;
mod together;

use pass::preemption::{QUICK_SEARCHES, SEARCHES};
pub use pass::{Pass, Progress};
pub use planned_starts::{Reservation, Reservations};
pub use queue::{PartPriority, TresShare, present_priority, priorities, priority};
pub use subject::Subject;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::JobId;
use crate::model::config::Backfill;
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::text::time::Time;

use forecast::{Forecast, PlanInput, Prudent, Recent};
use inventory::Inventory;
use plan::{Plan, Waiting};
use queue::pending_order::{self, PendingOrder};
use quick::Quick;

/// Plans the whole queue of a cluster as it is at `now`.
#[must_use]
pub fn plan(cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
    Planner::default().plan(cluster, now, forecast)
}

/// The start time and nodes of one pending job if every job before it in the queue starts as soon as it can.
/// The result is the plan of the queue up to that job; only its entry for that job is meant to be shown.
///
/// In the mode `easy` most waiting jobs have no planned start. This function answers for any of them, and
/// searches beyond the configured depths. A job that fits now and is beyond the depths has no start in the
/// plan: passes do not look at it.
#[must_use]
pub fn foretell(cluster: &Cluster, now: Time, forecast: &dyn Forecast, job: JobId) -> Plan {
    foretell_from(cluster, now, forecast, job, None, None)
}

/// The start time and nodes of one pending job that begins at `begin` at the earliest. Where every job has a
/// reservation, jobs keep those of the plan that is `remembered`, as they do in the planner's next plan.
#[must_use]
pub fn foretell_from(
    cluster: &Cluster,
    now: Time,
    forecast: &dyn Forecast,
    job: JobId,
    begin: Option<Time>,
    remembered: Option<&Remembered>,
) -> Plan {
    let job = cluster.jobs().components(job).first().copied().unwrap_or(job);
    let begins = begin.map(|begin| (job, begin));
    foretell_up_to(cluster, now, forecast, (begins, remembered), |_| Some(job))
}

/// The start times and nodes of the first `count` jobs of the queue, in one plan.
#[must_use]
pub fn foretell_first(cluster: &Cluster, now: Time, forecast: &dyn Forecast, count: usize) -> Plan {
    foretell_up_to(cluster, now, forecast, (None, None), |line| line.last_of(count))
}

fn foretell_up_to(
    cluster: &Cluster,
    now: Time,
    forecast: &dyn Forecast,
    (begins, remembered): (Option<(JobId, Time)>, Option<&Remembered>),
    last: impl FnOnce(&PendingOrder) -> Option<JobId>,
) -> Plan {
    let inventory = cluster.standing(Inventory::new);
    let input = PlanInput { cluster, inventory: &inventory, forecast, now };
    let Kept { line, firm, .. } = Kept::new(input, &Subject::default());
    let Some(last) = last(&line) else { return Plan::default() };
    let input = PlanInput { forecast: &Prudent { by: forecast, firm }, ..input };
    let pass = Pass::foretelling(input, &line, last).beginning(begins);
    let keeps = inventory.policy.scheduler.backfill == Backfill::Conservative;
    let mut plan = match remembered.filter(|_| keeps) {
        Some(Remembered { reservations, ground }) => pass.after(reservations, *ground).finish().0,
        None => pass.finish().0,
    };
    leave_out(&line, &mut plan);
    plan
}

/// Takes the starts of jobs beyond the depths out of a prediction: passes do not look at these jobs, so they
/// do not start although they fit.
fn leave_out(line: &PendingOrder, plan: &mut Plan) {
    for start in std::mem::take(&mut plan.starts) {
        let Some(detail) = line.left_out(start.attempt.job) else {
            plan.starts.push(start);
            continue;
        };
        for start in start.all() {
            let job = start.attempt.job;
            // Of an array the tasks behind may be in the plan already.
            if !plan.waiting.iter().any(|waiting| waiting.job == job) {
                let (priority, detail) = (start.why.priority, detail.clone().into());
                plan.waiting.push(Waiting { priority, reason: Reason::Priority, detail, ..Waiting::of(job) });
            }
        }
    }
}

/// The later starts of a plan, for predictions that continue from it.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    reservations: Reservations,
    /// The ground on which `reservations` were planned; see [`Cluster::ground`].
    ground: u64,
}

/// The smallest number of nodes on which a job can run, by what the nodes of its partitions have. It is shown
/// for a waiting job that counts tasks instead of nodes.
#[must_use]
pub fn fewest_nodes(cluster: &Cluster, spec: &JobSpec) -> u32 {
    let inventory = cluster.standing(Inventory::new);
    let partitions = inventory.partitions_of(spec);
    partitions.filter_map(|(index, _)| inventory.fewest_nodes(index, spec)).min().unwrap_or(1)
}

/// The state that a planner keeps from one pass to the next.
///
/// The caller must report every event to [`Planner::note`]. A planner that missed one reads the whole cluster
/// again. All passes of one planner use one forecast.
#[derive(Debug, Default)]
pub struct Planner {
    /// The last journal entry whose event was noted.
    seen: u64,
    kept: Option<Kept>,
    recent: Recent,
    reservations: Reservations,
    subject: Subject,
    /// The ground on which `reservations` were last planned; see [`Cluster::ground`].
    ground: u64,
    /// The first second at which a limit leaves enough for a job that it stopped in the last pass, if nothing
    /// else happens until then.
    again: Option<Time>,
}

/// The queue and the state of quick passes, kept up to date with the cluster's events.
#[derive(Debug)]
struct Kept {
    line: PendingOrder,
    /// The state of quick passes; `None` before the first one.
    quick: Option<Quick>,
    /// True if everything is planned by time limits, because a job has waited too long or nodes are reserved
    /// for some time; see [`Prudent`].
    firm: bool,
}

impl Planner {
    /// Returns a planner for a cluster that may already have a history.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self { recent: Recent::new(cluster), seen: cluster.seq(), ..Self::default() }
    }

    /// Returns a planner that continues from the plan of another one and takes over nothing else from it.
    /// Where every job has a reservation, jobs keep theirs as long as they would not start sooner.
    #[must_use]
    pub fn after(cluster: &Cluster, before: &Planner) -> Self {
        Self { reservations: before.reservations.clone(), ground: before.ground, ..Self::new(cluster) }
    }

    /// Updates what is kept by an event that was just applied to the replica.
    pub fn note(&mut self, cluster: &Cluster, event: &Event) {
        self.seen += 1;
        self.recent.note(cluster, event);
        if let Some(kept) = &mut self.kept {
            kept.line.note(cluster, event);
            kept.quick.iter_mut().for_each(|quick| quick.note(event));
        }
    }

    /// Plans the whole queue at once by the caller's forecast: for simulations, which know more of the
    /// future.
    pub fn plan(&mut self, cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
        let pass = self.begin_by(cluster, now, Some(forecast));
        self.finish(pass)
    }

    /// Begins a deep pass over the whole queue, up to the configured depths.
    pub fn begin(&mut self, cluster: &Cluster, now: Time) -> Pass {
        self.begin_by(cluster, now, None)
    }

    /// Begins a deep pass by the caller's forecast, or by the planner's own if `forecast` is `None`.
    fn begin_by(&mut self, cluster: &Cluster, now: Time, forecast: Option<&dyn Forecast>) -> Pass {
        let inventory = cluster.standing(Inventory::new);
        let knows_all = self.knows_all(cluster);
        let forecast = forecast.unwrap_or(&self.recent);
        let input = PlanInput { cluster, inventory: &inventory, forecast, now };
        let kept = Kept::of(&mut self.kept, knows_all, input, &self.subject);
        // A quick pass without kept state reads all jobs.
        if kept.quick.is_none() {
            kept.line.take_changes();
        }
        let forecast = &Prudent { by: forecast, firm: kept.firm };
        let pass = Pass::new(PlanInput { forecast, ..input }, &kept.line);
        pass.after(&self.reservations, std::mem::replace(&mut self.ground, cluster.ground()))
    }

    /// Ends a deep pass: quick passes respect its reservations from now on.
    pub fn finish(&mut self, pass: Pass) -> Plan {
        let (plan, reservations) = pass.finish();
        (self.reservations, self.again) = (reservations, plan.again);
        if let Some(quick) = self.kept.as_mut().and_then(|kept| kept.quick.as_mut()) {
            quick.replanned();
        }
        plan
    }

    /// Starts what fits now, or preempts jobs for it, without disturbing any known reservation. The cost
    /// follows what has changed, with two exceptions in which the whole queue is read. In the first, a job
    /// may be planned in a reservation of nodes. In the second, many waiting jobs may preempt others.
    ///
    /// Where only the head of the queue has a reservation, this pass makes that anew. Where every job has
    /// one, the reservations of the last deep pass are kept. The plan contains starts, and nothing about
    /// waiting jobs: the last deep pass gave their reasons.
    pub fn start_now(&mut self, cluster: &Cluster, now: Time) -> Plan {
        self.start_by(cluster, now, None)
    }

    /// Starts what fits now by the planner's own forecast, or what a whole plan by the caller's forecast
    /// would start.
    fn start_by(&mut self, cluster: &Cluster, now: Time, forecast: Option<&dyn Forecast>) -> Plan {
        let inventory = cluster.standing(Inventory::new);
        let keeps = inventory.policy.scheduler.backfill == Backfill::Conservative;
        let knows_all = self.knows_all(cluster);
        let searches = if forecast.is_some() { SEARCHES } else { QUICK_SEARCHES };
        let input =
            PlanInput { cluster, inventory: &inventory, forecast: forecast.unwrap_or(&self.recent), now };
        let Kept { line, quick, firm } = Kept::of(&mut self.kept, knows_all, input, &self.subject);
        let serves = Quick::serves(cluster, line, searches);
        if let Some(forecast) = forecast.filter(|_| keeps || !serves) {
            let plan = self.plan(cluster, now, forecast);
            return Plan { waiting: Vec::new(), ..plan };
        }
        let input = PlanInput { forecast: &Prudent { by: input.forecast, firm: *firm }, ..input };
        let changes = line.take_changes();
        // The kept state is not updated while quick passes from it are not possible, so it is dropped.
        let kept = quick.take();
        if serves {
            let kept = kept.unwrap_or_else(|| Quick::new(input));
            let (kept, plan) = kept.pass(input, (&mut *line, &changes), searches, &mut self.reservations);
            (*quick, self.again) = (Some(kept), plan.again);
            return plan;
        }
        let (plan, made) = Pass::quick(input, line, &self.reservations).finish();
        (self.reservations, self.again) = (made, plan.again);
        plan
    }

    /// The plan that [`Planner::start_now`] must return, and the reservations that it must leave, found by
    /// reading everything. The planner does not change. Tests compare quick passes with this.
    #[must_use]
    pub fn start_now_slowly(&self, cluster: &Cluster, now: Time) -> (Plan, Reservations) {
        let inventory = cluster.standing(Inventory::new);
        let input = PlanInput { cluster, inventory: &inventory, forecast: &self.recent, now };
        let Kept { line, firm, .. } = Kept::new(input, &Subject::default());
        let forecast = &Prudent { by: &self.recent, firm };
        Pass::quick(PlanInput { forecast, ..input }, &line, &self.reservations).finish()
    }

    /// The starts, planned starts and preemptions of [`Planner::plan`], at the cost of what has changed where
    /// that is possible. The plan contains nothing about waiting jobs.
    pub fn starts(&mut self, cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
        self.start_by(cluster, now, Some(forecast))
    }

    /// A handle that names the job being planned, in any pass of this planner.
    #[must_use]
    pub fn subject(&self) -> Subject {
        self.subject.clone()
    }

    /// The later starts of the last plan where every job has one; otherwise none.
    #[must_use]
    pub fn remembered(&self, cluster: &Cluster) -> Remembered {
        match cluster.policy().scheduler.backfill {
            Backfill::Conservative => {
                Remembered { reservations: self.reservations.clone(), ground: self.ground }
            }
            Backfill::Easy | Backfill::None => Remembered::default(),
        }
    }

    /// The reservations of the last pass that made any, as far as they are still valid.
    #[must_use]
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The next moment after `now` at which a plan would change without any event: the result of
    /// [`next_event_time`], without reading every job.
    pub fn next_event_time(&mut self, cluster: &Cluster, now: Time) -> Option<Time> {
        match self.kept.as_mut().filter(|_| self.seen == cluster.seq()) {
            Some(kept) => {
                let others =
                    precedence::next_exempt_end(cluster, now).into_iter().chain(next_window(cluster, now));
                let others = others.chain(self.again.filter(|again| *again > now));
                kept.line.next_event_time(cluster, now).into_iter().chain(others).min()
            }
            None => next_event_time(cluster, now),
        }
    }

    /// True if every event up to the last was noted. Afterwards `seen` counts all of them as noted.
    fn knows_all(&mut self, cluster: &Cluster) -> bool {
        std::mem::replace(&mut self.seen, cluster.seq()) == cluster.seq()
    }
}

impl Kept {
    /// The kept state with the queue brought up to date; begun anew if it can no longer be used.
    fn of<'a>(
        kept: &'a mut Option<Self>,
        knows_all: bool,
        input: PlanInput<'_>,
        subject: &Subject,
    ) -> &'a mut Self {
        // `Kept` is large, so it is not moved.
        kept.take_if(|kept| {
            let serves = knows_all && kept.line.is_of(input.inventory);
            if serves {
                let forecast = &Prudent { by: input.forecast, firm: kept.firm };
                kept.line.refresh(PlanInput { forecast, ..input });
            }
            !serves || kept.firm != kept.should_be_firm(input.forecast)
        });
        kept.get_or_insert_with(|| Self::new(input, subject))
    }

    fn new(input: PlanInput<'_>, subject: &Subject) -> Self {
        let line = |firm| {
            let forecast = &Prudent { by: input.forecast, firm };
            PendingOrder::new(PlanInput { forecast, ..input }, subject)
        };
        let kept = Self { line: line(false), quick: None, firm: false };
        if kept.should_be_firm(input.forecast) { Self { line: line(true), firm: true, ..kept } } else { kept }
    }

    fn should_be_firm(&self, forecast: &dyn Forecast) -> bool {
        !forecast.is_firm() && (self.line.is_overdue() || self.line.has_reservations())
    }
}

/// The next moment after `now` at which a plan would change without any event. Such moments are a begin time,
/// the end of a temporary constraint, and the time when a job has waited long enough to go first. Others are
/// the time from which a running job may be preempted, and the begin or end of a reservation of nodes.
#[must_use]
pub fn next_event_time(cluster: &Cluster, now: Time) -> Option<Time> {
    let waits = pending_order::Moments::new(cluster.policy());
    let exempt = precedence::next_exempt_end(cluster, now);
    let moments = cluster.jobs().pending().filter_map(|job| waits.next_moment(job, now));
    moments.chain(exempt).chain(next_window(cluster, now)).min()
}

/// The next begin or end of a reservation of nodes.
fn next_window(cluster: &Cluster, now: Time) -> Option<Time> {
    let comes = cluster.reservations().filter(|reservation| reservation.lead.is_none());
    let times = comes.flat_map(|reservation| [reservation.start, reservation.end]);
    times.filter(|time| *time > now).min()
}
