//! One pass over the queue: what starts now, what is reserved for later, and why the rest waits.
//!
//! A pass owns everything it looks at. It was true when the pass was begun; whether it still is, the controller checks
//! for every start again.

mod het;
mod way;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::{JobId, NodeId};
use crate::model::config::{Backfill, Order};
use crate::model::job::JobSpec;
use crate::model::reason::Reason;
use crate::model::reservation::Flag;
use crate::sched::queue::forecast::{ENDLESS, Forecast};
use crate::sched::queue::line::Line;
use crate::sched::timeline::licenses::wanted;
use crate::sched::timeline::realm::{OPEN, Realms};
use crate::text::time::Time;

use super::explain;
use super::plan::{Plan, RESERVED, Start, Waiting};
use super::prospect::{self, Lenses, Prospect};
use super::queue::{self, Candidate, Queue, Queued, Throttle};
use super::scene::Scene;
use super::shorter;
use super::state::{Hit, Hunt, Part, State};

/// Waiting jobs of one pass that are told in detail what is missing; those behind them learn their reason and their
/// planned start.
const EXPLAINED: u32 = 100;

/// Tasks of one array that have a reservation at one time, where everybody has one: Slurm's `bf_max_job_array_resv`.
const RESERVED_TASKS: usize = 20;

/// How far a pass has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress {
    /// There are jobs left to look at.
    More,
    /// All have been looked at.
    Done,
}

/// A start that is planned for later.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// The job.
    pub job: JobId,
    /// The request it was planned for.
    pub spec: Arc<JobSpec>,
    /// From when.
    pub start: Time,
    /// Until when it is planned to run.
    pub end: Time,
    /// Partition it is planned in.
    pub partition: Arc<str>,
    /// The reservation of nodes and time that it is planned in, if it is.
    pub within: Option<Arc<str>>,
    /// What it takes of which node, in rank order.
    pub(super) parts: Vec<Part>,
    /// What was said of it when it was made.
    pub(super) waiting: Waiting,
}

impl Reservation {
    /// What it takes of which node, in rank order: CPUs, memory in MiB, then devices in the order of the node's
    /// entries.
    pub fn amounts(&self) -> impl Iterator<Item = (NodeId, &[u64])> {
        self.parts.iter().filter(|part| part.slots > 0).map(|part| (part.node, &*part.taken))
    }

    /// How long it is planned to run, seconds.
    fn lasts(&self) -> u64 {
        self.end.since(self.start)
    }
}

/// The reservations that a deep pass made: what a quick pass must not disturb.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservations(pub(super) Vec<Reservation>);

impl Reservations {
    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The reservations, in queue order.
    pub fn iter(&self) -> impl Iterator<Item = &Reservation> {
        self.0.iter()
    }
}

/// A pass under way.
#[derive(Debug)]
pub struct Pass {
    scene: Arc<Scene>,
    now: Time,
    seq: u64,
    /// Whether plans keep their promises; see [`Forecast::is_firm`].
    firm: bool,
    backfill: Backfill,
    /// Whether every job that the mode grants a reservation gets one.
    deep: bool,
    queue: std::vec::IntoIter<Queued>,
    /// Jobs put off until all others were looked at, because only the head keeps its place.
    later: Vec<Queued>,
    state: State,
    lenses: Lenses,
    /// Reservations from an earlier pass that are kept.
    known: BTreeMap<JobId, VecDeque<Reservation>>,
    made: Vec<Reservation>,
    /// Planned ends of reservations, and whose.
    ends: BTreeMap<Time, Vec<usize>>,
    /// Who may be asked to make way, and for whom somebody has been.
    ways: way::Ways,
    /// Whether a job that waits may yet come before those behind it where it is not planned now.
    wavers: bool,
    /// By component of partitions, and behind these by realm: the first job that had to wait.
    heads: Vec<Option<JobId>>,
    explained: u32,
    plan: Plan,
    /// How many starts have been handed out.
    handed: usize,
    /// A job of whose tasks some have been looked at.
    ongoing: Option<Queued>,
    throttle: Throttle,
}

