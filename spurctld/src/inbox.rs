//! The queue of the owner: one bounded queue for everything that may change the cluster.
//!
//! Clients never wait for a place: a full queue is answered with "busy" at once, and clients back off. The
//! planner and the nodes do wait, each delaying only itself.

use bytes::Bytes;
use spur_core::controller::{Command, Input, Reject};
use spur_core::id::RequestId;
use spur_core::sched::feasible::Verdict;
use tokio::sync::{mpsc, oneshot};

use crate::answer::Answer;
use crate::disk_space::NoSpace;
use crate::owner::Judged;
use crate::store::{self, StoreError};

/// Capacity of the queue. The owner handles some ten thousand requests per second, so a full queue is less
/// than a second's work.
const CAPACITY: usize = 8192;

/// One request to the owner.
#[derive(Debug)]
pub struct Ask {
    /// The input for the core.
    pub input: Input,
    /// Script and environment of a submission, [as one blob](crate::blobs).
    pub payload: Option<Bytes>,
    /// True if a request with the same id may have been handled before.
    pub retry: bool,
    /// True if a step that finds its job's CPUs taken waits for them.
    pub patient: bool,
    /// Verdicts of searches that ran outside the owner's thread.
    pub(crate) judged: Judged,
    /// Receives the answer once everything that it depends on is durable; `None` without a waiting caller.
    pub reply: Option<oneshot::Sender<Answered>>,
}

/// The owner's answer, durable.
#[derive(Clone, Debug)]
pub struct Answered {
    /// The outcome of the request.
    pub answer: Result<Answer, Refused>,
    /// The last entry that the answer depends on.
    pub seq: u64,
}

/// The reason why a request was not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The core refused the request.
    Rejected(Reject),
    /// The journal could not say whether the request was handled before; the client has to ask again.
    Unsure,
    /// The controller's disk has no space for the submission.
    NoSpace(NoSpace),
    /// The controller failed at the request by a fault of its own.
    Fault,
}

/// The reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The queue is full.
    #[error("too many requests are waiting; try again")]
    Busy,
    /// The controller is stopping.
    #[error("the controller is stopping")]
    Stopping,
}

/// A message in the owner's queue.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request.
    Ask(Box<Ask>),
    /// The journal's record of a request that may be a repetition.
    LookedUp { id: RequestId, found: Result<Option<store::Request>, StoreError> },
    /// A request that took too long for the owner's thread, with its verdicts; `None` after a panic.
    Judged { ask: Box<Ask>, verdicts: Option<Vec<Verdict>> },
    /// A start whose scripts are in memory.
    Fetched(Box<Ask>),
    /// Somebody wants to know whether answers still leave the controller.
    Ping(oneshot::Sender<Answered>),
    /// The order to finish the accepted requests and end.
    Stop,
}

/// The sending end of the queue. Clones share it.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: mpsc::Sender<Message>,
}

/// Places in the queue that are reserved for one sender.
pub(crate) struct Room<'a> {
    places: mpsc::PermitIterator<'a, Message>,
}

impl Room<'_> {
    /// Puts a request in a reserved place, and returns the receiver of its answer; `Busy` if no place is
    /// left.
    pub(crate) fn put(&mut self, mut ask: Ask) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        ask.reply = Some(reply);
        self.places.next().ok_or(NoAnswer::Busy)?.send(Message::Ask(Box::new(ask)));
        Ok(answer)
    }
}

impl Ask {
    /// Returns a request without a receiver for its answer.
    pub fn of(input: Input) -> Self {
        Self { input, payload: None, retry: false, patient: false, judged: Judged::default(), reply: None }
    }

    /// Returns the client's id of the request, and the client's user; `None` for an input without an id.
    pub(crate) fn request(&self) -> Option<(RequestId, u32)> {
        match &self.input {
            Input::Command { caller, request: Some(id), .. } => Some((*id, caller.owner.uid)),
            _ => None,
        }
    }

    /// True if no caller waits for the answer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// Returns the job of a request for a step; `None` for any other request.
    pub(crate) fn step_of(&self) -> Option<spur_core::id::JobId> {
        match &self.input {
            Input::Command { command: Command::CreateStep { job, .. }, .. } => Some(*job),
            _ => None,
        }
    }
}

