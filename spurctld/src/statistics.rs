//! Figures for `sdiag` since their last reset: requests by type and by user, jobs, and cycles of the planner.
//!
//! Updating them takes a lock that is held for a few additions only.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use spur_core::cluster::{Cluster, Entry, Event};
use spur_core::model::phase::EndState;
use spur_core::sched::plan::Report;
use spur_core::text::time::Time;
use spur_proto::v1;
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::{Code, Status};

use crate::effort::Effort;
use crate::metrics::{Meters, PassKind};
use crate::rpc::access::Identified;

/// Slurm's message names and numbers for the RPCs of this controller. Other RPCs have a name only.
const MESSAGES: [(&str, &str, u32); 42] = [
    ("Ping", "REQUEST_PING", 1008),
    ("Submit", "REQUEST_SUBMIT_BATCH_JOB", 4003),
    ("SubmitStream", "REQUEST_SUBMIT_BATCH_JOB", 4003),
    ("TestSubmit", "REQUEST_JOB_WILL_RUN", 4012),
    ("CancelJobs", "REQUEST_KILL_JOB", 5032),
    ("UpdateJob", "REQUEST_UPDATE_JOB", 3001),
    ("HoldJobs", "REQUEST_UPDATE_JOB", 3001),
    ("ReleaseJobs", "REQUEST_UPDATE_JOB", 3001),
    ("RequeueJobs", "REQUEST_JOB_REQUEUE", 5023),
    ("SuspendJobs", "REQUEST_SUSPEND", 5014),
    ("NotifyJob", "REQUEST_JOB_NOTIFY", 4022),
    ("GetScript", "REQUEST_BATCH_SCRIPT", 2051),
    ("ListJobs", "REQUEST_JOB_INFO", 2003),
    ("ListPriorities", "REQUEST_PRIORITY_FACTORS", 2026),
    ("ListSteps", "REQUEST_JOB_STEP_INFO", 2005),
    ("ListNodes", "REQUEST_NODE_INFO", 2007),
    ("ListPartitions", "REQUEST_PARTITION_INFO", 2009),
    ("ListTopology", "REQUEST_TOPO_INFO", 2028),
    ("ShowConfig", "REQUEST_BUILD_INFO", 2001),
    ("EndAllocation", "REQUEST_COMPLETE_JOB_ALLOCATION", 5017),
    ("CreateStep", "REQUEST_JOB_STEP_CREATE", 5001),
    ("UpdateNodes", "REQUEST_UPDATE_NODE", 3002),
    ("CreateNodes", "REQUEST_CREATE_NODE", 3015),
    ("DeleteNodes", "REQUEST_DELETE_NODE", 3014),
    ("UpdatePartition", "REQUEST_UPDATE_PARTITION", 3005),
    ("CreatePartition", "REQUEST_CREATE_PARTITION", 3003),
    ("DeletePartition", "REQUEST_DELETE_PARTITION", 3004),
    ("CreateReservation", "REQUEST_CREATE_RESERVATION", 3006),
    ("UpdateReservation", "REQUEST_UPDATE_RESERVATION", 3009),
    ("DeleteReservation", "REQUEST_DELETE_RESERVATION", 3008),
    ("ListReservations", "REQUEST_RESERVATION_INFO", 2024),
    ("ListLicenses", "REQUEST_LICENSE_INFO", 1021),
    ("Reconfigure", "REQUEST_RECONFIGURE", 1003),
    ("Shutdown", "REQUEST_SHUTDOWN", 1005),
    ("GetStatistics", "REQUEST_STATS_INFO", 2035),
    ("ListUsage", "REQUEST_JOB_STEP_STAT", 5021),
    // Slurm sends these to its database daemon.
    ("ChangeAccounts", "DBD_MODIFY_ASSOCS", 1429),
    ("ListAccounts", "DBD_GET_ASSOCS", 1410),
    ("ListNodeEvents", "DBD_GET_EVENTS", 1470),
    ("TopJobs", "REQUEST_TOP_JOB", 5038),
    ("SetDebug", "REQUEST_SET_DEBUG_LEVEL", 1011),
    ("WatchJobs", "REQUEST_JOB_READY", 4019),
];

/// The figures. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Statistics {
    figures: Arc<Mutex<Figures>>,
    /// The largest pieces of work.
    pub(crate) effort: Effort,
    /// Counters since the controller's start, for Prometheus.
    pub(crate) meters: Meters,
    /// True while a deep pass is under way.
    backfills: Arc<AtomicBool>,
    /// The entry up to which accounting has everything.
    accounted: Arc<AtomicU64>,
}

