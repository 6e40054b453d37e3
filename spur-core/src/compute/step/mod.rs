//! The life of a step on one node, without a clock, a disk or a process.
//!
//! `Starting → Running → Ending → Draining`: a step may skip a state, and never goes back. The shell passes
//! each [`Input`] with its time, and carries out the returned [`Effect`]s in order. The shell owns the
//! streams of tasks, the servers for MPI programs, the memory meter and the processes.
//!
//! Promises, which `check` verifies for every trace:
//!
//! * No task starts once the step is ending. A suspended step starts no task and is resumed before TERM.
//! * TERM is sent at most once. KILL is not sent before its time. The end of the last task brings that time
//!   forward to the moment of the end. From then on KILL is sent whenever a process is left.
//! * When subscribers are informed of the step's end, the record has the end of every task, and every child
//!   has been waited for.
//! * The shell exits only when the record is on disk or the end was acknowledged. Until then inputs do not
//!   change the record.

#[cfg(test)]
mod check;
mod end;
#[cfg(test)]
mod tests;
mod words;

pub use self::end::{LaunchFailure, LaunchStage, NO_STANDARD_FILES, Record, TaskExit};
pub use self::words::{Cause, Effect, Epilog, Input, News, Notice, Now, Outcome, Plan};
use crate::text::exit::ExitCode;
use crate::text::signal::Signal;

/// Milliseconds between TERM and KILL for a step whose own time limit is over.
pub const AFTER_LIMIT_MS: u64 = 30_000;
/// Milliseconds that a helper process may take: it may write to a pipe without a reader.
pub const HELPER_MS: u64 = 5_000;
/// Number of helper processes from which on no further notice is written.
pub const MOST_HELPERS: usize = 16;
/// Milliseconds before the shell tries again to write a record that the disk refused.
pub const WRITE_AGAIN_MS: u64 = 1_000;

/// A step on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    plan: Plan,
    life: Life,
    tasks: Vec<Task>,
    server: Server,
    helpers: Helpers,
    /// Time on the steady clock at which the step's own limit ends the step.
    limit_at: Option<u64>,
    started_ms: Option<u64>,
    failure: Option<LaunchFailure>,
    out_of_memory: bool,
    /// True if tasks on other nodes may still need this node's server for MPI programs.
    needed_by_others: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    /// Task `next` is the next to be launched, once the gate is open.
    Starting { next: usize, gate: Gate, is_suspended: bool },
    /// Every task was launched.
    Running { is_suspended: bool },
    /// KILL is sent at `kill_at`; `None` for never.
    Ending { cause: Cause, kill_at: Option<u64>, is_killed: bool },
    /// No process is left. The shell stays for readers until `leave_at`.
    Draining { record: Record, cause: Cause, disk: Disk, leave_at: u64 },
}

/// The gate that tasks wait at before they are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    /// The shell is not ready.
    Shut,
    /// The process that serves MPI programs is not ready.
    Waiting,
    Open,
}

/// Progress of the record's way to the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Disk {
    Writing,
    Refused { again_at: u64 },
    Done,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Task {
    Waiting,
    /// The task's process has not yet reported if it runs the program.
    Launching,
    Running,
    /// The task's process could not become the program, and has not ended yet.
    Failed,
    /// The epilog of this number runs after the task.
    Epilog {
        exit: TaskExit,
        number: usize,
        kill_at: Option<u64>,
    },
    Over(TaskExit),
}

impl Task {
    fn exit(&self) -> Option<TaskExit> {
        match self {
            Task::Waiting | Task::Launching | Task::Running | Task::Failed => None,
            Task::Epilog { exit, .. } | Task::Over(exit) => Some(*exit),
        }
    }
}

/// The process that serves MPI programs, where that is a process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Absent,
    Present,
    /// The server was ordered to end, and counts as a helper.
    Leaving,
}

/// Helper processes of the shell, which are about to end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Helpers {
    count: usize,
    kill_at: Option<u64>,
}

impl Step {
    /// A step without any started task. Its time limit begins `now`.
    #[must_use]
    pub fn new(plan: Plan, now: Now) -> Step {
        Step {
            life: Life::Starting { next: 0, gate: Gate::Shut, is_suspended: false },
            tasks: vec![Task::Waiting; plan.ranks.len()],
            server: Server::Absent,
            helpers: Helpers::default(),
            limit_at: plan.time_limit_ms.and_then(|limit| now.steady_ms.checked_add(limit)),
            started_ms: None,
            failure: None,
            out_of_memory: false,
            needed_by_others: false,
            plan,
        }
    }

