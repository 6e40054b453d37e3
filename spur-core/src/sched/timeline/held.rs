//! What jobs hold of the nodes and until when, kept from pass to pass: what an event changes is changed here, and
//! nothing is built anew.
//!
//! Promises: after [`Held::sync`] for every job that something happened to, it is what one built anew from the same
//! cluster would be.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::{JobId, NodeId};
use crate::sched::forecast::PlanInput;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{Amount, RoomId, Rooms};
use crate::sched::request::counts::Counts;
use crate::sched::timeline::holding;
use crate::text::time::Time;

/// Changes for each node that are remembered at least.
const CHANGES_A_NODE: usize = 2;
/// Amounts that are numbered before those that nothing has any more are forgotten.
const MOST_ROOMS: usize = 4_096;

/// What a job holds of a node.
pub(crate) type HeldPart = (NodeId, Arc<[u64]>);

/// What is held, by node and by job.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The amounts that are numbered.
    pub(crate) rooms: Rooms,
    nodes: Vec<OnNode>,
    jobs: BTreeMap<JobId, Holder>,
    ends: BTreeSet<(Time, JobId)>,
    /// Tasks of arrays that were started and have no number yet: the records they waited in, and what they go by.
    tasks: Vec<(JobId, JobId)>,
    /// By component of partitions: what is free of the nodes that may be used.
    free: Vec<Counts>,
    /// Suspended jobs that want their CPUs back, and their nodes.
    entangled: BTreeSet<(JobId, NodeId)>,
    /// Nodes of which something else was held than before, one after another; how many there were before the first of these,
    /// and how many when this was last asked for.
    changes: Vec<NodeId>,
    forgotten: usize,
    asked: usize,
}

/// A node.
#[derive(Debug)]
struct OnNode {
    /// What nobody holds.
    idle: RoomId,
    /// What all jobs hold together.
    sum: Box<[u64]>,
    /// Who holds what, and until when that is planned.
    holds: Vec<(Time, JobId, Arc<[u64]>)>,
    /// The component of partitions it counts for: of one that is out of service, none.
    component: Option<usize>,
}

/// A job that holds something.
#[derive(Debug, PartialEq)]
pub(crate) struct Holder {
    /// When it is planned to end.
    pub(crate) end: Time,
    pub(crate) parts: Vec<HeldPart>,
}

/// What a job holds by what the cluster says, with what it closes to others; `None` for nothing.
fn holder(PlanInput { cluster, inventory, forecast, now }: PlanInput<'_>, id: JobId) -> Option<Holder> {
    let job = cluster.job(id)?;
    let (alloc, end) = holding::until(cluster, job, forecast, now)?;
    // Nodes that are held together are mostly alike.
    let mut last: Arc<[u64]> = Arc::default();
    let parts = holding::parts(cluster, inventory, job, alloc).map(|(node, amount)| {
        if *last != *amount {
            last = Arc::from(&*amount);
        }
        (node, Arc::clone(&last))
    });
    Some(Holder { end, parts: parts.collect() })
}

impl Held {
    /// What is held on a cluster.
    pub(crate) fn new(input: PlanInput<'_>) -> Self {
        let PlanInput { cluster, inventory, .. } = input;
        let rooms = inventory.rooms.clone();
        let nodes = inventory.nodes.iter().enumerate().map(|(index, node)| {
            let full = rooms.full(node.class);
            let within = |partition: &&crate::sched::inventory::ScenePartition| {
                node.available && partition.partition.members.contains(index)
            };
            let component = inventory.partitions.iter().find(within).map(|partition| partition.component);
            let sum = vec![0; rooms.amount(full).len()].into_boxed_slice();
            OnNode { idle: full, sum, holds: Vec::new(), component }
        });
        let nodes: Vec<OnNode> = nodes.collect();
        let mut free = vec![Counts::default(); inventory.partitions.len()];
        for node in &nodes {
            if let Some(component) = node.component {
                free[component].add(Counts::free(rooms.amount(node.idle), rooms.amount(node.idle)));
            }
        }
        let entangled = holding::entangled(cluster).collect();
        let mut held = Self { rooms, nodes, free, entangled, ..Self::default() };
        for job in cluster.jobs().active() {
            held.sync_alone(input, job.id);
        }
        held
    }

    /// Makes what one job holds what the cluster says; says whether that made a difference.
    pub(crate) fn sync(&mut self, input: PlanInput<'_>, id: JobId) -> bool {
        let cluster = input.cluster;
        let mut moved = self.sync_alone(input, id);
        if self.entangled.is_empty() && cluster.jobs().claims().next().is_none() {
            return moved;
        }
        let claims: BTreeSet<(JobId, NodeId)> = holding::entangled(cluster).collect();
        let before = std::mem::replace(&mut self.entangled, claims);
        // Where a suspended job wants CPUs back, or did, what counts for one job follows from what others do.
        let all = before.union(&self.entangled);
        let mut others: BTreeSet<JobId> = all.clone().map(|(job, _)| *job).collect();
        let nodes = all.filter_map(|(_, node)| cluster.node(*node));
        others.extend(nodes.flat_map(|node| node.jobs.iter().copied()));
        for other in others {
            moved |= self.sync_alone(input, other);
        }
        moved
    }

