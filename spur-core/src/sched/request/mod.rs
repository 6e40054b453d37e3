//! The resources that a job needs of nodes: its request with the partition's defaults, as numbers to compare
//! with amounts.
//!
//! A placement hands out *slots*. A slot is a task, or several tasks that share GPUs. Where the job counts
//! only nodes, a slot is a node, or the job's share of a node. Where the job only asks for a number of GPUs,
//! a slot is a GPU. [`Need`] computes how many slots fit an amount and what they take.

pub(super) mod constraints;
pub(super) mod counts;
pub(super) mod domains;
pub(super) mod eligible_nodes;
mod need;
pub(super) mod whole_leaves;

use std::sync::Arc;

use crate::cluster::tres::{Amounts, Held, Tariff, add_licenses, gres_of};
use crate::id::NodeId;
use crate::model::config::{Oversubscribe, PartitionConfig};
use crate::model::job::{JobSpec, Shape, Sharing};
use crate::sched::place::gcd;
use crate::text::gres::GresSpec;
use crate::text::tres::{Tres, TresKind};

use need::gpus;
pub use need::{Given, Need, Scarce, Slot};

/// The request of a job in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The fewest and the most nodes; `None` where only tasks count.
    pub nodes: Option<(u32, u32)>,
    /// True if the most nodes are only a limit for a job that counts tasks, set by the partition or by
    /// `--use-min-nodes`. Fewer nodes are as good.
    pub is_limited: bool,
    /// The node counts that will do, the preferred one first, where not every number of the range does: the
    /// largest, or the smallest with `--use-min-nodes`.
    pub sizes: Option<Vec<u32>>,
    /// Number of slots of the whole job; `None` for one on each node.
    pub slots: Option<u32>,
    /// The resources that the slots need.
    pub need: Need,
}

/// The reason why a request is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub String);

impl Request {
    /// The request of a job in one partition.
    ///
    /// # Errors
    /// [`BadRequest`] for a number of GPUs that cannot be divided evenly over tasks or nodes.
    pub fn new(spec: &JobSpec, partition: &PartitionConfig) -> Result<Self, BadRequest> {
        Self::within(spec, partition, partition.max_nodes.unwrap_or(u32::MAX))
    }

    /// The request of a job on at most `most_nodes` nodes, instead of the partition's limit.
    ///
    /// # Errors
    /// [`BadRequest`] as of [`Request::new`].
    pub(super) fn within(
        spec: &JobSpec,
        partition: &PartitionConfig,
        most_nodes: u32,
    ) -> Result<Self, BadRequest> {
        let shape = &spec.shape;
        let tasks = shape.tasks.map_or(u32::MAX, |tasks| tasks.max(1));
        // With tasks per node, and nothing that gives a number of nodes, one node has all tasks.
        let is_one_node = shape.tasks.is_none()
            && shape.tasks_per_node.is_some()
            && shape.nodelist.is_none()
            && !has_gpus(shape);
        let range = shape.node_range().or(is_one_node.then_some((1, Some(1))));
        // A job that wants more nodes than the limit keeps its number: it waits with a reason.
        let most = |min: u32, max: Option<u32>| max.unwrap_or(most_nodes).min(most_nodes.max(min)).min(tasks);
        let nodes = range.map(|(min, max)| (min, most(min, max)));
        let sizes = shape.nodes.as_ref().and_then(|count| count.sizes.clone());
        let sizes = sizes.map(|mut sizes| {
            if !shape.use_min_nodes {
                sizes.reverse();
            }
            sizes
        });
        let per_node = shape.tasks_per_node.unwrap_or(1);
        // With both -N and --ntasks-per-node every node has equally many tasks, so only nodes count.
        let all_tasks = |nodes: u32| nodes.checked_mul(shape.tasks_per_node?);
        // As with Slurm, nodes that features count are the job's even if it has fewer tasks.
        let counted = shape
            .features
            .as_ref()
            .map_or(0, |features| features.counts().iter().map(|(_, count)| count).sum());
        let nodes = if counted > tasks { Some((counted, counted)) } else { nodes };
        let by_nodes = counted > tasks
            || nodes.is_some_and(|(min, max)| {
                shape.tasks.is_none() || min == max && all_tasks(min) == shape.tasks
            });
        let slot = if by_nodes { Slot::Node { tasks: per_node } } else { Slot::TASK };
        let slots = (!by_nodes).then(|| shape.tasks.unwrap_or(1));
        let is_limited = shape.use_min_nodes && slots.is_some() && nodes.is_some_and(|(min, max)| min < max);
        let mut request = Self { nodes, is_limited, sizes, slots, need: Need::new(spec, partition, slot) };
        request.spread_gpus(shape)?;
        if let (None, Some(slots)) = (request.nodes, request.slots)
            && slots > most_nodes
        {
            request.nodes = Some((1, most_nodes));
            request.is_limited = true;
        }
        Ok(request)
    }

