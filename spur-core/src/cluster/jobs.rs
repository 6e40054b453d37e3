//! The table of jobs, with indices by owner, by phase, by time and by dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::arrays::{Array, EndedTasks};
use super::counters::Weight;
use super::dependents::{Dependents, Named, Waiter, same_entry};
use crate::id::JobId;
use crate::model::job::{Job, JobSpec};
use crate::model::nomination::Nomination;
use crate::model::phase::{Completing, Phase, Suspended};
use crate::model::waits::Waits;
use crate::text::jobid::{JobPart, JobRef};
use crate::text::time::Time;

/// All jobs in memory.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Jobs {
    /// All jobs by number. Records are shared with other clusters that applied the same entries, until one of
    /// them changes a job.
    all: BTreeMap<JobId, Arc<Job>>,
    /// Jobs by the uid and login name of their owner.
    owned: BTreeMap<(u32, Arc<str>), BTreeSet<JobId>>,
    pending: BTreeSet<JobId>,
    active: BTreeSet<JobId>,
    /// Finished jobs by the time at which they ended.
    ended: BTreeSet<(Time, JobId)>,
    /// Pending jobs for which nodes are reserved.
    nominated: BTreeSet<JobId>,
    /// Pending components of het jobs.
    het: BTreeSet<JobId>,
    /// Suspended jobs that are to resume as soon as their CPUs are free.
    claims: BTreeSet<JobId>,
    /// Active jobs that hold licenses.
    licensed: BTreeSet<JobId>,
    /// Number of each license that active jobs hold.
    held_licenses: BTreeMap<Box<str>, u64>,
    /// Running jobs that lost nodes which have not been replaced.
    short: BTreeSet<JobId>,
    /// Jobs by the time at which an action is due for them; see [`due`].
    due: BTreeSet<(Time, JobId)>,
    /// For each job and array, the records whose dependencies name it.
    dependents: Dependents,
    /// Pending jobs that are to be ended because their dependency can no longer be satisfied.
    hopeless: BTreeSet<JobId>,
    /// Number of jobs that wait for each reservation or run in it.
    users: BTreeMap<Arc<str>, usize>,
    /// Job arrays with at least one record in memory.
    arrays: BTreeMap<JobId, Array>,
    /// Number of array tasks that share another task's record: the tasks less the records.
    unrecorded: usize,
    /// True while jobs whose counters change are noted in `recounts`.
    watched: bool,
    /// Jobs whose counters may have changed since the last [`take_recounts`](Self::take_recounts).
    recounts: Vec<JobId>,
    changed: Changed,
}

/// The jobs that have changed since a reader last asked, for a reader that keeps figures of its own. The list
/// is not part of the state: it never makes tables differ, and a copy of a table keeps none.
#[derive(Debug, Default)]
struct Changed(Option<BTreeSet<JobId>>);

impl Clone for Changed {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Changed {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Changed {
    fn note(&mut self, id: JobId) {
        if let Some(changed) = &mut self.0 {
            changed.insert(id);
        }
    }
}

/// The index that a job belongs to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shelf {
    Pending {
        /// True if nodes are reserved for the job.
        nominated: bool,
        /// True if the job is a component of a het job.
        het: bool,
    },
    Active,
    /// Active: ending, and nodes are kept for its next attempt.
    Moving,
    /// Active: suspended, and its CPUs are to be its own again.
    Claiming,
    /// A running job with lost nodes that have not been replaced; active, too.
    Short,
    Ended(Time),
}

fn shelf(job: &Job) -> Shelf {
    match &job.phase {
        Phase::Pending(pending) => {
            Shelf::Pending { nominated: pending.nominated.is_some(), het: job.spec.het.is_some() }
        }
        Phase::Suspended(suspended) if suspended.wanted.is_some() => Shelf::Claiming,
        Phase::Completing(completing) if completing.nominated.is_some() => Shelf::Moving,
        Phase::Running { alloc, .. } if !alloc.lost.is_empty() => Shelf::Short,
        Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) => Shelf::Active,
        Phase::Ended(ended) => Shelf::Ended(ended.ended),
    }
}

