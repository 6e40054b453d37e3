//! Derives accounting rows from entries: one row for each run of a job, one for each step.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use spur_core::cluster::{Cluster, Entry, Event, Scope};
use spur_core::id::{Attempt, JobId, NodeId, StepId};
use spur_core::model::config::AccountingEnforce;
use spur_core::model::job::{BatchEnd, Job, MemoryNeed};
use spur_core::model::note::JobNote;
use spur_core::model::phase::{Completing, EndState, Phase, Then};
use spur_core::model::step::{Step, StepNodeEnd};
use spur_core::model::usage::Usage;
use spur_core::text::exit::ExitCode;
use spur_core::text::hostlist::HostList;
use spur_core::text::time::Time;
use spur_proto::convert::job as convert;
use spur_proto::convert::step::tres_of_step;

use super::outages::Outages;
use crate::store::accounting::{Closing, JobRow, NodeChange, StepRow};

/// The step number of the batch script's row.
const BATCH_STEP: i64 = -5;
/// Largest number of rows of each kind in one page.
const PAGE: usize = 2048;

/// The rows that a run of entries changes.
///
/// Rows of jobs in the cluster are made when they are written. Rows of what an entry is about to remove are
/// made before it.
#[derive(Default)]
pub(crate) struct Rows {
    changed: BTreeSet<JobId>,
    jobs: BTreeMap<Attempt, JobRow>,
    steps: BTreeMap<(Attempt, i64), StepRow>,
    /// Foreign attempts on the node that the current entry concerns, before it.
    foreign: Vec<Attempt>,
    /// Jobs that wait for the job that the current entry starts or ends, before it.
    waiting: Vec<JobId>,
    /// Ends of foreign attempts.
    closings: BTreeMap<Attempt, Closing>,
    /// Nodes that went out of service, or came back.
    outages: Outages,
    /// Values that were set for runs that have left the cluster.
    notes: BTreeMap<Attempt, JobNote>,
}

/// The rows that are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Rows of what the cluster no longer has, which exist nowhere else.
    Noted,
    /// All rows.
    All,
}

/// Rows that are written together.
#[derive(Default)]
pub(crate) struct Page {
    pub(crate) jobs: Vec<JobRow>,
    pub(crate) steps: Vec<StepRow>,
    pub(crate) closings: Vec<Closing>,
    pub(crate) nodes: Vec<NodeChange>,
    /// Values to set in rows of the database.
    pub(crate) notes: BTreeMap<Attempt, JobNote>,
}

