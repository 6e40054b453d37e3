//! Metrics of the controller's own process, under the names of Prometheus' client libraries.

use std::fmt::Result;
use std::fs;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use rustix::param::{clock_ticks_per_second, page_size};

use super::page::Page;

/// The process' metrics, read from `/proc` at each scrape.
#[derive(Debug)]
pub(super) struct Process {
    /// Seconds since the Unix epoch at which the controller started.
    pub(super) started: i64,
}

/// Figures of `/proc/self/stat` and `/proc/self/fd`.
struct Usage {
    processor_seconds: f64,
    virtual_bytes: u64,
    resident_bytes: u64,
    threads: u64,
    open_files: u64,
}

impl Usage {
    /// Reads the figures; `None` without `/proc`.
    fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        // The process name is in parentheses and may contain anything.
        let fields: Vec<&str> = stat.rsplit_once(") ")?.1.split_whitespace().collect();
        // Fields by their numbers in proc(5), of which the first two are cut off.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Self {
            processor_seconds: (field(14)? + field(15)?) as f64 / clock_ticks_per_second() as f64,
            virtual_bytes: field(23)?,
            resident_bytes: field(24)? * page_size() as u64,
            threads: field(20)?,
            open_files: open_files(),
        })
    }
}

/// Returns the number of open files. The directory that lists them counts as open, as with Prometheus' client
/// libraries. Since Linux 6.2 the size of the directory is the number of files without it; to list the files
/// of 10,000 connections takes milliseconds.
fn open_files() -> u64 {
    let open = "/proc/self/fd";
    let known = fs::metadata(open).map_or(0, |directory| directory.len());
    if known > 0 { known + 1 } else { fs::read_dir(open).map_or(0, Iterator::count) as u64 }
}

impl Collector for Process {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result {
        let mut page = Page(encoder);
        page.gauge("process_start_time_seconds", "When the controller started.", self.started)?;
        let Some(usage) = Usage::read() else { return Ok(()) };
        page.counter("process_cpu_seconds", "Processor time of the controller.", usage.processor_seconds)?;
        page.gauge("process_resident_memory_bytes", "Memory of the controller.", usage.resident_bytes)?;
        page.gauge("process_virtual_memory_bytes", "Address space of the controller.", usage.virtual_bytes)?;
        page.gauge("process_threads", "Threads of the controller.", usage.threads)?;
        page.gauge("process_open_fds", "Open files and connections of the controller.", usage.open_files)
    }
}
