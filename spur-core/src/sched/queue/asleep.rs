//! Jobs of the queue that wait for a limit of associations or QOS, by limit and by the amount that they ask
//! for.
//!
//! A limit that leaves too little for a job leaves too little for every job that asks for no less. So a quick
//! pass looks at the first job of each group only, and at the next one if the first is not stopped any more.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::limits::Rule;
use crate::id::JobId;

use super::chunks::Key;

/// A limit that stops jobs. Limits with equal holder, kind, resource and value are one lane.
#[derive(Clone, Debug)]
pub(crate) struct Lane(pub(crate) Arc<Rule>);

impl Ord for Lane {
    fn cmp(&self, other: &Self) -> Ordering {
        let (one, other) = (&*self.0, &*other.0);
        let by_value = || (one.kind, one.most).cmp(&(other.kind, other.most));
        one.holder.cmp(&other.holder).then_with(by_value).then_with(|| one.tres.cmp(&other.tres))
    }
}

impl PartialOrd for Lane {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Lane {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Lane {}

/// A limit, and the amount that jobs ask for; `None` for jobs that exceed a limit by themselves, whatever
/// runs.
pub(crate) type Group = Option<(Lane, u128)>;

/// The jobs that wait for limits and need not be looked at before the limits leave more.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asleep {
    groups: BTreeMap<(Lane, u128), BTreeSet<Key>>,
    jobs: BTreeMap<JobId, (Key, Group)>,
}

impl Asleep {
    /// Adds a job that need not be looked at.
    pub(super) fn insert(&mut self, key: Key, group: Group) {
        self.remove(key.job);
        if let Some(group) = &group {
            self.groups.entry(group.clone()).or_default().insert(key);
        }
        self.jobs.insert(key.job, (key, group));
    }

    /// Removes a job. Returns true if the job was there.
    pub(super) fn remove(&mut self, job: JobId) -> bool {
        let Some((key, group)) = self.jobs.remove(&job) else { return false };
        if let Some(group) = group
            && let Some(keys) = self.groups.get_mut(&group)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.groups.remove(&group);
            }
        }
        true
    }

    /// The first job of each group, by place in the queue.
    pub(crate) fn firsts(&self) -> BTreeMap<Key, (Lane, u128)> {
        self.groups.iter().filter_map(|(group, keys)| Some((*keys.first()?, group.clone()))).collect()
    }

    /// The first job of a group behind a place in the queue; `None` if there is none.
    pub(crate) fn after(&self, group: &(Lane, u128), key: Key) -> Option<Key> {
        let behind = (std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded);
        self.groups.get(group)?.range(behind).next().copied()
    }
}
