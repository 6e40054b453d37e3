//! The `SLURM_*` variables that every process of a job gets from the controller. Nodes add the variables that
//! differ by node or task.

use std::fmt::Display;

use super::effect::Program;
use crate::cluster::Cluster;
use crate::id::NodeId;
use crate::model::alloc::{Alloc, NodeAlloc};
use crate::model::distribution::Distribution;
use crate::model::job::{Job, MemoryNeed, Shape};
use crate::model::phase::Phase;
use crate::model::program;
use crate::model::step::Step;
use crate::text::gres::GresSpec;
use crate::text::hostlist::HostList;

/// Names and values, in no particular order.
pub type Variables = Vec<(String, String)>;

/// Variables that are the same for all components of a het job and are not repeated for each.
const NOT_OF_COMPONENTS: [&str; 2] = ["SLURM_SUBMIT_DIR", "SLURM_SUBMIT_HOST"];

/// Variables of a started job; empty before it starts. A component of a het job also gets those of all
/// components, with `_HET_GROUP_` and the component's number appended to their names.
#[must_use]
pub fn of_job(cluster: &Cluster, job: &Job) -> Variables {
    let mut variables = own(cluster, job);
    if let Some(het) = job.spec.het.as_deref().filter(|_| !variables.is_empty()) {
        variables.push(("SLURM_HET_SIZE".to_owned(), het.size.to_string()));
        for (component, offset) in het.jobs().zip(0_u32..) {
            let own = cluster.job(component).map_or_else(Vec::new, |job| own(cluster, job));
            let theirs = own.into_iter().filter(|(name, _)| !NOT_OF_COMPONENTS.contains(&name.as_str()));
            variables.extend(theirs.map(|(name, value)| (format!("{name}_HET_GROUP_{offset}"), value)));
        }
    }
    variables
}

/// Variables of one job or component.
fn own(cluster: &Cluster, job: &Job) -> Variables {
    let (Some(alloc), Some(started)) = (job.phase.alloc(), job.phase.started()) else { return Vec::new() };
    let spec = &job.spec;
    let mut env = Env(submitted(cluster, job));
    let nodes = node_list(cluster, alloc);
    let tasks = alloc.tasks();
    for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
        env.set(name, &nodes);
    }
    for name in ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"] {
        env.set(name, alloc.nodes.len());
    }
    env.set("SLURM_JOB_PARTITION", &alloc.partition);
    let usable = |part: &NodeAlloc| cluster.task_cpus(job, part).len();
    env.set("SLURM_JOB_CPUS_PER_NODE", repeated(alloc.nodes.iter().map(usable)));
    let on_node = |part: &NodeAlloc| tasks_on(&spec.shape, part, usable(part));
    env.set("SLURM_TASKS_PER_NODE", repeated(alloc.nodes.iter().map(on_node)));
    env.set("SLURM_JOB_START_TIME", cluster.clock().wall(started).0);
    env.option("SLURM_RESTART_COUNT", Some(job.restarts).filter(|restarts| *restarts > 0));
    env.option("SLURM_JOB_RESERVATION", alloc.reservation.as_ref());
    let end = job.ends_at(started);
    env.option("SLURM_JOB_END_TIME", (!end.is_never()).then(|| cluster.clock().wall(end).0));
    let shape = &spec.shape;
    if shape.names_tasks() {
        for name in ["SLURM_NTASKS", "SLURM_NPROCS"] {
            env.set(name, tasks);
        }
    }
    env.option("SLURM_NTASKS_PER_NODE", shape.tasks_per_node);
    env.option("SLURM_CPUS_PER_TASK", shape.cpus_per_task);
    match shape.memory {
        Some(MemoryNeed::PerNode(mb)) if mb > 0 => env.set("SLURM_MEM_PER_NODE", mb),
        Some(MemoryNeed::PerCpu(mb)) if mb > 0 => env.set("SLURM_MEM_PER_CPU", mb),
        // Zero means all memory of the node, for which Slurm sets no variable.
        Some(_) | None => {}
    }
    env.option("SLURM_GPUS", gpus(&shape.gpus));
    env.option("SLURM_GPUS_PER_TASK", gpus(&shape.gpus_per_task));
    // For a batch job, `sbatch` sets the directory of submission itself: the script may run elsewhere
    // (`--chdir`).
    env.option("SLURM_SUBMIT_DIR", spec.client.as_ref().map(|client| &client.work_dir));
    if let Some(extra) = &spec.extra {
        env.set("SLURM_SUBMIT_HOST", &extra.submit_host);
    }
    if let Some(dependency) = &spec.dependency {
        env.set("SLURM_JOB_DEPENDENCY", dependency);
    }
    env.option("SLURM_JOB_SEGMENT_SIZE", spec.fabric.as_ref().and_then(|fabric| fabric.segment));
    env.0
}

