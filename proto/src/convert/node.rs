//! Nodes, for `sinfo` and `scontrol show node`.

use std::collections::BTreeSet;
use std::sync::Arc;

use spur_core::cluster::{Cluster, Node, reported};
use spur_core::id::JobId;
use spur_core::model::alloc::GresAlloc;
use spur_core::model::idset::IdSet;
use spur_core::model::node::{Health, NextState, NodeGres, Power};
use spur_core::model::phase::Phase;
use spur_core::model::reservation::{Flag, Reservation};
use spur_core::text::time::Time;
use spur_core::text::tres::{Tres, TresKind};

use crate::v1;

/// The last heartbeat of a node, which is not durable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pulse {
    /// Load average over one minute, in hundredths.
    pub load_hundredths: Option<u32>,
    /// Memory available to processes, in MiB.
    pub memory_free_mb: Option<u64>,
}

/// Encodes a node at `now`.
///
/// `planned` is true if the planner keeps the node free for a job; nominations are known from the cluster
/// itself.
pub fn render(cluster: &Cluster, node: &Node, pulse: Pulse, planned: bool, now: Time) -> v1::Node {
    let reservation = reserved(cluster, node, now);
    let (reason, reason_user, reason_time) = complaint(node);
    let (shape, clock) = (&*node.shape, cluster.clock());
    let taken = node.shape.cpus - node.free_cpus().len().min(node.shape.cpus);
    let in_partition =
        |partition: &&spur_core::cluster::Partition| partition.members.contains(node.id.index());
    let mut message = v1::Node {
        name: node.name().to_string(),
        state: shown_state(cluster, node, planned, reservation).to_owned(),
        reservation: reservation.map(|reservation| reservation.name.to_string()).unwrap_or_default(),
        maintenance: reservation.is_some_and(|reservation| reservation.has(Flag::Maint)),
        not_responding: matches!(node.health, Health::Unknown | Health::Down { silent: true, .. })
            || matches!(node.power, Some(Power::PoweringUp { .. })),
        reason,
        reason_user,
        reason_time: reason_time.map(|time| clock.wall(time).0),
        address: node.name().to_string(),
        hostname: node.name().to_string(),
        cpus: node.all_cpus(),
        cpus_specialized: node.specialized.cpus.len(),
        core_spec_count: node.specialized.cpus.len() / shape.threads_per_core.max(1),
        cpu_spec_list: node.specialized.cpus.to_string(),
        mem_spec_limit_mb: node.config.mem_spec_limit,
        cpus_allocated: taken,
        sockets: shape.sockets,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        memory_mb: shape.memory_mb + node.specialized.memory_mb,
        memory_allocated_mb: node.used.memory_mb,
        memory_free_mb: pulse.memory_free_mb,
        tmp_disk_mb: shape.tmp_disk_mb,
        weight: node.config.weight,
        features: shape.features.join(","),
        gres: gres(&shape.listed()),
        gres_used: gres_used(cluster, node),
        load_hundredths: pulse.load_hundredths,
        partitions: cluster
            .partitions()
            .iter()
            .filter(in_partition)
            .map(|partition| partition.name().to_string())
            .collect(),
        last_busy_time: node.last_busy.map(|time| clock.wall(time).0),
        configured_tres: configured_tres(cluster, node).to_string(),
        allocated_tres: tres(cluster, node, |_, used| used).to_string(),
        jobs: node.jobs.iter().map(|job| job.0).collect(),
        power: power(node).to_owned(),
        next_state: next_state(node).to_owned(),
        owner_comment: node.comment.to_string(),
        extra: node.extra.to_string(),
        foreign: node.foreign.iter().map(ToString::to_string).collect(),
        ..v1::Node::default()
    };
    registration(cluster, node, &mut message);
    place(cluster, node, &mut message);
    message
}

/// Returns Slurm's base state, in lower case.
pub fn state(cluster: &Cluster, node: &Node, planned: bool) -> &'static str {
    let completing = |job| matches!(cluster.job(job).map(|job| &job.phase), Some(Phase::Completing(_)));
    state_by(node, planned, completing)
}

/// Returns Slurm's base state, in lower case. `is_completing` is true for a job that is completing.
pub fn state_by(node: &Node, planned: bool, is_completing: impl Fn(JobId) -> bool) -> &'static str {
    let clearing =
        !node.stale.is_empty() || (!node.jobs.is_empty() && node.jobs.iter().all(|job| is_completing(*job)));
    // Silence while the host boots does not take the node out of service.
    let boots = node.is_rebooting() && matches!(node.health, Health::Down { by: None, .. });
    let health = if boots { &Health::Up } else { &node.health };
    match (health, &node.drain) {
        (_, Some(_)) if node.jobs.is_empty() && node.stale.is_empty() => "drained",
        (_, Some(_)) => "draining",
        (Health::Down { .. }, None) => "down",
        (Health::Unknown, None) => "unknown",
        (Health::Up, None) if !node.foreign.is_empty() => "draining",
        (Health::Up, None) if clearing => "completing",
        (Health::Up, None) if node.idle() && (planned || !node.nominees.is_empty()) => "planned",
        (Health::Up, None) if node.idle() => "idle",
        (Health::Up, None) if node.free_cpus().is_empty() => "allocated",
        (Health::Up, None) => "mixed",
    }
}

