//! Everything that has to be known to look for room for a job in one partition, and what is said once it is found.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::{ArrayTaskId, NodeId};
use crate::model::alloc::Why;
use crate::model::job::JobSpec;
use crate::model::layout;
use crate::model::reason::Reason;
use crate::model::reservation::Reservation;
use crate::sched::inventory::amounts::{CPUS, GRES, MEMORY};
use crate::sched::place::Ask;
use crate::sched::request::constraints::{Stage, Wisher};
use crate::sched::request::eligible_nodes::{EligibleNodes, Filter, alternatives};
use crate::sched::timeline::licenses::wanted;
use crate::text::time::Time;

use super::explain;
use super::inventory::{Inventory, fabric_for};
use super::plan::{Start, StartPart};
use super::queue::{Candidate, Choices};
use super::request::{Need, Part, Request};
use super::space::Query;

/// What a job admits, besides its need: realm and partition, which of the fabrics with a name, constraint, the alternative
/// chosen in it, exclusion, reservations that keep it off their nodes.
type Outline = ((usize, usize), Option<usize>, Option<String>, usize, Option<String>, Vec<usize>);

/// The sets of eligible nodes that were made, for all who need the same, and the last prospects, for all who want the same.
#[derive(Debug, Default)]
pub(super) struct EligibleSets {
    /// Numbers of what jobs admit.
    outlines: BTreeMap<Outline, usize>,
    /// The sets of eligible nodes, by outline and need.
    made: BTreeMap<(usize, usize), Result<Arc<EligibleNodes>, String>>,
    /// Jobs that wanted different things, the last one first, and their prospects.
    last: VecDeque<(Arc<JobSpec>, Prospects)>,
}

/// Different jobs whose prospects are kept for those that want the same.
const KEPT: usize = 32;

/// The prospects of a job of one component, or of one component: wherever it may run.
pub(super) type Prospects = Arc<[Prospect]>;

/// A job's prospects in one partition and realm.
#[derive(Debug)]
pub(super) struct Prospect {
    pub(super) realm: usize,
    pub(super) partition: usize,
    choices: Choices,
    /// Which of its choices of a partition this is.
    pub(super) choice: usize,
    /// The number of its need.
    pub(super) need: usize,
    /// The sets of eligible nodes, those of wishes first.
    pub(super) eligible_sets: SmallVec<[Arc<EligibleNodes>; 1]>,
    /// How many of them are only wished for.
    wishes: usize,
    pub(super) stages: Vec<Stage>,
    /// The reservations that are always ahead, and that it is too long for.
    pub(super) barred_by: Vec<Arc<Reservation>>,
}

impl EligibleSets {
    /// The number of prospects.
    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    /// A job's prospects in one of its choices of a partition and in one realm; `need` is the number of what it needs there.
    ///
    /// # Errors
    /// What can never be, with what would work.
    pub(super) fn prospect(
        &mut self,
        inventory: &Inventory,
        candidate: &Candidate,
        choice: usize,
        need: usize,
        (realm, within): (usize, Option<&Reservation>),
        now: Time,
    ) -> Result<Prospect, String> {
        let (spec, (partition, request)) = (&candidate.spec, &candidate.choices[choice]);
        let partition = *partition;
        let fabric = fabric_for(inventory, partition, spec)?;
        let named = inventory.fabrics.iter().position(|known| Arc::ptr_eq(known, fabric));
        let alternatives = alternatives(spec, fabric);
        let wishes = alternatives.iter().filter(|alternative| alternative.is_wish).count();
        let bars = bars(inventory, realm, candidate.run_time);
        let barred_by: Vec<Arc<Reservation>> =
            bars.iter().map(|index| Arc::clone(&inventory.reservations[*index])).collect();
        let gather_with = &candidate.gather_with;
        let wisher = Wisher { inventory, partition, fabric, spec, request, gather_with };
        let mut eligible_sets = SmallVec::with_capacity(alternatives.len());
        for alternative in &alternatives {
            let filter = Filter { within, without: &barred_by, ..alternative.filter(&spec.shape) };
            let outline = (
                (realm, partition),
                named,
                alternative.features.map(ToString::to_string),
                alternative.number,
                spec.shape.exclude.as_ref().map(ToString::to_string),
                bars.clone(),
            );
            let next = self.outlines.len();
            let outline = *self.outlines.entry(outline).or_insert(next);
            let known = self.made.get(&(outline, need)).cloned();
            let eligible = known.unwrap_or_else(|| {
                let made = match self.made.range((outline, 0)..(outline + 1, 0)).next() {
                    Some((_, Ok(alike))) => Ok(alike.seen_by(inventory, &request.need)),
                    Some((_, Err(problem))) => Err(problem.clone()),
                    None => EligibleNodes::new(outline, &wisher, &filter),
                };
                self.made.entry((outline, need)).or_insert(made.map(Arc::new)).clone()
            });
            eligible_sets.push(eligible?);
        }
        let stages = wisher.stages(candidate.eligible, now).map_err(|error| error.to_string())?;
        let choices = Arc::clone(&candidate.choices);
        Ok(Prospect { realm, partition, choices, choice, need, eligible_sets, wishes, stages, barred_by })
    }

