//! Allocations whose command holds them: `srun` and `salloc` keep a stream open while they run.
//!
//! The end of a command shows at once when its connection closes, otherwise by missing answers to
//! keep-alives. The command may return, e.g. after a restart of the controller. An allocation without a
//! command for `[controller] inactive_limit` is reported to the owner. Nothing of this is durable: a restart
//! gives every such job that time again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use spur_core::cluster::{Cluster, Entry, Event};
use spur_core::controller::Input;
use spur_core::id::{JobId, NodeId};
use spur_core::model::job::Job;
use spur_core::model::phase::{EndState, Phase};
use spur_core::text::hostlist::HostList;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::inbox::Inbox;
use crate::replica::Replica;

/// The allocations that need a command to hold them. Clones share the table.
#[derive(Clone, Default)]
pub(crate) struct Holders {
    table: Arc<Table>,
}

#[derive(Default)]
struct Table {
    jobs: Mutex<BTreeMap<JobId, Holding>>,
    changed: Notify,
}

/// Messages queued for a command that reads them slowly; further ones are dropped.
const AHEAD: usize = 16;

/// The commands that hold one allocation.
enum Holding {
    /// Message queues of the commands that hold the allocation; normally one.
    By(Vec<mpsc::Sender<String>>),
    /// No command has held the allocation since this instant.
    Nobody(Instant),
}

/// One command's hold of an allocation; dropping the value ends it.
pub(crate) struct Hold {
    holders: Holders,
    job: JobId,
    /// Messages for the command's user.
    pub(crate) messages: mpsc::Receiver<String>,
}

impl Holders {
    /// Records the allocations of a cluster, each without a command.
    pub(crate) fn of(cluster: &Cluster) -> Self {
        let holders = Self::default();
        let open = cluster.jobs().iter().filter(|job| needs_holder(job)).map(|job| (job.id, nobody()));
        holders.jobs().extend(open);
        holders
    }

    /// Records the changes that committed entries make; `cluster` already has them applied.
    pub(crate) fn tell(&self, cluster: &Cluster, entries: &[Arc<Entry>]) {
        let mut told = false;
        let mut failed = Vec::new();
        for entry in entries {
            self.tell_of_failure(cluster, &entry.event, &mut failed);
            match &entry.event {
                Event::JobSubmitted { job, spec } if spec.needs_client() => {
                    self.jobs().entry(*job).or_insert_with(nobody);
                    told = true;
                }
                Event::HetJobSubmitted { jobs, specs } => {
                    let held = jobs.iter().zip(specs).filter(|(_, spec)| spec.needs_client());
                    held.for_each(|(job, _)| {
                        self.jobs().entry(*job).or_insert_with(nobody);
                    });
                    told = true;
                }
                Event::JobEnding { job, .. } | Event::JobEnded { job, .. }
                    if !cluster.job(*job).is_some_and(needs_holder) =>
                {
                    self.jobs().remove(job);
                }
                _ => {}
            }
        }
        if told {
            self.table.changed.notify_one();
        }
    }

    /// Informs the commands that hold an allocation of its failed nodes. `failed` lists the nodes that
    /// earlier events took out of service.
    fn tell_of_failure(&self, cluster: &Cluster, event: &Event, failed: &mut Vec<NodeId>) {
        let say = |job: JobId, nodes: Vec<NodeId>| {
            if !nodes.is_empty() {
                let names = HostList::from_names(cluster.names_of(nodes));
                self.say(job, &format!("error: Node failure on {names}"));
            }
        };
        match event {
            Event::NodeDowned { node, .. } => failed.push(*node),
            Event::JobNodeLost { job, node, .. } => say(*job, vec![*node]),
            Event::JobEnding { job, outcome, .. } if outcome.state == EndState::NodeFail => {
                let alloc = cluster.job(*job).and_then(|job| job.phase.alloc());
                let nodes = alloc.into_iter().flat_map(|alloc| alloc.nodes.iter().map(|part| part.node));
                say(*job, nodes.filter(|node| failed.contains(node)).collect());
            }
            _ => {}
        }
    }

    /// Holds an allocation from now on.
    pub(crate) fn hold(&self, job: JobId) -> Hold {
        let (tell, messages) = mpsc::channel(AHEAD);
        match self.jobs().get_mut(&job) {
            Some(Holding::By(commands)) => commands.push(tell),
            Some(holding) => *holding = Holding::By(vec![tell]),
            None => {}
        }
        Hold { holders: self.clone(), job, messages }
    }

    /// Returns the number of allocations that a command holds.
    pub(crate) fn held(&self) -> usize {
        self.jobs().values().filter(|holding| matches!(holding, Holding::By(_))).count()
    }

    /// Sends a message to the commands that hold an allocation, without waiting.
    pub(crate) fn say(&self, job: JobId, message: &str) {
        if let Some(Holding::By(commands)) = self.jobs().get(&job) {
            for command in commands {
                // A command that does not read, or has ended, loses the message.
                let _ = command.try_send(message.to_owned());
            }
        }
    }

