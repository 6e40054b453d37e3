//! Free space on the journal's disk, and the decision whether a submission may use some of it.
//!
//! The controller ends when its disk is full. Submissions therefore stop earlier, so that the journal can
//! still record the fate of the existing jobs. When space is scarce, a user whose scripts take more than what
//! is left must wait: no user fills the disk for all others.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spur_core::cluster::Cluster;
use spur_core::model::caller::Caller;

/// Bytes that submissions leave free: for entries until they are compacted, and for a second snapshot.
const RESERVE: u64 = 256 << 20;
/// On a small disk, the fraction of its size that submissions leave free is one in this many.
const RESERVE_PART: u64 = 8;
/// Approximate bytes that a submission takes beside its script and environment.
const RECORD_BYTES: u64 = 4096;
/// Number of times that content is written: first to the write-ahead log, then to the database.
const COPIES: u64 = 2;
/// Free bytes beyond the reserve below which each user's share is limited.
const SCARCE: u64 = 4 << 30;
/// Time after which the users' shares are counted again.
const COUNTED_FOR: Duration = Duration::from_secs(10);

/// The reason why a submission gets no disk space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSpace {
    /// The disk has only its reserve left.
    #[error(
        "I/O error writing script/environment to file: the disk of {path} has {left} MiB left, and new jobs leave {reserve} of them; \
         submit again when there is space"
    )]
    Reserve {
        /// Path of the journal's database.
        path: String,
        /// Free space, in MiB.
        left: u64,
        /// Space that submissions must leave, in MiB.
        reserve: u64,
    },
    /// The user's jobs take more than what is left.
    #[error(
        "I/O error writing script/environment to file: scripts and environments of your jobs have {has} MiB of the controller's disk, \
         where {left} MiB are left for new jobs; submit again when some of your jobs are gone"
    )]
    Share {
        /// Space that the user's scripts and environments take, in MiB.
        has: u64,
        /// Space left for all users, in MiB.
        left: u64,
    },
}

/// The account of the journal's disk: its free space, writes under way, and users' shares.
pub(crate) struct DiskSpace {
    /// Path of the journal's database; `None` for a database on another machine, whose disk cannot be
    /// measured here.
    path: Option<PathBuf>,
    /// Batches handed to the journal and not committed yet: the last entry of each, and the bytes that it
    /// will take.
    handed: VecDeque<(u64, u64)>,
    measured: Option<Measured>,
    shares: Option<(Instant, HashMap<u32, u64>)>,
}

/// One measurement of a disk, in bytes.
#[derive(Clone, Copy)]
struct Measured {
    left: u64,
    reserve: u64,
}

impl DiskSpace {
    /// Returns the account for the journal at `path`; `None` means a database elsewhere, which has no limit.
    pub(crate) fn of(path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), handed: VecDeque::new(), measured: None, shares: None }
    }

    /// Reserves space for a submission of `bytes` bytes.
    ///
    /// A disk that cannot be measured counts as having space: the journal will report its failure.
    pub(crate) fn take(
        &mut self,
        cluster: &Cluster,
        committed: u64,
        caller: &Caller,
        bytes: u64,
    ) -> Result<(), NoSpace> {
        let Some(Measured { left, reserve }) = self.measure(committed) else { return Ok(()) };
        let needed = COPIES * (bytes + RECORD_BYTES);
        let free = left.saturating_sub(reserve);
        if free < needed {
            let path = self.path.as_ref().map_or_else(String::new, |path| path.display().to_string());
            return Err(NoSpace::Reserve { path, left: left >> 20, reserve: reserve.div_ceil(1 << 20) });
        }
        if free < SCARCE {
            let has = self.share(cluster, caller.owner.uid);
            *has += bytes;
            if *has > free && !caller.is_operator() {
                *has -= bytes;
                return Err(NoSpace::Share { has: *has >> 20, left: free >> 20 });
            }
        }
        if let Some(measured) = &mut self.measured {
            measured.left -= needed;
        }
        Ok(())
    }

    /// Discards the measurement, so that the next submission makes a new one.
    ///
    /// Called after every batch of requests: a batch of refusals writes nothing, and the disk may have space
    /// again.
    pub(crate) fn measure_again(&mut self) {
        self.measured = None;
    }

    /// Records that a batch goes to the journal, which has committed entries up to `committed`.
    pub(crate) fn hand_over(&mut self, committed: u64, last_seq: u64, bytes: usize) {
        self.forget(committed);
        self.handed.push_back((last_seq, COPIES * bytes as u64));
    }

    /// Drops the batches that the journal has committed.
    fn forget(&mut self, committed: u64) {
        while self.handed.front().is_some_and(|(seq, _)| *seq <= committed) {
            self.handed.pop_front();
        }
    }

    /// Measures the disk, less what the batches under way will take; `None` if it cannot be measured.
    fn measure(&mut self, committed: u64) -> Option<Measured> {
        if self.measured.is_none() {
            self.forget(committed);
            let under_way: u64 = self.handed.iter().map(|(_, bytes)| bytes).sum();
            let directory = self.path.as_ref()?.parent().filter(|path| !path.as_os_str().is_empty());
            let disk = rustix::fs::statvfs(directory.unwrap_or(Path::new("."))).ok()?;
            // Some file systems report a size of zero.
            if disk.f_blocks == 0 {
                return None;
            }
            let left = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(under_way);
            let reserve = RESERVE.min(disk.f_blocks.saturating_mul(disk.f_frsize) / RESERVE_PART);
            self.measured = Some(Measured { left, reserve });
        }
        self.measured
    }

    /// Returns the bytes that the scripts and environments of a user's jobs take, for the caller to raise.
    fn share(&mut self, cluster: &Cluster, uid: u32) -> &mut u64 {
        let counted = |(at, _): &(Instant, _)| at.elapsed() < COUNTED_FOR;
        let shares = self.shares.take().filter(counted).unwrap_or_else(|| (Instant::now(), count(cluster)));
        self.shares.insert(shares).1.entry(uid).or_default()
    }
}

