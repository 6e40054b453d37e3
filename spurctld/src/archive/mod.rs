//! The archive: follows the feed at its own pace, and writes accounting and snapshots.
//!
//! The archive has a cluster of its own. Accounting follows from the journal, so late rows lose nothing. A
//! burst of submissions is recorded by job number only; its rows are written after the burst, when a reader
//! asks ([`Accounts`]), or after some time. Rows of jobs that the cluster forgets are the exception: they are
//! written before the snapshot without these jobs. Rows of all remaining jobs are written again after a
//! start. So snapshot and entries suffice to go on without losing a row.

mod accounts;
mod outages;
mod purge;
mod rows;

pub(crate) use accounts::Accounts;
pub(crate) use rows::{step_label, step_number};

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use spur_core::cluster::{Cluster, Entry, snapshot};
use spur_core::id::{Attempt, JobId};
use spur_core::model::note::JobNote;
use tokio::sync::{mpsc, oneshot};

use crate::clock;
use crate::feed::Entries;
use crate::recover::CHUNK;
use crate::statistics::Statistics;
use crate::store::accounting::{Accounting, JobRow, Query};
use crate::store::{Journal, Retention, StoreError};
use accounts::Wanted;
use purge::Purge;
use rows::{Extent, Rows};

/// Number of entries after which a snapshot is written, so that a start never has to read many more. If the
/// last snapshot had more jobs than that, their number counts instead, so that the work grows with the number
/// of events.
const SNAPSHOT_EVERY: u64 = 50_000;
/// Bytes of entries after which a snapshot is written, however few entries these are.
const SNAPSHOT_BYTES: u64 = 64 << 20;
/// Number of entries that are applied before other requests get their turn.
const TAKE: usize = 4096;
/// Largest number of rows kept in memory for jobs that the cluster no longer has.
const NOTED: usize = 16_384;
/// Time without entries after which rows are written.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for such a pause. All changes of a job meanwhile cost one row.
const LATEST: Duration = Duration::from_secs(30);
/// Size of one chunk of a snapshot, in bytes.
const CHUNK_BYTES: usize = 64 << 10;
/// Time for which request ids are remembered, in seconds.
const REQUESTS_KEPT: i64 = 86_400;
/// Pause after a refused write.
const RETRY: Duration = Duration::from_secs(5);

/// The archive, see the [module](self).
pub(crate) struct Archive {
    pub(crate) cluster: Cluster,
    pub(crate) journal: Journal,
    pub(crate) accounting: Accounting,
    /// The entry up to which accounting has the rows of jobs that the cluster no longer has.
    pub(crate) reached: u64,
    /// The entry up to which accounting has all rows; 0 after a start.
    pub(crate) written: u64,
    /// The entry of the last snapshot.
    pub(crate) snapshot: u64,
    /// Bytes of the entries applied since the last snapshot.
    pub(crate) bytes: u64,
    /// The last refusal of accounting's database.
    pub(crate) refused: Refused,
    /// The last refusal of a snapshot.
    pub(crate) snapshot_refused: Refused,
    pub(crate) statistics: Statistics,
}

/// The instant at which a disk that refused a write is tried again.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Refused(Option<Instant>);

impl Refused {
    fn after<T>(written: &Result<T, StoreError>) -> Refused {
        Refused(written.is_err().then(|| Instant::now() + RETRY))
    }

    fn is_over(self) -> bool {
        self.0.is_none_or(|until| until <= Instant::now())
    }

    /// Returns the rest of the pause; `None` if it is over.
    fn rest(self) -> Option<Duration> {
        let rest = self.0?.saturating_duration_since(Instant::now());
        (!rest.is_zero()).then_some(rest)
    }
}

/// A request for a copy of the archive's cluster, whose lock delays nothing.
pub(crate) struct CopyWanted {
    /// The last entry that the copy must contain, because the caller may have seen it.
    pub(crate) seen: u64,
    /// Receives the copy.
    pub(crate) to: oneshot::Sender<Cluster>,
}

/// The queue of requests for copies.
pub(crate) type Copies = mpsc::Receiver<CopyWanted>;

