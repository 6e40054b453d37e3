//! From what the controller or a client sends to the order that spurstepd carries out.
//!
//! Here patterns become paths, numbers of the allocation become the kernel's CPUs and the vendor's devices, and the
//! variables are added that only the node knows. What cannot be carried out is refused with one sentence.

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

/// How long output that nobody fetches is kept after the end of a step.
const OUTPUT_WAIT_MS: u64 = 60_000;

/// What the node knows of itself that goes into every order.
#[derive(Clone, Debug, Default)]
pub struct NodeFacts {
    /// Its name.
    pub name: String,
    /// Variables that tell jobs where their cluster is: `SPUR_CONF`, `SPUR_CONTROLLER`.
    pub variables: Vec<(String, String)>,
    /// The kernel's number of each of the node's CPUs; `None` where tasks are not bound.
    pub cpus: Option<Vec<u32>>,
    /// Where each of these lies.
    pub places: Vec<CpuPlace>,
    /// How many of them a core has.
    pub threads_per_core: u32,
    /// Its NUMA nodes with memory.
    pub memory_nodes: Vec<u32>,
    /// Its devices, as far as their files are known.
    pub devices: Vec<Device>,
    /// Whether a step sees no devices but its own, so that libraries count these from 0.
    pub constrains_devices: bool,
    /// Run before each task.
    pub task_prolog: Option<PathBuf>,
    /// Run after each task.
    pub task_epilog: Option<PathBuf>,
    /// How long a task waits for the directory of its output, in milliseconds.
    pub directory_wait_ms: u64,
    /// The longest time between two looks at what tasks use, in milliseconds; 0: nobody looks.
    pub usage_interval_ms: u64,
}

/// How a user wants the node to treat a step.
#[derive(Clone, Copy, Debug)]
struct Wishes {
    /// `--acctg-freq`: seconds between two looks at what tasks use; 0: nobody looks.
    sampling_seconds: Option<u32>,
    /// `--oom-kill-step`: whether the step ends when one of its processes was killed for lack of memory.
    oom_kill_step: Option<bool>,
}

/// Everything that is known of a step before it is launched.
#[derive(Clone, Debug)]
pub struct Prepared {
    /// The order with its raw parts; groups, directory and control group are still to be filled in.
    pub launch: Launch,
    /// Memory that the job holds here, in MiB; 0 is not limited.
    pub memory_mb: u64,
    /// Memory that the step has asked for here, in MiB; 0: as much as its job.
    pub step_memory_mb: u64,
    /// CPUs that the step holds here, by the kernel's numbers; none where they are not known.
    pub cpus: Vec<u32>,
    /// Devices of the node that the step has not.
    pub denied: Vec<DeviceNumber>,
    /// Variables of the job for prolog and epilog, none of which a client has said.
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

    /// The order with its step's wishes. A wish that a client did not send is read from the environment, where clients
    /// before these fields put it.
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
