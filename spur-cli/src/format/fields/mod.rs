//! Tables of the printable fields of each kind of record.

pub mod accounting;
pub mod job;
pub mod node;
pub mod priority;
pub mod step;
