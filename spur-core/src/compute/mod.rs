//! The pure half of spurd: the effects of orders on a node, and its reports.
//!
//! [`Compute`] gets each [`Input`] and returns the [`Effect`]s to carry out; its shell has the disk, the
//! network and the processes.
//!
//! Promises:
//!
//! * A step is spawned at most once, and none for an attempt that was terminated.
//! * The prolog has ended before the first step is spawned; the epilog starts after the last step has ended.
//! * Every end is reported until the report is acknowledged. The last report of an attempt is that nothing is
//!   left.
//! * Nothing is spawned while a step that is being suspended has not stopped, nor for a suspended attempt.
//!   The controller gives the CPUs of a suspended job to others at once, and its orders arrive in that
//!   sequence.
//! * Carrying out an order twice has the effect of once.
//!
//! A job without other nodes is over on this node when its batch script ends, unless a step still runs. The
//! epilog and `NodeDone` then need no order of the controller.

pub mod allegiance;
pub mod credential;
mod held;
pub mod step;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use self::held::{Epilog, Held, Prolog, Run};
use crate::id::{Attempt, StepId};
pub use crate::model::report::Report;
use crate::model::step::StepNodeEnd;
use crate::text::exit::ExitCode;
use crate::text::signal::Signal;

/// An input of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The controller orders the batch script of an attempt to be run.
    Launch {
        /// The attempt to launch.
        attempt: Attempt,
        /// True if the job has no other node.
        alone: bool,
    },
    /// The batch script of an attempt cannot be run on this node.
    CannotLaunch {
        /// The attempt that cannot be launched.
        attempt: Attempt,
        /// The reason, in words for administrators.
        message: String,
    },
    /// A client with the controller's credential launches a step on this node.
    LaunchStep {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step to launch.
        step: StepId,
    },
    /// The controller orders the end of an attempt: no more launches, SIGTERM or SIGKILL to its processes.
    Terminate {
        /// The attempt to end.
        attempt: Attempt,
        /// True for SIGKILL, false for SIGTERM.
        kill: bool,
    },
    /// The controller orders an attempt to be suspended or resumed.
    Suspend {
        /// The attempt to suspend or resume.
        attempt: Attempt,
        /// True to suspend, false to resume.
        stop: bool,
    },
    /// The controller orders a signal to be sent.
    Signal {
        /// The attempt to signal.
        attempt: Attempt,
        /// The step to signal; `None` for the whole attempt.
        step: Option<StepId>,
        /// The signal to send.
        signal: Signal,
        /// True if the batch script gets the signal.
        batch: bool,
        /// True if the steps get the signal.
        steps: bool,
    },
    /// The controller acknowledges reports that are durable.
    Acknowledge {
        /// The numbers of the reports.
        reports: Vec<u64>,
    },
    /// The controller no longer needs the attempt.
    Forget {
        /// The attempt to forget.
        attempt: Attempt,
    },
    /// The prolog of an attempt has ended.
    PrologDone {
        /// The attempt of the prolog.
        attempt: Attempt,
        /// The error message if the prolog failed.
        error: Option<String>,
    },
    /// The epilog of an attempt has ended.
    EpilogDone {
        /// The attempt of the epilog.
        attempt: Attempt,
        /// The error message if the epilog failed.
        error: Option<String>,
    },
    /// A step that is being suspended has stopped.
    StepStopped {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step that has stopped.
        step: StepId,
    },
    /// A step has ended.
    StepEnded {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step that has ended.
        step: StepId,
        /// The manner of the end.
        end: StepEnd,
    },
}

/// The end of a step on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// The tasks of the step ran.
    Exited {
        /// Exit code and usage of the tasks.
        end: StepNodeEnd,
    },
    /// The tasks of the step could not be started.
    NotLaunched {
        /// The reason, in words for users.
        message: String,
        /// True if the node is at fault, false if the job is.
        node_fault: bool,
        /// The exit code that the step gets.
        exit: ExitCode,
    },
    /// No record of the step's end exists.
    Lost,
}

impl StepEnd {
    /// The exit code of the step. An unknown end counts as success, as in reports of a batch script.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Exited { end } => end.exit,
            Self::NotLaunched { exit, .. } => *exit,
            Self::Lost => ExitCode::SUCCESS,
        }
    }
}

