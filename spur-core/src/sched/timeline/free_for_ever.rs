//! For each domain, the times from which its nodes are free for ever. These give the earliest time at which
//! some domain can hold a job, without counting slots.
//!
//! On a busy machine most of what a job of whole nodes, or of one slot on each node, can use is free for
//! ever: it begins behind the last planned use of a node. A domain has n such nodes from the n-th of its
//! sorted times on. Holes that end are few, and are examined one by one. The times are kept only for needs
//! that are searched for again and again, and only for layers of small domains.

use std::collections::BTreeMap;

use crate::model::fabric::Layer;

use super::holes::Hole;
use super::needs::Seen;
use super::second::Second;
use super::sweep::SweepRequest;
use crate::sched::request::eligible_nodes::NOWHERE;

/// Number of changes of the timeline between two searches for a need, up to which the searches count as near.
const NEAR: usize = 64;
/// Number of near searches in a row from which keeping the times is worth while.
const ENOUGH: u32 = 2;
/// Number of changes since the last search up to which updating is cheaper than computing anew.
const FAR: usize = 512;
/// Number of holes that end up to which they are examined one by one.
const FEW: usize = 64;
/// Number of nodes of a domain up to which its times are kept in order and it is examined hole by hole.
const SMALL: usize = 128;

/// The times of every need that is searched for often, by realm, outline, need and layer.
#[derive(Clone, Debug, Default)]
pub(crate) struct FreeForEver {
    known: BTreeMap<(usize, usize, usize, Layer), KnownSince>,
}

#[derive(Clone, Debug, Default)]
struct KnownSince {
    /// Number of changes of the timeline at the last search.
    followed: usize,
    /// Number of near searches in a row.
    near: u32,
    order: Option<Order>,
}

/// The earliest time at which some domain has enough nodes, and the domain if there is only one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Earliest {
    pub(crate) at: Second,
    pub(crate) sole: Option<u32>,
}

impl FreeForEver {
    /// The earliest time at which some domain of a layer has enough nodes with a slot for a search;
    /// [`Second::NEVER`] if none ever does. `None` if the times are not kept for this search.
    pub(crate) fn earliest(
        &mut self,
        (realm, need, layer): (usize, usize, Layer),
        search: &SweepRequest<'_>,
        seen: &mut Seen<'_>,
    ) -> Option<Earliest> {
        let mut asked = Question { search, seen };
        let timeline = search.timeline;
        let known = self.known.entry((realm, search.eligible.outline, need, layer)).or_default();
        let before = std::mem::replace(&mut known.followed, timeline.changes());
        let passed = timeline.changes() - before;
        known.near = if passed <= NEAR { known.near.saturating_add(1) } else { 0 };
        known.order = known.order.take().filter(|_| passed <= FAR);
        let order = match &mut known.order {
            Some(order) => {
                for node in timeline.changed_since(before) {
                    order.count(node, &mut asked);
                }
                order
            }
            None if search.domains.largest > SMALL || known.near < ENOUGH => return None,
            None => known.order.insert(Order::new(&mut asked)),
        };
        order.earliest(&mut asked)
    }
}

/// A search, with the slots of each amount for its need.
struct Question<'a, 's> {
    search: &'a SweepRequest<'a>,
    seen: &'a mut Seen<'s>,
}

/// The times from which nodes have a slot for ever.
#[derive(Clone, Debug)]
struct Order {
    /// For each node, the time from which it has a slot for ever; [`Second::NEVER`] for never.
    since: Vec<Second>,
    /// The first times of all domains, then their second times, and so on, so that the n-th times of all
    /// domains are adjacent; [`Second::NEVER`] where a domain has no more.
    ranks: Vec<Second>,
    domains: usize,
}

impl Order {
    fn new(asked: &mut Question<'_, '_>) -> Self {
        let search = asked.search;
        let domains = search.domains.count;
        let mut lists: Vec<Vec<Second>> = vec![Vec::new(); domains];
        let mut since = vec![Second::NEVER; search.domains.of_node.len()];
        for (node, domain) in (0..).zip(&search.domains.of_node).filter(|(_, domain)| **domain != NOWHERE) {
            since[node as usize] = asked.tail(node);
            lists[*domain as usize].push(since[node as usize]);
        }
        let most = lists.iter().map(Vec::len).max().unwrap_or(0);
        let mut ranks = vec![Second::NEVER; most * domains];
        for (domain, mut list) in lists.into_iter().enumerate() {
            list.sort_unstable();
            list.into_iter().enumerate().for_each(|(rank, time)| ranks[rank * domains + domain] = time);
        }
        Self { since, ranks, domains }
    }

