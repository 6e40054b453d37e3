//! The queue as a pass gets it: the jobs to look at, their order, and the reasons of all others.

pub(super) mod asleep;
pub(super) mod chunks;
pub(super) mod limited;
pub(super) mod pending_order;
pub mod priority;
mod sections;

use std::collections::{BTreeMap, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

use crate::cluster::{Cluster, Partition};
use crate::id::{ArrayTaskId, Attempt, JobId, NodeId};
use crate::model::accounts::qos::QosFlag;
use crate::model::config::{
    Backfill, Order, PartitionConfig, PartitionState, PreemptBy, PriorityFlag, QosConfig, SchedulerPolicy,
};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{Pending, Phase};
use crate::model::reason::Reason;
use crate::model::tres::requested_tres;
use crate::text::array::TaskSet;
use crate::text::time::Time;
use crate::text::tres::TresKind;
use crate::text::weights::Weight;

use super::forecast::PlanInput;
use super::inventory::Inventory;
use super::plan::Waiting;
use super::precedence;
use super::request::counts::Counts;
use super::request::{Request, eligible_nodes, least};
use chunks::{Key, Least};
use limited::{ChoiceLimits, QueueLimits};
use priority::{Factors, Facts};

/// A job that may be started if it fits: the facts that do not change while it waits.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) attempt: Attempt,
    pub(super) spec: Arc<JobSpec>,
    pub(super) eligible: Time,
    /// Planned run time in seconds.
    pub(super) run_time: u64,
    /// The shortest run time in seconds that the job accepts for an earlier start (`--time-min`), at most
    /// `run_time`.
    pub(super) shortest: u64,
    /// The nodes of the job that `--gather-with` names, if that job runs.
    pub(super) gather_with: Vec<NodeId>,
    pub(super) choices: Choices,
    /// The limits of associations and QOS by choice, where these are enforced.
    pub(super) limits: Option<Arc<[ChoiceLimits]>>,
    /// The other components, where this is the first one of a het job.
    pub(super) rest: Box<[Candidate]>,
    /// The tasks that a record of an array stands for.
    pub(super) array: Option<Box<Tasks>>,
}

impl Candidate {
    /// This candidate and the other components of its het job.
    pub(super) fn all(&self) -> impl Iterator<Item = &Candidate> {
        std::iter::once(self).chain(&self.rest)
    }

    /// The largest number of searches for victims that the job may need in one pass: for every task, in every
    /// partition, with every alternative of its constraint; for a het job in every combination of these.
    pub(super) fn claims(&self) -> usize {
        let tasks = self.array.as_ref().map_or(1, |array| array.tasks.len());
        let ways = self.all().map(|component| {
            component.choices.len().saturating_mul(eligible_nodes::most_alternatives(&component.spec))
        });
        ways.fold(tasks, usize::saturating_mul)
    }

    /// The next task after `before` tasks have been dealt with; `None` if the job belongs to no array.
    pub(super) fn task(&self, before: usize) -> Option<ArrayTaskId> {
        self.array.as_ref().and_then(|array| array.tasks.nth(before)).map(ArrayTaskId)
    }
}

/// Tasks of an array that wait together.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Tasks {
    /// The number of the array.
    pub(super) id: JobId,
    pub(super) tasks: TaskSet,
    /// Number of further tasks of the array that may start now; `None` without a limit.
    pub(super) more: Option<usize>,
}

/// The state of arrays that limit how many of their tasks run at a time.
#[derive(Clone, Debug, Default)]
pub(super) struct Throttle {
    /// Number of tasks of each array that the pass has started.
    started: BTreeMap<JobId, usize>,
    /// The planned ends of each array's tasks that run, start or have a reservation, the earliest first. Kept
    /// only where every job has a reservation.
    ends: BTreeMap<JobId, Vec<Time>>,
}

impl Throttle {
    /// True if the array's limit allows another task to start.
    pub(super) fn lets(&self, tasks: &Tasks) -> bool {
        let started = self.started.get(&tasks.id).copied().unwrap_or(0);
        tasks.more.is_none_or(|more| started < more)
    }

    /// Counts a start.
    pub(super) fn count(&mut self, candidate: &Candidate) {
        if let Some(tasks) = candidate.array.as_ref().filter(|tasks| tasks.more.is_some()) {
            *self.started.entry(tasks.id).or_default() += 1;
        }
    }

