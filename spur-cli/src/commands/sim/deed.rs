//! Actions of a workload, in a form that does not depend on the workload's format.

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

/// An action of a workload at a time.
#[derive(Clone, Debug)]
pub(super) struct Deed {
    /// Seconds since the start of the simulation.
    pub(super) at: u64,
    /// Number of the action's line, counted from 1.
    pub(super) line: usize,
    pub(super) what: What,
}

/// Kinds of actions.
#[derive(Clone, Debug)]
pub(super) enum What {
    Submit(Box<Arrival>),
    Cancel(Arc<str>),
    Nodes { names: Vec<Arc<str>>, state: NodeState },
    Reconfigure(Arc<Policy>),
    Command(Vec<String>),
}

/// A job that is submitted.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    /// Name of the job in the workload.
    pub(super) name: Arc<str>,
    pub(super) owner: Arc<Owner>,
    /// Seconds that the job runs unless it is stopped; `None` for no end.
    pub(super) run_time: Option<u64>,
    pub(super) ask: Ask,
}

/// Request of a job.
#[derive(Clone, Debug)]
pub(super) enum Ask {
    /// Options of `sbatch`, one set per component.
    Options(Vec<submission::Submission>),
    /// A shape, and a time limit in seconds if there is one.
    Shape(Shape, Option<u64>),
}

/// A workload that is ready to run.
#[derive(Clone, Debug, Default)]
pub(super) struct Workload {
    /// Source of the workload, for messages.
    pub(super) source: String,
    /// Actions by time; those at the same time are in the order of the workload.
    pub(super) deeds: Vec<Deed>,
    /// Number of jobs of a trace without enough information to run; `None` if the workload is not a trace.
    pub(super) skipped: Option<u64>,
}

impl Workload {
    /// True if all actions are submissions of shapes, as in a trace. Nothing then refers to a job by name.
    pub(super) fn names_no_jobs(&self) -> bool {
        let is_shape = |what: &What| matches!(what, What::Submit(job) if matches!(job.ask, Ask::Shape(..)));
        self.deeds.iter().all(|deed| is_shape(&deed.what))
    }

    /// Sorts the actions by time, after scaling the times of submissions by `scale`.
    pub(super) fn sort(&mut self, scale: Option<f64>) {
        for deed in &mut self.deeds {
            if let (Some(scale), What::Submit(_)) = (scale, &deed.what) {
                deed.at = scaled(deed.at, scale);
            }
        }
        self.deeds.sort_by_key(|deed| deed.at);
    }
}

/// Multiplies a time by a factor, rounded to the nearest second.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "times of a simulation are far below 2^52 and not negative; larger ones saturate"
)]
pub(super) fn scaled(at: u64, factor: f64) -> u64 {
    (at as f64 * factor).round() as u64
}

/// Users in the order of their first appearance.
#[derive(Debug, Default)]
pub(super) struct Users {
    known: std::collections::BTreeMap<String, Arc<Owner>>,
}

impl Users {
    /// Uid of the first user.
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

/// Meaning of a trace's processors on the simulated machine.
#[derive(Clone, Copy, Debug)]
pub(super) enum Machine {
    /// Processors are only counted.
    Flat,
    /// Processors are cores of nodes; `cores` is their number per node if all nodes have the same.
    Nodes { cores: Option<u32>, exclusive: bool },
}

impl Machine {
    /// Returns the machine with the nodes of the default partition.
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

    /// Returns the request of a job with this number of processors.
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

/// Returns the submission of a job that consists only of a shape.
pub(super) fn plain(arrival: &Arrival, shape: Shape, limit: Option<u64>) -> Submission {
    let asked = JobSpec::plain(Arc::clone(&arrival.name), Arc::clone(&arrival.owner), shape);
    // The script is never read, because no program runs.
    let script = Batch::plain(BlobId(0), BlobId(0));
    let spec = JobSpec { batch: Some(Box::new(script)), ..asked };
    Submission { spec, time_limit: limit.map(TimeLimit::Seconds), requeue: None, rest: Vec::new() }
}
