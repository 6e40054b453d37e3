//! Sources of the tasks' standard input, and the thread that reads them.

use std::io;
use std::time::Duration;

use anyhow::{Context, bail};
use bytes::Bytes;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::getpgrp;
use rustix::termios::{isatty, tcgetpgrp};
use spur_core::text::pattern::FilePattern;
use tokio::sync::mpsc;

/// Interval at which a command in the background checks if it is in the foreground.
const LOOK_AGAIN: Duration = Duration::from_millis(100);

/// Number of bytes read from the standard input at a time.
const STDIN_BYTES: usize = 64 << 10;

/// Source of the tasks' standard input.
pub(super) enum Input {
    /// Input of this command, for all tasks.
    All,
    /// Input of this command, for one task.
    Task(u32),
    /// No input.
    None,
    /// A file, for all tasks.
    File(std::fs::File),
    /// Files of nodes or tasks, which open them.
    Pattern(String),
}

/// Input of one of several steps.
pub(super) struct Wanted {
    /// The only task that gets input; `None` for all tasks.
    pub task: Option<u32>,
    /// True if the step gets no input of this command.
    pub none: bool,
    /// Pattern of files for the step's tasks; empty for none.
    pub pattern: String,
}

impl Input {
    /// Returns the source given by `--input`, for a step with this number of tasks. A file is opened relative
    /// to the directory of the call.
    ///
    /// # Errors
    /// A task that does not exist, or a file that cannot be read.
    pub(super) fn of(said: Option<&str>, tasks: u32) -> anyhow::Result<Input> {
        match said {
            None | Some("all" | "-") => Ok(Input::All),
            Some("none") => Ok(Input::None),
            Some(text) => match text.parse() {
                Ok(task) if task < tasks => Ok(Input::Task(task)),
                Ok(task) => bail!(
                    "--input: there is no task {task}; the step has tasks 0 to {}",
                    tasks.saturating_sub(1)
                ),
                Err(_) if text.contains('%') => {
                    let pattern: FilePattern = text.parse().context("--input")?;
                    Ok(Input::Pattern(pattern.to_string()))
                }
                Err(_) => {
                    let path = std::path::absolute(text)?;
                    let file = std::fs::File::open(&path);
                    file.map(Input::File)
                        .with_context(|| format!("Could not open stdin file {}", path.display()))
                }
            },
        }
    }

    /// Returns the input of the first step, or of another one.
    pub(super) fn wanted(&self, first: bool) -> Wanted {
        let pattern = if let Input::Pattern(pattern) = self { pattern.clone() } else { String::new() };
        let none = matches!(self, Input::None | Input::Pattern(_)) || (self.task().is_some() && !first);
        Wanted { task: self.task().filter(|_| first), none, pattern }
    }

    pub(super) fn task(&self) -> Option<u32> {
        match self {
            Input::Task(task) => Some(*task),
            _ => None,
        }
    }

    /// Reads the input on a separate thread, since a read may block forever, and sends it to every node.
    pub(super) fn broadcast(self, nodes: Vec<mpsc::Sender<Option<Bytes>>>) {
        let source: Box<dyn io::Read + Send> = match self {
            Input::None | Input::Pattern(_) => return,
            Input::All | Input::Task(_) if isatty(io::stdin()) => Box::new(Keyboard),
            Input::All | Input::Task(_) => Box::new(io::stdin()),
            Input::File(file) => Box::new(file),
        };
        std::thread::spawn(move || read_to_nodes(source, &nodes));
    }
}

/// The terminal on the standard input. Reading in the background would stop the command, so it reads only in
/// the foreground.
struct Keyboard;

impl Keyboard {
    /// True if this command is in the foreground. A terminal that does not control the session has no
    /// foreground and is read like a file.
    fn is_ours() -> bool {
        tcgetpgrp(io::stdin()).map_or(true, |foreground| foreground == getpgrp())
    }
}

impl io::Read for Keyboard {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            // Waiting for a key inside a read would stop the command when it moves to the background.
            poll(&mut [PollFd::new(&io::stdin(), PollFlags::IN)], None)?;
            if Self::is_ours() {
                return io::stdin().read(buffer);
            }
            // The keys are for the shell, which does not report when the command returns to the foreground.
            std::thread::sleep(LOOK_AGAIN);
        }
    }
}

fn read_to_nodes(mut source: Box<dyn io::Read + Send>, nodes: &[mpsc::Sender<Option<Bytes>>]) {
    let mut buffer = vec![0; STDIN_BYTES];
    loop {
        let data = match source.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Ok(0) | Err(_) => None,
            Ok(length) => Some(Bytes::copy_from_slice(&buffer[..length])),
        };
        let end = data.is_none();
        // A node that has ended accepts no input.
        let taken = nodes.iter().filter(|node| node.blocking_send(data.clone()).is_ok()).count();
        if end || taken == 0 {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_may_be_for_one_task_or_none() {
        let of = |said| Input::of(said, 4);
        assert!(matches!(of(None), Ok(Input::All)));
        assert!(matches!(of(Some("none")), Ok(Input::None)));
        assert_eq!(of(Some("3")).unwrap().task(), Some(3));
        assert!(of(Some("4")).is_err_and(|error| error.to_string().contains("tasks 0 to 3")));
        assert!(matches!(of(Some("in-%t")), Ok(Input::Pattern(_))));
        assert!(of(Some("no-such-file")).is_err());
    }
}
