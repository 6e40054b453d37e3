//! The devices of a step: the GPUs of its tasks, the variables by which libraries find them, and the denied
//! devices.

use spur_core::model::idset::IdSet;
use spur_core::text::gpubind::GpuBind;
use spur_proto::v1;
use step_wire::order::DeviceNumber;

use super::NodeFacts;
use crate::node::inventory::device::{Device, Vendor};

/// A GPU that a step holds.
#[derive(Clone)]
pub(super) struct HeldGpu {
    /// The maker, if known.
    vendor: Option<Vendor>,
    /// The number by which the vendor's library counts the GPU among all of the node.
    pub(super) index: u32,
    /// The GPU's name among those that the step sees: a number, or CUDA's name of a MIG instance.
    seen: String,
    /// The node's cores near the GPU; empty if no cores are nearer than others.
    cores: IdSet,
}

impl NodeFacts {
    /// Returns the GPUs among devices of the allocation, in their libraries' order, named as the step sees
    /// them.
    pub(super) fn held_gpus(&self, devices: &[v1::DevicePart]) -> Result<Vec<HeldGpu>, String> {
        let renumbered = self.constrains_devices && self.devices.iter().any(|device| device.name == "gpu");
        self.gpus_among(devices, renumbered)
    }

    /// Returns the GPUs among devices of the allocation, named as a program sees them that sees all GPUs of
    /// the node.
    pub(super) fn gpus_of_node(&self, devices: &[v1::DevicePart]) -> Result<Vec<HeldGpu>, String> {
        self.gpus_among(devices, false)
    }

    /// Returns the `id`-th device of a name and type; `None` if its files are not known.
    fn device(&self, part: &v1::DevicePart, id: u32) -> Option<&Device> {
        let same =
            |device: &&Device| device.name == part.name && (part.kind.is_empty() || device.kind == part.kind);
        self.devices.iter().filter(same).nth(id as usize)
    }

    /// Returns the device numbers of the node's devices that are not among `held`.
    pub(super) fn others(&self, held: &[v1::DevicePart]) -> Result<Vec<DeviceNumber>, String> {
        let mut own = Vec::new();
        for part in held {
            own.extend(ids(part)?.iter().filter_map(|id| self.device(part, id)));
        }
        // A device whose file is gone cannot be used either.
        let numbers = |device: &Device| device.numbers().unwrap_or_default();
        let opened: Vec<DeviceNumber> = own.iter().flat_map(|device| numbers(device)).collect();
        let others = self.devices.iter().filter(|device| !own.contains(device));
        let mut denied: Vec<DeviceNumber> = Vec::new();
        for number in others.flat_map(numbers) {
            if !opened.contains(&number) && !denied.contains(&number) {
                denied.push(number);
            }
        }
        Ok(denied)
    }

    fn gpus_among(&self, devices: &[v1::DevicePart], renumbered: bool) -> Result<Vec<HeldGpu>, String> {
        let mut held = Vec::new();
        for part in devices.iter().filter(|part| part.name == "gpu") {
            // A GPU that is only registered, without files, keeps its number.
            let gpu = |id| {
                let known = self.device(part, id);
                known.map_or((None, id, None), |gpu| (gpu.vendor, gpu.index, Some(gpu)))
            };
            held.extend(ids(part)?.iter().map(gpu));
        }
        held.sort_unstable_by_key(|(vendor, index, _)| (*vendor, *index));
        let mut counts = [0_u32; 2];
        let counted = |(vendor, index, known): (Option<Vendor>, u32, Option<&Device>)| {
            let cores = known.map(|gpu| gpu.cores.clone()).unwrap_or_default();
            if let Some(gpu) = known.filter(|gpu| !gpu.called.is_empty()) {
                return HeldGpu { vendor, index, seen: gpu.called.clone(), cores };
            }
            let count = &mut counts[usize::from(vendor == Some(Vendor::Amd))];
            let place = std::mem::replace(count, *count + 1);
            let seen = if renumbered { place } else { index };
            HeldGpu { vendor, index, seen: seen.to_string(), cores }
        };
        Ok(held.into_iter().map(counted).collect())
    }
}

/// Returns the variables by which libraries know the GPUs that they may use.
pub(super) fn visible(gpus: &[HeldGpu]) -> Vec<(String, String)> {
    let mut variables = Vec::new();
    let seen = |amd| {
        let own = gpus.iter().filter(|gpu| (gpu.vendor == Some(Vendor::Amd)) == amd);
        own.map(|gpu| gpu.seen.as_str()).collect::<Vec<_>>().join(",")
    };
    let (nvidia, amd) = (seen(false), seen(true));
    if !nvidia.is_empty() {
        variables.push(("CUDA_VISIBLE_DEVICES".to_owned(), nvidia));
        variables.push(("CUDA_DEVICE_ORDER".to_owned(), "PCI_BUS_ID".to_owned()));
    }
    if !amd.is_empty() {
        variables.push(("ROCR_VISIBLE_DEVICES".to_owned(), amd));
    }
    variables
}

/// Returns the variables of a task that has GPUs of its own; a task for which none are left gets the first
/// GPU.
pub(super) fn gpus_of_task(
    gpus: &[HeldGpu],
    local: u32,
    bind: &GpuBind,
    cores: &IdSet,
) -> Vec<(String, String)> {
    let own: Vec<HeldGpu> = if *bind == GpuBind::Closest {
        // A task without cores, or without a GPU near its cores, sees all GPUs.
        let is_near = |gpu: &&HeldGpu| gpu.cores.is_empty() || !gpu.cores.is_disjoint(cores);
        gpus.iter().filter(|gpu| !cores.is_empty() && is_near(gpu)).cloned().collect()
    } else {
        let count = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let Some(places) = bind.places(local, count) else { return Vec::new() };
        let places = if places.is_empty() { vec![0] } else { places };
        places.into_iter().filter_map(|place| gpus.get(place as usize).cloned()).collect()
    };
    step_gpus(&own).into_iter().chain(visible(&own)).collect()
}

/// Returns `SLURM_STEP_GPUS`, with the node's numbers of the GPUs of a step or task; `None` without GPUs.
pub(super) fn step_gpus(gpus: &[HeldGpu]) -> Option<(String, String)> {
    let numbers = || listed(gpus.iter().map(|gpu| gpu.index));
    (!gpus.is_empty()).then(|| ("SLURM_STEP_GPUS".to_owned(), numbers()))
}

/// Returns the GPU binding of a node's `tasks`: the requested one, else `per_task` GPUs each.
///
/// A single task on the node always has all GPUs, whatever was requested.
pub(super) fn gpu_bind(said: &str, per_task: u32, tasks: u32) -> Result<GpuBind, String> {
    let bind: GpuBind = said.parse().map_err(|error| format!("--gpu-bind: {error}"))?;
    Ok(match bind {
        GpuBind::None if said.is_empty() && per_task > 0 => GpuBind::PerTask(per_task),
        _ if tasks == 1 => GpuBind::None,
        _ => bind,
    })
}

fn ids(part: &v1::DevicePart) -> Result<IdSet, String> {
    part.ids.parse().map_err(|error| format!("devices of the order: {error}"))
}

pub(super) fn listed(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

pub(super) fn device_part(device: &v1::CredentialDevices) -> v1::DevicePart {
    let v1::CredentialDevices { name, kind, ids, shards } = device.clone();
    v1::DevicePart { name, kind, ids, shards }
}
