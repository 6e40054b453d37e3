//! Reconfiguration: puts a new policy in force.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, kept_priority, reported};
use super::accounts;
use crate::cluster::{AccountChange, Cluster, Event, FeatureLevel};
use crate::id::NodeId;
use crate::model::caller::Caller;
use crate::model::config::{Policy, QosConfig};
use crate::model::fabric::Fabric;
use crate::sched::licensed;
use crate::text::hostlist::HostList;
use crate::text::time::Time;

/// The words for negative weights of resources, which a program of level 1 cannot read.
pub(super) const NEGATIVE_WEIGHTS: &str = "a negative TRES weight";

pub(super) struct Decision {
    /// The new policy; `None` if it equals the one in force.
    policy: Option<Arc<Policy>>,
    /// The `[[qos]]` sections, if they differ from those that the policy tree was last compared with.
    file_qos: Option<Vec<QosConfig>>,
    changes: Vec<String>,
}

/// Decides on a new policy, which only operators may put in force. A policy with a topology that cannot be
/// built is refused as a whole.
pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    policy: Arc<Policy>,
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let (policy, told) = with_qos_of_tree(cluster, policy);
    let file_qos = told.file;
    if policy == *cluster.policy() {
        return Ok(Decision { policy: None, file_qos, changes: told.sentences });
    }
    cluster.allows(&policy)?;
    if policy.has_negative_weights() {
        cluster.has_level(FeatureLevel(2), NEGATIVE_WEIGHTS)?;
    }
    // Only names matter for judging a topology; numbers are assigned when the policy is applied.
    let nodes: Vec<(NodeId, &str)> =
        (0u32..).map(NodeId).zip(policy.nodes.iter().map(|node| &*node.name)).collect();
    let mut faults = Vec::new();
    for topology in &policy.topologies {
        if let Err(errors) = Fabric::build(topology, &nodes, &[]) {
            faults.extend(errors.iter().map(ToString::to_string));
        }
    }
    if !faults.is_empty() {
        return Err(Reject::InvalidPolicy(faults.join("\n")));
    }
    let mut changes = changes(cluster.policy(), &policy);
    changes.extend(told.sentences);
    changes.extend(undone(cluster, &policy));
    changes.extend(cluster.edits_undone_by(&policy));
    changes.extend(licensed::short_of(cluster, now, &policy.licenses));
    Ok(Decision { policy: Some(policy), file_qos, changes })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    if let Some(policy) = decision.policy {
        let event = Event::PolicyChanged { policy, keeps_edits: true };
        kept_priority::keep(ctx, |ctx| ctx.emit(event));
        reported::settle_all(ctx);
    }
    if let Some(file) = decision.file_qos {
        ctx.emit(Event::AccountsChanged {
            by: "spurctld".into(),
            changes: vec![AccountChange::FileQos(file)],
        });
    }
    Reply::Reconfigured { changes: decision.changes }
}

/// The `[[qos]]` sections of the new configuration, compared with the policy tree.
struct FileQos {
    /// The sections, if they differ from those that the tree was last compared with.
    file: Option<Vec<QosConfig>>,
    sentences: Vec<String>,
}

/// The policy with the QOS of the policy tree, once that exists. The file's QOS then have no effect; for each
/// change of theirs a sentence names the command that makes it.
fn with_qos_of_tree(cluster: &Cluster, policy: Arc<Policy>) -> (Arc<Policy>, FileQos) {
    if !cluster.accounts().has_begun() {
        return (policy, FileQos { file: None, sentences: Vec::new() });
    }
    let sentences = accounts::compare(cluster, &policy.qos);
    let file = (*cluster.accounts().file_qos() != *policy.qos).then(|| policy.qos.clone());
    let qos = cluster.policy().qos.clone();
    (Arc::new(Policy { qos, ..Policy::clone(&policy) }), FileQos { file, sentences })
}

/// Nodes that the new policy moves back from where an operator had put them, one sentence for each topology.
fn undone(cluster: &Cluster, policy: &Policy) -> Vec<String> {
    let mut undone: BTreeMap<Arc<str>, Vec<NodeId>> = BTreeMap::new();
    for (node, topology) in cluster.moves_undone_by(policy) {
        undone.entry(topology).or_default().push(node);
    }
    let sentence = |(topology, nodes): (Arc<str>, Vec<NodeId>)| {
        let names = HostList::from_names(cluster.names_of(nodes));
        format!("topology {topology}: nodes moved by scontrol are where the file has them: {names}")
    };
    undone.into_iter().map(sentence).collect()
}

fn changes(old: &Policy, new: &Policy) -> Vec<String> {
    let names =
        |policy: &Policy| policy.nodes.iter().map(|node| Arc::clone(&node.name)).collect::<BTreeSet<_>>();
    let (before, after) = (names(old), names(new));
    let added = after.difference(&before).count();
    let removed = before.difference(&after).count();
    let mut changes = Vec::new();
    if added + removed > 0 {
        changes.push(format!("nodes: {added} added, {removed} removed"));
    }
    let sections = [
        ("partitions", old.partitions != new.partitions),
        ("topology", old.topologies != new.topologies),
        ("scheduler", old.scheduler != new.scheduler),
        ("qos", old.qos != new.qos),
        ("preempt", old.preempt != new.preempt),
        ("recovery", old.recovery != new.recovery),
        ("power", old.power != new.power),
        ("licenses", old.licenses != new.licenses),
        ("controller", old.jobs != new.jobs),
    ];
    changes
        .extend(sections.iter().filter(|(_, differs)| *differs).map(|(name, _)| format!("{name}: changed")));
    changes
}
