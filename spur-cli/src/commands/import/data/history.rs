//! Accounting: rows of `sacct -P` with named columns become rows of accounting.
//!
//! The n-th line of a job number is the job's n-th run, and the steps behind it are those of that run.

use std::collections::BTreeMap;
use std::path::Path;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use spur_core::text::memory::MemoryMb;
use spur_proto::v1::{AccountingRow, Spread, Usage};

use super::table::{Row, Table};

/// The columns that the file must have.
const REQUIRED: [&str; 14] = [
    "JobID",
    "JobIDRaw",
    "JobName",
    "User",
    "UID",
    "Account",
    "Partition",
    "State",
    "ExitCode",
    "Submit",
    "Start",
    "End",
    "AllocCPUS",
    "AllocTRES",
];

/// Other columns whose values are loaded.
const KEPT: [&str; 40] = [
    "AdminComment",
    "AllocNodes",
    "Comment",
    "Constraints",
    "DerivedExitCode",
    "Eligible",
    "GID",
    "Group",
    "Layout",
    "Licenses",
    "NNodes",
    "NodeList",
    "NTasks",
    "Priority",
    "QOS",
    "Reason",
    "ReqCPUS",
    "ReqMem",
    "ReqNodes",
    "ReqTRES",
    "Reservation",
    "SubmitLine",
    "Suspended",
    "SystemComment",
    "SystemCPU",
    "TimelimitRaw",
    "UserCPU",
    "WCKey",
    "WorkDir",
    "StdIn",
    "StdOut",
    "StdErr",
    "TRESUsageInMax",
    "TRESUsageInMaxNode",
    "TRESUsageInMaxTask",
    "TRESUsageInMin",
    "TRESUsageInMinNode",
    "TRESUsageInMinTask",
    "TRESUsageInTot",
    "TRESUsageOutMax",
];

/// Columns that `sacct` computes from kept ones.
const COMPUTED: [&str; 48] = [
    "AveCPU",
    "AveDiskRead",
    "AveDiskWrite",
    "AvePages",
    "AveRSS",
    "AveVMSize",
    "Cluster",
    "CPUTime",
    "CPUTimeRAW",
    "Elapsed",
    "ElapsedRaw",
    "MaxDiskRead",
    "MaxDiskReadNode",
    "MaxDiskReadTask",
    "MaxDiskWrite",
    "MaxDiskWriteNode",
    "MaxDiskWriteTask",
    "MaxPages",
    "MaxPagesNode",
    "MaxPagesTask",
    "MaxRSS",
    "MaxRSSNode",
    "MaxRSSTask",
    "MaxVMSize",
    "MaxVMSizeNode",
    "MaxVMSizeTask",
    "MinCPU",
    "MinCPUNode",
    "MinCPUTask",
    "NCPUS",
    "Planned",
    "PlannedCPU",
    "PlannedCPURAW",
    "QOSREQ",
    "ReqReservation",
    "Reserved",
    "Restarts",
    "ResvCPU",
    "ResvCPURAW",
    "Timelimit",
    "TotalCPU",
    "TRESUsageInAve",
    "TRESUsageOutAve",
    "TRESUsageOutMaxNode",
    "TRESUsageOutMaxTask",
    "TRESUsageOutMin",
    "TRESUsageOutMinNode",
    "TRESUsageOutMinTask",
];

/// The command that writes the file.
const COMMAND: &str =
    "sacct -a -D -P -S 2000-01-01 -o JobID,JobIDRaw,… (docs/guide/migrate.md has all columns)";

/// A run with its steps.
pub(super) struct Run {
    /// Number of the line of the run in the file.
    pub(super) line: usize,
    /// The row of the run, followed by those of its steps.
    pub(super) rows: Vec<AccountingRow>,
}

/// The runs of a file, and sentences about parts of it without a counterpart.
pub(super) struct History {
    pub(super) runs: Vec<Run>,
    pub(super) notes: Vec<String>,
    /// The largest job number in the file, of jobs that have not ended included.
    pub(super) last_job: u32,
}

