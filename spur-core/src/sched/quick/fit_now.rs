//! The nodes on which a job fits now, and its earliest start, computed from held and planned amounts without
//! a timeline.

use std::collections::BTreeMap;
use std::ops::Range;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::{DomainId, Pos};
use crate::sched::inventory::amounts::{Amount, CPUS, RoomId};
use crate::sched::request::domains::{Domains, Kind};
use crate::sched::request::eligible_nodes::{slots_by_position, with_others};
use crate::sched::timeline::sweep::{DomainSums, Wanted};
use crate::text::time::Time;

use super::super::place::Slots;
use super::super::space::{Aspect, Findings, Placed};
use super::super::state::MAX_TRIES;
use super::super::state::trial::{place, place_now};
use super::idle_counts::Sights;
use super::ledger::Books;

/// Number of needs above which all findings are forgotten.
const MOST_NEEDS: usize = 4_096;

/// The findings about needs, domains and sizes, kept from job to job.
#[derive(Debug, Default)]
pub(super) struct Finder {
    pub(super) findings: Findings,
    tally: Tally,
    sights: Sights,
    /// True if some placement is not known to be the best.
    pub(super) in_doubt: bool,
}

impl Finder {
    /// True if requests have had too many different needs.
    pub(super) fn is_full(&self) -> bool {
        self.findings.needs.count() > MOST_NEEDS
    }
}

/// A search for nodes on which a job fits now.
pub(super) struct FitNow<'a> {
    pub(super) books: &'a Books,
    pub(super) finder: &'a mut Finder,
    pub(super) aspect: Aspect<'a>,
    /// Number of times at which the job was tried.
    pub(super) tries: u32,
}

