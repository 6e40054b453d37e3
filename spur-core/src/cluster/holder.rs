//! The holders of counters: the associations and QOS, and their parts, that jobs are counted for.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::accounts::Accounts;
use crate::model::accounts::{AssociationId, Charged};

/// An entity that jobs are counted for: by limits while they wait or run, and by usage when they have run.
/// Usage is counted for associations, outsiders and QOS only.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Holder {
    /// An association of the tree, with all below it.
    Association(AssociationId),
    /// A user who has no association: a child of an account's association.
    Outsider {
        /// The association of the account.
        account: AssociationId,
        /// The login name.
        user: Arc<str>,
    },
    /// A QOS, by its number.
    Qos(u32),
    /// A user in a QOS.
    QosUser {
        /// The number of the QOS.
        qos: u32,
        /// The login name.
        user: Arc<str>,
    },
    /// An account in a QOS.
    QosAccount {
        /// The number of the QOS.
        qos: u32,
        /// The name of the account.
        account: Arc<str>,
    },
}

impl Holder {
    /// All entities for which a user's job counts.
    #[must_use]
    pub fn of(tree: &Accounts, charged: Charged, user: &Arc<str>) -> Vec<Holder> {
        let mut holders = Vec::new();
        let association = charged.association.and_then(|id| tree.association(id));
        if let Some(own) = association {
            if own.user.is_none() {
                holders.push(Holder::Outsider { account: own.id, user: Arc::clone(user) });
            }
            holders.extend(tree.chain(own).map(|above| Holder::Association(above.id)));
        }
        let second = charged.partition_qos.filter(|second| charged.qos != Some(*second));
        for qos in charged.qos.into_iter().chain(second) {
            holders.push(Holder::Qos(qos));
            holders.push(Holder::QosUser { qos, user: Arc::clone(user) });
            let account = association.map(|own| Arc::clone(&own.account));
            holders.extend(account.map(|account| Holder::QosAccount { qos, account }));
        }
        holders
    }
}