    fn sync_alone(&mut self, input: PlanInput<'_>, id: JobId) -> bool {
        let given_up = self.give_up_tasks(id);
        let Some(holder) = holder(input, id) else { return self.remove(id) | given_up };
        if self.jobs.get(&id) == Some(&holder) {
            return given_up;
        }
        self.remove(id);
        self.put(id, holder.end, holder.parts);
        true
    }

    /// What was taken for a task of an array that waited in the record `from` is now its own.
    pub(crate) fn hand_over(&mut self, input: PlanInput<'_>, (from, to): (JobId, JobId)) {
        let Some(holder) = holder(input, to) else { return };
        let same = |(of, key): &(JobId, JobId)| *of == from && self.jobs.get(key) == Some(&holder);
        let Some(at) = self.tasks.iter().position(same) else { return };
        let (_, key) = self.tasks.remove(at);
        self.remove(key);
        self.put(to, holder.end, holder.parts);
    }

    /// Takes amounts for a task of an array until a time. It has no number yet: until it has, it goes by one that no job
    /// ever gets.
    pub(crate) fn put_task(&mut self, from: JobId, end: Time, parts: Vec<HeldPart>) {
        let lowest = self.tasks.iter().map(|(_, key)| key.0).min().unwrap_or(u32::MAX);
        let key = JobId(lowest - 1);
        self.put(key, end, parts);
        self.tasks.push((from, key));
    }

    /// Gives back what was taken for tasks of a record that have not started after all; says whether there was any.
    fn give_up_tasks(&mut self, from: JobId) -> bool {
        let (gone, kept): (Vec<_>, Vec<_>) = self.tasks.drain(..).partition(|(of, _)| *of == from);
        self.tasks = kept;
        gone.iter().fold(false, |any, (_, key)| self.remove(*key) || any)
    }

    /// Takes amounts for a job until a time.
    pub(crate) fn put(&mut self, job: JobId, end: Time, parts: Vec<HeldPart>) {
        for (id, amount) in &parts {
            let node = &mut self.nodes[id.index()];
            node.sum.iter_mut().zip(&**amount).for_each(|(sum, more)| *sum += more);
            node.holds.push((end, job, Arc::clone(amount)));
            self.settle(*id);
        }
        self.ends.insert((end, job));
        self.jobs.insert(job, Holder { end, parts });
    }

    /// Gives back what a job holds; says whether it held anything.
    fn remove(&mut self, job: JobId) -> bool {
        let Some(holder) = self.jobs.remove(&job) else { return false };
        self.ends.remove(&(holder.end, job));
        for (id, amount) in &holder.parts {
            let node = &mut self.nodes[id.index()];
            node.sum.iter_mut().zip(&**amount).for_each(|(sum, less)| *sum -= less);
            if let Some(at) = node.holds.iter().position(|(_, holder, _)| *holder == job) {
                node.holds.swap_remove(at);
            }
            self.settle(*id);
        }
        true
    }

    /// Works out anew what nobody holds of a node.
    fn settle(&mut self, id: NodeId) {
        self.changes.push(id);
        let node = &mut self.nodes[id.index()];
        let before = node.idle;
        let full = self.rooms.full(self.rooms.class_of(before));
        node.idle = self.rooms.minus(full, &node.sum);
        if let Some(component) = node.component {
            let (free, full) = (&mut self.free[component], self.rooms.amount(full));
            free.take(Counts::free(self.rooms.amount(before), full));
            free.add(Counts::free(self.rooms.amount(node.idle), full));
        }
    }

    /// The jobs whose planned end has come and whose end is now planned for another time. They are put right.
    pub(crate) fn correct(&mut self, PlanInput { cluster, forecast, now, .. }: PlanInput<'_>) -> bool {
        let mut moved = Vec::new();
        for (end, id) in self.ends.range(..=(now, JobId(u32::MAX))) {
            let planned = cluster.job(*id).and_then(|job| holding::until(cluster, job, forecast, now));
            moved.extend(planned.filter(|(_, planned)| planned != end).map(|(_, planned)| (*id, planned)));
        }
        for (id, end) in &moved {
            if let Some(holder) = self.jobs.get(id) {
                let parts = holder.parts.clone();
                self.remove(*id);
                self.put(*id, *end, parts);
            }
        }
        !moved.is_empty()
    }

