//! The resources that a job needs on each node, and what nodes give for them.

use std::ops::Range;

use smallvec::SmallVec;

use crate::model::config::PartitionConfig;
use crate::model::job::{CoreAsk, JobSpec, MemoryNeed, Shape};
use crate::model::layout;
use crate::model::node::{NodeGres, NodeShape, SHARD};
use crate::sched::inventory::LimitEntries;
use crate::sched::inventory::amounts::{CPUS, GRES, MEMORY, RoomId, Rooms, capacity};
use crate::text::gres::GresSpec;

use super::takes_whole_nodes;

/// The resources given on a node, in the order of amounts.
pub type Given = SmallVec<[u64; 6]>;

/// The unit that a placement hands out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Slot {
    /// A node with `tasks` tasks on it, or, where the node is shared, the share that these take. A node may
    /// have several such shares free, of which one job gets at most one.
    Node {
        /// Number of tasks on each node.
        tasks: u32,
    },
    /// One task, or as many tasks as have a whole number of GPUs together.
    Tasks {
        /// Number of tasks of each slot.
        each: u32,
    },
    /// One GPU; every node has `tasks` tasks.
    Gpu {
        /// Number of tasks on each node.
        tasks: u32,
    },
}

impl Slot {
    /// A slot of one task.
    pub const TASK: Self = Slot::Tasks { each: 1 };

    /// The word for one slot in messages.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Slot::Node { .. } => "node",
            Slot::TASK => "task",
            Slot::Tasks { .. } => "GPU group",
            Slot::Gpu { .. } => "GPU",
        }
    }

    pub(crate) fn counts_tasks(self) -> bool {
        matches!(self, Slot::Tasks { .. })
    }
}

/// The resource that a node has too little of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scarce {
    /// The node has too little memory.
    Memory,
    /// The node has too few GPUs or other devices.
    Devices,
    /// The node has too few CPUs.
    Cpus,
    /// The jobs of the partition hold as many CPUs of the node, or of its sockets, as it allows them.
    LimitOfPartition,
}

/// The shape of a node, the resources given on it, and the number of slots.
type OnNode<'a> = (&'a NodeShape, &'a [u64], u32);

/// The resources that a job needs on a node. Jobs with equal needs share what a pass computes about amounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Need {
    /// The unit that is handed out.
    pub slot: Slot,
    /// The most slots on one node.
    pub most: Option<u32>,
    /// Number of CPUs of each task.
    pub cpus_per_task: u32,
    /// The least number of CPUs given on each node.
    pub min_cpus: u32,
    /// Memory of each node in MiB; `u64::MAX` for all memory of the node.
    pub memory_per_node: u64,
    /// Memory of each CPU in MiB.
    pub memory_per_cpu: u64,
    /// Temporary disk space that a node must have, in MiB.
    pub tmp_disk_mb: u64,
    /// Devices of each node.
    pub gres_per_node: Vec<GresSpec>,
    /// Devices of each task of a node; where nodes are not counted, devices of each slot.
    pub gres_per_task: Vec<GresSpec>,
    /// True if nodes are taken whole.
    pub whole: bool,
    /// The constraints on sockets, cores and threads, and the resources for each GPU.
    pub cores: CoreAsk,
    /// The entries of amounts that limit the CPUs of the partition's jobs.
    pub limits: LimitEntries,
}

/// The devices of each task that are not among those of each node, and the number of tasks that the devices
/// of a node suffice for.
fn devices_of_tasks(shape: &Shape) -> (Vec<GresSpec>, Option<u32>) {
    let (mut others, mut most) = (Vec::new(), None::<u32>);
    for each in &shape.gpus_per_task {
        let on_node = shape.gres.iter().find(|gres| gres.may_be(each));
        match on_node.and_then(|gres| gres.count.checked_div(each.count)).filter(|tasks| *tasks > 0) {
            Some(tasks) => most = most.into_iter().chain([u32::try_from(tasks).unwrap_or(u32::MAX)]).min(),
            None => others.push(each.clone()),
        }
    }
    (others, most)
}

