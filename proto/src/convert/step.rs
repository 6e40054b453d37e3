//! Steps: the requests of `srun`, and lists for `squeue -s`.

use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::id::StepId;
use spur_core::model::alloc::NodeAlloc;
use spur_core::model::idset::IdSet;
use spur_core::model::job::{Job, MemoryNeed};
use spur_core::model::phase::Phase;
use spur_core::model::step::{Step, StepNode, StepSpec};
use spur_core::text::gres::{GresList, GresSpec};
use spur_core::text::hostlist::{HostList, MAX_WRITTEN};
use spur_core::text::length;
use spur_core::text::memory;
use spur_core::text::tres::Tres;

use super::{BadField, boxed, cut, fits, narrow, read_if_set};
use crate::v1;

/// Parses a request for a step.
///
/// # Errors
/// Names the first field that cannot be read.
pub fn spec(wire: &v1::CreateStepRequest) -> Result<StepSpec, BadField> {
    for (field, number) in [
        ("--nodes", wire.nodes),
        ("--nodes", wire.max_nodes),
        ("--ntasks", wire.tasks),
        ("--ntasks-per-node", wire.tasks_per_node),
        ("--cpus-per-task", wire.cpus_per_task),
    ] {
        if number == Some(0) {
            return Err(BadField::new(field, "must be at least 1"));
        }
    }
    for (field, text, most) in [
        ("--job-name", wire.name.as_str(), length::TEXT),
        ("--nodelist", &wire.nodelist, length::NODES),
        ("--exclude", &wire.exclude, length::NODES),
        ("--distribution", &wire.distribution, length::TEXT),
        ("--constraint", &wire.features, length::TEXT),
        ("--gres", wire.gres.as_deref().unwrap_or_default(), length::TEXT),
        ("--gpus", &wire.gpus, length::TEXT),
        ("--gpus-per-task", &wire.gpus_per_task, length::TEXT),
    ] {
        fits(field, text, most)?;
    }
    wire.hosts.iter().try_for_each(|host| fits("--distribution", host, length::TEXT))?;
    let gpus = |field, text: &str| -> Result<Vec<GresSpec>, BadField> {
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let list = GresList::parse_gpus(text).map_err(|error| BadField::new(field, error.to_string()))?;
        Ok(list.0)
    };
    let gres = match wire.gres.as_deref() {
        None => None,
        Some(text) => Some(read_if_set::<GresList>("--gres", text)?.unwrap_or_default().0),
    };
    for (field, amount) in [("--mem", wire.memory_per_node_mb), ("--mem-per-cpu", wire.memory_per_cpu_mb)] {
        memory::check(amount.unwrap_or_default()).map_err(|problem| BadField::new(field, problem))?;
    }
    let memory = match (wire.memory_per_node_mb, wire.memory_per_cpu_mb) {
        (Some(mb), _) => Some(MemoryNeed::PerNode(mb)),
        (None, mb) => mb.map(MemoryNeed::PerCpu),
    };
    Ok(StepSpec {
        max_nodes: wire.max_nodes,
        exact: wire.exact,
        whole: wire.whole,
        external: wire.external,
        overcommit: wire.overcommit,
        distribution: read_if_set("--distribution", &wire.distribution)?.unwrap_or_default(),
        hosts: wire.hosts.iter().map(|host| host.as_str().into()).collect(),
        memory,
        gres,
        gpus: gpus("--gpus", &wire.gpus)?,
        gpus_per_task: gpus("--gpus-per-task", &wire.gpus_per_task)?,
        name: wire.name.as_str().into(),
        nodes: wire.nodes,
        tasks: wire.tasks,
        tasks_per_node: wire.tasks_per_node,
        cpus_per_task: wire.cpus_per_task,
        nodelist: names("--nodelist", &wire.nodelist)?,
        exclude: names("--exclude", &wire.exclude)?,
        relative: wire.relative,
        overlap: wire.overlap,
        no_kill: wire.no_kill,
        features: read_if_set("--constraint", &wire.features)?.map(Box::new),
        submit_line: boxed(cut(&wire.submit_line, length::STEP_LINE)),
        time_limit: wire.time_limit,
    })
}