/// An effect that the shell carries out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Stores the record of an attempt, so that a restarted spurd knows it; must be complete before the
    /// effects that follow.
    Remember {
        /// The attempt of the record.
        attempt: Attempt,
        /// The record to store.
        record: Record,
    },
    /// Runs the prolog; the answer is [`Input::PrologDone`].
    RunProlog {
        /// The attempt of the prolog.
        attempt: Attempt,
    },
    /// Runs the epilog; the answer is [`Input::EpilogDone`].
    RunEpilog {
        /// The attempt of the epilog.
        attempt: Attempt,
    },
    /// Starts a step; the answer is [`Input::StepEnded`] in every case.
    Spawn {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step to start.
        step: StepId,
    },
    /// Informs the client that its step is not launched.
    Refuse {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step that is refused.
        step: StepId,
        /// The reason, in words for users.
        reason: String,
    },
    /// Ends a running step.
    TerminateStep {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step to end.
        step: StepId,
        /// True for SIGKILL, false for SIGTERM.
        kill: bool,
    },
    /// Suspends all processes of a running step, including those that it is about to start, and answers with
    /// [`Input::StepStopped`]; or resumes them.
    SuspendStep {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step to suspend or resume.
        step: StepId,
        /// True to suspend, false to resume.
        stop: bool,
    },
    /// Sends a signal to a running step.
    SignalStep {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step to signal.
        step: StepId,
        /// The signal to send.
        signal: Signal,
        /// True if only the tasks' own processes get the signal, not their children.
        tasks_only: bool,
    },
    /// Sends a report to the controller, again after each reconnection, until it is acknowledged.
    Report {
        /// The number of the report.
        id: u64,
        /// The attempt that the report is about.
        attempt: Attempt,
        /// The report to send.
        report: Report,
    },
    /// The end of a step is acknowledged: its records may be deleted, but not the proof that it was launched.
    StepAcknowledged {
        /// The attempt of the step.
        attempt: Attempt,
        /// The step whose end is acknowledged.
        step: StepId,
    },
    /// Deletes every record of an attempt.
    Forget {
        /// The attempt to delete.
        attempt: Attempt,
        /// The attempt's steps that were launched on this node.
        steps: Vec<StepId>,
    },
}

/// The stored record of an attempt besides its steps. The existence of a step proves that the prolog passed.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Record {
    /// True if no more steps may be launched.
    pub terminated: bool,
    /// The result of the epilog; `None` if it has not ended.
    pub epilog: Option<EpilogResult>,
}

/// The result of an epilog.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpilogResult {
    /// The epilog ended with success.
    Done,
    /// The epilog failed with this error message.
    Failed(String),
}

/// The records of an attempt that a restarted spurd finds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// The attempt of the records.
    pub attempt: Attempt,
    /// The record of the attempt itself.
    pub record: Record,
    /// Steps of the attempt with their ends; `None` for steps that still run.
    pub steps: Vec<(StepId, Option<StepEnd>)>,
    /// Steps of the attempt whose ends were acknowledged.
    pub acknowledged: Vec<StepId>,
}

/// An attempt that the node has records of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAttempt {
    /// Attempt with records on the node.
    pub attempt: Attempt,
    /// True if the attempt is over on this node.
    pub done: bool,
}

/// The site's programs that run around a job on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// True if there is a prolog, before the first step.
    pub prolog: bool,
    /// True if there is an epilog, after the last step.
    pub epilog: bool,
}

/// The state of all attempts on the node.
#[derive(Clone, Debug, Default)]
pub struct Compute {
    site: Site,
    attempts: BTreeMap<Attempt, Held>,
    /// Suspended attempts, also those without any process here. A node that registers gets these orders
    /// again.
    suspended: BTreeSet<Attempt>,
    /// Steps that are being suspended and have not stopped yet.
    stopping: BTreeSet<(Attempt, StepId)>,
    outstanding: BTreeMap<u64, (Attempt, Report)>,
    last_report: u64,
}

