//! The cluster's feature level: raised by an operator, once every daemon knows the new level.

use super::super::command::KnownLevels;
use super::super::{Ctx, Reject, Reply};
use crate::cluster::{Cluster, Event, FeatureLevel, Node};
use crate::model::caller::Caller;
use crate::model::node::Health;
use crate::text::hostlist::HostList;

/// Decides on a new level. Nodes that are out of service or powered off do not count: an older daemon is
/// refused when it registers.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    asked: FeatureLevel,
    daemons: &KnownLevels,
) -> Result<FeatureLevel, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let refuse = |problem: String| Err(Reject::InvalidFeatureLevel { asked, problem });
    let (has, newest) = (cluster.feature_level(), FeatureLevel::NEWEST);
    if asked == has {
        return Ok(asked);
    }
    if asked < has {
        return refuse(format!("the cluster has FeatureLevel={has}, and a level cannot be lowered"));
    }
    if asked > newest {
        return refuse(format!("this controller knows FeatureLevel={newest} at most"));
    }
    let standbys = daemons.standbys.iter().filter(|(_, knows)| knows.is_none_or(|knows| knows < asked));
    let standbys = standbys.map(|(address, knows)| match knows {
        Some(knows) => format!("the standby controller at {address} knows FeatureLevel={knows} at most"),
        None => format!("the standby controller at {address} does not answer"),
    });
    let mut problems: Vec<String> = standbys.collect();
    let named = |wanted: &dyn Fn(&Node) -> bool| {
        let nodes = cluster.nodes().iter().filter(|node| wanted(node)).map(|node| node.name());
        let names = HostList::from_names(nodes);
        (!names.is_empty()).then(|| names.to_string())
    };
    let is_old = |node: &Node| daemons.nodes.get(&node.id).is_some_and(|knows| *knows < asked);
    let is_missing = |node: &Node| {
        node.configured
            && node.health == Health::Up
            && node.power.is_none()
            && !daemons.nodes.contains_key(&node.id)
    };
    problems.extend(named(&is_old).map(|names| format!("the spurd of {names} does not know it")));
    problems.extend(named(&is_missing).map(|names| format!("{names} is in service and not connected")));
    match problems.is_empty() {
        true => Ok(asked),
        false => refuse(format!(
            "{}; upgrade these daemons first, or set nodes that are gone down",
            problems.join("; ")
        )),
    }
}

/// Raises the level; nothing happens if the cluster has it already.
pub(super) fn enact(ctx: &mut Ctx<'_>, level: FeatureLevel) -> Reply {
    if level > ctx.cluster().feature_level() {
        ctx.emit(Event::FeatureLevelRaised { level });
    }
    Reply::Done
}

/// True if the journal contains nothing yet that a program of an older release may have written.
pub(super) fn is_new(cluster: &Cluster) -> bool {
    cluster.nodes().is_empty() && cluster.partitions().is_empty() && cluster.last_job().0 == 0
}
