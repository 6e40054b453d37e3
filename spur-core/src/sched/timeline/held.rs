//! The amounts that jobs hold of nodes, and until when, kept from pass to pass and updated by events.
//!
//! After [`Held::sync`] for every job that an event has changed, the state equals one built anew from the
//! same cluster.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::id::{JobId, NodeId};
use crate::sched::forecast::PlanInput;
use crate::sched::inventory::Inventory;
use crate::sched::inventory::amounts::{Amount, RoomId, Rooms};
use crate::sched::request::counts::Counts;
use crate::sched::timeline::holding;
use crate::text::time::Time;

/// The least number of changes per node that are remembered.
const CHANGES_A_NODE: usize = 2;
/// Number of numbered amounts above which unused ones are forgotten.
const MOST_ROOMS: usize = 4_096;

/// The amount that a job holds of one node.
pub(crate) type HeldPart = (NodeId, Arc<[u64]>);

/// The amounts that are held, by node and by job.
#[derive(Debug, Default)]
pub(crate) struct Held {
    /// The numbered amounts.
    pub(crate) rooms: Rooms,
    nodes: Vec<OnNode>,
    jobs: BTreeMap<JobId, Holder>,
    ends: BTreeSet<(Time, JobId)>,
    /// Tasks of arrays that have been started but have no number yet: the record that each waited in, and its
    /// temporary key.
    tasks: Vec<(JobId, JobId)>,
    /// The free amounts of usable nodes, for each component of partitions.
    free: Vec<Counts>,
    /// Suspended jobs that want their CPUs back, with their nodes.
    entangled: BTreeSet<(JobId, NodeId)>,
    /// The nodes whose held amount has changed, in order of change; the number of changes that were forgotten
    /// before the first of these; and the number of changes at the last call of [`Held::take_touched`].
    changes: Vec<NodeId>,
    forgotten: usize,
    asked: usize,
}

/// The held amounts of one node.
#[derive(Debug)]
struct OnNode {
    /// The number of the amount that no job holds.
    idle: RoomId,
    /// The sum of all held amounts.
    sum: Box<[u64]>,
    /// The holders: planned end, job and amount.
    holds: Vec<(Time, JobId, Arc<[u64]>)>,
    /// The component of partitions that the node counts for; `None` if the node is out of service.
    component: Option<usize>,
}

/// A job that holds something.
#[derive(Debug, PartialEq)]
pub(crate) struct Holder {
    /// The planned end of the job.
    pub(crate) end: Time,
    pub(crate) parts: Vec<HeldPart>,
}