impl Rows {
    /// Returns rows of everything in a cluster: at a start, accounting may lack any of them.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let changed = cluster.jobs().iter().map(|job| job.id).collect();
        Self { changed, outages: Outages::of(cluster), ..Self::default() }
    }

    /// Makes the rows of what `entry` is about to remove.
    pub(crate) fn before(&mut self, cluster: &Cluster, entry: &Entry) {
        self.outages.before(cluster, entry);
        match &entry.event {
            Event::JobRequeued { job, .. } => self.close_run(cluster, *job, true, entry.at),
            Event::JobStarted { job, .. } => self.waiting = cluster.jobs().waiting_for(*job),
            Event::JobEnded { job, .. } => {
                self.waiting = cluster.jobs().waiting_for(*job);
                self.close_run(cluster, *job, false, entry.at);
            }
            Event::JobsForgotten { jobs, .. } => {
                for job in jobs.iter().filter(|job| self.changed.remove(job)).collect::<Vec<_>>() {
                    if let Some(job) = cluster.job(*job) {
                        self.jobs.insert(job.attempt(), job_row(cluster, job));
                    }
                }
            }
            Event::StepNodeEnded { job, step, node, end } => {
                self.end_step(cluster, *job, (*step, *node), end, entry.at);
            }
            Event::NodeRegistered { node, .. }
            | Event::ForeignDropped { node }
            | Event::NodeCleaned { node, .. } => {
                self.foreign = cluster.node(*node).map_or_else(Vec::new, |node| node.foreign.clone());
            }
            // Other events remove nothing that accounting has a row for.
            _ => {}
        }
    }

    /// Makes the rows of a run that is over; a requeued job has the row of the run in its present state.
    fn close_run(&mut self, cluster: &Cluster, job: JobId, requeued: bool, at: Time) {
        let Some(job) = cluster.job(job) else { return };
        self.close_steps(cluster, job, at);
        if requeued {
            self.jobs.insert(job.attempt(), job_row(cluster, job));
            self.changed.remove(&job.id);
            self.batch_step(cluster, job);
        }
    }

    /// Makes the row of a step that has ended on all of its nodes.
    fn end_step(
        &mut self,
        cluster: &Cluster,
        job: JobId,
        (step, node): (StepId, NodeId),
        end: &StepNodeEnd,
        at: Time,
    ) {
        let Some(job) = cluster.job(job) else { return };
        let Some(step) = job.steps.iter().find(|running| running.id == step) else { return };
        let mut ended = Step::clone(step);
        ended.end_on(node, end);
        if let Some(exit) = ended.exit() {
            let row = step_row(cluster, job, &ended, Some((exit, at)));
            self.steps.insert((job.attempt(), i64::from(ended.id.0)), row);
        }
    }

    /// Records the jobs that `entry` has changed.
    pub(crate) fn after(&mut self, cluster: &Cluster, entry: &Entry) {
        self.outages.after(cluster, entry);
        match &entry.event {
            Event::JobStarted { job, .. }
            | Event::JobResumed { job }
            | Event::JobEnding { job, .. }
            | Event::BatchEnded { job, .. }
            | Event::JobEnded { job, .. } => {
                self.changed.extend(entry.event.jobs());
                // The row of a job that no longer waits has the time from which it could start.
                let free = |id: &JobId| cluster.job(*id).is_some_and(|job| job.waits_for.is_none());
                self.changed.extend(std::mem::take(&mut self.waiting).into_iter().filter(free));
                if let Some(job) = cluster.job(*job) {
                    self.batch_step(cluster, job);
                    self.open_steps(cluster, job);
                }
            }
            Event::StepStarted { job, step } => {
                let Some(job) = cluster.job(*job) else { return };
                let row = step_row(cluster, job, step, None);
                self.steps.insert((job.attempt(), i64::from(step.id.0)), row);
            }
            Event::NodeRegistered { .. } | Event::NodeCleaned { .. } => {
                self.close_foreign(cluster, EndState::Completed, entry.at);
            }
            Event::ForeignDropped { .. } => self.close_foreign(cluster, EndState::Cancelled, entry.at),
            Event::JobAnnotated { job, restarts, note } => {
                self.annotate(cluster, Attempt { job: *job, restart: *restarts }, note);
            }
            Event::HistoryImported { jobs, steps, last_job: _ } => self.import(jobs, steps),
            // A row says nothing of these.
            Event::JobNominated { .. }
            | Event::NominationDropped { .. }
            | Event::JobPreempted { .. }
            | Event::JobRecalled { .. }
            | Event::CpusReturned { .. }
            | Event::NodeReleased { .. } => {}
            _ => match entry.event.scope() {
                Scope::Queue(_) | Scope::Resources(_) | Scope::Node { .. } => {
                    self.changed.extend(entry.event.jobs());
                }
                Scope::Journal
                | Scope::Progress(_)
                | Scope::Layout
                | Scope::Reservation
                | Scope::Accounts
                | Scope::Usage => {}
            },
        }
    }

    /// Takes over the rows of an import.
    fn import(&mut self, jobs: &[JobRow], steps: &[StepRow]) {
        let run = |job, restart| Attempt { job: JobId(job), restart };
        self.jobs.extend(jobs.iter().map(|row| (run(row.job_id, row.restarts), row.clone())));
        self.steps
            .extend(steps.iter().map(|row| ((run(row.job_id, row.restarts), row.step_id), row.clone())));
    }

    /// Records the values that were set for a run: in the run's row if this exists or can be made from the
    /// cluster, else for the row in the database.
    fn annotate(&mut self, cluster: &Cluster, run: Attempt, note: &JobNote) {
        if cluster.job(run.job).is_some_and(|job| job.attempt() == run) {
            self.changed.insert(run.job);
        } else if let Some(row) = self.jobs.get_mut(&run) {
            annotate(row, note);
        } else {
            self.notes.entry(run).or_default().add(note);
        }
    }

    /// Ends the foreign runs that no node reports any more. `state` is the recorded end: the outcome is
    /// unknown, unless an operator ended the run.
    fn close_foreign(&mut self, cluster: &Cluster, state: EndState, at: Time) {
        for attempt in std::mem::take(&mut self.foreign) {
            let known = cluster.job(attempt.job).is_some_and(|job| job.attempt() == attempt);
            if known || cluster.nodes().iter().any(|node| node.foreign.contains(&attempt)) {
                continue;
            }
            let ended = cluster.clock().wall(at).0;
            let Attempt { job: JobId(job_id), restart: restarts } = attempt;
            self.closings.insert(attempt, Closing { job_id, restarts, state: state.name(), ended });
        }
    }

    /// Records the jobs of an entry that accounting has reached: rows of jobs in the cluster may still be
    /// missing.
    pub(crate) fn reached(&mut self, entry: &Entry) {
        self.changed.extend(entry.event.jobs());
    }

    /// Takes one page of rows; those of jobs in the cluster are made from it.
    pub(crate) fn page(&mut self, cluster: &Cluster, extent: Extent) -> Page {
        self.leave_out(cluster);
        let mut page = Page::default();
        while let (true, Some((_, row))) = (page.steps.len() < PAGE, self.steps.pop_first()) {
            page.steps.push(row);
        }
        while let (true, Some((_, row))) = (page.jobs.len() < PAGE, self.jobs.pop_first()) {
            page.jobs.push(row);
        }
        page.closings = std::mem::take(&mut self.closings).into_values().collect();
        page.nodes = self.outages.take();
        page.notes = std::mem::take(&mut self.notes);
        while extent == Extent::All && page.jobs.len() < PAGE {
            let Some(job) = self.changed.pop_first() else { break };
            page.jobs.extend(cluster.job(job).map(|job| job_row(cluster, job)));
        }
        page
    }

    /// Drops the rows that `accounting_storage_enforce` leaves out.
    fn leave_out(&mut self, cluster: &Cluster) {
        let jobs = &cluster.policy().jobs;
        if jobs.enforces(AccountingEnforce::NoSteps) {
            self.steps.clear();
        }
        if jobs.enforces(AccountingEnforce::NoJobs) {
            self.changed.clear();
            self.jobs.clear();
            self.closings.clear();
            self.notes.clear();
        }
    }

    /// Puts back a page that could not be written.
    pub(crate) fn put_back(&mut self, page: Page) {
        for row in page.jobs {
            let attempt = Attempt { job: JobId(row.job_id), restart: row.restarts };
            self.jobs.insert(attempt, row);
        }
        for row in page.steps {
            let attempt = Attempt { job: JobId(row.job_id), restart: row.restarts };
            self.steps.insert((attempt, row.step_id), row);
        }
        self.outages.put_back(page.nodes);
        for (run, note) in page.notes {
            let later = self.notes.insert(run, note);
            later.iter().for_each(|later| self.notes.entry(run).or_default().add(later));
        }
        for closing in page.closings {
            let attempt = Attempt { job: JobId(closing.job_id), restart: closing.restarts };
            self.closings.insert(attempt, closing);
        }
    }

    /// Returns the number of rows of what the cluster no longer has.
    pub(crate) fn noted(&self) -> usize {
        self.jobs.len() + self.steps.len() + self.closings.len() + self.outages.len() + self.notes.len()
    }

    /// True if all rows have been taken.
    pub(crate) fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.noted() == 0
    }

    /// Updates the rows of steps that go on with their job: they did not run while it was suspended.
    fn open_steps(&mut self, cluster: &Cluster, job: &Job) {
        for step in job.steps.iter().filter(|_| matches!(job.phase, Phase::Running { .. })) {
            let row = step_row(cluster, job, step, None);
            self.steps.insert((job.attempt(), i64::from(step.id.0)), row);
        }
    }

    /// Makes the rows of steps that end with their job, as cancelled.
    fn close_steps(&mut self, cluster: &Cluster, job: &Job, at: Time) {
        for step in &job.steps {
            let row = StepRow {
                state: "CANCELLED".to_owned(),
                ..step_row(cluster, job, step, Some((ExitCode::signaled(9), at)))
            };
            self.steps.insert((job.attempt(), i64::from(step.id.0)), row);
        }
    }

    fn batch_step(&mut self, cluster: &Cluster, job: &Job) {
        let (Some(alloc), Some(started), Some(_)) = (job.phase.alloc(), job.phase.started(), &job.spec.batch)
        else {
            return;
        };
        let Some(first) = alloc.nodes.first() else { return };
        let end = match &job.phase {
            Phase::Completing(completing) => Some((&completing.outcome, completing.ended)),
            Phase::Ended(ended) => Some((&ended.outcome, ended.ended)),
            Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) => None,
        };
        let own = job.batch_end.as_deref();
        let exit = own.map(|own| own.end.exit).or(end.map(|(outcome, _)| outcome.exit)).unwrap_or_default();
        let node = cluster.node(first.node).map(|node| Arc::clone(node.name())).unwrap_or_default();
        let usage = own.and_then(|own| own.end.usage.as_deref()).map(|usage| usage.clone().on(&node));
        let row = StepRow {
            job_id: job.id.0,
            restarts: job.restarts,
            step_id: BATCH_STEP,
            name: "batch".to_owned(),
            state: end.map_or("RUNNING", |(outcome, _)| batch_state(outcome.state, exit, own)).to_owned(),
            exit_code: exit.code.into(),
            exit_signal: exit.signal.into(),
            started: Some(cluster.clock().wall(started).0),
            // The remains of a job may outlive the decision that the job is over.
            ended: end.map(|(_, at)| cluster.clock().wall(own.map_or(at, |own| own.at)).0),
            alloc_nodes: 1,
            alloc_cpus: first.cpus.len(),
            alloc_tres: cluster.held_tres(std::slice::from_ref(first)).to_string(),
            tasks: 1,
            suspended_secs: suspended(job, 0),
            node_list: HostList::from_names(cluster.names_of([first.node])).to_string(),
            ..used(usage)
        };
        self.steps.insert((job.attempt(), BATCH_STEP), row);
    }
}

