//! The pure half of spurd: what a node does about orders, and what it reports.
//!
//! [`Compute`] is told what happens ([`Input`]) and says what to do ([`Effect`]); its shell has the disk, the network
//! and the processes. It promises: a step is spawned at most once; nothing is spawned for an attempt that was
//! terminated; the prolog is over before the first step is spawned, the epilog starts after the last has ended; every
//! end is reported until the report is acknowledged; that nothing is left is the last that is reported of an attempt.
//! Nothing is spawned while anything that was told to stop has not stopped, nor for an attempt that is to be stopped:
//! the CPUs of what is suspended are others' as soon as the controller says so, and orders come one after another.
//! Carrying out an order twice is the same as once.
//!
//! A job that has this node alone is over here with its batch script, unless a step still runs: the node need not be
//! told so, and what follows (epilog, `NodeDone`) begins at once.

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

/// What a node is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// The controller orders the batch script of an attempt to be run.
    Launch {
        /// Which attempt.
        attempt: Attempt,
        /// The job has no other node.
        alone: bool,
    },
    /// The batch script of an attempt cannot be run here, whoever orders it.
    CannotLaunch {
        /// Of which attempt.
        attempt: Attempt,
        /// Why, for people.
        message: String,
    },
    /// A client, with the controller's credential, launches a step here.
    LaunchStep {
        /// Which attempt.
        attempt: Attempt,
        /// Which step.
        step: StepId,
    },
    /// The controller orders everything of an attempt to end: no new launches, TERM or KILL to what is left.
    Terminate {
        /// Which attempt.
        attempt: Attempt,
        /// With KILL.
        kill: bool,
    },
    /// The controller orders everything of an attempt to stop, or to go on.
    Suspend {
        /// Which attempt.
        attempt: Attempt,
        /// Whether to stop it.
        stop: bool,
    },
    /// The controller orders a signal to be sent.
    Signal {
        /// To which attempt.
        attempt: Attempt,
        /// To this step only.
        step: Option<StepId>,
        /// What.
        signal: Signal,
        /// To the batch script.
        batch: bool,
        /// To the steps.
        steps: bool,
    },
    /// These reports are durable.
    Acknowledge {
        /// Their numbers.
        reports: Vec<u64>,
    },
    /// The controller will not speak of the attempt again.
    Forget {
        /// Which.
        attempt: Attempt,
    },
    /// The prolog of an attempt is over.
    PrologDone {
        /// Which attempt's.
        attempt: Attempt,
        /// What was wrong, if it failed.
        error: Option<String>,
    },
    /// The epilog of an attempt is over.
    EpilogDone {
        /// Which attempt's.
        attempt: Attempt,
        /// What was wrong, if it failed.
        error: Option<String>,
    },
    /// A step that was told to stop has stopped.
    StepStopped {
        /// Of which attempt.
        attempt: Attempt,
        /// Which.
        step: StepId,
    },
    /// A step is over.
    StepEnded {
        /// Of which attempt.
        attempt: Attempt,
        /// Which.
        step: StepId,
        /// How.
        end: StepEnd,
    },
}

/// How a step ended on this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEnd {
    /// Its tasks ran.
    Exited {
        /// How.
        end: StepNodeEnd,
    },
    /// Its tasks could not be started.
    NotLaunched {
        /// Why, for people.
        message: String,
        /// The node is at fault, not the job.
        node_fault: bool,
        /// What its exit code is taken for.
        exit: ExitCode,
    },
    /// There is no record of its end.
    Lost,
}

impl StepEnd {
    /// What the step's end counts as; the end that nobody knows counts as success, as in the reports of a batch script.
    #[must_use]
    pub fn exit(&self) -> ExitCode {
        match self {
            Self::Exited { end } => end.exit,
            Self::NotLaunched { exit, .. } => *exit,
            Self::Lost => ExitCode::SUCCESS,
        }
    }
}

