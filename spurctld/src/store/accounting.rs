//! Accounting: one row per run of a job, one per step, for `sacct` and for reports.
//!
//! It has a database of its own and is fed with committed entries by a consumer that may lag. The rows and the
//! sequence number they reach become durable together, so after a restart the feed goes on exactly where it ended:
//! no row is lost and none is written from the same entry twice.

mod query;

use serde::{Deserialize, Serialize};

pub(super) use query::{LIST, restrict, restrict_events, runs};

use super::{Place, StoreError, postgres, sqlite};

/// One run of a job: from its submission or requeue to its end. Times are seconds since the epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRow {
    /// Job id. With `restarts` it is the key of the row.
    pub job_id: u32,
    /// How many times the job had been requeued before this run.
    pub restarts: u32,
    /// Job id of the array as a whole.
    pub array_job_id: Option<u32>,
    /// Index of this task of the array.
    pub array_task_id: Option<u32>,
    /// Indices of tasks that have no job id of their own yet, as Slurm writes them: `3-9:2%1`.
    pub array_tasks: Option<String>,
    /// Job id of the heterogeneous job's leader.
    pub het_job_id: Option<u32>,
    /// Position in the heterogeneous job.
    pub het_job_offset: Option<u32>,
    /// Job name.
    pub name: String,
    /// User name at submission.
    pub user: String,
    /// User id.
    pub uid: u32,
    /// Group name at submission.
    pub group: String,
    /// Group id.
    pub gid: u32,
    /// Account charged.
    pub account: String,
    /// Workload characterization key.
    pub wckey: String,
    /// Partition it ran in, or those it waits for.
    pub partition: String,
    /// Quality of service.
    pub qos: String,
    /// Reservation used.
    pub reservation: String,
    /// State in Slurm's word: `PENDING`, `RUNNING`, `COMPLETED`, `CANCELLED`, …
    pub state: String,
    /// Who cancelled it, if someone did.
    pub cancelled_by: Option<u32>,
    /// Reason of the state, in Slurm's word.
    pub reason: String,
    /// Exit code of the batch script or allocation.
    pub exit_code: u32,
    /// Signal that ended it, 0 for none.
    pub exit_signal: u32,
    /// Highest exit code of its steps.
    pub derived_exit_code: u32,
    /// Signal of the same step.
    pub derived_exit_signal: u32,
    /// Submission.
    pub submitted: i64,
    /// When nothing but resources and priority kept it waiting any more.
    pub eligible: Option<i64>,
    /// Start of this run.
    pub started: Option<i64>,
    /// End of this run.
    pub ended: Option<i64>,
    /// Seconds during which it was suspended.
    pub suspended_secs: i64,
    /// Time limit in seconds; none is unlimited.
    pub time_limit_secs: Option<i64>,
    /// Priority at its start.
    pub priority: u32,
    /// Nodes asked for, at least.
    pub req_nodes: u32,
    /// CPUs asked for.
    pub req_cpus: u32,
    /// Memory asked for, in MiB, of each node or of each CPU.
    pub req_memory_mb: i64,
    /// Whether it is that of each CPU.
    pub req_memory_per_cpu: bool,
    /// Trackable resources asked for, as Slurm writes them.
    pub req_tres: String,
    /// Nodes allocated.
    pub alloc_nodes: u32,
    /// CPUs allocated.
    pub alloc_cpus: u32,
    /// Trackable resources allocated, as Slurm writes them.
    pub alloc_tres: String,
    /// Nodes allocated, as a hostlist.
    pub node_list: String,
    /// Features asked for.
    pub constraints: String,
    /// Licences asked for.
    pub licenses: String,
    /// Working directory.
    pub work_dir: String,
    /// Command line of the submission.
    pub submit_line: String,
    /// Comment of the user.
    pub comment: String,
    /// Comment of an administrator.
    pub admin_comment: String,
    /// Comment of the system.
    pub system_comment: String,
    /// Where standard input comes from.
    pub std_in: String,
    /// Where standard output goes.
    pub std_out: String,
    /// Where standard error goes.
    pub std_err: String,
}

