//! A simulated cluster with a virtual clock, virtual nodes that act immediately, and metrics.
//!
//! The module decides the order of events at one virtual time. All other decisions are made by
//! [`controller`](crate::controller) and [`sched`](crate::sched), the code that `spurctld` runs. A simulation
//! never sleeps and uses no randomness, so that the same input gives the same events. A start, an end and a
//! requeue take no virtual time.
//!
//! # Order of events at one virtual time
//!
//! The driver of a [`World`] advances its clock ([`World::advance`]), applies the workload's actions for that
//! time in the workload's order, and calls [`World::settle`]. That call does the remaining work in this
//! order:
//!
//! 1. Runs that end are ended, in the order they started.
//! 2. The controller's timers that are due, such as time limits, are handled.
//! 3. A scheduling pass is made.
//!
//! With [`PassMode::Event`], a pass of its own follows each single event. Resources of jobs that are planned
//! to end at that time count as free from the beginning of that time. A planned end that is exceeded is
//! corrected before any other event of that time, and causes no pass.
//!
//! A run that ends immediately after its start begins another round at the same time.

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
