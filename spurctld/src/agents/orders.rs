//! Renders effects of the core as self-contained orders for nodes.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use spur_core::cluster::{Cluster, Node};
use spur_core::controller::command::Report;
use spur_core::controller::{Effect, Input, environment};
use spur_core::id::{Attempt, NodeId};
use spur_core::model::config::NodeAddress;
use spur_core::model::job::Batch;
use spur_core::model::phase::{EndState, Phase, Suspended, Then};
use spur_core::model::program;
use spur_core::text::address::HostPort;
use spur_core::text::exit::ExitCode;
use spur_proto::convert::agent as convert;
use spur_proto::v1;
use spur_proto::v1::order::Order;

use crate::blobs::Blobs;
use crate::clock;
use crate::inbox::Inbox;
use crate::replica::Replica;

/// Renders orders. Clones share everything.
#[derive(Clone)]
pub(crate) struct Renderer {
    pub(crate) replica: Replica,
    pub(crate) blobs: Blobs,
    pub(crate) inbox: Inbox,
    /// The controller's epoch.
    pub(crate) epoch: u64,
}

impl Renderer {
    /// Returns the order for an effect; `None` if it has become obsolete.
    pub(super) async fn order(&self, effect: Effect) -> Option<Order> {
        let order = match effect {
            Effect::Launch { node, attempt } => Order::Launch(self.launch(node, attempt).await?),
            Effect::Terminate { attempt, kill, .. } => {
                let cause = cause(&self.replica.read(), attempt).to_owned();
                let exit = exit(&self.replica.read(), attempt);
                let attempt = Some(convert::wire_attempt(attempt));
                Order::Terminate(v1::Terminate { attempt, kill, cause, exit })
            }
            Effect::Suspend { attempt, stop, .. } => {
                Order::Suspend(v1::Suspend { attempt: Some(convert::wire_attempt(attempt)), resume: !stop })
            }
            Effect::EndStep { attempt, step, kill_wait, .. } => Order::EndStep(v1::EndStep {
                attempt: Some(convert::wire_attempt(attempt)),
                step_id: step.0,
                kill_wait_ms: kill_wait.0.saturating_mul(1000),
                cause: "DUE TO TIME LIMIT".to_owned(),
            }),
            Effect::Signal { attempt, step, signal, batch, steps, .. } => Order::Signal(v1::Signal {
                attempt: Some(convert::wire_attempt(attempt)),
                signal: signal.number().into(),
                step_id: step.map(|step| step.0),
                batch,
                steps,
            }),
            Effect::Tell { attempt, message, .. } => {
                Order::Notify(v1::Notify { attempt: Some(convert::wire_attempt(attempt)), message })
            }
            Effect::Reboot { .. } => Order::Reboot(v1::Reboot {}),
            Effect::Acknowledge { report, .. } => {
                Order::Acknowledge(v1::Acknowledge { report_ids: vec![report] })
            }
            Effect::Forget { attempt, .. } => {
                Order::Forget(v1::Forget { attempts: vec![convert::wire_attempt(attempt)] })
            }
            Effect::Open { .. }
            | Effect::StepsChanged { .. }
            | Effect::Program { .. }
            | Effect::Power { .. }
            | Effect::Mail { .. } => return None,
        };
        Some(order)
    }

    /// Returns the node's standing: whether it is busy, full, or drained; `None` for an unknown node.
    pub(super) fn standing(&self, node: NodeId) -> Option<Order> {
        let cluster = self.replica.read();
        let node = cluster.node(node)?;
        Some(Order::Standing(v1::Standing {
            busy: !node.idle(),
            full: node.free_cpus().is_empty(),
            drained: node.drain.is_some(),
        }))
    }

    /// Adds epoch, history and time to an order.
    pub(super) fn sealed(&self, order: Order) -> v1::Order {
        let cluster = self.replica.read();
        v1::Order {
            epoch: self.epoch,
            history: cluster.history().map_or_else(Bytes::new, |history| history.id.0.to_vec().into()),
            seq: cluster.seq(),
            last_job: cluster.last_job().0,
            now_ms: clock::now_ms(&cluster),
            order: Some(order),
        }
    }

