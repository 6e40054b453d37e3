//! The only mutation of a cluster: one journal entry after another.
//!
//! `apply` never fails and checks nothing. An entry that does not fit the state, which no journal of this
//! code contains, changes only the mark; `invariant` and the replay tests notice it.

use std::sync::Arc;

use super::dependency;
use super::event::{Entry, Event, Record, Split};
use super::{Cluster, Derived, Node};
use crate::id::{Attempt, JobId, NodeId, StepId};
use crate::model::array::ArrayPart;
use crate::model::job::{BatchEnd, Configuring, Job, JobSpec};
use crate::model::node::{Drain, Health, Power, Registration};
use crate::model::note::JobNote;
use crate::model::phase::{
    Checkpoint, Completing, Ended, Hold, Outcome, Pauses, Pending, Phase, Preempted, Then,
};
use crate::model::step::{Step, StepNodeEnd};
use crate::model::waits::Among;
use crate::text::array::TaskSet;
use crate::text::exit::ExitCode;
use crate::text::time::{Time, TimeLimit};

impl Cluster {
    /// Applies the entry that follows the cluster's last one. The whole entry takes effect in this one call,
    /// so that no reader sees a part of it.
    pub fn apply(&mut self, entry: &Entry) {
        self.apply_event(entry);
        self.count_changed();
        self.note_idle(entry.at);
    }

    fn apply_event(&mut self, entry: &Entry) {
        let at = entry.at;
        (self.mark.seq, self.mark.epoch, self.mark.at) = (entry.seq, entry.epoch, at);
        match &entry.event {
            Event::PolicyChanged { policy, keeps_edits } => self.set_policy(policy, *keeps_edits),
            Event::JobSubmitted { job, spec } => self.submit(*job, spec, at, &entry.record),
            Event::HetJobSubmitted { jobs, specs } => self.submit_components(jobs, specs, at),
            Event::JobUpdated { job, spec } => self.update_job(*job, spec, at),
            Event::JobAnnotated { job, restarts, note } => self.annotate(*job, *restarts, note),
            Event::JobHeld { .. } | Event::JobReleased { .. } => self.apply_hold(&entry.event, at),
            Event::StartPromised { job, start } => self.jobs.change(*job, |job| job.promised = Some(*start)),
            Event::AccrualBegun { .. } | Event::PrioritiesKept { .. } => self.prioritize(&entry.event, at),
            Event::JobNominated { job, nomination } => self.nominate(*job, Some(nomination)),
            Event::NominationDropped { job } => self.nominate(*job, None),
            Event::JobPreempted { .. } => self.preempt(&entry.event, at),
            Event::JobSuspended { .. }
            | Event::JobRecalled { .. }
            | Event::CpusReturned { .. }
            | Event::JobResumed { .. } => self.apply_to_suspended(&entry.event, at),
            Event::TasksSplit { job, from, tasks } => self.split(*job, *from, tasks, at),
            Event::JobStarted { .. } => self.start(&entry.event, at),
            Event::PrologEnded { job } => self.jobs.change(*job, |job| job.configuring.prolog = false),
            Event::EpilogEnded { job } => self.jobs.change(*job, |job| job.epilog = false),
            Event::JobWarned { job } => self.jobs.change(*job, note_warning),
            Event::TimeUsed { job, percent } => self.jobs.change(*job, |job| note_time(job, *percent)),
            Event::JobCheckpointed { job } => self.jobs.change(*job, |job| note_checkpoint(job, at)),
            Event::JobNodeLost { job, node, lingers } => self.lose_node(*job, *node, *lingers, at),
            Event::JobNodesReplaced { job, replaced, why } => self.replace_nodes(*job, replaced, why),
            Event::JobEnding { .. } => self.begin_end(&entry.event, at),
            Event::JobKilled { job } => self.jobs.change(*job, note_kill),
            Event::NodeReleased { job, node, lost } => self.release(*job, *node, *lost, at),
            Event::JobEnded { job, outcome } => self.end(*job, outcome, at),
            Event::JobRequeued { job, not_before, hold } => self.requeue(*job, *not_before, *hold, at),
            Event::JobsForgotten { jobs, arrays: _ } => jobs.iter().for_each(|job| self.jobs.forget(*job)),
            Event::StepStarted { .. }
            | Event::StepCancelled { .. }
            | Event::StepLimitChanged { .. }
            | Event::StepTimedOut { .. }
            | Event::StepNodeEnded { .. }
            | Event::BatchEnded { .. } => self.change_steps(&entry.event, at),
            Event::HistoryBegun { .. }
            | Event::ReignBegun { .. }
            | Event::FeatureLevelRaised { .. }
            | Event::JournalDoubted { .. }
            | Event::HistoryImported { .. }
            | Event::ClockSet { .. } => self.apply_to_lineage(&entry.event, entry.epoch, at),
            Event::NodeRegistered { .. } => self.register_node(&entry.event, at),
            Event::ForeignDropped { node } => self.change_node(*node, drop_foreign),
            Event::NodeCleaned { node, attempt } => self.change_node(*node, |node| clean(node, *attempt)),
            Event::NodeDowned { .. } => self.take_down(&entry.event, at),
            Event::NodeDrained { node, drain } => self.change_node(*node, |node| drain_node(node, drain)),
            Event::NodeResumed { node } => self.put_in_service(*node, at, resume),
            Event::NodeMended { node } => self.put_in_service(*node, at, |node| node.drain = None),
            Event::PowerChanged { node, power, jobs } => self.change_power(*node, power.as_ref(), jobs, at),
            Event::NodeUpdated { node, .. } => self.change_node(*node, |node| node.update(&entry.event)),
            Event::NodesMoved { nodes, places } => self.move_nodes(nodes, places),
            Event::NodesCreated { .. }
            | Event::NodesDeleted { .. }
            | Event::PartitionSet { .. }
            | Event::PartitionEdited { .. }
            | Event::PartitionDeleted { .. } => self.apply_edit(&entry.event),
            Event::ReservationCreated { reservation } => self.create_reservation(reservation),
            Event::ReservationUpdated { reservation } => self.reserve(reservation),
            Event::ReservationDeleted { name } => self.unreserve(name),
            Event::AccountsChanged { .. } | Event::UsageRolled { .. } | Event::ResetPlanned { .. } => {
                self.apply_to_accounts(&entry.event);
            }
        }
        self.note_idle(at);
    }

