//! The nodes over time that a deep pass reads, and the search for the earliest start of a job on them.

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

/// Number of times at which one job may be tried without success before the search for its start is given up.
/// A count makes a pass decide the same on every machine.
pub(super) const MAX_TRIES: u32 = 1_000;
/// Number of nodes with planned amounts up to which a start now is searched without a sweep.
const MANY_LIMITED: usize = 256;

/// Number of nodes with planned amounts up to which slots are computed even for a single use.
const FEW_LIMITED: usize = 32;

/// Number of checks of idle nodes that a pass may spend on sentences about their purpose: some milliseconds.
const MOST_LOOKS: usize = 50_000;

/// The amounts that jobs hold of a node, with their ends; most nodes have one entry.
type Holds = SmallVec<[(Time, Amount); 1]>;

/// The resources free over time, those free now, and the findings about amounts.
#[derive(Debug, Default)]
pub(super) struct State {
    now: Time,
    realms: Realms,
    /// The timelines by realm; those of realms in which no job plans contain no nodes.
    timelines: Vec<Timeline>,
    rooms: Rooms,
    /// The amount of each node that no job holds now. It is less than the timeline has where a job is
    /// overdue.
    idle: Vec<RoomId>,
    findings: Findings,
    counters: Counters,
    free_for_ever: FreeForEver,
    licenses: Licenses,
    standing: FreeNow,
    /// True if an overdue job still holds what should be free by now.
    overdue: bool,
    /// Running jobs by their planned end.
    ends: Vec<(Time, JobId, Arc<Alloc>)>,
    /// The idle nodes, for sentences about their purpose.
    unused: Unused,
}

/// Nodes on which no job runs.
#[derive(Debug, Default)]
struct Unused {
    /// The nodes that jobs close because they have whole leaves to themselves.
    closed: Vec<(NodeId, JobId)>,
    /// The other nodes on which no job runs; `None` before they are first needed.
    open: Option<Vec<NodeId>>,
    /// Number of checks of these nodes that are left.
    looks: usize,
    /// Number of checks of other nodes for what they lack that are left.
    comparisons: usize,
}

impl State {
    /// Reads what runs now and its planned ends, for planning in some realms. Amounts that are free for less
    /// than `shortest` seconds are of no use.
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
            // An overdue job may end any moment.
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

    /// The earliest start within `times`, and whether the search was given up.
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
        // A search of one moment receives the slots even if they are not enough.
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

    /// True if the current moment can be searched by itself: no job is overdue, few nodes have planned
    /// amounts, and the constraints depend on slots alone.
    fn stands(&self, Aspect { query, stage, .. }: Aspect<'_>) -> bool {
        !self.overdue
            && stage.ask().minds_others(1).is_none()
            && self.timelines[query.realm].limits_few(MANY_LIMITED)
    }

    /// True if a separate search of the current moment pays for a job that was planned in another way.
    fn is_in_sight(&self, aspect: Aspect<'_>) -> bool {
        let Aspect { query, eligible, .. } = aspect;
        let pays = self.standing.knows(query.realm, eligible, query.need)
            || self.timelines[query.realm].limits_few(FEW_LIMITED);
        pays && self.stands(aspect)
    }

    /// The placement with which a job starts now; `None` if it does not fit now.
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

    /// Passes `look` the slots of one set of eligible nodes for a job that starts now. The second argument
    /// gives the free amount of the job's scarcest resource on a node.
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

/// The amount of a node that is free now, and its amounts after the ends of its jobs.
fn steps(
    rooms: &mut Rooms,
    node: &SceneNode,
    mut held: Holds,
    now: Time,
) -> (RoomId, SmallVec<[(Time, RoomId); 4]>) {
    held.sort_by_key(|(end, _)| *end);
    // Holds are subtracted from the full amount in order of their ends, the last first. So the first step is
    // the present amount, and the amount that should be free by now comes on the way.
    let mut room = rooms.full(node.class);
    let mut at_once = room;
    let mut steps: SmallVec<[(Time, RoomId); 4]> = SmallVec::new();
    for (end, amount) in held.iter().rev() {
        // Of several ends at one time, the last has the whole amount.
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
