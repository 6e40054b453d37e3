//! The state that quick passes plan on, kept from pass to pass and updated by events.
//!
//! While nothing is planned on a node and the node is not reserved, its free amount only grows as jobs end.
//! So a walk over the planned ends finds the earliest start of a job. Whether a job fits now depends only on
//! idle amounts and, if it lasts that long, on what later claims and reservations leave.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::cluster::Cluster;
use crate::id::{JobId, NodeId};
use crate::model::config::Backfill;
use crate::model::fabric::Fabric;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{Amount, RoomId, Rooms, is_within};
use crate::sched::place::Slots;
use crate::sched::planned_starts::{Reservation, Turn};
use crate::sched::request::Part;
use crate::sched::request::eligible_nodes::positions_where;
use crate::sched::space::{Aspect, Findings, Hit, Space};
use crate::sched::state::MAX_TRIES;
use crate::sched::timeline::held::{Held, Holder};
use crate::sched::timeline::licenses::{Licenses, WantedLicenses};
use crate::sched::timeline::realm::{OPEN, Realms};
use crate::sched::timeline::start_bounds::StartBounds;
use crate::text::time::Time;

use super::ahead::Ahead;
use super::fit_now::{Finder, FitNow};

/// Nodes and licenses, with the findings about them. The struct is moved often, so its parts are boxed.
#[derive(Debug)]
pub(super) struct Ledger {
    pub(super) books: Box<Books>,
    pub(super) finder: Box<Finder>,
    /// The bounds on starts while a later start is taken out.
    aside: Option<(Turn, StartBounds)>,
}

/// The held and planned amounts.
#[derive(Debug)]
pub(super) struct Books {
    pub(super) inventory: Arc<Inventory>,
    pub(super) now: Time,
    pub(super) held: Held,
    pub(super) ahead: Ahead,
    pub(super) realms: Realms,
    pub(super) licenses: Licenses,
    /// The windows of reservations that have licenses, by realm.
    pub(super) licensed: Vec<(usize, Vec<(Time, Time)>)>,
    /// Nodes of overdue jobs, with the amount that they have when these are gone.
    pub(super) overdue: BTreeMap<NodeId, Amount>,
    /// For each component of partitions, the beginning of its first later start, where later starts are
    /// planned anew in every pass.
    pub(super) firsts: Vec<Option<Time>>,
    /// True if the next pass may find something even without an event.
    pub(super) restless: bool,
}

impl Books {
    /// Recomputes the windows in which licenses are reserved. Returns whether any changed.
    pub(super) fn license(&mut self) -> bool {
        let ahead =
            |windows: &[(Time, Time)]| windows.iter().copied().filter(|(_, to)| *to > self.now).collect();
        let licensed = self.realms.licensed().map(|(realm, _, windows)| (realm, ahead(windows)));
        let licensed: Vec<_> = licensed.collect();
        let before = std::mem::replace(&mut self.licensed, licensed);
        before != self.licensed
    }

    /// The amount that a node has for all of `seconds` from a time on; `None` if that is its idle amount.
    pub(super) fn planned(&self, realm: usize, node: NodeId, at: Time, seconds: u64) -> Option<Amount> {
        let to = at + seconds;
        if realm == OPEN && self.ahead.is_shut(node, at, to) {
            return Some(Amount::from_elem(0, self.held.full(node).len()));
        }
        let is_now = at <= self.now;
        let overdue = self.overdue.get(&node).filter(|_| is_now);
        let meets = self.ahead.on(node).first().is_some_and(|claim| claim.from < to);
        if is_now && overdue.is_none() && !meets {
            return None;
        }
        let mut room = match overdue {
            Some(room) => room.clone(),
            None if is_now => Amount::from_slice(self.held.rooms.amount(self.held.idle(node))),
            None => self.held.at(node, at),
        };
        if meets {
            self.ahead.leave(node, &mut room, at, to);
        }
        Some(room)
    }

    /// The number of the amount that a node has for all of `seconds` from a time on. `None` if a claim or
    /// window interferes, or if only some of its holders have ended by then.
    pub(super) fn known_room(&self, realm: usize, node: NodeId, at: Time, seconds: u64) -> Option<RoomId> {
        let to = at + seconds;
        let meets = self.ahead.on(node).first().is_some_and(|claim| claim.from < to);
        if meets || (realm == OPEN && self.ahead.is_shut(node, at, to)) {
            return None;
        }
        match at <= self.now {
            true => Some(self.held.idle(node)).filter(|_| !self.overdue.contains_key(&node)),
            false => self.held.known_at(node, at),
        }
    }

