//! Fields of `squeue` for jobs.

use std::cmp::Ordering;

use spur_core::text::array::TaskSet;
use spur_core::text::hostlist::compare_names;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_proto::v1::{CoreAsk, Job, Span};

use crate::format::value::{flag, limit, memory, or, or_null, time};
use crate::format::{Field, Show, Table};

/// A job, or one pending task of an array as made by [`one_per_task`].
pub type Row = Job;

const fn field(
    letter: char,
    name: &'static str,
    header: &'static str,
    text: fn(&Job, &Show) -> String,
) -> Field<Job> {
    Field::new(Some(letter), name, header, text)
}

const fn named(name: &'static str, header: &'static str, text: fn(&Job, &Show) -> String) -> Field<Job> {
    Field::new(None, name, header, text)
}

fn null(_: &Job, _: &Show) -> String {
    "(null)".to_owned()
}

/// Returns the job's constraints on sockets, cores and threads.
pub fn asked_cores(job: &Job) -> CoreAsk {
    job.cores.unwrap_or_default()
}

/// Formats a requested number; `*` if the job requests none.
pub fn asked(number: Option<u32>) -> String {
    number.map_or_else(|| "*".to_owned(), |number| number.to_string())
}

fn cores_and_threads(job: &Job) -> String {
    let cores = asked_cores(job);
    [cores.sockets_per_node, cores.cores_per_socket, cores.threads_per_core].map(asked).join(":")
}

fn or_not_applicable(number: Option<u32>) -> String {
    number.map_or_else(|| "N/A".to_owned(), |number| number.to_string())
}

fn not_applicable(_: &Job, _: &Show) -> String {
    "N/A".to_owned()
}

fn zero(_: &Job, _: &Show) -> String {
    "0".to_owned()
}

/// Table of the fields of jobs.
pub static TABLE: Table<Job> = Table { records: "job", fields: FIELDS, bars: ["|", "|", ""] };

