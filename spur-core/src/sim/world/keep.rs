//! Updates of runs, records and counts after each event of the cluster.

use std::sync::Arc;

use super::pause::Pause;
use super::{Live, Watch, World};
use crate::cluster::Event;
use crate::id::{JobId, NodeId};
use crate::model::alloc::{Alloc, Replacement};
use crate::model::phase::Then;
use crate::sim::event::What;
use crate::sim::metrics::Run;
use crate::sim::record;

impl<W: Watch> World<W> {
    /// Updates the simulation after an event of the cluster.
    pub(super) fn note(&mut self, event: &Event) {
        if !self.discreet {
            self.truth.note(&self.cluster, event);
        }
        self.planner.note(&self.cluster, event);
        match event {
            Event::JobStarted { job, alloc, .. } => self.started(*job, alloc),
            Event::JobEnding { job, outcome, then, .. } => {
                self.run_ended(*job, outcome.state.name());
                if matches!(then, Then::Requeue { .. }) {
                    self.record.forget(*job);
                    self.returning.insert(*job);
                } else {
                    self.returning.remove(job);
                }
            }
            // A requeued job that had ended is no longer over.
            Event::JobRequeued { job, .. } if !self.returning.remove(job) => {
                self.over.forget(*job);
                self.ended = self.ended.saturating_sub(self.count_of(*job));
            }
            Event::JobNodeLost { job, node, .. } => self.nodes_changed(*job, &[*node], &[]),
            Event::JobNodesReplaced { job, replaced, .. } => {
                let nodes: Vec<NodeId> = replaced.iter().map(|one| one.part.node).collect();
                self.nodes_changed(*job, &nodes, replaced);
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
                self.over.note(&self.cluster, *job, outcome.state);
                self.ended += self.count_of(*job);
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
            | Event::NodeResumed { node }
            | Event::NodeMended { node }
            | Event::PowerChanged { node, .. } => self.look(*node),
            Event::NodesMoved { .. } => self.take_measure(),
            _ => {}
        }
    }

    /// Number of jobs that a record counts as. A het job counts once.
    fn count_of(&self, id: JobId) -> u64 {
        let job = self.cluster.job(id);
        job.map_or(1, |job| if job.spec.is_follower() { 0 } else { job.task_count() as u64 })
    }

    /// Records the end of a job that never ran; for an array record, of each task that was pending.
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
        let cpus = alloc.cpus();
        self.busy_cpus += cpus;
        self.starts += 1;
        let (order, held, pause) = (self.starts, Arc::clone(alloc), Pause::default());
        let (started, since, before) = (self.now, self.now, 0);
        let fewest = self.fewest.clone();
        let live = Live { order, started, alloc: held, since, before, cpus, fewest, ends: None, pause };
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

    /// The run as it was up to the present time.
    fn run(&self, id: JobId, live: &Live) -> Run {
        Run {
            job: self.name(id),
            submitted: self.cluster.job(id).map_or(live.started, |job| job.submitted),
            started: live.started,
            ended: self.now,
            suspended: live.paused(self.now),
            since: live.since,
            before: live.before,
            alloc: Arc::clone(&live.alloc),
            cpus: live.cpus,
        }
    }

    /// Updates a run that lost or got nodes.
    fn nodes_changed(&mut self, id: JobId, nodes: &[NodeId], replaced: &[Replacement]) {
        nodes.iter().for_each(|node| self.look(*node));
        let alloc = self.cluster.job(id).and_then(|job| job.phase.alloc()).cloned();
        let Some((alloc, live)) = alloc.zip(self.live.get(&id)) else { return };
        let run = self.run(id, live);
        if self.now > live.since {
            self.tally.held(&run, live.fewest.as_deref());
            self.watch.nodes_changed(&self.cluster, &run);
        }
        let Some(live) = self.live.get_mut(&id) else { return };
        self.busy_cpus -= live.busy_cpus();
        (live.since, live.before, live.cpus) = (self.now, live.ran(self.now), alloc.cpus());
        self.busy_cpus += live.busy_cpus();
        live.fewest.clone_from(&self.fewest);
        live.alloc = alloc;
        if self.watch.wants_events()
            && let Some(job) = self.cluster.job(id)
        {
            for one in replaced {
                self.record.add(id, record::replace(&self.cluster, self.name(id), job, one.lost));
            }
        }
    }

    fn run_ended(&mut self, id: JobId, state: &'static str) {
        let Some(live) = self.live.remove(&id) else { return };
        if let Some(at) = live.ends {
            self.ends.remove(&(at, live.order));
        }
        self.busy_cpus -= live.busy_cpus();
        let run = self.run(id, &live);
        let counts = self.cluster.job(id).is_none_or(|job| !job.spec.is_follower());
        self.tally.ended(counts.then_some(id.0), &run, live.fewest.as_deref());
        self.watch.run_ended(&self.cluster, &run);
        self.tell(id, || What::End { job: run.job, state });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::command::Submission;
    use crate::id::BlobId;
    use crate::model::caller::Owner;
    use crate::model::config::{NodeConfig, PartitionConfig, Policy};
    use crate::model::job::{Batch, JobSpec, Shape};
    use crate::model::node::NodeShape;
    use crate::sim::{PassMode, Summary};
    use crate::text::time::{Seconds, Time};

    struct Nobody;

    impl Watch for Nobody {
        fn wants_reasons(&self) -> bool {
            false
        }
    }

    /// Runs many jobs one after another on one CPU; returns the metrics and the number of jobs that the
    /// cluster still knows.
    fn run(jobs: u64, forgets: bool) -> (Summary, usize) {
        let name: Arc<str> = "machine".into();
        let shape = NodeShape {
            cpus: 1,
            sockets: 1,
            cores_per_socket: 1,
            threads_per_core: 1,
            ..NodeShape::default()
        };
        let members = vec![Arc::clone(&name)];
        let partition = PartitionConfig {
            name: Arc::clone(&name),
            nodes: members,
            default: true,
            ..PartitionConfig::default()
        };
        let mut policy = Policy {
            nodes: vec![NodeConfig { name: Arc::clone(&name), shape, weight: 1, ..NodeConfig::default() }],
            partitions: vec![partition],
            ..Policy::default()
        };
        policy.jobs.min_job_age = Seconds(30);
        let mut world =
            World::new(Arc::new(policy), PassMode::Timestamp, Nobody).expect("it can be put in force");
        if forgets {
            world.forget_finished();
        }
        let owner = Arc::new(Owner { uid: 1000, gid: 1000, user: "ann".into(), group: "users".into() });
        for job in 0..jobs {
            let at = Time(i64::try_from(job * 7).expect("a small number"));
            while let Some(next) = world.next().filter(|next| *next < at) {
                world.advance(next);
                world.settle();
            }
            world.advance(at);
            let shape = Shape { tasks: Some(1), ..Shape::default() };
            let spec = JobSpec::plain(job.to_string().into(), Arc::clone(&owner), shape);
            let script = Batch::plain(BlobId(0), BlobId(0));
            let spec = JobSpec { batch: Some(Box::new(script)), ..spec };
            let submission = Submission { spec, time_limit: None, requeue: None, rest: Vec::new() };
            world.submit(job.to_string().into(), Arc::clone(&owner), submission, Some(5));
            world.settle();
        }
        while let Some(next) = world.next() {
            world.advance(next);
            world.settle();
        }
        (world.summary(), world.cluster().jobs().len())
    }

    #[test]
    fn what_is_forgotten_makes_no_difference() {
        let (all, kept) = run(2_500, false);
        let (same, known) = run(2_500, true);
        assert_eq!(all, same);
        assert_eq!((all.started, kept), (2_500, 2_500));
        assert!(known < 1_000, "{known} jobs are known, of which 500 are over since the last were forgotten");
    }
}
