//! Invariants of plans, checked from the cluster and the plan alone.

use std::collections::BTreeMap;

use spur_core::id::{JobId, NodeId};
use spur_core::model::fabric::{Fabric, Pos};
use spur_core::model::job::HetPart;
use spur_core::model::phase::Phase;
use spur_core::model::reservation::Flag;
use spur_core::sched::Reservations;
use spur_core::sched::plan::{Plan, Start};
use spur_core::text::gather::GatherClause;
use spur_core::text::time::Time;

use crate::world::World;

/// Returns all violations in a plan, one sentence each.
pub(crate) fn violations(
    world: &World,
    fabric: &Fabric,
    plan: &Plan,
    reservations: &Reservations,
) -> Vec<String> {
    let mut found = booked_twice(world, plan, reservations);
    for start in plan.starts.iter().flat_map(Start::all) {
        let nodes: Vec<NodeId> = start.parts.iter().map(|part| part.node).collect();
        holds_must(world, fabric, start.attempt.job, &nodes, &mut found);
    }
    for made in reservations.iter() {
        let nodes = made.amounts().map(|(node, _)| node).collect::<Vec<_>>();
        holds_must(world, fabric, made.job, &nodes, &mut found);
    }
    found
}

/// Returns the violations that can be found without the fabric.
pub(crate) fn booked_twice(world: &World, plan: &Plan, reservations: &Reservations) -> Vec<String> {
    let mut found = Vec::new();
    let mut uses: BTreeMap<NodeId, Vec<Use>> = BTreeMap::new();
    running(world, &mut uses);
    for start in plan.starts.iter().flat_map(Start::all) {
        let full = start.spec.time_limit;
        let limit = start.time_limit.unwrap_or(full);
        if limit > full || limit < start.spec.time_min.unwrap_or(full) {
            found.push(format!("the start of {} has a limit of {limit}", start.attempt.job));
        }
        let mut end = limit.end(world.now);
        let nodes: Vec<NodeId> = start.parts.iter().map(|part| part.node).collect();
        let stay = Stay { job: start.attempt.job, nodes: &nodes, within: start.reservation.as_deref() };
        trespasses(world, &stay, world.now, &mut end, &mut found);
        for part in &start.parts {
            let mut amount = vec![u64::from(part.cpus), part.memory_mb];
            amount.extend((0..).take(8).map(|entry: u16| {
                part.gres
                    .iter()
                    .filter(|(held, _)| *held == entry)
                    .map(|(_, count)| u64::from(*count))
                    .sum::<u64>()
            }));
            let name = format!("the start of {}", start.attempt.job);
            uses.entry(part.node).or_default().push(Use { from: world.now, to: end, amount, name });
        }
    }
    for made in reservations.iter() {
        for (node, amount) in made.amounts() {
            // The third entry counts no resource.
            let amount = [&amount[..2], &amount[3..]].concat();
            let name = format!("the reservation of {}", made.job);
            uses.entry(node).or_default().push(Use { from: made.start, to: made.end, amount, name });
        }
        let nodes = made.amounts().map(|(node, _)| node).collect::<Vec<_>>();
        let stay = Stay { job: made.job, nodes: &nodes, within: made.within.as_deref() };
        trespasses(world, &stay, made.start, &mut made.end.clone(), &mut found);
    }
    for (node, uses) in &uses {
        overbooked(world, *node, uses, &mut found);
    }
    let starts = || plan.starts.iter().flat_map(Start::all);
    let later: Vec<_> = reservations.iter().map(|made| (made.job, made.start)).collect();
    together(world, &starts().map(|start| (start.attempt.job, world.now)).collect::<Vec<_>>(), &mut found);
    together(world, &later, &mut found);
    let seen: Vec<_> = starts().map(|start| start.attempt.job).collect();
    let waiting = plan.waiting.iter().map(|waiting| waiting.job);
    let mut all: Vec<_> = seen.iter().copied().chain(waiting).collect();
    all.sort();
    // Some tasks of an array may start while others are pending.
    all.dedup();
    let pending: Vec<_> = world.cluster.jobs().pending().map(|job| job.id).collect();
    if all != pending && !plan.report.truncated && !plan.report.partial {
        found.push(format!("{all:?} are planned and {pending:?} are pending"));
    }
    found
}

/// Checks that all components of a het job start at one time.
fn together(world: &World, starts: &[(JobId, Time)], found: &mut Vec<String>) {
    for (job, start) in starts {
        let het = world.cluster.job(*job).and_then(|job| job.spec.het.as_deref().copied());
        for other in het.iter().flat_map(HetPart::jobs) {
            if !starts.contains(&(other, *start)) {
                found.push(format!("job {job} starts at {} without component {other}", start.0));
            }
        }
    }
}

/// The stay of a job on its nodes, in a reservation or in none.
struct Stay<'a> {
    job: JobId,
    nodes: &'a [NodeId],
    within: Option<&'a str>,
}

