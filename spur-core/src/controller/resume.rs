//! Orders repeated to a node that has registered: those that a lost connection or a restart may have
//! swallowed. None of them harms a node that has them already.

use std::collections::BTreeSet;

use super::effect::Effect;
use super::react;
use crate::cluster::{Cluster, Node};
use crate::id::{Attempt, NodeId};
use crate::model::job::Job;
use crate::model::phase::Phase;

/// The orders for `node`, which has records of the attempts in `held`.
#[must_use]
pub fn orders(cluster: &Cluster, node: NodeId, held: &BTreeSet<Attempt>) -> Vec<Effect> {
    let jobs = cluster.node(node).map_or(&[][..], |node| &node.jobs);
    // A suspended job is stopped before another one is launched in its place, and before its own launch. The
    // same holds while it is being killed, which takes some time.
    let is_stopped = |job: &&Job| match &job.phase {
        Phase::Suspended(_) => true,
        Phase::Completing(completing) => completing.suspended && held.contains(&job.attempt()),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Ended(_) => false,
    };
    let stop = |job: &Job| Effect::Suspend { node, attempt: job.attempt(), stop: true };
    let stopped = jobs.iter().filter_map(|id| cluster.job(*id)).filter(is_stopped);
    let mut orders: Vec<Effect> = stopped.map(stop).collect();
    for job in jobs.iter().filter_map(|id| cluster.job(*id)) {
        let attempt = job.attempt();
        match &job.phase {
            Phase::Running { .. } | Phase::Suspended(_) if !held.contains(&attempt) => {
                let launch = react::launch(cluster, job.id);
                let mine = |order: &Effect| matches!(order, Effect::Launch { node: on, .. } if *on == node);
                orders.extend(launch.filter(mine));
            }
            Phase::Completing(completing) if held.contains(&attempt) => {
                orders.push(Effect::Terminate { node, attempt, kill: completing.kill_at.is_none() });
            }
            Phase::Running { pauses, .. } if !pauses.is_none() => {
                orders.push(Effect::Suspend { node, attempt, stop: false });
            }
            Phase::Running { .. }
            | Phase::Suspended(_)
            | Phase::Completing(_)
            | Phase::Pending(_)
            | Phase::Ended(_) => {}
        }
    }
    if cluster.node(node).is_some_and(Node::is_rebooting) {
        orders.push(Effect::Reboot { node });
    }
    orders
}