    /// Handles an input; returns the effects to carry out, in order.
    pub fn handle(&mut self, now: Now, input: Input) -> Vec<Effect> {
        let mut effects = Vec::new();
        let out = &mut effects;
        if self.record().is_some() {
            self.drain(now, &input, out);
            return effects;
        }
        match input {
            Input::Begin => self.begin(out),
            Input::Served => self.open(Gate::Waiting),
            Input::ServerEnded { failure } if self.server == Server::Present => {
                self.server = Server::Absent;
                if matches!(self.life, Life::Starting { gate: Gate::Waiting, .. }) {
                    self.fail(failure, now, out);
                }
            }
            Input::Launched { task } if self.is_launching(task) => self.tasks[task] = Task::Running,
            Input::NotLaunched { task, failure } if self.is_launching(task) => {
                self.tasks[task] = Task::Failed;
                self.fail(failure, now, out);
            }
            Input::NotForked { task, failure } if self.is_launching(task) => {
                self.tasks[task] = Task::Waiting;
                self.fail(failure, now, out);
            }
            Input::Failed { failure } => self.fail(failure, now, out),
            Input::TaskEnded { task, status, core_dumped } => {
                self.task_ended(task, (status, core_dumped), now, out);
            }
            Input::EpilogEnded { task } => self.epilog_ended(task, now, out),
            Input::HelperStarted => self.add_helper(now),
            Input::HelperEnded => self.helper_ended(),
            Input::Needed { by_others } => self.needed_by_others = by_others,
            Input::OverMemory => self.run_out_of_memory(now, out),
            Input::Left if self.asks_for_processes() => out.push(Effect::Kill),
            Input::Emptied { patience_ms } => self.emptied(patience_ms, now, out),
            Input::Suspend { stop } => self.suspend(stop, out),
            Input::Signal { signal, tasks_only } => self.signal(signal, tasks_only, out),
            Input::Terminate { kill_wait_ms, notice } => self.terminate(kill_wait_ms, notice, now, out),
            Input::Abort { message } if !self.is_told_to_end() => {
                out.push(Effect::Tell(News::Aborted { message }));
                self.end(Cause::Aborted, Some(0), now, out);
            }
            Input::Notice { text } if self.helpers.count < MOST_HELPERS => {
                out.push(Effect::Notice(Notice::Text(text)));
            }
            Input::Time => self.take_time(now, out),
            Input::ServerEnded { .. }
            | Input::Launched { .. }
            | Input::NotLaunched { .. }
            | Input::NotForked { .. }
            | Input::Left
            | Input::Abort { .. }
            | Input::Notice { .. }
            | Input::Attached { .. }
            | Input::Recorded { .. }
            | Input::ReaderGone => {}
        }
        self.go_on(now, out);
        effects
    }

    /// Time on the steady clock at which [`Input::Time`] is due, unless another input comes before; `None`
    /// for never.
    #[must_use]
    pub fn due(&self) -> Option<u64> {
        let life = match &self.life {
            Life::Starting { .. } | Life::Running { .. } => self.limit_at,
            Life::Ending { cause, kill_at, is_killed } => {
                let limit = self.limit_at.filter(|_| *cause == Cause::Finished);
                [kill_at.filter(|_| !is_killed), limit].into_iter().flatten().min()
            }
            Life::Draining { disk, leave_at, .. } => {
                return match disk {
                    Disk::Writing => None,
                    Disk::Refused { again_at } => Some(*again_at),
                    Disk::Done => Some(*leave_at),
                };
            }
        };
        let epilogs = self.tasks.iter().filter_map(|task| match task {
            Task::Epilog { kill_at, .. } => *kill_at,
            _ => None,
        });
        epilogs.chain(life).chain(self.helpers.kill_at).min()
    }

    /// The record of the step; `None` while processes are left.
    #[must_use]
    pub fn record(&self) -> Option<&Record> {
        match &self.life {
            Life::Draining { record, .. } => Some(record),
            Life::Starting { .. } | Life::Running { .. } | Life::Ending { .. } => None,
        }
    }

    /// Milliseconds since the Unix epoch at which every task ran its program; `None` before that.
    #[must_use]
    pub fn started_ms(&self) -> Option<u64> {
        self.started_ms
    }

