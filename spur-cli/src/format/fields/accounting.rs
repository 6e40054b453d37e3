//! Fields of `sacct` for jobs and steps in accounting.

use spur_core::text::memory::MemoryMb;
use spur_core::text::tres::{Tres, TresKind};
use spur_proto::v1::{AccountingRow, Spread, Usage};

use super::job::cut;
use crate::format::Show;
use crate::format::report::Column;
use crate::format::value::{exit, in_unit, long_limit, memory, or, time};

/// A field of accounting, whose name is also its header.
pub type AccountingField = Column<AccountingRow>;

const fn field(
    name: &'static str,
    width: isize,
    text: fn(&AccountingRow, &Show) -> String,
) -> AccountingField {
    Column { name, header: name, width, text }
}

fn unknown(_: &AccountingRow, _: &Show) -> String {
    String::new()
}

/// All fields. A prefix of a name selects the first match in this order. Newer names are beside the older
/// ones of the same field.
pub const FIELDS: &[AccountingField] = &[
    field("Account", 10, |r, _| r.account.clone()),
    field("AdminComment", 19, |r, _| of_job(r, r.admin_comment.clone())),
    field("AllocCPUS", 10, |r, _| cpus(r).to_string()),
    field("AllocNodes", 10, |r, _| if r.alloc_cpus > 0 { r.nodes } else { 0 }.to_string()),
    field("AllocTRES", 10, |r, show| tres(r, &r.alloc_tres, show)),
    field("AssocID", 7, |r, _| of_job(r, "0".to_owned())),
    field("AveCPU", 10, |r, show| average(r, CPU, show)),
    field("AveCPUFreq", 10, |r, _| of_step(r, "0")),
    field("AveDiskRead", 14, |r, show| average(r, READ, show)),
    field("AveDiskWrite", 14, |r, show| average(r, WRITTEN, show)),
    field("AvePages", 10, |r, show| average(r, PAGES, show)),
    field("AveRSS", 10, |r, show| average(r, MEMORY, show)),
    field("AveVMSize", 10, |r, show| average(r, VIRTUAL_MEMORY, show)),
    field("BlockID", 10, unknown),
    field("Cluster", 10, |_, show| show.cluster.clone()),
    field("Comment", 14, |r, _| of_job(r, r.comment.clone())),
    field("Constraints", 11, |r, _| of_job(r, r.constraints.clone())),
    field("ConsumedEnergy", 14, |r, _| of_step(r, "0")),
    field("ConsumedEnergyRaw", 17, |r, _| of_step(r, "0")),
    field("Container", 20, unknown),
    field("CPUTime", 10, |r, show| long_limit(Some(cpu_seconds(r, show)))),
    field("CPUTimeRAW", 10, |r, show| cpu_seconds(r, show).to_string()),
    field("DBIndex", 10, |r, _| r.job_id.to_string()),
    field("DerivedExitCode", 15, |r, _| of_job(r, exit(r.derived_exit_code, r.derived_exit_signal))),
    field("Elapsed", 10, |r, show| long_limit(Some(elapsed(r, show)))),
    field("ElapsedRaw", 10, |r, show| elapsed(r, show).to_string()),
    field("Eligible", 19, |r, show| of_job(r, time(r.eligible_time, "Unknown", show))),
    field("End", 19, |r, show| time(r.end_time, "Unknown", show)),
    field("ExitCode", 8, |r, _| exit(r.exit_code, r.exit_signal)),
    field("Extra", 15, unknown),
    field("FailedNode", 15, unknown),
    field("Flags", 19, unknown),
    field("GID", 6, |r, _| of_job(r, r.gid.to_string())),
    field("Group", 9, |r, _| of_job(r, r.group.clone())),
    field("JobID", -12, |r, show| match (r.array_job_id, r.array_task_id) {
        (Some(array), Some(task)) => with_step(r, format!("{array}_{task}")),
        (Some(array), None) if !r.array_tasks.is_empty() => {
            format!("{array}_[{}]", cut(&r.array_tasks, show))
        }
        _ => match (r.het_job_id, r.het_job_offset) {
            (Some(leader), Some(offset)) => with_step(r, format!("{leader}+{offset}")),
            _ => with_step(r, r.job_id.to_string()),
        },
    }),
    field("JobIDRaw", -12, |r, _| with_step(r, r.job_id.to_string())),
    field("JobName", 10, |r, _| r.name.clone()),
    field("Layout", 9, |r, _| r.layout.clone()),
    field("Licenses", 20, |r, _| of_job(r, r.licenses.clone())),
    field("MaxDiskRead", 12, |r, show| max(r, READ, show)),
    field("MaxDiskReadNode", 15, |r, _| max_node(r, READ)),
    field("MaxDiskReadTask", 15, |r, _| max_task(r, READ)),
    field("MaxDiskWrite", 12, |r, show| max(r, WRITTEN, show)),
    field("MaxDiskWriteNode", 16, |r, _| max_node(r, WRITTEN)),
    field("MaxDiskWriteTask", 16, |r, _| max_task(r, WRITTEN)),
    field("MaxPages", 8, |r, show| max(r, PAGES, show)),
    field("MaxPagesNode", 12, |r, _| max_node(r, PAGES)),
    field("MaxPagesTask", 14, |r, _| max_task(r, PAGES)),
    field("MaxRSS", 10, |r, show| max(r, MEMORY, show)),
    field("MaxRSSNode", 10, |r, _| max_node(r, MEMORY)),
    field("MaxRSSTask", 10, |r, _| max_task(r, MEMORY)),
    field("MaxVMSize", 10, |r, show| max(r, VIRTUAL_MEMORY, show)),
    field("MaxVMSizeNode", 14, |r, _| max_node(r, VIRTUAL_MEMORY)),
    field("MaxVMSizeTask", 14, |r, _| max_task(r, VIRTUAL_MEMORY)),
    field("McsLabel", 12, unknown),
    field("MinCPU", 10, |r, show| min(r, CPU, show)),
    field("MinCPUNode", 10, |r, _| min_node(r, CPU)),
    field("MinCPUTask", 10, |r, _| min_task(r, CPU)),
    field("NCPUS", 10, |r, _| cpus(r).to_string()),
    field("NNodes", 8, |r, _| r.nodes.to_string()),
    field("NodeList", 15, |r, _| or(&r.nodelist, "None assigned")),
    field("NTasks", 8, |r, _| if r.step_id.is_empty() { String::new() } else { r.tasks.to_string() }),
    field("Partition", 10, |r, _| of_job(r, r.partition.clone())),
    field("Planned", 10, |r, show| of_job(r, long_limit(Some(planned(r, show))))),
    field("PlannedCPU", 10, |r, show| of_job(r, long_limit(Some(planned(r, show) * u64::from(r.req_cpus))))),
    field("PlannedCPURAW", 13, |r, show| of_job(r, (planned(r, show) * u64::from(r.req_cpus)).to_string())),
    field("Priority", 10, |r, _| of_job(r, r.priority.to_string())),
    field("QOS", 10, |r, _| of_job(r, r.qos.clone())),
    field("QOSRAW", 6, |r, _| of_job(r, "0".to_owned())),
    field("QOSREQ", 10, |r, _| of_job(r, r.qos.clone())),
    field("Reason", 22, |r, _| of_job(r, or(&r.reason, "None"))),
    field("ReqCPUFreq", 10, of_steps_unknown),
    field("ReqCPUFreqGov", 13, of_steps_unknown),
    field("ReqCPUFreqMax", 13, of_steps_unknown),
    field("ReqCPUFreqMin", 13, of_steps_unknown),
    field("ReqCPUS", 8, |r, _| r.req_cpus.to_string()),
    field("ReqMem", 10, |r, show| of_job(r, memory(requested_memory(r), show))),
    field("ReqNodes", 8, |r, _| r.nodes.to_string()),
    field("ReqReservation", 20, |r, _| of_job(r, r.reservation.clone())),
    field("ReqTRES", 10, |r, show| of_job(r, tres(r, &r.req_tres, show))),
    field("Reservation", 20, |r, _| of_job(r, r.reservation.clone())),
    field("ReservationId", 15, unknown),
    field("Reserved", 10, |r, show| of_job(r, long_limit(Some(planned(r, show))))),
    field("Restarts", 8, |r, _| of_job(r, r.restarts.to_string())),
    field("ResvCPU", 10, |r, show| of_job(r, long_limit(Some(planned(r, show) * u64::from(r.req_cpus))))),
    field("ResvCPURAW", 10, |r, show| of_job(r, (planned(r, show) * u64::from(r.req_cpus)).to_string())),
    field("SegmentSize", 11, unknown),
    field("Start", 19, |r, show| {
        time(r.start_time, if r.end_time.is_some() { "None" } else { "Unknown" }, show)
    }),
    field("State", 10, state),
    field("StdErr", 20, |r, _| of_job(r, r.stderr.clone())),
    field("StdIn", 20, |r, _| of_job(r, r.stdin.clone())),
    field("StdOut", 20, |r, _| of_job(r, r.stdout.clone())),
    field("Submit", 19, |r, show| time(Some(r.submit_time), "Unknown", show)),
    field("SubmitLine", 20, |r, _| r.submit_line.clone()),
    field("Suspended", 10, |r, _| long_limit(Some(r.suspended_secs))),
    field("SystemComment", 20, |r, _| of_job(r, r.system_comment.clone())),
    field("SystemCPU", 10, |r, _| cpu_time(r.system_cpu_us)),
    field("Timelimit", 10, |r, _| of_job(r, long_limit(r.time_limit))),
    field("TimelimitRaw", 10, |r, _| {
        of_job(r, r.time_limit.map_or_else(|| "UNLIMITED".to_owned(), |s| s.div_ceil(60).to_string()))
    }),
    field("TotalCPU", 10, |r, _| cpu_time(cpu_us(r))),
    field("TRESUsageInAve", 14, |r, show| {
        usage(r, INPUT, show, |spread, tasks| spread.total / u64::from(tasks))
    }),
    field("TRESUsageInMax", 14, |r, show| usage(r, INPUT, show, |spread, _| spread.max)),
    field("TRESUsageInMaxNode", 18, |r, _| places(r, INPUT, |spread| spread.max_node.clone())),
    field("TRESUsageInMaxTask", 18, |r, _| places(r, INPUT, |spread| spread.max_task.to_string())),
    field("TRESUsageInMin", 14, |r, show| usage(r, INPUT, show, |spread, _| spread.min)),
    field("TRESUsageInMinNode", 18, |r, _| places(r, INPUT, |spread| spread.min_node.clone())),
    field("TRESUsageInMinTask", 18, |r, _| places(r, INPUT, |spread| spread.min_task.to_string())),
    field("TRESUsageInTot", 14, |r, show| usage(r, INPUT, show, |spread, _| spread.total)),
    field("TRESUsageOutAve", 15, |r, show| {
        usage(r, OUTPUT, show, |spread, tasks| spread.total / u64::from(tasks))
    }),
    field("TRESUsageOutMax", 15, |r, show| usage(r, OUTPUT, show, |spread, _| spread.max)),
    field("TRESUsageOutMaxNode", 19, |r, _| places(r, OUTPUT, |spread| spread.max_node.clone())),
    field("TRESUsageOutMaxTask", 19, |r, _| places(r, OUTPUT, |spread| spread.max_task.to_string())),
    field("TRESUsageOutMin", 15, |r, show| usage(r, OUTPUT, show, |spread, _| spread.min)),
    field("TRESUsageOutMinNode", 19, |r, _| places(r, OUTPUT, |spread| spread.min_node.clone())),
    field("TRESUsageOutMinTask", 19, |r, _| places(r, OUTPUT, |spread| spread.min_task.to_string())),
    field("TRESUsageOutTot", 15, |r, show| usage(r, OUTPUT, show, |spread, _| spread.total)),
    field("UID", 6, |r, _| of_job(r, r.uid.to_string())),
    field("User", 9, |r, _| of_job(r, r.user.clone())),
    field("UserCPU", 10, |r, _| cpu_time(r.user_cpu_us)),
    field("WCKey", 10, |r, _| of_job(r, r.wckey.clone())),
    field("WCKeyID", 10, |r, _| of_job(r, "0".to_owned())),
    field("WorkDir", 20, |r, _| of_job(r, r.work_dir.clone())),
];

