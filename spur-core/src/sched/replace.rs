//! The choice of nodes that replace those a running job lost (`--no-kill`).
//!
//! This module guarantees three things. No running job moves. The job's request to the fabric holds for all
//! its nodes together, as it did at its start. A node of the failed one's leaf comes first, then one of the
//! domain above it, and so on up. Among candidates of one domain the job's own order of preference decides,
//! by the same code that placed it.

use std::ops::Range;

use fixedbitset::FixedBitSet;

use super::inventory::{Inventory, fabric_for};
use super::place::{self, Ask, Placement, SharedBudget, Strategy, View};
use super::prospect::start_part;
use super::request::constraints::{Stage, Wisher};
use super::request::eligible_nodes::{
    EligibleNodes, Filter, alternatives, positions_where, slots_by_position,
};
use super::request::{Given, Need, Slot};
use super::together::nearness;
use crate::cluster::{Cluster, Node};
use crate::id::{JobId, NodeId};
use crate::model::alloc::{Alloc, GresAlloc, LostNode, NodeAlloc, Replacement, StartPart, Why};
use crate::model::fabric::{Fabric, Layer, Pos};
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::reservation::Reservation;
use crate::text::time::Time;

/// Number of steps in one job's search, during which every request waits.
const STEPS: u64 = 200_000;

/// Returns what a job would hold of a node, given whether it has the node to itself; `None` if that is not
/// free.
pub type Take<'a> = dyn Fn(&Node, &StartPart, bool) -> Option<NodeAlloc> + 'a;

/// A node of the job, and the number of the job's slots on it.
type Seat = (NodeId, u32);

/// A node that the job may get: its position, the number of slots that fit on it, and what the job would
/// hold.
type Substitute = (Pos, u32, NodeAlloc);

/// A job that lost nodes, and the nodes from which it may get others.
struct ReplacementSearch<'a> {
    cluster: &'a Cluster,
    inventory: &'a Inventory,
    now: Time,
    job: &'a Job,
    alloc: &'a Alloc,
    take: &'a Take<'a>,
    need: &'a Need,
    eligible: &'a EligibleNodes,
    ask: &'a Ask,
    /// Nodes that other jobs close because they have whole leaves to themselves.
    closed: &'a FixedBitSet,
    /// The positions within which the whole job must stay.
    bounds: &'a Range<usize>,
    /// The steps left for all placements together.
    budget: &'a SharedBudget,
}

/// Replacements for as many lost nodes as possible now, and the job's record with them; `None` if there is
/// none. If there was none before some nodes changed, `touched` lists these nodes.
#[must_use]
pub fn find(
    cluster: &Cluster,
    now: Time,
    id: JobId,
    touched: Option<&[NodeId]>,
    take: &Take<'_>,
) -> Option<(Vec<Replacement>, Why)> {
    let job = cluster.job(id)?;
    let Phase::Running { alloc, preempted: None, .. } = &job.phase else { return None };
    let inventory = cluster.standing(Inventory::new);
    let partition = inventory.partition(&alloc.partition)?;
    let request = inventory.request(partition, &job.spec).ok()?;
    let fabric = fabric_for(&inventory, partition, &job.spec).ok()?;
    // Preferences that were waived at the start stay waived.
    let (spec, request) = (&*job.spec, &request);
    let wisher = Wisher { inventory: &inventory, partition, fabric, spec, request, gather_with: &[] };
    let stages = wisher.first_stages().ok()?;
    let as_started = |stage: &&Stage| stage.relaxed == alloc.why.relaxed;
    let stage = stages.iter().find(as_started).or(stages.last())?;
    let (need, ask) = (&request.need, stage.ask());
    let bounds = &bounds(cluster, job, alloc, (fabric, ask));
    // With whole leaves, any node of a leaf may have freed the leaf.
    let touched = touched.filter(|_| !ask.whole_leaves);
    // This check leaves out nodes that are out of reach or full before anything is made for all nodes.
    let may_serve = |id: &NodeId| {
        let has_room = cluster.node(*id).is_some_and(|node| may_have_room(node, alloc.exclusive));
        has_room && fabric.pos(*id).is_some_and(|pos| bounds.contains(&pos.index()))
    };
    touched.unwrap_or(&inventory.partitions[partition].partition.nodes).iter().find(|id| may_serve(id))?;
    let closed = &closed(cluster, &inventory, id);
    let within = own_reservation(cluster, alloc);
    let budget = &SharedBudget::new(STEPS);
    for alternative in alternatives(&job.spec, fabric) {
        let filter = Filter { within, ..alternative.filter(&job.spec.shape) };
        let Ok(eligible) = EligibleNodes::new(alternative.number, &wisher, &filter) else { continue };
        if !alloc.nodes.iter().all(|part| eligible.pos(part.node.0).is_some()) {
            continue;
        }
        let eligible = &eligible;
        let search = ReplacementSearch {
            cluster,
            inventory: &inventory,
            now,
            job,
            alloc,
            take,
            need,
            eligible,
            ask,
            closed,
            bounds,
            budget,
        };
        let found = search.all();
        if !found.is_empty() {
            let why = search.why(&found);
            return Some((found, why));
        }
    }
    None
}

