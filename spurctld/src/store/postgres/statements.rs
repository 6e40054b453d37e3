//! The statements of the lease, each of which commits by itself, and the meanings of their outcomes.

use spur_core::controller::lease::{Fence, Holder, Outcome, Row, Statement};
use sqlx::Row as _;
use sqlx::postgres::{PgConnection, PgRow};

use super::connect::{STATEMENT_LIMIT, limited, limited_by};
use super::{Failure, failure, from_sql, sql_int};
use crate::store::{Batch, StoreError};

/// Reads the row, for [`Statement::Look`]; [`Statement::Judge`] adds a lock.
const LOOK: &str =
    "SELECT epoch, holder, seq, version, commits, released, lasts_ms, history, address, own_ms,
        (extract(epoch FROM clock_timestamp() - renewed) * 1000)::bigint FROM lease WHERE one = 1";
const JUDGE: &str =
    "SELECT epoch, holder, seq, version, commits, released, lasts_ms, history, address, own_ms,
        (extract(epoch FROM clock_timestamp() - renewed) * 1000)::bigint FROM lease WHERE one = 1 FOR UPDATE";
const TAKE: &str = "UPDATE lease SET epoch = epoch + 1, holder = $1, version = version + 1, commits = commits + 1, renewed = clock_timestamp(),
        lasts_ms = $2, released = false, address = $3
    WHERE one = 1 AND history = $4 AND epoch = $5 AND seq = $6 AND version = $7
        AND ($8 OR released OR NOT clock_timestamp() BETWEEN renewed AND renewed + lasts_ms * interval '1 ms')
    RETURNING epoch, commits, seq";
const RENEW: &str = "UPDATE lease SET version = version + 1, renewed = clock_timestamp(), own_ms = coalesce($6, own_ms),
        released = released OR $7
    WHERE one = 1 AND history = $1 AND epoch = $2 AND holder = $3 AND seq = $4 AND commits = $5 AND NOT released
    RETURNING version";
/// The update locks the row, which a plain select would not: nothing is written for a leader whose epoch has
/// passed. The notification is part of the statement's result; PostgreSQL would not execute it in a part that
/// is not read.
const COMMIT: &str = "WITH fence AS (
    UPDATE lease SET seq = $7, version = version + 1, commits = commits + 1, renewed = clock_timestamp(), own_ms = coalesce($6, own_ms)
    WHERE one = 1 AND history = $1 AND epoch = $2 AND holder = $3 AND seq = $4 AND commits = $5 AND NOT released
    RETURNING seq
), entries AS (
    INSERT INTO journal (seq, epoch, at, sum, body)
    SELECT $4 + e.n, $2, e.at, e.sum, e.body
    FROM fence, unnest($8::bigint[], $9::bigint[], $10::bytea[]) WITH ORDINALITY AS e (at, sum, body, n)
), blobs AS (
    INSERT INTO blob (id, body)
    SELECT b.id, b.body FROM fence, unnest($11::bigint[], $12::bytea[]) AS b (id, body)
), requests AS (
    INSERT INTO request (id, uid, seq, at, reply)
    SELECT r.id, r.uid, r.seq, r.at, r.reply
    FROM fence, unnest($13::bytea[], $14::bigint[], $15::bigint[], $16::bigint[], $17::bytea[])
        WITH ORDINALITY AS r (id, uid, seq, at, reply, n)
    ORDER BY r.n ON CONFLICT (id) DO NOTHING
), releases AS (
    INSERT INTO released (id) SELECT r.id FROM fence, unnest($18::bigint[]) AS r (id) ON CONFLICT DO NOTHING
) SELECT pg_notify('spur', seq::text) FROM fence";
/// Bytes of content for which a commit's time limit grows by one second.
const BYTES_A_SECOND: usize = 4 << 20;

/// The values that name the lease in every statement.
#[derive(Clone, Debug)]
pub(super) struct Names {
    pub(super) history: String,
    pub(super) holder: Holder,
    /// Addresses of this controller, separated by commas.
    pub(super) address: String,
    pub(super) lasts_ms: i64,
}

/// Further columns of the lease row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Beside {
    pub(super) history: String,
    pub(super) address: String,
    /// Time of the cluster's own clock when the row was written, and the age of the row, both in
    /// milliseconds.
    pub(super) own_ms: Option<i64>,
    pub(super) age_ms: i64,
}

/// A statement that failed.
pub(super) struct Failed {
    pub(super) outcome: Outcome,
    pub(super) error: sqlx::Error,
}

/// Sends a statement; a commit writes `batches`, and `own_ms` is the time of the cluster's own clock.
pub(super) async fn send(
    connection: &mut PgConnection,
    names: &Names,
    statement: &Statement,
    batches: &[Batch],
    own_ms: Option<i64>,
) -> Result<(Outcome, Option<Beside>), sqlx::Error> {
    match statement {
        Statement::Look | Statement::Judge => {
            let sql = if *statement == Statement::Look { LOOK } else { JUDGE };
            let row = limited(sqlx::query(sql).fetch_one(connection)).await?;
            let (row, beside) = read(&row)?;
            Ok((Outcome::Read(row), Some(beside)))
        }
        Statement::Take { seen, whatever_its_clock_says } => {
            let taken = sqlx::query(TAKE)
                .bind(name(names.holder))
                .bind(names.lasts_ms)
                .bind(&names.address)
                .bind(&names.history)
                .bind(sql_int(seen.epoch))
                .bind(sql_int(seen.seq))
                .bind(sql_int(seen.version))
                .bind(whatever_its_clock_says);
            let Some(row) = limited(taken.fetch_optional(connection)).await? else {
                return Ok((Outcome::Refused, None));
            };
            let fence = Fence {
                epoch: from_sql(row.try_get(0)?),
                commits: from_sql(row.try_get(1)?),
                seq: from_sql(row.try_get(2)?),
            };
            Ok((Outcome::Taken(fence), None))
        }
        Statement::Renew { fence } => Ok((renew(connection, names, fence, own_ms, false).await?, None)),
        Statement::Release { fence } => Ok((renew(connection, names, fence, own_ms, true).await?, None)),
        Statement::Commit { fence, to } => {
            Ok((commit(connection, names, fence, *to, batches, own_ms).await?, None))
        }
    }
}

