//! Accounting in PostgreSQL, in tables of its own beside the journal's.
//!
//! Rows are sent and returned as JSON with the columns as names, so that the text of a statement does not
//! depend on the number of rows.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use sqlx::postgres::{PgConnection, Postgres};
use sqlx::{Connection, Decode, QueryBuilder, Row, Type};
use tokio::sync::Mutex;

use super::connect::{Database as Server, limited, limited_by};
use super::read::Reader;
use super::{StoreError, from_sql, schema, sql_int};
use crate::store::accounting::{
    Closing, EventQuery, JobRow, LIST, NodeChange, NodeEvent, OldRun, PURGE_EVENTS, Page, Query, StepRow,
    restrict, restrict_events, restrict_old_runs, runs,
};

/// Longest duration of a write, which may contain thousands of rows.
const WRITE_LIMIT: Duration = Duration::from_secs(30);
/// Longest duration of a query for a list.
const FIND_LIMIT: Duration = Duration::from_secs(30);
/// Closes runs and their open steps, with an end not before any known time of theirs.
const CLOSE: &str = "WITH closing AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) AS c (job_id, restarts, state, ended)
), runs AS (
    UPDATE job SET state = c.state, ended = greatest(c.ended, submitted, coalesce(eligible, 0), coalesce(started, 0))
    FROM closing c WHERE job.job_id = c.job_id AND job.restarts = c.restarts AND job.ended IS NULL
    RETURNING c.job_id, c.restarts, c.ended
), steps AS (
    UPDATE step SET state = 'CANCELLED', ended = greatest(runs.ended, coalesce(started, 0))
    FROM runs WHERE step.job_id = runs.job_id AND step.restarts = runs.restarts AND step.ended IS NULL
)
SELECT count(*) FROM runs";

/// Ends the open event of a node. A change that is written again ends an event that it has opened itself.
const END_EVENT: &str =
    "UPDATE node_event SET ended = greatest($1, started) WHERE node = $2 AND ended IS NULL";
const BEGIN_EVENT: &str = "INSERT INTO node_event (node, started, ended, state, reason, \"user\")
    VALUES ($1, $2, NULL, $3, $4, $5) ON CONFLICT (node, started, state)
    DO UPDATE SET ended = NULL, reason = excluded.reason, \"user\" = excluded.\"user\"";
const HAS_OPEN_EVENT: &str = "SELECT count(*) FROM node_event WHERE node = $1 AND ended IS NULL";

/// The table of the time before whose ends runs may have been purged. The first purge makes it, so that no
/// migration is needed and older programs can use a database in which nothing was purged.
const PURGED: &str = "CREATE TABLE IF NOT EXISTS purged (
    only_row bigint PRIMARY KEY CHECK (only_row = 1),
    complete_from bigint NOT NULL
)";
const HAS_PURGED: &str = "SELECT to_regclass('spur.purged') IS NOT NULL";
/// Deletes runs with their steps, and records that runs that ended earlier may have been purged.
const PURGE: &str = "WITH gone AS (
    SELECT * FROM unnest($1::bigint[], $2::bigint[]) AS g (job_id, restarts)
), steps AS (
    DELETE FROM step USING gone g WHERE step.job_id = g.job_id AND step.restarts = g.restarts
), jobs AS (
    DELETE FROM job USING gone g WHERE job.job_id = g.job_id AND job.restarts = g.restarts
)
INSERT INTO purged VALUES (1, $3) ON CONFLICT (only_row)
    DO UPDATE SET complete_from = greatest(purged.complete_from, excluded.complete_from)";

/// The open database.
#[derive(Clone)]
pub(in crate::store) struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    server: Server,
    reader: Reader,
    writer: Mutex<Writer>,
    /// The statement that writes rows and the entry that they reach.
    write: String,
}

/// The connection that writes.
enum Writer {
    Open(PgConnection),
    /// A write has failed on the connection: the next write opens another one.
    Failed,
    Closed,
}

impl Database {
    pub(in crate::store) async fn open(server: Server) -> Result<Self, StoreError> {
        let mut connection = server.connect().await?;
        schema::migrate(&mut connection, &server).await?;
        let reader = Reader::new(server.clone());
        let writer = Mutex::new(Writer::Open(connection));
        Ok(Self { inner: Arc::new(Inner { server, reader, writer, write: write_statement() }) })
    }