    /// Notes the planned end of a task of an array with a limit.
    pub(super) fn occupy(&mut self, candidate: &Candidate, end: Time) {
        if let Some(tasks) = candidate.array.as_ref().filter(|tasks| tasks.more.is_some()) {
            self.occupy_array(tasks.id, end);
        }
    }

    /// Notes the planned end of a task of an array.
    pub(super) fn occupy_array(&mut self, array: JobId, end: Time) {
        let ends = self.ends.entry(array).or_default();
        ends.insert(ends.partition_point(|other| *other <= end), end);
    }

    /// The time from which the array's limit allows another task; `None` if it does already, or there is no
    /// limit.
    pub(super) fn lets_from(&self, candidate: &Candidate, now: Time) -> Option<Time> {
        let tasks = candidate.array.as_ref().filter(|tasks| tasks.more.is_some())?;
        let limit = candidate.spec.array.as_ref()?.limit?;
        let ends = self.ends.get(&tasks.id).map_or(&[][..], Vec::as_slice);
        let before = ends.len().checked_sub(usize::try_from(limit).unwrap_or(usize::MAX))?;
        let from = ends.get(before).copied().unwrap_or(now);
        let from = if self.lets(tasks) { from } else { from.max(now + 1) };
        (from > now).then_some(from)
    }
}

/// The partitions that a job may run in, each with the job's request there: the highest tier first, equal
/// tiers in the order of the job. Consecutive jobs with equal choices share them.
pub(super) type Choices = Arc<[(usize, Request)]>;

/// One more than the highest tier that a partition can have.
const TIERS: u32 = 1 << 16;

/// Number of recent choices that are remembered for sharing.
const ALIKE: usize = 16;

/// A candidate on its way through one pass.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) candidate: Arc<Candidate>,
    /// The key of the job in the queue.
    pub(super) key: Key,
    /// The key of the job among the jobs that backfill, where these have an order of their own.
    pub(super) behind: Key,
    pub(super) priority: u32,
    /// True if the job has a promised start.
    pub(super) promised: bool,
    /// True if the job was put off once already.
    pub(super) second: bool,
    /// Number of its tasks that the pass has dealt with.
    pub(super) dealt: usize,
    /// Number of its tasks that have to wait; the tasks behind them wait, too.
    pub(super) waits: usize,
    /// True if the plan already has the reason why the job waits.
    pub(super) told: bool,
}

impl Deref for Queued {
    type Target = Candidate;

    fn deref(&self) -> &Candidate {
        &self.candidate
    }
}

/// The queue, and the jobs that are set aside.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The candidates, the first one first.
    pub(super) candidates: Vec<Queued>,
    /// Jobs that wait for something other than resources.
    pub(super) aside: Vec<Waiting>,
    /// True if a depth left jobs out.
    pub(super) truncated: bool,
}

/// The reason why a job waits for something other than resources, with its sentence.
pub(super) type Obstacle = (Reason, String);

/// A job that may be started, with everything that its place in the queue depends on.
#[derive(Clone, Debug)]
pub(super) struct Ranked {
    facts: Facts,
    /// The rank before the order; larger ranks come first. Where QOS preempt, the depth of the job's QOS
    /// decides first, then the highest tier of its partitions that start jobs.
    tier: u32,
    job: JobId,
    /// The first of its partitions that starts jobs.
    pub(super) partition: usize,
    /// The numeric id of the user.
    pub(super) uid: u32,
    /// The reach of the job: it can preempt running jobs only of levels below this; see [`Least::reach`].
    reach: u32,
    /// True if the job has a promised start.
    pub(super) promised: bool,
    /// The candidate, if the request is valid in any of its partitions.
    pub(super) candidate: Result<Arc<Candidate>, Obstacle>,
}

impl Ranked {
    /// Updates the fair-share factor from the current ranks.
    pub(super) fn share(&mut self, cluster: &Cluster, inventory: &Inventory) {
        if let Some(job) = cluster.job(self.job) {
            self.facts.fair_share = fair_share(cluster, inventory, &job.spec, self.partition);
        }
    }

    /// The key of the job where backfill is sorted by planned run time.
    pub(super) fn by_length(&self, key: Key) -> Key {
        key.by_length(self.facts.weighed_time)
    }