    /// Applies that a node has registered.
    fn register_node(&mut self, event: &Event, at: Time) {
        let Event::NodeRegistered { node, registration, stale, foreign, last_job } = event else { return };
        self.mark.last_job = self.mark.last_job.max(last_job.unwrap_or_default());
        self.await_no_more(*node);
        self.put_in_service(*node, at, |node| register(node, registration, stale, foreign, at));
    }

    /// Applies that a node is out of service.
    fn take_down(&mut self, event: &Event, at: Time) {
        let Event::NodeDowned { node, reason, silent, by } = event else { return };
        self.await_no_more(*node);
        self.change_node(*node, |node| down(node, reason, *silent, by.as_ref(), at));
    }

    /// Sets the comments of a job if the job is still in the run with this number of restarts.
    fn annotate(&mut self, job: JobId, restarts: u32, note: &JobNote) {
        self.jobs.change(job, |job| {
            if job.restarts == restarts {
                note.set(job);
            }
        });
    }

    fn apply_hold(&mut self, event: &Event, at: Time) {
        match event {
            Event::JobHeld { job, by } => self.hold(*job, Some(*by), at),
            Event::JobReleased { job } => self.hold(*job, None, at),
            _ => {}
        }
    }

    /// Applies an event about the priorities of pending jobs.
    fn prioritize(&mut self, event: &Event, at: Time) {
        match event {
            Event::AccrualBegun { jobs } => self.begin_accrual(jobs, at),
            Event::PrioritiesKept { jobs, priorities } => self.keep_priorities(jobs, priorities),
            _ => {}
        }
    }

