//! Choosing nodes: which positions of a fabric a job gets, and why.
//!
//! Owns the order of preference that `docs/topology.md` promises. Promises: the same fabric, view and ask always give
//! the same placement; a request that can be met is never refused where the answer is marked exact; nothing here
//! knows jobs, partitions, time or reservations. Backfill, preemption, `spur plan` and the refusal at submission all
//! ask this one question, each with its own [`View`].

mod ask;
mod block;
mod explain;
mod slots;

pub use ask::{Ask, LinkNeed, Mode, Score, Segment, Strategy};
pub use block::{BlockRule, Containment};
pub use explain::{Lost, LostWhy, Misfit, MisfitKind, Placement, Unit};
pub use slots::{Slots, View};
