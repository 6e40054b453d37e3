//! The clock of benches that compare work in one thread.

use std::time::Duration;

/// The time that this thread has been on a processor.
pub(crate) fn processor() -> Duration {
    let spent = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(spent).expect("it is not negative")
}
