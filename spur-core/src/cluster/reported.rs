//! The places that nodes report, compared with their places in the topologies.
//!
//! A report names an NVLink clique and switches, not domains. The leaf of a clique or a switch is a leaf
//! of its name with a node that reports it, or else the leaf with more than half of the other nodes that
//! report it. One decision table ([`judge`]) says what follows for a node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Cluster, Node, Topology};
use crate::id::NodeId;
use crate::model::fabric::{DomainId, Fabric, Layer, LookupError, PlaceError, Pos};
use crate::model::fabric_report::FabricReport;
use crate::model::topology::Plugin;
use crate::text::clique;
use crate::text::place::Places;

/// Name of a layer whose domains are NVLink cliques, and prefix of the names of these domains.
const CLIQUES: &str = "nvl";

/// The evidence of a report about the node's leaf or base block in one topology.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Evidence {
    /// The report contains nothing about this topology.
    None,
    /// The command line of the daemon names the leaf, or it is the leaf of the reported clique or switches.
    Leaf(DomainId),
    /// No other node with a place reports the clique or the switches. A new leaf would have this name.
    Unknown(String),
    /// The report fits several leaves, or its parts contradict each other.
    Unclear(Vec<DomainId>),
}

/// The consequence of a report for a node in one topology.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The node is where the report says, or the report says nothing.
    Agrees,
    /// The node is moved into this leaf.
    Place(DomainId),
    /// The node is moved into this leaf once it has no jobs.
    AfterJobs(DomainId),
    /// The node stays in no leaf until an operator decides.
    Waits,
    /// The node stays in another leaf than the report says.
    Elsewhere,
}

/// The facts about a node in one topology that [`judge`] decides on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Leaf of the node; `None` if the node is in no domain.
    pub leaf: Option<DomainId>,
    /// True if jobs hold resources of the node.
    pub has_jobs: bool,
    /// True if an operator has removed the node from the topology.
    pub removed: bool,
}

/// Decides what a report changes. Only a node in no domain, without jobs, is moved.
#[must_use]
pub fn judge(standing: Standing, evidence: &Evidence) -> Verdict {
    match (standing.leaf, evidence) {
        (_, Evidence::None) => Verdict::Agrees,
        (Some(leaf), Evidence::Leaf(reported)) if leaf == *reported => Verdict::Agrees,
        (Some(_), _) => Verdict::Elsewhere,
        (None, Evidence::Unknown(_) | Evidence::Unclear(_)) => Verdict::Waits,
        (None, Evidence::Leaf(_)) if standing.removed => Verdict::Waits,
        (None, Evidence::Leaf(leaf)) if standing.has_jobs => Verdict::AfterJobs(*leaf),
        (None, Evidence::Leaf(leaf)) => Verdict::Place(*leaf),
    }
}

/// A part of a report that several nodes have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Key<'a> {
    Clique(&'a str),
    Switch(&'a str),
}

/// The keys of a report.
fn keys(report: &FabricReport) -> impl Iterator<Item = Key<'_>> {
    let clique = Some(&*report.clique).filter(|clique| !clique.is_empty()).map(Key::Clique);
    clique.into_iter().chain(report.switches().map(Key::Switch))
}

/// The report of a node; `None` if the node has reported nothing.
fn report(node: &Node) -> Option<&FabricReport> {
    let registration = node.registration.as_ref().filter(|_| node.configured)?;
    Some(&registration.fabric).filter(|report| !report.is_empty())
}

/// True if both nodes report the same clique or a common switch.
#[must_use]
pub fn share_a_key(one: &Node, other: &Node) -> bool {
    let (Some(one), Some(other)) = (report(one), report(other)) else { return false };
    keys(one).any(|key| keys(other).any(|also| also == key))
}

/// True if a node has reported a place in the network.
#[must_use]
pub fn has_reported(node: &Node) -> bool {
    report(node).is_some()
}

/// The reports of the nodes of a cluster: for each topology, the leaves of the nodes that report a key, with
/// the number of these nodes.
pub struct Reports<'a> {
    cluster: &'a Cluster,
    leaves: Vec<BTreeMap<Key<'a>, BTreeMap<DomainId, u32>>>,
    /// For each topology, true if a node with a place in it reports a clique.
    with_cliques: Vec<bool>,
}