/// One step of one run of a job.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRow {
    /// Job id. With `restarts` and `step_id` it is the key of the row.
    pub job_id: u32,
    /// Run of the job, as [`JobRow::restarts`].
    pub restarts: u32,
    /// Step number; the owner numbers the batch, external and interactive steps below zero.
    pub step_id: i64,
    /// Step name.
    pub name: String,
    /// State in Slurm's word.
    pub state: String,
    /// The user who ended it, if somebody did.
    pub cancelled_by: Option<u32>,
    /// Exit code.
    pub exit_code: u32,
    /// Signal that ended it, 0 for none.
    pub exit_signal: u32,
    /// Start.
    pub started: Option<i64>,
    /// End.
    pub ended: Option<i64>,
    /// Seconds during which it was suspended.
    pub suspended_secs: i64,
    /// Nodes allocated.
    pub alloc_nodes: u32,
    /// CPUs allocated.
    pub alloc_cpus: u32,
    /// Trackable resources allocated.
    pub alloc_tres: String,
    /// Tasks.
    pub tasks: u32,
    /// Nodes, as a hostlist.
    pub node_list: String,
    /// How tasks were laid out.
    pub layout: String,
    /// User CPU time in microseconds.
    pub user_cpu_us: i64,
    /// System CPU time in microseconds.
    pub system_cpu_us: i64,
    /// Largest resident set of a task, in bytes.
    pub max_rss_bytes: i64,
    /// Largest virtual size of a task, in bytes.
    pub max_vmsize_bytes: i64,
    /// Command line.
    pub submit_line: String,
    /// What its tasks used, as JSON ([`Usage`](spur_core::model::usage::Usage)); empty where that is not known.
    pub usage: String,
}

/// The end of a run of which accounting has none, and of which nobody will say more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closing {
    /// Job id.
    pub job_id: u32,
    /// Run of the job, as [`JobRow::restarts`].
    pub restarts: u32,
    /// State in Slurm's word.
    pub state: &'static str,
    /// The end, in seconds since the epoch; never before the run's submission, eligibility and start.
    pub ended: i64,
}

/// Why a node is out of service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outage {
    /// Slurm's words for its state: `DOWN`, `DOWN*`, `DRAIN`, `DOWN+DRAIN`.
    pub state: String,
    /// The reason, for people.
    pub reason: String,
    /// The name of the user who took it out of service.
    pub user: String,
}

/// A node has gone out of service, or has come back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeChange {
    /// The name of the node.
    pub node: String,
    /// When, in seconds since the epoch.
    pub at: i64,
    /// Why it is out of service; `None`: it is in service.
    pub outage: Option<Outage>,
    /// Whether this happened now. Otherwise it counts only if the database has no event of the node without an end.
    pub is_new: bool,
}

/// A time during which a node was out of service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeEvent {
    /// The name of the node.
    pub node: String,
    /// Its beginning, in seconds since the epoch.
    pub started: i64,
    /// Its end; `None` if the node is still out of service.
    pub ended: Option<i64>,
    /// As [`Outage::state`].
    pub state: String,
    /// As [`Outage::reason`].
    pub reason: String,
    /// As [`Outage::user`].
    pub user: String,
}

/// The events that are asked for: those that fit every field that is set, in ascending order of beginning and node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventQuery {
    /// Events that had not ended before this time.
    pub not_before: Option<i64>,
    /// Events that began before this time.
    pub before: Option<i64>,
    /// Only events without an end.
    pub open: bool,
    /// Only events after the one of this beginning, node and state: the last one of the page before.
    pub after: Option<(i64, String, String)>,
}

/// Which jobs are asked for: those that fit every field that is not empty, in ascending order of (job id, restarts).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query {
    /// Job ids; an array's id asks for all its tasks, a heterogeneous job's for all its components.
    pub job_ids: Vec<u32>,
    /// User ids; with names, either.
    pub uids: Vec<u32>,
    /// User names.
    pub users: Vec<String>,
    /// The only user of whom anything is said, whoever else is asked for.
    pub only: Option<u32>,
    /// Accounts.
    pub accounts: Vec<String>,
    /// Partitions.
    pub partitions: Vec<String>,
    /// Qualities of service.
    pub qos: Vec<String>,
    /// Job names.
    pub names: Vec<String>,
    /// States, in Slurm's words. With one of the times below, jobs that were in one of them at some time between both.
    pub states: Vec<String>,
    /// Jobs that had not ended before this time.
    pub not_before: Option<i64>,
    /// Jobs that were eligible or running before this time.
    pub before: Option<i64>,
    /// Only rows after this (job id, restarts): the last one of the page before.
    pub after: Option<(u32, u32)>,
    /// Rows in the page at most; 0 is [`Query::PAGE`].
    pub limit: u32,
    /// Only the last run of each job, not those that a requeue ended.
    pub last_run_only: bool,
    /// Only runs that have no end.
    pub open: bool,
}

impl Query {
    /// Rows in a page unless [`Query::limit`] says otherwise.
    pub const PAGE: u32 = 1000;
    /// Bytes of text after which a page is full.
    pub const PAGE_BYTES: usize = 4 << 20;
}

