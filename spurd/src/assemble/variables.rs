//! The variables of a step and of its tasks, and the environments that hold them.
//!
//! An environment is a sequence of `NAME=VALUE` entries, each followed by a NUL.

use std::str::FromStr;

use spur_core::model::idset::IdSet;
use spur_proto::v1;

use super::NodeFacts;
use super::gpus::{HeldGpu, listed, step_gpus, visible};

impl NodeFacts {
    /// Returns the variables of every process on this node.
    pub(super) fn common(
        &self,
        cpus: &IdSet,
        devices: &[v1::DevicePart],
    ) -> Result<Vec<(String, String)>, String> {
        let mut variables = self.variables.clone();
        variables.push(("SLURMD_NODENAME".to_owned(), self.name.clone()));
        variables.push(("SLURM_CPUS_ON_NODE".to_owned(), cpus.len().to_string()));
        let held = self.held_gpus(devices)?;
        if held.is_empty() {
            return Ok(variables);
        }
        variables.push(("SLURM_GPUS_ON_NODE".to_owned(), held.len().to_string()));
        let shards: u32 = devices.iter().map(|part| part.shards).sum();
        if shards > 0 {
            variables.push(("SLURM_SHARDS_ON_NODE".to_owned(), shards.to_string()));
        }
        variables.push(("SLURM_JOB_GPUS".to_owned(), listed(held.iter().map(|gpu| gpu.index))));
        variables.extend(visible(&held));
        Ok(variables)
    }
}

/// Returns the variables that tell the tasks of a step here their GPUs and the node's position in the fabric.
pub(super) fn of_step(gpus: &[HeldGpu], part: &v1::CredentialNode, node: &str) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    variables.extend(step_gpus(gpus));
    variables.extend(position(&part.topology_address, &part.topology_pattern, node));
    variables
}

/// Returns the variables of a node's position in the fabric; without a topology that is its name.
pub(super) fn position(address: &str, pattern: &str, node: &str) -> [(String, String); 2] {
    let (address, pattern) = if address.is_empty() { (node, "node") } else { (address, pattern) };
    [
        ("SLURM_TOPOLOGY_ADDR".to_owned(), address.to_owned()),
        ("SLURM_TOPOLOGY_ADDR_PATTERN".to_owned(), pattern.to_owned()),
    ]
}

/// Returns the environment without the variables of an outer MPI launcher in which `srun` was called, and
/// without the GPUs of the calling step or script.
pub(super) fn without_foreign(environment: &[u8]) -> Vec<u8> {
    const NAMES: [&[u8]; 7] =
        [b"PMI_FD", b"PMI_RANK", b"PMI_SIZE", b"PMI_ID", b"PMI_PORT", b"PMI_SPAWNED", b"PMI_JOBID"];
    const GPUS: [&[u8]; 3] = [b"CUDA_VISIBLE_DEVICES", b"ROCR_VISIBLE_DEVICES", b"SLURM_GPUS_ON_NODE"];
    let has_gpus = environment.split(|&byte| byte == 0).any(|entry| entry.starts_with(b"SLURM_JOB_GPUS="));
    let foreign = |name: &[u8]| {
        (has_gpus && GPUS.contains(&name))
            || NAMES.contains(&name)
            || name.starts_with(b"PMI2_")
            || (name.starts_with(b"PMIX_") && !name.starts_with(b"PMIX_MCA_"))
    };
    let entries = environment.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
    let own = entries.filter(|entry| {
        let name = entry.split(|&byte| byte == b'=').next().unwrap_or_default();
        !foreign(name)
    });
    own.flat_map(|entry| entry.iter().copied().chain([0])).collect()
}

/// Returns `TMPDIR` for an environment without it, because scripts rely on the variable; `None` if it is set.
pub(super) fn scratch(environment: &[u8]) -> Option<(String, String)> {
    let mut entries = environment.split(|&byte| byte == 0);
    let is_set = entries.any(|entry| entry.starts_with(b"TMPDIR="));
    (!is_set).then(|| ("TMPDIR".to_owned(), "/tmp".to_owned()))
}

pub(super) fn pairs(variables: Vec<v1::KeyValue>) -> Vec<(String, String)> {
    variables.into_iter().map(|variable| (variable.key, variable.value)).collect()
}

/// Parses the value of a variable; the last of several entries counts. `None` if it is missing or unreadable.
pub(super) fn said<T: FromStr>(environment: &[u8], name: &str) -> Option<T> {
    let value = |variable: &[u8]| {
        let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        std::str::from_utf8(value).ok()?.parse().ok()
    };
    environment.rsplit(|byte| *byte == 0).find_map(value)
}

pub(super) fn task_variables(rank: u32, local: u32, node: usize, all: &str) -> Vec<(String, String)> {
    let variable = |name: &str, value: String| (name.to_owned(), value);
    vec![
        variable("SLURM_PROCID", rank.to_string()),
        variable("SLURM_LOCALID", local.to_string()),
        variable("SLURM_NODEID", node.to_string()),
        variable("SLURM_GTIDS", all.to_owned()),
    ]
}

/// Appends variables to an environment; of two entries with one name the later counts.
pub(super) fn with_variables(environment: &[u8], variables: &[(String, String)]) -> Vec<u8> {
    let mut all = environment.to_vec();
    if all.last().is_some_and(|&last| last != 0) {
        all.push(0);
    }
    for (name, value) in variables {
        all.extend_from_slice(format!("{name}={value}\0").as_bytes());
    }
    all
}
