//! The signals that a command takes, in their order.

use anyhow::Context;
use spur_core::text::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

/// The signals that come in, in their order.
pub(super) struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    /// Takes the signals of these numbers from now on.
    ///
    /// # Errors
    /// What the system says.
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

    /// The next one.
    pub(super) async fn next(&mut self) -> Signal {
        match self.0.recv().await {
            Some(signal) => signal,
            None => std::future::pending().await,
        }
    }
}
