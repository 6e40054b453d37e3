//! Reservations of nodes, and the effects of their changes on jobs and plans.

use std::sync::Arc;

use super::{Cluster, Derived};
use crate::id::{JobId, NodeId};
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::reservation::{Flag, Reservation};
use crate::text::time::{Time, TimeLimit};

impl Cluster {
    /// Adds a new reservation.
    pub(super) fn create_reservation(&mut self, reservation: &Arc<Reservation>) {
        self.mark.last_reservation += 1;
        self.reserve(reservation);
    }

    /// Adds or replaces a reservation. Drops promised starts, unless the reservation only moves to its next
    /// window, which plans have taken into account. Nominations that include its nodes or licenses are
    /// dropped.
    pub(super) fn reserve(&mut self, reservation: &Arc<Reservation>) {
        self.derived = Derived::default();
        let before = self.reservations.insert(Arc::clone(&reservation.name), Arc::clone(reservation));
        let goes_on =
            before.is_some_and(|before| before.moved_past(before.end).as_ref() == Some(&**reservation));
        self.derive_reservations();
        if !goes_on {
            self.drop_promises();
        }
        let wants = |job: &Job| {
            let licenses = job.spec.extra.iter().flat_map(|extra| &extra.licenses);
            licenses.into_iter().any(|(name, _)| reservation.license(name) > 0)
        };
        self.drop_nominations(|job, nomination| {
            nomination.nodes().any(|node| reservation.holds(node)) || wants(job)
        });
        let name = &reservation.name;
        let within: Vec<JobId> = self.running_in(name).map(|job| job.id).collect();
        let end = self.ends_by(name);
        for job in within {
            self.jobs.change(job, |job| match &mut job.phase {
                Phase::Running { ends_by, .. } => *ends_by = end,
                Phase::Suspended(suspended) => suspended.ends_by = end,
                Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => {}
            });
        }
    }

    pub(super) fn unreserve(&mut self, name: &str) {
        self.derived = Derived::default();
        self.reservations.remove(name);
    }

    /// Drops all promised starts and all derived data.
    pub(super) fn drop_promises(&mut self) {
        self.derived = Derived::default();
        let promised: Vec<JobId> =
            self.jobs.pending().filter(|job| job.promised.is_some()).map(|job| job.id).collect();
        for job in promised {
            self.jobs.change(job, |job| job.promised = None);
        }
    }

    /// Time by which a job of this reservation must have ended; `None` if the reservation does not limit the
    /// time, or does not exist.
    pub(super) fn ends_by(&self, name: &str) -> Option<Time> {
        let reservation = self.reservations.get(name)?;
        reservation.binds_to_time().then_some(reservation.end)
    }

    /// Records since when each `PURGE_COMP` reservation has been idle.
    pub(super) fn note_idle(&mut self, at: Time) {
        for kept in self.reservations.values_mut().filter(|kept| kept.has(Flag::PurgeComp)) {
            let idle = match self.jobs.uses(&kept.name) {
                true => None,
                false => kept.idle_since.or(Some(at)),
            };
            if kept.idle_since != idle {
                Arc::make_mut(kept).idle_since = idle;
            }
        }
    }

    /// The active jobs that run in a reservation.
    pub fn running_in<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Job> {
        let within = move |job: &&Job| {
            let alloc = job.phase.alloc();
            alloc.is_some_and(|alloc| alloc.reservation.as_deref() == Some(name))
        };
        self.jobs.active().filter(within)
    }

    /// Updates the nodes of reservations of whole partitions.
    pub(super) fn derive_reservations(&mut self) {
        let has_partition = |kept: &Arc<Reservation>| kept.has(Flag::PartNodes);
        for kept in self.reservations.values_mut().filter(|kept| has_partition(kept)) {
            let found =
                self.partitions.iter().find(|partition| kept.partition.as_ref() == Some(partition.name()));
            let Some(partition) = found else { continue };
            let mut nodes: Vec<NodeId> = partition.nodes.clone();
            nodes.sort_unstable();
            if *kept.nodes != *nodes {
                Arc::make_mut(kept).nodes = nodes.into();
            }
        }
    }

    /// True if reservations let a job start on these nodes and run until its limit. No other reservation may
    /// be in force there meanwhile. A job in a reservation must stay within its nodes and, unless it is
    /// flexible, its time.
    #[must_use]
    pub fn lets_start(
        &self,
        job: &Job,
        limit: TimeLimit,
        reservation: Option<&str>,
        nodes: &[NodeId],
        now: Time,
    ) -> bool {
        let own = reservation.and_then(|name| self.reservation(name)).filter(|own| own.binds_to_nodes());
        let within = own.is_none_or(|own| nodes.iter().all(|node| own.holds(*node)));
        within && self.lets_run(job, limit, reservation, nodes, now)
    }

    /// True if reservations let a job run on nodes that it already has. The nodes of its own reservation may
    /// have changed since its start, so they are not compared.
    #[must_use]
    pub fn lets_run(
        &self,
        job: &Job,
        limit: TimeLimit,
        reservation: Option<&str>,
        nodes: &[NodeId],
        now: Time,
    ) -> bool {
        if self.reservations.is_empty() {
            return reservation.is_none();
        }
        let own = match reservation.map(|name| self.reservation(name)) {
            Some(None) => return false,
            own => own.flatten(),
        };
        let limit = limit.end(now);
        let end = match own {
            Some(own) if own.binds_to_time() => {
                if !own.is_active(now) {
                    return false;
                }
                limit.min(own.end)
            }
            _ => limit,
        };
        let admitted = own.is_none_or(|own| own.admits(&job.spec.owner, job.spec.account.as_deref()));
        let stands_in_the_way = |other: &&Arc<Reservation>| {
            own.is_none_or(|own| other.shuts_out(own))
                && nodes.iter().any(|node| other.holds(*node))
                && other.anchored(now).windows(now).iter().any(|(from, to)| *from < end && now < *to)
        };
        admitted && !self.reservations().any(|other| stands_in_the_way(&other))
    }
}
