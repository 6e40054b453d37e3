//! Builds the order for spurstepd from a launch of the controller or a client.
//!
//! Patterns become paths, and CPUs and devices of the allocation become the kernel's and the vendor's
//! numbers. The node adds the variables that only it knows. A launch that cannot be carried out is refused
//! with one sentence.

mod batch;
mod binding;
mod files;
mod gpus;
mod site;
mod step;
#[cfg(test)]
mod tests;
mod variables;

use std::path::PathBuf;

use spur_core::text::oom::OomKillStep;
use spur_core::text::sampling::SamplingIntervals;
use spur_proto::v1;
use step_wire::attempt::StepAttempt;
use step_wire::order::{DeviceNumber, Identity, Launch, Limit, LimitedResource, StepOrder};

pub(crate) use self::step::window;
use self::variables::said;
use crate::node::inventory::cpu::CpuPlace;
use crate::node::inventory::device::Device;

/// Time for which output without a reader is kept after the end of a step, in milliseconds.
const OUTPUT_WAIT_MS: u64 = 60_000;

/// The node's facts that go into every order.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// The node's name.
    pub name: String,
    /// Variables by which jobs find their cluster: `SPUR_CONF`, `SPUR_CONTROLLER`.
    pub variables: Vec<(String, String)>,
    /// The kernel's number of each of the node's CPUs; `None` where tasks are not bound.
    pub cpus: Option<Vec<u32>>,
    /// Position of each of the node's CPUs, in the order of `cpus`.
    pub places: Vec<CpuPlace>,
    /// Hardware threads of each core.
    pub threads_per_core: u32,
    /// NUMA nodes with memory.
    pub memory_nodes: Vec<u32>,
    /// The node's devices with known files.
    pub devices: Vec<Device>,
    /// True if steps see only their own devices, so that libraries count these from 0.
    pub constrains_devices: bool,
    /// Program that runs before each task.
    pub task_prolog: Option<PathBuf>,
    /// Program that runs after each task.
    pub task_epilog: Option<PathBuf>,
    /// Longest wait of a task for the directory of its output, in milliseconds.
    pub directory_wait_ms: u64,
    /// Longest time between two samples of the tasks' usage, in milliseconds; 0 for no samples.
    pub usage_interval_ms: u64,
}

/// A user's requests for the treatment of a step on the node.
#[derive(Clone, Copy, Debug)]
struct Wishes {
    /// `--acctg-freq`: seconds between two samples of the tasks' usage; 0 for no samples.
    sampling_seconds: Option<u32>,
    /// `--oom-kill-step`: true if the step ends when one of its processes was killed for lack of memory.
    oom_kill_step: Option<bool>,
}

/// A step that is ready to be launched.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The order with script and environment; groups, directory and control group are still to be filled in.
    pub launch: Launch,
    /// Memory that the job holds here, in MiB; 0 if it is not limited.
    pub memory_mb: u64,
    /// Memory that the step has asked for here, in MiB; 0 for as much as its job.
    pub step_memory_mb: u64,
    /// CPUs that the step holds here, by the kernel's numbers; empty if they are not known.
    pub cpus: Vec<u32>,
    /// Devices of the node that the step does not hold.
    pub denied: Vec<DeviceNumber>,
    /// Variables of the job for prolog and epilog, none of which comes from a client.
    pub site_environment: Vec<(String, String)>,
}

impl NodeFacts {
    fn order(&self, attempt: StepAttempt, identity: Identity, cwd: String) -> StepOrder {
        StepOrder {
            attempt,
            node: self.name.clone(),
            directory: PathBuf::new(),
            identity,
            cwd: if cwd.is_empty() { "/".into() } else { cwd.into() },
            argv: Vec::new(),
            umask: 0o022,
            limits: Vec::new(),
            tasks: Vec::new(),
            confinement: None,
            task_prolog: self.task_prolog.clone(),
            task_epilog: self.task_epilog.clone(),
            own_task_prolog: None,
            own_task_epilog: None,
            terminal: None,
            unbuffered: false,
            output_wait_ms: OUTPUT_WAIT_MS,
            mpi: None,
            time_limit: None,
            directory_wait_ms: self.directory_wait_ms,
            sampled_memory_bytes: 0,
            usage_interval_ms: self.usage_interval_ms,
            oom_kill_step: false,
            private_directories: Vec::new(),
        }
    }

    /// Adds the user's requests to an order. A request without a field of its own is read from the
    /// environment, where clients of earlier releases put it.
    fn with_wishes(&self, order: StepOrder, wishes: Wishes, environment: &[u8]) -> StepOrder {
        let sampling = wishes
            .sampling_seconds
            .or_else(|| said::<SamplingIntervals>(environment, SamplingIntervals::VARIABLE)?.tasks);
        let usage_interval_ms = sampling.map_or(self.usage_interval_ms, |seconds| u64::from(seconds) * 1000);
        let variable = || said::<OomKillStep>(environment, OomKillStep::VARIABLE).unwrap_or_default().0;
        let oom_kill_step = wishes.oom_kill_step.unwrap_or_else(variable);
        StepOrder { usage_interval_ms, oom_kill_step, ..order }
    }
}

fn identity(user: v1::User) -> Identity {
    Identity { uid: user.uid, gid: user.gid, groups: vec![user.gid], user: user.name }
}

fn limits(wire: &[v1::Limit]) -> Result<Vec<Limit>, String> {
    use LimitedResource::{As, Core, Cpu, Data, Fsize, Memlock, Nofile, Nproc, Rss, Stack};
    let one = |limit: &v1::Limit| {
        let resource = match limit.name.as_str() {
            "AS" => As,
            "CORE" => Core,
            "CPU" => Cpu,
            "DATA" => Data,
            "FSIZE" => Fsize,
            "MEMLOCK" => Memlock,
            "NOFILE" => Nofile,
            "NPROC" => Nproc,
            "RSS" => Rss,
            "STACK" => Stack,
            other => return Err(format!("unknown resource limit {other}")),
        };
        Ok(Limit { resource, soft: (limit.soft != u64::MAX).then_some(limit.soft) })
    };
    wire.iter().map(one).collect()
}
