//! What is true: every job, node and partition, and how they hang together.
//!
//! A [`Cluster`] changes only by [`apply`](Cluster::apply) of an [`Entry`], which is total and blind: no clock, no
//! configuration file, no chance. So the owner, the planner and the readers, each with a cluster of its own, agree
//! whenever they have applied the same entries; and a journal read again gives the same cluster.

pub mod accounts;
mod apply;
mod arrays;
pub mod counters;
mod dependency;
pub(crate) mod dependents;
pub mod event;
pub mod fair_share;
pub mod history;
mod holder;
pub mod invariant;
mod jobs;
pub mod limit_use;
pub mod limits;
mod lost;
mod names;
mod node;
mod nominate;
mod partition;
mod places;
mod policy;
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
pub use dependency::Loop;
pub use event::{Entry, Event, Record, Scope, Split};
pub use holder::Holder;
pub use jobs::Jobs;
pub use names::Names;
pub use node::{Node, Past, Specialized, Used};
pub use nominate::Kept;
pub use partition::Partition;
pub use suspend::ClaimOrder;

use self::history::Lineage;
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
    policy: Arc<Policy>,
    nodes: Vec<Node>,
    /// Nodes to whose hosts something is done.
    powered: BTreeSet<NodeId>,
    /// Nodes that were in service when the current controller opened the journal, and have neither registered nor been
    /// taken down since.
    unheard: BTreeSet<NodeId>,
    names: BTreeMap<Arc<str>, NodeId>,
    partitions: Vec<Partition>,
    topologies: Vec<Topology>,
    reservations: BTreeMap<Arc<str>, Arc<Reservation>>,
    accounts: Arc<Accounts>,
    usage: Usage,
    counters: Arc<Counters>,
    jobs: Jobs,
    /// How often dependencies were looked at because something happened to another job: a figure, not part of the state.
    settled: u64,
    derived: Derived,
}

/// What a room above has made of what stands; empty again whenever that changes.
#[derive(Clone, Debug, Default)]
struct Derived(OnceLock<Arc<dyn Any + Send + Sync>>);

/// Where in the journal a cluster is, and the numbers it hands out next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mark {
    /// The last entry applied; 0 for none.
    pub seq: u64,
    /// The reign it belongs to.
    pub epoch: u64,
    /// Its time.
    pub at: Time,
    /// The largest job number ever used.
    pub last_job: JobId,
    /// How many reservations there have been.
    #[serde(default)]
    pub last_reservation: u32,
    /// The last entry that put nodes elsewhere or made something else of them; 0 for none.
    #[serde(default)]
    pub ground: u64,
}

/// A named topology and its fabric.
#[derive(Clone, Debug)]
pub struct Topology {
    /// Its name; `default` for `[topology]`.
    pub name: Arc<str>,
    /// Its nodes and domains.
    pub fabric: Arc<Fabric>,
}

impl Cluster {
    /// The last entry applied; 0 for none.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.mark.seq
    }

    /// The last entry that changed the ground on which jobs are placed: the topologies, where nodes are in them, and what
    /// nodes are. A start that was planned on another ground may be where its job must not be.
    #[must_use]
    pub fn ground(&self) -> u64 {
        self.mark.ground
    }

    /// The reign of the last entry.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.mark.epoch
    }

    /// The time of the last entry.
    #[must_use]
    pub fn at(&self) -> Time {
        self.mark.at
    }

    /// The number the next job gets.
    #[must_use]
    pub fn next_job(&self) -> JobId {
        JobId(self.mark.last_job.0 + 1)
    }

    /// The number of the next reservation, which its name ends in if it is given none.
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

    /// One node.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id.index())
    }

    /// The nodes to whose hosts something is done.
    pub fn powered(&self) -> impl Iterator<Item = &Node> {
        self.powered.iter().filter_map(|id| self.node(*id))
    }

    /// A node by its name, if the configuration names it or ever named it.
    #[must_use]
    pub fn node_named(&self, name: &str) -> Option<&Node> {
        self.names.get(name).and_then(|id| self.node(*id))
    }

    /// All partitions, in file order.
    #[must_use]
    pub fn partitions(&self) -> &[Partition] {
        &self.partitions
    }

    /// A partition by its name.
    #[must_use]
    pub fn partition(&self, name: &str) -> Option<&Partition> {
        self.partitions.iter().find(|partition| &**partition.name() == name)
    }

    /// The partition of jobs that name none.
    #[must_use]
    pub fn default_partition(&self) -> Option<&Partition> {
        self.partitions.iter().find(|partition| partition.config.default)
    }

    /// All topologies, in file order.
    #[must_use]
    pub fn topologies(&self) -> &[Topology] {
        &self.topologies
    }

    /// A topology by its name.
    #[must_use]
    pub fn topology(&self, name: &str) -> Option<&Topology> {
        self.topologies.iter().find(|topology| &*topology.name == name)
    }

    /// The fabric that jobs of a partition are placed on unless they say otherwise.
    #[must_use]
    pub fn fabric_of(&self, partition: &Partition) -> Option<&Arc<Fabric>> {
        partition.topology.and_then(|at| self.topologies.get(at)).map(|topology| &topology.fabric)
    }

    /// Domains that nodes touch, in the fabric that a job is placed on: for each layer its name and how many.
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

    /// A reservation by its name.
    #[must_use]
    pub fn reservation(&self, name: &str) -> Option<&Arc<Reservation>> {
        self.reservations.get(name)
    }

    /// Refuses a request with which a job would wait for itself, by way of what others wait for.
    ///
    /// # Errors
    /// Also a request that leads to more dependencies than are followed.
    pub fn check_loops(&self, job: &Job, spec: &JobSpec) -> Result<(), Loop> {
        dependency::check_loops(job, spec, &self.jobs)
    }

    /// How often a dependency was looked at because something happened to another job, since this copy was made.
    #[must_use]
    pub fn settled(&self) -> u64 {
        self.settled
    }

    /// The table of jobs.
    #[must_use]
    pub fn jobs(&self) -> &Jobs {
        &self.jobs
    }

    /// The jobs that have changed since the last call, in ascending order; a job that is gone is among them. The first
    /// call returns all jobs. Until that call no list is kept.
    pub fn take_changed_jobs(&mut self) -> BTreeSet<JobId> {
        self.jobs.take_changed()
    }

    /// One job.
    #[must_use]
    pub fn job(&self, id: JobId) -> Option<&Job> {
        self.jobs.get(id)
    }

    /// What `derive` makes of what stands, that is of everything but the jobs: made once, and kept until a policy, a node
    /// or a partition changes. It is kept for one type at a time.
    pub(crate) fn standing<T: Any + Send + Sync>(&self, derive: impl Fn(&Self) -> T) -> Arc<T> {
        let kept = self.derived.0.get_or_init(|| Arc::new(derive(self)));
        Arc::clone(kept).downcast().unwrap_or_else(|_| Arc::new(derive(self)))
    }

    /// The CPUs of a job on a node to which its tasks may be bound: of each core only as many threads as the job uses.
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
