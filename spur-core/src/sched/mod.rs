//! The planner: reads a cluster, returns a plan.

pub mod place;
pub mod plan;
