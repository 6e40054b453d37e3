//! Removal of what an earlier spurd left and nothing needs, when the spool is opened.

use std::fs::{self, File};
use std::io;

use spur_core::id::StepId;
use step_wire::LOST_FILE;
use step_wire::attempt::StepAttempt;
use step_wire::record::{EXIT_FILE, UNFINISHED_FILE};

use super::{Lock, Spool, absent_is_fine};
use crate::node::inventory::Kernel;

/// Name of the file with the boot id of the host when the spool was last opened.
const BOOT: &str = "boot";

impl Spool {
    /// Removes attempts that were accepted and never spawned, that were acknowledged, or that were spawned
    /// and never began.
    ///
    /// The beginning of an attempt is known only until the host boots again, since a power loss may lose the
    /// file that shows it.
    pub(super) fn sweep(&self) -> io::Result<()> {
        let same_boot = self.is_of_this_boot();
        for attempt in self.markers("attempts")? {
            if self.marker("ended", attempt).exists() {
                self.acknowledge(attempt)?;
            } else if !self.marker("spawned", attempt).exists() {
                absent_is_fine(fs::remove_dir_all(self.directory(attempt)))?;
            } else if same_boot && !self.is_batch_with_steps(attempt)? {
                self.take_back(attempt)?;
            }
        }
        Ok(())
    }

    /// True if everything in the spool belongs to the host's current boot.
    fn is_of_this_boot(&self) -> bool {
        let boot = Kernel::default().boot_id();
        !boot.is_empty() && fs::read_to_string(self.root.join(BOOT)).is_ok_and(|last| last == boot)
    }

    /// Records for the next spurd that everything that follows belongs to this boot.
    ///
    /// Not before every lost attempt of an earlier boot is sealed on disk. The write is not synced: what a
    /// power loss leaves of it names no later boot.
    pub(super) fn note_boot(&self) {
        if self.sealed().is_empty() && !self.is_of_this_boot() {
            // Without the file the next spurd takes back no attempt.
            let _ = self.noted(fs::write(self.root.join(BOOT), Kernel::default().boot_id()));
        }
    }

    /// True if this is a batch script whose attempt has other steps on this node.
    ///
    /// The controller does not order the script again to a node that holds other steps of the attempt.
    fn is_batch_with_steps(&self, attempt: StepAttempt) -> io::Result<bool> {
        let others = [self.markers("spawned")?, self.markers("ended")?];
        let is_other = |other: &StepAttempt| other.attempt == attempt.attempt && other.step != attempt.step;
        Ok(attempt.step == StepId::BATCH && others.iter().flatten().any(is_other))
    }

