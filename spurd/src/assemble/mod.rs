//! From what the controller or a client sends to the order that spurstepd carries out.
//!
//! Here patterns become paths, numbers of the allocation become the kernel's CPUs and the vendor's devices, and the
//! variables are added that only the node knows. What cannot be carried out is refused with one sentence.

mod binding;
mod gpus;
mod site;
mod streams;
mod variables;

use std::path::PathBuf;

use spur_core::id::{Attempt, JobId, StepId};
use spur_core::model::idset::IdSet;
use spur_core::text::cpubind::{CpuBind, CpuBinding};
use spur_core::text::jobid::StepRef;
use spur_core::text::membind::{MemBindError, MemBinding};
use spur_core::text::oom::OomKillStep;
use spur_core::text::pattern::PatternContext;
use spur_core::text::sampling::SamplingIntervals;
use spur_proto::{convert, v1};
use step_wire::attempt::StepAttempt;
use step_wire::order::{
    DeviceNumber, Identity, Input, Launch, Limit, LimitedResource, MpiNode, MpiOrder, MpiPlugin, Output,
    StepOrder, TaskOrder, Window,
};

use self::binding::StepCpu;
use self::gpus::{gpu_bind, gpus_of_task, visible};
use self::streams::{expand, stderr, stdin, stdout};
use self::variables::{
    of_step, pairs, position, said, scratch, task_variables, with_variables, without_foreign,
};
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
    /// The order to run a batch script.
    ///
    /// # Errors
    /// What about it cannot be carried out.
    pub fn batch(&self, order: v1::Launch) -> Result<Prepared, String> {
        let attempt = convert::agent::attempt(order.attempt.ok_or("the order names no attempt")?);
        let user = order.user.ok_or("the order names no user")?;
        let batch = order.batch.ok_or("the order has no batch script")?;
        let part = order.part.unwrap_or_default();
        let array = order.array_job_id.zip(order.array_task_id);
        let context = PatternContext {
            job: attempt.job.0,
            array,
            step: None,
            node: &self.name,
            node_number: 0,
            task: 0,
            user: &user.name,
            job_name: &order.job_name,
            restarts: attempt.restart,
        };
        let cpus = cpu_set(&part.cpus)?;
        let (given, order_site) = (pairs(order.environment), order.program_environment);
        // What the controller says of the script counts.
        let mut variables = self.common(&cpus, &part.devices)?;
        let is_placed = given.iter().any(|(name, _)| name == "SLURM_TOPOLOGY_ADDR");
        variables.extend(given);
        if !is_placed {
            variables.extend(position("", "", &self.name));
        }
        variables.push(("ENVIRONMENT".to_owned(), "BATCH".to_owned()));
        variables.push(("HOSTNAME".to_owned(), self.name.clone()));
        variables.extend(scratch(&batch.environment));
        let task = TaskOrder {
            global: 0,
            argv: Vec::new(),
            env: task_variables(0, 0, 0, "0"),
            cpus: self.kernel_cpus(cpus.iter()),
            tell_binding: None,
            memory: None,
            stdin: stdin(&batch.stdin, &context)?,
            stdout: stdout(&batch, &context)?,
            stderr: stderr(&batch, &context)?,
        };
        let step = StepAttempt { attempt, step: StepId::BATCH };
        let order = StepOrder {
            argv: batch.args,
            umask: batch.umask,
            limits: limits(&batch.limits)?,
            tasks: vec![task],
            ..self.order(step, identity(user), batch.work_dir)
        };
        let environment = with_variables(&batch.environment, &variables);
        let order = self.with_advice(order, &environment);
        Ok(Prepared {
            launch: Launch { order, environment, script: Some(batch.script.to_vec()) },
            memory_mb: part.memory_mb,
            step_memory_mb: 0,
            cpus: self.kernel_cpus(cpus.iter()),
            denied: self.others(&part.devices)?,
            site_environment: self.site_environment(order_site, &part.devices)?,
        })
    }

    /// The order to run this node's tasks of a step that a client launches with a credential.
    ///
    /// # Errors
    /// What about it cannot be carried out.
    pub fn step(
        &self,
        credential: &v1::StepCredential,
        mut launch: v1::StepLaunch,
    ) -> Result<Prepared, String> {
        let attempt = Attempt { job: JobId(credential.job_id), restart: credential.restart };
        launches(credential, &launch)?;
        let number = credential.nodes.iter().position(|node| node.name == self.name);
        let number = number.ok_or_else(|| format!("the step has no tasks on node {}", self.name))?;
        let part = &credential.nodes[number];
        let cpus = cpu_set(&part.cpus)?;
        let mut variables = pairs(std::mem::take(&mut launch.job_environment));
        let devices: Vec<v1::DevicePart> = part.devices.iter().map(device_part).collect();
        variables.extend(self.common(&cpus, &devices)?);
        let gpus = self.held_gpus(&devices)?;
        variables.extend(of_step(&gpus, part, &self.name).into_iter().chain(scratch(&launch.environment)));
        let own_ranks = ranks_on(part)?;
        let ranks: Vec<u32> = own_ranks.iter().collect();
        let all = ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        let terminal = launch.terminal.as_ref().map(window);
        let bind = gpu_bind(&launch.gpu_bind, credential.gpus_per_task, part.tasks)?;
        let (bound, memory) = bindings(&launch)?;
        variables.extend(binding::variables(&launch.cpu_bind, &bound));
        variables.extend(binding::memory_variables(&launch.mem_bind, &memory));
        let step_cpus = self.step_cpus(&cpus);
        let sockets = binding::over_sockets(&launch.socket_distribution)?;
        let shares = binding::shares(&step_cpus, part.tasks, credential.cpus_per_task, sockets);
        let programs = programs(&launch.programs)?;
        let task = |rank: u32, local: u32| -> Result<TaskOrder, String> {
            let (stdin, stdout, stderr) = self.files(&launch, credential, (number, rank))?;
            let own_cpus = binding::cpus(&bound.bind, &step_cpus, shares[local as usize].clone(), local)?;
            let own = programs.iter().find(|(ranks, _)| ranks.contains(rank));
            let own_gpus = gpus_of_task(&gpus, local, &bind, &self.cores(&own_cpus));
            Ok(TaskOrder {
                global: rank,
                argv: own.map(|(_, argv)| argv.clone()).unwrap_or_default(),
                env: [task_variables(rank, local, number, &all), own_gpus].concat(),
                tell_binding: bound.verbose.then(|| bound.kind().to_owned()),
                memory: binding::memory(&memory, &own_cpus, &self.memory_nodes, &step_cpus, local)?,
                cpus: own_cpus,
                stdin,
                stdout,
                stderr,
            })
        };
        let tasks: Vec<TaskOrder> =
            ranks.iter().zip(0..).map(|(&rank, local)| task(rank, local)).collect::<Result<_, _>>()?;
        let step = StepAttempt { attempt, step: StepId(credential.step_id) };
        let order = StepOrder {
            argv: launch.argv,
            umask: launch.umask,
            limits: limits(&launch.limits)?,
            tasks,
            own_task_prolog: path(launch.task_prolog),
            own_task_epilog: path(launch.task_epilog),
            mpi: mpi(&launch.mpi, number, credential)?,
            time_limit: launch.time_limit,
            terminal,
            unbuffered: launch.unbuffered,
            ..self.order(step, identity(owner(credential)), launch.work_dir)
        };
        let environment = with_variables(&without_foreign(&launch.environment), &variables);
        let order = self.with_advice(order, &environment);
        Ok(Prepared {
            launch: Launch { order, environment, script: None },
            memory_mb: part.memory_mb,
            step_memory_mb: part.step_memory_mb,
            cpus: self.kernel_cpus(cpus.iter()),
            denied: self.others(&devices)?,
            site_environment: self.site_environment_of_step(credential, part, &devices)?,
        })
    }

    /// Where a task of a step reads and writes.
    fn files(
        &self,
        launch: &v1::StepLaunch,
        credential: &v1::StepCredential,
        (number, rank): (usize, u32),
    ) -> Result<(Input, Output, Output), String> {
        let said = launch.files.clone().unwrap_or_default();
        let context = PatternContext {
            job: credential.job_id,
            array: said.array_job_id.zip(said.array_task_id),
            step: Some(StepRef::Number(credential.step_id)),
            node: &self.name,
            node_number: u32::try_from(number).unwrap_or(u32::MAX),
            task: rank,
            user: &credential.user,
            job_name: &credential.job_name,
            restarts: credential.restart,
        };
        let stream = |pattern: &str| -> Result<Output, String> {
            Ok(match pattern {
                "" if launch.terminal.is_some() && rank > 0 => Output::Null,
                "" => Output::Stream,
                pattern => Output::File { path: expand(pattern, &context)?, append: said.append },
            })
        };
        let stdin = match said.stdin.as_str() {
            "" if !launch.no_stdin && launch.stdin_task.is_none_or(|task| task == rank) => Input::Stream,
            "" => Input::Null,
            pattern => Input::File(expand(pattern, &context)?),
        };
        let joined = said.joined || (launch.terminal.is_some() && rank == 0);
        let stderr = if joined { Output::Stdout } else { stream(&said.stderr)? };
        Ok((stdin, stream(&said.stdout)?, stderr))
    }

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

    /// The order, with what its environment says of it: how often its tasks are looked at (`--acctg-freq`), and what
    /// becomes of it without memory (`--oom-kill-step`).
    fn with_advice(&self, order: StepOrder, environment: &[u8]) -> StepOrder {
        let asked = said::<SamplingIntervals>(environment, SamplingIntervals::VARIABLE);
        let asked = asked.and_then(|intervals| intervals.tasks);
        let usage_interval_ms = asked.map_or(self.usage_interval_ms, |seconds| u64::from(seconds) * 1000);
        let oom_kill_step = said::<OomKillStep>(environment, OomKillStep::VARIABLE).unwrap_or_default().0;
        StepOrder { usage_interval_ms, oom_kill_step, ..order }
    }

    /// Variables that every process on this node gets.
    fn common(&self, cpus: &IdSet, devices: &[v1::DevicePart]) -> Result<Vec<(String, String)>, String> {
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

    /// The `id`-th device of a name and type, if it is known.
    fn device(&self, part: &v1::DevicePart, id: u32) -> Option<&Device> {
        let same =
            |device: &&Device| device.name == part.name && (part.kind.is_empty() || device.kind == part.kind);
        self.devices.iter().filter(same).nth(id as usize)
    }

    /// The node's devices that are not among these.
    fn others(&self, held: &[v1::DevicePart]) -> Result<Vec<DeviceNumber>, String> {
        let mut own = Vec::new();
        for part in held {
            own.extend(ids(part)?.iter().filter_map(|id| self.device(part, id)));
        }
        // A device that is gone cannot be used either.
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

    /// The kernel's numbers of CPUs of the allocation; none where tasks are not bound.
    fn kernel_cpus(&self, cpus: impl Iterator<Item = u32>) -> Vec<u32> {
        let Some(known) = &self.cpus else { return Vec::new() };
        cpus.filter_map(|cpu| known.get(cpu as usize).copied()).collect()
    }

    /// The node's cores, numbered socket by socket, of CPUs by the kernel's numbers.
    fn cores(&self, kernel: &[u32]) -> IdSet {
        let known = self.cpus.iter().flatten().zip(0_u32..);
        let own = known.filter(|(cpu, _)| kernel.contains(cpu)).map(|(_, own)| own);
        own.map(|own| own / self.threads_per_core.max(1)).collect()
    }

    /// The same with where each of them lies.
    fn step_cpus(&self, cpus: &IdSet) -> Vec<StepCpu> {
        let Some(known) = &self.cpus else { return Vec::new() };
        let place = |cpu: usize| self.places.get(cpu).copied().unwrap_or_default();
        cpus.iter().filter_map(|cpu| Some((*known.get(cpu as usize)?, place(cpu as usize)))).collect()
    }
}

/// Refuses a request that starts no program: its credential is only good for reading what a batch script wrote, or it names
/// no command.
fn launches(credential: &v1::StepCredential, launch: &v1::StepLaunch) -> Result<(), String> {
    if StepId(credential.step_id) == StepId::BATCH {
        return Err("the credential of a batch script launches nothing".to_owned());
    }
    match launch.argv.is_empty() {
        true => Err("the step has no command".to_owned()),
        false => Ok(()),
    }
}

/// Whose step it is.
fn owner(credential: &v1::StepCredential) -> v1::User {
    v1::User {
        uid: credential.uid,
        gid: credential.gid,
        name: credential.user.clone(),
        group: credential.group.clone(),
    }
}

/// The ranks of a node's tasks.
fn ranks_on(part: &v1::CredentialNode) -> Result<IdSet, String> {
    if part.ranks.is_empty() {
        return Ok((part.first_task..).take(part.tasks as usize).collect());
    }
    part.ranks.parse().map_err(|error| format!("ranks on node {}: {error}", part.name))
}

/// What serves the MPI programs of a step.
fn mpi(plugin: &str, number: usize, credential: &v1::StepCredential) -> Result<Option<MpiOrder>, String> {
    let plugin = match plugin {
        "" | "none" => return Ok(None),
        "pmi2" => MpiPlugin::Pmi2,
        "pmix" => MpiPlugin::Pmix,
        other => return Err(format!("this node does not know --mpi={other}")),
    };
    let node = |part: &v1::CredentialNode| Ok(MpiNode { name: part.name.clone(), ranks: ranks_on(part)? });
    Ok(Some(MpiOrder {
        plugin,
        node: u32::try_from(number).map_err(|error| error.to_string())?,
        nodes: credential.nodes.iter().map(node).collect::<Result<_, String>>()?,
        first: credential.nodes.first().map(|first| first.address.clone()).unwrap_or_default(),
    }))
}

/// The size of a terminal; one that cannot be is taken for the usual one.
pub(crate) fn window(wire: &v1::StepWindow) -> Window {
    let size = |number: u32, usual| u16::try_from(number).ok().filter(|&number| number > 0).unwrap_or(usual);
    Window { rows: size(wire.rows, 24), columns: size(wire.columns, 80) }
}

fn ids(part: &v1::DevicePart) -> Result<IdSet, String> {
    part.ids.parse().map_err(|error| format!("devices of the order: {error}"))
}

fn listed(numbers: impl Iterator<Item = u32>) -> String {
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

/// The CPUs and the memory that tasks are bound to.
fn bindings(launch: &v1::StepLaunch) -> Result<(CpuBinding, MemBinding), String> {
    let said: CpuBinding = launch.cpu_bind.parse().map_err(|error| format!("--cpu-bind: {error}"))?;
    let memory = launch.mem_bind.parse().map_err(|error: MemBindError| error.to_string())?;
    Ok((if launch.unbound { CpuBinding { bind: CpuBind::None, ..said } } else { said }, memory))
}

/// What tasks run that do not run what the step does.
fn programs(wire: &[v1::StepProgram]) -> Result<Vec<(IdSet, Vec<String>)>, String> {
    let one = |program: &v1::StepProgram| {
        let ranks: IdSet = program.ranks.parse().map_err(|error| format!("--multi-prog: {error}"))?;
        if program.argv.is_empty() {
            return Err("--multi-prog: tasks without a program".to_owned());
        }
        Ok((ranks, program.argv.clone()))
    };
    wire.iter().map(one).collect()
}

fn path(text: String) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn device_part(device: &v1::CredentialDevices) -> v1::DevicePart {
    let v1::CredentialDevices { name, kind, ids, shards } = device.clone();
    v1::DevicePart { name, kind, ids, shards }
}

fn identity(user: v1::User) -> Identity {
    Identity { uid: user.uid, gid: user.gid, groups: vec![user.gid], user: user.name }
}

fn cpu_set(text: &str) -> Result<IdSet, String> {
    if text.is_empty() {
        return Ok(IdSet::EMPTY);
    }
    text.parse().map_err(|error| format!("CPUs of the order: {error}"))
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

#[cfg(test)]
mod tests {
    use spur_core::text::gpubind::GpuBind;

    use super::*;
    use crate::node::inventory::device::Vendor;

    fn facts() -> NodeFacts {
        let gpu = |vendor, kind: &str, index, files: &[&str]| Device {
            name: "gpu".to_owned(),
            kind: kind.to_owned(),
            vendor: Some(vendor),
            index,
            called: if files.len() > 1 { "MIG-GPU-x/1/0".to_owned() } else { String::new() },
            files: files.iter().map(|file| format!("/dev/{file}").into()).collect(),
            cores: if index == 0 { IdSet::first(2) } else { "2-3".parse().unwrap() },
            links: Vec::new(),
        };
        NodeFacts {
            name: "n2".to_owned(),
            variables: vec![("SPUR_CONF".to_owned(), "/etc/spur.toml".to_owned())],
            cpus: Some(vec![0, 4, 1, 5, 2, 6, 3, 7]),
            threads_per_core: 2,
            devices: vec![
                gpu(Vendor::Amd, "mi300x", 0, &["null"]),
                gpu(Vendor::Nvidia, "h100", 0, &["zero"]),
                gpu(Vendor::Nvidia, "a100", 1, &["full"]),
                gpu(Vendor::Nvidia, "h100", 2, &["random"]),
                gpu(Vendor::Nvidia, "mig", 3, &["urandom", "tty"]),
                gpu(Vendor::Nvidia, "mig", 3, &["urandom", "ptmx"]),
            ],
            ..NodeFacts::default()
        }
    }

    fn variables(blob: &[u8]) -> Vec<String> {
        let texts = blob.split(|&byte| byte == 0).filter(|entry| !entry.is_empty());
        texts.map(|entry| String::from_utf8(entry.to_vec()).unwrap()).collect()
    }

    fn device(kind: &str, ids: &str) -> v1::DevicePart {
        v1::DevicePart { name: "gpu".to_owned(), kind: kind.to_owned(), ids: ids.to_owned(), shards: 0 }
    }

    fn batch_order() -> v1::Launch {
        v1::Launch {
            attempt: Some(v1::Attempt { job_id: 42, restart: 1 }),
            user: Some(v1::User { uid: 7, gid: 8, name: "alice".to_owned(), group: "staff".to_owned() }),
            batch: Some(v1::Batch {
                script: b"#!/bin/sh\n".to_vec().into(),
                environment: b"A=1\0SLURM_JOB_ID=0\0".to_vec().into(),
                work_dir: "/home/alice".to_owned(),
                stderr: "%x-%r.err".to_owned(),
                append: Some(true),
                umask: 0o027,
                ..v1::Batch::default()
            }),
            job_name: "train".to_owned(),
            environment: vec![v1::KeyValue { key: "SLURM_JOB_ID".to_owned(), value: "42".to_owned() }],
            part: Some(v1::NodePart {
                cpus: "0-1".to_owned(),
                memory_mb: 64,
                devices: vec![device("h100", "1")],
            }),
            ..v1::Launch::default()
        }
    }

    #[test]
    fn a_batch_order_is_resolved() {
        let prepared = facts().batch(batch_order()).unwrap();
        let order = &prepared.launch.order;
        assert_eq!((order.attempt.to_string().as_str(), order.umask), ("42.1.batch", 0o027));
        let task = &order.tasks[0];
        assert_eq!(task.stdout, Output::File { path: "slurm-42.out".into(), append: true });
        assert_eq!(task.stderr, Output::File { path: "train-1.err".into(), append: true });
        assert_eq!((task.stdin.clone(), task.cpus.clone()), (Input::Null, vec![0, 4]));
        let expected = [
            "A=1",
            "SLURM_JOB_ID=0",
            "SPUR_CONF=/etc/spur.toml",
            "SLURMD_NODENAME=n2",
            "SLURM_CPUS_ON_NODE=2",
            "SLURM_GPUS_ON_NODE=1",
            "SLURM_JOB_GPUS=2",
            "CUDA_VISIBLE_DEVICES=2",
            "CUDA_DEVICE_ORDER=PCI_BUS_ID",
            "SLURM_JOB_ID=42",
            "SLURM_TOPOLOGY_ADDR=n2",
            "SLURM_TOPOLOGY_ADDR_PATTERN=node",
            "ENVIRONMENT=BATCH",
            "HOSTNAME=n2",
            "TMPDIR=/tmp",
        ];
        assert_eq!(variables(&prepared.launch.environment), expected);
    }

    #[test]
    fn tasks_are_looked_at_as_often_as_their_job_asks() {
        let facts = NodeFacts { usage_interval_ms: 30_000, ..facts() };
        for (asked, every) in
            [("", 30_000), ("SLURM_ACCTG_FREQ=task=5,energy=9\0", 5000), ("SLURM_ACCTG_FREQ=0\0", 0)]
        {
            let mut order = batch_order();
            order.batch.as_mut().unwrap().environment = asked.as_bytes().to_vec().into();
            assert_eq!(facts.batch(order).unwrap().launch.order.usage_interval_ms, every, "{asked}");
        }
    }

    #[test]
    fn the_closest_gpus_are_those_near_a_tasks_cores() {
        let facts = facts();
        let gpus = facts.held_gpus(&[device("h100", "0-1"), device("a100", "0")]).unwrap();
        let seen = |cpus: &[u32]| {
            let found = gpus_of_task(&gpus, 0, &GpuBind::Closest, &facts.cores(cpus));
            found.into_iter().find(|(name, _)| name == "CUDA_VISIBLE_DEVICES").map(|(_, value)| value)
        };
        // The kernel's CPUs 0, 4, 1 and 5 are cores 0 and 1.
        assert_eq!(seen(&[5]).as_deref(), Some("0"));
        assert_eq!(seen(&[6, 3]).as_deref(), Some("1,2"));
        assert_eq!(seen(&[4, 2]).as_deref(), Some("0,1,2"));
        assert_eq!(seen(&[]), None, "a task that is not bound sees what its step sees");
    }

    #[test]
    fn a_task_has_gpus_of_its_own_unless_it_is_alone() {
        let facts = facts();
        let gpus = facts.held_gpus(&[device("h100", "0-1"), device("a100", "0")]).unwrap();
        let told = |said: &str, per_task, tasks, local| {
            let bind = gpu_bind(said, per_task, tasks).unwrap();
            let own = gpus_of_task(&gpus, local, &bind, &IdSet::first(1));
            own.into_iter().find(|(name, _)| name == "SLURM_STEP_GPUS").map(|(_, gpus)| gpus)
        };
        for (said, per_task, tasks, local, gpus) in [
            ("single:1", 0, 2, 1, Some("1")),
            ("single:1", 0, 1, 0, None),
            ("mask_gpu:0x6", 0, 2, 0, Some("1,2")),
            ("mask_gpu:0x6", 0, 1, 0, None),
            ("closest", 0, 2, 1, Some("0")),
            ("closest", 0, 1, 0, None),
            ("", 2, 2, 0, Some("0,1")),
            ("", 2, 1, 0, Some("0,1")),
            ("per_task:2", 0, 3, 1, Some("2")),
            // None are left.
            ("per_task:2", 0, 3, 2, Some("0")),
            ("map_gpu:7", 0, 2, 0, Some("0")),
        ] {
            assert_eq!(told(said, per_task, tasks, local).as_deref(), gpus, "{said}: {local} of {tasks}");
        }
    }

    #[test]
    fn a_step_that_sees_its_own_gpus_counts_them_from_0() {
        let constrained = NodeFacts { constrains_devices: true, ..facts() };
        let prepared = constrained.batch(batch_order()).unwrap();
        let seen = variables(&prepared.launch.environment);
        let gpus: Vec<&str> = seen
            .iter()
            .map(String::as_str)
            .filter(|variable| variable.contains("GPUS") || variable.contains("VISIBLE"))
            .collect();
        assert_eq!(gpus, ["SLURM_GPUS_ON_NODE=1", "SLURM_JOB_GPUS=2", "CUDA_VISIBLE_DEVICES=0"]);
        assert_eq!(prepared.denied.len(), 6);
    }

    #[test]
    fn a_mig_instance_has_a_name_and_the_file_of_its_gpu() {
        let constrained = NodeFacts { constrains_devices: true, ..facts() };
        let mut order = batch_order();
        order.part.as_mut().unwrap().devices = vec![device("mig", "1")];
        let prepared = constrained.batch(order).unwrap();
        let seen = variables(&prepared.launch.environment);
        let named =
            |name: &str| seen.iter().find_map(|variable| variable.strip_prefix(name)?.strip_prefix('='));
        assert_eq!(
            (named("SLURM_JOB_GPUS"), named("CUDA_VISIBLE_DEVICES")),
            (Some("3"), Some("MIG-GPU-x/1/0"))
        );
        let denied = |file: &str| {
            let number = std::os::unix::fs::MetadataExt::rdev(&std::fs::metadata(file).unwrap());
            let is = |device: &&DeviceNumber| libc::makedev(device.major, device.minor) == number;
            prepared.denied.iter().filter(is).count()
        };
        let files = ["/dev/urandom", "/dev/ptmx", "/dev/tty", "/dev/zero"];
        assert_eq!(files.map(denied), [0, 0, 1, 1], "the GPU's own file opens both");
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        let with = |change: fn(&mut v1::Batch)| {
            let mut order = batch_order();
            change(order.batch.as_mut().unwrap());
            facts().batch(order).unwrap_err()
        };
        let refused = with(|batch| batch.stdout = "\0".to_owned());
        assert!(refused.contains("zero byte"), "{refused}");
        let refused = with(|batch| batch.limits = vec![v1::Limit { name: "NICE".to_owned(), soft: 1 }]);
        assert!(refused.contains("NICE"), "{refused}");
        assert!(facts().batch(v1::Launch::default()).is_err());
    }

    #[test]
    fn a_step_has_its_tasks_of_this_node() {
        let node = |name: &str, first_task, tasks, cpus: &str| v1::CredentialNode {
            name: name.to_owned(),
            first_task,
            tasks,
            cpus: cpus.to_owned(),
            topology_address: "s1.l1.n2".to_owned(),
            ..v1::CredentialNode::default()
        };
        let credential = v1::StepCredential {
            job_id: 42,
            step_id: 3,
            cpus_per_task: 2,
            nodes: vec![node("n1", 0, 3, "0-5"), node("n2", 3, 2, "2-5")],
            ..v1::StepCredential::default()
        };
        let launch = v1::StepLaunch {
            argv: vec!["hostname".to_owned()],
            stdin_task: Some(4),
            ..v1::StepLaunch::default()
        };
        let prepared = facts().step(&credential, launch.clone()).unwrap();
        let order = &prepared.launch.order;
        assert_eq!(order.attempt.to_string(), "42.0.3");
        let tasks: Vec<_> =
            order.tasks.iter().map(|task| (task.global, task.cpus.clone(), task.stdin.clone())).collect();
        assert_eq!(tasks, [(3, vec![1, 5], Input::Null), (4, vec![2, 6], Input::Stream)]);
        let env: Vec<&str> = order.tasks[1].env.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!(env, ["4", "1", "1", "3,4"]);
        assert!(variables(&prepared.launch.environment).contains(&"SLURM_TOPOLOGY_ADDR=s1.l1.n2".to_owned()));
        let elsewhere = NodeFacts { name: "n9".to_owned(), ..facts() };
        assert!(elsewhere.step(&credential, launch).unwrap_err().contains("n9"));
    }
}
