//! The quick pass: what can start now, at the cost of what has changed.
//!
//! Serves the modes in which only the head of the queue has a reservation (of each group of partitions that share
//! nodes). There a pass leaves a *settled* queue: no job that waits fits now beside the reservations, and time alone
//! does not change that, except at the moments that [`Line`] and [`Held`] know. So jobs that arrive behind the head are
//! looked at alone. When room is given back, when a head leaves, or another job comes before it, everybody may fit
//! again: the reservations are made anew, and the queue is walked in order, over all jobs that take more than there is.
//!
//! Promises: starts, reservations and promises are those of a pass over the whole queue
//! ([`Pass`](super::Pass)) on the same cluster at the same time. It knows nothing of preemption: where a job may make
//! another leave, or nodes are kept for one or reserved for some time, it does not serve, see [`Quick::serves`].

mod find;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::cluster::event::Event;
use crate::id::{ArrayTaskId, JobId, NodeId};
use crate::sched::queue::forecast::{ENDLESS, Forecast};
use crate::sched::queue::line::{Changes, Line};
use crate::sched::queue::rows::{Counts, Key, Least, Place, Rows};
use crate::sched::timeline::held::Held;
use crate::sched::timeline::licenses::{Licenses, wanted};
use crate::sched::timeline::realm::OPEN;
use crate::text::time::Time;

use super::explain;
use super::pass::{Reservation, Reservations};
use super::plan::{Plan, Start, Waiting};
use super::preempt::rule;
use super::prospect::{self, Prospect};
use super::queue::{Candidate, Throttle};
use super::scene::Scene;
use super::shorter;
use super::state::{Hit, Hunt, Part};
use find::{Finder, Ground, Moment, Shadow};

/// What quick passes keep.
#[derive(Debug)]
pub(super) struct Quick {
    scene: Arc<Scene>,
    held: Held,
    finder: Finder,
    /// By component of partitions: the first job that has to wait.
    heads: Vec<Option<Head>>,
    /// Jobs to be looked at again: what they hold may have changed.
    changed: BTreeSet<JobId>,
    /// Tasks of arrays that have got numbers of their own: the records they were in, and these.
    split: Vec<(JobId, JobId)>,
    /// Whether nobody who waits could start, as far as is known.
    settled: bool,
    /// Whether a depth left jobs out when that was found.
    was_cut: bool,
}

/// The first job that has to wait.
#[derive(Clone, Debug)]
struct Head {
    key: Key,
    /// Where it is planned, if that is known; and what that leaves of those nodes.
    planned: Option<(Reservation, Shadow)>,
    /// The job itself, for a component that its reservation is not in.
    job: JobId,
}

impl Quick {
    /// Begins with a cluster of which nothing is known.
    pub(super) fn new(cluster: &Cluster, scene: &Arc<Scene>, forecast: &dyn Forecast, now: Time) -> Self {
        Self {
            scene: Arc::clone(scene),
            held: Held::new(cluster, scene, forecast, now),
            finder: Finder::default(),
            heads: vec![None; scene.partitions.len()],
            changed: BTreeSet::new(),
            split: Vec::new(),
            settled: false,
            was_cut: false,
        }
    }

    /// Whether a pass over what has changed can find everything: not where a job may make others leave, nor where nodes
    /// are kept for one that waits, or reserved for some time, nor where components of a het job wait, which start
    /// together.
    pub(super) fn serves(cluster: &Cluster) -> bool {
        !rule::may_preempt(cluster)
            && !cluster.jobs().has_pending_het()
            && cluster.jobs().nominated().next().is_none()
            && cluster.reservations().next().is_none()
    }

    /// Learns that something happened to a job.
    pub(super) fn note(&mut self, event: &Event) {
        if !matches!(event, Event::StartPromised { .. }) {
            self.changed.extend(event.jobs());
            self.split.extend(event.split());
        }
    }

