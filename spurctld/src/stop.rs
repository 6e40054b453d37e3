//! The wish that the controller stop, told to all that would otherwise go on for ever.

use std::sync::Arc;

use tokio::sync::watch;

/// Whether the controller is to stop. Clones share it.
#[derive(Clone, Debug)]
pub struct Stop {
    wish: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self { wish: Arc::new(watch::channel(false).0) }
    }
}

impl Stop {
    /// Wishes it.
    pub fn wish(&self) {
        self.wish.send_replace(true);
    }

    /// Waits until somebody does.
    pub async fn wished(&self) {
        // The sender is part of this very value, so the wait ends only with the wish.
        let _ = self.wish.subscribe().wait_for(|wished| *wished).await;
    }
}
