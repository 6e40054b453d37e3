//! The keys by which placements of components are compared.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::model::fabric::{Fabric, Layer};
use crate::sched::place::{Ask, Mode, Placement, Slots, Strategy, View};

/// The locality of a placement, compared from left to right; smaller is better. The parts are: the number of
/// nodes, negated, where it is open; the nodes of the heaviest weight class, of the next, …; the domains at
/// every preferred layer; whether it is outside the preferred domain; the layer of the deepest common domain;
/// the domains at every layer from the top down. For `distributed` the domains from the top down count
/// negated. These are steps 1 to 3 of `docs/topology.md`.
pub(super) fn locality(view: &View<'_>, ask: &Ask, placement: &Placement) -> Vec<i64> {
    let fabric = view.fabric;
    let mut key = Vec::new();
    let nodes = i64::try_from(placement.shares.len()).unwrap_or(i64::MAX);
    key.push(if ask.nodes.is_some() && !ask.is_limited { -nodes } else { 0 });
    if let Some(weights) = view.weights {
        let mut classes: BTreeMap<Reverse<u32>, i64> =
            weights.known().iter().map(|weight| (Reverse(*weight), 0)).collect();
        for (pos, _) in &placement.shares {
            *classes.entry(Reverse(weights.at(*pos))).or_default() += 1;
        }
        key.extend(classes.into_values());
    }
    if ask.strategy == Strategy::Flat || fabric.roots().is_empty() {
        return key;
    }
    let span = |layer: &Layer| i64::from(placement.spans[layer.index()]);
    key.extend(ask.prefer.iter().map(span));
    if let Some(wanted) = ask.prefer_domain {
        let held = placement.common.is_some_and(|common| fabric.within(common, wanted));
        key.push(i64::from(!held));
    }
    if ask.mode == Mode::Distributed {
        key.extend(placement.spans.iter().rev().map(|span| -i64::from(*span)));
        return key;
    }
    let height = match placement.shares.len() {
        1 => Layer::NODE,
        _ => placement.common.map_or(Layer(u8::MAX), |common| fabric.domain(common).layer()),
    };
    key.push(i64::from(height.0));
    key.extend(placement.spans.iter().rev().map(|span| i64::from(*span)));
    key
}

/// The fit of a placement: slots left in the deepest common domain, in its ancestors from the bottom up, then
/// in the used domains of every layer below from the top down. This is step 4 of `docs/topology.md`.
pub(super) fn fit(slots: &Slots, fabric: &Fabric, placement: &Placement) -> Vec<u64> {
    let Some(common) = placement.common else { return Vec::new() };
    let taken: u64 = placement.shares.iter().map(|(_, share)| u64::from(*share)).sum();
    let ancestors = std::iter::successors(Some(common), |id| fabric.domain(*id).parent());
    let mut key: Vec<u64> = ancestors.map(|id| slots.of(id).saturating_sub(taken)).collect();
    for layer in (Layer::LEAF.0..fabric.domain(common).layer().0).rev().map(Layer) {
        let domains = placement.shares.iter().filter_map(|(pos, _)| fabric.domain_at(*pos, layer));
        let mut domains: Vec<_> = domains.collect();
        domains.dedup();
        key.push(domains.iter().map(|id| slots.of(*id)).sum::<u64>().saturating_sub(taken));
    }
    key
}
