//! Conditions that nodes report about themselves.
//!
//! A fault drains the node, and its end resumes the node, unless an operator has drained it meanwhile.

use std::sync::Arc;

use super::super::{Ctx, Reply};
use crate::cluster::{Event, Node};
use crate::id::NodeId;
use crate::model::node::Drain;

/// The effect of a node's condition.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The node is drained for this reason.
    Drain(Arc<str>),
    /// The fault for which the node was drained is over.
    Mended,
    /// The condition leaves everything as it is.
    Nothing,
}

/// Decides on a node's reported fault; `fault` is empty if nothing is wrong.
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
