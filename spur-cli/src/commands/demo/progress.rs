//! Progress of the demonstration: a line that is rewritten on a terminal, plain lines elsewhere.

use std::io::Write;

use crate::terminal;

/// Display of the progress.
pub(super) struct Progress {
    terminal: bool,
    /// True if the rewritable line has text.
    shown: bool,
    /// Number of finished steps, and number of all steps.
    steps: (usize, usize),
}

impl Progress {
    /// Returns the display for `steps` steps.
    pub(super) fn new(steps: usize) -> Progress {
        Progress { terminal: terminal::shows_progress(), shown: false, steps: (0, steps) }
    }

    /// Shows the present activity.
    pub(super) fn now(&mut self, text: &str) {
        let (done, all) = self.steps;
        let line = if self.terminal {
            self.shown = true;
            let bar = format!("{}{}", "#".repeat(done), ".".repeat(all.saturating_sub(done)));
            format!("\r\x1b[K[{bar}] {text}")
        } else {
            format!("[{done}/{all}] {text}\n")
        };
        say(&line);
    }

    /// Shows the number of things that exist among those the step waits for; only on a terminal.
    pub(super) fn count(&mut self, text: &str, there: usize, all: usize) {
        if self.terminal {
            self.now(&format!("{text}: {there} of {all}"));
        }
    }

    /// Counts a finished step.
    pub(super) fn done(&mut self) {
        self.steps.0 += 1;
    }

    /// Clears the rewritable line before other output.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            say("\r\x1b[K");
        }
    }
}

/// Prints a text; a closed stream is ignored.
fn say(text: &str) {
    let mut err = std::io::stderr();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
