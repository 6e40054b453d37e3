//! Reservations of nodes and time as a pass sees them. A job plans in a *realm*: the open one, which is everybody's, or
//! that of a reservation.
//!
//! In the open realm a node is shut while any reservation that has it is in force. In the realm of a reservation there
//! are only its nodes and its window: before it everything is shut, and what comes after it does not matter, because its
//! jobs end with it. Where a reservation lets its jobs use other nodes (`ANY_NODES`), all nodes are in its realm; where it
//! lets them go beyond its window as well (`FLEX`), its realm is the open one with its own nodes besides. What others
//! shut there is shut there, too.
//!
//! Promises: whatever fits in a realm may run there by every reservation; where there are no reservations there is one
//! realm, and nothing is shut.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::NodeId;
use crate::model::job::JobSpec;
use crate::model::reservation::{Flag, Reservation};
use crate::text::time::Time;

/// The realm of jobs that run in no reservation.
pub(crate) const OPEN: usize = 0;

/// What a node shows in a realm for a while, whatever jobs leave of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) from: Time,
    pub(crate) to: Time,
    /// Everything, or else nothing.
    pub(crate) shows_all: bool,
}

impl Screen {
    /// Whether it shows nothing at some time from `from` to `to`.
    pub(super) fn hides(&self, from: Time, to: Time) -> bool {
        !self.shows_all && self.from < to && from < self.to
    }
}

/// The realms of one pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Realms {
    reservations: Arc<[Arc<Reservation>]>,
    /// By reservation: when it is in force.
    windows: Vec<Vec<(Time, Time)>>,
}

impl Realms {
    /// The realms from `now` on.
    pub(crate) fn new(reservations: &Arc<[Arc<Reservation>]>, now: Time) -> Self {
        let windows = reservations.iter().map(|reservation| reservation.windows(now)).collect();
        Self { reservations: Arc::clone(reservations), windows }
    }

    /// How many there are, with the one in which nothing is shut: there jobs are only compared with how it would be.
    pub(crate) fn count(&self) -> usize {
        if self.is_single() { 1 } else { self.reservations.len() + 2 }
    }

    /// Until when it is known what is reserved: of what comes again and again only so many windows are planned with.
    pub(crate) fn known_until(&self) -> Time {
        let again =
            self.reservations.iter().zip(&self.windows).filter(|(reservation, _)| reservation.repeats());
        again.filter_map(|(_, windows)| windows.last()).map(|(_, end)| *end).min().unwrap_or(Time::MAX)
    }

    /// Whether there is only the open one.
    pub(crate) fn is_single(&self) -> bool {
        self.reservations.is_empty()
    }

    /// The one in which nothing is shut.
    pub(crate) fn unshut(&self) -> usize {
        self.count() - 1
    }

    /// The reservation that a realm is that of.
    pub(crate) fn reservation(&self, realm: usize) -> Option<&Arc<Reservation>> {
        realm.checked_sub(1).and_then(|index| self.reservations.get(index))
    }

    /// The realm of the reservation of that name.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.reservations.iter().position(|reservation| *reservation.name == *name).map(|index| index + 1)
    }

    /// The realms in which a job may be planned, those it would rather be in first.
    pub(crate) fn of_job(&self, spec: &JobSpec) -> SmallVec<[usize; 2]> {
        let admits = |reservation: &Reservation| reservation.admits(&spec.owner, spec.account.as_deref());
        let mut names = spec.reservations().peekable();
        if names.peek().is_some() {
            let known = names.filter_map(|name| self.named(name));
            return known.filter(|realm| self.reservation(*realm).is_some_and(|own| admits(own))).collect();
        }
        let draws = |reservation: &Reservation| reservation.has(Flag::Magnetic) && admits(reservation);
        let magnetic = self.reservations.iter().enumerate().filter(|(_, reservation)| draws(reservation));
        magnetic.map(|(index, _)| index + 1).chain([OPEN]).collect()
    }

    /// The realm of a start in the reservation of that name, or in none: the open one also where there is none of that
    /// name any more.
    pub(crate) fn within(&self, name: Option<&str>) -> usize {
        name.and_then(|name| self.named(name)).unwrap_or(OPEN)
    }

    /// The reservation whose nodes are all there is in a realm.
    pub(crate) fn bounds(&self, realm: usize) -> Option<&Arc<Reservation>> {
        self.reservation(realm).filter(|own| own.binds_to_nodes())
    }

    /// The reservation whose window is all the time there is in a realm.
    pub(crate) fn window(&self, realm: usize) -> Option<&Arc<Reservation>> {
        self.reservation(realm).filter(|own| own.binds_to_time())
    }

    /// When jobs of a realm have to be over.
    pub(crate) fn end(&self, realm: usize) -> Option<Time> {
        self.window(realm).map(|own| own.end)
    }

    /// The reservations that have licenses: their realms, and when they are in force.
    pub(crate) fn licensed(&self) -> impl Iterator<Item = (usize, &Arc<Reservation>, &[(Time, Time)])> {
        let all = self.reservations.iter().zip(&self.windows).enumerate();
        let licensed = all.filter(|(_, (reservation, _))| !reservation.licenses.is_empty());
        licensed.map(|(index, (reservation, windows))| (index + 1, reservation, windows.as_slice()))
    }

    /// How long a job that starts in a realm at some time is planned to run: no longer than the realm lasts.
    pub(crate) fn lasts(&self, realm: usize, start: Time, run_time: u64) -> u64 {
        self.end(realm).map_or(run_time, |end| end.since(start).min(run_time))
    }

    /// Whether a node is in a realm.
    pub(crate) fn holds(&self, realm: usize, node: NodeId) -> bool {
        self.bounds(realm).is_none_or(|own| own.holds(node))
    }

    /// What a node shows in a realm instead of what jobs leave of it: by time, one after another.
    pub(crate) fn screens(&self, realm: usize, node: NodeId, now: Time) -> Vec<Screen> {
        if self.is_single() || realm == self.unshut() {
            return Vec::new();
        }
        let own = self.reservation(realm);
        let shuts = |other: &Reservation| other.holds(node) && own.is_none_or(|own| other.shuts_out(own));
        let shut = self.reservations.iter().zip(&self.windows).filter(|(other, _)| shuts(other));
        let mut shut: Vec<(Time, Time)> = shut.flat_map(|(_, windows)| windows).copied().collect();
        let bounds = self.window(realm);
        shut.extend(bounds.filter(|own| own.start > now).map(|own| (now, own.start)));
        shut.sort_unstable();
        let end = bounds.map_or(Time::MAX, |own| own.end);
        let mut screens: Vec<Screen> = Vec::new();
        for (from, to) in shut {
            let to = to.min(end);
            match screens.last_mut() {
                Some(last) if from <= last.to => last.to = last.to.max(to),
                _ if from < to => screens.push(Screen { from, to, shows_all: false }),
                _ => {}
            }
        }
        screens.extend(bounds.map(|own| Screen { from: own.end, to: Time::MAX, shows_all: true }));
        screens
    }

    /// The first reservation that keeps jobs of the open realm from a node at some time from `from` to `to`.
    pub(crate) fn shut_by(&self, node: NodeId, from: Time, to: Time) -> Option<&Arc<Reservation>> {
        let meets =
            |windows: &Vec<(Time, Time)>| windows.iter().any(|window| window.0 < to && from < window.1);
        let mut all = self.reservations.iter().zip(&self.windows);
        all.find(|(other, windows)| other.holds(node) && meets(windows)).map(|(other, _)| other)
    }
}
