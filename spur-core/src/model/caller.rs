//! Who asks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A user as the submit host knows them; resolved there, so that the controller never asks a directory service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Numeric user id.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
    /// Login name.
    pub user: Arc<str>,
    /// Name of the primary group.
    pub group: Arc<str>,
}

/// Somebody whose identity has been proved, and what it is worth here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Who it is.
    pub owner: Arc<Owner>,
    /// The groups that the user is in beside the primary one, by name, as the daemon of the user's host has said.
    pub groups: Arc<[Arc<str>]>,
    /// Whether they may act on everything: root, or the user the controller runs as.
    pub operator: bool,
}

impl Caller {
    /// Whether the caller is in one of these groups, or may go wherever it likes.
    #[must_use]
    pub fn is_in_any(&self, groups: &[Arc<str>]) -> bool {
        self.operator
            || groups.contains(&self.owner.group)
            || self.groups.iter().any(|own| groups.contains(own))
    }

    /// Whether the caller may change what `owner` owns.
    #[must_use]
    pub fn may_change(&self, owner: &Owner) -> bool {
        self.operator || self.owner.uid == owner.uid
    }
}
