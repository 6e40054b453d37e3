//! Steps that several placements share: one bound for all that one answer takes.

use std::cell::Cell;
use std::rc::Rc;

/// Steps that many questions share, counted besides the steps that each question may take. Clones share the count.
#[derive(Debug, Clone)]
pub struct SharedBudget {
    steps: u64,
    taken: Rc<Cell<u64>>,
    whole: Option<Rc<SharedBudget>>,
}

impl SharedBudget {
    /// A budget of so many steps.
    #[must_use]
    pub fn new(steps: u64) -> Self {
        Self { steps, taken: Rc::default(), whole: None }
    }

    /// A budget of so many steps that are taken of this one, too.
    #[must_use]
    pub fn part(&self, steps: u64) -> Self {
        Self { whole: Some(Rc::new(self.clone())), ..Self::new(steps) }
    }

    /// Begins anew with a part; what was taken of the whole stays taken.
    pub fn renew(&self) {
        self.taken.set(0);
    }

    /// Takes steps, more than are left too: what is begun is counted.
    pub fn take(&self, steps: u64) {
        self.taken.set(self.taken.get().saturating_add(steps));
        if let Some(whole) = &self.whole {
            whole.take(steps);
        }
    }

    /// Steps that were taken. They exceed the budget by what was under way when it was spent.
    #[must_use]
    pub fn taken(&self) -> u64 {
        self.taken.get()
    }

    /// Whether no step is left: a search that needs more says that it was cut.
    #[must_use]
    pub fn is_spent(&self) -> bool {
        self.taken() >= self.steps || self.whole.as_ref().is_some_and(|whole| whole.is_spent())
    }
}