async fn renew(
    connection: &mut PgConnection,
    names: &Names,
    fence: &Fence,
    own_ms: Option<i64>,
    release: bool,
) -> Result<Outcome, sqlx::Error> {
    let renewed = sqlx::query(RENEW)
        .bind(&names.history)
        .bind(sql_int(fence.epoch))
        .bind(name(names.holder))
        .bind(sql_int(fence.seq))
        .bind(sql_int(fence.commits))
        .bind(own_ms)
        .bind(release);
    let row = limited(renewed.fetch_optional(connection)).await?;
    Ok(if row.is_some() { Outcome::Confirmed } else { Outcome::Refused })
}

async fn commit(
    connection: &mut PgConnection,
    names: &Names,
    fence: &Fence,
    to: u64,
    batches: &[Batch],
    own_ms: Option<i64>,
) -> Result<Outcome, sqlx::Error> {
    let entries = || batches.iter().flat_map(|batch| &batch.entries);
    let blobs = || batches.iter().flat_map(|batch| &batch.blobs);
    let requests = || batches.iter().flat_map(|batch| &batch.requests);
    let released = batches.iter().flat_map(|batch| &batch.released);
    let bytes: usize = batches.iter().map(Batch::size).sum();
    let query = sqlx::query(COMMIT)
        .bind(&names.history)
        .bind(sql_int(fence.epoch))
        .bind(name(names.holder))
        .bind(sql_int(fence.seq))
        .bind(sql_int(fence.commits))
        .bind(own_ms)
        .bind(sql_int(to))
        .bind(entries().map(|entry| entry.at).collect::<Vec<i64>>())
        .bind(entries().map(|entry| i64::from(entry.checksum())).collect::<Vec<i64>>())
        .bind(entries().map(|entry| &entry.body[..]).collect::<Vec<&[u8]>>())
        .bind(blobs().map(|blob| sql_int(blob.id)).collect::<Vec<i64>>())
        .bind(blobs().map(|blob| &blob.body[..]).collect::<Vec<&[u8]>>())
        .bind(requests().map(|request| &request.id[..]).collect::<Vec<&[u8]>>())
        .bind(requests().map(|request| i64::from(request.uid)).collect::<Vec<i64>>())
        .bind(requests().map(|request| sql_int(request.seq)).collect::<Vec<i64>>())
        .bind(requests().map(|request| request.at).collect::<Vec<i64>>())
        .bind(requests().map(|request| &request.reply[..]).collect::<Vec<&[u8]>>())
        .bind(released.map(|id| sql_int(*id)).collect::<Vec<i64>>());
    let more = u32::try_from(bytes / BYTES_A_SECOND).unwrap_or(u32::MAX);
    let limit = STATEMENT_LIMIT + std::time::Duration::from_secs(1).saturating_mul(more);
    let row = limited_by(limit, query.fetch_optional(connection)).await?;
    Ok(if row.is_some() { Outcome::Confirmed } else { Outcome::Refused })
}

/// Returns the meaning of a failed statement for the lease; an error if no repetition can help.
pub(super) fn outcome_of(error: sqlx::Error, place: &std::path::Path) -> Result<Failed, StoreError> {
    let outcome = match failure(&error) {
        Failure::Lost => Outcome::Lost,
        Failure::Later => Outcome::Failed,
        Failure::Final => {
            // Entries were checked, and requests and releases may be repeated: only a blob can exist already.
            let duplicate = error.as_database_error().is_some_and(|error| error.is_unique_violation());
            return Err(match duplicate {
                true => StoreError::Duplicate { what: "blob id" },
                false => super::failed("write to", place, error),
            });
        }
    };
    Ok(Failed { outcome, error })
}

fn name(holder: Holder) -> String {
    format!("{holder:032x}")
}

fn read(row: &PgRow) -> Result<(Row, Beside), sqlx::Error> {
    let holder: Option<String> = row.try_get(1)?;
    let lease = Row {
        epoch: from_sql(row.try_get(0)?),
        holder: holder.and_then(|holder| Holder::from_str_radix(&holder, 16).ok()),
        seq: from_sql(row.try_get(2)?),
        version: from_sql(row.try_get(3)?),
        commits: from_sql(row.try_get(4)?),
        released: row.try_get(5)?,
        lasts_ms: row.try_get(6)?,
    };
    let beside = Beside {
        history: row.try_get(7)?,
        address: row.try_get(8)?,
        own_ms: row.try_get(9)?,
        age_ms: row.try_get(10)?,
    };
    Ok((lease, beside))
}
