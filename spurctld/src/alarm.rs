//! The controller's only timer: informs the owner of due work.

use std::time::Duration;

use spur_core::controller::Input;
use spur_core::model::clock::Clock;
use spur_core::text::time::Time;
use tokio::sync::watch;

use crate::clock;
use crate::inbox::Inbox;

/// Longest sleep, after which the timer reads the clock again: the machine may have been suspended meanwhile.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// The timer's setting, which the owner publishes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// The time of the next wakeup; `None` if the owner waits for none.
    pub(crate) at: Option<Time>,
    /// The cluster's clock, by which `at` counts.
    pub(crate) clock: Clock,
    /// Number of wakeups that the owner has handled.
    pub(crate) woken: u64,
}

impl Alarm {
    /// Returns the second up to which everything is due; `None` if nothing is.
    ///
    /// A second counts only when it has passed, so that no duration that began within a second ends early.
    fn due(&self) -> Option<Time> {
        let past = Time(clock::now_of(&self.clock).0.saturating_sub(1));
        self.at.filter(|at| *at <= past).map(|_| past)
    }

    /// Returns the time left until the second after `at`.
    fn left(&self, at: Time) -> Duration {
        clock::until(&self.clock, Time(at.0.saturating_add(1)))
    }
}

/// Wakes the owner whenever something is due, until the owner ends.
pub(crate) async fn run(mut alarm: watch::Receiver<Alarm>, inbox: Inbox) {
    let mut rung = 0;
    loop {
        let set = alarm.borrow_and_update().clone();
        // One wakeup at a time: the next only after the owner has handled the last.
        let sleep = match set.at {
            Some(at) if set.woken >= rung => match set.due() {
                Some(due) => {
                    rung = set.woken + 1;
                    if inbox.tell(Input::Wakeup { due }).await.is_err() {
                        return;
                    }
                    continue;
                }
                None => set.left(at).min(LONGEST_SLEEP),
            },
            Some(_) | None => Duration::MAX,
        };
        tokio::select! {
            changed = alarm.changed() => if changed.is_err() { return },
            () = tokio::time::sleep(sleep) => {}
        }
    }
}
