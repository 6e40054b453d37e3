//! The state of a cluster: every job, node and partition, and how they relate.
//!
//! A [`Cluster`] changes only by [`apply`](Cluster::apply) of an [`Entry`], which never fails and uses no
//! clock, no configuration file and no randomness. Owner, planner and readers each have a cluster of their
//! own, and agree as soon as they have applied the same entries. Replaying a journal gives the same cluster.

pub mod accounts;
mod apply;
mod arrays;
pub mod counters;
mod cpus_left;
mod dependency;
pub(crate) mod dependents;
pub mod event;
pub mod fair_share;
pub mod history;
mod holder;
pub mod invariant;
mod jobs;
pub mod level;
pub mod limit_use;
pub mod limits;
mod lost;
mod names;
mod node;
mod nominate;
mod partition;
mod places;
mod policy;
pub mod reported;
mod reserve;
mod shared_map;
pub mod sight;
pub mod snapshot;
mod suspend;
pub mod tres;
mod unheard;
pub mod usage;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use serde::{Deserialize, Serialize};

pub use accounts::{AccountChange, Accounts, Placed};
pub use arrays::{Array, EndedTasks};
pub use counters::Counters;
pub use cpus_left::CpusLeft;
pub use dependency::Loop;
pub use event::{Entry, Event, PlacesByTopology, Record, Scope, Split};
pub use holder::Holder;
pub use jobs::Jobs;
pub use level::FeatureLevel;
pub use names::Names;
pub use node::{Node, Past, Specialized, Used};
pub use nominate::Kept;
pub use partition::Partition;
pub use suspend::ClaimOrder;

use self::history::Lineage;
use self::limits::KnownRules;
use self::usage::Usage;
use crate::id::{JobId, NodeId};
use crate::model::alloc::NodeAlloc;
use crate::model::config::Policy;
use crate::model::fabric::{Fabric, Pos};
use crate::model::idset::IdSet;
use crate::model::job::{Job, JobSpec};
use crate::model::reservation::Reservation;
use crate::text::time::Time;

/// The state of a cluster after some entry of its journal.
#[derive(Clone, Debug, Default)]
pub struct Cluster {
    mark: Mark,
    lineage: Arc<Lineage>,
    feature_level: FeatureLevel,
    policy: Arc<Policy>,
    nodes: Vec<Node>,
    /// Nodes with a power action under way on their host.
    powered: BTreeSet<NodeId>,
    /// Nodes that were in service when the current controller opened the journal, and have neither registered
    /// nor been set down since.
    unheard: BTreeSet<NodeId>,
    names: BTreeMap<Arc<str>, NodeId>,
    partitions: Vec<Partition>,
    topologies: Vec<Topology>,
    reservations: BTreeMap<Arc<str>, Arc<Reservation>>,
    accounts: Arc<Accounts>,
    usage: Usage,
    counters: Arc<Counters>,
    jobs: Jobs,
    /// Number of times a dependency was judged because of another job; a figure, not part of the state.
    settled: u64,
    derived: Derived,
}

/// Data that are derived from the cluster at their first use, and dropped whenever their sources change.
#[derive(Clone, Debug, Default)]
struct Derived {
    /// Data of a module above.
    by_user: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// The nodes whose reports differ from their places; see [`reported::differences`].
    reported: OnceLock<Arc<BTreeMap<NodeId, String>>>,
    /// The names of all devices of configured nodes.
    gres_names: OnceLock<Arc<BTreeSet<Arc<str>>>>,
    /// The limits of the users whose jobs were judged last.
    rules: Arc<KnownRules>,
}

/// Position of a cluster in its journal, and the last numbers it has given out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The last entry applied; 0 for none.
    pub seq: u64,
    /// The epoch of the last entry.
    pub epoch: u64,
    /// Time of the last entry.
    pub at: Time,
    /// The largest job number ever used.
    pub last_job: JobId,
    /// Number of reservations ever created.
    #[serde(default)]
    pub last_reservation: u32,
    /// The last entry that changed topologies, node places or node properties; 0 for none.
    #[serde(default)]
    pub ground: u64,
}

/// A named topology and its fabric.
#[derive(Clone, Debug)]
pub struct Topology {
    /// The name; `default` for `[topology]`.
    pub name: Arc<str>,
    /// The nodes and domains of the topology.
    pub fabric: Arc<Fabric>,
}

