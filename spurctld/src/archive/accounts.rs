//! Seeing to it that who reads accounting reads what he has seen happen.

use std::time::Duration;

use tokio::sync::{mpsc, oneshot};

/// Requests that may wait for the archive.
const QUEUE: usize = 64;
/// How long a reader waits for rows that cannot be written; he then gets what there is.
const PATIENCE: Duration = Duration::from_secs(10);

/// Someone who wants all rows up to an entry written.
struct Wish {
    seq: u64,
    done: oneshot::Sender<()>,
}

/// Where readers ask. Clones share the way.
#[derive(Clone)]
pub(crate) struct Accounts {
    wishes: mpsc::Sender<Wish>,
}

/// The archive's end: who wants what.
pub(crate) struct Wanted {
    wishes: mpsc::Receiver<Wish>,
    waiting: Vec<Wish>,
}

impl Accounts {
    /// Both ends.
    pub(crate) fn new() -> (Self, Wanted) {
        let (sender, wishes) = mpsc::channel(QUEUE);
        (Self { wishes: sender }, Wanted { wishes, waiting: Vec::new() })
    }

    /// Waits until accounting has what committed entries up to `seq` say; not for ever.
    pub(crate) async fn reach(&self, seq: u64) {
        let (done, reached) = oneshot::channel();
        let reach = async {
            // An archive that has ended writes nothing more.
            let _ = self.wishes.send(Wish { seq, done }).await;
            let _ = reached.await;
        };
        if tokio::time::timeout(PATIENCE, reach).await.is_err() {
            tracing::warn!(seq, "accounting is behind; what it has is shown");
        }
    }
}

impl Wanted {
    /// Waits for the next wish, and notes it.
    pub(super) async fn come(&mut self) {
        match self.wishes.recv().await {
            Some(wish) => self.waiting.push(wish),
            None => std::future::pending().await,
        }
    }

    /// Whether someone waits for rows of entries that have been applied.
    pub(super) fn due(&self, applied: u64) -> bool {
        self.waiting.iter().any(|wish| wish.seq <= applied)
    }

    /// Tells those who waited for no more than this entry.
    pub(super) fn answer(&mut self, reached: u64) {
        for wish in self.waiting.extract_if(.., |wish| wish.seq <= reached) {
            // Whoever does not wait any more need not be told.
            let _ = wish.done.send(());
        }
    }
}
