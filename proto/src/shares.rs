//! Equal shares of a resource for each user: a bound on the amount that one user holds at a time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::Semaphore;

/// Number of known users beyond which unused shares are dropped.
const REMEMBERED: usize = 1024;

/// One share of the same size for each user. Clones share them.
#[derive(Clone, Debug)]
pub struct Shares {
    size: usize,
    users: Arc<Mutex<HashMap<u32, Weak<Semaphore>>>>,
}

impl Shares {
    /// Returns shares of `size` permits each.
    pub fn new(size: usize) -> Shares {
        Shares { size, users: Arc::default() }
    }

    /// Returns the share of a user.
    pub fn of(&self, uid: u32) -> Arc<Semaphore> {
        let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(share) = users.get(&uid).and_then(Weak::upgrade) {
            return share;
        }
        if users.len() >= REMEMBERED {
            users.retain(|_, share| share.strong_count() > 0);
        }
        let share = Arc::new(Semaphore::new(self.size));
        users.insert(uid, Arc::downgrade(&share));
        share
    }
}
