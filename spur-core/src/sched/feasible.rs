//! Whether a request can ever be honoured by the cluster as it is configured, whatever is free or down now.

mod components;
mod lacking;
mod mend;

use crate::cluster::{Cluster, Partition};
use crate::model::fabric::{Fabric, LookupError};
use crate::model::job::{JobSpec, Shape};
use crate::model::reservation::Reservation;
use crate::sched::request::wish::{Stage, WishError, Wisher};
use crate::sched::scene::lens::{Filter, Lens, alternatives, named};
use crate::sched::timeline::licenses::wanted;
use crate::text::hostlist::HostExpr;
use crate::text::nearest;
use crate::text::time::{Time, TimeLimit};

use self::lacking::{counted, has_devices, too_large};
use self::mend::{Offer, Refused};
use super::place::{self, AskError, Nearest, Never};
use super::request::Request;
use super::scene::{Scene, fabric_for};

pub use self::components::check_together;

/// Why a request can never be honoured, and the nearest one that can.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Which limit it hits.
    pub kind: RefusalKind,
    /// The sentence for people.
    pub message: String,
}

/// The kind of limit that a request hits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalKind {
    /// More or fewer nodes than there can be.
    NodeCount,
    /// More time than allowed.
    TimeLimit,
    /// CPUs, memory or devices that no node has.
    NodeConfig,
    /// Features that no node has.
    Features,
    /// Devices of a kind that there is not.
    Gres,
    /// Licenses that there are not.
    License,
    /// What the topology cannot hold.
    Topology,
    /// A node that is not there.
    NodeName,
}

/// Judges a request with its defaults filled in; the answer is what its user should know.
///
/// A job that names several partitions is refused only if every one of them refuses it, and so is one that names several
/// reservations; the first one's reason is given.
///
/// # Errors
/// The limit it hits, and what would work.
pub fn check(cluster: &Cluster, spec: &JobSpec) -> Result<Vec<String>, Refusal> {
    let scene = cluster.standing(Scene::new);
    licenses(&scene, spec)?;
    let warnings = in_partitions(&scene, spec, None)?;
    let known = || spec.reservations().filter_map(|name| cluster.reservation(name));
    if known().any(|reservation| !reservation.binds_to_nodes()) {
        return Ok(warnings);
    }
    let mut first = None;
    for within in known() {
        match in_partitions(&scene, spec, Some(within)) {
            Ok(warnings) => return Ok(warnings),
            Err(Refusal { message, .. }) => {
                let message = format!("in reservation {}: {message}", within.name);
                first = first.or(Some(Refusal { kind: RefusalKind::NodeConfig, message }));
            }
        }
    }
    first.map_or(Ok(warnings), Err)
}

/// The limit that a request hits in the first of its partitions, if it can never be honoured there; nothing is said of
/// what would work.
pub(super) fn limit(scene: &Scene, spec: &JobSpec) -> Option<String> {
    let index = spec.partitions.iter().find_map(|name| scene.partition(name))?;
    judge(scene, index, spec, None, Say::Nearest).err().map(Refused::into_text)
}

/// The same in the first of the partitions that works, on the nodes of a reservation where one is given.
fn in_partitions(
    scene: &Scene,
    spec: &JobSpec,
    within: Option<&Reservation>,
) -> Result<Vec<String>, Refusal> {
    let mut first = None;
    for name in &spec.partitions {
        let Some(index) = scene.partition(name) else { continue };
        let partition = &scene.partitions[index].partition;
        let judged =
            match within.is_some_and(|within| !partition.nodes.iter().any(|node| within.holds(*node))) {
                true => refuse(RefusalKind::NodeConfig, format!("it has no node of partition {name}")),
                false => in_partition(scene, index, spec, within),
            };
        match judged {
            Ok(warnings) => return Ok(warnings),
            Err(refusal) => first = first.or(Some(refusal)),
        }
    }
    let nowhere = || refuse(RefusalKind::NodeConfig, "none of the partitions exists".to_owned());
    first.map_or_else(nowhere, Err)
}

