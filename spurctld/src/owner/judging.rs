//! Requests that take too long for the owner's thread. Separate threads determine if the cluster can ever
//! hold a job, and search for the nearest request that works.
//!
//! Each user has one such search at a time, so that neither the owner nor other users wait. The request then
//! returns to the owner with its verdicts.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};

use spur_core::controller::{Command, Input};
use spur_core::sched::feasible::{Question, Verdict};

use crate::inbox::Ask;

/// Number of searches of a request after which verdicts count although the configuration has changed since.
const ROUNDS: u32 = 3;

/// A request with the questions on which its answer depends.
pub(super) struct Undecided {
    pub(super) ask: Ask,
    questions: Vec<Question>,
}

/// Users with a search under way, each with the requests that wait behind it.
#[derive(Default)]
pub(super) struct Judging {
    users: BTreeMap<u32, VecDeque<Undecided>>,
}

/// The results of the searches for one request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judged {
    /// The verdicts, latest first.
    pub(crate) verdicts: Vec<Verdict>,
    rounds: u32,
}

impl Judging {
    /// Queues a request; returns it if its search can begin.
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

    /// Ends the search for a request; returns the user's next request whose client still waits; `None` if
    /// there is none.
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

    /// Searches for the verdicts. `None` after a panic, which the log shows.
    pub(super) fn search(self) -> (Ask, Option<Vec<Verdict>>) {
        let Self { ask, questions } = self;
        let answers = || questions.into_iter().map(Question::answer).collect();
        (ask, catch_unwind(AssertUnwindSafe(answers)).ok())
    }
}

impl Judged {
    /// Adds the results of one search.
    pub(super) fn add(&mut self, verdicts: Vec<Verdict>) {
        self.verdicts.splice(0..0, verdicts);
        self.rounds += 1;
    }

    /// True if no search was made yet.
    pub(super) fn is_first(&self) -> bool {
        self.rounds == 0
    }

    /// True if verdicts count although the configuration has changed since.
    pub(super) fn keeps_old(&self) -> bool {
        self.rounds >= ROUNDS
    }
}

/// True if the input asks whether the cluster can ever hold a job.
pub(super) fn may_be_undecided(input: &Input) -> bool {
    matches!(input, Input::Command { command: Command::Submit(_) | Command::UpdateJob { .. }, .. })
}

fn user(ask: &Ask) -> u32 {
    match &ask.input {
        Input::Command { caller, .. } => caller.owner.uid,
        _ => 0,
    }
}