    /// The shortest run time in seconds that the job accepts.
    pub(super) fn shortest(&self) -> u64 {
        self.candidate.as_ref().map_or(self.facts.run_time, |candidate| candidate.shortest)
    }

    /// True if the job, or a component of it, names a reservation of nodes.
    pub(super) fn asks_for_reservation(&self) -> bool {
        let candidate = self.candidate.iter().flat_map(|candidate| candidate.all());
        candidate.into_iter().any(|candidate| candidate.spec.reservations().next().is_some())
    }

    /// True if the job stands for tasks of an array.
    pub(super) fn is_array(&self) -> bool {
        self.candidate.as_ref().is_ok_and(|candidate| candidate.array.is_some())
    }

    /// True if this is the same record as `before` with some tasks less, and no task may start now that could
    /// not then.
    pub(super) fn is_rest_of(&self, before: &Self) -> bool {
        let (Ok(now), Ok(then)) = (&self.candidate, &before.candidate) else { return false };
        let (Some(mine), Some(theirs)) = (&now.array, &then.array) else { return false };
        mine.more.is_some() == theirs.more.is_some()
            && mine.more <= theirs.more
            && mine.tasks.len() <= theirs.tasks.len()
            && (self.tier, self.partition, self.uid) == (before.tier, before.partition, before.uid)
            && (now.attempt, now.eligible) == (then.attempt, then.eligible)
            && (now.run_time, now.shortest) == (then.run_time, then.shortest)
            && Arc::ptr_eq(&now.spec, &then.spec)
            && now.gather_with == then.gather_with
            && now.choices == then.choices
    }

    /// The least that the job takes in any of its partitions, and its reach.
    pub(super) fn at_least(&self) -> Least {
        let choices = self.candidate.iter().flat_map(|candidate| candidate.choices.iter());
        let counts = choices.map(|(_, request)| Counts::of(request)).reduce(Counts::min).unwrap_or_default();
        Least { counts, run_time: self.shortest(), reach: self.reach }
    }
}

/// The priority of a job at `now`, also of one that waits for a time or for other jobs, that no pass has
/// looked at, or that runs. A job that is not eligible has no age yet.
#[must_use]
pub fn present_priority(cluster: &Cluster, job: &Job, now: Time) -> u32 {
    let inventory = cluster.standing(Inventory::new);
    let runs_in = job.phase.alloc().map(|alloc| &alloc.partition);
    let partitions = inventory.partitions_of(&job.spec);
    let partitions = partitions.filter(|(_, one)| runs_in.is_none_or(|name| name == one.name()));
    let factors = partitions.clone().map(|(_, partition)| partition.config.priority_job_factor);
    let first = partitions.clone().next().map(|(index, _)| index);
    let eligible = job.eligible().unwrap_or(now);
    let facts = facts(cluster, &inventory, job, eligible, (first, factors.max().unwrap_or(0)));
    priority::multifactor(&inventory.policy.scheduler, &inventory.scale, &facts, now)
}

/// The priority of a job in one of its partitions.
#[derive(Clone, Debug, PartialEq)]
pub struct PartPriority {
    /// The name of the partition.
    pub partition: Arc<str>,
    /// The multifactor priority.
    pub priority: u32,
    /// The factors of the priority; `None` where the priority was asked for or set by an operator.
    pub factors: Option<Factors>,
    /// The resources that have a weight.
    pub tres: Vec<TresShare>,
}

/// The share of a partition's resource that a job requests.
#[derive(Clone, Debug, PartialEq)]
pub struct TresShare {
    /// The resource.
    pub kind: TresKind,
    /// The share, from 0 to 1; with `NO_NORMAL_TRES`, the requested count (of memory in MiB).
    pub share: f64,
    /// The weight of one unit of the resource; of memory, the weight of one MiB.
    pub weight: f64,
}

impl TresShare {
    fn weighted(&self) -> f64 {
        self.share * self.weight
    }
}

/// The shares of a partition's resources that have a weight.
fn tres_shares(inventory: &Inventory, spec: &JobSpec, partition: usize) -> Vec<TresShare> {
    let weights = &inventory.policy.scheduler.priority_weight_tres;
    if weights.is_empty() {
        return Vec::new();
    }
    let (asked, all) = (requested_tres(&spec.shape), inventory.tres(partition));
    let counts = inventory.policy.scheduler.has_flag(PriorityFlag::NoNormalTres);
    let share = |weight: &Weight| TresShare {
        share: match counts {
            true => priority::real(asked.get(&weight.kind)),
            false => priority::ratio(asked.get(&weight.kind), all.get(&weight.kind)),
        },
        weight: weight.of_one(),
        kind: weight.kind.clone(),
    };
    weights.iter().map(share).collect()
}

