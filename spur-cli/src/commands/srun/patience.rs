//! The decision when `srun` gives a node up, from the outcomes of its attempts to reach the node.
//!
//! A node whose host takes connections is overloaded or paused rather than dead: its part of the step is
//! retried for as long as Slurm waits for a launch. If nothing answers at the node's address, the node is
//! given up much earlier.

use std::time::Duration;

use spur_proto::channel::{KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT};
use tokio::time::Instant;

/// Time for which a launch is retried while nothing answers: Slurm's default MessageTimeout.
const LAUNCH: Duration = Duration::from_secs(10);
/// Time for which a node that may run the step may be absent, e.g. during a restart of its daemon.
const ATTACH: Duration = Duration::from_secs(30);
/// Time for which the host may take connections without a message from its daemon: Slurm's limit on the
/// start of all tasks.
const SLOW: Duration = Duration::from_secs(600);
/// Number of failures in a row before which an absent node is not given up. Where `srun` itself is on an
/// overloaded host, the time may pass during a single attempt.
const FAILURES: u32 = 3;
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The outcome of an attempt to reach a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// Nothing answers at the address, or the daemon ended a connection that it had just taken.
    Absent,
    /// The host took the connection, and its daemon did not answer in time.
    Slow,
    /// A connection broke over which the daemon had answered until then.
    Broken,
}

impl Failure {
    /// Returns the failure of an open connection that ended now. `heard` is true if the connection brought a
    /// message.
    ///
    /// A daemon that answers no keep-alive loses its connection after one interval and one time-out, so a
    /// connection that lasted an interval longer was answered.
    pub(super) fn of_connection(opened: Instant, heard: bool, now: Instant) -> Failure {
        let lasted = now - opened;
        if heard || lasted >= KEEP_ALIVE_INTERVAL * 2 + KEEP_ALIVE_TIMEOUT {
            Failure::Broken
        } else if lasted >= KEEP_ALIVE_INTERVAL {
            Failure::Slow
        } else {
            Failure::Absent
        }
    }
}

/// The last signs of life of a node, and the failures since then.
#[derive(Debug)]
pub(super) struct Patience {
    /// Time at which the daemon was last known to answer.
    answered: Instant,
    /// Time at which the host last took a connection.
    taken: Instant,
    /// Number of attempts since then at which the node was absent.
    failures: u32,
    pause: Duration,
}

impl Patience {
    pub(super) fn new(now: Instant) -> Patience {
        Patience { answered: now, taken: now, failures: 0, pause: FIRST_PAUSE }
    }

    /// Returns the pause before the next attempt; `None` if the node is given up.
    ///
    /// `launched` is true if the node may run the step.
    pub(super) fn after(&mut self, failure: Failure, launched: bool, now: Instant) -> Option<Duration> {
        match failure {
            Failure::Absent => self.failures += 1,
            Failure::Slow => (self.taken, self.failures) = (now, 0),
            Failure::Broken => *self = Patience::new(now),
        }
        let pause = self.pause;
        let absence = if launched { ATTACH } else { LAUNCH };
        let is_absent = self.failures >= FAILURES && self.taken + absence < now + pause;
        if is_absent || self.answered + SLOW < now + pause {
            return None;
        }
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the second at which a node is given up that fails as `failures` says: each attempt takes some
    /// seconds, and the last entry is repeated.
    fn given_up(launched: bool, failures: &[(u64, Failure)]) -> u64 {
        let begun = Instant::now();
        let mut patience = Patience::new(begun);
        let mut now = begun;
        for &(seconds, failure) in failures.iter().chain(std::iter::repeat(&failures[failures.len() - 1])) {
            now += Duration::from_secs(seconds);
            match patience.after(failure, launched, now) {
                Some(pause) => now += pause,
                None => break,
            }
        }
        (now - begun).as_secs()
    }

    #[test]
    fn an_absent_node_is_noticed_and_a_slow_one_has_time() {
        use Failure::{Absent, Broken, Slow};
        for (launched, failures, expected) in [
            // No daemon listens.
            (false, &[(0, Absent)][..], 9),
            (true, &[(0, Absent)], 29),
            // The host is dead: each attempt times out.
            (false, &[(5, Absent)], 15),
            // `srun` itself got no processor.
            (false, &[(12, Absent)], 36),
            // The daemon takes connections, and its handshakes take too long.
            (false, &[(30, Slow)], 614),
            (true, &[(20, Slow)], 603),
            // An overloaded host dies.
            (false, &[(30, Slow), (30, Slow), (5, Absent)], 75),
            // A step ran without output for an hour, and then the daemon was restarted.
            (true, &[(3600, Broken), (0, Absent)], 3629),
        ] {
            let found = given_up(launched, failures);
            assert!(found.abs_diff(expected) <= 2, "{launched} {failures:?}: {found} s, not {expected} s");
        }
    }

    #[test]
    fn a_connection_that_outlived_a_keep_alive_was_answered() {
        let opened = Instant::now();
        let after = |seconds| opened + Duration::from_secs(seconds);
        assert_eq!(Failure::of_connection(opened, true, after(0)), Failure::Broken);
        assert_eq!(Failure::of_connection(opened, false, after(0)), Failure::Absent);
        assert_eq!(Failure::of_connection(opened, false, after(20)), Failure::Slow);
        assert_eq!(Failure::of_connection(opened, false, after(3600)), Failure::Broken);
    }
}
