//! What a job takes of one node.

use std::sync::Arc;

use crate::id::NodeId;

/// What a job is given on one node; or, without slots, what it keeps others from using there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) node: NodeId,
    pub(crate) slots: u32,
    pub(crate) taken: Arc<[u64]>,
}