impl Archive {
    /// Works until the feed ends.
    pub(crate) async fn run(
        mut self,
        mut feed: mpsc::UnboundedReceiver<Entries>,
        mut copies: Copies,
        mut wanted: Wanted,
    ) {
        let mut rows = Rows::of(&self.cluster);
        let mut snapshot_due = self.snapshot_due();
        let mut since = Instant::now();
        let mut purge = Purge::new();
        loop {
            let purges = purge.applies(&self.cluster);
            let behind = self.cluster.seq() > self.written && self.refused.is_over();
            let again = self.refused.rest().into_iter().chain(self.snapshot_refused.rest()).min();
            tokio::select! {
                entries = feed.recv() => {
                    let Some(entries) = entries else { break };
                    let mut taken = self.take(&entries, &mut rows);
                    while taken < TAKE {
                        let Ok(entries) = feed.try_recv() else { break };
                        taken += self.take(&entries, &mut rows);
                    }
                }
                Some(CopyWanted { seen, to }) = copies.recv() => {
                    while self.cluster.seq() < seen && let Some(entries) = feed.recv().await {
                        self.take(&entries, &mut rows);
                    }
                    // The caller may have given up.
                    let _ = to.send(self.cluster.clone());
                }
                () = wanted.come() => {}
                () = tokio::time::sleep(PAUSE), if behind => {
                    self.write(&mut rows, Extent::All).await;
                }
                () = tokio::time::sleep(again.unwrap_or_default()), if again.is_some() => {}
                () = purge.due(), if purges => self.purge(&mut purge).await,
            }
            if !behind {
                since = Instant::now();
            }
            if wanted.due(self.cluster.seq()) || since.elapsed() >= LATEST {
                self.write(&mut rows, Extent::All).await;
            }
            wanted.answer(self.written);
            self.statistics.accounted(self.reached.max(if self.written == u64::MAX {
                0
            } else {
                self.written
            }));
            if rows.noted() >= NOTED {
                self.write(&mut rows, Extent::Noted).await;
            }
            if (self.cluster.seq() >= snapshot_due || self.bytes >= SNAPSHOT_BYTES)
                && self.snapshot_refused.is_over()
                && self.write(&mut rows, Extent::Noted).await
            {
                self.snapshot().await;
                snapshot_due = self.snapshot_due();
            }
        }
        // Rows that cannot be written now are written after the next start.
        let _ = self.try_write(&mut rows, Extent::All).await;
    }

    /// Applies entries, records the rows that accounting may lack, and returns the number of entries.
    pub(crate) fn take(&mut self, entries: &[Arc<Entry>], rows: &mut Rows) -> usize {
        for entry in entries {
            self.bytes = self.bytes.saturating_add(size(entry));
            if entry.seq > self.reached {
                rows.before(&self.cluster, entry);
                self.cluster.apply(entry);
                rows.after(&self.cluster, entry);
            } else {
                self.cluster.apply(entry);
                rows.reached(entry);
            }
        }
        entries.len()
    }

    /// Writes rows, and returns true if they are written. After a refusal nothing is tried for a while, so
    /// that other requests wait no longer.
    async fn write(&mut self, rows: &mut Rows, extent: Extent) -> bool {
        if !self.refused.is_over() {
            return false;
        }
        let written = self.try_write(rows, extent).await;
        if let Err(error) = &written {
            tracing::error!(%error, cause = ?std::error::Error::source(error), "accounting cannot be written");
        }
        self.refused = Refused::after(&written);
        written.is_ok()
    }

    /// Writes rows page by page; the last page carries the entry that it reaches. If a page fails, the pages
    /// before it are written again after the next start, to the same keys.
    async fn try_write(&mut self, rows: &mut Rows, extent: Extent) -> Result<(), StoreError> {
        let seq = self.cluster.seq();
        while seq > self.reached || (seq == self.reached && extent == Extent::All && seq > self.written) {
            let page = rows.page(&self.cluster, extent);
            let reached = if rows.noted() == 0 { seq } else { self.reached };
            let (mut jobs, steps) = (page.jobs.clone(), page.steps.clone());
            // What is closed stays closed when the rest fails, and is not closed again.
            let written = async {
                if !page.closings.is_empty() {
                    self.accounting.close_runs(&page.closings).await?;
                }
                if !page.nodes.is_empty() {
                    self.accounting.change_nodes(&page.nodes).await?;
                }
                jobs.extend(annotated(&self.accounting, &page.notes).await?);
                self.accounting.write(reached, jobs, steps).await
            };
            if let Err(error) = written.await {
                rows.put_back(page);
                return Err(error);
            }
            self.reached = reached;
            if rows.is_empty() {
                self.written = seq;
            }
        }
        Ok(())
    }

    /// Returns the entry at which the next snapshot is due, right after a snapshot of the cluster.
    fn snapshot_due(&self) -> u64 {
        let jobs = u64::try_from(self.cluster.jobs().len()).unwrap_or(u64::MAX);
        self.snapshot.saturating_add(SNAPSHOT_EVERY.max(jobs))
    }