    /// Starts what fits now. `line` is as it is now, `changes` what is different about it since the last pass.
    ///
    /// `None` where a reservation closes nodes that jobs of other partitions count on: their future is then more than
    /// jobs that end, and only a timeline knows it.
    pub(super) fn pass(
        &mut self,
        cluster: &Cluster,
        line: &Line,
        changes: &Changes,
        forecast: &dyn Forecast,
        now: Time,
    ) -> Option<(Plan, Reservations)> {
        for split in std::mem::take(&mut self.split) {
            self.held.hand_over(cluster, &self.scene, forecast, split, now);
        }
        for job in std::mem::take(&mut self.changed) {
            let moved = self.held.sync(cluster, &self.scene, forecast, job, now);
            self.settled &= !moved;
        }
        self.settled &= !self.held.correct(cluster, forecast, now);
        self.settled &= self.still_holds(line, changes, now);
        if self.held.tidy(&self.scene) {
            self.finder.forget_rooms();
        }
        self.finder.tidy();
        let mut walk = Walk::new(self, cluster, line, now);
        if walk.quick.settled {
            walk.arrivals(&changes.arrived);
        } else {
            walk.everybody();
        }
        let (mut plan, is_simple) = (walk.plan, walk.is_simple);
        (self.settled, self.was_cut) = (is_simple && !walk.restless, line.is_cut());
        // Whether they start is seen when they are looked at again.
        self.changed.extend(plan.starts.iter().map(|start| start.attempt.job));
        if !is_simple {
            return None;
        }
        plan.promise = self.promise(line, forecast, now);
        plan.report.truncated = line.is_cut();
        plan.report.partial = true;
        let heads = self.heads.iter().flatten().filter_map(|head| head.planned.as_ref());
        Some((plan, Reservations(heads.map(|(reservation, _)| reservation.clone()).collect())))
    }

    /// Whether the heads are still the heads, and their reservations lie in the future.
    fn still_holds(&self, line: &Line, changes: &Changes, now: Time) -> bool {
        let is_head = |job: &JobId| self.heads.iter().flatten().any(|head| head.job == *job);
        // What could not be planned may be possible at another moment.
        let past = |head: &Head| head.planned.as_ref().is_none_or(|(made, _)| made.start <= now);
        // Those who arrived may have pushed a head out of what a depth lets in, also where they run elsewhere.
        let beyond = |head: &Head| line.key(head.job).is_some_and(|key| line.is_beyond(&key));
        // Who is left out by a depth may be somebody else now.
        let arrived = line.has_shares() && !changes.arrived.is_empty();
        let others = changes.resorted || arrived || !changes.left.is_empty();
        !((line.is_cut() || self.was_cut) && others)
            && !changes.left.iter().any(is_head)
            && !self.heads.iter().flatten().any(beyond)
            && !self.heads.iter().flatten().any(past)
            && (!changes.resorted || self.are_first(line))
            && !changes.arrived.iter().any(|job| self.comes_first(line, *job))
    }

    /// Whether no job stands before the head of any of its components now that the order may be another.
    fn are_first(&self, line: &Line) -> bool {
        let mut left: BTreeSet<JobId> = self.heads.iter().flatten().map(|head| head.job).collect();
        for row in line.rows().iter() {
            if left.is_empty() {
                return true;
            }
            if self.comes_first(line, row.key.job) {
                return false;
            }
            left.remove(&row.key.job);
        }
        true
    }

    /// Whether a job stands before the head of one of its components.
    fn comes_first(&self, line: &Line, job: JobId) -> bool {
        let Some((key, candidate)) = line.key(job).zip(line.candidate(job)) else { return false };
        candidate.choices.iter().any(|(partition, _)| {
            let head = &self.heads[self.scene.partitions[*partition].component];
            head.as_ref().and_then(|head| line.key(head.job)).is_some_and(|head| key < head)
        })
    }

