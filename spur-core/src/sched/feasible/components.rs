//! Decides whether the components of a het job, each of which can run by itself, could ever run together.

use std::collections::BTreeMap;
use std::sync::Arc;

use fixedbitset::FixedBitSet;

use crate::cluster::Cluster;
use crate::model::fabric::Layer;
use crate::model::job::JobSpec;
use crate::model::reservation::Reservation;
use crate::sched::inventory::amounts::Rooms;
use crate::sched::inventory::{Inventory, SceneNode, fabric_for};
use crate::sched::place::{SharedBudget, halve};
use crate::sched::request::Request;
use crate::sched::request::constraints::{Stage, Wisher};
use crate::sched::request::eligible_nodes::{EligibleNodes, Filter, alternatives};
use crate::sched::timeline::licenses::wanted;
use crate::sched::together::{Member, Nearness, nearness, place_together, ways};

use super::parameters::Parameter;
use super::{Judge, Refusal, RefusalKind, Say, refuse, size};

/// The largest number of components for which a smaller size of each is searched for. Every tried size places
/// all components anew, so with more components the search would take seconds.
const MOST_SIZED: usize = 4;

/// Judges whether the components of a het job, each of which can run by itself, could ever run together.
/// Returns warnings for the user.
///
/// # Errors
/// A refusal with components that would work, if they could not.
pub fn check_together(cluster: &Cluster, specs: &[Arc<JobSpec>]) -> Result<Vec<String>, Refusal> {
    judge(&cluster.standing(Inventory::new), specs, None)
}

/// Judges the components within `budget`, or without one within the usual steps.
pub(super) fn judge(
    inventory: &Inventory,
    specs: &[Arc<JobSpec>],
    budget: Option<&SharedBudget>,
) -> Result<Vec<String>, Refusal> {
    licenses_together(inventory, specs)?;
    // A job that waits for limits is judged as if they were raised.
    let judge = Judge::new(inventory);
    let is_whole = budget.is_none();
    let budget = budget.cloned().unwrap_or(judge.budget.clone());
    let judge = Judge { accepts_cut: is_whole, ..judge.within(&budget) };
    let over: Vec<_> = specs.iter().filter_map(|spec| judge.whole(spec, Say::Nearest).err()).collect();
    let limits = over.is_empty();
    let parts = specs.iter().map(|spec| prepared(inventory, spec, limits)).collect::<Result<Vec<_>, _>>()?;
    // The nodes that a partition gets later are unknown, and so is what would fit them.
    if over.iter().any(|by| by.kind == RefusalKind::PartitionSize) || parts.iter().any(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let fabric = Arc::clone(&parts[0][0].eligible.fabric);
    let rooms = inventory.rooms.clone();
    let mut all = Components { inventory, rooms, specs: specs.to_vec(), parts, budget };
    let asked = match all.when_idle(None)? {
        Idle::Fits(warnings) => return Ok(warnings),
        // A search that was cut is no refusal.
        Idle::Unknown => return Ok(Vec::new()),
        Idle::Never(near) => near,
    };
    let Some(must) = asked.must else { return all.too_many() };
    let (top, name) = (fabric.top().0, |layer: Layer| fabric.layer_name(layer).to_owned());
    for higher in (must.0 + 1..=top).map(Layer) {
        let near = Nearness { must: Some(higher), ..Nearness::default() };
        if let Ok(Idle::Fits(_)) = all.when_idle(Some(&near)) {
            let message = format!(
                "--het-gather=must:{}: no {0} can hold all {} components together; ask for less, or must:{}",
                name(must),
                specs.len(),
                name(higher)
            );
            return refuse(RefusalKind::Topology, message);
        }
    }
    let layer = name(must);
    match all.when_idle(Some(&Nearness::default()))? {
        Idle::Never(_) => all.too_many(),
        Idle::Fits(_) | Idle::Unknown => refuse(
            RefusalKind::Topology,
            format!(
                "--het-gather=must:{layer}: no {layer} can hold all {} components together, nor a domain of any higher \
                 layer; ask for less, or prefer:{layer}",
                specs.len()
            ),
        ),
    }
}

/// All components of a job, each with every way to place it.
struct Components<'a> {
    inventory: &'a Inventory,
    rooms: Rooms,
    specs: Vec<Arc<JobSpec>>,
    parts: Vec<Vec<Prepared>>,
    /// The steps that all searches together may still take.
    budget: SharedBudget,
}