impl FitNow<'_> {
    /// Visits the planned ends in a range of times, its start included. Wherever some domain has enough, the
    /// job is tried.
    pub(super) fn walk(&mut self, Range { start: from, end: until }: Range<Time>) -> Option<(Time, Placed)> {
        let Aspect { query, stage, eligible } = self.aspect;
        let domains = self.finder.findings.domains.of(eligible, stage.ask());
        // The job may use exactly the idle amounts now, except on nodes with planned use or overdue jobs.
        let is_seen =
            domains.kind != Kind::Nodes && stage.ask().minds_others(1).is_none() && from == self.books.now;
        if is_seen {
            let found = self.look_now(&domains);
            if found.is_some() || until == from + 1 {
                return found.map(|found| (from, found));
            }
        }
        let mut tally = std::mem::take(&mut self.finder.tally);
        let counts_nodes = query.request.need.counts_nodes();
        tally.begin(self.books.inventory.nodes.len(), &domains, self.aspect.wanted(), counts_nodes);
        let admitted = eligible.admitted.ones().map(NodeId::at);
        admitted.for_each(|node| self.count(&mut tally, &domains, (node, from)));
        let found = if is_seen { None } else { self.look(&tally, from).map(|placed| (from, placed)) };
        let found = found.or_else(|| self.go_on(&mut tally, &domains, from, until));
        self.finder.tally = tally;
        found
    }

    /// Tries to place the job now on the kept idle slots of its eligible nodes, if some domain has enough.
    fn look_now(&mut self, domains: &Domains) -> Option<Placed> {
        let (books, wanted) = (self.books, self.aspect.wanted());
        self.see_now(|search, slots, held| {
            let has_enough = |id: &DomainId| wanted.is_met((slots.nodes_of(*id), slots.of(*id)));
            let has_enough = match domains.kind {
                Kind::Whole | Kind::Nodes => wanted.is_met(slots.all()),
                Kind::Domains => domains.ids.iter().any(has_enough),
            };
            if !has_enough {
                return None;
            }
            search.tries += 1;
            place_now(search.aspect, slots, held, |slots, starts| search.place(slots, books.now, starts))
        })
    }

    /// Calls `look` with the slots that are planned to be free now, and with positions that have fewer free,
    /// with their free slots.
    pub(super) fn see_now<T>(&mut self, look: impl FnOnce(&mut Self, &mut Slots, Vec<(Pos, u32)>) -> T) -> T {
        let (books, Aspect { query, eligible, .. }) = (self.books, self.aspect);
        let need = (query.need, &query.request.need);
        let mut sights = std::mem::take(&mut self.finder.sights);
        let slots = sights.of(&books.held, eligible, need, |node| self.idle_slots(node));
        let special = books.ahead.special().chain(books.overdue.keys().copied());
        let special = special.filter(|node| books.held.is_open(*node));
        let mut held: Vec<(Pos, u32)> = Vec::new();
        let others = special.filter_map(|node| Some((node, eligible.pos(node.0)?))).map(|(node, pos)| {
            let (planned, free) = (self.slots_at(node, books.now), self.idle_slots(node));
            held.extend((free < planned).then_some((pos, free)));
            (pos, planned)
        });
        let others: Vec<(Pos, u32)> = others.collect();
        let seen = with_others(&eligible.fabric, slots, others, |slots| look(self, slots, held));
        self.finder.sights = sights;
        seen
    }

    fn go_on(
        &mut self,
        tally: &mut Tally,
        domains: &Domains,
        from: Time,
        until: Time,
    ) -> Option<(Time, Placed)> {
        tally.grew = false;
        let books = self.books;
        let held = &books.held;
        // On nodes with claims or windows the amount depends on all of the job's time.
        let whole = self.aspect.stage.ask().whole_leaves;
        let special = books.ahead.special().filter(|node| whole || self.may_use(*node));
        let special: FixedBitSet = special.map(NodeId::index).collect();
        let mut changes = self.changes(&special, from..until).into_iter().peekable();
        let mut sums: BTreeMap<NodeId, Amount> = BTreeMap::new();
        let mut ends =
            held.ends_after(from).take_while(|(end, _)| *end < until && !end.is_never()).peekable();
        loop {
            let next = ends.peek().map(|(end, _)| *end).into_iter().chain(changes.peek().map(|(at, _)| *at));
            let at = next.min()?;
            // A job that closes whole leaves waits for all resources there, whether it may use them or not.
            tally.grew |= whole;
            while let Some((_, holder)) = ends.next_if(|(end, _)| *end == at) {
                for (node, amount) in &holder.parts {
                    if !self.may_use(*node) {
                        continue;
                    }
                    if special.contains(node.index()) {
                        self.count(tally, domains, (*node, at));
                        continue;
                    }
                    // After the last holder has ended, the whole node is free.
                    if let Some(room) = held.known_at(*node, at) {
                        tally.set(domains, *node, self.slots_of(room));
                        continue;
                    }
                    let sum = sums.entry(*node).or_insert_with(|| held.sum_after(*node, from));
                    sum.iter_mut().zip(&**amount).for_each(|(sum, less)| *sum -= less);
                    let slots = self.slots_in(*node, &held.left(*node, sum));
                    tally.set(domains, *node, slots);
                }
            }
            while let Some((_, node)) = changes.next_if(|(time, _)| *time == at) {
                self.count(tally, domains, (node, at));
            }
            if !std::mem::take(&mut tally.grew) || tally.domains.enough == 0 {
                continue;
            }
            special.ones().for_each(|node| self.count(tally, domains, (NodeId::at(node), at)));
            tally.grew = false;
            if let Some(found) = self.look(tally, at) {
                return Some((at, found));
            }
            if self.tries >= MAX_TRIES {
                return None;
            }
        }
    }

    /// Counts the slots of a node from a time on, if the node may be used.
    fn count(&mut self, tally: &mut Tally, domains: &Domains, (node, at): (NodeId, Time)) {
        if self.may_use(node) {
            let slots = self.slots_at(node, at);
            tally.set(domains, node, slots);
        }
    }

    fn may_use(&self, node: NodeId) -> bool {
        self.aspect.eligible.admitted.contains(node.index()) && self.books.held.is_open(node)
    }

    /// The times at which claims end or windows of reservations close.
    fn changes(&self, nodes: &FixedBitSet, times: Range<Time>) -> Vec<(Time, NodeId)> {
        let ahead = &self.books.ahead;
        let claims = |node| ahead.on(node).iter().map(|claim| claim.to);
        let windows = |node| ahead.windows(node).iter().map(|(_, to)| *to);
        let nodes = nodes.ones().map(NodeId::at);
        let all = nodes.flat_map(|node| claims(node).chain(windows(node)).map(move |at| (at, node)));
        let mut all: Vec<(Time, NodeId)> =
            all.filter(|(at, _)| times.start < *at && *at < times.end && !at.is_never()).collect();
        all.sort_unstable();
        all
    }

    /// Number of slots of a numbered amount.
    fn slots_of(&mut self, room: RoomId) -> u32 {
        let query = self.aspect.query;
        let known = self.finder.findings.needs.known(query.need);
        known.slots(&self.books.held.rooms, &query.request.need, room)
    }

    /// Number of slots of the idle amount of a node.
    fn idle_slots(&mut self, node: NodeId) -> u32 {
        self.slots_of(self.books.held.idle(node))
    }

    /// Number of slots of a node from a time on.
    fn slots_at(&mut self, node: NodeId, at: Time) -> u32 {
        let query = self.aspect.query;
        if at > self.books.now {
            if let Some(room) = self.books.known_room(query.realm, node, at, query.run_time) {
                return self.slots_of(room);
            }
            let room = self.books.planned(query.realm, node, at, query.run_time);
            return room.map_or(0, |room| self.slots_in(node, &room));
        }
        let idle = self.idle_slots(node);
        // Plans leave no more than the idle amount, unless a job is overdue.
        if idle == 0 && !self.books.overdue.contains_key(&node) {
            return 0;
        }
        let planned = self.books.planned(query.realm, node, at, query.run_time);
        planned.map_or(idle, |room| self.slots_in(node, &room))
    }

    fn slots_in(&self, node: NodeId, room: &[u64]) -> u32 {
        if room[CPUS] == 0 {
            return 0;
        }
        self.aspect.query.request.need.slots(&self.books.inventory.nodes[node.index()].shape, room)
    }

    /// Tries to place the job at a time, if some domain has enough.
    fn look(&mut self, tally: &Tally, at: Time) -> Option<Placed> {
        if tally.domains.enough == 0 {
            return None;
        }
        self.tries += 1;
        let Aspect { query, eligible, .. } = self.aspect;
        let (mut by_position, mut held) = (vec![0; eligible.fabric.len()], Vec::new());
        for (node, slots) in tally.nodes().filter(|(_, slots)| *slots > 0) {
            let Some(pos) = eligible.position(node) else { continue };
            by_position[pos.index()] = slots;
            if at == self.books.now {
                let free = self.idle_slots(node);
                held.extend((free < slots).then_some((pos, free)));
            }
        }
        let mut slots = slots_by_position(&eligible.fabric, &query.request.need, by_position);
        if at > self.books.now {
            return self.place(&slots, at, false);
        }
        place_now(self.aspect, &mut slots, held, |slots, starts| self.place(slots, at, starts))
    }

    /// The best placement at a time; for a start, with the domains that lost.
    fn place(&mut self, slots: &Slots, at: Time, starts: bool) -> Option<Placed> {
        let Aspect { query, stage, eligible } = self.aspect;
        let minds = stage.ask().minds_others(query.run_time);
        let occupied =
            minds.map(|seconds| self.books.occupied(query.realm, &eligible.fabric, (at, seconds), starts));
        let names_rivals = self.finder.findings.names_rivals;
        let books = self.books;
        let free = |node: NodeId| query.request.need.scarcest(&books.held.rooms, books.held.idle(node));
        let free: Option<&dyn Fn(NodeId) -> u64> = if at == books.now { Some(&free) } else { None };
        let (found, is_sure) = place(self.aspect, occupied.as_ref(), (slots, free), (starts, names_rivals));
        self.finder.in_doubt |= !is_sure;
        found
    }
}