    /// The start to be promised to the first of all that have to wait, if none ever was.
    fn promise(&self, line: &Line, forecast: &dyn Forecast, now: Time) -> Option<(JobId, Time)> {
        let heads = self.heads.iter().flatten();
        let first = heads.min_by_key(|head| line.key(head.job).unwrap_or(head.key))?;
        let mut planned = self.heads.iter().flatten().filter_map(|head| head.planned.as_ref());
        let start = planned.find(|(made, _)| made.job == first.job).and_then(|(made, _)| made.waiting.start);
        // What hangs on a job that should have ended by now cannot be promised.
        let start = start.filter(|start| *start > now)?;
        let promised = line.get(first.job).is_some_and(|ranked| ranked.promised);
        let firm = forecast.is_firm() || line.key(first.job).is_some_and(|key| key.is_aged());
        (firm && !promised).then_some((first.job, start))
    }
}

/// One pass.
struct Walk<'a> {
    quick: &'a mut Quick,
    line: &'a Line,
    moment: Moment,
    plan: Plan,
    throttle: Throttle,
    /// Whether every reservation keeps to the nodes of its own component.
    is_simple: bool,
    /// Whether the next pass may find something else although nothing happens.
    restless: bool,
}

impl<'a> Walk<'a> {
    fn new(quick: &'a mut Quick, cluster: &Cluster, line: &'a Line, now: Time) -> Self {
        let held = &quick.held;
        let ends = held.ends().map(|(end, job)| (end.max(now), job));
        let mut licenses = Licenses::new(cluster, ends, now);
        if quick.settled {
            for (made, _) in quick.heads.iter().flatten().filter_map(|head| head.planned.as_ref()) {
                licenses.take(wanted(&made.spec), made.start, made.end, false);
            }
        }
        let nodes = held.overdue(now).flat_map(|holder| holder.parts.iter().map(|(node, _)| *node));
        let overdue: BTreeMap<NodeId, Box<[u64]>> = nodes.map(|node| (node, held.at(node, now))).collect();
        let moment = Moment { now, licenses, overdue, rivalries: 0 };
        Self {
            quick,
            line,
            moment,
            plan: Plan::default(),
            throttle: Throttle::default(),
            is_simple: true,
            restless: false,
        }
    }

