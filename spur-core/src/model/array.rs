//! The relation of a record to its job array.
//!
//! Pending tasks of an array share one record, which costs as much as one job, however many they are. A task
//! gets a record of its own when it starts, or when it is changed without the others; the last task keeps
//! the record.

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::text::array::TaskSet;

/// The tasks of an array for which a record stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPart {
    /// The number of the array: that of the submitted record.
    pub id: JobId,
    /// The tasks of the record: at least one, and exactly one once it has started.
    pub tasks: TaskSet,
}
