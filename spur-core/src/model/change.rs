//! Changes that `scontrol update JobId=…` makes, key by key.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::exempt::Exempt;
use super::job::{FabricAsk, JobSpec, MemoryNeed, Sharing};
use super::waits::Gone;
use crate::id::JobId;
use crate::text::dependency::Dependency;
use crate::text::features::FeatureExpr;
use crate::text::gather::{Gather, Switches};
use crate::text::gres::{GresList, GresSpec};
use crate::text::hostlist::HostExpr;
use crate::text::length::{self, TooLong};
use crate::text::mail;
use crate::text::nearest;
use crate::text::nodes::NodeCount;
use crate::text::time::{Time, TimeLimit};

/// A change of one key.
#[derive(Clone, Debug, PartialEq)]
pub enum JobChange {
    /// The time limit (`TimeLimit=`).
    TimeLimit(TimeLimit),
    /// `TimeLimit=+MINUTES`, `TimeLimit=-MINUTES`: the difference in seconds.
    TimeLimitBy(i64),
    /// The least time limit (`TimeMin=`).
    TimeMin(Option<TimeLimit>),
    /// Changes the partitions (`Partition=`).
    Partition(Box<[Arc<str>]>),
    /// The number of nodes (`NumNodes=`).
    Nodes(NodeCount),
    /// The number of tasks (`NumTasks=`).
    Tasks(u32),
    /// CPUs per task (`CPUs/Task=`).
    CpusPerTask(u32),
    /// Changes the memory per node or per CPU (`MinMemoryNode=`, `MinMemoryCPU=`).
    Memory(MemoryNeed),
    /// The least number of CPUs per node (`MinCPUsNode=`).
    MinCpus(u32),
    /// Changes the temporary disk per node in MiB (`MinTmpDiskNode=`).
    TmpDisk(u64),
    /// Changes the devices per node (`Gres=`, `TresPerNode=`).
    Gres(Vec<GresSpec>),
    /// Licenses with their counts (`Licenses=`).
    Licenses(Vec<(Box<str>, u32)>),
    /// Changes the sharing of nodes (`OverSubscribe=`, `Shared=`).
    Sharing(Sharing),
    /// True for consecutive nodes (`Contiguous=`).
    Contiguous(bool),
    /// `Wait-for-Switch=`: time after which the limit on switches is relaxed.
    SwitchWait(TimeLimit),
    /// The priority; 0 holds the job (`Priority=`).
    Priority(u32),
    /// The nice value (`Nice=`).
    Nice(i32),
    /// The name of the job (`JobName=`).
    Name(Arc<str>),
    /// The user's comment (`Comment=`).
    Comment(Option<Box<str>>),
    /// Changes the account (`Account=`).
    Account(Option<Arc<str>>),
    /// Changes the QOS (`QOS=`).
    Qos(Option<Arc<str>>),
    /// True if the job may be requeued (`Requeue=`).
    Requeue(bool),
    /// Changes or removes the dependency (`Dependency=`).
    Dependency(Option<Box<Dependency<JobId>>>),
    /// An addition to `Dependency=`: those of its jobs that have left memory.
    Gone(Vec<Gone>),
    /// The earliest start time (`StartTime=`).
    Begin(Option<Time>),
    /// Changes or removes the deadline (`Deadline=`).
    Deadline(Option<Time>),
    /// The required features (`Features=`).
    Features(Option<Box<FeatureExpr>>),
    /// The required nodes (`ReqNodeList=`).
    Nodelist(Option<Box<HostExpr>>),
    /// The excluded nodes (`ExcNodeList=`).
    Exclude(Option<Box<HostExpr>>),
    /// The largest number of switches (`Switches=`).
    Switches(Option<Switches>),
    /// True if no two segments may share a base block (`SpreadSegments=`).
    SpreadSegments(bool),
    /// True if the block rule holds for the whole job, too (`ConsolidateSegments=`).
    ConsolidateSegments(bool),
    /// The number of nodes in a segment (`SegmentSize=`).
    Segment(Option<u32>),
    /// The gather list: limits on the domains that the job touches (`Gather=`).
    Gather(Option<Gather>),
    /// Changes or removes the reservations (`ReservationName=`).
    Reservation(Option<Box<str>>),
    /// `ArrayTaskThrottle=`; 0 for no limit.
    ArrayTaskThrottle(u32),
    /// The number of tasks per node (`TasksPerNode=`).
    TasksPerNode(u32),
    /// `ReqSockets=`, `ReqCores=`, `ReqThreads=`: number per node, socket and core.
    Cores(CorePart, u32),
    /// `NumCPUs=`, `ReqProcs=`: number for the whole job, divided among its tasks.
    Cpus(u32),
    /// `Prefer=`: features or a domain.
    Prefer(Option<Arc<FeatureExpr>>),
    /// `EndTime=` of a running job, which sets its time limit.
    End(Time),
    /// Changes the events for which mail is sent (`MailType=`), after validation.
    MailType(Box<str>),
    /// The recipient of mail (`MailUser=`).
    MailUser(Box<str>),
    /// The workload characterization key (`WCKey=`).
    WcKey(Option<Box<str>>),
    /// `AdminComment=`, for operators only.
    AdminComment(Option<Box<str>>),
    /// The text for other programs (`Extra=`).
    Text(Option<Box<str>>),
    /// The working directory of the batch script (`WorkDir=`).
    WorkDir(Box<str>),
    /// Changes the file of a standard stream (`StdIn=`, `StdOut=`, `StdErr=`).
    File(Stream, Option<Box<str>>),
    /// `LastCheckpoint=now`: a later attempt can go on from where the job is now.
    Checkpoint,
    /// An option without effect in this system, or that sets the value that always holds: `DelayBoot=`,
    /// `Reboot=no`.
    Nothing,
}