/// Sets values of a row.
pub(crate) fn annotate(row: &mut JobRow, note: &JobNote) {
    let JobNote { comment, admin_comment, derived_exit } = note;
    let text = |row: &mut String, new: &Option<Box<str>>| {
        new.iter().for_each(|new| (**new).clone_into(row));
    };
    text(&mut row.comment, comment);
    text(&mut row.admin_comment, admin_comment);
    if let Some(exit) = derived_exit {
        (row.derived_exit_code, row.derived_exit_signal) = (exit.code.into(), exit.signal.into());
    }
}

/// Returns the state of a job's batch step. If the job is preempted or runs out of time, the step is
/// cancelled, unless it ended by itself.
fn batch_state(state: EndState, exit: ExitCode, own: Option<&BatchEnd>) -> &'static str {
    match (state, own) {
        (_, Some(own)) if own.end.out_of_memory => EndState::OutOfMemory.name(),
        (EndState::Failed, _) => ended(exit),
        (EndState::Preempted | EndState::Timeout | EndState::Cancelled, Some(own)) => ended(own.end.exit),
        (EndState::Preempted | EndState::Timeout, None) => EndState::Cancelled.name(),
        (other, _) => other.name(),
    }
}

/// Returns the state of a step with this exit code.
fn ended(exit: ExitCode) -> &'static str {
    match exit {
        exit if exit.is_success() => EndState::Completed.name(),
        // As in Slurm, regardless of the sender of the signal.
        exit if exit.signal > 0 => EndState::Cancelled.name(),
        _ => EndState::Failed.name(),
    }
}

