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
//!    starts what fits at once and respects the reservations of the last deep pass. Send its starts to the controller.
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

mod explain;
pub mod feasible;
pub mod forecast;
mod holes;
mod lens;
mod licenses;
mod pass;
pub mod place;
pub mod plan;
pub mod preempt;
pub mod priority;
mod queue;
pub mod request;
mod room;
mod scene;
mod stairs;
mod state;
mod sweep;
mod timeline;
mod wish;

pub use pass::{Pass, Progress, Reservation, Reservations};

use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::JobId;
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::text::time::Time;

use forecast::{Forecast, Recent};
use plan::Plan;
use scene::Scene;

/// Plans the whole queue of a cluster as it is at `now`.
#[must_use]
pub fn plan(cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
    let scene = Arc::new(Scene::new(cluster));
    Pass::new(cluster, scene, forecast, now, &Reservations::default()).finish().0
}

/// When and where one pending job will start if everybody before it in the queue starts as soon as it can: the plan of
/// the queue up to that job, of which only what is said of the job itself is meant to be shown.
///
/// In the mode `easy` most waiting jobs have no planned start. This answers for any of them, and looks past the depths.
#[must_use]
pub fn foretell(cluster: &Cluster, now: Time, forecast: &dyn Forecast, job: JobId) -> Plan {
    let scene = Arc::new(Scene::new(cluster));
    Pass::foretelling(cluster, scene, forecast, now, job).finish().0
}

/// What is kept from one pass to the next.
#[derive(Debug, Default)]
pub struct Planner {
    scene: Option<Arc<Scene>>,
    recent: Recent,
    reservations: Reservations,
}

impl Planner {
    /// A planner for a cluster that may already have a history.
    #[must_use]
    pub fn new(cluster: &Cluster) -> Self {
        Self { recent: Recent::new(cluster), ..Self::default() }
    }

    /// Learns from an event that was just applied to the replica.
    pub fn note(&mut self, cluster: &Cluster, event: &Event) {
        self.recent.note(cluster, event);
    }

    /// Plans the whole queue at once, by a forecast of the caller's: for simulations, which know more of the future.
    pub fn plan(&mut self, cluster: &Cluster, now: Time, forecast: &dyn Forecast) -> Plan {
        let scene = self.scene(cluster);
        Pass::new(cluster, scene, forecast, now, &Reservations::default()).finish().0
    }

    /// Begins a deep pass over the whole queue, up to the configured depths.
    pub fn begin(&mut self, cluster: &Cluster, now: Time) -> Pass {
        let scene = self.scene(cluster);
        Pass::new(cluster, scene, &self.recent, now, &Reservations::default())
    }

    /// Ends a deep pass: its reservations are respected from now on.
    pub fn finish(&mut self, pass: Pass) -> Plan {
        let (plan, reservations) = pass.finish();
        self.reservations = reservations;
        plan
    }

    /// Starts what fits now and disturbs none of the reservations that are known.
    pub fn start_now(&mut self, cluster: &Cluster, now: Time) -> Plan {
        let scene = self.scene(cluster);
        let (plan, kept) = Pass::quick(cluster, scene, &self.recent, now, &self.reservations).finish();
        self.reservations = kept;
        plan
    }

    /// The reservations of the last deep pass, as far as they still make sense.
    #[must_use]
    pub fn reservations(&self) -> &Reservations {
        &self.reservations
    }

    /// What stands, copied anew only if it changed.
    fn scene(&mut self, cluster: &Cluster) -> Arc<Scene> {
        match &self.scene {
            Some(scene) if scene.still_stands(cluster) => Arc::clone(scene),
            _ => Arc::clone(self.scene.insert(Arc::new(Scene::new(cluster)))),
        }
    }
}

/// The next moment after `now` at which a plan would turn out differently although nothing happens: a begin time, a
/// constraint that was given only for so long, a job that has waited long enough to go first, a running one that may
/// be preempted from then on.
#[must_use]
pub fn next_event_time(cluster: &Cluster, now: Time) -> Option<Time> {
    let max_wait = cluster.policy().scheduler.max_wait.0;
    let times = |job: &Job| {
        let Phase::Pending(pending) = &job.phase else { return None };
        if pending.hold.is_some() || job.waits_for.is_some() {
            return None;
        }
        let eligible = pending.eligible.unwrap_or(job.submitted);
        let aged = (max_wait > 0).then(|| eligible + max_wait);
        let relaxed = wish::relax_times(&job.spec, eligible);
        relaxed.chain(aged).chain(pending.not_before).filter(|time| *time > now && !time.is_never()).min()
    };
    let exempt = preempt::rule::next_exempt_end(cluster, now);
    cluster.jobs().pending().filter_map(times).chain(exempt).min()
}