/// Every license has to exist, and as often as it is wanted.
fn licenses(scene: &Scene, spec: &JobSpec) -> Result<(), Refusal> {
    let known = &scene.policy.licenses;
    for (name, count) in wanted(spec) {
        let has = known.iter().find(|(known, _)| **known == **name).map(|(_, has)| *has);
        let message = match has {
            Some(has) if has >= *count => continue,
            Some(has) => format!("--licenses={name}:{count}: there are {has}; ask ≤ {has}"),
            None => {
                let near = nearest::nearest(name, known.iter().map(|(known, _)| &**known));
                let near = near.map_or_else(String::new, |near| format!("; did you mean {near}?"));
                format!("--licenses={name}: there is no such license{near}")
            }
        };
        return refuse(RefusalKind::License, message);
    }
    Ok(())
}

fn refuse<T>(kind: RefusalKind, message: String) -> Result<T, Refusal> {
    Err(Refusal { kind, message })
}

fn in_partition(
    scene: &Scene,
    index: usize,
    spec: &JobSpec,
    within: Option<&Reservation>,
) -> Result<Vec<String>, Refusal> {
    judge(scene, index, spec, within, Say::Nearest).map_err(|refused| {
        let request = scene.request(index, spec).ok();
        let again = |spec: &JobSpec, say| judge(scene, index, spec, within, say).map(|_| ());
        refused.mended(spec, request.as_ref(), again)
    })
}

/// How much of a refusal is wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Say {
    /// With what is near and may work.
    Nearest,
    /// Only whether there is one.
    Whether,
}

fn judge(
    scene: &Scene,
    index: usize,
    spec: &JobSpec,
    within: Option<&Reservation>,
    say: Say,
) -> Result<Vec<String>, Refused> {
    let partition = &scene.partitions[index].partition;
    time(partition, spec)?;
    let request =
        scene.request(index, spec).or_else(|error| refuse(RefusalKind::NodeConfig, error.to_string()))?;
    let fabric = fabric_for(scene, index, spec).or_else(|error| refuse(RefusalKind::Topology, error))?;
    nodes(scene, partition, fabric, &request, &spec.shape)?;
    if let Some(within) = within {
        reserved(fabric, within, &spec.shape)?;
    }
    features(scene, partition, fabric, &spec.shape)?;
    // Of several alternatives, the one that most nodes meet says what would work.
    let mut closest: Option<(usize, Refused)> = None;
    for (alternative, shared) in alternatives(&spec.shape).iter().enumerate() {
        let filter = Filter { shared, within, ..Filter::of(&spec.shape) };
        let lens = Lens::new(alternative, scene, index, fabric, &request.need, &filter)
            .or_else(|error| refuse(RefusalKind::NodeName, error))?;
        match fits_idle(scene, index, &lens, &request, spec, say) {
            Ok(warnings) => return Ok(warnings),
            Err(refused) => {
                let nodes = lens.idle.nodes();
                if closest.as_ref().is_none_or(|(most, _)| nodes > *most) {
                    closest = Some((nodes, refused));
                }
            }
        }
    }
    closest.map_or_else(|| Ok(Vec::new()), |(_, refused)| Err(refused))
}

fn time(partition: &Partition, spec: &JobSpec) -> Result<(), Refusal> {
    let (limit, most) = (spec.time_limit, partition.config.max_time);
    let shortest = spec.time_min.unwrap_or(limit);
    if shortest > most {
        let name = partition.name();
        return refuse(
            RefusalKind::TimeLimit,
            format!("time limit {shortest}: partition {name} allows {most}; ask -t ≤ {most}"),
        );
    }
    if spec.time_min.is_some_and(|least| least > limit) {
        return refuse(
            RefusalKind::TimeLimit,
            format!("--time-min={shortest} is more than --time={limit}; ask --time-min ≤ {limit}"),
        );
    }
    if let (Some(deadline), TimeLimit::Seconds(least)) = (spec.deadline, shortest)
        && spec.begin.is_some_and(|begin| begin + least > deadline)
    {
        let begin = spec.begin.unwrap_or(Time::ZERO);
        let room = TimeLimit::Seconds(deadline.since(begin));
        return refuse(
            RefusalKind::TimeLimit,
            format!(
                "a job of {shortest} that begins at --begin cannot end before --deadline; ask -t ≤ {room}"
            ),
        );
    }
    Ok(())
}

