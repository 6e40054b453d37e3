//! Choosing nodes: which positions of a fabric a job gets, and why.
//!
//! Owns the order of preference that `docs/topology.md` promises. Promises: the same fabric, view and ask always give
//! the same placement; a request that can be met is never refused where the answer is marked exact; nothing here
//! knows jobs, partitions, time or reservations. Backfill, preemption, `spur plan` and the refusal at submission all
//! ask this one question, each with its own [`View`].
//!
//! The way of a question through the rooms: `ask` is what is wanted, `slots` what there is; `problem` puts the two together
//! for one number of nodes; `dispatch` says who answers it: `special` at once what counts decide, `pareto` everything else,
//! `flat` jobs to which the fabric is nothing. `leftover` exchanges nodes with equally many slots. `answer` has the answers, `explain` their words, `losers` why other domains
//! lost. `oracle` holds all of it to brute force.

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
pub use explain::{Nearest, Never, could_hold, hold_fewer, place_or_say, refusal};
pub use leftover::least_left;
pub use losers::rivals;
pub(crate) use problem::{gcd, halve};
pub(crate) use slots::open;
pub use slots::{Slots, View, Weights};
