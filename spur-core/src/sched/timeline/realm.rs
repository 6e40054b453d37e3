//! Reservations of nodes and time in a pass. A job is planned in a *realm*: the open one, or the one of a
//! reservation.
//!
//! In the open realm a node is shut while any reservation that has it is in force. The realm of a reservation
//! has only its nodes and its window: before the window everything is shut, and later times do not matter,
//! because its jobs end with it. With `ANY_NODES` all nodes are in the realm. With `FLEX` the realm is the
//! open one plus the reservation's own nodes. Nodes that other reservations shut are shut there, too.
//!
//! A job that fits in a realm may run there under every reservation. Without reservations there is one realm,
//! and nothing is shut.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::NodeId;
use crate::model::job::JobSpec;
use crate::model::reservation::{Flag, Reservation};
use crate::text::time::Time;

/// The realm of jobs that run in no reservation.
pub(crate) const OPEN: usize = 0;

/// The amount that a node shows in a realm for a while, instead of what jobs leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Screen {
    pub(crate) from: Time,
    pub(crate) to: Time,
    /// True if the whole node is shown, false if nothing is.
    pub(crate) shows_all: bool,
}

impl Screen {
    /// True if the screen shows nothing at some time from `from` to `to`.
    pub(super) fn hides(&self, from: Time, to: Time) -> bool {
        !self.shows_all && self.from < to && from < self.to
    }
}

/// The realms of one pass.
#[derive(Clone, Debug, Default)]
pub(crate) struct Realms {
    reservations: Arc<[Arc<Reservation>]>,
    /// For each reservation, the windows in which it is in force.
    windows: Vec<Vec<(Time, Time)>>,
}

impl Realms {
    /// The realms from `now` on.
    pub(crate) fn new(reservations: &Arc<[Arc<Reservation>]>, now: Time) -> Self {
        let windows = reservations.iter().map(|reservation| reservation.windows(now)).collect();
        Self { reservations: Arc::clone(reservations), windows }
    }

    /// Number of realms, including the one in which nothing is shut, which serves only comparisons.
    pub(crate) fn count(&self) -> usize {
        if self.is_single() { 1 } else { self.reservations.len() + 2 }
    }

    /// The time until which reservations are known: of a repeated reservation only a limited number of
    /// windows is planned.
    pub(crate) fn known_until(&self) -> Time {
        let again =
            self.reservations.iter().zip(&self.windows).filter(|(reservation, _)| reservation.repeats());
        again.filter_map(|(_, windows)| windows.last()).map(|(_, end)| *end).min().unwrap_or(Time::MAX)
    }

    /// True if the open realm is the only one.
    pub(crate) fn is_single(&self) -> bool {
        self.reservations.is_empty()
    }

    /// The realm in which nothing is shut.
    pub(crate) fn unshut(&self) -> usize {
        self.count() - 1
    }

    /// The reservation of a realm; `None` for the open realm and the one in which nothing is shut.
    pub(crate) fn reservation(&self, realm: usize) -> Option<&Arc<Reservation>> {
        realm.checked_sub(1).and_then(|index| self.reservations.get(index))
    }

    /// The realm of the reservation with a name; `None` if there is no such reservation.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.reservations.iter().position(|reservation| *reservation.name == *name).map(|index| index + 1)
    }

    /// The realms in which a job may be planned, in order of preference.
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

    /// The realm of a start in the named reservation, or in none; the open realm if the reservation is gone.
    pub(crate) fn within(&self, name: Option<&str>) -> usize {
        name.and_then(|name| self.named(name)).unwrap_or(OPEN)
    }

    /// The reservation to whose nodes a realm is confined, if any.
    pub(crate) fn bounds(&self, realm: usize) -> Option<&Arc<Reservation>> {
        self.reservation(realm).filter(|own| own.binds_to_nodes())
    }

    /// The reservation to whose window a realm is confined, if any.
    pub(crate) fn window(&self, realm: usize) -> Option<&Arc<Reservation>> {
        self.reservation(realm).filter(|own| own.binds_to_time())
    }

    /// The time by which jobs of a realm must end, if any.
    pub(crate) fn end(&self, realm: usize) -> Option<Time> {
        self.window(realm).map(|own| own.end)
    }

    /// The reservations that have licenses: their realm, and the windows in which they are in force.
    pub(crate) fn licensed(&self) -> impl Iterator<Item = (usize, &Arc<Reservation>, &[(Time, Time)])> {
        let all = self.reservations.iter().zip(&self.windows).enumerate();
        let licensed = all.filter(|(_, (reservation, _))| !reservation.licenses.is_empty());
        licensed.map(|(index, (reservation, windows))| (index + 1, reservation, windows.as_slice()))
    }

    /// The planned run time in seconds of a job that starts in a realm at `start`: at most until the realm's
    /// end.
    pub(crate) fn lasts(&self, realm: usize, start: Time, run_time: u64) -> u64 {
        self.end(realm).map_or(run_time, |end| end.since(start).min(run_time))
    }

    /// True if a node is in a realm.
    pub(crate) fn holds(&self, realm: usize, node: NodeId) -> bool {
        self.bounds(realm).is_none_or(|own| own.holds(node))
    }

    /// The screens of a node in a realm, by time, without overlap.
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

    /// The first reservation that shuts a node for the open realm at some time from `from` to `to`.
    pub(crate) fn shut_by(&self, node: NodeId, from: Time, to: Time) -> Option<&Arc<Reservation>> {
        let meets =
            |windows: &Vec<(Time, Time)>| windows.iter().any(|window| window.0 < to && from < window.1);
        let mut all = self.reservations.iter().zip(&self.windows);
        all.find(|(other, windows)| other.holds(node) && meets(windows)).map(|(other, _)| other)
    }
}
