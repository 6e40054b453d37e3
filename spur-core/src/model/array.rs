//! What ties a record to a job array.
//!
//! The tasks of an array that wait are one record, which costs what a job costs however many they are. A task becomes a
//! record of its own when it starts, or when something happens to it and not to the others.

use serde::{Deserialize, Serialize};

use crate::id::JobId;
use crate::text::array::TaskSet;

/// A record's place in its array.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayPart {
    /// The array's number: that of the record that was submitted.
    pub id: JobId,
    /// The tasks that the record stands for: at least one, and only one as soon as it has started.
    pub tasks: TaskSet,
}
