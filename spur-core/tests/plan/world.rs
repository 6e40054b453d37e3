//! A cluster built from a few lines, for scripts and random tests.

use std::sync::Arc;

use spur_core::cluster::event::{Entry, Event, Record, Split};
use spur_core::cluster::{Cluster, Node};
use spur_core::id::{JobId, NodeId};
use spur_core::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use spur_core::model::caller::Owner;
use spur_core::model::config::{NodeConfig, PartitionConfig, Policy, PreemptMode};
use spur_core::model::fabric_report::FabricReport;
use spur_core::model::job::{HetPart, Job, JobSpec, Shape};
use spur_core::model::node::{NodeShape, Registration};
use spur_core::model::nomination::Nomination;
use spur_core::model::phase::{EndState, Hold, Outcome, Then};
use spur_core::model::reason::Reason;
use spur_core::model::reservation::{Flag, Members, PURGE_AFTER, Reservation};
use spur_core::model::topology::TopologyConfig;
use spur_core::sched::plan::{Preemption, Start, StartPart};
use spur_core::sched::replace;
use spur_core::text::array::TaskSet;
use spur_core::text::exit::ExitCode;
use spur_core::text::hostlist::HostList;
use spur_core::text::time::{Time, TimeLimit};

/// A cluster with the clock by which its entries are stamped.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) cluster: Cluster,
    pub(crate) now: Time,
    seq: u64,
    log: Vec<Event>,
}

impl World {
    /// Builds a cluster with a policy and all nodes up.
    pub(crate) fn new(policy: Policy) -> Self {
        let mut world =
            Self { cluster: Cluster::of_newest_level(), now: Time::ZERO, seq: 0, log: Vec::new() };
        let nodes = policy.nodes.len();
        world.apply(Event::PolicyChanged { policy: Arc::new(policy), keeps_edits: true });
        for node in (0..nodes).map(|index| NodeId(u32::try_from(index).unwrap())) {
            let shape = (*world.cluster.node(node).unwrap().shape).clone();
            let registration = Arc::new(registration(shape));
            world.apply(Event::NodeRegistered {
                node,
                registration,
                stale: Vec::new(),
                foreign: Vec::new(),
                last_job: None,
            });
        }
        world
    }

    pub(crate) fn apply(&mut self, event: Event) {
        self.seq += 1;
        let entry =
            Entry { seq: self.seq, epoch: 1, at: self.now, request: None, event, record: Record::default() };
        self.cluster.apply(&entry);
        self.log.push(entry.event);
    }

    /// Removes and returns the events since the last call.
    pub(crate) fn take_log(&mut self) -> Vec<Event> {
        std::mem::take(&mut self.log)
    }

    pub(crate) fn submit(&mut self, job: JobId, mut spec: JobSpec) {
        spec.account = spec.account.or_else(|| self.account(&spec.owner.user));
        self.apply(Event::JobSubmitted { job, spec: Arc::new(spec) });
    }

    /// The account of a user, where there are accounts.
    fn account(&self, user: &str) -> Option<Arc<str>> {
        self.cluster.accounts().of_user(user).next().map(|own| Arc::clone(&own.account))
    }

    /// Submits the components of a het job.
    pub(crate) fn submit_het(&mut self, leader: JobId, specs: Vec<JobSpec>) {
        let size = u32::try_from(specs.len()).unwrap();
        let with = |(offset, spec): (u32, JobSpec)| {
            let account = spec.account.clone().or_else(|| self.account(&spec.owner.user));
            let spec = JobSpec { account, ..spec };
            Arc::new(JobSpec { het: Some(Box::new(HetPart { leader, offset, size })), ..spec })
        };
        let jobs = (leader.0..).map(JobId).take(specs.len()).collect();
        let specs: Vec<Arc<JobSpec>> = (0..).zip(specs).map(with).collect();
        self.apply(Event::HetJobSubmitted { jobs, specs });
    }

    /// Starts a job, or all components of a het job, as the controller would: with the lowest free
    /// CPUs and devices.
    pub(crate) fn start(&mut self, start: &Start) {
        start.all().for_each(|start| self.start_one(start));
    }