impl Need {
    pub(super) fn new(spec: &JobSpec, partition: &PartitionConfig, slot: Slot) -> Self {
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
            limits: LimitEntries::default(),
        }
    }

    /// Makes `each` tasks one slot. Returns false, with nothing changed, if tasks have devices or a node may
    /// not have as many.
    pub(super) fn share_tasks(&mut self, each: u32) -> bool {
        let most = self.most.map(|most| most / each);
        let may = each == 1 || (self.gres_per_task.is_empty() && most != Some(0));
        if may {
            (self.slot, self.most) = (Slot::Tasks { each }, most);
        }
        may
    }

    /// Number of slots that fit `amount` on a node of that shape.
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
            Slot::Node { .. } | Slot::Tasks { .. } => amount[CPUS] / self.cpus_of_slot().max(1),
            Slot::Gpu { .. } => amount[GRES..][..shape.gres.len()].iter().sum(),
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
        // More slots never need less, so bisection finds the largest number that fits.
        let (mut low, mut high) = (1, most);
        while low < high {
            let middle = low + (high - low).div_ceil(2);
            if fits(middle) { low = middle } else { high = middle - 1 }
        }
        low
    }

    /// The tasks on each of several nodes and the resources given, where these differ from the placement's
    /// shares; `None` otherwise. The placement only guarantees that the tasks fit.
    pub(crate) fn dealt(&self, nodes: &[OnNode<'_>]) -> Option<Vec<(u32, Given)>> {
        match (self.slot, self.whole) {
            (Slot::TASK, true) => self.dealt_evenly(nodes),
            (Slot::TASK, false) if self.gres_per_task.is_empty() => self.dealt_to_threads(nodes),
            _ => None,
        }
    }

    /// Deals tasks evenly over nodes that are taken whole, as Slurm does.
    fn dealt_evenly(&self, nodes: &[OnNode<'_>]) -> Option<Vec<(u32, Given)>> {
        // Everything but memory is given whole.
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

    /// Moves tasks to nodes whose cores have unused threads, so that fewer cores are needed.
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

    /// The only resource that keeps a node from having a slot, if messages report it: with all of that
    /// resource, as when idle, the node would have a slot.
    pub(crate) fn scarce(&self, shape: &NodeShape, amount: &[u64]) -> Option<Scarce> {
        if self.whole || self.slots(shape, amount) > 0 {
            return None;
        }
        let mut all = capacity(shape).into_vec();
        let devices = GRES..all.len();
        all.resize(amount.len(), u64::MAX);
        let suffices = |part: Range<usize>| {
            let mut more = Given::from_slice(amount);
            more[part.clone()].copy_from_slice(&all[part]);
            self.slots(shape, &more) > 0
        };
        let is_told = |scarce: Scarce| match scarce {
            Scarce::Memory | Scarce::LimitOfPartition => true,
            Scarce::Devices => !matches!(self.slot, Slot::Gpu { .. }),
            Scarce::Cpus => self.has_devices(),
        };
        let parts = [
            (Scarce::Memory, MEMORY..MEMORY + 1),
            (Scarce::LimitOfPartition, devices.end..amount.len()),
            (Scarce::Devices, devices),
            (Scarce::Cpus, CPUS..CPUS + 1),
        ];
        let scarce = parts.into_iter().find_map(|(scarce, part)| suffices(part).then_some(scarce));
        scarce.filter(|scarce| is_told(*scarce))
    }

    /// True if messages report scarce resources. A job that asks for CPUs only knows it anyway.
    pub(crate) fn tells_scarce(&self) -> bool {
        let memory =
            self.memory_per_node > 0 || self.memory_per_cpu > 0 || self.cores.memory_per_gpu.is_some();
        !self.whole && (memory || self.has_devices() || self.limits.limit_cpus())
    }

    fn has_devices(&self) -> bool {
        !self.gres_per_node.is_empty() || !self.gres_per_task.is_empty()
    }

    /// True if nodes are counted, with at most one slot on each.
    #[must_use]
    pub fn counts_nodes(&self) -> bool {
        matches!(self.slot, Slot::Node { .. })
    }

    /// True if every slot is a whole node.
    #[must_use]
    pub fn counts_whole_nodes(&self) -> bool {
        self.counts_nodes() && self.whole
    }

    /// True if nodes with equal slots may have unequal free resources: a slot is more than one CPU of a
    /// shared node.
    pub(crate) fn is_coarse(&self) -> bool {
        let is_one_cpu = self.cpus_of_slot() <= 1 && self.memory_per_node == 0 && self.memory_per_cpu == 0;
        !self.whole && (self.has_devices() || !is_one_cpu)
    }

    /// The free number of the scarcest resource that the job asks for: GPUs of the types asked for, or CPUs
    /// if the job asks for no GPU.
    pub(crate) fn scarcest(&self, rooms: &Rooms, room: RoomId) -> u64 {
        let (shape, amount) = (rooms.shape(rooms.class_of(room)), rooms.amount(room));
        let asked = || self.gres_per_node.iter().chain(&self.gres_per_task).filter(|spec| spec.name == "gpu");
        if asked().next().is_none() {
            return amount[CPUS];
        }
        let gres = shape.gres.iter().zip(&amount[GRES..]);
        gres.filter(|(gres, _)| asked().any(|spec| matches(gres, spec))).map(|(_, free)| free).sum()
    }

    /// The resources that one slot takes on a node of that shape, if the number of slots follows from
    /// dividing by them: shares of nodes with devices of one entry each. `None` otherwise.
    #[must_use]
    pub(crate) fn floor(&self, shape: &NodeShape) -> Option<Given> {
        let is_node = self.counts_nodes() && self.most.is_none() && !self.whole;
        let entries = |spec: &GresSpec| shape.gres.iter().filter(|gres| matches(gres, spec)).count();
        let plain = self.gres_per_node.iter().chain(&self.gres_per_task).all(|spec| entries(spec) == 1);
        let sockets = self.cores.tasks_per_socket.is_none() && self.cores.suits(shape);
        let may = is_node
            && plain
            && sockets
            && !self.limits.have_sockets()
            && shape.tmp_disk_mb >= self.tmp_disk_mb;
        may.then(|| self.takes(shape, &self.limits.unlimited(capacity(shape)), 1)).flatten()
    }

    /// The resources that `slots` slots take of `amount` on a node of that shape; `None` if they do not fit.
    /// A node that is taken whole gives all its CPUs and devices. Memory is given as asked, because it counts
    /// only where asked.
    #[must_use]
    pub fn takes(&self, shape: &NodeShape, amount: &[u64], slots: u32) -> Option<Given> {
        let mut taken = Given::from_elem(0, amount.len());
        self.take(shape, amount, slots, &mut taken)?;
        Some(taken)
    }

    /// Writes the resources of `slots` slots into `taken`. If they do not fit, the contents of `taken` are
    /// unspecified.
    fn take(&self, shape: &NodeShape, amount: &[u64], slots: u32, taken: &mut [u64]) -> Option<()> {
        taken.fill(0);
        taken[CPUS] = self.cpus(shape, slots).filter(|cpus| *cpus <= amount[CPUS])?;
        let nodes = if self.counts_nodes() { u64::from(slots) } else { 1 };
        taken[MEMORY] = match self.memory_per_node {
            u64::MAX => shape.memory_mb.checked_mul(nodes)?,
            memory => {
                // Threads that the job does not use get no memory.
                let threads = u64::from(shape.threads_per_core.max(1));
                let used = taken[CPUS].checked_mul(self.cores.threads(shape).into())?.div_ceil(threads);
                let by_cpus = used.checked_mul(self.memory_per_cpu)?;
                let by_gpus = match self.cores.memory_per_gpu {
                    Some(each) if self.whole => each.checked_mul(shape.gpus().into())?,
                    Some(each) => each.checked_mul(self.gpus(slots))?,
                    None => 0,
                };
                memory.checked_mul(nodes)?.checked_add(by_cpus)?.checked_add(by_gpus)?
            }
        };
        if taken[MEMORY] > amount[MEMORY] {
            return None;
        }
        let times = u64::from(self.shares(slots));
        // Devices with a type go first; the others take what is left.
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
        let (further, threads) = (GRES + shape.gres.len(), u64::from(shape.threads_per_core.max(1)));
        self.limits.take(&amount[further..], (taken[CPUS], threads, self.whole), &mut taken[further..])
    }

    /// The least number of CPUs that each slot takes.
    pub(crate) fn cpus_of_slot(&self) -> u64 {
        match self.slot {
            Slot::Node { tasks } => {
                (u64::from(tasks) * u64::from(self.cpus_per_task)).max(u64::from(self.min_cpus))
            }
            Slot::Tasks { each } => u64::from(each) * u64::from(self.cpus_per_task),
            // The tasks of a node may have many GPUs.
            Slot::Gpu { .. } => 0,
        }
    }

    /// Number of devices that each slot takes, besides those of its node.
    pub(crate) fn devices_of_slot(&self) -> u64 {
        devices(&self.gres_per_task).saturating_mul(u64::from(self.shares(1)))
    }

    /// Number of times that each slot takes the devices of a task.
    pub(crate) fn devices_each(&self) -> u64 {
        u64::from(self.shares(1))
    }

    /// Number of devices that each node gives, besides those of its slots.
    pub(crate) fn devices_of_node(&self) -> u64 {
        devices(&self.gres_per_node)
    }

    /// Number of times that the devices of a task are given for `slots` slots.
    fn shares(&self, slots: u32) -> u32 {
        match self.slot {
            Slot::Node { tasks } => tasks.saturating_mul(slots),
            Slot::Tasks { .. } | Slot::Gpu { .. } => slots,
        }
    }

    /// Number of tasks in `slots` slots of one node; where slots are nodes, a job has one slot of each.
    #[must_use]
    pub fn tasks(&self, slots: u32) -> u32 {
        match self.slot {
            Slot::Node { tasks } | Slot::Gpu { tasks } => tasks,
            Slot::Tasks { each } => each.saturating_mul(slots),
        }
    }

    /// Number of GPUs given for `slots` slots.
    fn gpus(&self, slots: u32) -> u64 {
        let nodes = if self.counts_nodes() { u64::from(slots) } else { 1 };
        let of_tasks = gpus(&self.gres_per_task).saturating_mul(u64::from(self.shares(slots)));
        gpus(&self.gres_per_node).saturating_mul(nodes).saturating_add(of_tasks)
    }

    /// Number of CPUs given for `slots` slots: whole cores, or all CPUs if the node is taken whole. `None` if
    /// they do not fit.
    fn cpus(&self, shape: &NodeShape, slots: u32) -> Option<u64> {
        let tasks = u64::from(self.tasks(slots));
        let asked = tasks.checked_mul(u64::from(self.cpus_per_task))?.max(u64::from(self.min_cpus));
        let asked = match self.cores.cpus_per_gpu {
            // Where slots are nodes, the GPUs of one slot count.
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
        if self.counts_nodes() { given.checked_mul(u64::from(slots)) } else { Some(given) }
    }
}

/// Number of devices in all specifications.
fn devices<'a>(specs: impl IntoIterator<Item = &'a GresSpec>) -> u64 {
    specs.into_iter().map(|spec| spec.count).fold(0, u64::saturating_add)
}

/// Number of GPUs in all specifications.
pub(super) fn gpus(specs: &[GresSpec]) -> u64 {
    devices(specs.iter().filter(|spec| spec.name == "gpu"))
}

/// True if an entry of a node has devices of the name and type.
fn matches(gres: &NodeGres, spec: &GresSpec) -> bool {
    *gres.name == *spec.name && is_kind(gres, spec)
}

/// True if the devices of an entry are of the type, whatever their name.
fn is_kind(gres: &NodeGres, spec: &GresSpec) -> bool {
    spec.kind.as_deref().is_none_or(|kind| *gres.kind == *kind)
}

/// Adds `count` times `times` devices to `taken`, from the matching entries in order. Shards that are taken
/// together are of one GPU. A GPU that may be shared is taken with all its shards, and only if no shard is in
/// use.
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

/// Adds `count` shards of one GPU to `taken`: of the GPU with the fewest left that has enough.
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
