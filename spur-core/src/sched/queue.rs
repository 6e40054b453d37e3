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
use super::request::Request;
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

/// Collects and sorts the pending jobs of a cluster.
pub(super) fn collect(cluster: &Cluster, scene: &Scene, forecast: &dyn Forecast, now: Time) -> Queue {
    let mut queue = Queue::default();
    let policy = &scene.policy.scheduler;
    let scale = scale(scene);
    let mut keyed: Vec<(Key, Candidate)> = Vec::new();
    for job in cluster.jobs().pending() {
        match candidate(job, scene, forecast, now) {
            Ok(mut candidate) => {
                candidate.gather_with = companions(cluster, &job.spec);
                let key = key(job, &mut candidate, scene, policy, &scale, now);
                keyed.push((key, candidate));
            }
            Err((reason, detail)) => queue.aside.push(aside(job.id, reason, detail)),
        }
    }
    keyed.sort_by(|(one, _), (other, _)| one.cmp(other));
    for (_, candidate) in keyed {
        queue.candidates.push(candidate);
    }
    queue.truncated = cut(&mut queue.candidates, policy);
    queue
}

fn aside(job: JobId, reason: Reason, detail: String) -> Waiting {
    Waiting { job, priority: 0, reason, detail, ..Waiting::of(job) }
}

/// A job as a candidate, or what else keeps it waiting.
fn candidate(
    job: &Job,
    scene: &Scene,
    forecast: &dyn Forecast,
    now: Time,
) -> Result<Candidate, (Reason, String)> {
    let Phase::Pending(pending) = &job.phase else { return Err((Reason::None, String::new())) };
    if let Some(hold) = pending.hold {
        return Err((hold.reason(), String::new()));
    }
    if job.waits_for.is_some() {
        let never = job.never;
        return Err((
            if never { Reason::DependencyNeverSatisfied } else { Reason::Dependency },
            String::new(),
        ));
    }
    if pending.not_before.is_some_and(|begin| begin > now) {
        return Err((Reason::BeginTime, String::new()));
    }
    let mut choices = Vec::with_capacity(job.spec.partitions.len());
    let mut why_not = (Reason::PartitionDown, "none of its partitions exists any more".to_owned());
    for name in &job.spec.partitions {
        let Some(index) = scene.partition(name) else { continue };
        let partition = &scene.partitions[index].partition;
        if !partition.starts() {
            let inactive = partition.config.state == PartitionState::Inactive;
            let reason = if inactive { Reason::PartitionInactive } else { Reason::PartitionDown };
            why_not = (reason, format!("partition {name} starts no jobs now"));
            continue;
        }
        match Request::new(&job.spec, &partition.config) {
            Ok(request) => choices.push((index, request)),
            Err(error) => why_not = (Reason::BadConstraints, error.to_string()),
        }
    }
    if choices.is_empty() {
        return Err(why_not);
    }
    Ok(Candidate {
        attempt: job.attempt(),
        spec: Arc::clone(&job.spec),
        priority: 0,
        eligible: pending.eligible.unwrap_or(job.submitted),
        promised: job.promised.is_some(),
        run_time: forecast.run_time(job).max(1),
        gather_with: Vec::new(),
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

/// Gives a candidate its priority and says what it is sorted by. Of several partitions the best counts.
fn key(
    job: &Job,
    candidate: &mut Candidate,
    scene: &Scene,
    policy: &SchedulerPolicy,
    scale: &Scale,
    now: Time,
) -> Key {
    let configs = candidate.choices.iter().map(|(index, _)| &scene.partitions[*index].partition.config);
    let (tier, factor) = configs.fold((0, 0), |(tier, factor), config| {
        (config.priority_tier.max(tier), config.priority_job_factor.max(factor))
    });
    let request = &candidate.choices[0].1;
    let facts = Facts {
        submitted: job.submitted,
        eligible: candidate.eligible,
        nodes: request.min_nodes(),
        cpus: request.cpus(),
        run_time: candidate.run_time,
        partition_factor: factor,
        explicit: job.spec.priority,
        nice: job.spec.nice,
    };
    candidate.priority = priority::multifactor(policy, scale, &facts, now);
    let max_wait = policy.max_wait.0;
    // Shortest job first sorts only what backfills: the head is whoever came first.
    let by_rank = !matches!(policy.order, Order::Multifactor | Order::Fcfs | Order::Sjf);
    Key {
        aged: max_wait > 0 && now.since(candidate.eligible) >= max_wait,
        tier,
        priority: if policy.order == Order::Multifactor { candidate.priority } else { 0 },
        rank: by_rank.then(|| priority::rank(policy.order, &facts, now)).flatten(),
        submitted: job.submitted,
        job: job.id,
    }
}

/// Leaves out what the depths do not allow; says whether there was anything.
fn cut(candidates: &mut Vec<Candidate>, policy: &SchedulerPolicy) -> bool {
    let before = candidates.len();
    let limit = |depth: u32| if depth == 0 { usize::MAX } else { depth as usize };
    let (total, per_user, per_partition) =
        (limit(policy.depth), limit(policy.depth_per_user), limit(policy.depth_per_partition));
    if per_user == usize::MAX && per_partition == usize::MAX {
        candidates.truncate(total);
        return candidates.len() < before;
    }
    let mut users: BTreeMap<u32, usize> = BTreeMap::new();
    let mut partitions: BTreeMap<usize, usize> = BTreeMap::new();
    let mut kept = 0;
    candidates.retain(|candidate| {
        let user = users.entry(candidate.spec.owner.uid).or_default();
        let partition = partitions.entry(candidate.choices[0].0).or_default();
        let keep = kept < total && *user < per_user && *partition < per_partition;
        if keep {
            kept += 1;
            *user += 1;
            *partition += 1;
        }
        keep
    });
    candidates.len() < before
}