/// A part of a node whose number a job can request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CorePart {
    /// Sockets on each node.
    Sockets,
    /// Cores on each socket.
    Cores,
    /// Threads on each core.
    Threads,
}

/// A standard stream of a batch script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard input of a batch script.
    Input,
    /// Standard output of a batch script.
    Output,
    /// Standard error of a batch script.
    Error,
}

/// The components of a het job that a change applies to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All components; the change must name the first one.
    Whole,
    /// All components if the first one is named, else the named one.
    AllOrOne,
    /// The change applies to the named component only.
    One,
}

/// The reason for which a key and value are no change.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// The key is unknown.
    #[error("Update of this parameter is not supported: {key}{}", suggestion(key))]
    UnknownKey {
        /// The key as written.
        key: String,
    },
    /// Slurm has the key, but Spur has nothing for it.
    #[error("Requested operation not supported on this system: {key}")]
    Unsupported {
        /// The key as written.
        key: String,
    },
    /// The value is too long.
    #[error("{key}: {error}")]
    TooLong {
        /// Key of the text that is too long.
        key: String,
        /// The length of the value, and the largest one.
        error: TooLong,
    },
    /// The value does not fit the key.
    #[error("{key}={value}: {problem}")]
    BadValue {
        /// Key of the invalid value.
        key: String,
        /// Value as written.
        value: String,
        /// The problem, in words for users.
        problem: String,
    },
}

/// Keys that can be changed, with Slurm's spelling; read without regard to case.
const KEYS: [&str; 64] = [
    "TimeLimit",
    "TimeMin",
    "Partition",
    "NumNodes",
    "NumTasks",
    "CPUs/Task",
    "MinMemoryNode",
    "MinMemoryCPU",
    "MinCPUsNode",
    "MinTmpDiskNode",
    "Gres",
    "TresPerNode",
    "Licenses",
    "OverSubscribe",
    "Shared",
    "Contiguous",
    "Wait-for-Switch",
    "Priority",
    "Nice",
    "JobName",
    "Name",
    "Comment",
    "Account",
    "QOS",
    "Requeue",
    "Dependency",
    "StartTime",
    "Deadline",
    "Features",
    "ReqNodeList",
    "ExcNodeList",
    "Switches",
    "SegmentSize",
    "SpreadSegments",
    "ConsolidateSegments",
    "Gather",
    "EligibleTime",
    "ReservationName",
    "ArrayTaskThrottle",
    "AdminComment",
    "Extra",
    "CPUsPerTask",
    "CoreSpec",
    "DelayBoot",
    "EndTime",
    "LastCheckpoint",
    "MailType",
    "MailUser",
    "NodeList",
    "NumCPUs",
    "Prefer",
    "Reboot",
    "ReqCores",
    "ReqNodes",
    "ReqProcs",
    "ReqSockets",
    "ReqThreads",
    "StdErr",
    "StdIn",
    "StdOut",
    "TasksPerNode",
    "ThreadSpec",
    "WCKey",
    "WorkDir",
];

