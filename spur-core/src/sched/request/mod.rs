//! What a job needs of nodes: its request, with the partition's defaults filled in, as counts that rooms can be
//! compared with.
//!
//! The unit a placement hands out is a *slot*: a task, or several that share GPUs; or, where the job counts only nodes, a node,
//! or what it takes of one that it shares; or a device where it asks for a number of GPUs without saying for what. [`Need`] answers how many slots
//! fit a room and what they take.

pub(super) mod constraints;
pub(super) mod counts;
pub(super) mod domains;
pub(super) mod eligible_nodes;
pub(super) mod part;
pub(super) mod whole_leaves;

use smallvec::SmallVec;

use crate::model::config::{Oversubscribe, PartitionConfig};
use crate::model::job::{CoreAsk, JobSpec, MemoryNeed, Shape, Sharing};
use crate::model::layout;
use crate::model::node::{NodeGres, NodeShape, SHARD};
use crate::sched::inventory::amounts::{CPUS, GRES, MEMORY, capacity};
use crate::text::gres::GresSpec;

/// What is given of a node: CPUs, memory in MiB, then devices in the order of its entries; mostly few numbers.
pub type Given = SmallVec<[u64; 6]>;

/// A job's request in one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Fewest and most nodes; `None` where only tasks count.
    pub nodes: Option<(u32, u32)>,
    /// Whether the most nodes are only what the partition allows a job that counts tasks: fewer are as good.
    pub is_limited: bool,
    /// The node counts that will do, largest first, where not every number of the range does.
    pub sizes: Option<Vec<u32>>,
    /// Slots of the whole job; `None`: one on each node.
    pub slots: Option<u32>,
    /// What the slots need.
    pub need: Need,
}

/// What is handed out in one slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// A node, with that many tasks on it; where it is shared, what they take of it. A node may have room for several such
    /// shares, of which one job gets at most one.
    Node {
        /// Tasks on each node.
        tasks: u32,
    },
    /// A slot is one task, or as many as have a whole number of GPUs together.
    Tasks {
        /// Tasks of each slot.
        each: u32,
    },
    /// A slot is one GPU; every node has so many tasks.
    Gpu {
        /// Tasks on each node.
        tasks: u32,
    },
}

impl Slot {
    /// One task.
    pub const TASK: Self = Slot::Tasks { each: 1 };

    /// What people call one.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Slot::Node { .. } => "node",
            Slot::TASK => "task",
            Slot::Tasks { .. } => "GPU group",
            Slot::Gpu { .. } => "GPU",
        }
    }

    fn counts_tasks(self) -> bool {
        matches!(self, Slot::Tasks { .. })
    }
}

/// A node's shape, what was found to be given of the node, and for how many slots.
type OnNode<'a> = (&'a NodeShape, &'a [u64], u32);

/// What a job needs on a node. Jobs with equal needs share what a pass finds out about rooms.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// What a slot is.
    pub slot: Slot,
    /// Most slots on one node.
    pub most: Option<u32>,
    /// CPUs of each task.
    pub cpus_per_task: u32,
    /// CPUs given on each node at least.
    pub min_cpus: u32,
    /// Memory of each node, MiB; `u64::MAX` for all there is.
    pub memory_per_node: u64,
    /// Memory of each CPU, MiB.
    pub memory_per_cpu: u64,
    /// Temporary disk a node must have, MiB.
    pub tmp_disk_mb: u64,
    /// Devices of each node.
    pub gres_per_node: Vec<GresSpec>,
    /// Devices of each task of a node; where nodes are not what is counted, of each slot.
    pub gres_per_task: Vec<GresSpec>,
    /// Whether nodes are taken whole.
    pub whole: bool,
    /// What is asked of sockets, cores and threads, and for each GPU.
    pub cores: CoreAsk,
}

/// Why a request makes no sense as it stands.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadRequest(pub String);

impl Request {
    /// Reads a job's request as it is in one partition.
    ///
    /// # Errors
    /// A number of GPUs that cannot be divided evenly over tasks or nodes.
    pub fn new(spec: &JobSpec, partition: &PartitionConfig) -> Result<Self, BadRequest> {
        Self::within(spec, partition, partition.max_nodes.unwrap_or(u32::MAX))
    }