/// Returns the ranks of a node's tasks; empty if they cannot be read.
pub fn ranks(layout: &v1::StepNodeLayout) -> IdSet {
    match layout.ranks.as_str() {
        "" => (layout.first_task..).take(layout.tasks as usize).collect(),
        written => written.parse().unwrap_or(IdSet::EMPTY),
    }
}

fn names(field: &'static str, written: &str) -> Result<Vec<Arc<str>>, BadField> {
    let list = read_if_set::<HostList>(field, written)?.unwrap_or_default();
    if list.len() > MAX_WRITTEN {
        let problem = format!("it names {} nodes; at most {MAX_WRITTEN} can be named", list.len());
        return Err(BadField::new(field, problem));
    }
    Ok(list.iter().map(Arc::from).collect())
}

/// Encodes the running steps of a job, its batch script first.
pub fn render_all(cluster: &Cluster, job: &Job) -> Vec<v1::Step> {
    let (alloc, started, state) = match &job.phase {
        Phase::Running { alloc, started, .. } => (alloc, started, "RUNNING"),
        Phase::Suspended(suspended) => (&suspended.alloc, &suspended.started, "SUSPENDED"),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => return Vec::new(),
    };
    let pauses = job.phase.pauses();
    let (het, clock) = (job.spec.het.as_deref(), cluster.clock());
    let base = |id: StepId, name: &str| v1::Step {
        job_id: job.id.0,
        array_job_id: job.array.as_ref().map(|part| part.id.0),
        array_task_id: job.array.as_ref().and_then(|part| part.tasks.only()),
        het_job_id: het.map(|het| het.leader.0),
        het_job_offset: het.map(|het| het.offset),
        step_id: id.label(),
        name: name.to_owned(),
        partition: alloc.partition.to_string(),
        user: job.spec.owner.user.to_string(),
        uid: job.spec.owner.uid,
        state: state.to_owned(),
        suspended_since: pauses.last.filter(|_| state == "SUSPENDED").map(|since| clock.wall(since).0),
        ..v1::Step::default()
    };
    let batch = job.spec.batch.as_ref().and_then(|_| alloc.nodes.first()).map(|first| v1::Step {
        start_time: clock.wall(*started).0,
        nodes: HostList::from_names(cluster.names_of([first.node])).to_string(),
        suspended_secs: pauses.seconds,
        tasks: 1,
        cpus: first.cpus.len(),
        ..base(StepId::BATCH, "batch")
    });
    let step = |step: &Arc<Step>| v1::Step {
        start_time: clock.wall(step.started).0,
        nodes: HostList::from_names(cluster.names_of(step.nodes.iter().map(|part| part.node))).to_string(),
        suspended_secs: pauses.seconds.saturating_sub(step.paused),
        tasks: narrow(step.tasks()),
        cpus: step.nodes.iter().map(|part| part.cpus.len()).sum(),
        time_limit: step.time_limit,
        submit_line: step.submit_line.as_deref().unwrap_or_default().to_owned(),
        layout: step.layout.to_string(),
        tres: tres_of_step(cluster, job, step).to_string(),
        ..base(step.id, &step.name)
    };
    batch.into_iter().chain(job.steps.iter().map(step)).collect()
}

/// Returns the trackable resources of a step; without a memory request the step may use the job's memory.
pub fn tres_of_step(cluster: &Cluster, job: &Job, step: &Step) -> Tres {
    let of_job = |node| job.phase.alloc().and_then(|alloc| alloc.on(node)).map_or(0, |alloc| alloc.memory_mb);
    let part = |part: &StepNode| NodeAlloc {
        node: part.node,
        tasks: part.tasks,
        cpus: part.cpus.clone(),
        memory_mb: if part.memory_mb > 0 { part.memory_mb } else { of_job(part.node) },
        gres: part.gres.clone(),
    };
    cluster.held_tres(&step.nodes.iter().map(part).collect::<Vec<_>>())
}
