//! The usage of running steps, collected from their nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use spur_core::cluster::Cluster;
use spur_core::controller::Reject;
use spur_core::id::{Attempt, JobId, NodeId, StepId};
use spur_core::model::caller::Caller;
use spur_core::model::job::Job;
use spur_core::model::phase::Phase;
use spur_core::model::usage::Usage;
use spur_core::text::hostlist::HostList;
use spur_proto::convert::agent::attempt;
use spur_proto::convert::reject;
use spur_proto::convert::usage::{usage, wire_usage};
use spur_proto::v1;
use tokio::time::Instant;
use tonic::Status;

use super::{Desk, filter};

/// Longest wait for a node's answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Number of job ids that are looked up while the replica is locked.
const PAGE: usize = 256;

/// A running step, with the usage and processes collected so far.
struct Running {
    row: v1::AccountingRow,
    usage: Usage,
    processes: Vec<v1::StepProcesses>,
}

/// The running steps.
type Steps = BTreeMap<(Attempt, StepId), Running>;
/// The nodes to be asked, with their names, and the attempts that each is asked about.
type Asked = BTreeMap<NodeId, (Arc<str>, BTreeSet<Attempt>)>;

impl Desk {
    /// Collects the usage of the jobs' running steps.
    ///
    /// # Errors
    /// Fails if no id is that of a job, or if a job belongs to another user.
    pub(super) async fn usage(
        &self,
        caller: &Caller,
        request: v1::ListUsageRequest,
    ) -> Result<v1::ListUsageResponse, Status> {
        let (mut running, asked) = self.running(caller, &request.job_ids).await?;
        let mut answers = Vec::new();
        let mut silent = Vec::new();
        for (node, (name, attempts)) in asked {
            match self.agents.ask_usage(node, attempts) {
                Some(answer) => answers.push((name, answer)),
                None => silent.push(name.to_string()),
            }
        }
        let until = Instant::now() + PATIENCE;
        for (name, answer) in answers {
            match tokio::time::timeout_at(until, answer).await {
                Ok(Ok(answer)) => take(&mut running, &name, answer),
                Ok(Err(_)) | Err(_) => silent.push(name.to_string()),
            }
        }
        let steps = running.into_values().map(|step| v1::LiveStep {
            row: Some(v1::AccountingRow {
                user_cpu_us: step.usage.user_us,
                system_cpu_us: step.usage.system_us,
                max_rss_bytes: step.usage.memory.max.value,
                usage: (step.usage.tasks > 0).then(|| wire_usage(&step.usage)),
                ..step.row
            }),
            processes: step.processes,
        });
        Ok(v1::ListUsageResponse { steps: steps.collect(), silent })
    }

    /// Returns the running steps of jobs, and the nodes to be asked, each with its attempts.
    async fn running(&self, caller: &Caller, ids: &[String]) -> Result<(Steps, Asked), Status> {
        let (mut running, mut asked) = (Steps::new(), Asked::new());
        let mut found = false;
        for some in ids.chunks(PAGE) {
            let turn = self.turns.take(caller).await;
            let cluster = self.replica.read();
            let jobs: BTreeSet<JobId> = some.iter().flat_map(|id| filter::meant(&cluster, id)).collect();
            found |= !jobs.is_empty();
            for job in jobs.into_iter().filter_map(|id| cluster.job(id)) {
                if !caller.may_change(&job.spec.owner) {
                    return Err(reject::status(&Reject::AccessDenied));
                }
                add(&cluster, job, &mut running, &mut asked);
            }
            turn.end(some.len());
        }
        if found { Ok((running, asked)) } else { Err(reject::status(&Reject::InvalidJobId)) }
    }
}

/// Adds the steps of a job, and the nodes on which they run.
fn add(cluster: &Cluster, job: &Job, running: &mut Steps, asked: &mut Asked) {
    for (step, nodes, tasks) in steps_of(job) {
        let names = HostList::from_names(cluster.names_of(nodes.iter().copied())).to_string();
        let row = row(job, step, names, tasks);
        let empty = Running { row, usage: Usage::default(), processes: Vec::new() };
        running.insert((job.attempt(), step), empty);
        for node in nodes.into_iter().filter_map(|node| name_of(cluster, node)) {
            let (id, name) = node;
            asked.entry(id).or_insert_with(|| (name, BTreeSet::new())).1.insert(job.attempt());
        }
    }
}

fn name_of(cluster: &Cluster, node: NodeId) -> Option<(NodeId, Arc<str>)> {
    cluster.node(node).map(|known| (node, Arc::clone(known.name())))
}

/// Returns the steps of a job that have not ended, with their nodes and numbers of tasks; the script's step
/// is one of them.
fn steps_of(job: &Job) -> Vec<(StepId, Vec<NodeId>, u32)> {
    let runs = matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_));
    let first = job.phase.alloc().and_then(|alloc| alloc.nodes.first()).map(|first| first.node);
    let script = first.filter(|_| runs && job.spec.batch.is_some() && job.batch_end.is_none());
    let steps = job.steps.iter().map(|step| {
        let nodes = step.nodes.iter().map(|part| part.node).collect();
        (step.id, nodes, step.nodes.iter().map(|part| part.tasks).sum())
    });
    script.map(|first| (StepId::BATCH, vec![first], 1)).into_iter().chain(steps).collect()
}

fn row(job: &Job, step: StepId, nodelist: String, tasks: u32) -> v1::AccountingRow {
    let array = job.array.as_ref().map(|part| part.id.0);
    let task = job.array.as_ref().and_then(|part| part.tasks.iter().next());
    v1::AccountingRow {
        job_id: job.id.0,
        array_job_id: array,
        array_task_id: task.filter(|_| array.is_some()),
        restarts: job.restarts,
        step_id: step.label(),
        name: job.spec.name.to_string(),
        uid: job.spec.owner.uid,
        user: job.spec.owner.user.to_string(),
        state: "RUNNING".to_owned(),
        nodelist,
        tasks,
        layout_tasks: tasks,
        ..v1::AccountingRow::default()
    }
}

/// Adds a node's answer to the steps.
fn take(running: &mut BTreeMap<(Attempt, StepId), Running>, node: &Arc<str>, answer: v1::UsageAnswer) {
    for step in answer.steps {
        let Some(of) = step.attempt.map(attempt) else { continue };
        let Some(known) = running.get_mut(&(of, StepId(step.step_id))) else { continue };
        if let Some(used) = step.usage {
            known.usage.add(usage(used).on(node));
        }
        let v1::StepUsage { pids, task_pids, ranks, .. } = step;
        known.processes.push(v1::StepProcesses { node: node.to_string(), pids, task_pids, ranks });
    }
}
