//! The controller's clock as this node knows it: the time in the last order, plus the time since on the
//! node's own monotonic clock. The hosts' clocks need not agree.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// Longest wait for the first order of a controller.
const FIRST_WORD: Duration = Duration::from_secs(10);

/// The controller's clock, see the [module](self).
#[derive(Debug)]
pub(crate) struct ControllerClock {
    started: Instant,
    /// Milliseconds since the Unix epoch in the last order, and the instant at which the order came.
    said: watch::Sender<Option<(i64, Instant)>>,
}

impl ControllerClock {
    /// Returns a clock that no order has set, in a daemon that starts now.
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), said: watch::Sender::default() }
    }

    /// Sets the clock to the time in an order, in milliseconds since the Unix epoch.
    pub(crate) fn set(&self, now_ms: i64) {
        self.said.send_replace(Some((now_ms, Instant::now())));
    }

    /// Returns the controller's time and its time at the daemon's start, in milliseconds since the Unix
    /// epoch.
    ///
    /// `None` before the first order of a controller.
    pub(crate) fn now_and_start(&self) -> Option<(i64, i64)> {
        let (said, at) = (*self.said.borrow())?;
        let milliseconds = |since: Instant| i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        let now = said.saturating_add(milliseconds(at));
        Some((now, now.saturating_sub(milliseconds(self.started))))
    }

    /// Returns the time in seconds since the Unix epoch; this host's time before the first order of a
    /// controller.
    pub(crate) fn now_secs(&self) -> i64 {
        self.now_and_start().map_or_else(crate::owner::register::now, |(now, _)| now.div_euclid(1000))
    }

    /// Waits at most [`FIRST_WORD`] for the first order of a controller.
    pub(crate) async fn known(&self) {
        let mut said = self.said.subscribe();
        // The caller sees from the clock whether the wait succeeded.
        let _ = tokio::time::timeout(FIRST_WORD, said.wait_for(Option::is_some)).await;
    }
}
