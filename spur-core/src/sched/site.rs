//! The nodes of a reservation that does not name them, chosen like those of a job that needs whole nodes.

use std::sync::Arc;

use crate::cluster::{Cluster, Node, Partition};
use crate::id::{Attempt, JobId, NodeId};
use crate::model::caller::Owner;
use crate::model::job::{JobSpec, Shape, Sharing};
use crate::model::phase::{Phase, Suspended};
use crate::model::reservation::{Flag, Reservation};
use crate::sched::request::eligible_nodes::named;
use crate::sched::timeline::realm::OPEN;
use crate::text::features::FeatureExpr;
use crate::text::hostlist::HostExpr;
use crate::text::nodes::NodeCount;
use crate::text::time::Time;

use super::inventory::{Inventory, flat};
use super::place;
use super::prospect::EligibleSets;
use super::queue::Candidate;

/// Maintenance that begins later than this, in seconds, does not keep a node from replacing a lost one.
const SOON: u64 = 7 * 86_400;

/// The requirements for the nodes of a reservation.
#[derive(Clone, Copy, Debug)]
pub struct Site<'a> {
    /// Number of nodes to find.
    pub count: u32,
    /// Number of nodes that the reservation already has.
    pub has: u32,
    /// The partition from which nodes are taken.
    pub partition: &'a str,
    /// The features that each node must have.
    pub features: Option<&'a FeatureExpr>,
}

/// The nodes for a reservation that has none yet, by number. They are in service, in no other reservation at
/// the same time, and free of jobs when it begins. A reservation for maintenance also takes nodes of others
/// if too few remain, and one that ignores jobs takes busy nodes. Each group of nodes is placed by itself, on
/// what the groups before it leave.
///
/// # Errors
/// A message that says why there are not enough nodes, and what would work.
pub fn choose<'a>(
    cluster: &Cluster,
    now: Time,
    made: &Reservation,
    groups: impl Iterator<Item = Site<'a>>,
) -> Result<Vec<NodeId>, String> {
    let mut all: Vec<NodeId> = Vec::new();
    for group in groups {
        let spare = |node: NodeId| !all.contains(&node);
        let unreserved = |node: NodeId| spare(node) && is_unreserved(cluster, now, made, node);
        let shares = made.has(Flag::Maint);
        let idle = |node: NodeId| in_use(cluster, made, node).is_none();
        let site = Site { has: u32::try_from(all.len()).unwrap_or(u32::MAX), ..group };
        let mut chosen = among(cluster, now, &site, &|node| unreserved(node) && idle(node));
        if chosen.is_err() && shares {
            chosen = among(cluster, now, &site, &|node| spare(node) && idle(node));
        }
        if chosen.is_err() && made.has(Flag::IgnoreJobs) {
            chosen = among(cluster, now, &site, &unreserved);
        }
        if chosen.is_err() && made.has(Flag::IgnoreJobs) && shares {
            chosen = among(cluster, now, &site, &spare);
        }
        all.extend(chosen?);
    }
    Ok(all)
}

/// Finds `count` more nodes for a reservation, like those that it has.
///
/// # Errors
/// A message that says why there are not enough nodes, and what would work.
pub fn more(cluster: &Cluster, now: Time, made: &Reservation, count: u32) -> Result<Vec<NodeId>, String> {
    let features = features(made);
    let partition = made.partition.as_ref().or(cluster.default_partition().map(Partition::name));
    let partition = partition.ok_or("there is no default partition; give PartitionName=")?;
    let has = u32::try_from(made.nodes.len()).unwrap_or(u32::MAX);
    let site = Site { count, has, partition, features: features.as_ref() };
    let free = |node: NodeId| match made.has(Flag::Replace) {
        true => is_spare(cluster, now, made, node),
        false => !made.holds(node) && in_use(cluster, made, node).is_none(),
    };
    let unreserved = |node: NodeId| free(node) && is_unreserved(cluster, now, made, node);
    let found = among(cluster, now, &site, &unreserved);
    if made.has(Flag::Maint) { found.or_else(|_| among(cluster, now, &site, &free)) } else { found }
}