/// Returns the columns of a step's usage.
fn used(usage: Option<Usage>) -> StepRow {
    let Some(usage) = usage else { return StepRow::default() };
    let number = |value: u64| i64::try_from(value).unwrap_or(i64::MAX);
    StepRow {
        user_cpu_us: number(usage.user_us),
        system_cpu_us: number(usage.system_us),
        max_rss_bytes: number(usage.memory.max.value),
        max_vmsize_bytes: number(usage.virtual_memory.max.value),
        usage: serde_json::to_string(&usage).expect("usage is numbers and names"),
        ..StepRow::default()
    }
}

/// The step numbers of rows that are not numbered steps, with their labels. Spur makes batch steps only; the
/// others come from imports.
const LABELS: [(i64, &str); 3] = [(BATCH_STEP, "batch"), (-4, "extern"), (-6, "interactive")];

/// Returns the label of a step's row for users.
pub(crate) fn step_label(step_id: i64) -> String {
    let label = LABELS.iter().find(|(known, _)| *known == step_id).map(|(_, label)| (*label).to_owned());
    label.unwrap_or_else(|| step_id.to_string())
}

/// Returns the step number of a row with this label; `None` if the label is not one of a step.
pub(crate) fn step_number(label: &str) -> Option<i64> {
    let known = LABELS.iter().find(|(_, known)| *known == label).map(|(number, _)| *number);
    known.or_else(|| label.parse::<u32>().ok().map(i64::from))
}

