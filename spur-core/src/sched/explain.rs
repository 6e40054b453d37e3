//! The words of a plan: why a job waits, what was found for it, why it got what it got.

use std::sync::Arc;

use crate::id::NodeId;
use crate::model::alloc::Why;
use crate::model::fabric::{DomainId, Fabric, Layer};
use crate::text::hostlist::HostList;

use super::lens::Lens;
use super::place::{self, Ask, Misfit, Unit};
use super::request::Request;
use super::scene::Scene;
use super::state::Hit;
use super::wish::Stage;

/// Domains named in one sentence.
const NAMED: usize = 4;

/// What is recorded with a start.
pub(super) fn why(hit: &Hit, backfilled: bool) -> Why {
    let (fabric, placement) = (&hit.lens.fabric, &hit.placement);
    let names = fabric.layer_names();
    let spans = names.iter().zip(&placement.spans).map(|(name, span)| (Arc::from(name.as_str()), *span));
    let nodes = count(u64::try_from(placement.shares.len()).unwrap_or(u64::MAX), "node");
    let sentence = match domain(fabric, placement.common) {
        Some((name, _)) => format!("{nodes} in {name}, which has {} left", slots(placement.waste)),
        None => nodes,
    };
    Why { sentence, spans: spans.collect(), exact: placement.exact, backfilled, relaxed: hit.relaxed.clone() }
}

/// The domain that holds the whole of what was found, by name.
pub(super) fn place(hit: &Hit) -> Option<Box<str>> {
    domain(&hit.lens.fabric, hit.placement.common).map(|(name, _)| name.into())
}

/// A domain that users see: its name and layer.
fn domain(fabric: &Fabric, id: Option<DomainId>) -> Option<(&str, Layer)> {
    let domain = fabric.domain(id?);
    let seen = domain.layer().index() < fabric.layer_names().len();
    seen.then(|| (domain.name(), domain.layer()))
}

/// Why a job waits: what it wants and what there is of it now.
pub(super) fn waiting(fabric: &Fabric, request: &Request, why: &Misfit, free: u64) -> String {
    let sentence = misfit(fabric, request, why);
    let in_one = why.layer.is_some_and(|layer| layer.index() < fabric.layer_names().len());
    match (in_one, free) {
        (true, _) => sentence,
        (false, 0) => format!("{sentence}; none is free"),
        (false, 1) => format!("{sentence}; 1 is free"),
        (false, _) => format!("{sentence}; {free} are free"),
    }
}

/// `Topology: needs 4 nodes in one spine; spine-0 has 3 free, spine-1 3, spine-2 3 (largest 3)`, or how many are
/// missing where no layer is to blame.
pub(super) fn misfit(fabric: &Fabric, request: &Request, misfit: &Misfit) -> String {
    let unit = match misfit.unit {
        Unit::Nodes => "node",
        Unit::Tasks => request.need.slot.unit(),
    };
    let wanted = count(u64::from(misfit.wanted), unit);
    let layer = misfit.layer.filter(|layer| layer.index() < fabric.layer_names().len());
    let Some(layer) = layer else { return format!("needs {wanted}") };
    let named = misfit.nearest.iter().take(NAMED).enumerate().map(|(index, (id, has))| {
        let name = fabric.domain(*id).name();
        if index == 0 { format!("{name} has {has} free") } else { format!("{name} {has}") }
    });
    let named: Vec<String> = named.collect();
    let largest = misfit.nearest.first().map_or(0, |(_, has)| *has);
    let there_is = if named.is_empty() { "none is free".to_owned() } else { named.join(", ") };
    format!("Topology: needs {wanted} in one {}; {there_is} (largest {largest})", fabric.layer_name(layer))
}

/// One ask, or one for each size that will do, the largest first.
pub(super) fn sizes(request: &Request, ask: &Ask) -> Vec<Ask> {
    match &request.sizes {
        Some(sizes) => sizes.iter().map(|size| Ask { nodes: Some((*size, *size)), ..ask.clone() }).collect(),
        None => vec![ask.clone()],
    }
}

/// Whether a job would fit if every node that is in service were idle.
pub(super) fn fits_up(scene: &Scene, lens: &Lens, request: &Request, stage: &Stage) -> bool {
    let mut up = lens.idle.clone();
    for (pos, _) in lens.idle.iter() {
        if !scene.nodes[lens.fabric.node(pos).index()].available {
            up.set(&lens.fabric, pos, 0);
        }
    }
    let view = lens.view(&up);
    sizes(request, &stage.ask).iter().any(|ask| place::place(&lens.fabric, &view, ask).is_ok())
}

/// Whether a job would fit if every node were up and idle: then the nodes that are not are to blame, by name.
/// Otherwise the cluster cannot run it at all, and the sentence says why.
pub(super) fn when_all_are_up(
    scene: &Scene,
    lens: &Lens,
    request: &Request,
    stage: &Stage,
) -> Result<Option<String>, String> {
    let asks = sizes(request, &stage.ask);
    let view = lens.view(&lens.idle);
    let mut last = String::new();
    for ask in &asks {
        match place::place(&lens.fabric, &view, ask) {
            Ok(_) => return Ok(missing(scene, lens, ask)),
            Err(error) => last = misfit(&lens.fabric, request, &error),
        }
    }
    Err(last)
}

/// The nodes that a job must have, or could use, and that are out of service, if any are.
fn missing(scene: &Scene, lens: &Lens, ask: &Ask) -> Option<String> {
    let out = |id: &NodeId| !scene.nodes[id.index()].available;
    let required = ask.required.iter().map(|pos| lens.fabric.node(*pos)).filter(out);
    let mut ids: Vec<NodeId> = required.collect();
    if ids.is_empty() {
        let admitted = lens.admitted.ones().map(|index| NodeId(u32::try_from(index).unwrap_or(u32::MAX)));
        ids = admitted.filter(out).collect();
    }
    let names = HostList::from_names(scene.names(ids));
    (!names.is_empty()).then(|| format!("UnavailableNodes:{names}"))
}

/// `1 node`, `4 nodes`.
fn count(number: u64, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}

fn slots(number: u64) -> String {
    if number == 0 { "nothing".to_owned() } else { count(number, "slot") }
}