    /// Positions that are not entirely free from `at` on for `seconds`; for a start, also those that some job
    /// still holds.
    pub(super) fn occupied(
        &self,
        realm: usize,
        fabric: &Fabric,
        (at, seconds): (Time, u64),
        starts: bool,
    ) -> FixedBitSet {
        positions_where(fabric, |node| {
            let full = self.held.full(node);
            let is_idle = self.held.rooms.amount(self.held.idle(node)) == full;
            let planned = || self.planned(realm, node, at, seconds).map_or(is_idle, |room| *room == *full);
            (starts && !is_idle) || (self.inventory.nodes[node.index()].available && !planned())
        })
    }
}

impl Ledger {
    /// A ledger with the held amounts of a cluster.
    pub(super) fn new(inventory: &Arc<Inventory>, held: Held, now: Time) -> Self {
        let books = Box::new(Books {
            inventory: Arc::clone(inventory),
            now,
            held,
            ahead: Ahead::new(inventory.nodes.len()),
            realms: Realms::new(&inventory.reservations, now),
            licenses: Licenses::default(),
            licensed: Vec::new(),
            overdue: BTreeMap::new(),
            firsts: vec![None; inventory.partitions.len()],
            restless: false,
        });
        Self { books, finder: Box::default(), aside: None }
    }

    /// Begins a pass: recomputes everything that depends on the time alone.
    pub(super) fn begin<'a>(
        &mut self,
        cluster: &Cluster,
        planned: impl Iterator<Item = &'a Arc<Reservation>>,
    ) {
        let books = &mut self.books;
        let now = books.now;
        let ends = books.held.ends().map(|(end, job)| (end.max(now), job));
        books.licenses = Licenses::new(cluster, &books.realms, ends, now);
        if !cluster.policy().licenses.is_empty() {
            for made in planned {
                books.licenses.take(made.asked(&books.realms), made.start, made.end, false);
            }
        }
        let nodes = books.held.overdue(now).flat_map(|holder| holder.parts.iter().map(|(node, _)| *node));
        books.overdue = nodes.map(|node| (node, books.held.at(node, now))).collect();
        books.restless = false;
    }

    /// Removes all plans for later.
    pub(super) fn forget(&mut self, cluster: &Cluster) {
        self.books.ahead.clear();
        self.books.firsts.fill(None);
        self.forget_times();
        self.begin(cluster, std::iter::empty());
    }

    /// Forgets the bounds on starts, because resources were given back.
    pub(super) fn forget_times(&mut self) {
        self.findings().start_bounds.clear();
        self.aside = None;
    }
}

impl Space for Ledger {
    fn now(&self) -> Time {
        self.books.now
    }

    fn realms(&self) -> &Realms {
        &self.books.realms
    }

    fn licenses(&self) -> &Licenses {
        &self.books.licenses
    }

    fn findings(&mut self) -> &mut Findings {
        &mut self.finder.findings
    }

    fn doubt(&mut self) {
        self.books.restless = true;
    }

    fn search(&mut self, aspect: Aspect<'_>, times: Range<Time>) -> (Option<Hit>, bool) {
        let mut search = FitNow { books: &self.books, finder: &mut self.finder, aspect, tries: 0 };
        let found = search.walk(times);
        let gave_up = search.tries >= MAX_TRIES;
        let in_doubt = std::mem::take(&mut self.finder.in_doubt) || gave_up;
        // Jobs may end without an event in leaves that one job has to itself.
        self.books.restless |= aspect.stage.ask().whole_leaves || in_doubt;
        (found.map(|(start, placed)| aspect.hit(&self.books.realms, start, placed)), gave_up)
    }

    fn show_now<T>(&mut self, aspect: Aspect<'_>, look: impl FnOnce(&Slots) -> Option<T>) -> Option<T> {
        let now = self.now();
        let (hit, _) = self.search(aspect, now..now + 1);
        let mut search = FitNow { books: &self.books, finder: &mut self.finder, aspect, tries: 0 };
        if hit.is_some() { None } else { search.see_now(|_, slots, _| look(slots)) }
    }

