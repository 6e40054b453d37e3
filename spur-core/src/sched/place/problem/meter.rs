//! The number of steps that are left for one question.

use std::cell::Cell;
use std::rc::Rc;

use crate::sched::place::ask::Ask;
use crate::sched::place::budget::SharedBudget;
use crate::sched::place::slots::View;

/// The steps that are left for one question, shared by everything that works on it. One step is a way to use
/// a part of the fabric that is made or examined, or other work of one or two hundred nanoseconds.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    left: Rc<Cell<u64>>,
    /// Number of steps at the start, which [`Meter::anew`] grants again.
    all: u64,
    /// The budget that this question shares with others.
    shared: Option<SharedBudget>,
}

impl Meter {
    /// A meter for one question: the steps of its ask, within the budget that the view shares with other
    /// questions.
    pub(crate) fn of(view: &View<'_>, ask: &Ask) -> Self {
        Self::new(ask.budget, view.budget.cloned())
    }

    fn new(steps: u64, shared: Option<SharedBudget>) -> Self {
        Self { left: Rc::new(Cell::new(steps)), all: steps, shared }
    }

    /// A meter for `steps` steps that shares no budget.
    #[cfg(test)]
    pub(crate) fn alone(steps: u64) -> Self {
        Self::new(steps, None)
    }

    /// A meter with the initial number of steps, counted apart from this one.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.all, self.shared.clone())
    }

    /// Runs `work` with the initial number of steps, then takes the steps that it has used from this meter.
    pub(crate) fn apart<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        let own = self.anew();
        let done = work(&own);
        self.left.set(self.left.get().saturating_sub(self.all - own.left.get()));
        done
    }

    /// Takes steps. Returns false if the meter or the shared budget is then used up.
    pub(crate) fn take(&self, steps: usize) -> bool {
        self.charge(steps);
        let left = self.left.get().checked_sub(steps as u64);
        self.left.set(left.unwrap_or(0));
        left.is_some_and(|left| left > 0) && !self.has_none_to_share()
    }

    /// Takes steps of the shared budget only, for work that every question does before its search begins.
    pub(crate) fn charge(&self, steps: usize) {
        if let Some(shared) = &self.shared {
            shared.take(steps as u64);
        }
    }

    fn has_none_to_share(&self) -> bool {
        self.shared.as_ref().is_some_and(SharedBudget::is_spent)
    }

    /// Takes all steps that are left.
    pub(crate) fn use_up(&self) {
        self.left.set(0);
    }

    /// True if no steps are left, so that the search must stop.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0 || self.has_none_to_share()
    }
}
