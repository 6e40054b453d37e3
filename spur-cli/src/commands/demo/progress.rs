//! How far the demonstration is: one line that changes on a terminal, plain lines elsewhere.

use std::io::Write;

use crate::terminal;

/// The display.
pub(super) struct Progress {
    terminal: bool,
    /// What stands on the line that changes.
    shown: bool,
    /// Steps that are done, and all of them.
    steps: (usize, usize),
}

impl Progress {
    /// For so many steps.
    pub(super) fn new(steps: usize) -> Progress {
        Progress { terminal: terminal::shows_progress(), shown: false, steps: (0, steps) }
    }

    /// What is going on now.
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

    /// How many of the things that the step waits for are there; only shown where a line can change.
    pub(super) fn count(&mut self, text: &str, there: usize, all: usize) {
        if self.terminal {
            self.now(&format!("{text}: {there} of {all}"));
        }
    }

    /// A step is done.
    pub(super) fn done(&mut self) {
        self.steps.0 += 1;
    }

    /// Makes room for other output.
    pub(super) fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            say("\r\x1b[K");
        }
    }
}

/// Nobody need be there to read it.
fn say(text: &str) {
    let mut err = std::io::stderr();
    let _ = err.write_all(text.as_bytes()).and_then(|()| err.flush());
}