    /// The times of a domain, in order.
    fn of(&self, domain: u32) -> impl Iterator<Item = Second> + '_ {
        self.ranks.iter().skip(domain as usize).step_by(self.domains.max(1)).copied()
    }

    /// For every domain, the time from which it has `nodes` nodes that are free for ever.
    fn with_nodes(&self, nodes: u32) -> &[Second] {
        let first = (nodes.max(1) as usize - 1) * self.domains;
        self.ranks.get(first..first + self.domains).unwrap_or_default()
    }

    /// Updates the time of a node.
    fn count(&mut self, node: u32, asked: &mut Question<'_, '_>) {
        let domain = asked.search.domains.of_node[node as usize];
        if domain == NOWHERE {
            return;
        }
        let after = asked.tail(node);
        let before = std::mem::replace(&mut self.since[node as usize], after);
        if after == before {
            return;
        }
        let stride = self.domains;
        let mut at = domain as usize;
        while self.ranks[at] < before.min(after) {
            at += stride;
        }
        // The times between the old and the new one move by one place.
        if after > before {
            while let Some(next) = self.ranks.get(at + stride).copied().filter(|next| *next < after) {
                self.ranks[at] = next;
                at += stride;
            }
            self.ranks[at] = after;
        } else {
            let mut carried = after;
            loop {
                carried = std::mem::replace(&mut self.ranks[at], carried);
                if carried == before {
                    break;
                }
                at += stride;
            }
        }
    }

    fn earliest(&self, asked: &mut Question<'_, '_>) -> Option<Earliest> {
        let search = asked.search;
        let alone = self.with_nodes(search.wanted.nodes);
        let mut best = Earliest::of(alone, search.from);
        let mut ending = asked.endings(best.at)?;
        let domain_of = |hole: &Hole| search.domains.of_node[hole.node as usize];
        ending.sort_unstable_by_key(|hole| (domain_of(hole), hole.start));
        for holes in ending.chunk_by(|a, b| domain_of(a) == domain_of(b)) {
            let domain = domain_of(holes[0]);
            let alone = alone.get(domain as usize).map_or(Second::NEVER, |at| (*at).max(search.from));
            if let Some(at) = self.with(holes, domain, search, best.at).filter(|at| *at < alone) {
                best.offer(at, domain);
            }
        }
        Some(best)
    }

    /// The time at which a domain has enough nodes, holes that end included; `None` if that is after
    /// `latest`.
    fn with(
        &self,
        holes: &[&Hole],
        domain: u32,
        search: &SweepRequest<'_>,
        latest: Second,
    ) -> Option<Second> {
        let enough = |at: &Second| {
            let needed = at.after(search.duration);
            let serves = |hole: &&Hole| {
                hole.start <= *at && hole.end >= needed && self.since[hole.node as usize] > *at
            };
            let serving = holes.iter().enumerate().filter(|(_, hole)| serves(hole));
            let is_first = |(index, hole): &(usize, &&Hole)| {
                !holes[..*index].iter().any(|other| other.node == hole.node && serves(other))
            };
            let free_for_ever = self.of(domain).take_while(|start| start <= at).count();
            free_for_ever + serving.filter(is_first).count() >= search.wanted.nodes as usize
        };
        let free_for_ever =
            self.of(domain).filter(|start| *start > search.from).take_while(|start| *start <= latest);
        let more = holes.iter().map(|hole| hole.start.max(search.from));
        let mut moments: Vec<Second> = free_for_ever.chain(more).chain([search.from]).collect();
        moments.retain(|at| *at <= latest && !at.is_never());
        moments.sort_unstable();
        moments.iter().find(|at| enough(at)).copied()
    }
}

impl Earliest {
    /// The earliest of the times at which domains have enough; no time is before `from`.
    fn of(times: &[Second], from: Second) -> Self {
        let first = times.iter().fold(Second::NEVER, |first, time| first.min(*time));
        if first.is_never() {
            return Self { at: first, sole: None };
        }
        let at = first.max(from);
        let count: u32 = times.iter().map(|time| u32::from(*time <= at)).sum();
        let only = times.iter().position(|time| *time <= at).filter(|_| count == 1);
        Self { at, sole: only.map(|domain| u32::try_from(domain).expect("domains are numbered in u32")) }
    }

    /// Takes another domain that has enough at a time into account.
    fn offer(&mut self, at: Second, domain: u32) {
        if at < self.at {
            *self = Self { at, sole: Some(domain) };
        } else if at == self.at {
            self.sole = None;
        }
    }
}

impl<'a> Question<'a, '_> {
    /// The time from which a node has a slot for ever; [`Second::NEVER`] for never.
    fn tail(&mut self, node: u32) -> Second {
        if self.search.eligible.pos(node).is_none() {
            return Second::NEVER;
        }
        let lasts = |hole: &&Hole| hole.end.is_never() && self.seen.slots(hole.room) > 0;
        let holes = self.search.timeline.holes_on(node).iter();
        holes.filter(lasts).map(|hole| hole.start).min().unwrap_or(Second::NEVER)
    }

    /// The holes that end and could serve the search at `latest` or before; `None` if there are more than
    /// [`FEW`].
    fn endings(&mut self, latest: Second) -> Option<Vec<&'a Hole>> {
        let search = self.search;
        let (needed, until) = (search.from.after(search.duration), search.until.min(latest.after(1)));
        let mut found = Vec::new();
        for shelf in search.timeline.holes().ending(search.least, search.duration) {
            for hole in shelf.reaching(search.duration, needed, until).flatten() {
                let serves = hole.start < until
                    && hole.end >= hole.start.max(search.from).after(search.duration)
                    && search.eligible.pos(hole.node).is_some()
                    && search.domains.of_node[hole.node as usize] != NOWHERE
                    && self.seen.slots(hole.room) > 0;
                if serves {
                    if found.len() == FEW {
                        return None;
                    }
                    found.push(hole);
                }
            }
        }
        Some(found)
    }
}
