//! Defragmentation on request: the cheapest moves of running jobs that let a waiting job start in one domain.
//!
//! A move ends a running job that may be requeued, and keeps other nodes for its next attempt. Plans are
//! compared by the node-seconds that the moved jobs lose since their last checkpoints, then by the number of
//! moves, then by the waste of the placement. The search is the search for victims ([`moves`]) under one more
//! condition: all jobs that move are placed again, together, outside of the domain.
//!
//! Guarantees: no job moves onto nodes that are planned for others while it runs, and the request starts on
//! none of these, so no planned start becomes later. The nodes of every move are free when its turn comes. No
//! plan loses less, unless the answer is marked as not exact.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::cluster::Cluster;
use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::Why;
use crate::model::fabric::{DomainId, Layer, Pos};
use crate::model::job::Job;
use crate::model::phase::Phase;
use crate::model::reason::Reason;
use crate::text::time::Time;

use super::explain;
use super::forecast::{ENDLESS, Limits, PlanInput, Prudent};
use super::inventory::amounts::{RoomId, Rooms};
use super::inventory::{Inventory, SceneNode};
use super::licensed;
use super::place::{Ask, Placement, SharedBudget, Strategy};
use super::plan::{Plan, Preemption, Start};
use super::planned_starts::{Reservation, Reservations};
use super::preempt::cost::Loss;
use super::preempt::moves::{self, MoveGoal, MoveSet, MoveSite, Visited};
use super::preempt::{
    self, Amount, Claimant, Victim, add, held, minus, of_start, plus, positive, seat, signed,
};
use super::prospect::{EligibleSets, Prospect};
use super::queue::{Candidate, Queued};
use super::request::eligible_nodes::EligibleNodes;
use super::subject::Subject;
use super::timeline::needs::Needs;
use super::timeline::realm::{OPEN, Realms};
use super::together::{Member, Nearness, Seat, is_sure, place_together};
use super::{Kept, Pass, Remembered};

/// The largest number of waiting jobs that are tried if no job is named, the largest jobs first.
const MOST_TRIED: usize = 16;

/// Number of placements whose steps together are the budget of the whole search for one job.
const PLACEMENTS: u64 = 64;

/// The largest number of moves of which every order is tried.
const MOST_ORDERED: usize = 6;

/// The result of the search for one waiting job.
#[derive(Clone, Debug)]
pub struct Defragmentation {
    /// The waiting job.
    pub job: JobId,
    /// The name of the layer of which one domain is to hold the job.
    pub layer: String,
    /// The moves that let the job start in one domain of that layer.
    pub finding: Finding,
    /// True if no plan is better, and no plan exists if none was found.
    pub exact: bool,
}

/// The moves that let a job start in one domain.
#[derive(Clone, Debug)]
pub enum Finding {
    /// The job can start without any move, in the domain of this name.
    Fits(Start, Arc<str>),
    /// Other jobs have to move.
    Moves(MovePlan),
    /// No moves that let the job start were found.
    Nothing,
}

/// Moves in the order in which they are made, and the start that they make possible.
#[derive(Clone, Debug)]
pub struct MovePlan {
    /// The moves.
    pub moves: Vec<Move>,
    /// The start of the request once all moves are made.
    pub start: Start,
    /// The name of the domain that then holds the request.
    pub domain: Arc<str>,
    /// Slots that are left in the deepest domain that holds the request.
    pub waste: u64,
}

/// One move of a running job to other nodes.
#[derive(Clone, Debug)]
pub struct Move {
    /// The start of the next attempt; its `attempt` is the one that runs now.
    pub start: Start,
    /// The nodes that the attempt runs on, in rank order.
    pub from: Vec<NodeId>,
    /// Node-seconds that the job loses: since its last checkpoint, or since its start.
    pub lost: u64,
}

