//! Index of the jobs that wait for others, by the jobs that they wait for, and by name for `singleton`.
//!
//! [`Jobs`](super::Jobs) keeps one, and so does the order of pending jobs. The end of a job costs in
//! proportion to the jobs that wait for it, not to what else these wait for. Records of one array that share
//! their terms are entered once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::JobId;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::Phase;
use crate::model::waits::{WaitList, Waits};

/// Index of the jobs that wait for others; see the module.
#[derive(Clone, Debug, Default)]
pub(crate) struct Dependents {
    /// Jobs and arrays that terms name → the arrays, or jobs outside arrays, that have such terms.
    named: BTreeMap<JobId, BTreeSet<JobId>>,
    /// The terms by the array, or the job, that has them.
    groups: BTreeMap<JobId, Vec<Group>>,
    /// Jobs and arrays → the records whose `singleton` terms wait for them.
    followers: BTreeMap<JobId, BTreeSet<JobId>>,
    /// Records that have not ended, by user and name, each behind its array's number.
    by_name: BTreeMap<UserAndName, BTreeSet<ArrayAndRecord>>,
    /// The number of terms in the dependencies of each user's jobs, by uid.
    terms: BTreeMap<u32, usize>,
}

type UserAndName = (u32, Arc<str>);
type ArrayAndRecord = (JobId, JobId);

/// Records of one array, or one job, that share one list of terms.
#[derive(Clone, Debug)]
struct Group {
    list: Arc<WaitList>,
    members: BTreeSet<JobId>,
}

/// A record that waits for others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Waiter {
    record: JobId,
    /// The number of the record's array; the record's own number outside arrays.
    array: JobId,
    uid: u32,
}

impl Waiter {
    pub(crate) fn of(job: &Job) -> Self {
        Self { record: job.id, array: job.array_id(), uid: job.spec.owner.uid }
    }
}

/// A record that has not ended, as `singleton` terms look it up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Named {
    uid: u32,
    name: Arc<str>,
    /// The number of the array (of a job outside arrays: its own) and that of the record.
    record: ArrayAndRecord,
}

impl Named {
    /// The key of a job; `None` for a job that has ended.
    pub(super) fn of(job: &Job) -> Option<Self> {
        let ended = matches!(job.phase, Phase::Ended(_));
        (!ended).then(|| Self {
            uid: job.spec.owner.uid,
            name: Arc::clone(&job.spec.name),
            record: (job.array_id(), job.id),
        })
    }

    fn key(&self) -> UserAndName {
        (self.uid, Arc::clone(&self.name))
    }
}

impl PartialEq for Dependents {
    /// The index follows from the jobs, which are compared themselves. A restored cluster, whose jobs have
    /// only their open terms, has fewer entries than one in which terms were satisfied one by one.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Dependents {
    /// Adds a job, or removes one if `present` is false.
    pub(super) fn index(&mut self, job: &Job, present: bool) {
        if let Some(named) = Named::of(job) {
            self.index_name(&named, present);
        }
        if let Some(waits) = &job.waits_for {
            self.index_waits(Waiter::of(job), waits, present);
        }
    }

    /// Adds the name of a record that has not ended, or removes the name if `present` is false.
    pub(super) fn index_name(&mut self, named: &Named, present: bool) {
        if present {
            self.by_name.entry(named.key()).or_default().insert(named.record);
        } else if let Some(records) = self.by_name.get_mut(&named.key()) {
            records.remove(&named.record);
            if records.is_empty() {
                self.by_name.remove(&named.key());
            }
        }
    }

    /// Adds the open terms of a record, or removes them if `present` is false.
    pub(crate) fn index_waits(&mut self, waiter: Waiter, waits: &Waits, present: bool) {
        if let Some(predecessor) = waits.predecessor() {
            put(&mut self.followers, predecessor, waiter.record, present);
        }
        if present { self.join(waiter, waits.list()) } else { self.leave(waiter, waits.list()) }
    }

    fn join(&mut self, waiter: Waiter, list: &Arc<WaitList>) {
        let id = waiter.array;
        let groups = self.groups.entry(id).or_default();
        if let Some(group) = groups.iter_mut().find(|group| Arc::ptr_eq(&group.list, list)) {
            group.members.insert(waiter.record);
            return;
        }
        groups.push(Group { list: Arc::clone(list), members: BTreeSet::from([waiter.record]) });
        for named in list.jobs() {
            self.named.entry(named).or_default().insert(id);
        }
        *self.terms.entry(waiter.uid).or_default() += list.len();
    }

