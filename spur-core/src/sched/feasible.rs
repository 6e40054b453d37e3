//! Whether a request can ever be honoured by the cluster as it is configured, whatever is free or down now.

use crate::cluster::{Cluster, Partition};
use crate::model::fabric::Fabric;
use crate::model::job::{JobSpec, Shape};
use crate::text::hostlist::HostExpr;
use crate::text::nearest;
use crate::text::time::{Time, TimeLimit};

use super::lens::{Filter, Lens, named};
use super::licenses::wanted;
use super::place;
use super::request::{Need, Request};
use super::scene::{Scene, fabric_for};
use super::wish::Wisher;

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
    /// CPUs, memory, devices or features that no node has.
    NodeConfig,
    /// What the topology cannot hold.
    Topology,
    /// A node that is not there.
    NodeName,
}

/// Judges a request with its defaults filled in; the answer is what its user should know.
///
/// A job that names several partitions is refused only if every one of them refuses it; the first one's reason is
/// given.
///
/// # Errors
/// The limit it hits, and what would work.
pub fn check(cluster: &Cluster, spec: &JobSpec) -> Result<Vec<String>, Refusal> {
    let scene = cluster.standing(Scene::new);
    licenses(&scene, spec)?;
    let mut first = None;
    for name in &spec.partitions {
        let Some(index) = scene.partition(name) else { continue };
        match in_partition(&scene, index, spec) {
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
        return refuse(RefusalKind::NodeConfig, message);
    }
    Ok(())
}

fn refuse<T>(kind: RefusalKind, message: String) -> Result<T, Refusal> {
    Err(Refusal { kind, message })
}

fn in_partition(scene: &Scene, index: usize, spec: &JobSpec) -> Result<Vec<String>, Refusal> {
    let partition = &scene.partitions[index].partition;
    time(partition, spec)?;
    let request = Request::new(spec, &partition.config)
        .or_else(|error| refuse(RefusalKind::NodeConfig, error.to_string()))?;
    let fabric = fabric_for(scene, index, spec).or_else(|error| refuse(RefusalKind::Topology, error))?;
    nodes(scene, partition, fabric, &request, &spec.shape)?;
    features(scene, partition, fabric, &spec.shape)?;
    let choices = spec.shape.features.as_ref().map(|features| features.shared_choices()).unwrap_or_default();
    let alternatives = choices.first().map_or(1, |choice| choice.len());
    let mut last = None;
    for alternative in 0..alternatives {
        let shared = choices.first().map(|choice| &choice[alternative]);
        let filter = Filter { shared: shared.as_slice(), ..Filter::of(&spec.shape) };
        let lens = Lens::new(alternative, scene, index, fabric, &request.need, &filter)
            .or_else(|error| refuse(RefusalKind::NodeName, error))?;
        match fits_idle(scene, index, &lens, &request, spec) {
            Ok(warnings) => return Ok(warnings),
            Err(refusal) => last = Some(refusal),
        }
    }
    last.map_or_else(|| Ok(Vec::new()), Err)
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
) -> Result<(), Refusal> {
    let name = partition.name();
    let has = partition.nodes.iter().filter(|id| scene.nodes[id.index()].configured).count();
    let has = u32::try_from(has).unwrap_or(u32::MAX);
    let (least, most) = (partition.config.min_nodes, partition.config.max_nodes.unwrap_or(has).min(has));
    let (min, max) = request.nodes.unwrap_or((1, u32::MAX));
    if min > most {
        let limit = if most < has { "allows" } else { "has" };
        return refuse(
            RefusalKind::NodeCount,
            format!("{min} nodes: partition {name} {limit} {most}; ask ≤ {most}"),
        );
    }
    if max < least {
        return refuse(
            RefusalKind::NodeCount,
            format!("{max} nodes: partition {name} wants at least {least}; ask ≥ {least}"),
        );
    }
    let required = hosts(scene, partition, fabric, "-w", shape.nodelist.as_deref())?;
    hosts(scene, partition, fabric, "-x", shape.exclude.as_deref())?;
    let required = u32::try_from(required).unwrap_or(u32::MAX);
    if required > max {
        return refuse(
            RefusalKind::NodeCount,
            format!("-w names {required} nodes and -N allows {max}; ask -N {required}"),
        );
    }
    Ok(())
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
            let near = nearest::nearest(name, known)
                .map_or_else(String::new, |near| format!("; did you mean {near}?"));
            let message =
                format!("--constraint: no node of partition {} has feature {name}{near}", partition.name());
            return refuse(RefusalKind::NodeConfig, message);
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
) -> Result<Vec<String>, Refusal> {
    let partition = &scene.partitions[index].partition;
    let qualified = u32::try_from(lens.idle.nodes()).unwrap_or(u32::MAX);
    let (min, slots) = (request.min_nodes(), request.min_slots());
    if qualified == 0 {
        return refuse(RefusalKind::NodeConfig, too_large(scene, partition, lens, &request.need));
    }
    if qualified < min {
        return refuse(
            RefusalKind::NodeConfig,
            format!(
                "{min} nodes: {qualified} of partition {} have what is asked for; ask ≤ {qualified}",
                partition.name()
            ),
        );
    }
    if lens.idle.total() < slots {
        let (unit, total) = (request.need.slot.unit(), lens.idle.total());
        return refuse(
            RefusalKind::NodeConfig,
            format!(
                "{slots} {unit}s: partition {} can hold {total} at once; ask ≤ {total}",
                partition.name()
            ),
        );
    }
    let wisher = Wisher { scene, partition: index, fabric: &lens.fabric, spec, request, gather_with: &[] };
    let stages =
        wisher.stages(Time::ZERO, Time::ZERO).or_else(|error| refuse(RefusalKind::Topology, error))?;
    let mut reason = None;
    for stage in stages {
        for ask in &stage.asks {
            match (place::refusal(&lens.fabric, &lens.idle, ask), reason.take()) {
                (None, None) => return Ok(stage.warnings),
                (None, Some(why)) => {
                    let warning = format!("{why}; the job waits in vain until that relaxes");
                    return Ok(stage.warnings.into_iter().chain([warning]).collect());
                }
                (Some(why), earlier) => reason = earlier.or(Some(why)),
            }
        }
    }
    refuse(RefusalKind::Topology, reason.unwrap_or_default())
}

/// Why no node will do: what is asked of one node, and the most that one has.
fn too_large(scene: &Scene, partition: &Partition, lens: &Lens, need: &Need) -> String {
    let name = partition.name();
    let admitted = || lens.admitted.ones().map(|index| &scene.nodes[index].shape);
    if admitted().next().is_none() {
        return format!("no node of partition {name} meets the constraint");
    }
    let (cpus, memory) = (
        admitted().map(|shape| shape.cpus).max().unwrap_or(0),
        admitted().map(|shape| shape.memory_mb).max().unwrap_or(0),
    );
    let asked = need.tasks(1).saturating_mul(need.cpus_per_task).max(need.min_cpus);
    if asked > cpus {
        return format!("{asked} CPUs on one node: the largest of partition {name} has {cpus}; ask ≤ {cpus}");
    }
    let per_cpu = need.memory_per_cpu.saturating_mul(u64::from(asked));
    let wanted = if need.memory_per_node == u64::MAX { 0 } else { need.memory_per_node.max(per_cpu) };
    if wanted > memory {
        return format!(
            "{wanted} MiB on one node: the largest of partition {name} has {memory}; ask ≤ {memory}"
        );
    }
    for spec in need.gres_per_node.iter().chain(&need.gres_per_task) {
        let has = |shape: &crate::model::node::NodeShape| -> u64 {
            let kind = |kind: &str| spec.kind.as_deref().is_none_or(|wanted| wanted == kind);
            let matching = shape.gres.iter().filter(|gres| *gres.name == *spec.name && kind(&gres.kind));
            matching.map(|gres| u64::from(gres.count)).sum()
        };
        let most = admitted().map(|shape| has(shape)).max().unwrap_or(0);
        if spec.count > most {
            return format!("{spec} on one node: the most that a node of partition {name} has is {most}");
        }
    }
    format!("no node of partition {name} has all that is asked for together")
}