impl Pass {
    /// Begins a pass that finds out when one job will start: everybody before it has a reservation, whatever the mode,
    /// and nobody behind it is looked at.
    pub(super) fn foretelling(
        cluster: &Cluster,
        scene: Arc<Scene>,
        line: &Line,
        forecast: &dyn Forecast,
        now: Time,
        job: JobId,
    ) -> Self {
        let all = line.queue(now, Some(job));
        let none = Reservations::default();
        let pass = Self::of(cluster, scene, forecast, now, &none, all);
        Self { backfill: Backfill::Conservative, ..pass }
    }

    /// Begins a pass that plans nothing anew for later, except for a head of the queue that has no reservation, which
    /// would otherwise be overtaken by everybody.
    pub(super) fn quick(
        cluster: &Cluster,
        scene: Arc<Scene>,
        line: &Line,
        forecast: &dyn Forecast,
        now: Time,
        known: &Reservations,
    ) -> Self {
        Self { deep: false, ..Self::new(cluster, scene, line, forecast, now, known) }
    }

    /// Begins a pass: collects the queue and what is known of the future. `known` reservations are kept as they are.
    pub(super) fn new(
        cluster: &Cluster,
        scene: Arc<Scene>,
        line: &Line,
        forecast: &dyn Forecast,
        now: Time,
        known: &Reservations,
    ) -> Self {
        let queue = line.queue(now, None);
        Self::of(cluster, scene, forecast, now, known, queue)
    }

    fn of(
        cluster: &Cluster,
        scene: Arc<Scene>,
        forecast: &dyn Forecast,
        now: Time,
        known: &Reservations,
        queue: Queue,
    ) -> Self {
        let times = queue.candidates.iter().map(|candidate| candidate.shortest);
        let shortest = times.min().unwrap_or(1);
        let realms = Realms::new(&scene.reservations, now);
        let mut wanted = BTreeSet::from([OPEN, realms.unshut()]);
        if !realms.is_single() {
            let all = queue.candidates.iter().flat_map(|candidate| candidate.all());
            wanted.extend(all.flat_map(|candidate| realms.of_job(&candidate.spec)));
        }
        let seats = scene.partitions.len() + realms.count();
        let mut state = State::new(cluster, &scene, forecast, now, shortest, (realms, &wanted));
        let ways = way::Ways::new(cluster, &scene, forecast, now, &mut state);
        let mut plan = Plan { waiting: queue.aside, ..Plan::default() };
        plan.report.truncated = queue.truncated;
        let mut pass = Self {
            wavers: false,
            heads: vec![None; seats],
            backfill: scene.policy.scheduler.backfill,
            scene,
            now,
            seq: cluster.seq(),
            firm: forecast.is_firm(),
            deep: true,
            queue: queue.candidates.into_iter(),
            later: Vec::new(),
            state,
            lenses: Lenses::default(),
            known: BTreeMap::new(),
            made: Vec::new(),
            ends: BTreeMap::new(),
            ways,
            explained: 0,
            plan,
            handed: 0,
            ongoing: None,
            throttle: Throttle::default(),
        };
        pass.keep(known);
        pass
    }

    /// The entry of the journal that the pass was begun after.
    #[must_use]
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// The time the pass plans from.
    #[must_use]
    pub fn now(&self) -> Time {
        self.now
    }

    /// Looks at up to `jobs` more jobs, every task of an array being one.
    pub fn advance(&mut self, jobs: u32) -> Progress {
        for _ in 0..jobs {
            let Some(candidate) = self.next() else { return Progress::Done };
            self.ongoing = self.consider(candidate);
        }
        let is_done = self.queue.len() == 0 && self.later.is_empty() && self.ongoing.is_none();
        if is_done { Progress::Done } else { Progress::More }
    }

