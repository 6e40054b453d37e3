//! Targets for messages from the network: each message is converted and handled by a controller.

use prost::Message;
use spur_core::controller::{Command, Input};
use spur_core::id::{JobId, NodeId};
use spur_core::model::change::JobChange;
use spur_core::text::jobid::JobRef;
use spur_proto::convert::{agent, reservation, spec, step};
use spur_proto::v1;

use crate::world::World;

/// The running job and the waiting job of every world.
const JOBS: [u32; 2] = [1, 2];

/// Submits a job, and plans if the controller accepts the submission.
pub fn submit(wire: v1::JobSpec) {
    match spec::submission(wire) {
        Err(bad) => assert!(!bad.to_string().is_empty()),
        Ok((submission, _)) => {
            let mut world = World::new();
            if world.command(1000, Command::Submit(Box::new(submission))) {
                world.plan();
            }
        }
    }
}

/// Decodes a `JobSpec` and submits the job.
pub fn submission(bytes: &[u8]) {
    if let Ok(wire) = v1::JobSpec::decode(bytes) {
        submit(wire);
    }
}

/// Decodes and handles a request for a step, a change of a job, or a reservation. The first byte chooses
/// the kind.
pub fn requests(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let mut world = World::new();
    match kind % 4 {
        0 => {
            let Ok(wire) = v1::CreateStepRequest::decode(bytes) else { return };
            if let Ok(wish) = step::spec(&wire) {
                let job = JobId(JOBS[usize::from(wire.job_id != JOBS[0])]);
                world.command(1000, Command::CreateStep { job, step: Box::new(wish) });
            }
        }
        1 => {
            let Ok(wire) = v1::UpdateJobRequest::decode(bytes) else { return };
            let mut keys: Vec<_> = wire.changes.iter().collect();
            keys.sort();
            let changes: Result<Vec<_>, _> =
                keys.into_iter().map(|(key, value)| JobChange::parse(key, value)).collect();
            let Ok(changes) = changes else { return };
            for job in JOBS.map(|job| JobRef::whole(JobId(job))) {
                for uid in [1000, 0] {
                    world.command(uid, Command::UpdateJob { job: job.clone(), changes: changes.clone() });
                }
            }
        }
        _ => {
            let Ok(wire) = v1::CreateReservationRequest::decode(bytes) else { return };
            if let Ok(ask) = reservation::ask(&wire.settings, wire.utc_offset) {
                world.command(0, Command::CreateReservation(Box::new(ask.clone())));
                world.command(0, Command::UpdateReservation(Box::new(ask)));
            }
        }
    }
    world.plan();
}

/// Decodes and handles a registration or a report of a node. The first byte chooses the kind.
pub fn nodes(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let mut world = World::new();
    if kind % 2 == 0 {
        let Ok(hello) = v1::Hello::decode(bytes) else { return };
        let (Ok(registration), Ok(seen)) = (agent::registration(&hello), agent::seen(&hello)) else { return };
        for name in ["n1", "n4"] {
            world.input(Input::Registered {
                name: name.into(),
                registration: registration.clone().into(),
                held: agent::held(&hello),
                reports: agent::reports(&hello, 0).collect(),
                seen: seen.clone(),
                connection: 1,
            });
        }
    } else {
        let Ok(wire) = v1::Report::decode(bytes) else { return };
        if let Ok((attempt, report)) = agent::report(wire, 0) {
            world.input(Input::Report { node: NodeId(0), id: 1, attempt, report });
        }
    }
    world.plan();
}
