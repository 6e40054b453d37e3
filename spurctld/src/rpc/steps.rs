//! Creation of steps: the nodes of their tasks, and the credentials that nodes require.

use std::sync::Arc;

use bytes::Bytes;
use spur_core::cluster::{Cluster, FeatureLevel, Node};
use spur_core::controller::{Command, Reject, environment};
use spur_core::id::{Attempt, JobId, StepId};
use spur_core::model::alloc::NodeAlloc;
use spur_core::model::caller::Caller;
use spur_core::model::job::Job;
use spur_core::model::phase::Phase;
use spur_core::model::program;
use spur_core::model::step::Step;
use spur_proto::auth;
use spur_proto::convert::{agent, reject, step};
use spur_proto::keys::{ClusterKeys, Keyring, Role};
use spur_proto::v1;
use tonic::Status;

use super::worlds::{Place, World};
use super::{Desk, Name, input, odd};
use crate::agents::address_of;
use crate::answer::Answer;
use crate::clock;
use crate::inbox::Ask;

/// Adds tasks and nodes from the environment if they differ from the job's own: a script has then set them.
fn with_environment(cluster: &Cluster, mut request: v1::CreateStepRequest) -> v1::CreateStepRequest {
    let job = cluster.job(JobId(request.job_id));
    let Some((job, alloc)) = job.and_then(|job| Some((job, job.phase.alloc()?))) else { return request };
    if !alloc.lost.is_empty() || job.spec.het.is_some() {
        return request;
    }
    let other = |said: Option<u32>, own: u64| said.filter(|said| u64::from(*said) != own);
    let per_node = job.spec.shape.tasks_per_node.map_or(0, u64::from);
    request.tasks = request.tasks.or(other(request.environment_tasks, alloc.tasks()));
    request.nodes = request.nodes.or(other(request.environment_nodes, alloc.nodes.len() as u64));
    request.tasks_per_node = request.tasks_per_node.or(other(request.environment_tasks_per_node, per_node));
    request
}

impl Desk {
    pub(super) async fn lay_out(
        &self,
        caller: Caller,
        request: v1::CreateStepRequest,
    ) -> Result<v1::CreateStepResponse, Status> {
        if let Some(step) = request.renew_step {
            return self.renew(&caller, (JobId(request.job_id), StepId(step)), &request.het_steps);
        }
        let name = Name::read(&request.request_id, request.retry)?;
        let request = with_environment(&self.replica.read(), request);
        let wish = step::spec(&request).map_err(|bad| reject::bad_field(&bad))?;
        let command = Command::CreateStep { job: JobId(request.job_id), step: Box::new(wish) };
        let ask =
            Ask { retry: name.retry, patient: !request.immediate, ..Ask::of(input(caller, name, command)) };
        match self.ask(ask).await? {
            Answer::Step { attempt, step } => self.created(attempt, &step, Place::default()),
            other => Err(odd(&other)),
        }
    }

    /// Returns a new credential for a step that has not ended, with the present addresses of its nodes,
    /// whose daemons may have restarted at other addresses.
    fn renew(
        &self,
        caller: &Caller,
        (job, step): (JobId, StepId),
        het_steps: &[v1::HetStep],
    ) -> Result<v1::CreateStepResponse, Status> {
        let (attempt, step, place) = {
            let cluster = self.replica.read();
            let found = cluster.job(job).ok_or_else(|| reject::status(&Reject::InvalidJobId))?;
            if !caller.may_change(&found.spec.owner) {
                return Err(reject::status(&Reject::AccessDenied));
            }
            if step == StepId::BATCH {
                return self.batch(&cluster, found);
            }
            match found.steps.iter().find(|known| known.id == step) {
                Some(known) => {
                    // Nodes of a lower level know of no steps that run one program together.
                    let het_steps = if cluster.feature_level() < FeatureLevel(2) { &[] } else { het_steps };
                    let world = World::of(&cluster, caller, het_steps, &self.node_addresses);
                    let place = world.map_err(|refused| reject::status(&refused))?;
                    (found.attempt(), Arc::clone(known), place.and_then(|world| world.place(job, step)))
                }
                None if step < found.next_step => return Ok(self.without_step(&cluster, found)),
                None => return Err(reject::status(&Reject::InvalidStep { job, step })),
            }
        };
        self.created(attempt, &step, place.unwrap_or_default())
    }

