//! The jobs that one quick pass looks at, and their order.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::Cluster;
use crate::id::JobId;
use crate::sched::pass::walk::Walk;
use crate::sched::queue::Ranked;
use crate::sched::queue::asleep::Lane;
use crate::sched::queue::chunks::{Key, Least, Place, Rows};
use crate::sched::queue::pending_order::PendingOrder;
use crate::sched::request::counts::Counts;

use super::ledger::Ledger;
use super::most_free::MostFree;

/// The jobs that one quick pass looks at.
pub(super) struct Selection<'a> {
    cluster: &'a Cluster,
    line: &'a PendingOrder,
    pub(super) walk: Walk<Ledger>,
    /// True if later starts of earlier passes are kept.
    keeps: bool,
    /// The jobs within the depths, if the depths leave some out.
    within: Option<BTreeSet<JobId>>,
    /// True if every job has to be looked at from here on.
    unfiltered: bool,
    /// The next job to look at of each group of jobs that wait for a limit, by place in the queue.
    asleep: BTreeMap<Key, (Lane, u128)>,
    /// Jobs that limits do not stop any more.
    pub(super) woken: Vec<JobId>,
    /// The lowest level that may be asked to leave, and what there would be at most then.
    reach: Option<(u32, Counts)>,
}

impl<'a> Selection<'a> {
    /// A pass that has done nothing yet. While nodes are kept for jobs, every job is looked at, because it
    /// may take them over.
    pub(super) fn new(cluster: &'a Cluster, line: &'a PendingOrder, walk: Walk<Ledger>, keeps: bool) -> Self {
        let reach = walk.ways.reach(&walk.space.books.inventory);
        let unfiltered = walk.ways.has_nominated();
        let (asleep, woken) = (BTreeMap::new(), Vec::new());
        Self { cluster, line, walk, keeps, within: None, unfiltered, asleep, woken, reach }
    }

    /// True if a job with this least, or one of several, may preempt others.
    fn reaches(&self, least: &Least) -> bool {
        self.reach.is_some_and(|(level, most)| least.reach > level && least.counts.within(&most))
    }

    /// Looks at jobs that have arrived behind the waiting ones.
    pub(super) fn arrivals(&mut self, arrived: &BTreeSet<JobId>) {
        let keys = arrived.iter().filter_map(|job| self.line.key(*job));
        let mut keys: Vec<Key> = keys.filter(|key| !self.line.is_beyond(key)).collect();
        keys.sort_unstable();
        if self.line.by_length().is_some() {
            let later: Vec<Key> =
                keys.iter().copied().filter(|key| !self.consider_unless_behind(key.job)).collect();
            keys = self.by_length(later);
        }
        for key in keys {
            if !self.is_too_large(key.job) {
                self.consider(key.job);
            }
        }
    }

    /// True if a job certainly waits, because it is behind others and takes more than is free.
    fn is_too_large(&self, job: JobId) -> bool {
        let components = self.line.components(job);
        let mut free = Counts::default();
        components.iter().for_each(|component| free.add(self.walk.space.books.held.free(*component)));
        let behind = components.iter().all(|component| self.walk.is_taken(*component));
        let least = self.line.get(job).map(Ranked::at_least);
        behind && least.is_some_and(|least| !least.counts.within(&free) && !self.reaches(&least))
    }

    /// Makes the reservations of heads anew and walks the whole queue.
    pub(super) fn everybody(&mut self) {
        if self.keeps {
            self.walk.space.forget_times();
        } else {
            self.walk.space.forget(self.cluster);
        }
        self.asleep = self.line.asleep().firsts();
        let window = self.line.is_cut().then(|| Rows::new(self.line.window()));
        self.within = window.as_ref().map(|rows| rows.iter().map(|row| row.key.job).collect());
        let rows = window.as_ref().unwrap_or(self.line.rows());
        let mut unseen = self.line.members().to_vec();
        if window.is_some() {
            unseen.fill(0);
            let all = rows.iter().flat_map(|row| self.line.components(row.key.job));
            all.for_each(|component| unseen[*component] += 1);
        }
        let (mut place, mut last) = (Place::default(), None);
        let shortest_first = self.line.by_length().is_some();
        let mut seen = BTreeSet::new();
        while self.lacks_head(&unseen) {
            let mut next = place;
            let row = rows.next(&mut next, |_| true);
            let Some(key) = self.or_asleep(row.map(|row| row.key)) else { break };
            if row.is_some_and(|row| row.key == key) {
                place = next;
            }
            last = Some(key);
            for component in self.line.components(key.job) {
                unseen[*component] -= 1;
            }
            if shortest_first {
                if self.consider_unless_behind(key.job) {
                    seen.insert(key.job);
                }
            } else if self.keeps || self.unfiltered || !self.is_too_large(key.job) {
                self.consider(key.job);
            }
        }
        if self.line.backfills() || self.unfiltered {
            match (shortest_first, &window) {
                (false, _) => self.backfill(rows, (place, last), &seen),
                (true, None) => {
                    let by_length = self.line.by_length().expect("there is one in this order");
                    self.backfill(by_length, (Place::default(), None), &seen);
                }
                (true, Some(window)) => {
                    let keys = self.by_length(window.iter().map(|row| row.key).collect());
                    for key in keys.iter().filter(|key| !seen.contains(&key.job)) {
                        self.consider(key.job);
                    }
                }
            }
        }
    }