    /// The end of the task with this local id; `None` before it has ended.
    #[must_use]
    pub fn exit(&self, task: usize) -> Option<TaskExit> {
        self.tasks.get(task).and_then(Task::exit)
    }

    /// True if every task has ended. Epilogs may still run.
    #[must_use]
    pub fn have_tasks_ended(&self) -> bool {
        self.tasks.iter().all(|task| task.exit().is_some())
    }

    /// True if anything but the end of its own tasks ends or has ended the step.
    #[must_use]
    pub fn is_told_to_end(&self) -> bool {
        match self.life {
            Life::Starting { .. } | Life::Running { .. } => false,
            Life::Ending { cause, .. } | Life::Draining { cause, .. } => cause != Cause::Finished,
        }
    }

    /// True if the step was found to use more memory than allowed.
    #[must_use]
    pub fn is_out_of_memory(&self) -> bool {
        self.out_of_memory
    }

    /// True if tasks may still be launched.
    #[must_use]
    pub fn is_starting(&self) -> bool {
        matches!(self.life, Life::Starting { .. })
    }

    /// True if the shell must look for processes of the step, and answer with [`Input::Left`] or
    /// [`Input::Emptied`].
    #[must_use]
    pub fn asks_for_processes(&self) -> bool {
        matches!(self.life, Life::Ending { .. })
            && self.are_tasks_over()
            && self.helpers.count == 0
            && self.server != Server::Leaving
    }

    fn are_tasks_over(&self) -> bool {
        self.tasks.iter().all(|task| matches!(task, Task::Over(_)))
    }

    /// True if tasks on other nodes keep this part of the step alive.
    fn is_needed(&self) -> bool {
        self.needed_by_others && !self.is_told_to_end()
    }

    fn begin(&mut self, out: &mut Vec<Effect>) {
        match &mut self.life {
            Life::Starting { gate: gate @ Gate::Shut, .. } if self.plan.has_server => {
                *gate = Gate::Waiting;
                self.server = Server::Present;
                out.push(Effect::StartServer);
            }
            _ => self.open(Gate::Shut),
        }
    }

    fn open(&mut self, from: Gate) {
        if let Life::Starting { gate, .. } = &mut self.life
            && *gate == from
        {
            *gate = Gate::Open;
        }
    }

    fn is_launching(&self, task: usize) -> bool {
        self.tasks.get(task) == Some(&Task::Launching)
    }

    fn add_helper(&mut self, now: Now) {
        self.helpers.count += 1;
        self.helpers.kill_at.get_or_insert(now.steady_ms.saturating_add(HELPER_MS));
    }

    fn helper_ended(&mut self) {
        self.helpers.count = self.helpers.count.saturating_sub(1);
        if self.helpers.count == 0 {
            self.helpers.kill_at = None;
            if self.server == Server::Leaving {
                self.server = Server::Absent;
            }
        }
    }

    /// Ends the step because of a failure. The record names the first failure.
    fn fail(&mut self, failure: LaunchFailure, now: Now, out: &mut Vec<Effect>) {
        self.failure.get_or_insert(failure);
        self.end(Cause::NotLaunched, Some(0), now, out);
        self.give_up_launches(now, out);
    }

    fn task_ended(&mut self, task: usize, end: (ExitCode, bool), now: Now, out: &mut Vec<Effect>) {
        let (own, core_dumped) = end;
        let Some(known) = self.tasks.get(task) else { return };
        let has_failed = *known == Task::Failed;
        if !has_failed && !matches!(known, Task::Launching | Task::Running) {
            return;
        }
        let failure = self.failure.as_ref().filter(|_| has_failed);
        let mut status = failure.map_or(own, LaunchFailure::status);
        if self.out_of_memory {
            // As in Slurm, tasks that end after memory ran out get this status, whatever their own.
            status = ExitCode::OUT_OF_MEMORY;
        }
        let exit = TaskExit { global: self.plan.ranks[task], status, core_dumped, at_ms: now.unix_ms };
        out.push(Effect::Tell(News::TaskEnded(exit)));
        self.tasks[task] = Task::Over(exit);
        if !has_failed {
            self.start_epilog(task, exit, 0, now, out);
        }
    }

    fn epilog_ended(&mut self, task: usize, now: Now, out: &mut Vec<Effect>) {
        let Some(&Task::Epilog { exit, number, .. }) = self.tasks.get(task) else { return };
        self.tasks[task] = Task::Over(exit);
        self.start_epilog(task, exit, number + 1, now, out);
    }

