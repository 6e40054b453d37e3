//! Counters and histograms since the controller's start; `sdiag --reset` does not reset them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use spur_core::cluster::{Cluster, Entry, Event};
use spur_core::id::JobId;
use spur_core::model::alloc::Alloc;
use spur_core::model::fabric::{Fabric, Pos};
use spur_core::model::job::{FabricAsk, Job, JobSpec};
use spur_core::model::phase::{EndState, Then};
use spur_core::sched::place::{Strategy, strategy};
use spur_core::sched::plan::Report;
use spur_core::text::time::Time;

use crate::inbox::Refused;

/// Bucket bounds of requests and commits, in seconds.
const SHORT: [f64; 5] = [0.001, 0.01, 0.1, 1.0, 10.0];
/// Bucket bounds of passes, and of the planner's time for one job, in seconds.
const PASS: [f64; 8] = [0.000_01, 0.000_1, 0.001, 0.01, 0.1, 1.0, 10.0, 60.0];
/// Bucket bounds of the waits of jobs, in seconds, up to a week.
const WAIT: [f64; 9] = [1.0, 10.0, 60.0, 300.0, 1_800.0, 3_600.0, 21_600.0, 86_400.0, 604_800.0];
/// Bucket bounds of the time until a job has a replacement node, in seconds.
const RECOVERY: [f64; 8] = [1.0, 5.0, 15.0, 30.0, 60.0, 300.0, 1_800.0, 3_600.0];
/// Bucket bounds of scores, which are shares.
const SHARES: [f64; 4] = [0.25, 0.5, 0.75, 1.0];
/// Shortest time between two starts whose scores are computed, since these read every node of the job's
/// domain.
const SCORE_EVERY: Duration = Duration::from_millis(100);

/// One label.
type One = [(&'static str, &'static str); 1];
/// Two labels.
type Two = [(&'static str, &'static str); 2];
/// A label whose values are not known beforehand.
type Named = [(&'static str, Arc<str>); 1];
type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// The meters. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Meters {
    rpcs: Histograms<Named>,
    commits: Histogram,
    entries: Counter,
    submitted: Counter,
    started: Counter,
    ended: Family<One, Counter>,
    waits: Histograms<Named>,
    passes: Histograms<One>,
    pass_jobs: Family<One, Counter>,
    truncated: Family<One, Counter>,
    gave_up: Family<One, Counter>,
    victim_steps: Family<One, Counter>,
    placement_seconds: Histograms<One>,
    attempts: Family<One, Counter>,
    successes: Family<One, Counter>,
    errors: Family<Two, Counter>,
    decisions: Family<Two, Counter>,
    latency: Histograms<One>,
    scores: Histograms<One>,
    recoveries: Histograms<One>,
    own: Arc<Mutex<Own>>,
}

/// State that is kept between entries.
#[derive(Debug, Default)]
struct Own {
    /// Jobs that have lost a node and have no replacement yet, with the time of the loss.
    recovering: BTreeMap<JobId, Time>,
    scored: Option<Instant>,
}

/// The labels of [`strategy_of`].
const STRATEGIES: [&str; 3] = ["tree", "block", "none"];

impl Default for Meters {
    fn default() -> Self {
        let short = || Histogram::new(SHORT);
        let meters = Self {
            rpcs: Family::new_with_constructor(short),
            commits: short(),
            entries: Counter::default(),
            submitted: Counter::default(),
            started: Counter::default(),
            ended: Family::default(),
            waits: Family::new_with_constructor(|| Histogram::new(WAIT)),
            passes: Family::new_with_constructor(|| Histogram::new(PASS)),
            pass_jobs: Family::default(),
            truncated: Family::default(),
            gave_up: Family::default(),
            victim_steps: Family::default(),
            placement_seconds: Family::new_with_constructor(|| Histogram::new(PASS)),
            attempts: Family::default(),
            successes: Family::default(),
            errors: Family::default(),
            decisions: Family::default(),
            latency: Family::new_with_constructor(|| Histogram::new(WAIT)),
            scores: Family::new_with_constructor(|| Histogram::new(SHARES)),
            recoveries: Family::new_with_constructor(|| Histogram::new(RECOVERY)),
            own: Arc::default(),
        };
        meters.begin();
        meters
    }
}

/// The two kinds of passes of the planner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassKind {
    /// Starts jobs that fit now, at the cost of the changes.
    Quick,
    /// Plans the whole queue.
    Deep,
}