    /// Reports allocations without a command to the owner, until the owner ends.
    pub(crate) async fn watch(self, replica: Replica, inbox: Inbox) {
        loop {
            let limit = Duration::from_secs(replica.read().policy().jobs.inactive_limit.0);
            let (jobs, next) = self.inactive(Instant::now(), limit, |job| replica.read().awaits_report(job));
            if !jobs.is_empty() {
                tracing::warn!(?jobs, "the commands that hold these allocations are gone");
                if inbox.tell(Input::Inactive { jobs }).await.is_err() {
                    return;
                }
            }
            let wait = async {
                match next {
                    Some(at) => tokio::time::sleep_until(at).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = wait => {}
                () = self.table.changed.notified() => {}
            }
        }
    }

    /// Removes and returns the allocations without a command for `limit`, with the instant at which the next
    /// becomes due.
    ///
    /// An allocation whose nodes have not reported yet may have ended, so its time begins again.
    fn inactive(
        &self,
        now: Instant,
        limit: Duration,
        awaits_report: impl Fn(JobId) -> bool,
    ) -> (Vec<JobId>, Option<Instant>) {
        if limit.is_zero() {
            return (Vec::new(), None);
        }
        let mut jobs = self.jobs();
        let due = |holding: &Holding| match holding {
            Holding::Nobody(since) => Some(*since + limit),
            Holding::By(_) => None,
        };
        let over = |holding: &Holding| due(holding).is_some_and(|at| at <= now);
        let waiting = jobs.iter_mut().filter(|(job, holding)| over(holding) && awaits_report(**job));
        waiting.for_each(|(_, holding)| *holding = Holding::Nobody(now));
        let gone = jobs.iter().filter(|(_, holding)| over(holding)).map(|(job, _)| *job).collect();
        jobs.retain(|_, holding| !over(holding));
        (gone, jobs.values().filter_map(due).min())
    }

    fn jobs(&self) -> MutexGuard<'_, BTreeMap<JobId, Holding>> {
        self.table.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.messages.close();
        if let Some(holding) = self.holders.jobs().get_mut(&self.job)
            && let Holding::By(commands) = holding
        {
            commands.retain(|command| !command.is_closed());
            if commands.is_empty() {
                *holding = nobody();
            }
        }
        self.holders.table.changed.notify_one();
    }
}

fn nobody() -> Holding {
    Holding::Nobody(Instant::now())
}

/// True if the job ends unless a command holds it.
fn needs_holder(job: &Job) -> bool {
    job.spec.needs_client() && !matches!(job.phase, Phase::Completing(_) | Phase::Ended(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: JobId = JobId(7);
    const LIMIT: Duration = Duration::from_secs(60);

    #[test]
    fn an_allocation_that_nobody_holds_is_told_of_once() {
        let holders = Holders::default();
        holders.jobs().insert(JOB, nobody());
        let hold = holders.hold(JOB);
        let later = Instant::now() + LIMIT * 2;
        assert_eq!(holders.inactive(later, LIMIT, |_| false), (vec![], None), "it is held");
        drop(hold);
        let (gone, next) = holders.inactive(Instant::now(), LIMIT, |_| false);
        assert!(gone.is_empty() && next.is_some());
        assert_eq!(holders.inactive(later, Duration::ZERO, |_| false), (vec![], None), "there is no limit");
        let later = Instant::now() + LIMIT;
        let (gone, next) = holders.inactive(later, LIMIT, |job| job == JOB);
        assert_eq!((gone, next), (vec![], Some(later + LIMIT)), "its nodes have not reported");
        let later = later + LIMIT;
        assert_eq!(holders.inactive(later, LIMIT, |_| false), (vec![JOB], None));
        assert_eq!(holders.inactive(later, LIMIT, |_| false), (vec![], None));
    }

    #[test]
    fn whoever_holds_it_hears_what_is_said() {
        let holders = Holders::default();
        holders.jobs().insert(JOB, nobody());
        holders.say(JOB, "nobody hears this");
        let mut hold = holders.hold(JOB);
        holders.say(JobId(8), "of another");
        (0..=AHEAD).for_each(|number| holders.say(JOB, &number.to_string()));
        let heard: Vec<String> = std::iter::from_fn(|| hold.messages.try_recv().ok()).collect();
        let ahead: Vec<String> = (0..AHEAD).map(|number| number.to_string()).collect();
        assert_eq!(heard, ahead, "what a slow command does not read is lost");
    }

    #[test]
    fn a_command_that_comes_back_holds_it_again() {
        let holders = Holders::default();
        holders.jobs().insert(JOB, nobody());
        let first = holders.hold(JOB);
        let second = holders.hold(JOB);
        drop(first);
        let later = Instant::now() + LIMIT * 2;
        assert_eq!(holders.inactive(later, LIMIT, |_| false), (vec![], None));
        drop(second);
        let _third = holders.hold(JOB);
        assert_eq!(holders.inactive(later, LIMIT, |_| false), (vec![], None));
    }
}
