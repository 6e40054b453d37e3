//! What a pass knows of nodes and time, and the one question it asks of it: where and when does this job fit?

mod space;
pub(super) mod together;
pub(super) mod trial;

use std::collections::BTreeSet;
use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::{JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::fabric::DomainId;
use crate::sched::forecast::PlanInput;
use crate::sched::inventory::amounts::{Amount, RoomId, Rooms};
use crate::sched::request::domains::layer;
use crate::sched::timeline::free_for_ever::FreeForEver;
use crate::sched::timeline::free_now::{FreeNow, Moment};
use crate::sched::timeline::holding;
use crate::sched::timeline::hole_index::Measure;
use crate::sched::timeline::licenses::Licenses;
use crate::sched::timeline::needs::Seen;
use crate::sched::timeline::realm::{OPEN, Realms};
use crate::sched::timeline::second::length;
use crate::sched::timeline::sweep::{Counters, SweepRequest};
use crate::text::time::Time;

use super::inventory::SceneNode;
use super::place::Slots;
use super::space::{Aspect, Findings, Hit};
use super::timeline::Timeline;
use trial::{Trial, place};

/// Times at which one job may be tried and not fit before the search for its start is given up: a count, so that a
/// pass decides the same on every machine.
pub(super) const MAX_TRIES: u32 = 1_000;
/// Nodes that something is planned on, up to which a start now is looked for without a sweep.
const MANY_LIMITED: usize = 256;

/// Nodes that something is planned on, up to which a sight pays that serves a single look.
const FEW_LIMITED: usize = 32;

/// Looks at idle nodes that a pass takes to say what they are for: those of some milliseconds.
const MOST_LOOKS: usize = 50_000;

/// What jobs hold of a node until when; of most nodes it is one.
type Holds = SmallVec<[(Time, Amount); 1]>;

/// What is free when, what is free now, and what has been found out about rooms.
#[derive(Debug, Default)]
pub(super) struct State {
    now: Time,
    realms: Realms,
    /// By realm; those that nobody plans in know no nodes.
    timelines: Vec<Timeline>,
    rooms: Rooms,
    /// By node: what nobody holds at this moment. Less than the timeline has where a job should have ended by now.
    idle: Vec<RoomId>,
    findings: Findings,
    counters: Counters,
    free_for_ever: FreeForEver,
    licenses: Licenses,
    standing: FreeNow,
    /// Whether a job past its time still holds what should be free by now.
    overdue: bool,
    /// Running jobs by their planned end.
    ends: Vec<(Time, JobId, Arc<Alloc>)>,
    /// What is known of nodes on which nothing runs, to say what they are for.
    unused: Unused,
}

/// Nodes on which nothing runs.
#[derive(Debug, Default)]
struct Unused {
    /// The nodes that jobs close by having whole leaves to themselves.
    closed: Vec<(NodeId, JobId)>,
    /// The other nodes on which nothing runs, once they are asked for.
    open: Option<Vec<NodeId>>,
    /// How often one of these may still be looked at.
    looks: usize,
    /// How many other nodes may still be looked at for what they lack.
    comparisons: usize,
}

impl State {
    /// Looks at what runs now and when it is planned to end, for those who plan in some realms. Room that is free for
    /// less than `shortest` seconds is of no use to anybody.
    pub(super) fn new(
        PlanInput { cluster, inventory, forecast, now }: PlanInput<'_>,
        shortest: u64,
        (realms, wanted): (Realms, &BTreeSet<usize>),
    ) -> Self {
        let mut rooms = inventory.rooms.clone();
        let mut held: Vec<Holds> = vec![Holds::new(); inventory.nodes.len()];
        let (mut ends, mut closed) = (Vec::new(), Vec::new());
        for job in cluster.jobs().active() {
            let Some((alloc, end)) = holding::until(cluster, job, forecast, now) else { continue };
            // What is past its time may end any moment.
            let end = end.max(now);
            for (node, amount) in holding::parts(cluster, inventory, job, alloc) {
                held[node.index()].push((end, amount));
                closed.extend(alloc.on(node).is_none().then_some((node, job.id)));
            }
            ends.push((end, job.id, Arc::clone(alloc)));
        }
        ends.sort_unstable_by_key(|(end, job, _)| (*end, *job));
        let licenses = Licenses::new(cluster, &realms, ends.iter().map(|(end, job, _)| (*end, *job)), now);
        let nodes_in = |realm| if wanted.contains(&realm) { inventory.nodes.len() } else { 0 };
        let mut timelines: Vec<Timeline> =
            (0..realms.count()).map(|realm| Timeline::new(now, nodes_in(realm), shortest)).collect();
        let mut idle = Vec::with_capacity(inventory.nodes.len());
        let mut overdue = false;
        for (index, (node, held)) in inventory.nodes.iter().zip(held).enumerate() {
            let (free, steps) = steps(&mut rooms, node, held, now);
            idle.push(free);
            if node.available {
                overdue |= steps.first().is_some_and(|(_, room)| *room != free);
                let id = NodeId::at(index);
                for realm in wanted.iter().copied().filter(|realm| *realm > OPEN && realms.holds(*realm, id))
                {
                    timelines[realm].show(index, realms.screens(realm, id, now));
                    timelines[realm].set(&mut rooms, index, &steps);
                }
                timelines[OPEN].show(index, realms.screens(OPEN, id, now));
                timelines[OPEN].set(&mut rooms, index, &steps);
            }
        }
        Self {
            now,
            realms,
            timelines,
            rooms,
            idle,
            counters: Counters::new(inventory.nodes.len()),
            licenses,
            overdue,
            ends,
            unused: Unused { closed, open: None, looks: MOST_LOOKS, comparisons: MOST_LOOKS },
            ..Self::default()
        }
    }

    /// The earliest start in a stretch of time, and whether the search for it was given up.
    fn sweep(&mut self, aspect: Aspect<'_>, times: std::ops::Range<Time>) -> (Option<Hit>, bool) {
        let Aspect { query, stage, eligible } = aspect;
        let (domains, wanted) = (self.findings.domains.of(eligible, stage.ask()), aspect.wanted());
        self.timelines[query.realm].settle(&mut self.rooms);
        let timeline = &self.timelines[query.realm];
        let need = &query.request.need;
        let mut seen = Seen { known: self.findings.needs.known(query.need), rooms: &self.rooms, need };
        let mut trial = Trial {
            now: self.now,
            aspect,
            idle: &self.idle,
            held_back: self.overdue || !self.realms.is_single(),
            timeline: stage.ask().minds_others(query.run_time).map(|seconds| (timeline, seconds)),
            tries: 0,
            names_rivals: self.findings.names_rivals,
            in_domain: !domains.ids.is_empty(),
            hit: None,
        };
        let mut search = SweepRequest {
            timeline,
            eligible,
            duration: length(query.run_time),
            from: timeline.second(times.start),
            until: timeline.second(times.end),
            domains: &domains,
            wanted,
            least: match stage.ask().whole_leaves {
                true => Measure::default(),
                false => Measure::of(need),
            },
            whole_leaves: stage.ask().whole_leaves,
            counts_nodes: need.counts_nodes(),
        };
        self.counters.fit(eligible, need.counts_whole_nodes());
        let counts_nodes = search.counts_nodes && wanted.slots <= u64::from(wanted.nodes);
        let layer = layer(eligible, stage.ask()).filter(|_| counts_nodes && !domains.ids.is_empty());
        // A search of one moment is told of what there is even if it is not enough.
        let key = layer.filter(|_| times.start + 1 < times.end).map(|layer| (query.realm, query.need, layer));
        let answer = key.and_then(|key| {
            let found = self.free_for_ever.earliest(key, &search, &mut seen)?;
            search.from = found.at.min(search.until);
            trial.settle(found, &search, &mut seen, &mut self.counters).break_value()
        });
        let start = answer.unwrap_or_else(|| {
            let judge = &mut |seen: &mut Seen<'_>, at, slots: &mut Slots| trial.accept(seen, at, slots);
            search.sweep(&mut self.counters, &mut seen, judge)
        });
        let gave_up = trial.tries >= MAX_TRIES;
        let hit = start.zip(trial.hit);
        (hit.map(|(start, placed)| aspect.hit(&self.realms, start.time(self.now), placed)), gave_up)
    }

    /// Whether this moment can be looked at by itself: nobody is past his time, few nodes are planned on, and the
    /// constraints look at slots alone.
    fn stands(&self, Aspect { query, stage, .. }: Aspect<'_>) -> bool {
        !self.overdue
            && stage.ask().minds_others(1).is_none()
            && self.timelines[query.realm].limits_few(MANY_LIMITED)
    }

    /// Whether it is worth looking at this moment by itself for a job that was planned in another way.
    fn is_in_sight(&self, aspect: Aspect<'_>) -> bool {
        let Aspect { query, eligible, .. } = aspect;
        let pays = self.standing.knows(query.realm, eligible, query.need)
            || self.timelines[query.realm].limits_few(FEW_LIMITED);
        pays && self.stands(aspect)
    }

    /// A start at this moment.
    fn look(&mut self, aspect: Aspect<'_>) -> Option<Hit> {
        let domains = self.findings.domains.of(aspect.eligible, aspect.stage.ask());
        let (wanted, names_rivals) = (aspect.wanted(), self.findings.names_rivals);
        let found = self.at_once(aspect, |slots, free| {
            let has_enough = |id: &DomainId| wanted.is_met((slots.nodes_of(*id), slots.of(*id)));
            if !domains.ids.is_empty() && !domains.ids.iter().any(has_enough) {
                return None;
            }
            place(aspect, None, (slots, Some(free)), (true, names_rivals)).0
        });
        Some(aspect.hit(&self.realms, self.now, found?))
    }

    /// Shows `look` what one set of eligible nodes sees for a job that starts at this moment, and how much of the scarcest
    /// resource of the job nobody holds on a node.
    fn at_once<T>(
        &mut self,
        aspect: Aspect<'_>,
        look: impl FnOnce(&Slots, &dyn Fn(NodeId) -> u64) -> T,
    ) -> T {
        let Aspect { query, eligible, .. } = aspect;
        let realm = query.realm;
        let moment = Moment { realm, timeline: &self.timelines[realm], run_time: query.run_time };
        let (need, rooms, idle) = (&query.request.need, &self.rooms, &self.idle);
        let mut seen = Seen { known: self.findings.needs.known(query.need), rooms, need };
        seen.known.learn(rooms, need);
        let free = |node: NodeId| need.scarcest(rooms, idle[node.index()]);
        self.standing.look(eligible, query.need, &moment, &mut seen, |slots| look(slots, &free))
    }
}

/// What a node has free at this moment, and what it will have as its jobs end.
fn steps(
    rooms: &mut Rooms,
    node: &SceneNode,
    mut held: Holds,
    now: Time,
) -> (RoomId, SmallVec<[(Time, RoomId); 4]>) {
    held.sort_by_key(|(end, _)| *end);
    // What is held until the last end is taken from the full room first, so that the first step is what is free now, and
    // what should be by now is on the way.
    let mut room = rooms.full(node.class);
    let mut at_once = room;
    let mut steps: SmallVec<[(Time, RoomId); 4]> = SmallVec::new();
    for (end, amount) in held.iter().rev() {
        // Of several ends at one time the last has all the room.
        if !end.is_never() && *end > now && steps.last().is_none_or(|(at, _)| at != end) {
            steps.push((*end, room));
        }
        room = rooms.minus(room, amount);
        if *end > now {
            at_once = room;
        }
    }
    steps.push((now, at_once));
    steps.reverse();
    (room, steps)
}