    /// Writes a snapshot, and lets the journal drop the entries that it covers. After a failure it is tried
    /// again later.
    async fn snapshot(&mut self) {
        let seq = self.cluster.seq();
        let written = self.write_snapshot(seq).await;
        self.snapshot_refused = Refused::after(&written);
        if let Err(error) = written {
            tracing::error!(%error, "a snapshot cannot be written");
            return;
        }
        (self.snapshot, self.bytes) = (seq, 0);
        let retention =
            Retention { entries_through: seq, requests_before: clock::now(&self.cluster).0 - REQUESTS_KEPT };
        let journal = self.journal.clone();
        // In the background: the journal deletes a few entries after each commit.
        tokio::spawn(async move {
            match journal.compact(retention).await {
                Ok(done) => {
                    tracing::info!(seq, entries = done.entries, blobs = done.blobs, "snapshot written")
                }
                Err(error) => tracing::warn!(%error, "the journal was not compacted"),
            }
        });
    }

    async fn write_snapshot(&self, seq: u64) -> Result<(), StoreError> {
        let mut writer = self.journal.begin_snapshot(seq).await?;
        for chunk in chunks(&self.cluster) {
            writer.chunk(CHUNK, chunk).await?;
        }
        writer.finish().await
    }
}

/// Returns the database's rows of these runs with the notes' values set.
async fn annotated(
    accounting: &Accounting,
    notes: &BTreeMap<Attempt, JobNote>,
) -> Result<Vec<JobRow>, StoreError> {
    let mut rows = Vec::new();
    for run in notes.keys() {
        // The query also finds the tasks of an array with this number.
        let mut query = Query { job_ids: vec![run.job.0], ..Query::default() };
        loop {
            let page = accounting.jobs(&query).await?;
            query.after = page.rows.last().map(|row| (row.job_id, row.restarts));
            rows.extend(
                page.rows.into_iter().filter(|row| (row.job_id, row.restarts) == (run.job.0, run.restart)),
            );
            if !page.more {
                break;
            }
        }
    }
    for row in &mut rows {
        let run = Attempt { job: JobId(row.job_id), restart: row.restarts };
        notes.get(&run).into_iter().for_each(|note| rows::annotate(row, note));
    }
    Ok(rows)
}

