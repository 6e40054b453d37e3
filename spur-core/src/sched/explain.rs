//! The sentences of a plan: why a job waits, what was found for it, and why it got its nodes.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use crate::id::NodeId;
use crate::model::alloc::Why;
use crate::model::fabric::Fabric;
use crate::model::reason::Reason;
use crate::sched::request::constraints::Stage;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::text::hostlist::HostList;

use super::inventory::Inventory;
use super::place::{self, Ask, Lost, Misfit, MisfitKind, Placement};
use super::plan::UNAVAILABLE;
use super::request::{Request, Scarce};
use super::space::{Aside, Hit};

/// The explanation that is recorded with a start.
pub(super) fn why(hit: &Hit, backfilled: bool, priority: u32) -> Why {
    let placed = placed(&hit.eligible.fabric, &hit.placement, &hit.lost);
    Why { backfilled, priority, relaxed: hit.relaxed.clone(), ..placed }
}

/// The recorded reason of a placement, with a sentence that compares it with the domains that lost.
pub(super) fn placed(fabric: &Fabric, placement: &Placement, lost: &[Lost]) -> Why {
    let names = fabric.layer_names();
    let spans = names.iter().zip(&placement.spans).map(|(name, span)| (Arc::from(name.as_str()), *span));
    Why {
        sentence: placement.sentence(fabric, lost),
        spans: spans.collect(),
        exact: placement.exact,
        ..Why::default()
    }
}

/// The name of the domain that holds the whole placement; `None` if no domain of a named layer does.
pub(super) fn place(hit: &Hit) -> Option<Arc<str>> {
    let fabric = &hit.eligible.fabric;
    let domain = fabric.domain(hit.placement.common?);
    let seen = domain.layer().index() < fabric.layer_names().len();
    seen.then(|| Arc::clone(domain.shared_name()))
}

/// The reason a job waits: what it needs and how much of that is free now, where the count alone explains it.
/// The sentence names the fabric only if the fabric prevents the start.
pub(super) fn waiting(fabric: &Fabric, request: &Request, why: &Misfit, free: Option<u64>) -> String {
    let short = free.filter(|free| *free < request.min_slots());
    let by_fabric = why.layer.is_some() || why.kind != MisfitKind::TooFew || short.is_none();
    let Some(free) = free.filter(|_| fabric.roots().is_empty() || !by_fabric) else {
        return why.sentence(fabric);
    };
    let wanted = count(u64::from(why.wanted), request.unit());
    match free {
        0 => format!("needs {wanted}; none is free"),
        1 => format!("needs {wanted}; 1 is free"),
        _ => format!("needs {wanted}; {free} are free"),
    }
}

/// The reasons that idle nodes are not available to a job: their number by purpose, and what other nodes
/// lack.
pub(super) fn aside(aside: &Aside) -> String {
    let mut said = String::new();
    let mut say = |number: usize, what: &str| {
        let verb = if number == 1 { "is" } else { "are" };
        let _ = write!(said, "; {} {verb} {what}", count(number as u64, "idle node"));
    };
    aside.closed.iter().for_each(|(job, number)| say(*number, &format!("closed by job {job}")));
    aside.reserved.iter().for_each(|(name, number)| say(*number, &format!("reserved ({name})")));
    if aside.planned > 0 {
        say(aside.planned, "planned for others");
    }
    for (lack, number) in &aside.lacking {
        let verb = if *number == 1 { "has" } else { "have" };
        let what = match lack {
            Scarce::Memory => "memory",
            Scarce::Devices => "devices",
            Scarce::Cpus => "CPUs",
            Scarce::LimitOfPartition => "CPUs within the limit of the partition",
        };
        let _ = write!(said, "; {} {verb} all but {what}", count(*number as u64, "node"));
    }
    said
}

/// True if a job would fit if every node in service were idle.
pub(super) fn fits_up(inventory: &Inventory, eligible: &EligibleNodes, stage: &Stage) -> bool {
    let mut up = Cow::Borrowed(&*eligible.idle);
    for pos in inventory.out.iter().filter_map(|node| eligible.pos(node.0)) {
        up.to_mut().set(&eligible.fabric, pos, 0);
    }
    let view = eligible.view(&up);
    stage.asks.iter().any(|ask| place::place(&view, ask).is_ok())
}

/// `Ok` if a job would fit if every node were up and idle: then the unavailable nodes are the cause, given by
/// name. `Err` if the cluster cannot run the job at all, or the search could not decide that; the sentence
/// says why.
pub(super) fn when_all_are_up(
    inventory: &Inventory,
    eligible: &EligibleNodes,
    stage: &Stage,
) -> Result<Option<String>, (Reason, String)> {
    let view = eligible.view(&eligible.idle);
    let mut said = (Reason::BadConstraints, String::new());
    for ask in &stage.asks {
        match place::place_or_say(&view, ask) {
            Ok(_) => return Ok(missing(inventory, eligible, ask)),
            Err(misfit) if !misfit.exact => said = (Reason::Resources, cut(&eligible.fabric, ask, misfit)),
            // A size that could not be decided leaves the job undecided.
            Err(misfit) if said.0 == Reason::BadConstraints => said.1 = misfit.sentence(&eligible.fabric),
            Err(_) => {}
        }
    }
    Err(said)
}

/// The sentence for a job whose search found nothing before its budget was used up: the job may still fit.
fn cut(fabric: &Fabric, ask: &Ask, misfit: Misfit) -> String {
    let said = Misfit { exact: true, ..misfit }.sentence(fabric);
    let steps = count(ask.budget, "step");
    format!("{said}; no placement was found within search_budget, {steps}: a larger one may find one")
}

/// The nodes out of service that a job requires, or else those that it could use; `None` if there are none.
fn missing(inventory: &Inventory, eligible: &EligibleNodes, ask: &Ask) -> Option<String> {
    let out = |id: &NodeId| !inventory.nodes[id.index()].available;
    let required = ask.required.iter().map(|pos| eligible.fabric.node(*pos)).filter(out);
    let mut ids: Vec<NodeId> = required.collect();
    if ids.is_empty() {
        let admitted = eligible.admitted.ones().map(NodeId::at);
        ids = admitted.filter(out).collect();
        // Nodes on which the job could not run anyway are left out.
        let view = eligible.view(&eligible.idle);
        let could = place::could_hold(&view, ask);
        let serves = |id: &NodeId| eligible.pos(id.0).is_some_and(|pos| could.contains(pos.index()));
        let serving: Vec<NodeId> = ids.iter().copied().filter(serves).collect();
        if !serving.is_empty() {
            ids = serving;
        }
    }
    let names = HostList::from_names(inventory.names(ids));
    (!names.is_empty()).then(|| format!("{UNAVAILABLE}{names}"))
}

/// A number with its unit, as in `1 node`, `4 nodes`.
fn count(number: u64, unit: &str) -> String {
    format!("{number} {unit}{}", if number == 1 { "" } else { "s" })
}
