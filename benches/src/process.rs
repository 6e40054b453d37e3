//! The resources that the controller uses, read from outside: memory, descriptors, threads, database,
//! processor time, and the pressure on the processors of the host.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use spur_proto::client::Connection;
use spur_proto::v1::PingRequest;

/// The unit of processor time in `/proc`, per second: `USER_HZ` of Linux.
const TICKS: u64 = 100;
/// Time between two readings.
const EVERY: Duration = Duration::from_secs(1);

/// The largest values during a measurement, and the share of its time in which some process of the host
/// waited for a processor.
#[derive(Clone, Debug, Default)]
pub(crate) struct Figures {
    memory_kib: u64,
    descriptors: usize,
    threads: u64,
    database: Option<u64>,
    waiting: f64,
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Figures { memory_kib, descriptors, threads, .. } = self;
        write!(
            f,
            "controller, at most: {} MiB of memory, {descriptors} descriptors, {threads} threads",
            memory_kib / 1024
        )?;
        if let Some(bytes) = self.database {
            write!(f, "; database {} MiB at the end", bytes >> 20)?;
        }
        write!(f, "\nhost: some process waited for a processor for {:.0} % of the time", self.waiting * 100.0)
    }
}

/// Reads the controller's figures until `end`. `state` is the directory of its database.
pub(crate) async fn watch(
    mut connection: Connection,
    state: Option<PathBuf>,
    end: Instant,
) -> anyhow::Result<Figures> {
    let mut figures = Figures::default();
    let (begun, waited) = (Instant::now(), waited()?);
    let mut pid = pid(&mut connection).await?;
    while Instant::now() < end {
        if !figures.read(pid) {
            // The controller was started again.
            pid = self::pid(&mut connection).await?;
        }
        tokio::time::sleep(EVERY).await;
    }
    figures.database = state.as_deref().map(size).transpose()?;
    figures.waiting = (self::waited()? - waited).as_secs_f64() / begun.elapsed().as_secs_f64();
    Ok(figures)
}

/// The process id of the controller.
///
/// # Errors
/// No answer.
pub(crate) async fn pid(connection: &mut Connection) -> anyhow::Result<u32> {
    let answer = connection
        .read(PingRequest::default(), async |mut controller, ask| controller.ping(ask).await)
        .await?;
    Ok(answer.pid)
}

/// The processor time that a process has used.
///
/// # Errors
/// A process that has ended.
pub(crate) fn processor_time(pid: u32) -> anyhow::Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields = stat.rsplit_once(") ").context("no stat of a process")?.1;
    let ticks: Vec<u64> = fields.split(' ').skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    Ok(Duration::from_millis(ticks.iter().sum::<u64>() * 1000 / TICKS))
}

impl Figures {
    /// Takes the present figures of a process into account; returns false if it has ended.
    fn read(&mut self, pid: u32) -> bool {
        let Ok(status) = fs::read_to_string(format!("/proc/{pid}/status")) else { return false };
        let Ok(descriptors) = fs::read_dir(format!("/proc/{pid}/fd")) else { return false };
        let number = |key: &str| -> Option<u64> {
            status.lines().find_map(|line| line.strip_prefix(key))?.split_whitespace().next()?.parse().ok()
        };
        self.memory_kib = self.memory_kib.max(number("VmRSS:").unwrap_or_default());
        self.threads = self.threads.max(number("Threads:").unwrap_or_default());
        self.descriptors = self.descriptors.max(descriptors.count());
        true
    }
}

/// The time for which some process of the host has waited for a processor.
fn waited() -> anyhow::Result<Duration> {
    let Ok(text) = fs::read_to_string("/proc/pressure/cpu") else { return Ok(Duration::ZERO) };
    let some = text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total="));
    let total = some.context("no total in /proc/pressure/cpu")?.1.trim().parse()?;
    Ok(Duration::from_micros(total))
}

/// The size of the files of a directory, in bytes.
fn size(directory: &Path) -> anyhow::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(directory)? {
        let Ok(metadata) = entry?.metadata() else { continue };
        bytes += if metadata.is_file() { metadata.len() } else { 0 };
    }
    Ok(bytes)
}