impl PassKind {
    fn label(self) -> &'static str {
        match self {
            Self::Quick => "quick",
            Self::Deep => "deep",
        }
    }
}

/// The outcome of a search for the placement of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The job started, and no better placement exists.
    Exact,
    /// The job started on the best placement that was found within the search budget.
    Inexact,
    /// Other jobs make way for the job.
    Preempting,
    /// The start was refused, because the cluster had changed meanwhile.
    Refused,
    /// The job waits.
    Waiting,
}

impl Decision {
    const ALL: [Self; 5] = [Self::Exact, Self::Inexact, Self::Preempting, Self::Refused, Self::Waiting];

    fn label(self) -> &'static str {
        match self {
            Self::Exact => "exact",
            Self::Inexact => "inexact",
            Self::Preempting => "preempting",
            Self::Refused => "refused",
            Self::Waiting => "waiting",
        }
    }
}

impl Meters {
    /// Creates every meter with known labels at 0: a rate over a series that begins later misses its first
    /// value.
    fn begin(&self) {
        for state in EndState::ALL {
            drop(self.ended.get_or_create(&[("state", state.name())]));
        }
        for kind in [PassKind::Quick, PassKind::Deep].map(PassKind::label) {
            for family in [&self.pass_jobs, &self.truncated, &self.gave_up, &self.victim_steps] {
                drop(family.get_or_create(&[("kind", kind)]));
            }
            drop(self.passes.get_or_create(&[("kind", kind)]));
            drop(self.placement_seconds.get_or_create(&[("type", kind)]));
        }
        for strategy in STRATEGIES {
            let label = [("strategy", strategy)];
            drop(self.attempts.get_or_create(&label));
            drop(self.successes.get_or_create(&label));
            drop(self.latency.get_or_create(&label));
            drop(self.errors.get_or_create(&[("strategy", strategy), ("type", "rejected")]));
            for decision in Decision::ALL {
                drop(self.decisions.get_or_create(&[("strategy", strategy), ("result", decision.label())]));
            }
        }
        for kind in SCORES {
            drop(self.scores.get_or_create(&[("type", kind)]));
        }
        for kind in ["replace", "requeue"] {
            drop(self.recoveries.get_or_create(&[("type", kind)]));
        }
    }

    /// Adds all meters to a page.
    pub(super) fn register(&self, registry: &mut Registry) {
        self.register_controller(registry);
        self.register_planner(registry);
        self.register_topology(registry);
    }

    fn register_controller(&self, registry: &mut Registry) {
        registry.register(
            "spur_rpc_duration_seconds",
            "Time from the arrival of a request to the beginning of its answer",
            self.rpcs.clone(),
        );
        registry.register(
            "spur_commit_duration_seconds",
            "Time from the handover of a batch to the journal until it is durable",
            self.commits.clone(),
        );
        registry.register(
            "spur_commit_entries",
            "Entries of the journal that became durable",
            self.entries.clone(),
        );
        registry.register("spur_jobs_submitted", "Jobs that were submitted", self.submitted.clone());
        registry.register("spur_jobs_started", "Starts of jobs", self.started.clone());
        registry.register("spur_jobs_ended", "Jobs that ended, by state", self.ended.clone());
        registry.register(
            "spur_job_wait_seconds",
            "Time from a job's eligibility to its start, by partition",
            self.waits.clone(),
        );
    }

    fn register_planner(&self, registry: &mut Registry) {
        registry.register("spur_pass_duration_seconds", "Time of a pass of the planner", self.passes.clone());
        registry.register("spur_pass_jobs", "Jobs that passes looked at", self.pass_jobs.clone());
        registry.register(
            "spur_pass_truncated",
            "Passes that left jobs out because a depth was reached",
            self.truncated.clone(),
        );
        registry.register(
            "spur_pass_victim_search_exhausted",
            "Passes that did not look for victims for some job because their searches were used up",
            self.gave_up.clone(),
        );
        registry.register(
            "spur_pass_victim_steps",
            "Steps of searches for victims",
            self.victim_steps.clone(),
        );
    }

