//! Accounting: one row per run of a job, one per step, for `sacct` and for reports.
//!
//! Accounting is a database of its own, fed with committed entries by a consumer that may lag. Rows and the
//! sequence number that they reach become durable together. So after a restart the feed continues exactly
//! where it ended: no row is lost, and no entry is applied twice.

mod query;

use serde::{Deserialize, Serialize};
pub use spur_core::model::accounting::{JobRow, StepRow};

pub(super) use query::{LIST, PURGE_EVENTS, restrict, restrict_events, restrict_old_runs, runs};

use super::{Place, StoreError, postgres, sqlite};

/// The end of a run that has none in accounting and that will get no other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// Job id.
    pub job_id: u32,
    /// Run of the job, as [`JobRow::restarts`].
    pub restarts: u32,
    /// State in Slurm's word.
    pub state: &'static str,
    /// The end, in seconds since the Unix epoch; never before the run's submission, eligibility and start.
    pub ended: i64,
}

/// The state and the reason of a node that is out of service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outage {
    /// Slurm's words for the state: `DOWN`, `DOWN*`, `DRAIN`, `DOWN+DRAIN`.
    pub state: String,
    /// The reason, for users.
    pub reason: String,
    /// Name of the user who took the node out of service.
    pub user: String,
}

/// A change of a node: out of service, or back in service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// Name of the node.
    pub node: String,
    /// Time of the change, in seconds since the Unix epoch.
    pub at: i64,
    /// The outage that begins; `None` if the node is back in service.
    pub outage: Option<Outage>,
    /// True if the change happens now. Otherwise it counts only if the database has no open event of the
    /// node.
    pub is_new: bool,
}

/// A time during which a node was out of service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// Name of the node.
    pub node: String,
    /// The beginning, in seconds since the Unix epoch.
    pub started: i64,
    /// The end, in seconds since the Unix epoch; `None` if the node is still out of service.
    pub ended: Option<i64>,
    /// The state, as in [`Outage::state`].
    pub state: String,
    /// The reason, as in [`Outage::reason`].
    pub reason: String,
    /// The user, as in [`Outage::user`].
    pub user: String,
}

/// A selection of events by every field that is set, in ascending order of beginning and node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Events that had not ended before this time.
    pub not_before: Option<i64>,
    /// Events that began before this time.
    pub before: Option<i64>,
    /// Only events without an end.
    pub open: bool,
    /// Only events after the one with this beginning, node and state: the last one of the previous page.
    pub after: Option<(i64, String, String)>,
}

/// A selection of jobs by every field that is not empty, in ascending order of (job id, restarts).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Job ids; an array's id selects all its tasks, a heterogeneous job's id all its components.
    pub job_ids: Vec<u32>,
    /// User ids; with user names, either may match.
    pub uids: Vec<u32>,
    /// User names.
    pub users: Vec<String>,
    /// The only user whose jobs are returned, whatever the other fields select.
    pub only: Option<u32>,
    /// Names of accounts.
    pub accounts: Vec<String>,
    /// Names of partitions.
    pub partitions: Vec<String>,
    /// Names of QOS.
    pub qos: Vec<String>,
    /// Job names.
    pub names: Vec<String>,
    /// States, in Slurm's words. With one of the times below: jobs that were in one of the states at some
    /// time between both.
    pub states: Vec<String>,
    /// Jobs that had not ended before this time.
    pub not_before: Option<i64>,
    /// Jobs that were eligible or running before this time.
    pub before: Option<i64>,
    /// Only rows after this (job id, restarts): the last one of the previous page.
    pub after: Option<(u32, u32)>,
    /// Largest number of rows in the page; 0 for [`Query::PAGE`].
    pub limit: u32,
    /// Only the last run of each job, not those that a requeue ended.
    pub last_run_only: bool,
    /// Only runs without an end.
    pub open: bool,
}

/// An ended run that is old enough to be purged.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct OldRun {
    /// Job id.
    pub job_id: u32,
    /// Run of the job, as [`JobRow::restarts`].
    pub restarts: u32,
    /// Job id of the array of which the job is a task.
    pub array_job_id: Option<u32>,
    /// Job id of the heterogeneous job of which the job is a component.
    pub het_job_id: Option<u32>,
    /// End of the run, in seconds since the Unix epoch.
    pub ended: i64,
}

impl OldRun {
    /// Largest number of runs in a page.
    pub const PAGE: u32 = 256;
}

impl Query {
    /// Number of rows in a page without [`Query::limit`].
    pub const PAGE: u32 = 1000;
    /// Bytes of text beyond which a page is full.
    pub const PAGE_BYTES: usize = 4 << 20;
}

/// Selected rows, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// The rows.
    pub rows: Vec<JobRow>,
    /// True if more rows may follow.
    pub more: bool,
}

/// The accounting database, in SQLite or PostgreSQL. Clones share the connections.
#[derive(Clone)]
pub struct Accounting {
    database: Database,
}

#[derive(Clone)]
enum Database {
    Sqlite(sqlite::accounting::Database),
    Postgres(postgres::accounting::Database),
}

