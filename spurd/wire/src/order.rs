//! What spurd asks of spurstepd: everything that the start of one step on one node needs.
//!
//! A [`StepOrder`] is complete and resolved: patterns are expanded, names are numbers, defaults are chosen. It
//! travels as JSON beside two raw parts, the environment and the script, which may hold bytes that are no UTF-8
//! ([`Launch`]). spurstepd decides nothing: what it cannot do is a launch failure, never a guess.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spur_core::model::idset::IdSet;

use crate::attempt::StepAttempt;

/// The order to run one step on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepOrder {
    /// Which attempt this is.
    pub attempt: StepAttempt,
    /// The node's name, as messages to the user spell it.
    pub node: String,
    /// The attempt's directory in the spool, absolute; it exists and belongs to spurd.
    pub directory: PathBuf,
    /// Who the tasks run as.
    pub identity: Identity,
    /// The working directory; `/tmp` takes its place, with a message, where it cannot be entered.
    pub cwd: PathBuf,
    /// The program and its arguments. For a batch script the arguments after the script's path.
    pub argv: Vec<String>,
    /// The file mode creation mask of the tasks.
    pub umask: u32,
    /// Resource limits to set before the program starts.
    pub limits: Vec<Limit>,
    /// The tasks that run on this node, in the order of their local ids.
    pub tasks: Vec<TaskOrder>,
    /// Where resources are confined, if this node may create control groups.
    pub confinement: Option<Confinement>,
    /// A program run as the user before each task; its `export NAME=value` lines change the task's environment.
    pub task_prolog: Option<PathBuf>,
    /// A program run as the user after each task.
    pub task_epilog: Option<PathBuf>,
    /// The user's own program before each task, after the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_task_prolog: Option<PathBuf>,
    /// The user's own program after each task, before the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_task_epilog: Option<PathBuf>,
    /// The first task of the step has a terminal of this size, if it is here; the others read and write nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Window>,
    /// The standard output of tasks is a terminal where it is read elsewhere, so that programs write line by line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbuffered: bool,
    /// How long output that nobody has read is kept after the step has ended, in milliseconds.
    pub output_wait_ms: u64,
    /// How MPI programs are served; `None`: not at all.
    #[serde(default)]
    pub mpi: Option<MpiOrder>,
    /// Seconds after whose end the step is ended; `None`: it may run as long as its job.
    #[serde(default)]
    pub time_limit: Option<u64>,
    /// How long a task waits for a missing directory of its output, in milliseconds.
    #[serde(default)]
    pub directory_wait_ms: u64,
    /// The most memory that it may be seen to use, in bytes, where no control group limits that; 0: any.
    #[serde(default)]
    pub sampled_memory_bytes: u64,
    /// The longest time between two looks at what its tasks use, in milliseconds; 0: nobody looks.
    #[serde(default)]
    pub usage_interval_ms: u64,
    /// All of it ends when the kernel has killed one of its processes for lack of memory.
    #[serde(default)]
    pub oom_kill_step: bool,
    /// Directories of which its processes see the job's own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_directories: Vec<PrivateDirectory>,
}

/// A directory that each job has to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateDirectory {
    /// The job's own, as the host sees it.
    pub source: PathBuf,
    /// Where the processes of the job see it, in place of the host's.
    pub target: PathBuf,
}

impl StepOrder {
    /// Where the host has a file that the step's processes know by this absolute path.
    #[must_use]
    pub fn on_host(&self, path: &Path) -> PathBuf {
        let own = |directory: &PrivateDirectory| {
            path.strip_prefix(&directory.target).ok().map(|below| directory.source.join(below))
        };
        // A later one may lie in an earlier one.
        self.private_directories.iter().rev().find_map(own).unwrap_or_else(|| path.to_owned())
    }
}

/// What serves MPI programs of a step, and what they are told of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiOrder {
    /// What serves them.
    pub plugin: MpiPlugin,
    /// This node's number in the step, or among those of all steps that run one program.
    pub node: u32,
    /// The nodes of the step, or of all these steps, in their order.
    pub nodes: Vec<MpiNode>,
    /// The first of the steps that run one program; `None` if this is the only one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<StepAttempt>,
    /// `host:port` of the service of the first node, through which the others reach each other.
    pub first: String,
}

/// The interface between MPI libraries and the step that they run in (`--mpi`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MpiPlugin {
    /// PMI-1 and PMI-2, served by spurstepd.
    Pmi2,
    /// PMIx, served by the system's library in a process of its own.
    Pmix,
}

