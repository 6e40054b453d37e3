//! Keeping up with what happens: runs, records and counts.

use std::sync::Arc;

use super::pause::Pause;
use super::{Live, Watch, World};
use crate::cluster::Event;
use crate::id::{JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::phase::Then;
use crate::sim::event::What;
use crate::sim::metrics::Run;
use crate::sim::record;

impl<W: Watch> World<W> {
    /// Keeps up with an event of the cluster.
    pub(super) fn note(&mut self, event: &Event) {
        if !self.discreet {
            self.truth.note(&self.cluster, event);
        }
        self.planner.note(&self.cluster, event);
        match event {
            Event::JobStarted { job, alloc, split: _ } => self.started(*job, alloc),
            Event::JobEnding { job, outcome, then, .. } => {
                self.run_ended(*job, outcome.state.name());
                if matches!(then, Then::Requeue { .. }) {
                    self.record.forget(*job);
                }
            }
            Event::JobSuspended { job, .. } => self.suspended(*job),
            Event::JobResumed { job } => self.resumed(*job),
            Event::JobPreempted { job, by, then, .. } => {
                let mode = match then {
                    Some(Then::End) => "cancel",
                    Some(Then::Requeue { .. }) => "requeue",
                    None => "suspend",
                };
                let (name, by) = (self.name(*job), self.name(*by));
                self.tell(*job, || What::Preempt { job: name, by, mode });
            }
            Event::JobEnded { job, outcome } => {
                let follows = self.cluster.job(*job).is_some_and(|job| job.spec.is_follower());
                let tasks = self.cluster.job(*job).map_or(1, |job| job.task_count() as u64);
                self.ended += if follows { 0 } else { tasks };
                let ran = self.cluster.job(*job).is_some_and(|job| job.phase.started().is_some());
                if !ran {
                    self.ended_waiting(*job, outcome.state.name());
                }
                self.record.forget(*job);
            }
            Event::NodeReleased { node, .. }
            | Event::NodeRegistered { node, .. }
            | Event::NodeCleaned { node, .. }
            | Event::NodeDowned { node, .. }
            | Event::NodeDrained { node, .. }
            | Event::NodeResumed { node } => self.look(*node),
            Event::NodesMoved { .. } => self.take_measure(),
            _ => {}
        }
    }

    /// A job is over that never ran; of an array each of the tasks that waited.
    fn ended_waiting(&mut self, id: JobId, state: &'static str) {
        if self.watch.wants_events() {
            let names = self.names.each(&self.cluster, id).into_iter();
            names.for_each(|job| self.record.add(id, What::End { job, state }));
        }
    }

    fn look(&mut self, node: NodeId) {
        if let Some(fragmentation) = &mut self.fragmentation {
            fragmentation.look(&self.cluster, node);
        }
    }

    fn started(&mut self, id: JobId, alloc: &Arc<Alloc>) {
        for part in &alloc.nodes {
            self.look(part.node);
        }
        self.busy_cpus += alloc.cpus();
        self.starts += 1;
        let (order, held, pause) = (self.starts, Arc::clone(alloc), Pause::default());
        let live = Live { order, started: self.now, alloc: held, ends: None, pause };
        self.live.insert(id, live);
        let Some(job) = self.cluster.job(id) else { return };
        if !job.spec.is_follower() {
            self.tally.started(id.0, self.now.since(job.submitted));
        }
        if self.watch.wants_events() {
            self.record.forget(id);
            self.record.add(id, record::start(&self.cluster, self.name(id), job, alloc));
        }
    }

    fn run_ended(&mut self, id: JobId, state: &'static str) {
        let Some(live) = self.live.remove(&id) else { return };
        if let Some(at) = live.ends {
            self.ends.remove(&(at, live.order));
        }
        self.busy_cpus -= live.busy_cpus();
        let job = self.name(id);
        let submitted = self.cluster.job(id).map_or(live.started, |job| job.submitted);
        let run = Run {
            job: Arc::clone(&job),
            submitted,
            started: live.started,
            ended: self.now,
            suspended: live.paused(self.now),
            alloc: live.alloc,
        };
        let counts = self.cluster.job(id).is_none_or(|job| !job.spec.is_follower());
        self.tally.ended(counts.then_some(id.0), &run, self.fewest.as_ref());
        self.watch.run_ended(&self.cluster, &run);
        self.tell(id, || What::End { job, state });
    }
}