    fn register_topology(&self, registry: &mut Registry) {
        registry.register(
            "topology_scheduler_latency_seconds",
            "Time from a job's eligibility to its start, by rule of the topology",
            self.latency.clone(),
        );
        registry.register(
            "topology_scheduler_placement_duration_seconds",
            "Time of a pass divided by the jobs that it looked at",
            self.placement_seconds.clone(),
        );
        registry.register(
            "topology_scheduler_attempts",
            "Looks for a place for a job",
            self.attempts.clone(),
        );
        registry.register(
            "topology_scheduler_success",
            "Placements that started a job",
            self.successes.clone(),
        );
        registry.register(
            "topology_scheduler_errors",
            "Placements that the controller did not take, by cause",
            self.errors.clone(),
        );
        registry.register(
            "topology_placement_decisions",
            "Looks for a place for a job, by what came of them",
            self.decisions.clone(),
        );
        registry.register(
            "topology_placement_scores",
            "Published scores of the lowest domain that holds a job at its start; of at most ten starts a second",
            self.scores.clone(),
        );
        registry.register(
            "topology_scheduler_recovery_duration_seconds",
            "Time from the loss of a node until its job was started again or got another node",
            self.recoveries.clone(),
        );
    }

    fn own(&self) -> MutexGuard<'_, Own> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the duration of a request.
    pub(crate) fn request(&self, method: &str, took: Duration) {
        self.rpcs.get_or_create(&[("method", method.into())]).observe(took.as_secs_f64());
    }

    /// Records the duration of a commit.
    pub(crate) fn commit(&self, took: Duration) {
        self.commits.observe(took.as_secs_f64());
    }

    /// Records a pass.
    pub(crate) fn pass(&self, kind: PassKind, took: Duration, report: &Report) {
        let label = [("kind", kind.label())];
        self.passes.get_or_create(&label).observe(took.as_secs_f64());
        self.pass_jobs.get_or_create(&label).inc_by(report.considered.into());
        self.truncated.get_or_create(&label).inc_by(report.truncated.into());
        self.gave_up.get_or_create(&label).inc_by(report.gave_up.into());
        self.victim_steps.get_or_create(&label).inc_by(report.victim_steps);
        if report.considered > 0 {
            let each = took.as_secs_f64() / f64::from(report.considered);
            self.placement_seconds.get_or_create(&[("type", kind.label())]).observe(each);
        }
    }

    /// Records the outcome of a search for a placement.
    pub(crate) fn decide(&self, strategy: &'static str, decision: Decision) {
        let label = [("strategy", strategy)];
        self.attempts.get_or_create(&label).inc();
        self.decisions.get_or_create(&[("strategy", strategy), ("result", decision.label())]).inc();
        if matches!(decision, Decision::Exact | Decision::Inexact) {
            self.successes.get_or_create(&label).inc();
        }
    }

    /// Records a start that the owner refused.
    pub(crate) fn refuse(&self, strategy: &'static str, refused: &Refused) {
        let cause = match refused {
            Refused::Rejected(_) => "rejected",
            Refused::Unsure => "unsure",
            Refused::NoSpace(_) => "no_space",
            Refused::Fault => "fault",
        };
        self.errors.get_or_create(&[("strategy", strategy), ("type", cause)]).inc();
        self.decide(strategy, Decision::Refused);
    }

    /// Records a failure of the planner by a fault of its own.
    pub(crate) fn fail(&self) {
        self.errors.get_or_create(&[("strategy", "none"), ("type", "panic")]).inc();
    }

    /// Counts the events of committed entries; `cluster` already has them applied.
    pub(crate) fn note(&self, cluster: &Cluster, entries: &[Arc<Entry>]) {
        self.entries.inc_by(entries.len() as u64);
        for entry in entries {
            match &entry.event {
                Event::JobSubmitted { .. } => drop(self.submitted.inc()),
                Event::HetJobSubmitted { jobs, .. } => drop(self.submitted.inc_by(jobs.len() as u64)),
                Event::JobStarted { job, alloc, .. } => self.start(cluster, *job, alloc, entry.at),
                Event::JobEnding { job, outcome, then, .. }
                    if outcome.state == EndState::NodeFail && matches!(then, Then::Requeue { .. }) =>
                {
                    self.own().recovering.entry(*job).or_insert(entry.at);
                }
                Event::JobNodeLost { job, .. } => drop(self.own().recovering.entry(*job).or_insert(entry.at)),
                Event::JobNodesReplaced { job, .. } => self.recover(*job, "replace", entry.at),
                Event::JobEnded { job, outcome, .. } => {
                    self.own().recovering.remove(job);
                    self.ended.get_or_create(&[("state", outcome.state.name())]).inc();
                }
                _ => {}
            }
        }
    }

