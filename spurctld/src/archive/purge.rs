//! The purge: deletes old runs from accounting, a page at a time between the archive's other work.
//!
//! `[controller] purge_job_after` gives the age. A run stays while the controller has its job, array or
//! heterogeneous job, and while a waiting job depends on it.

use std::time::{Duration, Instant};

use spur_core::cluster::Cluster;
use spur_core::id::JobId;
use spur_core::text::time::Seconds;

use super::{Archive, RETRY};
use crate::clock;
use crate::store::StoreError;
use crate::store::accounting::OldRun;

/// Pause between two pages, so that a purge takes a small part of the database's time.
const PAUSE: Duration = Duration::from_millis(50);
/// Longest time from the end of one purge to the next. With a short age it is a part of the age.
const LONGEST: Duration = Duration::from_secs(3600);
/// The part of the age after which the next purge begins, as a divisor.
const PART: u32 = 24;

/// The progress of purges.
#[derive(Debug)]
pub(super) struct Purge {
    /// The age that the last page was deleted by; `None` if runs stay for ever.
    age: Option<Seconds>,
    /// The instant at which the next page is due.
    due: Instant,
    /// The last run looked at by the purge under way.
    after: Option<(i64, u32, u32)>,
}

impl Purge {
    pub(super) fn new() -> Self {
        Self { age: None, due: Instant::now(), after: None }
    }

    /// Takes up a change of the age, and returns true if runs have an age at which they are purged.
    pub(super) fn applies(&mut self, cluster: &Cluster) -> bool {
        let age = cluster.policy().jobs.purge_job_after;
        if age != self.age {
            *self = Self { age, ..Self::new() };
        }
        age.is_some()
    }

    /// Waits until the next page is due.
    pub(super) async fn due(&self) {
        tokio::time::sleep_until(self.due.into()).await;
    }
}

impl Archive {
    /// Deletes a page of old runs, or gives space back if none are left. A refusal of the database is tried
    /// again later.
    pub(super) async fn purge(&self, purge: &mut Purge) {
        let Some(Seconds(age)) = purge.age else { return };
        let pause = match self.purge_page(age, purge).await {
            Ok(true) => PAUSE,
            Ok(false) => LONGEST.min(Duration::from_secs(age) / PART).max(PAUSE),
            Err(error) => {
                tracing::warn!(%error, "accounting cannot be purged now");
                RETRY
            }
        };
        purge.due = Instant::now() + pause;
    }

    /// Returns true if more work follows.
    pub(super) async fn purge_page(&self, age: u64, purge: &mut Purge) -> Result<bool, StoreError> {
        let now = self.cluster.clock().wall(clock::now(&self.cluster)).0;
        let before = now.saturating_sub_unsigned(age);
        let old = self.accounting.old_runs(before, purge.after).await?;
        let Some(last) = old.last() else {
            purge.after = None;
            return self.accounting.release_space().await;
        };
        let after = Some((last.ended, last.job_id, last.restarts));
        let gone: Vec<&OldRun> = old.iter().filter(|run| !is_known(&self.cluster, run)).collect();
        if let Some(last) = gone.last() {
            let runs: Vec<(u32, u32)> = gone.iter().map(|run| (run.job_id, run.restarts)).collect();
            self.accounting.purge(&runs, last.ended.saturating_add(1)).await?;
            tracing::info!(runs = runs.len(), before, "old runs were purged");
        }
        purge.after = after;
        Ok(true)
    }
}

/// True if the controller has the job, or if a waiting job depends on it.
fn is_known(cluster: &Cluster, run: &OldRun) -> bool {
    let numbers = [Some(run.job_id), run.array_job_id, run.het_job_id].into_iter().flatten().map(JobId);
    let jobs = cluster.jobs();
    numbers.into_iter().any(|id| jobs.get(id).is_some() || jobs.array(id).is_some() || jobs.namers(id) > 0)
}