/// Keys that Slurm has and Spur does not support.
pub const UNSUPPORTED: [&str; 5] =
    ["BurstBuffer", "ClusterFeatures", "Clusters", "ResetAccrueTime", "SiteFactor"];

/// Keys that can be changed, in Slurm's spelling.
pub fn keys() -> impl Iterator<Item = &'static str> {
    KEYS.into_iter()
}

fn suggestion(key: &str) -> String {
    nearest::nearest(key, KEYS).map_or_else(String::new, |near| format!("; did you mean {near}?"))
}

impl JobChange {
    /// The kind of limits from which an operator exempts the job by this change; `None` if there is none.
    #[must_use]
    pub fn exempts(&self) -> Option<Exempt> {
        match self {
            JobChange::TimeLimit(_) | JobChange::TimeLimitBy(_) => Some(Exempt::Time),
            JobChange::Nodes(_) | JobChange::Nodelist(_) => Some(Exempt::Nodes),
            JobChange::Tasks(_)
            | JobChange::TasksPerNode(_)
            | JobChange::CpusPerTask(_)
            | JobChange::MinCpus(_)
            | JobChange::Cpus(_) => Some(Exempt::Cpus),
            JobChange::Memory(_) => Some(Exempt::Memory),
            JobChange::Gres(_) => Some(Exempt::Gres),
            JobChange::Licenses(_) => Some(Exempt::Licenses),
            _ => None,
        }
    }

