//! The pending jobs in the order of the queue, kept from pass to pass: what an event changes is looked at again before
//! the next pass, and nothing else is.
//!
//! Promises: after [`PendingOrder::refresh`] it is what a line built anew from the same cluster would be.

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
use crate::sched::forecast::PlanInput;

/// All pending jobs, in order or set aside.
#[derive(Clone, Debug)]
pub(crate) struct PendingOrder {
    inventory: Arc<Inventory>,
    /// The job that a pass along this line looks at.
    pub(crate) subject: Subject,
    measure: Measure,
    standing: BTreeMap<JobId, Standing>,
    /// Jobs that something else than room keeps waiting.
    aside: BTreeMap<JobId, Obstacle>,
    rows: Rows,
    /// By component of partitions: how many jobs of the line may run there.
    members: Vec<usize>,
    /// Jobs of the line that ask for a reservation of nodes and time.
    asking: BTreeSet<JobId>,
    /// The rows of each tier by planned run time, where backfill goes by that.
    by_length: Option<Rows>,
    /// When time alone changes something about a job next, by time and by job.
    times: BTreeSet<(Time, JobId)>,
    next: BTreeMap<JobId, Time>,
    waits: Moments,
    /// Jobs that others want to be near, or are components with; and who does.
    watched: BTreeSet<(JobId, JobId)>,
    /// The jobs whose dependency is open, by the jobs that they wait for.
    dependents: Dependents,
    /// What each of these waited for when it was last looked at.
    awaiting: BTreeMap<JobId, (Waiter, Waits)>,
    /// Those of them of whom the watcher was told; it is put down again if it still has a reason to watch.
    told: BTreeSet<(JobId, JobId)>,
    /// Jobs to be looked at again.
    changed: BTreeSet<JobId>,
    /// The time that the order is of, where it varies.
    keyed: Time,
    /// The ranks that the order is of, where fair share has a weight.
    shares: Option<Arc<FairShares>>,
    /// Jobs of the line that wait for limits and need not be looked at in quick passes.
    asleep: Asleep,
    /// What is different since somebody asked.
    changes: Changes,
}

/// A job in the line.
#[derive(Clone, Debug)]
struct Standing {
    key: Key,
    ranked: Ranked,
    /// The components of partitions that it may run in.
    components: SmallVec<[usize; 2]>,
}

/// What is different about the line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Changes {
    /// Jobs that are new in the line, or stand in it in another way.
    pub(crate) arrived: BTreeSet<JobId>,
    /// Jobs that were in the line and are not, or not as they were.
    pub(crate) left: BTreeSet<JobId>,
    /// Whether all were sorted again.
    pub(crate) resorted: bool,
}

impl PendingOrder {
    /// The line of a cluster.
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

    /// Whether it is the line of that inventory.
    pub(crate) fn is_of(&self, inventory: &Arc<Inventory>) -> bool {
        Arc::ptr_eq(&self.inventory, inventory)
    }