    fn start(&mut self, job: JobId, task: bool, parts: &[Part], asked: (usize, &WantedLicenses), lasts: u64) {
        let books = &mut self.books;
        let (now, end) = (books.now, books.now + lasts);
        books.licenses.take(asked, now, end, true);
        // If less is free at the time of a later start, other nodes may be better for it.
        let mut components = parts.iter().filter_map(|part| books.held.component(part.node));
        let meets = components.any(|of| books.firsts[of].is_some_and(|from| end > from));
        books.restless |= meets && books.inventory.nodes.len() > 1;
        for part in parts {
            books.ahead.shrink(part.node, end, &part.taken);
        }
        let held = parts.iter().map(|part| (part.node, Arc::clone(&part.taken))).collect();
        if task {
            books.held.put_task(job, end, held);
        } else {
            books.held.put(job, end, held);
        }
        for part in parts {
            if let Some(room) = books.overdue.get_mut(&part.node) {
                *room = books.held.at(part.node, now);
            }
        }
        self.aside = None;
    }

    fn reserve(&mut self, made: &Reservation) {
        let books = &mut self.books;
        books.licenses.take(made.asked(&books.realms), made.start, made.end, false);
        let replans = books.inventory.policy.scheduler.backfill != Backfill::Conservative;
        for part in &made.parts {
            let times = (made.start, made.end);
            books.ahead.claim(&books.held, part.node, times, made.turn, &part.taken);
            if let Some(component) = books.held.component(part.node).filter(|_| replans) {
                let first = &mut books.firsts[component];
                *first = Some(first.map_or(made.start, |first| first.min(made.start)));
            }
        }
        if let Some((_, start_bounds)) = self.aside.take_if(|(turn, _)| *turn == made.turn) {
            self.findings().start_bounds = start_bounds;
        }
    }

    fn release(&mut self, made: &Reservation) {
        let Books { licenses, realms, .. } = &mut *self.books;
        licenses.give_back(made.asked(realms), made.start, made.end);
        made.parts.iter().for_each(|part| self.books.ahead.drop_claim(part.node, made.turn));
        self.aside = Some((made.turn, std::mem::take(&mut self.findings().start_bounds)));
    }

    fn has_part(&mut self, realm: usize, made: &Reservation, part: &Part) -> Option<bool> {
        let Books { inventory, ahead, held, .. } = &*self.books;
        inventory.nodes[part.node.index()].available.then(|| {
            let is_shut = realm == OPEN && ahead.is_shut(part.node, made.start, made.end);
            let room = || ahead.before(held, part.node, &made.turn, (made.start, made.end));
            !is_shut && is_within(&part.taken, &room())
        })
    }

    fn is_free(&self, part: &Part) -> bool {
        is_within(&part.taken, self.books.held.rooms.amount(self.books.held.idle(part.node)))
    }

    fn ends_at(&self, at: Time, parts: &[Part]) -> Option<JobId> {
        let frees = |holder: &Holder| {
            holder.parts.iter().any(|(node, _)| parts.iter().any(|part| part.node == *node))
        };
        self.books.held.ending(at).find(|(_, holder)| frees(holder)).map(|(job, _)| job)
    }

    fn shut(&self, realm: usize, until: Time) -> Option<FixedBitSet> {
        let books = &self.books;
        (realm == OPEN && !books.realms.is_single())
            .then(|| books.ahead.shut_between(books.now, until).map(NodeId::index).collect())
    }

    fn room(&mut self, realm: usize, node: NodeId, at: Time, seconds: u64, starts: bool) -> Option<RoomId> {
        let books = &mut *self.books;
        if !books.inventory.nodes[node.index()].available {
            return None;
        }
        if let Some(room) = books.known_room(realm, node, at, seconds) {
            return Some(room);
        }
        let idle = books.held.idle(node);
        let Some(room) = books.planned(realm, node, at, seconds) else { return Some(idle) };
        let room = books.held.intern(node, &room);
        Some(if starts { books.held.rooms.common(room, idle) } else { room })
    }

    fn rooms(&mut self) -> &mut Rooms {
        &mut self.books.held.rooms
    }

    fn occupied(&self, realm: usize, fabric: &Fabric, times: (Time, u64), starts: bool) -> FixedBitSet {
        self.books.occupied(realm, fabric, times, starts)
    }

    fn moments(&self, _realm: usize) -> Vec<Time> {
        let Books { held, ahead, now, .. } = &*self.books;
        let claims = ahead.claims().flat_map(|(_, claims)| claims).flat_map(|claim| [claim.from, claim.to]);
        let ends = held.ends_after(*now).map(|(end, _)| end);
        ends.chain(claims).chain(ahead.bounds.iter().copied()).chain([*now]).collect()
    }
}
