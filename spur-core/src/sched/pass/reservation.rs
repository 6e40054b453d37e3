//! Later starts of a pass: booking them, and taking over those of earlier passes that quick passes keep.

use std::sync::Arc;

use crate::id::JobId;
use crate::model::fabric::Pos;
use crate::sched::explain;
use crate::sched::forecast::ENDLESS;
use crate::sched::place::Placement;
use crate::sched::plan::Waiting;
use crate::sched::planned_starts::{Reservation, Reservations, Turn};
use crate::sched::prospect::Prospect;
use crate::sched::queue::pending_order::PendingOrder;
use crate::sched::queue::{Candidate, Queued};
use crate::sched::request::Part;
use crate::sched::space::{Hit, Space};
use crate::sched::timeline::realm::OPEN;
use crate::text::time::Time;

use super::walk::{EXPLAINED, Walk};

/// A booked later start, and its entry in the plan.
#[derive(Debug)]
pub(super) struct Planned {
    pub(super) made: Arc<Reservation>,
    pub(super) said: Waiting,
}

/// The result of taking over later starts of an earlier pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Yes,
    /// The starts were kept, but begin or end at another time.
    Moved,
    No,
}

impl<S: Space> Walk<S> {
    /// Takes over later starts that are still valid, in order: the job waits with the same request, and the
    /// nodes are still free then. The starts of a het job are kept for all components or none.
    pub(crate) fn keep(&mut self, line: &PendingOrder, known: &Reservations) {
        let mut known = known.iter().peekable();
        while let Some(first) = known.next() {
            let rest = std::iter::from_fn(|| known.next_if(|made| made.is_together_with(first)));
            let all: Vec<&Arc<Reservation>> = std::iter::once(first).chain(rest).collect();
            self.keep_together(line, &all);
        }
    }

    /// Takes over a later start, or those of all components of a het job, if they are still valid. Returns
    /// whether they are, and whether their times are unchanged.
    pub(crate) fn keep_together(&mut self, line: &PendingOrder, all: &[&Arc<Reservation>]) -> Kept {
        let leader = all[0].spec.het.as_deref().map_or(all[0].job, |het| het.leader);
        let candidate = line.candidate(leader).filter(|candidate| candidate.all().count() == all.len());
        let Some(candidate) = candidate else { return Kept::No };
        let mut kept: Vec<Arc<Reservation>> = Vec::with_capacity(all.len());
        for (component, made) in candidate.all().zip(all) {
            let Some(made) = self.still_has(component, made) else {
                kept.iter().for_each(|made| self.unbook(made));
                return Kept::No;
            };
            self.book(component, &made);
            kept.push(made);
        }
        let moved = kept.iter().zip(all).any(|(kept, made)| (kept.start, kept.end) != (made.start, made.end));
        kept.into_iter().for_each(|made| self.remember_known(made));
        if moved { Kept::Moved } else { Kept::Yes }
    }

    /// A later start with current times; `None` if it is no longer possible.
    fn still_has(&mut self, candidate: &Candidate, made: &Arc<Reservation>) -> Option<Arc<Reservation>> {
        let same = candidate.attempt.job == made.job && Arc::ptr_eq(&candidate.spec, &made.spec);
        self.inventory.partition(&made.partition).filter(|_| same)?;
        let realm = self.realm_of(made)?;
        let run_time = match candidate.shortest < candidate.run_time {
            true => made.lasts(),
            false => candidate.run_time,
        };
        let start = made.start.max(self.now);
        let end = start + self.space.realms().lasts(realm, start, run_time);
        let made = match (start, end) == (made.start, made.end) {
            true => Arc::clone(made),
            false => Arc::new(Reservation { start, end, ..(**made).clone() }),
        };
        self.space.has(realm, &made).then_some(made)
    }

    /// Puts a later start of an earlier pass back.
    pub(crate) fn remember_known(&mut self, made: Arc<Reservation>) {
        if let Some(seat) = self.seat_of_made(&made) {
            self.kept[seat] += 1;
        }
        self.known.insert(made);
    }

    /// Drops the first later start that an earlier pass planned for a job, and returns it.
    pub(super) fn take_known(&mut self, job: JobId) -> Option<Arc<Reservation>> {
        let first = self.known.of_job(job).next()?;
        self.give_up(&first)
    }

    /// Drops a later start that an earlier pass planned, and returns it.
    pub(crate) fn give_up(&mut self, turn: &Turn) -> Option<Arc<Reservation>> {
        let made = self.known.remove(turn)?;
        if let Some(seat) = self.seat_of_made(&made) {
            self.kept[seat] -= 1;
        }
        self.unbook(&made);
        Some(made)
    }

    /// Books a later start.
    pub(super) fn reserve(
        &mut self,
        candidate: &Queued,
        prospect: &Prospect,
        hit: &Hit,
        parts: Vec<Part>,
    ) -> Planned {
        let turn = Turn { key: candidate.key, number: candidate.waits };
        self.reservation(candidate, turn, prospect, hit, parts)
    }