    /// Marks a job as preempted: it has to make way until the end of its grace time.
    fn preempt(&mut self, event: &Event, at: Time) {
        let Event::JobPreempted { job, by, then, end_at } = event else { return };
        let preempted = Preempted { by: *by, at, end_at: *end_at, then: *then };
        self.jobs.change(*job, |job| make_way(job, preempted));
    }

    /// Applies an event about accounts or usage.
    fn apply_to_accounts(&mut self, event: &Event) {
        match event {
            Event::AccountsChanged { changes, by: _ } => self.change_accounts(changes),
            Event::UsageRolled { until, ratio, reset, periods: _ } => self.roll_usage(*until, *ratio, *reset),
            Event::ResetPlanned { at, zone } => self.plan_reset(*at, zone),
            _ => {}
        }
    }

    /// Changes a node. Drops derived data, nominations that rely on the node, and recounts its jobs if its
    /// shape changed.
    fn change_node(&mut self, id: NodeId, change: impl FnOnce(&mut Node)) {
        self.derived = Derived::default();
        let Some(node) = self.nodes.get_mut(id.index()) else { return };
        let before = Arc::clone(&node.shape);
        change(node);
        let changed = node.shape != before;
        if changed || !node.available() {
            self.renounce(id);
        }
        if changed {
            self.mark.ground = self.mark.seq;
            // Devices may have other names, and thus count as other TRES.
            self.count_on(id);
        }
    }

    /// Applies a change after which a node may be in service. If so, its idle time begins at `at`, not at the
    /// end of its last job.
    fn put_in_service(&mut self, id: NodeId, at: Time, change: impl FnOnce(&mut Node)) {
        self.change_node(id, |node| {
            let before = node.available();
            change(node);
            if !before && node.available() {
                node.last_busy = Some(at);
            }
        });
    }

    fn change_power(&mut self, id: NodeId, power: Option<&Power>, begin: &[JobId], at: Time) {
        if let Some(power) = power {
            self.powered.insert(id);
            self.change_node(id, |node| {
                node.power = Some(power.clone());
                // A node that is off needs no registration to be available: the controller powers it on.
                if node.is_off() && node.health == Health::Unknown {
                    node.health = Health::Up;
                }
            });
            return;
        }
        self.powered.remove(&id);
        let was_off = self.node(id).is_some_and(Node::is_off);
        self.change_node(id, |node| {
            node.power = None;
            node.last_busy = if was_off { Some(at) } else { node.last_busy };
        });
        let held = self.node(id).map_or_else(Vec::new, |node| node.jobs.clone());
        let waits = |job: &JobId| self.jobs.get(*job).is_some_and(|job| job.configuring.nodes.contains(&id));
        for job in held.into_iter().filter(waits).collect::<Vec<_>>() {
            self.jobs.change(job, |job| job.configuring.nodes.retain(|node| *node != id));
        }
        for job in begin {
            self.jobs.change(*job, |job| begin_time(job, at));
        }
    }

    fn submit_components(&mut self, jobs: &[JobId], specs: &[Arc<JobSpec>], at: Time) {
        for (job, spec) in jobs.iter().zip(specs) {
            self.submit(*job, spec, at, &Record::default());
        }
    }

    fn submit(&mut self, id: JobId, spec: &Arc<JobSpec>, at: Time, record: &Record) {
        self.mark.last_job = self.mark.last_job.max(id);
        let job = record.get_or_make(|| self.new_job(id, spec, at));
        self.jobs.insert(job);
        self.meet(spec);
    }