/// Returns Slurm's name of the operation on the node's host; empty for none.
fn power(node: &Node) -> &'static str {
    match &node.power {
        None => "",
        Some(Power::Reboot(reboot)) if reboot.issued.is_none() => "REBOOT_REQUESTED",
        Some(Power::Reboot(_)) => "REBOOT_ISSUED",
        Some(Power::PowerDown { .. }) => "POWER_DOWN",
        Some(Power::PoweringDown { .. }) => "POWERING_DOWN",
        Some(Power::PoweredDown { .. }) => "POWERED_DOWN",
        Some(Power::PoweringUp { .. }) => "POWERING_UP",
    }
}

/// Returns the state that the node takes after a reboot.
fn next_state(node: &Node) -> &'static str {
    match node.reboot().and_then(|reboot| reboot.next) {
        None => "",
        Some(NextState::Resume) => "RESUME",
        Some(NextState::Down) => "DOWN",
    }
}

/// Returns the reservation that holds a node at a time; of several, one for maintenance. `None` without an
/// active reservation.
pub fn reserved<'a>(cluster: &'a Cluster, node: &Node, now: Time) -> Option<&'a Reservation> {
    let here = cluster.reservations().filter(|kept| kept.is_active(now) && kept.holds(node.id));
    here.max_by_key(|kept| kept.has(Flag::Maint)).map(|kept| &**kept)
}

/// Returns the state of a node; an idle node in a reservation is shown as reserved.
fn shown_state(
    cluster: &Cluster,
    node: &Node,
    planned: bool,
    reservation: Option<&Reservation>,
) -> &'static str {
    match (state(cluster, node, planned), reservation) {
        ("idle" | "planned", Some(kept)) if kept.has(Flag::Maint) => "maint",
        ("idle" | "planned", Some(_)) => "reserved",
        (state, _) => state,
    }
}

/// Returns the reason of a node's state, its author, and its time.
fn complaint(node: &Node) -> (String, String, Option<Time>) {
    if let Some(reboot) = node.reboot() {
        return (reboot.reason.to_string(), reboot.by.to_string(), Some(reboot.at));
    }
    match (&node.drain, &node.health) {
        (Some(drain), _) => (drain.reason.to_string(), drain.by.to_string(), Some(drain.at)),
        (None, Health::Down { reason, at, by, .. }) => {
            (reason.to_string(), by.as_deref().unwrap_or("spur").to_owned(), Some(*at))
        }
        (None, Health::Up) if !node.foreign.is_empty() => {
            ("runs what an earlier history of the journal has left".to_owned(), "spur".to_owned(), None)
        }
        (None, Health::Up | Health::Unknown) => (String::new(), String::new(), None),
    }
}

/// Formats devices as Slurm does: `gpu:mi300x:8`.
fn gres(all: &[NodeGres]) -> String {
    all.iter().map(|gres| devices(&gres.name, &gres.kind, gres.count)).collect::<Vec<_>>().join(",")
}

/// Formats a number of devices of a name, with the type if there is one.
pub(super) fn devices(name: &str, kind: &str, count: u32) -> String {
    if kind.is_empty() { format!("{name}:{count}") } else { format!("{name}:{kind}:{count}") }
}

/// Returns each kind of device with the number in use, and their numbers among all of their name.
fn taken(cluster: &Cluster, node: &Node) -> Vec<(NodeGres, u32, IdSet)> {
    let shape = &*node.shape;
    let mut all: Vec<_> = shape.listed().into_iter().map(|gres| (gres, 0, IdSet::EMPTY)).collect();
    let mut add = |held: &GresAlloc| {
        let Some(called) = shape.called(held) else { return };
        let same = |(gres, ..): &&mut (NodeGres, u32, IdSet)| {
            *gres.name == *called.name && *gres.kind == *called.kind
        };
        if let Some((_, count, ids)) = all.iter_mut().find(same) {
            *count += called.count;
            ids.insert_all(&called.ids);
        }
    };
    let used = node.used.gres.iter().zip(0_u16..);
    for (ids, entry) in used.filter(|(_, entry)| !shape.is_shared((*entry).into())) {
        add(&GresAlloc { entry, ids: ids.clone(), shards: false });
    }
    // Only the jobs of a shared GPU tell whether they hold all its shards or the GPU itself.
    let jobs = node.jobs.iter().filter(|_| shape.shared_gpus).filter_map(|job| cluster.job(*job));
    for part in jobs.filter_map(|job| job.phase.holds_on(node.id)) {
        part.gres.iter().filter(|held| shape.is_shared(held.entry.into())).for_each(&mut add);
    }
    all
}

