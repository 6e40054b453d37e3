//! The pending jobs in the order of the queue, kept from pass to pass. Only jobs that events have changed are
//! examined again before the next pass.
//!
//! After [`PendingOrder::refresh`] the order equals one built anew from the same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::cluster::dependents::{Dependents, Waiter, same_entry};
use crate::cluster::event::Event;
use crate::cluster::fair_share::FairShares;
use crate::cluster::{Cluster, Holder};
use crate::id::JobId;
use crate::model::config::{Backfill, Order, Policy};
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::reservation::{Flag, Reservation};
use crate::model::waits::Waits;
use crate::sched::inventory::Inventory;
use crate::sched::plan::Waiting;
use crate::sched::queue::{self, Candidate, Measure, Obstacle, Queue, Queued, Ranked};
use crate::sched::request::constraints;
use crate::sched::subject::Subject;
use crate::text::time::{Time, TimeLimit};

use super::asleep::{Asleep, Group};
use super::chunks::{Key, Least, Place, Row, Rows};
use super::sections::{OfJob, Sections};
use crate::sched::forecast::PlanInput;

/// All pending jobs, in order or set aside.
#[derive(Clone, Debug)]
pub(crate) struct PendingOrder {
    inventory: Arc<Inventory>,
    /// The job that a pass over this order currently looks at.
    pub(crate) subject: Subject,
    measure: Measure,
    standing: BTreeMap<JobId, Standing>,
    /// Jobs that wait for something other than resources.
    aside: BTreeMap<JobId, Obstacle>,
    rows: Rows,
    /// The rows by section, in which the depth counts, too.
    sections: Sections,
    /// For each component of partitions, the number of queued jobs that may run there.
    members: Vec<usize>,
    /// Queued jobs that name a reservation of nodes.
    asking: BTreeSet<JobId>,
    /// The rows of each tier by planned run time, where backfill is sorted by it.
    by_length: Option<Rows>,
    /// The next time at which a job changes without an event, by time and by job.
    times: BTreeSet<(Time, JobId)>,
    next: BTreeMap<JobId, Time>,
    waits: Moments,
    /// Pairs of a job and a watcher: the watcher gathers with the job, is another component of it, or shares
    /// its array.
    watched: BTreeSet<(JobId, JobId)>,
    /// The jobs whose dependency is open, by the jobs that they wait for.
    dependents: Dependents,
    /// The dependency of each of these jobs when it was last examined.
    awaiting: BTreeMap<JobId, (Waiter, Waits)>,
    /// Watched pairs whose watcher was notified; the watcher is added again if it still has a reason to
    /// watch.
    told: BTreeSet<(JobId, JobId)>,
    /// Jobs to examine again.
    changed: BTreeSet<JobId>,
    /// The time for which keys were computed, where they change with time.
    keyed: Time,
    /// The fair-share ranks for which keys were computed, where fair share has a weight.
    shares: Option<Arc<FairShares>>,
    /// Jobs of the line that wait for limits and need not be looked at in quick passes.
    asleep: Asleep,
    /// The changes since the last call of [`take_changes`](Self::take_changes).
    changes: Changes,
}

/// A job in the order.
#[derive(Clone, Debug)]
struct Standing {
    key: Key,
    ranked: Ranked,
    /// The components of partitions that the job may run in.
    components: SmallVec<[usize; 2]>,
    sections: OfJob,
}

/// The changes of the order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Jobs that are new in the order, or whose row has changed.
    pub(crate) arrived: BTreeSet<JobId>,
    /// Jobs that have left the order, or whose row has changed.
    pub(crate) left: BTreeSet<JobId>,
    /// True if all jobs were sorted again.
    pub(crate) resorted: bool,
}

impl PendingOrder {
    /// The order of all pending jobs of a cluster.
    pub(crate) fn new(input: PlanInput<'_>, subject: &Subject) -> Self {
        let PlanInput { cluster, inventory, now, .. } = input;
        let shortest_first = inventory.policy.scheduler.order == Order::Sjf;
        let mut line = Self {
            inventory: Arc::clone(inventory),
            subject: subject.clone(),
            measure: Measure::new(Arc::clone(inventory)),
            standing: BTreeMap::new(),
            aside: BTreeMap::new(),
            rows: Rows::default(),
            sections: Sections::new(inventory),
            members: vec![0; inventory.partitions.len()],
            asking: BTreeSet::new(),
            by_length: shortest_first.then(Rows::default),
            times: BTreeSet::new(),
            next: BTreeMap::new(),
            waits: Moments::new(&inventory.policy),
            watched: BTreeSet::new(),
            dependents: Dependents::default(),
            awaiting: BTreeMap::new(),
            told: BTreeSet::new(),
            changed: BTreeSet::new(),
            keyed: now,
            shares: None,
            asleep: Asleep::default(),
            changes: Changes::default(),
        };
        for job in cluster.jobs().pending() {
            line.note_dependency(job.id, Some(job));
            line.enter(input, job);
        }
        line.sort();
        line
    }

