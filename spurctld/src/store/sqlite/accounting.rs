//! The accounting database in SQLite.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use sqlx::error::BoxDynError;
use sqlx::sqlite::{Sqlite, SqliteArguments, SqliteConnection, SqlitePool, SqlitePoolOptions, SqliteRow};
use sqlx::{Arguments, ConnectOptions, Connection, QueryBuilder, Row};
use tokio::sync::Mutex;
use tokio_stream::StreamExt;

use super::events;
use super::rows::Insert;
use super::{StoreError, create, failed, from_sql, read_options, reclaim, schema, sql_int, write_options};
use crate::store::accounting::{
    Closing, EventQuery, JobRow, LIST, NodeChange, NodeEvent, OldRun, PURGE_EVENTS, Page, Query, StepRow,
    restrict, restrict_old_runs, runs,
};

/// Number of connections for readers.
const READERS: u32 = 4;
/// Closes a run, with an end not before any known time of it.
const CLOSE_RUN: &str = "UPDATE job SET state = ?, ended = max(?, submitted, coalesce(eligible, 0), coalesce(started, 0)) \
                         WHERE job_id = ? AND restarts = ? AND ended IS NULL";
/// Closes the open steps of a run.
const CLOSE_STEPS: &str = "UPDATE step SET state = 'CANCELLED', ended = max(?, coalesce(started, 0)) \
                           WHERE job_id = ? AND restarts = ? AND ended IS NULL";
/// The table of the time before whose ends runs may have been purged. The first purge makes it, so that no
/// migration is needed and older programs can use a database in which nothing was purged.
const PURGED: &str = "CREATE TABLE IF NOT EXISTS purged (
    only_row INTEGER PRIMARY KEY CHECK (only_row = 1),
    complete_from INTEGER NOT NULL
)";
const HAS_PURGED: &str = "SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name = 'purged'";
/// Records that runs that ended earlier may have been purged.
const COMPLETE_FROM: &str = "INSERT INTO purged VALUES (1, ?) ON CONFLICT (only_row)
    DO UPDATE SET complete_from = max(complete_from, excluded.complete_from)";
/// Number of pages in the log after which it is copied into the database.
const CHECKPOINT_PAGES: &str = "4096";
/// Free space that the database keeps for new rows, in bytes.
const KEPT_BYTES: u64 = 4 << 20;
/// Number of steps of [`reclaim`] that are taken at once.
const RECLAIM_STEPS: usize = 8;

/// A row of a table.
trait Columns: Sized {
    /// The names of the columns.
    const COLUMNS: &[&str];

    /// Adds the values of the row to the arguments of a statement.
    fn bind(self, arguments: &mut SqliteArguments) -> Result<(), BoxDynError>;

    /// Reads the row from a result.
    fn read(row: &SqliteRow) -> Result<Self, sqlx::Error>;
}

/// Defines the columns of a row type; the compiler ensures that every field is a column, is written and is
/// read.
macro_rules! columns {
    ($row:ident: $($field:ident),+ $(,)?) => {
        impl Columns for $row {
            const COLUMNS: &[&str] = &[$(stringify!($field)),+];

            fn bind(self, arguments: &mut SqliteArguments) -> Result<(), BoxDynError> {
                let Self { $($field),+ } = self;
                $(arguments.add($field)?;)+
                Ok(())
            }

            fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
                Ok(Self { $($field: row.try_get(stringify!($field))?),+ })
            }
        }
    };
}

columns! {
    JobRow:
    job_id, restarts, array_job_id, array_task_id, array_tasks, het_job_id, het_job_offset, name, user,
    uid, group, gid, account, wckey, partition, qos, reservation, state, cancelled_by, reason, exit_code,
    exit_signal, derived_exit_code, derived_exit_signal, submitted, eligible, started, ended,
    suspended_secs, time_limit_secs, priority, req_nodes, req_cpus, req_memory_mb, req_memory_per_cpu, req_tres, alloc_nodes, alloc_cpus, alloc_tres,
    node_list, constraints, licenses, work_dir, submit_line, comment, admin_comment, system_comment,
    std_in, std_out, std_err,
}