    /// Turns `--gpus`, a number for the whole job, into devices of each task or node, or into slots.
    fn spread_gpus(&mut self, shape: &Shape) -> Result<(), BadRequest> {
        let by_tasks = self.slots.is_some();
        let each = |count: u32| -> Result<Vec<GresSpec>, BadRequest> {
            let share = |spec: &GresSpec| match spec.count.checked_rem(u64::from(count)) {
                Some(0) => Ok(GresSpec { count: spec.count / u64::from(count), ..spec.clone() }),
                _ => {
                    let unit = if by_tasks { "tasks" } else { "nodes" };
                    Err(BadRequest(format!(
                        "--gpus={} cannot be divided evenly over {count} {unit}",
                        spec.count
                    )))
                }
            };
            shape.gpus.iter().map(share).collect()
        };
        if !has_gpus(shape) || self.tasks_have_all(shape) {
            return Ok(());
        }
        // GPUs that cannot be divided go to one node, where one node is allowed.
        let alone = self.nodes.is_none_or(|(min, _)| min == 1);
        let too_few = |nodes: u32| shape.gpus.iter().all(|gpus| gpus.count < u64::from(nodes));
        let by_node = shape.tasks_per_node.is_some_and(|tasks| tasks > 1);
        match (self.nodes, shape.tasks) {
            (nodes, Some(tasks)) if self.need.slot.counts_tasks() => {
                let shares = shape.gpus.iter().fold(u64::from(tasks), |shares, gpus| gcd(shares, gpus.count));
                let shares = u32::try_from(shares).unwrap_or(tasks);
                let (min, max) = nodes.unwrap_or((1, u32::MAX));
                if shares >= min.max(2) && self.need.share_tasks(tasks / shares) {
                    self.need.gres_per_task.extend(each(shares)?);
                    self.slots = Some(shares);
                    self.nodes = nodes.map(|(min, max)| (min, max.min(shares)));
                } else if alone {
                    self.on_one_node(shape);
                } else if min == max
                    && let Ok(gpus) = each(min)
                {
                    self.need.gres_per_node.extend(gpus);
                } else {
                    each(tasks)?;
                }
            }
            // Otherwise each GPU is a slot, and every node has one task, or as many as are given.
            (Some((min, max)), _)
                if min == max && (each(min).is_ok() || shape.gpus.len() > 1 || by_node || too_few(min)) =>
            {
                self.need.gres_per_node.extend(each(min)?);
            }
            _ if alone && shape.gpus.len() > 1 => self.on_one_node(shape),
            (nodes, _) => {
                let [gpus] = shape.gpus.as_slice() else {
                    return Err(BadRequest(
                        "--gpus of several types needs -N or -n to say how they are divided".to_owned(),
                    ));
                };
                self.need.slot = Slot::Gpu { tasks: shape.tasks_per_node.unwrap_or(1) };
                self.need.gres_per_task.push(GresSpec { count: 1, ..gpus.clone() });
                let count = u32::try_from(gpus.count).unwrap_or(u32::MAX);
                self.slots = Some(count);
                self.nodes = nodes.map(|(min, max)| (min.min(count), max.min(count)));
            }
        }
        Ok(())
    }

    /// True if the GPUs of all tasks together are the GPUs of the job.
    fn tasks_have_all(&self, shape: &Shape) -> bool {
        let ([all], [each], Some(tasks)) = (&shape.gpus[..], &shape.gpus_per_task[..], shape.tasks) else {
            return false;
        };
        all.may_be(each) && each.count.saturating_mul(tasks.into()) == all.count
    }

