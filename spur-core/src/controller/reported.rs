//! Places of nodes that follow from the nodes' reports.
//!
//! Nodes in no domain of a topology and without jobs are moved to the places that they report, as by
//! `scontrol update NodeName=… Topology=…`. Operators decide about all other reports.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::Ctx;
use crate::cluster::reported::{self, Reports, Verdict};
use crate::cluster::{Cluster, Event, PlacesByTopology, Topology};
use crate::id::NodeId;
use crate::model::fabric::{Layer, Pos};

/// Moves the nodes whose places have become known through the report of `node`: the node itself, and those
/// that report the same clique or switch.
pub(super) fn settle_near(ctx: &mut Ctx<'_>, node: NodeId) {
    let cluster = ctx.cluster();
    let Some(near) = cluster.node(node).filter(|near| reported::has_reported(near)) else { return };
    let concerned = homeless(cluster).into_iter().filter(|id| {
        let other = cluster.node(*id);
        *id == node || other.is_some_and(|other| reported::share_a_key(near, other))
    });
    let concerned = concerned.collect();
    settle(ctx, concerned);
}

/// Moves a node that has no more jobs.
pub(super) fn settle_free(ctx: &mut Ctx<'_>, node: NodeId) {
    let is_free = |id| ctx.cluster().node(id).is_some_and(|node| node.jobs.is_empty());
    if is_free(node) && is_homeless(ctx.cluster(), node) {
        settle(ctx, vec![node]);
    }
}

/// Moves all nodes whose places have become known, after a change of the topologies or of places in them.
pub(super) fn settle_all(ctx: &mut Ctx<'_>) {
    let concerned = homeless(ctx.cluster());
    settle(ctx, concerned);
}

/// Moves the nodes whose reports fit one leaf. A moved node may decide the leaf of another node, so this is
/// repeated while nodes move.
fn settle(ctx: &mut Ctx<'_>, mut nodes: Vec<NodeId>) {
    while !nodes.is_empty() {
        let mut moves: BTreeMap<PlacesByTopology, Vec<NodeId>> = BTreeMap::new();
        let reports = Reports::about(ctx.cluster(), &nodes);
        for node in nodes.iter().filter_map(|id| ctx.cluster().node(*id)) {
            let mut places = BTreeMap::new();
            for (at, topology) in ctx.cluster().topologies().iter().enumerate() {
                if let Verdict::Place(leaf) = reports.verdict(at, node) {
                    let name = topology.fabric.domain(leaf).full_name();
                    places.insert(Arc::clone(&topology.name), Some(name.into()));
                }
            }
            if !places.is_empty() {
                moves.entry(places).or_default().push(node.id);
            }
        }
        let moved: BTreeSet<NodeId> = moves.values().flatten().copied().collect();
        if moved.is_empty() {
            return;
        }
        nodes.retain(|node| !moved.contains(node));
        for (places, nodes) in moves {
            ctx.emit(Event::NodesMoved { nodes, places });
        }
    }
}

/// The nodes that have reported a place and are in no domain of some topology, by number.
fn homeless(cluster: &Cluster) -> Vec<NodeId> {
    let mut found = BTreeSet::new();
    // Without domains, no node has a place or gets one.
    for Topology { fabric, .. } in
        cluster.topologies().iter().filter(|wired| wired.fabric.top() > Layer::NODE)
    {
        let outside = (fabric.wired()..fabric.len()).map(|at| fabric.node(Pos::at(at)));
        found.extend(outside.filter(|id| cluster.node(*id).is_some_and(reported::has_reported)));
    }
    found.into_iter().collect()
}

fn is_homeless(cluster: &Cluster, node: NodeId) -> bool {
    let outside = |Topology { fabric, .. }: &Topology| {
        fabric.top() > Layer::NODE && fabric.pos(node).is_some_and(|pos| fabric.leaf_of(pos).is_none())
    };
    cluster.node(node).is_some_and(reported::has_reported) && cluster.topologies().iter().any(outside)
}
