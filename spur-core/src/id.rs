//! The numbers things are known by. They are allotted once, journalled and never reused.

use serde::{Deserialize, Serialize};

/// A node of the cluster, numbered when it is first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub u32);
