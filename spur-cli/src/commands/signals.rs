//! Signals received by a command, in order.

use anyhow::Context;
use spur_core::text::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// Queue of received signals.
pub(super) struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    /// Receives the signals with these numbers from now on.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn listen(numbers: &[u8]) -> anyhow::Result<Signals> {
        let (tell, signals) = mpsc::unbounded_channel();
        for &number in numbers {
            let mut source =
                signal(SignalKind::from_raw(number.into())).context("cannot listen for signals")?;
            let one = Signal::new(number).context("a signal that does not exist")?;
            let tell = tell.clone();
            tokio::spawn(async move { while source.recv().await.is_some() && tell.send(one).is_ok() {} });
        }
        Ok(Signals(signals))
    }

    /// Returns the next signal.
    pub(super) async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