/// Microseconds in a second.
const MICROS: u64 = 1_000_000;
/// Bytes in the unit that Slurm calls a megabyte.
const MEGABYTE: u64 = 1 << 20;

fn cpu_us(row: &AccountingRow) -> u64 {
    row.user_cpu_us + row.system_cpu_us
}

/// Selects a quantity from the usage of a step.
type Pick = fn(&Usage) -> Option<&Spread>;
/// Formats an amount of a quantity.
type Text = fn(u64, &Show) -> String;

/// A quantity of a step's usage and the format of its amounts.
#[derive(Clone, Copy)]
struct Quantity {
    pick: Pick,
    text: Text,
}

const CPU: Quantity = Quantity { pick: |used| used.cpu.as_ref(), text: cpu };
const READ: Quantity = Quantity { pick: |used| used.read.as_ref(), text: disk };
const WRITTEN: Quantity = Quantity { pick: |used| used.written.as_ref(), text: disk };
const PAGES: Quantity = Quantity { pick: |used| used.pages.as_ref(), text: count };
const MEMORY: Quantity = Quantity { pick: |used| used.memory.as_ref(), text: size };
const VIRTUAL_MEMORY: Quantity = Quantity { pick: |used| used.virtual_memory.as_ref(), text: size };

/// Trackable resources of the tasks' input, with their quantities, and of their output.
const INPUT: &[(&str, Pick, Text)] = &[
    ("cpu", CPU.pick, cpu),
    ("energy", |_| None, count),
    ("fs/disk", READ.pick, count),
    ("mem", MEMORY.pick, size),
    ("pages", PAGES.pick, count),
    ("vmem", VIRTUAL_MEMORY.pick, size),
];
const OUTPUT: &[(&str, Pick, Text)] = &[("energy", |_| None, count), ("fs/disk", WRITTEN.pick, count)];

