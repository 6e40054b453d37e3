//! Preemption: the cheapest set of running jobs that make way so that another job fits. The victims have
//! lower tiers, or QOS that the job's own may preempt.
//!
//! The search runs domain by domain: for every domain that could hold the job if others left, it finds the
//! cheapest set of victims by `[preempt] cost`. Of these sets the cheapest is taken, and of equally cheap
//! ones the set in the domain with the least waste: what the domain would have left if every possible victim
//! left. For the components of a het job, which may be in several domains, the search runs once over the
//! whole fabric.
//!
//! A set is proposed only if the whole job then fits, by the same placement code. Victims are whole jobs that
//! it may preempt. No cheaper set exists unless the search budget was used up, which the answer says.
//! Promises to jobs that come first in the queue are not touched.

pub(super) mod cost;
mod first_set;
mod freed_fabric;
mod group;
pub(super) mod moves;
mod search;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::cluster::Cluster;
use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::{Alloc, NodeAlloc, StartPart};
use crate::model::config::{Policy, PreemptBy};
use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::nomination::Nomination;
use crate::model::phase::Phase;
use crate::sched::inventory::amounts::{CPUS, GRES, MEMORY};
use crate::sched::request::counts::Counts;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::sched::timeline::holding::StartedPart;
use crate::text::time::Time;

use super::inventory::Inventory;
use super::place::{Ask, Placement, SharedBudget, Strategy};
use super::plan::Start;
use super::planned_starts::Reservation;
use super::precedence::{self, Rank};
use super::request::{Part, Request};
use super::together::{Nearness, Seat};
use cost::{ComparedLoss, Loss};
pub(super) use freed_fabric::positive;
use freed_fabric::{Clearing, FreedFabric};
use group::Group;
use search::VictimSearch;

/// The free or held amounts of a node, in the order of a numbered amount. A free amount is negative where a
/// later job is promised what a running one holds.
pub(super) type Amount = Vec<i64>;

/// A running job that may be preempted.
#[derive(Clone, Debug)]
pub(super) struct Victim {
    pub(super) attempt: Attempt,
    pub(super) rank: Rank,
    pub(super) loss: Loss,
    /// The array that the job is a task of.
    pub(super) array: Option<JobId>,
    /// The time at which the job has ended if it is asked to leave now.
    pub(super) gone: Time,
    /// True if the job would only be suspended: it gives up its CPUs and nothing else, and ends later than
    /// planned.
    pub(super) stays: bool,
    pub(super) held: Vec<(NodeId, Amount)>,
}

/// A job that wants to preempt others, or a component of one.
pub(super) struct Claimant<'a> {
    /// The rank of the job where it would run.
    pub(super) rank: Rank,
    /// The array that the job is a task of: tasks of one array never preempt each other.
    pub(super) array: Option<JobId>,
    pub(super) request: &'a Request,
    pub(super) eligible: &'a Arc<EligibleNodes>,
    /// The asks for the numbers of nodes that will do, the largest first.
    pub(super) asks: &'a [Ask],
    /// Nodes that are reserved for others while the job would run.
    pub(super) shut: Option<&'a FixedBitSet>,
}

impl Claimant<'_> {
    /// True if the job may run on a node at all.
    fn may_use(&self, inventory: &Inventory, node: NodeId) -> bool {
        let shut = self.shut.is_some_and(|shut| shut.contains(node.index()));
        inventory.nodes[node.index()].available && !shut && self.eligible.admitted.contains(node.index())
    }

    fn wants_whole_leaves(&self) -> bool {
        self.asks.iter().any(|ask| ask.whole_leaves)
    }
}

/// The victims of a job, and the nodes that it then gets.
pub(super) struct Way {
    pub(super) victims: Vec<Attempt>,
    /// Jobs whose nominations the job takes over.
    pub(super) displaces: Vec<JobId>,
    /// The nodes of the job; for a het job of each component.
    pub(super) seats: Vec<Seat>,
    /// The time at which the last victim has ended, and that victim.
    pub(super) gone: Time,
    pub(super) last: Option<JobId>,
    /// True if no cheaper set exists.
    pub(super) exact: bool,
    /// The cost, for comparison with other ways.
    pub(super) price: ComparedLoss,
}

