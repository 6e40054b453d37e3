//! One memory for what many jobs have in common.
//!
//! While a cluster runs, jobs share their owner, partitions and the like because they got them from the same place.
//! Read back from a journal or a snapshot, each has its own copies; here they are made to share them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::model::caller::Owner;
use crate::model::job::JobSpec;

/// Names and owners seen so far.
#[derive(Debug, Default)]
pub struct Names {
    texts: BTreeSet<Arc<str>>,
    owners: BTreeSet<Arc<Owner>>,
}

impl Names {
    /// Lets a request that was just read, and that nobody else holds yet, share what those before it had.
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
