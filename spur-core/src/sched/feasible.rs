//! Decides whether a request can ever run on the cluster as configured, whatever is free or down now.

mod components;
mod lacking;
mod limits;
mod mend;
mod parameters;
mod verdicts;

use std::cell::RefCell;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::cluster::Cluster;
use crate::model::fabric::{Fabric, LookupError};
use crate::model::job::{JobSpec, Shape};
use crate::model::reason::Reason;
use crate::model::reservation::Reservation;
use crate::sched::request::constraints::{Stage, Wisher};
use crate::sched::request::eligible_nodes::{
    Alternative, EligibleNodes, Filter, alternatives, known_features, named,
};
use crate::sched::timeline::licenses::wanted;
use crate::text::features::FeatureExpr;
use crate::text::hostlist::HostExpr;
use crate::text::nearest::nearest;
use crate::text::time::TimeLimit;

use self::lacking::{counted, devices, too_large};
use self::mend::{Budgets, Offer, Refused};
use self::parameters::{Of, Parameter};
use super::inventory::{Inventory, fabric_for};
use super::place::{self, AskError, Nearest, Never, SharedBudget, View};
use super::request::Need;

pub use self::components::check_together;
pub use self::verdicts::{Answer, BRIEF, Feasibility, Question, Verdict};

/// The reason why a request can never run, and the nearest requests that can.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The kind of limit that the request exceeds.
    pub kind: RefusalKind,
    /// The sentence for the user.
    pub message: String,
    /// The requests that the sentence offers; each has been tried, and works.
    pub works: Vec<JobSpec>,
    /// The reason with which the job waits if only limits that an administrator can raise forbid it;
    /// otherwise `None`.
    pub waits: Option<Reason>,
}

/// The kind of limit that a request exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// More or fewer nodes than possible.
    NodeCount,
    /// More nodes than the partition has, but not more than the cluster has.
    PartitionSize,
    /// More time than allowed.
    TimeLimit,
    /// A least time that is more than the time limit.
    TimeMin,
    /// CPUs, memory or devices that no node has.
    NodeConfig,
    /// Features that no node has.
    Features,
    /// Preferred features that no node has.
    Prefer,
    /// Devices of a type that does not exist.
    Gres,
    /// Licenses that do not exist.
    License,
    /// A shape that the topology cannot hold.
    Topology,
    /// A node name that does not exist.
    NodeName,
    /// A QOS that the partition does not admit.
    Qos,
    /// An account that the partition does not admit.
    Account,
}

/// Judges a request with its defaults filled in. Returns warnings for the user.
///
/// A job that names several partitions is refused only if all of them refuse it; the reason of the first is
/// given. The same holds for several reservations.
///
/// # Errors
/// The limit that the request exceeds, with requests that would work.
pub fn check(cluster: &Cluster, spec: &JobSpec) -> Result<Vec<String>, Refusal> {
    judge(&cluster.standing(Inventory::new), spec, None)
}

/// Number of steps for deciding whether a request can ever run: those of ten placements.
const STEPS: u64 = 2_000_000;

/// Number of steps for all offers of a refusal together: those of three placements.
const STEPS_FOR_OFFERS: u64 = 600_000;

/// Number of steps for finding the nearest amount of one parameter.
const STEPS_FOR_PARAMETER: u64 = 80_000;

/// Number of steps for trying one request.
const STEPS_FOR_TRIAL: u64 = 40_000;

/// Steps that every tried request counts for, besides those of its placement and of the nodes of the cluster.
const STEPS_FOR_EACH: u64 = 32;

/// Number of nodes of the cluster that count as one step of every tried request.
const NODES_FOR_STEP: usize = 16;

/// Judges a request within `budget`, or without one within the steps above.
fn judge(
    inventory: &Inventory,
    spec: &JobSpec,
    budget: Option<&SharedBudget>,
) -> Result<Vec<String>, Refusal> {
    let known = |name: &str| inventory.reservations.iter().find(|known| *known.name == *name);
    let reservations = spec.reservations().filter_map(|name| Some(&**known(name)?)).collect();
    let judge = Judge { reservations, ..Judge::new(inventory) };
    let Some(brief) = budget.cloned() else { return judge.check(spec, &SharedBudget::new(STEPS_FOR_OFFERS)) };
    Judge { budget: brief.clone(), accepts_cut: false, ..judge }.check(spec, &brief)
}