    fn start_one(&mut self, start: &Start) {
        let part = |part: &spur_core::sched::plan::StartPart| {
            let node = self.cluster.node(part.node).unwrap();
            let partition = self.cluster.partition(&start.partition).unwrap();
            let left = self.cluster.cpus_left(node, &partition.config, &[start.attempt.job]);
            let free = node.free_cpus();
            let cpus = left.map_or(free.clone(), |left| left.among(&free)).lowest(part.cpus);
            assert_eq!(cpus.len(), part.cpus, "{} has the CPUs for job {}", node.name(), start.attempt);
            assert!(node.free_memory_mb() >= part.memory_mb, "{} has the memory", node.name());
            let gres = part.gres.iter().map(|(entry, count)| {
                let ids = node.free_gres(usize::from(*entry)).lowest(*count);
                assert_eq!(ids.len(), *count, "{} has the devices", node.name());
                GresAlloc { entry: *entry, ids, shards: false }
            });
            let gres = gres.collect();
            NodeAlloc { node: part.node, tasks: part.tasks, cpus, memory_mb: part.memory_mb, gres }
        };
        let nodes = start.parts.iter().map(part).collect();
        let alloc = Alloc {
            partition: Arc::clone(&start.partition),
            reservation: start.reservation.clone(),
            time_limit: start.time_limit,
            nodes,
            exclusive: start.exclusive,
            why: start.why.clone(),
            charged: self.cluster.charged_in(&start.spec, &start.partition),
            ..Alloc::default()
        };
        let from = start.attempt.job;
        let job = self.cluster.job(from).unwrap();
        assert_ne!(self.cluster.more_tasks(job), Some(0), "array {} is throttled", job.array_id());
        let split = start.task.filter(|_| self.cluster.job(from).unwrap().task_count() > 1);
        let split = split.map(|task| Split { from, task });
        let job = if split.is_some() { self.cluster.next_job() } else { from };
        self.apply(Event::JobStarted { job, alloc: Arc::new(alloc), split, configuring: Default::default() });
    }

    /// Splits tasks of a record into a record of their own and returns its number.
    pub(crate) fn split(&mut self, from: JobId, tasks: &TaskSet) -> JobId {
        let part = self.cluster.job(from).unwrap().array.as_ref().unwrap();
        if part.tasks == *tasks {
            return from;
        }
        let job = self.cluster.next_job();
        self.apply(Event::TasksSplit { job, from, tasks: tasks.clone() });
        job
    }

    /// Starts a job on given nodes without the planner.
    pub(crate) fn put(&mut self, job: JobId, nodes: &[NodeId], cpus: u32) {
        let part = |node: &NodeId| {
            let free = self.cluster.node(*node).unwrap().free_cpus();
            let cpus = if cpus == 0 { free } else { free.lowest(cpus) };
            NodeAlloc { node: *node, tasks: 1, cpus, memory_mb: 0, gres: Box::default() }
        };
        let partition = Arc::clone(&self.cluster.job(job).unwrap().spec.partitions[0]);
        let nodes = nodes.iter().map(part).collect();
        let charged = self.cluster.charged_in(&self.cluster.job(job).unwrap().spec, &partition);
        let alloc = Alloc { partition, nodes, exclusive: cpus == 0, charged, ..Alloc::default() };
        self.apply(Event::JobStarted {
            job,
            alloc: Arc::new(alloc),
            split: None,
            configuring: Default::default(),
        });
    }