/// Variables that are known from submission on.
fn submitted(cluster: &Cluster, job: &Job) -> Variables {
    let spec = &job.spec;
    let mut env = Env::default();
    for name in ["SLURM_JOB_ID", "SLURM_JOBID"] {
        env.set(name, job.id);
    }
    env.set("SLURM_JOB_NAME", &spec.name);
    env.set("SLURM_CLUSTER_NAME", &cluster.policy().cluster_name);
    env.set("SLURM_JOB_UID", spec.owner.uid);
    env.set("SLURM_JOB_GID", spec.owner.gid);
    env.set("SLURM_JOB_USER", &spec.owner.user);
    env.option("SLURM_JOB_ACCOUNT", spec.account.as_ref());
    env.option("SLURM_JOB_QOS", spec.qos.as_ref());
    if let (Some(part), Some(task), Some(array)) = (&job.array, job.task(), &spec.array) {
        env.set("SLURM_ARRAY_JOB_ID", part.id);
        env.set("SLURM_ARRAY_TASK_ID", task);
        env.set("SLURM_ARRAY_TASK_COUNT", array.tasks.len());
        env.option("SLURM_ARRAY_TASK_MIN", array.tasks.first());
        env.option("SLURM_ARRAY_TASK_MAX", array.tasks.last());
        env.set("SLURM_ARRAY_TASK_STEP", array.tasks.step().unwrap_or(1));
    }
    env.0
}

/// Variables of a program that the controller runs for a job.
#[must_use]
pub fn of_program(cluster: &Cluster, job: &Job, program: Program) -> Variables {
    let mut env = Env(of_any_program(cluster, job));
    env.set("SLURM_SCRIPT_CONTEXT", program.context());
    if let (Phase::Completing(completing), Program::Epilog) = (&job.phase, program) {
        env.0.extend(program::of_end(completing.outcome.exit, job.derived_exit));
    }
    env.0
}

/// Variables of every program that a daemon runs for a job, including mail for a job that has not started.
#[must_use]
pub fn of_any_program(cluster: &Cluster, job: &Job) -> Variables {
    let mut env = Env(of_job(cluster, job));
    let spec = &job.spec;
    if env.0.is_empty() {
        env.0 = submitted(cluster, job);
        env.set("SLURM_JOB_PARTITION", spec.partitions.join(","));
    }
    env.set("SLURM_UID", spec.owner.uid);
    env.set("SLURM_JOB_GROUP", &spec.owner.group);
    env.set("SLURM_JOB_RESTART_COUNT", job.restarts);
    env.option("SLURM_JOB_CONSTRAINTS", spec.shape.features.as_ref());
    env.option("SLURM_JOB_WORK_DIR", work_dir(job));
    if let Some(batch) = &spec.batch {
        env.set("SLURM_JOB_STDIN", job.input_path(batch));
        env.set("SLURM_JOB_STDOUT", job.output_path(batch));
        env.set("SLURM_JOB_STDERR", job.error_path(batch));
    }
    if let Some(extra) = &spec.extra {
        env.option("SLURM_JOB_COMMENT", extra.comment.as_ref());
        let licenses: Vec<String> =
            extra.licenses.iter().map(|(name, count)| format!("{name}:{count}")).collect();
        env.option("SLURM_JOB_LICENSES", Some(licenses.join(",")).filter(|list| !list.is_empty()));
    }
    env.0
}

fn work_dir(job: &Job) -> Option<&str> {
    let of_batch = job.spec.batch.as_ref().map(|batch| &*batch.work_dir);
    of_batch.or_else(|| job.spec.client.as_ref().map(|client| &*client.work_dir))
}

/// Variables of a step, in addition to those of its job.
#[must_use]
pub fn of_step(cluster: &Cluster, step: &Step) -> Variables {
    let mut env = Env::default();
    let names = cluster.names_of(step.nodes.iter().map(|part| part.node));
    for name in ["SLURM_STEP_ID", "SLURM_STEPID"] {
        env.set(name, step.id);
    }
    env.set("SLURM_STEP_NODELIST", HostList::from_names(names));
    for name in ["SLURM_STEP_NUM_NODES", "SLURM_NNODES"] {
        env.set(name, step.nodes.len());
    }
    for name in ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"] {
        env.set(name, step.tasks());
    }
    let tasks = repeated(step.nodes.iter().map(|part| part.tasks));
    for name in ["SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"] {
        env.set(name, &tasks);
    }
    env.option("SLURM_CPUS_PER_TASK", Some(step.cpus_per_task).filter(|cpus| *cpus > 0));
    // For other distributions the client sets the variable to the user's own words.
    match step.distribution {
        Some(Distribution::Plane(size)) => {
            env.set("SLURM_DISTRIBUTION", "plane");
            env.set("SLURM_DIST_PLANESIZE", size);
        }
        // A list of hosts implies this distribution.
        Some(Distribution::Arbitrary) => env.set("SLURM_DISTRIBUTION", "arbitrary"),
        Some(_) | None => {}
    }
    env.0
}