/// All fields: Slurm's first, then those that only Spur has.
pub const FIELDS: &[Field<Job>] = &[
    field('a', "Account", "ACCOUNT", |j, _| or_null(&j.account)),
    field('A', "JobID", "JOBID", |j, _| j.id.to_string()).by(|a, b| a.id.cmp(&b.id)),
    field('b', "tres-per-node", "TRES_PER_NODE", |j, _| or(&devices(&j.gres), "N/A")),
    field('B', "BatchHost", "EXEC_HOST", |j, _| or(&j.batch_host, "n/a")),
    field('c', "MinCpus", "MIN_CPUS", |j, _| j.min_cpus_node.to_string())
        .by(|a, b| a.min_cpus_node.cmp(&b.min_cpus_node)),
    field('C', "NumCPUs", "CPUS", |j, _| j.num_cpus.to_string()).by(|a, b| a.num_cpus.cmp(&b.num_cpus)),
    field('d', "MinTmpDisk", "MIN_TMP_DISK", |j, show| memory(j.tmp_disk_mb, show))
        .by(|a, b| a.tmp_disk_mb.cmp(&b.tmp_disk_mb)),
    field('D', "NumNodes", "NODES", |j, _| j.num_nodes.to_string()).by(|a, b| a.num_nodes.cmp(&b.num_nodes)),
    field('e', "EndTime", "END_TIME", |j, show| {
        time(j.end_time, if j.start_time.is_some() && !j.start_is_planned { "NONE" } else { "N/A" }, show)
    })
    .by(|a, b| unknown_last(a.end_time, b.end_time)),
    field('E', "Dependency", "DEPENDENCY", |j, _| or_null(&j.dependency)),
    field('f', "Feature", "FEATURES", |j, _| or_null(&j.features)),
    field('F', "ArrayJobID", "ARRAY_JOB_ID", |j, _| array_id(j).to_string())
        .by(|a, b| array_id(a).cmp(&array_id(b))),
    field('g', "GroupName", "GROUP", |j, _| j.group.clone()),
    field('G', "GroupID", "GROUP", |j, _| j.gid.to_string()).by(|a, b| a.gid.cmp(&b.gid)),
    field('h', "OverSubscribe", "OVER_SUBSCRIBE", |j, _| j.oversubscribe.clone()).or(&["Shared"]),
    field('H', "Sockets", "SOCKETS_PER_NODE", |j, _| asked(asked_cores(j).sockets_per_node)),
    field('i', "JobArrayID", "JOBID", job_id).by(by_id),
    field('I', "Cores", "CORES_PER_SOCKET", |j, _| asked(asked_cores(j).cores_per_socket)),
    field('j', "Name", "NAME", |j, _| j.name.clone()),
    field('J', "Threads", "THREADS_PER_CORE", |j, _| asked(asked_cores(j).threads_per_core)),
    field('k', "Comment", "COMMENT", |j, _| or_null(&j.comment)),
    field('K', "ArrayTaskID", "ARRAY_TASK_ID", |j, show| or(&tasks(j, show), "N/A"))
        .by(|a, b| a.array_task_id.cmp(&b.array_task_id)),
    field('l', "TimeLimit", "TIME_LIMIT", |j, _| limit(j.time_limit, "UNLIMITED"))
        .by(|a, b| unknown_last(a.time_limit, b.time_limit))
        .span(),
    field('L', "TimeLeft", "TIME_LEFT", |j, _| limit(left(j), "UNLIMITED"))
        .by(|a, b| unknown_last(left(a), left(b)))
        .span(),
    field('m', "MinMemory", "MIN_MEMORY", |j, show| memory(min_memory(j), show))
        .by(|a, b| min_memory(a).cmp(&min_memory(b))),
    field('M', "TimeUsed", "TIME", |j, _| limit(Some(j.run_time), ""))
        .by(|a, b| a.run_time.cmp(&b.run_time))
        .span(),
    field('n', "ReqNodes", "REQ_NODES", |j, _| j.required_nodes.clone()),
    field('N', "NodeList", "NODELIST", |j, _| j.nodes.clone()).by(|a, b| compare_names(&a.nodes, &b.nodes)),
    field('o', "Command", "COMMAND", |j, _| or_null(&j.command)),
    field('O', "Contiguous", "CONTIGUOUS", |j, _| flag(j.contiguous)),
    field('p', "Priority", "PRIORITY", |j, _| format!("{:.14}", f64::from(j.priority) / f64::from(u32::MAX)))
        .by(|a, b| a.priority.cmp(&b.priority)),
    field('P', "Partition", "PARTITION", |j, _| j.partition.clone()).by(|a, b| a.partition.cmp(&b.partition)),
    field('q', "QOS", "QOS", |j, _| or_null(&j.qos)),
    field('Q', "PriorityLong", "PRIORITY", |j, _| j.priority.to_string())
        .by(|a, b| a.priority.cmp(&b.priority)),
    field('r', "Reason", "REASON", |j, _| or(&j.reason, "None")),
    field('R', "ReasonList", "NODELIST(REASON)", |j, _| reason_or_nodes(j)),
    field('s', "SelectJobInfo", "", |_, _| String::new()),
    field('S', "StartTime", "START_TIME", |j, show| time(j.start_time, "N/A", show))
        .by(|a, b| unknown_last(a.start_time, b.start_time)),
    field('t', "StateCompact", "ST", |j, _| j.state_compact.clone())
        .by(|a, b| a.state_compact.cmp(&b.state_compact)),
    field('T', "State", "STATE", |j, _| j.state.clone()),
    field('u', "UserName", "USER", |j, _| j.user.clone()),
    field('U', "UserID", "UID", |j, _| j.uid.to_string()).by(|a, b| a.uid.cmp(&b.uid)),
    field('v', "Reservation", "RESERVATION", |j, _| or_null(&j.reservation)),
    field('V', "SubmitTime", "SUBMIT_TIME", |j, show| time(Some(j.submit_time), "N/A", show))
        .by(|a, b| a.submit_time.cmp(&b.submit_time)),
    field('w', "WCKey", "WCKEY", |j, _| or_null(&j.wckey)),
    field('W', "Licenses", "LICENSES", |j, _| or_null(&j.licenses)),
    field('x', "ExcNodes", "EXC_NODES", |j, _| j.excluded_nodes.clone()),
    field('X', "CoreSpec", "CORE_SPEC", |_, _| "N/A".to_owned()),
    field('y', "Nice", "NICE", |j, _| j.nice.to_string()).by(|a, b| a.nice.cmp(&b.nice)),
    field('Y', "SchedNodes", "SCHEDNODES", |j, _| or_null(&j.planned_nodes)),
    field('z', "SCT", "S:C:T", |j, _| cores_and_threads(j)),
    field('Z', "WorkDir", "WORK_DIR", |j, _| or_null(&j.work_dir)),
    named("AccrueTime", "ACCRUE_TIME", |j, show| time(j.accrue_time, "N/A", show)),
    named("admin_comment", "ADMIN_COMMENT", |j, _| or_null(&j.admin_comment)),
    named("AllocNodes", "ALLOC_NODES", |j, _| or_null(&j.submit_host)),
    named("AllocSID", "ALLOC_SID", zero),
    named("AssocID", "ASSOC_ID", zero),
    named("BatchFlag", "BATCH_FLAG", |j, _| flag(j.batch)),
    named("BoardsPerNode", "BOARDS_PER_NODE", zero),
    named("BurstBuffer", "BURST_BUFFER", null),
    named("BurstBufferState", "BURST_BUFFER_STATE", null),
    named("Cluster", "CLUSTER", |_, show| show.cluster.clone()),
    named("ClusterFeature", "CLUSTER_FEATURES", null),
    named("Container", "CONTAINER", null),
    named("ContainerID", "CONTAINER_ID", null),
    named("cpus-per-task", "CPUS_PER_TASK", |j, _| j.cpus_per_task.to_string()),
    named("cpus-per-tres", "CPUS_PER_TRES", not_applicable),
    named("CronJob", "CRON_JOB", |_, _| "No".to_owned()),
    named("Deadline", "DEADLINE", |j, show| time(j.deadline, "N/A", show)),
    named("DelayBoot", "DELAY_BOOT", |_, _| "0:00".to_owned()),
    named("DerivedEC", "DERIVED_EC", |j, _| wait_status(j.derived_exit_code, j.derived_exit_signal)),
    named("EligibleTime", "ELIGIBLE_TIME", |j, show| time(j.eligible_time, "N/A", show)),
    named("exit_code", "EXIT_CODE", |j, _| wait_status(j.exit_code, j.exit_signal)),
    named("HetJobID", "HET_JOB_ID", |j, _| optional(j.het_job_id)),
    named("HetJobIDSet", "HET_JOB_ID_SET", |j, _| or(&j.het_job_id_set, "N/A")),
    named("HetJobOffset", "HET_JOB_OFFSET", |j, _| optional(j.het_job_offset)),
    named("LastSchedEval", "LAST_SCHED_EVAL", |j, show| time(j.last_sched_eval, "N/A", show)),
    named("LicensesAlloc", "LICENSES_ALLOC", |j, _| or_null(&allocated_licenses(j))),
    named("MaxCPUs", "MAX_CPUS", |j, _| j.num_cpus.to_string()).by(|a, b| a.num_cpus.cmp(&b.num_cpus)),
    named("MaxNodes", "MAX_NODES", |j, _| j.max_nodes.max(j.num_nodes).to_string()),
    named("MCSLabel", "MCSLABEL", null),
    named("mem-per-tres", "MEM_PER_TRES", not_applicable),
    named("MinTime", "TIME_MIN", |j, _| limit(Some(j.time_min.unwrap_or(0)), "")),
    named("Network", "NETWORK", |j, _| or_null(&j.network)),
    named("NTPerBoard", "NTASKS_PER_BOARD", zero),
    named("NTPerCore", "NTASKS_PER_CORE", |j, _| or_not_applicable(asked_cores(j).tasks_per_core)),
    named("NTPerNode", "NTASKS_PER_NODE", |j, _| j.tasks_per_node.unwrap_or(0).to_string()),
    named("NTPerSocket", "NTASKS_PER_SOCKET", |j, _| or_not_applicable(asked_cores(j).tasks_per_socket)),
    named("NumTasks", "TASKS", |j, _| j.num_tasks.to_string()),
    named("Origin", "ORIGIN", |_, _| "NA".to_owned()),
    named("OriginRaw", "ORIGIN_RAW", |_, _| "NA".to_owned()),
    named("PendingTime", "PENDING_TIME", pending_time),
    named("PreemptTime", "PREEMPT_TIME", |j, show| time(j.preempt_time, "N/A", show)),
    named("Prefer", "PREFER", |j, _| or_null(&j.prefer)),
    named("Profile", "PROFILE", |_, _| "NotSet".to_owned()),
    named("Reboot", "REBOOT", |j, _| flag(j.reboot)),
    named("ReqSwitch", "REQ_SWITCH", |j, _| switches(j).0.to_owned()),
    named("Wait4Switch", "WAIT4SWITCH", |j, _| switches(j).1.to_owned()),
    named("Requeue", "REQUEUE", |j, _| flag(j.requeue)),
    named("ResizeTime", "RESIZE_TIME", not_applicable),
    named("RestartCnt", "RESTART_COUNT", |j, _| j.restarts.to_string()),
    named("SiblingsActive", "ACTIVE_SIBLINGS", |_, _| "NA".to_owned()),
    named("SiblingsActiveRaw", "ACTIVE_SIBLINGS_RAW", |_, _| "NA".to_owned()),
    named("SiblingsViable", "VIABLE_SIBLINGS", |_, _| "NA".to_owned()),
    // The misspelling is Slurm's.
    named("SiblingsViableRaw", "VIALBLE_SIBLINGS_RAW", |_, _| "NA".to_owned()),
    named("SPerBoard", "SOCKETS_PER_BOARD", zero),
    named("STDERR", "STDERR", |j, _| j.stderr.clone()),
    named("STDIN", "STDIN", |j, _| j.stdin.clone()),
    named("STDOUT", "STDOUT", |j, _| j.stdout.clone()),
    named("SubmitLine", "SUBMIT_LINE", |j, _| or_null(&j.submit_line)),
    named("system_comment", "SYSTEM_COMMENT", null),
    named("tres-bind", "TRES_BIND", not_applicable),
    named("tres-freq", "TRES_FREQ", not_applicable),
    named("tres-per-job", "TRES_PER_JOB", |j, _| or(&devices(&j.gpus), "N/A")),
    named("tres-per-task", "TRES_PER_TASK", |j, _| or(&devices(&j.gpus_per_task), "N/A")),
    named("tres-per-socket", "TRES_PER_SOCKET", not_applicable),
    named("tres-alloc", "TRES_ALLOC", |j, _| or(&j.alloc_tres, &j.req_tres)).or(&["tres"]),
    named("SegmentSize", "SEGMENT_SIZE", |j, _| optional(j.segment)),
    named("Backfilled", "BACKFILLED", |j, _| flag(j.backfilled)),
    named("Gather", "GATHER", |j, _| or_null(&j.gather)),
    named("Placement", "PLACEMENT", |j, _| or_null(&j.placement)),
    named("ReasonDetail", "REASON_DETAIL", |j, _| or_null(&j.reason_detail)),
    named("Relaxed", "RELAXED", |j, _| or_null(&j.relaxed.join(","))),
    named("Span", "SPAN", |j, _| or_null(&spans(&j.spans))),
    named("Topology", "TOPOLOGY", |j, _| or_null(&j.topology)),
    named("Why", "WHY", |j, _| or_null(&j.why)),
];

