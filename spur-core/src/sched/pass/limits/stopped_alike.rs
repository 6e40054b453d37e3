//! Jobs that a limit stops as it has stopped another job before them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::limits::{Rules, Stop};
use crate::sched::queue::chunks::Key;
use crate::sched::queue::limited::ChoiceLimits;
use crate::sched::queue::{Candidate, Queued};
use crate::sched::space::Space;

use super::super::walk::Walk;

/// For each set of limits, by its address, the last job that it has stopped.
#[derive(Debug, Default)]
pub(super) struct StoppedAlike(BTreeMap<usize, Stopped>);

/// A job that a limit has stopped.
#[derive(Debug)]
struct Stopped {
    /// The limits, which are kept so that no other limits get their address.
    _rules: Arc<Rules>,
    key: Key,
    partition: usize,
    wants: Box<[u128]>,
    stop: Stop,
    /// The number of changes in the limits when the job was stopped.
    changes: u64,
}

/// The limits of a job to which nothing but its amounts matters; `None` if there is more to compare.
fn plain(candidate: &Candidate) -> Option<(usize, &ChoiceLimits)> {
    let ([(partition, _)], Some([own])) = (&*candidate.choices, candidate.limits.as_deref()) else {
        return None;
    };
    let is_plain = own.rules.only_running && candidate.spec.exempt().next().is_none();
    is_plain.then_some((*partition, own))
}

impl<S: Space> Walk<S> {
    /// The first limit that stops a job that starts now or not at all, in all of its partitions. In a deep
    /// pass, a job like the last one under the same limits is stopped as that was, as long as nothing else
    /// was started or planned. Quick passes look at few such jobs.
    pub(in super::super) fn stopped_now(&mut self, candidate: &Queued) -> Option<Stop> {
        let plain = plain(candidate).filter(|_| self.deep);
        let limits = self.limits.as_ref()?;
        if let Some((partition, own)) = plain
            && let Some(known) = limits.alike.0.get(&Arc::as_ptr(&own.rules).addr())
            && (known.changes, known.partition) == (limits.room.changes, partition)
            && known.wants == own.wants
            && known.key < candidate.key
        {
            return Some(known.stop.clone());
        }
        let stop = self.stopped(candidate, &[], false)?;
        if let (Some((partition, own)), Some(limits)) = (plain, &mut self.limits) {
            let (rules, wants) = (Arc::clone(&own.rules), own.wants.clone());
            let (stop, changes) = (stop.clone(), limits.room.changes);
            let address = Arc::as_ptr(&rules).addr();
            limits.alike.0.insert(
                address,
                Stopped { _rules: rules, key: candidate.key, partition, wants, stop, changes },
            );
        }
        Some(stop)
    }
}
