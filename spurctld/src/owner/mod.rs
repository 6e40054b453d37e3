//! The owner: the one thread that decides, on the one cluster that is ahead of the journal.
//!
//! The owner takes messages from the inbox, lets the core handle each input, and passes the resulting entries
//! to the journal as one batch. While a batch syncs, the owner handles the next. It waits for a disk only if
//! the journal's own queue is full. It releases nothing itself: replies, refusals and effects go to the
//! [`outbox`](crate::outbox), which holds them until everything they depend on is durable.

mod judging;
mod requests;
mod steps;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use spur_core::cluster::{Cluster, Entry, Event};
use spur_core::controller::{self, Command, Effect, Input, Outcome, Reject, Reply, timers};
use spur_core::id::JobId;
use spur_core::model::job::Batch;
use spur_core::sched::feasible::{Feasibility, Question, Verdict};
use spur_core::text::time::Time;
use tokio::sync::{mpsc, watch};

use crate::alarm::Alarm;
use crate::answer::Answer;
use crate::blobs::{self, Blobs};
use crate::clock;
use crate::disk_space::{DiskSpace, NoSpace};
use crate::effort::Largest;
use crate::fault;
use crate::inbox::{Answered, Ask, Inbox, Message, Refused};
use crate::outbox::{Held, Outbox};
use crate::store::{self, Journal, StoreError};
pub(crate) use judging::Judged;
use judging::{Judging, Undecided, may_be_undecided};
use requests::{Met, Requests};
use steps::WaitingSteps;

/// Largest number of messages whose entries form one batch. Later messages go into the next batch.
const BATCH: usize = 128;

/// The owner, see the [module](self).
pub(crate) struct Owner {
    pub(crate) cluster: Cluster,
    pub(crate) journal: Journal,
    pub(crate) inbox: Inbox,
    pub(crate) outbox: Outbox,
    pub(crate) blobs: Blobs,
    pub(crate) disk_space: DiskSpace,
    pub(crate) alarm: watch::Sender<Alarm>,
    /// The largest piece of work for one message.
    pub(crate) effort: Largest,
    pub(crate) runtime: tokio::runtime::Handle,
}

/// A batch for the journal, and the results that wait for its commit.
#[derive(Default)]
struct Bundle {
    batch: store::Batch,
    held: Held,
}

struct Work {
    owner: Owner,
    requests: Requests,
    waiting: WaitingSteps,
    judging: Judging,
    /// Jobs whose waiting step requests should be tried again.
    changed: Vec<JobId>,
    bundle: Bundle,
    /// Number of wakeups handled so far.
    woken: u64,
}

impl Owner {
    /// Works until it is requested to stop.
    ///
    /// # Errors
    /// Fails if the journal takes no more batches: the process must then end.
    pub(crate) fn run(self, mut messages: mpsc::Receiver<Message>) -> Result<(), StoreError> {
        let mut work = Work {
            owner: self,
            requests: Requests::default(),
            waiting: WaitingSteps::default(),
            judging: Judging::default(),
            changed: Vec::new(),
            bundle: Bundle::default(),
            woken: 0,
        };
        work.flush()?;
        let mut taken = Vec::with_capacity(BATCH);
        loop {
            if messages.blocking_recv_many(&mut taken, BATCH) == 0 {
                return Ok(());
            }
            let mut stop = false;
            for message in taken.drain(..) {
                let (piece, before) = (Largest::begin(), work.items());
                stop |= work.take(message);
                work.owner.effort.end(&piece, work.items() - before);
            }
            work.flush()?;
            if stop {
                return Ok(());
            }
        }
    }
}

impl Work {
    /// Returns the number of entries written and dependencies checked so far.
    fn items(&self) -> u64 {
        self.owner.cluster.seq() + self.owner.cluster.settled()
    }