/// Adds a member to a set, or removes it if `present` is false.
fn put<T: Ord>(set: &mut BTreeSet<T>, member: T, present: bool) {
    if present {
        set.insert(member);
    } else {
        set.remove(&member);
    }
}

impl Jobs {
    /// The job of this number; `None` if no record has it.
    #[must_use]
    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.all.get(&id).map(Arc::as_ref)
    }

    /// All jobs by number.
    pub fn iter(&self) -> impl Iterator<Item = &Job> {
        self.all.values().map(Arc::as_ref)
    }

    /// Jobs from number `first` on, in order: for reading a long table in pages.
    pub fn range(&self, first: JobId) -> impl Iterator<Item = &Job> {
        self.all.range(first..).map(|(_, job)| &**job)
    }

    /// The uids and login names of all owners of jobs.
    pub fn owners(&self) -> impl Iterator<Item = &(u32, Arc<str>)> {
        self.owned.keys()
    }

    /// The jobs of an owner from number `first` on, in order.
    pub fn owned(&self, owner: &(u32, Arc<str>), first: JobId) -> impl Iterator<Item = JobId> {
        self.owned.get(owner).into_iter().flat_map(move |jobs| jobs.range(first..).copied())
    }

    /// Number of job records.
    #[must_use]
    pub fn len(&self) -> usize {
        self.all.len()
    }

    /// Number of jobs, each task of an array counted as one.
    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len() + self.unrecorded
    }

    /// The job array of this number; `None` unless one of its records is in memory.
    #[must_use]
    pub fn array(&self, id: JobId) -> Option<&Array> {
        self.arrays.get(&id)
    }

    /// All job arrays with a record in memory, by number.
    pub fn arrays(&self) -> impl Iterator<Item = (JobId, &Array)> {
        self.arrays.iter().map(|(id, array)| (*id, array))
    }

    /// The record that stands for a task of an array, alone or with other tasks; `None` if the task has none.
    #[must_use]
    pub fn task(&self, array: JobId, task: u32) -> Option<&Job> {
        let known = self.arrays.get(&array)?;
        let holds = |job: &&Job| job.array.as_ref().is_some_and(|part| part.tasks.contains(task));
        let single = known.single(task).and_then(|id| self.get(id));
        single.or_else(|| known.groups().filter_map(|id| self.get(id)).find(holds))
    }

    /// True if there are no records.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Pending jobs by number.
    pub fn pending(&self) -> impl Iterator<Item = &Job> {
        self.pending.iter().filter_map(|id| self.get(*id))
    }

    /// Pending jobs for which nodes are reserved, by number, with their nominations.
    pub fn nominated(&self) -> impl Iterator<Item = (&Job, &Arc<Nomination>)> {
        self.nominated.iter().filter_map(|id| {
            let job = self.get(*id)?;
            Some((job, job.nomination()?))
        })
    }

    /// True if components of het jobs are pending.
    #[must_use]
    pub fn has_pending_het(&self) -> bool {
        !self.het.is_empty()
    }

    /// All components, in order, of the het job to which a job belongs. Components that have left memory are
    /// missing; a job that is no component is returned alone.
    #[must_use]
    pub fn components(&self, id: JobId) -> Vec<JobId> {
        match self.get(id).and_then(|job| job.spec.het.as_deref()) {
            Some(het) => het.jobs().filter(|job| self.all.contains_key(job)).collect(),
            None => vec![id],
        }
    }

    /// The components of a het job after the first, as far as they are in memory; none for other jobs.
    pub fn followers<'a>(&'a self, leader: &'a Job) -> impl Iterator<Item = &'a Job> {
        let het = leader.spec.het.as_deref().filter(|het| het.offset == 0);
        het.into_iter().flat_map(|het| het.jobs().skip(1)).filter_map(|id| self.get(id))
    }

    /// Number of pending records.
    #[must_use]
    pub fn pending_count(&self) -> usize {
        self.pending.len()
    }

    /// Suspended jobs that are to resume as soon as their CPUs are free, by number.
    pub fn claims(&self) -> impl Iterator<Item = &Job> {
        self.claims.iter().filter_map(|id| self.get(*id))
    }

    /// Running jobs with lost nodes that have not been replaced, by number.
    pub fn short(&self) -> impl Iterator<Item = &Job> {
        self.short.iter().filter_map(|id| self.get(*id))
    }

    /// Running, suspended and completing jobs by number.
    pub fn active(&self) -> impl Iterator<Item = &Job> {
        self.active.iter().filter_map(|id| self.get(*id))
    }

    /// Active jobs that hold licenses, by number.
    pub fn licensed(&self) -> impl Iterator<Item = &Job> {
        self.licensed.iter().filter_map(|id| self.get(*id))
    }

    /// Number of this license that jobs hold.
    #[must_use]
    pub fn held_of_license(&self, name: &str) -> u64 {
        self.held_licenses.get(name).copied().unwrap_or(0)
    }

    /// Finished jobs with the time at which they ended, the earliest first.
    pub fn ended(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.ended.iter().copied()
    }

    /// Jobs for which an action is due at a time, the earliest first. Actions are a warning, a time limit,
    /// the end of a grace time, the kill after it, and a deadline.
    pub fn due(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.due.iter().copied()
    }

    /// The records that a job reference denotes, by number. Tasks of an array denote each record that stands
    /// for any of them. Empty if nothing matches.
    #[must_use]
    pub fn meant(&self, reference: &JobRef<JobId>) -> BTreeSet<JobId> {
        match (&reference.part, self.arrays.get(&reference.job)) {
            (JobPart::Whole, Some(array)) => array.records().collect(),
            (JobPart::Whole, None) => self.get(reference.job).map(|job| job.id).into_iter().collect(),
            (JobPart::Tasks(tasks), Some(array)) => {
                let singles = array.singles_among(tasks);
                let among = |id: &JobId| {
                    let part = self.get(*id).and_then(|job| job.array.as_ref());
                    part.is_some_and(|part| !part.tasks.common(tasks).is_empty())
                };
                singles.into_iter().chain(array.groups().filter(among)).collect()
            }
            (JobPart::Tasks(_), None) | (JobPart::Component(_), _) => BTreeSet::new(),
        }
    }

    /// The number of one component, counted from 0, of the het job whose first component is `leader`; `None`
    /// if there is no such component.
    #[must_use]
    pub fn component(&self, leader: JobId, offset: u32) -> Option<JobId> {
        let het = self.get(leader).and_then(|job| job.spec.het.as_deref());
        let het = het.filter(|het| het.leader == leader && offset < het.size)?;
        Some(JobId(het.leader.0 + offset))
    }

    /// Jobs whose dependencies name `id` or its array, in ascending order.
    #[must_use]
    pub fn waiting_for(&self, id: JobId) -> Vec<JobId> {
        let mut waiting = self.dependents.of(id);
        if let Some(array) = self.get(id).map(Job::array_id).filter(|array| *array != id) {
            waiting.append(&mut self.dependents.of(array));
        }
        waiting.into_iter().collect()
    }

    /// Number of jobs whose dependencies name `id` or its array, counted up to `most`.
    #[must_use]
    pub fn waiting_count(&self, id: JobId, most: usize) -> usize {
        let array = self.get(id).map(Job::array_id).filter(|array| *array != id);
        let of_array = array.map_or(0, |array| self.dependents.count(array, most));
        (self.dependents.count(id, most) + of_array).min(most)
    }

    /// Number of jobs and arrays with a term that names this job or array.
    #[must_use]
    pub fn namers(&self, id: JobId) -> usize {
        self.dependents.namers(id)
    }

    /// `waits`, with its list of terms replaced by an equal one of another record of the array, to share
    /// memory.
    pub(super) fn share_waits(&self, array: JobId, waits: Waits) -> Waits {
        match self.dependents.shared_list(array, waits.list()) {
            Some(list) => waits.with_list(Arc::clone(list)),
            None => waits,
        }
    }

    /// True if the dependency of some job names this job or array.
    pub(super) fn is_waited_for(&self, id: JobId) -> bool {
        self.dependents.any(id)
    }

    /// Number of terms in the dependencies of a user's pending jobs; records of an array that share their
    /// terms count once.
    #[must_use]
    pub fn terms_of(&self, uid: u32) -> usize {
        self.dependents.terms_of(uid)
    }

    /// The job or array for which `--dependency=singleton` waits: the last one before `array` with the same
    /// name and user that has not ended. Components of the same het job start together and do not wait for
    /// each other.
    pub(super) fn predecessor(&self, array: JobId, spec: &JobSpec) -> Option<JobId> {
        let together = |id| self.get(id).is_some_and(|other| spec.is_component_with(&other.spec));
        self.dependents.predecessor(array, spec, |id| !together(id))
    }

    /// Pending jobs, by number, that are to be ended because their dependency can no longer be satisfied. One
    /// command or report ends a limited number of them at once.
    pub fn hopeless(&self) -> impl Iterator<Item = JobId> + '_ {
        self.hopeless.iter().copied()
    }

    /// True if some job waits for this reservation or runs in it.
    #[must_use]
    pub fn uses(&self, reservation: &str) -> bool {
        self.users.contains_key(reservation)
    }

    /// The jobs inserted, changed or removed since the last call, in ascending order. The first call starts
    /// the list and returns all jobs.
    pub(super) fn take_changed(&mut self) -> BTreeSet<JobId> {
        match self.changed.0.replace(BTreeSet::new()) {
            Some(changed) => changed,
            None => self.all.keys().copied().collect(),
        }
    }

    /// Inserts a job, or replaces it.
    pub(super) fn insert(&mut self, job: Arc<Job>) {
        self.remove(job.id);
        self.changed.note(job.id);
        self.index(&job, true);
        if self.watched {
            self.recounts.push(job.id);
        }
        self.all.insert(job.id, job);
    }

    /// Removes a job and returns it; `None` if no record has this number.
    pub(super) fn remove(&mut self, id: JobId) -> Option<Job> {
        let job = self.all.remove(&id)?;
        self.changed.note(id);
        self.index(&job, false);
        if self.watched && Weight::of(&job) != Weight::Nothing {
            self.recounts.push(id);
        }
        Some(Arc::unwrap_or_clone(job))
    }

    /// Removes a finished job for good. The outcomes of an array's tasks are kept while other records of the
    /// array are in memory.
    pub(super) fn forget(&mut self, id: JobId) {
        let Some(job) = self.remove(id) else { return };
        let Some(part) = &job.array else { return };
        if self.arrays.get(&part.id).is_some_and(Array::is_empty) {
            self.arrays.remove(&part.id);
        }
    }

    /// Forgets the outcomes of a record's tasks, which run again.
    pub(super) fn reopen(&mut self, id: JobId) {
        let Some(part) = self.get(id).and_then(|job| job.array.clone()) else { return };
        if let Some(array) = self.arrays.get_mut(&part.id) {
            array.reopen(&part.tasks);
        }
    }

    /// Restores the outcomes of tasks whose records may have left memory.
    pub(super) fn restore_ended(&mut self, array: JobId, ended: &EndedTasks) {
        if let Some(array) = self.arrays.get_mut(&array) {
            array.restore(ended);
        }
    }

    /// Changes a job in place and updates the indices; does nothing if there is no such job.
    pub(super) fn change(&mut self, id: JobId, change: impl FnOnce(&mut Job)) {
        let Some(job) = self.all.get_mut(&id) else { return };
        self.changed.note(id);
        let job = Arc::make_mut(job);
        let (before, was_due, had_licenses) = (shelf(job), due(job), licensed(job));
        let was_hopeless = hopeless(job);
        let waited_for = job.waits_for.clone();
        let was_named = Named::of(job);
        let weighed = self.watched.then(|| Weight::of(job));
        count_licenses(&mut self.held_licenses, job, false);
        count(&mut self.arrays, &mut self.unrecorded, job, false);
        count_users(&mut self.users, job, false);
        change(job);
        count(&mut self.arrays, &mut self.unrecorded, job, true);
        count_users(&mut self.users, job, true);
        count_licenses(&mut self.held_licenses, job, true);
        if weighed.is_some_and(|before| before != Weight::of(job)) {
            self.recounts.push(id);
        }
        let is_named = Named::of(job);
        if was_named != is_named {
            was_named.iter().for_each(|named| self.dependents.index_name(named, false));
            is_named.iter().for_each(|named| self.dependents.index_name(named, true));
        }
        if !same_entry(waited_for.as_deref(), job.waits_for.as_deref()) {
            let waiter = Waiter::of(job);
            waited_for.iter().for_each(|waits| self.dependents.index_waits(waiter, waits, false));
            job.waits_for.iter().for_each(|waits| self.dependents.index_waits(waiter, waits, true));
        }
        let (after, is_due, has_licenses) = (shelf(job), due(job), licensed(job));
        if was_hopeless != hopeless(job) {
            put(&mut self.hopeless, id, !was_hopeless);
        }
        if had_licenses != has_licenses {
            self.license(id, has_licenses);
        }
        if was_due != is_due {
            self.schedule(id, was_due, false);
            self.schedule(id, is_due, true);
        }
        if before != after {
            self.shelve(id, before, false);
            self.shelve(id, after, true);
        }
    }

    /// Starts or stops noting the jobs whose counters may have changed.
    pub(super) fn watch(&mut self, watched: bool) {
        self.watched = watched;
        self.recounts.clear();
    }

    /// The jobs whose counters may have changed since the last call.
    pub(super) fn take_recounts(&mut self) -> Vec<JobId> {
        std::mem::take(&mut self.recounts)
    }

    fn index(&mut self, job: &Job, present: bool) {
        count(&mut self.arrays, &mut self.unrecorded, job, present);
        count_users(&mut self.users, job, present);
        count_licenses(&mut self.held_licenses, job, present);
        count_owned(&mut self.owned, job, present);
        self.shelve(job.id, shelf(job), present);
        self.license(job.id, present && licensed(job));
        self.schedule(job.id, due(job), present);
        self.dependents.index(job, present);
        put(&mut self.hopeless, job.id, present && hopeless(job));
    }

    fn license(&mut self, id: JobId, holds: bool) {
        if holds {
            self.licensed.insert(id);
        } else {
            self.licensed.remove(&id);
        }
    }

    fn schedule(&mut self, id: JobId, due: Option<Time>, present: bool) {
        let Some(at) = due else { return };
        put(&mut self.due, (at, id), present);
    }

    fn shelve(&mut self, id: JobId, shelf: Shelf, present: bool) {
        match shelf {
            Shelf::Pending { nominated, het } => {
                put(&mut self.pending, id, present);
                if nominated {
                    put(&mut self.nominated, id, present);
                }
                if het {
                    put(&mut self.het, id, present);
                }
            }
            Shelf::Active => put(&mut self.active, id, present),
            Shelf::Moving => {
                put(&mut self.active, id, present);
                put(&mut self.nominated, id, present);
            }
            Shelf::Claiming => {
                put(&mut self.active, id, present);
                put(&mut self.claims, id, present);
            }
            Shelf::Short => {
                put(&mut self.active, id, present);
                put(&mut self.short, id, present);
            }
            Shelf::Ended(at) => put(&mut self.ended, (at, id), present),
        }
    }
}