impl MovePlan {
    /// Node-seconds that all moved jobs lose together.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.moves.iter().map(|moved| moved.lost).fold(0, u64::saturating_add)
    }

    /// A preemption without victims, which keeps the nodes of the domain for the request while the moved jobs
    /// end.
    #[must_use]
    pub fn nomination(&self) -> Preemption {
        Preemption {
            start: self.start.clone(),
            detail: format!("{} jobs move out of {}", self.moves.len(), self.domain),
            places: vec![Some(Arc::clone(&self.domain))],
            victims: Vec::new(),
            displaces: Vec::new(),
        }
    }
}

/// The reason for which no moves can be looked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Impossible {
    /// The named job does not wait.
    #[error("job {0} does not wait")]
    NotPending(JobId),
    /// No waiting job asks for more than one node that one domain could hold.
    #[error("no job waits that one domain could hold; name a request with --for")]
    NothingWaits,
    /// The job waits for something other than free nodes.
    #[error("job {job} waits with the reason {reason}, which no move changes")]
    NotForRoom {
        /// The job.
        job: JobId,
        /// The reason for which the job waits.
        reason: Reason,
    },
    /// The search does not support a property or request of the job.
    #[error("job {job} {what}; moves are looked for jobs of one component in no reservation")]
    Unsupported {
        /// The job.
        job: JobId,
        /// The property or request, as the end of a sentence about the job.
        what: &'static str,
    },
    /// No domain could ever hold the job.
    #[error("job {job}: {why}")]
    NoDomain {
        /// The job.
        job: JobId,
        /// The reason in words.
        why: String,
    },
}

/// True if a running job may be moved: a batch job outside of reservations that may be requeued, is not being
/// preempted and is no component of a het job. A job that has lost a node, is still being configured, or may
/// close whole leaves stays.
#[must_use]
pub fn may_move(cluster: &Cluster, job: &Job) -> bool {
    let Phase::Running { alloc, preempted: None, .. } = &job.phase else { return false };
    let inventory = cluster.standing(Inventory::new);
    job.spec.requeue
        && job.spec.batch.is_some()
        && job.spec.het.is_none()
        && alloc.reservation.is_none()
        && alloc.lost.is_empty()
        && job.configuring.is_done()
        && !cluster.awaits_report(job.id)
        && !inventory.may_close(&job.spec)
}

/// Returns the cheapest moves that let a waiting job start in one domain. If `job` is `None`, up to 16
/// waiting jobs are tried, the largest first; the first for which there are moves is taken. `remembered` are
/// the later starts of the last plan.
///
/// # Errors
/// No moves can be looked for.
pub fn defragment(
    cluster: &Cluster,
    now: Time,
    job: Option<JobId>,
    remembered: Option<&Remembered>,
) -> Result<Defragmentation, Impossible> {
    let inventory = cluster.standing(Inventory::new);
    let input = PlanInput { cluster, inventory: &inventory, forecast: &Limits, now };
    let Kept { line, firm, .. } = Kept::new(input, &Subject::default());
    let input = PlanInput { forecast: &Prudent { by: &Limits, firm }, ..input };
    let pass = Pass::new(input, &line);
    let pass = match remembered {
        Some(Remembered { reservations, ground }) => pass.after(reservations, *ground),
        None => pass,
    };
    let (plan, planned) = pass.finish();
    let mut site = Site {
        input,
        plan: &plan,
        planned: &planned,
        eligible_sets: EligibleSets::default(),
        needs: Needs::default(),
    };
    if let Some(job) = job {
        let waits = cluster.job(job).is_some_and(|job| matches!(job.phase, Phase::Pending(_)));
        if !waits {
            return Err(Impossible::NotPending(job));
        }
        let queued = line
            .called(job, now)
            .ok_or_else(|| Impossible::NotForRoom { job, reason: reason(&plan, job) })?;
        return site.search(&queued);
    }
    let mut waiting = line.queue(now, None).candidates;
    let nodes = |queued: &Queued| queued.choices.iter().map(|(_, request)| request.min_nodes()).min();
    waiting.retain(|queued| nodes(queued) > Some(1));
    waiting.sort_by_key(|queued| std::cmp::Reverse(nodes(queued)));
    let mut best: Option<Defragmentation> = None;
    for queued in waiting.iter().take(MOST_TRIED) {
        let Ok(found) = site.search(queued) else { continue };
        match found.finding {
            Finding::Moves(_) => return Ok(found),
            Finding::Fits(..) => {}
            Finding::Nothing => best = best.or(Some(found)),
        }
    }
    best.ok_or(Impossible::NothingWaits)
}