#[derive(Clone, Debug, Default)]
struct Figures {
    since: Time,
    jobs: Jobs,
    main: Cycles,
    backfill: Cycles,
    backfilled_ever: u64,
    backfilled: u64,
    backfilled_het: u64,
    by_type: BTreeMap<String, Count>,
    by_user: BTreeMap<u32, (Arc<str>, Count)>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Jobs {
    submitted: u64,
    started: u64,
    completed: u64,
    cancelled: u64,
    failed: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    count: u64,
    sum: Duration,
}

impl Count {
    fn add(&mut self, took: Duration) {
        self.count += 1;
        self.sum += took;
    }
}

/// Figures of one kind of cycle.
#[derive(Clone, Copy, Debug, Default)]
struct Cycles {
    count: u64,
    last: Duration,
    max: Duration,
    sum: Duration,
    last_depth: u64,
    depth_sum: u64,
    last_queue: u64,
    queue_sum: u64,
    last_when: Option<Time>,
    truncated: u64,
    abandoned: u64,
}

/// One cycle of the planner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cycle {
    /// Duration of the cycle.
    pub(crate) took: Duration,
    /// The pass's report.
    pub(crate) report: Report,
    /// Number of pending jobs.
    pub(crate) queue: usize,
    /// Time at which the cycle ended.
    pub(crate) at: Time,
}

impl Cycles {
    fn add(&mut self, cycle: Cycle) {
        let (depth, queue) = (u64::from(cycle.report.considered), cycle.queue as u64);
        self.truncated += u64::from(cycle.report.truncated);
        self.count += 1;
        (self.last, self.last_depth, self.last_queue) = (cycle.took, depth, queue);
        self.max = self.max.max(cycle.took);
        self.sum += cycle.took;
        self.depth_sum += depth;
        self.queue_sum += queue;
        self.last_when = Some(cycle.at);
    }

    fn shown(&self) -> v1::Cycles {
        v1::Cycles {
            count: self.count,
            last: microseconds(self.last),
            max: microseconds(self.max),
            sum: microseconds(self.sum),
            last_depth: self.last_depth,
            depth_sum: self.depth_sum,
            last_queue: self.last_queue,
            queue_sum: self.queue_sum,
            last_when: self.last_when.map(|at| at.0),
            truncated: self.truncated,
            abandoned: self.abandoned,
        }
    }
}

fn microseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