/// Returns the distribution of a quantity over the tasks of a step; `None` for a job, or if it was not
/// measured.
fn spread(row: &AccountingRow, quantity: Quantity) -> Option<&Spread> {
    row.usage.as_ref().filter(|_| !row.step_id.is_empty()).and_then(quantity.pick)
}

fn average(row: &AccountingRow, quantity: Quantity, show: &Show) -> String {
    let tasks = row.usage.as_ref().map_or(1, |used| u64::from(used.tasks.max(1)));
    spread(row, quantity).map(|spread| (quantity.text)(spread.total / tasks, show)).unwrap_or_default()
}

/// Returns the CPUs of a row: allocated, or requested if none were ever allocated, as with Slurm.
fn cpus(row: &AccountingRow) -> u32 {
    if row.alloc_cpus > 0 { row.alloc_cpus } else { row.req_cpus }
}

fn max(row: &AccountingRow, quantity: Quantity, show: &Show) -> String {
    spread(row, quantity).map(|spread| (quantity.text)(spread.max, show)).unwrap_or_default()
}

fn max_node(row: &AccountingRow, quantity: Quantity) -> String {
    spread(row, quantity).map(|spread| spread.max_node.clone()).unwrap_or_default()
}

fn max_task(row: &AccountingRow, quantity: Quantity) -> String {
    spread(row, quantity).map(|spread| spread.max_task.to_string()).unwrap_or_default()
}