/// The amounts that a job holds according to the cluster, including what it closes to others; `None` if it
/// holds nothing.
fn holder(PlanInput { cluster, inventory, forecast, now }: PlanInput<'_>, id: JobId) -> Option<Holder> {
    let job = cluster.job(id)?;
    let (alloc, end) = holding::until(cluster, job, forecast, now)?;
    // Nodes of one job are mostly alike, so their amounts share memory.
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
    /// Computes the held amounts of a cluster.
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

    /// Updates what one job holds from the cluster. Returns whether anything changed.
    pub(crate) fn sync(&mut self, input: PlanInput<'_>, id: JobId) -> bool {
        let cluster = input.cluster;
        let mut moved = self.sync_alone(input, id);
        if self.entangled.is_empty() && cluster.jobs().claims().next().is_none() {
            return moved;
        }
        let claims: BTreeSet<(JobId, NodeId)> = holding::entangled(cluster).collect();
        let before = std::mem::replace(&mut self.entangled, claims);
        // Where a suspended job wants or wanted CPUs back, the amount of one job depends on the other jobs of
        // the node.
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

    /// Moves what was booked for a task in record `from` to the job that the task has become.
    pub(crate) fn hand_over(&mut self, input: PlanInput<'_>, (from, to): (JobId, JobId)) {
        let Some(holder) = holder(input, to) else { return };
        let same = |(of, key): &(JobId, JobId)| *of == from && self.jobs.get(key) == Some(&holder);
        let Some(at) = self.tasks.iter().position(same) else { return };
        let (_, key) = self.tasks.remove(at);
        self.remove(key);
        self.put(to, holder.end, holder.parts);
    }

    /// Books amounts for a task of an array until a time. Until the task has a number, it has a key that no
    /// job ever gets.
    pub(crate) fn put_task(&mut self, from: JobId, end: Time, parts: Vec<HeldPart>) {
        let lowest = self.tasks.iter().map(|(_, key)| key.0).min().unwrap_or(u32::MAX);
        let key = JobId(lowest - 1);
        self.put(key, end, parts);
        self.tasks.push((from, key));
    }

    /// Releases what was booked for tasks of a record that have not started after all. Returns whether there
    /// was any.
    fn give_up_tasks(&mut self, from: JobId) -> bool {
        let (gone, kept): (Vec<_>, Vec<_>) = self.tasks.drain(..).partition(|(of, _)| *of == from);
        self.tasks = kept;
        gone.iter().fold(false, |any, (_, key)| self.remove(*key) || any)
    }

    /// Books amounts for a job until a time.
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

    /// Releases what a job holds. Returns whether it held anything.
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

    /// Recomputes the idle amount of a node.
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

    /// Moves the planned end of every job whose end has come but is planned for another time. Returns whether
    /// any moved.
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

    /// Forgets unused amounts if there are many. Returns whether it did, because all numbers of amounts
    /// change then.
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

    /// The nodes whose held amount has changed since the last call.
    pub(crate) fn take_touched(&mut self) -> Vec<NodeId> {
        let touched = self.changes[self.asked - self.forgotten..].to_vec();
        self.asked = self.changes();
        self.forget_changes();
        touched
    }

    /// Number of changes of idle amounts so far.
    pub(crate) fn changes(&self) -> usize {
        self.forgotten + self.changes.len()
    }

    /// The nodes that changed after the first `changes` changes, each once per change; `None` if these
    /// changes were forgotten.
    pub(crate) fn changes_since(&self, changes: usize) -> Option<&[NodeId]> {
        self.changes.get(changes.checked_sub(self.forgotten)?..)
    }

    /// Forgets old changes if there are many more than nodes: examining every node is cheaper then.
    fn forget_changes(&mut self) {
        if self.changes.len() > 2 * CHANGES_A_NODE * self.nodes.len() {
            let kept = CHANGES_A_NODE * self.nodes.len();
            let gone = self.changes.len() - kept;
            self.forgotten += gone;
            self.changes.drain(..gone);
        }
    }

    /// The number of the idle amount of a node.
    pub(crate) fn idle(&self, node: NodeId) -> RoomId {
        self.nodes[node.index()].idle
    }

    /// The component of partitions that a node counts for; `None` for a node that may not be used.
    pub(crate) fn component(&self, node: NodeId) -> Option<usize> {
        self.nodes[node.index()].component
    }

    /// True if a node may be used.
    pub(crate) fn is_open(&self, node: NodeId) -> bool {
        self.component(node).is_some()
    }

    /// The free amounts in a component of partitions.
    pub(crate) fn free(&self, component: usize) -> Counts {
        self.free[component]
    }

    /// The amount of a node held by jobs that are planned to end after a time.
    pub(crate) fn sum_after(&self, node: NodeId, at: Time) -> Amount {
        let node = &self.nodes[node.index()];
        let mut sum = Amount::from_slice(&node.sum);
        for (_, _, amount) in node.holds.iter().filter(|(end, ..)| *end <= at) {
            sum.iter_mut().zip(&**amount).for_each(|(sum, less)| *sum -= less);
        }
        sum
    }

    /// The amount that a node has left when `sum` is held.
    pub(crate) fn left(&self, node: NodeId, sum: &[u64]) -> Amount {
        self.full(node).iter().zip(sum).map(|(full, sum)| full.saturating_sub(*sum)).collect()
    }

    /// The amount that a node has from a time on, as far as running jobs decide.
    pub(crate) fn at(&self, node: NodeId, at: Time) -> Amount {
        self.left(node, &self.sum_after(node, at))
    }

    /// The number of the amount that a node has from a time on; `None` if only some of its holders have ended
    /// by then.
    pub(crate) fn known_at(&self, node: NodeId, at: Time) -> Option<RoomId> {
        let on_node = &self.nodes[node.index()];
        let gone = on_node.holds.iter().filter(|(end, ..)| *end <= at).count();
        match gone {
            0 => Some(on_node.idle),
            _ if gone == on_node.holds.len() => Some(self.rooms.full(self.rooms.class_of(on_node.idle))),
            _ => None,
        }
    }

    /// The whole amount of a node.
    pub(crate) fn full(&self, node: NodeId) -> &[u64] {
        self.rooms.amount(self.rooms.full(self.rooms.class_of(self.nodes[node.index()].idle)))
    }

    /// Jobs that are planned to end after `from`, with their ends, the next first.
    pub(crate) fn ends_after(&self, from: Time) -> impl Iterator<Item = (Time, &Holder)> {
        self.ends.range((from + 1, JobId(0))..).filter_map(|(end, job)| Some((*end, self.jobs.get(job)?)))
    }

    /// Jobs that are planned to end at a time.
    pub(crate) fn ending(&self, at: Time) -> impl Iterator<Item = (JobId, &Holder)> {
        let ending = self.ends.range((at, JobId(0))..=(at, JobId(u32::MAX)));
        ending.filter_map(|(_, job)| Some((*job, self.jobs.get(job)?)))
    }

    /// Jobs whose planned end is `now` or before.
    pub(crate) fn overdue(&self, now: Time) -> impl Iterator<Item = &Holder> {
        self.ends.range(..=(now, JobId(u32::MAX))).filter_map(|(_, job)| self.jobs.get(job))
    }

    /// All jobs with their planned ends.
    pub(crate) fn ends(&self) -> impl Iterator<Item = (Time, JobId)> + '_ {
        self.ends.iter().copied()
    }
}