/// The reason for which a job waits in a plan; [`Reason::None`] if the plan does not list the job.
fn reason(plan: &Plan, job: JobId) -> Reason {
    plan.waiting.iter().find(|waiting| waiting.job == job).map_or(Reason::None, |waiting| waiting.reason)
}

/// The same asks, each restricted to one domain of `layer`, or of a lower layer that the ask itself requires.
fn gathered(asks: &[Ask], layer: Layer) -> Vec<Ask> {
    let within =
        |ask: &Ask| Ask { must: Some(ask.must.map_or(layer, |must| must.min(layer))), ..ask.clone() };
    asks.iter().map(within).collect()
}

/// The refusal of a job that no domain can ever hold.
fn too_large(job: JobId) -> Impossible {
    let why = "no domain of its fabric could hold it, even if every node were idle".to_owned();
    Impossible::NoDomain { job, why }
}

/// A cluster with the starts that are planned on it.
struct Site<'a> {
    input: PlanInput<'a>,
    plan: &'a Plan,
    planned: &'a Reservations,
    eligible_sets: EligibleSets,
    needs: Needs,
}

/// A running job that may move, with the data to place it again.
struct Movable {
    candidate: Candidate,
    prospect: Prospect,
    why: Why,
}

impl Site<'_> {
    /// The cheapest moves for one waiting job, over all partitions that it names.
    fn search(&mut self, queued: &Queued) -> Result<Defragmentation, Impossible> {
        let inventory = self.input.inventory;
        let job = queued.attempt.job;
        self.check(queued)?;
        let prospects = self.prospects(&queued.candidate).map_err(|why| Impossible::NoDomain { job, why })?;
        let (movable, victims) = self.movable();
        let board = Board::new(self.input, (self.plan, self.planned), job);
        let steps = prospects.iter().map(|prospect| prospect.stages[0].ask().budget).max().unwrap_or(0);
        let budget = SharedBudget::new(steps.saturating_mul(PLACEMENTS));
        let mut goal = Relocation {
            board: &board,
            movable: &movable,
            victims: &victims,
            budget: &budget,
            steps,
            rooms: inventory.rooms.clone(),
            known: BTreeMap::new(),
            inside: FixedBitSet::new(),
            sure: true,
            best: None,
            prospect: 0,
            eligible: None,
        };
        let (mut layer, mut complete) = (None, true);
        for (index, prospect) in prospects.iter().enumerate() {
            for eligible in &prospect.eligible_sets {
                let stage = &prospect.stages[0];
                let Some(wanted) = goal_layer(eligible, prospect, stage.ask()) else { continue };
                layer = layer.or(Some(eligible.fabric.layer_name(wanted).to_owned()));
                let asks = gathered(&stage.asks, wanted);
                let shut = board.shut(queued.run_time);
                let claimant = Claimant {
                    rank: Default::default(),
                    array: None,
                    request: prospect.request(),
                    eligible,
                    asks: &asks,
                    shut: Some(&shut),
                };
                let free = board.free(queued.run_time);
                (goal.prospect, goal.eligible) = (index, Some(Arc::clone(eligible)));
                let site = MoveSite {
                    inventory,
                    claimant: &claimant,
                    free: &free,
                    movable: &victims,
                    budget: &budget,
                };
                match moves::visit(&site, &eligible.fabric.domains_covering(wanted), &mut goal) {
                    Visited::Fits(domain, placement) => {
                        let name = Arc::clone(eligible.fabric.domain(domain).shared_name());
                        let start = board.start(&claimant, (queued, prospect), &free, placement);
                        let Some(start) = start else { continue };
                        let finding = Finding::Fits(start, name);
                        let layer = layer.unwrap_or_default();
                        return Ok(Defragmentation { job, layer, finding, exact: true });
                    }
                    Visited::Moves { complete: all } => complete &= all,
                }
            }
        }
        let Some(layer) = layer else { return Err(too_large(job)) };
        let exact = complete && goal.sure;
        let found = goal
            .best
            .take()
            .and_then(|best| best.plan(&board, (queued, &prospects[best.prospect]), (&movable, &victims)));
        let finding = found.map_or(Finding::Nothing, Finding::Moves);
        Ok(Defragmentation { job, layer, finding, exact })
    }

    /// Refuses jobs that the search does not support, and jobs that wait for something other than free nodes.
    fn check(&self, queued: &Queued) -> Result<(), Impossible> {
        let PlanInput { cluster, now, .. } = self.input;
        let job = queued.attempt.job;
        let unsupported = |what| Err(Impossible::Unsupported { job, what });
        if !queued.rest.is_empty() {
            return unsupported("is a het job");
        }
        if queued.spec.reservations().next().is_some() {
            return unsupported("asks for a reservation");
        }
        if cluster.job(job).is_some_and(|job| job.nomination().is_some()) {
            return unsupported("has nodes that are kept for it already");
        }
        let reason = reason(self.plan, job);
        let for_room = [Reason::None, Reason::Resources, Reason::Priority, Reason::ReqNodeNotAvail];
        if !for_room.contains(&reason) {
            return Err(Impossible::NotForRoom { job, reason });
        }
        if !licensed::lets_start(cluster, now, &[(&*queued.spec, queued.spec.time_limit, None)]) {
            return Err(Impossible::NotForRoom { job, reason: Reason::Licenses });
        }
        Ok(())
    }

    /// The prospects of a candidate outside of reservations, at least one. The error says why there is none.
    fn prospects(&mut self, candidate: &Candidate) -> Result<Vec<Prospect>, String> {
        let PlanInput { inventory, now, .. } = self.input;
        let mut problem = String::new();
        let mut prospects = Vec::with_capacity(candidate.choices.len());
        for (choice, (_, request)) in candidate.choices.iter().enumerate() {
            let need = self.needs.number(&request.need);
            match self.eligible_sets.prospect(inventory, candidate, choice, need, (OPEN, None), now) {
                Ok(prospect) => prospects.push(prospect),
                Err(error) => problem = error,
            }
        }
        if prospects.is_empty() { Err(problem) } else { Ok(prospects) }
    }

    /// The running jobs that may move, with what each holds and loses.
    fn movable(&mut self) -> (Vec<Movable>, Vec<Victim>) {
        let PlanInput { cluster, inventory, now, .. } = self.input;
        let told: Vec<Attempt> =
            self.plan.preemptions.iter().flat_map(|preemption| preemption.victims.iter().copied()).collect();
        let (mut movable, mut victims) = (Vec::new(), Vec::new());
        for job in cluster.jobs().active().filter(|job| may_move(cluster, job)) {
            let Some(alloc) = job.phase.alloc().filter(|_| !told.contains(&job.attempt())) else { continue };
            let Some(partition) = inventory.partition(&alloc.partition) else { continue };
            let Ok(request) = inventory.request(partition, &job.spec) else { continue };
            let need = self.needs.number(&request.need);
            let limit = job.full_limit.unwrap_or(job.spec.time_limit);
            let run_time = limit.seconds().unwrap_or(ENDLESS).max(1);
            let candidate = Candidate {
                attempt: job.attempt(),
                spec: Arc::clone(&job.spec),
                eligible: now,
                run_time,
                shortest: run_time,
                gather_with: Vec::new(),
                choices: Arc::from([(partition, request)]),
                // A job that is moved counts for its limits as before.
                limits: None,
                rest: Box::default(),
                array: None,
            };
            let made = self.eligible_sets.prospect(inventory, &candidate, 0, need, (OPEN, None), now);
            let Ok(prospect) = made else { continue };
            if prospect.stages[0].ask().minds_others(1).is_some() {
                continue;
            }
            let nodes = alloc.nodes.len() as u64;
            let work = job.phase.unsaved_time(now).saturating_mul(nodes);
            victims.push(Victim {
                attempt: job.attempt(),
                rank: Default::default(),
                loss: Loss { level: 0, work, jobs: 1 },
                array: None,
                gone: now,
                stays: false,
                held: held(inventory, job, alloc),
            });
            movable.push(Movable { candidate, prospect, why: alloc.why.clone() });
        }
        (movable, victims)
    }
}

