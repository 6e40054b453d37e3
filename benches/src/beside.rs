//! Work in the controller that might delay answers: a snapshot being written, a plan being made. It is
//! watched from outside while the load runs, so that one run compares the same load with and without it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

/// The interval between two checks.
const LOOK: Duration = Duration::from_millis(5);
/// Periods of work that are closer together than this count as one.
const GAP: Duration = Duration::from_millis(50);
/// The time that a thread of the controller must have worked between two checks to count as busy, in
/// nanoseconds.
const AT_IT: u64 = 1_000_000;

/// The kind of work to watch.
#[derive(Clone)]
pub(crate) enum What {
    /// Snapshots appearing in this directory.
    Snapshot(PathBuf),
    /// The planner of the controller with this process id.
    Plan(u32),
}

/// A thread that watches until [`Watch::end`].
pub(crate) struct Watch {
    over: Arc<AtomicBool>,
    thread: JoinHandle<Vec<(Instant, Instant)>>,
}

/// The periods of the watched work.
pub(crate) struct Times(Vec<(Instant, Instant)>);

impl std::str::FromStr for What {
    type Err = anyhow::Error;

    fn from_str(written: &str) -> anyhow::Result<Self> {
        match written.split_once(':') {
            Some(("snapshot", directory)) => Ok(What::Snapshot(directory.into())),
            Some(("plan", pid)) => Ok(What::Plan(pid.parse().context("plan:PID")?)),
            _ => bail!("write snapshot:DIRECTORY or plan:PID"),
        }
    }
}

impl Watch {
    /// Begins to watch.
    pub(crate) fn begin(what: &What) -> anyhow::Result<Self> {
        let mut goes_on: Box<dyn FnMut() -> bool + Send> = match what {
            What::Snapshot(directory) => {
                let directory = directory.clone();
                Box::new(move || snapshot_in(&directory))
            }
            What::Plan(pid) => {
                let (times, mut worked) = (thread_times(*pid, "planner")?, 0);
                Box::new(move || {
                    let before = std::mem::replace(&mut worked, time_worked(&times));
                    worked - before >= AT_IT
                })
            }
        };
        let over = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&over);
        let thread = std::thread::spawn(move || {
            let mut times: Vec<(Instant, Instant)> = Vec::new();
            let mut looked = Instant::now();
            goes_on();
            while !told.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
                let now = Instant::now();
                if goes_on() {
                    match times.last_mut() {
                        Some((_, end)) if looked.duration_since(*end) <= GAP => *end = now,
                        _ => times.push((looked, now)),
                    }
                }
                looked = now;
            }
            times
        });
        Ok(Self { over, thread })
    }

    /// Ends the watch and returns the periods of work since its beginning.
    pub(crate) fn end(self) -> anyhow::Result<Times> {
        self.over.store(true, Ordering::Relaxed);
        self.thread.join().map(Times).map_err(|_| anyhow::anyhow!("the watching thread has panicked"))
    }
}

impl Times {
    /// True if any of the work lies between two times.
    pub(crate) fn touch(&self, begun: Instant, ended: Instant) -> bool {
        self.0.iter().any(|(from, to)| begun < *to && *from < ended)
    }

    /// The total duration of the work, and the number of its periods.
    pub(crate) fn sum(&self) -> (Duration, usize) {
        (self.0.iter().map(|(from, to)| to.duration_since(*from)).sum(), self.0.len())
    }
}

fn snapshot_in(directory: &Path) -> bool {
    let Ok(files) = std::fs::read_dir(directory) else { return false };
    files.flatten().any(|file| file.file_name().to_string_lossy().ends_with(".part"))
}

/// The file in which the kernel reports the time that a thread has worked.
fn thread_times(pid: u32, name: &str) -> anyhow::Result<PathBuf> {
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).context("--beside plan:PID")? {
        let task = task?.path();
        if std::fs::read_to_string(task.join("comm"))?.trim_end() == name {
            return Ok(task.join("schedstat"));
        }
    }
    bail!("process {pid} has no thread `{name}`: is it the controller?")
}

/// The worked time in nanoseconds; 0 after the thread has ended.
fn time_worked(times: &Path) -> u64 {
    let text = std::fs::read_to_string(times).unwrap_or_default();
    text.split_whitespace().next().and_then(|first| first.parse().ok()).unwrap_or(0)
}
