//! Snapshots: a cluster as records that a later release can read. Recovery starts from one instead of the
//! whole journal.
//!
//! A snapshot holds decisions, not what is derived from them: indices, free counts and fabrics are
//! recomputed. Records are versioned by their variant names and follow the rules of events: fields are added
//! with defaults, never renamed.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::AccountChange;
use super::history::Lineage;
use super::level::FeatureLevel;
use super::usage::UsageRecord;
use super::{Cluster, EndedTasks, Mark, Names, Node, Partition};
use crate::id::JobId;
use crate::model::config::{PartitionConfig, PartitionState, Policy};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::Phase;
use crate::model::reservation::Reservation;

/// One record of a snapshot. The order is: the feature level, the mark, the policy, the lineage, then the
/// rest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Record {
    /// The feature level of the cluster, if it is not the oldest. It comes first, so that a program that does
    /// not know the level refuses the snapshot.
    FeatureLevel(FeatureLevel),
    /// Position of the snapshot in the journal.
    Mark(Mark),
    /// The identity of the journal.
    Lineage(Box<Lineage>),
    /// The policy in force.
    Policy(Arc<Policy>),
    /// A record of the policy tree.
    Account(AccountChange),
    /// The largest numbers ever given to associations and QOS. Comes after the records of the tree.
    AccountNumbers {
        /// The largest number of an association.
        association: u32,
        /// The largest number of a QOS.
        qos: u32,
    },
    /// A record of usage. Comes after the policy tree.
    Usage(UsageRecord),
    /// A node with its state.
    Node(Box<Node>),
    /// A partition. If there are any such records, a partition of the policy that has none is deleted.
    Partition {
        /// The name of the partition.
        name: Arc<str>,
        /// The state of the partition.
        state: PartitionState,
        /// The configuration, if it differs from the policy's in more than the state.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        config: Option<Box<PartitionConfig>>,
    },
    /// A reservation of nodes and time.
    Reservation(Arc<Reservation>),
    /// A job record that has not left memory.
    Job(Box<Job>),
    /// Tasks of an array that have ended, those whose records have left memory included. Comes after the
    /// jobs.
    Array {
        /// The number of the array.
        id: JobId,
        /// The tasks by outcome.
        ended: EndedTasks,
    },
}

/// All records of a cluster, made one at a time.
pub fn records(cluster: &Cluster) -> impl Iterator<Item = Record> + '_ {
    let known = cluster.lineage.history.is_some();
    let lineage = known.then(|| Record::Lineage(Box::new(Lineage::clone(&cluster.lineage))));
    let level =
        (cluster.feature_level > FeatureLevel::OLDEST).then_some(Record::FeatureLevel(cluster.feature_level));
    let head = [Record::Mark(cluster.mark), Record::Policy(Arc::clone(&cluster.policy))];
    let accounts = cluster.accounts.records().map(Record::Account);
    let (association, qos) = cluster.accounts.last_numbers();
    let numbers = cluster.accounts.has_begun().then_some(Record::AccountNumbers { association, qos });
    let nodes = cluster.nodes.iter().map(|node| Record::Node(Box::new(node.clone())));
    let partitions = cluster.partitions.iter().map(|partition| {
        let (name, state) = (Arc::clone(partition.name()), partition.config.state);
        let said = cluster.policy.partitions.iter().find(|said| said.name == name);
        let said = said.map(|said| PartitionConfig { state, ..said.clone() });
        let config = (said.as_ref() != Some(&partition.config)).then(|| Box::new(partition.config.clone()));
        Record::Partition { name, state, config }
    });
    let reservations = cluster.reservations.values().map(|kept| Record::Reservation(Arc::clone(kept)));
    let jobs = cluster.jobs.iter().map(|job| Record::Job(Box::new(job.clone())));
    let arrays = cluster.jobs.arrays().filter(|(_, array)| !array.ended().is_empty());
    let arrays = arrays.map(|(id, array)| Record::Array { id, ended: array.ended().clone() });
    level
        .into_iter()
        .chain(head)
        .chain(lineage)
        .chain(accounts)
        .chain(numbers)
        .chain(cluster.usage.records().map(Record::Usage))
        .chain(nodes)
        .chain(partitions)
        .chain(reservations)
        .chain(jobs)
        .chain(arrays)
}