/// The reason why no job is preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoWay {
    /// The jobs that are leaving already free enough.
    Needless,
    /// The job would not fit even without its possible victims.
    Hopeless,
}

/// Free amounts, possible victims and promises during a pass.
#[derive(Debug, Default)]
pub(super) struct Field {
    policy: Arc<Policy>,
    /// The free amounts of each node; empty if preemption is off.
    free: Vec<Amount>,
    victims: Vec<Victim>,
    /// Nominations of jobs that the pass has not looked at yet.
    nominated: BTreeMap<JobId, KeptNodes>,
    /// Nominations that were taken over in this pass, with the job that did.
    displaced: BTreeMap<JobId, JobId>,
    starts: usize,
    reserved: usize,
    /// Nodes that are promised to a job from some time on.
    promised: BTreeSet<NodeId>,
}

/// The nodes that are kept for a job.
#[derive(Debug, Default)]
struct KeptNodes {
    /// The rank of the job: a job that could not have preempted the same victims does not take the nodes
    /// over, even if it comes first in the queue.
    rank: Rank,
    /// The array that the job is a task of.
    array: Option<JobId>,
    held: Vec<(NodeId, Amount)>,
}

/// The rank of a preemptor, and the array that it is a task of.
type Caller = (Rank, Option<JobId>);

/// The cheapest set of one or all domains, before affected nominations are known.
struct Choice {
    victims: Vec<usize>,
    loss: Loss,
    seats: Vec<Seat>,
    exact: bool,
}

impl Field {
    /// The state at the beginning of a pass. Jobs that are leaving count as gone.
    pub(super) fn new(cluster: &Cluster, inventory: &Inventory, now: Time) -> Self {
        let whole = cluster.policy();
        let policy = &whole.preempt;
        if policy.by == PreemptBy::None {
            return Self::default();
        }
        let free = (0..inventory.nodes.len()).map(|index| full(inventory, NodeId::at(index)));
        let mut field = Self { policy: Arc::clone(whole), free: free.collect(), ..Self::default() };
        for job in cluster.jobs().active() {
            let Some(alloc) = job.phase.alloc().filter(|_| stays(&job.phase)) else { continue };
            let mut held = held(inventory, job, alloc);
            field.take(&held);
            if job.phase.preempted().is_some() || job.spec.is_follower() {
                continue;
            }
            if let Some(manner) = precedence::manner(cluster, job, now) {
                let all = std::iter::once(job).chain(cluster.jobs().followers(job));
                let all = all.filter_map(|job| Some((job, &**job.phase.alloc()?))).collect::<Vec<_>>();
                let nodes = all.iter().map(|(_, alloc)| alloc.nodes.len() as u64).sum();
                let work = job.phase.unsaved_time(now).saturating_mul(nodes);
                let loss = Loss { level: manner.rank.level, work, jobs: 1 };
                let (rank, gone) = (manner.rank, now + manner.grace.0);
                let stays = manner.then.is_none();
                if stays {
                    held = all.iter().flat_map(|(job, alloc)| cpus_of(inventory, job, alloc)).collect();
                } else {
                    held.extend(all[1..].iter().flat_map(|(job, alloc)| self::held(inventory, job, alloc)));
                }
                let (attempt, array) = (job.attempt(), array_of(job));
                field.victims.push(Victim { attempt, rank, loss, array, gone, stays, held });
            }
        }
        for (job, nomination) in cluster.jobs().nominated() {
            let held = claims(inventory, job, nomination);
            field.take(&held);
            let partition = cluster.partition(&nomination.partition);
            let rank = partition.map(|partition| Rank::of(whole, &job.spec, &partition.config));
            let kept = KeptNodes { rank: rank.unwrap_or_default(), array: array_of(job), held };
            field.nominated.insert(job.id, kept);
        }
        field
    }

    /// True if a job of that rank could preempt any job, or take over a nomination.
    pub(super) fn has_victims_for(&self, rank: Rank) -> bool {
        let mut victims = self.victims.iter();
        victims.any(|victim| rank.preempts(victim.rank, &self.policy))
            || self.takeovers((rank, None)).next().is_some()
    }