/// Counts and names of nodes.
fn nodes(
    scene: &Scene,
    partition: &Partition,
    fabric: &Fabric,
    request: &Request,
    shape: &Shape,
) -> Result<(), Refused> {
    let refuse = |text, offer| Err(Refused::new(RefusalKind::NodeCount, text, offer));
    let name = partition.name();
    let has = partition.nodes.iter().filter(|id| scene.nodes[id.index()].configured).count();
    let has = u32::try_from(has).unwrap_or(u32::MAX);
    let (least, most) = (partition.config.min_nodes, partition.config.max_nodes.unwrap_or(has).min(has));
    let (min, max) = request.nodes.unwrap_or((1, u32::MAX));
    if min > most {
        let limit = if most < has { "allows" } else { "has" };
        return refuse(format!("{min} nodes: partition {name} {limit} {most}"), Offer::Nodes(most));
    }
    if max < least {
        return refuse(
            format!("{max} nodes: partition {name} wants at least {least}"),
            Offer::MoreNodes(least),
        );
    }
    let required = hosts(scene, partition, fabric, "-w", shape.nodelist.as_deref())?;
    hosts(scene, partition, fabric, "-x", shape.exclude.as_deref())?;
    let required = u32::try_from(required).unwrap_or(u32::MAX);
    if required > max {
        return refuse(
            format!("-w names {required} nodes and -N allows {max}"),
            Offer::Near(Nearest::Nodes(required)),
        );
    }
    // Without a number of nodes there are no more than slots.
    if let (None, Some(slots)) = (request.nodes, request.slots)
        && required > slots
    {
        let (unit, ending) = (request.need.slot.unit(), if slots == 1 { "" } else { "s" });
        return refuse(
            format!("-w names {required} nodes for {slots} {unit}{ending}"),
            Offer::Near(Nearest::Nodes(required)),
        );
    }
    Ok(())
}

/// The nodes that are wanted have to be in the reservation.
fn reserved(fabric: &Fabric, within: &Reservation, shape: &Shape) -> Result<(), Refusal> {
    let Some(list) = &shape.nodelist else { return Ok(()) };
    let names = named(fabric, list).or_else(|error| refuse(RefusalKind::NodeName, error))?;
    let is_out = |name: &&String| fabric.pos_named(name).is_some_and(|pos| !within.holds(fabric.node(pos)));
    let outside = names.iter().find(is_out);
    outside.map_or(Ok(()), |name| refuse(RefusalKind::NodeConfig, format!("-w: node {name} is not in it")))
}

/// How many nodes a list names; each has to exist, and those that are wanted have to be in the partition.
fn hosts(
    scene: &Scene,
    partition: &Partition,
    fabric: &Fabric,
    option: &str,
    list: Option<&HostExpr>,
) -> Result<usize, Refusal> {
    let Some(list) = list else { return Ok(0) };
    let names = named(fabric, list).or_else(|error| refuse(RefusalKind::NodeName, error))?;
    for name in &names {
        let Some(id) = fabric.pos_named(name).map(|pos| fabric.node(pos)) else {
            let known = scene.nodes.iter().map(|node| &*node.name);
            let near = nearest::nearest(name, known)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            return refuse(RefusalKind::NodeName, format!("{option}: there is no node {name}{near}"));
        };
        if option == "-w" && !partition.members.contains(id.index()) {
            let message = format!("-w: node {name} is not in partition {}", partition.name());
            return refuse(RefusalKind::NodeName, message);
        }
    }
    Ok(names.len())
}

