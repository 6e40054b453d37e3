//! Validity of step credentials: at most a minute, and only before the step is launched.
//!
//! While a node holds an attempt, it knows which steps were launched. Attempts that it has forgotten are
//! remembered here for longer than any credential is valid. All times are the controller's, in milliseconds.

use std::collections::{BTreeMap, VecDeque};

use crate::id::Attempt;

/// Milliseconds for which a credential allows a launch.
pub const LIFETIME_MS: i64 = 60_000;
/// Milliseconds for which ended attempts are remembered: longer than a credential is valid, because clocks
/// are not read at the same moment.
const REMEMBERED_MS: i64 = 2 * LIFETIME_MS;
/// Largest number of ended attempts that are remembered.
const REMEMBERED: usize = 1 << 16;

/// The reason for which a credential allows no launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Expired {
    /// The credential is older than its lifetime; the value is its age in milliseconds.
    #[error("the credential is {} s old; it is good for {} s", .0 / 1000, LIFETIME_MS / 1000)]
    Old(i64),
    /// The credential was issued more than its lifetime in the future by the node's time; the value is the
    /// difference in milliseconds.
    #[error("the credential is of {} s from now: the controller's clock was set back", .0 / 1000)]
    Early(i64),
    /// The node cannot know if the credential was used.
    #[error("the credential was issued before this node's daemon started, or before what it still remembers")]
    Forgotten,
    /// The attempt ended on the node after the credential was issued.
    #[error("job {} has ended on this node", .0.job)]
    Over(Attempt),
}

/// Attempts that have ended and of which the node has no other record.
#[derive(Clone, Debug, Default)]
pub struct Ended {
    when: BTreeMap<Attempt, i64>,
    order: VecDeque<(i64, Attempt)>,
    /// Time up to which ends may have been forgotten.
    horizon: Option<i64>,
}

impl Ended {
    /// Remembers the end of an attempt.
    pub fn remember(&mut self, attempt: Attempt, now: i64) {
        self.when.insert(attempt, now);
        self.order.push_back((now, attempt));
        while let Some(&(at, attempt)) = self.order.front() {
            if self.order.len() <= REMEMBERED && at + REMEMBERED_MS >= now {
                break;
            }
            self.order.pop_front();
            self.horizon = self.horizon.max(Some(at));
            if self.when.get(&attempt) == Some(&at) {
                self.when.remove(&attempt);
            }
        }
    }

    /// Accepts the credential of an attempt, issued at `issued`, for a launch now. `started` is the time at
    /// which the node's daemon started.
    ///
    /// # Errors
    /// The reason for which the credential allows no launch.
    pub fn allows(&self, attempt: Attempt, issued: i64, now: i64, started: i64) -> Result<(), Expired> {
        let age = now.saturating_sub(issued);
        if age > LIFETIME_MS {
            return Err(Expired::Old(age));
        }
        if age < -LIFETIME_MS {
            return Err(Expired::Early(-age));
        }
        if issued < started || self.horizon.is_some_and(|horizon| issued <= horizon) {
            return Err(Expired::Forgotten);
        }
        // The node may have got the same attempt again since.
        if self.when.get(&attempt).is_some_and(|over| issued <= *over) {
            return Err(Expired::Over(attempt));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::JobId;

    fn attempt(job: u32) -> Attempt {
        Attempt { job: JobId(job), restart: 0 }
    }

    #[test]
    fn a_credential_is_good_for_a_minute_and_not_for_what_has_ended() {
        let mut ended = Ended::default();
        ended.remember(attempt(1), 100_000);
        for (job, issued, now, expected) in [
            (2, 100_000, 100_000, Ok(())),
            (2, 100_000, 160_000, Ok(())),
            (2, 100_000, 161_000, Err(Expired::Old(61_000))),
            (2, 161_000, 100_000, Err(Expired::Early(61_000))),
            (2, 89_999, 100_000, Err(Expired::Forgotten)),
            (1, 100_000, 100_001, Err(Expired::Over(attempt(1)))),
            (1, 100_001, 100_001, Ok(())),
        ] {
            assert_eq!(ended.allows(attempt(job), issued, now, 90_000), expected, "{job} {issued} {now}");
        }
        let again = Attempt { restart: 1, ..attempt(1) };
        assert_eq!(ended.allows(again, 100_000, 100_001, 90_000), Ok(()), "a new attempt");
    }

    #[test]
    fn what_is_forgotten_is_refused_with_all_that_is_older() {
        let mut ended = Ended::default();
        for job in 0..=REMEMBERED as u32 {
            ended.remember(attempt(job), 100_000 + i64::from(job / 10_000));
        }
        assert_eq!(ended.allows(attempt(0), 100_000, 100_100, 0), Err(Expired::Forgotten));
        let last = attempt(REMEMBERED as u32);
        assert_eq!(ended.allows(last, 100_001, 100_100, 0), Err(Expired::Over(last)));
        assert_eq!(ended.allows(attempt(99_999), 100_001, 100_100, 0), Ok(()));
        ended.remember(attempt(99_999), 100_100 + REMEMBERED_MS);
        assert_eq!((ended.when.len(), ended.order.len()), (1, 1), "nothing is kept for ever");
    }
}
