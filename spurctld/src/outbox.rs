//! What may leave only when all it depends on is durable: replies, orders to nodes, and the feed.
//!
//! One thread takes what the owner holds back, batch after batch in the order of their making, waits for the commit
//! of each, and then lets it go: first the entries into the replica that reads are served from, then the replies, so
//! that nobody reads an answer older than the reply he has; then the orders.

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

/// What came of a batch of inputs.
#[derive(Default)]
pub(crate) struct Held {
    /// What happened.
    pub(crate) entries: Vec<Arc<Entry>>,
    /// What is answered, to whom.
    pub(crate) replies: Vec<(oneshot::Sender<Answered>, Answered)>,
    /// What is to be done.
    pub(crate) effects: Vec<Effect>,
}

/// The owner's end.
pub(crate) struct Outbox {
    sender: Sender<(Option<Under>, Held)>,
}

/// The other end.
pub(crate) type Queue = Receiver<(Option<Under>, Held)>;

/// A commit under way, with the time at which the journal got its batch.
pub(crate) struct Under {
    commit: Commit,
    since: Instant,
}

impl Outbox {
    /// The owner's end, and the other one for [`run`]. The journal's own queue bounds what lies between.
    pub(crate) fn new() -> (Self, Queue) {
        let (sender, receiver) = channel();
        (Self { sender }, receiver)
    }

    /// Holds something until `commit`, and all before it, is durable.
    pub(crate) fn put(&self, commit: Option<Commit>, held: Held) {
        // The other end is gone only after a failed commit, which ends the process.
        let under = commit.map(|commit| Under { commit, since: Instant::now() });
        let _ = self.sender.send((under, held));
    }
}

/// The name of the job that an entry tells the submission of.
fn submitted(entry: &Entry) -> Option<&str> {
    match &entry.event {
        Event::JobSubmitted { spec, .. } => Some(&spec.name),
        _ => None,
    }
}

/// Lets go what has become durable, until the owner has ended.
///
/// # Errors
/// When something could not be made durable: nothing more leaves, and the process must end.
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
            // Whoever does not wait any more need not be told.
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