impl Cluster {
    /// The number of the last entry applied; 0 for none.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.mark.seq
    }

    /// The last entry that changed what jobs are placed on: the topologies, the places of nodes, or node
    /// properties. A start that was planned before it may put a job where it must not run.
    #[must_use]
    pub fn ground(&self) -> u64 {
        self.mark.ground
    }

    /// The epoch of the last entry.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.mark.epoch
    }

    /// The time of the last entry.
    #[must_use]
    pub fn at(&self) -> Time {
        self.mark.at
    }

    /// The number that the next job gets.
    #[must_use]
    pub fn next_job(&self) -> JobId {
        JobId(self.mark.last_job.0 + 1)
    }

    /// The number of the next reservation; a reservation without a name gets a name that ends in it.
    #[must_use]
    pub fn next_reservation(&self) -> u32 {
        self.mark.last_reservation + 1
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// All nodes ever configured, by number.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The names of all devices of configured nodes, such as `gpu`.
    #[must_use]
    pub fn gres_names(&self) -> &BTreeSet<Arc<str>> {
        let names = || {
            let configured = self.nodes.iter().filter(|node| node.configured);
            Arc::new(
                configured.flat_map(|node| node.shape.gres.iter().map(|gres| gres.name.clone())).collect(),
            )
        };
        self.derived.gres_names.get_or_init(names)
    }

    /// The node of this number; `None` if there is none.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// Nodes with a power action under way on their host.
    pub fn powered(&self) -> impl Iterator<Item = &Node> {
        self.powered.iter().filter_map(|id| self.node(*id))
    }

    /// The node of this name, if the configuration or a command ever created it.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.names.get(name).and_then(|id| self.node(*id))
    }

    /// All partitions, in file order.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// The partition of this name; `None` if there is none.
    #[must_use]
    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|partition| &**partition.name() == name)
    }

    /// The partition of jobs that name none; `None` if no partition is the default.
    #[must_use]
    pub fn default_partition(&self) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.config.default)
    }

    /// All topologies, in file order.
    #[must_use]
    pub fn topologies(&self) -> &[Topology] {
        &self.topologies
    }

    /// The topology of this name; `None` if there is none.
    #[must_use]
    pub fn topology(&self, name: &str) -> Option<&Topology> {
        self.topologies.iter().find(|topology| &*topology.name == name)
    }

    /// The fabric on which jobs of a partition are placed unless they name another topology; `None` without a
    /// topology.
    #[must_use]
    pub fn fabric_of(&self, partition: &Partition) -> Option<&Arc<Fabric>> {
        partition.topology.and_then(|at| self.topologies.get(at)).map(|topology| &topology.fabric)
    }

    /// Number of domains that `nodes` touch, by layer name, in the fabric on which a job is placed.
    #[must_use]
    pub fn spans(&self, job: &Job, nodes: &[NodeId]) -> Vec<(Arc<str>, u32)> {
        let named = job.spec.fabric.as_ref().and_then(|wish| wish.topology.as_deref());
        let named = named.and_then(|name| self.topology(name)).map(|topology| &topology.fabric);
        let partition = job.spec.partitions.first().and_then(|name| self.partition(name));
        let Some(fabric) = named.or_else(|| self.fabric_of(partition?)) else {
            return vec![("node".into(), u32::try_from(nodes.len()).unwrap_or(u32::MAX))];
        };
        let mut positions: Vec<Pos> = nodes.iter().filter_map(|node| fabric.pos(*node)).collect();
        positions.sort_unstable();
        positions.dedup();
        let names = fabric.layer_names().iter().map(|name| Arc::from(name.as_str()));
        names.zip(fabric.spans(&positions)).collect()
    }

    /// All reservations of nodes and time, by name.
    pub fn reservations(&self) -> impl Iterator<Item = &Arc<Reservation>> {
        self.reservations.values()
    }

    /// The reservation of this name; `None` if there is none.
    #[must_use]
    pub fn reservation(&self, name: &str) -> Option<&Arc<Reservation>> {
        self.reservations.get(name)
    }

    /// Refuses a request with which a job would wait for itself, directly or through other jobs.
    ///
    /// # Errors
    /// [`Loop::Circular`], or [`Loop::TooLong`] if there are more dependencies than are followed.
    pub fn check_loops(&self, job: &Job, spec: &JobSpec) -> Result<(), Loop> {
        dependency::check_loops(job, spec, &self.jobs)
    }

    /// Number of times a dependency was judged because of another job, since this copy was made.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// The table of jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The jobs that have changed since the last call, in ascending order, removed ones included. The first
    /// call starts the list and returns all jobs.
    pub fn take_changed_jobs(&mut self) -> BTreeSet<JobId> {
        self.jobs.take_changed()
    }

    /// The job of this number; `None` if no record has it.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// The value that `derive` computes from everything but the jobs: computed once, and kept until a policy,
    /// a node or a partition changes. Only one type is kept at a time.
    pub(crate) fn standing<T: Any + Send + Sync>(&self, derive: impl Fn(&Self) -> T) -> Arc<T> {
        let kept = self.derived.by_user.get_or_init(|| Arc::new(derive(self)));
        Arc::clone(kept).downcast().unwrap_or_else(|_| Arc::new(derive(self)))
    }

    /// The CPUs of a job on a node to which its tasks may be bound. Each core gives only as many threads as
    /// the job uses.
    #[must_use]
    pub fn task_cpus(&self, job: &Job, part: &NodeAlloc) -> IdSet {
        let cores = job.spec.shape.cores.as_ref().filter(|cores| cores.threads_per_core.is_some());
        let (Some(cores), Some(node)) = (cores, self.node(part.node)) else { return part.cpus.clone() };
        let (there, used) = (node.shape.threads_per_core.max(1), cores.threads(&node.shape));
        part.cpus.iter().filter(|cpu| cpu % there < used).collect()
    }

    /// The names of nodes, in the order given.
    pub fn names_of<'a>(
        &'a self,
        nodes: impl IntoIterator<Item = NodeId> + 'a,
    ) -> impl Iterator<Item = &'a str> {
        nodes.into_iter().filter_map(|id| self.node(id)).map(|node| &**node.name())
    }
}