    /// Looks at every job from a place on, and behind `last`, that takes no more than is free, or that has
    /// claims of its own.
    fn backfill(&mut self, rows: &Rows, (mut place, mut last): (Place, Option<Key>), seen: &BTreeSet<JobId>) {
        let (mut room, mut owners) = self.room();
        loop {
            let mut next = place;
            let row =
                rows.next(&mut next, |least| self.unfiltered || room.may_hold(least) || self.reaches(least));
            let bound = last.map_or(std::ops::Bound::Unbounded, std::ops::Bound::Excluded);
            let owner = owners.range((bound, std::ops::Bound::Unbounded)).next();
            let owner = owner.map(|(owner, _)| *owner);
            let awake = row.map(|row| row.key).into_iter().chain(owner).min();
            let Some(key) = self.or_asleep(awake) else { return };
            if row.is_some_and(|row| row.key == key) {
                place = next;
            }
            if Some(key) <= last {
                continue;
            }
            last = Some(key);
            if !seen.contains(&key.job) && self.consider(key.job) {
                (room, owners) = self.room();
            }
        }
    }

    /// The next job to look at: `awake`, or an earlier job that waits for a limit that may not stop it any
    /// more. A limit that has stopped a job in this pass stops all of its group.
    fn or_asleep(&mut self, awake: Option<Key>) -> Option<Key> {
        while let Some((key, group)) = self.asleep.first_key_value() {
            if awake.is_some_and(|awake| awake <= *key) {
                return awake;
            }
            let lets_in = self.within.as_ref().is_none_or(|within| within.contains(&key.job));
            let is_closed = self.walk.limits.as_ref().is_some_and(|limits| limits.is_closed(group, *key));
            let (key, group) = (*key, group.clone());
            self.asleep.remove(&key);
            if lets_in && !is_closed && !self.stays_asleep(&group, key) {
                self.asleep.extend(self.line.asleep().after(&group, key).map(|next| (next, group)));
                self.woken.push(key.job);
                return Some(key);
            }
        }
        awake
    }

    /// True if no nodes are kept for a job that waits for a limit, and this limit still stops the job. The
    /// limit then stops all of its group.
    fn stays_asleep(&mut self, group: &(Lane, u128), key: Key) -> bool {
        let mut components = self.line.components(key.job).iter();
        if self.keeps || self.unfiltered || !components.all(|component| self.walk.is_taken(*component)) {
            return false;
        }
        self.line.candidate(key.job).is_some_and(|candidate| self.walk.still_stops(candidate, key, group))
    }

    /// The most that is free for backfilled jobs, and the jobs that may have more, by place in the walk.
    fn room(&self) -> (MostFree, BTreeMap<Key, JobId>) {
        let room = MostFree::of(&self.walk.space.books);
        let mut owners = BTreeMap::new();
        let lets_in = |job: &JobId| self.within.as_ref().is_none_or(|within| within.contains(job));
        for job in room.owners.iter().filter(|job| self.keeps && lets_in(job)) {
            let found = self.line.behind(*job).zip(self.line.get(*job));
            // The job must fit at least if its own claims are dropped.
            if let Some((key, _)) = found.filter(|(_, ranked)| ranked.at_least().counts.within(&room.idle)) {
                owners.insert(key, *job);
            }
        }
        (room, owners)
    }

    /// Keys in the order of backfill.
    fn by_length(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.sort_by_key(|key| self.line.behind(key.job));
        keys
    }

    /// True if some component has jobs that may wait there but no head yet.
    fn lacks_head(&self, unseen: &[usize]) -> bool {
        (0..unseen.len()).any(|component| unseen[component] > 0 && !self.walk.is_taken(component))
    }

    /// Looks at a job unless all its components have a head. Returns whether it did.
    fn consider_unless_behind(&mut self, job: JobId) -> bool {
        let behind = self.line.components(job).iter().all(|component| self.walk.is_taken(*component));
        if !behind {
            self.consider(job);
        }
        !behind
    }

    /// Starts a job, or as many tasks of an array as fit, or finds that it has to wait. Returns whether
    /// anything started.
    fn consider(&mut self, job: JobId) -> bool {
        let (starts, known) = (self.walk.plan.starts.len(), self.walk.known.len());
        let mut next = self.line.called(job, self.walk.space.books.now);
        while let Some(candidate) = next {
            next = self.walk.consider(candidate);
        }
        // Its later start was the last one kept there, so the next job may get one.
        let components = self.line.components(job);
        self.unfiltered |= self.keeps && components.iter().any(|component| !self.walk.is_taken(*component));
        // Its former claims are free, also for jobs before it.
        self.walk.space.books.restless |= self.unfiltered || self.walk.known.len() < known;
        self.walk.plan.starts.len() > starts
    }
}
