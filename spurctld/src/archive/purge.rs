//! The purge: deletes old runs and old events of nodes from accounting, a page at a time between the
//! archive's other work.
//!
//! `[controller] purge_job_after` and `purge_event_after` give the ages. A run stays while the controller has
//! its job, array or heterogeneous job, and while a waiting job depends on it. An event stays while the node
//! is out of service.

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
    ages: Ages,
    /// The instant at which the next page is due.
    due: Instant,
    /// The last run looked at by the purge under way.
    after: Option<(i64, u32, u32)>,
}

/// The ages by which the last page was deleted; `None` for records that stay for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Ages {
    runs: Option<Seconds>,
    events: Option<Seconds>,
}

impl Purge {
    pub(super) fn new() -> Self {
        Self { ages: Ages::default(), due: Instant::now(), after: None }
    }

    /// Takes up changes of the ages, and returns true if any records have an age at which they are purged.
    pub(super) fn applies(&mut self, cluster: &Cluster) -> bool {
        let jobs = &cluster.policy().jobs;
        let ages = Ages { runs: jobs.purge_job_after, events: jobs.purge_event_after };
        if ages != self.ages {
            *self = Self { ages, ..Self::new() };
        }
        ages != Ages::default()
    }

    /// Waits until the next page is due.
    pub(super) async fn due(&self) {
        tokio::time::sleep_until(self.due.into()).await;
    }
}

impl Archive {
    /// Deletes a page of old records, or gives space back if none are left. A refusal of the database is
    /// tried again later.
    pub(super) async fn purge(&self, purge: &mut Purge) {
        let ages = [purge.ages.runs, purge.ages.events];
        let Some(Seconds(shortest)) = ages.into_iter().flatten().min() else { return };
        let pause = match self.purge_page(purge).await {
            Ok(true) => PAUSE,
            Ok(false) => LONGEST.min(Duration::from_secs(shortest) / PART).max(PAUSE),
            Err(error) => {
                tracing::warn!(%error, "accounting cannot be purged now");
                RETRY
            }
        };
        purge.due = Instant::now() + pause;
    }

    /// Deletes a page of old runs, then of old events, then gives space back. Returns true if more work
    /// follows.
    pub(super) async fn purge_page(&self, purge: &mut Purge) -> Result<bool, StoreError> {
        let now = self.cluster.clock().wall(clock::now(&self.cluster)).0;
        let before = |age: Seconds| now.saturating_sub_unsigned(age.0);
        if let Some(age) = purge.ages.runs
            && self.purge_runs(before(age), purge).await?
        {
            return Ok(true);
        }
        if let Some(age) = purge.ages.events {
            let events = self.accounting.purge_events(before(age)).await?;
            if events > 0 {
                tracing::info!(events, before = before(age), "old events of nodes were purged");
                return Ok(true);
            }
        }
        self.accounting.release_space().await
    }

    /// Deletes a page of runs that ended before a time. Returns false if there are none left to look at.
    async fn purge_runs(&self, before: i64, purge: &mut Purge) -> Result<bool, StoreError> {
        let old = self.accounting.old_runs(before, purge.after).await?;
        let Some(last) = old.last() else {
            purge.after = None;
            return Ok(false);
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