impl Compute {
    /// The state of a restarted node, and the effects that continue its work.
    ///
    /// An attempt without steps whose end was not ordered counts as never received: the order for it is
    /// repeated.
    #[must_use]
    pub fn recover(site: Site, found: Vec<Recovered>) -> (Compute, Vec<Effect>) {
        let (mut compute, mut effects) = (Compute { site, ..Compute::default() }, Vec::new());
        for Recovered { attempt, record, steps, acknowledged } in found {
            if steps.is_empty() && acknowledged.is_empty() && !record.terminated {
                effects.push(Effect::Forget { attempt, steps: Vec::new() });
                continue;
            }
            let held = Held::recovered(&record, &steps, &acknowledged);
            let done = held.epilog.clone();
            compute.attempts.insert(attempt, held);
            for (step, end) in steps {
                if let Some(end) = end {
                    compute.report(attempt, held::report(step, end), &mut effects);
                }
            }
            if let Epilog::Done(error) = done {
                compute.report(attempt, Report::NodeDone { epilog_error: error }, &mut effects);
            }
            compute.finish(attempt, &mut effects);
        }
        (compute, effects)
    }

    /// Sets the site's programs for later attempts.
    pub fn set_site(&mut self, site: Site) {
        self.site = site;
    }

    /// Handles one input; returns the effects to carry out, in order.
    pub fn handle(&mut self, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        let out = &mut effects;
        match input {
            Input::Launch { attempt, alone } => {
                self.attempts.entry(attempt).or_default().alone |= alone;
                self.launch(attempt, StepId::BATCH, out);
            }
            Input::CannotLaunch { attempt, message } => self.cannot_launch(attempt, message, out),
            Input::LaunchStep { attempt, step } => self.launch(attempt, step, out),
            Input::Terminate { attempt, kill } => self.terminate(attempt, kill, out),
            Input::Suspend { attempt, stop } => self.suspend(attempt, stop, out),
            Input::Signal { attempt, step, signal, batch, steps } => {
                self.signal(
                    attempt,
                    |id| step.map_or(if id == StepId::BATCH { batch } else { steps }, |one| one == id),
                    signal,
                    steps,
                    out,
                );
            }
            Input::Acknowledge { reports } => self.acknowledge(&reports, out),
            Input::Forget { attempt } => self.forget(attempt, out),
            Input::PrologDone { attempt, error } => self.prolog_done(attempt, error, out),
            Input::EpilogDone { attempt, error } => self.epilog_done(attempt, error, out),
            Input::StepStopped { attempt, step } => self.stopped(attempt, step, out),
            Input::StepEnded { attempt, step, end } => {
                self.step_ended(attempt, step, end, out);
                self.stopped(attempt, step, out);
            }
        }
        effects
    }

    /// True if a step was launched on this node or is about to be.
    #[must_use]
    pub fn knows(&self, attempt: Attempt, step: StepId) -> bool {
        self.attempts.get(&attempt).is_some_and(|held| held.steps.contains_key(&step))
    }

    /// The attempts with records, for the registration.
    pub fn held(&self) -> impl Iterator<Item = HeldAttempt> {
        self.attempts
            .iter()
            .map(|(&attempt, held)| HeldAttempt { attempt, done: matches!(held.epilog, Epilog::Done(_)) })
    }

    /// The reports that have not been acknowledged, oldest first.
    pub fn outstanding(&self) -> impl Iterator<Item = (u64, Attempt, &Report)> {
        self.outstanding.iter().map(|(&id, (attempt, report))| (id, *attempt, report))
    }

    fn launch(&mut self, attempt: Attempt, step: StepId, out: &mut Vec<Effect>) {
        let held = self.attempts.entry(attempt).or_default();
        if held.steps.contains_key(&step) {
            if step != StepId::BATCH {
                let reason = format!("step {}.{step} was launched on this node before", attempt.job);
                out.push(Effect::Refuse { attempt, step, reason });
            }
            return;
        }
        if held.terminated {
            let reason = format!("job {} is ending: no more launches", attempt.job);
            out.push(Effect::Refuse { attempt, step, reason });
            return;
        }
        if held.prolog == Prolog::NotRun && !self.site.prolog {
            held.prolog = Prolog::Passed;
        }
        match held.prolog {
            Prolog::Passed => {
                held.steps.insert(step, Run::Waiting);
                self.spawn(attempt, out);
            }
            Prolog::Failed => {
                let reason = "the prolog failed on this node".to_owned();
                out.push(Effect::Refuse { attempt, step, reason });
            }
            Prolog::Running | Prolog::NotRun => {
                held.steps.insert(step, Run::Waiting);
                if held.prolog == Prolog::NotRun {
                    held.prolog = Prolog::Running;
                    out.push(Effect::RunProlog { attempt });
                }
            }
        }
    }