fn min(row: &AccountingRow, quantity: Quantity, show: &Show) -> String {
    spread(row, quantity).map(|spread| (quantity.text)(spread.min, show)).unwrap_or_default()
}

fn min_node(row: &AccountingRow, quantity: Quantity) -> String {
    spread(row, quantity).map(|spread| spread.min_node.clone()).unwrap_or_default()
}

fn min_task(row: &AccountingRow, quantity: Quantity) -> String {
    spread(row, quantity).map(|spread| spread.min_task.to_string()).unwrap_or_default()
}

/// Lists the usage of tasks as trackable resources in Slurm's format.
fn usage(
    row: &AccountingRow,
    of: &[(&str, Pick, Text)],
    show: &Show,
    amount: impl Fn(&Spread, u32) -> u64,
) -> String {
    let Some(used) = row.usage.as_ref().filter(|_| !row.step_id.is_empty()) else { return String::new() };
    let none = Spread::default();
    let item = |(name, pick, text): &(&str, Pick, Text)| {
        format!("{name}={}", text(amount(pick(used).unwrap_or(&none), used.tasks.max(1)), show))
    };
    of.iter().map(item).collect::<Vec<_>>().join(",")
}

/// Lists the places of the tasks with the largest or smallest usage of each resource.
fn places(row: &AccountingRow, of: &[(&str, Pick, Text)], place: impl Fn(&Spread) -> String) -> String {
    let Some(used) = row.usage.as_ref().filter(|_| !row.step_id.is_empty()) else { return String::new() };
    let item = |(name, pick, _): &(&str, Pick, Text)| Some(format!("{name}={}", place(pick(used)?)));
    of.iter().filter_map(item).collect::<Vec<_>>().join(",")
}

fn of_steps_unknown(row: &AccountingRow, _: &Show) -> String {
    if row.step_id.is_empty() { "Unknown".to_owned() } else { "0".to_owned() }
}

/// Formats milliseconds of CPU time in seconds, as Slurm does here.
fn cpu(ms: u64, _: &Show) -> String {
    long_limit(Some(ms / 1000))
}