/// The limit that forbids a request in the first of its partitions for good, and whether the partition or the
/// cluster sets it; without offers.
pub(super) fn limit(inventory: &Inventory, spec: &JobSpec) -> Option<(Reason, String)> {
    let (index, _) = inventory.partitions_of(spec).next()?;
    let judge = Judge::new(inventory);
    let Refused { text, reason, .. } = judge.judge(index, spec, None, Say::Nearest).err()?;
    let is_partitions = judge.without_limits().judge(index, spec, None, Say::Nearest).is_ok();
    Some((if is_partitions { reason } else { Reason::BadConstraints }, text))
}

fn refuse<T>(kind: RefusalKind, message: String) -> Result<T, Refusal> {
    Err(Refusal { kind, message, works: Vec::new(), waits: None })
}

/// The end of a sentence that suggests a similar known word; empty if none is similar.
pub(super) fn meant<'a>(word: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(word, known).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

/// The detail that is wanted of a refusal.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Say {
    /// The refusal names similar requests that may work.
    Nearest,
    /// Only whether there is a refusal; a search that was cut counts as one.
    Sure,
}

/// Judges similar requests one after another.
struct Judge<'a> {
    inventory: &'a Inventory,
    /// The reservations that the job names.
    reservations: Vec<&'a Reservation>,
    /// True if limits of partitions and QOS count, which an administrator can raise.
    limits: bool,
    /// The steps that all searches together may still take.
    budget: SharedBudget,
    /// True if a request whose search was cut may be remembered as accepted; false where searches have few
    /// steps.
    accepts_cut: bool,
    /// Sets of eligible nodes from recent requests.
    eligible_sets: RefCell<Vec<Seen>>,
}

/// A set of eligible nodes with its key: partition, alternative and reservation; need, fabric and features.
struct Seen {
    by: (usize, usize, Option<usize>),
    need: Need,
    features: Option<FeatureExpr>,
    eligible: EligibleNodes,
}

/// Number of sets of eligible nodes that are kept.
const KEPT: usize = 8;

impl<'a> Judge<'a> {
    fn new(inventory: &'a Inventory) -> Self {
        Self {
            inventory,
            reservations: Vec::new(),
            limits: true,
            budget: SharedBudget::new(STEPS),
            accepts_cut: true,
            eligible_sets: RefCell::default(),
        }
    }

    /// A judge for which all limits are raised.
    fn without_limits(&self) -> Self {
        Self { limits: false, ..self.within(&self.budget) }
    }

    /// A judge with the same input and another budget.
    fn within(&self, budget: &SharedBudget) -> Self {
        let (reservations, budget) = (self.reservations.clone(), budget.clone());
        let Self { limits, accepts_cut, .. } = *self;
        Self { reservations, limits, accepts_cut, budget, ..Self::new(self.inventory) }
    }

    /// Judges a request; a refusal has offers, which are searched for within the budget `for_offers`.
    fn check(&self, spec: &JobSpec, for_offers: &SharedBudget) -> Result<Vec<String>, Refusal> {
        self.whole(spec, Say::Nearest).map_err(|limited| {
            // A limit that an administrator cannot raise decides before one that can be raised.
            let (waits, refused) = match self.without_limits().whole(spec, Say::Nearest) {
                Ok(_) => (Some(limited.reason), limited),
                Err(never) => (None, never),
            };
            let first = self.inventory.partitions_of(spec).next();
            let request = first.and_then(|(index, _)| self.inventory.request(index, spec).ok());
            let for_parameter = for_offers.part(STEPS_FOR_PARAMETER);
            let for_trial = for_parameter.part(STEPS_FOR_TRIAL);
            let other = Judge { accepts_cut: false, ..self.within(&for_trial) };
            let again = |spec: &JobSpec, say| other.whole(spec, say).map(|_| ());
            let budgets = Budgets { all: for_offers, parameter: &for_parameter, trial: &for_trial };
            Refusal { waits, ..refused.mended(spec, request.as_ref(), self.inventory, (budgets, again)) }
        })
    }

