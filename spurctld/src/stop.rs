//! The signal that the controller is to stop, for all threads and tasks that otherwise run for ever.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::watch;

/// The signal to stop. Clones share it.
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
    /// Orders the controller to stop.
    pub fn wish(&self) {
        self.wish.send_replace(true);
    }

    /// Orders the controller to stop because another controller is to take over.
    pub fn hand_over(&self) {
        self.hands_over.store(true, Ordering::Relaxed);
        self.wish();
    }

    /// True if another controller is to take over.
    pub fn hands_over(&self) -> bool {
        self.hands_over.load(Ordering::Relaxed)
    }

    /// Waits for the order to stop.
    pub async fn wished(&self) {
        // The sender lives as long as this value, so the wait ends only with the order.
        let _ = self.wish.subscribe().wait_for(|wished| *wished).await;
    }
}
