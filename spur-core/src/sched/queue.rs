//! The queue of one pass: which jobs are looked at, in what order, and why the others are not.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::{Attempt, JobId, NodeId};
use crate::model::config::{Order, PartitionState, SchedulerPolicy};
use crate::model::job::{Job, JobSpec};
use crate::model::phase::Phase;
use crate::model::reason::Reason;
use crate::text::time::Time;

use super::forecast::Forecast;
use super::plan::Waiting;
use super::priority::{self, Facts, Scale};
use super::request::{Request, least};
use super::scene::Scene;

/// A job that may be started if there is room.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) attempt: Attempt,
    pub(super) spec: Arc<JobSpec>,
    pub(super) priority: u32,
    pub(super) eligible: Time,
    /// Whether a start was ever promised to it.
    pub(super) promised: bool,
    /// Planned run time, seconds.
    pub(super) run_time: u64,
    /// Nodes of the job that `--gather-with` names, if it runs.
    pub(super) gather_with: Vec<NodeId>,
    /// Whether it was put off once already.
    pub(super) second: bool,
    /// The partitions it may run in and what it needs there, in the order it named them.
    pub(super) choices: Vec<(usize, Request)>,
}

/// The queue, and those who are not in it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The first first.
    pub(super) candidates: Vec<Candidate>,
    /// Jobs that something else than room keeps waiting.
    pub(super) aside: Vec<Waiting>,
    /// Whether a depth left jobs out.
    pub(super) truncated: bool,
}

/// What a job is sorted by.
struct Key {
    aged: bool,
    tier: u32,
    priority: u32,
    rank: Option<f64>,
    submitted: Time,
    job: JobId,
}

impl Key {
    /// Jobs that have waited too long come first, in order of submission; then tiers, the order's own measure, and
    /// submission.
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        let submission = self.submitted.cmp(&other.submitted).then(self.job.cmp(&other.job));
        let aged = other.aged.cmp(&self.aged);
        if self.aged && other.aged {
            return submission;
        }
        let rank = match (self.rank, other.rank) {
            (Some(mine), Some(theirs)) => mine.total_cmp(&theirs),
            _ => std::cmp::Ordering::Equal,
        };
        aged.then(other.tier.cmp(&self.tier))
            .then(other.priority.cmp(&self.priority))
            .then(rank)
            .then(submission)
    }
}

/// Collects and sorts the pending jobs of a cluster, and cuts the queue at the depths, or behind `last`.
pub(super) fn collect(
    cluster: &Cluster,
    scene: &Scene,
    forecast: &dyn Forecast,
    now: Time,
    last: Option<JobId>,
) -> Queue {
    let mut queue = Queue::default();
    let measure = Measure { scene, scale: scale(scene), now };
    let mut sorted: Vec<Ranked<'_>> = Vec::with_capacity(cluster.jobs().pending_count());
    for job in cluster.jobs().pending() {
        match measure.rank(job, forecast) {
            Ok(ranked) => sorted.push(ranked),
            Err((reason, detail)) => queue.aside.push(aside(job.id, reason, detail)),
        }
    }
    sorted.sort_by(|one, other| one.key.cmp(&other.key));
    let before = sorted.len();
    match last {
        Some(last) => {
            let behind = sorted.iter().position(|ranked| ranked.job.id == last).map_or(0, |at| at + 1);
            sorted.truncate(behind);
        }
        None => cut(&mut sorted, &scene.policy.scheduler),
    }
    queue.truncated = sorted.len() < before;
    for ranked in &sorted {
        match candidate(cluster, scene, ranked) {
            Ok(candidate) => queue.candidates.push(candidate),
            Err((reason, detail)) => queue.aside.push(aside(ranked.job.id, reason, detail)),
        }
    }
    queue
}

/// A job that may be started, with its place in the queue.
struct Ranked<'a> {
    job: &'a Job,
    key: Key,
    priority: u32,
    run_time: u64,
    eligible: Time,
    /// The first of its partitions that starts jobs.
    partition: usize,
}

/// What jobs are measured by.
struct Measure<'a> {
    scene: &'a Scene,
    scale: Scale,
    now: Time,
}

fn aside(job: JobId, reason: Reason, detail: String) -> Waiting {
    Waiting { job, priority: 0, reason, detail, ..Waiting::of(job) }
}