    /// Reads a request on at most so many nodes, whatever the partition says of that.
    ///
    /// # Errors
    /// What [`Request::new`] refuses.
    pub(super) fn within(
        spec: &JobSpec,
        partition: &PartitionConfig,
        most_nodes: u32,
    ) -> Result<Self, BadRequest> {
        let shape = &spec.shape;
        let tasks = shape.tasks.map_or(u32::MAX, |tasks| tasks.max(1));
        // Tasks of each node, and nothing that says how many nodes: one has them all.
        let is_one_node = shape.tasks.is_none()
            && shape.tasks_per_node.is_some()
            && shape.nodelist.is_none()
            && !has_gpus(shape);
        let range = shape.node_range().or(is_one_node.then_some((1, Some(1))));
        // One that wants more than the limit at least waits for that, and is said to.
        let most = |min: u32, max: Option<u32>| max.unwrap_or(most_nodes).min(most_nodes.max(min)).min(tasks);
        let nodes = range.map(|(min, max)| (min, most(min, max)));
        let sizes = shape.nodes.as_ref().and_then(|count| count.sizes.clone());
        let sizes = sizes.map(|sizes| sizes.into_iter().rev().collect());
        let per_node = shape.tasks_per_node.unwrap_or(1);
        // With both -N and --ntasks-per-node every node has the same tasks, so nodes are all that is counted.
        let by_nodes = match (nodes, shape.tasks) {
            (Some(_), None) => true,
            (Some((min, max)), Some(tasks)) => {
                min == max
                    && shape.tasks_per_node.is_some_and(|per_node| min.checked_mul(per_node) == Some(tasks))
            }
            (None, _) => false,
        };
        let slot = if by_nodes { Slot::Node { tasks: per_node } } else { Slot::TASK };
        let slots = (!by_nodes).then(|| shape.tasks.unwrap_or(1));
        let mut request =
            Self { nodes, is_limited: false, sizes, slots, need: Need::new(spec, partition, slot) };
        request.spread_gpus(shape)?;
        if let (None, Some(slots)) = (request.nodes, request.slots)
            && slots > most_nodes
        {
            request.nodes = Some((1, most_nodes));
            request.is_limited = true;
        }
        Ok(request)
    }