    /// The lowest level of all possible victims (0 where levels do not count), and the free amounts if all of
    /// them left. `None` if there are no possible victims.
    pub(super) fn reach(&self, inventory: &Inventory) -> Option<(u32, Counts)> {
        let lowest = self.victims.iter().map(|victim| victim.rank.level).min()?;
        let lowest = if self.policy.preempt.by == PreemptBy::Partition { lowest } else { 0 };
        let mut cleared = self.free.clone();
        self.victims.iter().for_each(|victim| add(&mut cleared, &victim.held));
        let mut all = Counts::default();
        for (node, free) in inventory.nodes.iter().zip(&cleared).filter(|(node, _)| node.available) {
            all.add(Counts::free(&positive(free), inventory.rooms.amount(inventory.rooms.full(node.class))));
        }
        Some((lowest, all))
    }

    /// The time at which the last possible victim has ended if all are asked to leave now.
    pub(super) fn last_gone(&self) -> Time {
        self.victims.iter().map(|victim| victim.gone).max().unwrap_or_default()
    }

    /// True if a job may be preempted for claimants of that rank that are not tasks of its own array. A job
    /// that would only be suspended ends later, so it is spared where its nodes are promised. It also stays
    /// in its leaves, so it is spared if all claimants want whole leaves.
    fn may_leave(&self, victim: &Victim, rank: Rank, claimants: &[Claimant<'_>]) -> bool {
        let is_sibling = |claimant: &Claimant<'_>| are_siblings(claimant.array, victim.array);
        let promised = || victim.held.iter().any(|(node, _)| self.promised.contains(node));
        let want_leaves = || claimants.iter().all(Claimant::wants_whole_leaves);
        rank.preempts(victim.rank, &self.policy)
            && !claimants.iter().any(is_sibling)
            && !(victim.stays && (promised() || want_leaves()))
    }

    /// The nominations that a job may take over.
    fn takeovers(&self, (rank, array): Caller) -> impl Iterator<Item = (JobId, &KeptNodes)> {
        let may =
            move |kept: &KeptNodes| rank.covers(kept.rank, &self.policy) && !are_siblings(array, kept.array);
        self.nominated.iter().filter(move |(_, kept)| may(kept)).map(|(job, kept)| (*job, kept))
    }

    /// Notes that a job with a nomination has its turn: no later job can take it over.
    ///
    /// # Errors
    /// The earlier job that has taken it over.
    pub(super) fn confirm(&mut self, job: JobId) -> Result<(), JobId> {
        self.nominated.remove(&job);
        self.displaced.get(&job).map_or(Ok(()), |by| Err(*by))
    }

    /// Notes the starts and reservations of the pass since the last call. A reservation counts as if it began
    /// now: no job is preempted for one job on nodes that are promised to another.
    pub(super) fn catch_up(
        &mut self,
        inventory: &Inventory,
        starts: &[Start],
        reserved: &[Arc<Reservation>],
    ) {
        for start in starts[self.starts..].iter().flat_map(Start::all) {
            self.take(&of_start(inventory, start).collect::<Vec<_>>());
        }
        for made in &reserved[self.reserved..] {
            self.promised.extend(made.parts.iter().map(|part| part.node));
            let held: Vec<_> = made.parts.iter().map(|part| (part.node, signed(&part.taken))).collect();
            self.take(&held);
        }
        (self.starts, self.reserved) = (starts.len(), reserved.len());
    }

    /// The cheapest victims for a job, searched for with the steps of `budget`.
    ///
    /// # Errors
    /// [`NoWay`] if no job is preempted.
    pub(super) fn way(
        &self,
        inventory: &Inventory,
        claimant: &Claimant<'_>,
        budget: &SharedBudget,
    ) -> Result<Way, NoWay> {
        self.cheaper((claimant.rank, claimant.array), |free| self.cheapest(inventory, claimant, free, budget))
    }

    /// The cheapest victims for the components of a het job. Only jobs that every component could preempt by
    /// itself are victims.
    ///
    /// # Errors
    /// [`NoWay`] if no job is preempted.
    pub(super) fn way_together(
        &self,
        inventory: &Inventory,
        claimants: &[Claimant<'_>],
        near: &Nearness,
        budget: &SharedBudget,
    ) -> Result<Way, NoWay> {
        // All components have one QOS, so the lowest rank is covered by the others.
        let rank = claimants.iter().map(|claimant| claimant.rank).min().ok_or(NoWay::Hopeless)?;
        let leaves = |index: &usize| self.may_leave(&self.victims[*index], rank, claimants);
        let may: Vec<usize> = (0..self.victims.len()).filter(leaves).collect();
        self.cheaper((rank, None), |free| {
            let field = (free, &*self.victims, self.policy.preempt.cost);
            Group::new(inventory, claimants, near, field, budget).cheapest(&may)
        })
    }

    /// The result of `cheapest` on the free amounts or, if that costs less, with nominations of later jobs
    /// taken over.
    fn cheaper(&self, caller: Caller, cheapest: impl Fn(&[Amount]) -> Option<Choice>) -> Result<Way, NoWay> {
        let mine = cheapest(&self.free);
        if mine.as_ref().is_some_and(|choice| choice.victims.is_empty()) {
            return Err(NoWay::Needless);
        }
        let theirs = self.takeovers(caller).next().and_then(|_| {
            let mut freed = self.free.clone();
            self.takeovers(caller).for_each(|(_, kept)| add(&mut freed, &kept.held));
            cheapest(&freed)
        });
        let price = |choice: &Choice| choice.loss.price(self.policy.preempt.cost);
        let choice = match (mine, theirs) {
            (Some(mine), Some(theirs)) if price(&theirs) < price(&mine) => theirs,
            (Some(mine), _) => mine,
            (None, theirs) => theirs.ok_or(NoWay::Hopeless)?,
        };
        Ok(self.settle(caller, choice))
    }

    /// Applies a way to the state.
    pub(super) fn follow(&mut self, by: JobId, way: &Way) {
        for job in &way.displaces {
            let kept = self.nominated.remove(job).unwrap_or_default();
            add(&mut self.free, &kept.held);
            self.displaced.insert(*job, by);
        }
        for victim in self.victims.extract_if(.., |victim| way.victims.contains(&victim.attempt)) {
            add(&mut self.free, &victim.held);
        }
        let parts = way.seats.iter().flat_map(|seat| &seat.parts);
        let held: Vec<_> = parts.map(|part| (part.node, signed(&part.taken))).collect();
        self.take(&held);
    }

    fn take(&mut self, held: &[(NodeId, Amount)]) {
        held.iter().for_each(|(node, held)| minus(&mut self.free[node.index()], held));
    }

    /// The cheapest set over all domains, given the free amounts if no job leaves.
    fn cheapest(
        &self,
        inventory: &Inventory,
        claimant: &Claimant<'_>,
        free: &[Amount],
        budget: &SharedBudget,
    ) -> Option<Choice> {
        let Claimant { rank, request, .. } = *claimant;
        let freed = FreedFabric { inventory, claimant, free, domain: None, budget };
        let fabric = freed.fabric();
        let positions = || (0..fabric.len()).map(|index| fabric.node(Pos::at(index)));
        let base: Vec<u32> = positions().map(|node| freed.slots(node, &free[node.index()])).collect();
        if let Some(placement) = Clearing::new(freed, &base).place() {
            let seats = vec![self.seat(&freed, &[], placement)?];
            return Some(Choice { victims: Vec::new(), loss: Loss::default(), seats, exact: true });
        }
        let leaves =
            |index: &usize| self.may_leave(&self.victims[*index], rank, std::slice::from_ref(claimant));
        let may: Vec<usize> = (0..self.victims.len()).filter(leaves).collect();
        let mut on_node: Vec<Vec<(usize, &Amount)>> = vec![Vec::new(); free.len()];
        for index in &may {
            for (node, held) in &self.victims[*index].held {
                on_node[node.index()].push((*index, held));
            }
        }
        let mut cleared = Amount::new();
        let most = positions().zip(&base).map(|(node, base)| {
            let here = &on_node[node.index()];
            if here.is_empty() {
                return *base;
            }
            cleared.clone_from(&free[node.index()]);
            here.iter().for_each(|(_, held)| plus(&mut cleared, held));
            freed.slots(node, &cleared)
        });
        let most: Vec<u32> = most.collect();
        let mut searches = Vec::new();
        for domain in self.domains(&freed) {
            let freed = FreedFabric { domain, ..freed };
            let range = freed.range();
            let (nodes, room) = count(&most[range.clone()]);
            if room < request.min_slots() || nodes < u64::from(request.min_nodes()) {
                continue;
            }
            let here = range.clone().map(|index| fabric.node(Pos::at(index)));
            let here = here.flat_map(|node| &on_node[node.index()]);
            let local: BTreeSet<usize> = here.map(|(index, _)| *index).collect();
            let local = local.into_iter().collect();
            let search = VictimSearch::new(freed, &base, &self.victims, local, self.policy.preempt.cost);
            let waste = room - request.min_slots();
            searches.extend(
                search.bound.map(|bound| (bound.price(self.policy.preempt.cost), waste, range.start, search)),
            );
        }
        searches.sort_by_key(|(bound, waste, start, _)| (*bound, *waste, *start));
        let found = self.best(searches)?;
        let search::VictimSet { victims, loss, placement } = found;
        let seats = vec![self.seat(&freed, &victims, placement)?];
        Some(Choice { victims, loss, seats, exact: !budget.is_spent() })
    }

    /// The best set of several domains; the most promising domains are searched first.
    fn best(&self, searches: Vec<(ComparedLoss, u64, usize, VictimSearch<'_>)>) -> Option<search::VictimSet> {
        let mut best: Option<(u64, search::VictimSet)> = None;
        for (bound, waste, _, search) in searches {
            let limit = best.as_ref().map(|(wasted, best)| {
                let [first, second, third] = best.loss.price(self.policy.preempt.cost);
                // A set of equal cost is better if its domain wastes less.
                [first, second, third + u64::from(waste < *wasted)]
            });
            if limit.is_some_and(|limit| bound >= limit) {
                continue;
            }
            if let Some(found) = search.run(limit) {
                best = Some((waste, found));
            }
        }
        best.map(|(_, found)| found)
    }

    /// The domains to compare: all that a `must` allows, or only the roots if `topology = false`. `None`
    /// stands for all nodes; it is the only one if the job ignores the fabric or the fabric has no domains.
    fn domains(&self, freed: &FreedFabric<'_>) -> Vec<Option<DomainId>> {
        let fabric = freed.fabric();
        let flat = freed.claimant.asks.first().is_none_or(|ask| ask.strategy == Strategy::Flat);
        if flat || fabric.roots().is_empty() {
            return vec![None];
        }
        if !self.policy.preempt.topology {
            return fabric.roots().iter().copied().map(Some).collect();
        }
        let highest = freed.claimant.asks.first().and_then(|ask| ask.must).unwrap_or(fabric.top());
        let highest = highest.max(Layer::LEAF);
        fabric.domains().filter(|(_, domain)| domain.layer() <= highest).map(|(id, _)| Some(id)).collect()
    }

    /// The nodes of a job, and the amounts that it takes there once the victims have left.
    fn seat(&self, freed: &FreedFabric<'_>, victims: &[usize], placement: Placement) -> Option<Seat> {
        let leaving = || victims.iter().flat_map(|index| &self.victims[*index].held);
        let cleared = |node: NodeId| {
            let mut cleared = freed.free[node.index()].clone();
            leaving().filter(|(on, _)| *on == node).for_each(|(_, held)| plus(&mut cleared, held));
            cleared
        };
        seat(freed.inventory, freed.claimant, cleared, placement)
    }

    /// Computes the nominations that a choice takes over.
    fn settle(&self, caller: Caller, choice: Choice) -> Way {
        let displaces = self.displaced(caller, &choice);
        let victims: Vec<&Victim> = choice.victims.iter().map(|index| &self.victims[*index]).collect();
        let last = victims.iter().map(|victim| (victim.gone, victim.attempt.job)).max();
        Way {
            displaces,
            gone: last.map(|(gone, _)| gone).unwrap_or_default(),
            last: last.map(|(_, job)| job),
            victims: victims.iter().map(|victim| victim.attempt).collect(),
            seats: choice.seats,
            exact: choice.exact,
            price: choice.loss.price(self.policy.preempt.cost),
        }
    }

    /// The nominations that do not fit beside a choice.
    fn displaced(&self, caller: Caller, choice: &Choice) -> Vec<JobId> {
        if self.takeovers(caller).next().is_none() {
            return Vec::new();
        }
        let mut left = self.free.clone();
        choice.victims.iter().for_each(|index| add(&mut left, &self.victims[*index].held));
        let mut displaced = Vec::new();
        let parts = || choice.seats.iter().flat_map(|seat| &seat.parts);
        parts().for_each(|part| minus(&mut left[part.node.index()], &signed(&part.taken)));
        for part in parts() {
            for (job, kept) in self.takeovers(caller) {
                let short = left[part.node.index()].iter().any(|amount| *amount < 0);
                let holds = kept.held.iter().any(|(node, _)| *node == part.node);
                if short && holds && !displaced.contains(&job) {
                    add(&mut left, &kept.held);
                    displaced.push(job);
                }
            }
        }
        displaced
    }
}

/// The placement of a job together with the amounts that it takes of each node; `free` gives the free amounts
/// of a node.
pub(super) fn seat(
    inventory: &Inventory,
    claimant: &Claimant<'_>,
    free: impl Fn(NodeId) -> Amount,
    placement: Placement,
) -> Option<Seat> {
    let fabric = &claimant.eligible.fabric;
    let mut parts = Vec::with_capacity(placement.shares.len());
    for (pos, slots) in &placement.shares {
        let node = fabric.node(*pos);
        let room = positive(&free(node));
        let taken = claimant.request.need.takes(&inventory.nodes[node.index()].shape, &room, *slots)?;
        parts.push(Part { node, slots: *slots, taken: (&*taken).into() });
    }
    if claimant.wants_whole_leaves() {
        inventory.close_leaves(fabric, &mut parts);
    }
    Some(Seat { placement, parts })
}

/// Number of placements whose steps together are the budget of a whole search for victims.
const PLACEMENTS: u64 = 4;

/// The steps of a whole search for victims, all of its placements included.
pub(super) fn budget(claimants: &[Claimant<'_>]) -> SharedBudget {
    let steps = claimants.iter().flat_map(|claimant| claimant.asks).map(|ask| ask.budget).max();
    SharedBudget::new(steps.unwrap_or(0).saturating_mul(PLACEMENTS))
}

/// The array that a job is a task of.
fn array_of(job: &Job) -> Option<JobId> {
    job.array.as_ref().map(|part| part.id)
}

/// True if two jobs are tasks of one array.
fn are_siblings(one: Option<JobId>, other: Option<JobId>) -> bool {
    one.is_some() && one == other
}

/// The number of nodes that have slots, and the number of slots.
fn count(slots: &[u32]) -> (u64, u64) {
    let nodes = slots.iter().filter(|slots| **slots > 0).count() as u64;
    (nodes, slots.iter().map(|slots| u64::from(*slots)).sum())
}

pub(super) fn add(free: &mut [Amount], held: &[(NodeId, Amount)]) {
    held.iter().for_each(|(node, held)| plus(&mut free[node.index()], held));
}

pub(super) fn plus(free: &mut Amount, held: &Amount) {
    free.iter_mut().zip(held).for_each(|(free, held)| *free += held);
}

pub(super) fn minus(free: &mut Amount, held: &Amount) {
    free.iter_mut().zip(held).for_each(|(free, held)| *free -= held);
}

pub(super) fn signed(amount: &[u64]) -> Amount {
    amount.iter().map(|amount| i64::try_from(*amount).unwrap_or(i64::MAX)).collect()
}

/// The amount of a part, for a job in a partition. Its CPUs count in the lowest sockets that may have them.
fn amount(inventory: &Inventory, part: &StartPart, partition: &str) -> Amount {
    let (full, shape) = (inventory.full(part.node), &inventory.nodes[part.node.index()].shape);
    let mut amount = vec![0; full.len()];
    amount[CPUS] = u64::from(part.cpus);
    amount[MEMORY] = part.memory_mb;
    let (devices, further) = amount[GRES..].split_at_mut(shape.gres.len());
    for (entry, count) in &part.gres {
        if let Some(amount) = devices.get_mut(usize::from(*entry)) {
            *amount += u64::from(*count);
        }
    }
    let (entries, threads) = (inventory.limit_entries_named(partition), shape.threads_per_core.max(1));
    let cpus = (u64::from(part.cpus), u64::from(threads), false);
    // The part was placed within the limits; only a change of them leaves CPUs that they do not admit.
    let _ = entries.take(&full[GRES + shape.gres.len()..], cpus, further);
    signed(&amount)
}

/// The amount that a part takes of its node; the whole node if the job has it exclusively.
fn of_part(inventory: &Inventory, part: &StartPart, partition: &str, exclusive: bool) -> (NodeId, Amount) {
    let taken = if exclusive { full(inventory, part.node) } else { amount(inventory, part, partition) };
    (part.node, taken)
}

/// The amounts that a start takes of its nodes.
pub(super) fn of_start<'a>(
    inventory: &'a Inventory,
    start: &'a Start,
) -> impl Iterator<Item = (NodeId, Amount)> + 'a {
    start.parts.iter().map(|part| of_part(inventory, part, &start.partition, start.exclusive))
}

/// True if a job runs or is suspended, and no preemption that has been decided ends it. A job that is to be
/// suspended stays with its memory and its devices.
pub(super) fn stays(phase: &Phase) -> bool {
    let leaves = phase.preempted().is_some_and(|told| told.then.is_some());
    !leaves && matches!(phase, Phase::Running { .. } | Phase::Suspended(_))
}

/// The amounts that suspending a job would free: its CPUs; and, if it has nodes to itself, everything that it
/// was not given.
fn cpus_of(inventory: &Inventory, job: &Job, alloc: &Alloc) -> Vec<(NodeId, Amount)> {
    let of_part = |part: &NodeAlloc| {
        let kept = signed(&StartedPart { inventory, partition: &alloc.partition, part }.kept(&IdSet::EMPTY));
        let held = on_node(inventory, job, alloc, part);
        (part.node, held.iter().zip(&kept).map(|(held, kept)| held - kept).collect())
    };
    alloc.nodes.iter().map(of_part).collect()
}

/// The amounts of one node that a started job holds.
fn on_node(inventory: &Inventory, job: &Job, alloc: &Alloc, part: &NodeAlloc) -> Amount {
    let held = StartedPart { inventory, partition: &alloc.partition, part };
    match &job.phase {
        Phase::Suspended(suspended) => signed(&held.kept(suspended.back_on(part.node))),
        // The job is to be suspended.
        Phase::Running { preempted: Some(told), .. } if told.then.is_none() => {
            signed(&held.kept(&IdSet::EMPTY))
        }
        _ if alloc.exclusive => full(inventory, part.node),
        _ => signed(&held.with(&part.cpus)),
    }
}

/// The amounts that a started job keeps others from using. A suspended job has no node to itself.
pub(super) fn held(inventory: &Inventory, job: &Job, alloc: &Alloc) -> Vec<(NodeId, Amount)> {
    let parts = alloc.nodes.iter();
    let own = parts.map(|part| (part.node, on_node(inventory, job, alloc, part)));
    let closed = inventory.closes(&job.spec, &alloc.partition, alloc.nodes.iter().map(|part| part.node));
    own.chain(closed.into_iter().map(|node| (node, full(inventory, node)))).collect()
}

/// The amounts that must be free for a job to start on nodes kept for it. A job that has nodes to itself may
/// find suspended jobs there, which have no CPUs; it gets what these do not hold.
pub(super) fn needs(inventory: &Inventory, job: &Job, nomination: &Nomination) -> Vec<(NodeId, Amount)> {
    let mut needs = claims(inventory, job, nomination);
    for ((_, need), part) in needs.iter_mut().zip(&nomination.parts) {
        let mut least = amount(inventory, part, &nomination.partition);
        least[CPUS] = need[CPUS];
        *need = least;
    }
    needs
}

/// The amounts that a nomination keeps from other jobs.
pub(super) fn claims(inventory: &Inventory, job: &Job, nomination: &Nomination) -> Vec<(NodeId, Amount)> {
    let own = |part| of_part(inventory, part, &nomination.partition, nomination.exclusive);
    let own = nomination.parts.iter().map(own);
    let closed = inventory.closes(&job.spec, &nomination.partition, nomination.nodes());
    own.chain(closed.into_iter().map(|node| (node, full(inventory, node)))).collect()
}

/// Everything that a node has.
pub(super) fn full(inventory: &Inventory, node: NodeId) -> Amount {
    signed(inventory.full(node))
}