    /// The parts that a job takes on the nodes found; `None` if they cannot be given after all.
    ///
    /// Where every job has a reservation, a job keeps the nodes planned for the same time unless others are
    /// more local. Jobs that came since then have only taken resources, and jobs planned beside it rely on
    /// the rest.
    pub(super) fn seated(
        &mut self,
        candidate: &Candidate,
        prospect: &Prospect,
        hit: Hit,
    ) -> (Hit, Option<Vec<Part>>) {
        let parts = self.space.parts(&self.inventory, &prospect.request().need, &hit);
        let remembered = self.as_remembered(candidate, prospect, &hit, parts.as_deref());
        remembered.unwrap_or((hit, parts))
    }

    fn as_remembered(
        &mut self,
        candidate: &Candidate,
        prospect: &Prospect,
        hit: &Hit,
        parts: Option<&[Part]>,
    ) -> Option<(Hit, Option<Vec<Part>>)> {
        let within = self.space.realms().reservation(prospect.realm).map(|own| Arc::clone(&own.name));
        let partition = self.inventory.partitions[prospect.partition].partition.name();
        let is_same = |made: &&Arc<Reservation>| {
            Arc::ptr_eq(&made.spec, &candidate.spec)
                && made.start.max(self.now) == hit.start
                && made.lasts() == hit.lasts
                && made.partition == *partition
                && made.within == within
        };
        let job = candidate.attempt.job;
        let first = self.remembered.partition_point(|made| made.job < job);
        let known = self.remembered[first..].iter().take_while(|made| made.job == job).filter(is_same);
        let known: Vec<Arc<Reservation>> = known.map(Arc::clone).collect();
        if known.iter().any(|made| Some(&*made.parts) == parts) {
            return None;
        }
        let is_free = |made: &Arc<Reservation>| {
            let now = Reservation { start: hit.start, end: hit.start + hit.lasts, ..(**made).clone() };
            self.space.has(prospect.realm, &now)
                && (!hit.starts || now.parts.iter().all(|part| self.space.is_free(part)))
        };
        let made = known.into_iter().find(is_free)?;
        let fabric = &hit.eligible.fabric;
        let used = made.parts.iter().filter(|part| part.slots > 0);
        let mut shares: Vec<(Pos, u32)> =
            used.map(|part| Some((fabric.pos(part.node)?, part.slots))).collect::<Option<_>>()?;
        shares.sort_unstable();
        let positions: Vec<Pos> = shares.iter().map(|(pos, _)| *pos).collect();
        let (spans, common) = (fabric.spans(&positions), fabric.deepest_common(&positions));
        if hit.placement.spans.iter().rev().lt(spans.iter().rev()) {
            return None;
        }
        let placement = Placement { shares, spans, common, ..hit.placement.clone() };
        let hit = Hit { placement, lost: Vec::new(), ..hit.clone() };
        Some((hit, Some(made.parts.clone())))
    }

    /// Books a later start whose parts are known.
    pub(super) fn reservation(
        &mut self,
        candidate: &Candidate,
        turn: Turn,
        prospect: &Prospect,
        hit: &Hit,
        parts: Vec<Part>,
    ) -> Planned {
        let known = self.space.realms().known_until();
        let after = (self.explained <= EXPLAINED).then(|| self.frees(hit.start, &parts)).flatten();
        // Parts that are only closed to others come behind the used ones.
        let used = &parts[..parts.partition_point(|part| part.slots > 0)];
        let nodes = used.iter().map(|part| part.node).collect();
        let said = Waiting {
            start: Some(hit.start).filter(|start| start.since(self.now) < ENDLESS / 2 && *start < known),
            nodes,
            place: explain::place(hit),
            after,
            ..Waiting::of(candidate.attempt.job)
        };
        let made = Arc::new(Reservation {
            job: candidate.attempt.job,
            spec: Arc::clone(&candidate.spec),
            start: hit.start,
            end: hit.start + hit.lasts,
            partition: Arc::clone(self.inventory.partitions[prospect.partition].partition.name()),
            within: self.space.realms().reservation(prospect.realm).map(|own| Arc::clone(&own.name)),
            parts,
            told: said.start,
            turn,
        });
        self.book(candidate, &made);
        self.plan.report.reserved += 1;
        Planned { made, said }
    }

    /// The job whose end a planned start waits for, if any.
    fn frees(&self, at: Time, parts: &[Part]) -> Option<JobId> {
        let planned = self.ends.get(&at).into_iter().flatten().map(|index| &self.made[*index]);
        let shares = |made: &&Arc<Reservation>| {
            made.parts.iter().any(|mine| parts.iter().any(|part| part.node == mine.node))
        };
        self.space.ends_at(at, parts).or_else(|| planned.filter(shares).map(|made| made.job).next())
    }

    pub(super) fn remember(&mut self, made: Arc<Reservation>) {
        // Only for the first jobs does the plan name the job that frees the nodes.
        if self.explained <= EXPLAINED {
            self.ends.entry(made.end).or_default().push(self.made.len());
        }
        self.made.push(made);
    }

    /// The realm in which a later start was planned; `None` if its reservation is gone.
    pub(super) fn realm_of(&self, made: &Reservation) -> Option<usize> {
        match &made.within {
            Some(name) => self.space.realms().named(name),
            None => Some(OPEN),
        }
    }

    /// The head group of a later start; `None` if its partition or reservation is gone.
    pub(super) fn seat_of_made(&self, made: &Reservation) -> Option<usize> {
        Some(self.seat(self.inventory.partition(&made.partition)?, self.realm_of(made)?))
    }
}
