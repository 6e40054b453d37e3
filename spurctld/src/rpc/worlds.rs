//! Steps of the components of a het job that run one program: ranks and nodes are numbered through all
//! these steps, and their MPI tasks form one world.

use std::collections::BTreeMap;
use std::sync::Arc;

use spur_core::cluster::Cluster;
use spur_core::controller::Reject;
use spur_core::id::{Attempt, JobId, StepId};
use spur_core::model::caller::Caller;
use spur_core::model::config::NodeAddress;
use spur_core::model::idset::IdSet;
use spur_core::model::job::Job;
use spur_core::model::step::Step;
use spur_proto::v1;

use crate::agents::address_of;

/// All steps that run one program, in the order of their ranks.
pub(super) struct World<'a> {
    steps: Vec<(&'a Job, &'a Arc<Step>)>,
    nodes: Vec<v1::WorldNode>,
}

/// Position of a step among the steps that run one program; the default is that of the only step.
#[derive(Default)]
pub(super) struct Place {
    /// Rank of the step's first task among the tasks of all steps.
    pub(super) first_task: u32,
    /// Number of tasks of all steps; 0 if the step is the only one.
    pub(super) tasks: u32,
    /// The description of all steps for the step's nodes; `None` if the step is the only one.
    pub(super) world: Option<v1::StepWorld>,
}

impl<'a> World<'a> {
    /// Returns the world of these steps; `None` for fewer than two steps.
    ///
    /// # Errors
    /// Fails if a job or step is unknown, if the caller may not change a job, or if the jobs are not
    /// components of one het job.
    pub(super) fn of(
        cluster: &'a Cluster,
        caller: &Caller,
        named: &[v1::HetStep],
        addresses: &BTreeMap<Arc<str>, NodeAddress>,
    ) -> Result<Option<World<'a>>, Reject> {
        if named.len() < 2 {
            return Ok(None);
        }
        let mut world = World { steps: Vec::new(), nodes: Vec::new() };
        let mut first_task = 0;
        for v1::HetStep { job_id, step_id } in named {
            let (id, step) = (JobId(*job_id), StepId(*step_id));
            let job = cluster.job(id).ok_or(Reject::InvalidJobId)?;
            if !caller.may_change(&job.spec.owner) {
                return Err(Reject::AccessDenied);
            }
            let leader = |job: &Job| job.spec.het.as_ref().map(|het| het.leader);
            let of_first = world.steps.first().map_or(leader(job), |(first, _)| leader(first));
            if leader(job).is_none() || leader(job) != of_first {
                let text = format!("job {id} is no component of the same heterogeneous job as the others");
                return Err(Reject::Invalid(text));
            }
            let found = job.steps.iter().find(|known| known.id == step);
            let step = found.ok_or(Reject::InvalidStep { job: id, step })?;
            for part in &step.nodes {
                let Some(node) = cluster.node(part.node) else { continue };
                let ranks = match part.ranks.is_empty() {
                    true => (first_task..).take(part.tasks as usize).collect(),
                    false => shifted(&part.ranks, first_task_of(&world)),
                };
                world.nodes.push(v1::WorldNode {
                    name: node.name().to_string(),
                    ranks: ranks.to_string(),
                    address: address_of(node, addresses),
                });
                first_task += part.tasks;
            }
            world.steps.push((job, step));
        }
        Ok(Some(world))
    }

    /// Returns the position of a step; `None` if the step is not one of this world.
    pub(super) fn place(self, job: JobId, step: StepId) -> Option<Place> {
        let at = self.steps.iter().position(|(of, known)| of.id == job && known.id == step)?;
        let (first, first_step) = self.steps.first()?;
        let Attempt { job, restart } = first.attempt();
        let before = self.steps[..at].iter();
        let first_node = before.clone().map(|(_, step)| step.nodes.len()).sum::<usize>();
        Some(Place {
            first_task: tasks(before),
            tasks: tasks(self.steps.iter()),
            world: Some(v1::StepWorld {
                job_id: job.0,
                restart,
                step_id: first_step.id.0,
                first_node: u32::try_from(first_node).unwrap_or(u32::MAX),
                nodes: self.nodes,
            }),
        })
    }
}

impl Place {
    /// Converts ranks within the step into ranks among the tasks of all steps.
    pub(super) fn ranks(&self, own: &IdSet) -> IdSet {
        shifted(own, self.first_task)
    }
}

fn first_task_of(world: &World<'_>) -> u32 {
    tasks(world.steps.iter())
}

fn tasks<'a>(steps: impl Iterator<Item = &'a (&'a Job, &'a Arc<Step>)>) -> u32 {
    let tasks = steps.map(|(_, step)| step.tasks()).sum::<u64>();
    u32::try_from(tasks).unwrap_or(u32::MAX)
}

fn shifted(ranks: &IdSet, by: u32) -> IdSet {
    if by == 0 { ranks.clone() } else { ranks.iter().map(|rank| rank.saturating_add(by)).collect() }
}
