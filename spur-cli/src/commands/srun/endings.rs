//! Messages about ended tasks. As with Slurm, whose nodes collect them, tasks of a node with the same result
//! at about the same time share a line.

use std::time::Duration;

use spur_core::model::idset::IdSet;
use spur_core::text::exit::ExitCode;
use tokio::time::Instant;

use crate::session::Session;

/// Time for which more tasks of a node are awaited, from the first one.
const COLLECTED: Duration = Duration::from_millis(100);
/// Names of signals in the C library, from signal 1.
const SIGNALS: [&str; 31] = [
    "Hangup",
    "Interrupt",
    "Quit",
    "Illegal instruction",
    "Trace/breakpoint trap",
    "Aborted",
    "Bus error",
    "Floating point exception",
    "Killed",
    "User defined signal 1",
    "Segmentation fault",
    "User defined signal 2",
    "Broken pipe",
    "Alarm clock",
    "Terminated",
    "Stack fault",
    "Child exited",
    "Continued",
    "Stopped (signal)",
    "Stopped",
    "Stopped (tty input)",
    "Stopped (tty output)",
    "Urgent I/O condition",
    "CPU time limit exceeded",
    "File size limit exceeded",
    "Virtual timer expired",
    "Profiling timer expired",
    "Window changed",
    "I/O possible",
    "Power failure",
    "Bad system call",
];
const RT_MIN: usize = 34;
const RT_MAX: usize = 64;

/// Tasks of a node that ended with the same result.
#[derive(Debug)]
pub(super) struct Ended {
    /// Index of the node among those of the step.
    pub node: usize,
    /// Exit code, and true if there is a core file.
    how: (ExitCode, bool),
    tasks: IdSet,
    due: Instant,
}

impl Ended {
    /// True if no more tasks are awaited.
    pub(super) fn is_due(&self) -> bool {
        self.due <= Instant::now()
    }
}

/// Ends of tasks that have not been reported.
#[derive(Debug)]
pub(super) struct Endings {
    untold: Vec<Ended>,
    /// True to omit an end equal to the one reported last.
    reduced: bool,
    last: Option<(ExitCode, bool)>,
}

impl Endings {
    pub(super) fn new(reduced: bool) -> Endings {
        Endings { untold: Vec::new(), reduced, last: None }
    }

    /// Adds the end of a task.
    pub(super) fn add(&mut self, node: usize, task: u32, how: (ExitCode, bool)) {
        let task = IdSet::from_iter([task]);
        match self.untold.iter_mut().find(|known| (known.node, known.how) == (node, how)) {
            Some(known) => known.tasks.insert_all(&task),
            None => self.untold.push(Ended { node, how, tasks: task, due: Instant::now() + COLLECTED }),
        }
    }

    /// Returns the time of the next report; `None` without ends.
    pub(super) fn due(&self) -> Option<Instant> {
        self.untold.iter().map(|ended| ended.due).min()
    }

    /// Reports the chosen ends; `name` returns the names of nodes.
    pub(super) fn tell<'a>(
        &mut self,
        session: &mut Session,
        name: impl Fn(usize) -> &'a str,
        chosen: impl Fn(&Ended) -> bool,
    ) {
        for Ended { node, how, tasks, .. } in self.untold.extract_if(.., |ended| chosen(ended)) {
            let word = if tasks.len() == 1 { "task" } else { "tasks" };
            let line = format!("{}: {word} {tasks}: {}", name(node), ending(how));
            if how.0.is_success() {
                session.inform(&line);
            } else if self.last.replace(how) != Some(how) || !self.reduced {
                session.error(&line);
            }
        }
    }
}

/// Returns the result of a task in Slurm's words.
fn ending((exit, core_dumped): (ExitCode, bool)) -> String {
    let core = if core_dumped { " (core dumped)" } else { "" };
    match (exit.code, usize::from(exit.signal)) {
        _ if exit == ExitCode::OUT_OF_MEMORY => "Out Of Memory".to_owned(),
        (0, 0) => "Completed".to_owned(),
        (code, 0) => format!("Exited with exit code {code}"),
        (_, signal) if signal <= SIGNALS.len() => format!("{}{core}", SIGNALS[signal - 1]),
        (_, signal) if (RT_MIN..=RT_MAX).contains(&signal) => format!("Real-time signal {}", signal - RT_MIN),
        (_, signal) => format!("Unknown signal {signal}"),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Returns the messages for tasks 0 and up that end on these nodes with these codes; the second node is
    /// reported first.
    fn said(reduced: bool, ends: &[(usize, u8)]) -> String {
        let mut session = Session::in_memory("srun", BTreeMap::new(), None);
        let mut endings = Endings::new(reduced);
        for (task, &(node, code)) in (0..).zip(ends) {
            endings.add(node, task, (ExitCode::exited(code), false));
        }
        let name = |node: usize| ["n1", "n2"][node];
        endings.tell(&mut session, name, |ended| ended.node == 1);
        endings.tell(&mut session, name, |_| true);
        assert_eq!(endings.due(), None);
        session.take_complaints()
    }

    #[test]
    fn tasks_of_a_node_that_end_alike_share_a_line() {
        let ends = [(0, 1), (1, 1), (0, 1), (0, 2), (0, 1), (1, 0)];
        assert_eq!(
            said(false, &ends),
            "srun: error: n2: task 1: Exited with exit code 1\nsrun: n2: task 5: Completed\n\
             srun: error: n1: tasks 0,2,4: Exited with exit code 1\nsrun: error: n1: task 3: Exited with exit code 2\n"
        );
        assert_eq!(
            said(true, &ends),
            "srun: error: n2: task 1: Exited with exit code 1\nsrun: n2: task 5: Completed\n\
             srun: error: n1: task 3: Exited with exit code 2\n"
        );
    }

    #[test]
    fn endings_are_told_in_slurms_words() {
        assert_eq!(ending((ExitCode::exited(3), false)), "Exited with exit code 3");
        assert_eq!(ending((ExitCode::signaled(11), true)), "Segmentation fault (core dumped)");
        assert_eq!(ending((ExitCode::OUT_OF_MEMORY, false)), "Out Of Memory");
        for (signal, words) in [
            (9, "Killed"),
            (10, "User defined signal 1"),
            (31, "Bad system call"),
            (32, "Unknown signal 32"),
            (35, "Real-time signal 1"),
            (65, "Unknown signal 65"),
        ] {
            assert_eq!(ending((ExitCode::signaled(signal), false)), words);
        }
    }
}
