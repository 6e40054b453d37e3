//! Counts of jobs that the replica updates with every entry, so that metrics need no walk over all jobs.
//!
//! The counts are by state, user, account and partition, and for pending jobs by partition, QOS and reason. A
//! job counts once for each array task that its record stands for. A job counts in the partition in which it
//! runs; a pending job, in the first partition that it asks for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::id::JobId;
use spur_core::model::job::{Job, JobSpec};
use spur_core::model::phase::{EndState, Phase, Then};
use spur_core::model::reason::Reason;
use spur_core::text::time::Time;

/// The states that Slurm's metrics count. A job may count in several: a completing job counts in
/// `completing`, `finished`, and its final state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    Cancelled,
    Completed,
    Completing,
    Configuring,
    Deadline,
    Failed,
    Finished,
    Hold,
    NodeFailed,
    OutOfMemory,
    Pending,
    PowerUpNode,
    Preempted,
    Requeued,
    Running,
    Started,
    Suspended,
    Timeout,
}

impl State {
    /// All states, with their names in Slurm's metrics.
    pub(crate) const ALL: [(Self, &'static str); 18] = [
        (Self::Cancelled, "cancelled"),
        (Self::Completed, "completed"),
        (Self::Completing, "completing"),
        (Self::Configuring, "configuring"),
        (Self::Deadline, "deadline"),
        (Self::Failed, "failed"),
        (Self::Finished, "finished"),
        (Self::Hold, "hold"),
        (Self::NodeFailed, "node_failed"),
        (Self::OutOfMemory, "outofmemory"),
        (Self::Pending, "pending"),
        (Self::PowerUpNode, "powerup_node"),
        (Self::Preempted, "preempted"),
        (Self::Requeued, "requeued"),
        (Self::Running, "running"),
        (Self::Started, "started"),
        (Self::Suspended, "suspended"),
        (Self::Timeout, "timeout"),
    ];
}

impl From<EndState> for State {
    fn from(state: EndState) -> Self {
        match state {
            EndState::Completed => Self::Completed,
            EndState::Cancelled => Self::Cancelled,
            EndState::Failed => Self::Failed,
            EndState::Timeout => Self::Timeout,
            EndState::NodeFail => Self::NodeFailed,
            EndState::Preempted => Self::Preempted,
            EndState::OutOfMemory => Self::OutOfMemory,
            EndState::Deadline => Self::Deadline,
        }
    }
}

/// A set of states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct States(u32);

impl States {
    fn with(self, state: State) -> Self {
        Self(self.0 | 1 << state as u8)
    }

    fn has(self, state: State) -> bool {
        self.0 & 1 << state as u8 != 0
    }

    fn of(job: &Job) -> Self {
        let none = Self::default();
        match &job.phase {
            Phase::Pending(pending) if pending.hold.is_some() => none.with(State::Pending).with(State::Hold),
            Phase::Pending(_) => none.with(State::Pending),
            Phase::Running { .. } => {
                let states = none.with(State::Running).with(State::Started);
                match (job.configuring.is_done(), job.configuring.nodes.is_empty()) {
                    (true, _) => states,
                    (false, true) => states.with(State::Configuring),
                    (false, false) => states.with(State::Configuring).with(State::PowerUpNode),
                }
            }
            Phase::Suspended(_) => none.with(State::Suspended).with(State::Started),
            Phase::Completing(completing) => {
                let states = none.with(State::Completing).with(State::Started).with(State::Finished);
                match completing.then {
                    Then::End => states.with(completing.outcome.state.into()),
                    Then::Requeue { .. } => {
                        states.with(completing.outcome.state.into()).with(State::Requeued)
                    }
                }
            }
            Phase::Ended(ended) => {
                none.with(ended.outcome.state.into()).with(State::Finished).with(State::Started)
            }
        }
    }
}

/// Sums over some jobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Number of jobs that are not over.
    pub(crate) jobs: u64,
    by_state: [u64; State::ALL.len()],
    /// CPUs allocated to running and suspended jobs.
    pub(crate) cpus: u64,
    /// GPUs allocated to running and suspended jobs.
    pub(crate) gpus: u64,
    /// Memory allocated to running and suspended jobs, in MiB.
    pub(crate) memory_mb: u64,
    /// Nodes allocated to running and suspended jobs; a shared node counts once for each job.
    pub(crate) nodes: u64,
    /// Number of job records in any state.
    records: u64,
}

