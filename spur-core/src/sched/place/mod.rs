//! Chooses nodes: decides which positions of a fabric a job gets, and explains the choice.
//!
//! Owns the order of preference that `docs/topology.md` promises. The same fabric, view and ask always give
//! the same placement. A request that can be met is never refused where the answer is marked exact. Nothing
//! here knows jobs, partitions, time or reservations. Backfill, preemption, `spur plan` and the refusal at
//! submission all ask this one question, each with its own [`View`].
//!
//! A question passes these modules: `ask` holds the request, `slots` what nodes can take, and `problem`
//! joins the two for one number of nodes. `dispatch` picks the solver: `special` where counts decide,
//! `pareto` in general, `flat` for jobs that ignore the fabric. `leftover` then exchanges nodes with
//! equally many slots. `answer` has the answers as values, `explain` puts them into words, and `losers`
//! says why other domains lost. `oracle` checks all of it by brute force.

mod answer;
mod ask;
mod budget;
mod dispatch;
mod explain;
mod flat;
mod leftover;
mod losers;
mod pareto;
mod problem;
mod slots;
mod special;

#[cfg(test)]
mod oracle;

pub use answer::{Lost, LostWhy, Misfit, MisfitKind, Missed, Placement, Unit};
pub(crate) use ask::layer_named;
pub use ask::{
    Ask, AskError, BlockRule, Frame, LeafLoad, Mode, NoMultiple, Resolved, Score, Segment, Strategy, Wish,
    resolve, strategy, wished_features,
};
pub use budget::SharedBudget;
pub use dispatch::place;
pub use explain::{BY_TOPOLOGY, Nearest, Never, could_hold, hold_fewer, place_or_say, refusal};
pub use leftover::least_left;
pub use losers::rivals;
pub(crate) use problem::{gcd, halve};
pub(crate) use slots::open;
pub use slots::{Slots, View, Weights};