    /// The starts found since this was last asked: they need not wait for the rest of the pass.
    pub fn take_starts(&mut self) -> Vec<Start> {
        let fresh = self.plan.starts[self.handed..].to_vec();
        self.handed = self.plan.starts.len();
        fresh
    }

    /// The plan, and what the next quick pass must not disturb.
    #[must_use]
    pub fn finish(mut self) -> (Plan, Reservations) {
        while self.advance(u32::MAX) == Progress::More {}
        (self.plan, Reservations(self.made))
    }

    /// The next job. When the queue has been walked through, those that were put off come, shortest first.
    fn next(&mut self) -> Option<Queued> {
        if let Some(candidate) = self.ongoing.take() {
            return Some(candidate);
        }
        if let Some(candidate) = self.queue.next() {
            return Some(candidate);
        }
        let mut later = std::mem::take(&mut self.later);
        later.sort_by_key(|candidate| candidate.run_time);
        self.queue = later.into_iter();
        self.queue.next()
    }

    /// Takes over reservations that still make sense: of jobs that wait with the same request, and on nodes that are
    /// still free then.
    fn keep(&mut self, known: &Reservations) {
        if known.is_empty() {
            return;
        }
        let queue = self.queue.as_slice().iter();
        let queue: BTreeMap<JobId, &Queued> = queue.map(|queued| (queued.attempt.job, queued)).collect();
        let mut together: Vec<(usize, Arc<Candidate>)> = Vec::new();
        for (at, reservation) in known.0.iter().enumerate() {
            let candidate = queue.get(&reservation.job);
            if reservation.spec.het.is_some() {
                // Those of the other components come behind that of the first.
                together.extend(candidate.map(|candidate| (at, Arc::clone(&candidate.candidate))));
                continue;
            }
            let same = candidate.filter(|candidate| Arc::ptr_eq(&candidate.spec, &reservation.spec));
            let lasts = |candidate: &&Queued| match candidate.shortest < candidate.run_time {
                true => reservation.lasts(),
                false => candidate.run_time,
            };
            let Some(run_time) = same.map(lasts) else { continue };
            let Some(partition) = self.scene.partition(&reservation.partition) else { continue };
            let Some(realm) = self.realm_of(reservation) else { continue };
            let start = reservation.start.max(self.now);
            let lasts = self.state.lasts(realm, start, run_time);
            if self.state.has(realm, &reservation.parts, wanted(&reservation.spec), start, lasts) {
                self.state.book(&reservation.parts, wanted(&reservation.spec), start, lasts, false);
                let seat = self.seat(partition, realm);
                self.heads[seat].get_or_insert(reservation.job);
                let kept = Reservation { start, end: start + lasts, ..reservation.clone() };
                self.known.entry(reservation.job).or_default().push_back(kept);
            }
        }
        for (at, candidate) in together {
            self.keep_together(&candidate, &known.0[at..]);
        }
    }

    /// Starts a job, or finds out when it can start and why not now. Of an array this is one task; what is left of it is
    /// given back.
    fn consider(&mut self, candidate: Queued) -> Option<Queued> {
        let shortest_first = self.scene.policy.scheduler.order == Order::Sjf;
        let behind =
            candidate.all().all(|component| self.seats(component).all(|seat| self.heads[seat].is_some()));
        if shortest_first && behind && !candidate.second {
            self.later.push(Queued { second: true, ..candidate });
            return None;
        }
        if candidate.array.as_ref().is_some_and(|tasks| !self.throttle.lets(tasks)) {
            let (reason, detail) = queue::throttled(&candidate.spec);
            self.wait(&candidate, reason, detail, None);
            return None;
        }
        self.plan.report.considered += 1;
        if !candidate.rest.is_empty() {
            self.consider_together(&candidate);
            return None;
        }
        let prospects = match self.prospects(&candidate) {
            Ok(prospects) => prospects,
            Err(problem) => {
                self.wait(&candidate, Reason::BadConstraints, problem, None);
                return None;
            }
        };
        let known = self.known.get_mut(&candidate.attempt.job).and_then(VecDeque::pop_front);
        if let Some(known) = &known {
            self.state.unbook(&known.parts, wanted(&known.spec), known.start, known.lasts());
        }
        if self.starts_as_nominated(&candidate) {
            return None;
        }
        let (made, waiting) = (self.made.len(), self.plan.waiting.len());
        let waited = match self.search(&candidate, &prospects, known.is_some()) {
            Some((index, hit)) if hit.starts && candidate.waits == 0 => {
                let need = &prospects[index].request.need;
                let parts = self.state.parts(&self.scene, need, &hit);
                match &parts {
                    Some(parts) => self.start(&candidate, &prospects[index], &hit, parts),
                    None => self.hold_back(&candidate, &prospects, known, None),
                }
                parts.is_none()
            }
            _ if candidate.waits == 0 && self.clears_the_way(&candidate, &prospects) => false,
            found => {
                self.hold_back(&candidate, &prospects, known, found);
                true
            }
        };
        let told = candidate.told || self.plan.waiting.len() > waiting;
        let waits = candidate.waits + usize::from(waited);
        let reserved = self.made.len() > made;
        self.rest_of(Queued { dealt: candidate.dealt + 1, waits, told, ..candidate }, reserved)
    }