/// The reservation to whose nodes a job is bound; its fabric request was counted over these at its start.
/// `None` if the job has a node that has left the reservation: then it is no longer bound.
fn own_reservation<'a>(cluster: &'a Cluster, alloc: &Alloc) -> Option<&'a Reservation> {
    let own = cluster.reservation(alloc.reservation.as_deref()?)?;
    let has_all = own.binds_to_nodes() && alloc.nodes.iter().all(|part| own.holds(part.node));
    has_all.then_some(&**own)
}

/// True if a job may have closed to others the part of its leaves that it did not use.
#[must_use]
pub fn may_close(cluster: &Cluster, id: JobId) -> bool {
    cluster.job(id).is_some_and(|job| cluster.standing(Inventory::new).may_close(&job.spec))
}

/// True if a node is in service and has a free CPU, or is vacant where `alone`.
fn may_have_room(node: &Node, alone: bool) -> bool {
    node.available()
        && !node.is_off()
        && if alone { node.is_vacant() } else { node.used.cpus.len() < node.shape.cpus }
}

/// The nodes that jobs other than `id` close without using them, including jobs for which nodes are kept.
fn closed(cluster: &Cluster, inventory: &Inventory, id: JobId) -> FixedBitSet {
    let mut closed = FixedBitSet::with_capacity(inventory.nodes.len());
    for other in cluster.jobs().active().filter(|other| other.id != id && inventory.may_close(&other.spec)) {
        let Some(alloc) = other.phase.alloc() else { continue };
        let nodes = alloc.nodes.iter().map(|part| part.node);
        closed.extend(inventory.closes(&other.spec, &alloc.partition, nodes).into_iter().map(NodeId::index));
    }
    for (other, kept) in cluster.jobs().nominated() {
        let nodes = inventory.closes(&other.spec, &kept.partition, kept.nodes());
        closed.extend(nodes.into_iter().map(NodeId::index));
    }
    closed
}

/// The positions that a job may get: all, or those of the domain that must hold all of it or all components
/// of its het job.
fn bounds(cluster: &Cluster, job: &Job, alloc: &Alloc, (fabric, ask): (&Fabric, &Ask)) -> Range<usize> {
    let leader = job.spec.het.as_ref().and_then(|het| cluster.job(het.leader));
    let together = leader.and_then(|leader| nearness(&leader.spec, std::iter::once(fabric)).ok()?.must);
    let own = ask.must.filter(|_| ask.strategy != Strategy::Flat);
    let musts = [together, own.filter(|layer| *layer > Layer::NODE)].into_iter().flatten();
    let here = alloc.nodes.first().and_then(|part| fabric.pos(part.node));
    let domain = |must: Layer| {
        let mut up = here.into_iter().flat_map(|pos| fabric.path_up(pos));
        up.find(|id| fabric.domain(*id).cover() >= must).map(|id| fabric.domain(id).range())
    };
    // Domains that contain one position are nested.
    musts.filter_map(domain).min_by_key(Range::len).unwrap_or(0..fabric.len())
}

