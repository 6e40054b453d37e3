//! What prolog and epilog of a job are told.

use spur_core::model::program;
use spur_proto::v1;

use super::NodeFacts;
use super::gpus::{device_part, listed, visible};
use super::variables::pairs;

impl NodeFacts {
    /// What the controller says of the job, and the GPUs that the job holds here. These have the node's numbers, since
    /// the programs see all devices of the node.
    pub(super) fn site_environment(
        &self,
        said: Vec<v1::KeyValue>,
        devices: &[v1::DevicePart],
    ) -> Result<Vec<(String, String)>, String> {
        let mut variables = pairs(said);
        let gpus = self.gpus_of_node(devices)?;
        if !gpus.is_empty() {
            let numbers = listed(gpus.iter().map(|gpu| gpu.index));
            variables.push(("SLURM_JOB_GPUS".to_owned(), numbers.clone()));
            variables.push(("GPU_DEVICE_ORDINAL".to_owned(), numbers));
            variables.extend(visible(&gpus));
        }
        Ok(program::of_job(variables).into_iter().collect())
    }

    /// The same by the credential of a step, whose devices here may be fewer than the job's.
    pub(super) fn site_environment_of_step(
        &self,
        credential: &v1::StepCredential,
        part: &v1::CredentialNode,
        of_step: &[v1::DevicePart],
    ) -> Result<Vec<(String, String)>, String> {
        let of_job: Vec<v1::DevicePart> = part.job_devices.iter().map(device_part).collect();
        let devices = if of_job.is_empty() { of_step } else { &of_job };
        self.site_environment(credential.program_environment.clone(), devices)
    }
}