    /// Reads one `Key=Value` of `scontrol update`. Times are seconds since the Unix epoch; an empty value
    /// clears.
    ///
    /// # Errors
    /// An unknown key, with the nearest known one, or a value that does not fit it.
    pub fn parse(key: &str, value: &str) -> Result<Self, ChangeError> {
        let known = KEYS.iter().find(|known| known.eq_ignore_ascii_case(key));
        if UNSUPPORTED.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            return Err(ChangeError::Unsupported { key: key.to_owned() });
        }
        let Some(known) = known else { return Err(ChangeError::UnknownKey { key: key.to_owned() }) };
        let most = match *known {
            "Dependency" => length::DEPENDENCY,
            "ReqNodeList" | "ExcNodeList" => length::NODES,
            _ => length::TEXT,
        };
        if let Err(error) = length::check(value, most) {
            return Err(ChangeError::TooLong { key: (*known).to_owned(), error });
        }
        let parsed = parse(known, value);
        parsed.map_err(|problem| ChangeError::BadValue {
            key: (*known).to_owned(),
            value: value.to_owned(),
            problem,
        })
    }

    /// True if the change is possible for a running job.
    #[must_use]
    pub fn fits_running(&self) -> bool {
        matches!(
            self,
            JobChange::TimeLimit(_)
                | JobChange::TimeLimitBy(_)
                | JobChange::Name(_)
                | JobChange::Comment(_)
                | JobChange::Requeue(_)
                | JobChange::Account(_)
                | JobChange::Qos(_)
                | JobChange::Priority(_)
                | JobChange::Nice(_)
                | JobChange::ArrayTaskThrottle(_)
                | JobChange::End(_)
                | JobChange::MailType(_)
                | JobChange::MailUser(_)
                | JobChange::WcKey(_)
                | JobChange::AdminComment(_)
                | JobChange::Text(_)
                | JobChange::Checkpoint
                | JobChange::Nothing
        )
    }

    /// The components of a het job that the change applies to, if one of them is named.
    #[must_use]
    pub fn reach(&self) -> Reach {
        match self {
            JobChange::Priority(_)
            | JobChange::Nice(_)
            | JobChange::Account(_)
            | JobChange::Qos(_)
            | JobChange::Requeue(_)
            | JobChange::Dependency(_)
            | JobChange::Gone(_)
            | JobChange::Begin(_)
            | JobChange::Deadline(_) => Reach::Whole,
            JobChange::TimeLimit(_)
            | JobChange::TimeLimitBy(_)
            | JobChange::TimeMin(_)
            | JobChange::Name(_)
            | JobChange::End(_)
            | JobChange::Checkpoint
            | JobChange::MailType(_)
            | JobChange::MailUser(_)
            | JobChange::WcKey(_)
            | JobChange::AdminComment(_)
            | JobChange::Text(_)
            | JobChange::Comment(_) => Reach::AllOrOne,
            JobChange::Partition(_)
            | JobChange::Reservation(_)
            | JobChange::Nodes(_)
            | JobChange::Tasks(_)
            | JobChange::CpusPerTask(_)
            | JobChange::Memory(_)
            | JobChange::MinCpus(_)
            | JobChange::TmpDisk(_)
            | JobChange::Gres(_)
            | JobChange::Licenses(_)
            | JobChange::Sharing(_)
            | JobChange::Contiguous(_)
            | JobChange::SwitchWait(_)
            | JobChange::Features(_)
            | JobChange::Nodelist(_)
            | JobChange::Exclude(_)
            | JobChange::Switches(_)
            | JobChange::Segment(_)
            | JobChange::SpreadSegments(_)
            | JobChange::ConsolidateSegments(_)
            | JobChange::Gather(_)
            | JobChange::TasksPerNode(_)
            | JobChange::Cpus(_)
            | JobChange::Cores(..)
            | JobChange::Prefer(_)
            | JobChange::WorkDir(_)
            | JobChange::File(..)
            | JobChange::Nothing
            | JobChange::ArrayTaskThrottle(_) => Reach::One,
        }
    }

    /// Applies the change to a request. `EndTime=` has no effect here, as the time limit depends on the run
    /// time.
    pub fn make(&self, spec: &mut JobSpec) {
        match self.clone() {
            JobChange::Cpus(cpus) => {
                let tasks = spec.shape.tasks.or(spec.shape.nodes.as_ref().map(|nodes| nodes.min));
                spec.shape.cpus_per_task = Some(cpus.div_ceil(tasks.unwrap_or(1).max(1)).max(1));
            }
            JobChange::TasksPerNode(tasks) => spec.shape.tasks_per_node = Some(tasks),
            JobChange::Cores(part, count) => {
                let cores = spec.shape.cores.get_or_insert_default();
                match part {
                    CorePart::Sockets => cores.sockets_per_node = Some(count),
                    CorePart::Cores => cores.cores_per_socket = Some(count),
                    CorePart::Threads => cores.threads_per_core = Some(count),
                }
            }
            JobChange::MailType(_)
            | JobChange::MailUser(_)
            | JobChange::WcKey(_)
            | JobChange::AdminComment(_)
            | JobChange::Text(_)
            | JobChange::WorkDir(_)
            | JobChange::File(..) => self.make_beside(spec),
            JobChange::Contiguous(_)
            | JobChange::SwitchWait(_)
            | JobChange::Switches(_)
            | JobChange::Segment(_)
            | JobChange::SpreadSegments(_)
            | JobChange::ConsolidateSegments(_)
            | JobChange::Prefer(_)
            | JobChange::Gather(_) => self.make_fabric(spec.fabric.get_or_insert_default()),
            JobChange::End(_) | JobChange::Checkpoint | JobChange::Nothing => {}
            JobChange::TimeLimit(limit) => spec.time_limit = limit,
            JobChange::TimeLimitBy(seconds) => {
                if let TimeLimit::Seconds(limit) = spec.time_limit {
                    spec.time_limit = TimeLimit::Seconds(limit.saturating_add_signed(seconds).max(60));
                }
            }
            JobChange::TimeMin(limit) => spec.time_min = limit,
            JobChange::Partition(partitions) => spec.partitions = partitions,
            JobChange::Nodes(nodes) => spec.shape.nodes = Some(nodes),
            JobChange::Tasks(tasks) => spec.shape.set_tasks(tasks),
            JobChange::CpusPerTask(cpus) => spec.shape.cpus_per_task = Some(cpus),
            JobChange::Memory(memory) => spec.shape.memory = Some(memory),
            JobChange::MinCpus(cpus) => spec.shape.min_cpus = cpus,
            JobChange::TmpDisk(mb) => spec.shape.tmp_disk_mb = mb,
            JobChange::Gres(gres) => spec.shape.gres = gres,
            JobChange::Licenses(licenses) => spec.extra.get_or_insert_default().licenses = licenses,
            JobChange::Sharing(sharing) => spec.shape.sharing = sharing,
            JobChange::Priority(priority) => spec.priority = Some(priority),
            JobChange::Nice(nice) => spec.nice = nice,
            JobChange::Name(name) => spec.name = name,
            JobChange::Comment(comment) => spec.extra.get_or_insert_default().comment = comment,
            JobChange::Account(account) => spec.account = account,
            JobChange::Qos(qos) => spec.qos = qos,
            JobChange::Requeue(requeue) => spec.requeue = requeue,
            JobChange::Dependency(dependency) => spec.dependency = dependency,
            JobChange::Gone(gone) => spec.extra.get_or_insert_default().gone = gone,
            JobChange::Begin(begin) => spec.begin = begin,
            JobChange::Deadline(deadline) => spec.deadline = deadline,
            JobChange::Features(features) => spec.shape.features = features,
            JobChange::Nodelist(nodelist) => spec.shape.nodelist = nodelist,
            JobChange::Exclude(exclude) => spec.shape.exclude = exclude,
            JobChange::Reservation(names) => spec.extra.get_or_insert_default().reservation = names,
            JobChange::ArrayTaskThrottle(most) => {
                if let Some(array) = &mut spec.array {
                    array.limit = Some(most).filter(|most| *most > 0);
                }
            }
        }
    }

    /// Applies a change that concerns the fabric.
    fn make_fabric(&self, fabric: &mut FabricAsk) {
        match self.clone() {
            JobChange::Contiguous(contiguous) => fabric.contiguous = contiguous,
            JobChange::SwitchWait(wait) => {
                if let Some(switches) = &mut fabric.switches {
                    switches.wait = Some(wait);
                }
            }
            JobChange::Switches(switches) => fabric.switches = switches,
            JobChange::Segment(segment) => fabric.segment = segment,
            JobChange::SpreadSegments(spread) => fabric.spread_segments = spread,
            JobChange::ConsolidateSegments(together) => fabric.consolidate_segments = together,
            JobChange::Prefer(wish) => fabric.prefer = wish,
            JobChange::Gather(gather) => fabric.gather = gather,
            _ => {}
        }
    }

    /// Applies a change that does not influence where and when the job runs.
    fn make_beside(&self, spec: &mut JobSpec) {
        let extra = spec.extra.get_or_insert_default();
        match self.clone() {
            JobChange::MailType(types) => extra.mail.get_or_insert_default().0 = types,
            JobChange::MailUser(user) => extra.mail.get_or_insert_default().1 = user,
            JobChange::WcKey(key) => extra.wckey = key,
            JobChange::AdminComment(comment) => extra.admin_comment = comment,
            JobChange::Text(text) => extra.text = text,
            JobChange::WorkDir(path) => {
                if let Some(batch) = &mut spec.batch {
                    batch.work_dir = path;
                }
            }
            JobChange::File(stream, path) => {
                if let Some(batch) = &mut spec.batch {
                    match stream {
                        Stream::Input => batch.stdin = path,
                        Stream::Output => batch.stdout = path,
                        Stream::Error => batch.stderr = path,
                    }
                }
            }
            _ => {}
        }
    }
}