/// The layer of which one domain is to hold a job: the layer that the ask requires, or else the lowest layer
/// of which some domain could hold the job if every node were idle. `None` if there is no such layer, or
/// without a topology.
fn goal_layer(eligible: &EligibleNodes, prospect: &Prospect, ask: &Ask) -> Option<Layer> {
    let fabric = &eligible.fabric;
    if fabric.roots().is_empty() || ask.strategy == Strategy::Flat {
        return None;
    }
    let request = prospect.request();
    let could_hold = |layer: Layer| {
        fabric.domains_covering(layer).into_iter().any(|id| {
            eligible.idle.of(id) >= request.min_slots()
                && u64::from(eligible.idle.nodes_of(id)) >= u64::from(request.min_nodes())
        })
    };
    match ask.must {
        Some(must) => Some(must.max(Layer::LEAF)),
        None => (Layer::LEAF.0..=fabric.top().0).map(Layer).find(|layer| could_hold(*layer)),
    }
}

/// The free and the planned amounts of all nodes, for the search of one job.
struct Board<'a> {
    input: PlanInput<'a>,
    realms: Realms,
    /// By node: the amount that no job holds or is about to get.
    free: Vec<Amount>,
    /// Later starts of other jobs.
    planned: Vec<&'a Reservation>,
}

