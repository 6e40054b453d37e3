//! The order of spurd to spurstepd: everything that the start of one step on one node needs.
//!
//! A [`StepOrder`] is complete and resolved: patterns are expanded, names are numbers, defaults are chosen.
//! The order travels as JSON beside two raw parts, the environment and the script, whose bytes need not be
//! UTF-8 ([`Launch`]). spurstepd decides nothing: whatever it cannot do is a launch failure, never a guess.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use spur_core::model::idset::IdSet;

use crate::attempt::StepAttempt;

/// The order to run one step on one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StepOrder {
    /// The attempt to run.
    pub attempt: StepAttempt,
    /// The node's name, as messages to the user spell it.
    pub node: String,
    /// The attempt's directory in the spool, absolute; it exists and belongs to spurd.
    pub directory: PathBuf,
    /// The user as whom the tasks run.
    pub identity: Identity,
    /// The working directory. If it cannot be entered, the tasks run in `/tmp`, with a message.
    pub cwd: PathBuf,
    /// The program and its arguments; for a batch script, the arguments after the script's path.
    pub argv: Vec<String>,
    /// The file mode creation mask of the tasks.
    pub umask: u32,
    /// Resource limits to set before the program starts.
    pub limits: Vec<Limit>,
    /// The tasks that run on this node, in the order of their local ids.
    pub tasks: Vec<TaskOrder>,
    /// The control groups and limits of the step; `None` if this node cannot create control groups.
    pub confinement: Option<Confinement>,
    /// The site's program that runs as the user before each task; its `export NAME=value` lines change the
    /// task's environment.
    pub task_prolog: Option<PathBuf>,
    /// The site's program that runs as the user after each task.
    pub task_epilog: Option<PathBuf>,
    /// The user's own program before each task, after the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_task_prolog: Option<PathBuf>,
    /// The user's own program after each task, before the site's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_task_epilog: Option<PathBuf>,
    /// Size of the terminal of the step's first task, if that task runs here; the other tasks have no
    /// streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<Window>,
    /// True if the tasks' streamed standard output is a terminal, so that programs write line by line.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unbuffered: bool,
    /// Time for which unread output is kept after the end of the step, in milliseconds.
    pub output_wait_ms: u64,
    /// The service for MPI programs; `None` without one.
    #[serde(default)]
    pub mpi: Option<MpiOrder>,
    /// Seconds after which the step is ended; `None` if the step may run as long as its job.
    #[serde(default)]
    pub time_limit: Option<u64>,
    /// Longest wait of a task for a missing directory of its output, in milliseconds.
    #[serde(default)]
    pub directory_wait_ms: u64,
    /// Largest sampled memory usage of the step, in bytes, where no control group limits memory; 0 for no
    /// limit.
    #[serde(default)]
    pub sampled_memory_bytes: u64,
    /// Longest time between two samples of the tasks' usage, in milliseconds; 0 for no samples.
    #[serde(default)]
    pub usage_interval_ms: u64,
    /// True if the whole step ends when the kernel has killed one of its processes for lack of memory.
    #[serde(default)]
    pub oom_kill_step: bool,
    /// Directories that are private to the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_directories: Vec<PrivateDirectory>,
}

/// A directory that is private to the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PrivateDirectory {
    /// The private directory, by its path on the host.
    pub source: PathBuf,
    /// The path over which the step's processes have it mounted.
    pub target: PathBuf,
}

impl StepOrder {
    /// Returns the host's path of a file that the step's processes know by the absolute path `path`.
    #[must_use]
    pub fn on_host(&self, path: &Path) -> PathBuf {
        let own = |directory: &PrivateDirectory| {
            path.strip_prefix(&directory.target).ok().map(|below| directory.source.join(below))
        };
        // A later directory may be mounted inside an earlier one.
        self.private_directories.iter().rev().find_map(own).unwrap_or_else(|| path.to_owned())
    }
}

/// The service for the MPI programs of a step, and the facts that it gives them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MpiOrder {
    /// The interface that is served.
    pub plugin: MpiPlugin,
    /// Number of this node in the step, or among the nodes of all steps that run one program.
    pub node: u32,
    /// Nodes of the step, or of all steps that run one program, in the order of their numbers.
    pub nodes: Vec<MpiNode>,
    /// The first of the steps that run one program; `None` if only one step runs the program.
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
    /// The node's name.
    pub name: String,
    /// The ranks that run on the node.
    pub ranks: IdSet,
}