    async fn launch(&self, node: NodeId, attempt: Attempt) -> Option<v1::Launch> {
        let (mut launch, batch) = {
            let cluster = self.replica.read();
            describe(&cluster, node, attempt)?
        };
        let report = match self.blobs.payload_when_possible(&batch).await {
            Ok(Some(payload)) => {
                launch.batch = Some(convert::batch(&batch, payload));
                return Some(launch);
            }
            Ok(None) => {
                tracing::error!(%attempt, "a job's script is not in the journal");
                let message = "its script is not in the journal".to_owned();
                Report::LaunchFailed { message, node_fault: false, exit: ExitCode::exited(1) }
            }
            // The fault is neither the job's nor the node's.
            Err(error) => {
                tracing::error!(%attempt, %error, "a job's script cannot be read; its attempt is lost");
                Report::BatchEnded { end: ExitCode::SUCCESS.into(), lost: true, done: false }
            }
        };
        // No connection gets the acknowledgement, because no node reported this. If the controller is
        // stopping, the next one finds the job running and orders its launch again.
        let _ = self.inbox.tell(Input::Report { node, id: 0, attempt, report }).await;
        None
    }
}

/// Returns the reason why an attempt is ended, for the user's notice; empty if the user ended it.
fn cause(cluster: &Cluster, attempt: Attempt) -> &'static str {
    let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt);
    let Some(Phase::Completing(completing)) = job.map(|job| &job.phase) else { return "" };
    match completing.outcome.state {
        EndState::Cancelled if matches!(completing.then, Then::Requeue { .. }) => "DUE TO JOB REQUEUE",
        EndState::Timeout => "DUE TO TIME LIMIT",
        EndState::Preempted => "DUE TO PREEMPTION",
        EndState::NodeFail => "DUE TO NODE FAILURE",
        EndState::Completed
        | EndState::Cancelled
        | EndState::Failed
        | EndState::OutOfMemory
        | EndState::Deadline => "",
    }
}

/// Returns the exit code of the job whose attempt is being ended; `None` unless the job is completing.
fn exit(cluster: &Cluster, attempt: Attempt) -> Option<v1::JobExit> {
    let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt)?;
    let Phase::Completing(completing) = &job.phase else { return None };
    let (exit, derived) = (completing.outcome.exit, job.derived_exit);
    Some(v1::JobExit {
        code: exit.code.into(),
        signal: exit.signal.into(),
        derived_code: derived.code.into(),
        derived_signal: derived.signal.into(),
    })
}

/// Builds a launch without script and environment; `None` if the attempt does not run any more.
fn describe(cluster: &Cluster, node: NodeId, attempt: Attempt) -> Option<(v1::Launch, Box<Batch>)> {
    let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt)?;
    let (Phase::Running { alloc, .. } | Phase::Suspended(Suspended { alloc, .. })) = &job.phase else {
        return None;
    };
    let batch = job.spec.batch.clone()?;
    let part = convert::part(alloc.on(node)?, &cluster.node(node)?.shape);
    let variables = environment::of_batch(cluster, job, node);
    let launch = v1::Launch {
        attempt: Some(convert::wire_attempt(attempt)),
        user: Some(convert::user(&job.spec.owner)),
        batch: None,
        job_name: job.spec.name.to_string(),
        array_job_id: job.array.as_ref().map(|part| part.id.0),
        array_task_id: job.task().map(|task| task.0),
        environment: convert::variables(variables),
        part: Some(part),
        alone: alloc.nodes.len() == 1,
        program_environment: convert::variables(program::of_job(environment::of_any_program(cluster, job))),
    };
    Some((launch, batch))
}

/// Returns the address at which clients reach a node: the configured one, completed by the node's
/// registration.
pub(crate) fn address_of(node: &Node, configured: &BTreeMap<Arc<str>, NodeAddress>) -> String {
    let said = node.registration.as_ref().map(|registration| &*registration.address).unwrap_or_default();
    let known = configured.get(node.name());
    let Ok(said) = said.parse::<HostPort>() else { return said.to_owned() };
    let host = known.and_then(|known| known.host.clone()).unwrap_or(said.host);
    let port = known.and_then(|known| known.port).unwrap_or(said.port);
    HostPort { host, port }.to_string()
}
