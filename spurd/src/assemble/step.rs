//! The order to run this node's tasks of a step that a client launches.

use std::path::PathBuf;

use spur_core::id::{Attempt, JobId, StepId};
use spur_core::model::idset::IdSet;
use spur_core::text::cpubind::{CpuBind, CpuBinding};
use spur_core::text::membind::{MemBindError, MemBinding};
use spur_proto::v1;
use step_wire::attempt::StepAttempt;
use step_wire::order::{Launch, MpiNode, MpiOrder, MpiPlugin, StepOrder, TaskOrder, Window};

use super::binding::{self, cpu_set};
use super::gpus::{device_part, gpu_bind, gpus_of_task};
use super::variables::{of_step, pairs, scratch, task_variables, with_variables, without_foreign};
use super::{NodeFacts, Prepared, Wishes, identity, limits};

impl NodeFacts {
    /// Builds the order to run this node's tasks of a step that a client launches with a credential.
    ///
    /// # Errors
    /// Names the part of the launch that cannot be carried out.
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
        let in_world = number + credential.world.as_ref().map_or(0, |world| world.first_node as usize);
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
            let (stdin, stdout, stderr) = self.files(&launch, credential, (in_world, rank))?;
            let own_cpus = binding::cpus(&bound.bind, &step_cpus, shares[local as usize].clone(), local)?;
            let own = programs.iter().find(|(ranks, _)| ranks.contains(rank));
            let own_gpus = gpus_of_task(&gpus, local, &bind, &self.cores(&own_cpus));
            Ok(TaskOrder {
                global: rank,
                argv: own.map(|(_, argv)| argv.clone()).unwrap_or_default(),
                env: [task_variables(rank, local, in_world, &all), own_gpus].concat(),
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
            mpi: mpi(&launch.mpi, in_world, credential)?,
            time_limit: launch.time_limit,
            terminal,
            unbuffered: launch.unbuffered,
            ..self.order(step, identity(owner(credential)), launch.work_dir)
        };
        let wishes =
            Wishes { sampling_seconds: launch.sampling_seconds, oom_kill_step: launch.oom_kill_step };
        let environment = with_variables(&without_foreign(&launch.environment), &variables);
        let order = self.with_wishes(order, wishes, &environment);
        Ok(Prepared {
            launch: Launch { order, environment, script: None },
            memory_mb: part.memory_mb,
            step_memory_mb: part.step_memory_mb,
            cpus: self.kernel_cpus(cpus.iter()),
            denied: self.others(&devices)?,
            site_environment: self.site_environment_of_step(credential, part, &devices)?,
        })
    }
}

/// Refuses a launch without a command, or with a credential that only allows reading a batch script's output.
fn launches(credential: &v1::StepCredential, launch: &v1::StepLaunch) -> Result<(), String> {
    if StepId(credential.step_id) == StepId::BATCH {
        return Err("the credential of a batch script launches nothing".to_owned());
    }
    match launch.argv.is_empty() {
        true => Err("the step has no command".to_owned()),
        false => Ok(()),
    }
}

/// Returns the user of the step.
fn owner(credential: &v1::StepCredential) -> v1::User {
    v1::User {
        uid: credential.uid,
        gid: credential.gid,
        name: credential.user.clone(),
        group: credential.group.clone(),
    }
}

/// Returns the ranks of a node's tasks.
fn ranks_on(part: &v1::CredentialNode) -> Result<IdSet, String> {
    if part.ranks.is_empty() {
        return Ok((part.first_task..).take(part.tasks as usize).collect());
    }
    part.ranks.parse().map_err(|error| format!("ranks on node {}: {error}", part.name))
}

/// Returns the MPI service for the programs of a step; `None` without `--mpi`.
fn mpi(plugin: &str, number: usize, credential: &v1::StepCredential) -> Result<Option<MpiOrder>, String> {
    let plugin = match plugin {
        "" | "none" => return Ok(None),
        "pmi2" => MpiPlugin::Pmi2,
        "pmix" => MpiPlugin::Pmix,
        other => return Err(format!("this node does not know --mpi={other}")),
    };
    let node = u32::try_from(number).map_err(|error| error.to_string())?;
    let Some(world) = &credential.world else {
        let node_of =
            |part: &v1::CredentialNode| Ok(MpiNode { name: part.name.clone(), ranks: ranks_on(part)? });
        let first = credential.nodes.first().map(|first| first.address.clone()).unwrap_or_default();
        let nodes = credential.nodes.iter().map(node_of).collect::<Result<_, String>>()?;
        return Ok(Some(MpiOrder { plugin, node, nodes, first_step: None, first }));
    };
    let node_of = |part: &v1::WorldNode| {
        let ranks = part.ranks.parse().map_err(|error| format!("ranks on node {}: {error}", part.name))?;
        Ok(MpiNode { name: part.name.clone(), ranks })
    };
    let attempt = Attempt { job: JobId(world.job_id), restart: world.restart };
    Ok(Some(MpiOrder {
        plugin,
        node,
        nodes: world.nodes.iter().map(node_of).collect::<Result<_, String>>()?,
        first_step: Some(StepAttempt { attempt, step: StepId(world.step_id) }),
        first: world.nodes.first().map(|first| first.address.clone()).unwrap_or_default(),
    }))
}

/// Returns the size of a terminal; a size of zero or beyond 16 bits becomes 24 rows or 80 columns.
pub(crate) fn window(wire: &v1::StepWindow) -> Window {
    let size = |number: u32, usual| u16::try_from(number).ok().filter(|&number| number > 0).unwrap_or(usual);
    Window { rows: size(wire.rows, 24), columns: size(wire.columns, 80) }
}

/// Parses the CPU and the memory binding of a launch.
fn bindings(launch: &v1::StepLaunch) -> Result<(CpuBinding, MemBinding), String> {
    let said: CpuBinding = launch.cpu_bind.parse().map_err(|error| format!("--cpu-bind: {error}"))?;
    let memory = launch.mem_bind.parse().map_err(|error: MemBindError| error.to_string())?;
    Ok((if launch.unbound { CpuBinding { bind: CpuBind::None, ..said } } else { said }, memory))
}

/// Parses the programs of `--multi-prog`, each with the ranks that run it.
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