/// The size of a terminal, in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Window {
    /// Number of lines.
    pub rows: u16,
    /// Number of characters in a line.
    pub columns: u16,
}

/// A user as the kernel knows one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Identity {
    /// The user ID.
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
    /// The user as whom the file is read.
    pub identity: Identity,
    /// The file's path on the host.
    pub file: PathBuf,
    /// True if additions to the file are read, too, until the order's socket is shut down for writing.
    pub follow: bool,
}

impl ReadOrder {
    /// First byte of an answer in which the file's content follows.
    pub const OPENED: u8 = b'+';
    /// First byte of an answer in which the reason follows why the file cannot be read.
    pub const REFUSED: u8 = b'-';
}

/// One soft resource limit. The hard limit stays spurd's own unless root raises it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// The limited resource.
    pub resource: LimitedResource,
    /// The limit; `None` for unlimited.
    pub soft: Option<u64>,
}

/// The resources whose limits a submission may carry (`--propagate`), by Slurm's names.
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
    /// The task's own program and its arguments; empty for the step's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    /// Variables of this task alone, which replace those of the step's environment.
    pub env: Vec<(String, String)>,
    /// CPUs to which the task is bound, by the operating system's numbers; empty for an unbound task.
    pub cpus: Vec<u32>,
    /// The kind of CPU binding that the task has to report; `None` if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell_binding: Option<String>,
    /// The memory to which the task is bound; `None` for an unbound task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<MemoryBinding>,
    /// Source of standard input.
    pub stdin: Input,
    /// Destination of standard output.
    pub stdout: Output,
    /// Destination of standard error.
    pub stderr: Output,
}

/// The memory that a task is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryBinding {
    /// NUMA nodes, by the operating system's numbers; empty for an unbound task.
    pub nodes: Vec<u32>,
    /// True if the first node is only preferred, and all others may be used.
    #[serde(default)]
    pub prefer: bool,
    /// The kind of memory binding that the task has to report; `None` if it reports none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tell: Option<String>,
}

/// The source of a task's standard input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Input {
    /// No input: `/dev/null`.
    Null,
    /// A file, opened as the user, relative to the working directory.
    File(PathBuf),
    /// The client that is attached to the step.
    Stream,
}

/// The destination of a task's standard output or error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// No output: `/dev/null`.
    Null,
    /// A file, opened as the user, relative to the working directory; every write appends.
    File {
        /// Path of the file; several tasks may share it.
        path: PathBuf,
        /// True if the file's content is kept; otherwise the first task of the step that uses the file
        /// truncates it.
        append: bool,
    },
    /// The client that is attached to the step.
    Stream,
    /// The destination of standard output; for standard error only.
    Stdout,
}

/// The control groups of a step and its limits in them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// Absolute path of the job's control group of version 2 on this node, which holds the job's limits; the
    /// step's group is created below it.
    pub job_group: Option<PathBuf>,
    /// CPUs that the step may use, where the node enforces that.
    pub cpus: Vec<u32>,
    /// The job's control groups of version 1, below which the step's are created.
    #[serde(default)]
    pub legacy: Vec<LegacyGroup>,
    /// Memory that the step may use, in bytes; 0 for as much as its job.
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
    /// True for a block device, false for a character device.
    pub block: bool,
    /// Major number, which names the driver.
    pub major: u32,
    /// Minor number, which names the device of the driver.
    pub minor: u32,
}

/// A control group of version 1.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LegacyGroup {
    /// Name of the controller: `memory`, `cpuset`, `pids`, `devices` or `freezer`.
    pub controller: String,
    /// Absolute path of the job's group.
    pub job_group: PathBuf,
}

/// The order with its raw parts, as sent to a new spurstepd.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// The order.
    pub order: StepOrder,
    /// The step's environment: `NAME=value` entries, each ended by a NUL.
    pub environment: Vec<u8>,
    /// The batch script, if this is a batch step.
    pub script: Option<Vec<u8>>,
}