/// The nodes that a reservation gets instead of its present ones. Idle nodes replace those out of service, as
/// far as there are any. If the reservation replaces used nodes, the nodes taken by jobs while it is in force
/// are replaced, too. `None` if it keeps its nodes.
#[must_use]
pub fn replenished(cluster: &Cluster, now: Time, made: &Reservation) -> Option<Vec<NodeId>> {
    let known = |node: &NodeId| cluster.node(*node);
    let taken = made.has(Flag::Replace) && made.is_active(now);
    let (kept, mut leaving): (Vec<NodeId>, Vec<NodeId>) = made
        .nodes
        .iter()
        .partition(|node| known(node).is_some_and(|node| node.available() && (!taken || node.idle())));
    // Where there are not enough replacements, nodes out of service are replaced first.
    leaving.sort_by_key(|node| known(node).is_some_and(Node::available));
    let partition = cluster.partition(made.partition.as_deref()?).filter(|_| !leaving.is_empty())?;
    let mut spare: Vec<NodeId> =
        partition.nodes.iter().copied().filter(|node| may_replace(cluster, now, made, *node)).collect();
    let features = features(made);
    let splits = |wanted: &FeatureExpr| !wanted.counts().is_empty() || !wanted.shared().is_empty();
    let mut come = Vec::new();
    if let Some(wanted) = features.as_ref().filter(|wanted| splits(wanted)) {
        // Each replacement has those features of the old node that the expression names.
        for left in leaving {
            let serves = |node: &NodeId| {
                wanted.names().iter().all(|name| !has(cluster, left, name) || has(cluster, *node, name))
            };
            let found = spare.iter().position(serves).map(|at| spare.remove(at));
            come.push(found.unwrap_or(left));
        }
    } else {
        let serves = |node: &NodeId| {
            features.as_ref().is_none_or(|wanted| wanted.admits(&|name| has(cluster, *node, name)))
        };
        spare.retain(serves);
        let count = spare.len().min(leaving.len());
        let site = Site {
            count: u32::try_from(count).ok().filter(|count| *count > 0)?,
            has: 0,
            partition: partition.name(),
            features: None,
        };
        come = among(cluster, now, &site, &|node| spare.contains(&node)).ok()?;
        come.extend(&leaving[count..]);
    }
    let mut nodes: Vec<NodeId> = kept.into_iter().chain(come).collect();
    nodes.sort_unstable();
    (*nodes != *made.nodes).then_some(nodes)
}

/// True if a node is in service and free, and will be when the reservation begins; it may belong to other
/// reservations.
fn is_spare(cluster: &Cluster, now: Time, made: &Reservation, id: NodeId) -> bool {
    let Some(node) = cluster.node(id).filter(|node| node.available() && !made.holds(id)) else {
        return false;
    };
    let free = if made.is_active(now) { node.idle() } else { in_use(cluster, made, id).is_none() };
    free && !cluster.kept(id, &[]).any
}

/// True if a node can replace one that leaves a reservation. It must be spare and in no other reservation at
/// the same time. Reservations that may overlap are ignored, and so is maintenance that begins in more than a
/// week.
fn may_replace(cluster: &Cluster, now: Time, made: &Reservation, id: NodeId) -> bool {
    let clashes = |other: &Arc<Reservation>| {
        let limit = if other.has(Flag::Maint) { now + SOON } else { Time::MAX };
        let may_overlap = other.has(Flag::Overlap) && !other.has(Flag::Maint);
        other.name != made.name
            && other.holds(id)
            && !may_overlap
            && made.is_at_one_time_before(other, now, limit)
    };
    is_spare(cluster, now, made, id) && !cluster.reservations().any(clashes)
}

/// True if no other reservation has a node at the same time as this one, not even one with which it may
/// overlap.
fn is_unreserved(cluster: &Cluster, now: Time, made: &Reservation, node: NodeId) -> bool {
    let clashes = |other: &Arc<Reservation>| {
        other.name != made.name && other.holds(node) && made.is_at_one_time_with(other, now)
    };
    !cluster.reservations().any(clashes)
}

fn has(cluster: &Cluster, node: NodeId, feature: &str) -> bool {
    let node = cluster.node(node);
    node.is_some_and(|node| node.shape.features.iter().any(|known| **known == *feature))
}

/// The features that the reservation's nodes must have.
fn features(made: &Reservation) -> Option<FeatureExpr> {
    made.features.as_ref().and_then(|wanted| wanted.parse().ok())
}

/// Another reservation that has `node` at the same time as `made` and may not share nodes with it; `None` if
/// there is none.
#[must_use]
pub fn others<'a>(
    cluster: &'a Cluster,
    now: Time,
    made: &Reservation,
    node: NodeId,
) -> Option<&'a Arc<Reservation>> {
    let yields = |reservation: &Reservation| reservation.has(Flag::Maint) || reservation.has(Flag::Overlap);
    if yields(made) {
        return None;
    }
    let clashes = |other: &&Arc<Reservation>| {
        let is_other = other.name != made.name && !yields(other);
        is_other && other.holds(node) && made.is_at_one_time_with(other, now)
    };
    cluster.reservations().find(clashes)
}