/// Keys of a report that mean one leaf.
struct Common<'k> {
    keys: &'k [Key<'k>],
    /// Names that a leaf may have after these keys; the first is that of a new leaf.
    names: &'k [&'k str],
    /// True for a report with keys of this kind.
    speaks: fn(&FabricReport) -> bool,
}

fn reports_clique(report: &FabricReport) -> bool {
    !report.clique.is_empty()
}

impl<'a> Reports<'a> {
    /// Collects the reports of all nodes.
    #[must_use]
    pub fn of(cluster: &'a Cluster) -> Self {
        Self::collect(cluster, |_| true)
    }

    /// Collects the reports that have a key in common with one of these nodes.
    #[must_use]
    pub fn about(cluster: &'a Cluster, nodes: &[NodeId]) -> Self {
        let named = nodes.iter().filter_map(|id| report(cluster.node(*id)?));
        let wanted: BTreeSet<Key<'_>> = named.flat_map(keys).collect();
        Self::collect(cluster, |key| wanted.contains(&key))
    }

    fn collect(cluster: &'a Cluster, wanted: impl Fn(Key<'a>) -> bool) -> Self {
        let mut leaves = vec![BTreeMap::new(); cluster.topologies().len()];
        let mut with_cliques = vec![false; cluster.topologies().len()];
        for node in cluster.nodes() {
            let Some(report) = report(node) else { continue };
            let wanted: Vec<Key<'a>> = keys(report).filter(|key| wanted(*key)).collect();
            for (at, topology) in cluster.topologies().iter().enumerate() {
                let needs_place = !wanted.is_empty() || reports_clique(report) && !with_cliques[at];
                let Some(leaf) = leaf_of(&topology.fabric, node.id).filter(|_| needs_place) else { continue };
                with_cliques[at] |= reports_clique(report);
                for key in &wanted {
                    let counts: &mut BTreeMap<DomainId, u32> = leaves[at].entry(*key).or_default();
                    *counts.entry(leaf).or_default() += 1;
                }
            }
        }
        Self { cluster, leaves, with_cliques }
    }

    /// The consequence of a node's report in the topology with this index.
    #[must_use]
    pub fn verdict(&self, topology: usize, node: &Node) -> Verdict {
        let wiring = &self.cluster.topologies()[topology];
        let standing = Standing {
            leaf: leaf_of(&wiring.fabric, node.id),
            has_jobs: !node.jobs.is_empty(),
            removed: matches!(node.places.get(&wiring.name), Some(None)),
        };
        judge(standing, &self.evidence(topology, node))
    }

    /// The evidence of a node's report about the topology with this index.
    #[must_use]
    pub fn evidence(&self, topology: usize, node: &Node) -> Evidence {
        let wiring = &self.cluster.topologies()[topology];
        let fabric = &*wiring.fabric;
        let Some(report) = report(node).filter(|_| fabric.top() > Layer::NODE) else {
            return Evidence::None;
        };
        if let Some(claimed) = claimed(wiring, &report.places) {
            return claimed;
        }
        let clique = match &*report.clique {
            "" => Evidence::None,
            clique => {
                let name = clique::short_name(CLIQUES, clique);
                let of = Common { keys: &[Key::Clique(clique)], names: &[&name], speaks: reports_clique };
                self.common(topology, node, &of)
            }
        };
        let switches: Vec<&str> = report.switches().collect();
        let names: Vec<&str> = switches.iter().flat_map(|name| [short(name), name]).collect();
        let keys: Vec<Key<'_>> = switches.iter().map(|name| Key::Switch(name)).collect();
        let of = Common { keys: &keys, names: &names, speaks: |report| !report.neighbours.is_empty() };
        let by_switch = if keys.is_empty() { Evidence::None } else { self.common(topology, node, &of) };
        if self.has_clique_leaves(topology) {
            // A node without a clique is in no leaf of nodes that are in one.
            return match by_switch {
                Evidence::Leaf(leaf) if report.clique.is_empty() && !self.is_clique(fabric, leaf) => {
                    by_switch
                }
                _ => clique,
            };
        }
        match (by_switch, clique) {
            (Evidence::None, clique) => clique,
            (Evidence::Leaf(one), Evidence::Leaf(other)) if one != other => {
                Evidence::Unclear(vec![one, other])
            }
            (Evidence::Unknown(_), Evidence::Leaf(other)) => Evidence::Unclear(vec![other]),
            (by_switch, _) => by_switch,
        }
    }

    /// The leaf with one of the names in which some node reports one of the keys, or else the leaf with more
    /// than half of the other nodes that report one of the keys.
    fn common(&self, topology: usize, node: &Node, of: &Common<'_>) -> Evidence {
        let fabric = &*self.cluster.topologies()[topology].fabric;
        let own = leaf_of(fabric, node.id);
        let is_named = |leaf: DomainId| {
            let domain = fabric.domain(leaf);
            of.names.iter().any(|name| [domain.full_name(), domain.name()].contains(name))
        };
        if let Some(own) = own.filter(|own| is_named(*own)) {
            return Evidence::Leaf(own);
        }
        let mut counts: BTreeMap<DomainId, u32> = BTreeMap::new();
        for key in of.keys {
            for (leaf, count) in self.leaves[topology].get(key).into_iter().flatten() {
                // The node itself does not count.
                *counts.entry(*leaf).or_default() += count.saturating_sub(u32::from(own == Some(*leaf)));
            }
        }
        counts.retain(|_, count| *count > 0);
        let total: u32 = counts.values().sum();
        let most = |leaf: &DomainId| counts[leaf] * 2 > total;
        if let Some(leaf) =
            counts.keys().find(|leaf| is_named(**leaf)).or(counts.keys().find(|leaf| most(leaf)))
        {
            return Evidence::Leaf(*leaf);
        }
        if !counts.is_empty() {
            return Evidence::Unclear(counts.into_keys().collect());
        }
        // A key that no other node reports contradicts the node's place only if another node of its leaf
        // reports a key of this kind.
        let neighbours = own.map(|own| self.members(fabric, own).filter(|other| other.id != node.id));
        match neighbours.is_none_or(|mut others| others.any(|other| report(other).is_some_and(of.speaks))) {
            true => Evidence::Unknown(of.names.first().map_or_else(String::new, |name| (*name).to_owned())),
            false => Evidence::None,
        }
    }

    /// True if the leaves of a topology are NVLink cliques: leaves of a layer `nvl`, and base blocks of nodes
    /// that report cliques.
    fn has_clique_leaves(&self, topology: usize) -> bool {
        let fabric = &*self.cluster.topologies()[topology].fabric;
        let is_named = |leaf| fabric.domain(leaf).name().starts_with(CLIQUES);
        fabric.layer_name(Layer::LEAF) == CLIQUES
            || fabric.plugin() == Plugin::Block
                && (self.with_cliques[topology] || fabric.domains_of(Layer::LEAF).any(is_named))
    }

    /// True if a node of the leaf reports a clique.
    fn is_clique(&self, fabric: &Fabric, leaf: DomainId) -> bool {
        self.members(fabric, leaf).filter_map(report).any(reports_clique)
    }

    fn members(&self, fabric: &Fabric, leaf: DomainId) -> impl Iterator<Item = &'a Node> {
        let cluster = self.cluster;
        let nodes: Vec<NodeId> = fabric.domain(leaf).range().map(|pos| fabric.node(Pos::at(pos))).collect();
        nodes.into_iter().filter_map(move |id| cluster.node(id))
    }
}

