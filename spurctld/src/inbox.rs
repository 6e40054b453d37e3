//! The way to the owner: one bounded queue for everything that may change the cluster.
//!
//! Clients never wait for room: a full queue is answered with "busy" at once, and they back off. The planner and the
//! nodes do wait, each for itself alone.

use bytes::Bytes;
use spur_core::controller::{Command, Input, Reject};
use spur_core::id::RequestId;
use spur_core::sched::feasible::Verdict;
use tokio::sync::{mpsc, oneshot};

use crate::answer::Answer;
use crate::disk_space::NoSpace;
use crate::owner::Judged;
use crate::store::{self, StoreError};

/// Requests that may wait for the owner. At some ten thousand a second that is a fraction of a second's work.
const CAPACITY: usize = 8192;

/// Something for the owner to do.
#[derive(Debug)]
pub struct Ask {
    /// What.
    pub input: Input,
    /// Script and environment of a submission, [as one blob](crate::blobs).
    pub payload: Option<Bytes>,
    /// Whether this may have been asked before under the same request id.
    pub retry: bool,
    /// Whether a step that finds its job's CPUs taken waits for them.
    pub patient: bool,
    /// What searches outside the owner's thread have found of it.
    pub(crate) judged: Judged,
    /// Where the answer goes once all it depends on is durable.
    pub reply: Option<oneshot::Sender<Answered>>,
}

/// The owner's answer, durable.
#[derive(Clone, Debug)]
pub struct Answered {
    /// What came of it.
    pub answer: Result<Answer, Refused>,
    /// The last entry that the answer depends on.
    pub seq: u64,
}

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The core said no.
    Rejected(Reject),
    /// Whether it was done before could not be found out just now; ask again.
    Unsure,
    /// The controller's disk has no space for it.
    NoSpace(NoSpace),
    /// The controller failed at it, by a fault of its own.
    Fault,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// The queue is full.
    #[error("too many requests are waiting; try again")]
    Busy,
    /// The controller is stopping.
    #[error("the controller is stopping")]
    Stopping,
}

/// What lies in the queue.
#[derive(Debug)]
pub(crate) enum Message {
    /// A request.
    Ask(Box<Ask>),
    /// What the journal knows of a request that may have been made before.
    LookedUp { id: RequestId, found: Result<Option<store::Request>, StoreError> },
    /// A request that the owner could not judge in a moment, with what was found; `None` after a panic.
    Judged { ask: Box<Ask>, verdicts: Option<Vec<Verdict>> },
    /// A start whose scripts are in memory.
    Fetched(Box<Ask>),
    /// Somebody wants to know whether answers still leave the controller.
    Ping(oneshot::Sender<Answered>),
    /// Finish what has been taken and end.
    Stop,
}

/// The sending end. Clones share the queue.
#[derive(Clone, Debug)]
pub struct Inbox {
    sender: mpsc::Sender<Message>,
}

/// Places in the queue that are kept for someone.
pub(crate) struct Room<'a> {
    places: mpsc::PermitIterator<'a, Message>,
}

impl Room<'_> {
    /// Puts a request in one of them, and returns where its answer will be; refused if there are no more.
    pub(crate) fn put(&mut self, mut ask: Ask) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        ask.reply = Some(reply);
        self.places.next().ok_or(NoAnswer::Busy)?.send(Message::Ask(Box::new(ask)));
        Ok(answer)
    }
}

impl Ask {
    /// An input that nobody waits for.
    pub fn of(input: Input) -> Self {
        Self { input, payload: None, retry: false, patient: false, judged: Judged::default(), reply: None }
    }

    /// The name its client gave it, and the client.
    pub(crate) fn request(&self) -> Option<(RequestId, u32)> {
        match &self.input {
            Input::Command { caller, request: Some(id), .. } => Some((*id, caller.owner.uid)),
            _ => None,
        }
    }

    /// Whether its client waits for the answer no longer.
    pub(crate) fn is_given_up(&self) -> bool {
        self.reply.as_ref().is_none_or(oneshot::Sender::is_closed)
    }

    /// The job in which a step is asked for.
    pub(crate) fn step_of(&self) -> Option<spur_core::id::JobId> {
        match &self.input {
            Input::Command { command: Command::CreateStep { job, .. }, .. } => Some(*job),
            _ => None,
        }
    }
}