impl Inbox {
    /// Returns a new queue: its sending and its receiving end.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender }, receiver)
    }

    /// Returns the number of requests in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Puts a client's request in the queue without waiting, and returns the receiver of its answer.
    ///
    /// # Errors
    /// [`NoAnswer::Busy`] if the queue is full; [`NoAnswer::Stopping`] if the controller ends.
    pub fn offer(&self, mut ask: Ask) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        ask.reply = Some(reply);
        self.sender.try_send(Message::Ask(Box::new(ask))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NoAnswer::Busy,
            mpsc::error::TrySendError::Closed(_) => NoAnswer::Stopping,
        })?;
        Ok(answer)
    }

    /// Puts a client's request in the queue without waiting for a place, and waits for the answer.
    ///
    /// # Errors
    /// [`NoAnswer::Busy`] if the queue is full; [`NoAnswer::Stopping`] if the controller ends.
    pub async fn ask(&self, ask: Ask) -> Result<Answered, NoAnswer> {
        self.offer(ask)?.await.map_err(|_| NoAnswer::Stopping)
    }

    /// Puts a request in the queue, waiting for a place if necessary, and returns the receiver of its answer.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`] if the controller ends.
    pub async fn enqueue(&self, mut ask: Ask) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        ask.reply = Some(reply);
        self.sender.send(Message::Ask(Box::new(ask))).await.map_err(|_| NoAnswer::Stopping)?;
        Ok(answer)
    }

    /// Reserves places for `requests` requests at once, so that the owner wakes once for all of them.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`] if the controller ends.
    pub(crate) async fn room(&self, requests: usize) -> Result<Room<'_>, NoAnswer> {
        let places = self.sender.reserve_many(requests).await.map_err(|_| NoAnswer::Stopping)?;
        Ok(Room { places })
    }

    /// Puts an input in the queue, waiting for a place if necessary, and waits for the answer.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`] if the controller ends.
    pub async fn insist(&self, input: Input) -> Result<Answered, NoAnswer> {
        self.enqueue(Ask::of(input)).await?.await.map_err(|_| NoAnswer::Stopping)
    }

    /// Puts an input without an answer in the queue, waiting for a place if necessary.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`] if the controller ends.
    pub async fn tell(&self, input: Input) -> Result<(), NoAnswer> {
        self.sender.send(Message::Ask(Box::new(Ask::of(input)))).await.map_err(|_| NoAnswer::Stopping)
    }

    /// Puts an input in the queue from a thread outside the runtime, and returns the receiver of its answer.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`] if the controller ends.
    pub fn propose(&self, input: Input) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { reply: Some(reply), ..Ask::of(input) };
        self.sender.blocking_send(Message::Ask(Box::new(ask))).map_err(|_| NoAnswer::Stopping)?;
        Ok(answer)
    }

    /// Waits until a message has passed through the owner and through all batches on their way to the
    /// journal.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`] if the controller ends.
    pub(crate) async fn ping(&self) -> Result<(), NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Ping(reply)).await.map_err(|_| NoAnswer::Stopping)?;
        answer.await.map(|_| ()).map_err(|_| NoAnswer::Stopping)
    }

    /// Passes the journal's record of a request to the owner.
    pub(crate) async fn looked_up(&self, id: RequestId, found: Result<Option<store::Request>, StoreError>) {
        // An owner that has ended needs no message.
        let _ = self.sender.send(Message::LookedUp { id, found }).await;
    }

    /// Returns a judged request to the owner, from a thread outside the runtime.
    pub(crate) fn judged(&self, ask: Ask, verdicts: Option<Vec<Verdict>>) {
        // An owner that has ended needs no message.
        let _ = self.sender.blocking_send(Message::Judged { ask: Box::new(ask), verdicts });
    }

    /// Returns a start to the owner after its scripts have been read.
    pub(crate) async fn fetched(&self, ask: Box<Ask>) {
        // An owner that has ended needs no answer.
        let _ = self.sender.send(Message::Fetched(ask)).await;
    }

    /// Lets the owner finish what it has and end.
    pub(crate) async fn stop(&self) {
        // An owner that has ended already needs no order.
        let _ = self.sender.send(Message::Stop).await;
    }
}