/// The evidence of the place that the command line of a daemon gives; `None` if it gives none in this
/// topology.
fn claimed(topology: &Topology, places: &str) -> Option<Evidence> {
    let places: Places = places.parse().ok()?;
    let place = places.0.into_iter().find(|place| *place.topology == *topology.name)?;
    Some(match topology.fabric.leaf_at(&place.above, &place.leaf) {
        Ok(leaf) => Evidence::Leaf(leaf),
        Err(PlaceError::Domain(LookupError::Unknown { .. })) => Evidence::Unknown(place.leaf),
        Err(_) => Evidence::Unclear(Vec::new()),
    })
}

/// The name of a switch without its network domain.
fn short(switch: &str) -> &str {
    switch.split('.').next().unwrap_or(switch)
}

fn leaf_of(fabric: &Fabric, node: NodeId) -> Option<DomainId> {
    fabric.pos(node).and_then(|pos| fabric.leaf_of(pos))
}

/// The nodes whose reports differ from their places, with the reported places: `default:spine0:leaf3`,
/// `default:nvl-1a2b3c4d-7(new)`, or `default:leaf3|leaf4` for a report that fits both.
#[must_use]
pub fn differences(cluster: &Cluster) -> &BTreeMap<NodeId, String> {
    cluster.derived.reported.get_or_init(|| Arc::new(differing(cluster)))
}

