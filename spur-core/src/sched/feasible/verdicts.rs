//! Decides whether requests can ever run, for a thread that others wait for.
//!
//! That thread searches for a limited number of steps. A request that needs more becomes a [`Question`],
//! which owns all its input. Another thread answers it, and the command is judged again with the [`Verdict`].

use std::cell::RefCell;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::model::job::JobSpec;
use crate::sched::inventory::Inventory;
use crate::sched::place::SharedBudget;

use super::{Refusal, components, judge};

/// Warnings for the user of a request that can run; otherwise the refusal.
pub type Answer = Result<Vec<String>, Refusal>;

/// Number of steps that all searches of one command may take in the owner's thread, where other requests
/// wait.
pub const BRIEF: u64 = 8_000;

/// A question about one request, or about all components of a het job together.
#[derive(Clone, Debug)]
pub struct Question {
    inventory: Arc<Inventory>,
    specs: Vec<Arc<JobSpec>>,
    together: bool,
}

/// A question with its answer.
#[derive(Clone, Debug)]
pub struct Verdict {
    of: Question,
    answer: Answer,
}

/// Judges the requests of one command.
#[derive(Debug)]
pub struct Feasibility {
    /// The steps that are left for the command; `None` if every search may run to its end.
    brief: Option<SharedBudget>,
    known: Vec<Verdict>,
    /// True if verdicts count even if the configuration or time limits have changed since.
    keeps_old: bool,
    refused: RefCell<Vec<Verdict>>,
    open: RefCell<Vec<Question>>,
}

impl Feasibility {
    /// A judge that answers every question, however long that takes.
    #[must_use]
    pub fn in_full() -> Self {
        Self { brief: None, ..Self::brief(Vec::new(), false) }
    }

    /// A judge that answers what takes few steps, and what is in `known`. Known verdicts count if
    /// configuration, reservations and time limits are unchanged; with `keeps_old` always.
    #[must_use]
    pub fn brief(known: Vec<Verdict>, keeps_old: bool) -> Self {
        let brief = Some(SharedBudget::new(BRIEF));
        Self { brief, known, keeps_old, refused: RefCell::default(), open: RefCell::default() }
    }

    /// Judges a request with its defaults filled in; `None` if that takes too long here.
    pub fn check(&self, cluster: &Cluster, spec: &JobSpec) -> Option<Answer> {
        let inventory = cluster.standing(Inventory::new);
        self.decide(&inventory, &[spec], false, |budget| judge(&inventory, spec, budget))
    }

    /// Judges whether the components of a het job could ever run together; `None` if that takes too long
    /// here.
    pub fn check_together(&self, cluster: &Cluster, specs: &[Arc<JobSpec>]) -> Option<Answer> {
        let inventory = cluster.standing(Inventory::new);
        let all: Vec<&JobSpec> = specs.iter().map(|spec| &**spec).collect();
        self.decide(&inventory, &all, true, |budget| components::judge(&inventory, specs, budget))
    }

    fn decide(
        &self,
        inventory: &Arc<Inventory>,
        specs: &[&JobSpec],
        together: bool,
        judge: impl FnOnce(Option<&SharedBudget>) -> Answer,
    ) -> Option<Answer> {
        let Some(brief) = &self.brief else { return Some(judge(None)) };
        let is_known = |verdict: &&Verdict| {
            let Question { inventory: basis, .. } = &verdict.of;
            verdict.of.is_about(specs, together)
                && (basis.is_configured_like(inventory) && verdict.of.has_times_of(specs) || self.keeps_old)
        };
        if let Some(known) = self.known.iter().chain(&*self.refused.borrow()).find(is_known) {
            return Some(known.answer.clone());
        }
        let question = || Question {
            inventory: Arc::clone(inventory),
            specs: specs.iter().map(|spec| Arc::new(JobSpec::clone(spec))).collect(),
            together,
        };
        let answer = (!brief.is_spent()).then(|| judge(Some(brief))).filter(|_| !brief.is_spent());
        match &answer {
            // The tasks of an array are judged one after another.
            Some(Err(_)) => {
                let answer = answer.clone()?;
                self.refused.borrow_mut().push(Verdict { of: question(), answer });
            }
            Some(Ok(_)) => {}
            None => {
                let mut open = self.open.borrow_mut();
                let is_same = |other: &Question| other.is_about(specs, together) && other.has_times_of(specs);
                if !open.iter().any(is_same) {
                    open.push(question());
                }
            }
        }
        answer
    }

    /// True if some question is open.
    pub fn is_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// Number of steps taken; 0 if steps are not counted.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.brief.as_ref().map_or(0, SharedBudget::taken)
    }

    /// The questions that took too long.
    #[must_use]
    pub fn into_open(self) -> Vec<Question> {
        self.open.into_inner()
    }
}

impl Question {
    /// Searches for the answer within one budget.
    #[must_use]
    pub fn answer(self) -> Verdict {
        let answer = match &*self.specs {
            specs if self.together => components::judge(&self.inventory, specs, None),
            [spec, ..] => judge(&self.inventory, spec, None),
            [] => Ok(Vec::new()),
        };
        Verdict { of: self, answer }
    }

    fn is_about(&self, specs: &[&JobSpec], together: bool) -> bool {
        self.together == together
            && self.specs.len() == specs.len()
            && self.specs.iter().zip(specs).all(|(one, other)| are_alike(one, other))
    }

    /// True if the requests have the same times. A limit that follows from a deadline shrinks with the time
    /// of the judgement.
    fn has_times_of(&self, specs: &[&JobSpec]) -> bool {
        let times = |spec: &JobSpec| (spec.time_limit, spec.time_min, spec.begin, spec.deadline);
        self.specs.iter().zip(specs).all(|(one, other)| times(one) == times(other))
    }
}

/// True if two requests are equal, apart from their times, in everything that decides whether they can run.
/// Names and scripts do not.
fn are_alike(one: &JobSpec, other: &JobSpec) -> bool {
    one.partitions == other.partitions
        && one.shape == other.shape
        && one.fabric == other.fabric
        && one.extra == other.extra
        && (&one.qos, &one.account) == (&other.qos, &other.account)
}