    /// Judges a request everywhere it may run. Fabric options are counted over the nodes that the job may
    /// use, so a job bound to a reservation may ask what would be refused outside. A refusal that holds
    /// outside, too, is reported without the reservation.
    fn whole(&self, spec: &JobSpec, say: Say) -> Result<Vec<String>, Refused> {
        licenses(self.inventory, spec)?;
        devices(self.inventory, &spec.shape)?;
        if self.limits {
            limits::of_qos(&self.inventory.policy, spec)?;
        }
        let anywhere = || self.in_partitions(spec, None, say);
        if self.reservations.iter().any(|reservation| !reservation.binds_to_nodes()) {
            return anywhere();
        }
        let mut first = None;
        for (at, within) in self.reservations.iter().enumerate() {
            match self.in_partitions(spec, Some(at), say) {
                Ok(warnings) => return Ok(warnings),
                Err(refused) => {
                    let text = format!("in reservation {}: {}", within.name, refused.text);
                    first = first.or(Some(Refused { kind: RefusalKind::NodeConfig, text, ..refused }));
                }
            }
        }
        let warnings = anywhere()?;
        first.map_or(Ok(warnings), Err)
    }

    /// Judges a request in the first partition that works, on the nodes of a reservation if one is given.
    fn in_partitions(&self, spec: &JobSpec, within: Option<usize>, say: Say) -> Result<Vec<String>, Refused> {
        let mut first = None;
        for (index, partition) in self.inventory.partitions_of(spec) {
            let holds =
                |within: usize| partition.nodes.iter().any(|node| self.reservations[within].holds(*node));
            let judged = if within.is_none_or(holds) {
                self.judge(index, spec, within, say)
            } else {
                let text = format!("it has no node of partition {}", partition.name());
                Err(Refused::new(RefusalKind::NodeConfig, text, []))
            };
            match judged {
                Ok(warnings) => return Ok(warnings),
                Err(refused) => first = first.or(Some(refused)),
            }
        }
        let nowhere = "none of the partitions exists".to_owned();
        Err(first.unwrap_or_else(|| Refused::new(RefusalKind::NodeConfig, nowhere, [])))
    }

    fn judge(
        &self,
        index: usize,
        spec: &JobSpec,
        within: Option<usize>,
        say: Say,
    ) -> Result<Vec<String>, Refused> {
        let inventory = self.inventory;
        self.budget.take(STEPS_FOR_EACH + (inventory.nodes.len() / NODES_FOR_STEP) as u64);
        let partition = &inventory.partitions[index].partition;
        if self.limits {
            limits::of_partition(inventory, index, spec)?;
        }
        time(spec)?;
        // A request that is only tried as an offer needs a complete search.
        let accepts = within.is_none() && say == Say::Nearest && self.limits;
        if accepts && let Some(warnings) = inventory.accepted.find(index, spec) {
            return Ok(warnings);
        }
        let most = if self.limits { partition.config.max_nodes } else { None };
        let request = inventory.request_within(index, spec, most.unwrap_or(u32::MAX)).map_err(|error| {
            let parameters = Parameter::devices(spec, Of::Job).map(Offer::Other);
            Refused::new(RefusalKind::NodeConfig, error.to_string(), parameters)
        })?;
        let fabric =
            fabric_for(inventory, index, spec).or_else(|error| refuse(RefusalKind::Topology, error))?;
        let wisher =
            Wisher { inventory, partition: index, fabric, spec, request: &request, gather_with: &[] };
        if let Err(refused) = nodes(&wisher) {
            return self.unless_raised(refused);
        }
        if let Some(within) = within {
            reserved(fabric, self.reservations[within], &spec.shape)?;
        }
        features(&wisher)?;
        wishes(&wisher)?;
        // Of several alternatives, the one with the most nodes supplies the refusal.
        let mut closest: Option<(usize, Refused)> = None;
        for alternative in alternatives(spec, fabric) {
            let eligible = self.eligible(&wisher, within, &alternative)?;
            match fits_idle(&wisher, &eligible, (say, &self.budget)) {
                Ok(warnings) => {
                    if accepts && (self.accepts_cut || !self.budget.is_spent()) {
                        inventory.accepted.note(index, spec, warnings.clone());
                    }
                    return Ok(warnings);
                }
                Err(refused) => {
                    let nodes = eligible.idle.nodes();
                    if closest.as_ref().is_none_or(|(most, _)| nodes > *most) {
                        closest = Some((nodes, refused));
                    }
                }
            }
        }
        closest.map_or_else(|| Ok(Vec::new()), |(_, refused)| self.unless_raised(refused))
    }

    /// Accepts a request for more nodes than the partition has if limits do not count: the nodes that it
    /// would get are unknown.
    fn unless_raised(&self, refused: Refused) -> Result<Vec<String>, Refused> {
        if !self.limits && refused.kind == RefusalKind::PartitionSize { Ok(Vec::new()) } else { Err(refused) }
    }

