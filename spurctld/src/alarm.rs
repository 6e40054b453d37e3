//! The one timer: tells the owner when something is due because of the time alone.

use std::time::Duration;

use spur_core::controller::Input;
use spur_core::model::clock::Clock;
use spur_core::text::time::Time;
use tokio::sync::watch;

use crate::clock;
use crate::inbox::Inbox;

/// The machine may sleep while we do, so we look at the clock again after this long.
const LONGEST_SLEEP: Duration = Duration::from_secs(30);

/// When the owner wants to be woken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Alarm {
    /// When; never if there is nothing to wait for.
    pub(crate) at: Option<Time>,
    /// By this clock.
    pub(crate) clock: Clock,
    /// How often it has been woken: rises with every wakeup that was handled.
    pub(crate) woken: u64,
}

impl Alarm {
    /// What is due, if anything is: the second in which something happened has to pass, so that nothing that lasts from then
    /// on is over before it should.
    fn due(&self) -> Option<Time> {
        let past = Time(clock::now_of(&self.clock).0.saturating_sub(1));
        self.at.filter(|at| *at <= past).map(|_| past)
    }

    /// How long it is until then.
    fn left(&self, at: Time) -> Duration {
        clock::until(&self.clock, Time(at.0.saturating_add(1)))
    }
}

/// Wakes the owner whenever it is time, until it is gone.
pub(crate) async fn run(mut alarm: watch::Receiver<Alarm>, inbox: Inbox) {
    let mut rung = 0;
    loop {
        let set = alarm.borrow_and_update().clone();
        // One wakeup at a time: the next only after the last has been handled.
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