/// Formats an exit in the encoding of `wait`, as Slurm does here.
fn wait_status(code: u32, signal: u32) -> String {
    ((code << 8) | signal).to_string()
}

/// Returns the licenses that a job holds; a pending or ended job holds none.
pub fn allocated_licenses(job: &Job) -> String {
    match job.state.as_str() {
        "RUNNING" | "CONFIGURING" | "SUSPENDED" => job.licenses.clone(),
        _ => String::new(),
    }
}

/// Splits the record of an array's pending tasks into one record per task, as for `squeue -r`. Any other job
/// is returned unchanged.
pub fn one_per_task(job: Job) -> Vec<Job> {
    match pending_tasks(&job) {
        Some(tasks) if job.array_task_id.is_none() && !tasks.is_empty() => {
            let single = |task| Job { array_task_id: Some(task), array_tasks: String::new(), ..job.clone() };
            tasks.iter().map(single).collect()
        }
        _ => vec![job],
    }
}

/// Returns the last pending task of an array as a record of pending tasks, as Slurm shows it: `12_[3]`. Any
/// other job is returned unchanged; tasks that have run before have records of their own in Slurm, too.
pub fn as_pending_tasks(job: Job) -> Job {
    match job.array_task_id {
        Some(task) if job.array_job_id == Some(job.id) && job.state == "PENDING" && job.restarts == 0 => {
            Job { array_task_id: None, array_tasks: task.to_string(), ..job }
        }
        _ => job,
    }
}

