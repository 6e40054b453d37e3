//! A cluster made of values: a virtual clock, virtual nodes that do at once what they are told, and metrics.
//!
//! Owns the order in which things happen at one virtual time; everything that is decided is decided by
//! [`controller`](crate::controller) and [`sched`](crate::sched), the code that `spurctld` runs. Promises: nothing
//! sleeps and nothing is left to chance, so the same input gives the same events; a start, an end and a requeue take
//! no virtual time.
//!
//! # One virtual time
//!
//! Whoever drives a [`World`] moves its clock ([`World::advance`]), applies what the workload has for that time, in
//! the workload's order, and lets the rest happen ([`World::settle`]): runs that end, in the order they started; what
//! the controller's timers are due for, such as time limits; a scheduling pass. With [`PassMode::Event`] every single
//! one of these is followed by a pass of its own, and what is planned to end at that time counts as free from its beginning. A planned end that is exceeded is corrected before anything else
//! happens at that time, and is no reason for a pass.
//!
//! A run that ends at once starts another round of the same time.

mod event;
mod foresight;
mod fragmentation;
mod metrics;
mod names;
mod record;
mod truth;
mod world;

pub use event::{Event, Spans, What};
pub use foresight::Foresight;
pub use fragmentation::Fragmentation;
pub use metrics::{LayerSpans, Run, Spread, Summary};
pub use world::{Moment, NodeState, PassMode, Watch, World};