    /// Turns `--gpus`, a number for the whole job, into devices of each task, of each node, or slots.
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
        // What cannot be divided lies on one node, where that may be.
        let alone = self.nodes.is_none_or(|(min, _)| min == 1);
        let too_few = |nodes: u32| shape.gpus.iter().all(|gpus| gpus.count < u64::from(nodes));
        let by_node = shape.tasks_per_node.is_some_and(|tasks| tasks > 1);
        match (self.nodes, shape.tasks) {
            (nodes, Some(tasks)) if self.need.slot.counts_tasks() => {
                let shares =
                    shape.gpus.iter().fold(u64::from(tasks), |shares, gpus| common(shares, gpus.count));
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
            // Otherwise each GPU is a slot, and every node has one task, or as many as are said.
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

    /// Whether the GPUs that each task asks for are all that the job asks for.
    fn tasks_have_all(&self, shape: &Shape) -> bool {
        let ([all], [each], Some(tasks)) = (&shape.gpus[..], &shape.gpus_per_task[..], shape.tasks) else {
            return false;
        };
        all.may_be(each) && each.count.saturating_mul(tasks.into()) == all.count
    }

    /// All that it asks for, with all of its GPUs, on one node.
    fn on_one_node(&mut self, shape: &Shape) {
        self.nodes = Some((1, 1));
        self.need.gres_per_node.extend(shape.gpus.iter().cloned());
    }

    /// Whether people would say that it wants nodes: so it does where it has one task on one node.
    pub(super) fn wants_nodes(&self) -> bool {
        self.need.counts_nodes() || (self.nodes == Some((1, 1)) && self.slots == Some(1))
    }

    /// What people call one of what it wants.
    pub(super) fn unit(&self) -> &'static str {
        if self.wants_nodes() { "node" } else { self.need.slot.unit() }
    }

    /// Fewest nodes it can run on; 1 where only slots count.
    #[must_use]
    pub fn min_nodes(&self) -> u32 {
        self.nodes.map_or(1, |(min, _)| min)
    }

    /// Slots it needs altogether, at least.
    #[must_use]
    pub fn min_slots(&self) -> u64 {
        u64::from(self.slots.unwrap_or_else(|| self.min_nodes()))
    }
}

/// Fewest nodes and CPUs of a job: what orders and priorities call its size.
#[must_use]
pub fn least(shape: &Shape) -> (u32, u64) {
    let nodes = shape.nodes.as_ref().map_or(1, |count| count.min);
    let by_node = nodes.saturating_mul(shape.tasks_per_node.unwrap_or(1));
    let tasks = shape.tasks.unwrap_or(by_node);
    (nodes, u64::from(tasks) * u64::from(shape.cpus_per_task.unwrap_or(1)))
}

/// The greatest divisor that two numbers have in common.
pub(super) fn common(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { common(other, one % other) }
}

/// Whether the job asks for GPUs by their number in all.
fn has_gpus(shape: &Shape) -> bool {
    shape.gpus.iter().any(|gpus| gpus.count > 0)
}

/// The devices of each task that are not among those of each node, and how many tasks those of a node are for.
fn devices_of_tasks(shape: &Shape) -> (Vec<GresSpec>, Option<u32>) {
    let (mut others, mut most) = (Vec::new(), None::<u32>);
    for each in &shape.gpus_per_task {
        let on_node = shape.gres.iter().find(|gres| gres.may_be(each));
        match on_node.and_then(|gres| gres.count.checked_div(each.count)).filter(|tasks| *tasks > 0) {
            Some(tasks) => {
                let tasks = u32::try_from(tasks).unwrap_or(u32::MAX);
                most = Some(most.map_or(tasks, |most| most.min(tasks)));
            }
            None => others.push(each.clone()),
        }
    }
    (others, most)
}

impl Need {
    fn new(spec: &JobSpec, partition: &PartitionConfig, slot: Slot) -> Self {
        let shape = &spec.shape;
        let (memory_per_node, memory_per_cpu) = match (shape.memory, partition.def_mem_per_cpu) {
            (Some(MemoryNeed::PerNode(0)), _) => (u64::MAX, 0),
            (Some(MemoryNeed::PerNode(memory)), _) => (memory, 0),
            (Some(MemoryNeed::PerCpu(memory)), _) => (0, memory),
            (None, Some(memory)) if shape.memory_per_gpu().is_none() => (0, memory),
            (None, None) if shape.memory_per_gpu().is_none() => (partition.def_mem_per_node.unwrap_or(0), 0),
            (None, _) => (0, 0),
        };
        let fits = |most: u32| !matches!(slot, Slot::Node { tasks } if tasks > most);
        let (gres_per_task, most) = match devices_of_tasks(shape) {
            (others, most) if most.is_none_or(fits) => (others, most),
            _ => (shape.gpus_per_task.clone(), None),
        };
        let most = shape.tasks_per_node.into_iter().chain(most).min();
        Self {
            slot,
            most: most.filter(|_| slot.counts_tasks()),
            cpus_per_task: shape.cpus_per_task.unwrap_or(1).max(1),
            min_cpus: shape.min_cpus,
            memory_per_node,
            memory_per_cpu,
            tmp_disk_mb: shape.tmp_disk_mb,
            gres_per_node: shape.gres.clone(),
            gres_per_task,
            whole: takes_whole_nodes(spec, partition),
            cores: shape.cores.as_deref().cloned().unwrap_or_default(),
        }
    }

    /// Makes so many tasks one slot; false, and nothing, where a task has devices or a node has no room for so many.
    fn share_tasks(&mut self, each: u32) -> bool {
        let most = self.most.map(|most| most / each);
        let may = each == 1 || (self.gres_per_task.is_empty() && most != Some(0));
        if may {
            (self.slot, self.most) = (Slot::Tasks { each }, most);
        }
        may
    }

