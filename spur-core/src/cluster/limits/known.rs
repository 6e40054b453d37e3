//! The limits of the users whose jobs were judged last, so that they are not collected anew for each job.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use super::Rules;
use crate::model::accounts::Charged;

/// Number of sets of limits above which all are forgotten.
const MOST: usize = 1_024;

/// Limits by the name of the user.
type OfUsers = BTreeMap<Arc<str>, Arc<Rules>>;

/// Limits by the entities that jobs are charged to, and by user. They follow from accounts, policy, nodes and
/// partitions; when one of these changes, a cluster forgets all of them.
#[derive(Debug, Default)]
pub(in crate::cluster) struct KnownRules(Mutex<BTreeMap<Charged, OfUsers>>);

impl KnownRules {
    /// The limits of a user's jobs; `None` if they are not known, or another thread holds the lock.
    pub(in crate::cluster) fn get(&self, charged: Charged, user: &str) -> Option<Arc<Rules>> {
        let known = self.0.try_lock().ok()?;
        known.get(&charged)?.get(user).cloned()
    }

    /// Remembers the limits of a user's jobs.
    pub(super) fn note(&self, charged: Charged, user: &Arc<str>, rules: &Arc<Rules>) {
        let Ok(mut known) = self.0.try_lock() else { return };
        if known.values().map(BTreeMap::len).sum::<usize>() >= MOST {
            known.clear();
        }
        known.entry(charged).or_default().insert(Arc::clone(user), Arc::clone(rules));
    }
}