impl ReplacementSearch<'_> {
    /// Replaces lost nodes one after another, each as near as possible; all at once where not every one can
    /// be replaced alone.
    fn all(&self) -> Vec<Replacement> {
        let slots = |part: &NodeAlloc| self.slots_of(part);
        let mut seats: Vec<Seat> = self.alloc.nodes.iter().map(|part| (part.node, slots(part))).collect();
        let lost: Vec<&LostNode> = self.alloc.lost.iter().collect();
        let mut found: Vec<Replacement> = Vec::with_capacity(lost.len());
        for one in &lost {
            if let Some(made) = self.nearest(&seats, &[one]) {
                seats.extend(made.iter().map(|made| (made.part.node, slots(&made.part))));
                found.extend(made);
            }
        }
        let alike = lost.windows(2).all(|pair| slots(&pair[0].part) == slots(&pair[1].part));
        if found.len() < lost.len() && lost.len() > 1 && alike {
            seats.truncate(self.alloc.nodes.len());
            return self.nearest(&seats, &lost).unwrap_or(found);
        }
        found
    }

    /// Replacements for lost nodes with equally many slots, from the smallest domains around these that have
    /// enough.
    fn nearest(&self, seats: &[Seat], lost: &[&LostNode]) -> Option<Vec<Replacement>> {
        let fabric = &*self.eligible.fabric;
        let candidates = self.candidates(seats, self.slots_of(&lost.first()?.part));
        if candidates.len() < lost.len() {
            return None;
        }
        let path = |lost: &&LostNode| -> Vec<Range<usize>> {
            let up = fabric.pos(lost.part.node).into_iter().flat_map(|pos| fabric.path_up(pos));
            up.map(|id| fabric.domain(id).range()).chain(std::iter::once(0..fabric.len())).collect()
        };
        let paths: Vec<Vec<Range<usize>>> = lost.iter().map(path).collect();
        let steps = paths.iter().map(Vec::len).max()?;
        (0..steps).find_map(|step| {
            let in_reach = |(pos, ..): &&Substitute| {
                let mut reach = paths.iter().filter_map(|path| path.get(step).or(path.last()));
                reach.any(|range| range.contains(&pos.index()))
            };
            self.among(seats, lost, &candidates.iter().filter(in_reach).collect::<Vec<_>>())
        })
    }

    /// Every node that has free resources for `slots` slots of the job and may be given to it.
    fn candidates(&self, seats: &[Seat], slots: u32) -> Vec<Substitute> {
        let fabric = &*self.eligible.fabric;
        let positions = self.bounds.clone().map(Pos::at);
        let candidate = |pos: Pos| {
            let node = fabric.node(pos);
            let is_own = seats.iter().any(|(seat, _)| *seat == node);
            let (room, part) = self.room(node, slots).filter(|_| !is_own)?;
            Some((pos, room, part))
        };
        positions.filter_map(candidate).collect()
    }

    /// Replacements for the lost nodes, from these candidates.
    fn among(
        &self,
        seats: &[Seat],
        lost: &[&LostNode],
        candidates: &[&Substitute],
    ) -> Option<Vec<Replacement>> {
        if candidates.len() < lost.len() {
            return None;
        }
        let slots = self.slots_of(&lost.first()?.part);
        // Tasks that ran together do so again; where nodes are counted, one node gets one slot anyway.
        let seat =
            |(_, room, part): &&Substitute| (part.node, if self.need.counts_nodes() { *room } else { slots });
        let rooms: Vec<Seat> = seats.iter().copied().chain(candidates.iter().map(seat)).collect();
        let placement = self.place(seats, (lost.len(), slots), &rooms)?;
        let come = placement.positions().into_iter();
        let come = come.filter_map(|pos| candidates.iter().find(|(free, ..)| *free == pos));
        let made = lost.iter().zip(come).map(|(lost, (.., part))| Replacement {
            lost: lost.part.node,
            part: NodeAlloc { tasks: lost.part.tasks, ..part.clone() },
        });
        let made: Vec<Replacement> = made.collect();
        (made.len() == lost.len()).then_some(made)
    }

    /// The number of slots of the job that fit on a node, and what `slots` slots would hold of it.
    fn room(&self, id: NodeId, slots: u32) -> Option<(u32, NodeAlloc)> {
        let node = self.cluster.node(id).filter(|node| may_have_room(node, self.alloc.exclusive))?;
        self.eligible.pos(id.0)?;
        let (cpus, memory) = (node.free_cpus().len(), node.free_memory_mb());
        let gres = (0..node.shape.gres.len()).map(|entry| u64::from(node.free_gres(entry).len()));
        // Suspended jobs on the node are checked below.
        let mut free: Given = [u64::from(cpus), memory, 0].into_iter().chain(gres).collect();
        // Limits of the partition on CPUs are checked below, too.
        free.resize(self.inventory.full(id).len(), u64::MAX);
        let room = self.need.slots(&node.shape, &free);
        let given = self.need.takes(&node.shape, &free, slots).filter(|_| room >= slots)?;
        let lasts = self.job.remaining(self.now);
        let reservation = self.alloc.reservation.as_deref();
        let may = !self.closed.contains(id.index())
            && self.cluster.lets_start(self.job, lasts, reservation, &[id], self.now);
        let part = start_part(self.need, &node.shape, (id, slots), &given);
        (self.take)(node, &part, self.alloc.exclusive).filter(|_| may).map(|part| (room, part))
    }

    /// Number of slots of the job in a part.
    fn slots_of(&self, part: &NodeAlloc) -> u32 {
        let gpus = |gres: &GresAlloc| {
            let called = self.cluster.node(part.node).and_then(|node| node.shape.called(gres));
            called.filter(|called| called.name == "gpu").map_or(0, |called| called.count)
        };
        match self.need.slot {
            Slot::Node { .. } => 1,
            Slot::Tasks { each } => part.tasks / each,
            Slot::Gpu { .. } => part.gres.iter().map(gpus).sum(),
        }
    }

    /// The best placement with `more` nodes beside those in `seats`, with `each` slots on each, from the
    /// nodes in `rooms`.
    fn place(&self, seats: &[Seat], (more, each): (usize, u32), rooms: &[Seat]) -> Option<Placement> {
        let fabric = &*self.eligible.fabric;
        let mut by_position = vec![0; fabric.len()];
        for (node, slots) in rooms {
            by_position[fabric.pos(*node)?.index()] = *slots;
        }
        let slots = slots_by_position(fabric, self.need, by_position);
        let mut required: Vec<Pos> = seats.iter().filter_map(|(node, _)| fabric.pos(*node)).collect();
        required.sort_unstable();
        let nodes = u32::try_from(seats.len() + more).ok()?;
        let known: u32 = seats.iter().map(|(_, slots)| *slots).sum();
        let tasks = known.checked_add(each.checked_mul(u32::try_from(more).ok()?)?)?;
        let ask = Ask {
            nodes: Some((nodes, nodes)),
            tasks: self.ask.tasks.map(|_| tasks),
            required,
            ..self.ask.clone()
        };
        let occupied = self.ask.minds_others(1).map(|_| self.occupied());
        let budget = Some(self.budget);
        let view = View { occupied: occupied.as_ref(), budget, ..self.eligible.view(&slots) };
        place::place(&view, &ask).ok()
    }

    /// Positions on which other jobs hold something, or for which nodes are kept.
    fn occupied(&self) -> FixedBitSet {
        let others =
            |node: &Node| node.jobs.iter().any(|job| *job != self.job.id) || !node.nominees.is_empty();
        positions_where(&self.eligible.fabric, |node| {
            self.cluster.node(node).is_some_and(others) || self.closed.contains(node.index())
        })
    }

    /// The job's record with its new nodes.
    fn why(&self, found: &[Replacement]) -> Why {
        let fabric = &*self.eligible.fabric;
        let name = |node: NodeId| self.cluster.node(node).map_or("", |node| &**node.name()).to_owned();
        let sentence = |made: &Replacement| {
            if made.part.node == made.lost {
                return format!("{} failed, and is back", name(made.lost));
            }
            let ends = [made.lost, made.part.node].map(|node| fabric.pos(node));
            let both: Option<Vec<Pos>> = ends.into_iter().collect();
            let common = both.and_then(|mut both| {
                both.sort_unstable();
                fabric.deepest_common(&both)
            });
            let seen = common.map(|id| fabric.domain(id));
            let seen = seen.filter(|domain| domain.layer().index() < fabric.layer_names().len());
            let place = seen.map_or_else(String::new, |domain| {
                format!("; both are in {} {}", fabric.layer_name(domain.layer()), domain.name())
            });
            format!("{} takes the place of {}, which failed{place}", name(made.part.node), name(made.lost))
        };
        let sentences: Vec<String> = found.iter().map(sentence).collect();
        let made = found.iter().map(|made| made.part.node);
        let nodes: Vec<NodeId> = self.alloc.nodes.iter().map(|part| part.node).chain(made).collect();
        Why {
            sentence: sentences.join(". "),
            spans: self.cluster.spans(self.job, &nodes),
            ..self.alloc.why.clone()
        }
    }
}
