//! Where a job fits now, and when it does: answered from what is held and planned, without a timeline.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::id::NodeId;
use crate::model::fabric::Pos;
use crate::sched::inventory::amounts::{Amount, CPUS, RoomId};
use crate::sched::request::constraints::Stage;
use crate::sched::request::domains::{DomainTable, Domains, Kind};
use crate::sched::request::eligible_nodes::{EligibleNodes, NOWHERE, slots_by_position, with_others};
use crate::sched::timeline::needs::Needs;
use crate::sched::timeline::start_bounds::StartBounds;
use crate::text::time::Time;

use super::super::place::{Lost, Placement, Slots};
use super::super::space::{Aspect, Hit, Query};
use super::super::state::MAX_TRIES;
use super::super::state::trial::placed;
use super::idle_counts::Sights;
use super::ledger::Books;

/// Needs of which it is kept how often they fit which room.
const MOST_NEEDS: usize = 4_096;

/// What has been found out about needs, domains and sizes.
#[derive(Debug, Default)]
pub(super) struct Finder {
    pub(super) needs: Needs,
    domains: DomainTable,
    pub(super) start_bounds: StartBounds,
    tally: Tally,
    sights: Sights,
    /// Whether rivals are named with a start.
    pub(super) names_rivals: bool,
    /// Whether a search was given up, or a placement is not known to be the best.
    pub(super) in_doubt: bool,
}

impl Finder {
    /// Whether requests have asked for too many different things.
    pub(super) fn is_full(&self) -> bool {
        self.needs.count() > MOST_NEEDS
    }

    /// The earliest start in a stretch of time, and whether the search for it was given up.
    pub(super) fn search(
        &mut self,
        books: &Books,
        aspect: Aspect<'_>,
        times: Range<Time>,
    ) -> (Option<Hit>, bool) {
        let mut search = FitNow::new(books, self, aspect);
        let found = search.walk(times);
        let gave_up = search.tries >= MAX_TRIES;
        self.in_doubt |= gave_up;
        let hit = found.map(|(start, (placement, lost, starts))| {
            aspect.hit(&books.realms, (start, starts), (placement, lost))
        });
        (hit, gave_up)
    }

    /// Shows `look` the slots that are planned to be free at this moment and for as long as a job runs.
    pub(super) fn show_now<T>(
        &mut self,
        books: &Books,
        aspect: Aspect<'_>,
        look: impl FnOnce(&Slots) -> T,
    ) -> T {
        FitNow::new(books, self, aspect).see_now(|_, slots, _| look(slots))
    }
}

/// A search for nodes on which a job fits now.
struct FitNow<'a> {
    books: &'a Books,
    finder: &'a mut Finder,
    query: &'a Query<'a>,
    stage: &'a Stage,
    eligible: &'a Arc<EligibleNodes>,
    /// Times at which the job was tried.
    tries: u32,
}

/// A time with what was found then.
type PlacedAt = (Time, (Placement, Vec<Lost>, bool));

impl<'a> FitNow<'a> {
    fn new(books: &'a Books, finder: &'a mut Finder, aspect: Aspect<'a>) -> Self {
        let Aspect { query, stage, eligible } = aspect;
        Self { books, finder, query, stage, eligible, tries: 0 }
    }

    /// Walks the planned ends from a time on until another. Wherever some domain has enough, the job is tried.
    fn walk(&mut self, Range { start: from, end: until }: Range<Time>) -> Option<PlacedAt> {
        let domains = self.finder.domains.of(self.eligible, self.stage.ask());
        let wanted = (
            self.stage.asks.last().and_then(|ask| ask.nodes).map_or(1, |(min, _)| min),
            self.query.request.min_slots(),
        );
        // All it may have now is what nobody holds, but for nodes on which something is planned or should have ended.
        let is_seen = domains.kind != Kind::Nodes
            && self.stage.ask().minds_others(1).is_none()
            && from == self.books.now;
        if is_seen {
            let found = self.look_now(&domains, wanted);
            if found.is_some() || until == from + 1 {
                return found.map(|found| (from, found));
            }
        }
        let mut tally = std::mem::take(&mut self.finder.tally);
        let counts_nodes = self.query.request.need.counts_nodes();
        tally.begin(self.books.inventory.nodes.len(), &domains, wanted, counts_nodes);
        for index in self.eligible.admitted.ones() {
            let node = NodeId::at(index);
            if self.books.held.is_open(node) {
                let slots = self.slots_at(node, from);
                tally.set(&domains, node, slots);
            }
        }
        let found = if is_seen { None } else { self.look(&tally, from) };
        let found = match found {
            Some(found) => Some((from, found)),
            None => self.go_on(&mut tally, &domains, from, until),
        };
        self.finder.tally = tally;
        found
    }