/// True if a job holds licenses: from its start until it has ended.
fn licensed(job: &Job) -> bool {
    let wants = job.spec.extra.as_ref().is_some_and(|extra| !extra.licenses.is_empty());
    wants && !matches!(job.phase, Phase::Pending(_) | Phase::Ended(_))
}

/// Adds a job's licenses to those held, or subtracts them if `present` is false.
fn count_licenses(held: &mut BTreeMap<Box<str>, u64>, job: &Job, present: bool) {
    if !licensed(job) {
        return;
    }
    for (name, count) in job.spec.extra.iter().flat_map(|extra| &extra.licenses) {
        let all = held.entry(name.clone()).or_default();
        *all = if present { *all + u64::from(*count) } else { *all - u64::from(*count) };
        if *all == 0 {
            held.remove(name);
        }
    }
}

/// Adds a job to those of its owner, or removes it if `present` is false.
fn count_owned(owned: &mut BTreeMap<(u32, Arc<str>), BTreeSet<JobId>>, job: &Job, present: bool) {
    let owner = &job.spec.owner;
    let key = (owner.uid, Arc::clone(&owner.user));
    if present {
        owned.entry(key).or_default().insert(job.id);
    } else if let Some(jobs) = owned.get_mut(&key) {
        jobs.remove(&job.id);
        if jobs.is_empty() {
            owned.remove(&key);
        }
    }
}