/// Variables of a batch script on its node: those of the job, and the CPUs that it has there without unused
/// threads.
#[must_use]
pub fn of_batch(cluster: &Cluster, job: &Job, node: NodeId) -> Variables {
    let mut env = Env(of_job(cluster, job));
    let part = job.phase.alloc().and_then(|alloc| alloc.on(node));
    env.option("SLURM_CPUS_ON_NODE", part.map(|part| cluster.task_cpus(job, part).len()));
    env.0.extend(of_node(cluster, job, node));
    env.0
}

/// Place of a node in the topology that its job was placed on: `SLURM_TOPOLOGY_ADDR` and its pattern; empty
/// without a topology.
#[must_use]
pub fn of_node(cluster: &Cluster, job: &Job, node: NodeId) -> Variables {
    let mut env = Env::default();
    let partition = job.phase.alloc().and_then(|alloc| cluster.partition(&alloc.partition));
    let fabric = partition.and_then(|partition| cluster.fabric_of(partition));
    if let Some((fabric, pos)) = fabric.and_then(|fabric| Some((fabric, fabric.pos(node)?))) {
        let (address, pattern) = fabric.address(pos);
        env.set("SLURM_TOPOLOGY_ADDR", address);
        env.set("SLURM_TOPOLOGY_ADDR_PATTERN", pattern);
    }
    env.0
}

/// Number of tasks on a node of a job, for programs that start them without `srun`. A job without a number of
/// tasks gets one for each usable CPU, or for each `--cpus-per-task` of them; at least one.
fn tasks_on(shape: &Shape, part: &NodeAlloc, usable: u32) -> u32 {
    if shape.names_tasks() { part.tasks } else { (usable / shape.cpus_per_task.unwrap_or(1).max(1)).max(1) }
}

/// The GPUs of a list of devices in the format of `--gpus`: `2`, `a100:2`, `a100:1,v100:1`; `None` without
/// any.
fn gpus(gres: &[GresSpec]) -> Option<String> {
    let gpus = gres.iter().filter(|gres| gres.name == "gpu");
    let one = |gres: &GresSpec| match &gres.kind {
        Some(kind) => format!("{kind}:{}", gres.count),
        None => gres.count.to_string(),
    };
    let list: Vec<String> = gpus.map(one).collect();
    Some(list.join(",")).filter(|list| !list.is_empty())
}

/// The nodes in rank order, as a compressed host list.
fn node_list(cluster: &Cluster, alloc: &Alloc) -> HostList {
    HostList::from_names(cluster.names_of(alloc.nodes.iter().map(|part| part.node)))
}

/// A list of counts in Slurm's format, with repetitions combined: `4(x2),2`.
#[must_use]
pub fn repeated(counts: impl IntoIterator<Item = u32>) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for count in counts {
        match runs.last_mut() {
            Some((last, times)) if *last == count => *times += 1,
            _ => runs.push((count, 1)),
        }
    }
    let run = |(count, times): &(u32, u32)| match times {
        1 => count.to_string(),
        _ => format!("{count}(x{times})"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

#[derive(Default)]
struct Env(Variables);

impl Env {
    fn set(&mut self, name: &str, value: impl Display) {
        self.0.push((name.to_owned(), value.to_string()));
    }

    fn option(&mut self, name: &str, value: Option<impl Display>) {
        if let Some(value) = value {
            self.set(name, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_as_many_tasks_as_it_has_room_for() {
        let part = |cpus: &str| NodeAlloc {
            node: NodeId(0),
            tasks: 1,
            cpus: cpus.parse().expect("a list"),
            memory_mb: 0,
            gres: Box::default(),
        };
        // Columns: the job's tasks, CPUs per task, usable CPUs of four, and the expected number of tasks.
        for (tasks, cpus_per_task, usable, expected) in [
            (None, None, 4, 4),
            (None, Some(2), 4, 2),
            (None, Some(3), 2, 1),
            (None, Some(2), 2, 1),
            (Some(1), None, 4, 1),
        ] {
            let shape = Shape { tasks, cpus_per_task, ..Shape::default() };
            let asked = (tasks, cpus_per_task, usable);
            assert_eq!(tasks_on(&shape, &part("0-3"), usable), expected, "{asked:?}");
        }
    }

    #[test]
    fn gpus_are_written_as_their_options_are() {
        let list = [GresSpec::new("gpu", Some("a100"), 2), GresSpec::new("nic", None, 1)];
        assert_eq!(gpus(&list).as_deref(), Some("a100:2"));
        assert_eq!(gpus(&[GresSpec::new("gpu", None, 1)]).as_deref(), Some("1"));
        assert_eq!(gpus(&list[1..]), None);
    }

    #[test]
    fn counts_are_run_length_encoded() {
        assert_eq!(repeated([4, 4, 2]), "4(x2),2");
        assert_eq!(repeated([]), "");
        assert_eq!(repeated([1, 2, 1]), "1,2,1");
    }
}