    pub(in crate::store) async fn reached(&self) -> Result<u64, StoreError> {
        self.number("SELECT seq FROM reached").await.map(from_sql)
    }

    pub(in crate::store) async fn last_job(&self) -> Result<u32, StoreError> {
        let last = self.number("SELECT coalesce(max(job_id), 0) FROM job").await?;
        Ok(u32::try_from(last).unwrap_or(u32::MAX))
    }

    pub(in crate::store) async fn complete_from(&self) -> Result<Option<i64>, StoreError> {
        match self.value(HAS_PURGED).await? {
            true => self.value("SELECT complete_from FROM purged").await,
            false => Ok(None),
        }
    }

    async fn number(&self, sql: &'static str) -> Result<i64, StoreError> {
        self.value(sql).await
    }

    async fn value<T>(&self, sql: &'static str) -> Result<T, StoreError>
    where
        T: for<'r> Decode<'r, Postgres> + Type<Postgres>,
    {
        let mut borrowed = self.inner.reader.borrow().await?;
        let row = limited(sqlx::query(sql).fetch_one(&mut borrowed.connection)).await;
        let value = row.and_then(|row| row.try_get(0)).map_err(|error| self.failed("read", error))?;
        self.inner.reader.give_back(borrowed);
        Ok(value)
    }

    pub(in crate::store) async fn rewind(&self, last: u64) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = self.writer(&mut guard).await?;
        let rewound = sqlx::query("UPDATE reached SET seq = least(seq, $1)").bind(sql_int(last));
        let rewound = limited(rewound.execute(writer)).await;
        rewound.map(drop).map_err(|error| self.write_failed(&mut guard, error))
    }