/// Adds a record to its array, or removes it if `present` is false.
fn count(arrays: &mut BTreeMap<JobId, Array>, unrecorded: &mut usize, job: &Job, present: bool) {
    let Some(part) = &job.array else { return };
    arrays.entry(part.id).or_default().count(job.id, part, &job.phase, present);
    let others = part.tasks.len() - 1;
    if present {
        *unrecorded += others;
    } else {
        *unrecorded -= others;
    }
}

/// Adds a job to the counts of the reservations that it may use or runs in, or removes it if `present` is
/// false.
fn count_users(users: &mut BTreeMap<Arc<str>, usize>, job: &Job, present: bool) {
    let mut count = |name: &str| match users.get_mut(name) {
        Some(known) if present => *known += 1,
        Some(known) if *known > 1 => *known -= 1,
        Some(_) => drop(users.remove(name)),
        None => drop(users.insert(name.into(), 1)),
    };
    match &job.phase {
        Phase::Pending(_) => job.spec.reservations().for_each(count),
        Phase::Ended(_) => {}
        Phase::Running { alloc, .. }
        | Phase::Suspended(Suspended { alloc, .. })
        | Phase::Completing(Completing { alloc, .. }) => {
            alloc.reservation.iter().for_each(|name| count(name))
        }
    }
}

