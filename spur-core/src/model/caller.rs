//! The identity and privileges of the sender of a request.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::AdminLevel;

/// A user as the submitting host knows them. Names are resolved there, so that the controller never needs a
/// directory service.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Owner {
    /// Numeric user id on all hosts.
    pub uid: u32,
    /// Numeric primary group id.
    pub gid: u32,
    /// Login name of the user.
    pub user: Arc<str>,
    /// Name of the primary group.
    pub group: Arc<str>,
}

/// An authenticated sender of requests, with privileges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User who sends the request.
    pub owner: Arc<Owner>,
    /// Names of the user's groups besides the primary one, as reported by the daemon of the user's host.
    pub groups: Arc<[Arc<str>]>,
    /// True for root and the user of the controller, who are administrators whatever the policy tree says.
    pub owns_cluster: bool,
    /// The administrator level: the highest if `owns_cluster` is true, else that of the policy tree when it
    /// was last asked.
    pub level: AdminLevel,
}

impl Caller {
    /// A caller with the level that follows from `administrator` alone, without the policy tree.
    #[must_use]
    pub fn new(owner: Arc<Owner>, groups: Arc<[Arc<str>]>, administrator: bool) -> Self {
        let level = if administrator { AdminLevel::Administrator } else { AdminLevel::None };
        Self { owner, groups, owns_cluster: administrator, level }
    }

    /// True if the caller may change what belongs to other users.
    #[must_use]
    pub fn is_operator(&self) -> bool {
        self.level >= AdminLevel::Operator
    }

    /// True if the caller may do everything.
    #[must_use]
    pub fn is_administrator(&self) -> bool {
        self.level == AdminLevel::Administrator
    }

    /// True if the caller is in one of these groups, or is an administrator.
    #[must_use]
    pub fn is_in_any(&self, groups: &[Arc<str>]) -> bool {
        self.is_administrator()
            || groups.contains(&self.owner.group)
            || self.groups.iter().any(|own| groups.contains(own))
    }

    /// True if the caller may change what `owner` owns.
    #[must_use]
    pub fn may_change(&self, owner: &Owner) -> bool {
        self.is_operator() || self.owner.uid == owner.uid
    }
}
