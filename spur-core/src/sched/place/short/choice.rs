//! What a short cut comes to.

use crate::sched::place::answer::Placement;

/// What a short cut comes to.
pub(crate) enum Short {
    /// It is another case.
    Other,
    /// No domain holds the job.
    Nowhere,
    /// The best placement.
    Placed(Placement),
}

/// Why a short cut knows no best choice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoChoice {
    /// There is none.
    Nowhere,
    /// It takes too long to find, or more has to be known for it.
    Unknown,
}