    fn new_job(&self, id: JobId, spec: &Arc<JobSpec>, at: Time) -> Job {
        let waits_for = dependency::of(id, spec, spec.array.is_some(), &self.jobs);
        let pending =
            Pending { hold: spec.hold.then_some(Hold::User), not_before: spec.begin, ..Pending::default() };
        let mut job = Job {
            id,
            spec: Arc::clone(spec),
            array: spec.array.as_ref().map(|array| Box::new(ArrayPart { id, tasks: array.tasks.clone() })),
            submitted: at,
            restarts: 0,
            waits_for,
            never: false,
            phase: Phase::Pending(pending),
            was_eligible: None,
            promised: None,
            steps: Vec::new(),
            next_step: StepId(0),
            derived_exit: ExitCode::default(),
            full_limit: None,
            batch_end: None,
            configuring: Configuring::default(),
            epilog: false,
        };
        dependency::settle(&mut job, &self.jobs, Among::All);
        note_eligible(&mut job, at);
        job
    }

    fn update_job(&mut self, id: JobId, spec: &Arc<JobSpec>, at: Time) {
        self.nominate(id, None);
        let Some(mut job) = self.jobs.remove(id) else { return };
        if job.spec.dependency != spec.dependency {
            job.waits_for = dependency::of(id, spec, job.array.is_some(), &self.jobs);
            job.never = false;
            dependency::settle(&mut job, &self.jobs, Among::All);
            // While the job waits for others it is not eligible, and its earlier waiting time must not count
            // afterwards.
            let waits = job.waits_for.is_some();
            if let Phase::Pending(pending) = &mut job.phase
                && waits
            {
                pending.defer();
            }
        }
        if let Phase::Pending(pending) = &mut job.phase
            && job.spec.begin != spec.begin
        {
            pending.not_before = spec.begin;
            pending.defer();
        }
        if job.spec.time_limit != spec.time_limit {
            job.full_limit = None;
        }
        if let Phase::Pending(pending) = &mut job.phase
            && places_anew(&job.spec, spec)
        {
            pending.kept_priority = None;
        }
        job.spec = Arc::clone(spec);
        note_eligible(&mut job, at);
        self.jobs.insert(Arc::new(job));
    }

    fn begin_accrual(&mut self, jobs: &[JobId], at: Time) {
        for id in jobs {
            self.jobs.change(*id, |job| {
                if let Phase::Pending(pending) = &mut job.phase {
                    pending.accrued = Some(at);
                }
            });
        }
    }

    fn keep_priorities(&mut self, jobs: &[JobId], priorities: &[u32]) {
        for (id, priority) in jobs.iter().zip(priorities) {
            self.jobs.change(*id, |job| {
                if let Phase::Pending(pending) = &mut job.phase {
                    pending.kept_priority = Some(*priority);
                }
            });
        }
    }

    fn hold(&mut self, id: JobId, by: Option<Hold>, at: Time) {
        if by.is_some() {
            self.nominate(id, None);
        }
        self.jobs.change(id, |job| {
            if let Phase::Pending(pending) = &mut job.phase {
                pending.hold = by;
                pending.defer();
                note_eligible(job, at);
            }
        });
    }

    /// Splits tasks that wait in one record of an array off into a record of their own. Does nothing if
    /// these are none or all of the record's tasks.
    fn split(&mut self, id: JobId, from: JobId, tasks: &TaskSet, at: Time) {
        let Some(part) = self.jobs.get(from).and_then(|job| job.array.as_deref()) else { return };
        let (taken, left) = (part.tasks.common(tasks), part.tasks.without(tasks));
        if taken.is_empty() || left.is_empty() {
            return;
        }
        self.mark.last_job = self.mark.last_job.max(id);
        self.nominate(from, None);
        let Some(mut job) = self.jobs.get(from).cloned() else { return };
        job.id = id;
        job.array = job.array.map(|part| Box::new(ArrayPart { tasks: taken, ..*part }));
        job.promised = None;
        self.jobs.change(from, |job| {
            if let Some(part) = &mut job.array {
                part.tasks = left;
            }
        });
        self.jobs.insert(Arc::new(job));
        for id in [from, id] {
            self.settle(id, Among::Counterparts, at);
        }
    }

