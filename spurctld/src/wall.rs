//! Looks at the clock on the wall: who sets it changes what people mean by a time, and when usage is reset.

use std::time::Duration;

use spur_core::controller::Input;
use spur_core::model::clock::Clock;

use crate::clock;
use crate::inbox::Inbox;
use crate::replica::Replica;
use crate::reset;

/// How often it is looked at.
const LOOK: Duration = Duration::from_secs(1);
/// From which difference on it is said, seconds.
const WORTH_SAYING: u64 = 60;

/// Tells the owner when it was set, until the owner is gone.
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
        // What was told a moment ago may not be there yet.
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

/// Says in the log how far the wall's clock is from the own one, if it is far.
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
