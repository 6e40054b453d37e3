//! Resources that no node has, or too few nodes.

use std::sync::Arc;

use crate::model::job::{CoreAsk, JobSpec, Shape};
use crate::model::node::{NodeShape, SHARD};
use crate::sched::inventory::Inventory;
use crate::sched::place;
use crate::sched::request::constraints::Wisher;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::text::gres::GresSpec;

use super::mend::{Offer, Refused};
use super::parameters::{Of, Parameter};
use super::{RefusalKind, meant};

/// Checks that all devices exist on some node. A request for other devices would be another job, so none are
/// offered.
pub(super) fn devices(inventory: &Inventory, shape: &Shape) -> Result<(), Refused> {
    let all = shape.gres.iter().chain(&shape.gpus).chain(&shape.gpus_per_task);
    let mut asked = all.filter(|gres| gres.count > 0);
    if shape.gets_shards() && asked.clone().any(|gres| gres.name == "gpu") {
        let text = "a job has GPUs or shards of them, not both".to_owned();
        return Err(Refused::new(RefusalKind::Gres, text, []));
    }
    let shared = inventory.nodes.iter().any(|node| node.shape.shared_gpus);
    let named = || inventory.nodes.iter().flat_map(|node| &node.shape.gres).map(|gres| &*gres.name);
    let known = || named().chain(shared.then_some(SHARD));
    let Some(gres) = asked.find(|gres| known().all(|name| *name != *gres.name)) else {
        return Ok(());
    };
    let text = format!("{gres}: no node has {}{}", gres.name, meant(&gres.name, known()));
    Err(Refused::new(RefusalKind::Gres, text, []))
}

/// Refuses a count that is larger than the number of nodes that could serve it.
pub(super) fn counted(
    wisher: &Wisher<'_>,
    eligible: &EligibleNodes,
    ask: &place::Ask,
) -> Result<(), Refused> {
    let counts = wisher.spec.shape.features.as_ref().map(|features| features.counts()).unwrap_or_default();
    for (at, ((wanted, count), (set, _))) in counts.into_iter().zip(&ask.counts).enumerate() {
        let have = eligible.idle.open().intersection(set).count();
        if have < count as usize {
            let name = wisher.partition().name();
            let text =
                format!("--constraint: {count} nodes with {wanted}: {have} of partition {name} could serve");
            let offer = (have > 0).then_some(Offer::AtMost(Parameter::Counted(at), have as u64));
            return Err(Refused::new(RefusalKind::NodeConfig, text, offer));
        }
    }
    Ok(())
}

/// The refusal where no node is large enough: the amount asked for on one node, and the most that a node has.
pub(super) fn too_large(wisher: &Wisher<'_>, eligible: &EligibleNodes) -> Refused {
    let Wisher { inventory, spec, request, .. } = *wisher;
    let (name, need) = (wisher.partition().name(), &request.need);
    let refused = |text: String, offers: Vec<Offer>| Refused::new(RefusalKind::NodeConfig, text, offers);
    let admitted = || eligible.admitted.ones().map(|index| &inventory.nodes[index].shape);
    if admitted().next().is_none() {
        return refused(format!("no node of partition {name} meets the constraint"), Vec::new());
    }
    let memory = admitted().map(|shape| shape.memory_mb).max().unwrap_or(0);
    // A number is offered directly if the option gives exactly that number.
    let offer = |parameter: Parameter, asked: u64, most: u64| match parameter.asked(spec, None) {
        Some(same) if same == asked => Offer::AtMost(parameter, most),
        _ => Offer::Other(parameter),
    };
    if !admitted().any(|shape| need.cores.suits(shape)) {
        return refused(cores_text(&need.cores, name), Vec::new());
    }
    let asked = need.tasks(1).saturating_mul(need.cpus_per_task).max(need.min_cpus);
    if let Some((text, most)) = too_many_cpus(wisher, &admitted().collect::<Vec<_>>(), asked) {
        let parameters = [Parameter::Cpus, Parameter::LeastCpus, Parameter::OnEach].into_iter();
        let offers = most.into_iter().flat_map(|most| {
            parameters.clone().map(move |parameter| offer(parameter, asked.into(), most.into()))
        });
        return refused(text, offers.collect());
    }
    let per_cpu = need.memory_per_cpu.saturating_mul(u64::from(asked));
    let wanted = if need.memory_per_node == u64::MAX { 0 } else { need.memory_per_node.max(per_cpu) };
    if wanted > memory {
        let text = format!(
            "Memory specification can not be satisfied: {wanted} MiB on one node: the largest of partition {name} has {memory}"
        );
        return refused(text, vec![offer(Parameter::Memory, wanted, memory)]);
    }
    let disk = admitted().map(|shape| shape.tmp_disk_mb).max().unwrap_or(0);
    if need.tmp_disk_mb > disk {
        let text = format!(
            "Temporary disk specification can not be satisfied: {} MiB on one node: the largest of partition {name} has {disk}",
            need.tmp_disk_mb
        );
        return refused(text, vec![offer(Parameter::Disk, need.tmp_disk_mb, disk)]);
    }
    for gres in need.gres_per_node.iter().chain(&need.gres_per_task) {
        let most = admitted().map(|shape| gres_of(shape, gres)).max().unwrap_or(0);
        if gres.count > most {
            let text = format!("{gres} on one node: the most that a node of partition {name} has is {most}");
            return refused(text, devices_of(spec).map(Offer::Other).collect());
        }
    }
    refused(
        format!("no node of partition {name} has all that is asked for together"),
        [Parameter::Memory, Parameter::Cpus, Parameter::LeastCpus, Parameter::Disk, Parameter::OnEach]
            .into_iter()
            .chain(devices_of(spec))
            .map(Offer::Other)
            .collect(),
    )
}