    /// Returns the node of a job's script, and the credential for reading its output.
    fn batch(&self, cluster: &Cluster, job: &Job) -> Result<v1::CreateStepResponse, Status> {
        let first =
            job.phase.alloc().and_then(|alloc| alloc.nodes.first()).and_then(|part| cluster.node(part.node));
        let (Some(node), Some(_)) = (first, &job.spec.batch) else {
            return Err(reject::status(&Reject::InvalidStep { job: job.id, step: StepId::BATCH }));
        };
        let (attempt, owner) = (job.attempt(), &job.spec.owner);
        let credential = v1::StepCredential {
            job_id: attempt.job.0,
            restart: attempt.restart,
            step_id: StepId::BATCH.0,
            uid: owner.uid,
            gid: owner.gid,
            user: owner.user.to_string(),
            group: owner.group.to_string(),
            epoch: self.epoch,
            history: cluster.history().map_or_else(Bytes::new, |history| history.id.0.to_vec().into()),
            issued_ms: clock::now_ms(cluster),
            ..v1::StepCredential::default()
        };
        let keys = self.keyring.as_ref().map(Keyring::now);
        let sealed = match &keys {
            Some(keys) => keys.seal(&credential),
            None => auth::unsealed(&credential),
        };
        Ok(v1::CreateStepResponse {
            step_id: StepId::BATCH.0,
            nodes: vec![self.whereabouts(node, keys.as_deref())],
            credential: sealed.into(),
            ..v1::CreateStepResponse::default()
        })
    }

    /// Returns the addresses of a job's nodes, for a step that has ended.
    fn without_step(&self, cluster: &Cluster, job: &Job) -> v1::CreateStepResponse {
        let keys = self.keyring.as_ref().map(Keyring::now);
        let parts = job.phase.alloc().into_iter().flat_map(|alloc| &alloc.nodes);
        let nodes = parts.filter_map(|part| cluster.node(part.node));
        let nodes = nodes.map(|node| self.whereabouts(node, keys.as_deref())).collect();
        v1::CreateStepResponse { nodes, ..v1::CreateStepResponse::default() }
    }

    /// Returns the address and the public keys of a node.
    fn whereabouts(&self, node: &Node, keys: Option<&ClusterKeys>) -> v1::StepNodeLayout {
        v1::StepNodeLayout {
            name: node.name().to_string(),
            address: address_of(node, &self.node_addresses),
            public_keys: keys.map(|keys| public_keys(keys, node.name())).unwrap_or_default(),
            ..v1::StepNodeLayout::default()
        }
    }

