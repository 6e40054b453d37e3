//! What a special solver comes to.

use crate::sched::place::answer::Placement;

/// What a special solver comes to.
pub(crate) enum Outcome {
    /// It is another case.
    Other,
    /// No domain holds the job.
    Nowhere,
    /// The best placement.
    Placed(Placement),
}

/// Why a special solver knows no best choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// There is none.
    Nowhere,
    /// It takes too long to find, or more has to be known for it.
    Unknown,
}