/// Checks the reservations.
///
/// A job must not be on a node that is reserved for others, or stay beyond a reservation that is always
/// ahead. A job in a reservation must name it or be drawn by it, and must be allowed to use it. Such a job
/// must be on the reservation's nodes, while the reservation is in force, and end with it.
fn trespasses(world: &World, stay: &Stay<'_>, from: Time, to: &mut Time, found: &mut Vec<String>) {
    let job = stay.job;
    let spec = &world.cluster.job(job).unwrap().spec;
    let own = stay.within.map(|name| world.cluster.reservation(name).expect("a reservation"));
    if let Some(own) = own {
        let named = spec.reservations().any(|name| *name == *own.name);
        let drawn = spec.reservations().next().is_none() && own.has(Flag::Magnetic);
        if !(named || drawn) || !own.admits(&spec.owner, None) {
            found.push(format!("job {job} has no business in {}", own.name));
        }
        if !own.has(Flag::Flex) {
            *to = own.end.min(*to);
            let outside = stay.nodes.iter().any(|node| !own.nodes.contains(node));
            if from < own.start || from >= own.end || (outside && !own.has(Flag::AnyNodes)) {
                found.push(format!("job {job} leaves its reservation {}", own.name));
            }
        }
    } else if spec.reservations().next().is_some() {
        found.push(format!("job {job} is outside of the reservations it asked for"));
    }
    for other in world.cluster.reservations().filter(|other| stay.within != Some(&*other.name)) {
        let yields = own
            .is_some_and(|own| own.has(Flag::Maint) || (own.has(Flag::Overlap) && !other.has(Flag::Maint)));
        let meets = (other.start < *to && from < other.end) || other.bars(to.since(from));
        if !yields && meets && stay.nodes.iter().any(|node| other.nodes.contains(node)) {
            found.push(format!("job {job} from {} to {} is on nodes of {}", from.0, to.0, other.name));
        }
    }
}

struct Use {
    from: Time,
    to: Time,
    amount: Vec<u64>,
    name: String,
}

fn running(world: &World, uses: &mut BTreeMap<NodeId, Vec<Use>>) {
    for job in world.cluster.jobs().active() {
        let Phase::Running { alloc, started, .. } = &job.phase else { continue };
        for part in &alloc.nodes {
            let shape = &world.cluster.node(part.node).unwrap().shape;
            let mut amount = vec![u64::from(part.cpus.len()), part.memory_mb];
            amount.extend((0..shape.gres.len()).map(|entry| {
                let held = part.gres.iter().filter(|gres| usize::from(gres.entry) == entry);
                held.map(|gres| u64::from(gres.ids.len())).sum::<u64>()
            }));
            let (from, to) = (world.now, job.ends_at(*started));
            uses.entry(part.node).or_default().push(Use {
                from,
                to,
                amount,
                name: format!("job {}", job.id),
            });
        }
    }
}

/// Checks that the sum of all uses at the start of each use is at most the node's capacity.
fn overbooked(world: &World, node: NodeId, uses: &[Use], found: &mut Vec<String>) {
    let record = world.cluster.node(node).unwrap();
    let mut full = vec![u64::from(record.shape.cpus), record.shape.memory_mb];
    full.extend(record.shape.gres.iter().map(|gres| u64::from(gres.count)));
    for begin in uses {
        let at_once = uses.iter().filter(|other| other.from <= begin.from && begin.from < other.to);
        for (index, most) in full.iter().enumerate() {
            let sum: u64 = at_once.clone().map(|other| other.amount.get(index).copied().unwrap_or(0)).sum();
            if sum > *most {
                let who: Vec<&str> = at_once.clone().map(|other| other.name.as_str()).collect();
                let (name, at) = (record.name(), begin.from.0);
                found
                    .push(format!("{name} at {at}: {sum} of {most} (amount {index}) for {}", who.join(", ")));
            }
        }
    }
    if !record.available() && uses.iter().any(|used| used.name.starts_with("the ")) {
        found.push(format!("{} is not available and was planned", record.name()));
    }
}

/// Checks that all nodes of a job with a `must` are in one domain of its layer.
fn holds_must(
    world: &World,
    fabric: &Fabric,
    job: spur_core::id::JobId,
    nodes: &[NodeId],
    found: &mut Vec<String>,
) {
    let spec = &world.cluster.job(job).unwrap().spec;
    let clauses = spec.fabric.iter().flat_map(|wish| &wish.gather).flat_map(|gather| &gather.clauses);
    for clause in clauses {
        let GatherClause::Must { layer, until: None } = clause else { continue };
        let layer = fabric.layer(layer).expect("a layer");
        let mut positions: Vec<Pos> = nodes.iter().filter_map(|node| fabric.pos(*node)).collect();
        positions.sort_unstable();
        let span = fabric.spans(&positions)[layer.index()];
        if span != 1 {
            found.push(format!("job {job} touches {span} domains although it has {clause}"));
        }
    }
}