    fn cannot_launch(&mut self, attempt: Attempt, message: String, out: &mut Vec<Effect>) {
        let held = self.attempts.entry(attempt).or_default();
        if held.terminated || held.steps.contains_key(&StepId::BATCH) {
            return;
        }
        held.steps.insert(StepId::BATCH, Run::Ended);
        let exit = ExitCode::exited(1);
        self.report(attempt, Report::LaunchFailed { message, node_fault: true, exit }, out);
    }

    fn prolog_done(&mut self, attempt: Attempt, error: Option<String>, out: &mut Vec<Effect>) {
        let Some(held) = self.attempts.get_mut(&attempt).filter(|held| held.prolog == Prolog::Running) else {
            return;
        };
        let Some(error) = error else {
            held.prolog = Prolog::Passed;
            self.spawn(attempt, out);
            self.finish(attempt, out);
            return;
        };
        held.prolog = Prolog::Failed;
        for step in held.waiting() {
            held.steps.insert(step, Run::Ended);
            out.push(Effect::Refuse { attempt, step, reason: error.clone() });
        }
        let exit = ExitCode::exited(1);
        self.report(attempt, Report::LaunchFailed { message: error, node_fault: true, exit }, out);
        self.finish(attempt, out);
    }

    /// Spawns the waiting steps of an attempt, unless they must continue to wait.
    fn spawn(&mut self, attempt: Attempt, out: &mut Vec<Effect>) {
        if !self.stopping.is_empty() || self.suspended.contains(&attempt) {
            return;
        }
        let Some(held) = self.attempts.get_mut(&attempt).filter(|held| held.prolog == Prolog::Passed) else {
            return;
        };
        for step in held.waiting() {
            held.steps.insert(step, Run::Running);
            out.push(Effect::Spawn { attempt, step });
        }
    }

    /// Records that a step has ended. Once no step is being stopped, waiting ones are spawned.
    fn stopped(&mut self, attempt: Attempt, step: StepId, out: &mut Vec<Effect>) {
        if self.stopping.remove(&(attempt, step)) {
            self.spawn_all(out);
        }
    }

    fn spawn_all(&mut self, out: &mut Vec<Effect>) {
        if self.stopping.is_empty() {
            let waits = self.attempts.iter().filter(|(_, held)| !held.waiting().is_empty());
            let waits: Vec<Attempt> = waits.map(|(attempt, _)| *attempt).collect();
            waits.into_iter().for_each(|attempt| self.spawn(attempt, out));
        }
    }

    fn suspend(&mut self, attempt: Attempt, stop: bool, out: &mut Vec<Effect>) {
        let held = self.attempts.get(&attempt);
        if held.is_some_and(|held| held.terminated) {
            return;
        }
        let steps: Vec<StepId> = held.into_iter().flat_map(Held::running).collect();
        out.extend(steps.iter().map(|&step| Effect::SuspendStep { attempt, step, stop }));
        if stop {
            self.suspended.insert(attempt);
            self.stopping.extend(steps.into_iter().map(|step| (attempt, step)));
        } else {
            self.suspended.remove(&attempt);
            self.stopping.retain(|(of, _)| *of != attempt);
            self.spawn_all(out);
        }
    }

    fn terminate(&mut self, attempt: Attempt, kill: bool, out: &mut Vec<Effect>) {
        self.suspended.remove(&attempt);
        let held = self.attempts.entry(attempt).or_default();
        let news = !std::mem::replace(&mut held.terminated, true);
        // An attempt that ends in this very call is stored with its epilog.
        if news && (self.site.epilog || !held.idle()) {
            out.push(Effect::Remember { attempt, record: held.record() });
        }
        for step in held.waiting() {
            held.steps.insert(step, Run::Ended);
            let reason = format!("job {} is ending: no more launches", attempt.job);
            out.push(Effect::Refuse { attempt, step, reason });
        }
        out.extend(held.running().map(|step| Effect::TerminateStep { attempt, step, kill }));
        if let Epilog::Done(error) = &held.epilog {
            // The controller asks again, so the report may be lost.
            let report = Report::NodeDone { epilog_error: error.clone() };
            if !self.outstanding.values().any(|(known, said)| *known == attempt && said.is_last()) {
                self.report(attempt, report, out);
            }
        }
        self.finish(attempt, out);
    }

