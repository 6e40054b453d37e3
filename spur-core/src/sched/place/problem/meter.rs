//! How much may still be done for one question.

use std::cell::Cell;
use std::rc::Rc;

/// Steps that are left to everything that works on one question. A step is a way to use a part of the fabric that is made
/// or looked at, or work that takes about as long: a hundred nanoseconds or two.
#[derive(Debug, Clone)]
pub(crate) struct Meter {
    left: Rc<Cell<u64>>,
    /// What there was, and is again where something is begun anew.
    all: u64,
}

impl Meter {
    /// A meter for so many steps.
    pub(crate) fn new(steps: u64) -> Self {
        Self { left: Rc::new(Cell::new(steps)), all: steps }
    }

    /// The same number of steps once more, counted apart.
    pub(crate) fn anew(&self) -> Self {
        Self::new(self.all)
    }

    /// Has something worked on with as many steps as there were at first, and takes what it used.
    pub(crate) fn apart<T>(&self, work: impl FnOnce(&Self) -> T) -> T {
        let own = self.anew();
        let done = work(&own);
        self.left.set(self.left.get().saturating_sub(self.all - own.left.get()));
        done
    }

    /// Takes steps; whether there were as many. Where there were not, none are left.
    pub(crate) fn take(&self, steps: usize) -> bool {
        let left = self.left.get().checked_sub(steps as u64);
        self.left.set(left.unwrap_or(0));
        left.is_some_and(|left| left > 0)
    }

    /// Takes all that is left.
    pub(crate) fn use_up(&self) {
        self.left.set(0);
    }

    /// Whether no steps are left: what is worked on has to be dropped.
    pub(crate) fn is_spent(&self) -> bool {
        self.left.get() == 0
    }
}