/// Splits the record of a job into one per partition, as for `squeue -P`.
pub fn one_per_partition(job: Job) -> Vec<Job> {
    let partitions = job.partition.split(',').map(str::to_owned);
    partitions.map(|partition| Job { partition, ..job.clone() }).collect()
}

/// True if `wanted` refers to the job, by its number or by the array or het job that contains it.
pub fn is_meant(job: &Job, wanted: &JobRef) -> bool {
    let is = |number: Option<u32>| number == Some(wanted.job);
    match &wanted.part {
        JobPart::Whole => wanted.job == job.id || is(job.array_job_id) || is(job.het_job_id),
        JobPart::Tasks(tasks) => {
            let waiting = || pending_tasks(job).is_some_and(|waiting| !waiting.common(tasks).is_empty());
            is(job.array_job_id) && job.array_task_id.map_or_else(waiting, |task| tasks.contains(task))
        }
        JobPart::Component(offset) => is(job.het_job_id) && job.het_job_offset == Some(*offset),
    }
}

/// Returns the pending tasks of an array that share a record; `None` for any other job.
fn pending_tasks(job: &Job) -> Option<TaskSet> {
    job.array_tasks.split('%').next().unwrap_or_default().parse().ok()
}

/// Formats the job's id: `12`, `12_3`, `12_[4-7%2]`, `12+1`.
pub fn job_id(job: &Job, show: &Show) -> String {
    match (job.array_job_id, job.array_task_id) {
        (Some(array), Some(task)) => format!("{array}_{task}"),
        (Some(array), None) if !job.array_tasks.is_empty() => format!("{array}_[{}]", tasks(job, show)),
        _ => job
            .het_job_id
            .zip(job.het_job_offset)
            .map_or_else(|| job.id.to_string(), |(leader, offset)| format!("{leader}+{offset}")),
    }
}

