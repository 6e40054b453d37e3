//! What a job asks of its fabric over time: constraints that were given only for so long fall away one after another.

use crate::model::fabric::{Fabric, Layer, Pos};
use crate::model::job::JobSpec;
use crate::model::topology::Plugin;
use crate::text::gather::{GatherClause, Placement};
use crate::text::time::{Time, TimeLimit};

use super::lens::named;
use super::place::{Ask, Mode, Segment, Strategy};
use super::request::Request;

/// What a job asks for while a start lies in a stretch of time.
#[derive(Clone, Debug)]
pub(super) struct Stage {
    /// From then on,
    pub(super) from: Time,
    /// until then.
    pub(super) until: Time,
    /// What it asks for.
    pub(super) ask: Ask,
    /// What it had asked for before, as written.
    pub(super) relaxed: Vec<String>,
}

/// Every time at which something that a job asked for falls away.
pub(super) fn relax_times(spec: &JobSpec, eligible: Time) -> impl Iterator<Item = Time> + '_ {
    let fabric = spec.fabric.as_deref();
    let gather = fabric.and_then(|fabric| fabric.gather.as_ref());
    let clauses = gather.into_iter().flat_map(|gather| &gather.clauses).filter_map(|clause| match clause {
        GatherClause::Must { until, .. } => *until,
        GatherClause::Prefer { .. } | GatherClause::Multiple { .. } => None,
    });
    let switches = fabric.and_then(|fabric| fabric.switches).and_then(|switches| switches.wait);
    let limits = clauses.chain(switches);
    limits.filter(|limit| *limit != TimeLimit::Unlimited).map(move |limit| limit.end(eligible))
}

/// The stages of a job that has been eligible since `eligible`, from `now` on.
///
/// # Errors
/// A layer, a domain or a node that the fabric does not have.
pub(super) fn stages(
    fabric: &Fabric,
    spec: &JobSpec,
    request: &Request,
    default: Placement,
    eligible: Time,
    now: Time,
) -> Result<Vec<Stage>, String> {
    let mut times: Vec<Time> = relax_times(spec, eligible).filter(|time| *time > now).collect();
    times.sort_unstable();
    times.dedup();
    let froms = std::iter::once(now).chain(times.iter().copied());
    let untils = times.iter().copied().chain([Time::MAX]);
    let stage = |(from, until): (Time, Time)| {
        let mut relaxed = Vec::new();
        let ask = ask(fabric, spec, request, default, from.since(eligible), &mut relaxed)?;
        Ok(Stage { from, until, ask, relaxed })
    };
    froms.zip(untils).map(stage).collect()
}

fn ask(
    fabric: &Fabric,
    spec: &JobSpec,
    request: &Request,
    default: Placement,
    waited: u64,
    relaxed: &mut Vec<String>,
) -> Result<Ask, String> {
    let mut ask = Ask { nodes: request.nodes, tasks: request.slots, ..Ask::tasks(0) };
    ask.max_tasks_per_node = request.need.most;
    ask.strategy = match fabric.plugin() {
        Plugin::Tree => Strategy::Tree,
        Plugin::Block => Strategy::Block,
        Plugin::None => Strategy::Flat,
    };
    ask.mode = mode(spec.fabric.as_ref().and_then(|fabric| fabric.placement).unwrap_or(default));
    if let Some(nodelist) = &spec.shape.nodelist {
        let position =
            |name: &String| fabric.pos_named(name).ok_or_else(|| format!("there is no node {name}"));
        let required: Result<Vec<Pos>, String> = named(fabric, nodelist)?.iter().map(position).collect();
        ask.required = required?;
        ask.required.sort_unstable();
        ask.required.dedup();
        let least = u32::try_from(ask.required.len()).unwrap_or(u32::MAX);
        ask.nodes = ask.nodes.map(|(min, max)| (min.max(least), max.max(least)));
    }
    let Some(wish) = spec.fabric.as_deref() else { return Ok(ask) };
    if wish.topology.as_deref() == Some("none") {
        ask.strategy = Strategy::Flat;
    }
    ask.contiguous = wish.contiguous;
    ask.segment = wish.segment.map(|size| Segment {
        size,
        spread: wish.spread_segments,
        consolidate: wish.consolidate_segments,
    });
    let is_over =
        |limit: Option<TimeLimit>| limit.and_then(TimeLimit::seconds).is_some_and(|limit| limit <= waited);
    if let Some(switches) = wish.switches {
        if is_over(switches.wait) {
            relaxed.push(format!("--switches={switches}"));
        } else {
            ask.max_spans.push((Layer::LEAF, switches.count));
        }
    }
    for clause in wish.gather.iter().flat_map(|gather| &gather.clauses) {
        let layer = fabric.layer(clause.layer());
        let layer = layer.ok_or_else(|| format!("there is no layer {}", clause.layer()))?;
        match clause {
            GatherClause::Must { until, .. } if is_over(*until) => {
                relaxed.push(clause.to_string());
                ask.prefer.push(layer);
            }
            GatherClause::Must { .. } => ask.must = Some(ask.must.map_or(layer, |other| other.min(layer))),
            GatherClause::Prefer { .. } => ask.prefer.push(layer),
            GatherClause::Multiple { multiple, .. } => ask.multiples.push((layer, *multiple)),
        }
    }
    Ok(ask)
}

fn mode(placement: Placement) -> Mode {
    match placement {
        Placement::Consolidated => Mode::Consolidated,
        Placement::Balanced => Mode::Balanced,
        Placement::Distributed => Mode::Distributed,
    }
}
