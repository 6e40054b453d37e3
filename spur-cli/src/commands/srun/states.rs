//! States of the tasks of a step, and messages about them.

use std::collections::BTreeMap;

use spur_core::model::idset::IdSet;
use spur_core::text::exit::ExitCode;
use spur_proto::convert::step::ranks;
use spur_proto::v1::CreateStepResponse;

use crate::session::Session;

/// State of a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum State {
    Starting,
    FailedToStart,
    Running,
    Exited,
    ExitedAbnormally,
}

impl State {
    fn words(self) -> &'static str {
        match self {
            State::Starting => "unknown",
            State::FailedToStart => "failed to start",
            State::Running => "running",
            State::Exited => "exited",
            State::ExitedAbnormally => "exited abnormally",
        }
    }
}

/// States of the tasks of a step.
#[derive(Debug)]
pub(super) struct States {
    /// Rank of the first task.
    first: u32,
    all: Vec<State>,
}

impl States {
    pub(super) fn new(first: u32, tasks: u32) -> States {
        States { first, all: vec![State::Starting; tasks as usize] }
    }

    fn of(&mut self, task: u32) -> Option<&mut State> {
        self.all.get_mut(task.checked_sub(self.first)? as usize)
    }

    /// Sets the state of a task.
    pub(super) fn set(&mut self, task: u32, state: State) {
        if let Some(known) = self.of(task) {
            *known = state;
        }
    }

    /// Sets the state of those tasks of a node that are still starting.
    pub(super) fn set_new(&mut self, tasks: &IdSet, state: State) {
        for task in tasks.iter() {
            if let Some(known) = self.of(task).filter(|known| **known == State::Starting) {
                *known = state;
            }
        }
    }

    /// Returns one line per state that tasks have.
    pub(super) fn lines(&self, step: &str) -> Vec<String> {
        let mut by_state: BTreeMap<State, Vec<u32>> = BTreeMap::new();
        for (task, state) in (self.first..).zip(&self.all) {
            by_state.entry(*state).or_default().push(task);
        }
        let line = |(state, tasks): (State, Vec<u32>)| {
            let word = if tasks.len() == 1 { "task" } else { "tasks" };
            format!("{step} {word} {}: {}", tasks.into_iter().collect::<IdSet>(), state.words())
        };
        by_state.into_iter().map(line).collect()
    }
}

/// Returns the result that counts for the step: a signal counts more than any code, and a higher number more
/// than a lower one.
pub(super) fn worse(one: ExitCode, other: ExitCode) -> ExitCode {
    if (other.signal, other.code) > (one.signal, one.code) { other } else { one }
}

/// Prints the nodes and tasks of a step before its launch, for `-v`.
pub(super) fn tell_launch(session: &mut Session, job: u32, step: &CreateStepResponse) {
    for node in &step.nodes {
        let tasks = ranks(node);
        let (name, count) = (&node.name, node.tasks);
        session.inform(&format!(
            "launching StepId={job}.{} on host {name}, {count} tasks: {tasks}",
            step.step_id
        ));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_told_of_by_their_states() {
        let mut states = States::new(0, 4);
        states.set(3, State::ExitedAbnormally);
        states.set_new(&IdSet::from_iter(0..4), State::Running);
        assert_eq!(
            states.lines("StepId=4.0"),
            ["StepId=4.0 tasks 0-2: running", "StepId=4.0 task 3: exited abnormally"]
        );
    }

    #[test]
    fn a_signal_is_worse_than_any_code() {
        let (code, kill, int) = (ExitCode::exited(200), ExitCode::signaled(9), ExitCode::signaled(2));
        assert_eq!(worse(code, kill), kill);
        assert_eq!(worse(kill, code), kill);
        assert_eq!(worse(int, kill), kill);
        assert_eq!(worse(ExitCode::exited(1), code), code);
    }
}
