//! The planner: reads a cluster, returns a plan.
//!
//! Owns the order of the queue, backfill, reservations and the reasons jobs wait for; which nodes a job gets is
//! decided in [`place`]. Promises: the same cluster, time and reservations give the same plan; nothing is planned on
//! what is in use or planned otherwise; every job that was looked at leaves with a reason. It never looks at a clock:
//! how far a pass goes is bounded by counts.
//!
//! # How to drive it
//!
//! [`plan`] does all at once: for simulations, tests and `--test-only`. A daemon has a thread with a [`Planner`] and
//! a replica of the cluster, and goes on like this:
//!
//! 1. Entries arrive: apply each to the replica and [`Planner::note`] it.
//! 2. If anything was noted that could let a job start (a submission, a release, an end, a returned node, a change of
//!    a job or of the policy), or the time of [`next_event_time`] has come: a *quick pass*. [`Planner::start_now`]
//!    starts what fits at once, at the cost of what has changed since the last. Send its starts to the controller.
//! 3. A *deep pass* is wanted whenever something changed since the last one began. [`Planner::begin`] takes what it
//!    needs out of the replica, so entries may go on arriving; [`Pass::advance`] looks at some jobs; after each slice
//!    send [`Pass::take_starts`], then see whether entries have arrived and do 1 and 2 before the next slice.
//! 4. When it is done, hand it to [`Planner::finish`]: the reservations are kept for quick passes, the plan's reasons
//!    and planned starts go to whoever shows them.
//!
//! A pass under way is *not* abandoned because jobs came, ended or started: on a busy cluster none would ever be
//! done. What it says is checked again by the controller, start by start: the attempt, the request and the free
//! resources of the nodes have to be the same still; a start that is refused is dropped, and the next pass plans the
//! job anew. Abandon a pass (drop it) only when the policy changed, or a node or a partition: its picture of the
//! cluster is wrong for good. Reservations outlive all of that: [`Planner::start_now`] leaves out those that no longer
//! make sense. A plan must not be made from a replica that has not seen the starts of the plan before: wait until the
//! entries of those starts, or their refusals, have been applied.

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
pub use queue::{PartPriority, TresShare, first_priority, priorities, priority};
pub use subject::Subject;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::JobId;
use crate::model::config::Backfill;
use crate::model::job::JobSpec;
use crate::text::time::Time;

use forecast::{Forecast, PlanInput, Prudent, Recent};
use inventory::Inventory;
use plan::Plan;
use queue::pending_order::{self, PendingOrder};
use quick::Quick;

/// Plans the whole queue of a cluster as it is at `now`.
#[must_use]
pub fn plan(cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
    Planner::default().plan(cluster, now, forecast)
}

/// When and where one pending job will start if everybody before it in the queue starts as soon as it can: the plan of
/// the queue up to that job, of which only what is said of the job itself is meant to be shown.
///
/// In the mode `easy` most waiting jobs have no planned start. This answers for any of them, and looks past the depths.
#[must_use]
pub fn foretell(cluster: &Cluster, now: Time, forecast: &dyn Forecast, job: JobId) -> Plan {
    foretell_from(cluster, now, forecast, job, None, None)
}

/// When and where one pending job will start if it is to begin no earlier than at `begin`. Where everybody has a
/// reservation, jobs keep those of the plan that is `remembered`, as they do in the next plan of its planner.
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

/// When and where each of the first so many jobs of the queue will start, in one plan.
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
    match remembered.filter(|_| keeps) {
        Some(Remembered { reservations, ground }) => pass.after(reservations, *ground).finish().0,
        None => pass.finish().0,
    }
}

/// The later starts of a plan, for those who foretell what comes after it.
#[derive(Clone, Debug, Default)]
pub struct Remembered {
    reservations: Reservations,
    /// The ground on which these were planned; see [`Cluster::ground`].
    ground: u64,
}