    /// Removes the marker of an attempt, unless its spurstepd lives or has begun. The order, or the client's
    /// launch, comes again.
    fn take_back(&self, attempt: StepAttempt) -> io::Result<()> {
        let directory = self.directory(attempt);
        let opened = File::open(&directory)?;
        let Some(_lock) = Lock::try_of(&opened)? else { return Ok(()) };
        if [EXIT_FILE, LOST_FILE, UNFINISHED_FILE].iter().any(|file| directory.join(file).exists()) {
            return Ok(());
        }
        // The directory goes first, under the lock: a late spurstepd sees that its directory is gone.
        fs::remove_dir_all(&directory)?;
        tracing::info!(step = %attempt, "it had not begun, and may be launched again");
        absent_is_fine(fs::remove_file(self.marker("spawned", attempt)))
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{FlockOperation, flock};

    use super::*;
    use crate::spool::Found;

    /// Returns a spool with spawned attempts, each with one of the files that spurstepd creates, or none.
    async fn left(root: &std::path::Path, attempts: &[(&str, &str)]) -> Spool {
        let spool = Spool::open(root).unwrap();
        spool.recover().unwrap();
        for (attempt, file) in attempts {
            let attempt: StepAttempt = attempt.parse().unwrap();
            spool.accept(attempt).unwrap();
            spool.mark_spawning(attempt).await.unwrap();
            fs::write(spool.directory(attempt).join("control"), "").unwrap();
            if !file.is_empty() {
                fs::write(spool.directory(attempt).join(file), "").unwrap();
            }
        }
        spool
    }

    #[tokio::test]
    async fn what_has_not_begun_may_be_launched_again() {
        let root = tempfile::tempdir().unwrap();
        let attempts = [
            ("1.0.batch", ""),
            ("2.0.batch", UNFINISHED_FILE),
            ("2.0.0", ""),
            ("3.0.batch", LOST_FILE),
            ("4.0.0", ""),
            ("5.0.batch", ""),
            ("5.0.0", UNFINISHED_FILE),
            ("6.0.batch", ""),
        ];
        let before = left(root.path(), &attempts).await;
        // A spurstepd that holds the lock and has not come further.
        let live = File::open(before.directory("6.0.batch".parse().unwrap())).unwrap();
        flock(&live, FlockOperation::NonBlockingLockExclusive).unwrap();
        drop(before);
        let spool = Spool::open(root.path()).unwrap();
        let found: Vec<String> =
            spool.unacknowledged().unwrap().iter().map(|(step, found)| format!("{step} {found:?}")).collect();
        assert_eq!(
            found,
            ["2.0.batch Lost", "3.0.batch Lost", "5.0.0 Lost", "5.0.batch Lost", "6.0.batch Live"]
        );
        for again in ["1.0.batch", "2.0.0", "4.0.0"] {
            spool.accept(again.parse().unwrap()).unwrap();
            spool.mark_spawning(again.parse().unwrap()).await.unwrap();
        }
    }

    #[tokio::test]
    async fn nobody_knows_what_had_begun_before_the_host_booted() {
        let root = tempfile::tempdir().unwrap();
        drop(left(root.path(), &[("1.0.batch", "")]).await);
        fs::write(root.path().join(BOOT), "another").unwrap();
        let spool = Spool::open(root.path()).unwrap();
        // A daemon that is killed before it has sealed lost attempts leaves that to the next.
        drop(spool);
        let spool = Spool::open(root.path()).unwrap();
        assert_eq!(spool.unacknowledged().unwrap(), [("1.0.batch".parse().unwrap(), Found::Lost)]);
        spool.recover().unwrap();
        drop(spool);
        let spool = Spool::open(root.path()).unwrap();
        assert_eq!(spool.unacknowledged().unwrap(), [("1.0.batch".parse().unwrap(), Found::Lost)], "sealed");
    }

    #[tokio::test]
    async fn who_looks_at_an_attempt_is_not_taken_for_its_spurstepd() {
        let root = tempfile::tempdir().unwrap();
        let step: StepAttempt = "1.0.0".parse().unwrap();
        let spool = left(root.path(), &[("1.0.0", UNFINISHED_FILE)]).await;
        let looked_at = File::open(spool.directory(step)).unwrap();
        let _lock = Lock::of(&looked_at).unwrap();
        assert_eq!(spool.find(step).unwrap(), Found::Lost);
    }

    #[tokio::test]
    async fn an_acknowledged_step_stays_while_its_spurstepd_lives() {
        let root = tempfile::tempdir().unwrap();
        let step: StepAttempt = "1.0.0".parse().unwrap();
        let before = left(root.path(), &[("1.0.0", EXIT_FILE)]).await;
        let live = File::open(before.directory(step)).unwrap();
        flock(&live, FlockOperation::NonBlockingLockExclusive).unwrap();
        before.acknowledge(step).unwrap();
        drop(before);
        let spool = Spool::open(root.path()).unwrap();
        assert!(spool.directory(step).exists(), "a client may still come for its output");
        drop((spool, live));
        let spool = Spool::open(root.path()).unwrap();
        assert!(!spool.directory(step).exists());
        assert_eq!(spool.tombstones().unwrap(), [step]);
    }
}