columns! {
    StepRow:
    job_id, restarts, step_id, name, state, cancelled_by, exit_code, exit_signal, started, ended, suspended_secs,
    alloc_nodes, alloc_cpus, alloc_tres, tasks, node_list, layout, user_cpu_us, system_cpu_us,
    max_rss_bytes, max_vmsize_bytes, submit_line, usage,
}

/// The open database.
#[derive(Clone)]
pub(in crate::store) struct Database {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    readers: SqlitePool,
    writer: Mutex<Writer>,
    jobs: Insert,
    steps: Insert,
}

/// The connection that writes.
enum Writer {
    Open(SqliteConnection),
    /// A write has failed on the connection, whose state is unknown: the next write opens another one.
    Failed,
    Closed,
}

impl Writer {
    /// Returns the connection, opened if necessary.
    async fn connection(&mut self, path: &Path) -> Result<&mut SqliteConnection, StoreError> {
        if let Writer::Failed = self {
            *self = Writer::Open(connect(path).await?);
        }
        match self {
            Writer::Open(connection) => Ok(connection),
            Writer::Failed | Writer::Closed => Err(StoreError::Stopped),
        }
    }

    /// Drops a connection on which a write has failed.
    async fn fail(&mut self) {
        if let Writer::Open(connection) = std::mem::replace(self, Writer::Failed) {
            // The connection has failed already.
            let _ = connection.close_hard().await;
        }
    }
}

async fn connect(path: &Path) -> Result<SqliteConnection, StoreError> {
    let options = write_options(path).pragma("wal_autocheckpoint", CHECKPOINT_PAGES);
    options.connect().await.map_err(|error| failed("open", path, error))
}

impl Database {
    pub(in crate::store) async fn open(path: &Path) -> Result<Self, StoreError> {
        create(path)?;
        let mut writer = connect(path).await?;
        schema::migrate(&mut writer, path, schema::ACCOUNTING).await?;
        reclaim::convert(&mut writer, path, KEPT_BYTES).await;
        let readers = SqlitePoolOptions::new()
            .max_connections(READERS)
            .connect_with(read_options(path))
            .await
            .map_err(|error| failed("open for reading", path, error))?;
        let jobs = upsert("job", JobRow::COLUMNS, &["job_id", "restarts"]);
        let steps = upsert("step", StepRow::COLUMNS, &["job_id", "restarts", "step_id"]);
        let writer = Mutex::new(Writer::Open(writer));
        let inner = Inner { path: path.to_owned(), readers, writer, jobs, steps };
        Ok(Self { inner: Arc::new(inner) })
    }

    pub(in crate::store) async fn reached(&self) -> Result<u64, StoreError> {
        let row = sqlx::query("SELECT seq FROM reached").fetch_one(&self.inner.readers).await;
        row.and_then(|row| row.try_get(0)).map(from_sql).map_err(|error| self.failed("read", error))
    }

    pub(in crate::store) async fn last_job(&self) -> Result<u32, StoreError> {
        let row =
            sqlx::query("SELECT coalesce(max(job_id), 0) FROM job").fetch_one(&self.inner.readers).await;
        row.and_then(|row| row.try_get(0)).map_err(|error| self.failed("read", error))
    }

