//! The space on which a pass plans: nodes and licenses over time, with the search for the earliest start of a
//! job.
//!
//! A deep pass builds one for itself ([`State`](crate::sched::state::State)); quick passes keep one and
//! update it with events (`Ledger` in `sched/quick`). Both guarantee two things: no resource is booked twice,
//! and equal content gives equal answers.

mod query;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::id::{JobId, NodeId};
use crate::model::fabric::Fabric;
use crate::model::reservation::{Flag, Reservation as Site};
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{RoomId, Rooms};
use crate::sched::place::{self, Misfit, Slots, View};
use crate::sched::planned_starts::Reservation;
use crate::sched::request::{Need, Part, Scarce};
use crate::sched::timeline::licenses::{Asked, Lack, Licenses, WantedLicenses};
use crate::sched::timeline::realm::Realms;
use crate::sched::timeline::second::Second;
use crate::sched::timeline::start_bounds::{Family, Size};
use crate::text::time::Time;

pub(crate) use query::{Aspect, Findings, Hit, Placed, Query};

/// The numbers of nodes that a job cannot use although they are idle, and of those that lack only one
/// resource.
#[derive(Debug, Default)]
pub(crate) struct Aside {
    /// Idle nodes in leaves that a job has to itself.
    pub(crate) closed: BTreeMap<JobId, usize>,
    /// Idle nodes in each reservation.
    pub(crate) reserved: BTreeMap<Arc<str>, usize>,
    /// Idle nodes that are planned for others before the job would end.
    pub(crate) planned: usize,
    /// Nodes that have all that the job needs but one resource.
    pub(crate) lacking: BTreeMap<Scarce, usize>,
}

/// Nodes and licenses over time.
pub(crate) trait Space {
    /// The time at which the space begins.
    fn now(&self) -> Time;

    fn realms(&self) -> &Realms;

    fn licenses(&self) -> &Licenses;

    /// The findings about jobs on this space.
    fn findings(&mut self) -> &mut Findings;

    /// Records that a search on this space was given up, so that a later one may find on less what this one
    /// missed.
    fn doubt(&mut self);

    /// Takes the resources of a job that starts now and runs for `lasts` seconds. `task` is true if the start
    /// is one task of the array whose record is `job`. `asked` is the realm in which the job starts, and the
    /// licenses that it needs.
    fn start(&mut self, job: JobId, task: bool, parts: &[Part], asked: (usize, &WantedLicenses), lasts: u64);

    /// Takes the resources of a later start.
    fn reserve(&mut self, made: &Reservation);

    /// Returns the resources of a later start.
    fn release(&mut self, made: &Reservation);

    /// True if a part of a later start is free in a realm; `None` on a node that is out of service.
    fn has_part(&mut self, realm: usize, made: &Reservation, part: &Part) -> Option<bool>;

    /// True if all of a later start is free in a realm.
    fn has(&mut self, realm: usize, made: &Reservation) -> bool {
        let asked = [(realm, made.asked(self.realms()).1)];
        self.licenses().earliest(&asked, made.start, made.lasts()) == Some(made.start)
            // A job with whole leaves closes nodes out of service, too.
            && made.parts.iter().all(|part| self.has_part(realm, made, part).unwrap_or(part.slots == 0))
    }

    /// True if a part is free now.
    fn is_free(&self, part: &Part) -> bool;

    /// The running job whose planned end at `at` frees one of the nodes.
    fn ends_at(&self, at: Time, parts: &[Part]) -> Option<JobId>;

    /// The nodes that are shut in a realm at some time from now until `until`; `None` if there are none.
    fn shut(&self, realm: usize, until: Time) -> Option<FixedBitSet>;

