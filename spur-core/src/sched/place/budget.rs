//! A number of steps that several placements share, so that one answer takes a bounded number of steps.

use std::cell::Cell;
use std::rc::Rc;

/// Steps that several questions share, counted besides the steps that each question may take itself. Clones
/// share the count.
#[derive(Debug, Clone)]
pub struct SharedBudget {
    steps: u64,
    taken: Rc<Cell<u64>>,
    whole: Option<Rc<SharedBudget>>,
}

impl SharedBudget {
    /// Returns a budget of `steps` steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self { steps, taken: Rc::default(), whole: None }
    }

    /// Returns a budget of `steps` steps, each of which also counts against this budget.
    #[must_use]
    pub fn part(&self, steps: u64) -> Self {
        Self { whole: Some(Rc::new(self.clone())), ..Self::new(steps) }
    }

    /// Sets the steps taken of this budget to 0. Steps taken of the budget that this one is a part of stay
    /// counted.
    pub fn renew(&self) {
        self.taken.set(0);
    }

    /// Counts `steps` as taken, even if fewer are left: work that has begun is counted.
    pub fn take(&self, steps: u64) {
        self.taken.set(self.taken.get().saturating_add(steps));
        if let Some(whole) = &self.whole {
            whole.take(steps);
        }
    }

    /// Number of steps taken. The number may exceed the budget, because work that has begun is counted as a
    /// whole.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// True if no step is left, here or in the whole: a search that needs more steps stops and is marked as
    /// cut.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.taken() >= self.steps || self.whole.as_ref().is_some_and(|whole| whole.is_spent())
    }
}
