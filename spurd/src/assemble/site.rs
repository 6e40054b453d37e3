//! Variables for prolog and epilog of a job.

use spur_core::model::program;
use spur_proto::v1;

use super::NodeFacts;
use super::gpus::{device_part, listed, visible};
use super::variables::pairs;

impl NodeFacts {
    /// Returns the controller's variables of the job, and variables of the GPUs that the job holds here. The
    /// GPUs have the node's numbers, since the programs see all devices of the node.
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

    /// Returns the variables for prolog and epilog by a step's credential; the step may hold fewer devices
    /// here than the job.
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