    /// True if the order was built for this inventory.
    pub(crate) fn is_of(&self, inventory: &Arc<Inventory>) -> bool {
        Arc::ptr_eq(&self.inventory, inventory)
    }

    /// Notes that an event has changed jobs; `cluster` has applied the event.
    pub(crate) fn note(&mut self, cluster: &Cluster, event: &Event) {
        if let Event::StartPromised { job, .. } = event {
            if let Some(standing) = self.standing.get_mut(job) {
                standing.ranked.promised = true;
            }
            return;
        }
        for job in event.jobs() {
            let found = cluster.job(job);
            // A job that is not pending and was not before does not affect the order.
            let waits = found.is_some_and(|job| matches!(job.phase, Phase::Pending(_)));
            if waits || self.standing.contains_key(&job) || self.aside.contains_key(&job) {
                self.changed.insert(job);
            }
            self.await_next(job, found, cluster.at());
            self.tell_watchers(cluster, job);
            let array = found.and_then(|job| job.array.as_ref());
            if let Some(part) = array.filter(|part| part.id != job) {
                self.tell_watchers(cluster, part.id);
            }
        }
    }

    /// Notes that the watchers of a job or an array, and jobs whose dependency on it is settled, must be
    /// examined again.
    fn tell_watchers(&mut self, cluster: &Cluster, job: JobId) {
        for waiter in self.dependents.of(job) {
            let found = cluster.job(waiter);
            self.note_dependency(waiter, found.filter(|job| matches!(job.phase, Phase::Pending(_))));
            if found.is_none_or(|job| job.waits_for.is_none() || job.never) {
                self.changed.insert(waiter);
                self.await_next(waiter, found, cluster.at());
                // The components of a het job are examined together.
                let het = found.and_then(|job| job.spec.het.as_deref());
                self.changed.extend(het.iter().flat_map(|het| het.jobs()));
            }
        }
        let watchers = self.watched.range((job, JobId(0))..=(job, JobId(u32::MAX)));
        let watchers: Vec<(JobId, JobId)> = watchers.copied().collect();
        for (job, watcher) in watchers {
            self.changed.insert(watcher);
            self.told.insert((job, watcher));
            let found = cluster.job(watcher);
            self.await_next(watcher, found, cluster.at());
            // The components of a het job are examined together.
            let het = found.and_then(|job| job.spec.het.as_deref());
            self.changed.extend(het.iter().flat_map(|het| het.jobs()));
        }
    }

    /// Examines again the jobs that events have changed, and the jobs whose time has come.
    pub(crate) fn refresh(&mut self, input: PlanInput<'_>) {
        let PlanInput { cluster, now, .. } = input;
        let reshared = self.take_shares(cluster);
        let due = self.times.iter().take_while(|(at, _)| *at <= now);
        let due: BTreeSet<JobId> = due.map(|(_, job)| *job).collect();
        self.changed.extend(due.iter().copied());
        if cluster.jobs().has_pending_het() {
            self.changed.extend(due.iter().flat_map(|job| cluster.jobs().components(*job)));
        }
        for pair in std::mem::take(&mut self.told) {
            self.watched.remove(&pair);
        }
        for id in std::mem::take(&mut self.changed) {
            let before = self.standing.get(&id).filter(|standing| standing.ranked.is_array()).cloned();
            let was_there = self.leave(id);
            let job = cluster.job(id).filter(|job| matches!(job.phase, Phase::Pending(_)));
            self.note_dependency(id, job);
            let row = job.and_then(|job| self.enter(input, job));
            // Tasks of an array that have started change nothing for the remaining ones. A time that has come
            // does.
            let is_rest_of = |before: Standing| {
                let mut now = self.standing.get(&id).into_iter();
                now.any(|now| now.key == before.key && now.ranked.is_rest_of(&before.ranked))
            };
            let rest = !due.contains(&id) && before.is_some_and(is_rest_of);
            if was_there && !rest {
                self.changes.left.insert(id);
            }
            let Some(row) = row else { continue };
            self.rows.insert(row);
            if let Some(standing) = self.standing.get(&id) {
                self.sections.insert(row, &standing.sections);
                self.by_length.iter_mut().for_each(|by_length| by_length.insert(row_by_length(standing)));
            }
            if !rest {
                self.changes.arrived.insert(id);
            }
        }
        if reshared || (self.measure.varies() && self.keyed != now) {
            for standing in self.standing.values_mut() {
                standing.key = self.measure.key(&standing.ranked, now);
            }
            self.sort();
            self.changes.resorted = true;
        }
        self.keyed = now;
    }