/// Formats requested devices as Slurm does: `gres/gpu:2,gres/nic:1`.
pub fn devices(gres: &str) -> String {
    let items = gres.split(',').filter(|item| !item.is_empty());
    items.map(|item| format!("gres/{item}")).collect::<Vec<_>>().join(",")
}

/// Returns the task, or all pending tasks in Slurm's short form: `0-15:3%2`; empty for a job without tasks.
pub fn tasks(job: &Job, show: &Show) -> String {
    if let Some(task) = job.array_task_id {
        return task.to_string();
    }
    cut(&job.array_tasks, show)
}

/// Truncates a list of pending tasks to the width that Slurm prints: `0-15:3%2`.
pub fn cut(array_tasks: &str, show: &Show) -> String {
    let (tasks, throttle) = match array_tasks.split_once('%') {
        Some((tasks, throttle)) => (tasks, format!("%{throttle}")),
        None => (array_tasks, String::new()),
    };
    match tasks.parse::<TaskSet>() {
        Ok(set) if show.array_width > 0 => set.truncated(show.array_width) + &throttle,
        _ => array_tasks.to_owned(),
    }
}

/// Formats the number of domains per layer: `leaf=2,spine=1`.
pub fn spans(spans: &[Span]) -> String {
    let each: Vec<_> = spans.iter().map(|span| format!("{}={}", span.layer, span.count)).collect();
    each.join(",")
}

