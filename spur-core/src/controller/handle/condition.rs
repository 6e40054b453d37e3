//! A node says that something keeps it from taking work, or that it is well again.
//!
//! It is drained for that and put back into service when the fault is over, unless an operator has said something since.

use std::sync::Arc;

use super::super::{Ctx, Reply};
use crate::cluster::{Event, Node};
use crate::id::NodeId;
use crate::model::node::Drain;

/// What follows from what a node says of itself.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It takes no work, for this reason.
    Drain(Arc<str>),
    /// What it was drained for is over.
    Mended,
    /// Known.
    Nothing,
}

/// `fault` is empty if nothing is wrong.
pub(super) fn check(node: &Node, fault: Arc<str>) -> Decision {
    match (&node.drain, fault.is_empty()) {
        (None, false) => Decision::Drain(fault),
        (Some(drain), false) if drain.until_mended && drain.reason != fault => Decision::Drain(fault),
        (Some(drain), true) if drain.until_mended => Decision::Mended,
        (None | Some(_), _) => Decision::Nothing,
    }
}

pub(super) fn enact(ctx: &mut Ctx<'_>, node: NodeId, decision: Decision) -> Reply {
    match decision {
        Decision::Drain(reason) => {
            let drain = Drain { reason, by: Arc::from("spurd"), at: ctx.now(), until_mended: true };
            ctx.emit(Event::NodeDrained { node, drain });
        }
        Decision::Mended => ctx.emit(Event::NodeMended { node }),
        Decision::Nothing => {}
    }
    Reply::Done
}
