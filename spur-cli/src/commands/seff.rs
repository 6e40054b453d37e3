//! The command `seff`: prints the share of its CPUs and memory that a job used.

use std::fmt::Write as _;
use std::io::Write;

use spur_core::text::jobid::JobRef;
use spur_proto::v1::{AccountingRow, ListAccountingRequest};

use super::query;
use crate::commands::called;
use crate::error::Failure;
use crate::format::Show;
use crate::format::fields::accounting::elapsed;
use crate::options::{CommandLine, Opt};
use crate::session::Session;

/// Exit code for an unknown job, as with Slurm's `seff`.
const NOT_FOUND: u8 = 2;

/// Values of the options.
#[derive(Default)]
pub struct Query {
    debug: bool,
}

type QueryOpt = Opt<Query>;

const OPTIONS: &[QueryOpt] = &[QueryOpt::flag("debug", Some('d'), "the figures themselves first", |q, _| {
    q.debug = true;
    Ok(())
})];

/// Command line of `seff`.
pub const LINE: CommandLine<Query> = CommandLine {
    name: "seff",
    synopsis: "[OPTIONS] JOB",
    about: "Shows how much of what a job held it used: of its CPUs and of its memory.",
    options: OPTIONS,
    mask: 1,
    env_prefixes: &[],
    permute: true,
};

/// Figures of one job.
struct Figures {
    cpu_seconds: u64,
    core_seconds: u64,
    /// Memory in bytes of the step that used most: all tasks, then the largest task, then the mean of tasks.
    memory: u64,
    largest: u64,
    mean: u64,
    held: u64,
}

impl Figures {
    fn of(job: &AccountingRow, steps: &[AccountingRow], show: &Show) -> Figures {
        let micros: u64 = steps.iter().map(|step| step.user_cpu_us + step.system_cpu_us).sum();
        let memory = |step: &AccountingRow| {
            let usage = step.usage.as_ref()?;
            let memory = usage.memory.as_ref()?;
            Some((memory.total, memory.max, memory.total / u64::from(usage.tasks.max(1))))
        };
        let (memory, largest, mean) = steps.iter().filter_map(memory).max().unwrap_or_default();
        Figures {
            cpu_seconds: (micros + 500_000) / 1_000_000,
            core_seconds: elapsed(job, show) * u64::from(job.alloc_cpus.max(1)),
            memory,
            largest,
            mean,
            held: held_memory(&job.alloc_tres),
        }
    }
}

/// Returns the text for a job and its steps; `None` without a job.
pub fn text(rows: &[AccountingRow], debug: bool, cluster: &str, show: &Show) -> Option<String> {
    let job = rows.iter().filter(|row| row.step_id.is_empty()).max_by_key(|row| row.restarts)?;
    let of_job = |row: &&AccountingRow| !row.step_id.is_empty() && row.restarts == job.restarts;
    let steps: Vec<AccountingRow> = rows.iter().filter(of_job).cloned().collect();
    let figures = Figures::of(job, &steps, show);
    let (cpus, nodes) = (job.alloc_cpus.max(1), job.nodes.max(1));
    let task = job.array_job_id.zip(job.array_task_id).map(|(array, task)| format!("{array}_{task}"));
    let mut text = String::new();
    let mut line = |line: String| {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    };
    if debug {
        line(format!(
            "Slurm data: JobID ArrayJobID User Group State Clustername Ncpus Nnodes Reqmem PerNode Cput Walltime Mem \
             ExitStatus\nSlurm data: {} {} {} {} {} {cluster} {cpus} {nodes} {} 1 {} {} {} {}\n",
            job.job_id,
            task.as_deref().unwrap_or_default(),
            job.user,
            job.group,
            job.state,
            job.req_memory_mb << 10,
            figures.cpu_seconds,
            elapsed(job, show),
            figures.memory >> 10,
            job.exit_code
        ));
    }
    line(format!("Job ID: {}", job.job_id));
    if let Some(task) = task {
        line(format!("Array Job ID: {task}"));
    }
    line(format!("Cluster: {cluster}\nUser/Group: {}/{}", job.user, job.group));
    match job.state.as_str() {
        "PENDING" | "RUNNING" => line(format!("State: {}", job.state)),
        state => line(format!("State: {state} (exit code {})", job.exit_code)),
    }
    match cpus {
        1 => line("Cores: 1".to_owned()),
        _ => line(format!("Nodes: {nodes}\nCores per node: {}", cpus / nodes)),
    }
    if job.state == "PENDING" {
        line("Efficiency not available for jobs in the PENDING state.".to_owned());
        return Some(text);
    }
    line(format!("CPU Utilized: {}", duration(figures.cpu_seconds)));
    let share = percent(figures.cpu_seconds, figures.core_seconds);
    line(format!("CPU Efficiency: {share:.2}% of {} core-walltime", duration(figures.core_seconds)));
    line(format!("Job Wall-clock time: {}", duration(elapsed(job, show))));
    line(format!("Memory Utilized: {}", size(figures.memory)));
    let share = percent(figures.memory, figures.held);
    let (held, each) = (size(figures.held), size(figures.held / u64::from(nodes)));
    line(format!("Memory Efficiency: {share:.2}% of {held} ({each}/node)"));
    if figures.largest > figures.mean {
        line(format!(
            "The task which had the largest memory consumption differs by {:.2}% from the average task max memory \
             consumption",
            percent(figures.largest, figures.mean)
        ));
    }
    if job.state == "RUNNING" {
        line(
            "WARNING: Efficiency statistics can only be obtained after the job has ended as seff tool is based on the \
             accounting database data."
                .to_owned(),
        );
    }
    Some(text)
}