    /// The eligible nodes of a request, shared among requests that differ only in amounts. All requests of
    /// one judge exclude the same nodes.
    fn eligible(
        &self,
        wisher: &Wisher<'_>,
        within: Option<usize>,
        alternative: &Alternative<'_>,
    ) -> Result<EligibleNodes, Refused> {
        let need = &wisher.request.need;
        let by = (wisher.partition, alternative.number, within);
        let mut eligible_sets = self.eligible_sets.borrow_mut();
        let alike = |seen: &&Seen| {
            seen.by == by
                && Arc::ptr_eq(&seen.eligible.fabric, wisher.fabric)
                && seen.features.as_ref() == alternative.features
        };
        if let Some(seen) = eligible_sets.iter().filter(alike).find(|seen| seen.need == *need) {
            return Ok(seen.eligible.clone());
        }
        let eligible = match eligible_sets.iter().rev().find(alike) {
            Some(seen) => seen.eligible.seen_by(self.inventory, need),
            None => {
                let within = within.map(|within| self.reservations[within]);
                let filter = Filter { within, ..alternative.filter(&wisher.spec.shape) };
                EligibleNodes::new(alternative.number, wisher, &filter)
                    .or_else(|error| refuse(RefusalKind::NodeName, error))?
            }
        };
        if eligible_sets.len() == KEPT {
            eligible_sets.remove(0);
        }
        let (need, features) = (need.clone(), alternative.features.cloned());
        eligible_sets.push(Seen { by, need, features, eligible: eligible.clone() });
        Ok(eligible)
    }
}

/// Checks that every license exists in the wanted number.
fn licenses(inventory: &Inventory, spec: &JobSpec) -> Result<(), Refused> {
    let known = &inventory.policy.licenses;
    for (at, (name, count)) in wanted(spec).iter().enumerate() {
        let has = known.iter().find(|(known, _)| **known == **name).map(|(_, has)| *has);
        let Some(has) = has else {
            let near = meant(name, known.iter().map(|(known, _)| &**known));
            refuse(RefusalKind::License, format!("--licenses={name}: there is no such license{near}"))?;
            continue;
        };
        if has < *count {
            let text = format!("--licenses={name}:{count}: there are {has}");
            let offer = Offer::AtMost(Parameter::License(at), has.into());
            return Err(Refused::new(RefusalKind::License, text, [offer]));
        }
    }
    Ok(())
}

/// Checks that time options do not contradict each other.
fn time(spec: &JobSpec) -> Result<(), Refused> {
    let (limit, shortest) = (spec.time_limit, spec.least_time());
    if spec.time_min.is_some_and(|least| least > limit) {
        let text = format!("--time-min={shortest} is more than --time={limit}; ask --time-min ≤ {limit}");
        refuse(RefusalKind::TimeMin, text)?;
    }
    if let (Some(begin), Some(deadline), TimeLimit::Seconds(least)) = (spec.begin, spec.deadline, shortest)
        && begin + least > deadline
    {
        let text = format!("a job of {shortest} that begins at --begin cannot end before --deadline");
        let offer = Offer::AtMost(Parameter::Time, deadline.since(begin));
        return Err(Refused::new(RefusalKind::TimeLimit, text, [offer]));
    }
    Ok(())
}

/// Number of configured nodes of the partition.
fn size(wisher: &Wisher<'_>) -> u32 {
    let nodes = wisher.partition().nodes.iter().map(|id| &wisher.inventory.nodes[id.index()]);
    u32::try_from(nodes.filter(|node| node.configured).count()).unwrap_or(u32::MAX)
}

/// The kind of refusal if the partition has too few nodes but the cluster has enough, so that the partition
/// may be enlarged.
fn by_size(wisher: &Wisher<'_>, wanted: u64) -> Option<RefusalKind> {
    let (has, there) = (u64::from(size(wisher)), u64::from(wisher.inventory.scale.nodes));
    (has < wanted && wanted <= there).then_some(RefusalKind::PartitionSize)
}