    /// What is left of an array after one of its tasks was dealt with: tasks that may start now, or are to have a
    /// reservation of their own as the last one has.
    fn rest_of(&mut self, candidate: Queued, reserved: bool) -> Option<Queued> {
        let tasks = candidate.array.as_ref().filter(|tasks| candidate.dealt < tasks.tasks.len())?;
        if candidate.waits == 0 {
            let lets = self.throttle.lets(tasks);
            if !lets {
                let (reason, detail) = queue::throttled(&candidate.spec);
                self.wait(&candidate, reason, detail, None);
            }
            return lets.then_some(candidate);
        }
        // What others of its tasks have reserved stays theirs.
        let known = self.known.remove(&candidate.attempt.job).unwrap_or_default();
        known.into_iter().for_each(|known| self.remember(known));
        let all = self.deep && self.backfill == Backfill::Conservative;
        (all && reserved && candidate.waits < RESERVED_TASKS).then_some(candidate)
    }

    /// Who waits for the same as a job in a partition and a realm: jobs of a reservation that has its own nodes hinder
    /// nobody but each other.
    fn seat(&self, partition: usize, realm: usize) -> usize {
        match self.state.realms().bounds(realm) {
            Some(_) => self.scene.partitions.len() + realm,
            None => self.scene.partitions[partition].component,
        }
    }

    /// Every seat that a job may have to wait in.
    fn seats<'a>(&'a self, candidate: &'a Candidate) -> impl Iterator<Item = usize> + 'a {
        let realms = self.state.realms().of_job(&candidate.spec);
        let choices = candidate.choices.iter();
        choices.flat_map(move |(partition, _)| {
            realms.clone().into_iter().map(|realm| self.seat(*partition, realm))
        })
    }

    fn seat_of(&self, prospect: &Prospect) -> usize {
        self.seat(prospect.partition, prospect.realm)
    }

    fn head_of(&self, prospect: &Prospect) -> Option<JobId> {
        self.heads[self.seat_of(prospect)]
    }

    /// The realm that a later start was planned in, if there still is one like it.
    fn realm_of(&self, made: &Reservation) -> Option<usize> {
        match &made.within {
            Some(name) => self.state.realms().named(name),
            None => Some(OPEN),
        }
    }

    /// Whether a job that has to wait gets a reservation where it is looked for.
    fn reserves(&self, prospect: &Prospect) -> bool {
        match self.backfill {
            Backfill::Conservative if self.deep => true,
            Backfill::Conservative | Backfill::Easy | Backfill::None => self.head_of(prospect).is_none(),
        }
    }

    /// The earliest start among a job's partitions; of equal ones the first it named.
    fn search(&mut self, candidate: &Queued, prospects: &[Prospect], is_known: bool) -> Option<(usize, Hit)> {
        shorter::earliest(candidate, self.now, |run_time, until| {
            self.search_for(candidate, prospects, is_known, run_time, until)
        })
    }

