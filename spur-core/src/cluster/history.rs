//! The journal's own history, the reigns in it, and whether it may be an old copy.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Cluster, Event};
use crate::id::JobId;
use crate::model::clock::Clock;
use crate::model::history::{Doubt, History};
use crate::text::time::Time;

/// Reigns that are remembered; a node that has not been led since an earlier one is believed.
const REIGNS: usize = 4096;

/// What a cluster knows of the journal that it comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Lineage {
    /// Which history the journal is of; none in one that no controller of this release has opened.
    pub history: Option<Arc<History>>,
    /// What the controller of each reign drew when it began, by epoch.
    pub reigns: BTreeMap<u64, u64>,
    /// Why the journal is taken for an old copy, if it is.
    pub doubt: Option<Arc<Doubt>>,
    /// How the times of its entries go on.
    pub clock: Clock,
}

impl Cluster {
    /// The clock that entries are dated by.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.lineage.clock
    }

    /// The history that the journal is of.
    #[must_use]
    pub fn history(&self) -> Option<&History> {
        self.lineage.history.as_deref()
    }

    /// Why the journal is taken for an old copy; nothing starts, ends or changes while it is.
    #[must_use]
    pub fn doubt(&self) -> Option<&Doubt> {
        self.lineage.doubt.as_deref()
    }

    /// Whether there may have been a reign under this epoch whose controller drew this number.
    #[must_use]
    pub fn knows_reign(&self, epoch: u64, reign: u64) -> bool {
        let reigns = &self.lineage.reigns;
        let forgotten = reigns.first_key_value().is_none_or(|(first, _)| epoch < *first);
        reign == 0 || forgotten || reigns.get(&epoch) == Some(&reign)
    }

    /// What the controller of the last reign drew when that began; 0 before any has.
    #[must_use]
    pub fn reign(&self) -> u64 {
        self.lineage.reigns.last_key_value().map_or(0, |(_, reign)| *reign)
    }

    /// The largest job number ever used.
    #[must_use]
    pub fn last_job(&self) -> JobId {
        self.mark.last_job
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
            Event::ClockSet { clock } => lineage.clock = clock.clone(),
            Event::JournalDoubted { why, last_job } => {
                let doubt = Doubt { why: Arc::clone(why), since: at, last_job: *last_job };
                lineage.doubt = Some(Arc::new(doubt));
            }
            _ => {}
        }
    }
}
