//! Limits for each user: requests under way, waiting requests, lists under way, and lists per second. Beyond
//! a limit the controller answers that it is busy, which commands wait out.
//!
//! Requests that wait by themselves (a step for its CPUs, a watcher for its job) count separately from those
//! that the controller is about to answer. Neither kind therefore keeps out the other. Operators are not
//! limited.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spur_core::model::caller::Caller;
use spur_core::model::config::UserShares;
use spur_proto::refusal;
use tokio::time::Instant;
use tokio_stream::StreamExt;
use tonic::Status;

use super::Listing;

/// Seconds for which unused lists may be saved up.
const BURST_SECONDS: u32 = 10;
/// Number of watched jobs that take as much memory as one waiting request.
const WATCHED: usize = 64;
/// Number of known users beyond which idle ones are dropped.
const REMEMBERED: usize = 65_536;
/// Tokens that a list costs; one comes back in a thousandth of the time between two lists.
const LIST_TOKENS: u64 = 1000;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A request whose cost is proportional to its length.
    Request,
    /// A request that may read every job, or every node.
    List,
    /// A request that waits until a job or a step of the user changes.
    Wait,
}

/// The requests under way of each user. Clones share them.
#[derive(Clone)]
pub(crate) struct Quotas {
    shares: UserShares,
    users: Arc<Mutex<HashMap<u32, Usage>>>,
}

/// The requests under way of one user.
struct Usage {
    requests: u32,
    waits: u32,
    lists: u32,
    /// Tokens for lists that are left.
    tokens: u64,
    /// Instant at which `tokens` was computed.
    counted: Instant,
}

/// A request under way; it counts until the value is dropped.
pub(super) struct Share {
    quotas: Quotas,
    uid: u32,
    kind: Option<Kind>,
    /// Number of requests that this one counts as.
    weight: u32,
}

impl Quotas {
    /// Returns quotas without requests under way.
    pub(crate) fn new(shares: UserShares) -> Self {
        Self { shares, users: Arc::default() }
    }

    /// Counts a request until the returned value is dropped.
    ///
    /// # Errors
    /// Refuses a user with too many requests under way, or with too frequent ones.
    pub(super) fn take(&self, caller: &Caller, kind: Kind) -> Result<Share, Status> {
        self.take_at(caller, (kind, 1), Instant::now())
    }

    /// Counts a request that watches `jobs` jobs; many jobs count as several requests.
    ///
    /// # Errors
    /// Refuses as [`take`](Self::take) does.
    pub(super) fn take_watch(&self, caller: &Caller, jobs: usize) -> Result<Share, Status> {
        let weight = u32::try_from(jobs.div_ceil(WATCHED)).unwrap_or(u32::MAX).max(1);
        self.take_at(caller, (Kind::Wait, weight), Instant::now())
    }

    fn take_at(&self, caller: &Caller, (kind, weight): (Kind, u32), now: Instant) -> Result<Share, Status> {
        let uid = caller.owner.uid;
        if caller.is_operator() {
            return Ok(Share { quotas: self.clone(), uid, kind: None, weight });
        }
        let UserShares { requests, lists, lists_per_second, connections: _ } = self.shares;
        let most = u64::from(lists_per_second) * u64::from(BURST_SECONDS) * LIST_TOKENS;
        let mut users = self.users();
        if users.len() >= REMEMBERED {
            users.retain(|_, usage| usage.requests + usage.waits + usage.lists > 0);
        }
        let new = Usage { requests: 0, waits: 0, lists: 0, tokens: most, counted: now };
        let usage = users.entry(uid).or_insert(new);
        let since = u64::try_from(now.duration_since(usage.counted).as_millis()).unwrap_or(u64::MAX);
        // A thousandth of a second brings a thousandth of a second's tokens.
        usage.tokens =
            usage.tokens.saturating_add(since.saturating_mul(u64::from(lists_per_second))).min(most);
        usage.counted = now;
        let refused = |what: String| refusal::busy(&format!("user {uid} {what}; waiting"));
        match kind {
            Kind::Request if usage.requests >= requests => {
                return Err(refused(format!("has {requests} requests under way")));
            }
            // A request that watches more jobs than the limit allows is admitted alone.
            Kind::Wait if usage.waits > 0 && usage.waits.saturating_add(weight) > requests => {
                return Err(refused(format!("has {requests} requests that wait for jobs and steps")));
            }
            Kind::List if usage.lists >= lists => {
                return Err(refused(format!("has {lists} lists under way")));
            }
            Kind::List if usage.tokens < LIST_TOKENS => {
                return Err(refused(format!("asks for more than {lists_per_second} lists a second")));
            }
            Kind::Request => usage.requests += 1,
            Kind::Wait => usage.waits += weight,
            Kind::List => (usage.lists, usage.tokens) = (usage.lists + 1, usage.tokens - LIST_TOKENS),
        }
        drop(users);
        Ok(Share { quotas: self.clone(), uid, kind: Some(kind), weight })
    }