    /// Puts everything that the job asks for, with all of its GPUs, on one node.
    fn on_one_node(&mut self, shape: &Shape) {
        self.nodes = Some((1, 1));
        self.need.gres_per_node.extend(shape.gpus.iter().cloned());
    }

    /// True if messages should count nodes: also for one task on one node.
    pub(super) fn wants_nodes(&self) -> bool {
        self.need.counts_nodes() || (self.nodes == Some((1, 1)) && self.slots == Some(1))
    }

    /// The word for one unit of the request in messages.
    pub(super) fn unit(&self) -> &'static str {
        if self.wants_nodes() { "node" } else { self.need.slot.unit() }
    }

    /// The least resources that the job holds, and the least that a tariff charges for them.
    pub(crate) fn least(&self, spec: &JobSpec, tariff: Tariff<'_>) -> Amounts {
        let counts = counts::Counts::of(self);
        let (nodes, slots, need) = (counts.nodes, self.min_slots(), &self.need);
        let memory = match need.memory_per_node {
            0 | u64::MAX => need.memory_per_cpu.saturating_mul(counts.cpus),
            on_node => on_node.saturating_mul(nodes),
        };
        let mut all = Tres::default();
        all.set(TresKind::Cpu, counts.cpus);
        all.set(TresKind::Node, nodes);
        if memory > 0 {
            all.set(TresKind::Mem, memory);
        }
        let on_nodes = need.gres_per_node.iter().map(|gres| (gres, nodes));
        let of_slots = need.gres_per_task.iter().map(|gres| (gres, slots * need.devices_each()));
        for (gres, times) in on_nodes.chain(of_slots) {
            all.add(&gres_of(&gres.name, gres.kind.as_deref(), gres.count.saturating_mul(times)));
        }
        // Some node has at least the average over the most nodes possible.
        let most = self.nodes.map_or(slots, |(_, most)| u64::from(most)).min(slots).max(1);
        let on_node = all.0.iter().filter(|(kind, _)| **kind != TresKind::Node);
        let on_node: Tres = on_node.map(|(kind, sum)| (kind.clone(), sum.div_ceil(most))).collect();
        add_licenses(&mut all, spec);
        let held = |tres| Held { billing: tariff.least(&tres), tres };
        Amounts { all: held(all), on_node: held(on_node) }
    }

    /// The fewest nodes that the job can run on; 1 where only slots count.
    #[must_use]
    pub fn min_nodes(&self) -> u32 {
        self.nodes.map_or(1, |(min, _)| min)
    }

    /// The least number of slots that the job needs.
    #[must_use]
    pub fn min_slots(&self) -> u64 {
        u64::from(self.slots.unwrap_or_else(|| self.min_nodes()))
    }
}

/// The resources that a job gets on one node; with 0 slots, what the job closes to others there.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) node: NodeId,
    pub(crate) slots: u32,
    pub(crate) taken: Arc<[u64]>,
}

/// The fewest nodes and CPUs of a job: its size for orders and priorities.
#[must_use]
pub fn least(shape: &Shape) -> (u32, u64) {
    let nodes = shape.nodes.as_ref().map_or(1, |count| count.min);
    let by_node = nodes.saturating_mul(shape.tasks_per_node.unwrap_or(1));
    let tasks = shape.tasks.unwrap_or(by_node);
    (nodes, u64::from(tasks) * u64::from(shape.cpus_per_task.unwrap_or(1)))
}

/// The least resources that a job holds in a partition, and the least that its tariff charges for them.
#[must_use]
pub fn least_amounts(spec: &JobSpec, partition: &PartitionConfig, tariff: Tariff<'_>) -> Amounts {
    Request::within(spec, partition, u32::MAX)
        .map_or_else(|_| Amounts::default(), |request| request.least(spec, tariff))
}

/// True if the job asks for a total number of GPUs.
fn has_gpus(shape: &Shape) -> bool {
    shape.gpus.iter().any(|gpus| gpus.count > 0)
}

/// True if the job takes its nodes whole.
#[must_use]
pub fn takes_whole_nodes(spec: &JobSpec, partition: &PartitionConfig) -> bool {
    match spec.shape.sharing {
        Sharing::Exclusive | Sharing::Topo => true,
        Sharing::Partition | Sharing::Shared => partition.oversubscribe == Oversubscribe::Exclusive,
    }
}