    pub(in crate::store) async fn write(
        &self,
        reached: u64,
        jobs: Vec<JobRow>,
        steps: Vec<StepRow>,
    ) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let (jobs, steps) = (last_of_each(&jobs, 2), last_of_each(&steps, 3));
        let writer = self.writer(&mut guard).await?;
        let sql = sqlx::query(sqlx::AssertSqlSafe(self.inner.write.clone()));
        let write = sql.bind(sql_int(reached)).bind(jobs).bind(steps);
        match limited_by(WRITE_LIMIT, write.fetch_optional(writer)).await {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                drop(guard);
                Err(StoreError::OutOfOrder { expected: self.reached().await?, found: reached })
            }
            Err(error) => Err(self.write_failed(&mut guard, error)),
        }
    }

    pub(in crate::store) async fn close_runs(&self, closings: &[Closing]) -> Result<u64, StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = self.writer(&mut guard).await?;
        let numbers = |number: &dyn Fn(&Closing) -> i64| closings.iter().map(number).collect::<Vec<i64>>();
        let close = sqlx::query(CLOSE)
            .bind(numbers(&|closing| closing.job_id.into()))
            .bind(numbers(&|closing| closing.restarts.into()))
            .bind(closings.iter().map(|closing| closing.state).collect::<Vec<&str>>())
            .bind(numbers(&|closing| closing.ended));
        let row = limited_by(WRITE_LIMIT, close.fetch_one(writer)).await;
        let count =
            row.and_then(|row| row.try_get(0)).map_err(|error| self.write_failed(&mut guard, error))?;
        Ok(from_sql(count))
    }

    pub(in crate::store) async fn change_nodes(&self, changes: &[NodeChange]) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = self.writer(&mut guard).await?;
        let written = limited_by(WRITE_LIMIT, change_nodes(writer, changes)).await;
        written.map_err(|error| self.write_failed(&mut guard, error))
    }

    pub(in crate::store) async fn old_runs(
        &self,
        before: i64,
        after: Option<(i64, u32, u32)>,
    ) -> Result<Vec<OldRun>, StoreError> {
        let mut sql = QueryBuilder::new(
            "SELECT json_build_object('job_id', job_id, 'restarts', restarts, 'array_job_id', array_job_id,
                 'het_job_id', het_job_id, 'ended', ended)::text FROM job WHERE true",
        );
        restrict_old_runs(&mut sql, before, after);
        self.find(sql).await
    }

    pub(in crate::store) async fn purge(
        &self,
        of: &[(u32, u32)],
        complete_from: i64,
    ) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = self.writer(&mut guard).await?;
        let (jobs, restarts): (Vec<i64>, Vec<i64>) =
            of.iter().map(|(job, restarts)| (i64::from(*job), i64::from(*restarts))).unzip();
        let purge = async {
            sqlx::query(PURGED).execute(&mut *writer).await?;
            let purge = sqlx::query(PURGE).bind(jobs).bind(restarts).bind(complete_from);
            purge.execute(writer).await
        };
        let purged = limited_by(WRITE_LIMIT, purge).await;
        purged.map(drop).map_err(|error| self.write_failed(&mut guard, error))
    }

    pub(in crate::store) async fn purge_events(&self, before: i64) -> Result<u64, StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = self.writer(&mut guard).await?;
        let purge = sqlx::query(PURGE_EVENTS).bind(before).bind(i64::from(OldRun::PAGE));
        let purged = limited_by(WRITE_LIMIT, purge.execute(writer)).await;
        purged.map(|done| done.rows_affected()).map_err(|error| self.write_failed(&mut guard, error))
    }

    /// Returns false: the server's autovacuum cuts the files of tables.
    #[expect(clippy::unused_async, reason = "the database in SQLite has work to do here")]
    pub(in crate::store) async fn release_space(&self) -> Result<bool, StoreError> {
        Ok(false)
    }

    pub(in crate::store) async fn node_events(
        &self,
        query: &EventQuery,
    ) -> Result<Vec<NodeEvent>, StoreError> {
        let mut sql = QueryBuilder::new("SELECT to_json(node_event)::text FROM node_event WHERE true");
        restrict_events(&mut sql, query);
        self.find(sql).await
    }

    pub(in crate::store) async fn jobs(&self, query: &Query) -> Result<Page, StoreError> {
        let limit = if query.limit == 0 { Query::PAGE } else { query.limit };
        let mut sql = QueryBuilder::new("SELECT to_json(job)::text FROM job WHERE true");
        restrict(&mut sql, query);
        sql.push(" ORDER BY job_id, restarts LIMIT ").push_bind(i64::from(limit));
        let found: Vec<JobRow> = self.find(sql).await?;
        let (mut rows, mut bytes) = (Vec::new(), 0);
        for row in found {
            bytes += row.text_bytes();
            rows.push(row);
            if bytes >= Query::PAGE_BYTES {
                return Ok(Page { rows, more: true });
            }
        }
        Ok(Page { more: rows.len() >= limit as usize, rows })
    }

    pub(in crate::store) async fn steps(&self, of: &[(u32, u32)]) -> Result<Vec<StepRow>, StoreError> {
        let mut steps: Vec<StepRow> = Vec::new();
        for some in of.chunks(LIST) {
            let mut sql =
                QueryBuilder::new("SELECT to_json(step)::text FROM step WHERE (job_id, restarts) IN ");
            runs(&mut sql, some);
            steps.extend(self.find::<StepRow>(sql).await?);
        }
        steps.sort_unstable_by_key(|step| (step.job_id, step.restarts, step.step_id));
        Ok(steps)
    }

    async fn find<T: DeserializeOwned>(&self, mut sql: QueryBuilder<Postgres>) -> Result<Vec<T>, StoreError> {
        let mut borrowed = self.inner.reader.borrow().await?;
        let query = sql.build().persistent(false);
        let rows = limited_by(FIND_LIMIT, query.fetch_all(&mut borrowed.connection)).await;
        let rows = rows.map_err(|error| self.failed("read", error))?;
        self.inner.reader.give_back(borrowed);
        let read = |row: &sqlx::postgres::PgRow| {
            let text: &str = row.try_get(0)?;
            serde_json::from_str(text).map_err(|error| sqlx::Error::Decode(error.into()))
        };
        rows.iter().map(|row| read(row).map_err(|error| self.failed("read", error))).collect()
    }

    pub(in crate::store) async fn close(&self) -> Result<(), StoreError> {
        self.inner.reader.close().await;
        if let Writer::Open(writer) = std::mem::replace(&mut *self.inner.writer.lock().await, Writer::Closed)
        {
            // Every answered write is durable; the runtime of this connection may be gone.
            let _ = limited(writer.close()).await;
        }
        Ok(())
    }

    /// Returns the connection that writes, opened if necessary.
    async fn writer<'a>(&self, writer: &'a mut Writer) -> Result<&'a mut PgConnection, StoreError> {
        if let Writer::Failed = writer {
            *writer = Writer::Open(self.inner.server.connect().await?);
        }
        match writer {
            Writer::Open(connection) => Ok(connection),
            Writer::Failed | Writer::Closed => Err(StoreError::Stopped),
        }
    }

    fn write_failed(&self, writer: &mut Writer, error: sqlx::Error) -> StoreError {
        *writer = Writer::Failed;
        self.failed("write to", error)
    }

    fn failed(&self, action: &'static str, error: sqlx::Error) -> StoreError {
        self.inner.reader.failed(action, error)
    }
}