/// True if a pending job is to be ended because its dependency can no longer be satisfied.
fn hopeless(job: &Job) -> bool {
    let wish = || job.spec.extra.as_ref().and_then(|extra| extra.kill_on_invalid_dep);
    job.never && matches!(job.phase, Phase::Pending(_)) && wish() == Some(true)
}

/// Time at which the next action on a job is due; `None` for none.
fn due(job: &Job) -> Option<Time> {
    let at = match &job.phase {
        Phase::Pending(_) => job.latest_start()?,
        // The time limit of a job counts only once all its nodes are up.
        Phase::Running { preempted, .. } if !job.configuring.nodes.is_empty() => preempted.as_ref()?.end_at,
        Phase::Running { started, warned, preempted, .. } => {
            let end = match job.warn_at(*started) {
                Some(warn) if !warned => warn,
                _ => job.ends_at(*started),
            };
            let end = job.tells_at().map_or(end, |(at, _)| at.min(end));
            let paused = job.phase.pauses().seconds;
            let end = job.steps.iter().filter_map(|step| step.ends_at(paused)).fold(end, Time::min);
            preempted.map_or(end, |preempted| preempted.end_at.min(end))
        }
        Phase::Suspended(suspended) => {
            let end = suspended.ends_by.unwrap_or(Time::MAX);
            suspended.preempted.map_or(end, |told| told.end_at.min(end))
        }
        Phase::Completing(completing) => completing.kill_at?,
        Phase::Ended(_) => return None,
    };
    (!at.is_never()).then_some(at)
}
