//! The largest single pieces of work of the owner and of list requests, each of which delays others.
//!
//! `sdiag --json` shows them. Tests use them to check that no request costs other users more than its share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use spur_proto::v1;

/// The largest pieces of work since the figures were last reset. Clones share the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Effort {
    /// Work of the owner's thread; a piece is one request.
    pub(crate) owner: Largest,
    /// Work on lists; a piece is one page.
    pub(crate) lists: Largest,
}

/// The largest piece of one kind of work. Clones share the figures.
#[derive(Clone, Debug, Default)]
pub(crate) struct Largest(Arc<Stretch>);

#[derive(Debug, Default)]
struct Stretch {
    items: AtomicU64,
    microseconds: AtomicU64,
}

/// A piece of work under way: the thread's processor time at its start.
pub(crate) struct Piece(Duration);

impl Largest {
    /// Starts the measurement of a piece, which has to end on the same thread.
    pub(crate) fn begin() -> Piece {
        Piece(processor_time())
    }

    /// Ends the measurement of a piece that read or wrote `items` items.
    pub(crate) fn end(&self, piece: &Piece, items: u64) {
        let took = processor_time().saturating_sub(piece.0);
        self.0.items.fetch_max(items, Ordering::Relaxed);
        self.0.microseconds.fetch_max(u64::try_from(took.as_micros()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// Returns the largest piece so far, and with `reset` begins again from zero.
    pub(crate) fn figures(&self, reset: bool) -> v1::Stretch {
        let read = |figure: &AtomicU64| match reset {
            true => figure.swap(0, Ordering::Relaxed),
            false => figure.load(Ordering::Relaxed),
        };
        v1::Stretch { items: read(&self.0.items), microseconds: read(&self.0.microseconds) }
    }
}

/// Returns the processor time that this thread has used.
fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}
