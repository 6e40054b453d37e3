//! Watches the wall's clock: setting it changes the times that users wrote and the next reset of usage.

use std::time::Duration;

use spur_core::controller::Input;
use spur_core::model::clock::Clock;

use crate::clock;
use crate::inbox::Inbox;
use crate::replica::Replica;
use crate::reset;

/// Interval between two readings of the wall's clock.
const LOOK: Duration = Duration::from_secs(1);
/// Difference between the clocks from which on the log mentions it, in seconds.
const WORTH_SAYING: u64 = 60;

/// Reports steps of the wall's clock and due resets to the owner, until the owner ends.
pub(crate) async fn run(replica: Replica, inbox: Inbox) {
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut told = None;
    loop {
        look.tick().await;
        let reset = reset::plan(&replica.read(), clock::wall());
        if let Some(input) = reset
            && inbox.tell(input).await.is_err()
        {
            return;
        }
        let corrected = replica.read().clock().corrected(&clock::shown());
        // The last report may not have been applied yet.
        if let Some(new) = corrected.filter(|new| told.as_ref() != Some(new)) {
            say(&new);
            if inbox.tell(Input::Clock(new.clone())).await.is_err() {
                return;
            }
            told = Some(new);
        } else {
            told = None;
        }
    }
}

/// Logs the difference between the wall's clock and the cluster's own, if it is more than a minute.
pub(crate) fn say(clock: &Clock) {
    let ahead = clock.ahead;
    if ahead.unsigned_abs() > WORTH_SAYING {
        tracing::warn!(
            ahead,
            "the wall's clock was set, or was wrong before: durations are counted by a clock of the cluster's own, which it \
             is {} s {}",
            ahead.unsigned_abs(),
            if ahead > 0 { "ahead of" } else { "behind" }
        );
    }
}