impl Counts {
    /// Returns the number of jobs in a state.
    pub(crate) fn of(&self, state: State) -> u64 {
        self.by_state[state as usize]
    }

    fn count(&mut self, known: &Known, present: bool) {
        let tasks = u64::from(known.tasks);
        let change = |sum: &mut u64, by: u64| *sum = if present { *sum + by } else { *sum - by };
        for (state, _) in State::ALL.iter().filter(|(state, _)| known.states.has(*state)) {
            change(&mut self.by_state[*state as usize], tasks);
        }
        if !known.is_over() {
            change(&mut self.jobs, tasks);
        }
        change(&mut self.cpus, known.held.cpus);
        change(&mut self.gpus, known.held.gpus);
        change(&mut self.memory_mb, known.held.memory_mb);
        change(&mut self.nodes, known.held.nodes);
        change(&mut self.records, 1);
    }
}

/// The resources allocated to a running or suspended job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Held {
    cpus: u64,
    gpus: u64,
    memory_mb: u64,
    nodes: u64,
}

impl Held {
    fn of(cluster: &Cluster, job: &Job) -> Self {
        let (Phase::Running { .. } | Phase::Suspended(_)) = &job.phase else { return Self::default() };
        let Some(alloc) = job.phase.alloc() else { return Self::default() };
        let gpus = |part: &spur_core::model::alloc::NodeAlloc| {
            let shape = &cluster.node(part.node)?.shape;
            let called = part.gres.iter().filter_map(|held| shape.called(held));
            Some(
                called
                    .filter(|called| called.name == "gpu")
                    .map(|called| u64::from(called.count))
                    .sum::<u64>(),
            )
        };
        Self {
            cpus: alloc.cpus(),
            gpus: alloc.nodes.iter().filter_map(gpus).sum(),
            memory_mb: alloc.nodes.iter().map(|part| part.memory_mb).sum(),
            nodes: alloc.nodes.len() as u64,
        }
    }
}

/// The values under which a job was counted.
#[derive(Clone, Debug)]
struct Known {
    spec: Arc<JobSpec>,
    partition: Arc<str>,
    tasks: u32,
    states: States,
    held: Held,
    /// The reason that follows from the job itself; `None` if the planner gives the reason.
    own_reason: Option<Reason>,
    /// The reason under which the job was counted.
    reason: Reason,
    /// The job's begin time, if that was in the future.
    begins: Option<Time>,
}

impl Known {
    fn of(cluster: &Cluster, job: &Job, planned: &BTreeMap<JobId, Reason>, now: Time) -> Self {
        let held_in = job.phase.alloc().map(|alloc| Arc::clone(&alloc.partition));
        let asked = || job.spec.partitions.first().map_or_else(|| "".into(), Arc::clone);
        let begins = match &job.phase {
            Phase::Pending(pending) => pending.not_before.filter(|begin| *begin > now),
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) | Phase::Ended(_) => None,
        };
        let own_reason = own_reason(job, begins);
        let tasks = job.array.as_ref().map_or(1, |part| part.tasks.len());
        Self {
            spec: Arc::clone(&job.spec),
            partition: held_in.unwrap_or_else(asked),
            tasks: u32::try_from(tasks).unwrap_or(u32::MAX),
            states: States::of(job),
            held: Held::of(cluster, job),
            own_reason,
            reason: own_reason.or_else(|| planned.get(&job.id).copied()).unwrap_or_default(),
            begins,
        }
    }

    fn is_over(&self) -> bool {
        self.states.has(State::Finished) && !self.states.has(State::Completing)
    }

    fn is_pending(&self) -> bool {
        self.states.has(State::Pending)
    }
}