    /// Takes new fair-share factors over. Returns whether they have changed. Where QOS have usage thresholds,
    /// all jobs are then examined again.
    fn take_shares(&mut self, cluster: &Cluster) -> bool {
        let has_thresholds = self.measure.has_thresholds();
        if self.inventory.policy.scheduler.priority_weight_fairshare == 0 && !has_thresholds {
            return false;
        }
        let shares = cluster.fair_shares();
        let same = self.shares.as_ref().is_some_and(|known| Arc::ptr_eq(known, &shares));
        if !same {
            if has_thresholds {
                self.changed.extend(self.standing.keys().chain(self.aside.keys()));
            }
            for standing in self.standing.values_mut() {
                standing.ranked.share(cluster, &self.inventory);
            }
            self.shares = Some(shares);
        }
        !same
    }

    /// The associations and QOS whose past usage limits some job of the line.
    pub(crate) fn budgets(&self) -> &BTreeSet<Holder> {
        self.measure.limits.budgets()
    }

    /// The jobs that wait for limits and need not be looked at.
    pub(crate) fn asleep(&self) -> &Asleep {
        &self.asleep
    }

    /// Leaves a job that a limit has stopped out of quick passes, until the limit leaves more. Does nothing
    /// if the order changes by time alone, or if the shortest jobs backfill first.
    pub(crate) fn put_to_sleep(&mut self, job: JobId, group: Group) {
        if self.by_length.is_some() || self.measure.varies() {
            return;
        }
        if let Some(Standing { key, sections, .. }) = self.standing.get(&job) {
            self.asleep.insert(*key, group);
            self.rows.change(key, Least::ASLEEP);
            self.sections.change(key, Least::ASLEEP, sections);
        }
    }

    /// Includes a job in quick passes again.
    pub(crate) fn wake(&mut self, job: JobId) {
        if self.asleep.remove(job)
            && let Some(standing) = self.standing.get(&job)
        {
            let Standing { key, ranked, sections, .. } = standing;
            self.rows.change(key, ranked.at_least());
            self.sections.change(key, ranked.at_least(), sections);
        }
    }

    /// The line in order.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The jobs by planned run time in each tier, where backfill is sorted by it.
    pub(crate) fn by_length(&self) -> Option<&Rows> {
        self.by_length.as_ref()
    }

    /// The key of a job in the order; `None` if the job is not in it.
    pub(crate) fn key(&self, job: JobId) -> Option<Key> {
        self.standing.get(&job).map(|standing| standing.key)
    }

    /// The key of a job among the jobs that backfill; `None` if the job is not in the order.
    pub(crate) fn behind(&self, job: JobId) -> Option<Key> {
        let standing = self.standing.get(&job)?;
        let by_length = self.by_length.is_some();
        Some(if by_length { standing.ranked.by_length(standing.key) } else { standing.key })
    }

    /// A job in the order.
    pub(crate) fn get(&self, job: JobId) -> Option<&Ranked> {
        self.standing.get(&job).map(|standing| &standing.ranked)
    }

    /// True if some job has waited for `max_wait`.
    pub(crate) fn is_overdue(&self) -> bool {
        self.rows.iter().next().is_some_and(|row| row.key.is_aged())
    }

    /// True if some job may be planned in a reservation of nodes.
    pub(crate) fn enters_reservations(&self) -> bool {
        let draws = |reservation: &Arc<Reservation>| reservation.has(Flag::Magnetic);
        self.has_reservations() && (!self.asking.is_empty() || self.inventory.reservations.iter().any(draws))
    }

    /// True if jobs may need more than `most` searches for victims in one pass.
    pub(crate) fn may_claim_more_than(&self, most: u32) -> bool {
        let mut left = most as usize;
        let mut place = Place::default();
        while let Some(row) = self.rows.next(&mut place, |least| least.reach > 0) {
            let claims = self.candidate(row.key.job).map_or(0, |candidate| candidate.claims());
            match left.checked_sub(claims) {
                Some(rest) => left = rest,
                None => return true,
            }
        }
        false
    }