fn parse(key: &str, value: &str) -> Result<JobChange, String> {
    let set = !value.is_empty();
    Ok(match key {
        "TimeLimit" => time_limit(value)?,
        "TimeMin" => JobChange::TimeMin(optional(value)?),
        "Partition" if set => JobChange::Partition(value.split(',').map(Arc::from).collect()),
        "NumNodes" | "ReqNodes" => JobChange::Nodes(read(value)?),
        "NumTasks" => JobChange::Tasks(positive(value)?),
        "CPUs/Task" | "CPUsPerTask" => JobChange::CpusPerTask(positive(value)?),
        "MinMemoryNode" => JobChange::Memory(MemoryNeed::PerNode(memory(value)?)),
        "MinMemoryCPU" => JobChange::Memory(MemoryNeed::PerCpu(memory(value)?)),
        "MinCPUsNode" => JobChange::MinCpus(read(value)?),
        "MinTmpDiskNode" => JobChange::TmpDisk(memory(value)?),
        "Gres" | "TresPerNode" => JobChange::Gres(gres(value)?),
        "Licenses" => JobChange::Licenses(licenses(value)?),
        "OverSubscribe" | "Shared" => JobChange::Sharing(match flag(value)? {
            true => Sharing::Shared,
            false => Sharing::Exclusive,
        }),
        "Contiguous" => JobChange::Contiguous(flag(value)?),
        // Here a plain number is seconds; in --switches it is minutes.
        "Wait-for-Switch" => JobChange::SwitchWait(match value.parse() {
            Ok(seconds) => TimeLimit::Seconds(seconds),
            Err(_) => read(value)?,
        }),
        "Priority" => JobChange::Priority(read(value)?),
        "Nice" => JobChange::Nice(if set { read(value)? } else { 100 }),
        "JobName" | "Name" if set => JobChange::Name(value.into()),
        "Comment" => JobChange::Comment(set.then(|| value.into())),
        "Account" => JobChange::Account(set.then(|| value.to_lowercase().into())),
        "QOS" => JobChange::Qos(set.then(|| value.into())),
        "Requeue" => JobChange::Requeue(flag(value)?),
        "Dependency" => JobChange::Dependency(dependency(value)?),
        "StartTime" | "EligibleTime" => JobChange::Begin(time(value)?),
        "Deadline" => JobChange::Deadline(time(value)?),
        "Features" => JobChange::Features(optional(value)?.map(Box::new)),
        "ReqNodeList" | "NodeList" => JobChange::Nodelist(optional(value)?.map(Box::new)),
        "ExcNodeList" => JobChange::Exclude(optional(value)?.map(Box::new)),
        "Switches" => JobChange::Switches(optional(value)?),
        "SegmentSize" => JobChange::Segment(Some(read(value)?).filter(|size| *size > 0)),
        "SpreadSegments" => JobChange::SpreadSegments(flag(value)?),
        "ConsolidateSegments" => JobChange::ConsolidateSegments(flag(value)?),
        "Gather" => JobChange::Gather(optional(value)?),
        "ReservationName" => JobChange::Reservation(set.then(|| value.into())),
        "ArrayTaskThrottle" => JobChange::ArrayTaskThrottle(read(value)?),
        _ => return parse_more(key, value),
    })
}