/// Builds a cluster from the records of a snapshot.
#[derive(Debug, Default)]
pub struct Restore {
    cluster: Cluster,
    names: Names,
    /// Requests of arrays, for their tasks to share.
    arrays: BTreeMap<JobId, Arc<JobSpec>>,
    /// Partitions for which the snapshot has records; others of the policy have been deleted.
    partitions: Vec<PartitionConfig>,
}

impl Restore {
    /// Adds the next record; records come in the order of [`records`].
    pub fn push(&mut self, record: Record) {
        match record {
            Record::FeatureLevel(level) => self.cluster.feature_level = level,
            Record::Mark(mark) => self.cluster.mark = mark,
            Record::Lineage(lineage) => self.cluster.lineage = Arc::new(*lineage),
            Record::Policy(policy) => self.cluster.policy = policy,
            Record::Account(record) => Arc::make_mut(&mut self.cluster.accounts).apply(&record),
            Record::AccountNumbers { association, qos } => {
                Arc::make_mut(&mut self.cluster.accounts).restore_numbers(association, qos);
            }
            Record::Usage(record) => self.cluster.usage.restore(record),
            Record::Node(node) => {
                self.cluster.names.insert(Arc::clone(node.name()), node.id);
                self.cluster.powered.extend(node.power.is_some().then_some(node.id));
                self.cluster.unheard.extend(node.unheard.then_some(node.id));
                self.cluster.nodes.push(*node);
            }
            Record::Partition { name, state, config } => {
                let said = self.cluster.policy.partitions.iter().find(|said| said.name == name);
                let config = config.map(|config| *config).or_else(|| said.cloned());
                self.partitions.extend(config.map(|config| PartitionConfig { state, ..config }));
            }
            Record::Reservation(reservation) => {
                self.cluster.reservations.insert(Arc::clone(&reservation.name), reservation);
            }
            Record::Job(mut job) => {
                self.names.share(&mut job.spec);
                self.share_with_siblings(&mut job);
                self.cluster.restore_job(*job);
            }
            Record::Array { id, ended } => self.cluster.jobs.restore_ended(id, &ended),
        }
    }

    /// Returns the restored cluster, with its derived tables rebuilt.
    #[must_use]
    pub fn finish(mut self) -> Cluster {
        if self.partitions.is_empty() {
            self.partitions.clone_from(&self.cluster.policy.partitions);
        }
        self.cluster.partitions = self.partitions.into_iter().map(Partition::of).collect();
        self.cluster.derive();
        self.cluster.take_qos_of_tree();
        self.cluster.count_all();
        self.cluster
    }

    /// Lets array tasks with equal requests share one request again.
    fn share_with_siblings(&mut self, job: &mut Job) {
        let Some(part) = &job.array else { return };
        match self.arrays.get(&part.id) {
            Some(known) if **known == *job.spec => job.spec = Arc::clone(known),
            Some(_) | None => drop(self.arrays.insert(part.id, Arc::clone(&job.spec))),
        }
    }
}

impl Cluster {
    fn restore_job(&mut self, job: Job) {
        let exclusive = matches!(&job.phase, Phase::Running { alloc, .. } if alloc.exclusive)
            || matches!(&job.phase, Phase::Completing(ending) if ending.alloc.exclusive && !ending.suspended);
        for node in job.phase.alloc().into_iter().flat_map(|alloc| &alloc.nodes).map(|part| part.node) {
            let Some(part) = job.phase.holds_on(node) else { continue };
            if let Some(node) = self.nodes.get_mut(node.index()) {
                node.take(job.id, &part, exclusive);
            }
        }
        let (id, nomination) = (job.id, job.nomination().cloned());
        self.jobs.insert(Arc::new(job));
        self.tell_nodes(id, nomination.as_deref(), true);
    }
}