/// The priorities of a job in its partitions, of which the largest counts; empty for a job that waits for
/// something other than resources. With `ACCRUE_ALWAYS`, it is empty for held jobs only. Running and
/// suspended jobs have a priority in their partition with `CALCULATE_RUNNING`, else none. Components of a het
/// job have the priority of the first component with the size of the whole.
#[must_use]
pub fn priorities(cluster: &Cluster, job: &Job, now: Time) -> Vec<PartPriority> {
    let inventory = cluster.standing(Inventory::new);
    let leader = job.spec.het.as_deref().and_then(|het| cluster.job(het.leader)).unwrap_or(job);
    let scheduler = &inventory.policy.scheduler;
    let is_weighed = match &leader.phase {
        Phase::Pending(pending) if scheduler.has_flag(PriorityFlag::AccrueAlways) => pending.hold.is_none(),
        Phase::Pending(pending) => obstacle(cluster, leader, pending, now).is_none(),
        Phase::Running { .. } | Phase::Suspended(_) => scheduler.has_flag(PriorityFlag::CalculateRunning),
        Phase::Completing(_) | Phase::Ended(_) => false,
    };
    if !is_weighed {
        return Vec::new();
    }
    let runs_in = job.phase.alloc().map(|alloc| &alloc.partition);
    let eligible = leader.eligible().unwrap_or(leader.submitted);
    let mut whole = facts(cluster, &inventory, leader, eligible, (None, 0));
    for (nodes, cpus) in cluster.jobs().followers(leader).map(|job| least(&job.spec.shape)) {
        whole.nodes = whole.nodes.saturating_add(nodes);
        whole.cpus = whole.cpus.saturating_add(cpus);
    }
    let (policy, scale) = (&inventory.policy.scheduler, &inventory.scale);
    let partitions = inventory.partitions_of(&job.spec);
    partitions
        .filter(|(_, one)| runs_in.is_none_or(|name| name == one.name()))
        .map(|(index, partition)| {
            let facts = Facts {
                partition_factor: partition.config.priority_job_factor,
                assoc_priority: assoc_priority(cluster, &inventory, &leader.spec, index),
                fair_share: cluster.fair_shares().factor(&cluster.own_holder(&leader.spec, partition)),
                tres: tres_shares(&inventory, &leader.spec, index).iter().map(TresShare::weighted).sum(),
                ..whole
            };
            PartPriority {
                partition: Arc::clone(partition.name()),
                priority: priority::multifactor(policy, scale, &facts, now),
                factors: facts.explicit.is_none().then(|| Factors::new(policy, scale, &facts, now)),
                tres: tres_shares(&inventory, &leader.spec, index),
            }
        })
        .collect()
}

/// The obstacle of a job whose user lacks an association in one of its partitions; `None` if no association
/// is missing.
fn not_by_account(cluster: &Cluster, spec: &JobSpec) -> Option<Obstacle> {
    if spec.partitions.iter().all(|partition| cluster.has_association(spec, partition)) {
        return None;
    }
    let (user, account) = (&spec.owner.user, spec.account.as_deref().unwrap_or_default());
    Some((Reason::InvalidAccount, format!("user {user} has no association with account '{account}'")))
}

/// The facts of a job that depend on it alone; forecasts supply the run time.
fn facts(
    cluster: &Cluster,
    inventory: &Inventory,
    job: &Job,
    eligible: Time,
    (partition, partition_factor): (Option<usize>, u32),
) -> Facts {
    let (nodes, cpus) = least(&job.spec.shape);
    let tres = partition.map(|partition| tres_shares(inventory, &job.spec, partition));
    let limit = job.spec.time_limit.seconds();
    Facts {
        submitted: job.submitted,
        eligible,
        accrues_from: accrues_from(cluster, job, eligible),
        limit_minutes: limit.map_or(u64::from(u32::MAX), |seconds| seconds.div_ceil(60)),
        nodes,
        cpus,
        run_time: 1,
        weighed_time: 1,
        partition_factor,
        qos_priority: inventory.policy.qos_of(job.spec.qos.as_deref()).map_or(0, |qos| qos.priority),
        assoc_priority: partition
            .map_or(0, |partition| assoc_priority(cluster, inventory, &job.spec, partition)),
        fair_share: partition.map_or(0.0, |partition| fair_share(cluster, inventory, &job.spec, partition)),
        tres: tres.iter().flatten().map(TresShare::weighted).sum(),
        explicit: job.spec.priority,
        nice: job.spec.nice,
        kept: kept_priority(inventory, job),
    }
}

