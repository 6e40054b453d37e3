//! What a workload does, whatever language it was written in.

use std::sync::Arc;

use spur_core::controller::command::Submission;
use spur_core::id::BlobId;
use spur_core::model::caller::Owner;
use spur_core::model::config::Policy;
use spur_core::model::job::{Batch, JobSpec, Shape, Sharing};
use spur_core::sim::NodeState;
use spur_core::text::nodes::NodeCount;
use spur_core::text::time::TimeLimit;

use crate::options::submission;

/// Something that a workload does at a time.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    /// Seconds from the start.
    pub(super) at: u64,
    /// The line it stands on, counted from 1.
    pub(super) line: usize,
    pub(super) what: What,
}

/// What is done.
#[derive(Clone, Debug)]
pub(super) enum What {
    Submit(Box<Arrival>),
    Cancel(Arc<str>),
    Nodes { names: Vec<Arc<str>>, state: NodeState },
    Reconfigure(Arc<Policy>),
    Command(Vec<String>),
}

/// A job that arrives.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// The workload's name for it.
    pub(super) name: Arc<str>,
    pub(super) owner: Arc<Owner>,
    /// How long it would run if nothing stopped it; `None` for ever.
    pub(super) run_time: Option<u64>,
    pub(super) ask: Ask,
}

/// What it asks for.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// What options of `sbatch` say; one set for each component.
    Options(Vec<submission::Submission>),
    /// A shape, and a limit in seconds if there is one.
    Shape(Shape, Option<u64>),
}

/// A workload, ready to be run.
#[derive(Clone, Debug, Default)]
pub(super) struct Workload {
    /// Where it was read from, for complaints.
    pub(super) source: String,
    /// By time; what happens at one time in the order of the workload.
    pub(super) deeds: Vec<Deed>,
    /// Jobs of a trace that say too little of themselves to be run; `None` where there is no trace.
    pub(super) skipped: Option<u64>,
}

impl Workload {
    /// Whether nothing in it can ask for a job: it is all shapes, as in a trace.
    pub(super) fn names_no_jobs(&self) -> bool {
        let is_shape = |what: &What| matches!(what, What::Submit(job) if matches!(job.ask, Ask::Shape(..)));
        self.deeds.iter().all(|deed| is_shape(&deed.what))
    }

    /// Puts deeds in the order of their times, after multiplying those of submissions by `scale`.
    pub(super) fn sort(&mut self, scale: Option<f64>) {
        for deed in &mut self.deeds {
            if let (Some(scale), What::Submit(_)) = (scale, &deed.what) {
                deed.at = scaled(deed.at, scale);
            }
        }
        self.deeds.sort_by_key(|deed| deed.at);
    }
}

/// A time multiplied by a factor, to the nearest second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "times of a simulation are far below 2^52 and not negative; larger ones saturate"
)]
pub(super) fn scaled(at: u64, factor: f64) -> u64 {
    (at as f64 * factor).round() as u64
}

/// Users by the order in which they turn up.
#[derive(Debug, Default)]
pub(super) struct Users {
    known: std::collections::BTreeMap<String, Arc<Owner>>,
}

impl Users {
    /// The number that the first user gets.
    const FIRST: u32 = 1000;

    pub(super) fn owner(&mut self, user: &str) -> Arc<Owner> {
        if let Some(owner) = self.known.get(user) {
            return Arc::clone(owner);
        }
        let uid = Self::FIRST + u32::try_from(self.known.len()).unwrap_or(u32::MAX - Self::FIRST);
        let owner = Arc::new(Owner { uid, gid: Self::FIRST, user: user.into(), group: "users".into() });
        self.known.insert(user.to_owned(), Arc::clone(&owner));
        owner
    }
}

/// What the processors of a trace are on the machine that it runs on.
#[derive(Clone, Copy, Debug)]
pub(super) enum Machine {
    /// Counted, anywhere.
    Flat,
    /// Cores of nodes; `cores` of each where all have the same number.
    Nodes { cores: Option<u32>, exclusive: bool },
}

impl Machine {
    /// The cluster's nodes, as the default partition has them.
    pub(super) fn of(policy: &Policy, exclusive: bool) -> Self {
        let partition =
            policy.partitions.iter().find(|partition| partition.default).or(policy.partitions.first());
        let member = |name: &Arc<str>| partition.is_none_or(|partition| partition.nodes.contains(name));
        let nodes = policy.nodes.iter().filter(|node| member(&node.name));
        let mut cores = nodes.map(|node| node.shape.cpus / node.shape.threads_per_core.max(1));
        let first = cores.next().filter(|cores| *cores > 0);
        let same = first.filter(|first| cores.all(|other| other == *first));
        Machine::Nodes { cores: same, exclusive }
    }

    /// The request of a job of so many processors.
    pub(super) fn shape(self, processors: u32) -> Shape {
        match self {
            Machine::Flat => Shape { tasks: Some(1), cpus_per_task: Some(processors), ..Shape::default() },
            Machine::Nodes { cores, exclusive: true } => Shape {
                nodes: cores.map(|cores| NodeCount::exactly(processors.div_ceil(cores))),
                tasks: Some(processors),
                sharing: Sharing::Exclusive,
                ..Shape::default()
            },
            Machine::Nodes { exclusive: false, .. } => Shape { tasks: Some(processors), ..Shape::default() },
        }
    }
}

/// The submission of a job that is only a shape.
pub(super) fn plain(arrival: &Arrival, shape: Shape, limit: Option<u64>) -> Submission {
    let asked = JobSpec::plain(Arc::clone(&arrival.name), Arc::clone(&arrival.owner), shape);
    // Nobody reads the script of a job that only pretends to run.
    let script = Batch::plain(BlobId(0), BlobId(0));
    let spec = JobSpec { batch: Some(Box::new(script)), ..asked };
    Submission { spec, time_limit: limit.map(TimeLimit::Seconds), requeue: None, rest: Vec::new() }
}
