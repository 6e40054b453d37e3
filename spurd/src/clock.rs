//! The controller's clock, as this node knows it: what the last order said, and the time since by the node's own monotonic
//! clock. Whether the hosts' clocks agree does not matter.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How long a controller's first word is waited for.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// See the module.
#[derive(Debug)]
pub(crate) struct ControllerClock {
    started: Instant,
    /// Milliseconds since 1970, and when they were said.
    said: watch::Sender<Option<(i64, Instant)>>,
}

impl ControllerClock {
    /// A clock that nobody has set yet, in a daemon that starts now.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), said: watch::Sender::default() }
    }

    /// A controller says what time it is.
    pub(crate) fn set(&self, now_ms: i64) {
        self.said.send_replace(Some((now_ms, Instant::now())));
    }

    /// What time it is now, in milliseconds, and what time it was when the daemon started; nothing before a controller has
    /// said it.
    pub(crate) fn now_and_start(&self) -> Option<(i64, i64)> {
        let (said, at) = (*self.said.borrow())?;
        let milliseconds = |since: Instant| i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = said.saturating_add(milliseconds(at));
        Some((now, now.saturating_sub(milliseconds(self.started))))
    }

    /// What time it is now, in seconds; by this host's clock before a controller has said it.
    pub(crate) fn now_secs(&self) -> i64 {
        self.now_and_start().map_or_else(crate::owner::register::now, |(now, _)| now.div_euclid(1000))
    }

    /// Waits a while for the controller's first word.
    pub(crate) async fn known(&self) {
        let mut said = self.said.subscribe();
        // Whoever asks for the time sees whether it has come.
        let _ = tokio::time::timeout(FIRST_WORD, said.wait_for(Option::is_some)).await;
    }
}