/// Reads the less frequent keys.
fn parse_more(key: &str, value: &str) -> Result<JobChange, String> {
    let set = !value.is_empty();
    let text = || set.then(|| Box::from(value));
    Ok(match key {
        "TasksPerNode" => JobChange::TasksPerNode(positive(value)?),
        "ReqSockets" => JobChange::Cores(CorePart::Sockets, positive(value)?),
        "ReqCores" => JobChange::Cores(CorePart::Cores, positive(value)?),
        "ReqThreads" => JobChange::Cores(CorePart::Threads, positive(value)?),
        "Prefer" => JobChange::Prefer(
            set.then(|| FeatureExpr::wish(value).map(Arc::new))
                .transpose()
                .map_err(|error| error.to_string())?,
        ),
        "EndTime" if set => JobChange::End(Time(read(value)?)),
        "LastCheckpoint" if value.eq_ignore_ascii_case("now") => JobChange::Checkpoint,
        "LastCheckpoint" => {
            return Err("write LastCheckpoint=now when the job has saved its state".to_owned());
        }
        "MailType" => match mail::types(value) {
            (known, unknown) if unknown.is_empty() => JobChange::MailType(known.into()),
            (_, unknown) => return Err(format!("`{}` is none of {}", unknown[0], mail::TYPES.join(", "))),
        },
        "MailUser" => JobChange::MailUser(value.into()),
        "WCKey" => JobChange::WcKey(text()),
        "AdminComment" => JobChange::AdminComment(text()),
        "Extra" => JobChange::Text(text()),
        "WorkDir" if value.starts_with('/') => JobChange::WorkDir(value.into()),
        "WorkDir" => return Err("write an absolute path".to_owned()),
        "StdIn" => JobChange::File(Stream::Input, text()),
        "StdOut" => JobChange::File(Stream::Output, text()),
        "StdErr" => JobChange::File(Stream::Error, text()),
        "DelayBoot" => JobChange::Nothing,
        "Reboot" if !flag(value)? => JobChange::Nothing,
        "Reboot" => return Err("nodes are not booted by jobs".to_owned()),
        // As in Slurm without AllowSpecResourcesUsage.
        "CoreSpec" | "ThreadSpec" => return Err("Access/permission denied".to_owned()),
        "NumCPUs" | "ReqProcs" => JobChange::Cpus(read::<NodeCount>(value)?.min),
        _ => return Err("must not be empty".to_owned()),
    })
}

