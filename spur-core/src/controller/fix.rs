//! Changes of a waiting job's request that let the job start earlier. Each change is made on a copy of the
//! cluster as `scontrol update` makes it, and the copy is planned.
//!
//! The search makes one plan at a time, at most [`MOST_PLANS`] in all, so that the caller can give way to
//! others between two plans, or stop. Other partitions, accounts and QOS are tried first, then less time and
//! fewer nodes. For the last two the search looks for the smallest change by halving: if half of the request
//! starts earlier, three quarters are tried, else a quarter.

use std::collections::VecDeque;
use std::sync::Arc;

use super::{Command, Input, Reject, Reply};
use crate::cluster::Cluster;
use crate::id::{JobId, NodeId};
use crate::model::caller::Caller;
use crate::model::change::JobChange;
use crate::model::phase::Phase;
use crate::sched::forecast::Limits;
use crate::sched::foretell;
use crate::sched::plan::{Start, each_once};
use crate::text::jobid::{JobPart, JobRef};
use crate::text::nodes::NodeCount;
use crate::text::time::{Time, TimeLimit};

/// The largest number of plans for one question, that of the unchanged request included.
pub const MOST_PLANS: u32 = 20;
/// The largest numbers of other partitions, accounts and QOS that are planned.
const MOST_NAMES: [usize; 3] = [4, 3, 3];
/// The largest number of plans for less time, and for fewer nodes.
const MOST_HALVINGS: u32 = 5;

/// A planned start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// The time of the start.
    pub start: Time,
    /// The nodes, in rank order.
    pub nodes: Vec<NodeId>,
}

/// A change that lets the job start earlier.
#[derive(Clone, Debug, PartialEq)]
pub struct Fix {
    /// The change of the request.
    pub change: JobChange,
    /// The start with this change.
    pub planned: Planned,
}

/// The search for changes that let one job start earlier.
pub struct FixSearch {
    cluster: Cluster,
    caller: Caller,
    job: JobId,
    now: Time,
    plans: u32,
    /// The start without any change; `None` before the first step, or if no start is known.
    planned: Option<Planned>,
    /// Changes to other names that were not tried yet.
    names: VecDeque<JobChange>,
    time: Halving,
    nodes: Halving,
    fixes: Vec<Fix>,
}

/// The search for the largest amount below the requested one with which the job starts earlier.
#[derive(Clone, Copy, Debug)]
struct Halving {
    /// The largest amount known to start earlier; 0 if none is known.
    enough: u64,
    /// The smallest amount known to start no earlier; at first the requested one.
    too_much: u64,
    /// Amounts between two neighbours; no finer amount is tried.
    grain: u64,
    tries: u32,
}

impl Halving {
    fn of(requested: u64, grain: u64) -> Halving {
        Halving { enough: 0, too_much: requested, grain, tries: 0 }
    }

    /// The next amount to try: a multiple of the grain between the bounds; `None` if the search is over.
    fn next(&self) -> Option<u64> {
        let middle = (self.enough + (self.too_much - self.enough) / 2) / self.grain * self.grain;
        (self.tries < MOST_HALVINGS && middle > self.enough).then_some(middle)
    }

    fn learn(&mut self, amount: u64, starts_earlier: bool) {
        self.tries += 1;
        if starts_earlier {
            self.enough = amount;
        } else {
            self.too_much = amount;
        }
    }
}

impl FixSearch {
    /// Begins a search on a copy of the cluster.
    ///
    /// # Errors
    /// The job is unknown, has started, is held, is a later component of a het job, or is not the caller's to
    /// change.
    pub fn new(cluster: Cluster, caller: Caller, job: JobId, now: Time) -> Result<FixSearch, Reject> {
        let caller = cluster.recognize(caller);
        let known = cluster.job(job).ok_or(Reject::InvalidJobId)?;
        if !cluster.may_change(&caller, &known.spec) {
            return Err(Reject::AccessDenied);
        }
        let Phase::Pending(pending) = &known.phase else { return Err(Reject::NotPending) };
        if pending.hold.is_some() {
            return Err(Reject::Held);
        }
        if let Some(het) = known.spec.het.as_deref().filter(|_| known.spec.is_follower()) {
            return Err(Reject::NotWholeHetJob(*het));
        }
        let seconds = known.spec.time_limit.seconds().unwrap_or(0);
        let nodes = known.spec.shape.node_range().map_or(0, |(least, _)| u64::from(least));
        let names = other_names(&cluster, job);
        let (time, nodes) = (Halving::of(seconds, 60), Halving::of(nodes, 1));
        Ok(FixSearch {
            cluster,
            caller,
            job,
            now,
            plans: 0,
            planned: None,
            names,
            time,
            nodes,
            fixes: Vec::new(),
        })
    }