/// Reads the file. Times that are not numbers are in `zone`.
///
/// # Errors
/// A file that cannot be read or lacks one of the required columns.
pub(super) fn read(path: &Path, zone: &TimeZone) -> anyhow::Result<History> {
    let table = Table::read(path, &REQUIRED, COMMAND)?;
    let mut read = History { runs: Vec::new(), notes: table.notes.clone(), last_job: 0 };
    let is_known = |name: &str| {
        let mut known = REQUIRED.iter().chain(&KEPT).chain(&COMPUTED);
        known.any(|known| known.eq_ignore_ascii_case(name)) || name.eq_ignore_ascii_case("TRESUsageOutTot")
    };
    let unknown = table.columns().iter().filter(|name| !is_known(name));
    read.notes.extend(unknown.map(|name| format!("{}: column {name} is not kept", table.place(1))));
    // Lines of each job number so far, and the position of its last run; `None` if that run is left out.
    let mut jobs: BTreeMap<u32, (u32, Option<usize>)> = BTreeMap::new();
    for row in &table.rows {
        let at = table.place(row.line);
        let reader = Reader { table: &table, row, zone };
        let raw = reader.text("JobIDRaw");
        let (number, step) = raw.split_once('.').map_or((raw, ""), |(job, step)| (job, step));
        let Ok(job) = number.parse::<u32>() else {
            read.notes.push(format!("{at}: left out: `{raw}` is not the number of a job"));
            continue;
        };
        read.last_job = read.last_job.max(job);
        let made = if step.is_empty() { reader.run(job) } else { reader.step(job, step) };
        match (made, step.is_empty()) {
            (Ok(made), true) => {
                let (lines, last) = jobs.entry(job).or_default();
                *last = Some(read.runs.len());
                read.runs
                    .push(Run { line: row.line, rows: vec![AccountingRow { restarts: *lines, ..made }] });
                *lines += 1;
            }
            (Err(why), true) => {
                let (lines, last) = jobs.entry(job).or_default();
                (*lines, *last) = (*lines + 1, None);
                read.notes.push(format!("{at}: job {raw} is left out: {why}"));
            }
            (made, false) => match (made, jobs.get(&job).and_then(|(_, last)| *last)) {
                (Ok(made), Some(run)) => {
                    let run = &mut read.runs[run];
                    let restarts = run.rows[0].restarts;
                    run.rows.push(AccountingRow { restarts, ..made });
                }
                (Err(why), Some(_)) => read.notes.push(format!("{at}: step {raw} is left out: {why}")),
                (_, None) => read.notes.push(format!("{at}: step {raw} is left out with its job")),
            },
        }
    }
    Ok(read)
}

/// Values of one row.
struct Reader<'t> {
    table: &'t Table,
    row: &'t Row,
    zone: &'t TimeZone,
}

/// Words for a value that is not known.
const NOTHING: [&str; 6] = ["", "Unknown", "None", "None assigned", "INVALID", "(null)"];