    fn created(
        &self,
        attempt: Attempt,
        step: &Arc<Step>,
        place: Place,
    ) -> Result<v1::CreateStepResponse, Status> {
        let cluster = self.replica.read();
        let runs = |job: &&Job| {
            matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_))
                && job.steps.iter().any(|known| known.id == step.id)
        };
        let job = cluster.job(attempt.job).filter(|job| job.attempt() == attempt).filter(runs);
        // The job has ended, is ending, or was requeued since: the step has then ended with it.
        let job = job.ok_or_else(|| reject::status(&Reject::AlreadyDone))?;
        let credential = self.credential(&cluster, job, step, &place);
        let keys = self.keyring.as_ref().map(Keyring::now);
        let credential = match &keys {
            Some(keys) => keys.seal(&credential),
            None => auth::unsealed(&credential),
        };
        let mut first_task = place.first_task;
        let nodes = step.nodes.iter().filter_map(|part| {
            let node = cluster.node(part.node)?;
            let layout = v1::StepNodeLayout {
                first_task,
                tasks: part.tasks,
                ranks: place.ranks(&part.ranks).to_string(),
                ..self.whereabouts(node, keys.as_deref())
            };
            first_task += part.tasks;
            Some(layout)
        });
        let nodes = nodes.collect();
        let policy = &cluster.policy().jobs;
        let mut variables = environment::of_job(&cluster, job);
        for (key, value) in environment::of_step(&cluster, step) {
            variables.retain(|(other, _)| *other != key);
            variables.push((key, value));
        }
        if let Some(world) = &place.world {
            let (tasks, nodes) = (place.tasks.to_string(), world.nodes.len().to_string());
            for (key, value) in [("SLURM_NTASKS", &tasks), ("SLURM_NPROCS", &tasks), ("SLURM_NNODES", &nodes)]
            {
                variables.retain(|(other, _)| other != key);
                variables.push((key.to_owned(), value.clone()));
            }
        }
        Ok(v1::CreateStepResponse {
            step_id: step.id.0,
            nodes,
            credential: credential.into(),
            cpus_per_task: step.cpus_per_task,
            environment: agent::variables(variables),
            mpi_default: policy.mpi_default.name().to_owned(),
            kill_on_bad_exit: policy.kill_on_bad_exit,
            propagated_limits: policy.propagated(),
            ends_in_time: cluster.feature_level() >= FeatureLevel(2),
        })
    }

    /// Returns the credential that every node receives before it launches tasks of the step.
    fn credential(&self, cluster: &Cluster, job: &Job, step: &Step, place: &Place) -> v1::StepCredential {
        let owner = &job.spec.owner;
        let alloc = job.phase.alloc();
        let mut first_task = place.first_task;
        let mut nodes = Vec::with_capacity(step.nodes.len());
        for part in &step.nodes {
            let Some(node) = cluster.node(part.node) else { continue };
            let held = alloc.and_then(|alloc| alloc.on(part.node)).cloned();
            let all = !step.own_gres && part.gres.is_empty();
            let of_job = held.as_ref().filter(|_| !all).map(|held| agent::part(held, &node.shape).devices);
            let held = held.map(|held| {
                let gres = if all { held.gres.clone() } else { part.gres.clone() };
                agent::part(&NodeAlloc { gres, ..held }, &node.shape)
            });
            let held = held.unwrap_or_default();
            let mut variables = environment::of_node(cluster, job, part.node).into_iter();
            let mut value = |name: &str| {
                let found = variables.find(|(key, _)| key == name);
                found.map(|(_, value)| value).unwrap_or_default()
            };
            let device = |device: v1::DevicePart| v1::CredentialDevices {
                name: device.name,
                kind: device.kind,
                ids: device.ids,
                shards: device.shards,
            };
            nodes.push(v1::CredentialNode {
                name: node.name().to_string(),
                first_task,
                tasks: part.tasks,
                cpus: part.cpus.to_string(),
                memory_mb: held.memory_mb,
                step_memory_mb: part.memory_mb,
                devices: held.devices.into_iter().map(device).collect(),
                topology_address: value("SLURM_TOPOLOGY_ADDR"),
                topology_pattern: value("SLURM_TOPOLOGY_ADDR_PATTERN"),
                ranks: place.ranks(&part.ranks).to_string(),
                address: address_of(node, &self.node_addresses),
                job_devices: of_job.unwrap_or_default().into_iter().map(device).collect(),
            });
            first_task += part.tasks;
        }
        v1::StepCredential {
            job_id: job.id.0,
            restart: job.restarts,
            step_id: step.id.0,
            uid: owner.uid,
            gid: owner.gid,
            user: owner.user.to_string(),
            group: owner.group.to_string(),
            cpus_per_task: step.cpus_per_task,
            total_tasks: place.tasks.max(first_task),
            world: place.world.clone(),
            nodes,
            epoch: self.epoch,
            job_name: job.spec.name.to_string(),
            history: cluster.history().map_or_else(Bytes::new, |history| history.id.0.to_vec().into()),
            issued_ms: clock::now_ms(cluster),
            gpus_per_task: step.gpus_per_task,
            program_environment: agent::variables(program::of_job(environment::of_any_program(cluster, job))),
        }
    }

    pub(super) async fn abandon(
        &self,
        caller: Caller,
        request: v1::AbandonStepRequest,
    ) -> Result<v1::AbandonStepResponse, Status> {
        let command = Command::AbandonStep {
            job: JobId(request.job_id),
            step: StepId(request.step_id),
            nodes: request.nodes.iter().map(|name| name.as_str().into()).collect(),
            exit: agent::exit(request.exit_code, 0),
        };
        let name = Name { id: None, retry: false };
        self.command(caller, name, command).await?;
        Ok(v1::AbandonStepResponse {})
    }
}

/// Returns the public keys of a node.
fn public_keys(keys: &ClusterKeys, node: &str) -> Vec<Bytes> {
    let known = keys.public(&Role::Node(node.into()));
    known.iter().map(|key| Bytes::copy_from_slice(key.bytes())).collect()
}