    /// Tries to place the job at this moment on what its set of eligible nodes sees, if some domain has enough.
    fn look_now(&mut self, domains: &Domains, wanted: (u32, u64)) -> Option<(Placement, Vec<Lost>, bool)> {
        let enough = |(nodes, slots): (u32, u64)| nodes >= wanted.0 && slots >= wanted.1;
        self.see_now(|search, slots, held| {
            let has_enough = match domains.kind {
                Kind::Whole | Kind::Nodes => enough(slots.all()),
                Kind::Domains => domains.ids.iter().any(|id| enough((slots.nodes_of(*id), slots.of(*id)))),
            };
            if !has_enough {
                return None;
            }
            search.tries += 1;
            search.place_now(slots, held)
        })
    }

    /// Shows `look` what the set of eligible nodes sees of what is planned to be free at this moment, and positions where
    /// that is more than nobody holds, with what they have indeed.
    fn see_now<T>(&mut self, look: impl FnOnce(&mut Self, &mut Slots, &[(Pos, u32)]) -> T) -> T {
        let (books, eligible) = (self.books, self.eligible);
        let need = (self.query.need, &self.query.request.need);
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
        let seen = with_others(&eligible.fabric, slots, others, |slots| look(self, slots, &held));
        self.finder.sights = sights;
        seen
    }

    /// Places the job on what nobody holds, or else on what should be free by now; `held` are positions where that is more,
    /// with what they have indeed.
    fn place_now(&mut self, slots: &mut Slots, held: &[(Pos, u32)]) -> Option<(Placement, Vec<Lost>, bool)> {
        let (fabric, now) = (&self.eligible.fabric, self.books.now);
        if held.is_empty() {
            return self.place(slots, now, true);
        }
        let held = held.iter().copied();
        let found = with_others(fabric, slots, held, |slots| self.place(slots, now, true));
        slots.sum_up(fabric);
        found.or_else(|| self.place(slots, now, false))
    }