    /// The earliest start of a job within `times`, and whether the search was given up. Only the nodes in the
    /// query's realm count, not licenses.
    fn search(&mut self, aspect: Aspect<'_>, times: Range<Time>) -> (Option<Hit>, bool);

    /// Passes `look` the slots that are planned to be free now for as long as the job runs. Returns `None`
    /// without calling it if the job fits before they are computed.
    fn show_now<T>(&mut self, aspect: Aspect<'_>, look: impl FnOnce(&Slots) -> Option<T>) -> Option<T>;

    /// The amount of a node that is free in a realm for `seconds`. For a start now it contains at most what
    /// no job holds.
    fn room(&mut self, realm: usize, node: NodeId, at: Time, seconds: u64, starts: bool) -> Option<RoomId>;

    fn rooms(&mut self) -> &mut Rooms;

    /// The positions that are not entirely free for a time and a number of seconds from it. For a start now,
    /// those on which a job still holds something are included.
    fn occupied(&self, realm: usize, fabric: &Fabric, times: (Time, u64), starts: bool) -> FixedBitSet;

    /// The times at which the amount of some node changes, in no order.
    fn moments(&self, realm: usize) -> Vec<Time>;

    /// The earliest start of a job before the query's `until`, over every stage and every set of eligible
    /// nodes.
    fn find(&mut self, query: &Query<'_>) -> Option<Hit> {
        let last = self.realms().end(query.realm).map_or(query.until, |end| end.min(query.until));
        let mut best: Option<Hit> = None;
        for stage in query.stages {
            for eligible in query.eligible_sets {
                let until = best.as_ref().map_or(last, |hit| query.beaten_by(hit)).min(stage.until);
                if stage.from.max(query.from).max(self.now()) >= until {
                    break;
                }
                let found = self.find_at(Aspect { query, stage, eligible }, until);
                if found.as_ref().is_some_and(|hit| best.as_ref().is_none_or(|best| hit.beats(best))) {
                    best = found;
                }
            }
        }
        best
    }

    /// The earliest start in one stage and one set of eligible nodes. The search begins at the bound that
    /// earlier searches have found.
    fn find_at(&mut self, aspect: Aspect<'_>, until: Time) -> Option<Hit> {
        let Aspect { query, stage, eligible } = aspect;
        let (nodes, slots) = (query.request.min_nodes(), query.request.min_slots());
        let size = Size { nodes, slots, run_time: query.run_time };
        let family = Family::of(eligible.outline, stage.ask()).filter(|_| query.request.sizes.is_none());
        let begin = stage.from.max(query.from).max(self.now());
        let Findings { start_bounds, needs, .. } = self.findings();
        let bound = |family| start_bounds.bound(family, query.need, &size, needs.smaller());
        let bound = family.as_ref().and_then(bound);
        let mut from = begin.max(bound.unwrap_or(begin));
        loop {
            from = self.licensed(&query.asked(), from, query.run_time)?;
            if from >= until {
                return None;
            }
            let (hit, gave_up) = self.search(aspect, from..until);
            let learns = begin == self.now() && !gave_up && query.licenses.is_empty();
            if let Some(family) = family.as_ref().filter(|_| learns) {
                let earliest = hit.as_ref().map_or(until, |hit| hit.start);
                if bound.is_none_or(|bound| bound < earliest) {
                    self.findings().start_bounds.note(family.clone(), query.need, size, earliest);
                }
            }
            let mut hit = hit?;
            let licensed = self.licensed(&query.asked(), hit.start, query.run_time)?;
            if licensed == hit.start {
                let lacks = |space: &Self| {
                    space.licenses().lacking(&query.asked(), hit.start, query.run_time).is_some()
                };
                hit.starts = hit.starts && !lacks(self);
                return Some(hit);
            }
            from = licensed;
        }
    }

    /// The first moment from `from` on at which the licenses are free for `seconds`. `None` if that is not
    /// before timelines end, because nodes are unknown then.
    fn licensed(&self, asked: &Asked<'_>, from: Time, seconds: u64) -> Option<Time> {
        let at = self.licenses().earliest(asked, from, seconds)?;
        (Second::of(at, self.now()) < Second::LAST).then_some(at)
    }

    /// The amounts that a placement takes of each node.
    ///
    /// `None` if an overdue job still holds devices for which the planned ones cannot be exchanged.
    fn parts(&mut self, inventory: &Inventory, need: &Need, hit: &Hit) -> Option<Vec<Part>> {
        let mut parts: Vec<Part> = Vec::with_capacity(hit.placement.shares.len());
        // Nodes with equal amounts give the same.
        let (mut last, mut taken) = (None, Arc::<[u64]>::default());
        for (pos, slots) in &hit.placement.shares {
            let node = hit.eligible.fabric.node(*pos);
            let room = self.room(hit.realm, node, hit.start, hit.lasts, hit.starts)?;
            if last.replace((room, *slots)) != Some((room, *slots)) {
                let shape = &inventory.nodes[node.index()].shape;
                let given = need.takes(shape, self.rooms().amount(room), *slots)?;
                taken = self.rooms().shared(&given);
            }
            parts.push(Part { node, slots: *slots, taken: Arc::clone(&taken) });
        }
        if hit.whole_leaves {
            inventory.close_leaves(&hit.eligible.fabric, &mut parts);
        }
        Some(parts)
    }

    /// The misfit that keeps a job from starting now, and the number of free nodes or slots. The number is
    /// `None` for a job with whole leaves, whose nodes may be free and closed.
    fn misfit(&mut self, query: &Query<'_>) -> Option<(Misfit, Option<u64>)> {
        let (stage, eligible, now) = (query.stages.first()?, query.plain, self.now());
        let whole = stage.ask().whole_leaves;
        let times = (now, query.run_time);
        let occupied = whole.then(|| self.occupied(query.realm, &eligible.fabric, times, true));
        self.show_now(Aspect { query, stage, eligible }, |slots| {
            let view = View { occupied: occupied.as_ref(), ..eligible.view(slots) };
            let say = |ask| place::place_or_say(&view, ask).err();
            let (least, larger) = stage.asks.split_last()?;
            let misfit = larger.iter().all(|ask| say(ask).is_some()).then(|| say(least)).flatten()?;
            let free = if query.request.wants_nodes() { slots.nodes() as u64 } else { slots.total() };
            Some((misfit, (!whole).then_some(free)))
        })
    }

    /// The sentence about the license that keeps a job of `seconds` waiting now; `None` if licenses do not.
    fn lacks_license(&self, asked: &Asked<'_>, seconds: u64) -> Option<String> {
        let lack = self.licenses().lacking(asked, self.now(), seconds)?;
        let Lack { name, wanted, left, later, reserved } = lack;
        let verb = if left == 1 { "is" } else { "are" };
        let others = if reserved > 0 { format!(", {reserved} reserved for others") } else { String::new() };
        let (when, what) = if later { (" for all of its time; then", "left") } else { (";", "free") };
        Some(format!("needs license {name}:{wanted}{when} {left} {verb} {what}{others}"))
    }

    /// The idle nodes that a job could use but cannot have now, counted by purpose. Empty where no sentences
    /// are needed.
    fn aside(&mut self, _scene: &Inventory, _hunt: &Query<'_>) -> Aside {
        Aside::default()
    }

    /// The reservation that alone keeps a job of the open realm from starting now; among several, one for
    /// maintenance if there is one. `barring` are the floating reservations, which the query does not
    /// contain.
    fn kept_out_by(&mut self, query: &Query<'_>, barring: &[Arc<Site>]) -> Option<Arc<Site>> {
        if self.realms().is_single() {
            return None;
        }
        let (stage, eligible) = (query.stages.first()?, query.plain);
        let (query, now) = (Query { realm: self.realms().unshut(), ..*query }, self.now());
        let (hit, _) = self.search(Aspect { query: &query, stage, eligible }, now..now + 1);
        let hit = hit.filter(|hit| hit.starts)?;
        let nodes = hit.placement.shares.iter().map(|(pos, _)| hit.eligible.fabric.node(*pos));
        let bars = |node| barring.iter().find(|barring| barring.holds(node));
        let shut = nodes
            .filter_map(|node| self.realms().shut_by(node, now, now + query.run_time).or_else(|| bars(node)));
        shut.max_by_key(|reservation| reservation.has(Flag::Maint)).cloned()
    }
}