impl<'a> Board<'a> {
    fn new(input: PlanInput<'a>, (plan, planned): (&Plan, &'a Reservations), job: JobId) -> Self {
        let PlanInput { cluster, inventory, now, .. } = input;
        let mut free: Vec<Amount> =
            (0..inventory.nodes.len()).map(|index| preempt::full(inventory, NodeId::at(index))).collect();
        let mut take = |held: &[(NodeId, Amount)]| {
            held.iter().for_each(|(node, held)| minus(&mut free[node.index()], held));
        };
        for job in cluster.jobs().active() {
            if let Some(alloc) = job.phase.alloc().filter(|_| preempt::stays(&job.phase)) {
                take(&held(inventory, job, alloc));
            }
        }
        for (job, nomination) in cluster.jobs().nominated() {
            take(&preempt::claims(inventory, job, nomination));
        }
        let starts = plan.starts.iter().chain(plan.preemptions.iter().map(|preemption| &preemption.start));
        for start in starts.flat_map(Start::all).filter(|start| start.attempt.job != job) {
            take(&of_start(inventory, start).collect::<Vec<_>>());
        }
        let planned = planned.iter().map(|made| &**made).filter(|made| made.job != job).collect();
        Self { input, realms: Realms::new(&inventory.reservations, now), free, planned }
    }

    /// By node: the amount that is free for `seconds` from now on, beside the starts that are planned for
    /// later.
    fn free(&self, seconds: u64) -> Vec<Amount> {
        let mut free = self.free.clone();
        let until = self.input.now + seconds;
        let mut on_node: BTreeMap<NodeId, Vec<(Time, Time, Amount)>> = BTreeMap::new();
        for made in self.planned.iter().filter(|made| made.start < until) {
            for part in &made.parts {
                on_node.entry(part.node).or_default().push((made.start, made.end, signed(&part.taken)));
            }
        }
        for (node, planned) in on_node {
            minus(&mut free[node.index()], &most_at_once(&planned));
        }
        free
    }

    /// The nodes that are reserved for others at some time within `seconds` from now on.
    fn shut(&self, seconds: u64) -> FixedBitSet {
        let PlanInput { inventory, now, .. } = self.input;
        let is_shut = |node: &usize| {
            let node = NodeId::at(*node);
            self.realms.shut_by(node, now, now + seconds).is_some()
                || inventory.reservations.iter().any(|other| other.bars(seconds) && other.holds(node))
        };
        let nodes = if self.realms.is_single() { 0 } else { inventory.nodes.len() };
        let mut shut = FixedBitSet::with_capacity(inventory.nodes.len());
        shut.extend((0..nodes).filter(is_shut));
        shut
    }

    /// The start of a job at a placement on the free amounts; `None` if the nodes cannot give the job its
    /// parts.
    fn start(
        &self,
        claimant: &Claimant<'_>,
        (queued, prospect): (&Queued, &Prospect),
        free: &[Amount],
        placement: Placement,
    ) -> Option<Start> {
        let seat = seat(self.input.inventory, claimant, |node| free[node.index()].clone(), placement)?;
        let placed = explain::placed(&claimant.eligible.fabric, &seat.placement, &[]);
        let why = Why { priority: queued.priority, ..placed };
        let task = queued.task(queued.dealt);
        Some(prospect.start(self.input.inventory, (&queued.candidate, task), None, &seat.parts, why))
    }
}