    pub(in crate::store) async fn rewind(&self, last: u64) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let rewound =
            sqlx::query("UPDATE reached SET seq = min(seq, ?)").bind(sql_int(last)).execute(writer).await;
        rewound.map(drop).map_err(|error| self.failed("write to", error))
    }

    pub(in crate::store) async fn write(
        &self,
        reached: u64,
        jobs: Vec<JobRow>,
        steps: Vec<StepRow>,
    ) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let write = async {
            let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
            let moved = sqlx::query("UPDATE reached SET seq = ? WHERE seq <= ?")
                .bind(sql_int(reached))
                .bind(sql_int(reached))
                .execute(&mut *transaction)
                .await?;
            if moved.rows_affected() == 0 {
                transaction.rollback().await?;
                return Ok(false);
            }
            self.inner.jobs.run(&mut transaction, jobs.into_iter(), JobRow::bind).await?;
            self.inner.steps.run(&mut transaction, steps.into_iter(), StepRow::bind).await?;
            transaction.commit().await?;
            Ok(true)
        };
        match write.await {
            Ok(true) => Ok(()),
            Ok(false) => {
                drop(guard);
                Err(StoreError::OutOfOrder { expected: self.reached().await?, found: reached })
            }
            Err(error) => {
                guard.fail().await;
                Err(self.failed("write to", error))
            }
        }
    }

    pub(in crate::store) async fn close_runs(&self, closings: &[Closing]) -> Result<u64, StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let write = async {
            let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
            let mut closed = 0;
            for &Closing { job_id, restarts, state, ended } in closings {
                let run = sqlx::query(CLOSE_RUN).bind(state).bind(ended).bind(job_id).bind(restarts);
                let runs = run.execute(&mut *transaction).await?.rows_affected();
                if runs > 0 {
                    let steps = sqlx::query(CLOSE_STEPS).bind(ended).bind(job_id).bind(restarts);
                    steps.execute(&mut *transaction).await?;
                }
                closed += runs;
            }
            transaction.commit().await?;
            Ok(closed)
        };
        match write.await {
            Ok(closed) => Ok(closed),
            Err(error) => {
                guard.fail().await;
                Err(self.failed("write to", error))
            }
        }
    }

    pub(in crate::store) async fn change_nodes(&self, changes: &[NodeChange]) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let write = async {
            let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
            events::change(&mut transaction, changes).await?;
            transaction.commit().await
        };
        if let Err(error) = write.await {
            guard.fail().await;
            return Err(self.failed("write to", error));
        }
        Ok(())
    }

    pub(in crate::store) async fn node_events(
        &self,
        query: &EventQuery,
    ) -> Result<Vec<NodeEvent>, StoreError> {
        let mut sql = events::select(query);
        let rows = sql.build().persistent(false).fetch_all(&self.inner.readers).await;
        let rows = rows.and_then(|rows| rows.iter().map(events::read).collect());
        rows.map_err(|error| self.failed("read", error))
    }

    pub(in crate::store) async fn jobs(&self, query: &Query) -> Result<Page, StoreError> {
        let mut sql = select("job", JobRow::COLUMNS);
        sql.push(" WHERE true");
        restrict(&mut sql, query);
        let limit = if query.limit == 0 { Query::PAGE } else { query.limit };
        sql.push(" ORDER BY job_id, restarts LIMIT ").push_bind(limit);
        let mut found = sql.build().persistent(false).fetch(&self.inner.readers);
        let (mut rows, mut bytes) = (Vec::new(), 0);
        while let Some(row) = found.next().await {
            let row = row.and_then(|row| JobRow::read(&row)).map_err(|error| self.failed("read", error))?;
            bytes += row.text_bytes();
            rows.push(row);
            if bytes >= Query::PAGE_BYTES {
                return Ok(Page { rows, more: true });
            }
        }
        Ok(Page { more: rows.len() >= limit as usize, rows })
    }

    pub(in crate::store) async fn steps(&self, of: &[(u32, u32)]) -> Result<Vec<StepRow>, StoreError> {
        let mut steps = Vec::new();
        for some in of.chunks(LIST) {
            let mut sql = select("step", StepRow::COLUMNS);
            sql.push(" WHERE (job_id, restarts) IN ");
            runs(&mut sql, some);
            let rows = sql.build().persistent(false).fetch_all(&self.inner.readers).await;
            for row in rows.map_err(|error| self.failed("read", error))? {
                steps.push(StepRow::read(&row).map_err(|error| self.failed("read", error))?);
            }
        }
        steps.sort_unstable_by_key(|step| (step.job_id, step.restarts, step.step_id));
        Ok(steps)
    }

    pub(in crate::store) async fn old_runs(
        &self,
        before: i64,
        after: Option<(i64, u32, u32)>,
    ) -> Result<Vec<OldRun>, StoreError> {
        let mut sql = select("job", &["job_id", "restarts", "array_job_id", "het_job_id", "ended"]);
        sql.push(" WHERE true");
        restrict_old_runs(&mut sql, before, after);
        let rows = sql.build().persistent(false).fetch_all(&self.inner.readers).await;
        let read = |row: &SqliteRow| {
            Ok(OldRun {
                job_id: row.try_get("job_id")?,
                restarts: row.try_get("restarts")?,
                array_job_id: row.try_get("array_job_id")?,
                het_job_id: row.try_get("het_job_id")?,
                ended: row.try_get("ended")?,
            })
        };
        rows.and_then(|rows| rows.iter().map(read).collect()).map_err(|error| self.failed("read", error))
    }

    pub(in crate::store) async fn purge(
        &self,
        of: &[(u32, u32)],
        complete_from: i64,
    ) -> Result<(), StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let write = async {
            let mut transaction = writer.begin_with("BEGIN IMMEDIATE").await?;
            for table in ["step", "job"] {
                for some in of.chunks(LIST) {
                    let mut sql =
                        QueryBuilder::new(format!("DELETE FROM {table} WHERE (job_id, restarts) IN "));
                    runs(&mut sql, some);
                    sql.build().persistent(false).execute(&mut *transaction).await?;
                }
            }
            sqlx::query(PURGED).execute(&mut *transaction).await?;
            sqlx::query(COMPLETE_FROM).bind(complete_from).execute(&mut *transaction).await?;
            transaction.commit().await
        };
        if let Err(error) = write.await {
            guard.fail().await;
            return Err(self.failed("write to", error));
        }
        Ok(())
    }

    pub(in crate::store) async fn purge_events(&self, before: i64) -> Result<u64, StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let purge = sqlx::query(PURGE_EVENTS).bind(before).bind(i64::from(OldRun::PAGE));
        match purge.execute(writer).await {
            Ok(done) => Ok(done.rows_affected()),
            Err(error) => {
                guard.fail().await;
                Err(self.failed("write to", error))
            }
        }
    }

    pub(in crate::store) async fn complete_from(&self) -> Result<Option<i64>, StoreError> {
        let read = async {
            if !sqlx::query(HAS_PURGED).fetch_one(&self.inner.readers).await?.try_get(0)? {
                return Ok(None);
            }
            sqlx::query("SELECT complete_from FROM purged").fetch_one(&self.inner.readers).await?.try_get(0)
        };
        read.await.map_err(|error| self.failed("read", error))
    }

    pub(in crate::store) async fn release_space(&self) -> Result<bool, StoreError> {
        let mut guard = self.inner.writer.lock().await;
        let writer = guard.connection(&self.inner.path).await?;
        let release = async {
            for _ in 0..RECLAIM_STEPS {
                if !reclaim::step(&mut *writer, KEPT_BYTES).await? {
                    // The file becomes shorter when the log is copied into it.
                    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)").execute(writer).await?;
                    return Ok(false);
                }
            }
            Ok(true)
        };
        match release.await {
            Ok(more) => Ok(more),
            Err(error) => {
                guard.fail().await;
                Err(self.failed("write to", error))
            }
        }
    }

    pub(in crate::store) async fn close(&self) -> Result<(), StoreError> {
        self.inner.readers.close().await;
        match std::mem::replace(&mut *self.inner.writer.lock().await, Writer::Closed) {
            Writer::Open(writer) => writer.close().await.map_err(|error| self.failed("close", error)),
            Writer::Failed | Writer::Closed => Ok(()),
        }
    }

    fn failed(&self, action: &'static str, error: sqlx::Error) -> StoreError {
        failed(action, &self.inner.path, error)
    }
}

/// Builds a statement that inserts rows, each in place of the one with its key.
fn upsert(table: &str, columns: &[&str], key: &[&str]) -> Insert {
    let rest = columns.iter().filter(|column| !key.contains(column));
    let set: Vec<String> = rest.map(|column| format!("\"{column}\" = excluded.\"{column}\"")).collect();
    let head = format!("INSERT INTO {table} ({})", quoted(columns));
    let tail = format!("ON CONFLICT ({}) DO UPDATE SET {}", key.join(", "), set.join(", "));
    Insert::new(&head, columns.len(), &tail)
}

fn select(table: &str, columns: &[&str]) -> QueryBuilder<Sqlite> {
    QueryBuilder::new(format!("SELECT {} FROM {table}", quoted(columns)))
}

/// Returns the quoted columns, separated by commas; one of them is an SQL keyword.
fn quoted(columns: &[&str]) -> String {
    columns.iter().map(|column| format!("\"{column}\"")).collect::<Vec<_>>().join(", ")
}