fn step_row(cluster: &Cluster, job: &Job, step: &Step, end: Option<(ExitCode, Time)>) -> StepRow {
    let exit = end.map_or(ExitCode::SUCCESS, |(exit, _)| exit);
    let state = match end {
        None => "RUNNING",
        Some(_) if step.nodes.iter().any(|part| part.out_of_memory) => EndState::OutOfMemory.name(),
        Some(_) if step.timed_out.is_some() => EndState::Timeout.name(),
        Some((exit, _)) => ended(exit),
    };
    let parts = step.nodes.iter().filter_map(|part| {
        let node = cluster.node(part.node)?;
        Some(part.usage.as_deref()?.clone().on(node.name()))
    });
    let usage = parts.reduce(|mut all, part| {
        all.add(part);
        all
    });
    StepRow {
        job_id: job.id.0,
        restarts: job.restarts,
        step_id: i64::from(step.id.0),
        name: step.name.to_string(),
        state: state.to_owned(),
        cancelled_by: step.cancelled_by,
        exit_code: exit.code.into(),
        exit_signal: exit.signal.into(),
        started: Some(cluster.clock().wall(step.started).0),
        ended: end.map(|(_, at)| cluster.clock().wall(at).0),
        alloc_nodes: u32::try_from(step.nodes.len()).unwrap_or(u32::MAX),
        alloc_cpus: step.nodes.iter().map(|part| part.cpus.len()).sum(),
        alloc_tres: tres_of_step(cluster, job, step).to_string(),
        tasks: u32::try_from(step.tasks()).unwrap_or(u32::MAX),
        suspended_secs: suspended(job, step.paused),
        node_list: HostList::from_names(cluster.names_of(step.nodes.iter().map(|part| part.node)))
            .to_string(),
        layout: step.layout.to_string(),
        submit_line: step.submit_line.as_deref().unwrap_or_default().to_owned(),
        ..used(usage)
    }
}

/// Returns the seconds for which a job was suspended, without `before` and without a suspension that lasts.
fn suspended(job: &Job, before: u64) -> i64 {
    i64::try_from(job.phase.pauses().seconds.saturating_sub(before)).unwrap_or(i64::MAX)
}

/// Returns the state of an ending attempt. An attempt ended for a requeue is not cancelled; Slurm's
/// accounting has a word of its own.
fn state_of(completing: &Completing) -> &'static str {
    match (completing.outcome.state, completing.then) {
        (EndState::Cancelled, Then::Requeue { .. }) => "REQUEUED",
        (state, _) => state.name(),
    }
}

/// Makes the row of a job's current run.
fn job_row(cluster: &Cluster, job: &Job) -> JobRow {
    let (mut row, clock) = (requested(cluster, job), cluster.clock());
    row.submitted = clock.wall(job.submitted).0;
    row.eligible = job.eligible().map(|at| clock.wall(at).0);
    let (mut exit, mut state) = (ExitCode::default(), job.phase.names().0);
    match &job.phase {
        Phase::Pending(pending) => {
            row.reason = pending.hold.map(|hold| hold.reason().name().to_owned()).unwrap_or_default();
        }
        Phase::Running { .. } | Phase::Suspended(_) => {}
        Phase::Completing(completing) => {
            (exit, state) = (completing.outcome.exit, state_of(completing));
            row.reason = completing.outcome.reason.name().to_owned();
            row.cancelled_by = completing.outcome.by;
            row.ended = Some(clock.wall(completing.ended).0);
        }
        Phase::Ended(ended) => {
            exit = ended.outcome.exit;
            row.cancelled_by = ended.outcome.by;
            row.reason = ended.outcome.reason.name().to_owned();
            row.ended = Some(clock.wall(ended.ended).0);
            // The allocation of a started job holds its priority.
            row.priority = convert::last_priority(cluster, job, ended.ended);
        }
    }
    row.state = state.to_owned();
    (row.exit_code, row.exit_signal) = (exit.code.into(), exit.signal.into());
    row.started = job.phase.started().map(|at| clock.wall(at).0);
    row.suspended_secs = suspended(job, 0);
    if let Some(alloc) = job.phase.alloc() {
        row.partition = alloc.partition.to_string();
        row.priority = alloc.why.priority;
        row.alloc_nodes = u32::try_from(alloc.nodes.len()).unwrap_or(u32::MAX);
        row.alloc_cpus = u32::try_from(alloc.cpus()).unwrap_or(u32::MAX);
        row.alloc_tres = convert::allocated_tres(cluster, alloc).to_string();
        let names = cluster.names_of(alloc.nodes.iter().map(|part| part.node));
        row.node_list = HostList::from_names(names).to_string();
    }
    row
}