    /// Handles a message, and returns true if it was the last.
    fn take(&mut self, message: Message) -> bool {
        match message {
            Message::Ask(ask) => match self.lacks(&ask.input) {
                missing if missing.is_empty() => self.meet(*ask),
                missing => self.fetch(ask, missing),
            },
            Message::Fetched(ask) => self.meet(*ask),
            Message::LookedUp { id, found } => {
                let asks = self.requests.looked_up(id);
                match found {
                    Ok(found) => asks.into_iter().for_each(|ask| self.known_or_new(ask, found.as_ref())),
                    Err(error) => {
                        tracing::error!(%error, "cannot find out whether a request was served before");
                        asks.into_iter().for_each(|ask| self.refuse(ask, Refused::Unsure));
                    }
                }
            }
            Message::Judged { ask, verdicts } => self.judged(*ask, verdicts),
            Message::Ping(reply) => self.hold(Some(reply), Ok(Answer::Done)),
            Message::Stop => return true,
        }
        while let Some(job) = self.changed.pop() {
            for ask in self.waiting.take(job) {
                self.perform(ask);
            }
        }
        false
    }

    /// Returns the batch jobs of a start whose scripts are not in memory.
    fn lacks(&self, input: &Input) -> Vec<Batch> {
        let Input::Start(start) = input else { return Vec::new() };
        let jobs = start.all().filter_map(|start| self.owner.cluster.job(start.attempt.job));
        let batches = jobs.filter_map(|job| job.spec.batch.as_deref());
        batches.filter(|batch| !self.owner.blobs.has(batch)).cloned().collect()
    }

    /// Reads the scripts of a start outside this thread, before the start is decided, so that the launch
    /// needs no database.
    fn fetch(&self, ask: Box<Ask>, missing: Vec<Batch>) {
        let (blobs, inbox) = (self.owner.blobs.clone(), self.owner.inbox.clone());
        self.owner.runtime.spawn(async move {
            for batch in &missing {
                blobs.fetch(batch).await;
            }
            inbox.fetched(ask).await;
        });
    }

    /// Sees to it that a request is served once, however often it comes.
    fn meet(&mut self, ask: Ask) {
        let Some((id, uid)) = ask.request() else { return self.perform(ask) };
        let committed = *self.owner.journal.committed().borrow();
        match self.requests.meet(id, uid, ask.retry, committed) {
            Met::New => self.perform(ask),
            Met::Served(answer) => self.hold_answer(ask, Ok(answer)),
            Met::Foreign => self.refuse(ask, Refused::Rejected(Reject::AccessDenied)),
            Met::BeingLookedUp => self.requests.wait(id, ask),
            Met::Unknown => {
                self.requests.wait(id, ask);
                let (journal, inbox) = (self.owner.journal.clone(), self.owner.inbox.clone());
                self.owner.runtime.spawn(async move {
                    let found = journal.request(id.0).await;
                    inbox.looked_up(id, found).await;
                });
            }
        }
    }

    /// Handles a request after its look-up in the journal.
    fn known_or_new(&mut self, ask: Ask, found: Option<&store::Request>) {
        let uid = ask.request().map(|(_, uid)| uid);
        match found {
            None => match ask.request().and_then(|(id, uid)| self.requests.served(id, uid)) {
                // Another request of the same id, which waited for the same look-up, has been handled.
                Some(answer) => self.hold_answer(ask, Ok(answer)),
                None => self.perform(ask),
            },
            Some(request) if Some(request.uid) != uid => {
                self.refuse(ask, Refused::Rejected(Reject::AccessDenied));
            }
            Some(request) => match serde_json::from_slice(&request.reply) {
                Ok(answer) => self.hold_answer(ask, Ok(answer)),
                Err(error) => {
                    tracing::error!(%error, "the kept answer to a request cannot be read");
                    self.refuse(ask, Refused::Unsure);
                }
            },
        }
    }

    /// Searches for the verdicts of a request, outside this thread.
    fn judge(&self, undecided: Undecided) {
        let inbox = self.owner.inbox.clone();
        self.owner.runtime.spawn_blocking(move || {
            let (ask, verdicts) = undecided.search();
            inbox.judged(ask, verdicts);
        });
    }

    /// Handles a request that returns with its verdicts; its client may have repeated it meanwhile and been
    /// answered.
    fn judged(&mut self, mut ask: Ask, verdicts: Option<Vec<Verdict>>) {
        if let Some(next) = self.judging.end(&ask) {
            self.judge(next);
        }
        let Some(verdicts) = verdicts else { return self.refuse(ask, Refused::Fault) };
        ask.judged.add(verdicts);
        ask.retry |= ask.request().is_some();
        self.meet(ask);
    }