    fn leave(&mut self, waiter: Waiter, list: &Arc<WaitList>) {
        let id = waiter.array;
        let Some(groups) = self.groups.get_mut(&id) else { return };
        let Some(at) = groups.iter().position(|group| Arc::ptr_eq(&group.list, list)) else { return };
        groups[at].members.remove(&waiter.record);
        if !groups[at].members.is_empty() {
            return;
        }
        groups.swap_remove(at);
        for named in list.jobs().filter(|named| !groups.iter().any(|group| group.list.names(*named))) {
            put(&mut self.named, named, id, false);
        }
        if groups.is_empty() {
            self.groups.remove(&id);
        }
        if let Some(terms) = self.terms.get_mut(&waiter.uid) {
            *terms -= list.len();
            if *terms == 0 {
                self.terms.remove(&waiter.uid);
            }
        }
    }

    /// An equal list of terms that a record of the same array has; `None` unless that list was the last one
    /// entered.
    pub(super) fn shared_list(&self, array: JobId, list: &WaitList) -> Option<&Arc<WaitList>> {
        let group = self.groups.get(&array)?.last()?;
        (*group.list == *list).then_some(&group.list)
    }

    /// The records that wait for a job or an array, in ascending order.
    pub(crate) fn of(&self, id: JobId) -> BTreeSet<JobId> {
        let groups = self.named.get(&id).into_iter().flatten().filter_map(|array| self.groups.get(array));
        let named = groups.flatten().filter(|group| group.list.names(id));
        let followers = self.followers.get(&id).into_iter().flatten();
        named.flat_map(|group| &group.members).chain(followers).copied().collect()
    }

    /// Number of records that wait for a job or an array, counted up to `most`.
    pub(super) fn count(&self, id: JobId, most: usize) -> usize {
        let groups = self.named.get(&id).into_iter().flatten().filter_map(|array| self.groups.get(array));
        let members = groups.flatten().filter(|group| group.list.names(id)).flat_map(|group| &group.members);
        members.chain(self.followers.get(&id).into_iter().flatten()).take(most).count()
    }

    /// Number of jobs and arrays that have a term naming this job or array.
    pub(super) fn namers(&self, id: JobId) -> usize {
        self.named.get(&id).map_or(0, BTreeSet::len)
    }

    /// True if anything waits for this job or array.
    pub(super) fn any(&self, id: JobId) -> bool {
        self.named.contains_key(&id) || self.followers.contains_key(&id)
    }

    /// Number of terms in the dependencies of a user's jobs. Records of one array that share their terms
    /// count once.
    pub(super) fn terms_of(&self, uid: u32) -> usize {
        self.terms.get(&uid).copied().unwrap_or(0)
    }

    /// The last array, or job outside arrays, that comes before `array` and counts as its predecessor; `None`
    /// if there is none. A predecessor belongs to the same user, has the same name, and has an unended record
    /// for which `counts` returns true.
    pub(super) fn predecessor(
        &self,
        array: JobId,
        spec: &JobSpec,
        counts: impl Fn(JobId) -> bool,
    ) -> Option<JobId> {
        let key = (spec.owner.uid, Arc::clone(&spec.name));
        let before = self.by_name.get(&key)?.range(..(array, JobId(0))).rev();
        before.copied().find(|(_, record)| counts(*record)).map(|(array, _)| array)
    }
}

/// True if two dependencies have the same entries in this index.
pub(crate) fn same_entry(one: Option<&Waits>, other: Option<&Waits>) -> bool {
    match (one, other) {
        (None, None) => true,
        (Some(one), Some(other)) => {
            Arc::ptr_eq(one.list(), other.list()) && one.predecessor() == other.predecessor()
        }
        (None, Some(_)) | (Some(_), None) => false,
    }
}

/// Adds a member to the set of a key, or removes it if `present` is false; empty sets are removed.
fn put(sets: &mut BTreeMap<JobId, BTreeSet<JobId>>, key: JobId, member: JobId, present: bool) {
    if present {
        sets.entry(key).or_default().insert(member);
    } else if let Some(set) = sets.get_mut(&key) {
        set.remove(&member);
        if set.is_empty() {
            sets.remove(&key);
        }
    }
}
