//! Converts the options of a workload's line to the request of the controller. The path is that of a real
//! submission: option table, messages, and their conversion to the core's types.

use spur_core::controller::command::Submission;
use spur_core::sim::{Watch, World};
use spur_core::text::time::{Civil, CivilNow, Time};
use spur_proto::convert::spec;
use spur_proto::v1::Batch;

use crate::options::submission::{self, Surroundings};

/// The script of jobs that only pretend to run.
pub(in crate::commands) const SCRIPT: &[u8] = b"#!/bin/sh\n";

/// Meaning of times and job names in a simulation: the clock is in UTC and starts in 1970, and jobs have the
/// workload's names.
struct Inside<'a, W>(&'a World<W>);

impl<W: Watch> Surroundings for Inside<'_, W> {
    fn now(&self) -> CivilNow {
        let time = self.0.now();
        CivilNow { time, civil: Civil::from_utc(time) }
    }

    fn to_epoch(&self, civil: Civil) -> Option<Time> {
        civil.to_utc()
    }

    fn job_number(&self, name: &str) -> Option<u32> {
        self.0.number(name).map(|job| job.0).or_else(|| name.parse().ok())
    }
}

/// Returns the request, and true if the job is only tested (`--test-only`).
///
/// # Errors
/// The error of `sbatch` or of the controller.
pub(super) fn submission<W: Watch>(
    world: &World<W>,
    components: &[submission::Submission],
) -> Result<(Submission, bool), String> {
    let spec = |options: &submission::Submission| options.clone().into_spec(&Inside(world));
    let wires = components.iter().map(spec).collect::<Result<Vec<_>, _>>();
    let mut wires = wires.map_err(|error| error.to_string())?.into_iter();
    let mut wire = wires.next().unwrap_or_default();
    wire.components = wires.collect();
    wire.batch =
        Some(Batch { script: SCRIPT.into(), work_dir: "/".to_owned(), umask: 0o022, ..Batch::default() });
    let (request, _) = spec::submission(wire).map_err(|error| error.to_string())?;
    Ok((request, components.first().is_some_and(|options| options.test_only)))
}