fn read<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<T, String> {
    value.parse().map_err(|error: T::Err| error.to_string())
}

fn optional<T: std::str::FromStr<Err: std::fmt::Display>>(value: &str) -> Result<Option<T>, String> {
    if value.is_empty() { Ok(None) } else { read(value).map(Some) }
}

fn positive(value: &str) -> Result<u32, String> {
    read(value).and_then(|number| if number > 0 { Ok(number) } else { Err("must be at least 1".to_owned()) })
}

fn memory(value: &str) -> Result<u64, String> {
    read::<crate::text::memory::MemoryMb>(value).and_then(|memory| crate::text::memory::check(memory.0))
}

/// Reads devices in the format of `--gres` or of `scontrol` (`gres:gpu:2`, `gres/gpu:2`).
fn gres(value: &str) -> Result<Vec<GresSpec>, String> {
    let bare = |item: &str| {
        let bare = item.strip_prefix("gres:").or_else(|| item.strip_prefix("gres/"));
        bare.unwrap_or(item).to_owned()
    };
    let list = value.split(',').map(bare).collect::<Vec<_>>().join(",");
    optional::<GresList>(&list).map(|list| list.map_or_else(Vec::new, |list| list.0))
}

/// Reads `NAME[:COUNT],…`; counts of the same name are added up.
///
/// # Errors
/// The first item that is not in this format.
pub fn licenses(written: &str) -> Result<Vec<(Box<str>, u32)>, String> {
    let mut licenses: Vec<(Box<str>, u32)> = Vec::new();
    let mut places = BTreeMap::new();
    for item in written.split(',').filter(|item| !item.is_empty()) {
        let (name, count) = item.split_once([':', '=']).unwrap_or((item, "1"));
        let count = match (name.is_empty(), count.parse::<u32>()) {
            (false, Ok(count)) if count > 0 => count,
            _ => return Err(format!("`{item}`: write NAME or NAME:COUNT, e.g. matlab:2")),
        };
        let place = *places.entry(name).or_insert(licenses.len());
        match licenses.get_mut(place) {
            Some((_, sum)) => *sum = sum.saturating_add(count),
            None => licenses.push((name.into(), count)),
        }
    }
    Ok(licenses)
}

fn flag(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "1" | "yes" => Ok(true),
        "0" | "no" => Ok(false),
        _ => Err("write 0 or 1".to_owned()),
    }
}