impl Inbox {
    /// A queue and its receiving end.
    pub(crate) fn new() -> (Self, mpsc::Receiver<Message>) {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        (Self { sender }, receiver)
    }

    /// How many requests wait in the queue.
    pub(crate) fn waiting(&self) -> usize {
        self.sender.max_capacity() - self.sender.capacity()
    }

    /// Puts a client's request in the queue and returns where its answer will be.
    ///
    /// # Errors
    /// [`NoAnswer::Busy`] if there is no room now.
    pub fn offer(&self, mut ask: Ask) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        ask.reply = Some(reply);
        self.sender.try_send(Message::Ask(Box::new(ask))).map_err(|error| match error {
            mpsc::error::TrySendError::Full(_) => NoAnswer::Busy,
            mpsc::error::TrySendError::Closed(_) => NoAnswer::Stopping,
        })?;
        Ok(answer)
    }

    /// Asks for a client and waits for the answer.
    ///
    /// # Errors
    /// [`NoAnswer`].
    pub async fn ask(&self, ask: Ask) -> Result<Answered, NoAnswer> {
        self.offer(ask)?.await.map_err(|_| NoAnswer::Stopping)
    }

    /// Puts a request in the queue, waiting for room if need be, and returns where its answer will be.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`].
    pub async fn enqueue(&self, mut ask: Ask) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        ask.reply = Some(reply);
        self.sender.send(Message::Ask(Box::new(ask))).await.map_err(|_| NoAnswer::Stopping)?;
        Ok(answer)
    }

    /// Waits for room for so many requests at once: the owner is woken once for them.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`].
    pub(crate) async fn room(&self, requests: usize) -> Result<Room<'_>, NoAnswer> {
        let places = self.sender.reserve_many(requests).await.map_err(|_| NoAnswer::Stopping)?;
        Ok(Room { places })
    }

    /// Asks, waiting for room if need be, and waits for the answer.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`].
    pub async fn insist(&self, input: Input) -> Result<Answered, NoAnswer> {
        self.enqueue(Ask::of(input)).await?.await.map_err(|_| NoAnswer::Stopping)
    }

    /// Says something that needs no answer, waiting for room if need be.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`].
    pub async fn tell(&self, input: Input) -> Result<(), NoAnswer> {
        self.sender.send(Message::Ask(Box::new(Ask::of(input)))).await.map_err(|_| NoAnswer::Stopping)
    }

    /// [`Inbox::insist`] for a thread of its own, without waiting for the answer.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`].
    pub fn propose(&self, input: Input) -> Result<oneshot::Receiver<Answered>, NoAnswer> {
        let (reply, answer) = oneshot::channel();
        let ask = Ask { reply: Some(reply), ..Ask::of(input) };
        self.sender.blocking_send(Message::Ask(Box::new(ask))).map_err(|_| NoAnswer::Stopping)?;
        Ok(answer)
    }

    /// Waits until a question has passed through the owner and through all that is on its way to the journal.
    ///
    /// # Errors
    /// [`NoAnswer::Stopping`].
    pub(crate) async fn ping(&self) -> Result<(), NoAnswer> {
        let (reply, answer) = oneshot::channel();
        self.sender.send(Message::Ping(reply)).await.map_err(|_| NoAnswer::Stopping)?;
        answer.await.map(|_| ()).map_err(|_| NoAnswer::Stopping)
    }

    /// Tells the owner what the journal knows of a request.
    pub(crate) async fn looked_up(&self, id: RequestId, found: Result<Option<store::Request>, StoreError>) {
        // An owner that has ended needs no answer.
        let _ = self.sender.send(Message::LookedUp { id, found }).await;
    }

    /// Gives a request back to the owner with what was found of it, from a thread of its own.
    pub(crate) fn judged(&self, ask: Ask, verdicts: Option<Vec<Verdict>>) {
        // An owner that has ended needs no answer.
        let _ = self.sender.blocking_send(Message::Judged { ask: Box::new(ask), verdicts });
    }

    /// Gives a start back to the owner whose scripts have been read.
    pub(crate) async fn fetched(&self, ask: Box<Ask>) {
        // An owner that has ended needs no answer.
        let _ = self.sender.send(Message::Fetched(ask)).await;
    }

    /// Lets the owner finish what it has and end.
    pub(crate) async fn stop(&self) {
        // An owner that has ended already is what is wanted.
        let _ = self.sender.send(Message::Stop).await;
    }
}