/// A component in one of its partitions, with one set of eligible nodes.
struct Prepared {
    request: Request,
    eligible: EligibleNodes,
    stages: Vec<Stage>,
    /// True if the component is bound to the nodes of a reservation.
    reserved: bool,
}

/// The answer of an idle cluster for all components.
enum Idle {
    Fits(Vec<String>),
    /// The search was cut.
    Unknown,
    /// The components do not fit with this nearness.
    Never(Nearness),
}

/// Every way to place a component, on the nodes of its reservations if it is bound to them. Empty while its
/// partitions have too few nodes, which an administrator can change.
fn prepared(inventory: &Inventory, spec: &JobSpec, limits: bool) -> Result<Vec<Prepared>, Refusal> {
    let mut all = Vec::new();
    let known = |name: &str| inventory.reservations.iter().find(|known| *known.name == *name);
    let bound: Option<Vec<&Reservation>> = spec
        .reservations()
        .map(|name| known(name).map(|known| &**known).filter(|known| known.binds_to_nodes()))
        .collect();
    let places: Vec<Option<&Reservation>> = match bound {
        Some(bound) if !bound.is_empty() => bound.into_iter().map(Some).collect(),
        _ => vec![None],
    };
    let partitions = inventory.partitions_of(spec);
    let all_places = partitions.flat_map(|known| places.iter().map(move |within| (known, *within)));
    for ((index, partition), within) in all_places {
        let most = if limits { partition.config.max_nodes } else { None };
        let request = inventory.request_within(index, spec, most.unwrap_or(u32::MAX));
        let (Ok(request), Ok(fabric)) = (request, fabric_for(inventory, index, spec)) else { continue };
        let wisher =
            Wisher { inventory, partition: index, fabric, spec, request: &request, gather_with: &[] };
        if request.min_nodes() > size(&wisher) {
            continue;
        }
        for alternative in alternatives(spec, fabric) {
            let filter = Filter { within, ..alternative.filter(&spec.shape) };
            let eligible = EligibleNodes::new(alternative.number, &wisher, &filter)
                .or_else(|error| refuse(RefusalKind::NodeName, error))?;
            let Ok(stages) = wisher.first_stages() else { continue };
            all.push(Prepared { request: request.clone(), eligible, stages, reserved: within.is_some() });
        }
    }
    Ok(all)
}

