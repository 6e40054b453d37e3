//! Later starts: those that one pass plans, and that later passes and searches for victims leave alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::queue::chunks::Key;
use super::request::Part;
use super::timeline::licenses::{WantedLicenses, wanted};
use super::timeline::realm::Realms;
use crate::id::{JobId, NodeId};
use crate::model::job::JobSpec;
use crate::text::time::Time;

/// The position of a later start among others: its job's position in the queue when it was planned, and which
/// of the job's starts it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) key: Key,
    /// The number of this start among those of an array's tasks or of a het job's components.
    pub(crate) number: usize,
}

/// A start that is planned for later.
#[derive(Clone, Debug, PartialEq)]
pub struct Reservation {
    /// The job.
    pub job: JobId,
    /// The request for which the start was planned.
    pub spec: Arc<JobSpec>,
    /// The time from which the nodes are planned.
    pub start: Time,
    /// The planned end.
    pub end: Time,
    /// The partition in which the job is planned.
    pub partition: Arc<str>,
    /// The reservation of nodes and time in which the job is planned; `None` outside all reservations.
    pub within: Option<Arc<str>>,
    /// The amounts taken of each node, in rank order.
    pub(crate) parts: Vec<Part>,
    /// The start that the plan gave for the job, which may become a promise. `None` if the plan gave none,
    /// because the start is too far in the future to be known.
    pub(crate) told: Option<Time>,
    pub(crate) turn: Turn,
}

impl Reservation {
    /// The amounts taken of each node, in rank order: CPUs, memory in MiB, an entry that counts no resource,
    /// devices in the order of the node's entries, then the entries of limits of partitions.
    pub fn amounts(&self) -> impl Iterator<Item = (NodeId, &[u64])> {
        self.parts.iter().filter(|part| part.slots > 0).map(|part| (part.node, &*part.taken))
    }

    /// True if both belong to one het job, whose components start together.
    pub(crate) fn is_together_with(&self, other: &Self) -> bool {
        other.spec.het.is_some() && self.turn.key == other.turn.key
    }

    /// The realm in which the job is planned, and the licenses that it needs there.
    pub(crate) fn asked<'a>(&'a self, realms: &Realms) -> (usize, &'a WantedLicenses) {
        (realms.within(self.within.as_deref()), wanted(&self.spec))
    }

    /// The planned run time, in seconds.
    pub(crate) fn lasts(&self) -> u64 {
        self.end.since(self.start)
    }
}

/// The later starts that a deep pass planned. A quick pass must not disturb them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reservations {
    by_turn: BTreeMap<Turn, Arc<Reservation>>,
    by_job: BTreeSet<(JobId, Turn)>,
    by_start: BTreeSet<(Time, Turn)>,
}

impl Reservations {
    /// Number of planned starts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_turn.len()
    }

    /// True if there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_turn.is_empty()
    }

    /// The reservations, in queue order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Reservation>> {
        self.by_turn.values()
    }

    pub(crate) fn insert(&mut self, made: Arc<Reservation>) {
        self.by_job.insert((made.job, made.turn));
        self.by_start.insert((made.start, made.turn));
        self.by_turn.insert(made.turn, made);
    }

    pub(crate) fn remove(&mut self, turn: &Turn) -> Option<Arc<Reservation>> {
        let made = self.by_turn.remove(turn)?;
        self.by_job.remove(&(made.job, made.turn));
        self.by_start.remove(&(made.start, made.turn));
        Some(made)
    }

    /// The turns of a job, in order.
    pub(crate) fn of_job(&self, job: JobId) -> impl Iterator<Item = Turn> + '_ {
        let from = self.by_job.range((job, Turn::FIRST)..);
        from.take_while(move |(of, _)| *of == job).map(|(_, turn)| *turn)
    }

    /// The turn itself and those of the other components of its het job; empty if no later start has it.
    pub(crate) fn together_with(&self, turn: &Turn) -> Vec<Turn> {
        let Some(made) = self.by_turn.get(turn) else { return Vec::new() };
        if made.spec.het.is_none() {
            return vec![*turn];
        }
        let all = Turn { number: 0, ..*turn }..=Turn { number: usize::MAX, ..*turn };
        self.by_turn.range(all).map(|(turn, _)| *turn).collect()
    }

    /// The turns of the reservations whose start is at or before `now`.
    pub(crate) fn begun(&self, now: Time) -> impl Iterator<Item = Turn> + '_ {
        self.by_start.iter().take_while(move |(start, _)| *start <= now).map(|(_, turn)| *turn)
    }
}

impl FromIterator<Arc<Reservation>> for Reservations {
    fn from_iter<I: IntoIterator<Item = Arc<Reservation>>>(all: I) -> Self {
        let by_turn: BTreeMap<Turn, Arc<Reservation>> =
            all.into_iter().map(|made| (made.turn, made)).collect();
        let by_job = by_turn.values().map(|made| (made.job, made.turn)).collect();
        // Turns are large, so their indexes are sorted instead.
        let turns: Vec<Turn> = by_turn.keys().copied().collect();
        let mut starts: Vec<(Time, usize)> = by_turn.values().map(|made| made.start).zip(0..).collect();
        starts.sort_unstable();
        let by_start = starts.into_iter().map(|(start, number)| (start, turns[number])).collect();
        Self { by_turn, by_job, by_start }
    }
}

impl Turn {
    /// The turn before all others.
    const FIRST: Self = Self { key: Key::FIRST, number: 0 };
}
