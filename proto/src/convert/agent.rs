//! Messages between the controller and the nodes.

use std::sync::Arc;

use spur_core::controller::command::{Held, Report, Unacknowledged};
use spur_core::id::{Attempt, HistoryId, JobId, StepId};
use spur_core::model::alloc::NodeAlloc;
use spur_core::model::caller::Owner;
use spur_core::model::fabric_report::{FabricReport, IbPort, Neighbour};
use spur_core::model::history::Seen;
use spur_core::model::job::Batch;
use spur_core::model::node::{DevicePlace, NodeGres, NodeShape, Registration};
use spur_core::model::step::StepNodeEnd;
use spur_core::text::exit::ExitCode;
use spur_core::text::time::Time;

use super::BadField;
use super::spec::Payload;
use super::usage::usage;
use crate::v1;
use crate::v1::report::Report as Wire;

/// Decodes the registration of a node.
///
/// # Errors
/// Fails if the shape is missing or impossible.
pub fn registration(hello: &v1::Hello) -> Result<Registration, BadField> {
    let shape = hello.shape.as_ref().ok_or_else(|| BadField::new("shape", "a node must say what it has"))?;
    let fabric = FabricReport {
        places: hello.topology.as_str().into(),
        ..hello.fabric.as_ref().map(fabric_report).unwrap_or_default()
    };
    fabric.check().map_err(|problem| BadField::new("fabric", problem))?;
    Ok(Registration {
        shape: node_shape(shape),
        boot_id: hello.boot_id.as_str().into(),
        spool_id: hello.spool_id.as_str().into(),
        address: hello.address.as_str().into(),
        hostname: hello.hostname.as_str().into(),
        version: hello.version.as_str().into(),
        arch: hello.arch.as_str().into(),
        os: hello.os.as_str().into(),
        booted: Time(hello.boot_time),
        started: Time(hello.started_time),
        peer: Arc::default(),
        containment: hello.containment.as_str().into(),
        fault: hello.fault.as_str().into(),
        fabric,
    })
}

fn fabric_report(wire: &v1::FabricReport) -> FabricReport {
    let neighbour = |wire: &v1::Neighbour| Neighbour {
        switch: wire.switch.as_str().into(),
        port: wire.port.as_str().into(),
        interface: wire.interface.as_str().into(),
    };
    let port = |wire: &v1::IbPort| IbPort {
        device: wire.device.as_str().into(),
        number: wire.number,
        node_guid: wire.node_guid,
        guid: wire.guid,
    };
    FabricReport {
        places: Arc::default(),
        clique: wire.clique.as_str().into(),
        neighbours: wire.neighbours.iter().map(neighbour).collect(),
        ports: wire.ports.iter().map(port).collect(),
    }
}

/// Encodes a node's report about its place in the network, without the places of the command line.
pub fn wire_fabric_report(report: &FabricReport) -> v1::FabricReport {
    let neighbour = |neighbour: &Neighbour| v1::Neighbour {
        switch: neighbour.switch.to_string(),
        port: neighbour.port.to_string(),
        interface: neighbour.interface.to_string(),
    };
    let port = |port: &IbPort| v1::IbPort {
        device: port.device.to_string(),
        number: port.number,
        node_guid: port.node_guid,
        guid: port.guid,
    };
    v1::FabricReport {
        clique: report.clique.to_string(),
        neighbours: report.neighbours.iter().map(neighbour).collect(),
        ports: report.ports.iter().map(port).collect(),
    }
}

fn device_place(place: &v1::DevicePlace) -> DevicePlace {
    DevicePlace {
        name: place.name.as_str().into(),
        kind: place.kind.as_str().into(),
        // A list of cores that cannot be read counts as unknown.
        cores: place.cores.parse().unwrap_or_default(),
        links: place.links.clone(),
    }
}

