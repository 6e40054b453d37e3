//! Open or close a partition.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use crate::cluster::{Cluster, Event};
use crate::model::caller::Caller;
use crate::model::config::PartitionState;

pub(super) struct Decision {
    partition: Arc<str>,
    state: PartitionState,
}

pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    name: &str,
    state: PartitionState,
) -> Result<Decision, Reject> {
    if !caller.operator {
        return Err(Reject::AccessDenied);
    }
    let partition = cluster.partition(name).ok_or_else(|| unknown(cluster, name))?;
    Ok(Decision { partition: Arc::clone(partition.name()), state })
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    ctx.emit(Event::PartitionSet { partition: decision.partition, state: decision.state });
    Reply::Done
}

/// The refusal of a partition that does not exist.
pub(super) fn unknown(cluster: &Cluster, name: &str) -> Reject {
    let known: Vec<&str> = cluster.partitions().iter().map(|partition| &**partition.name()).collect();
    Reject::InvalidPartition { name: name.to_owned(), known: known.join(", ") }
}