/// Adds a count of zero devices in use for each of these names that the node has no devices of, as Slurm
/// does: `gpu:0`.
pub fn show_absent_gres(message: &mut v1::Node, names: &BTreeSet<Arc<str>>) {
    for name in names {
        let mut shown = message.gres.split(',');
        if !shown.any(|gres| gres.split(':').next() == Some(&**name)) {
            let comma = if message.gres_used.is_empty() { "" } else { "," };
            message.gres_used += &format!("{comma}{name}:0");
        }
    }
}

/// Devices in use, by their numbers among all of their name: `gpu:mi300x:2(IDX:0-1)`.
fn gres_used(cluster: &Cluster, node: &Node) -> String {
    let one = |(gres, count, ids): &(NodeGres, u32, IdSet)| {
        let which = if ids.is_empty() { "N/A".to_owned() } else { ids.to_string() };
        format!("{}(IDX:{which})", devices(&gres.name, &gres.kind, *count))
    };
    taken(cluster, node).iter().map(one).collect::<Vec<_>>().join(",")
}

/// Returns the configured resources with the billing amount; for resources in use Slurm shows none.
fn configured_tres(cluster: &Cluster, node: &Node) -> Tres {
    let mut tres = tres(cluster, node, |all, _| all);
    if node.shape.cpus > 0 {
        tres.set(TresKind::Billing, node.shape.cpus.into());
    }
    tres
}

/// Returns the node's trackable resources. `pick` chooses between the configured and the used amount; zeros
/// are left out.
fn tres(cluster: &Cluster, node: &Node, pick: impl Fn(u64, u64) -> u64) -> Tres {
    let shape = &*node.shape;
    let cpus = pick(shape.cpus.into(), (shape.cpus - node.free_cpus().len().min(shape.cpus)).into());
    let mut tres = Tres::default();
    let mut set = |kind, number| {
        if number > 0 {
            tres.set(kind, number);
        }
    };
    set(TresKind::Cpu, cpus);
    // As in Slurm: all memory, but only CPUs that jobs can have.
    set(TresKind::Mem, pick(shape.memory_mb + node.specialized.memory_mb, node.used.memory_mb));
    for (gres, used, _) in taken(cluster, node) {
        let count = pick(gres.count.into(), used.into());
        let typed = (!gres.kind.is_empty()).then(|| gres.kind.to_string());
        for kind in [None].into_iter().chain(typed.map(Some)).filter(|_| count > 0) {
            let kind = TresKind::Gres { name: gres.name.to_string(), kind };
            tres.set(kind.clone(), tres.get(&kind) + count);
        }
    }
    tres
}

fn registration(cluster: &Cluster, node: &Node, message: &mut v1::Node) {
    if let Some(before) = &node.predecessor {
        let peer = if before.peer.is_empty() { String::new() } else { format!("({})", before.peer) };
        message.predecessor = format!("{}{peer}", before.hostname);
        message.predecessor_until = Some(cluster.clock().wall(before.until).0);
    }
    let Some(said) = &node.registration else { return };
    message.address = said.address.to_string();
    message.hostname = said.hostname.to_string();
    message.version = said.version.to_string();
    message.arch = said.arch.to_string();
    message.os = said.os.to_string();
    message.containment = said.containment.to_string();
    message.boot_time = Some(said.booted.0);
    message.started_time = Some(said.started.0);
}

/// Encodes the node's position in each topology, and in that of its first partition.
fn place(cluster: &Cluster, node: &Node, message: &mut v1::Node) {
    let places = cluster.topologies().iter().filter_map(|topology| {
        let pos = topology.fabric.pos(node.id)?;
        let path = topology.fabric.path(pos, ":");
        (!path.is_empty()).then(|| format!("{}:{path}", topology.name))
    });
    message.topology = places.collect::<Vec<_>>().join(",");
    if let Some(reported) = reported::differences(cluster).get(&node.id) {
        message.reported_topology.clone_from(reported);
    }
    let home = cluster.partitions().iter().find(|partition| partition.members.contains(node.id.index()));
    let Some(fabric) = home.and_then(|partition| cluster.fabric_of(partition)) else { return };
    let Some(pos) = fabric.pos(node.id) else { return };
    if let Some(leaf) = fabric.leaf_of(pos) {
        message.switch_name = fabric.domain(leaf).name().to_owned();
    }
    message.switch_path = fabric.path(pos, "/");
}