/// Writes changes in order, in one transaction. Only accounting waits for its locks.
async fn change_nodes(writer: &mut PgConnection, changes: &[NodeChange]) -> Result<(), sqlx::Error> {
    let mut transaction = writer.begin().await?;
    for NodeChange { node, at, outage, is_new } in changes {
        if *is_new {
            sqlx::query(END_EVENT).bind(at).bind(node).execute(&mut *transaction).await?;
        } else {
            let open = sqlx::query(HAS_OPEN_EVENT).bind(node).fetch_one(&mut *transaction).await?;
            if open.try_get::<i64, _>(0)? > 0 {
                continue;
            }
        }
        if let Some(outage) = outage {
            // PostgreSQL allows no NUL in a text.
            let text = |text: &str| text.replace('\0', "");
            let begin = sqlx::query(BEGIN_EVENT).bind(node).bind(at).bind(&outage.state);
            let begin = begin.bind(text(&outage.reason)).bind(text(&outage.user));
            begin.execute(&mut *transaction).await?;
        }
    }
    transaction.commit().await
}

/// Encodes rows as a JSON array without NUL, which PostgreSQL does not allow in a text.
///
/// One statement can write a key only once, so of several rows with the same first `key` columns the last
/// counts.
fn last_of_each<T: Serialize>(rows: &[T], key: usize) -> String {
    let mut seen = std::collections::HashSet::new();
    let mut values: Vec<Value> = Vec::with_capacity(rows.len());
    for row in rows.iter().rev() {
        let mut value = serde_json::to_value(row).expect("a row holds nothing that JSON cannot");
        let Value::Object(columns) = &mut value else { continue };
        for text in columns.values_mut() {
            if let Value::String(text) = text {
                text.retain(|character| character != '\0');
            }
        }
        let names = ["job_id", "restarts", "step_id"];
        let name: Vec<Option<i64>> = names[..key].iter().map(|name| columns.get(*name)?.as_i64()).collect();
        if seen.insert(name) {
            values.push(value);
        }
    }
    Value::Array(values).to_string()
}

/// Builds the statement that writes rows and the entry that they reach, unless a later one was reached. Each
/// row replaces the one with its key.
fn write_statement() -> String {
    let rows = |table: &str, argument: &str, key: &[&str], example: serde_json::Result<Value>| {
        let Ok(Value::Object(columns)) = example else { unreachable!("a row is a JSON object") };
        let rest = columns.keys().filter(|column| !key.contains(&column.as_str()));
        let set: Vec<String> = rest.map(|column| format!("\"{column}\" = excluded.\"{column}\"")).collect();
        format!(
            "INSERT INTO {table} SELECT r.* FROM moved, json_populate_recordset(NULL::{table}, {argument}::json) AS r
             ON CONFLICT ({}) DO UPDATE SET {}",
            key.join(", "),
            set.join(", ")
        )
    };
    let jobs = rows("job", "$2", &["job_id", "restarts"], serde_json::to_value(JobRow::default()));
    let steps =
        rows("step", "$3", &["job_id", "restarts", "step_id"], serde_json::to_value(StepRow::default()));
    format!(
        "WITH moved AS (UPDATE reached SET seq = $1 WHERE seq <= $1 RETURNING seq), jobs AS ({jobs}), steps AS ({steps})
         SELECT seq FROM moved"
    )
}
