//! Devices of a step on each of its nodes. A step that requests devices gets them beside other such steps;
//! any other step sees devices of its job.

use super::super::super::Reject;
use super::super::super::devices::choose;
use super::{Candidate, others};
use crate::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use crate::model::idset::IdSet;
use crate::model::job::Job;
use crate::model::node::{NodeGres, NodeShape, SHARD};
use crate::model::step::StepSpec;
use crate::text::gres::GresSpec;

/// The tasks and CPUs of a step on a node.
pub(super) struct OnNode<'a> {
    pub(super) candidate: &'a Candidate<'a>,
    pub(super) tasks: u32,
    pub(super) cpus: IdSet,
}

/// True if a step requests devices.
pub(super) fn are_asked_for(wish: &StepSpec) -> bool {
    wish.gres.is_some() || !wish.gpus.is_empty() || !wish.gpus_per_task.is_empty()
}

/// The devices of a step on each of its nodes; a node with an empty list sees all devices of its job.
///
/// # Errors
/// A request for devices that the job does not have, or that other steps hold.
pub(super) fn of_step(
    (job, alloc): (&Job, &Alloc),
    nodes: &[OnNode<'_>],
    wish: &StepSpec,
) -> Result<Vec<Box<[GresAlloc]>>, Reject> {
    let of_job = as_job(job).filter(|_| alloc.exclusive && !are_asked_for(wish));
    let asked = of_job.as_ref().unwrap_or(wish);
    let given = portions(job, nodes, asked).and_then(|portions| {
        let on_node =
            |(on_node, portion): (&OnNode<'_>, &Vec<GresSpec>)| devices(job, on_node, asked, portion);
        nodes.iter().zip(&portions).map(on_node).collect::<Result<Vec<_>, _>>()
    });
    match (of_job, given) {
        (None, given) => given,
        (Some(_), Ok(gpus)) => Ok(nodes.iter().zip(gpus).map(with_others).collect()),
        // The job does not have its requested devices on these nodes alone.
        (Some(_), Err(_)) => Ok(vec![Box::default(); nodes.len()]),
    }
}

/// The devices that a step without a request sees on nodes that its job has exclusively: GPUs as the job
/// requested them. `None` if the job requested none.
fn as_job(job: &Job) -> Option<StepSpec> {
    let shape = &job.spec.shape;
    let gres: Vec<GresSpec> = shape.gres.iter().filter(|spec| &*spec.name == "gpu").cloned().collect();
    let (gpus, gpus_per_task) = (shape.gpus.clone(), shape.gpus_per_task.clone());
    let asks = !(gres.is_empty() && gpus.is_empty() && gpus_per_task.is_empty());
    asks.then(|| StepSpec { gres: Some(gres), gpus, gpus_per_task, overlap: true, ..StepSpec::default() })
}

/// The GPUs that a step sees on a node, with all devices of other kinds that its job has there.
fn with_others((on_node, gpus): (&OnNode<'_>, Box<[GresAlloc]>)) -> Box<[GresAlloc]> {
    let Candidate { part, shape, .. } = *on_node.candidate;
    let entry = |own: &GresAlloc| shape.and_then(|shape| shape.gres.get(usize::from(own.entry)));
    let others = part.gres.iter().filter(|own| !entry(own).is_some_and(NodeGres::is_gpu));
    gpus.iter().chain(others).cloned().collect()
}

/// The devices that the step requests on a node, out of those that other requests have left.
fn devices(
    job: &Job,
    on_node: &OnNode<'_>,
    wish: &StepSpec,
    portion: &[GresSpec],
) -> Result<Box<[GresAlloc]>, Reject> {
    let OnNode { candidate, tasks, cpus } = on_node;
    let Candidate { part, shape, .. } = **candidate;
    let mut free = free_devices(job, part, wish);
    let mut taken: Vec<GresAlloc> = Vec::new();
    let near = (!job.spec.takes_any_devices()).then_some(cpus);
    let per_node = wish.gres.iter().flatten().chain(portion);
    // GPUs of tasks are taken from those of the node first.
    let per_task = wish.gpus_per_task.iter().map(|spec| {
        let of_node: u64 = per_node.clone().filter(|other| other.may_be(spec)).map(|other| other.count).sum();
        (spec, spec.count.saturating_mul((*tasks).into()).saturating_sub(of_node))
    });
    for (spec, count) in per_node.clone().map(|spec| (spec, spec.count)).chain(per_task) {
        let mut left = u32::try_from(count).unwrap_or(u32::MAX);
        let asked = amount(spec, &taken, shape);
        let each = |own: &GresAlloc| per_device(shape, own);
        let matches = |own: &GresAlloc| is_meant(spec, own, shape);
        for own in free.iter_mut().filter(|own| matches(own)) {
            let count = left.min(own.ids.len() / each(own));
            let ids = match shape {
                Some(shape) => choose(shape, own.entry, &own.ids, count * each(own), near),
                None => own.ids.lowest(count),
            };
            left -= ids.len() / each(own);
            own.ids = own.ids.difference(&ids);
            if !ids.is_empty() {
                taken.push(GresAlloc { ids, ..*own });
            }
        }
        if left > 0 {
            let (all, wanted) = (amount(spec, &part.gres, shape), asked + count);
            return Err(if all >= wanted {
                Reject::StepBusy
            } else {
                Reject::StepTooLarge(format!(
                    "{wanted} {} on {}, where the job has {all}",
                    spec.name, candidate.name
                ))
            });
        }
    }
    Ok(taken.into())
}

/// Devices of the job on a node that no other step has requested.
fn free_devices(job: &Job, part: &NodeAlloc, wish: &StepSpec) -> Vec<GresAlloc> {
    let mut free = part.gres.to_vec();
    let held = others(job, part).filter(|(step, _)| step.own_gres && !wish.overlap);
    for held in held.flat_map(|(_, other)| other.gres.iter()) {
        for own in free.iter_mut().filter(|own| own.entry == held.entry) {
            own.ids = own.ids.difference(&held.ids);
        }
    }
    free
}

/// Number of these devices that match a request.
fn amount(spec: &GresSpec, devices: &[GresAlloc], shape: Option<&NodeShape>) -> u64 {
    let own = devices.iter().filter(|own| is_meant(spec, own, shape));
    own.map(|own| u64::from(own.ids.len() / per_device(shape, own))).sum()
}

/// Each node's portion of devices requested for all nodes together: as even as availability allows, at least
/// one each.
fn portions(job: &Job, nodes: &[OnNode<'_>], wish: &StepSpec) -> Result<Vec<Vec<GresSpec>>, Reject> {
    let mut portions = vec![Vec::new(); nodes.len()];
    let all: u64 = wish.gpus.iter().map(|spec| spec.count).sum();
    for spec in wish.gpus.iter().filter(|spec| spec.count > 0) {
        let candidates = || nodes.iter().map(|node| node.candidate);
        let free = |node: &Candidate<'_>| amount(spec, &free_devices(job, node.part, wish), node.shape);
        let mut rooms: Vec<u64> = candidates().map(free).collect();
        if rooms.contains(&0) || rooms.iter().sum::<u64>() < spec.count {
            rooms = candidates().map(|node| amount(spec, &node.part.gres, node.shape)).collect();
        }
        let mut left = spec.count;
        for (number, portion) in portions.iter_mut().enumerate() {
            let even = left.div_ceil((nodes.len() - number) as u64).min(rooms[number]);
            let count = even.max(left.saturating_sub(rooms[number + 1..].iter().sum()));
            left -= count;
            portion.extend((count > 0).then(|| GresSpec { count, ..spec.clone() }));
        }
    }
    match portions.iter().position(Vec::is_empty).filter(|_| all > 0) {
        Some(without) => Err(Reject::InvalidGres(format!(
            "--gpus={all} on {} nodes leaves none for {}; ask for one on each node at least, or for fewer nodes by -N",
            nodes.len(),
            nodes[without].candidate.name
        ))),
        None => Ok(portions),
    }
}

/// True if devices of the job match a request.
fn is_meant(spec: &GresSpec, own: &GresAlloc, shape: Option<&NodeShape>) -> bool {
    shape.and_then(|shape| shape.gres.get(usize::from(own.entry))).is_some_and(|entry| {
        let name = if own.shards { SHARD } else { &entry.name };
        *name == *spec.name && spec.kind.as_ref().is_none_or(|kind| **kind == *entry.kind)
    })
}

/// Number of ids of an entry that make one device: all of them for a sharable GPU that is used whole.
fn per_device(shape: Option<&NodeShape>, own: &GresAlloc) -> u32 {
    let at = usize::from(own.entry);
    let shared = shape.filter(|shape| shape.is_shared(at) && !own.shards);
    shared.map_or(1, |shape| shape.gres[at].count.max(1))
}

/// Number of GPUs that each task requests.
pub(super) fn gpus_per_task(wish: &StepSpec) -> u32 {
    let gpus = wish.gpus_per_task.iter().filter(|spec| &*spec.name == "gpu");
    gpus.map(|spec| u32::try_from(spec.count).unwrap_or(u32::MAX)).sum()
}