fn time(value: &str) -> Result<Option<Time>, String> {
    optional::<i64>(value).map(|seconds| seconds.map(Time))
}

fn time_limit(value: &str) -> Result<JobChange, String> {
    let signed =
        value.strip_prefix('+').map(|rest| (rest, 1)).or(value.strip_prefix('-').map(|rest| (rest, -1)));
    match signed {
        Some((rest, sign)) if value != "-1" => match read::<TimeLimit>(rest)? {
            TimeLimit::Seconds(seconds) => {
                let seconds = i64::try_from(seconds).map_err(|_| "too long".to_owned())?;
                Ok(JobChange::TimeLimitBy(sign * seconds))
            }
            TimeLimit::Unlimited => Err("UNLIMITED cannot be added".to_owned()),
        },
        _ => read(value).map(JobChange::TimeLimit),
    }
}

fn dependency(value: &str) -> Result<Option<Box<Dependency<JobId>>>, String> {
    let Some(written) = optional::<Dependency>(value)? else { return Ok(None) };
    let numbered = written
        .bounded()?
        .map_jobs(|job| job.parse().map_err(|_| format!("'{job}' is not a job's number")))?;
    Ok(Some(Box::new(numbered)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values() {
        assert_eq!(JobChange::parse("timelimit", "20"), Ok(JobChange::TimeLimit(TimeLimit::Seconds(1200))));
        assert_eq!(JobChange::parse("TimeLimit", "+5"), Ok(JobChange::TimeLimitBy(300)));
        assert_eq!(JobChange::parse("TimeLimit", "-5"), Ok(JobChange::TimeLimitBy(-300)));
        assert_eq!(JobChange::parse("Comment", ""), Ok(JobChange::Comment(None)));
        let unknown = JobChange::parse("TimeLimt", "5").expect_err("a misspelt key");
        assert!(unknown.to_string().contains("did you mean TimeLimit?"), "{unknown}");
        assert!(JobChange::parse("Partition", "").is_err());
        assert!(JobChange::parse("NumTasks", "0").is_err());
        let gpus = JobChange::Gres(vec![GresSpec::new("gpu", None, 2)]);
        for value in ["gpu:2", "gres:gpu:2", "gres/gpu:2"] {
            assert_eq!(JobChange::parse("TresPerNode", value), Ok(gpus.clone()));
        }
        assert_eq!(JobChange::parse("gres", ""), Ok(JobChange::Gres(Vec::new())));
        let licenses = vec![("matlab".into(), 2), ("ansys".into(), 1)];
        assert_eq!(JobChange::parse("Licenses", "matlab:2,ansys"), Ok(JobChange::Licenses(licenses)));
        let twice = JobChange::parse("Licenses", "matlab,ansys,matlab:1");
        assert_eq!(twice, JobChange::parse("Licenses", "matlab:2,ansys"));
        assert!(JobChange::parse("Licenses", "matlab:0").is_err());
        let long = JobChange::parse("comment", &"x".repeat(2000)).map_err(|error| error.to_string());
        assert_eq!(long, Err("Comment: 2000 bytes are too many; at most 1024 can be given".to_owned()));
        assert_eq!(JobChange::parse("ReqSockets", "2"), Ok(JobChange::Cores(CorePart::Sockets, 2)));
        assert_eq!(JobChange::parse("mailtype", "end,fail"), Ok(JobChange::MailType("END,FAIL".into())));
        assert_eq!(JobChange::parse("StdOut", ""), Ok(JobChange::File(Stream::Output, None)));
        assert_eq!(JobChange::parse("CPUsPerTask", "2"), JobChange::parse("CPUs/Task", "2"));
        for (key, value) in
            [("MailType", "SOMETIMES"), ("WorkDir", "here"), ("Reboot", "yes"), ("Clusters", "x")]
        {
            assert!(JobChange::parse(key, value).is_err(), "{key}");
        }
        assert_eq!(JobChange::parse("oversubscribe", "no"), Ok(JobChange::Sharing(Sharing::Exclusive)));
    }
}
