//! Request for a step.

use std::path::Path;

use anyhow::{Context, bail};
use spur_core::model::distribution::{Distribution, Distributions};
use spur_core::text::hostlist::{HostList, MAX_WRITTEN};
use spur_core::text::nodes::NodeCount;
use spur_proto::v1::{CreateStepRequest, JobSpec};

use crate::options::submission::Submission;
use crate::session::Session;

/// Returns the request for a step of a job.
///
/// # Errors
/// An invalid option, or a file that cannot be read.
pub(super) fn request(
    session: &mut Session,
    job_id: u32,
    wishes: &Submission,
    program: String,
) -> anyhow::Result<CreateStepRequest> {
    let mut wishes = wishes.clone();
    if let Some(each) = wishes.tasks_per_gpu.filter(|_| !asks_for_gpus(&wishes)) {
        wishes.tasks_per_gpu = None;
        let of_job = session.env("SLURM_NTASKS_PER_GPU").is_some_and(|said| said == each.to_string());
        let gpus = session.env("SLURM_GPUS_ON_NODE").and_then(|count| count.parse::<u32>().ok());
        // A value that is equal to the job's has already determined the job's tasks. Any other value is
        // multiplied by the number of GPUs that the job holds on this node; the product is the number of
        // tasks per node.
        if !of_job {
            wishes.spec.tasks_per_node =
                gpus.map(|gpus| gpus.saturating_mul(each)).filter(|tasks| *tasks > 0);
        }
    }
    // Variables of another job are ignored.
    let here = session.env("SLURM_JOB_ID").is_some_and(|own| own == job_id.to_string());
    let number = |name: &str| session.env(name).filter(|_| here).and_then(|text| text.parse::<u32>().ok());
    let either = |one, other| number(one).or_else(|| number(other));
    let environment_tasks = either("SLURM_NTASKS", "SLURM_NPROCS");
    let environment_nodes = either("SLURM_NNODES", "SLURM_JOB_NUM_NODES");
    let environment_tasks_per_node = number("SLURM_NTASKS_PER_NODE");
    // The number of tasks in the environment stands in for `--ntasks` during the derivation, so that no
    // number is derived from GPUs. The request carries it in `environment_tasks` only, and the controller
    // decides.
    let said = (wishes.spec.tasks, wishes.spec.tasks_per_node);
    if said == (None, None) {
        wishes.spec.tasks = environment_tasks;
    }
    wishes.derive()?;
    if said == (None, None) && environment_tasks.is_some() {
        wishes.spec.tasks = None;
    }
    honour_tasks(session, &mut wishes, environment_nodes);
    // Nor are there more nodes than tasks where the environment names the nodes.
    let environment_nodes = environment_nodes.map(|nodes| nodes.min(wishes.spec.tasks.unwrap_or(u32::MAX)));
    let nodes: Option<NodeCount> = match wishes.spec.nodes.as_str() {
        "" => None,
        text => Some(text.parse().with_context(|| format!("--nodes={text}"))?),
    };
    let (spec, step) = (&wishes.spec, &wishes.step);
    let distributions = distributions(session, &wishes)?;
    let arbitrary = distributions.nodes == Some(Distribution::Arbitrary);
    if step.relative.is_some() && !(spec.nodelist.is_empty() && spec.exclude.is_empty()) {
        bail!("-r,--relative not allowed with -w,--nodelist or -x,--exclude.");
    }
    Ok(CreateStepRequest {
        job_id,
        name: if spec.name.is_empty() { program } else { spec.name.clone() },
        nodes: nodes.as_ref().map(|nodes| nodes.min),
        max_nodes: nodes.as_ref().and_then(|nodes| nodes.max),
        tasks: spec.tasks,
        tasks_per_node: spec.tasks_per_node,
        cpus_per_task: spec.cpus_per_task,
        // For an arbitrary distribution, each name is the node of one task.
        nodelist: if arbitrary { String::new() } else { spec.nodelist.clone() },
        hosts: if arbitrary { hosts(session, spec)? } else { Vec::new() },
        exclude: spec.exclude.clone(),
        features: spec.features.clone(),
        relative: step.relative,
        overlap: step.overlap,
        exact: step.exact,
        whole: step.whole,
        external: step.external,
        overcommit: step.overcommit,
        no_kill: step.no_kill,
        immediate: wishes.immediate == Some(1),
        distribution: distributions.to_string(),
        memory_per_node_mb: spec.memory_per_node_mb,
        memory_per_cpu_mb: spec.memory_per_cpu_mb,
        gres: gres(&wishes),
        gpus: spec.gpus.clone(),
        gpus_per_task: spec.gpus_per_task.clone(),
        submit_line: spec.submit_line.clone(),
        time_limit: spec.time_limit,
        environment_tasks,
        environment_nodes,
        environment_tasks_per_node,
        ..CreateStepRequest::default()
    })
}

/// Returns the step's devices per node: those of `--gres`, and the GPUs of `--gpus-per-node` unless `--gres`
/// names GPUs or is `none`. `None` without both options.
fn gres(wishes: &Submission) -> Option<String> {
    let named = wishes.step.gres.as_deref();
    let decides = |item: &str| matches!(item.split([':', '=']).next(), Some("gpu" | "none"));
    if wishes.spec.gpus_per_node.is_empty() || named.is_some_and(|list| list.split(',').any(decides)) {
        return named.map(str::to_owned);
    }
    let gpus = wishes.spec.gpus_per_node.split(',').map(|one| format!("gpu:{one}"));
    Some(named.map(str::to_owned).into_iter().chain(gpus).collect::<Vec<_>>().join(","))
}