impl Measure<'_> {
    /// A job with its place in the queue, or what else than room keeps it waiting.
    fn rank<'a>(&self, job: &'a Job, forecast: &dyn Forecast) -> Result<Ranked<'a>, (Reason, String)> {
        let Phase::Pending(pending) = &job.phase else { return Err((Reason::None, String::new())) };
        if let Some(hold) = pending.hold {
            return Err((hold.reason(), String::new()));
        }
        if job.waits_for.is_some() {
            let never = job.never;
            let reason = if never { Reason::DependencyNeverSatisfied } else { Reason::Dependency };
            return Err((reason, String::new()));
        }
        if pending.not_before.is_some_and(|begin| begin > self.now) {
            return Err((Reason::BeginTime, String::new()));
        }
        let (mut first, mut tier, mut factor) = (None, 0, 0);
        for index in job.spec.partitions.iter().filter_map(|name| self.scene.partition(name)) {
            let partition = &self.scene.partitions[index].partition;
            if partition.starts() {
                first = first.or(Some(index));
                tier = partition.config.priority_tier.max(tier);
                factor = partition.config.priority_job_factor.max(factor);
            }
        }
        let Some(partition) = first else { return Err(self.closed(job)) };
        let eligible = pending.eligible.unwrap_or(job.submitted);
        let run_time = forecast.run_time(job).max(1);
        let weighed = forecast.weighed_time(job).max(1);
        let (priority, key) = self.key(job, eligible, weighed, tier, factor);
        Ok(Ranked { job, key, priority, run_time, eligible, partition })
    }

    /// Why none of a job's partitions starts it.
    fn closed(&self, job: &Job) -> (Reason, String) {
        let mut known = job.spec.partitions.iter().filter_map(|name| self.scene.partition(name));
        let Some(index) = known.next() else {
            return (Reason::PartitionDown, "none of its partitions exists any more".to_owned());
        };
        let partition = &self.scene.partitions[index].partition;
        let inactive = partition.config.state == PartitionState::Inactive;
        let reason = if inactive { Reason::PartitionInactive } else { Reason::PartitionDown };
        (reason, format!("partition {} starts no jobs now", partition.name()))
    }

    /// A job's priority and what it is sorted by. Of several partitions the best counts.
    fn key(&self, job: &Job, eligible: Time, run_time: u64, tier: u32, factor: u32) -> (u32, Key) {
        let policy = &self.scene.policy.scheduler;
        let (nodes, cpus) = least(&job.spec.shape);
        let facts = Facts {
            submitted: job.submitted,
            eligible,
            nodes,
            cpus,
            run_time,
            partition_factor: factor,
            explicit: job.spec.priority,
            nice: job.spec.nice,
        };
        let priority = priority::multifactor(policy, &self.scale, &facts, self.now);
        let max_wait = policy.max_wait.0;
        // Shortest job first sorts only what backfills: the head is whoever came first.
        let by_rank = !matches!(policy.order, Order::Multifactor | Order::Fcfs | Order::Sjf);
        let key = Key {
            aged: max_wait > 0 && self.now.since(eligible) >= max_wait,
            tier,
            priority: if policy.order == Order::Multifactor { priority } else { 0 },
            rank: by_rank.then(|| priority::rank(policy.order, &facts, self.now)).flatten(),
            submitted: job.submitted,
            job: job.id,
        };
        (priority, key)
    }
}

/// A job with what it needs in each of its partitions that start jobs.
fn candidate(cluster: &Cluster, scene: &Scene, ranked: &Ranked<'_>) -> Result<Candidate, (Reason, String)> {
    let job = ranked.job;
    let mut choices = Vec::with_capacity(job.spec.partitions.len());
    let mut problem = String::new();
    for index in job.spec.partitions.iter().filter_map(|name| scene.partition(name)) {
        let partition = &scene.partitions[index].partition;
        if !partition.starts() {
            continue;
        }
        match Request::new(&job.spec, &partition.config) {
            Ok(request) => choices.push((index, request)),
            Err(error) => problem = error.to_string(),
        }
    }
    if choices.is_empty() {
        return Err((Reason::BadConstraints, problem));
    }
    Ok(Candidate {
        attempt: job.attempt(),
        spec: Arc::clone(&job.spec),
        priority: ranked.priority,
        eligible: ranked.eligible,
        promised: job.promised.is_some(),
        run_time: ranked.run_time,
        gather_with: companions(cluster, &job.spec),
        second: false,
        choices,
    })
}

/// The nodes of the job that `--gather-with` names, if it runs.
fn companions(cluster: &Cluster, spec: &JobSpec) -> Vec<NodeId> {
    let wanted = spec.fabric.as_ref().and_then(|wish| wish.gather_with);
    let alloc = wanted.and_then(|job| cluster.job(job)).and_then(|job| job.phase.alloc());
    alloc.map_or_else(Vec::new, |alloc| alloc.nodes.iter().map(|part| part.node).collect())
}

fn scale(scene: &Scene) -> Scale {
    let configured = || scene.nodes.iter().filter(|node| node.configured);
    let factors = scene.partitions.iter().map(|scene| scene.partition.config.priority_job_factor);
    Scale {
        nodes: u32::try_from(configured().count()).unwrap_or(u32::MAX),
        cpus: configured().map(|node| u64::from(node.shape.cpus)).sum(),
        partition_factor: factors.max().unwrap_or(0),
    }
}

/// Leaves out what the depths do not allow.
fn cut(sorted: &mut Vec<Ranked<'_>>, policy: &SchedulerPolicy) {
    let limit = |depth: u32| if depth == 0 { usize::MAX } else { depth as usize };
    let (total, per_user, per_partition) =
        (limit(policy.depth), limit(policy.depth_per_user), limit(policy.depth_per_partition));
    if per_user == usize::MAX && per_partition == usize::MAX {
        sorted.truncate(total);
        return;
    }
    let mut users: BTreeMap<u32, usize> = BTreeMap::new();
    let mut partitions: BTreeMap<usize, usize> = BTreeMap::new();
    let mut kept = 0;
    sorted.retain(|ranked| {
        let user = users.entry(ranked.job.spec.owner.uid).or_default();
        let partition = partitions.entry(ranked.partition).or_default();
        let keep = kept < total && *user < per_user && *partition < per_partition;
        if keep {
            kept += 1;
            *user += 1;
            *partition += 1;
        }
        keep
    });
}