    /// True if there are reservations of nodes.
    pub(crate) fn has_reservations(&self) -> bool {
        !self.inventory.reservations.is_empty()
    }

    /// For each component of partitions, the number of queued jobs that may run there.
    pub(crate) fn members(&self) -> &[usize] {
        &self.members
    }

    /// The components of partitions that a job may run in.
    pub(crate) fn components(&self, job: JobId) -> &[usize] {
        self.standing.get(&job).map_or(&[], |standing| &standing.components)
    }

    /// The candidate of a queued job; `None` if its request is invalid.
    pub(crate) fn candidate(&self, job: JobId) -> Option<&Arc<Candidate>> {
        self.get(job).and_then(|ranked| ranked.candidate.as_ref().ok())
    }

    /// True if the depth leaves a job out because of the jobs before it.
    pub(crate) fn is_beyond(&self, key: &Key) -> bool {
        let depth = self.inventory.policy.scheduler.depth as usize;
        let admits = |standing: &Standing| self.sections.admits(key, &standing.sections, depth);
        depth > 0
            && self.rows.before_up_to(key, depth) >= depth
            && !self.standing.get(&key.job).is_some_and(admits)
    }

    /// The sentence for a job that passes leave out because of the depths; `None` if passes look at the job.
    pub(crate) fn left_out(&self, job: JobId) -> Option<String> {
        let key = self.key(job).filter(|_| self.is_cut())?;
        let is_left_out = match self.has_shares() {
            true => self.window().binary_search_by_key(&key, |row| row.key).is_err(),
            false => self.is_beyond(&key),
        };
        let depth = if self.has_shares() { "depths" } else { "depth" };
        let number = self.rows.before(&key) + 1;
        let sentence = || {
            format!(
                "not looked at: number {number} of the queue is beyond the scheduler's {depth}; \
                 a higher priority or a larger depth would help"
            )
        };
        is_left_out.then(sentence)
    }

    /// True if users or partitions have depths of their own.
    pub(crate) fn has_shares(&self) -> bool {
        let policy = &self.inventory.policy.scheduler;
        policy.depth_per_user > 0 || policy.depth_per_partition > 0
    }

    /// True if jobs may start ahead of a waiting job.
    pub(crate) fn backfills(&self) -> bool {
        self.inventory.policy.scheduler.backfill != Backfill::None
    }

    /// Returns the changes since the last call.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// True if a depth may leave jobs out.
    pub(crate) fn is_cut(&self) -> bool {
        let depth = self.inventory.policy.scheduler.depth as usize;
        let is_long = depth > 0 && self.rows.len() > depth && !self.sections.admits_all(depth);
        is_long || (self.rows.len() > 0 && self.has_shares())
    }

    /// The jobs within the depths.
    pub(crate) fn window(&self) -> Vec<Row> {
        let policy = &self.inventory.policy.scheduler;
        let limit = |depth: u32| if depth == 0 { usize::MAX } else { depth as usize };
        let total = limit(policy.depth);
        if self.has_shares() {
            return self.shares(total, limit(policy.depth_per_user), limit(policy.depth_per_partition));
        }
        let mut window: Vec<Row> = self.rows.iter().take(total).copied().collect();
        if let Some(last) = window.last().filter(|_| window.len() < self.rows.len()) {
            window.extend(self.sections.behind(&last.key, total));
        }
        window
    }

    /// The jobs within the depths, where users or partitions have depths of their own.
    fn shares(&self, total: usize, per_user: usize, per_partition: usize) -> Vec<Row> {
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        let mut partitions: BTreeMap<usize, usize> = BTreeMap::new();
        let mut walk = self.sections.walk(&self.rows, total);
        let mut window = Vec::new();
        while let Some(row) = walk.next() {
            let Some(Standing { ranked, sections, .. }) = self.standing.get(&row.key.job) else { continue };
            let user = users.entry(ranked.uid).or_default();
            let partition = partitions.entry(ranked.partition).or_default();
            if *user < per_user && *partition < per_partition {
                *user += 1;
                *partition += 1;
                walk.take(sections);
                window.push(*row);
            }
        }
        window
    }

    /// The last of the first `count` jobs; `None` if no job is queued.
    pub(crate) fn last_of(&self, count: usize) -> Option<JobId> {
        self.rows.iter().take(count).last().map(|row| row.key.job)
    }

