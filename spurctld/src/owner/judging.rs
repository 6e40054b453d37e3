//! Requests that the owner cannot judge in a moment: whether the cluster can ever hold what they ask for, and the nearest
//! request that works, are searched for on threads of their own.
//!
//! Each user has one such search at a time, so the owner and other users wait for none of them. The request then comes back
//! to the owner with the verdicts.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use spur_core::controller::{Command, Input};
use spur_core::sched::feasible::{Question, Verdict};

use crate::inbox::Ask;

/// Verdicts that rest on an older configuration count once a request has been searched for so often.
const ROUNDS: u32 = 3;

/// A request with the questions that its answer depends on.
pub(super) struct Undecided {
    pub(super) ask: Ask,
    questions: Vec<Question>,
}

/// Users who have a request under search, each with those that wait behind it.
#[derive(Default)]
pub(super) struct Judging {
    users: BTreeMap<u32, VecDeque<Undecided>>,
}

/// What the searches of one request have found so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// The latest verdicts first.
    pub(crate) verdicts: Vec<Verdict>,
    rounds: u32,
}

impl Judging {
    /// Takes a request; returns it if its search can begin.
    pub(super) fn put(&mut self, undecided: Undecided) -> Option<Undecided> {
        let uid = user(&undecided.ask);
        match self.users.get_mut(&uid) {
            Some(waiting) => {
                waiting.push_back(undecided);
                None
            }
            None => {
                self.users.insert(uid, VecDeque::new());
                Some(undecided)
            }
        }
    }

    /// Ends the search for a request; returns the next one of its user whose client still waits.
    pub(super) fn end(&mut self, ask: &Ask) -> Option<Undecided> {
        let uid = user(ask);
        let waiting = self.users.get_mut(&uid)?;
        waiting.retain(|undecided| !undecided.ask.is_given_up());
        let next = waiting.pop_front();
        if next.is_none() {
            self.users.remove(&uid);
        }
        next
    }
}

impl Undecided {
    pub(super) fn new(ask: Ask, questions: Vec<Question>) -> Self {
        Self { ask, questions }
    }

    /// Searches for the answers. `None` after a panic, which the log has.
    pub(super) fn search(self) -> (Ask, Option<Vec<Verdict>>) {
        let Self { ask, questions } = self;
        let answers = || questions.into_iter().map(Question::answer).collect();
        (ask, catch_unwind(AssertUnwindSafe(answers)).ok())
    }
}

impl Judged {
    /// Adds what one search has found.
    pub(super) fn add(&mut self, verdicts: Vec<Verdict>) {
        self.verdicts.splice(0..0, verdicts);
        self.rounds += 1;
    }

    /// Whether nothing was searched for yet.
    pub(super) fn is_first(&self) -> bool {
        self.rounds == 0
    }

    /// Whether verdicts count although the configuration has changed since.
    pub(super) fn keeps_old(&self) -> bool {
        self.rounds >= ROUNDS
    }
}

/// Whether an input asks whether the cluster can ever hold something.
pub(super) fn may_be_undecided(input: &Input) -> bool {
    matches!(input, Input::Command { command: Command::Submit(_) | Command::UpdateJob { .. }, .. })
}

fn user(ask: &Ask) -> u32 {
    match &ask.input {
        Input::Command { caller, .. } => caller.owner.uid,
        _ => 0,
    }
}
