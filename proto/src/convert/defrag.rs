//! Conversion of a plan of moves into messages.

use spur_core::cluster::Cluster;
use spur_core::id::NodeId;
use spur_core::sched::defrag::{Defragmentation, Finding, Move};
use spur_core::text::hostlist::HostList;

use crate::v1;

/// Converts the result of a defragmentation into a message. With `submitted`, the request is a waiting
/// job, and the message has the job's number.
#[must_use]
pub fn render(cluster: &Cluster, found: &Defragmentation, submitted: bool) -> v1::DefragmentResponse {
    let names = |nodes: &[NodeId]| HostList::from_names(cluster.names_of(nodes.iter().copied())).to_string();
    let base = v1::DefragmentResponse {
        job_id: submitted.then_some(found.job.0),
        layer: found.layer.clone(),
        exact: found.exact,
        ..v1::DefragmentResponse::default()
    };
    let nodes = |start: &spur_core::sched::plan::Start| {
        names(&start.parts.iter().map(|part| part.node).collect::<Vec<_>>())
    };
    let moved = |moved: &Move| {
        let job = cluster.job(moved.start.attempt.job);
        let checkpoint = job.and_then(|job| job.phase.checkpoint());
        v1::Move {
            job_id: moved.start.attempt.job.0,
            user: job.map(|job| job.spec.owner.user.to_string()).unwrap_or_default(),
            from_nodes: names(&moved.from),
            to_nodes: nodes(&moved.start),
            lost: moved.lost,
            last_checkpoint: checkpoint.map(|last| cluster.clock().wall(last.at).0),
        }
    };
    match &found.finding {
        Finding::Nothing => base,
        Finding::Fits(start, domain) => {
            v1::DefragmentResponse { domain: domain.to_string(), nodes: nodes(start), ..base }
        }
        Finding::Moves(plan) => v1::DefragmentResponse {
            domain: plan.domain.to_string(),
            nodes: nodes(&plan.start),
            moves: plan.moves.iter().map(moved).collect(),
            waste: plan.waste,
            ..base
        },
    }
}
