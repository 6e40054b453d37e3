//! Messages of the node to the controller, encoded for the wire.

use std::time::{SystemTime, UNIX_EPOCH};

use spur_core::compute::{HeldAttempt, Report};
use spur_core::id::Attempt;
use spur_core::model::node::{DevicePlace, NodeShape};
use spur_proto::convert::agent::wire_attempt;
use spur_proto::convert::usage::wire_usage;
use spur_proto::v1;
use step_wire::attempt::StepAttempt;

use crate::launcher::Used;

/// Encodes the usage of a step.
pub(crate) fn step_usage(step: StepAttempt, used: Used) -> v1::StepUsage {
    let Used { usage, pids, tasks } = used;
    let (ranks, task_pids) = tasks.into_iter().unzip();
    v1::StepUsage {
        attempt: Some(wire_attempt(step.attempt)),
        step_id: step.step.0,
        usage: Some(wire_usage(&usage)),
        pids,
        task_pids,
        ranks,
    }
}

/// Returns the time of this host's wall clock, in milliseconds since the Unix epoch.
fn wall_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// Encodes a report with its number, as a message of the stream.
pub(crate) fn report(id: u64, attempt: Attempt, report: &Report) -> v1::NodeMessage {
    message(v1::node_message::Message::Report(wire(id, attempt, report)))
}

/// Encodes a report with its number.
pub(crate) fn wire(id: u64, attempt: Attempt, report: &Report) -> v1::Report {
    use v1::report::Report as Wire;
    let report = match report {
        Report::BatchEnded { end, lost, done } => Wire::BatchEnded(v1::BatchEnded {
            exit_code: end.exit.code.into(),
            exit_signal: end.exit.signal.into(),
            out_of_memory: end.out_of_memory,
            lost: *lost,
            done: *done,
            usage: end.usage.as_deref().map(wire_usage),
            ended_ago_ms: end.ended_ms.map(|ended| u64::try_from(wall_ms() - ended).unwrap_or(0)),
        }),
        Report::LaunchFailed { message, node_fault, exit } => Wire::LaunchFailed(v1::LaunchFailed {
            message: message.clone(),
            node_fault: *node_fault,
            exit_code: exit.code.into(),
            exit_signal: exit.signal.into(),
        }),
        Report::StepEnded { step, end } => Wire::StepEnded(v1::StepNodeEnded {
            step_id: step.0,
            exit_code: end.exit.code.into(),
            exit_signal: end.exit.signal.into(),
            out_of_memory: end.out_of_memory,
            usage: end.usage.as_deref().map(wire_usage),
        }),
        Report::NodeDone { epilog_error } => {
            Wire::NodeDone(v1::NodeDone { epilog_error: epilog_error.clone().unwrap_or_default() })
        }
    };
    v1::Report { id, attempt: Some(wire_attempt(attempt)), report: Some(report) }
}

pub(crate) fn message(message: v1::node_message::Message) -> v1::NodeMessage {
    v1::NodeMessage { message: Some(message) }
}

pub(crate) fn held(held: HeldAttempt) -> v1::HeldAttempt {
    v1::HeldAttempt { attempt: Some(wire_attempt(held.attempt)), live: !held.done, done: held.done }
}

pub(crate) fn shape(shape: &NodeShape) -> v1::NodeShape {
    let gres = shape.gres.iter().map(|gres| v1::NodeGres {
        name: gres.name.to_string(),
        kind: gres.kind.to_string(),
        count: gres.count,
    });
    let place = |place: &DevicePlace| v1::DevicePlace {
        name: place.name.to_string(),
        kind: place.kind.to_string(),
        cores: place.cores.to_string(),
        links: place.links.clone(),
    };
    v1::NodeShape {
        sockets: shape.sockets,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        cpus: shape.cpus,
        memory_mb: shape.memory_mb,
        tmp_disk_mb: shape.tmp_disk_mb,
        gres: gres.collect(),
        features: shape.features.iter().map(ToString::to_string).collect(),
        places: shape.places.iter().map(place).collect(),
    }
}