    /// Starts the task's epilog of this number, if there is one.
    fn start_epilog(&mut self, task: usize, exit: TaskExit, number: usize, now: Now, out: &mut Vec<Effect>) {
        let Some(epilog) = self.plan.epilogs.get(number) else { return };
        let kill_at = epilog.limit_ms.and_then(|limit| now.steady_ms.checked_add(limit));
        self.tasks[task] = Task::Epilog { exit, number, kill_at };
        out.push(Effect::StartEpilog { task, number });
    }

    fn run_out_of_memory(&mut self, now: Now, out: &mut Vec<Effect>) {
        if !std::mem::replace(&mut self.out_of_memory, true) {
            out.push(Effect::Notice(Notice::OutOfMemory));
            if self.plan.ends_out_of_memory {
                self.end(Cause::OutOfMemory, Some(0), now, out);
            }
        }
    }

    fn suspend(&mut self, stop: bool, out: &mut Vec<Effect>) {
        let (Life::Starting { is_suspended, .. } | Life::Running { is_suspended }) = &mut self.life else {
            return;
        };
        let was_suspended = std::mem::replace(is_suspended, stop);
        match (was_suspended, stop) {
            (_, true) => out.push(Effect::Freeze),
            (true, false) => out.push(Effect::Resume),
            (false, false) => {}
        }
    }

    fn signal(&self, signal: i32, tasks_only: bool, out: &mut Vec<Effect>) {
        let (Life::Starting { is_suspended: true, .. } | Life::Running { is_suspended: true }) = self.life
        else {
            return out.push(Effect::Signal { signal, tasks_only });
        };
        // A suspended step resumes only when its suspension ends.
        if signal != i32::from(Signal::CONT.number()) {
            out.push(Effect::Signal { signal, tasks_only });
        }
    }

    fn terminate(
        &mut self,
        kill_wait_ms: Option<u64>,
        notice: Option<String>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        if let Some(text) = notice.filter(|_| !self.is_told_to_end()) {
            out.push(Effect::Notice(Notice::Text(text)));
            out.push(Effect::Tell(News::Cancelled));
        }
        self.end(Cause::Terminated, kill_wait_ms, now, out);
    }

    /// Ends the step. If there is time, TERM comes first; KILL follows after `wait_ms`, or, with `None`, by a
    /// later order. An order to a step that is ending can only bring KILL forward.
    fn end(&mut self, cause: Cause, wait_ms: Option<u64>, now: Now, out: &mut Vec<Effect>) {
        let at = wait_ms.and_then(|wait| now.steady_ms.checked_add(wait));
        let has_time = wait_ms != Some(0);
        match &mut self.life {
            Life::Starting { is_suspended, .. } | Life::Running { is_suspended } => {
                if *is_suspended && has_time {
                    out.push(Effect::Resume);
                }
                if has_time {
                    out.push(Effect::Term);
                }
                self.life = Life::Ending { cause, kill_at: at, is_killed: false };
                self.give_up_launches(now, out);
            }
            Life::Ending { cause: known, kill_at, .. } => {
                if *known == Cause::Finished {
                    *known = cause;
                }
                *kill_at = [*kill_at, at].into_iter().flatten().min();
            }
            Life::Draining { .. } => return,
        }
        if !has_time {
            self.kill(out);
        }
    }

    fn kill(&mut self, out: &mut Vec<Effect>) {
        if let Life::Ending { is_killed, .. } = &mut self.life {
            *is_killed = true;
            out.push(Effect::Kill);
        }
    }

    /// Gives up the tasks that were not launched. Subscribers are informed of a failed launch as a whole, not
    /// of each task's end.
    fn give_up_launches(&mut self, now: Now, out: &mut Vec<Effect>) {
        let status = self.failure.as_ref().map_or(ExitCode::signaled(9), LaunchFailure::status);
        let waiting = self.tasks.iter_mut().enumerate().filter(|(_, task)| **task == Task::Waiting);
        for (index, task) in waiting {
            let exit =
                TaskExit { global: self.plan.ranks[index], status, core_dumped: false, at_ms: now.unix_ms };
            *task = Task::Over(exit);
            out.push(Effect::GiveUp { task: index });
            if self.failure.is_none() {
                out.push(Effect::Tell(News::TaskEnded(exit)));
            }
        }
    }