/// A cluster as the chunks of a snapshot: records, one on each line.
pub(crate) fn chunks(cluster: &Cluster) -> impl Iterator<Item = Vec<u8>> {
    let mut records = snapshot::records(cluster);
    std::iter::from_fn(move || {
        let mut chunk = Vec::with_capacity(CHUNK_BYTES);
        while chunk.len() < CHUNK_BYTES
            && let Some(record) = records.next()
        {
            serde_json::to_writer(&mut chunk, &record).expect("a record holds nothing that JSON cannot");
            chunk.push(b'\n');
        }
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// Returns the size of an entry in the journal, in bytes.
fn size(entry: &Entry) -> u64 {
    struct Count(u64);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len() as u64;
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Counting cannot fail, and an entry from the journal can be encoded.
    let _ = serde_json::to_writer(&mut count, entry);
    count.0
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use spur_core::controller::{Command, Input, handle};
    use spur_core::model::config::Config;
    use spur_core::model::waits::Gone;
    use spur_core::text::time::Time;
    use spur_proto::convert::spec;
    use spur_proto::v1;

    use super::*;
    use crate::owner;
    use crate::recover::{self, recover};
    use crate::store::Batch;

    /// Returns a directory of one test.
    fn directory(test: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("spurctld-archive-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Returns the entries of a cluster with one node and three jobs.
    fn history(cluster: &mut Cluster, epoch: u64) -> Vec<Arc<Entry>> {
        let text = "cluster_name = \"t\"\n[controller]\npurge_job_after = \"1d\"\n\
                    [[nodes]]\nnames = \"n1\"\ncpus = 1\n\
                    [[partitions]]\nname = \"main\"\nnodes = \"ALL\"\ndefault = true\n";
        let policy = Config::parse(text, "t").unwrap().policy;
        let mut entries = owner::reconfigure_first(cluster, epoch, Time(10), policy.into()).unwrap();
        for _ in 0..3 {
            let (submission, _) = spec::submission(v1::JobSpec::default()).unwrap();
            let command = Command::Submit(Box::new(submission));
            let input = Input::Command { caller: owner::daemon(), request: None, command };
            entries.extend(handle(cluster, epoch, Time(20), input).entries);
        }
        entries
    }

    #[tokio::test]
    async fn snapshot_and_rows_lead_back_to_the_same_cluster_and_accounting() {
        let directory = directory("snapshot");
        let path = directory.join("spur.db");
        let (journal, _) = Journal::open(&path).await.unwrap();
        let mut cluster = Cluster::of_newest_level();
        let entries = history(&mut cluster, journal.epoch());
        let batch = Batch {
            entries: entries.iter().map(|entry| recover::to_store(entry)).collect(),
            ..Batch::default()
        };
        journal.commit(batch).await.unwrap();
        let accounting = Accounting::open(&directory.join("acct.db")).await.unwrap();
        let archive_of = |cluster, journal, reached| Archive {
            cluster,
            journal,
            accounting: accounting.clone(),
            reached,
            written: 0,
            snapshot: reached,
            bytes: 0,
            refused: Refused::default(),
            snapshot_refused: Refused::default(),
            statistics: Statistics::default(),
        };
        let mut archive = archive_of(Cluster::of_newest_level(), journal.clone(), 0);
        let mut rows = Rows::default();
        archive.take(&entries, &mut rows);
        archive.write(&mut rows, Extent::Noted).await;
        archive.snapshot().await;
        assert_eq!(archive.snapshot, cluster.seq());
        assert_eq!(accounting.reached().await.unwrap(), cluster.seq());
        assert_eq!((archive.written, accounting.jobs(&Query::default()).await.unwrap().rows.len()), (0, 0));
        drop(archive);
        journal.close().await;

        let (journal, recovered) = Journal::open(&path).await.unwrap();
        assert_eq!(recovered.snapshot_seq, cluster.seq());
        let history = recover(recovered).await.unwrap();
        assert!(history.entries.is_empty(), "the snapshot covers them");
        let records = |cluster: &Cluster| snapshot::records(cluster).collect::<Vec<_>>();
        assert_eq!(records(&history.cluster), records(&cluster));

        // Without a snapshot the rows are not lost either.
        let mut archive = archive_of(Cluster::of_newest_level(), journal.clone(), cluster.seq());
        let mut rows = Rows::of(&archive.cluster);
        archive.take(&entries, &mut rows);
        assert_eq!(rows.page(&archive.cluster, Extent::All).jobs.len(), 3);
        drop(archive);

        // The jobs are pending, so the snapshot did not wait for their rows: they are made from the snapshot.
        let mut archive = archive_of(history.cluster, journal.clone(), cluster.seq());
        let mut rows = Rows::of(&archive.cluster);
        archive.write(&mut rows, Extent::All).await;
        let jobs = accounting.jobs(&Query::default()).await.unwrap().rows;
        let ids: Vec<u32> = jobs.iter().map(|job| job.job_id).collect();
        assert_eq!(ids, cluster.jobs().iter().map(|job| job.id.0).collect::<Vec<_>>());
        assert_eq!((ids.len(), archive.written), (3, cluster.seq()));
        drop(archive);
        journal.close().await;
        std::fs::remove_dir_all(&directory).unwrap();
    }

    /// The cluster has jobs 1 to 4, of which job 4 waits for a failure of job 8 in vain; all other rows are
    /// of jobs long forgotten.
    #[tokio::test]
    async fn a_purge_spares_jobs_that_the_controller_knows() {
        let directory = directory("purge");
        let (journal, _) = Journal::open(&directory.join("spur.db")).await.unwrap();
        let mut cluster = Cluster::of_newest_level();
        history(&mut cluster, journal.epoch());
        let dependent = v1::JobSpec { dependency: "afternotok:8".to_owned(), ..v1::JobSpec::default() };
        let (mut submission, _) = spec::submission(dependent).unwrap();
        let ended = Gone { job: JobId(8), task: None, completed: true };
        submission.spec.extra.get_or_insert_default().gone = vec![ended];
        let command = Command::Submit(Box::new(submission));
        handle(
            &mut cluster,
            journal.epoch(),
            Time(20),
            Input::Command { caller: owner::daemon(), request: None, command },
        );
        let accounting = Accounting::open(&directory.join("acct.db")).await.unwrap();
        let end = |job_id: u32| i64::from(job_id) - 1_000_000;
        let row = |job_id| JobRow { job_id, ended: Some(end(job_id)), ..JobRow::default() };
        accounting.write(0, (1..=600).map(row).collect(), Vec::new()).await.unwrap();
        let archive = Archive {
            cluster,
            journal: journal.clone(),
            accounting: accounting.clone(),
            reached: 0,
            written: 0,
            snapshot: 0,
            bytes: 0,
            refused: Refused::default(),
            snapshot_refused: Refused::default(),
            statistics: Statistics::default(),
        };
        let mut purge = Purge::new();
        assert!(purge.applies(&archive.cluster));
        while archive.purge_page(&mut purge).await.unwrap() {}
        let query = Query { limit: 1000, ..Query::default() };
        let ids: Vec<u32> =
            accounting.jobs(&query).await.unwrap().rows.iter().map(|row| row.job_id).collect();
        assert_eq!(ids, [1, 2, 3, 4, 8, 600]);
        assert_eq!(accounting.complete_from().await.unwrap(), Some(end(599) + 1));
        drop(archive);
        journal.close().await;
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