/// The sentence about `asked` CPUs on one node if no node has them or the partition does not allow its jobs
/// so many of a node, and the number that works; no number works for a job that needs whole nodes.
fn too_many_cpus(
    wisher: &Wisher<'_>,
    admitted: &[&Arc<NodeShape>],
    asked: u32,
) -> Option<(String, Option<u32>)> {
    let config = &wisher.partition().config;
    let name = &config.name;
    let cpus = admitted.iter().map(|shape| shape.cpus).max().unwrap_or(0);
    let allowed = admitted.iter().map(|shape| config.most_cpus(shape)).max().unwrap_or(0);
    let (what, most) = if asked > cpus {
        (format!("{asked} CPUs on one node: the largest of partition {name} has {cpus}"), Some(cpus))
    } else if asked > allowed {
        (format!("{asked} CPUs on one node: partition {name} allows its jobs {allowed}"), Some(allowed))
    } else if wisher.request.need.whole && admitted.iter().all(|shape| config.most_cpus(shape) < shape.cpus) {
        (format!("whole nodes: partition {name} allows its jobs {allowed} CPUs of a node"), None)
    } else {
        return None;
    };
    Some((format!("CPU count per node can not be satisfied: {what}"), most))
}

/// The refusal of a request for sockets, cores or threads that no node of a partition has.
fn cores_text(ask: &CoreAsk, partition: &str) -> String {
    let named = [
        ("sockets", ask.sockets_per_node),
        ("cores in each socket", ask.cores_per_socket),
        ("threads in each core", ask.threads_per_core),
    ];
    let named = named.into_iter().filter_map(|(what, least)| Some(format!("{} {what}", least?)));
    let named = named.collect::<Vec<_>>().join(" and ");
    format!(
        "Socket, core and/or thread specification can not be satisfied: no node of partition {partition} has {named}"
    )
}

/// The largest amount of a generic resource that one job may have of a node.
fn gres_of(shape: &NodeShape, gres: &GresSpec) -> u64 {
    let kind = |kind: &str| gres.kind.as_deref().is_none_or(|wanted| wanted == kind);
    let shards = shape.shared_gpus && gres.name == SHARD;
    let name = if shards { "gpu" } else { &gres.name };
    let matching = shape.gres.iter().filter(|has| *has.name == *name && kind(&has.kind));
    let counts = matching.map(|has| u64::from(has.count));
    match name {
        // All shards of a job on one node are of one GPU.
        _ if shards => counts.max().unwrap_or(0),
        "gpu" if shape.shared_gpus => counts.count() as u64,
        _ => counts.sum(),
    }
}

/// All that is said of devices.
fn devices_of(spec: &JobSpec) -> impl Iterator<Item = Parameter> {
    [Of::Node, Of::Task, Of::Job].into_iter().flat_map(|of| Parameter::devices(spec, of))
}