impl Reader<'_> {
    fn text(&self, column: &str) -> &str {
        self.table.value(self.row, column)
    }

    /// Returns a text; empty for the words that mean an unknown value.
    fn known(&self, column: &str) -> String {
        Some(self.text(column)).filter(|text| !NOTHING.contains(text)).unwrap_or_default().to_owned()
    }

    /// Parses a value; `None` if it is not known.
    fn parsed<T>(&self, column: &str, parse: impl Fn(&str) -> Option<T>) -> Result<Option<T>, String> {
        let text = self.text(column);
        if NOTHING.contains(&text) {
            return Ok(None);
        }
        parse(text).map(Some).ok_or_else(|| format!("{column}={text} cannot be read"))
    }

    fn number(&self, column: &str) -> Result<u32, String> {
        Ok(self.parsed(column, |text| text.parse().ok())?.unwrap_or_default())
    }

    fn time(&self, column: &str) -> Result<Option<i64>, String> {
        self.parsed(column, |text| match text.parse::<i64>() {
            Ok(seconds) => Some(seconds),
            Err(_) => {
                let local: DateTime = text.parse().ok()?;
                Some(local.to_zoned(self.zone.clone()).ok()?.timestamp().as_second())
            }
        })
    }

    /// Parses `code:signal`.
    fn exit(&self, column: &str) -> Result<(u32, u32), String> {
        let parse = |text: &str| {
            let (code, signal) = text.split_once(':')?;
            Some((code.parse().ok()?, signal.parse().ok()?))
        };
        Ok(self.parsed(column, parse)?.unwrap_or_default())
    }

    /// Returns what runs and steps have in common.
    fn common(&self, job: u32) -> Result<AccountingRow, String> {
        let state = self.text("State");
        let (state, by) = state.split_once(" by ").unwrap_or((state, ""));
        let ended = self.time("End")?;
        if ended.is_none() {
            return Err(format!("it is {state}; import it once it has ended"));
        }
        let (exit_code, exit_signal) = self.exit("ExitCode")?;
        let alloc_cpus = self.number("AllocCPUS")?;
        let allocated = self.number("AllocNodes")?;
        let nodes = [allocated, self.number("ReqNodes")?, self.number("NNodes")?];
        let started = self.time("Start")?;
        Ok(AccountingRow {
            job_id: job,
            name: self.text("JobName").to_owned(),
            uid: self.number("UID")?,
            gid: self.number("GID")?,
            user: self.text("User").to_owned(),
            group: self.text("Group").to_owned(),
            account: self.text("Account").to_owned(),
            state: state.to_owned(),
            cancelled_by: by.to_owned(),
            exit_code,
            exit_signal,
            start_time: started,
            end_time: ended,
            // Of a job that was cancelled while it waited, Slurm prints the requested CPUs, and the end as
            // start.
            alloc_cpus: if started.is_some() && (allocated > 0 || !self.table.has("AllocNodes")) {
                alloc_cpus
            } else {
                0
            },
            nodes: nodes.into_iter().find(|count| *count > 0).unwrap_or_default(),
            nodelist: self.known("NodeList"),
            tasks: self.number("NTasks")?,
            alloc_tres: self.text("AllocTRES").to_owned(),
            suspended_secs: self.parsed("Suspended", seconds)?.unwrap_or_default(),
            submit_line: self.text("SubmitLine").to_owned(),
            ..AccountingRow::default()
        })
    }

    /// Returns the row of a run.
    fn run(&self, job: u32) -> Result<AccountingRow, String> {
        let common = self.common(job)?;
        let (derived_exit_code, derived_exit_signal) = self.exit("DerivedExitCode")?;
        let memory = self.text("ReqMem");
        let per_cpu = memory.ends_with(['c', 'C']);
        let number = memory.trim_end_matches(['c', 'C', 'n', 'N']);
        let memory = match number {
            "" | "0" => 0,
            text => text.parse::<MemoryMb>().map_err(|error| format!("ReqMem: {error}"))?.0,
        };
        let Place { array_job_id, array_task_id, array_tasks, het } = Place::of(self.text("JobID"));
        Ok(AccountingRow {
            qos: self.text("QOS").to_owned(),
            partition: self.text("Partition").to_owned(),
            derived_exit_code,
            derived_exit_signal,
            submit_time: self.time("Submit")?.ok_or("it has no Submit time")?,
            eligible_time: self.time("Eligible")?,
            req_cpus: self.number("ReqCPUS")?.max(if self.table.has("ReqCPUS") {
                0
            } else {
                common.alloc_cpus
            }),
            time_limit: self
                .parsed("TimelimitRaw", |text| match text {
                    "UNLIMITED" | "Partition_Limit" => Some(None),
                    minutes => minutes.parse::<u64>().ok().map(|minutes| Some(minutes * 60)),
                })?
                .flatten(),
            req_tres: self.text("ReqTRES").to_owned(),
            work_dir: self.text("WorkDir").to_owned(),
            comment: self.text("Comment").to_owned(),
            admin_comment: self.text("AdminComment").to_owned(),
            system_comment: self.text("SystemComment").to_owned(),
            priority: self.number("Priority")?,
            array_job_id,
            array_task_id,
            array_tasks,
            het_job_id: het.map(|(leader, _)| leader),
            het_job_offset: het.map(|(_, offset)| offset),
            req_memory_mb: memory,
            req_memory_per_cpu: per_cpu,
            reason: self.known("Reason"),
            reservation: self.text("Reservation").to_owned(),
            licenses: self.text("Licenses").to_owned(),
            constraints: self.text("Constraints").to_owned(),
            wckey: self.text("WCKey").to_owned(),
            stdin: self.text("StdIn").to_owned(),
            stdout: self.text("StdOut").to_owned(),
            stderr: self.text("StdErr").to_owned(),
            ..common
        })
    }

    /// Returns the row of a step.
    fn step(&self, job: u32, step: &str) -> Result<AccountingRow, String> {
        if !["batch", "extern", "interactive"].contains(&step) && step.parse::<u32>().is_err() {
            return Err(format!("`{step}` is not the number of a step"));
        }
        let common = self.common(job)?;
        let (user_us, system_us) = (self.microseconds("UserCPU")?, self.microseconds("SystemCPU")?);
        let usage = self.usage(common.tasks, (user_us, system_us))?;
        let most = |spread: &Option<Spread>| spread.as_ref().map_or(0, |spread| spread.max);
        Ok(AccountingRow {
            step_id: step.to_owned(),
            user_cpu_us: user_us,
            system_cpu_us: system_us,
            max_rss_bytes: usage.as_ref().map_or(0, |usage| most(&usage.memory)),
            max_vmsize_bytes: usage.as_ref().map_or(0, |usage| most(&usage.virtual_memory)),
            layout: self.text("Layout").to_owned(),
            usage,
            ..common
        })
    }

    fn microseconds(&self, column: &str) -> Result<u64, String> {
        Ok(self.parsed(column, microseconds)?.unwrap_or_default())
    }

    /// Returns the usage of a step's tasks; `None` if it was not measured.
    fn usage(&self, tasks: u32, (user_us, system_us): (u64, u64)) -> Result<Option<Usage>, String> {
        // Of a step that was too short to be measured, Slurm prints `energy=0` as total, and no maximum.
        if self.text("TRESUsageInMax").is_empty() {
            return Ok(None);
        }
        let spread =
            |way: &str, kind: &str, unit: fn(&str) -> Option<u64>| -> Result<Option<Spread>, String> {
                let item = |what: &str| {
                    let items = self.text(&format!("TRESUsage{way}{what}")).split(',');
                    let found = items.filter_map(|item| item.split_once('=')).find(|(name, _)| *name == kind);
                    found.map_or("", |(_, value)| value)
                };
                let amount = |what: &str| match item(what) {
                    "" => Ok(0),
                    text => unit(text)
                        .ok_or_else(|| format!("TRESUsage{way}{what}: {kind}={text} cannot be read")),
                };
                Ok(Some(Spread {
                    total: amount("Tot")?,
                    max: amount("Max")?,
                    max_task: item("MaxTask").parse().unwrap_or_default(),
                    max_node: item("MaxNode").to_owned(),
                    min: amount("Min")?,
                    min_task: item("MinTask").parse().unwrap_or_default(),
                    min_node: item("MinNode").to_owned(),
                }))
            };
        Ok(Some(Usage {
            tasks,
            user_us,
            system_us,
            cpu: spread("In", "cpu", |text| microseconds(text).map(|us| us / 1000))?,
            memory: spread("In", "mem", bytes)?,
            virtual_memory: spread("In", "vmem", bytes)?,
            pages: spread("In", "pages", bytes)?,
            read: spread("In", "fs/disk", bytes)?,
            written: spread("Out", "fs/disk", bytes)?,
        }))
    }
}