    fn start(&mut self, event: &Event, at: Time) {
        let Event::JobStarted { job: id, alloc, split, configuring } = event else { return };
        let id = *id;
        if let Some(Split { from, task }) = *split {
            let promised = self.jobs.get(from).and_then(|job| job.promised);
            self.split(id, from, &TaskSet::from(task.0), at);
            // The promised start was that of this task; the rest of the record is promised its own.
            self.jobs.change(id, |job| job.promised = promised);
            self.jobs.change(from, |job| job.promised = None);
        }
        self.nominate(id, None);
        for part in &alloc.nodes {
            if let Some(node) = self.nodes.get_mut(part.node.index()) {
                node.take(id, part, alloc.exclusive);
            }
        }
        let ends_by = alloc.reservation.as_ref().and_then(|name| self.ends_by(name));
        self.jobs.change(id, |job| {
            if let Some(limit) = alloc.time_limit {
                job.full_limit = Some(set_limit(job, limit));
            }
            let alloc = Arc::clone(alloc);
            let pauses = Pauses::default();
            job.configuring = configuring.clone();
            let (started, warned, told, preempted) = (at, false, 0, None);
            job.was_eligible = job.eligible();
            let checkpoint = None;
            job.phase =
                Phase::Running { alloc, started, warned, told, preempted, ends_by, pauses, checkpoint };
        });
        self.begin_usage(id, alloc, at);
        self.settle_waiting_for(id, at);
    }

    fn change_steps(&mut self, event: &Event, at: Time) {
        let change = |job: &mut Job| match event {
            Event::StepStarted { step, .. } => begin_step(job, step),
            Event::StepCancelled { step, by, .. } => {
                change_step(job, *step, |step| step.cancelled_by = Some(*by))
            }
            Event::StepLimitChanged { step, limit, .. } => {
                change_step(job, *step, |step| step.time_limit = *limit)
            }
            Event::StepTimedOut { step, .. } => change_step(job, *step, |step| step.timed_out = Some(at)),
            Event::StepNodeEnded { step, node, end, .. } => end_step_node(job, *step, *node, end),
            Event::BatchEnded { end, .. } => end_batch(job, end, at),
            _ => {}
        };
        event.jobs().for_each(|job| self.jobs.change(job, change));
    }

    fn begin_end(&mut self, event: &Event, at: Time) {
        let Event::JobEnding { job, outcome, then, kill_at, epilog, seen } = event else { return };
        if *then == Then::End {
            self.nominate(*job, None);
        }
        self.end_usage(*job, *seen, at);
        self.give_up_cpus(*job);
        self.jobs.change(*job, |job| {
            begin_end(job, outcome, *then, *kill_at, at);
            job.configuring = Configuring::default();
            job.epilog |= *epilog;
        });
    }

    fn release(&mut self, id: JobId, node: NodeId, lost: bool, at: Time) {
        let Some(job) = self.jobs.get(id) else { return };
        if let (Some(part), Some(known)) = (job.phase.holds_on(node), self.nodes.get_mut(node.index())) {
            known.give_back(id, &part, at);
            known.past.add(lost);
            self.judge_anew(node);
        }
        self.jobs.change(id, |job| {
            if let Phase::Completing(completing) = &mut job.phase {
                completing.waiting.remove(&node);
            }
        });
    }

