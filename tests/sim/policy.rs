//! The policies of simulated clusters.

use std::sync::Arc;

use spur_core::model::config::{
    NodeConfig, PartitionConfig, Policy, PreemptBy, PreemptMode, PreemptPolicy, QosConfig,
};
use spur_core::model::node::NodeShape;
use spur_core::model::topology::{Plugin, SwitchConfig, TopologyConfig};
use spur_core::text::time::Seconds;

use spur_chance::Chance;

/// Adds a partition of the same nodes whose jobs preempt those of the other.
pub(crate) fn add_tier(policy: &mut Policy, chance: &mut Chance) {
    let urgent = PartitionConfig {
        name: "urgent".into(),
        priority_tier: 2,
        default: false,
        ..policy.partitions[0].clone()
    };
    policy.partitions.push(urgent);
    let modes = [PreemptMode::Cancel, PreemptMode::Requeue, PreemptMode::Suspend];
    let any =
        |chance: &mut Chance, of: &[u64]| of[usize::try_from(chance.below(of.len() as u64)).expect("small")];
    policy.preempt = PreemptPolicy {
        by: PreemptBy::Partition,
        mode: modes[usize::try_from(chance.below(3)).expect("small")],
        grace_time: Seconds(any(chance, &[0, 0, 5, 30])),
        exempt_time: Seconds(any(chance, &[0, 0, 10])),
        ..PreemptPolicy::default()
    };
}

/// In some clusters, limits the jobs of the default partition to three of the four CPUs of a node.
pub(crate) fn limit_cpus(policy: &mut Policy, seed: u64) {
    if seed % 9 == 4 || seed % 16 == 8 {
        policy.partitions[0].max_cpus_per_node = Some(3);
    }
}

/// Makes jobs preempt others by their QOS, and no longer by the tier of their partition.
pub(crate) fn add_qos(policy: &mut Policy) {
    let low = QosConfig { name: "low".into(), ..QosConfig::default() };
    let high = QosConfig { name: "high".into(), preempt: vec!["low".into()], ..low.clone() };
    policy.qos = vec![low, high];
    policy.scheduler.default_qos = Some("low".into());
    policy.preempt.by = PreemptBy::Qos;
}

/// The leaves of a cluster with a topology.
pub(crate) const LEAVES: [&str; 2] = ["s0", "s1"];

/// The nodes of the one leaf and of the other.
pub(crate) fn halves(nodes: &[Arc<str>]) -> [&[Arc<str>]; 2] {
    let (one, other) = nodes.split_at(nodes.len() / 2);
    [one, other]
}

/// Adds two leaves of some of the nodes, under one switch.
pub(crate) fn add_leaves(policy: &mut Policy, names: &[Arc<str>]) {
    let switch = |name: &str, nodes: Option<String>, switches: Option<String>| SwitchConfig {
        name: name.to_owned(),
        nodes,
        switches,
        ..SwitchConfig::default()
    };
    let leaf = |(name, nodes): (&&str, &[Arc<str>])| switch(name, Some(nodes.join(",")), None);
    let mut switches: Vec<_> = LEAVES.iter().zip(halves(names)).map(leaf).collect();
    switches.push(switch("top", None, Some(LEAVES.join(","))));
    policy.topologies = vec![TopologyConfig { plugin: Plugin::Tree, switches, ..TopologyConfig::default() }];
}

/// A policy with one partition of all nodes.
pub(crate) fn new(names: &[Arc<str>], shape: &NodeShape, overlap: bool) -> Policy {
    let node = |name: &Arc<str>| NodeConfig {
        name: Arc::clone(name),
        shape: shape.clone(),
        weight: 1,
        ..NodeConfig::default()
    };
    let mut policy = Policy {
        cluster_name: "sim".into(),
        nodes: names.iter().map(node).collect(),
        partitions: vec![PartitionConfig {
            name: "main".into(),
            nodes: names.to_vec(),
            default: true,
            ..PartitionConfig::default()
        }],
        ..Policy::default()
    };
    policy.jobs.min_job_age = Seconds(1_000_000);
    policy.recovery.overlap = overlap;
    policy
}
