//! The signals that this command passes on to its tasks.

use anyhow::Context;
use spur_core::text::signal::Signal;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

const PASSED_ON: [u8; 8] = [1, 2, 3, 10, 12, 14, 15, 18];

/// The signals that come in, in their order.
pub(super) struct Signals(mpsc::UnboundedReceiver<Signal>);

impl Signals {
    /// Takes the signals from now on.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn listen() -> anyhow::Result<Signals> {
        let (tell, signals) = mpsc::unbounded_channel();
        for number in PASSED_ON {
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
