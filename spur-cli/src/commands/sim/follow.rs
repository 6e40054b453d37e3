//! Observation of a simulation: events as lines, the duration of passes, a progress bar, and the data of
//! plots.

use std::io::{self, BufWriter, Write};
use std::time::{Duration, Instant};

use spur_core::cluster::Cluster;
use spur_core::sim::{Event, Moment, Run, Spread, Watch, What};

use super::plot::Trail;

/// Minimum time between two updates of the progress bar.
const REDRAW: Duration = Duration::from_millis(100);
/// Width of the bar in characters.
const BAR: usize = 30;

/// Data collected while a simulation runs.
pub(super) struct Follower<'a> {
    events: Option<BufWriter<Box<dyn Write + 'a>>>,
    /// True if events include pending jobs.
    pending: bool,
    /// First error of writing events, after which nothing is written.
    failure: Option<io::Error>,
    begun: Option<Instant>,
    /// Duration of each pass in microseconds.
    passes: Vec<f64>,
    progress: Option<Bar>,
    pub(super) trail: Option<Trail>,
    /// True if the workload has commands, which may print the reasons of pending jobs.
    reasons: bool,
}

/// A progress bar on the standard error.
#[derive(Debug)]
struct Bar {
    jobs: usize,
    drawn: Instant,
}

impl<'a> Follower<'a> {
    /// Starts the observation. `pending` selects events of pending jobs, and `reasons` keeps the reasons for
    /// which jobs wait. `progress` is the number of jobs at the end of the progress bar; `None` shows no bar.
    pub(super) fn new(
        events: Option<Box<dyn Write + 'a>>,
        pending: bool,
        progress: Option<usize>,
        trail: Option<Trail>,
        reasons: bool,
    ) -> Self {
        Self {
            events: events.map(BufWriter::new),
            pending,
            failure: None,
            begun: None,
            passes: Vec::new(),
            progress: progress.map(|jobs| Bar { jobs, drawn: Instant::now() }),
            trail,
            reasons,
        }
    }

    /// Returns the number of passes and the distribution of their durations in microseconds.
    pub(super) fn passes(&self) -> (usize, Spread) {
        (self.passes.len(), Spread::of(self.passes.clone()))
    }

    /// Flushes the events and removes the progress bar.
    ///
    /// # Errors
    /// Events that could not be written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        if self.progress.take().is_some() {
            eprint!("\r\x1b[K");
        }
        if let Some(failure) = self.failure.take() {
            return Err(failure);
        }
        self.events.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Watch for Follower<'_> {
    fn wants_events(&self) -> bool {
        self.events.is_some()
    }

    fn wants_reasons(&self) -> bool {
        self.reasons || self.events.is_some() && self.pending
    }

    fn event(&mut self, event: &Event) {
        if matches!(event.what, What::Pending { .. }) && !self.pending {
            return;
        }
        let Some(out) = self.events.as_mut().filter(|_| self.failure.is_none()) else { return };
        let written = serde_json::to_writer(&mut *out, event).map_err(io::Error::from);
        self.failure = written.and_then(|()| out.write_all(b"\n")).err();
    }

    fn pass_begins(&mut self) {
        self.begun = Some(Instant::now());
    }

    fn pass_ends(&mut self) {
        if let Some(begun) = self.begun.take() {
            self.passes.push(begun.elapsed().as_secs_f64() * 1e6);
        }
    }

    fn nodes_changed(&mut self, cluster: &Cluster, run: &Run) {
        if let Some(trail) = &mut self.trail {
            trail.ran(cluster, run, false);
        }
    }

    fn run_ended(&mut self, cluster: &Cluster, run: &Run) {
        if let Some(trail) = &mut self.trail {
            trail.ran(cluster, run, true);
        }
    }

    fn moment(&mut self, moment: &Moment<'_>) {
        if let Some(trail) = &mut self.trail {
            trail.moment(moment);
        }
        if let Some(bar) = &mut self.progress
            && bar.drawn.elapsed() >= REDRAW
        {
            bar.drawn = Instant::now();
            let ended = usize::try_from(moment.ended).unwrap_or(usize::MAX);
            let full = (ended * BAR).checked_div(bar.jobs).unwrap_or(BAR).min(BAR);
            let line = format!("{}{}", "#".repeat(full), ".".repeat(BAR - full));
            eprint!(
                "\r\x1b[K[{line}] {ended}/{} jobs, {} waiting, t={}",
                bar.jobs, moment.pending, moment.now.0
            );
        }
    }
}