/// Resolves contradictory numbers in favour of the tasks, as in Slurm. The nodes do not outnumber the tasks,
/// and an insufficient number of tasks per node is ignored. `of_job` is the number of nodes without `-N`.
pub(super) fn honour_tasks(session: &mut Session, wishes: &mut Submission, of_job: Option<u32>) {
    let spec = &mut wishes.spec;
    let Some(tasks) = spec.tasks else { return };
    let said = spec.nodes.parse().ok().map(|nodes: NodeCount| nodes.min);
    if let Some(nodes) = said.filter(|nodes| *nodes > tasks) {
        session.warn(&format!("can't run {tasks} processes on {nodes} nodes, setting nnodes to {tasks}"));
        spec.nodes = tasks.to_string();
    }
    let nodes = said.or(of_job).unwrap_or(u32::MAX).min(tasks).max(1);
    if let Some(each) = spec.tasks_per_node.filter(|each| *each < tasks / nodes) {
        session.warn(&format!(
            "can't honor --ntasks-per-node set to {each} which doesn't match the requested tasks {tasks} with the number \
             of requested nodes {nodes}. Ignoring --ntasks-per-node."
        ));
        spec.tasks_per_node = None;
    }
}

/// True if the options request GPUs, or a number of tasks from which `--ntasks-per-gpu` derives the GPUs.
fn asks_for_gpus(wishes: &Submission) -> bool {
    let spec = &wishes.spec;
    let named = [&spec.gpus, &spec.gpus_per_node, &spec.gpus_per_task, &spec.gres];
    spec.tasks.is_some() || named.iter().any(|said| !said.is_empty())
}

/// Returns the distributions of `--distribution`. Without this option and `--nodelist`, `SLURM_HOSTFILE`
/// implies an arbitrary distribution.
pub(super) fn distributions(session: &Session, wishes: &Submission) -> anyhow::Result<Distributions> {
    let (said, nodelist) = (wishes.step.distribution.as_str(), &wishes.spec.nodelist);
    if said.is_empty() && nodelist.is_empty() && session.env("SLURM_HOSTFILE").is_some() {
        return Ok(Distributions { nodes: Some(Distribution::Arbitrary), ..Distributions::default() });
    }
    if !said.eq_ignore_ascii_case("plane") {
        return Ok(said.parse()?);
    }
    let size = session.env("SLURM_DIST_PLANESIZE");
    let size = size.context("--distribution=plane needs a size: plane=SIZE")?;
    format!("plane={size}").parse().with_context(|| format!("SLURM_DIST_PLANESIZE={size}"))
}

/// True if the node of each task is named.
pub(super) fn is_arbitrary(session: &Session, wishes: &Submission) -> anyhow::Result<bool> {
    Ok(distributions(session, wishes)?.nodes == Some(Distribution::Arbitrary))
}

/// Returns the node of each task, from `--nodelist` with its repetitions or from the file in
/// `SLURM_HOSTFILE`. Nodes beyond the number of tasks (`--ntasks`, or else `SLURM_NTASKS`) are left out;
/// `NODES*COUNT` repeats each node.
pub(super) fn hosts(session: &Session, spec: &JobSpec) -> anyhow::Result<Vec<String>> {
    let nodelist = &spec.nodelist;
    let text = match session.env("SLURM_HOSTFILE") {
        Some(path) if nodelist.is_empty() => {
            std::fs::read_to_string(Path::new(&path)).with_context(|| format!("SLURM_HOSTFILE={path}"))?
        }
        _ => nodelist.to_owned(),
    };
    let mut hosts = Vec::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let mut depth = 0_u32;
        let parts = line.split(|letter| {
            match letter {
                '[' => depth += 1,
                ']' => depth = depth.saturating_sub(1),
                _ => {}
            }
            letter == ',' && depth == 0
        });
        for part in parts {
            let what = || format!("the list of hosts: `{line}`");
            let (names, times) = part.rsplit_once('*').unwrap_or((part, "1"));
            let list: HostList = names.parse().with_context(what)?;
            let times: usize = times.parse().with_context(what)?;
            let each = list.iter().flat_map(|host| std::iter::repeat_n(host, times.min(MAX_WRITTEN)));
            hosts.extend(each.take(MAX_WRITTEN + 1));
        }
    }
    if hosts.is_empty() {
        bail!("--distribution=arbitrary needs --nodelist, or SLURM_HOSTFILE, with a node for each task");
    }
    if let Some(tasks) = spec.tasks.filter(|tasks| *tasks as usize > hosts.len()) {
        bail!("Too few NodeNames in Slurm Hostfile: {tasks} tasks, and nodes for {}", hosts.len());
    }
    let of_job = || session.env("SLURM_NTASKS").and_then(|tasks| tasks.parse().ok());
    hosts.truncate(spec.tasks.or_else(of_job).map_or(hosts.len(), |tasks| tasks as usize));
    Ok(hosts)
}