/// The slots of nodes and domains in one search; reused.
#[derive(Debug, Default)]
struct Tally {
    slots: Vec<u32>,
    touched: Vec<NodeId>,
    domains: DomainSums,
    /// The nodes and slots that one domain must have.
    wanted: Wanted,
    /// True if at most one slot of each node is taken.
    counts_nodes: bool,
    /// True if a node got slots that may help.
    grew: bool,
}

impl Tally {
    fn begin(&mut self, nodes: usize, domains: &Domains, wanted: Wanted, counts_nodes: bool) {
        for node in self.touched.drain(..) {
            self.slots[node.index()] = 0;
        }
        self.slots.resize(nodes, 0);
        self.domains.sums.clear();
        self.domains.sums.resize(domains.count, (0, 0));
        self.domains.enough = 0;
        (self.wanted, self.counts_nodes, self.grew) = (wanted, counts_nodes, false);
    }

    /// Nodes that have had slots, with their current slots.
    fn nodes(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.touched.iter().map(|node| (*node, self.slots[node.index()]))
    }

    /// Sets the slots of a node and updates the sums.
    fn set(&mut self, domains: &Domains, node: NodeId, slots: u32) {
        let before = std::mem::replace(&mut self.slots[node.index()], slots);
        if before == slots {
            return;
        }
        if before == 0 {
            self.touched.push(node);
        }
        self.grew |= if self.counts_nodes { before == 0 } else { slots > before };
        self.domains.change(self.wanted, domains.of_node[node.index()], before, slots);
    }
}