    /// Forgets amounts that nothing has, if there are many; says whether it did: their numbers mean something else then.
    pub(crate) fn tidy(&mut self, inventory: &Inventory) -> bool {
        if self.rooms.len() < MOST_ROOMS + 2 * self.nodes.len() {
            return false;
        }
        let old = std::mem::replace(&mut self.rooms, inventory.rooms.clone());
        for node in &mut self.nodes {
            node.idle = self.rooms.intern(old.class_of(node.idle), old.amount(node.idle));
        }
        true
    }

    /// The number of an amount of a node.
    pub(crate) fn intern(&mut self, node: NodeId, amount: &[u64]) -> RoomId {
        let class = self.rooms.class_of(self.nodes[node.index()].idle);
        self.rooms.intern(class, amount)
    }

    /// The nodes of which something else is held since this was last asked.
    pub(crate) fn take_touched(&mut self) -> Vec<NodeId> {
        let touched = self.changes[self.asked - self.forgotten..].to_vec();
        self.asked = self.changes();
        self.forget_changes();
        touched
    }

    /// How many changes there were of what nobody holds of a node.
    pub(crate) fn changes(&self) -> usize {
        self.forgotten + self.changes.len()
    }

    /// The nodes that were changed after the first so many changes, each as often as it was; `None` if that is not known any
    /// more.
    pub(crate) fn changes_since(&self, changes: usize) -> Option<&[NodeId]> {
        self.changes.get(changes.checked_sub(self.forgotten)?..)
    }

    /// Forgets changes, if there are many more than nodes: it is less to look at every node.
    fn forget_changes(&mut self) {
        if self.changes.len() > 2 * CHANGES_A_NODE * self.nodes.len() {
            let kept = CHANGES_A_NODE * self.nodes.len();
            let gone = self.changes.len() - kept;
            self.forgotten += gone;
            self.changes.drain(..gone);
        }
    }

    /// What nobody holds of a node.
    pub(crate) fn idle(&self, node: NodeId) -> RoomId {
        self.nodes[node.index()].idle
    }

    /// The component of partitions that a node counts for; `None` for one that may not be used.
    pub(crate) fn component(&self, node: NodeId) -> Option<usize> {
        self.nodes[node.index()].component
    }

    /// Whether a node may be used.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        self.component(node).is_some()
    }

    /// What is free in a component of partitions.
    pub(crate) fn free(&self, component: usize) -> Counts {
        self.free[component]
    }

    /// What is held of a node by jobs that are planned to end after a time.
    pub(crate) fn sum_after(&self, node: NodeId, at: Time) -> Amount {
        let node = &self.nodes[node.index()];
        let mut sum = Amount::from_slice(&node.sum);
        for (_, _, amount) in node.holds.iter().filter(|(end, ..)| *end <= at) {
            sum.iter_mut().zip(&**amount).for_each(|(sum, less)| *sum -= less);
        }
        sum
    }

    /// What a node has when so much of it is held.
    pub(crate) fn left(&self, node: NodeId, sum: &[u64]) -> Amount {
        self.full(node).iter().zip(sum).map(|(full, sum)| full.saturating_sub(*sum)).collect()
    }

    /// What a node has from a time on, as far as running jobs go.
    pub(crate) fn at(&self, node: NodeId, at: Time) -> Amount {
        self.left(node, &self.sum_after(node, at))
    }

    /// The number of what a node has from a time on, where nobody who holds some of it has gone by then, or all have.
    pub(crate) fn known_at(&self, node: NodeId, at: Time) -> Option<RoomId> {
        let on_node = &self.nodes[node.index()];
        let gone = on_node.holds.iter().filter(|(end, ..)| *end <= at).count();
        match gone {
            0 => Some(on_node.idle),
            _ if gone == on_node.holds.len() => Some(self.rooms.full(self.rooms.class_of(on_node.idle))),
            _ => None,
        }
    }

    /// Everything that a node has.
    pub(crate) fn full(&self, node: NodeId) -> &[u64] {
        self.rooms.amount(self.rooms.full(self.rooms.class_of(self.nodes[node.index()].idle)))
    }

    /// Jobs with their planned ends, those after `from`, the next first.
    pub(crate) fn ends_after(&self, from: Time) -> impl Iterator<Item = (Time, &Holder)> {
        self.ends.range((from + 1, JobId(0))..).filter_map(|(end, job)| Some((*end, self.jobs.get(job)?)))
    }

    /// Jobs that are planned to end at a time.
    pub(crate) fn ending(&self, at: Time) -> impl Iterator<Item = (JobId, &Holder)> {
        let ending = self.ends.range((at, JobId(0))..=(at, JobId(u32::MAX)));
        ending.filter_map(|(_, job)| Some((*job, self.jobs.get(job)?)))
    }

    /// Jobs that should have ended by now.
    pub(crate) fn overdue(&self, now: Time) -> impl Iterator<Item = &Holder> {
        self.ends.range(..=(now, JobId(u32::MAX))).filter_map(|(_, job)| self.jobs.get(job))
    }

    /// All jobs with their planned ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.ends.iter().copied()
    }
}