    fn go_on(&mut self, tally: &mut Tally, domains: &Domains, from: Time, until: Time) -> Option<PlacedAt> {
        tally.grew = false;
        let books = self.books;
        let held = &books.held;
        // Where something is planned, or shut, what a node has follows from all of the job's time.
        let planned = self.books.ahead.nodes();
        let special: FixedBitSet = planned.ones().filter(|node| self.may_use(NodeId::at(*node))).collect();
        let whole = self.stage.ask().whole_leaves;
        let watched = if whole { &planned } else { &special };
        let mut changes = self.changes(watched, from..until).into_iter().peekable();
        let mut sums: BTreeMap<NodeId, Amount> = BTreeMap::new();
        let mut ends =
            held.ends_after(from).take_while(|(end, _)| *end < until && !end.is_never()).peekable();
        loop {
            let next = ends.peek().map(|(end, _)| *end).into_iter().chain(changes.peek().map(|(at, _)| *at));
            let at = next.min()?;
            // A job that closes whole leaves waits for what others have there, whether it could use that itself or not.
            tally.grew |= whole;
            while let Some((_, holder)) = ends.next_if(|(end, _)| *end == at) {
                for (node, amount) in &holder.parts {
                    if !self.may_use(*node) {
                        continue;
                    }
                    if special.contains(node.index()) {
                        let slots = self.slots_at(*node, at);
                        tally.set(domains, *node, slots);
                        continue;
                    }
                    // Whoever is the last to leave leaves all there is.
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
                if special.contains(node.index()) {
                    let slots = self.slots_at(node, at);
                    tally.set(domains, node, slots);
                }
            }
            if !std::mem::take(&mut tally.grew) || tally.enough == 0 {
                continue;
            }
            for node in special.ones().map(NodeId::at) {
                let slots = self.slots_at(node, at);
                tally.set(domains, node, slots);
            }
            tally.grew = false;
            if let Some(found) = self.look(tally, at) {
                return Some((at, found));
            }
            if self.tries >= MAX_TRIES {
                return None;
            }
        }
    }

    fn may_use(&self, node: NodeId) -> bool {
        self.eligible.admitted.contains(node.index()) && self.books.held.is_open(node)
    }

    /// When what was planned of nodes is over, or they are shut no longer.
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

    /// Slots of a numbered room.
    fn slots_of(&mut self, room: RoomId) -> u32 {
        let known = self.finder.needs.known(self.query.need);
        known.slots(self.books.held.rooms(), &self.query.request.need, room)
    }

    /// Slots of what nobody holds of a node.
    fn idle_slots(&mut self, node: NodeId) -> u32 {
        self.slots_of(self.books.held.idle(node))
    }

    /// Slots of a node from a time on.
    fn slots_at(&mut self, node: NodeId, at: Time) -> u32 {
        if at > self.books.now {
            if let Some(room) = self.books.known_room(self.query.realm, node, at, self.query.run_time) {
                return self.slots_of(room);
            }
            let room = self.books.planned(self.query.realm, node, at, self.query.run_time);
            return room.map_or(0, |room| self.slots_in(node, &room));
        }
        let idle = self.idle_slots(node);
        // What is planned leaves no more, unless somebody should have gone by now.
        if idle == 0 && !self.books.overdue.contains_key(&node) {
            return 0;
        }
        let planned = self.books.planned(self.query.realm, node, at, self.query.run_time);
        planned.map_or(idle, |room| self.slots_in(node, &room))
    }

    fn slots_in(&self, node: NodeId, room: &[u64]) -> u32 {
        if room[CPUS] == 0 {
            return 0;
        }
        self.query.request.need.slots(&self.books.inventory.nodes[node.index()].shape, room)
    }

    /// Tries to place the job at a time, if some domain has enough.
    fn look(&mut self, tally: &Tally, at: Time) -> Option<(Placement, Vec<Lost>, bool)> {
        if tally.enough == 0 {
            return None;
        }
        self.tries += 1;
        if at > self.books.now {
            return self.place(&self.slots(tally.nodes()), at, false);
        }
        let mut held_back = false;
        let free = tally.nodes().map(|(node, slots)| {
            let free = self.idle_slots(node).min(slots);
            held_back |= free < slots;
            (node, free)
        });
        let free: Vec<(NodeId, u32)> = free.collect();
        let slots = self.slots(free);
        match self.place(&slots, at, true) {
            None if held_back || self.stage.ask().whole_leaves => {
                self.place(&self.slots(tally.nodes()), at, false)
            }
            found => found,
        }
    }

    /// Slots by position.
    fn slots(&self, nodes: impl IntoIterator<Item = (NodeId, u32)>) -> Slots {
        let fabric = &self.eligible.fabric;
        let nodes = nodes.into_iter().filter(|(_, slots)| *slots > 0);
        let nodes = nodes.filter_map(|(node, slots)| Some((self.eligible.position(node)?, slots)));
        let mut by_position = vec![0; fabric.len()];
        nodes.for_each(|(pos, slots)| by_position[pos.index()] = slots);
        slots_by_position(fabric, &self.query.request.need, by_position)
    }

    /// The best placement there is; for one that starts, with those that lost.
    fn place(&mut self, slots: &Slots, at: Time, starts: bool) -> Option<(Placement, Vec<Lost>, bool)> {
        let minds = self.stage.ask().minds_others(self.query.run_time);
        let occupied = minds.map(|seconds| {
            self.books.occupied(self.query.realm, &self.eligible.fabric, (at, seconds), starts)
        });
        let names = starts && self.finder.names_rivals;
        let (found, is_sure) = placed(self.eligible, &self.stage.asks, occupied.as_ref(), slots, names);
        self.finder.in_doubt |= !is_sure;
        found.map(|(placement, lost)| (placement, lost, starts))
    }
}

/// Slots of nodes and domains in one search; kept so that nothing is allocated anew.
#[derive(Debug, Default)]
struct Tally {
    slots: Vec<u32>,
    touched: Vec<NodeId>,
    /// Nodes and slots of every domain.
    sums: Vec<(u32, u64)>,
    /// Nodes and slots that are wanted of one domain.
    wanted: (u32, u64),
    /// Domains that have enough.
    enough: u32,
    /// Whether at most one slot of each node is taken.
    counts_nodes: bool,
    /// Whether a node got more that may help.
    grew: bool,
}

impl Tally {
    fn begin(&mut self, nodes: usize, domains: &Domains, wanted: (u32, u64), counts_nodes: bool) {
        for node in self.touched.drain(..) {
            self.slots[node.index()] = 0;
        }
        self.slots.resize(nodes, 0);
        self.sums.clear();
        self.sums.resize(domains.count, (0, 0));
        (self.wanted, self.counts_nodes, self.enough, self.grew) = (wanted, counts_nodes, 0, false);
    }

    /// Nodes that have had slots, with those they have.
    fn nodes(&self) -> impl Iterator<Item = (NodeId, u32)> {
        self.touched.iter().map(|node| (*node, self.slots[node.index()]))
    }

    /// Gives a node other slots and keeps the sums right.
    fn set(&mut self, domains: &Domains, node: NodeId, slots: u32) {
        let before = std::mem::replace(&mut self.slots[node.index()], slots);
        if before == slots {
            return;
        }
        if before == 0 {
            self.touched.push(node);
        }
        self.grew |= if self.counts_nodes { before == 0 } else { slots > before };
        let domain = domains.of_node[node.index()];
        if domain == NOWHERE {
            return;
        }
        let wanted = self.wanted;
        let enough = |(nodes, slots): (u32, u64)| nodes >= wanted.0 && slots >= wanted.1;
        let sum = &mut self.sums[domain as usize];
        let had = enough(*sum);
        sum.0 = sum.0 - u32::from(before > 0) + u32::from(slots > 0);
        sum.1 = sum.1 - u64::from(before) + u64::from(slots);
        self.enough = self.enough - u32::from(had) + u32::from(enough(*sum));
    }
}
