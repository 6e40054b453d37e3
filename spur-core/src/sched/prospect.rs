//! The data needed to search for the start of a job in one partition, and the start or the reason that
//! results.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use smallvec::SmallVec;

use crate::id::{ArrayTaskId, NodeId};
use crate::model::alloc::Why;
use crate::model::job::JobSpec;
use crate::model::layout;
use crate::model::node::NodeShape;
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

/// The nodes that a job admits, besides its need: realm and partition, the named fabric, constraint, the
/// alternative chosen in it, exclusion, and reservations that keep it off their nodes.
type Outline = ((usize, usize), Option<usize>, Option<String>, usize, Option<String>, Vec<usize>);

/// The sets of eligible nodes, shared by jobs with equal needs, and the last prospects, shared by jobs with
/// equal requests.
#[derive(Debug, Default)]
pub(super) struct EligibleSets {
    /// The key of every outline that has been used.
    outlines: BTreeMap<Outline, usize>,
    /// The sets of eligible nodes, by outline and need.
    made: BTreeMap<(usize, usize), Result<Arc<EligibleNodes>, String>>,
    /// Jobs with different requests and their prospects, the latest first.
    last: VecDeque<(Arc<JobSpec>, Prospects)>,
}

/// Number of different jobs whose prospects are kept for equal ones.
const KEPT: usize = 32;

/// The prospects of a job or of one component, in every partition and realm where it may run.
pub(super) type Prospects = Arc<[Prospect]>;

/// A job's prospects in one partition and realm.
#[derive(Debug)]
pub(super) struct Prospect {
    pub(super) realm: usize,
    pub(super) partition: usize,
    choices: Choices,
    /// The index into the job's choices of a partition.
    pub(super) choice: usize,
    /// The number of the job's need.
    pub(super) need: usize,
    /// The sets of eligible nodes; those of preferences come first.
    pub(super) eligible_sets: SmallVec<[Arc<EligibleNodes>; 1]>,
    /// Number of these sets that come from preferences.
    wishes: usize,
    pub(super) stages: Vec<Stage>,
    /// The floating reservations for which the job runs too long.
    pub(super) barred_by: Vec<Arc<Reservation>>,
}

impl EligibleSets {
    /// Number of sets of eligible nodes.
    pub(super) fn len(&self) -> usize {
        self.made.len()
    }

    /// A job's prospects in one of its choices of a partition and in one realm; `need` is the number of its
    /// need there.
    ///
    /// # Errors
    /// A message about a request that is impossible, with what would work.
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

    /// The prospects of another job with an equal request, if they are kept.
    pub(super) fn prospects_like(&self, candidate: &Candidate) -> Option<Prospects> {
        let same = |(spec, prospects): &&(Arc<JobSpec>, Prospects)| {
            let choices = prospects.first().map(|prospect| &prospect.choices);
            choices.is_some_and(|choices| Arc::ptr_eq(choices, &candidate.choices))
                && wants_the_same(spec, &candidate.spec)
        };
        self.last.iter().find(same).map(|(_, prospects)| Arc::clone(prospects))
    }

    /// Keeps the prospects of a job if they follow from its request alone.
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
    /// True if the prospect follows from the job's request alone. It then does not depend on the waiting or
    /// run time, the place of another job, or reservations.
    pub(super) fn follows_from(&self, inventory: &Inventory, spec: &JobSpec) -> bool {
        let is_near_another = spec.fabric.as_deref().is_some_and(|ask| ask.gather_with.is_some());
        let relaxes = !matches!(&*self.stages, [only] if only.relaxed.is_empty());
        !is_near_another && !relaxes && inventory.reservations.is_empty()
    }

    /// The first set of the job's required constraint, after those of its preferences.
    pub(super) fn plain(&self) -> &Arc<EligibleNodes> {
        &self.eligible_sets[self.wishes]
    }

    /// The job's request in this partition.
    pub(super) fn request(&self) -> &Request {
        &self.choices[self.choice].1
    }

    /// The query for the earliest start of the job before `until`.
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

    /// The proposed start for a result; of one task where `task` is given.
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
        let shape = |node: NodeId| &*inventory.nodes[node.index()].shape;
        let on_nodes =
            || -> Vec<_> { parts.iter().map(|part| (shape(part.node), &*part.taken, part.slots)).collect() };
        // The placement has already divided the tasks among domains.
        let is_shared_out = self.stages.iter().flat_map(|stage| &stage.asks).any(Ask::shares_out_tasks);
        let may_be_dealt = parts.len() > 1 && !is_shared_out;
        let dealt = may_be_dealt.then(|| need.dealt(&on_nodes())).flatten();
        let overcommitted = candidate.spec.shape.overcommit_tasks;
        let overcommitted =
            overcommitted.and_then(|tasks| layout::evenly(parts.iter().map(|_| tasks), tasks));
        let part = |(at, part): (usize, &&Part)| {
            let start = match dealt.as_ref().map(|dealt| &dealt[at]) {
                Some((slots, given)) => start_part(need, shape(part.node), (part.node, *slots), given),
                None => start_part(need, shape(part.node), (part.node, part.slots), &part.taken),
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

/// True if two jobs with equal needs in the same partitions admit the same nodes and make the same request to
/// the fabric.
fn wants_the_same(one: &JobSpec, other: &JobSpec) -> bool {
    let (shape, others) = (&one.shape, &other.shape);
    one.fabric == other.fabric
        && one.reservations().eq(other.reservations())
        && (&shape.features, &shape.nodelist, &shape.exclude, shape.sharing)
            == (&others.features, &others.nodelist, &others.exclude, others.sharing)
}

/// The proposed part of a start on a node, with its slots and the amount they take.
pub(super) fn start_part(
    need: &Need,
    shape: &NodeShape,
    (node, slots): (NodeId, u32),
    taken: &[u64],
) -> StartPart {
    StartPart {
        node,
        tasks: need.tasks(slots),
        cpus: u32::try_from(taken[CPUS]).unwrap_or(u32::MAX),
        memory_mb: taken[MEMORY],
        gres: gres(&taken[GRES..][..shape.gres.len()]),
    }
}

/// The numbers of the floating reservations that bar a job of `run_time` in a realm where they count. The job
/// runs longer than they are ahead. In the last realm nothing is reserved.
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

/// The reason that no start at any time exists for a job: nodes out of service, no suitable nodes, or a
/// search that was not completed. The last leaves more hope than an impossible request, so it is preferred.
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

/// The devices that are taken, as entry and count.
fn gres(devices: &[u64]) -> Vec<(u16, u32)> {
    let counts = (0..).zip(devices).filter(|(_, count)| **count > 0);
    counts.map(|(entry, count)| (entry, u32::try_from(*count).unwrap_or(u32::MAX))).collect()
}
