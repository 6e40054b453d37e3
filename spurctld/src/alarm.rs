//! The one timer: tells the owner when something is due because of the time alone.

use std::time::Duration;

use spur_core::controller::Input;
use spur_core::text::time::Time;
use tokio::sync::watch;

use crate::clock;
use crate::inbox::Inbox;

/// The wall clock may be set while we sleep, so we look at it again after this long.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// When the owner wants to be woken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// When; never if there is nothing to wait for.
    pub(crate) at: Option<Time>,
    /// How often it has been woken: rises with every wakeup that was handled.
    pub(crate) woken: u64,
}

/// Wakes the owner whenever it is time, until it is gone.
pub(crate) async fn run(mut alarm: watch::Receiver<Alarm>, inbox: Inbox) {
    let mut rung = 0;
    loop {
        let Alarm { at, woken } = *alarm.borrow_and_update();
        // One wakeup at a time: the next only after the last has been handled.
        let sleep = match at {
            Some(at) if woken >= rung => clock::until(at).min(LONGEST_SLEEP),
            Some(_) | None => Duration::MAX,
        };
        if sleep.is_zero() {
            rung = woken + 1;
            if inbox.tell(Input::Wakeup).await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            changed = alarm.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(sleep) => {}
        }
    }
}
