//! Turns of lists: a list is made page by page, and each page waits for its turn.
//!
//! One network thread stays free of lists, if the host has more than one CPU. A short request is then
//! answered at once however many lists are under way. The pages of different users alternate; one user has at
//! most half of the threads that make lists, rounded up.

use std::num::NonZero;
use std::sync::Arc;
use std::thread::available_parallelism;

use spur_core::model::caller::Caller;
use spur_proto::shares::Shares;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::effort::{Largest, Piece};

/// The turns, see the [module](self). Clones share them.
#[derive(Clone)]
pub(crate) struct Turns {
    all: Arc<Semaphore>,
    users: Shares,
    effort: Largest,
}

/// The turn of one page.
pub(super) struct Turn {
    _own: Option<OwnedSemaphorePermit>,
    _common: Option<OwnedSemaphorePermit>,
    piece: Piece,
    effort: Largest,
}

impl Turn {
    /// Ends the turn, in which `items` jobs, nodes or names were read. It has to end on the thread on which
    /// it began.
    pub(super) fn end(self, items: usize) {
        self.effort.end(&self.piece, items as u64);
    }
}

impl Turns {
    /// Returns the turns of a process with one network thread for each CPU, as tokio has them.
    pub(crate) fn of_this_host(effort: Largest) -> Self {
        Self::new(available_parallelism().map_or(1, NonZero::get), effort)
    }

    fn new(threads: usize, effort: Largest) -> Self {
        let all = threads.saturating_sub(1).max(1);
        Self { all: Arc::new(Semaphore::new(all)), users: Shares::new(all.div_ceil(2)), effort }
    }

    /// Waits for a turn, and lets other tasks run first even if a turn is free.
    pub(super) async fn take(&self, caller: &Caller) -> Turn {
        tokio::task::yield_now().await;
        // The semaphores are never closed.
        let own = self.users.of(caller.owner.uid).acquire_owned().await.ok();
        let common = Arc::clone(&self.all).acquire_owned().await.ok();
        Turn { _own: own, _common: common, piece: Largest::begin(), effort: self.effort.clone() }
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use spur_core::model::caller::Owner;

    use super::*;

    /// Returns the turn that a user gets at once, if any.
    fn now(turns: &Turns, uid: u32) -> Option<Turn> {
        let owner = Owner { uid, gid: uid, user: "u".into(), group: "g".into() };
        let caller = Caller::new(owner.into(), Default::default(), uid == 0);
        let mut turn = pin!(turns.take(&caller));
        let mut polls = (0..3).map(|_| turn.as_mut().poll(&mut Context::from_waker(Waker::noop())));
        polls.find_map(|poll| match poll {
            Poll::Ready(turn) => Some(turn),
            Poll::Pending => None,
        })
    }

    #[test]
    fn one_user_leaves_threads_to_others_and_lists_leave_one_to_short_requests() {
        for (threads, of_one, of_all) in [(1, 1, 1), (2, 1, 1), (4, 2, 3), (16, 8, 15)] {
            let turns = Turns::new(threads, Largest::default());
            let mut held: Vec<Turn> = std::iter::from_fn(|| now(&turns, 1)).collect();
            assert_eq!(held.len(), of_one, "{threads}");
            held.extend((2..40).filter_map(|uid| now(&turns, uid)));
            assert_eq!(held.len(), of_all, "{threads}");
            drop(held);
            assert!(now(&turns, 1).is_some());
        }
    }
}