impl Statistics {
    /// Returns figures that begin at `now`.
    pub(crate) fn new(now: Time) -> Self {
        let figures = Arc::new(Mutex::new(Figures { since: now, ..Figures::default() }));
        Self { figures, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Figures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts the changes of jobs in committed entries; `cluster` already has them applied.
    pub(crate) fn note(&self, cluster: &Cluster, entries: &[Arc<Entry>]) {
        self.meters.note(cluster, entries);
        let mut figures = self.lock();
        for entry in entries {
            figures.jobs.note(&entry.event);
        }
    }

    /// Records a quick pass.
    pub(crate) fn quick(&self, cycle: Cycle) {
        self.meters.pass(PassKind::Quick, cycle.took, &cycle.report);
        self.lock().main.add(cycle);
    }

    /// Records that a deep pass has begun or goes on.
    pub(crate) fn backfills(&self) {
        self.backfills.store(true, Ordering::Relaxed);
    }

    /// Records that the deep pass under way was abandoned.
    pub(crate) fn abandon(&self) {
        self.backfills.store(false, Ordering::Relaxed);
        self.lock().backfill.abandoned += 1;
    }

    /// Records that accounting has everything up to the entry `seq`.
    pub(crate) fn accounted(&self, seq: u64) {
        self.accounted.fetch_max(seq, Ordering::Relaxed);
    }

    /// Returns the number of entries up to `seq` that accounting lacks.
    pub(crate) fn unaccounted(&self, seq: u64) -> u64 {
        seq.saturating_sub(self.accounted.load(Ordering::Relaxed))
    }

    /// Records the starts of a slice of a deep pass: the number of jobs, and that of components of het
    /// jobs.
    pub(crate) fn backfilled(&self, jobs: usize, components: usize) {
        let mut figures = self.lock();
        figures.backfilled_ever += jobs as u64;
        figures.backfilled += jobs as u64;
        figures.backfilled_het += components as u64;
    }

    /// Records a finished deep pass.
    pub(crate) fn deep(&self, cycle: Cycle) {
        self.backfills.store(false, Ordering::Relaxed);
        self.meters.pass(PassKind::Deep, cycle.took, &cycle.report);
        self.lock().backfill.add(cycle);
    }

    fn request(&self, method: &str, caller: Option<(u32, Arc<str>)>, took: Duration) {
        self.meters.request(method, took);
        let mut figures = self.lock();
        match figures.by_type.get_mut(method) {
            Some(count) => count.add(took),
            None => figures.by_type.entry(method.to_owned()).or_default().add(took),
        }
        if let Some((uid, user)) = caller {
            figures.by_user.entry(uid).or_insert_with(|| (user, Count::default())).1.add(took);
        }
    }

    /// Returns the figures; with `reset` they begin again at `now`, except for totals since the controller's
    /// start.
    pub(crate) fn figures(&self, reset: bool, now: Time) -> v1::GetStatisticsResponse {
        let figures = {
            let mut held = self.lock();
            let figures = held.clone();
            if reset {
                *held =
                    Figures { since: now, backfilled_ever: figures.backfilled_ever, ..Figures::default() };
            }
            figures
        };
        v1::GetStatisticsResponse {
            time: now.0,
            since: figures.since.0,
            threads: threads(),
            jobs_submitted: figures.jobs.submitted,
            jobs_started: figures.jobs.started,
            jobs_completed: figures.jobs.completed,
            jobs_cancelled: figures.jobs.cancelled,
            jobs_failed: figures.jobs.failed,
            main: Some(figures.main.shown()),
            backfill: Some(figures.backfill.shown()),
            backfilled_ever: figures.backfilled_ever,
            backfilled: figures.backfilled,
            backfilled_het: figures.backfilled_het,
            by_type: by_type(&figures.by_type),
            by_user: figures.by_user.iter().map(|(uid, (user, count))| shown(user, *uid, *count)).collect(),
            clock: clock_cost(),
            backfill_active: self.backfills.load(Ordering::Relaxed),
            owner: Some(self.effort.owner.figures(reset)),
            lists: Some(self.effort.lists.figures(reset)),
            ..v1::GetStatisticsResponse::default()
        }
    }
}

impl Jobs {
    fn note(&mut self, event: &Event) {
        match event {
            Event::JobSubmitted { .. } => self.submitted += 1,
            Event::HetJobSubmitted { jobs, .. } => self.submitted += jobs.len() as u64,
            Event::JobStarted { .. } => self.started += 1,
            Event::JobEnded { outcome, .. } => match outcome.state {
                EndState::Cancelled => self.cancelled += 1,
                EndState::NodeFail => self.failed += 1,
                // As with Slurm, every end of its own counts as completed.
                EndState::Completed
                | EndState::Failed
                | EndState::Timeout
                | EndState::Preempted
                | EndState::OutOfMemory
                | EndState::Deadline => self.completed += 1,
            },
            _ => {}
        }
    }
}

/// Adds up the requests by Slurm's message; several RPCs may be one message to Slurm.
fn by_type(counts: &BTreeMap<String, Count>) -> Vec<v1::RequestCount> {
    let mut named: BTreeMap<(String, u32), Count> = BTreeMap::new();
    for (method, count) in counts {
        let known = MESSAGES.iter().find(|(name, ..)| name == method);
        let name = known.map_or_else(|| request_name(method), |(_, name, _)| (*name).to_owned());
        let all = named.entry((name, known.map_or(0, |(.., id)| *id))).or_default();
        all.count += count.count;
        all.sum += count.sum;
    }
    named.iter().map(|((name, id), count)| shown(name, *id, *count)).collect()
}

/// Names an RPC that Slurm lacks in Slurm's manner: `ExplainJob` is REQUEST_EXPLAIN_JOB.
fn request_name(method: &str) -> String {
    let mut name = "REQUEST".to_owned();
    for letter in method.chars() {
        if letter.is_ascii_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

fn shown(name: &str, id: u32, count: Count) -> v1::RequestCount {
    v1::RequestCount { name: name.to_owned(), id, count: count.count, sum: microseconds(count.sum) }
}

/// Returns the number of threads of this process.
fn threads() -> u32 {
    let tasks = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    u32::try_from(tasks).unwrap_or(u32::MAX)
}

/// Returns the time that 1000 readings of the clock take, in microseconds.
fn clock_cost() -> u64 {
    let begun = Instant::now();
    for _ in 0..1000 {
        std::hint::black_box(std::time::SystemTime::now());
    }
    microseconds(begun.elapsed())
}

/// A service whose requests are counted, behind the gate that authenticates the caller.
#[derive(Clone)]
pub(crate) struct Counted<S> {
    pub(crate) inner: S,
    pub(crate) statistics: Statistics,
}

impl<S: NamedService> NamedService for Counted<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<http::Request<Body>> for Counted<S>
where
    S: Service<http::Request<Body>, Response = http::Response<Body>>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let begun = Instant::now();
        let uri = request.uri().clone();
        let owner = request.extensions().get::<Identified>().map(|identified| {
            let owner = &identified.caller.owner;
            (owner.uid, Arc::clone(&owner.user))
        });
        let statistics = self.statistics.clone();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            // An unknown method's name is a client's invention; counting such names would grow the table
            // without limit.
            if answer.as_ref().is_ok_and(is_known) {
                let method = uri.path().rsplit('/').next().unwrap_or_default();
                statistics.request(method, owner, begun.elapsed());
            }
            answer
        })
    }
}