fn node_shape(shape: &v1::NodeShape) -> NodeShape {
    let gres = |gres: &v1::NodeGres| NodeGres {
        name: gres.name.as_str().into(),
        kind: gres.kind.as_str().into(),
        count: gres.count,
    };
    NodeShape {
        sockets: shape.sockets,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        cpus: shape.cpus,
        memory_mb: shape.memory_mb,
        tmp_disk_mb: shape.tmp_disk_mb,
        gres: shape.gres.iter().map(gres).collect(),
        shared_gpus: false,
        features: shape.features.iter().map(|feature| Arc::from(feature.as_str())).collect(),
        places: shape.places.iter().map(device_place).collect(),
    }
}

/// Returns the attempts in a node's spool.
pub fn held(hello: &v1::Hello) -> Vec<Held> {
    let one = |held: &v1::HeldAttempt| Some(Held { attempt: attempt(held.attempt?), live: held.live });
    hello.attempts.iter().filter_map(one).collect()
}

/// Decodes the reports in a registration; reports of an unknown kind are left out.
pub fn reports(hello: &v1::Hello, now_ms: i64) -> impl Iterator<Item = Unacknowledged> {
    hello.reports.iter().filter_map(move |wire| {
        let (attempt, report) = report(wire.clone(), now_ms).ok()?;
        Some(Unacknowledged { id: wire.id, attempt, report })
    })
}

/// Decodes the name of a history; `None` if it is empty.
///
/// # Errors
/// Fails if the bytes are not 16.
pub fn history(wire: &[u8]) -> Result<Option<HistoryId>, BadField> {
    match <[u8; 16]>::try_from(wire) {
        Ok(id) => Ok(Some(HistoryId(id))),
        Err(_) if wire.is_empty() => Ok(None),
        Err(_) => Err(BadField::new("history", format!("16 bytes name a history, not {}", wire.len()))),
    }
}

/// Decodes the latest reign, entry and job number that a node has seen.
///
/// # Errors
/// Fails if the history is malformed.
pub fn seen(hello: &v1::Hello) -> Result<Seen, BadField> {
    Ok(Seen {
        history: history(&hello.history)?,
        epoch: hello.epoch,
        reign: hello.reign,
        seq: hello.seq,
        last_job: JobId(hello.last_job),
    })
}

/// Decodes an attempt.
pub fn attempt(wire: v1::Attempt) -> Attempt {
    Attempt { job: JobId(wire.job_id), restart: wire.restart }
}

/// Encodes an attempt.
pub fn wire_attempt(attempt: Attempt) -> v1::Attempt {
    v1::Attempt { job_id: attempt.job.0, restart: attempt.restart }
}

/// Decodes a node's report, with its attempt. `now_ms` is the wall's time of this host, in milliseconds since
/// the Unix epoch.
///
/// # Errors
/// Fails if the report is missing or of an unknown kind, as a later release may send; the caller decides
/// about its acknowledgement.
pub fn report(wire: v1::Report, now_ms: i64) -> Result<(Attempt, Report), BadField> {
    let missing = |field| BadField::new(field, "missing, or of a kind that this release does not know");
    let of = wire.attempt.ok_or_else(|| missing("attempt"))?;
    let report = match wire.report.ok_or_else(|| missing("report"))? {
        Wire::BatchEnded(ended) => Report::BatchEnded {
            end: StepNodeEnd {
                exit: exit(ended.exit_code, ended.exit_signal),
                out_of_memory: ended.out_of_memory,
                ended_ms: ended.ended_ago_ms.map(|ago| now_ms.saturating_sub_unsigned(ago)),
                usage: ended.usage.map(|used| Box::new(usage(used))),
            },
            lost: ended.lost,
            done: ended.done,
        },
        Wire::LaunchFailed(failed) => {
            let exit = match exit(failed.exit_code, failed.exit_signal) {
                // A node of an earlier release sends no exit code.
                none if none.is_success() => ExitCode::exited(1),
                known => known,
            };
            Report::LaunchFailed { message: failed.message, node_fault: failed.node_fault, exit }
        }
        Wire::StepEnded(ended) => {
            let end = StepNodeEnd {
                exit: exit(ended.exit_code, ended.exit_signal),
                out_of_memory: ended.out_of_memory,
                ended_ms: None,
                usage: ended.usage.map(|used| Box::new(usage(used))),
            };
            Report::StepEnded { step: StepId(ended.step_id), end }
        }
        Wire::NodeDone(done) => {
            Report::NodeDone { epilog_error: Some(done.epilog_error).filter(|error| !error.is_empty()) }
        }
    };
    Ok((attempt(of), report))
}