    fn take_time(&mut self, now: Now, out: &mut Vec<Effect>) {
        let is_due = |at: u64| at <= now.steady_ms;
        if self.helpers.kill_at.take_if(|at| is_due(*at)).is_some() {
            out.push(Effect::KillHelpers);
        }
        for (index, task) in self.tasks.iter_mut().enumerate() {
            if let Task::Epilog { kill_at, .. } = task
                && kill_at.take_if(|at| is_due(*at)).is_some()
            {
                out.push(Effect::KillEpilog { task: index });
            }
        }
        if !self.is_told_to_end() && self.limit_at.take_if(|at| is_due(*at)).is_some() {
            out.push(Effect::Notice(Notice::TimeLimit));
            out.push(Effect::Tell(News::Cancelled));
            self.end(Cause::TimeLimit, Some(AFTER_LIMIT_MS), now, out);
        }
        if let Life::Ending { kill_at: Some(at), is_killed: false, .. } = self.life
            && is_due(at)
        {
            self.kill(out);
        }
    }

    /// Continues as far as the tasks allow: launches the next ones, or ends the step with the last.
    fn go_on(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.launch(now, out);
        if !self.are_tasks_over() {
            return;
        }
        match &mut self.life {
            Life::Starting { .. } | Life::Running { .. } => {
                let (cause, kill_at) = (Cause::Finished, Some(now.steady_ms));
                self.life = Life::Ending { cause, kill_at, is_killed: true };
            }
            Life::Ending { kill_at, is_killed, .. } => {
                *kill_at = Some(kill_at.unwrap_or(now.steady_ms).min(now.steady_ms));
                *is_killed = true;
            }
            Life::Draining { .. } => return,
        }
        if self.server == Server::Present && !self.is_needed() {
            self.server = Server::Leaving;
            self.add_helper(now);
            out.push(Effect::EndServer);
        }
    }

    fn launch(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Life::Starting { next, gate: Gate::Open, is_suspended: false } = &mut self.life else { return };
        let under_way = self.tasks.iter().filter(|task| **task == Task::Launching).count();
        for _ in under_way..self.plan.launched_together.max(1) {
            let Some(task) = self.tasks.get_mut(*next) else { break };
            *task = Task::Launching;
            out.push(Effect::Launch { task: *next });
            *next += 1;
        }
        if *next == self.tasks.len() && !self.tasks.contains(&Task::Launching) {
            self.life = Life::Running { is_suspended: false };
            self.started_ms = Some(now.unix_ms);
            out.push(Effect::Tell(News::Started { at_ms: now.unix_ms }));
        }
    }

    fn emptied(&mut self, patience_ms: u64, now: Now, out: &mut Vec<Effect>) {
        if !self.asks_for_processes() || self.is_needed() {
            return;
        }
        let Life::Ending { cause, .. } = self.life else { return };
        let record = Record {
            started_ms: self.started_ms,
            ended_ms: now.unix_ms,
            tasks: self.tasks.iter().filter_map(Task::exit).collect(),
            failure: self.failure.clone(),
            out_of_memory: self.out_of_memory,
        };
        out.push(Effect::WriteRecord { is_first: true });
        out.push(Effect::Tell(News::Ended));
        let leave_at = now.steady_ms.saturating_add(patience_ms);
        self.life = Life::Draining { record, cause, disk: Disk::Writing, leave_at };
    }

    /// Handles an input after the step has ended: its record is written, and readers take the remaining
    /// output.
    fn drain(&mut self, now: Now, input: &Input, out: &mut Vec<Effect>) {
        let Life::Draining { disk, leave_at, .. } = &mut self.life else { return };
        match input {
            Input::Recorded { outcome: Outcome::Written | Outcome::Acknowledged } => *disk = Disk::Done,
            Input::Recorded { outcome: Outcome::Refused } if *disk != Disk::Done => {
                *disk = Disk::Refused { again_at: now.steady_ms.saturating_add(WRITE_AGAIN_MS) };
            }
            Input::Time if matches!(disk, Disk::Refused { again_at } if *again_at <= now.steady_ms) => {
                *disk = Disk::Writing;
                out.push(Effect::WriteRecord { is_first: false });
            }
            // The step waited for a reader.
            Input::Attached { patience_ms } => *leave_at = now.steady_ms.saturating_add(*patience_ms),
            _ => {}
        }
        let is_unneeded = *input == Input::ReaderGone || *leave_at <= now.steady_ms;
        if *disk == Disk::Done && is_unneeded {
            out.push(Effect::Exit);
        }
    }
}