fn differing(cluster: &Cluster) -> BTreeMap<NodeId, String> {
    let mut differing = BTreeMap::new();
    if !cluster.nodes().iter().any(has_reported) {
        return differing;
    }
    let reports = Reports::of(cluster);
    for node in cluster.nodes().iter().filter(|node| has_reported(node)) {
        let places = (0..cluster.topologies().len())
            .filter(|topology| reports.verdict(*topology, node) != Verdict::Agrees)
            .map(|at| written(&cluster.topologies()[at], &reports.evidence(at, node)));
        let places = places.collect::<Vec<_>>().join(",");
        if !places.is_empty() {
            differing.insert(node.id, places);
        }
    }
    differing
}

fn written(topology: &Topology, evidence: &Evidence) -> String {
    match evidence {
        Evidence::Leaf(leaf) => topology.fabric.place(*leaf),
        Evidence::Unknown(name) => format!("{}:{name}(new)", topology.name),
        Evidence::Unclear(leaves) => {
            let names: Vec<&str> = leaves.iter().map(|leaf| topology.fabric.domain(*leaf).name()).collect();
            format!("{}:{}", topology.name, names.join("|"))
        }
        Evidence::None => String::new(),
    }
}

/// The places that a node reports, by topology: full names of leaves, of which new ones are made. Topologies
/// about which the node reports nothing are left out.
///
/// # Errors
/// A sentence if the node reports no place, or a place that fits several leaves.
pub fn places(reports: &Reports<'_>, node: &Node) -> Result<BTreeMap<Arc<str>, Arc<str>>, String> {
    let mut places = BTreeMap::new();
    for (at, topology) in reports.cluster.topologies().iter().enumerate() {
        let name: Arc<str> = match reports.evidence(at, node) {
            Evidence::None => continue,
            Evidence::Leaf(leaf) => topology.fabric.domain(leaf).full_name().into(),
            Evidence::Unknown(name) => match topology.fabric.leaf_at(&[], &name) {
                Ok(leaf) => topology.fabric.domain(leaf).full_name().into(),
                Err(_) => name.into(),
            },
            unclear @ Evidence::Unclear(_) => {
                let fits = written(topology, &unclear);
                return Err(format!("the report of {} fits {fits}; name one place", node.name()));
            }
        };
        places.insert(Arc::clone(&topology.name), name);
    }
    match places.is_empty() {
        true => Err(format!("{} reports no place; [agent] report in spur.toml has it report", node.name())),
        false => Ok(places),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_idle_node_without_a_place_is_moved() {
        use Verdict::{AfterJobs, Agrees, Elsewhere, Place, Waits};
        let (a, b) = (DomainId(0), DomainId(1));
        let evidence = [
            Evidence::None,
            Evidence::Leaf(a),
            Evidence::Leaf(b),
            Evidence::Unknown("new".to_owned()),
            Evidence::Unclear(vec![a, b]),
        ];
        // One row for each standing; one column for each kind of evidence, in that order.
        for (leaf, has_jobs, removed, verdicts) in [
            (None, false, false, [Agrees, Place(a), Place(b), Waits, Waits]),
            (None, true, false, [Agrees, AfterJobs(a), AfterJobs(b), Waits, Waits]),
            (None, false, true, [Agrees, Waits, Waits, Waits, Waits]),
            (None, true, true, [Agrees, Waits, Waits, Waits, Waits]),
            (Some(a), false, false, [Agrees, Agrees, Elsewhere, Elsewhere, Elsewhere]),
            (Some(a), true, false, [Agrees, Agrees, Elsewhere, Elsewhere, Elsewhere]),
        ] {
            let standing = Standing { leaf, has_jobs, removed };
            for (evidence, verdict) in evidence.iter().zip(verdicts) {
                assert_eq!(judge(standing, evidence), verdict, "{standing:?} {evidence:?}");
            }
        }
    }
}