/// The place of a job in an array or a het job.
#[derive(Debug, Default, PartialEq, Eq)]
struct Place {
    array_job_id: Option<u32>,
    array_task_id: Option<u32>,
    /// The tasks that never started, as `sacct` prints them.
    array_tasks: String,
    /// The number of the het job, and the offset in it.
    het: Option<(u32, u32)>,
}

impl Place {
    /// Reads the number of a job as `sacct` prints it: `12`, `12_3`, `12_[4-7%2]`, `12+1`.
    fn of(text: &str) -> Self {
        if let Some((leader, offset)) = text.split_once('+') {
            return Self { het: leader.parse().ok().zip(offset.parse().ok()), ..Self::default() };
        }
        let Some((array, tasks)) = text.split_once('_') else { return Self::default() };
        let together = tasks.strip_prefix('[').and_then(|tasks| tasks.strip_suffix(']'));
        Self {
            array_job_id: array.parse().ok(),
            array_task_id: tasks.parse().ok(),
            array_tasks: together.unwrap_or_default().to_owned(),
            het: None,
        }
    }
}

/// Parses `[D-]HH:MM:SS` or `MM:SS`, with or without decimals.
fn microseconds(text: &str) -> Option<u64> {
    let (days, clock) =
        text.split_once('-').map_or((Some(0), text), |(days, clock)| (days.parse().ok(), clock));
    let (clock, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let parts: Vec<u64> = clock.split(':').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let seconds = match parts[..] {
        [hours, minutes, seconds] => hours * 3600 + minutes * 60 + seconds,
        [minutes, seconds] => minutes * 60 + seconds,
        _ => return None,
    };
    let fraction = format!("{fraction:0<6}").get(..6)?.parse::<u64>().ok()?;
    Some((days? * 86_400 + seconds) * 1_000_000 + fraction)
}

fn seconds(text: &str) -> Option<u64> {
    microseconds(text).map(|us| us / 1_000_000)
}

/// Parses a number of bytes or of other units with a suffix of 1024: `3072K`, `1.50M`, `12`.
fn bytes(text: &str) -> Option<u64> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let power = match &text[number.len()..] {
        "" => 0,
        unit => "KMGTP".find(unit).filter(|_| unit.len() == 1)? + 1,
    };
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let unit = 1_u64 << (10 * power);
    let digits = fraction.get(..fraction.len().min(9))?;
    let part = match digits {
        "" => 0,
        digits => digits.parse::<u64>().ok()? * unit / 10_u64.pow(u32::try_from(digits.len()).ok()?),
    };
    whole.parse::<u64>().ok()?.checked_mul(unit)?.checked_add(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_read() {
        for (text, wanted) in [("12", 12), ("3072K", 3 << 20), ("1.50M", 3 << 19), ("0", 0)] {
            assert_eq!(bytes(text), Some(wanted), "{text}");
        }
        assert_eq!((bytes("x"), bytes("3X"), bytes("")), (None, None, None));
        for (text, wanted) in [
            ("00:00.012", 12_000),
            ("01:02:03", 3_723_000_000),
            ("1-00:00:01", 86_401_000_000),
            ("00:00:00", 0),
        ] {
            assert_eq!(microseconds(text), Some(wanted), "{text}");
        }
        assert_eq!(microseconds("x"), None);
    }

    #[test]
    fn job_numbers_are_places() {
        for (text, wanted) in [
            ("12", Place::default()),
            ("12_3", Place { array_job_id: Some(12), array_task_id: Some(3), ..Place::default() }),
            (
                "12_[4-7%2]",
                Place { array_job_id: Some(12), array_tasks: "4-7%2".to_owned(), ..Place::default() },
            ),
            ("12+1", Place { het: Some((12, 1)), ..Place::default() }),
        ] {
            assert_eq!(Place::of(text), wanted, "{text}");
        }
    }
}