    fn signal(
        &self,
        attempt: Attempt,
        meant: impl Fn(StepId) -> bool,
        signal: Signal,
        everything: bool,
        out: &mut Vec<Effect>,
    ) {
        let Some(held) = self.attempts.get(&attempt) else { return };
        for step in held.running().filter(|&step| meant(step)) {
            let tasks_only = step == StepId::BATCH && !everything;
            out.push(Effect::SignalStep { attempt, step, signal, tasks_only });
        }
    }

    fn step_ended(&mut self, attempt: Attempt, step: StepId, end: StepEnd, out: &mut Vec<Effect>) {
        let Some(held) = self.attempts.get_mut(&attempt) else { return };
        if held.steps.insert(step, Run::Ended) == Some(Run::Ended) {
            return;
        }
        let over = step == StepId::BATCH && held.alone && !held.terminated && held.idle();
        let mut report = held::report(step, end);
        match &mut report {
            // A faulty node must wait for the controller's decision about the job.
            Report::BatchEnded { done, .. } if over => {
                held.terminated = true;
                if !self.site.epilog {
                    held.epilog = Epilog::Done(None);
                    *done = true;
                }
            }
            _ => {}
        }
        self.report(attempt, report, out);
        self.finish(attempt, out);
    }

    /// Starts the epilog of a terminated attempt with nothing left; without an epilog program, ends the
    /// attempt.
    fn finish(&mut self, attempt: Attempt, out: &mut Vec<Effect>) {
        let Some(held) = self.attempts.get_mut(&attempt) else { return };
        if !(held.terminated && held.idle() && held.epilog == Epilog::NotRun) {
            return;
        }
        held.epilog = Epilog::Running;
        match self.site.epilog {
            true => out.push(Effect::RunEpilog { attempt }),
            false => self.epilog_done(attempt, None, out),
        }
    }

    fn epilog_done(&mut self, attempt: Attempt, error: Option<String>, out: &mut Vec<Effect>) {
        let Some(held) = self.attempts.get_mut(&attempt).filter(|held| held.epilog == Epilog::Running) else {
            return;
        };
        held.epilog = Epilog::Done(error.clone());
        out.push(Effect::Remember { attempt, record: held.record() });
        self.report(attempt, Report::NodeDone { epilog_error: error }, out);
    }

    fn report(&mut self, attempt: Attempt, report: Report, out: &mut Vec<Effect>) {
        self.last_report += 1;
        let id = self.last_report;
        self.outstanding.insert(id, (attempt, report.clone()));
        out.push(Effect::Report { id, attempt, report });
    }

    fn acknowledge(&mut self, reports: &[u64], out: &mut Vec<Effect>) {
        for (attempt, report) in reports.iter().filter_map(|id| self.outstanding.remove(id)) {
            let step = match report {
                Report::BatchEnded { .. } => StepId::BATCH,
                Report::StepEnded { step, .. } => step,
                Report::LaunchFailed { .. } | Report::NodeDone { .. } => continue,
            };
            out.push(Effect::StepAcknowledged { attempt, step });
        }
    }

    fn forget(&mut self, attempt: Attempt, out: &mut Vec<Effect>) {
        self.suspended.remove(&attempt);
        let Some(held) = self.attempts.get(&attempt) else { return };
        // An attempt with running steps is kept, or they would run on unseen. The next registration reports
        // it.
        if held.running().next().is_none() {
            let steps = held.steps.keys().copied().collect();
            self.attempts.remove(&attempt);
            self.stopping.retain(|(of, _)| *of != attempt);
            self.outstanding.retain(|_, (of, _)| *of != attempt);
            out.push(Effect::Forget { attempt, steps });
        }
    }
}