/// The time from which a job that is eligible since `eligible` gains age; `None` if limits keep it from that.
fn accrues_from(cluster: &Cluster, job: &Job, eligible: Time) -> Option<Time> {
    if cluster.policy().scheduler.has_flag(PriorityFlag::AccrueAlways) {
        return Some(job.submitted);
    }
    let Phase::Pending(pending) = &job.phase else { return Some(eligible) };
    let is_limited = || cluster.limits_accrual() && !cluster.accrual_rules(&job.spec).is_empty();
    pending.accrued.or_else(|| (!is_limited()).then_some(eligible))
}

/// The priority below which a pending job does not fall; 0 without `INCR_ONLY`.
fn kept_priority(inventory: &Inventory, job: &Job) -> u32 {
    let keeps = inventory.policy.scheduler.has_flag(PriorityFlag::IncrOnly);
    match &job.phase {
        Phase::Pending(pending) if keeps => pending.kept_priority.unwrap_or(0),
        _ => 0,
    }
}

/// The `Priority` of the association that a job counts for in a partition, inherited if the association has
/// none of its own; 0 if there is none, or if `priority_weight_assoc` is 0.
fn assoc_priority(cluster: &Cluster, inventory: &Inventory, spec: &JobSpec, partition: usize) -> u64 {
    if inventory.policy.scheduler.priority_weight_assoc == 0 {
        return 0;
    }
    let accounts = cluster.accounts();
    let charged = cluster.charged(spec, &inventory.partitions[partition].partition);
    let association = charged.association.and_then(|id| accounts.association(id));
    association.and_then(|own| accounts.priority_of(own)).unwrap_or(0)
}

/// The fair-share factor of a job in a partition; 0 if fair share has no weight.
fn fair_share(cluster: &Cluster, inventory: &Inventory, spec: &JobSpec, partition: usize) -> f64 {
    if inventory.policy.scheduler.priority_weight_fairshare == 0 {
        return 0.0;
    }
    let partition = &inventory.partitions[partition].partition;
    cluster.fair_shares().factor(&cluster.own_holder(spec, partition))
}

/// Computes the sort keys of jobs.
#[derive(Clone, Debug)]
pub(super) struct Measure {
    inventory: Arc<Inventory>,
    /// For each QOS, the length of the longest chain of QOS that may preempt it. Empty where QOS do not
    /// preempt.
    depths: Vec<u32>,
    /// The choices of recent jobs, the newest first.
    alike: VecDeque<Choices>,
    pub(super) limits: QueueLimits,
}

impl Measure {
    /// The measures of an inventory.
    pub(super) fn new(inventory: Arc<Inventory>) -> Self {
        let by_qos = inventory.policy.preempt.by == PreemptBy::Qos;
        let depths = if by_qos { inventory.policy.qos_depths() } else { Vec::new() };
        Self { inventory, depths, alike: VecDeque::with_capacity(ALIKE), limits: QueueLimits::default() }
    }

    /// True if jobs change places as time passes, other than by reaching `max_wait`.
    pub(super) fn varies(&self) -> bool {
        let policy = &self.inventory.policy.scheduler;
        match policy.order {
            Order::Wfp3 | Order::Unicep => true,
            Order::Multifactor => policy.priority_weight_age > 0 && policy.priority_max_age.0 > 0,
            Order::Fcfs | Order::Sjf | Order::Saf | Order::F1 | Order::F4 => false,
        }
    }