/// Counts the bytes of each user's scripts and environments; array tasks share theirs.
fn count(cluster: &Cluster) -> HashMap<u32, u64> {
    let batches =
        cluster.jobs().iter().filter_map(|job| Some((job.spec.batch.as_ref()?, job.spec.owner.uid)));
    let blobs: BTreeMap<_, _> = batches.map(|(batch, uid)| (batch.script, (uid, batch.bytes))).collect();
    let mut shares = HashMap::new();
    for (uid, bytes) in blobs.into_values() {
        *shares.entry(uid).or_default() += u64::from(bytes);
    }
    shares
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use spur_core::model::caller::Owner;

    use super::*;

    fn caller(uid: u32) -> Caller {
        let owner = Owner { uid, gid: uid, user: "u".into(), group: "g".into() };
        Caller::new(Arc::new(owner), Arc::default(), uid == 0)
    }

    fn space(left: u64) -> DiskSpace {
        let measured = Some(Measured { left, reserve: 1 << 20 });
        DiskSpace { measured, ..DiskSpace::of(Some(Path::new("/nowhere/spur.db"))) }
    }

    #[test]
    fn nobody_gets_what_is_reserved() {
        let mut space = space((1 << 20) + 2 * (1000 + RECORD_BYTES));
        let cluster = Cluster::default();
        assert!(matches!(space.take(&cluster, 0, &caller(0), 1001), Err(NoSpace::Reserve { .. })));
        assert_eq!(space.take(&cluster, 0, &caller(0), 1000), Ok(()));
        assert!(matches!(space.take(&cluster, 0, &caller(0), 1), Err(NoSpace::Reserve { .. })));
    }

    #[test]
    fn a_user_gets_no_more_than_is_left_for_others() {
        let mut space = space(100 << 20);
        let cluster = Cluster::default();
        let mut taken =
            |uid| (0..).take_while(|_| space.take(&cluster, 0, &caller(uid), 1 << 20).is_ok()).count();
        // 33 MiB, written twice, leave a third of the 99 MiB to the next user, and so on: later users still
        // get space.
        assert_eq!((taken(1), taken(2), taken(3)), (33, 11, 4));
        assert!(taken(0) > 0);
    }

    #[test]
    fn what_is_under_way_is_not_there_any_more() {
        let directory = std::env::temp_dir();
        let mut space = DiskSpace::of(Some(&directory.join("spur.db")));
        let all = space.measure(0).unwrap().left;
        space.hand_over(0, 7, 1 << 30);
        space.measure_again();
        // Other processes use the disk as well.
        assert!(space.measure(6).unwrap().left + (1 << 30) < all);
        space.measure_again();
        assert!(space.measure(7).unwrap().left + (1 << 30) > all);
    }
}