    /// The prospects of another job that wants the same, if they are kept.
    pub(super) fn prospects_like(&self, candidate: &Candidate) -> Option<Prospects> {
        let same = |(spec, prospects): &&(Arc<JobSpec>, Prospects)| {
            let choices = prospects.first().map(|prospect| &prospect.choices);
            choices.is_some_and(|choices| Arc::ptr_eq(choices, &candidate.choices))
                && wants_the_same(spec, &candidate.spec)
        };
        self.last.iter().find(same).map(|(_, prospects)| Arc::clone(prospects))
    }

    /// Keeps the prospects of a job, if they follow from what it wants alone.
    pub(super) fn keep_prospects(
        &mut self,
        inventory: &Inventory,
        candidate: &Candidate,
        prospects: &Prospects,
    ) {
        let spec = &candidate.spec;
        if prospects.iter().all(|prospect| prospect.follows_from(inventory, spec)) {
            self.last.truncate(KEPT - 1);
            self.last.push_front((Arc::clone(spec), Arc::clone(prospects)));
        }
    }
}

impl Prospect {
    /// Whether it follows from what a job wants alone: not from how long it has waited or runs, where another job is, or what
    /// is reserved for whom.
    pub(super) fn follows_from(&self, inventory: &Inventory, spec: &JobSpec) -> bool {
        let is_near_another = spec.fabric.as_deref().is_some_and(|ask| ask.gather_with.is_some());
        let relaxes = !matches!(&*self.stages, [only] if only.relaxed.is_empty());
        !is_near_another && !relaxes && inventory.reservations.is_empty()
    }

    /// The first of its sets of eligible nodes that is asked for, not only wished for.
    pub(super) fn plain(&self) -> &Arc<EligibleNodes> {
        &self.eligible_sets[self.wishes]
    }

    /// What it asks for there.
    pub(super) fn request(&self) -> &Request {
        &self.choices[self.choice].1
    }

    /// The question where and when the job fits before `until`.
    pub(super) fn query<'a>(&'a self, candidate: &'a Candidate, until: Time) -> Query<'a> {
        let (run_time, licenses) = (candidate.run_time, wanted(&candidate.spec));
        Query {
            realm: self.realm,
            need: self.need,
            request: self.request(),
            eligible_sets: &self.eligible_sets,
            plain: self.plain(),
            stages: &self.stages,
            licenses,
            run_time,
            from: Time(i64::MIN),
            until,
        }
    }