/// True if the service has the method that the answer is of.
fn is_known(answer: &http::Response<Body>) -> bool {
    Status::from_header_map(answer.headers()).is_none_or(|status| status.code() != Code::Unimplemented)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::{ServiceExt, service_fn};

    use super::*;

    #[tokio::test]
    async fn methods_that_there_are_not_are_not_counted() {
        let statistics = Statistics::new(Time(0));
        let inner = service_fn(async |request: http::Request<Body>| {
            Ok::<_, Infallible>(match request.uri().path() {
                "/spur.v1.Controller/Ping" => http::Response::new(Body::empty()),
                _ => Status::unimplemented("").into_http(),
            })
        });
        for path in ["/spur.v1.Controller/Ping", "/spur.v1.Controller/Pong", "/spur.v1.Controller/Pung"] {
            let counted = Counted { inner, statistics: statistics.clone() };
            let request = http::Request::builder().uri(path).body(Body::empty()).unwrap();
            counted.oneshot(request).await.unwrap();
        }
        let names: Vec<_> =
            statistics.figures(false, Time(1)).by_type.into_iter().map(|count| count.name).collect();
        assert_eq!(names, ["REQUEST_PING"]);
    }

    #[test]
    fn requests_are_added_up_under_slurms_names() {
        let statistics = Statistics::new(Time(5));
        let root = || Some((0, Arc::from("root")));
        statistics.request("HoldJobs", root(), Duration::from_micros(3));
        statistics.request("ReleaseJobs", root(), Duration::from_micros(4));
        statistics.request("ExplainJob", None, Duration::from_micros(1));
        let figures = statistics.figures(true, Time(9));
        let found: Vec<_> =
            figures.by_type.iter().map(|count| (&*count.name, count.id, count.count, count.sum)).collect();
        assert_eq!(found, [("REQUEST_EXPLAIN_JOB", 0, 1, 1), ("REQUEST_UPDATE_JOB", 3001, 2, 7)]);
        assert_eq!((figures.by_user.len(), figures.by_user[0].sum, figures.since), (1, 7, 5));
        let anew = statistics.figures(false, Time(10));
        assert!(anew.by_type.is_empty() && anew.since == 9, "{anew:?}");
    }

    #[test]
    fn cycles_keep_last_largest_and_sum() {
        let statistics = Statistics::new(Time(0));
        for (took, considered, truncated) in [(5, 2, false), (9, 4, true), (1, 0, false)] {
            let (took, report) =
                (Duration::from_micros(took), Report { considered, truncated, ..Report::default() });
            statistics.deep(Cycle { took, report, queue: 7, at: Time(3) });
        }
        statistics.abandon();
        let cycles = statistics.figures(false, Time(1)).backfill.unwrap();
        assert_eq!((cycles.count, cycles.last, cycles.max, cycles.sum), (3, 1, 9, 15));
        assert_eq!((cycles.depth_sum, cycles.last_queue, cycles.last_when), (6, 7, Some(3)));
        assert_eq!((cycles.truncated, cycles.abandoned), (1, 1));
    }
}