/// A node of a step as its MPI programs see it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiNode {
    /// Its name.
    pub name: String,
    /// The ranks that run there.
    pub ranks: IdSet,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Lines.
    pub rows: u16,
    /// Characters of a line.
    pub columns: u16,
}

/// A user as the kernel knows one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The user's number.
    pub uid: u32,
    /// The primary group.
    pub gid: u32,
    /// The supplementary groups.
    pub groups: Vec<u32>,
    /// The user's name, for messages.
    pub user: String,
}

/// The order to read a file as a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadOrder {
    /// The user.
    pub identity: Identity,
    /// The file, as the host names it.
    pub file: PathBuf,
    /// Whether what is added to the file is read, too, until the socket of the order is closed for writing.
    pub follow: bool,
}

impl ReadOrder {
    /// The first byte of an answer that the bytes of the file follow.
    pub const OPENED: u8 = b'+';
    /// The first byte of an answer that the reason follows why the file cannot be read.
    pub const REFUSED: u8 = b'-';
}

/// One soft resource limit. The hard limit stays spurd's own unless root raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// What is limited.
    pub resource: LimitedResource,
    /// The limit; `None` is unlimited.
    pub soft: Option<u64>,
}

/// The resources that a submission may carry limits for (`--propagate`), by Slurm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[expect(missing_docs, reason = "the names are those of getrlimit(2)")]
pub enum LimitedResource {
    As,
    Core,
    Cpu,
    Data,
    Fsize,
    Memlock,
    Nofile,
    Nproc,
    Rss,
    Stack,
}

/// One task of the step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskOrder {
    /// The task's rank in the step (`SLURM_PROCID`).
    pub global: u32,
    /// The task's own program and its arguments; empty: the step's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Variables of this task alone; they win over the step's environment.
    pub env: Vec<(String, String)>,
    /// CPUs, by the operating system's numbers, that the task is bound to; empty leaves it unbound.
    pub cpus: Vec<u32>,
    /// By what it is bound, if it is to say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell_binding: Option<String>,
    /// The memory that the task is bound to; none: any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryBinding>,
    /// Standard input.
    pub stdin: Input,
    /// Standard output.
    pub stdout: Output,
    /// Standard error.
    pub stderr: Output,
}

/// The memory that a task is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryBinding {
    /// NUMA nodes, by the operating system's numbers; none leaves it unbound.
    pub nodes: Vec<u32>,
    /// The first of them is preferred, and all others may be used.
    #[serde(default)]
    pub prefer: bool,
    /// By what it is bound, if it is to say so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell: Option<String>,
}

/// Where a task's standard input comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// Nothing: `/dev/null`.
    Null,
    /// A file, opened as the user, relative to the working directory.
    File(PathBuf),
    /// The reader that is attached to the step.
    Stream,
}

/// Where a task's standard output or error goes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// Nowhere: `/dev/null`.
    Null,
    /// A file, opened as the user, relative to the working directory, always written at its end.
    File {
        /// The file; several tasks may share it.
        path: PathBuf,
        /// Keep what is in it; otherwise the first task of the step that uses it empties it.
        append: bool,
    },
    /// The reader that is attached to the step.
    Stream,
    /// Standard error only: wherever standard output goes.
    Stdout,
}

/// The control group of a step and what it may use there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// The job's control group of version 2 on this node, absolute, with the job's limits; the step makes its own below it.
    pub job_group: Option<PathBuf>,
    /// CPUs the step may use, if the node enforces that.
    pub cpus: Vec<u32>,
    /// The job's control groups of version 1, likewise.
    #[serde(default)]
    pub legacy: Vec<LegacyGroup>,
    /// Memory that the step may use, in bytes; 0: as much as its job.
    #[serde(default)]
    pub memory_bytes: u64,
    /// Devices that the step may not use.
    #[serde(default)]
    pub denied: Vec<DeviceNumber>,
}

/// A device as the kernel knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DeviceNumber {
    /// Whether it is a block device; otherwise it is a character device.
    pub block: bool,
    /// The number of its driver.
    pub major: u32,
    /// Its number there.
    pub minor: u32,
}

/// A control group of version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegacyGroup {
    /// Whose: `memory`, `cpuset`, `pids`, `devices`, `freezer`.
    pub controller: String,
    /// The job's, absolute.
    pub job_group: PathBuf,
}

/// The order together with its raw parts: what travels to a new spurstepd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The order.
    pub order: StepOrder,
    /// The step's environment: `NAME=value` entries, each ended by a NUL.
    pub environment: Vec<u8>,
    /// The batch script, if this is a batch step.
    pub script: Option<Vec<u8>>,
}