    /// The start that is proposed for what was found, of one task where there are several.
    pub(super) fn start(
        &self,
        inventory: &Inventory,
        (candidate, task): (&Candidate, Option<ArrayTaskId>),
        reservation: Option<&Arc<Reservation>>,
        parts: &[Part],
        why: Why,
    ) -> Start {
        let need = &self.request().need;
        let parts: Vec<&Part> = parts.iter().filter(|part| part.slots > 0).collect();
        let on_nodes = || -> Vec<_> {
            let shape = |node: NodeId| &*inventory.nodes[node.index()].shape;
            parts.iter().map(|part| (shape(part.node), &*part.taken, part.slots)).collect()
        };
        // What a domain is to have of the tasks, the placement has seen to.
        let is_shared_out = self.stages.iter().flat_map(|stage| &stage.asks).any(Ask::shares_out_tasks);
        let may_be_dealt = parts.len() > 1 && !is_shared_out;
        let dealt = may_be_dealt.then(|| need.dealt(&on_nodes())).flatten();
        let overcommitted = candidate.spec.shape.overcommit_tasks;
        let overcommitted =
            overcommitted.and_then(|tasks| layout::evenly(parts.iter().map(|_| tasks), tasks));
        let part = |(at, part): (usize, &&Part)| {
            let start = match dealt.as_ref().map(|dealt| &dealt[at]) {
                Some((slots, given)) => start_part(need, part.node, *slots, given),
                None => start_part(need, part.node, part.slots, &part.taken),
            };
            let tasks = overcommitted.as_ref().map_or(start.tasks, |tasks| tasks[at].max(1));
            StartPart { tasks, ..start }
        };
        Start {
            attempt: candidate.attempt,
            task,
            spec: Arc::clone(&candidate.spec),
            ground: inventory.ground,
            partition: Arc::clone(inventory.partitions[self.partition].partition.name()),
            reservation: reservation.map(|reservation| Arc::clone(&reservation.name)),
            time_limit: None,
            parts: parts.iter().enumerate().map(part).collect(),
            exclusive: need.whole,
            why,
            rest: Vec::new(),
        }
    }
}

/// Whether two jobs that need the same in the same partitions want the same nodes of them, and the same of the fabric.
fn wants_the_same(one: &JobSpec, other: &JobSpec) -> bool {
    let (shape, others) = (&one.shape, &other.shape);
    one.fabric == other.fabric
        && one.reservations().eq(other.reservations())
        && (&shape.features, &shape.nodelist, &shape.exclude, shape.sharing)
            == (&others.features, &others.nodelist, &others.exclude, others.sharing)
}

/// What is proposed on a node for so many slots, which take so much of it.
pub(super) fn start_part(need: &Need, node: NodeId, slots: u32, taken: &[u64]) -> StartPart {
    StartPart {
        node,
        tasks: need.tasks(slots),
        cpus: u32::try_from(taken[CPUS]).unwrap_or(u32::MAX),
        memory_mb: taken[MEMORY],
        gres: gres(taken),
    }
}

/// The reservations that are always ahead, by number, and that are so for less time than somebody runs in a realm where they
/// count. In the last realm nothing is reserved.
fn bars(inventory: &Inventory, realm: usize, run_time: u64) -> Vec<usize> {
    let reservations = &inventory.reservations;
    if realm > reservations.len() {
        return Vec::new();
    }
    let own = realm.checked_sub(1).map(|index| &reservations[index]);
    let bars = |(_, other): &(usize, &Arc<Reservation>)| {
        other.bars(run_time) && own.is_none_or(|own| other.shuts_out(own))
    };
    reservations.iter().enumerate().filter(bars).map(|(index, _)| index).collect()
}

/// Why a job that fits at no time does not: nodes that are out of service, none that would do, or a search that came to no
/// end, of which more is to be hoped than of what can never be.
pub(super) fn never(inventory: &Inventory, prospects: &[Prospect]) -> Option<(Reason, String)> {
    let mut worst: Option<(Reason, String)> = None;
    for prospect in prospects {
        let sets = prospect.eligible_sets.iter();
        for (eligible, stage) in sets.flat_map(|set| prospect.stages.iter().map(move |stage| (set, stage))) {
            match explain::when_all_are_up(inventory, eligible, stage) {
                Ok(detail) => return detail.map(|detail| (Reason::ReqNodeNotAvail, detail)),
                Err(said) => {
                    let hopeful = |(reason, _): &(Reason, String)| *reason != Reason::BadConstraints;
                    if worst.as_ref().is_none_or(|worst| hopeful(&said) && !hopeful(worst)) {
                        worst = Some(said);
                    }
                }
            }
        }
    }
    worst
}

/// Devices of an amount, as entry and count.
fn gres(taken: &[u64]) -> Vec<(u16, u32)> {
    let counts = (0..).zip(&taken[GRES..]).filter(|(_, count)| **count > 0);
    counts.map(|(entry, count)| (entry, u32::try_from(*count).unwrap_or(u32::MAX))).collect()
}