    /// A pending job with the facts for its place, or the obstacle that it waits for.
    pub(super) fn rank(&mut self, input: PlanInput<'_>, job: &Job) -> Result<Ranked, Obstacle> {
        let PlanInput { cluster, forecast, now, .. } = input;
        let Phase::Pending(pending) = &job.phase else { return Err((Reason::None, String::new())) };
        // Where every job has a reservation, the next tasks of an array at its limit have one, too.
        let plans_all = self.inventory.policy.scheduler.backfill == Backfill::Conservative;
        let obstacle = obstacle(cluster, job, pending, now)
            .or_else(|| (!plans_all && cluster.more_tasks(job) == Some(0)).then(|| throttled(&job.spec)))
            .or_else(|| not_by_account(cluster, &job.spec))
            .or_else(|| self.not_by_usage(cluster, &job.spec))
            .or_else(|| self.not_by_qos(&job.spec));
        if let Some(obstacle) = obstacle {
            return Err(obstacle);
        }
        let (mut first, mut tier, mut factor) = (None, 0, 0);
        let qos = self.inventory.policy.qos_of(job.spec.qos.as_deref());
        for (index, partition) in self.inventory.partitions_of(&job.spec) {
            if starts(partition, &job.spec, qos) {
                first = first.or(Some(index));
                tier = partition.config.priority_tier.max(tier);
                factor = partition.config.priority_job_factor.max(factor);
            }
        }
        let Some(partition) = first else { return Err(self.closed(job)) };
        let eligible = pending.eligible.unwrap_or(job.submitted);
        let mut facts = Facts {
            run_time: forecast.run_time(job).max(1),
            weighed_time: forecast.weighed_time(job).max(1),
            ..facts(cluster, &self.inventory, job, eligible, (first, factor))
        };
        let candidate = self.candidate(cluster, job, &facts).and_then(|first| {
            let rest = self.rest(input, job, &mut facts)?;
            Ok(Arc::new(Candidate { rest, ..first }))
        });
        // A het job may preempt only jobs that every component could preempt, so the smallest reach counts.
        let components = std::iter::once(job).chain(cluster.jobs().followers(job));
        Ok(Ranked {
            reach: components.map(|job| self.reach(job)).min().unwrap_or(0),
            facts,
            tier: self.standing(&job.spec, tier),
            job: job.id,
            partition,
            uid: job.spec.owner.uid,
            promised: job.promised.is_some(),
            candidate,
        })
    }

    /// The reach of a job or of one component; see [`precedence::reach`].
    fn reach(&self, job: &Job) -> u32 {
        let configs = self.inventory.partitions_of(&job.spec).map(|(_, partition)| &partition.config);
        let tiers =
            self.inventory.partitions.iter().map(|inventory| inventory.partition.config.priority_tier);
        precedence::reach(&self.inventory.policy, tiers, job.spec.qos.as_deref(), configs)
    }

    /// The other components of a het job. Adds their size and run time to the facts of the first component,
    /// whose place the het job has.
    fn rest(
        &mut self,
        PlanInput { cluster, forecast, .. }: PlanInput<'_>,
        leader: &Job,
        facts: &mut Facts,
    ) -> Result<Box<[Candidate]>, Obstacle> {
        let mut rest = Vec::new();
        for job in cluster.jobs().followers(leader) {
            let (nodes, cpus) = least(&job.spec.shape);
            facts.nodes = facts.nodes.saturating_add(nodes);
            facts.cpus = facts.cpus.saturating_add(cpus);
            let run_time = forecast.run_time(job).max(1);
            facts.run_time = facts.run_time.max(run_time);
            facts.weighed_time = facts.weighed_time.max(forecast.weighed_time(job));
            rest.push(self.candidate(cluster, job, &Facts { run_time, ..*facts })?);
        }
        Ok(rest.into())
    }

    /// The obstacle of a job whose fair-share factor is below a usage threshold in one of its partitions;
    /// `None` if there is no such threshold.
    fn not_by_usage(&self, cluster: &Cluster, spec: &JobSpec) -> Option<Obstacle> {
        let mut partitions = self.inventory.partitions_of(spec).filter(|_| self.has_thresholds());
        let below = partitions.find_map(|(_, partition)| cluster.below_threshold(spec, partition))?;
        Some((Reason::QOSUsageThreshold, below.to_string()))
    }

    /// True if a QOS has the flag `EnforceUsageThreshold`.
    pub(super) fn has_thresholds(&self) -> bool {
        self.inventory.policy.qos.iter().any(|qos| qos.has(QosFlag::EnforceUsageThreshold))
    }

