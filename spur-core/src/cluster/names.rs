//! Shared memory for values that many jobs have in common.
//!
//! Jobs of a running cluster share their owner, partitions and the like because these come from one place.
//! Jobs read from a journal or a snapshot have copies of their own; this module replaces equal copies by one.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::caller::Owner;
use crate::model::job::JobSpec;

/// Names and owners that occurred so far.
#[derive(Debug, Default)]
pub struct Names {
    texts: BTreeSet<Arc<str>>,
    owners: BTreeSet<Arc<Owner>>,
}

impl Names {
    /// Makes a request that was just read share equal names and owners with earlier ones. Does nothing if the
    /// request is shared already.
    pub fn share(&mut self, spec: &mut Arc<JobSpec>) {
        let Some(spec) = Arc::get_mut(spec) else { return };
        same(&mut self.owners, &mut spec.owner);
        same(&mut self.texts, &mut spec.name);
        let named = spec.account.iter_mut().chain(&mut spec.qos).chain(&mut spec.partitions);
        named.for_each(|name| same(&mut self.texts, name));
    }
}

fn same<T: Ord + ?Sized>(seen: &mut BTreeSet<Arc<T>>, new: &mut Arc<T>) {
    match seen.get(new) {
        Some(known) => *new = Arc::clone(known),
        None => {
            seen.insert(Arc::clone(new));
        }
    }
}