/// Returns the reason of a pending job that follows from the job itself, tested in the same order as for
/// `squeue`. `None` if the planner gives the reason; `Reason::None` for any other job.
fn own_reason(job: &Job, begins: Option<Time>) -> Option<Reason> {
    let Phase::Pending(pending) = &job.phase else { return Some(Reason::None) };
    if let Some(hold) = pending.hold {
        return Some(hold.reason());
    }
    if job.waits_for.is_some() {
        return Some(if job.never { Reason::DependencyNeverSatisfied } else { Reason::Dependency });
    }
    let begin = begins.map(|_| Reason::BeginTime);
    begin.or_else(|| job.nomination().map(|_| Reason::Preempting))
}

/// A group of pending jobs with the same partition, QOS and reason.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Queue {
    pub(crate) partition: Arc<str>,
    /// Name of the QOS; empty for a job without one.
    pub(crate) qos: Arc<str>,
    pub(crate) reason: Reason,
}

/// Numbers of nodes that the pending jobs of one partition ask for, each with its number of jobs.
#[derive(Clone, Debug, Default)]
struct Wishes {
    least: BTreeMap<u32, u64>,
    most: BTreeMap<u32, u64>,
}

/// The largest numbers of nodes that pending jobs ask for, as minimum and as maximum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct LargestWish {
    pub(crate) least: u32,
    pub(crate) most: u32,
}

impl Wishes {
    fn count(&mut self, spec: &JobSpec, tasks: u64, present: bool) {
        let Some(nodes) = &spec.shape.nodes else { return };
        for (wishes, wish) in [(&mut self.least, nodes.min), (&mut self.most, nodes.max.unwrap_or(0))] {
            count_in(wishes, wish, tasks, present);
        }
    }

    fn largest(&self) -> LargestWish {
        let largest = |wishes: &BTreeMap<u32, u64>| wishes.last_key_value().map_or(0, |(wish, _)| *wish);
        LargestWish { least: largest(&self.least), most: largest(&self.most) }
    }
}

/// Adds `by` to the count of `key` if `present`, and otherwise subtracts it; a count of zero is removed.
fn count_in<K: Ord>(counts: &mut BTreeMap<K, u64>, key: K, by: u64, present: bool) {
    let known = counts.entry(key);
    match (known, present) {
        (known, true) => *known.or_default() += by,
        (std::collections::btree_map::Entry::Occupied(mut known), false) => {
            *known.get_mut() -= by;
            if *known.get() == 0 {
                known.remove();
            }
        }
        (std::collections::btree_map::Entry::Vacant(_), false) => {}
    }
}

/// Sums by name.
pub(crate) type ByName = BTreeMap<Arc<str>, Counts>;

/// The counts, see the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    jobs: BTreeMap<JobId, Known>,
    /// Reasons that the last plan gave for the jobs that it considered.
    planned: BTreeMap<JobId, Reason>,
    /// Jobs that are completing.
    completing: BTreeSet<JobId>,
    /// Jobs whose begin time was in the future when they were counted.
    begins: BTreeSet<(Time, JobId)>,
    total: Counts,
    users: ByName,
    accounts: ByName,
    partitions: ByName,
    queue: BTreeMap<Queue, u64>,
    /// By partition: requests of all pending jobs, and of those that are not held.
    wishes: BTreeMap<Arc<str>, [Wishes; 2]>,
}

impl Tally {
    /// Counts these jobs again, in their state in `cluster` at `now`.
    pub(crate) fn update(&mut self, cluster: &Cluster, jobs: impl IntoIterator<Item = JobId>, now: Time) {
        for id in jobs {
            if let Some(known) = self.jobs.remove(&id) {
                self.count(id, &known, false);
            }
            if let Some(job) = cluster.job(id) {
                let known = Known::of(cluster, job, &self.planned, now);
                self.count(id, &known, true);
                self.jobs.insert(id, known);
            }
        }
    }