/// Calls the same method on the SQLite or the PostgreSQL database.
macro_rules! ask {
    ($accounting:expr, $database:ident => $question:expr) => {
        match &$accounting.database {
            Database::Sqlite($database) => $question.await,
            Database::Postgres($database) => $question.await,
        }
    };
}

impl Accounting {
    /// Opens the database at `place` and creates a missing file.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], [`StoreError::Damaged`], or an error of the disk or the database.
    pub async fn open(place: impl Into<Place>) -> Result<Self, StoreError> {
        let database = match place.into() {
            Place::File(path) => Database::Sqlite(sqlite::accounting::Database::open(&path).await?),
            Place::Database { database, .. } => {
                Database::Postgres(postgres::accounting::Database::open(database).await?)
            }
        };
        Ok(Self { database })
    }

    /// Returns the number of the last journal entry that the rows include; 0 in a new database.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn reached(&self) -> Result<u64, StoreError> {
        ask!(self, database => database.reached())
    }

    /// Returns the largest job number in the rows; 0 without rows.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn last_job(&self) -> Result<u32, StoreError> {
        ask!(self, database => database.last_job())
    }

    /// Lets accounting follow a journal that ends at entry `last` and is an old copy of the previous one; all
    /// rows stay.
    ///
    /// Accounting that has not reached `last` is not changed.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn rewind(&self, last: u64) -> Result<(), StoreError> {
        ask!(self, database => database.rewind(last))
    }

    /// Writes rows and the entry that they reach, atomically and durably. A row replaces the one with its
    /// key.
    ///
    /// # Errors
    /// [`StoreError::OutOfOrder`] if `reached` lies before the entry that was reached; otherwise the
    /// database's refusal. Nothing is written then.
    pub async fn write(
        &self,
        reached: u64,
        jobs: Vec<JobRow>,
        steps: Vec<StepRow>,
    ) -> Result<(), StoreError> {
        ask!(self, database => database.write(reached, jobs, steps))
    }

    /// Closes runs without an end, and their open steps. Other runs stay as they are. Returns the number of
    /// closed runs.
    ///
    /// # Errors
    /// Fails if the database refuses; nothing is written then.
    pub async fn close_runs(&self, closings: &[Closing]) -> Result<u64, StoreError> {
        ask!(self, database => database.close_runs(closings))
    }

    /// Ends the open event of each node, and begins a new one for a node that is out of service, in the order
    /// given.
    ///
    /// # Errors
    /// Fails if the database refuses; nothing is written then.
    pub async fn change_nodes(&self, changes: &[NodeChange]) -> Result<(), StoreError> {
        ask!(self, database => database.change_nodes(changes))
    }

    /// Returns at most [`Query::PAGE`] events of nodes.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn node_events(&self, query: &EventQuery) -> Result<Vec<NodeEvent>, StoreError> {
        ask!(self, database => database.node_events(query))
    }

    /// Returns the next page of jobs that match `query`.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn jobs(&self, query: &Query) -> Result<Page, StoreError> {
        ask!(self, database => database.jobs(query))
    }

    /// Returns the steps of the given runs (job id, restarts), in ascending order of run and step.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn steps(&self, runs: &[(u32, u32)]) -> Result<Vec<StepRow>, StoreError> {
        ask!(self, database => database.steps(runs))
    }

    /// Returns at most [`OldRun::PAGE`] runs that ended before `before`, in ascending order of (end, job id,
    /// restarts), after the run with the key `after`. The runs of the last job number are left out, because
    /// [`Accounting::last_job`] needs them.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn old_runs(
        &self,
        before: i64,
        after: Option<(i64, u32, u32)>,
    ) -> Result<Vec<OldRun>, StoreError> {
        ask!(self, database => database.old_runs(before, after))
    }

    /// Deletes runs (job id, restarts) with their steps, and records that the rows of runs that ended before
    /// `complete_from` may be missing.
    ///
    /// # Errors
    /// Fails if the database refuses; nothing is deleted then.
    pub async fn purge(&self, runs: &[(u32, u32)], complete_from: i64) -> Result<(), StoreError> {
        ask!(self, database => database.purge(runs, complete_from))
    }

    /// Deletes at most [`OldRun::PAGE`] events of nodes that ended before `before`, and returns their number.
    ///
    /// # Errors
    /// Fails if the database refuses; nothing is deleted then.
    pub async fn purge_events(&self, before: i64) -> Result<u64, StoreError> {
        ask!(self, database => database.purge_events(before))
    }

    /// Returns the time, in seconds since the Unix epoch, before whose ends runs may have been purged; `None`
    /// if no run was ever purged.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn complete_from(&self) -> Result<Option<i64>, StoreError> {
        ask!(self, database => database.complete_from())
    }

    /// Gives some of the space of deleted rows back to the file system, and returns true if more can follow.
    ///
    /// # Errors
    /// Fails if the database refuses.
    pub async fn release_space(&self) -> Result<bool, StoreError> {
        ask!(self, database => database.release_space())
    }

    /// Closes the database for all clones; later calls fail, e.g. with [`StoreError::Stopped`].
    ///
    /// # Errors
    /// Fails if the database refuses; everything written before is durable nevertheless.
    pub async fn close(&self) -> Result<(), StoreError> {
        ask!(self, database => database.close())
    }
}
