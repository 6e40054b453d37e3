//! The tasks of a step on this node: their processes, streams and epilogs.

use std::io;

use rustix::process::{Pid, Signal};
use step_wire::message::Stream;
use step_wire::order::{Input, Output, StepOrder};

use crate::confine::group::Group;
use crate::stream::{self, Incoming, Kept, Outgoing};
use crate::task::child;
use crate::task::plan::{MpiEnd, Pipes, Plan};
use crate::task::terminal::{self, Terminal};
use crate::task::{Launching, Task, first_users};

/// The tasks, and the parts that they share.
pub(crate) struct Tasks {
    pub(crate) all: Vec<Task>,
    pub(crate) input: Incoming,
    pub(crate) terminal: Option<Terminal>,
    environment: Vec<u8>,
    argv: Vec<String>,
}

impl Tasks {
    pub(crate) fn new(order: &StepOrder, environment: Vec<u8>, argv: Vec<String>) -> Tasks {
        Tasks {
            all: order.tasks.iter().cloned().map(Task::new).collect(),
            input: Incoming::default(),
            terminal: None,
            environment,
            argv,
        }
    }

    pub(crate) fn with_pid(&self, pid: Pid) -> Option<usize> {
        self.all.iter().position(|task| task.pid == Some(pid))
    }

    pub(crate) fn with_epilog(&self, pid: Pid) -> Option<usize> {
        self.all.iter().position(|task| task.epilog == Some(pid))
    }

    pub(crate) fn with_rank(&mut self, rank: u32) -> Option<&mut Task> {
        self.all.iter_mut().find(|task| task.order.global == rank)
    }

    /// Returns process ids of the started tasks, in the order of local ids.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.all.iter().filter_map(Task::id).collect()
    }

    pub(crate) fn streams_mut(&mut self) -> impl Iterator<Item = (Stream, &mut Outgoing)> {
        self.all.iter_mut().flat_map(Task::streams_mut)
    }

    /// True if all output has been acknowledged or discarded.
    pub(crate) fn are_read(&self) -> bool {
        self.all.iter().flat_map(Task::streams).all(|(_, outgoing)| outgoing.done())
    }

    /// Starts a task's process.
    ///
    /// # Errors
    /// The system's error if a pipe, a terminal or the process cannot be created.
    pub(crate) fn launch(
        &mut self,
        index: usize,
        order: &StepOrder,
        group: Option<&Group>,
        mpi: MpiEnd,
    ) -> io::Result<Pid> {
        let pipes = Pipes { mpi, ..self.pipes(index, order)? };
        let truncate = first_users(&self.all, index);
        let task = &self.all[index].order;
        let plan = Plan {
            order,
            task,
            environment: &self.environment,
            argv: if task.argv.is_empty() { &self.argv } else { &task.argv },
            truncate,
            group,
            is_task: true,
        };
        let child = child::spawn(&plan, pipes)?;
        self.all[index].pid = Some(child.pid);
        self.all[index].launching = Some(Launching::new(child.report));
        Ok(child.pid)
    }

    /// Creates the ends of a task's streams that are read or written elsewhere.
    fn pipes(&mut self, index: usize, order: &StepOrder) -> io::Result<Pipes> {
        let mut pipes = Pipes::default();
        let task = &mut self.all[index];
        let window = order.terminal.filter(|_| task.order.global == 0);
        if let Some(window) = window {
            let (terminal, slave) = terminal::open(window, &order.identity)?;
            pipes.terminal = Some(slave);
            task.stdout = Some(Outgoing::new(terminal.end()?));
            if task.order.stdin == Input::Stream {
                self.input.connect_terminal(terminal.end()?);
            }
            self.terminal = Some(terminal);
            return Ok(pipes);
        }
        if task.order.stdin == Input::Stream {
            let (kept, given) = stream::pipe(Kept::Write)?;
            pipes.stdin = Some(given);
            self.input.connect(kept);
        }
        if task.order.stdout == Output::Stream {
            let (kept, given) = match order.unbuffered {
                true => terminal::raw(&order.identity)?,
                false => stream::pipe(Kept::Read)?,
            };
            pipes.stdout = Some(given);
            task.stdout = Some(Outgoing::new(kept));
        }
        if task.order.stderr == Output::Stream {
            let (kept, given) = stream::pipe(Kept::Read)?;
            pipes.stderr = Some(given);
            task.stderr = Some(Outgoing::new(kept));
        }
        Ok(pipes)
    }

    /// Starts the epilog of this number after a task.
    ///
    /// # Errors
    /// The system's error if no process can be created.
    pub(crate) fn start_epilog(
        &mut self,
        index: usize,
        number: usize,
        order: &StepOrder,
        group: Option<&Group>,
    ) -> io::Result<()> {
        let program = epilogs(order).nth(number).map(|(program, _)| program.display().to_string());
        let argv = [program.unwrap_or_default()];
        let plan = Plan {
            order,
            task: &self.all[index].epilog_order(),
            environment: &self.environment,
            argv: &argv,
            truncate: (false, false),
            group,
            is_task: false,
        };
        self.all[index].epilog = Some(child::spawn(&plan, Pipes::default())?.pid);
        Ok(())
    }

    /// Kills a task's epilog and the processes of its session.
    pub(crate) fn kill_epilog(&self, index: usize) {
        if let Some(pid) = self.all[index].epilog {
            // The epilog may have ended by itself.
            let _ = rustix::process::kill_process_group(pid, Signal::KILL);
        }
    }

    /// Sends a signal to the processes of the running tasks, not to their children.
    pub(crate) fn signal(&self, signal: Signal, has_ended: impl Fn(usize) -> bool) {
        let running = self.all.iter().enumerate().filter(|(index, _)| !has_ended(*index));
        for pid in running.filter_map(|(_, task)| task.pid) {
            // The kernel does not reuse the id of a process that was not waited for; a dead task needs no
            // signal.
            let _ = rustix::process::kill_process(pid, signal);
        }
    }

    /// Writes a line for the user to the step's standard error.
    ///
    /// A file is written by a helper process, which is returned: the file may be a pipe without a reader. A
    /// line that cannot be written is lost; the record has the facts.
    pub(crate) fn notice(&mut self, text: &str) -> Option<Pid> {
        let line = format!("{text}\n");
        let task = self.all.first_mut()?;
        let launching = task.launching.as_mut();
        if let Some(file) = task.stderr_file.as_mut().or_else(|| launching?.stderr()) {
            return child::write_line(file, &line).ok();
        }
        let streams = self.all.iter_mut().filter_map(|task| task.stderr.as_mut().or(task.stdout.as_mut()));
        if let Some(stream) = streams.into_iter().find(|stream| stream.is_read()) {
            stream.insert(line.as_bytes());
        }
        None
    }
}

/// Time limit of the user's own epilog, in milliseconds, as with Slurm.
const OWN_EPILOG_MS: u64 = 5_000;

/// Returns the epilogs of a task in their order: the user's own, then the site's, each with its time limit in
/// milliseconds.
pub(crate) fn epilogs(order: &StepOrder) -> impl Iterator<Item = (&std::path::Path, Option<u64>)> {
    let own = order.own_task_epilog.as_deref().map(|program| (program, Some(OWN_EPILOG_MS)));
    let site = order.task_epilog.as_deref().map(|program| (program, None));
    own.into_iter().chain(site)
}
