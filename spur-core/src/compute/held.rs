//! The state of one attempt on the node.

use std::collections::BTreeMap;

use super::{EpilogResult, Record, Report, StepEnd};
use crate::id::StepId;
use crate::text::exit::ExitCode;

/// Progress of the prolog.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Prolog {
    #[default]
    NotRun,
    Running,
    Passed,
    Failed,
}

/// Progress of the epilog; `Done` has its error message, if it failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Epilog {
    #[default]
    NotRun,
    Running,
    Done(Option<String>),
}

/// Progress of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// The step waits for the prolog, for steps that are being stopped, or for its attempt to resume.
    Waiting,
    Running,
    Ended,
}

/// The state of an attempt on the node.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) prolog: Prolog,
    pub(super) steps: BTreeMap<StepId, Run>,
    /// True if the job has no other node.
    pub(super) alone: bool,
    pub(super) terminated: bool,
    pub(super) epilog: Epilog,
}

impl Held {
    pub(super) fn recovered(
        record: &Record,
        steps: &[(StepId, Option<StepEnd>)],
        acknowledged: &[StepId],
    ) -> Held {
        let run = |end: &Option<StepEnd>| if end.is_some() { Run::Ended } else { Run::Running };
        let known = acknowledged.iter().map(|&step| (step, Run::Ended));
        let steps: BTreeMap<StepId, Run> =
            steps.iter().map(|(step, end)| (*step, run(end))).chain(known).collect();
        // A step that was spawned proves that the prolog had passed.
        Held {
            prolog: if steps.is_empty() { Prolog::NotRun } else { Prolog::Passed },
            steps,
            alone: false,
            terminated: record.terminated,
            epilog: match &record.epilog {
                None => Epilog::NotRun,
                Some(EpilogResult::Done) => Epilog::Done(None),
                Some(EpilogResult::Failed(error)) => Epilog::Done(Some(error.clone())),
            },
        }
    }

    /// The record that is stored for the attempt.
    pub(super) fn record(&self) -> Record {
        let epilog = match &self.epilog {
            Epilog::NotRun | Epilog::Running => None,
            Epilog::Done(None) => Some(EpilogResult::Done),
            Epilog::Done(Some(error)) => Some(EpilogResult::Failed(error.clone())),
        };
        Record { terminated: self.terminated, epilog }
    }

    /// True if nothing of the attempt runs here or waits to run.
    pub(super) fn idle(&self) -> bool {
        self.steps.values().all(|run| *run == Run::Ended) && self.prolog != Prolog::Running
    }

    pub(super) fn waiting(&self) -> Vec<StepId> {
        self.that_are(Run::Waiting).collect()
    }

    pub(super) fn running(&self) -> impl Iterator<Item = StepId> {
        self.that_are(Run::Running)
    }

    fn that_are(&self, run: Run) -> impl Iterator<Item = StepId> {
        self.steps.iter().filter(move |(_, is)| **is == run).map(|(step, _)| *step)
    }
}

/// The report of a step's end.
pub(super) fn report(step: StepId, end: StepEnd) -> Report {
    let batch = step == StepId::BATCH;
    match end {
        StepEnd::Exited { end } if batch => Report::BatchEnded { end, lost: false, done: false },
        StepEnd::NotLaunched { message, node_fault, exit } if batch => {
            Report::LaunchFailed { message, node_fault, exit }
        }
        StepEnd::Lost if batch => {
            Report::BatchEnded { end: ExitCode::SUCCESS.into(), lost: true, done: false }
        }
        StepEnd::Exited { end } => Report::StepEnded { step, end },
        StepEnd::NotLaunched { exit, .. } => Report::StepEnded { step, end: exit.into() },
        StepEnd::Lost => Report::StepEnded { step, end: ExitCode::signaled(9).into() },
    }
}