/// Rows that were asked for, in their order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// These.
    pub rows: Vec<JobRow>,
    /// Whether there may be others behind them.
    pub more: bool,
}

impl JobRow {
    /// How long all of its texts are that somebody else than this controller wrote.
    #[must_use]
    pub fn text_bytes(&self) -> usize {
        [
            &self.name,
            &self.account,
            &self.wckey,
            &self.partition,
            &self.qos,
            &self.reservation,
            &self.req_tres,
            &self.alloc_tres,
            &self.node_list,
            &self.constraints,
            &self.licenses,
            &self.work_dir,
            &self.submit_line,
            &self.comment,
            &self.admin_comment,
            &self.system_comment,
            &self.std_in,
            &self.std_out,
            &self.std_err,
        ]
        .into_iter()
        .map(String::len)
        .sum()
    }
}

/// The accounting database. Clones share it.
#[derive(Clone)]
pub struct Accounting {
    database: Database,
}

#[derive(Clone)]
enum Database {
    Sqlite(sqlite::accounting::Database),
    Postgres(postgres::accounting::Database),
}

/// Asks whichever database there is.
macro_rules! ask {
    ($accounting:expr, $database:ident => $question:expr) => {
        match &$accounting.database {
            Database::Sqlite($database) => $question.await,
            Database::Postgres($database) => $question.await,
        }
    };
}

impl Accounting {
    /// Opens the database at `place`, whose file is created if need be.
    ///
    /// # Errors
    /// [`StoreError::NewerSchema`], [`StoreError::Damaged`], and what the disk or the database refuses.
    pub async fn open(place: impl Into<Place>) -> Result<Self, StoreError> {
        let database = match place.into() {
            Place::File(path) => Database::Sqlite(sqlite::accounting::Database::open(&path).await?),
            Place::Database { database, .. } => {
                Database::Postgres(postgres::accounting::Database::open(database).await?)
            }
        };
        Ok(Self { database })
    }

    /// The last entry of the journal that the rows take account of; 0 in a new database. It is durable.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn reached(&self) -> Result<u64, StoreError> {
        ask!(self, database => database.reached())
    }

    /// The largest job number in it; 0 without one.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn last_job(&self) -> Result<u32, StoreError> {
        ask!(self, database => database.last_job())
    }

    /// Follows a journal that ends at entry `last` and is an old copy of the one that the rows are from; all rows stay. One
    /// that has not got so far stays where it is.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn rewind(&self, last: u64) -> Result<(), StoreError> {
        ask!(self, database => database.rewind(last))
    }

    /// Writes rows, each in the place of the one with its key, and the entry they reach, at once and durably.
    ///
    /// # Errors
    /// [`StoreError::OutOfOrder`] if `reached` lies before what has been reached, and what the database refuses.
    /// Nothing is written then.
    pub async fn write(
        &self,
        reached: u64,
        jobs: Vec<JobRow>,
        steps: Vec<StepRow>,
    ) -> Result<(), StoreError> {
        ask!(self, database => database.write(reached, jobs, steps))
    }

    /// Gives runs that have no end, and their steps that have none, the one that is said. Others stay as they are.
    /// Returns how many runs that were.
    ///
    /// # Errors
    /// What the database refuses. Nothing is written then.
    pub async fn close_runs(&self, closings: &[Closing]) -> Result<u64, StoreError> {
        ask!(self, database => database.close_runs(closings))
    }

    /// Ends the open event of each node and begins a new one where the node is out of service, in the order given.
    ///
    /// # Errors
    /// What the database refuses. Nothing is written then.
    pub async fn change_nodes(&self, changes: &[NodeChange]) -> Result<(), StoreError> {
        ask!(self, database => database.change_nodes(changes))
    }

    /// At most [`Query::PAGE`] events of nodes.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn node_events(&self, query: &EventQuery) -> Result<Vec<NodeEvent>, StoreError> {
        ask!(self, database => database.node_events(query))
    }

    /// A page of jobs: as many as the limit says, or as fill it.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn jobs(&self, query: &Query) -> Result<Page, StoreError> {
        ask!(self, database => database.jobs(query))
    }

    /// The steps of the given runs (job id, restarts), in ascending order of run and step.
    ///
    /// # Errors
    /// What the database refuses.
    pub async fn steps(&self, runs: &[(u32, u32)]) -> Result<Vec<StepRow>, StoreError> {
        ask!(self, database => database.steps(runs))
    }

    /// Closes the database for all clones: what is asked later gets [`StoreError::Stopped`] or what the database says.
    ///
    /// # Errors
    /// What the database refuses. All that was written is durable nevertheless.
    pub async fn close(&self) -> Result<(), StoreError> {
        ask!(self, database => database.close())
    }
}