    fn users(&self) -> MutexGuard<'_, HashMap<u32, Usage>> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Share {
    /// Returns a list that counts until its end, or until it is dropped.
    pub(super) fn over<T: 'static>(self, listing: Listing<T>) -> Listing<T> {
        Box::pin(listing.map(move |item| {
            let _under_way = &self;
            item
        }))
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut users = self.quotas.users();
        let Some(usage) = users.get_mut(&self.uid) else { return };
        match self.kind {
            Some(Kind::Request) => usage.requests = usage.requests.saturating_sub(1),
            Some(Kind::Wait) => usage.waits = usage.waits.saturating_sub(self.weight),
            Some(Kind::List) => usage.lists = usage.lists.saturating_sub(1),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use spur_core::model::caller::Owner;

    use super::*;

    fn caller(uid: u32) -> Caller {
        let owner = Owner { uid, gid: uid, user: "u".into(), group: "g".into() };
        Caller::new(owner.into(), Default::default(), uid == 0)
    }

    #[test]
    fn a_user_has_so_much_under_way_and_others_none_the_less() {
        let quotas = Quotas::new(UserShares { requests: 2, lists: 1, lists_per_second: 1, connections: 1 });
        let kinds = [Kind::Request, Kind::Request, Kind::Wait, Kind::Wait, Kind::List];
        let kept = kinds.map(|kind| quotas.take(&caller(1), kind).ok());
        assert!(kept.iter().all(Option::is_some));
        assert!(quotas.take(&caller(1), Kind::Request).is_err());
        let refused = quotas.take(&caller(1), Kind::Wait).err().expect("two wait");
        assert!(refused.message().contains("user 1 has 2 requests that wait"), "{refused}");
        assert!(quotas.take(&caller(1), Kind::List).is_err());
        assert!(quotas.take(&caller(2), Kind::List).is_ok());
        assert!(quotas.take(&caller(0), Kind::List).is_ok());
        drop(kept);
        assert!(quotas.take(&caller(1), Kind::Request).is_ok());
    }

    #[test]
    fn a_request_that_watches_many_jobs_counts_as_several() {
        let quotas = Quotas::new(UserShares { requests: 4, lists: 1, lists_per_second: 1, connections: 1 });
        let watch = |jobs| quotas.take_watch(&caller(1), jobs);
        let large = watch(10_000).expect("it is alone");
        assert!(watch(1).is_err());
        drop(large);
        let kept = [watch(129), watch(1)].map(Result::ok);
        assert!(kept.iter().all(Option::is_some));
        assert!(watch(1).is_err());
    }

    #[test]
    fn lists_come_back_with_time() {
        let quotas = Quotas::new(UserShares { requests: 1, lists: 1, lists_per_second: 2, connections: 1 });
        let now = Instant::now();
        let lists =
            |at| (0..).take_while(|_| quotas.take_at(&caller(1), (Kind::List, 1), at).is_ok()).count();
        assert_eq!(lists(now), 20);
        assert_eq!(lists(now + Duration::from_millis(499)), 0);
        assert_eq!(lists(now + Duration::from_millis(500)), 1);
        assert_eq!(lists(now + Duration::from_secs(100)), 20);
    }
}