    /// Counts the jobs again whose begin time has come.
    pub(crate) fn advance(&mut self, cluster: &Cluster, now: Time) {
        let later = self.begins.split_off(&(Time(now.0.saturating_add(1)), JobId(0)));
        let come: Vec<JobId> = self.begins.iter().map(|(_, id)| *id).collect();
        self.begins.extend(later);
        self.update(cluster, come, now);
    }

    /// Takes over changed reasons of a new plan; `None` for a job that the plan did not consider.
    pub(crate) fn explain(&mut self, changes: &[(JobId, Option<Reason>)]) {
        for (id, reason) in changes {
            match reason {
                Some(reason) => self.planned.insert(*id, *reason),
                None => self.planned.remove(id),
            };
            let Some(known) = self.jobs.get_mut(id).filter(|known| known.own_reason.is_none()) else {
                continue;
            };
            let before = std::mem::replace(&mut known.reason, reason.unwrap_or_default());
            let tasks = u64::from(known.tasks);
            let queue = queue_of(known);
            count_in(&mut self.queue, Queue { reason: before, ..queue.clone() }, tasks, false);
            count_in(&mut self.queue, queue, tasks, true);
        }
    }

    fn count(&mut self, id: JobId, known: &Known, present: bool) {
        self.total.count(known, present);
        let spec = &known.spec;
        count_named(&mut self.users, &spec.owner.user, known, present);
        if let Some(account) = &spec.account {
            count_named(&mut self.accounts, account, known, present);
        }
        count_named(&mut self.partitions, &known.partition, known, present);
        if known.states.has(State::Completing) {
            match present {
                true => self.completing.insert(id),
                false => self.completing.remove(&id),
            };
        }
        if !known.is_pending() {
            return;
        }
        let tasks = u64::from(known.tasks);
        count_in(&mut self.queue, queue_of(known), tasks, present);
        let wishes = self.wishes.entry(Arc::clone(&known.partition)).or_default();
        let is_free = !known.states.has(State::Hold);
        for wishes in wishes.iter_mut().take(1 + usize::from(is_free)) {
            wishes.count(spec, tasks, present);
        }
        if let Some(begin) = known.begins {
            match present {
                true => self.begins.insert((begin, id)),
                false => self.begins.remove(&(begin, id)),
            };
        }
    }

    /// Returns a copy with the sums only, for reading.
    pub(crate) fn without_jobs(&self) -> Self {
        Self {
            total: self.total,
            users: self.users.clone(),
            accounts: self.accounts.clone(),
            partitions: self.partitions.clone(),
            queue: self.queue.clone(),
            wishes: self.wishes.clone(),
            ..Self::default()
        }
    }

    /// Returns the jobs that are completing.
    pub(crate) fn completing(&self) -> &BTreeSet<JobId> {
        &self.completing
    }

    /// Returns the sums over all jobs.
    pub(crate) fn total(&self) -> &Counts {
        &self.total
    }

    /// Returns the sums by user.
    pub(crate) fn users(&self) -> &ByName {
        &self.users
    }

    /// Returns the sums by account; jobs without an account are left out.
    pub(crate) fn accounts(&self) -> &ByName {
        &self.accounts
    }

    /// Returns the sums over the jobs of a partition.
    pub(crate) fn partition(&self, name: &str) -> Counts {
        self.partitions.get(name).copied().unwrap_or_default()
    }

    /// Returns the numbers of pending jobs by partition, QOS and reason.
    pub(crate) fn queue(&self) -> &BTreeMap<Queue, u64> {
        &self.queue
    }

    /// Returns the number of pending jobs of a partition that wait for `reason`.
    pub(crate) fn waiting_for(&self, partition: &str, reason: Reason) -> u64 {
        let meant = |queue: &Queue| &*queue.partition == partition && queue.reason == reason;
        self.queue.iter().filter(|(queue, _)| meant(queue)).map(|(_, count)| count).sum()
    }