/// Checks counts and names of nodes.
fn nodes(wisher: &Wisher<'_>) -> Result<(), Refused> {
    let Wisher { inventory, request, .. } = *wisher;
    let (name, has, shape) = (wisher.partition().name(), size(wisher), &wisher.spec.shape);
    // This comes first, since a list may name far more nodes than exist, and offers for a count are tried
    // again and again.
    let wanted = hosts(wisher, "-w", shape.nodelist.as_deref())?;
    let unwanted = hosts(wisher, "-x", shape.exclude.as_deref())?;
    // A function in -w may stand for nodes that -x excludes.
    let is_plain = shape.nodelist.as_deref().is_some_and(HostExpr::is_plain);
    if let Some(both) = wanted.intersection(&unwanted).next().filter(|_| is_plain) {
        let text = format!("-x: node {} is one of those that -w names", inventory.nodes[both].name);
        refuse(RefusalKind::NodeName, text)?;
    }
    let required = u32::try_from(wanted.count_ones(..)).unwrap_or(u32::MAX);
    let (min, max) = request.nodes.unwrap_or((1, u32::MAX));
    if min > has {
        let offer = Offer::AtMost(limits::node_parameter(request), has.into());
        let kind = by_size(wisher, min.into()).unwrap_or(RefusalKind::NodeCount);
        let refused = Refused::new(kind, format!("{min} nodes: partition {name} has {has}"), [offer]);
        return Err(refused.raised_by(Reason::PartitionNodeLimit));
    }
    let near = Offer::Near(Nearest::Nodes(required));
    let refuse_named = |text| Err(Refused::new(RefusalKind::NodeCount, text, [near]));
    if required > max {
        return refuse_named(format!("-w names {required} nodes and -N allows {max}"));
    }
    // Without a number of nodes a job has at most as many nodes as slots.
    if let (None, Some(slots)) = (&shape.nodes, request.slots)
        && required > slots
    {
        let (unit, ending) = (request.need.slot.unit(), if slots == 1 { "" } else { "s" });
        return refuse_named(format!("-w names {required} nodes for {slots} {unit}{ending}"));
    }
    Ok(())
}

/// Checks that the required nodes are in the reservation.
fn reserved(fabric: &Fabric, within: &Reservation, shape: &Shape) -> Result<(), Refusal> {
    let Some(list) = &shape.nodelist else { return Ok(()) };
    let names = named(fabric, list).or_else(|error| refuse(RefusalKind::NodeName, error))?;
    let is_out = |name: &&String| fabric.pos_named(name).is_some_and(|pos| !within.holds(fabric.node(pos)));
    let outside = names.iter().find(is_out);
    outside.map_or(Ok(()), |name| refuse(RefusalKind::NodeConfig, format!("-w: node {name} is not in it")))
}

/// The nodes that a list names; each has to exist, and required nodes have to be in the partition.
fn hosts(wisher: &Wisher<'_>, option: &str, list: Option<&HostExpr>) -> Result<FixedBitSet, Refusal> {
    let Wisher { inventory, fabric, .. } = *wisher;
    let partition = wisher.partition();
    let mut nodes = FixedBitSet::with_capacity(inventory.nodes.len());
    let Some(list) = list else { return Ok(nodes) };
    let names = named(fabric, list).or_else(|error| refuse(RefusalKind::NodeName, error))?;
    for name in &names {
        let Some(id) = fabric.pos_named(name).map(|pos| fabric.node(pos)) else {
            let near = meant(name, inventory.nodes.iter().map(|node| &*node.name));
            return refuse(RefusalKind::NodeName, format!("{option}: there is no node {name}{near}"));
        };
        if option == "-w" && !partition.members.contains(id.index()) {
            let message = format!("-w: node {name} is not in partition {}", partition.name());
            return refuse(RefusalKind::NodeConfig, message);
        }
        nodes.insert(id.index());
    }
    Ok(nodes)
}

/// Checks that every named feature exists on some node of the partition.
fn features(wisher: &Wisher<'_>) -> Result<(), Refusal> {
    let Some(wanted) = &wisher.spec.shape.features else { return Ok(()) };
    let known = known_features(wisher);
    for name in wanted.names() {
        if !known.contains(name) {
            if let Err(ambiguous @ LookupError::Ambiguous { .. }) = wisher.fabric.find(name) {
                return refuse(RefusalKind::Features, format!("--constraint: {ambiguous}"));
            }
            let near = meant(name, known);
            let partition = wisher.partition().name();
            let message = format!("--constraint: no node of partition {partition} has feature {name}{near}");
            return refuse(RefusalKind::Features, message);
        }
    }
    Ok(())
}