/// Decodes an exit code.
pub fn exit(code: u32, signal: u32) -> ExitCode {
    let byte = |number: u32| u8::try_from(number).unwrap_or(u8::MAX);
    ExitCode { code: byte(code), signal: byte(signal) }
}

/// Encodes a user.
pub fn user(owner: &Owner) -> v1::User {
    v1::User { uid: owner.uid, gid: owner.gid, name: owner.user.to_string(), group: owner.group.to_string() }
}

/// Encodes a job's part of a node with this shape.
pub fn part(held: &NodeAlloc, shape: &NodeShape) -> v1::NodePart {
    let device = |taken: &spur_core::model::alloc::GresAlloc| {
        let at = usize::from(taken.entry);
        let entry = shape.gres.get(at)?;
        let ids = match shape.is_shared(at) {
            true => shape.alike_before(at).to_string(),
            false => taken.ids.to_string(),
        };
        Some(v1::DevicePart {
            name: entry.name.to_string(),
            kind: entry.kind.to_string(),
            ids,
            shards: if taken.shards { taken.ids.len() } else { 0 },
        })
    };
    v1::NodePart {
        cpus: held.cpus.to_string(),
        memory_mb: held.memory_mb,
        devices: held.gres.iter().filter_map(device).collect(),
    }
}

/// Encodes a batch script with its script and environment.
pub fn batch(batch: &Batch, payload: Payload) -> v1::Batch {
    let text = |value: &Option<Box<str>>| value.as_deref().unwrap_or_default().to_owned();
    v1::Batch {
        script: payload.script,
        environment: payload.environment,
        args: batch.args.iter().map(ToString::to_string).collect(),
        command: batch.command.to_string(),
        work_dir: batch.work_dir.to_string(),
        stdin: text(&batch.stdin),
        stdout: text(&batch.stdout),
        stderr: text(&batch.stderr),
        append: batch.append,
        umask: batch.umask,
        limits: batch
            .limits
            .iter()
            .map(|(name, soft)| v1::Limit { name: name.to_string(), soft: *soft })
            .collect(),
        sampling_seconds: batch.sampling_seconds,
        oom_kill_step: batch.oom_kill_step,
        limits_named: batch.limits_named,
    }
}

/// Encodes names and values.
pub fn variables(list: impl IntoIterator<Item = (String, String)>) -> Vec<v1::KeyValue> {
    list.into_iter().map(|(key, value)| v1::KeyValue { key, value }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_are_read() {
        let of = Some(v1::Attempt { job_id: 7, restart: 1 });
        let wire = |report| v1::Report { id: 1, attempt: of, report: Some(report) };
        let cases = [
            (
                Wire::BatchEnded(v1::BatchEnded { exit_code: 3, done: true, ..v1::BatchEnded::default() }),
                Report::BatchEnded { end: ExitCode::exited(3).into(), lost: false, done: true },
            ),
            (
                Wire::StepEnded(v1::StepNodeEnded {
                    step_id: 2,
                    exit_signal: 9,
                    ..v1::StepNodeEnded::default()
                }),
                Report::StepEnded { step: StepId(2), end: ExitCode::signaled(9).into() },
            ),
            (Wire::NodeDone(v1::NodeDone::default()), Report::NodeDone { epilog_error: None }),
        ];
        for (message, expected) in cases {
            let attempt = Attempt { job: JobId(7), restart: 1 };
            assert_eq!(report(wire(message), 0), Ok((attempt, expected)));
        }
        assert!(report(v1::Report { id: 1, attempt: of, report: None }, 0).is_err());
    }
}
