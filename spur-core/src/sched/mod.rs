//! The planner: reads a cluster, returns a plan.

pub mod feasible;
pub mod place;
pub mod plan;