    /// Reserves nodes for a job and preempts its victims, as the controller would. The victims run until they
    /// are ended, which is planned after `grace` seconds.
    pub(crate) fn preempt(&mut self, preemption: &Preemption, grace: u64) {
        let Preemption { start, detail, places, victims, displaces } = preemption;
        let from = start.attempt.job;
        let by = start.task.map_or(from, |task| self.split(from, &TaskSet::from(task.0)));
        for job in displaces {
            self.apply(Event::NominationDropped { job: *job });
        }
        let all = |victim: &spur_core::id::Attempt| self.cluster.jobs().components(victim.job);
        for job in victims.iter().flat_map(all).collect::<Vec<_>>() {
            let suspends = self.preempt_mode(job) == PreemptMode::Suspend;
            let (then, end_at) = ((!suspends).then_some(Then::End), self.now + grace);
            self.apply(Event::JobPreempted { job, by, then, end_at });
        }
        for (start, place) in start.all().zip(places) {
            let nomination = Nomination {
                partition: Arc::clone(&start.partition),
                reservation: start.reservation.clone(),
                parts: start.parts.clone().into(),
                exclusive: start.exclusive,
                why: start.why.clone(),
                detail: detail.as_str().into(),
                place: place.clone(),
                victims: victims.clone().into(),
            };
            let job = if start.attempt.job == from { by } else { start.attempt.job };
            self.apply(Event::JobNominated { job, nomination: Arc::new(nomination) });
        }
        let wrong = spur_core::cluster::invariant::violations(&self.cluster);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// Sets the last node of a started job down, while the job continues without it. Returns the node.
    pub(crate) fn lose(&mut self, job: JobId) -> NodeId {
        let alloc = self.cluster.job(job).and_then(|job| job.phase.alloc()).expect("it has started");
        let node = alloc.nodes.last().expect("it has nodes").node;
        self.apply(Event::NodeDowned { node, reason: "test".into(), silent: true, by: None });
        self.apply(Event::JobNodeLost { job, node, lingers: false });
        node
    }

    /// Replaces lost nodes of running jobs by free nodes, as the controller would.
    pub(crate) fn replace(&mut self) {
        for job in self.cluster.jobs().short().map(|job| job.id).collect::<Vec<_>>() {
            let take = |node: &Node, part: &StartPart, exclusive: bool| {
                let kept = self.cluster.kept(node.id, &[]).any;
                let cpus = node.free_cpus();
                let gres = |(entry, count): &(u16, u32)| {
                    let ids = node.free_gres(usize::from(*entry)).lowest(*count);
                    (ids.len() == *count).then_some(GresAlloc { entry: *entry, ids, shards: false })
                };
                let fits = !kept && cpus.len() >= part.cpus && (!exclusive || node.is_vacant());
                Some(NodeAlloc {
                    node: node.id,
                    tasks: part.tasks,
                    cpus: if exclusive { cpus } else { cpus.lowest(part.cpus) },
                    memory_mb: part.memory_mb,
                    gres: part.gres.iter().map(gres).collect::<Option<_>>()?,
                })
                .filter(|_| fits && part.memory_mb <= node.free_memory_mb())
            };
            if let Some((replaced, why)) = replace::find(&self.cluster, self.now, job, None, &take) {
                self.apply(Event::JobNodesReplaced { job, replaced, why });
            }
        }
        let wrong = spur_core::cluster::invariant::violations(&self.cluster);
        assert!(wrong.is_empty(), "{wrong:?}");
    }

    /// Treatment of a running job that is preempted, from its QOS, its partition or the cluster.
    pub(crate) fn preempt_mode(&self, job: JobId) -> PreemptMode {
        let policy = self.cluster.policy();
        let job = self.cluster.job(job).unwrap();
        let partition = job.phase.alloc().and_then(|alloc| self.cluster.partition(&alloc.partition));
        let qos = policy.qos_of(job.spec.qos.as_deref()).and_then(|qos| qos.preempt_mode);
        qos.or(partition.and_then(|partition| partition.config.preempt_mode)).unwrap_or(policy.preempt.mode)
    }

    /// Ends a job immediately on all its nodes.
    pub(crate) fn end(&mut self, job: JobId) {
        let outcome = Outcome {
            state: EndState::Completed,
            exit: ExitCode::default(),
            reason: Reason::None,
            by: None,
            detail: None,
        };
        let alloc = Arc::clone(self.cluster.job(job).unwrap().phase.alloc().expect("it runs"));
        let ending = Event::JobEnding {
            job,
            outcome: outcome.clone(),
            then: Then::End,
            kill_at: None,
            epilog: false,
            seen: None,
        };
        self.apply(ending);
        for part in &alloc.nodes {
            self.apply(Event::NodeReleased { job, node: part.node, lost: false });
        }
        self.apply(Event::JobEnded { job, outcome });
    }

    /// Ends the reservations that are over, or moves repeating ones forward.
    pub(crate) fn expire(&mut self) {
        let over = self.cluster.reservations().filter(|reservation| reservation.end <= self.now);
        for reservation in over.cloned().collect::<Vec<_>>() {
            match reservation.moved_past(self.now) {
                Some(moved) => self.apply(Event::ReservationUpdated { reservation: Arc::new(moved) }),
                None => self.delete(&reservation.name),
            }
        }
    }

    /// Deletes a reservation. Jobs that wait for it alone are held.
    pub(crate) fn delete(&mut self, name: &Arc<str>) {
        self.apply(Event::ReservationDeleted { name: Arc::clone(name) });
        let waits = |job: &&Job| job.spec.reservations().any(|asked| *asked == **name);
        let waiting: Vec<JobId> = self.cluster.jobs().pending().filter(waits).map(|job| job.id).collect();
        for job in waiting {
            let mut spec = JobSpec::clone(&self.cluster.job(job).unwrap().spec);
            let left: Vec<&str> = spec.reservations().filter(|asked| **asked != **name).collect();
            let left = (!left.is_empty()).then(|| left.join(",").into());
            let is_last = left.is_none();
            spec.extra.get_or_insert_default().reservation = left;
            self.apply(Event::JobUpdated { job, spec: Arc::new(spec) });
            if is_last {
                self.apply(Event::JobHeld { job, by: Hold::Reservation });
            }
        }
    }

    /// Numbers of nodes, by name.
    pub(crate) fn ids(&self, names: &str) -> Vec<NodeId> {
        let names: HostList = names.parse().expect("a hostlist");
        names.iter().map(|name| self.cluster.node_named(&name).expect("a node").id).collect()
    }
}

fn registration(shape: NodeShape) -> Registration {
    Registration {
        shape,
        boot_id: "".into(),
        spool_id: "".into(),
        address: "".into(),
        hostname: "".into(),
        version: "".into(),
        arch: "".into(),
        os: "".into(),
        booted: Time::ZERO,
        started: Time::ZERO,
        peer: Arc::default(),
        containment: Arc::default(),
        fault: Arc::default(),
        fabric: FabricReport::default(),
    }
}

/// Configuration of a node.
pub(crate) fn node(name: &str, shape: NodeShape, weight: u32) -> NodeConfig {
    NodeConfig { name: name.into(), shape, weight, ..NodeConfig::default() }
}

/// Configuration of a partition with the given nodes.
pub(crate) fn partition(name: &str, nodes: Vec<Arc<str>>) -> PartitionConfig {
    PartitionConfig { name: name.into(), nodes, ..PartitionConfig::default() }
}

/// A reservation that every user may use by naming it.
pub(crate) fn reservation(
    name: &str,
    nodes: Vec<NodeId>,
    start: Time,
    end: Time,
    flags: &[Flag],
) -> Reservation {
    Reservation {
        name: name.into(),
        start,
        end,
        lead: None,
        ends_then: false,
        nodes: nodes.into(),
        licenses: Vec::new(),
        partition: None,
        features: None,
        users: Members::default(),
        accounts: Members::default(),
        flags: flags.to_vec(),
        comment: None,
        utc_offset: 0,
        purge_after: PURGE_AFTER,
        idle_since: None,
    }
}

/// Reads a topology from TOML.
pub(crate) fn topology(toml: &str) -> TopologyConfig {
    toml::from_str(toml).expect("a topology")
}

/// A request for the partition `main`.
pub(crate) fn spec(shape: Shape, seconds: u64) -> JobSpec {
    let owner = Owner { uid: 1000, gid: 1000, user: "user".into(), group: "user".into() };
    JobSpec {
        partitions: Box::from(["main".into()]),
        time_limit: TimeLimit::Seconds(seconds),
        ..JobSpec::plain("job".into(), Arc::new(owner), shape)
    }
}