    /// The same before a time, if it runs so many seconds.
    fn search_for(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospect],
        is_known: bool,
        run_time: u64,
        before: Time,
    ) -> Option<(usize, Hit)> {
        let mut best: Option<(usize, Hit)> = None;
        for (index, prospect) in prospects.iter().enumerate() {
            let reserves = !is_known && self.reserves(prospect);
            if self.backfill == Backfill::None && !reserves && !is_known {
                continue;
            }
            let horizon = if reserves { before } else { before.min(self.now + 1) };
            let until = best.as_ref().map_or(horizon, |(_, hit)| hit.start.min(horizon));
            let hunt = Hunt { run_time, ..prospect.hunt(candidate, until) };
            // Without a reservation to be had, room that a job past its time still holds is of no use.
            if let Some(hit) = self.state.find(&hunt).filter(|hit| hit.starts || reserves) {
                best = Some((index, hit));
            }
        }
        best
    }

    /// Starts a job.
    fn start(&mut self, candidate: &Queued, prospect: &Prospect, hit: &Hit, parts: &[Part]) {
        self.state.book(parts, wanted(&candidate.spec), self.now, hit.lasts, true);
        let seat = self.seat_of(prospect);
        let head = self.heads[seat].take_if(|head| *head == candidate.attempt.job);
        let backfilled = head.is_none() && self.heads[seat].is_some();
        let why = explain::why(hit, backfilled, candidate.priority);
        let reservation = self.state.realms().reservation(prospect.realm);
        let task = candidate.task(candidate.dealt);
        let start = prospect.start(&self.scene, (candidate, task), reservation, parts, why);
        self.plan.starts.push(Start { time_limit: shorter::limit(hit), ..start });
        self.throttle.count(candidate);
    }

    /// Says why a job waits, and reserves what was found for it.
    fn hold_back(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospect],
        known: Option<Reservation>,
        found: Option<(usize, Hit)>,
    ) {
        if let Some(known) = known {
            self.state.book(&known.parts, wanted(&known.spec), known.start, known.lasts(), false);
            if let Some((partition, realm)) =
                self.scene.partition(&known.partition).zip(self.realm_of(&known))
            {
                let seat = self.seat(partition, realm);
                self.heads[seat].get_or_insert(known.job);
            }
            self.wavers |= Self::may_waver(candidate, &known);
            if !candidate.told {
                self.plan.waiting.push(Waiting { priority: candidate.priority, ..known.waiting.clone() });
            }
            self.remember(known);
            return;
        }
        let behind = prospects.iter().find_map(|prospect| self.head_of(prospect));
        let could_reserve = prospects.iter().any(|prospect| self.reserves(prospect));
        let never = if could_reserve { found.is_none() } else { self.lacks_nodes(prospects) };
        if never && let Some((reason, detail)) = prospect::never(&self.scene, prospects) {
            self.wait(candidate, reason, detail, None);
            return;
        }
        // Who waits for what cannot be in time holds up nobody.
        if could_reserve
            && found.is_none()
            && let Some(detail) = shorter::too_late(candidate)
        {
            self.wait(candidate, Reason::Resources, detail, None);
            return;
        }
        let (reason, detail) = self.why_not(candidate, prospects, behind);
        let reservation = found.and_then(|(index, hit)| self.reserve(candidate, &prospects[index], &hit));
        for prospect in prospects {
            let seat = self.seat_of(prospect);
            // Who does not fit into what is left of a reservation keeps nobody else out of it.
            let in_vain = reservation.is_none() && self.state.realms().bounds(prospect.realm).is_some();
            let blocks = reservation.as_ref().is_none_or(|made| {
                *made.partition == **self.scene.partitions[prospect.partition].partition.name()
                    && self.realm_of(made) == Some(prospect.realm)
            });
            if !in_vain && (blocks || self.backfill == Backfill::None) {
                self.heads[seat].get_or_insert(candidate.attempt.job);
            }
        }
        self.wait(candidate, reason, detail, reservation);
    }

    /// Why a job waits: for its reservation, for others', behind somebody, or for what is not free.
    fn why_not(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospect],
        behind: Option<JobId>,
    ) -> (Reason, String) {
        if let Some(detail) = self.not_begun(prospects) {
            return (Reason::Reservation, detail);
        }
        let open = prospects.iter().find(|prospect| prospect.realm == OPEN && self.explained < EXPLAINED);
        if let Some(prospect) = open
            && let Some(other) = self.state.kept_out_by(&prospect.hunt(candidate, self.now + 1))
        {
            self.explained += 1;
            let what = RESERVED[usize::from(!other.has(Flag::Maint))];
            return (Reason::ReqNodeNotAvail, format!("{what}: {}", other.name));
        }
        let reason = match behind {
            Some(_) => Reason::Priority,
            None if self.state.lacks_license(wanted(&candidate.spec)).is_some() => Reason::Licenses,
            None => Reason::Resources,
        };
        (reason, self.detail(candidate, prospects, behind))
    }

    /// The reservations that have yet to begin for a job that can run in no others, in a sentence.
    fn not_begun<'a>(&self, prospects: impl IntoIterator<Item = &'a Prospect>) -> Option<String> {
        let realms = self.state.realms();
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for prospect in prospects {
            names.insert(&realms.bounds(prospect.realm).filter(|own| own.start > self.now)?.name);
        }
        let names: Vec<&str> = names.into_iter().collect();
        Some(format!("reservation {} has not begun", names.join(", ")))
    }

    /// Books a later start.
    fn reserve(&mut self, candidate: &Queued, prospect: &Prospect, hit: &Hit) -> Option<Reservation> {
        let parts = self.state.parts(&self.scene, &prospect.request.need, hit)?;
        self.state.book(&parts, wanted(&candidate.spec), hit.start, hit.lasts, false);
        self.plan.report.reserved += 1;
        Some(self.reservation(candidate, prospect, hit, parts))
    }

    /// What is remembered of a later start that has been booked.
    fn reservation(
        &self,
        candidate: &Candidate,
        prospect: &Prospect,
        hit: &Hit,
        parts: Vec<Part>,
    ) -> Reservation {
        let explains = self.explained <= EXPLAINED;
        let known = self.state.realms().known_until();
        let after = explains.then(|| self.frees(hit.start, &parts)).flatten();
        let waiting = Waiting {
            start: Some(hit.start).filter(|start| start.since(self.now) < ENDLESS / 2 && *start < known),
            nodes: parts.iter().filter(|part| part.slots > 0).map(|part| part.node).collect(),
            place: explain::place(hit),
            after,
            ..Waiting::of(candidate.attempt.job)
        };
        Reservation {
            job: candidate.attempt.job,
            spec: Arc::clone(&candidate.spec),
            start: hit.start,
            end: hit.start + hit.lasts,
            partition: Arc::clone(self.scene.partitions[prospect.partition].partition.name()),
            within: self.state.realms().reservation(prospect.realm).map(|own| Arc::clone(&own.name)),
            parts,
            waiting,
        }
    }

    /// The job whose end a planned start waits for.
    fn frees(&self, at: Time, parts: &[Part]) -> Option<JobId> {
        let planned = self.ends.get(&at).into_iter().flatten().map(|index| &self.made[*index]);
        let shares = |made: &&Reservation| {
            made.parts.iter().any(|mine| parts.iter().any(|part| part.node == mine.node))
        };
        self.state.ends_at(at, parts).or_else(|| planned.filter(shares).map(|made| made.job).next())
    }

    fn remember(&mut self, reservation: Reservation) {
        // Who frees the nodes of whom is told of the first jobs only.
        if self.explained <= EXPLAINED {
            self.ends.entry(reservation.end).or_default().push(self.made.len());
        }
        self.made.push(reservation);
    }

    /// Notes that a job waits, and the promise made to the head of the queue.
    fn wait(
        &mut self,
        candidate: &Queued,
        reason: Reason,
        detail: String,
        mut reservation: Option<Reservation>,
    ) {
        let job = candidate.attempt.job;
        let planned = reservation.as_mut().map(|made| std::mem::replace(&mut made.waiting, Waiting::of(job)));
        let planned = planned.unwrap_or_else(|| Waiting::of(job));
        let waiting = Waiting { priority: candidate.priority, reason, detail, ..planned };
        let open = &self.heads[..self.scene.partitions.len()];
        let is_own = reservation.as_ref().is_some_and(|made| made.within.is_some());
        let is_head = !is_own && !self.wavers && open.iter().flatten().all(|head| *head == job);
        self.wavers |= reservation.as_ref().is_some_and(|made| Self::may_waver(candidate, made));
        let overdue = queue::is_overdue(&self.scene.policy.scheduler, candidate.eligible, self.now);
        let first = !candidate.promised && !candidate.told && self.plan.promise.is_none();
        if is_head && (self.firm || overdue) && first {
            // What hangs on a job that should have ended by now cannot be promised.
            self.plan.promise = waiting.start.filter(|start| *start > self.now).map(|start| (job, start));
        }
        if let Some(mut made) = reservation {
            made.waiting = waiting.clone();
            self.remember(made);
        }
        if !candidate.told {
            self.plan.waiting.push(waiting);
        }
    }

    /// Whether a job is planned in a reservation that it did not ask for: outside it would run longer.
    fn may_waver(candidate: &Candidate, made: &Reservation) -> bool {
        made.within.is_some() && candidate.spec.reservations().next().is_none()
    }

    /// Whether a job would not fit even if everything that is up were idle; asked for the first jobs of the queue only.
    fn lacks_nodes(&self, prospects: &[Prospect]) -> bool {
        let fits = |prospect: &Prospect| {
            let mut stages = prospect.stages.iter();
            stages.any(|stage| prospect.lenses.iter().any(|lens| explain::fits_up(&self.scene, lens, stage)))
        };
        self.explained < EXPLAINED && !prospects.iter().any(fits)
    }

    /// What is missing now, for the first jobs of the queue.
    fn detail(&mut self, candidate: &Queued, prospects: &[Prospect], behind: Option<JobId>) -> String {
        self.explained += 1;
        if self.explained > EXPLAINED {
            return String::new();
        }
        let Some(prospect) = prospects.first() else { return String::new() };
        let hunt = prospect.hunt(candidate, self.now + 1);
        let lens = &prospect.lenses[0];
        match (self.state.misfit(&hunt), behind) {
            (None, _) if self.state.lacks_license(wanted(&candidate.spec)).is_some() => {
                self.state.lacks_license(wanted(&candidate.spec)).unwrap_or_default()
            }
            (Some((misfit, free)), _) => explain::waiting(&lens.fabric, &prospect.request, &misfit, free),
            (None, Some(head)) => format!("job {head} comes first"),
            (None, None) => String::new(),
        }
    }

    /// Everything that has to be known to look for room for a job.
    fn prospects(&mut self, candidate: &Candidate) -> Result<Vec<Prospect>, String> {
        let mut prospects = Vec::with_capacity(candidate.choices.len());
        let mut problem = None;
        for realm in self.state.realms().of_job(&candidate.spec) {
            for choice in candidate.choices.iter() {
                let need = self.state.need(&choice.1.need);
                let within = (realm, self.state.realms().bounds(realm).map(|own| &**own));
                match self.lenses.prospect(&self.scene, candidate, choice, need, within, self.now) {
                    Ok(prospect) => prospects.push(prospect),
                    Err(error) => problem = problem.or(Some(error)),
                }
            }
        }
        let none = || "none of its reservations exists and lets it in".to_owned();
        if prospects.is_empty() { Err(problem.unwrap_or_else(none)) } else { Ok(prospects) }
    }
}
