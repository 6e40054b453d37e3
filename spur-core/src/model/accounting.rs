//! Rows of accounting: one for each run of a job, and one for each step of a run.
//!
//! The controller writes these rows to its accounting database. An event holds the rows that were imported
//! from another batch system, so fields are added with defaults and never renamed.

use serde::{Deserialize, Serialize};

/// One run of a job: from its submission or requeue to its end. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobRow {
    /// Job id. With `restarts` it is the key of the row.
    pub job_id: u32,
    /// Number of requeues of the job before this run.
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
    /// Partition in which the job ran, or those that a pending job asks for.
    pub partition: String,
    /// Quality of service.
    pub qos: String,
    /// Reservation used.
    pub reservation: String,
    /// State in Slurm's word: `PENDING`, `RUNNING`, `COMPLETED`, `CANCELLED`, …
    pub state: String,
    /// User id of the user who cancelled the job.
    pub cancelled_by: Option<u32>,
    /// Reason of the state, in Slurm's word.
    pub reason: String,
    /// Exit code of the batch script or allocation.
    pub exit_code: u32,
    /// Signal that ended the batch script or allocation, 0 for none.
    pub exit_signal: u32,
    /// Highest exit code of the job's steps.
    pub derived_exit_code: u32,
    /// Signal of the same step, 0 for none.
    pub derived_exit_signal: u32,
    /// Time of submission.
    pub submitted: i64,
    /// Time from which on the job waited for resources and priority only.
    pub eligible: Option<i64>,
    /// Start of this run.
    pub started: Option<i64>,
    /// End of this run.
    pub ended: Option<i64>,
    /// Seconds for which the run was suspended.
    pub suspended_secs: i64,
    /// Time limit in seconds; `None` for unlimited.
    pub time_limit_secs: Option<i64>,
    /// Priority at the start.
    pub priority: u32,
    /// Least number of nodes asked for.
    pub req_nodes: u32,
    /// Number of CPUs asked for.
    pub req_cpus: u32,
    /// Memory asked for in MiB, on each node or for each CPU.
    pub req_memory_mb: i64,
    /// True if the memory is for each CPU, false if on each node.
    pub req_memory_per_cpu: bool,
    /// Trackable resources asked for, as Slurm writes them.
    pub req_tres: String,
    /// Number of nodes allocated.
    pub alloc_nodes: u32,
    /// Number of CPUs allocated.
    pub alloc_cpus: u32,
    /// Trackable resources allocated, as Slurm writes them.
    pub alloc_tres: String,
    /// Allocated nodes, as a hostlist.
    pub node_list: String,
    /// Features asked for.
    pub constraints: String,
    /// Licenses asked for.
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
    /// File of standard input.
    pub std_in: String,
    /// File of standard output.
    pub std_out: String,
    /// File of standard error.
    pub std_err: String,
}

/// One step of one run of a job. Times are seconds since the Unix epoch.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StepRow {
    /// Job id. With `restarts` and `step_id` it is the key of the row.
    pub job_id: u32,
    /// Run of the job, as [`JobRow::restarts`].
    pub restarts: u32,
    /// Step number; batch, external and interactive steps have negative numbers.
    pub step_id: i64,
    /// Step name.
    pub name: String,
    /// State in Slurm's word.
    pub state: String,
    /// User id of the user who ended the step early.
    pub cancelled_by: Option<u32>,
    /// Exit code.
    pub exit_code: u32,
    /// Signal that ended the step, 0 for none.
    pub exit_signal: u32,
    /// Start of the step.
    pub started: Option<i64>,
    /// End of the step.
    pub ended: Option<i64>,
    /// Seconds for which the step was suspended.
    pub suspended_secs: i64,
    /// Number of nodes allocated.
    pub alloc_nodes: u32,
    /// Number of CPUs allocated.
    pub alloc_cpus: u32,
    /// Trackable resources allocated.
    pub alloc_tres: String,
    /// Number of tasks.
    pub tasks: u32,
    /// Nodes, as a hostlist.
    pub node_list: String,
    /// Distribution of the tasks, in Slurm's word.
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
    /// Usage of the tasks as JSON ([`Usage`](super::usage::Usage)); empty if not known.
    pub usage: String,
}

impl JobRow {
    /// Returns the length of all texts that did not originate in the controller, in bytes.
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
