//! The space on the disk of the journal, and whether a submission may have some of it.
//!
//! The controller ends when its disk is full, so submissions stop before: what becomes of the jobs that are there has to be
//! written. And no user's scripts fill the disk for all others: whoever has more of it than is left has to wait.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use spur_core::cluster::Cluster;
use spur_core::model::caller::Caller;

/// Space that submissions leave, in bytes: entries until they are compacted, and a snapshot beside the last one.
const RESERVE: u64 = 256 << 20;
/// Of a small disk they leave one part in so many.
const RESERVE_PART: u64 = 8;
/// What a submission takes beside its content, in bytes, about.
const RECORD_BYTES: u64 = 4096;
/// It is written to the log first, and copied into the database.
const COPIES: u64 = 2;
/// Space beyond the reserve below which users have shares, in bytes.
const SCARCE: u64 = 4 << 30;
/// How long what users have is believed before it is counted anew.
const COUNTED_FOR: Duration = Duration::from_secs(10);

/// Why a submission gets no space.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoSpace {
    /// Nobody gets any.
    #[error(
        "I/O error writing script/environment to file: the disk of {path} has {left} MiB left, and new jobs leave {reserve} of them; \
         submit again when there is space"
    )]
    Reserve {
        /// The journal's database.
        path: String,
        /// What is left, in MiB.
        left: u64,
        /// What must be left, in MiB.
        reserve: u64,
    },
    /// The user has more than is left.
    #[error(
        "I/O error writing script/environment to file: scripts and environments of your jobs have {has} MiB of the controller's disk, \
         where {left} MiB are left for new jobs; submit again when some of your jobs are gone"
    )]
    Share {
        /// What the user has, in MiB.
        has: u64,
        /// What is left for all, in MiB.
        left: u64,
    },
}

/// See the module.
pub(crate) struct DiskSpace {
    /// The journal's database; `None` for one on another machine, whose disk nobody here can measure.
    path: Option<PathBuf>,
    /// What was handed to the journal: the entry it ends with, and the bytes it will take.
    handed: VecDeque<(u64, u64)>,
    measured: Option<Measured>,
    shares: Option<(Instant, HashMap<u32, u64>)>,
}

/// What a disk has, in bytes.
#[derive(Clone, Copy)]
struct Measured {
    left: u64,
    reserve: u64,
}

impl DiskSpace {
    /// The space beside the journal at `path`, or without limit for a database elsewhere.
    pub(crate) fn of(path: Option<&Path>) -> Self {
        Self { path: path.map(Path::to_owned), handed: VecDeque::new(), measured: None, shares: None }
    }

    /// Takes space for a submission of so many bytes. A disk that cannot be measured has space: the journal will say what is
    /// wrong with it.
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

    /// Measures anew for the next submission. Called after every batch of requests: where all of them were refused, nothing
    /// goes to the journal, and the disk may have room again.
    pub(crate) fn measure_again(&mut self) {
        self.measured = None;
    }

    /// Notes that a batch goes to the journal, which has committed so far.
    pub(crate) fn hand_over(&mut self, committed: u64, last_seq: u64, bytes: usize) {
        self.forget(committed);
        self.handed.push_back((last_seq, COPIES * bytes as u64));
    }

    /// Forgets what has been written.
    fn forget(&mut self, committed: u64) {
        while self.handed.front().is_some_and(|(seq, _)| *seq <= committed) {
            self.handed.pop_front();
        }
    }

    /// What is left when all is written that the journal was given.
    fn measure(&mut self, committed: u64) -> Option<Measured> {
        if self.measured.is_none() {
            self.forget(committed);
            let under_way: u64 = self.handed.iter().map(|(_, bytes)| bytes).sum();
            let directory = self.path.as_ref()?.parent().filter(|path| !path.as_os_str().is_empty());
            let disk = rustix::fs::statvfs(directory.unwrap_or(Path::new("."))).ok()?;
            // Some file systems do not say how large they are.
            if disk.f_blocks == 0 {
                return None;
            }
            let left = disk.f_bavail.saturating_mul(disk.f_frsize).saturating_sub(under_way);
            let reserve = RESERVE.min(disk.f_blocks.saturating_mul(disk.f_frsize) / RESERVE_PART);
            self.measured = Some(Measured { left, reserve });
        }
        self.measured
    }

    /// The bytes that a user's jobs have.
    fn share(&mut self, cluster: &Cluster, uid: u32) -> &mut u64 {
        let counted = |(at, _): &(Instant, _)| at.elapsed() < COUNTED_FOR;
        let shares = self.shares.take().filter(counted).unwrap_or_else(|| (Instant::now(), count(cluster)));
        self.shares.insert(shares).1.entry(uid).or_default()
    }
}

/// The bytes that each user's jobs have; tasks of an array have them together.
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
        // 33 MiB, written twice, leave a third of the 99 MiB to the next one, and so on: who comes later gets something.
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
        // Others use the disk as well.
        assert!(space.measure(6).unwrap().left + (1 << 30) < all);
        space.measure_again();
        assert!(space.measure(7).unwrap().left + (1 << 30) > all);
    }
}