    /// The jobs up to a key, and further jobs that come before it among the jobs that backfill.
    fn up_to(&self, last: &Key) -> Vec<Row> {
        let count = self.rows.before(last) + 1;
        let place = self.behind(last.job).filter(|_| self.by_length.is_some() && self.backfills());
        let shorter = self.rows.iter().skip(count).filter(|row| self.behind(row.key.job) < place);
        self.rows.iter().take(count).chain(shorter).copied().collect()
    }

    /// The queue of a deep pass: the jobs within the depths, or up to `last`.
    pub(crate) fn queue(&self, now: Time, last: Option<JobId>) -> Queue {
        let window = match last.and_then(|last| self.key(last)) {
            Some(key) => self.up_to(&key),
            None if last.is_some() => Vec::new(),
            None => self.window(),
        };
        let mut queue = Queue {
            candidates: Vec::with_capacity(window.len()),
            aside: self.aside.iter().map(|(job, obstacle)| aside(*job, obstacle)).collect(),
            truncated: window.len() < self.rows.len(),
        };
        for job in window.iter().map(|row| row.key.job) {
            match self.called(job, now) {
                Some(queued) => queue.candidates.push(queued),
                None => {
                    let obstacle = self.get(job).and_then(|ranked| ranked.candidate.as_ref().err());
                    queue.aside.extend(obstacle.map(|obstacle| aside(job, obstacle)));
                }
            }
        }
        queue
    }

    /// A queued job that is about to be looked at; `None` if its request is invalid.
    pub(crate) fn called(&self, job: JobId, now: Time) -> Option<Queued> {
        let Standing { key, ranked, .. } = self.standing.get(&job)?;
        Some(Queued {
            candidate: Arc::clone(ranked.candidate.as_ref().ok()?),
            key: *key,
            behind: if self.by_length.is_some() { ranked.by_length(*key) } else { *key },
            priority: self.measure.priority(ranked, now),
            promised: ranked.promised,
            second: false,
            dealt: 0,
            waits: 0,
            told: false,
        })
    }

    /// The next moment after `now` at which a plan changes without an event.
    pub(crate) fn next_event_time(&self, cluster: &Cluster, now: Time) -> Option<Time> {
        let known = self.times.range((Bound::Excluded((now, JobId(u32::MAX))), Bound::Unbounded)).next();
        // Moments after one that has passed are known only after a refresh.
        let due = self.times.iter().take_while(|(at, _)| *at <= now);
        let unknown = due.filter_map(|(_, job)| self.waits.next_moment(cluster.job(*job)?, now));
        unknown.chain(known.map(|(at, _)| *at)).min()
    }

    /// Notes the next moment after `now` at which a job changes without an event.
    fn await_next(&mut self, id: JobId, job: Option<&Job>, now: Time) {
        if let Some(at) = self.next.remove(&id) {
            self.times.remove(&(at, id));
        }
        if let Some(at) = job.and_then(|job| self.waits.next_moment(job, now)) {
            self.times.insert((at, id));
            self.next.insert(id, at);
        }
    }

    /// Notes the dependency of a job; none if the job is not pending.
    fn note_dependency(&mut self, id: JobId, job: Option<&Job>) {
        let waits = job.and_then(|job| job.waits_for.as_deref());
        let known = self.awaiting.get(&id).map(|(_, waits)| waits);
        if same_entry(known, waits) {
            return;
        }
        if let Some((waiter, waits)) = self.awaiting.remove(&id) {
            self.dependents.index_waits(waiter, &waits, false);
        }
        if let Some((job, waits)) = job.zip(waits) {
            self.dependents.index_waits(Waiter::of(job), waits, true);
            self.awaiting.insert(id, (Waiter::of(job), waits.clone()));
        }
    }

    /// Removes a job. Returns whether it was in the order.
    fn leave(&mut self, id: JobId) -> bool {
        self.await_next(id, None, Time::ZERO);
        let Some(standing) = self.standing.remove(&id) else {
            self.aside.remove(&id);
            return false;
        };
        self.rows.remove(&standing.key);
        self.sections.remove(&standing.key, &standing.sections);
        self.asleep.remove(id);
        self.asking.remove(&id);
        for component in &standing.components {
            self.members[*component] -= 1;
        }
        if let Some(by_length) = &mut self.by_length {
            by_length.remove(&standing.ranked.by_length(standing.key));
        }
        true
    }