impl Components<'_> {
    /// Decides whether an idle cluster could hold all components together, with the first working choice of
    /// each, and after all constraints have relaxed. `near` replaces `--het-gather`.
    fn when_idle(&mut self, near: Option<&Nearness>) -> Result<Idle, Refusal> {
        let Self { inventory, rooms, specs, parts, budget } = self;
        let mut answer = None;
        let choices: Vec<Vec<&Prepared>> = parts.iter().map(|parts| parts.iter().collect()).collect();
        for chosen in ways(&choices) {
            let fabrics = chosen.iter().map(|part| &*part.eligible.fabric);
            let found = match near.map_or_else(|| nearness(&specs[0], fabrics), |near| Ok(near.clone())) {
                Ok(near) => near,
                Err(error) => {
                    answer = answer.or(Some(refuse(RefusalKind::Topology, error)));
                    continue;
                }
            };
            let mut exact = true;
            for first in [true, false] {
                let members: Vec<Member<'_>> =
                    chosen.iter().map(|part| idle_member(inventory, part, first)).collect();
                let mut steps = members.iter().map(|member| member.asks[0].budget).max().unwrap_or(0);
                match place_together(inventory, rooms, &members, &found, (&mut steps, Some(budget))) {
                    Ok(_) => return Ok(Idle::Fits(found.warnings)),
                    Err(certain) => exact &= certain,
                }
            }
            if !matches!(answer, Some(Ok(Idle::Unknown))) {
                answer = Some(Ok(if exact { Idle::Never(found) } else { Idle::Unknown }));
            }
        }
        answer.unwrap_or(Ok(Idle::Unknown))
    }

    /// The refusal with the sizes that the components want together and, if they are few, how much less of
    /// each alone would work.
    fn too_many<T>(&mut self) -> Result<T, Refusal> {
        let parts = &self.parts;
        let wants = parts.iter().filter_map(|parts| parts.first()).map(|part| {
            let (unit, slots) = (part.request.unit(), part.request.min_slots());
            format!("{slots} {unit}{}", if slots == 1 { "" } else { "s" })
        });
        let wants = wants.collect::<Vec<_>>().join(" and ");
        let has = parts.iter().flatten().map(|part| part.eligible.idle.nodes()).max().unwrap_or(0);
        let sized = if parts.len() > MOST_SIZED { 0 } else { parts.len() };
        let reserved = parts.iter().flatten().any(|part| part.reserved);
        let places = if reserved { "reservations" } else { "partitions" };
        let fewer = (0..sized).filter_map(|at| Some(format!("≤ {} in component {at}", self.fewer(at)?)));
        let fewer: Vec<String> = fewer.collect();
        let offer = if fewer.is_empty() { "for less".to_owned() } else { fewer.join(", or ") };
        let message = format!(
            "the components fit one by one and never all at once: they want {wants}, and their {places} have {has} nodes; \
         ask {offer}"
        );
        refuse(RefusalKind::NodeConfig, message)
    }

    /// The largest size of one component with which all fit while the others stay as they are, found by
    /// bisection.
    fn fewer(&mut self, at: usize) -> Option<u64> {
        let request = self.parts[at].first()?.request.clone();
        let spec = Arc::clone(&self.specs[at]);
        let fits = |size: u64| {
            let smaller = Parameter::Slots.set(&spec, Some(&request), size);
            // The smaller size must be possible by itself, too.
            if Judge::new(self.inventory).within(&self.budget).whole(&smaller, Say::Sure).is_err() {
                return false;
            }
            let Ok(part) = prepared(self.inventory, &smaller, true) else { return false };
            self.specs[at] = Arc::new(smaller);
            let asked = std::mem::replace(&mut self.parts[at], part);
            let found = self.when_idle(None);
            (self.specs[at], self.parts[at]) = (Arc::clone(&spec), asked);
            matches!(found, Ok(Idle::Fits(_)))
        };
        // Size 0 and the full size are not tried.
        Some(halve(0, request.min_slots(), fits)).filter(|fewer| *fewer > 0)
    }
}

fn idle_member<'a>(inventory: &Inventory, part: &'a Prepared, first: bool) -> Member<'a> {
    let stage = if first { part.stages.first() } else { part.stages.last() };
    let room = |(index, node): (usize, &SceneNode)| {
        part.eligible.admitted.contains(index).then(|| inventory.rooms.full(node.class))
    };
    Member {
        eligible: &part.eligible,
        need: &part.request.need,
        asks: &stage.expect("there is a stage at any time").asks,
        rooms: inventory.nodes.iter().enumerate().map(room).collect(),
        occupied: Some(FixedBitSet::with_capacity(part.eligible.fabric.len())),
    }
}

/// Checks that all components together do not want more of a license than exists.
fn licenses_together(inventory: &Inventory, specs: &[Arc<JobSpec>]) -> Result<(), Refusal> {
    let mut sums: BTreeMap<&str, u32> = BTreeMap::new();
    for (name, count) in specs.iter().flat_map(|spec| wanted(spec)) {
        *sums.entry(name).or_default() += count;
    }
    for (name, sum) in sums {
        let has =
            inventory.policy.licenses.iter().find(|(known, _)| **known == *name).map_or(0, |(_, has)| *has);
        if sum > has {
            let message = format!(
                "--licenses={name}: the components want {sum} together and there are {has}; ask ≤ {has}"
            );
            return refuse(RefusalKind::License, message);
        }
    }
    Ok(())
}