    fn start(&self, cluster: &Cluster, id: JobId, alloc: &Alloc, at: Time) {
        self.started.inc();
        self.recover(id, "requeue", at);
        let Some(job) = cluster.job(id) else { return };
        let waited = job.was_eligible.map_or(0, |eligible| at.since(eligible)) as f64;
        self.waits.get_or_create(&[("partition", Arc::clone(&alloc.partition))]).observe(waited);
        let strategy = strategy_of(cluster, &job.spec, &alloc.partition);
        self.latency.get_or_create(&[("strategy", strategy)]).observe(waited);
        let scored = self.own().scored.is_none_or(|scored| scored.elapsed() >= SCORE_EVERY);
        if scored {
            self.own().scored = Some(Instant::now());
            for (kind, score) in scores(cluster, job, alloc).into_iter().flatten() {
                self.scores.get_or_create(&[("type", kind)]).observe(score);
            }
        }
    }

    fn recover(&self, job: JobId, kind: &'static str, at: Time) {
        if let Some(lost) = self.own().recovering.remove(&job) {
            self.recoveries.get_or_create(&[("type", kind)]).observe(at.since(lost) as f64);
        }
    }
}

/// Returns the fabric on which a job is placed in a partition; `None` without a topology.
fn fabric_of<'a>(cluster: &'a Cluster, spec: &JobSpec, partition: &str) -> Option<&'a Arc<Fabric>> {
    let named = spec.fabric.as_ref().and_then(|ask| ask.topology.as_deref());
    match named.and_then(|name| cluster.topology(name)) {
        Some(topology) => Some(&topology.fabric),
        None => cluster.fabric_of(cluster.partition(partition)?),
    }
}

/// Returns the topology's rule by which a job is placed, as a label: `tree`, `block` or `none`.
pub(crate) fn strategy_of(cluster: &Cluster, spec: &JobSpec, partition: &str) -> &'static str {
    let Some(fabric) = fabric_of(cluster, spec, partition) else { return "none" };
    let rule = match &spec.fabric {
        Some(asked) => strategy(fabric, asked),
        None => strategy(fabric, &FabricAsk::default()),
    };
    match rule {
        Ok(Strategy::Tree) => "tree",
        Ok(Strategy::Block) => "block",
        Ok(Strategy::Flat) | Err(_) => "none",
    }
}

/// The names of the published scores.
const SCORES: [&str; 4] =
    ["resource_availability", "topology_alignment", "domain_utilisation", "past_performance"];

/// Returns the scores of the lowest domain that holds a job that has just started; `None` if no domain does.
fn scores(cluster: &Cluster, job: &Job, alloc: &Alloc) -> Option<[(&'static str, f64); SCORES.len()]> {
    let fabric = fabric_of(cluster, &job.spec, &alloc.partition)?;
    let mut positions: Vec<Pos> = alloc.nodes.iter().filter_map(|part| fabric.pos(part.node)).collect();
    positions.sort_unstable();
    let domain = fabric.domain(fabric.deepest_common(&positions)?);
    let (mut ready, mut busy, mut performance) = (0_u32, 0_u32, 0.0);
    for node in domain.range().filter_map(|index| cluster.node(fabric.node(Pos::at(index)))) {
        let own = alloc.on(node.id).is_some();
        let shared = node.jobs.iter().any(|other| *other != job.id);
        let full = node.exclusive.is_some() || node.used.cpus.len() >= node.shape.cpus;
        ready += u32::from(own || (node.available() && !full));
        busy += u32::from(shared);
        performance += f64::from(node.past.performance()) / 1e6;
    }
    let size = f64::from(domain.size().max(1));
    let shares =
        [f64::from(ready) / size, positions.len() as f64 / size, f64::from(busy) / size, performance / size];
    Some(std::array::from_fn(|index| (SCORES[index], shares[index])))
}