/// For each resource of a node, the largest amount that is planned at any one moment.
fn most_at_once(planned: &[(Time, Time, Amount)]) -> Amount {
    let length = planned.first().map_or(0, |(.., amount)| amount.len());
    let mut most = vec![0; length];
    for (at, ..) in planned {
        let mut sum = vec![0; length];
        for (.., amount) in planned.iter().filter(|(from, to, _)| from <= at && at < to) {
            plus(&mut sum, amount);
        }
        most.iter_mut().zip(&sum).for_each(|(most, sum)| *most = (*most).max(*sum));
    }
    most
}

/// The condition on a set of moves: all jobs that move find other nodes together, outside of the domain.
struct Relocation<'a> {
    board: &'a Board<'a>,
    movable: &'a [Movable],
    victims: &'a [Victim],
    budget: &'a SharedBudget,
    /// Steps of one search for the places of all jobs that move.
    steps: u64,
    rooms: Rooms,
    /// By planned run time: the free amounts of all nodes for so long, and the nodes that are reserved for
    /// others.
    known: BTreeMap<u64, (Vec<Amount>, FixedBitSet)>,
    /// Scratch: the nodes of the domain.
    inside: FixedBitSet,
    /// False once a search for places, or for an order of moves, ended without a sure answer.
    sure: bool,
    best: Option<BestMoves>,
    /// Index of the current prospect of the request; `eligible` are its eligible nodes.
    prospect: usize,
    eligible: Option<Arc<EligibleNodes>>,
}

/// The best set of moves so far.
struct BestMoves {
    loss: Loss,
    prospect: usize,
    eligible: Arc<EligibleNodes>,
    domain: DomainId,
    placement: Placement,
    /// The jobs that move, as indices into `movable`, with their next starts in the order of their turns.
    turns: Vec<(usize, Start)>,
}

impl BestMoves {
    /// The plan that makes the moves of the set; `None` if the request cannot be seated at its placement.
    fn plan(
        &self,
        board: &Board<'_>,
        (queued, prospect): (&Queued, &Prospect),
        (movable, victims): (&[Movable], &[Victim]),
    ) -> Option<MovePlan> {
        let mut free = board.free(queued.run_time);
        self.turns.iter().for_each(|(index, _)| add(&mut free, &victims[*index].held));
        let asks = &prospect.stages[0].asks;
        let claimant = Claimant {
            rank: Default::default(),
            array: None,
            request: prospect.request(),
            eligible: &self.eligible,
            asks,
            shut: None,
        };
        let start = board.start(&claimant, (queued, prospect), &free, self.placement.clone())?;
        let moves = self.turns.iter().map(|(index, start)| {
            let attempt = movable[*index].candidate.attempt;
            let alloc = board.input.cluster.job(attempt.job).and_then(|job| job.phase.alloc());
            Move {
                start: start.clone(),
                from: alloc.iter().flat_map(|alloc| alloc.nodes.iter().map(|part| part.node)).collect(),
                lost: victims[*index].loss.work,
            }
        });
        Some(MovePlan {
            moves: moves.collect(),
            start,
            domain: Arc::clone(self.eligible.fabric.domain(self.domain).shared_name()),
            waste: self.placement.waste,
        })
    }
}

