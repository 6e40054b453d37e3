//! The records of the policy tree: accounts, users, associations, QOS.
//!
//! Names of accounts and QOS are in lower case. A field that is not set inherits a value, or limits nothing;
//! `cluster::accounts` resolves inheritance.

pub mod ask;
pub mod classic;
pub mod fair_tree;
pub mod limits;
pub mod qos;
pub mod usage;

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use limits::{LimitKind, Limits};
pub use qos::Qos;

use crate::text::serde_as_text;

/// The account above all others, and the name of the user who belongs to it.
pub const ROOT: &str = "root";

/// The QOS that every tree has from the start.
pub const NORMAL: &str = "normal";

/// An account: a group of users, or of accounts.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Account {
    /// The name, in lower case.
    pub name: Arc<str>,
    /// Description of the account, free text.
    pub description: Arc<str>,
    /// The organization, free text.
    pub organization: Arc<str>,
    /// The names of users who administer the account and those below it.
    pub coordinators: BTreeSet<Arc<str>>,
    /// True if the account is deleted; its name stays known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// A user of the policy tree.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// Login name of the user.
    pub name: Arc<str>,
    /// The account of jobs that name none; `None` once the user's association with it is deleted.
    pub default_account: Option<Arc<str>>,
    /// The wckeys that jobs of the user may name, in lower case.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub wckeys: BTreeSet<Arc<str>>,
    /// The wckey of jobs that name none. A user with `wckeys` has one of them as default, and a user without
    /// any has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_wckey: Option<Arc<str>>,
    /// Administrator level of the user.
    pub admin_level: AdminLevel,
    /// True if the user is deleted; the name stays known.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// The administrator level of a user. Each level includes those before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AdminLevel {
    /// The privileges of every user.
    #[default]
    None,
    /// Changes jobs of all users, nodes, partitions, reservations, accounts, users and limits.
    Operator,
    /// Changes everything, QOS and administrator levels included.
    Administrator,
}

impl AdminLevel {
    /// Reads a level or an abbreviation of one: `none`, `operator`, `administrator`, compared without regard
    /// to case. `None` for any other text.
    #[must_use]
    pub fn read(text: &str) -> Option<AdminLevel> {
        let text = text.to_ascii_lowercase();
        [AdminLevel::None, AdminLevel::Operator, AdminLevel::Administrator]
            .into_iter()
            .find(|level| !text.is_empty() && level.to_string().to_ascii_lowercase().starts_with(&text))
    }
}

impl fmt::Display for AdminLevel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            AdminLevel::None => "None",
            AdminLevel::Operator => "Operator",
            AdminLevel::Administrator => "Administrator",
        })
    }
}

/// The number of an association. That of the account `root` is 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AssociationId(pub u32);

/// An account, or a user in an account, with its settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Association {
    /// The number; never given to another association.
    pub id: AssociationId,
    /// Account of the association.
    pub account: Arc<str>,
    /// The user; `None` for the account itself.
    pub user: Option<Arc<str>>,
    /// The partition to which the association is restricted; `None` for all partitions without an association
    /// of their own.
    pub partition: Option<Arc<str>>,
    /// The account above an account; `None` for `root`, and for a user.
    pub parent: Option<Arc<str>>,
    /// Raw shares for fair share.
    pub shares: Shares,
    /// The QOS that jobs may use.
    pub qos: QosAccess,
    /// The QOS of jobs that name none; `None` inherits one.
    pub default_qos: Option<Arc<str>>,
    /// Limits and priority. Inheritable kinds that are not set are inherited.
    pub limits: Limits,
}

impl Default for Association {
    fn default() -> Self {
        Self {
            id: AssociationId::default(),
            account: Arc::default(),
            user: None,
            partition: None,
            parent: None,
            shares: Shares::default(),
            qos: QosAccess::Inherited,
            default_qos: None,
            limits: Limits::default(),
        }
    }
}

/// The association and the QOS that a job counts for in limits, usage and fair share. A started job keeps
/// those of its start, however the tree changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Charged {
    /// The association of the job's user; `None` if there is no tree. If this is the association of an
    /// account, the user has none there. The job then counts for a child of the account with the user's name
    /// and one share.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub association: Option<AssociationId>,
    /// The number of the job's QOS; `None` if it has none that the tree knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub qos: Option<u32>,
    /// The number of the QOS of the partition; `None` if it has none that the tree knows.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub partition_qos: Option<u32>,
}

impl Charged {
    /// True if the job counts for nothing.
    #[must_use]
    pub fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Raw shares of an association.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shares {
    /// A number relative to the siblings' shares.
    Raw(u32),
    /// No shares of its own: users share as if they were directly below the parent's parent.
    Parent,
}

impl Default for Shares {
    fn default() -> Self {
        Shares::Raw(1)
    }
}

impl fmt::Display for Shares {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Shares::Raw(shares) => shares.fmt(f),
            Shares::Parent => f.pad("parent"),
        }
    }
}

impl std::str::FromStr for Shares {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "-1" => Ok(Shares::default()),
            // Slurm's dumps have the number.
            _ if text.eq_ignore_ascii_case("parent") || text == "2147483647" => Ok(Shares::Parent),
            _ => text.parse().map(Shares::Raw),
        }
    }
}
serde_as_text!(Shares);

/// The QOS that jobs of an association may use.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum QosAccess {
    /// The QOS of the association above.
    #[default]
    Inherited,
    /// Exactly the named QOS.
    These(BTreeSet<Arc<str>>),
    /// The QOS of the association above, with additions and removals.
    Changed {
        /// QOS added to the inherited ones.
        more: BTreeSet<Arc<str>>,
        /// QOS removed from the inherited ones.
        less: BTreeSet<Arc<str>>,
    },
}

impl QosAccess {
    /// The QOS that jobs may use, if jobs of the association above may use `above`.
    #[must_use]
    pub fn resolve(&self, above: &BTreeSet<Arc<str>>) -> BTreeSet<Arc<str>> {
        match self {
            QosAccess::Inherited => above.clone(),
            QosAccess::These(these) => these.clone(),
            QosAccess::Changed { more, less } => {
                above.union(more).filter(|name| !less.contains(*name)).cloned().collect()
            }
        }
    }
}
