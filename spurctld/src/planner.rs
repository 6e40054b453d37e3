//! The planner's thread: asks the core what should start, on a cluster of its own.
//!
//! It is fed with committed entries, so it never holds up a decision or a reply, and whatever it proposes is checked
//! again by the owner. After a pass it waits for the owner's answers: each says from which entry on a start shows,
//! and no later pass builds on less. What a pass says of the jobs that do not start is published for readers.

mod first_fit;

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use spur_core::cluster::{Cluster, Event};
use spur_core::controller::Input;
use spur_core::id::{JobId, NodeId};
use spur_core::sched::plan::{Plan, Waiting};
use spur_core::text::time::Time;

use crate::clock;
use crate::feed::Entries;
use crate::inbox::{Inbox, NoAnswer};

/// Priorities grow with age, so the queue is looked at this often even when nothing happens.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// What the last pass said of jobs that wait. Clones share it.
#[derive(Clone, Default)]
pub struct Overlay {
    last: Arc<RwLock<Arc<Outlooks>>>,
}

/// What one pass said.
#[derive(Debug, Default)]
pub struct Outlooks {
    /// When it was made.
    pub evaluated: Time,
    /// By job number.
    waiting: Vec<Waiting>,
    /// Nodes that are kept free for a job.
    planned: BTreeSet<NodeId>,
}

impl Overlay {
    /// What the last pass said.
    pub fn read(&self) -> Arc<Outlooks> {
        Arc::clone(&self.last.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn publish(&self, outlooks: Outlooks) {
        *self.last.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(outlooks);
    }
}

impl Outlooks {
    fn new(evaluated: Time, mut waiting: Vec<Waiting>) -> Self {
        waiting.sort_by_key(|waiting| waiting.job);
        let planned = waiting.iter().flat_map(|waiting| waiting.nodes.iter().copied()).collect();
        Self { evaluated, waiting, planned }
    }

    /// What it said of a job, if it looked at it.
    pub fn of(&self, job: JobId) -> spur_proto::convert::job::Outlook<'_> {
        let at = self.waiting.binary_search_by_key(&job, |waiting| waiting.job).ok();
        let waiting = at.map(|at| &self.waiting[at]);
        spur_proto::convert::job::Outlook { waiting, evaluated: waiting.map(|_| self.evaluated) }
    }

    /// Whether it keeps a node free for a job.
    pub fn plans(&self, node: NodeId) -> bool {
        self.planned.contains(&node)
    }
}

/// The planner. See the module.
pub(crate) struct Planner {
    pub(crate) cluster: Cluster,
    pub(crate) entries: Receiver<Entries>,
    pub(crate) inbox: Inbox,
    pub(crate) overlay: Overlay,
    /// No pass is made before this entry has been applied.
    pub(crate) floor: u64,
}

impl Planner {
    /// Plans until the feed or the owner ends.
    pub(crate) fn run(mut self) {
        // The first pass answers for what happened before this start.
        let mut changed = true;
        loop {
            let behind = self.cluster.seq() < self.floor;
            let pause = if changed && !behind { Duration::ZERO } else { self.pause() };
            match self.catch_up(pause) {
                Ok(more) => changed |= more,
                Err(RecvTimeoutError::Timeout) => changed = true,
                Err(RecvTimeoutError::Disconnected) => return,
            }
            if !changed || self.cluster.seq() < self.floor {
                continue;
            }
            changed = false;
            let now = clock::now().max(self.cluster.at());
            let plan = first_fit::plan(&self.cluster, now);
            if self.propose(plan, now).is_err() {
                return;
            }
        }
    }

    /// Sends a plan to the owner and waits for its answers; by then the entries they led to are in the queue.
    fn propose(&mut self, plan: Plan, now: Time) -> Result<(), NoAnswer> {
        self.overlay.publish(Outlooks::new(now, plan.waiting));
        let mut answers = Vec::with_capacity(plan.starts.len());
        for start in plan.starts {
            answers.push(self.inbox.propose(Input::Start(Box::new(start)))?);
        }
        if let Some((job, start)) = plan.promise {
            answers.push(self.inbox.propose(Input::Promise { job, start })?);
        }
        let mut seq = 0;
        for answer in answers {
            let answered = answer.blocking_recv().map_err(|_| NoAnswer::Stopping)?;
            if let Err(refused) = answered.answer {
                tracing::debug!(?refused, "a proposal was not taken");
            }
            seq = seq.max(answered.seq);
        }
        self.floor = seq;
        Ok(())
    }

    /// Applies what is in the queue, waiting at most `pause` for something; says whether any of it may let a job start.
    fn catch_up(&mut self, pause: Duration) -> Result<bool, RecvTimeoutError> {
        let mut matters = false;
        let mut next = match pause {
            Duration::ZERO => self.entries.try_recv().map_err(|error| match error {
                std::sync::mpsc::TryRecvError::Empty => RecvTimeoutError::Timeout,
                std::sync::mpsc::TryRecvError::Disconnected => RecvTimeoutError::Disconnected,
            }),
            pause => self.entries.recv_timeout(pause),
        };
        if pause.is_zero() && matches!(next, Err(RecvTimeoutError::Timeout)) {
            return Ok(false);
        }
        loop {
            for entry in next?.iter() {
                self.cluster.apply(entry);
                matters |= is_news(&entry.event);
            }
            next = match self.entries.try_recv() {
                Ok(entries) => Ok(entries),
                Err(_) => return Ok(matters),
            };
        }
    }

    /// How long nothing can happen to the queue without an entry.
    fn pause(&self) -> Duration {
        let now = clock::now();
        let begins = self.cluster.jobs().pending().filter_map(|job| match &job.phase {
            spur_core::model::phase::Phase::Pending(pending) => pending.not_before.filter(|at| *at > now),
            _ => None,
        });
        begins.min().map_or(LONGEST_PAUSE, |at| clock::until(at).clamp(Duration::from_millis(1), LONGEST_PAUSE))
    }
}

/// Whether an event may let a job start, or change what is to be said of one.
fn is_news(event: &Event) -> bool {
    match event {
        Event::PolicyChanged { .. }
        | Event::JobSubmitted { .. }
        | Event::JobUpdated { .. }
        | Event::JobHeld { .. }
        | Event::JobReleased { .. }
        | Event::NodeReleased { .. }
        | Event::JobEnded { .. }
        | Event::JobRequeued { .. }
        | Event::JobStarted { .. }
        | Event::NodeRegistered { .. }
        | Event::NodeCleaned { .. }
        | Event::NodeDowned { .. }
        | Event::NodeReturned { .. }
        | Event::NodeDrained { .. }
        | Event::NodeResumed { .. }
        | Event::NodeUpdated { .. }
        | Event::PartitionSet { .. } => true,
        Event::StartPromised { .. }
        | Event::JobWarned { .. }
        | Event::JobEnding { .. }
        | Event::JobKilled { .. }
        | Event::JobsForgotten { .. }
        | Event::StepStarted { .. }
        | Event::StepNodeEnded { .. } => false,
    }
}
