//! Lets readers of accounting wait for the rows of everything that they may have seen.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Capacity of the queue of requests to the archive.
const QUEUE: usize = 64;
/// Longest wait of a reader for rows that cannot be written; the reader then gets the existing rows.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request to write all rows up to an entry.
struct Wish {
    seq: u64,
    done: oneshot::Sender<()>,
}

/// The readers' end of the queue of requests. Clones share it.
#[derive(Clone)]
pub(crate) struct Accounts {
    wishes: mpsc::Sender<Wish>,
}

/// The archive's end of the queue of requests.
pub(crate) struct Wanted {
    wishes: mpsc::Receiver<Wish>,
    waiting: Vec<Wish>,
}

impl Accounts {
    /// Returns both ends.
    pub(crate) fn new() -> (Self, Wanted) {
        let (sender, wishes) = mpsc::channel(QUEUE);
        (Self { wishes: sender }, Wanted { wishes, waiting: Vec::new() })
    }

    /// Waits until accounting has the rows of all entries up to `seq`, at most [`PATIENCE`].
    pub(crate) async fn reach(&self, seq: u64) {
        let (done, reached) = oneshot::channel();
        let reach = async {
            // An archive that has ended writes no more rows.
            let _ = self.wishes.send(Wish { seq, done }).await;
            let _ = reached.await;
        };
        if tokio::time::timeout(PATIENCE, reach).await.is_err() {
            tracing::warn!(seq, "accounting is behind; what it has is shown");
        }
    }
}

impl Wanted {
    /// Waits for the next request, and keeps it.
    pub(super) async fn come(&mut self) {
        match self.wishes.recv().await {
            Some(wish) => self.waiting.push(wish),
            None => std::future::pending().await,
        }
    }

    /// True if a request waits for rows of entries that have been applied.
    pub(super) fn due(&self, applied: u64) -> bool {
        self.waiting.iter().any(|wish| wish.seq <= applied)
    }

    /// Answers the requests for entries up to `reached`.
    pub(super) fn answer(&mut self, reached: u64) {
        for wish in self.waiting.extract_if(.., |wish| wish.seq <= reached) {
            // A reader may have given up.
            let _ = wish.done.send(());
        }
    }
}