    /// Looks at jobs that are new, behind the heads there are.
    fn arrivals(&mut self, arrived: &BTreeSet<JobId>) {
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

    /// Whether a job waits for sure, because it stands behind the heads and takes more than is free.
    fn is_too_large(&self, job: JobId) -> bool {
        let components = self.line.components(job);
        let mut free = Counts::default();
        components.iter().for_each(|component| free.add(self.quick.held.free(*component)));
        let behind = components.iter().all(|component| self.quick.heads[*component].is_some());
        behind && self.line.get(job).is_some_and(|ranked| !ranked.least().within(&free))
    }

    /// Makes all reservations anew and walks the whole line.
    fn everybody(&mut self) {
        self.quick.heads.iter_mut().for_each(|head| *head = None);
        self.quick.finder.forget_times();
        let window = self.line.is_cut().then(|| Rows::new(self.line.window()));
        let rows = window.as_ref().unwrap_or(self.line.rows());
        let mut unseen = self.line.members().to_vec();
        if window.is_some() {
            unseen.fill(0);
            let all = rows.iter().flat_map(|row| self.line.components(row.key.job));
            all.for_each(|component| unseen[component] += 1);
        }
        let mut place = Place::default();
        let shortest_first = self.line.by_length().is_some();
        let mut seen = BTreeSet::new();
        while self.lacks_head(&unseen)
            && let Some(row) = rows.next(&mut place, |_| true)
        {
            for component in self.line.components(row.key.job) {
                unseen[component] -= 1;
            }
            if shortest_first {
                if self.consider_unless_behind(row.key.job) {
                    seen.insert(row.key.job);
                }
            } else {
                self.consider(row.key.job);
            }
        }
        if self.line.backfills() {
            match (shortest_first, &window) {
                (false, _) => self.backfill(rows, place, &seen),
                (true, None) => {
                    let by_length = self.line.by_length().expect("there is one in this order");
                    self.backfill(by_length, Place::default(), &seen);
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

    /// Looks at everybody from a place on who takes no more than there is.
    fn backfill(&mut self, rows: &Rows, mut place: Place, seen: &BTreeSet<JobId>) {
        let mut room = self.room();
        while let Some(row) = rows.next(&mut place, |least| room.may_hold(least)) {
            if !seen.contains(&row.key.job) && self.consider(row.key.job) {
                room = self.room();
            }
        }
    }

    /// Keys by planned run time, and in their order where that is equal.
    fn by_length(&self, mut keys: Vec<Key>) -> Vec<Key> {
        keys.sort_by_key(|key| self.line.get(key.job).map(|ranked| ranked.run_time()));
        keys
    }

    /// Whether a component that somebody waits for has no head.
    fn lacks_head(&self, unseen: &[usize]) -> bool {
        unseen.iter().zip(&self.quick.heads).any(|(unseen, head)| *unseen > 0 && head.is_none())
    }

    /// What there is, for those who backfill.
    fn room(&self) -> Room {
        let mut room = Room { now: self.moment.now, until: self.moment.now, ..Room::default() };
        let mut components: Vec<usize> =
            self.quick.scene.partitions.iter().map(|partition| partition.component).collect();
        components.sort_unstable();
        components.dedup();
        for component in components {
            let free = self.quick.held.free(component);
            let shadow = self.quick.heads[component].as_ref().and_then(|head| head.planned.as_ref());
            room.short.add(free);
            let mut long = free;
            if let Some((_, shadow)) = shadow {
                room.until = room.until.max(shadow.from);
                for (node, left) in &shadow.left {
                    let (held, full) = (&self.quick.held, self.quick.held.full(*node));
                    let idle = held.rooms().amount(held.idle(*node));
                    if held.component(*node) == Some(component) {
                        long.take(Counts::free(idle, full));
                        let least: Vec<u64> =
                            idle.iter().zip(left).map(|(idle, left)| *idle.min(left)).collect();
                        long.add(Counts::free(&least, full));
                    }
                }
            }
            room.long.add(long);
        }
        room
    }
}

/// What there is at most for a job that backfills.
#[derive(Clone, Copy, Debug, Default)]
struct Room {
    now: Time,
    /// For jobs that end by then
    until: Time,
    /// this,
    short: Counts,
    /// for the others this.
    long: Counts,
}

impl Room {
    fn may_hold(&self, least: &Least) -> bool {
        least.counts.within(&self.short)
            && (self.now + least.run_time <= self.until || least.counts.within(&self.long))
    }
}

impl Walk<'_> {
    /// Looks at a job unless all its components have a head; says whether it did.
    fn consider_unless_behind(&mut self, job: JobId) -> bool {
        let behind = self.line.components(job).iter().all(|component| self.quick.heads[*component].is_some());
        if !behind {
            self.consider(job);
        }
        !behind
    }

    /// Starts a job, or as many tasks of an array as fit, and makes it a head if it has to be; says whether anything of it
    /// starts.
    fn consider(&mut self, job: JobId) -> bool {
        let Some(candidate) = self.line.candidate(job).cloned() else { return false };
        if candidate.spec.reservations().next().is_some() {
            return false;
        }
        let prospects = self.prospects(&candidate);
        if prospects.is_empty() {
            return false;
        }
        let Some(tasks) = &candidate.array else { return self.consider_one(&candidate, None, &prospects) };
        let mut started = 0;
        while let Some(task) = candidate.task(started).filter(|_| self.throttle.lets(tasks))
            && self.consider_one(&candidate, Some(task), &prospects)
        {
            self.throttle.count(&candidate);
            started += 1;
        }
        started > 0
    }

    fn prospects(&mut self, candidate: &Candidate) -> Vec<Prospect> {
        let mut prospects = Vec::with_capacity(candidate.choices.len());
        for choice in candidate.choices.iter() {
            let (quick, now) = (&mut *self.quick, self.moment.now);
            let need = quick.finder.need(&choice.1.need);
            prospects.extend(quick.finder.lenses.prospect(
                &quick.scene,
                candidate,
                choice,
                need,
                (OPEN, None),
                now,
            ));
        }
        prospects
    }

    fn consider_one(
        &mut self,
        candidate: &Candidate,
        task: Option<ArrayTaskId>,
        prospects: &[Prospect],
    ) -> bool {
        self.plan.report.considered += 1;
        match self.search(candidate, prospects) {
            Some((index, hit)) if hit.starts => {
                let ground = self.ground(&prospects[index]);
                let need = &prospects[index].request.need;
                let parts = Finder::parts(ground, &self.moment, need, &hit);
                match parts {
                    Some(parts) => {
                        self.start((candidate, task), &prospects[index], &hit, &parts);
                        return true;
                    }
                    None => self.hold_back(candidate, prospects, None),
                }
            }
            found => self.hold_back(candidate, prospects, found),
        }
        false
    }

    fn component(&self, prospect: &Prospect) -> usize {
        self.quick.scene.partitions[prospect.partition].component
    }

    fn head(&self, prospect: &Prospect) -> Option<&Head> {
        self.quick.heads[self.component(prospect)].as_ref()
    }

    fn ground(&self, prospect: &Prospect) -> Ground<'_> {
        let shadow = self.head(prospect).and_then(|head| head.planned.as_ref()).map(|(_, shadow)| shadow);
        Ground { scene: &self.quick.scene, held: &self.quick.held, shadow }
    }

    /// The earliest start among a job's partitions; of equal ones the first it named.
    fn search(&mut self, candidate: &Candidate, prospects: &[Prospect]) -> Option<(usize, Hit)> {
        shorter::earliest(candidate, self.moment.now, |run_time, until| {
            self.search_for(candidate, prospects, run_time, until)
        })
    }

    /// The same before a time, if it runs so many seconds.
    fn search_for(
        &mut self,
        candidate: &Candidate,
        prospects: &[Prospect],
        run_time: u64,
        before: Time,
    ) -> Option<(usize, Hit)> {
        let mut best: Option<(usize, Hit)> = None;
        for (index, prospect) in prospects.iter().enumerate() {
            let reserves = self.head(prospect).is_none();
            if !self.line.backfills() && !reserves {
                continue;
            }
            let horizon = if reserves { before } else { before.min(self.moment.now + 1) };
            let until = best.as_ref().map_or(horizon, |(_, hit)| hit.start.min(horizon));
            let hunt = Hunt { run_time, ..prospect.hunt(candidate, until) };
            let component = self.component(prospect);
            let Quick { scene, held, finder, heads, .. } = &mut *self.quick;
            let planned = heads[component].as_ref().and_then(|head| head.planned.as_ref());
            let ground = Ground { scene, held, shadow: planned.map(|(_, shadow)| shadow) };
            let hit = finder.find(ground, &mut self.moment, &hunt);
            // Without a reservation to be had, room that a job past its time still holds is of no use.
            if let Some(hit) = hit.filter(|hit| hit.starts || reserves) {
                best = Some((index, hit));
            }
        }
        best
    }

    /// Starts a job.
    fn start(
        &mut self,
        (candidate, task): (&Candidate, Option<ArrayTaskId>),
        prospect: &Prospect,
        hit: &Hit,
        parts: &[Part],
    ) {
        let (now, end) = (self.moment.now, self.moment.now + hit.lasts);
        let component = self.component(prospect);
        let backfilled = self.quick.heads[component].is_some();
        let why = explain::why(hit, backfilled, self.line.priority(candidate.attempt.job, now));
        let start = prospect.start(&self.quick.scene, (candidate, task), None, parts, why);
        self.plan.starts.push(Start { time_limit: shorter::limit(hit), ..start });
        self.moment.licenses.take(wanted(&candidate.spec), now, end, true);
        if let Some((_, shadow)) = self.quick.heads[component].as_mut().and_then(|head| head.planned.as_mut())
            && end > shadow.from
        {
            // Where there is less at the time of a reservation, other nodes may be better for it.
            self.restless |= self.quick.scene.nodes.len() > 1;
            for part in parts {
                if let Some(left) = shadow.left.get_mut(&part.node) {
                    left.iter_mut()
                        .zip(part.taken.iter())
                        .for_each(|(left, take)| *left = left.saturating_sub(*take));
                }
            }
        }
        let held = parts.iter().map(|part| (part.node, Arc::from(&*part.taken))).collect();
        match task {
            Some(_) => self.quick.held.put_task(candidate.attempt.job, end, held),
            None => self.quick.held.put(candidate.attempt.job, end, held),
        }
        for part in parts {
            if let Some(room) = self.moment.overdue.get_mut(&part.node) {
                *room = self.quick.held.at(part.node, now);
            }
        }
    }

    /// Makes a job that has to wait the head of its components, if they have none.
    fn hold_back(&mut self, candidate: &Candidate, prospects: &[Prospect], found: Option<(usize, Hit)>) {
        let mut stages = prospects.iter().flat_map(|prospect| &prospect.stages);
        // Jobs may end unseen in leaves that it wants to itself.
        self.restless |= stages.any(|stage| stage.ask().whole_leaves);
        let could_reserve = prospects.iter().any(|prospect| self.head(prospect).is_none());
        let in_vain = || {
            shorter::too_late(candidate).is_some() || prospect::never(&self.quick.scene, prospects).is_some()
        };
        if !could_reserve || (found.is_none() && in_vain()) {
            return;
        }
        let job = candidate.attempt.job;
        let planned = found.and_then(|(index, hit)| {
            let made = self.reserve(candidate, &prospects[index], &hit)?;
            Some((self.component(&prospects[index]), made))
        });
        let Some(key) = self.line.key(job) else { return };
        for prospect in prospects {
            let component = self.component(prospect);
            let name = self.quick.scene.partitions[prospect.partition].partition.name();
            let blocks = planned.as_ref().is_none_or(|(_, (made, _))| made.partition == *name);
            if (blocks || !self.line.backfills()) && self.quick.heads[component].is_none() {
                let own = planned.as_ref().filter(|(of, _)| *of == component);
                let planned = own.map(|(_, planned)| planned.clone());
                self.quick.heads[component] = Some(Head { key, planned, job });
            }
        }
    }

    /// Plans a later start, and works out what it leaves of its nodes.
    fn reserve(
        &mut self,
        candidate: &Candidate,
        prospect: &Prospect,
        hit: &Hit,
    ) -> Option<(Reservation, Shadow)> {
        let job = candidate.attempt.job;
        let ground = self.ground(prospect);
        let parts = Finder::parts(ground, &self.moment, &prospect.request.need, hit)?;
        let left = parts.iter().map(|part| {
            let room = ground.held.at(part.node, hit.start);
            let left = room.iter().zip(part.taken.iter()).map(|(room, take)| room.saturating_sub(*take));
            (part.node, left.collect())
        });
        let shadow = Shadow { from: hit.start, left: left.collect() };
        let component = self.component(prospect);
        let of_others = |part: &Part| ground.held.component(part.node).is_some_and(|of| of != component);
        self.is_simple &= !parts.iter().any(of_others);
        let end = hit.start + hit.lasts;
        self.moment.licenses.take(wanted(&candidate.spec), hit.start, end, false);
        self.plan.report.reserved += 1;
        let waiting = Waiting {
            start: (hit.start.since(self.moment.now) < ENDLESS / 2).then_some(hit.start),
            nodes: parts.iter().filter(|part| part.slots > 0).map(|part| part.node).collect(),
            place: explain::place(hit),
            ..Waiting::of(job)
        };
        let partition = Arc::clone(self.quick.scene.partitions[prospect.partition].partition.name());
        let spec = Arc::clone(&candidate.spec);
        let within = None;
        Some((Reservation { job, spec, start: hit.start, end, partition, within, parts, waiting }, shadow))
    }
}
