//! Output of a simulation. Events are kept until their pass is over, and are then returned in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::event::{Event, RESUME, Resources, SUSPEND, Spans, What};
use crate::cluster::Cluster;
use crate::id::{JobId, NodeId};
use crate::model::alloc::Alloc;
use crate::model::job::{Job, Shape};
use crate::model::reason::Reason;
use crate::sched::plan::{Plan, Waiting};
use crate::text::hostlist::HostList;
use crate::text::time::Time;
use crate::text::tres::TresKind;

/// Detail for jobs beyond the scheduler's depth, which no pass has planned.
const LEFT_OUT: &str = "not looked at: the scheduler's depth was reached before it";

/// Last reported state of a pending job.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Told {
    reason: Reason,
    detail: String,
    start: Option<Time>,
    nodes: Vec<NodeId>,
}

/// Events that are not reported yet, and the last reported state of each job.
#[derive(Debug, Default)]
pub(super) struct Record {
    /// New events, each with its job's number and its rank, by which they are sorted.
    fresh: Vec<(JobId, u8, What)>,
    /// Jobs that the new events resume.
    resumed: BTreeSet<JobId>,
    told: BTreeMap<JobId, Told>,
    /// Position in its het job of each job that is a component.
    components: BTreeMap<JobId, u32>,
}

impl Record {
    /// Adds an event.
    ///
    /// Events are sorted by kind, but events of one job keep their order. A resumed job that is suspended
    /// again is reported as suspended last. A resumed job that ends is reported as ended last.
    pub(super) fn add(&mut self, job: JobId, what: What) {
        let mut rank = what.rank();
        if self.resumed.contains(&job) {
            match &what {
                What::Suspend { .. } => rank = RESUME,
                What::End { .. } => {
                    let before =
                        self.fresh.iter_mut().filter(|(other, rank, _)| *other == job && *rank == RESUME);
                    before.for_each(|(_, rank, _)| *rank = SUSPEND);
                }
                _ => {}
            }
        } else if matches!(what, What::Resume { .. }) {
            self.resumed.insert(job);
        }
        self.fresh.push((job, rank, what));
    }

    /// Removes and returns the events added since the last call, in the order of the output.
    pub(super) fn take(&mut self, now: Time) -> impl Iterator<Item = Event> + '_ {
        let mut fresh = std::mem::take(&mut self.fresh);
        self.resumed.clear();
        fresh.sort_by_key(|(job, rank, _)| (*rank, *job));
        let component = |job: &JobId| self.components.get(job).copied();
        fresh.into_iter().map(move |(job, _, what)| Event { t: now.0, component: component(&job), what })
    }

    /// Records that a job is a component of a het job.
    pub(super) fn set_component(&mut self, job: JobId, offset: u32) {
        self.components.insert(job, offset);
    }

    /// Forgets the last reported state of a job that is no longer pending.
    pub(super) fn forget(&mut self, job: JobId) {
        self.told.remove(&job);
    }

    /// Adds the changes that a pass made to the state of pending jobs.
    pub(super) fn waiting(&mut self, cluster: &Cluster, plan: &Plan, name: impl Fn(JobId) -> Arc<str>) {
        for waiting in &plan.waiting {
            self.wait(cluster, waiting, &name);
        }
        if plan.report.truncated {
            let looked_at: BTreeSet<JobId> = plan.waiting.iter().map(|waiting| waiting.job).collect();
            let is_told = |id: &JobId| self.told.get(id).is_some_and(|told| told.detail == LEFT_OUT);
            let pending = cluster.jobs().pending().map(|job| job.id);
            let left_out: Vec<JobId> = pending.filter(|id| !looked_at.contains(id) && !is_told(id)).collect();
            for job in left_out {
                let detail = LEFT_OUT.to_owned().into();
                self.wait(cluster, &Waiting { reason: Reason::Priority, detail, ..Waiting::of(job) }, &name);
            }
        }
    }

    fn wait(&mut self, cluster: &Cluster, waiting: &Waiting, name: impl Fn(JobId) -> Arc<str>) {
        let now = Told {
            reason: waiting.reason,
            detail: waiting.sentence(|time| time.0.to_string()),
            start: waiting.start,
            nodes: waiting.nodes.clone(),
        };
        if self.told.get(&waiting.job) == Some(&now) {
            return;
        }
        let planned = (!now.nodes.is_empty()).then(|| hostlist(cluster, now.nodes.iter().copied()));
        self.add(
            waiting.job,
            What::Pending {
                job: name(waiting.job),
                reason: now.reason.name(),
                detail: now.detail.clone(),
                start: now.start.map(|time| time.0),
                planned,
            },
        );
        self.told.insert(waiting.job, now);
    }
}

/// Builds the event for the start of a job.
pub(super) fn start(cluster: &Cluster, name: Arc<str>, job: &Job, alloc: &Alloc) -> What {
    let (why, spec) = (&alloc.why, &*job.spec);
    let mut tres = cluster.held_tres(&alloc.nodes);
    tres.set(TresKind::Billing, alloc.billed().count());
    for (name, count) in spec.extra.iter().flat_map(|extra| &extra.licenses) {
        tres.set(TresKind::License(name.to_string()), u64::from(*count));
    }
    What::Start {
        job: name,
        nodes: hostlist(cluster, alloc.nodes.iter().map(|part| part.node)),
        ranks: ranks(cluster, &job.spec.shape, alloc),
        spans: Spans(why.spans.clone()),
        backfilled: why.backfilled,
        relaxed: why.relaxed.clone(),
        account: spec.account.clone().unwrap_or_default(),
        qos: spec.qos.clone().unwrap_or_default(),
        tres: Resources(tres),
        why: why.sentence.clone(),
    }
}

/// Builds the event for a replaced node, with the job's allocation after the replacement.
pub(super) fn replace(cluster: &Cluster, name: Arc<str>, job: &Job, lost: NodeId) -> What {
    let alloc = job.phase.alloc().cloned().unwrap_or_default();
    What::Replace {
        job: name,
        lost: hostlist(cluster, std::iter::once(lost)),
        nodes: hostlist(cluster, alloc.nodes.iter().map(|part| part.node)),
        ranks: ranks(cluster, &job.spec.shape, &alloc),
        spans: Spans(alloc.why.spans.clone()),
        why: alloc.why.sentence.clone(),
    }
}

/// Writes nodes as a hostlist, in the order given.
pub(super) fn hostlist(cluster: &Cluster, nodes: impl Iterator<Item = NodeId>) -> String {
    HostList::from_names(cluster.names_of(nodes)).to_string()
}

/// Node of each task in rank order; each node once if the job requested only nodes.
fn ranks(cluster: &Cluster, shape: &Shape, alloc: &Alloc) -> Vec<Arc<str>> {
    let only_nodes =
        shape.tasks.is_none() && shape.tasks_per_node.is_none() && shape.gpus_per_task.is_empty();
    let name = |node: NodeId| cluster.node(node).map(|node| Arc::clone(node.name()));
    let times = |tasks: u32| if only_nodes { 1 } else { tasks as usize };
    let parts = alloc.nodes.iter().filter_map(|part| Some((name(part.node)?, times(part.tasks))));
    parts.flat_map(|(name, times)| std::iter::repeat_n(name, times)).collect()
}