/// A job outside the reservation that may still run on a node when it begins; `None` if there is none.
#[must_use]
pub fn in_use(cluster: &Cluster, made: &Reservation, node: NodeId) -> Option<JobId> {
    let lasts = |id: &&JobId| {
        let Some(job) = cluster.job(**id) else { return false };
        let end = match &job.phase {
            Phase::Running { alloc, .. } | Phase::Suspended(Suspended { alloc, .. })
                if alloc.reservation.as_ref() == Some(&made.name) =>
            {
                return false;
            }
            Phase::Running { started, .. } | Phase::Suspended(Suspended { started, .. }) => {
                job.ends_at(*started)
            }
            Phase::Completing(completing) => completing.kill_at.unwrap_or(completing.ended),
            Phase::Pending(_) | Phase::Ended(_) => return false,
        };
        end > made.start
    };
    cluster.node(node)?.jobs.iter().find(lasts).copied()
}

/// The node numbers of a host expression, with functions over the fabric resolved.
///
/// # Errors
/// A message about a name that does not exist.
pub fn nodes_named(cluster: &Cluster, list: &HostExpr) -> Result<Vec<NodeId>, String> {
    let inventory = cluster.standing(Inventory::new);
    let known = inventory.fabrics.iter().find(|fabric| fabric.name() == "default");
    let fabric = known.or(inventory.fabrics.first()).map_or_else(|| flat(cluster), Arc::clone);
    let number = |name: String| {
        let node = cluster.node_named(&name).filter(|node| node.configured);
        node.map(|node| node.id).ok_or(name)
    };
    let mut nodes = named(&fabric, list)?.into_iter().map(number).collect::<Result<Vec<_>, _>>()?;
    nodes.sort_unstable();
    nodes.dedup();
    Ok(nodes)
}

/// The nodes for a site, chosen from those for which `suits` holds.
fn among(
    cluster: &Cluster,
    now: Time,
    site: &Site<'_>,
    suits: &dyn Fn(NodeId) -> bool,
) -> Result<Vec<NodeId>, String> {
    let inventory = cluster.standing(Inventory::new);
    let index = inventory
        .partition(site.partition)
        .ok_or_else(|| format!("there is no partition {}", site.partition))?;
    let spec = Arc::new(spec(site));
    let request = inventory.request(index, &spec).map_err(|error| error.to_string())?;
    let candidate = Candidate {
        attempt: Attempt { job: JobId(0), restart: 0 },
        spec,
        eligible: now,
        run_time: 1,
        shortest: 1,
        gather_with: Vec::new(),
        limits: None,
        rest: Box::default(),
        array: None,
        choices: Arc::from([(index, request)]),
    };
    let prospect = EligibleSets::default().prospect(&inventory, &candidate, 0, 0, (OPEN, None), now)?;
    let mut most = 0;
    for eligible in &prospect.eligible_sets {
        let mut open = (*eligible.idle).clone();
        for (pos, _) in eligible.idle.iter() {
            let node = eligible.fabric.node(pos);
            if !inventory.nodes[node.index()].available || !suits(node) {
                open.set(&eligible.fabric, pos, 0);
            }
        }
        most = most.max(open.nodes());
        let view = eligible.view(&open);
        let mut asks = prospect.stages.iter().flat_map(|stage| &stage.asks);
        if let Some(found) = asks.find_map(|ask| place::place(&view, ask).ok()) {
            let mut nodes: Vec<NodeId> =
                found.shares.iter().map(|(pos, _)| eligible.fabric.node(*pos)).collect();
            nodes.sort_unstable();
            return Ok(nodes);
        }
    }
    let (partition, has) = (site.partition, site.has as usize);
    let wanted = if has > 0 { format!("{} more nodes", site.count) } else { format!("{} nodes", site.count) };
    let free = if most > 0 { most.to_string() } else { "none".to_owned() };
    let hint = if most > 0 { format!("; ask NodeCnt ≤ {}", has + most) } else { String::new() };
    Err(format!("{wanted}: {free} of partition {partition} can be had for all of that time{hint}"))
}

/// A request for whole nodes.
fn spec(site: &Site<'_>) -> JobSpec {
    let shape = Shape {
        nodes: Some(NodeCount::exactly(site.count)),
        features: site.features.cloned().map(Box::new),
        sharing: Sharing::Exclusive,
        ..Shape::default()
    };
    let owner = Owner { uid: 0, gid: 0, user: "root".into(), group: "root".into() };
    let partitions = Box::from([Arc::from(site.partition)]);
    JobSpec { partitions, ..JobSpec::plain("reservation".into(), Arc::new(owner), shape) }
}