/// Makes the columns that follow from the request alone.
fn requested(cluster: &Cluster, job: &Job) -> JobRow {
    let spec = &*job.spec;
    // Components of a het job have the files of the first.
    let first = spec.het.as_ref().and_then(|het| cluster.job(het.leader)).unwrap_or(job);
    let mut row = JobRow {
        job_id: job.id.0,
        restarts: job.restarts,
        array_job_id: job.array.as_ref().map(|part| part.id.0),
        array_task_id: job.task().map(|task| task.0),
        array_tasks: Some(convert::waiting_tasks(job)).filter(|tasks| !tasks.is_empty()),
        name: spec.name.to_string(),
        user: spec.owner.user.to_string(),
        uid: spec.owner.uid,
        group: spec.owner.group.to_string(),
        gid: spec.owner.gid,
        account: spec.account.as_deref().unwrap_or_default().to_owned(),
        qos: spec.qos.as_deref().unwrap_or_default().to_owned(),
        partition: spec.partitions.join(","),
        derived_exit_code: job.derived_exit.code.into(),
        derived_exit_signal: job.derived_exit.signal.into(),
        submitted: job.submitted.0,
        time_limit_secs: spec.time_limit.seconds().and_then(|seconds| i64::try_from(seconds).ok()),
        priority: spec.priority.unwrap_or_default(),
        req_nodes: convert::least_nodes(&spec.shape),
        req_cpus: convert::least_cpus(&spec.shape),
        req_memory_mb: match spec.shape.memory {
            Some(MemoryNeed::PerNode(mb) | MemoryNeed::PerCpu(mb)) => i64::try_from(mb).unwrap_or(i64::MAX),
            None => 0,
        },
        req_memory_per_cpu: matches!(spec.shape.memory, Some(MemoryNeed::PerCpu(_))),
        req_tres: convert::requested_tres(&spec.shape).to_string(),
        het_job_id: spec.het.as_ref().map(|het| het.leader.0),
        het_job_offset: spec.het.as_ref().map(|het| het.offset),
        constraints: spec.shape.features.as_ref().map(ToString::to_string).unwrap_or_default(),
        ..JobRow::default()
    };
    let submit_line = first.spec.extra.as_ref().and_then(|extra| extra.submit_line.as_deref());
    row.submit_line = submit_line.unwrap_or_default().to_owned();
    if let Some(batch) = first.spec.batch.as_ref() {
        row.work_dir = batch.work_dir.to_string();
        row.std_in = batch.stdin.as_deref().unwrap_or("/dev/null").to_owned();
        row.std_out = first.output_path(batch);
        row.std_err = first.error_path(batch);
    }
    if let Some(extra) = &spec.extra {
        let text = |value: &Option<Box<str>>| value.as_deref().unwrap_or_default().to_owned();
        (row.comment, row.wckey) = (text(&extra.comment), text(&extra.wckey));
        row.admin_comment = text(&extra.admin_comment);
        let held = job.phase.alloc().and_then(|alloc| alloc.reservation.as_deref());
        row.reservation = held.map_or_else(|| text(&extra.reservation), str::to_owned);
        let licenses = extra.licenses.iter().map(|(name, count)| format!("{name}:{count}"));
        row.licenses = licenses.collect::<Vec<_>>().join(",");
    }
    row
}