/// Checks that every preferred feature exists on some node of the cluster, as Slurm does. One that only the
/// partition lacks is a warning.
fn wishes(wisher: &Wisher<'_>) -> Result<(), Refusal> {
    let Wisher { inventory, fabric, spec, .. } = *wisher;
    let wish = spec.fabric.as_deref().and_then(|asked| place::wished_features(fabric, asked));
    let nodes = || inventory.nodes.iter().flat_map(|node| node.shape.features.iter());
    let is_known = |name: &str| {
        nodes().any(|feature| **feature == *name)
            || matches!(fabric.find(name), Ok(_) | Err(LookupError::Ambiguous { .. }))
    };
    let unknown = wish.and_then(|wish| wish.names().into_iter().find(|name| !is_known(name)));
    let Some(name) = unknown else { return Ok(()) };
    let near = meant(name, nodes().map(|feature| &**feature));
    refuse(RefusalKind::Prefer, format!("--prefer: no node has feature {name}{near}"))
}

/// Checks that the idle cluster can hold the job.
fn fits_idle(
    wisher: &Wisher<'_>,
    eligible: &EligibleNodes,
    (say, budget): (Say, &SharedBudget),
) -> Result<Vec<String>, Refused> {
    let Wisher { inventory, spec, request, .. } = *wisher;
    let name = wisher.partition().name();
    let qualified = u32::try_from(eligible.idle.nodes()).unwrap_or(u32::MAX);
    let (min, slots) = (request.min_nodes(), request.min_slots());
    if qualified == 0 {
        return Err(too_large(wisher, eligible));
    }
    if qualified < min {
        let text = format!("{min} nodes: {qualified} of partition {name} have what is asked for");
        let offer = Offer::AtMost(limits::node_parameter(request), qualified.into());
        return Err(Refused::new(RefusalKind::NodeConfig, text, [offer]));
    }
    if eligible.idle.total() < slots {
        let (unit, total) = (request.need.slot.unit(), eligible.idle.total());
        let text = format!("{slots} {unit}s: partition {name} can hold {total} at once");
        // As in Slurm, the nodes are counted as if all were like the largest.
        let largest = place::hold_fewer(&eligible.idle, 1, slots).unwrap_or(total).max(1);
        let kind = by_size(wisher, slots.div_ceil(largest)).unwrap_or(RefusalKind::NodeConfig);
        return Err(Refused::new(kind, text, [Offer::AtMost(Parameter::Slots, total)]));
    }
    if let Some((_, most)) = request.nodes
        && let Some(hold) = place::hold_fewer(&eligible.idle, most, slots)
    {
        let (unit, on) = (request.need.slot.unit(), if most == 1 { "node" } else { "nodes" });
        let text = format!("{slots} {unit}s on {most} {on}: no {most} can hold more than {hold}");
        let offers = [Offer::AtMost(Parameter::Slots, hold), Offer::Other(Parameter::Nodes)];
        return Err(Refused::new(RefusalKind::NodeConfig, text, offers));
    }
    let stages = wisher.first_stages().map_err(|error| match error {
        AskError::NoMultiple(total) => {
            Refused::new(RefusalKind::Topology, total.to_string(), [Offer::Around(total)])
        }
        error => Refused::new(RefusalKind::Topology, error.to_string(), []),
    })?;
    if let Some(ask) = stages.first().map(Stage::ask) {
        counted(wisher, eligible, ask)?;
    }
    let idle = View::new(&eligible.fabric, &eligible.idle, &eligible.idle);
    let idle = View { budget: Some(budget), ..idle };
    let mut reason = None;
    for stage in stages {
        // One possible size is enough; the smallest size, which is last, supplies the refusal.
        let may = |ask| match place::place(&idle, ask) {
            Ok(_) => true,
            Err(missed) => say == Say::Nearest && !missed.exact,
        };
        if stage.asks.iter().any(may) {
            let warning = reason.map(|why| format!("{why}; the job waits in vain until that relaxes"));
            return Ok(stage.warnings.into_iter().chain(warning).collect());
        }
        reason = reason.or_else(|| match say {
            Say::Nearest => place::refusal(&idle, stage.asks.last()?),
            Say::Sure => Some(Never::default()),
        });
    }
    // Without fabric options, the nodes are the wrong ones, not the topology.
    let fabric = spec.fabric.is_some() || inventory.topology(&eligible.fabric).asks();
    let kind = if fabric { RefusalKind::Topology } else { RefusalKind::NodeConfig };
    Err(Refused::never(kind, spec, reason.unwrap_or_default()))
}
