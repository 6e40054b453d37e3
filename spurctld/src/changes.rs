//! A log of the jobs and nodes that changed recently, in the order of the journal's entries. A reader that
//! follows the cluster keeps a position in this log. A reader whose position is older than the log reads
//! everything again.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use spur_core::cluster::{Cluster, Entry, Event, Scope};
use spur_core::id::{JobId, NodeId};
use tokio::sync::watch;

/// Largest number of changes that the log keeps, of 16 bytes each.
const KEPT: usize = 1 << 18;

/// The subject of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Job(JobId),
    Node(NodeId),
    /// The configuration or a reservation: readers have to read everything again.
    Everything,
}

/// Handle of the log; clones share one log.
#[derive(Clone)]
pub(crate) struct Changes {
    log: Arc<Mutex<Log>>,
    /// The position after the last change.
    end: Arc<watch::Sender<u64>>,
}

struct Log {
    /// Each change with the number of the entry that made it, or of the last entry before the planner's
    /// outlook changed.
    subjects: VecDeque<(u64, Subject)>,
    /// Position of the oldest change that is kept.
    first: u64,
    /// Number of the entry after which every change is kept.
    from_seq: u64,
    /// Number of the last entry.
    seq: u64,
}

/// The jobs and nodes that changed between two positions in the log.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct News {
    pub(crate) jobs: BTreeSet<JobId>,
    pub(crate) nodes: BTreeSet<NodeId>,
    /// The position from which the reader continues.
    pub(crate) place: u64,
    /// Number of the last entry whose changes are included.
    pub(crate) seq: u64,
}

impl Changes {
    /// Returns a log that begins after entry `seq`.
    pub(crate) fn after(seq: u64) -> Changes {
        let log = Log { subjects: VecDeque::new(), first: 0, from_seq: seq, seq };
        Changes { log: Arc::new(Mutex::new(log)), end: Arc::new(watch::Sender::new(0)) }
    }

    /// Records the changes of committed entries. `cluster` already includes these entries.
    pub(crate) fn note(&self, cluster: &Cluster, entries: &[Arc<Entry>]) {
        let mut log = self.log();
        for entry in entries {
            log.seq = entry.seq;
            subjects_of(cluster, &entry.event, |subject| log.put(subject));
        }
        self.publish(log);
    }

    /// Records jobs and nodes whose outlook the planner has changed.
    pub(crate) fn note_outlook(
        &self,
        jobs: impl Iterator<Item = JobId>,
        nodes: impl Iterator<Item = NodeId>,
    ) {
        let mut log = self.log();
        jobs.map(Subject::Job).chain(nodes.map(Subject::Node)).for_each(|subject| log.put(subject));
        self.publish(log);
    }

    fn publish(&self, log: MutexGuard<'_, Log>) {
        let end = log.end();
        drop(log);
        self.end.send_if_modified(|known| {
            let moved = *known < end;
            *known = (*known).max(end);
            moved
        });
    }

    /// Returns the position after the last change, and the number of the last entry.
    pub(crate) fn end(&self) -> (u64, u64) {
        let log = self.log();
        (log.end(), log.seq)
    }

    /// Returns the position from which the log has all changes by entries after `seq`. `None` if the log
    /// lacks some of these changes, or if there is no entry `seq` yet.
    pub(crate) fn place_after(&self, seq: u64) -> Option<u64> {
        let log = self.log();
        if !(log.from_seq..=log.seq).contains(&seq) {
            return None;
        }
        // A reader at entry `seq` may not have read the outlooks that the planner changed after this
        // entry.
        let later = log.subjects.partition_point(|(of, _)| *of < seq);
        Some(log.first + later as u64)
    }