impl MoveGoal for Relocation<'_> {
    fn meets(&mut self, set: &MoveSet<'_>) -> bool {
        let price = (set.loss.work, set.loss.jobs, set.placement.waste);
        let known = self.best.as_ref().map(|best| (best.loss.work, best.loss.jobs, best.placement.waste));
        if known.is_some_and(|known| known <= price) {
            return true;
        }
        let Some(eligible) = self.eligible.clone() else { return true };
        let Some(turns) = self.relocate(set, &eligible) else { return false };
        self.best = Some(BestMoves {
            loss: set.loss,
            prospect: self.prospect,
            eligible,
            domain: set.domain,
            placement: set.placement.clone(),
            turns,
        });
        true
    }

    fn is_worth(&self, loss: Loss) -> bool {
        self.best.as_ref().is_none_or(|best| {
            let (mine, known) = ((loss.work, loss.jobs), (best.loss.work, best.loss.jobs));
            mine < known || mine == known && best.placement.waste > 0
        })
    }
}

impl Relocation<'_> {
    /// The next starts of all jobs that move, in the order of their turns; `None` if no places or no order
    /// were found.
    fn relocate(&mut self, set: &MoveSet<'_>, eligible: &EligibleNodes) -> Option<Vec<(usize, Start)>> {
        let inventory = self.board.input.inventory;
        let fabric = &eligible.fabric;
        self.inside = FixedBitSet::with_capacity(inventory.nodes.len());
        let inside = fabric.domain(set.domain).range();
        self.inside.extend(inside.map(|index| fabric.node(Pos::at(index)).index()));
        let mut members = Vec::with_capacity(set.jobs.len());
        let movable = self.movable;
        for index in set.jobs {
            let Movable { prospect, candidate, .. } = &movable[*index];
            let rooms = self.rooms_for(candidate.run_time, prospect.plain(), set.jobs, &[]);
            let (eligible, need) = (&**prospect.plain(), &prospect.request().need);
            members.push(Member { eligible, need, asks: &prospect.stages[0].asks, rooms, occupied: None });
        }
        let mut steps = self.steps;
        let near = Nearness::default();
        let shared = Some(self.budget);
        let found = place_together(inventory, &mut self.rooms, &members, &near, (&mut steps, shared));
        self.sure &= is_sure(&found) || found.is_ok();
        let seats = found.ok()?;
        let starts = set.jobs.iter().zip(seats).map(|(index, seat)| (*index, self.start(*index, &seat)));
        if let Some(turns) = self.in_turn(starts.collect()) {
            return Some(turns);
        }
        // The jobs exchange nodes in a cycle, so these starts have no order. Other placements may have one.
        let mut turns = Vec::with_capacity(set.jobs.len());
        let has_order = set.jobs.len() <= MOST_ORDERED && self.in_sequence(set.jobs, &mut turns);
        self.sure &= has_order;
        has_order.then_some(turns)
    }

    /// Places jobs one after another, each on the amounts that the earlier ones leave, in any order that
    /// works. Returns true if all jobs have been placed in `turns`.
    fn in_sequence(&mut self, jobs: &[usize], turns: &mut Vec<(usize, Start)>) -> bool {
        if turns.len() == jobs.len() {
            return true;
        }
        for index in jobs {
            if turns.iter().any(|(done, _)| done == index) || self.budget.is_spent() {
                continue;
            }
            let Some(start) = self.next_place(*index, turns) else { continue };
            turns.push((*index, start));
            if self.in_sequence(jobs, turns) {
                return true;
            }
            turns.pop();
        }
        false
    }

    /// The next start of a job once the jobs in `done` have moved; `None` if no place was found.
    fn next_place(&mut self, index: usize, done: &[(usize, Start)]) -> Option<Start> {
        let (inventory, movable) = (self.board.input.inventory, self.movable);
        let Movable { prospect, candidate, .. } = &movable[index];
        let left: Vec<usize> = done.iter().map(|(other, _)| *other).chain([index]).collect();
        let taken: Vec<(NodeId, Amount)> =
            done.iter().flat_map(|(_, start)| of_start(inventory, start)).collect();
        let rooms = self.rooms_for(candidate.run_time, prospect.plain(), &left, &taken);
        let (eligible, need) = (&**prospect.plain(), &prospect.request().need);
        let member = Member { eligible, need, asks: &prospect.stages[0].asks, rooms, occupied: None };
        let (mut steps, near, shared) = (self.steps, Nearness::default(), Some(self.budget));
        let found =
            place_together(inventory, &mut self.rooms, &[member], &near, (&mut steps, shared)).ok()?;
        Some(self.start(index, found.first()?))
    }

    /// By node: the amount that a job that runs for `seconds` finds there after the jobs in `leaving` have
    /// left and others have taken `taken`; `None` if the job may not run there.
    fn rooms_for(
        &mut self,
        seconds: u64,
        eligible: &EligibleNodes,
        leaving: &[usize],
        taken: &[(NodeId, Amount)],
    ) -> Vec<Option<RoomId>> {
        let inventory = self.board.input.inventory;
        let board = self.board;
        let (free, shut) =
            self.known.entry(seconds).or_insert_with(|| (board.free(seconds), board.shut(seconds)));
        let mut freed: BTreeMap<NodeId, Amount> = BTreeMap::new();
        for (node, held) in leaving.iter().flat_map(|index| &self.victims[*index].held) {
            plus(freed.entry(*node).or_insert_with(|| free[node.index()].clone()), held);
        }
        for (node, taken) in taken {
            minus(freed.entry(*node).or_insert_with(|| free[node.index()].clone()), taken);
        }
        let (inside, rooms) = (&self.inside, &mut self.rooms);
        let room = |(index, known): (usize, &SceneNode)| {
            let open = known.available
                && eligible.admitted.contains(index)
                && !inside.contains(index)
                && !shut.contains(index);
            let amount = freed.get(&NodeId::at(index)).unwrap_or(&free[index]);
            open.then(|| rooms.intern(known.class, &positive(amount)))
        };
        inventory.nodes.iter().enumerate().map(room).collect()
    }

    fn start(&self, index: usize, seat: &Seat) -> Start {
        let Movable { candidate, prospect, why } = &self.movable[index];
        let placed = explain::placed(&prospect.plain().fabric, &seat.placement, &[]);
        let why = Why { priority: why.priority, ..placed };
        prospect.start(self.board.input.inventory, (candidate, None), None, &seat.parts, why)
    }

    /// The starts in an order in which the nodes of each are free when its turn comes; `None` if there is no
    /// such order. The first job that can move is taken each time: all starts fit beside each other, so no
    /// move blocks a later one.
    fn in_turn(&self, starts: Vec<(usize, Start)>) -> Option<Vec<(usize, Start)>> {
        let inventory = self.board.input.inventory;
        let mut free = self.board.free.clone();
        let mut waiting = starts;
        let mut turns = Vec::with_capacity(waiting.len());
        while !waiting.is_empty() {
            let at = waiting.iter().position(|(index, start)| {
                let own = &self.victims[*index].held;
                of_start(inventory, start).all(|(node, wanted)| {
                    let mut here = free[node.index()].clone();
                    own.iter().filter(|(on, _)| *on == node).for_each(|(_, held)| plus(&mut here, held));
                    here.iter().zip(&wanted).all(|(free, wanted)| *wanted == 0 || free >= wanted)
                })
            })?;
            let (index, start) = waiting.remove(at);
            add(&mut free, &self.victims[index].held);
            for (node, taken) in of_start(inventory, &start) {
                minus(&mut free[node.index()], &taken);
            }
            turns.push((index, start));
        }
        Some(turns)
    }
}