    fn end(&mut self, id: JobId, outcome: &Outcome, at: Time) {
        self.nominate(id, None);
        self.jobs.change(id, |job| {
            let ended = match &job.phase {
                Phase::Completing(completing) => completing.ended,
                Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) | Phase::Ended(_) => at,
            };
            job.was_eligible = job.eligible();
            job.phase = Phase::Ended(Ended {
                alloc: job.phase.alloc().cloned(),
                started: job.phase.started(),
                ended,
                outcome: outcome.clone(),
                pauses: job.phase.pauses(),
            });
            job.waits_for = None;
            job.steps.clear();
        });
        self.settle_waiting_for(id, at);
    }

    fn requeue(&mut self, id: JobId, not_before: Option<Time>, hold: Option<Hold>, at: Time) {
        // An attempt that was cancelled before it ran waits for its dependencies again.
        let waits = self.jobs.get(id).filter(|job| matches!(&job.phase, Phase::Ended(_)));
        let waits = waits.filter(|job| job.phase.started().is_none());
        let waits_for = waits.and_then(|job| dependency::of(id, &job.spec, job.array.is_some(), &self.jobs));
        if hold.is_some() {
            self.nominate(id, None);
        }
        self.jobs.change(id, |job| {
            let nominated = job.nomination().cloned();
            job.waits_for = waits_for;
            job.never = false;
            job.restarts += 1;
            if let Some(full) = job.full_limit.take() {
                set_limit(job, full);
            }
            (job.promised, job.was_eligible) = (None, None);
            job.steps.clear();
            job.next_step = crate::id::StepId(0);
            job.batch_end = None;
            job.phase = Phase::Pending(Pending { hold, not_before, nominated, ..Pending::default() });
            note_eligible(job, at);
        });
        self.jobs.reopen(id);
        self.settle(id, Among::All, at);
    }

    /// Judges again the dependencies of jobs that wait for `id`, or for its array.
    fn settle_waiting_for(&mut self, id: JobId, at: Time) {
        let array = self.jobs.get(id).map(Job::array_id);
        for waiting in self.jobs.waiting_for(id) {
            self.settled += 1;
            self.settle(waiting, Among::About { job: id, array }, at);
        }
    }

    /// Judges some terms of a job's dependency again, if the job has unmet ones.
    fn settle(&mut self, id: JobId, among: Among, at: Time) {
        let Some(mut job) = self.jobs.get(id).filter(|job| job.waits_for.is_some()).cloned() else { return };
        dependency::settle(&mut job, &self.jobs, among);
        note_eligible(&mut job, at);
        self.jobs.change(id, |known| *known = job);
    }
}

/// Records the time from which only resources keep a job waiting: `at`, or its begin time if that is later.
/// Does nothing while the job is held or has an open dependency, and if the time is known already.
fn note_eligible(job: &mut Job, at: Time) {
    let waits = job.waits_for.is_some();
    if let Phase::Pending(pending) = &mut job.phase
        && pending.hold.is_none()
        && !waits
        && pending.eligible.is_none()
    {
        pending.eligible = Some(pending.not_before.unwrap_or(at).max(at));
    }
}

/// True if a changed request asks for another place in the queue, which a kept priority must not undo.
fn places_anew(before: &JobSpec, after: &JobSpec) -> bool {
    (before.nice, before.priority, &before.qos, &before.account, &before.partitions)
        != (after.nice, after.priority, &after.qos, &after.account, &after.partitions)
}

/// Replaces a job's time limit; returns the previous one.
fn set_limit(job: &mut Job, limit: TimeLimit) -> TimeLimit {
    std::mem::replace(&mut Arc::make_mut(&mut job.spec).time_limit, limit)
}

/// Begins the time of a job once all its nodes are up.
fn begin_time(job: &mut Job, at: Time) {
    if let Phase::Running { started, .. } = &mut job.phase {
        *started = at;
    }
}

/// Marks a started job as preempted.
fn make_way(job: &mut Job, told: Preempted) {
    match &mut job.phase {
        Phase::Running { preempted, .. } => *preempted = Some(told),
        Phase::Suspended(suspended) if told.then.is_some() => suspended.preempted = Some(told),
        // The suspended job gives its returned CPUs back by an event of its own.
        Phase::Suspended(_) => {}
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => {}
    }
}