/// The fewest nodes that a job can run on, by what the nodes of its partitions have: what is shown of one that waits and counts
/// tasks, not nodes.
#[must_use]
pub fn fewest_nodes(cluster: &Cluster, spec: &JobSpec) -> u32 {
    let inventory = cluster.standing(Inventory::new);
    let partitions = inventory.partitions_of(spec);
    partitions.filter_map(|(index, _)| inventory.fewest_nodes(index, spec)).min().unwrap_or(1)
}

/// What is kept from one pass to the next.
///
/// It has to be told of every event, by [`Planner::note`]; a planner that finds that it was not looks at the whole
/// cluster again. All passes of one planner go by one forecast.
#[derive(Debug, Default)]
pub struct Planner {
    /// The entry of the journal up to which events were noted.
    seen: u64,
    kept: Option<Kept>,
    recent: Recent,
    reservations: Reservations,
    subject: Subject,
    /// The ground on which these were planned last; see [`Cluster::ground`].
    ground: u64,
    /// When some limit leaves enough for a job that the last pass has found stopped, although nothing happens.
    again: Option<Time>,
}

/// What is known of a cluster, kept up to date with its events.
#[derive(Debug)]
struct Kept {
    line: PendingOrder,
    /// What quick passes keep, once there was one.
    quick: Option<Quick>,
    /// Whether all of it is by limits, because somebody has waited too long, or because nodes are reserved for some time;
    /// see [`Prudent`].
    firm: bool,
}