    /// How many slots fit `amount` on a node of that shape.
    #[must_use]
    pub fn slots(&self, shape: &NodeShape, amount: &[u64]) -> u32 {
        let idle = amount[CPUS] == u64::from(shape.cpus);
        if shape.tmp_disk_mb < self.tmp_disk_mb || (self.whole && !idle) || !self.cores.suits(shape) {
            return 0;
        }
        let by_sockets = self.cores.tasks_per_socket.map_or(u32::MAX, |most| {
            let tasks = most.saturating_mul(shape.sockets.max(1));
            match self.slot {
                Slot::Tasks { each } => tasks / each,
                _ if self.tasks(1) <= tasks => tasks,
                _ => 0,
            }
        });
        let most = match self.slot {
            Slot::Node { .. } if self.whole => 1,
            Slot::Node { .. } => amount[CPUS] / self.cpus_of_slot().max(1),
            Slot::Tasks { .. } => amount[CPUS] / self.cpus_of_slot().max(1),
            Slot::Gpu { .. } => amount[GRES..].iter().sum(),
        };
        let most = u32::try_from(most).unwrap_or(u32::MAX).min(self.most.unwrap_or(u32::MAX));
        let most = if self.slot.counts_tasks() || by_sockets == 0 { most.min(by_sockets) } else { most };
        if most == 0 {
            return 0;
        }
        let mut taken = Given::from_elem(0, amount.len());
        let mut fits = |slots: u32| self.take(shape, amount, slots, &mut taken).is_some();
        if !fits(1) {
            return 0;
        }
        // More slots never need less, so the largest number that fits is found by halving.
        let (mut low, mut high) = (1, most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// How many tasks start on each of some nodes, and what they are given, where that is not what the placement says: it
    /// only tells that they fit.
    pub(super) fn dealt(&self, nodes: &[OnNode<'_>]) -> Option<Vec<(u32, Given)>> {
        match (self.slot, self.whole) {
            (Slot::TASK, true) => self.dealt_evenly(nodes),
            (Slot::TASK, false) if self.gres_per_task.is_empty() => self.dealt_to_threads(nodes),
            _ => None,
        }
    }

    /// Over nodes that are taken whole tasks are dealt evenly, as Slurm deals them.
    fn dealt_evenly(&self, nodes: &[OnNode<'_>]) -> Option<Vec<(u32, Given)>> {
        // All but memory is given whole.
        let amount = |&(shape, given, _): &OnNode<'_>| {
            let mut amount = Given::from_slice(given);
            amount[MEMORY] = shape.memory_mb;
            amount
        };
        let amounts: Vec<Given> = nodes.iter().map(amount).collect();
        let rooms = nodes.iter().zip(&amounts).map(|((shape, ..), amount)| self.slots(shape, amount));
        let dealt = layout::evenly(rooms, nodes.iter().map(|(.., tasks)| tasks).sum())?;
        let given = |((node, amount), tasks): ((&OnNode<'_>, &Given), u32)| {
            Some((tasks, self.takes(node.0, amount, tasks)?))
        };
        nodes.iter().zip(&amounts).zip(dealt).map(given).collect()
    }

    /// Threads that tasks leave of their cores are for tasks of nodes that then need fewer cores.
    fn dealt_to_threads(&self, nodes: &[OnNode<'_>]) -> Option<Vec<(u32, Given)>> {
        let threads = nodes.iter().map(|(shape, ..)| shape.threads_per_core.max(1));
        let threads = threads.filter(|threads| !self.cpus_per_task.is_multiple_of(*threads)).max()?;
        let mut dealt: Vec<(u32, Given)> =
            nodes.iter().map(|&(_, given, tasks)| (tasks, Given::from_slice(given))).collect();
        let room = |&(shape, given, tasks): &OnNode<'_>| self.slots(shape, given).saturating_sub(tasks);
        let mut rooms: Vec<u32> = nodes.iter().map(room).collect();
        loop {
            let all: u32 = rooms.iter().sum();
            let less = |at: usize, more: u32| {
                let (tasks, given) = &dealt[at];
                let left = tasks.checked_sub(more).filter(|left| *left > 0 && all - rooms[at] >= more)?;
                let less = self.takes(nodes[at].0, given, left)?;
                (less[CPUS] < given[CPUS]).then_some((at, more, (left, less)))
            };
            let found = (0..nodes.len()).find_map(|at| (1..=threads).find_map(|more| less(at, more)));
            let Some((at, mut more, left)) = found else { return Some(dealt) };
            (dealt[at], rooms[at]) = (left, 0);
            for other in (0..nodes.len()).rev().filter(|other| *other != at) {
                let takes = rooms[other].min(more);
                dealt[other].0 += takes;
                rooms[other] -= takes;
                more -= takes;
            }
        }
    }

    /// Whether nodes are what is counted, at most one slot of each being taken.
    #[must_use]
    pub fn counts_nodes(&self) -> bool {
        matches!(self.slot, Slot::Node { .. })
    }

    /// Whether every slot is a whole node.
    #[must_use]
    pub fn counts_whole_nodes(&self) -> bool {
        self.counts_nodes() && self.whole
    }

    /// What one slot takes of a node of that shape, where a node has as many slots as all of that is free there: a share of
    /// the node, and devices of which there is one entry each.
    #[must_use]
    pub(super) fn floor(&self, shape: &NodeShape) -> Option<Given> {
        let is_node = self.counts_nodes() && self.most.is_none() && !self.whole;
        let entries = |spec: &GresSpec| shape.gres.iter().filter(|gres| matches(gres, spec)).count();
        let plain = self.gres_per_node.iter().chain(&self.gres_per_task).all(|spec| entries(spec) == 1);
        let sockets = self.cores.tasks_per_socket.is_none() && self.cores.suits(shape);
        let may = is_node && plain && sockets && shape.tmp_disk_mb >= self.tmp_disk_mb;
        may.then(|| self.takes(shape, &capacity(shape), 1)).flatten()
    }

    /// What `slots` slots are given of `amount` on a node of that shape; `None` if they do not fit. A node that is
    /// taken whole gives all its CPUs and devices; memory is given as asked, because it is counted only where asked.
    #[must_use]
    pub fn takes(&self, shape: &NodeShape, amount: &[u64], slots: u32) -> Option<Given> {
        let mut taken = Given::from_elem(0, amount.len());
        self.take(shape, amount, slots, &mut taken)?;
        Some(taken)
    }

    /// Writes into `taken` what `slots` slots are given; what does not fit leaves anything there.
    fn take(&self, shape: &NodeShape, amount: &[u64], slots: u32, taken: &mut [u64]) -> Option<()> {
        taken.fill(0);
        taken[CPUS] = self.cpus(shape, slots).filter(|cpus| *cpus <= amount[CPUS])?;
        let nodes = match self.slot {
            Slot::Node { .. } => u64::from(slots),
            Slot::Tasks { .. } | Slot::Gpu { .. } => 1,
        };
        taken[MEMORY] = match self.memory_per_node {
            u64::MAX => shape.memory_mb.checked_mul(nodes)?,
            memory => {
                // Threads that the job does not use have none.
                let threads = u64::from(shape.threads_per_core.max(1));
                let used = taken[CPUS].checked_mul(self.cores.threads(shape).into())?.div_ceil(threads);
                let by_cpus = used.checked_mul(self.memory_per_cpu)?;
                let of_gpu = self.cores.memory_per_gpu.unwrap_or(0);
                let of_node = if self.whole { shape.gpus().into() } else { self.gpus(slots) };
                let by_gpus = of_gpu.checked_mul(of_node)?;
                memory.checked_mul(nodes)?.checked_add(by_cpus)?.checked_add(by_gpus)?
            }
        };
        if taken[MEMORY] > amount[MEMORY] {
            return None;
        }
        let times = u64::from(self.shares(slots));
        // Those that name a type go first: the others take what is left.
        for named in [true, false] {
            let suits = |spec: &&GresSpec| spec.kind.is_some() == named;
            for spec in self.gres_per_node.iter().filter(suits) {
                take_devices(shape, amount, taken, spec, (spec.count, nodes))?;
            }
            for spec in self.gres_per_task.iter().filter(suits) {
                take_devices(shape, amount, taken, spec, (spec.count.checked_mul(times)?, 1))?;
            }
        }
        if self.whole {
            taken[GRES..].copy_from_slice(&amount[GRES..]);
        }
        Some(())
    }

    /// CPUs that each slot takes at least.
    pub(super) fn cpus_of_slot(&self) -> u64 {
        match self.slot {
            Slot::Node { tasks } => {
                (u64::from(tasks) * u64::from(self.cpus_per_task)).max(u64::from(self.min_cpus))
            }
            Slot::Tasks { each } => u64::from(each) * u64::from(self.cpus_per_task),
            // The tasks of a node may have many GPUs.
            Slot::Gpu { .. } => 0,
        }
    }

    /// Devices that each slot takes, besides those of its node.
    pub(super) fn devices_of_slot(&self) -> u64 {
        devices(&self.gres_per_task).saturating_mul(u64::from(self.shares(1)))
    }

    /// Devices that each node gives, besides those of its slots.
    pub(super) fn devices_of_node(&self) -> u64 {
        devices(&self.gres_per_node)
    }

    /// How many times the devices of a task are given for that many slots.
    fn shares(&self, slots: u32) -> u32 {
        match self.slot {
            Slot::Node { tasks } => tasks.saturating_mul(slots),
            Slot::Tasks { .. } | Slot::Gpu { .. } => slots,
        }
    }

    /// Tasks that run in that many slots of one node, of which one job has one where slots are nodes.
    #[must_use]
    pub fn tasks(&self, slots: u32) -> u32 {
        match self.slot {
            Slot::Node { tasks } | Slot::Gpu { tasks } => tasks,
            Slot::Tasks { each } => each.saturating_mul(slots),
        }
    }

    /// GPUs given for that many slots.
    fn gpus(&self, slots: u32) -> u64 {
        let nodes = if self.counts_nodes() { u64::from(slots) } else { 1 };
        let of_tasks = gpus(&self.gres_per_task).saturating_mul(u64::from(self.shares(slots)));
        gpus(&self.gres_per_node).saturating_mul(nodes).saturating_add(of_tasks)
    }

    /// CPUs given for that many slots: whole cores, all of them where the node is taken whole.
    fn cpus(&self, shape: &NodeShape, slots: u32) -> Option<u64> {
        let tasks = u64::from(self.tasks(slots));
        let asked = tasks.checked_mul(u64::from(self.cpus_per_task))?.max(u64::from(self.min_cpus));
        let asked = match self.cores.cpus_per_gpu {
            // Of as many GPUs as one slot has, where slots are nodes.
            Some(each) => {
                let slots = if self.counts_nodes() { 1 } else { slots };
                asked.max(self.gpus(slots).checked_mul(u64::from(each))?)
            }
            None => asked,
        };
        let threads = u64::from(shape.threads_per_core.max(1));
        let given = self.cores.cores(shape, asked, tasks).checked_mul(threads)?;
        if self.whole {
            // A node may have a part of a core.
            let fits =
                asked <= u64::from(shape.cpus) && (given <= u64::from(shape.cpus) || given - asked < threads);
            return fits.then_some(u64::from(shape.cpus));
        }
        match self.slot {
            Slot::Node { .. } => given.checked_mul(u64::from(slots)),
            Slot::Tasks { .. } | Slot::Gpu { .. } => Some(given),
        }
    }
}

/// Whether the job has its nodes for itself.
#[must_use]
pub fn takes_whole_nodes(spec: &JobSpec, partition: &PartitionConfig) -> bool {
    match spec.shape.sharing {
        Sharing::Exclusive | Sharing::Topo => true,
        Sharing::Partition | Sharing::Shared => partition.oversubscribe == Oversubscribe::Exclusive,
    }
}

/// How many devices some specifications ask for together.
fn devices<'a>(specs: impl IntoIterator<Item = &'a GresSpec>) -> u64 {
    specs.into_iter().map(|spec| spec.count).fold(0, u64::saturating_add)
}

/// How many GPUs some specifications ask for together.
fn gpus(specs: &[GresSpec]) -> u64 {
    devices(specs.iter().filter(|spec| spec.name == "gpu"))
}

/// Whether an entry of a node has devices of that name and kind.
fn matches(gres: &NodeGres, spec: &GresSpec) -> bool {
    *gres.name == *spec.name && is_kind(gres, spec)
}

/// Whether the devices of an entry are of that kind, whatever their name.
fn is_kind(gres: &NodeGres, spec: &GresSpec) -> bool {
    spec.kind.as_deref().is_none_or(|kind| *gres.kind == *kind)
}

/// Adds devices to what is taken, so many so often, from the entries that match, in their order; shards that are taken at once
/// are of one GPU. Of GPUs that may be shared it takes those of which nobody has a shard, with all their shards.
fn take_devices(
    shape: &NodeShape,
    amount: &[u64],
    taken: &mut [u64],
    spec: &GresSpec,
    (count, times): (u64, u64),
) -> Option<()> {
    if spec.name == SHARD {
        return (0..times).try_for_each(|_| take_shards(shape, amount, taken, spec, count));
    }
    let shared = shape.shared_gpus && spec.name == "gpu";
    let mut left = count.checked_mul(times)?;
    for (entry, gres) in shape.gres.iter().enumerate() {
        if matches(gres, spec) {
            let each = if shared { u64::from(gres.count).max(1) } else { 1 };
            let free = amount[GRES + entry].saturating_sub(taken[GRES + entry]);
            let take = (free / each).min(left);
            taken[GRES + entry] += take * each;
            left -= take;
        }
    }
    (left == 0).then_some(())
}

/// Adds `count` shards to what is taken, all of the GPU that has the fewest left of those that have so many.
fn take_shards(
    shape: &NodeShape,
    amount: &[u64],
    taken: &mut [u64],
    spec: &GresSpec,
    count: u64,
) -> Option<()> {
    let gpus = shape.gres.iter().enumerate().filter(|(at, gres)| shape.is_shared(*at) && is_kind(gres, spec));
    let left = gpus.map(|(at, _)| (amount[GRES + at].saturating_sub(taken[GRES + at]), GRES + at));
    let (_, at) = left.filter(|(left, _)| *left >= count).min()?;
    taken[at] += count;
    Some(())
}
