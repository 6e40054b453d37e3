//! The journal's history and reign: the first entries after a start, and `--new-history` for an old copy.

use std::fs::File;
use std::io::{self, Read};
use std::sync::Arc;

use anyhow::Context;
use spur_core::cluster::{Cluster, Entry};
use spur_core::controller::{self, Input};
use spur_core::id::{HistoryId, JobId};

use crate::clock;
use crate::recover;
use crate::store::accounting::Accounting;
use crate::store::{Batch, Journal, Place};

/// Continues the cluster's own clock after a start, and returns the entries that this takes.
///
/// `own_ms` is the reading that the previous leader kept in the database, in milliseconds.
///
/// # Errors
/// Fails if the core refuses the clock, which does not happen.
pub(crate) fn resume_clock(
    cluster: &mut Cluster,
    epoch: u64,
    own_ms: Option<i64>,
) -> anyhow::Result<Vec<Arc<Entry>>> {
    let (last, shown) = (cluster.at(), clock::shown());
    let resumed = match own_ms {
        Some(own_ms) => cluster.clock().continued(last, own_ms, &shown),
        None => cluster.clock().resumed(last, &shown),
    };
    if resumed == *cluster.clock() {
        return Ok(Vec::new());
    }
    let now = clock::now_of(&resumed);
    let outcome = controller::handle(cluster, epoch, now, Input::Clock(resumed));
    outcome.answer.context("the clock cannot go on")?;
    Ok(outcome.entries)
}

/// Begins a reign and returns its first entries.
///
/// `accounting` is the last entry that accounting has, and its largest job number. A journal that ends before
/// that is an old copy.
///
/// # Errors
/// Fails if the host offers no randomness.
pub(crate) fn begin(
    cluster: &mut Cluster,
    epoch: u64,
    accounting: (u64, JobId),
) -> anyhow::Result<Vec<Arc<Entry>>> {
    let (history, reign) = (HistoryId(random()?), u64::from_ne_bytes(random()?));
    let input = Input::Begin { history, reign, accounting };
    let outcome = controller::handle(cluster, epoch, clock::now(cluster), input);
    outcome.answer.context("the controller cannot begin")?;
    Ok(outcome.entries)
}

/// Carries out `--new-history`: an old copy of a journal goes on as a history of its own.
///
/// `adopted` names a lost history whose nodes the new one takes over. Returns the message for the operator.
///
/// # Errors
/// Fails if another controller has the journal, if the journal or accounting cannot be read, or if the disk
/// or the database refuses a write. Also fails if the core refuses the new history, as for a new journal if
/// no history is adopted. The new history has begun only if the failure is one of accounting after the commit
/// to the journal.
pub(crate) async fn renew(place: &Place, adopted: Option<HistoryId>) -> anyhow::Result<String> {
    if let Place::File(path) = place {
        anyhow::ensure!(
            path.exists() || adopted.is_some(),
            "there is no journal at {}: is its file system mounted? A lost one is followed with --new-history --adopt HISTORY",
            path.display()
        );
    }
    let (journal, recovered) = Journal::open_shortened(place).await?;
    let last = recovered.last_seq;
    let mut cluster = recover::recover(recovered).await?.cluster;
    let accounting = Accounting::open(place.accounting()).await?;
    let parent = cluster.history().map(|history| history.id);
    let history = HistoryId(random()?);
    let input = Input::NewHistory { history, adopted, last_job: JobId(accounting.last_job().await?) };
    let resumed = resume_clock(&mut cluster, journal.epoch(), None)?;
    let now = clock::now(&cluster);
    let outcome = controller::handle(&mut cluster, journal.epoch(), now, input);
    outcome.answer.context("no history can begin")?;
    let entries = resumed.iter().chain(&outcome.entries).map(|entry| recover::to_store(entry)).collect();
    journal.commit(Batch { entries, ..Batch::default() }).await?;
    // Only after the commit: until then, accounting that is ahead shows that the journal is an old copy.
    accounting.rewind(last).await?;
    accounting.close().await?;
    journal.close().await;
    let from = parent.map(|parent| format!(", which goes on from {parent}")).unwrap_or_default();
    let also = adopted.map(|adopted| format!(", and takes over the nodes of {adopted}")).unwrap_or_default();
    let next = cluster.next_job();
    Ok(format!("history {history} begins{from}{also}; the next job is {next}. Start spurctld now."))
}

fn random<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes)
}