impl Planner {
    /// A planner for a cluster that may already have a history.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self { recent: Recent::new(cluster), seen: cluster.seq(), ..Self::default() }
    }

    /// A planner that goes on from the plan of another one, and knows nothing else of it: where everybody has a reservation,
    /// jobs keep theirs as long as they would not start sooner.
    #[must_use]
    pub fn after(cluster: &Cluster, before: &Planner) -> Self {
        Self { reservations: before.reservations.clone(), ground: before.ground, ..Self::new(cluster) }
    }

    /// Learns from an event that was just applied to the replica.
    pub fn note(&mut self, cluster: &Cluster, event: &Event) {
        self.seen += 1;
        self.recent.note(cluster, event);
        if let Some(kept) = &mut self.kept {
            kept.line.note(cluster, event);
            kept.quick.iter_mut().for_each(|quick| quick.note(event));
        }
    }

    /// Plans the whole queue at once, by a forecast of the caller's: for simulations, which know more of the future.
    pub fn plan(&mut self, cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
        let pass = self.begin_by(cluster, now, Some(forecast));
        self.finish(pass)
    }

    /// Begins a deep pass over the whole queue, up to the configured depths.
    pub fn begin(&mut self, cluster: &Cluster, now: Time) -> Pass {
        self.begin_by(cluster, now, None)
    }

    /// Begins a deep pass by a forecast of the caller's, or its own.
    fn begin_by(&mut self, cluster: &Cluster, now: Time, forecast: Option<&dyn Forecast>) -> Pass {
        let inventory = cluster.standing(Inventory::new);
        let knows_all = self.knows_all(cluster);
        let forecast = forecast.unwrap_or(&self.recent);
        let input = PlanInput { cluster, inventory: &inventory, forecast, now };
        let kept = Kept::of(&mut self.kept, knows_all, input, &self.subject);
        // A quick pass that knows nothing yet looks at everybody.
        if kept.quick.is_none() {
            kept.line.take_changes();
        }
        let forecast = &Prudent { by: forecast, firm: kept.firm };
        let pass = Pass::new(PlanInput { forecast, ..input }, &kept.line);
        pass.after(&self.reservations, std::mem::replace(&mut self.ground, cluster.ground()))
    }

    /// Ends a deep pass: its reservations are respected from now on.
    pub fn finish(&mut self, pass: Pass) -> Plan {
        let (plan, reservations) = pass.finish();
        (self.reservations, self.again) = (reservations, plan.again);
        if let Some(quick) = self.kept.as_mut().and_then(|kept| kept.quick.as_mut()) {
            quick.replanned();
        }
        plan
    }

    /// Starts what fits now, or makes others leave for it, and disturbs none of the reservations that are known. It costs
    /// what has changed, except where a job may be planned in a reservation of nodes, and where many wait that may make
    /// others leave: there the whole queue is looked at.
    ///
    /// Where only the head of the queue has a reservation, that is made anew; where everybody has one, those of the
    /// last deep pass are kept. The plan says what starts, and nothing of jobs that wait: why they do is what the last
    /// deep pass said of them.
    pub fn start_now(&mut self, cluster: &Cluster, now: Time) -> Plan {
        self.start_by(cluster, now, None)
    }

    /// Starts what fits now by its own forecast, or what a whole plan by one of the caller's would start.
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
        // What it knows is not kept up to date while it does not serve.
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

    /// What [`Planner::start_now`] is to decide, and the reservations it is to leave: found by looking at everything. Nothing
    /// is learned from it; it is what quick passes are compared with.
    #[must_use]
    pub fn start_now_slowly(&self, cluster: &Cluster, now: Time) -> (Plan, Reservations) {
        let inventory = cluster.standing(Inventory::new);
        let input = PlanInput { cluster, inventory: &inventory, forecast: &self.recent, now };
        let Kept { line, firm, .. } = Kept::new(input, &Subject::default());
        let forecast = &Prudent { by: &self.recent, firm };
        Pass::quick(PlanInput { forecast, ..input }, &line, &self.reservations).finish()
    }

    /// What [`Planner::plan`] starts and promises, and who makes way, at the cost of what has changed where that is
    /// possible; nothing is said of jobs that wait.
    pub fn starts(&mut self, cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
        self.start_by(cluster, now, Some(forecast))
    }

    /// Names the job that is looked at, by whatever pass of this planner.
    #[must_use]
    pub fn subject(&self) -> Subject {
        self.subject.clone()
    }

    /// The later starts of the last plan, where everybody has one; otherwise none.
    #[must_use]
    pub fn remembered(&self, cluster: &Cluster) -> Remembered {
        match cluster.policy().scheduler.backfill {
            Backfill::Conservative => {
                Remembered { reservations: self.reservations.clone(), ground: self.ground }
            }
            Backfill::Easy | Backfill::None => Remembered::default(),
        }
    }

    /// The reservations of the last pass that made any, as far as they still make sense.
    #[must_use]
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// The next moment after `now` at which a plan would turn out differently although nothing happens; what
    /// [`next_event_time`] says, without looking at every job.
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

    /// Whether every event up to the last was noted; from now on it is taken for so.
    fn knows_all(&mut self, cluster: &Cluster) -> bool {
        std::mem::replace(&mut self.seen, cluster.seq()) == cluster.seq()
    }
}

impl Kept {
    /// What was kept, with the line brought up to date; begun anew if it is of no use any more.
    fn of<'a>(
        kept: &'a mut Option<Self>,
        knows_all: bool,
        input: PlanInput<'_>,
        subject: &Subject,
    ) -> &'a mut Self {
        // It is large, so it stays where it is.
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

/// The next moment after `now` at which a plan would turn out differently although nothing happens: a begin time, a
/// constraint that was given only for so long, a job that has waited long enough to go first, a running one that may
/// be preempted from then on, a reservation of nodes that begins or ends.
#[must_use]
pub fn next_event_time(cluster: &Cluster, now: Time) -> Option<Time> {
    let waits = pending_order::Moments::new(cluster.policy());
    let exempt = precedence::next_exempt_end(cluster, now);
    let moments = cluster.jobs().pending().filter_map(|job| waits.next_moment(job, now));
    moments.chain(exempt).chain(next_window(cluster, now)).min()
}

/// When a reservation of nodes begins or ends next.
fn next_window(cluster: &Cluster, now: Time) -> Option<Time> {
    let comes = cluster.reservations().filter(|reservation| reservation.lead.is_none());
    let times = comes.flat_map(|reservation| [reservation.start, reservation.end]);
    times.filter(|time| *time > now).min()
}
