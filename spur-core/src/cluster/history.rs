//! The journal's history, its reigns, and the evidence that the journal is an old copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Cluster, Event};
use crate::id::JobId;
use crate::model::clock::Clock;
use crate::model::history::{Doubt, History};
use crate::text::time::Time;

/// Number of reigns that are remembered. The reign that a node names is not checked if it is older.
const REIGNS: usize = 4096;

/// The identity of a cluster's journal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lineage {
    /// The history of the journal; `None` if no controller of this release has opened the journal.
    pub history: Option<Arc<History>>,
    /// The random number of each reign, by epoch.
    pub reigns: BTreeMap<u64, u64>,
    /// The evidence that the journal is an old copy; `None` if there is none.
    pub doubt: Option<Arc<Doubt>>,
    /// The clock by which entries are dated.
    pub clock: Clock,
    /// The job numbers that are kept for imported jobs, in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub imported: Vec<JobNumbers>,
}

/// A range of job numbers, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobNumbers {
    /// The smallest number.
    pub first: JobId,
    /// The largest number.
    pub last: JobId,
}

impl JobNumbers {
    /// True if a number is in the range.
    #[must_use]
    pub fn contains(self, job: JobId) -> bool {
        self.first <= job && job <= self.last
    }
}

impl Cluster {
    /// The clock by which entries are dated.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.lineage.clock
    }

    /// The history of the journal; `None` if no controller of this release has opened the journal.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.lineage.history.as_deref()
    }

    /// The evidence that the journal is an old copy; `None` if there is none. While there is any, nothing
    /// starts, ends or changes.
    #[must_use]
    pub fn doubt(&self) -> Option<&Doubt> {
        self.lineage.doubt.as_deref()
    }

    /// True if a reign with this epoch and random number may have existed. True for `reign` 0, and for epochs
    /// before the ones that are remembered.
    #[must_use]
    pub fn knows_reign(&self, epoch: u64, reign: u64) -> bool {
        let reigns = &self.lineage.reigns;
        let forgotten = reigns.first_key_value().is_none_or(|(first, _)| epoch < *first);
        reign == 0 || forgotten || reigns.get(&epoch) == Some(&reign)
    }

    /// The random number of the last reign; 0 before the first.
    #[must_use]
    pub fn reign(&self) -> u64 {
        self.lineage.reigns.last_key_value().map_or(0, |(_, reign)| *reign)
    }

    /// The largest job number ever used.
    #[must_use]
    pub fn last_job(&self) -> JobId {
        self.mark.last_job
    }

    /// True if a job number is kept for imported jobs.
    #[must_use]
    pub fn is_imported(&self, job: JobId) -> bool {
        self.lineage.imported.iter().any(|numbers| numbers.contains(job))
    }

    pub(super) fn apply_to_lineage(&mut self, event: &Event, epoch: u64, at: Time) {
        let lineage = Arc::make_mut(&mut self.lineage);
        match event {
            Event::HistoryBegun { history, parents, last_job } => {
                let before = lineage.history.take();
                let older = before.iter().flat_map(|history| &history.ancestors);
                let mut ancestors = parents.clone();
                ancestors.extend(older);
                lineage.history = Some(Arc::new(History { id: *history, ancestors }));
                lineage.doubt = None;
                self.mark.last_job = self.mark.last_job.max(*last_job);
            }
            Event::ReignBegun { reign } => {
                lineage.reigns.insert(epoch, *reign);
                while lineage.reigns.len() > REIGNS {
                    lineage.reigns.pop_first();
                }
                self.await_nodes();
            }
            Event::FeatureLevelRaised { level } => self.feature_level = *level,
            Event::ClockSet { clock } => lineage.clock = clock.clone(),
            Event::HistoryImported { last_job, .. } if *last_job > self.mark.last_job => {
                let first = JobId(self.mark.last_job.0 + 1);
                lineage.imported.push(JobNumbers { first, last: *last_job });
                self.mark.last_job = *last_job;
            }
            Event::JournalDoubted { why, last_job } => {
                let doubt = Doubt { why: Arc::clone(why), since: at, last_job: *last_job };
                lineage.doubt = Some(Arc::new(doubt));
            }
            _ => {}
        }
    }
}
