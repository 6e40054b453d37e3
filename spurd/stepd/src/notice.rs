//! Lines for the user in the standard error of a step.

use std::time::{Duration, Instant};

use crate::step::Shim;
use crate::task::child;

/// How long a notice to the user may take, whose standard error may be a pipe that nobody reads.
pub(crate) const NOTICE_WAIT: Duration = Duration::from_secs(5);

impl Shim {
    /// A line for the user in the step's standard error. Nothing waits for it: a process of its own writes it.
    pub(crate) fn notice(&mut self, text: &str) {
        let line = format!("{text}\n");
        let Some(task) = self.tasks.first_mut() else { return };
        let launched = self.launching.as_mut().filter(|launching| launching.index == 0);
        if let Some(file) = task.stderr_file.as_mut().or_else(|| launched?.stderr()) {
            // Without a process, or in a file that takes no more bytes, the notice is lost; the record has the facts.
            let Ok(pid) = child::write_line(file, &line) else { return };
            self.childless = false;
            self.notices.push(pid);
            self.notices_until.get_or_insert(Instant::now() + NOTICE_WAIT);
            return;
        }
        let streams = self.tasks.iter_mut().filter_map(|task| task.stderr.as_mut().or(task.stdout.as_mut()));
        if let Some(stream) = streams.into_iter().find(|stream| stream.is_read()) {
            stream.insert(line.as_bytes());
        }
    }
}
