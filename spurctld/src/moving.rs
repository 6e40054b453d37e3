//! `--migrate`, `--backup` and `--restore`: moves or copies a whole journal with its accounting.

use std::path::Path;

use anyhow::{Context, bail, ensure};
use spur_core::cluster::snapshot;
use spur_core::model::config::{Local, State};

use crate::archive::chunks;
use crate::recover::{self, CHUNK};
use crate::store::accounting::{Accounting, EventQuery, NodeChange, NodeEvent, Outage, Query};
use crate::store::{Database, Export, Follower, Import, Journal, Place, back_up, restore};

/// Carries out `--migrate FILE`: copies an SQLite journal and its accounting into the configured database.
///
/// The recovered clusters of both are compared. The SQLite journal stays as it is. Returns the message for
/// the operator.
///
/// # Errors
/// Fails if a controller runs on the journal, if accounting lacks entries, if the database is not empty, or
/// if disk or database refuse. Rows written up to then do not count.
pub async fn migrate(from: &Path, local: &Local) -> anyhow::Result<String> {
    let State::Postgres(state) = &local.controller.state else {
        bail!("--migrate FILE copies FILE into the database that [controller] state names as `postgres://…`");
    };
    ensure!(from.exists(), "there is no journal at {}", from.display());
    let database = Database::new(state)?;
    let (journal, recovered) = Journal::open(from).await?;
    let last = recovered.last_seq;
    let cluster = recover::recover(recovered).await?.cluster;
    let old = Accounting::open(Place::from(from).accounting()).await?;
    let reached = old.reached().await?;
    ensure!(
        reached >= last,
        "accounting has come to entry {reached}, and the journal ends at {last}: start the controller on it and stop it once"
    );
    let mut import = Import::begin(&database, last, journal.epoch()).await?;
    for chunk in chunks(&cluster) {
        import.chunk(CHUNK, chunk).await?;
    }
    let mut export = Export::open(from).await?;
    let (mut blobs, mut requests) = (0, 0);
    let mut page = export.blobs(None).await?;
    while let Some(&end) = page.last() {
        for id in &page {
            let body = journal.blob(*id).await?.with_context(|| format!("blob {id} is gone"))?;
            import.blob(*id, body).await?;
        }
        blobs += page.len() as u64;
        page = export.blobs(Some(end)).await?;
    }
    let mut line = 0;
    loop {
        let (page, end) = export.requests(line).await?;
        if page.is_empty() {
            break;
        }
        import.requests(&page).await?;
        (line, requests) = (end, requests + page.len() as u64);
    }
    let place = Place::Database { database: database.clone(), address: String::new() };
    let (jobs, steps) = copy_accounting(&old, &Accounting::open(&place).await?, reached).await?;
    let found = import.finish().await?;
    let written = crate::store::Imported { blobs, requests, jobs, steps };
    ensure!(found == written, "{written:?} were written, and the database has {found:?}");
    let copy = recover::recover(Follower::open(&database, "").await?.recover().await?).await?.cluster;
    ensure!(
        copy.seq() == cluster.seq() && snapshot::records(&copy).eq(snapshot::records(&cluster)),
        "the copy does not lead to the same cluster as {}",
        from.display()
    );
    journal.close().await;
    Ok(format!(
        "the journal up to entry {last} is in {database:?}: {} jobs, {blobs} scripts, {requests} request ids; accounting has \
         {jobs} runs and {steps} steps. Start spurctld now. {} is as it was; start no controller on it again.",
        cluster.jobs().len(),
        from.display()
    ))
}

/// Copies all rows of jobs, steps and node events and the time of the last purge, closes `to`, and returns
/// the numbers of jobs and steps.
async fn copy_accounting(from: &Accounting, to: &Accounting, reached: u64) -> anyhow::Result<(u64, u64)> {
    let (mut jobs, mut steps, mut query) = (0, 0, Query::default());
    loop {
        let page = from.jobs(&query).await?;
        let runs: Vec<(u32, u32)> = page.rows.iter().map(|row| (row.job_id, row.restarts)).collect();
        let of_page = from.steps(&runs).await?;
        jobs += page.rows.len() as u64;
        steps += of_page.len() as u64;
        query.after = runs.last().copied().or(query.after);
        to.write(reached, page.rows, of_page).await?;
        if !page.more {
            copy_events(from, to).await?;
            if let Some(complete_from) = from.complete_from().await? {
                to.purge(&[], complete_from).await?;
            }
            to.close().await?;
            return Ok((jobs, steps));
        }
    }
}

/// Copies the times during which nodes were out of service.
async fn copy_events(from: &Accounting, to: &Accounting) -> anyhow::Result<()> {
    let mut query = EventQuery::default();
    loop {
        let page = from.node_events(&query).await?;
        let Some(last) = page.last() else { return Ok(()) };
        query.after = Some((last.started, last.node.clone(), last.state.clone()));
        let mut changes = Vec::with_capacity(2 * page.len());
        for NodeEvent { node, started, ended, state, reason, user } in page {
            let change = |at, outage| NodeChange { node: node.clone(), at, outage, is_new: true };
            changes.push(change(started, Some(Outage { state, reason, user })));
            changes.extend(ended.map(|ended| change(ended, None)));
        }
        to.change_nodes(&changes).await?;
    }
}

/// Carries out `--backup DIRECTORY`: copies the journal and accounting, also while a controller uses them.
///
/// # Errors
/// Fails if the state is not in SQLite, if the directory is not empty, or if the disk refuses.
pub async fn backup(local: &Local, to: &Path) -> anyhow::Result<String> {
    let path = sqlite_file(local)?;
    let last = back_up(path, to).await?;
    Ok(format!("{} holds the journal up to entry {last}", to.display()))
}

/// Carries out `--restore DIRECTORY`: puts a copy in the journal's place.
///
/// # Errors
/// Fails if the state is not in SQLite, if a journal exists or is in use, or if the disk refuses.
pub fn put_back(local: &Local, from: &Path) -> anyhow::Result<String> {
    let path = sqlite_file(local)?;
    restore(from, path)?;
    Ok(format!(
        "{} is restored, and is an old copy if anything has happened since. Start spurctld and look at scontrol ping: if that \
         says that it has an old copy, stop spurctld, run spurctld --new-history, and start it again",
        path.display()
    ))
}

fn sqlite_file(local: &Local) -> anyhow::Result<&Path> {
    local.controller.state.file().context(
        "[controller] state is a PostgreSQL database, which is copied with PostgreSQL's own tools (pg_basebackup, pg_dump)",
    )
}