/// Every feature that is named must exist on some node of the partition.
fn features(scene: &Scene, partition: &Partition, fabric: &Fabric, shape: &Shape) -> Result<(), Refusal> {
    let Some(wanted) = &shape.features else { return Ok(()) };
    let mut known: Vec<&str> = Vec::new();
    for id in &partition.nodes {
        known.extend(scene.nodes[id.index()].shape.features.iter().map(|feature| &**feature));
        known.extend(fabric.pos(*id).map(|pos| fabric.features(pos)).unwrap_or_default());
    }
    known.sort_unstable();
    known.dedup();
    for name in wanted.names() {
        if known.binary_search(&name).is_err() {
            if let Err(ambiguous @ LookupError::Ambiguous { .. }) = fabric.find(name) {
                return refuse(RefusalKind::Features, format!("--constraint: {ambiguous}"));
            }
            let near = nearest::nearest(name, known)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            let message =
                format!("--constraint: no node of partition {} has feature {name}{near}", partition.name());
            return refuse(RefusalKind::Features, message);
        }
    }
    Ok(())
}

/// Whether the idle cluster could hold the job.
fn fits_idle(
    scene: &Scene,
    index: usize,
    lens: &Lens,
    request: &Request,
    spec: &JobSpec,
    say: Say,
) -> Result<Vec<String>, Refused> {
    let partition = &scene.partitions[index].partition;
    let name = partition.name();
    let qualified = u32::try_from(lens.idle.nodes()).unwrap_or(u32::MAX);
    let (min, slots) = (request.min_nodes(), request.min_slots());
    if qualified == 0 {
        let kind = if has_devices(scene, &spec.shape) { RefusalKind::NodeConfig } else { RefusalKind::Gres };
        refuse(kind, too_large(scene, partition, lens, &request.need))?;
    }
    if qualified < min {
        let text = format!("{min} nodes: {qualified} of partition {name} have what is asked for");
        return Err(Refused::new(RefusalKind::NodeConfig, text, Offer::Nodes(qualified)));
    }
    if lens.idle.total() < slots {
        let (unit, total) = (request.need.slot.unit(), lens.idle.total());
        let text = format!("{slots} {unit}s: partition {name} can hold {total} at once");
        let most = u32::try_from(total).unwrap_or(u32::MAX);
        return Err(Refused::new(RefusalKind::NodeConfig, text, Offer::Slots(most)));
    }
    let wisher = Wisher { scene, partition: index, fabric: &lens.fabric, spec, request, gather_with: &[] };
    let stages = wisher.stages(Time::ZERO, Time::ZERO).map_err(|error| match error {
        WishError::Ask(AskError::NoMultiple(total)) => Refused::no_multiple(total),
        error => Refusal { kind: RefusalKind::Topology, message: error.to_string() }.into(),
    })?;
    if let Some(ask) = stages.first().map(Stage::ask) {
        counted(partition, lens, ask, &spec.shape)?;
    }
    let mut reason = None;
    for stage in stages {
        // Of several sizes one that can be is enough; the smallest, which is last, says why none can.
        let never = |ask| place::is_never(&lens.fabric, &lens.idle, ask);
        if stage.asks.iter().any(|ask| !never(ask)) {
            let warning = reason.map(|why| format!("{why}; the job waits in vain until that relaxes"));
            return Ok(stage.warnings.into_iter().chain(warning).collect());
        }
        reason = reason.or_else(|| match say {
            Say::Nearest => place::refusal(&lens.fabric, &lens.idle, stage.asks.last()?),
            Say::Whether => Some(Never::default()),
        });
    }
    // Where nothing is asked of the fabric, the nodes are not what is asked for.
    let fabric = spec.fabric.is_some() || scene.topology(&lens.fabric).asks();
    let kind = if fabric { RefusalKind::Topology } else { RefusalKind::NodeConfig };
    Err(Refused::never(kind, reason.unwrap_or_default()))
}