    /// Makes the next plan. Returns false once the search is over.
    pub fn step(&mut self) -> bool {
        if self.plans == 0 {
            self.planned = self.plan(&self.cluster);
            self.plans = 1;
            return self.planned.as_ref().is_none_or(|planned| planned.start > self.now);
        }
        if self.plans >= MOST_PLANS {
            return false;
        }
        if let Some(change) = self.names.pop_front() {
            self.attempt(change);
            return true;
        }
        if let Some(seconds) = self.time.next() {
            let earlier = self.attempt(JobChange::TimeLimit(TimeLimit::Seconds(seconds)));
            self.time.learn(seconds, earlier);
            return true;
        }
        if let Some(count) = self.nodes.next() {
            let nodes = NodeCount::exactly(u32::try_from(count).unwrap_or(u32::MAX));
            let earlier = self.attempt(JobChange::Nodes(nodes));
            self.nodes.learn(count, earlier);
            return true;
        }
        false
    }

    /// The start without any change, and the changes that were found, earliest start first. Of time and nodes
    /// only the smallest change is kept.
    #[must_use]
    pub fn finish(mut self) -> (Option<Planned>, Vec<Fix>) {
        let (time, nodes) = (self.time.enough, self.nodes.enough);
        self.fixes.retain(|fix| match &fix.change {
            JobChange::TimeLimit(limit) => limit.seconds() == Some(time),
            JobChange::Nodes(count) => u64::from(count.min) == nodes,
            _ => true,
        });
        self.fixes.sort_by_key(|fix| fix.planned.start);
        (self.planned, self.fixes)
    }

    /// Number of plans that were made.
    #[must_use]
    pub fn plans(&self) -> u32 {
        self.plans
    }

    /// Tries a change. Returns true if the job starts earlier with it.
    fn attempt(&mut self, change: JobChange) -> bool {
        let mut changed = self.cluster.clone();
        let named = JobRef { job: self.job, part: JobPart::Whole, step: None };
        let command = Command::UpdateJob { job: named, changes: vec![change.clone()] };
        let input = Input::Command { caller: self.caller.clone(), request: None, command };
        let epoch = changed.epoch();
        match super::handle(&mut changed, epoch, self.now, input).answer {
            Ok(Reply::Jobs { problems, .. }) if problems.is_empty() => {}
            _ => return false,
        }
        self.plans += 1;
        let Some(planned) = self.plan(&changed) else { return false };
        let earlier = self.planned.as_ref().is_none_or(|before| planned.start < before.start);
        if earlier {
            self.fixes.push(Fix { change, planned });
        }
        earlier
    }

    /// The planned start of the job; `None` if it is not known.
    fn plan(&self, cluster: &Cluster) -> Option<Planned> {
        let plan = foretell(cluster, self.now, &Limits, self.job);
        let starts = plan.starts.iter().find(|start| start.all().any(|part| part.attempt.job == self.job));
        if let Some(start) = starts {
            let parts = start.all().flat_map(|part: &Start| &part.parts);
            return Some(Planned { start: self.now, nodes: each_once(parts.map(|part| part.node)) });
        }
        let waiting = plan.waiting.iter().find(|waiting| waiting.job == self.job)?;
        Some(Planned { start: waiting.start?, nodes: waiting.nodes.clone() })
    }
}

/// Changes to other partitions, accounts of the user, and QOS. Whether the job may have them is decided when
/// they are tried.
fn other_names(cluster: &Cluster, job: JobId) -> VecDeque<JobChange> {
    let Some(job) = cluster.job(job) else { return VecDeque::new() };
    let spec = &job.spec;
    let [partitions, accounts, qos] = MOST_NAMES;
    let others = cluster.partitions().iter().map(|partition| partition.name());
    let others = others.filter(|name| !spec.partitions.contains(name));
    let others = others.take(partitions).map(|name| JobChange::Partition([Arc::clone(name)].into()));
    let tree = cluster.accounts();
    let mut names: Vec<Arc<str>> =
        tree.of_user(&spec.owner.user).map(|own| Arc::clone(&own.account)).collect();
    names.sort();
    names.dedup();
    let names = names.into_iter().filter(|name| Some(name) != spec.account.as_ref());
    let charged = job.spec.partitions.first().and_then(|name| cluster.partition(name));
    let charged = charged.and_then(|partition| cluster.charged(spec, partition).association);
    let allowed = charged.and_then(|id| tree.association(id)).map(|own| tree.qos_of(own));
    let is_other = |name: &&Arc<str>| Some(*name) != spec.qos.as_ref();
    let may = |name: &&Arc<str>| allowed.as_ref().is_none_or(|allowed| allowed.contains(*name));
    let of_tree = tree.qos().map(|known| &known.name).filter(is_other).filter(may);
    others
        .chain(names.take(accounts).map(|name| JobChange::Account(Some(name))))
        .chain(of_tree.take(qos).map(|name| JobChange::Qos(Some(Arc::clone(name)))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The largest amount up to which a job starts earlier is found to within the grain or the tries.
    #[test]
    fn halving_finds_the_smallest_change() {
        for (requested, limit, grain, wanted) in [
            (8, 7, 1, 7),
            (8, 3, 1, 3),
            (8, 0, 1, 0),
            (1, 0, 1, 0),
            (3600, 2000, 60, 1980),
            (600, 599, 60, 540),
        ] {
            let mut halving = Halving::of(requested, grain);
            while let Some(amount) = halving.next() {
                assert!(amount < requested && amount > 0);
                halving.learn(amount, amount <= limit);
            }
            assert_eq!(halving.enough, wanted, "{requested} {limit}");
        }
    }
}