/// Begins the end of an attempt. For a job that is ending already, replaces the outcome and the time of the
/// kill, not the progress of the end.
fn begin_end(job: &mut Job, outcome: &Outcome, then: Then, kill_at: Option<Time>, at: Time) {
    let (alloc, started, pauses, suspended) = match &mut job.phase {
        Phase::Running { alloc, started, pauses, .. } => (Arc::clone(alloc), *started, *pauses, false),
        Phase::Suspended(held) => (Arc::clone(&held.alloc), held.started, held.pauses.over(at), true),
        Phase::Completing(completing) => {
            completing.outcome.clone_from(outcome);
            completing.then = then;
            completing.kill_at = kill_at;
            return;
        }
        Phase::Pending(_) | Phase::Ended(_) => return,
    };
    job.phase = Phase::Completing(Completing {
        waiting: alloc.nodes.iter().map(|part| part.node).collect(),
        alloc,
        started,
        ended: at,
        outcome: outcome.clone(),
        then,
        kill_at,
        pauses,
        suspended,
        nominated: None,
    });
}

/// Records that the signal of `--signal` has been sent, so that it is sent once.
fn note_warning(job: &mut Job) {
    if let Phase::Running { warned, .. } = &mut job.phase {
        *warned = true;
    }
}

/// Records the percentage of the time limit for which the user's mail has been sent, so that it is sent once.
fn note_time(job: &mut Job, percent: u8) {
    if let Phase::Running { told, .. } = &mut job.phase {
        *told = percent;
    }
}

/// Records a checkpoint of a started job, from which its next attempt can go on.
fn note_checkpoint(job: &mut Job, at: Time) {
    let saved = Some(Checkpoint { at, ran: job.phase.run_time(at) });
    match &mut job.phase {
        Phase::Running { checkpoint, .. } => *checkpoint = saved,
        Phase::Suspended(suspended) => suspended.checkpoint = saved,
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => {}
    }
}

/// Records that the remaining processes of an ending job have been killed.
fn note_kill(job: &mut Job) {
    if let Phase::Completing(completing) = &mut job.phase {
        completing.kill_at = None;
    }
}

fn begin_step(job: &mut Job, step: &Arc<Step>) {
    job.next_step.0 = step.id.0 + 1;
    job.steps.push(Arc::clone(step));
}

fn end_batch(job: &mut Job, end: &StepNodeEnd, at: Time) {
    job.batch_end = Some(Box::new(BatchEnd { at, end: end.clone() }));
}

fn change_step(job: &mut Job, id: StepId, change: impl FnOnce(&mut Step)) {
    if let Some(running) = job.steps.iter_mut().find(|running| running.id == id) {
        change(Arc::make_mut(running));
    }
}

fn end_step_node(job: &mut Job, step: StepId, node: NodeId, end: &StepNodeEnd) {
    let Some(at) = job.steps.iter().position(|running| running.id == step) else { return };
    let running = Arc::make_mut(&mut job.steps[at]);
    running.end_on(node, end);
    if let Some(exit) = running.exit() {
        if exit.rank() > job.derived_exit.rank() {
            job.derived_exit = exit;
        }
        job.steps.remove(at);
    }
}

fn register(
    node: &mut Node,
    registration: &Arc<Registration>,
    stale: &[Attempt],
    foreign: &[Attempt],
    at: Time,
) {
    node.register(registration, at);
    node.stale = stale.to_vec();
    node.foreign = foreign.to_vec();
}

/// Moves the foreign attempts of a node to its stale ones, whose processes are ended.
fn drop_foreign(node: &mut Node) {
    let foreign = std::mem::take(&mut node.foreign);
    node.stale.extend(foreign);
}

fn clean(node: &mut Node, attempt: Attempt) {
    node.stale.retain(|stale| *stale != attempt);
    node.foreign.retain(|foreign| *foreign != attempt);
}

fn down(node: &mut Node, reason: &Arc<str>, silent: bool, by: Option<&Arc<str>>, at: Time) {
    node.health = Health::Down { reason: Arc::clone(reason), at, silent, by: by.cloned() };
}

fn drain_node(node: &mut Node, drain: &Drain) {
    node.drain = Some(drain.clone());
}

fn resume(node: &mut Node) {
    node.drain = None;
    if matches!(node.health, Health::Down { .. }) {
        let known = node.registration.is_some() || node.is_off();
        node.health = if known { Health::Up } else { Health::Unknown };
    }
}