    /// Returns the largest requests for nodes in a partition: of all pending jobs, and of those that are not
    /// held.
    pub(crate) fn largest_wishes(&self, partition: &str) -> [LargestWish; 2] {
        let wishes = self.wishes.get(partition);
        wishes.map_or_else(Default::default, |wishes| [wishes[0].largest(), wishes[1].largest()])
    }
}

fn queue_of(known: &Known) -> Queue {
    let qos = known.spec.qos.as_ref().map_or_else(|| "".into(), Arc::clone);
    Queue { partition: Arc::clone(&known.partition), qos, reason: known.reason }
}

/// Adds a job to the sums of a name, or removes the job from them; a name without jobs is removed.
fn count_named(sums: &mut ByName, name: &Arc<str>, known: &Known, present: bool) {
    let counts = match sums.get_mut(name) {
        Some(counts) => counts,
        None => sums.entry(Arc::clone(name)).or_default(),
    };
    counts.count(known, present);
    if counts.records == 0 {
        sums.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use spur_core::cluster::Entry;

    use super::*;

    /// Renders the sums, whose order does not depend on the order of changes.
    fn sums(tally: &Tally) -> String {
        let Tally { total, users, accounts, partitions, queue, completing, begins, .. } = tally;
        let waiting = |name: &Arc<str>| tally.largest_wishes(name);
        let wishes: Vec<_> = tally.partitions.keys().map(waiting).collect();
        format!(
            "{total:?}\n{users:?}\n{accounts:?}\n{partitions:?}\n{queue:?}\n{completing:?}\n{begins:?}\n{wishes:?}"
        )
    }

    /// Returns a possible plan: a reason for all pending jobs but the first, and none for all others.
    fn plan(cluster: &Cluster, reason: Reason) -> Vec<(JobId, Option<Reason>)> {
        let last = cluster.next_job().0;
        let waiting: Vec<JobId> = cluster.jobs().pending().map(|job| job.id).skip(1).collect();
        let of = |id| (id, waiting.contains(&id).then_some(reason));
        (1..last).map(|number| of(JobId(number))).collect()
    }

    /// The updated counts equal those of a walk over all jobs, after each entry of every recorded journal.
    #[test]
    fn counts_that_are_kept_are_those_of_a_walk() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/data/journal");
        let versions = std::fs::read_dir(folder).expect("tests/data/journal");
        let files = versions.flat_map(|version| {
            std::fs::read_dir(version.expect("an entry").path()).expect("a folder of journals")
        });
        let mut seen = 0;
        for path in files.map(|file| file.expect("an entry").path()) {
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            let (mut cluster, mut kept) = (Cluster::default(), Tally::default());
            cluster.take_changed_jobs();
            let text = std::fs::read_to_string(&path).expect("a journal");
            for line in text.lines() {
                let entry: Entry = serde_json::from_str(line).expect("an entry");
                cluster.apply(&entry);
                let now = cluster.at();
                let changed = cluster.take_changed_jobs();
                kept.update(&cluster, changed, now);
                kept.advance(&cluster, now);
                let said = plan(
                    &cluster,
                    if entry.seq.is_multiple_of(3) { Reason::Resources } else { Reason::Priority },
                );
                kept.explain(&said);
                let mut walked = Tally::default();
                walked.explain(&said);
                walked.update(&cluster, cluster.jobs().iter().map(|job| job.id), now);
                assert_eq!(sums(&kept), sums(&walked), "{} at {line}", path.display());
                seen += cluster.jobs().len();
            }
        }
        assert!(seen > 0, "no journal holds a job");
    }

    #[test]
    fn every_state_has_its_name_at_its_number() {
        for (number, (state, _)) in State::ALL.iter().enumerate() {
            assert_eq!(*state as usize, number);
        }
    }
}