    /// Adds a pending job. Returns its row, or `None` if the job is set aside.
    fn enter(&mut self, input: PlanInput<'_>, job: &Job) -> Option<Row> {
        self.subject.set(job.id);
        let row = self.place(input, job);
        self.subject.clear();
        row
    }

    fn place(&mut self, input: PlanInput<'_>, job: &Job) -> Option<Row> {
        let now = input.now;
        self.await_next(job.id, Some(job), now);
        let near = job.spec.fabric.as_ref().and_then(|wish| wish.gather_with);
        let limits = job.spec.array.as_ref().is_some_and(|array| array.limit.is_some());
        let siblings = limits.then(|| job.array_id());
        self.watched.extend(near.into_iter().chain(siblings).map(|other| (other, job.id)));
        if let Some(het) = job.spec.het.as_deref() {
            // Components wait together, as one job under the number of the first.
            self.watched.extend(het.jobs().filter(|other| *other != job.id).map(|other| (other, job.id)));
            if job.spec.is_follower() {
                let Phase::Pending(pending) = &job.phase else { return None };
                let obstacle = queue::obstacle(input.cluster, job, pending, now);
                self.aside.extend(obstacle.map(|obstacle| (job.id, obstacle)));
                return None;
            }
        }
        match self.measure.rank(input, job) {
            Ok(ranked) => {
                let standing = Standing {
                    key: self.measure.key(&ranked, now),
                    components: components(&self.inventory, &ranked),
                    sections: self.sections.of(&self.inventory, &ranked),
                    ranked,
                };
                let row = row(&standing);
                for component in &standing.components {
                    self.members[*component] += 1;
                }
                if standing.ranked.asks_for_reservation() {
                    self.asking.insert(job.id);
                }
                self.standing.insert(job.id, standing);
                Some(row)
            }
            Err(obstacle) => {
                self.aside.insert(job.id, obstacle);
                None
            }
        }
    }

    /// Sorts all rows again.
    fn sort(&mut self) {
        let rows: Vec<Row> = self.standing.values().map(row).collect();
        if let Some(by_length) = &mut self.by_length {
            *by_length = Rows::new(self.standing.values().map(row_by_length).collect());
        }
        self.rows = Rows::new(rows);
        self.sections.sort(self.standing.values().map(|standing| (row(standing), &standing.sections)));
        self.asleep = Asleep::default();
    }
}

fn components(inventory: &Inventory, ranked: &Ranked) -> SmallVec<[usize; 2]> {
    let parts = ranked.candidate.iter().flat_map(|candidate| candidate.all());
    let choices = parts.flat_map(|candidate| candidate.choices.iter());
    let mut components: SmallVec<[usize; 2]> =
        choices.map(|(partition, _)| inventory.partitions[*partition].component).collect();
    components.sort_unstable();
    components.dedup();
    components
}

fn row(standing: &Standing) -> Row {
    let least = standing.ranked.at_least();
    Row { key: standing.key, least }
}

fn row_by_length(standing: &Standing) -> Row {
    Row { key: standing.ranked.by_length(standing.key), ..row(standing) }
}

fn aside(job: JobId, (reason, detail): &Obstacle) -> Waiting {
    Waiting { reason: *reason, detail: detail.clone().into(), ..Waiting::of(job) }
}

/// The times after which waiting alone changes a job.
#[derive(Clone, Debug)]
pub(crate) struct Moments {
    /// Seconds after which a job goes before all others; 0 for never.
    max_wait: u64,
    /// The time limits after which constraints of rules by size may relax.
    rules: Vec<TimeLimit>,
}

impl Moments {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self { max_wait: policy.scheduler.max_wait.0, rules: constraints::rule_limits(policy) }
    }

    /// The first moment after `now` at which time alone changes a pending job: its begin time, the expiry of
    /// constraints with a time limit, or `max_wait`. `None` for a job that waits for more than time.
    pub(crate) fn next_moment(&self, job: &Job, now: Time) -> Option<Time> {
        let Phase::Pending(pending) = &job.phase else { return None };
        if pending.hold.is_some() || job.waits_for.is_some() {
            return None;
        }
        let eligible = pending.eligible.unwrap_or(job.submitted);
        let aged = (self.max_wait > 0).then(|| eligible + self.max_wait);
        let relaxed = constraints::relax_times(&job.spec, &self.rules, eligible);
        relaxed.chain(aged).chain(pending.not_before).filter(|time| *time > now && !time.is_never()).min()
    }
}