fn count(number: u64, _: &Show) -> String {
    number.to_string()
}

/// Formats bytes in the unit of `--units`, else in the largest unit that gives a whole number, as Slurm
/// does.
fn size(bytes: u64, show: &Show) -> String {
    if let Some(unit) = show.unit.filter(|_| bytes > 0) {
        return in_unit(bytes, unit);
    }
    let (mut amount, mut unit) = (bytes, "");
    for larger in ["K", "M", "G", "T", "P"] {
        if !show.convert || amount == 0 || !amount.is_multiple_of(1024) {
            break;
        }
        (amount, unit) = (amount / 1024, larger);
    }
    format!("{amount}{unit}")
}

/// Formats bytes of a disk as Slurm does: megabytes with two decimals, or a whole number of a larger unit.
fn disk(bytes: u64, show: &Show) -> String {
    match show.unit {
        _ if !show.convert || show.disks_in_bytes || bytes == 0 => bytes.to_string(),
        None if bytes.is_multiple_of(MEGABYTE) => memory(bytes / MEGABYTE, show),
        unit => in_unit(bytes, unit.unwrap_or('M')),
    }
}

/// Formats CPU time as Slurm does: `00:00.123`, `01:02:03`, `1-00:00:00`.
fn cpu_time(us: u64) -> String {
    let seconds = us / MICROS;
    match seconds {
        0..3600 if us == 0 => "00:00:00".to_owned(),
        0..3600 => format!("{:02}:{:02}.{:03}", seconds / 60, seconds % 60, us % MICROS / 1000),
        _ => long_limit(Some(seconds)),
    }
}

/// Returns `text` for a job and an empty text for a step.
fn of_job(row: &AccountingRow, text: String) -> String {
    if row.step_id.is_empty() { text } else { String::new() }
}

fn of_step(row: &AccountingRow, text: &str) -> String {
    if row.step_id.is_empty() { String::new() } else { text.to_owned() }
}

/// Formats trackable resources in the order of their names, as Slurm's accounting does. Steps have no
/// billing.
fn tres(row: &AccountingRow, text: &str, show: &Show) -> String {
    let in_unit = |item: &str| match item.strip_prefix("mem=").map(str::parse::<MemoryMb>) {
        Some(Ok(amount)) if show.unit.is_some() => format!("mem={}", memory(amount.0, show)),
        _ => item.to_owned(),
    };
    let mut items: Vec<&str> = text.split(',').filter(|item| !item.is_empty()).collect();
    items.retain(|item| row.step_id.is_empty() || !item.starts_with("billing="));
    items.sort_unstable_by_key(|item| item.split('=').next());
    items.into_iter().map(in_unit).collect::<Vec<_>>().join(",")
}

/// Returns the total requested memory in MiB, or the memory per node or CPU if the total is unknown.
fn requested_memory(row: &AccountingRow) -> u64 {
    let tres = row.req_tres.parse::<Tres>().ok();
    tres.map(|tres| tres.get(&TresKind::Mem)).filter(|memory| *memory > 0).unwrap_or(row.req_memory_mb)
}

fn with_step(row: &AccountingRow, job: String) -> String {
    if row.step_id.is_empty() { job } else { format!("{job}.{}", row.step_id) }
}

/// Returns the state, with the user who cancelled.
fn state(row: &AccountingRow, _: &Show) -> String {
    if row.state == "CANCELLED" && !row.cancelled_by.is_empty() {
        return format!("CANCELLED by {}", row.cancelled_by);
    }
    row.state.clone()
}

/// Returns the seconds that the row ran, without suspensions.
pub fn elapsed(row: &AccountingRow, show: &Show) -> u64 {
    let run = row.start_time.map(|start| row.end_time.unwrap_or(show.now) - start);
    let run = run.and_then(|seconds| u64::try_from(seconds).ok()).unwrap_or(0);
    run.saturating_sub(row.suspended_secs)
}

fn cpu_seconds(row: &AccountingRow, show: &Show) -> u64 {
    elapsed(row, show) * u64::from(row.alloc_cpus)
}

/// Returns the seconds from eligibility to the start, or to now.
pub fn planned(row: &AccountingRow, show: &Show) -> u64 {
    let until = row.start_time.or(row.end_time).unwrap_or(show.now);
    row.eligible_time.map_or(0, |eligible| u64::try_from(until - eligible).unwrap_or(0))
}
