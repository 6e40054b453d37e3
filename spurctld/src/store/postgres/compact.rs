//! Compaction: deletes rows that are no longer needed, some at a time, beside the commits.

use std::time::Duration;

use sqlx::Row;
use tokio::sync::{mpsc, watch};

use super::connect::limited;
use super::read::Reader;
use super::{StoreError, sql_int};
use crate::store::backend::Compaction;
use crate::store::{Compacted, Retention};

/// Largest number of rows of each kind that one step deletes.
const STEP: i64 = 1024;
/// Pause after a refusal of the database.
const RETRY: Duration = Duration::from_secs(5);

/// Entries are deleted once the newest snapshot and every standby have passed them. A standby without a
/// report for ten minutes is ignored: it begins from the snapshot.
const ENTRIES: &str = "DELETE FROM journal WHERE seq < (SELECT min(seq) FROM journal) + $1
    AND seq <= least($2, (SELECT min(seq) FROM standby WHERE seen > clock_timestamp() - interval '10 minutes'))";
const REQUESTS: &str = "DELETE FROM request WHERE line < (SELECT min(line) FROM request) + $1 AND at < $2";
const BLOBS: &str = "WITH gone AS (
        DELETE FROM released WHERE id IN (SELECT id FROM released LIMIT $1) RETURNING id
    ), bodies AS (DELETE FROM blob USING gone WHERE blob.id = gone.id)
    SELECT count(*) FROM gone";

/// Carries out orders until their senders are gone. `snapshot` is the last entry of a durable snapshot.
pub(super) async fn serve(
    reader: Reader,
    mut orders: mpsc::Receiver<Compaction>,
    snapshot: watch::Receiver<u64>,
) {
    while let Some(Compaction { retention, done }) = orders.recv().await {
        let mut deleted = Compacted::default();
        loop {
            let covered = *snapshot.borrow();
            match step(&reader, retention, covered, &mut deleted).await {
                Ok(false) => break,
                Ok(true) => {}
                Err(StoreError::Stopped) => return,
                Err(error) => {
                    tracing::warn!(%error, "the journal is not compacted now");
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
        // The caller may have given up.
        let _ = done.send(deleted);
    }
}

/// Takes one step, and returns true if it deleted anything.
async fn step(
    reader: &Reader,
    retention: Retention,
    covered: u64,
    deleted: &mut Compacted,
) -> Result<bool, StoreError> {
    let mut borrowed = reader.borrow().await?;
    let connection = &mut borrowed.connection;
    let through = sql_int(retention.entries_through.min(covered));
    let taken = async {
        let entries =
            limited(sqlx::query(ENTRIES).bind(STEP).bind(through).execute(&mut *connection)).await?;
        let requests = sqlx::query(REQUESTS).bind(STEP).bind(retention.requests_before);
        let requests = limited(requests.execute(&mut *connection)).await?;
        let blobs = limited(sqlx::query(BLOBS).bind(STEP).fetch_one(&mut *connection)).await?;
        Ok((entries.rows_affected(), requests.rows_affected(), super::from_sql(blobs.try_get(0)?)))
    };
    let (entries, requests, blobs) = taken.await.map_err(|error| reader.failed("compact", error))?;
    reader.give_back(borrowed);
    deleted.entries += entries;
    deleted.requests += requests;
    deleted.blobs += blobs;
    Ok(entries + requests + blobs > 0)
}
