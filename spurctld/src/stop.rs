//! The wish that the controller stop, told to all that would otherwise go on for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// Whether the controller is to stop. Clones share it.
#[derive(Clone, Debug)]
pub struct Stop {
    wish: Arc<watch::Sender<bool>>,
    hands_over: Arc<AtomicBool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { wish: Arc::new(watch::channel(false).0), hands_over: Arc::default() }
    }
}

impl Stop {
    /// Wishes it.
    pub fn wish(&self) {
        self.wish.send_replace(true);
    }

    /// Wishes it because another controller is to take over.
    pub fn hand_over(&self) {
        self.hands_over.store(true, Ordering::Relaxed);
        self.wish();
    }

    /// Whether another controller is to take over.
    pub fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Relaxed)
    }

    /// Waits until somebody does.
    pub async fn wished(&self) {
        // The sender is part of this very value, so the wait ends only with the wish.
        let _ = self.wish.subscribe().wait_for(|wished| *wished).await;
    }
}
