//! Placements with an outline: each possible set of nodes or leaves is a problem of its own.

mod bounds;
mod segment;
mod window;

pub(super) use segment::place_segments;
pub(super) use window::{adjacent, are_side_by_side, contiguous};
