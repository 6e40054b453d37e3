//! One attempt on this node.

use std::collections::BTreeMap;

use super::{EpilogResult, Record, Report, StepEnd};
use crate::id::StepId;
use crate::text::exit::ExitCode;

/// How far the prolog is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Prolog {
    #[default]
    NotRun,
    Running,
    Passed,
    Failed,
}

/// How far the epilog is; done with what it complained of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Epilog {
    #[default]
    NotRun,
    Running,
    Done(Option<String>),
}

/// How far a step is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// For the prolog, or until what was told to stop has stopped, or until its attempt goes on.
    Waiting,
    Running,
    Ended,
}

/// What the node knows of an attempt.
#[derive(Clone, Debug, Default)]
pub(super) struct Held {
    pub(super) prolog: Prolog,
    pub(super) steps: BTreeMap<StepId, Run>,
    /// The job has no other node.
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

    /// What is to be kept.
    pub(super) fn record(&self) -> Record {
        let epilog = match &self.epilog {
            Epilog::NotRun | Epilog::Running => None,
            Epilog::Done(None) => Some(EpilogResult::Done),
            Epilog::Done(Some(error)) => Some(EpilogResult::Failed(error.clone())),
        };
        Record { terminated: self.terminated, epilog }
    }

    /// Nothing of it runs here, or waits to.
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

/// How the end of a step reads to the controller.
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