    /// The obstacle by the job's QOS that holds in every partition; `None` if there is none.
    fn not_by_qos(&self, spec: &JobSpec) -> Option<Obstacle> {
        let policy = &self.inventory.policy;
        let name = spec.qos.as_deref()?;
        if !policy.knows_qos(Some(name)) {
            return Some((Reason::InvalidQOS, format!("there is no QOS {name} any more")));
        }
        let most = policy.qos_of(Some(name))?.max_wall?;
        let least = spec.least_time();
        let sentence = || format!("time limit {least}: QOS {name} allows {most}");
        (least > most).then(|| (Reason::QOSMaxWallDurationPerJobLimit, sentence()))
    }

    /// The rank before the order; larger ranks come first. Where QOS preempt, jobs are ranked by the depth of
    /// their QOS in [`Measure::depths`], smallest depth first. Jobs without a QOS have depth 0. Among equal
    /// depths the tier of the partition counts.
    fn standing(&self, spec: &JobSpec, tier: u32) -> u32 {
        let Some(deepest) = self.depths.iter().max() else { return tier };
        let qos = spec.qos.as_deref().and_then(|name| self.inventory.policy.qos_index(name));
        let depth = qos.map_or(0, |qos| self.depths[qos]);
        (deepest - depth).saturating_mul(TIERS).saturating_add(tier)
    }

    /// The obstacle of a job that none of its partitions starts.
    fn closed(&self, job: &Job) -> Obstacle {
        let mut known = self.inventory.partitions_of(&job.spec).map(|(_, partition)| partition);
        let open = known.clone().filter(|partition| partition.starts()).map(|open| &open.config);
        let qos = self.inventory.policy.qos_of(job.spec.qos.as_deref());
        let limit = |config: &PartitionConfig| {
            config.limit(&job.spec, qos).map(|limit| (limit.reason(), limit.sentence(config, &job.spec)))
        };
        if let Some(limit) = { open }.find_map(limit) {
            return limit;
        }
        let Some(partition) = known.next() else {
            return (Reason::PartitionDown, "none of its partitions exists any more".to_owned());
        };
        let inactive = partition.config.state == PartitionState::Inactive;
        let reason = if inactive { Reason::PartitionInactive } else { Reason::PartitionDown };
        (reason, format!("partition {} starts no jobs now", partition.name()))
    }

    /// The priority of a job.
    pub(super) fn priority(&self, ranked: &Ranked, now: Time) -> u32 {
        priority::multifactor(&self.inventory.policy.scheduler, &self.inventory.scale, &ranked.facts, now)
    }

    /// The sort key of a job; the best of several partitions counts.
    pub(super) fn key(&self, ranked: &Ranked, now: Time) -> Key {
        let policy = &self.inventory.policy.scheduler;
        let facts = &ranked.facts;
        if is_overdue(policy, facts.eligible, now) {
            return Key::aged(facts.submitted, ranked.job);
        }
        let priority = if policy.order == Order::Multifactor { self.priority(ranked, now) } else { 0 };
        // `sjf` sorts only the jobs that backfill: the head is the job that was submitted first.
        let by_rank = !matches!(policy.order, Order::Multifactor | Order::Fcfs | Order::Sjf);
        let rank = by_rank.then(|| priority::rank(policy.order, facts, now)).flatten();
        Key::new(ranked.tier, priority, rank, facts.submitted, ranked.job)
    }

    /// The candidate of a job, with its request in each of its partitions that start jobs.
    fn candidate(&mut self, cluster: &Cluster, job: &Job, facts: &Facts) -> Result<Candidate, Obstacle> {
        let mut choices = Vec::with_capacity(job.spec.partitions.len());
        let mut problem = String::new();
        let qos = self.inventory.policy.qos_of(job.spec.qos.as_deref());
        let open = |of: &Partition| starts(of, &job.spec, qos);
        for (index, _) in self.inventory.partitions_of(&job.spec).filter(|(_, of)| open(of)) {
            match self.inventory.request(index, &job.spec) {
                Ok(request) => choices.push((index, request)),
                Err(error) => problem = error.to_string(),
            }
        }
        if choices.is_empty() {
            return Err((Reason::BadConstraints, problem));
        }
        // If a job starts equally early in several partitions, it starts in the highest tier, as in Slurm.
        let tier = |index: usize| self.inventory.partitions[index].partition.config.priority_tier;
        choices.sort_by_key(|(index, _)| std::cmp::Reverse(tier(*index)));
        let choices = self.shared(choices);
        let least = job.spec.time_min.and_then(|least| least.seconds());
        Ok(Candidate {
            attempt: job.attempt(),
            spec: Arc::clone(&job.spec),
            eligible: facts.eligible,
            run_time: facts.run_time,
            shortest: least.map_or(facts.run_time, |least| least.clamp(1, facts.run_time)),
            gather_with: companions(cluster, &job.spec),
            limits: self.limits.of(cluster, &self.inventory, &job.spec, &choices),
            choices,
            rest: Box::default(),
            array: tasks(cluster, job).map(Box::new),
        })
    }

