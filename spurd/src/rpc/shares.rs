//! Limits on the open streams of each user on this node: unread output waits in this daemon's memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use super::Refused;

/// Largest number of open streams of one user: one for the client of each step, and those of watchers.
const MOST: usize = 512;
/// Largest number of open streams of one user that only watch (`sattach`, `spur logs`).
const LOOKING_ON: usize = 64;

/// The numbers of open streams of each user. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Shares(Arc<Mutex<HashMap<u32, Open>>>);

/// The numbers of open streams of one user.
#[derive(Clone, Copy, Debug, Default)]
struct Open {
    all: usize,
    looking_on: usize,
}

/// One open stream, which counts until the value is dropped.
#[derive(Debug)]
pub(super) struct Share {
    shares: Shares,
    uid: u32,
    looks_on: bool,
}

impl Shares {
    /// Counts a new stream of this user.
    ///
    /// # Errors
    /// Refuses a user who has as many open streams as one may have.
    pub(super) fn take(&self, uid: u32, looks_on: bool) -> Result<Share, Refused> {
        let refused = |most: usize, what: &str| {
            let message = format!("user {uid} has {most} {what} open on this node, and may have no more");
            Refused("SLURMD_TOO_MANY_STREAMS", message)
        };
        let mut users = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let open = users.entry(uid).or_default();
        if open.all >= MOST {
            return Err(refused(MOST, "streams of steps"));
        }
        if looks_on && open.looking_on >= LOOKING_ON {
            return Err(refused(LOOKING_ON, "streams that look on at steps"));
        }
        open.all += 1;
        open.looking_on += usize::from(looks_on);
        Ok(Share { shares: self.clone(), uid, looks_on })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = self.shares.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(open) = users.get_mut(&self.uid) else { return };
        open.all -= 1;
        open.looking_on -= usize::from(self.looks_on);
        if open.all == 0 {
            users.remove(&self.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_so_many_streams_and_others_none_the_less() {
        let shares = Shares::default();
        let looking_on: Vec<Share> = (0..LOOKING_ON).map_while(|_| shares.take(1, true).ok()).collect();
        assert_eq!(looking_on.len(), LOOKING_ON);
        let Refused(_, why) = shares.take(1, true).unwrap_err();
        assert_eq!(
            why,
            "user 1 has 64 streams that look on at steps open on this node, and may have no more"
        );
        let own: Vec<Share> = (0..=MOST).map_while(|_| shares.take(1, false).ok()).collect();
        assert_eq!(own.len(), MOST - LOOKING_ON);
        assert!(shares.take(2, true).is_ok() && shares.take(2, false).is_ok());
        drop(looking_on);
        assert!(shares.take(1, true).is_ok());
        drop(own);
        assert!(shares.0.lock().unwrap().is_empty(), "users without streams are forgotten");
    }
}