fn percent(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 * 100.0 }
}

/// Formats seconds as `HH:MM:SS`, with a number of days if it is above 0.
fn duration(seconds: u64) -> String {
    let clock = format!("{:02}:{:02}:{:02}", seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    match seconds / 86_400 {
        0 => clock,
        days => format!("{days}-{clock}"),
    }
}

/// Formats bytes in the largest fitting unit, at least kilobytes; 0 is in megabytes.
fn size(bytes: u64) -> String {
    let mut amount = bytes as f64 / 1024.0;
    if bytes == 0 {
        return "0.00 MB".to_owned();
    }
    let mut units = ["KB", "MB", "GB", "TB", "PB", "EB"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while amount >= 1024.0 {
        let Some(next) = units.next() else { break };
        (amount, unit) = (amount / 1024.0, next);
    }
    format!("{amount:.2} {unit}")
}

/// Returns the memory in a list of allocated resources (`cpu=2,mem=1.50G`), in bytes.
fn held_memory(tres: &str) -> u64 {
    let text = tres.split(',').find_map(|item| item.strip_prefix("mem=")).unwrap_or("0");
    let (number, unit) = text.split_at(text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len()));
    let shift = match unit {
        "K" => 10,
        "G" => 30,
        "T" => 40,
        "P" => 50,
        _ => 20,
    };
    (number.parse::<f64>().unwrap_or(0.0) * f64::from(1 << 10).powi(shift / 10)) as u64
}

/// Runs `seff`.
///
/// # Errors
/// An invalid option, or no answer.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let mut asked = Query::default();
    let Some(operands) = called::operands(session, &LINE, &words, &mut asked)? else {
        return Ok(0);
    };
    let [job] = &operands[..] else {
        return Err(Failure::new("one job is expected: seff JOB").into());
    };
    let job: Vec<JobRef> = JobRef::parse_list(job).map_err(|error| Failure::new(error.to_string()))?;
    let mut show = query::show(&|name| session.env(name))?;
    query::identify(session, &mut show).await?;
    let request = ListAccountingRequest {
        job_ids: job.iter().map(|job| JobRef { step: None, ..job.clone() }.to_string()).collect(),
        all_users: true,
        ..ListAccountingRequest::default()
    };
    let mut rows = query::accounting(session.connection()?, request).await?;
    // For an array or a het job, only the first job is shown.
    let first = rows.first().map(|row| row.job_id);
    rows.retain(|row| Some(row.job_id) == first);
    match text(&rows, asked.debug, &show.cluster.clone(), &show) {
        Some(text) => {
            write!(session.out, "{text}")?;
            Ok(0)
        }
        None => {
            session.say("Job not found.");
            Ok(NOT_FOUND)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_printed_as_slurm_prints_them() {
        let sizes = [
            (0, "0.00 MB"),
            (512, "0.50 KB"),
            (3 << 20, "3.00 MB"),
            (1_048_576_000, "1000.00 MB"),
            (3 << 29, "1.50 GB"),
        ];
        for (bytes, shown) in sizes {
            assert_eq!(size(bytes), shown);
        }
        for (seconds, shown) in [(0, "00:00:00"), (86_399, "23:59:59"), (90_061, "1-01:01:01")] {
            assert_eq!(duration(seconds), shown);
        }
        for (tres, bytes) in [("cpu=2,mem=1.50G,node=1", 3 << 29), ("mem=1000M", 1000 << 20), ("cpu=1", 0)] {
            assert_eq!(held_memory(tres), bytes, "{tres}");
        }
    }
}
