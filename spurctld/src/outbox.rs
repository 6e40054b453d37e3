//! The outbox: replies, orders to nodes and the feed leave the controller only when all they depend on is
//! durable.
//!
//! One thread takes the owner's results batch by batch, in order, and waits for the commit of each. It then
//! releases the entries into the replica for readers, after that the replies, and then the orders. Readers
//! therefore never see a state older than a reply that was sent.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use spur_core::cluster::{Entry, Event};
use spur_core::controller::Effect;
use tokio::sync::oneshot;

use crate::agents::Agents;
use crate::fault;
use crate::feed::Feed;
use crate::inbox::Answered;
use crate::post::Post;
use crate::programs::Programs;
use crate::store::{Commit, StoreError};

/// The results of a batch of inputs, held until their commit.
#[derive(Default)]
pub(crate) struct Held {
    /// The batch's entries.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// The answers, each with its receiver.
    pub(crate) replies: Vec<(oneshot::Sender<Answered>, Answered)>,
    /// The effects that the shell has to carry out.
    pub(crate) effects: Vec<Effect>,
}

/// The owner's end of the outbox.
pub(crate) struct Outbox {
    sender: Sender<(Option<Under>, Held)>,
}

/// The receiving end of the outbox.
pub(crate) type Queue = Receiver<(Option<Under>, Held)>;

/// A commit under way, with the instant at which the journal got its batch.
pub(crate) struct Under {
    commit: Commit,
    since: Instant,
}

impl Outbox {
    /// Returns the owner's end, and the other one for [`run`]. The journal's own queue bounds the number of
    /// batches between them.
    pub(crate) fn new() -> (Self, Queue) {
        let (sender, receiver) = channel();
        (Self { sender }, receiver)
    }

    /// Holds results until `commit`, and all commits before it, are durable.
    pub(crate) fn put(&self, commit: Option<Commit>, held: Held) {
        // The other end is gone only after a failed commit, which ends the process.
        let under = commit.map(|commit| Under { commit, since: Instant::now() });
        let _ = self.sender.send((under, held));
    }
}

/// Returns the name of the job whose submission an entry records; `None` for any other entry.
fn submitted(entry: &Entry) -> Option<&str> {
    match &entry.event {
        Event::JobSubmitted { spec, .. } => Some(&spec.name),
        _ => None,
    }
}

/// Releases results as they become durable, until the owner has ended.
///
/// # Errors
/// Fails if a batch could not be made durable: nothing leaves after that, and the process must end.
pub(crate) fn run(
    queue: &Queue,
    feed: &mut Feed,
    agents: &Agents,
    (post, programs): (&Post, &Programs),
) -> Result<(), StoreError> {
    while let Ok((commit, held)) = queue.recv() {
        if let Some(Under { commit, since }) = commit {
            commit.wait_blocking()?;
            feed.statistics.meters.commit(since.elapsed());
        }
        let Held { entries, replies, effects } = held;
        fault::point("outbox", entries.iter().filter_map(|entry| submitted(entry)));
        feed.publish(entries);
        for (reply, answered) in replies {
            // A client that has gone away needs no reply.
            let _ = reply.send(answered);
        }
        for effect in effects {
            match effect {
                Effect::Program { attempt, program } => programs.run(attempt, program),
                Effect::Power { program, nodes } => programs.switch(program, &nodes),
                Effect::Tell { attempt, node: None, message } => feed.holders.say(attempt.job, &message),
                Effect::Mail { to, subject, variables } => post.send(to, subject, variables),
                order => agents.order(order),
            }
        }
    }
    Ok(())
}