    /// The choices, shared with a recent job that has equal ones.
    fn shared(&mut self, choices: Vec<(usize, Request)>) -> Choices {
        let found = self.alike.iter().position(|known| **known == *choices);
        let choices = found.and_then(|at| self.alike.remove(at)).unwrap_or_else(|| choices.into());
        self.alike.truncate(ALIKE - 1);
        self.alike.push_front(Arc::clone(&choices));
        choices
    }
}

/// True if a partition starts jobs now, and allows this job by its limits.
fn starts(partition: &Partition, spec: &JobSpec, qos: Option<&QosConfig>) -> bool {
    partition.starts() && partition.config.limit(spec, qos).is_none()
}

/// True if a job has been eligible for `max_wait`.
pub(super) fn is_overdue(policy: &SchedulerPolicy, eligible: Time, now: Time) -> bool {
    policy.max_wait.0 > 0 && now.since(eligible) >= policy.max_wait.0
}

/// The obstacle of a pending job other than resources and partitions; for a component of a het job, the
/// obstacle of any component.
pub(super) fn obstacle(cluster: &Cluster, job: &Job, pending: &Pending, now: Time) -> Option<Obstacle> {
    let own = own_obstacle(job, pending, now).map(|reason| (reason, String::new()));
    let Some(het) = job.spec.het.as_deref() else { return own };
    own.or_else(|| {
        het.jobs().filter(|other| *other != job.id).find_map(|other| match &cluster.job(other)?.phase {
            Phase::Pending(pending) => {
                let reason = own_obstacle(cluster.job(other)?, pending, now)?;
                Some((reason, format!("component {other} of job {} waits for that", het.leader)))
            }
            Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) | Phase::Ended(_) => {
                let detail =
                    format!("component {other} of job {} has not ended its last attempt", het.leader);
                Some((Reason::BeginTime, detail))
            }
        })
    })
}

fn own_obstacle(job: &Job, pending: &Pending, now: Time) -> Option<Reason> {
    if let Some(hold) = pending.hold {
        return Some(hold.reason());
    }
    if job.waits_for.is_some() {
        let never = job.never;
        return Some(if never { Reason::DependencyNeverSatisfied } else { Reason::Dependency });
    }
    pending.not_before.is_some_and(|begin| begin > now).then_some(Reason::BeginTime)
}

/// The obstacle of tasks whose array is at its limit.
pub(super) fn throttled(spec: &JobSpec) -> Obstacle {
    let limit = spec.array.as_ref().and_then(|array| array.limit).unwrap_or_default();
    (Reason::JobArrayTaskLimit, format!("at most {limit} of its tasks may run at one time"))
}

/// The tasks that a record of an array stands for; `None` for other jobs.
fn tasks(cluster: &Cluster, job: &Job) -> Option<Tasks> {
    let part = job.array.as_ref()?;
    Some(Tasks { id: part.id, tasks: part.tasks.clone(), more: cluster.more_tasks(job) })
}

/// The nodes of the job that `--gather-with` names, if that job runs.
fn companions(cluster: &Cluster, spec: &JobSpec) -> Vec<NodeId> {
    let wanted = spec.fabric.as_ref().and_then(|wish| wish.gather_with);
    let jobs = wanted.map_or_else(Vec::new, |job| cluster.jobs().components(job));
    let allocs = jobs.into_iter().filter_map(|job| match &cluster.job(job)?.phase {
        Phase::Running { alloc, .. } => Some(alloc),
        Phase::Suspended(suspended) => Some(&suspended.alloc),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => None,
    });
    allocs.flat_map(|alloc| alloc.nodes.iter().map(|part| part.node)).collect()
}