    /// Learns that something happened to jobs; `cluster` has applied it.
    pub(crate) fn note(&mut self, cluster: &Cluster, event: &Event) {
        if let Event::StartPromised { job, .. } = event {
            if let Some(standing) = self.standing.get_mut(job) {
                standing.ranked.promised = true;
            }
            return;
        }
        for job in event.jobs() {
            let found = cluster.job(job);
            // Whoever neither waits nor did so is nothing to the line.
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

    /// Those who want to be near a job or an array are looked at again, and those whose dependency on it has been settled.
    fn tell_watchers(&mut self, cluster: &Cluster, job: JobId) {
        for waiter in self.dependents.of(job) {
            let found = cluster.job(waiter);
            self.note_dependency(waiter, found.filter(|job| matches!(job.phase, Phase::Pending(_))));
            if found.is_none_or(|job| job.waits_for.is_none() || job.never) {
                self.changed.insert(waiter);
                self.await_next(waiter, found, cluster.at());
                // Components of a het job are looked at together.
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
            // Components of a het job are looked at together.
            let het = found.and_then(|job| job.spec.het.as_deref());
            self.changed.extend(het.iter().flat_map(|het| het.jobs()));
        }
    }

    /// Looks again at the jobs that something happened to, and at those whose time has come.
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
            // That tasks of an array have started changes nothing for those that wait on. That their time has come does.
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
            if let (Some(by_length), Some(standing)) = (&mut self.by_length, self.standing.get(&id)) {
                by_length.insert(row_by_length(standing));
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

    /// Takes other ranks than those of the order. Returns whether there are any.
    fn take_shares(&mut self, cluster: &Cluster) -> bool {
        if self.inventory.policy.scheduler.priority_weight_fairshare == 0 {
            return false;
        }
        let shares = cluster.fair_shares();
        let same = self.shares.as_ref().is_some_and(|known| Arc::ptr_eq(known, &shares));
        if !same {
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

    /// Leaves a job that a limit has stopped out of quick passes, until the limit leaves more; not where the order changes by
    /// time alone, or where the shortest backfill first.
    pub(crate) fn put_to_sleep(&mut self, job: JobId, group: Group) {
        if self.by_length.is_some() || self.measure.varies() {
            return;
        }
        if let Some(key) = self.key(job) {
            self.asleep.insert(key, group);
            self.rows.change(&key, Least::ASLEEP);
        }
    }

    /// Has quick passes look at a job again.
    pub(crate) fn wake(&mut self, job: JobId) {
        if self.asleep.remove(job)
            && let Some(standing) = self.standing.get(&job)
        {
            self.rows.change(&standing.key, standing.ranked.at_least());
        }
    }

    /// The line in order.
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }

    /// The line by planned run time in each tier, where backfill goes by that.
    pub(crate) fn by_length(&self) -> Option<&Rows> {
        self.by_length.as_ref()
    }

    /// The place of a job in the line.
    pub(crate) fn key(&self, job: JobId) -> Option<Key> {
        self.standing.get(&job).map(|standing| standing.key)
    }

    /// The place of a job among those who backfill.
    pub(crate) fn behind(&self, job: JobId) -> Option<Key> {
        let standing = self.standing.get(&job)?;
        let by_length = self.by_length.is_some();
        Some(if by_length { standing.ranked.by_length(standing.key) } else { standing.key })
    }

    /// A job in the line.
    pub(crate) fn get(&self, job: JobId) -> Option<&Ranked> {
        self.standing.get(&job).map(|standing| &standing.ranked)
    }

    /// Whether somebody has waited too long.
    pub(crate) fn is_overdue(&self) -> bool {
        self.rows.iter().next().is_some_and(|row| row.key.is_aged())
    }

    /// Whether a job may be planned in a reservation of nodes and time.
    pub(crate) fn enters_reservations(&self) -> bool {
        let draws = |reservation: &Arc<Reservation>| reservation.has(Flag::Magnetic);
        self.has_reservations() && (!self.asking.is_empty() || self.inventory.reservations.iter().any(draws))
    }

    /// Whether it may be asked more often than that, in one pass, who would have to leave for a job.
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

    /// Whether nodes are reserved for some time.
    pub(crate) fn has_reservations(&self) -> bool {
        !self.inventory.reservations.is_empty()
    }

    /// By component of partitions: how many jobs of the line may run there.
    pub(crate) fn members(&self) -> &[usize] {
        &self.members
    }

    /// The components of partitions that a job may run in.
    pub(crate) fn components(&self, job: JobId) -> &[usize] {
        self.standing.get(&job).map_or(&[], |standing| &standing.components)
    }

    /// A job in the line whose request makes sense.
    pub(crate) fn candidate(&self, job: JobId) -> Option<&Arc<Candidate>> {
        self.get(job).and_then(|ranked| ranked.candidate.as_ref().ok())
    }

    /// Whether a depth leaves a job out whoever else is in the line.
    pub(crate) fn is_beyond(&self, key: &Key) -> bool {
        let depth = self.inventory.policy.scheduler.depth as usize;
        depth > 0 && self.rows.before(key) >= depth
    }

    /// Whether users or partitions have depths of their own.
    pub(crate) fn has_shares(&self) -> bool {
        let policy = &self.inventory.policy.scheduler;
        policy.depth_per_user > 0 || policy.depth_per_partition > 0
    }

    /// Whether anybody may go ahead of a job that waits.
    pub(crate) fn backfills(&self) -> bool {
        self.inventory.policy.scheduler.backfill != Backfill::None
    }

    /// What is different since this was last asked.
    pub(crate) fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Whether a depth leaves jobs out.
    pub(crate) fn is_cut(&self) -> bool {
        let policy = &self.inventory.policy.scheduler;
        let is_long = policy.depth > 0 && self.rows.len() > policy.depth as usize;
        is_long || (self.rows.len() > 0 && self.has_shares())
    }

    /// The line as far as the depths allow.
    pub(crate) fn window(&self) -> Vec<Row> {
        let policy = &self.inventory.policy.scheduler;
        let limit = |depth: u32| if depth == 0 { usize::MAX } else { depth as usize };
        let (total, per_user, per_partition) =
            (limit(policy.depth), limit(policy.depth_per_user), limit(policy.depth_per_partition));
        if per_user == usize::MAX && per_partition == usize::MAX {
            return self.rows.iter().take(total).copied().collect();
        }
        let mut users: BTreeMap<u32, usize> = BTreeMap::new();
        let mut partitions: BTreeMap<usize, usize> = BTreeMap::new();
        let within = |row: &&Row| {
            let Some(ranked) = self.get(row.key.job) else { return false };
            let user = users.entry(ranked.uid).or_default();
            let partition = partitions.entry(ranked.partition).or_default();
            let keep = *user < per_user && *partition < per_partition;
            *user += usize::from(keep);
            *partition += usize::from(keep);
            keep
        };
        self.rows.iter().filter(within).take(total).copied().collect()
    }

    /// The last of the first so many jobs; `None` if nobody is in the line.
    pub(crate) fn last_of(&self, count: usize) -> Option<JobId> {
        self.rows.iter().take(count).last().map(|row| row.key.job)
    }

    /// The line up to a job, and who goes before it where the shortest backfill first.
    fn up_to(&self, last: &Key) -> Vec<Row> {
        let count = self.rows.before(last) + 1;
        let place = self.behind(last.job).filter(|_| self.by_length.is_some() && self.backfills());
        let shorter = self.rows.iter().skip(count).filter(|row| self.behind(row.key.job) < place);
        self.rows.iter().take(count).chain(shorter).copied().collect()
    }

    /// What a deep pass looks at: the line as far as the depths allow, or up to `last`.
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

    /// A job in the line whose request makes sense, about to be looked at.
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

    /// The next moment after `now` at which a plan would turn out differently although nothing happens.
    pub(crate) fn next_event_time(&self, cluster: &Cluster, now: Time) -> Option<Time> {
        let known = self.times.range((Bound::Excluded((now, JobId(u32::MAX))), Bound::Unbounded)).next();
        // What comes after a moment that has passed is not known before the line is refreshed.
        let due = self.times.iter().take_while(|(at, _)| *at <= now);
        let unknown = due.filter_map(|(_, job)| self.waits.next_moment(cluster.job(*job)?, now));
        unknown.chain(known.map(|(at, _)| *at)).min()
    }

    /// Notes when time alone changes something about a job next, after `now`.
    fn await_next(&mut self, id: JobId, job: Option<&Job>, now: Time) {
        if let Some(at) = self.next.remove(&id) {
            self.times.remove(&(at, id));
        }
        if let Some(at) = job.and_then(|job| self.waits.next_moment(job, now)) {
            self.times.insert((at, id));
            self.next.insert(id, at);
        }
    }

    /// Notes what a job waits for; nothing if it is not pending.
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

    /// Takes a job out; says whether it was in the line.
    fn leave(&mut self, id: JobId) -> bool {
        self.await_next(id, None, Time::ZERO);
        let Some(standing) = self.standing.remove(&id) else {
            self.aside.remove(&id);
            return false;
        };
        self.rows.remove(&standing.key);
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

    /// Takes a pending job in; its row, if it is not set aside.
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
            // Components stand and wait together: as one job in the line, under the number of the first.
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
                let (key, components) =
                    (self.measure.key(&ranked, now), components(&self.inventory, &ranked));
                let standing = Standing { key, ranked, components };
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

    /// Puts all rows in order.
    fn sort(&mut self) {
        let rows: Vec<Row> = self.standing.values().map(row).collect();
        if let Some(by_length) = &mut self.by_length {
            *by_length = Rows::new(self.standing.values().map(row_by_length).collect());
        }
        self.rows = Rows::new(rows);
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
    Waiting { reason: *reason, detail: detail.clone(), ..Waiting::of(job) }
}

/// How long jobs wait until that alone changes something.
#[derive(Clone, Debug)]
pub(crate) struct Moments {
    /// Until they come before all others, seconds; 0 for never.
    max_wait: u64,
    /// Until something that a rule by size asks for may fall away.
    rules: Vec<TimeLimit>,
}

impl Moments {
    pub(crate) fn new(policy: &Policy) -> Self {
        Self { max_wait: policy.scheduler.max_wait.0, rules: constraints::rule_limits(policy) }
    }

    /// The first moment after `now` at which time alone changes something about a pending job: its begin, the ends of
    /// constraints that were given only for so long, and when it has waited too long. None for a job that waits for more than
    /// time.
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