/// What the shell must do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Keep this of an attempt, so that a returning spurd knows it; before anything that follows.
    Remember {
        /// Which attempt.
        attempt: Attempt,
        /// What.
        record: Record,
    },
    /// Run the prolog; answer with [`Input::PrologDone`].
    RunProlog {
        /// Which attempt's.
        attempt: Attempt,
    },
    /// Run the epilog; answer with [`Input::EpilogDone`].
    RunEpilog {
        /// Which attempt's.
        attempt: Attempt,
    },
    /// Start a step; answer with [`Input::StepEnded`], whatever becomes of it.
    Spawn {
        /// Of which attempt.
        attempt: Attempt,
        /// Which.
        step: StepId,
    },
    /// Tell the client that its step is not launched.
    Refuse {
        /// Of which attempt.
        attempt: Attempt,
        /// Which step.
        step: StepId,
        /// Why.
        reason: String,
    },
    /// End a running step.
    TerminateStep {
        /// Of which attempt.
        attempt: Attempt,
        /// Which.
        step: StepId,
        /// With KILL; otherwise with TERM.
        kill: bool,
    },
    /// Stop every process of a running step, those too that it is about to start, and answer with
    /// [`Input::StepStopped`]; or let them go on.
    SuspendStep {
        /// Of which attempt.
        attempt: Attempt,
        /// Which step.
        step: StepId,
        /// Whether to stop it.
        stop: bool,
    },
    /// Send a signal to a running step.
    SignalStep {
        /// Of which attempt.
        attempt: Attempt,
        /// Which step.
        step: StepId,
        /// What.
        signal: Signal,
        /// To what was started as a task only, not to its children.
        tasks_only: bool,
    },
    /// Tell the controller, now and after every reconnection, until it acknowledges.
    Report {
        /// The report's number.
        id: u64,
        /// Of which attempt.
        attempt: Attempt,
        /// What.
        report: Report,
    },
    /// The end of a step is acknowledged: its records may go, not the proof that it was launched.
    StepAcknowledged {
        /// Of which attempt.
        attempt: Attempt,
        /// Which.
        step: StepId,
    },
    /// Every record of an attempt may go.
    Forget {
        /// Which.
        attempt: Attempt,
        /// The steps of it that were launched here.
        steps: Vec<StepId>,
    },
}

/// What is kept of an attempt beside its steps. That its prolog has passed follows from a step of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct Record {
    /// No more launches.
    pub terminated: bool,
    /// The epilog is over; what was wrong with it, if anything.
    pub epilog: Option<EpilogResult>,
}

/// How an epilog ended.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EpilogResult {
    /// Well.
    Done,
    /// With this complaint.
    Failed(String),
}

/// What a returning spurd found of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// Which.
    pub attempt: Attempt,
    /// What was kept of it.
    pub record: Record,
    /// Its steps: how they ended, or `None` if they live.
    pub steps: Vec<(StepId, Option<StepEnd>)>,
    /// Its steps whose end was acknowledged.
    pub acknowledged: Vec<StepId>,
}

/// An attempt that the node has records of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldAttempt {
    /// Which.
    pub attempt: Attempt,
    /// Everything of it is over here.
    pub done: bool,
}

/// Which programs of the site's are run around a job on this node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Site {
    /// One before the first step.
    pub prolog: bool,
    /// One after the last.
    pub epilog: bool,
}

/// Everything the node knows of the attempts it was given.
#[derive(Clone, Debug, Default)]
pub struct Compute {
    site: Site,
    attempts: BTreeMap<Attempt, Held>,
    /// Attempts that are stopped, whether or not anything of them is here. A returning node is told of them again.
    suspended: BTreeSet<Attempt>,
    /// Steps that were told to stop and have not said that they have.
    stopping: BTreeSet<(Attempt, StepId)>,
    outstanding: BTreeMap<u64, (Attempt, Report)>,
    last_report: u64,
}

impl Compute {
    /// A node that knows what its predecessor left, and what is to be done about that.
    ///
    /// An attempt of which no step was spawned and whose end nobody ordered is one that was never given: the order for
    /// it comes again.
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

    /// Other programs of the site's are run from now on.
    pub fn set_site(&mut self, site: Site) {
        self.site = site;
    }

    /// Takes note of something and says what to do about it.
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

    /// Whether a step was launched here, or is about to be.
    #[must_use]
    pub fn knows(&self, attempt: Attempt, step: StepId) -> bool {
        self.attempts.get(&attempt).is_some_and(|held| held.steps.contains_key(&step))
    }

    /// The attempts there are records of, for the registration.
    pub fn held(&self) -> impl Iterator<Item = HeldAttempt> {
        self.attempts
            .iter()
            .map(|(&attempt, held)| HeldAttempt { attempt, done: matches!(held.epilog, Epilog::Done(_)) })
    }

    /// The reports that nobody has acknowledged, oldest first.
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

    /// Spawns what waits of an attempt, unless something keeps it waiting still.
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

    /// A step does not run any more; once that is so of all that were told to stop, others may.
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
        // What is over in this moment is kept as such.
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
            // Asked again: the report was lost with whoever had it.
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
            // A node that is at fault is to be told what becomes of the job.
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

    /// Starts the epilog once there is nothing else left of a terminated attempt; without one the attempt is over.
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
        // What lives is not forgotten: it would run on unseen. The next registration tells of it.
        if held.running().next().is_none() {
            let steps = held.steps.keys().copied().collect();
            self.attempts.remove(&attempt);
            self.stopping.retain(|(of, _)| *of != attempt);
            self.outstanding.retain(|_, (of, _)| *of != attempt);
            out.push(Effect::Forget { attempt, steps });
        }
    }
}