    /// Lets the core handle an input, and holds the results.
    fn perform(&mut self, mut ask: Ask) {
        let now = clock::now(&self.owner.cluster);
        let job = self.owner.cluster.next_job();
        number_blob(&mut ask, job);
        let again = (ask.patient || may_be_undecided(&ask.input)).then(|| ask.input.clone());
        let request = ask.request();
        let woken = matches!(ask.input, Input::Wakeup { .. });
        let epoch = self.owner.journal.epoch();
        // A request that returns has reserved its disk space already.
        if ask.judged.is_first()
            && let Err(no_space) = self.take_disk_space(&ask)
        {
            return self.refuse(ask, Refused::NoSpace(no_space));
        }
        let Ask { input, reply, payload, retry, patient, judged } = ask;
        let Some((outcome, questions)) = self.decide(epoch, now, input, &judged) else {
            return self.hold(reply, Err(Refused::Fault));
        };
        match (&outcome.answer, again) {
            (Err(Reject::StepBusy), Some(input)) if patient => {
                let ask = Ask { reply, patient, ..Ask::of(input) };
                return self.waiting.park(ask);
            }
            (Err(Reject::Undecided), Some(input)) => {
                let ask = Ask { input, payload, retry, patient, judged, reply };
                if let Some(first) = self.judging.put(Undecided::new(ask, questions)) {
                    self.judge(first);
                }
                return;
            }
            _ => {}
        }
        self.woken += u64::from(woken);
        let answer = outcome.answer.map(Answer::from);
        if let (Ok(Answer::Submitted { job, .. }), Some(payload)) = (&answer, payload) {
            let id = blobs::payload_of(*job);
            self.bundle.batch.blobs.push(store::Blob { id: id.0, body: payload.clone() });
            self.owner.blobs.remember(id, payload);
        }
        if let (Some((id, uid)), Ok(answer), false) = (request, &answer, outcome.entries.is_empty()) {
            let seq = self.owner.cluster.seq();
            self.requests.serve(id, uid, seq, answer.clone());
            self.bundle.batch.requests.push(store::Request {
                id: id.0,
                uid,
                seq,
                at: now.0,
                reply: serde_json::to_vec(answer).expect("an answer holds nothing that JSON cannot"),
            });
        }
        for entry in outcome.entries {
            self.journal(entry);
        }
        for effect in outcome.effects {
            match effect {
                Effect::StepsChanged { job } => self.changed.push(job),
                effect => self.bundle.held.effects.push(effect),
            }
        }
        self.hold(reply, answer.map_err(Refused::Rejected));
    }

    /// Reserves the disk space of a submission.
    fn take_disk_space(&mut self, ask: &Ask) -> Result<(), NoSpace> {
        let Input::Command { caller, command: Command::Submit(_), .. } = &ask.input else {
            return Ok(());
        };
        let committed = *self.owner.journal.committed().borrow();
        let bytes = ask.payload.as_ref().map_or(0, |payload| payload.len() as u64);
        self.owner.disk_space.take(&self.owner.cluster, committed, caller, bytes)
    }

    /// Lets the core decide on an input. `None` if the core panicked without a change. After a panic with a
    /// change, or on a wakeup, the state cannot be trusted, and the process ends.
    fn decide(
        &mut self,
        epoch: u64,
        now: Time,
        input: Input,
        judged: &Judged,
    ) -> Option<(Outcome, Vec<Question>)> {
        let name = name_of(&input);
        let (seq, wakeup) = (self.owner.cluster.seq(), matches!(input, Input::Wakeup { .. }));
        let cluster = &mut self.owner.cluster;
        let decided = catch_unwind(AssertUnwindSafe(|| {
            fault::point("check", name.as_deref());
            let feasibility = Feasibility::brief(judged.verdicts.clone(), judged.keeps_old());
            let outcome = controller::handle_briefly(cluster, epoch, now, input, feasibility);
            fault::point("apply", name.as_deref());
            outcome
        }));
        match decided {
            Ok(outcome) => Some(outcome),
            Err(_) if self.owner.cluster.seq() == seq && !wakeup => {
                tracing::error!("a request could not be judged, and is refused; nothing was changed");
                None
            }
            Err(_) => fault::end("the owner has panicked while it changed the cluster"),
        }
    }