/// Returns the reason of a pending or failed job in parentheses, or the nodes of any other job.
fn reason_or_nodes(job: &Job) -> String {
    match job.state.as_str() {
        "PENDING" | "TIMEOUT" | "OUT_OF_MEMORY" | "DEADLINE" | "FAILED" => {
            format!("({})", or(&job.reason, "None"))
        }
        _ => job.nodes.clone(),
    }
}

fn array_id(job: &Job) -> u32 {
    job.array_job_id.unwrap_or(job.id)
}

/// Compares by the printed id: by array, then by task, with unsplit pending tasks last.
fn by_id(a: &Job, b: &Job) -> Ordering {
    let key = |job: &Job| (array_id(job), job.array_task_id.is_none(), job.array_task_id, job.id);
    key(a).cmp(&key(b))
}

fn min_memory(job: &Job) -> u64 {
    job.min_memory_node.or(job.min_memory_cpu).unwrap_or(0)
}

fn left(job: &Job) -> Option<u64> {
    job.time_limit.map(|limit| limit.saturating_sub(job.run_time))
}

fn pending_time(job: &Job, show: &Show) -> String {
    let started = job.start_time.filter(|_| !job.start_is_planned);
    (started.unwrap_or(show.now) - job.submit_time).max(0).to_string()
}

fn switches(job: &Job) -> (&str, &str) {
    let (count, wait) = job.switches.split_once('@').unwrap_or((&job.switches, "0:00"));
    (if count.is_empty() { "0" } else { count }, wait)
}

fn optional(number: Option<u32>) -> String {
    number.map_or_else(|| "N/A".to_owned(), |number| number.to_string())
}

fn unknown_last<T: Ord>(a: Option<T>, b: Option<T>) -> Ordering {
    (a.is_none(), a).cmp(&(b.is_none(), b))
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;

    use super::*;

    #[test]
    fn devices_are_shown_with_their_kind() {
        assert_eq!(devices("gpu:a100:2,nic"), "gres/gpu:a100:2,gres/nic");
        assert_eq!(devices(""), "");
    }

    #[test]
    fn the_last_pending_task_is_shown_as_a_list_of_tasks() {
        let pending = Job {
            id: 12,
            array_job_id: Some(12),
            array_task_id: Some(3),
            state: "PENDING".into(),
            ..Job::default()
        };
        let show = Show::new(TimeZone::UTC, 0);
        let shown = |job: Job| job_id(&as_pending_tasks(job), &show);
        assert_eq!(shown(pending.clone()), "12_[3]");
        assert_eq!(shown(Job { id: 14, ..pending.clone() }), "12_3");
        assert_eq!(shown(Job { restarts: 1, ..pending.clone() }), "12_3");
        assert_eq!(shown(Job { state: "RUNNING".into(), ..pending.clone() }), "12_3");
        let each = one_per_task(as_pending_tasks(pending));
        assert_eq!(job_id(&each[0], &show), "12_3");
    }

    #[test]
    fn jobs_are_meant() {
        let task = Job { id: 13, array_job_id: Some(12), array_task_id: Some(3), ..Job::default() };
        let waiting = Job { id: 12, array_job_id: Some(12), array_tasks: "4-7%2".into(), ..Job::default() };
        let part = Job { id: 21, het_job_id: Some(20), het_job_offset: Some(1), ..Job::default() };
        let alone = Job { id: 5, ..Job::default() };
        for (job, meant, others) in [
            (&task, "12 12_3 12_[1-3] 12_* 13", "12_4 13_3 12+3 3"),
            (&waiting, "12 12_4 12_[1-5]", "12_3 12_[1-3] 12_8 4"),
            (&part, "20 20+1 21", "20+0 20_1 21+1"),
            (&alone, "5", "5_0 5+0 6"),
        ] {
            let is = |text: &str| is_meant(job, &text.parse().expect("a job"));
            assert!(meant.split(' ').all(is), "{}: {meant}", job.id);
            assert!(!others.split(' ').any(is), "{}: {others}", job.id);
        }
    }
}
