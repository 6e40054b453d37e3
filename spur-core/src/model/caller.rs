//! Who asks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::AdminLevel;

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
    /// Whether the caller is root or the user that the controller runs as, who are administrators whatever the policy
    /// tree says.
    pub owns_cluster: bool,
    /// The caller's privileges; of another user those that the policy tree gave him when it was asked last.
    pub level: AdminLevel,
}

impl Caller {
    /// A caller whom the policy tree has not been asked about.
    #[must_use]
    pub fn new(owner: Arc<Owner>, groups: Arc<[Arc<str>]>, administrator: bool) -> Self {
        let level = if administrator { AdminLevel::Administrator } else { AdminLevel::None };
        Self { owner, groups, owns_cluster: administrator, level }
    }

    /// Whether the caller may act on everything that is of other users.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.level >= AdminLevel::Operator
    }

    /// Whether the caller may do everything.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.level == AdminLevel::Administrator
    }

    /// Whether the caller is in one of these groups, or is an administrator.
    #[must_use]
    pub fn is_in_any(&self, groups: &[Arc<str>]) -> bool {
        self.is_administrator()
            || groups.contains(&self.owner.group)
            || self.groups.iter().any(|own| groups.contains(own))
    }

    /// Whether the caller may change what `owner` owns.
    #[must_use]
    pub fn may_change(&self, owner: &Owner) -> bool {
        self.is_operator() || self.owner.uid == owner.uid
    }
}