    fn journal(&mut self, entry: Arc<Entry>) {
        if let Event::JobsForgotten { jobs, arrays } = &entry.event {
            // All tasks of an array share the script of the submitted record.
            let jobs = jobs.iter().filter(|job| self.owner.cluster.jobs().array(**job).is_none());
            let over = jobs.filter(|job| !arrays.contains(job)).chain(arrays);
            let blobs = over.flat_map(|job| blobs::all_of(*job));
            self.bundle.batch.released.extend(blobs.map(|id| id.0));
        }
        self.bundle.batch.entries.push(crate::recover::to_store(&entry));
        self.bundle.held.entries.push(entry);
    }

    fn refuse(&mut self, ask: Ask, refused: Refused) {
        self.hold_answer(ask, Err(refused));
    }

    fn hold_answer(&mut self, ask: Ask, answer: Result<Answer, Refused>) {
        self.hold(ask.reply, answer);
    }

    fn hold(
        &mut self,
        reply: Option<tokio::sync::oneshot::Sender<Answered>>,
        answer: Result<Answer, Refused>,
    ) {
        let seq = self.owner.cluster.seq();
        if let Some(reply) = reply {
            self.bundle.held.replies.push((reply, Answered { answer, seq }));
        }
    }

    /// Hands over the gathered batch, and sets the alarm for the next wakeup.
    fn flush(&mut self) -> Result<(), StoreError> {
        let Bundle { batch, held } = std::mem::take(&mut self.bundle);
        let commit = match batch.is_empty() {
            true => None,
            false => {
                let committed = *self.owner.journal.committed().borrow();
                self.owner.disk_space.hand_over(committed, self.owner.cluster.seq(), batch.size());
                Some(self.owner.journal.submit_blocking(batch)?)
            }
        };
        self.owner.disk_space.measure_again();
        self.owner.outbox.put(commit, held);
        let cluster = &self.owner.cluster;
        let next =
            Alarm { at: timers::next_wakeup(cluster), clock: cluster.clock().clone(), woken: self.woken };
        self.owner.alarm.send_if_modified(|alarm| {
            let moved = *alarm != next;
            *alarm = next;
            moved
        });
        Ok(())
    }
}

/// Returns the name of a submitted job, in debug builds; `None` for other inputs and in release builds.
fn name_of(input: &Input) -> Option<Arc<str>> {
    match input {
        Input::Command { command: Command::Submit(submission), .. } if cfg!(debug_assertions) => {
            Some(submission.spec.name.clone())
        }
        _ => None,
    }
}

/// Numbers the blob of a submission after the job that it will become.
fn number_blob(ask: &mut Ask, job: JobId) {
    if let Input::Command { command: Command::Submit(submission), .. } = &mut ask.input
        && let Some(batch) = &mut submission.spec.batch
    {
        (batch.script, batch.environment) = (blobs::payload_of(job), blobs::payload_of(job));
    }
}

/// Returns the daemon itself as an operator.
pub(crate) fn daemon() -> spur_core::model::caller::Caller {
    let owner = spur_core::model::caller::Owner {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        user: "spur".into(),
        group: "spur".into(),
    };
    spur_core::model::caller::Caller::new(Arc::new(owner), Arc::default(), true)
}

/// Puts a policy in force before any client is served.
///
/// # Errors
/// The core's refusal.
pub(crate) fn reconfigure_first(
    cluster: &mut Cluster,
    epoch: u64,
    now: Time,
    policy: Arc<spur_core::model::config::Policy>,
) -> Result<Vec<Arc<Entry>>, Reject> {
    let file = policy.qos.clone();
    let command = Command::Reconfigure(policy);
    let input = Input::Command { caller: daemon(), request: None, command };
    let outcome = controller::handle(cluster, epoch, now, input);
    let Reply::Reconfigured { changes } = outcome.answer? else { return Ok(outcome.entries) };
    for told in changes.iter().filter(|told| told.starts_with("[[qos]]")) {
        tracing::warn!("{told}");
    }
    let mut entries = outcome.entries;
    let begun = controller::handle(cluster, epoch, now, Input::FileQos(file));
    begun.answer?;
    entries.extend(begun.entries);
    Ok(entries)
}