    /// Returns the changes from a position on; `None` if the reader has to read everything again.
    pub(crate) fn since(&self, place: u64) -> Option<News> {
        let log = self.log();
        let skipped = usize::try_from(place.checked_sub(log.first)?).ok()?;
        let mut news = News { place: log.end(), seq: log.seq, ..News::default() };
        for (_, subject) in log.subjects.iter().skip(skipped) {
            match subject {
                Subject::Job(job) => drop(news.jobs.insert(*job)),
                Subject::Node(node) => drop(news.nodes.insert(*node)),
                Subject::Everything => return None,
            }
        }
        Some(news)
    }

    /// Waits until the log has a change at or after a position.
    pub(crate) async fn beyond(&self, place: u64) {
        // This cannot fail: `self` keeps the sender.
        let _ = self.end.subscribe().wait_for(|end| *end > place).await;
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Log {
    fn end(&self) -> u64 {
        self.first + self.subjects.len() as u64
    }

    fn put(&mut self, subject: Subject) {
        // Several entries in a row are often about the same job.
        if self.subjects.back() == Some(&(self.seq, subject)) {
            return;
        }
        self.subjects.push_back((self.seq, subject));
        if self.subjects.len() > KEPT
            && let Some((seq, _)) = self.subjects.pop_front()
        {
            (self.first, self.from_seq) = (self.first + 1, seq);
        }
    }
}

/// Calls `put` for each job and node that an event changed in the view of readers.
fn subjects_of(cluster: &Cluster, event: &Event, mut put: impl FnMut(Subject)) {
    event.jobs().for_each(|job| put(Subject::Job(job)));
    match event.scope() {
        Scope::Resources(jobs) => {
            let allocs = jobs.iter().filter_map(|job| cluster.job(*job)?.phase.alloc());
            allocs.flat_map(|alloc| alloc.nodes.iter()).for_each(|part| put(Subject::Node(part.node)));
        }
        Scope::Node { node, .. } => put(Subject::Node(node)),
        Scope::Layout | Scope::Reservation => put(Subject::Everything),
        Scope::Journal | Scope::Queue(_) | Scope::Progress(_) | Scope::Accounts | Scope::Usage => {}
    }
    if let Event::NodeReleased { node, .. } | Event::JobNodeLost { node, .. } = event {
        put(Subject::Node(*node));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(changes: &Changes, seq: u64, jobs: &[u32]) {
        changes.log().seq = seq;
        changes.note_outlook(jobs.iter().copied().map(JobId), std::iter::empty());
    }

    #[test]
    fn a_reader_is_told_of_each_change_once() {
        let changes = Changes::after(10);
        noted(&changes, 11, &[1, 2]);
        let news = changes.since(0).expect("all is kept");
        assert_eq!((news.jobs, news.place, news.seq), ([1, 2].map(JobId).into(), 2, 11));
        noted(&changes, 12, &[2, 2]);
        let news = changes.since(2).expect("all is kept");
        assert_eq!((news.jobs, news.place, news.seq), ([JobId(2)].into(), 3, 12));
        assert_eq!(changes.since(3), Some(News { place: 3, seq: 12, ..News::default() }));
    }

    #[test]
    fn a_reader_goes_on_from_an_entry_that_is_kept() {
        let changes = Changes::after(10);
        noted(&changes, 11, &[1]);
        noted(&changes, 12, &[2]);
        for (seq, place) in [(9, None), (10, Some(0)), (11, Some(0)), (12, Some(1)), (13, None)] {
            assert_eq!(changes.place_after(seq), place, "after entry {seq}");
        }
    }

    #[test]
    fn a_reader_that_falls_behind_begins_anew() {
        let changes = Changes::after(0);
        let jobs = u32::try_from(KEPT).expect("it is small") + 5;
        for job in 1..=jobs {
            noted(&changes, job.into(), &[job]);
        }
        assert_eq!(changes.since(4), None);
        assert!(changes.since(5).is_some_and(|news| news.jobs.len() == KEPT));
        assert_eq!((changes.place_after(4), changes.place_after(5)), (None, Some(5)));
        let place = changes.end().0;
        changes.log().put(Subject::Everything);
        assert_eq!(changes.since(place), None);
        assert!(changes.since(place + 1).is_some());
    }
}
