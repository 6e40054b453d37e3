//! The shell around the life of a step: turns the results of poll(2) into inputs, and carries out the
//! effects.
//!
//! The shell has one thread and one loop around poll(2), and promises:
//!
//! * An attempt with a record is not run again.
//! * A started process is either below spurstepd or in the record.
//! * No process of the step is left when `Ended` is reported.
//! * The shell needs no other process to continue, and serves every connection.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use spur_core::compute::step::{Effect, Epilog, Input, News, Notice, Outcome, Plan, Step};
use step_wire::message::{Event, OutputPart, Stream};
use step_wire::notice::cancelled;
use step_wire::order::StepOrder;
use step_wire::record::{ExitRecord, LaunchFailure, LaunchStage};

use crate::clients::Clients;
use crate::clock::Clock;
use crate::confine::processes::{Ended, Processes};
use crate::connection::Connection;
use crate::mpi::{self, Mpi, Progress, ServerState};
use crate::setup::{self, Prepared};
use crate::stream::Outgoing;
use crate::task::set::{self, Tasks};
use crate::task::{self, Launching};

/// Longest delay of spurstepd's end by a client that does not read, once everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// A source of events that poll(2) found ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    Signals,
    Listener,
    Connection(usize, PollFlags),
    Report(usize),
    Output(usize, Stream),
    Input,
    Group,
    Memory,
    Mpi(mpi::Source),
}

/// A step, and everything that carries out its life.
pub(crate) struct Shell {
    pub(crate) order: StepOrder,
    pub(crate) life: Step,
    /// Inputs that the life has not handled yet.
    inputs: VecDeque<Input>,
    clock: Clock,
    pub(crate) clients: Clients,
    pub(crate) tasks: Tasks,
    pub(crate) processes: Processes,
    pub(crate) mpi: Option<Mpi>,
    failure: Option<LaunchFailure>,
    is_done: bool,
    _lock: File,
}

impl Shell {
    pub(crate) fn new(prepared: Prepared) -> Shell {
        let Prepared { order, environment, argv, listener, signals, group, failure, lock } = prepared;
        let (clock, mpi) = (Clock::start(), Mpi::new(&order));
        let plan = Plan {
            ranks: order.tasks.iter().map(|task| task.global).collect(),
            epilogs: set::epilogs(&order).map(|(_, limit_ms)| Epilog { limit_ms }).collect(),
            // Tasks start one at a time, so that the first to use a file truncates it before the next writes.
            launched_together: 1,
            has_server: mpi.as_ref().is_some_and(Mpi::has_server),
            time_limit_ms: order.time_limit.map(|seconds| seconds.saturating_mul(1000)),
            ends_out_of_memory: order.sampled_memory_bytes > 0 || order.oom_kill_step,
        };
        Shell {
            life: Step::new(plan, clock.now()),
            inputs: VecDeque::new(),
            clock,
            clients: Clients { listener, all: Vec::new() },
            tasks: Tasks::new(&order, environment, argv),
            processes: Processes::new(&order, signals, group),
            mpi,
            failure,
            is_done: false,
            _lock: lock,
            order,
        }
    }

    /// Runs the step to its end, beginning with the frames that `spurd` has already received.
    pub(crate) fn run(mut self, spurd: Connection) -> io::Result<()> {
        let mut spurd = spurd;
        spurd.subscribed = true;
        let early = spurd.frames();
        self.clients.all.push(spurd);
        self.handle(0, early);
        match self.failure.take() {
            Some(failure) => self.fail(failure),
            None => self.feed(Input::Begin),
        }
        self.settle();
        while !self.is_done {
            for source in self.wait()? {
                self.serve(source);
            }
            self.settle();
        }
        Ok(())
    }

    /// Waits for the next event, and returns its sources.
    fn wait(&self) -> io::Result<Vec<Source>> {
        let sources = self.sources();
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let life = self.life.due().and_then(|due| self.clock.at(due));
        let deadline =
            [life, self.mpi.as_ref().and_then(Mpi::due), self.look_at()].into_iter().flatten().min();
        let timeout = deadline.map(|at| {
            let left = at.saturating_duration_since(Instant::now());
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        match rustix::event::poll(&mut fds, timeout.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let ready = sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty());
        Ok(ready
            .map(|((_, _, source), fd)| match source {
                Source::Connection(index, _) => Source::Connection(*index, fd.revents()),
                other => *other,
            })
            .collect())
    }

    fn sources(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Source)> {
        let mut sources = vec![
            (self.processes.signals.as_fd(), PollFlags::IN, Source::Signals),
            (self.clients.listener.as_fd(), PollFlags::IN, Source::Listener),
        ];
        for (index, connection) in self.clients.all.iter().enumerate() {
            let writing = if connection.pending() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push((connection.as_fd(), PollFlags::IN | writing, Source::Connection(index, writing)));
        }
        for (index, task) in self.tasks.all.iter().enumerate() {
            let report = task.launching.iter();
            sources.extend(report.map(|report| (report.as_fd(), PollFlags::IN, Source::Report(index))));
            for (stream, outgoing) in task.streams() {
                sources
                    .extend(outgoing.readable().map(|fd| (fd, PollFlags::IN, Source::Output(index, stream))));
            }
        }
        let mpi = self.mpi.iter().flat_map(Mpi::sources);
        sources.extend(mpi.map(|(fd, flags, source)| (fd, flags, Source::Mpi(source))));
        sources.extend(self.tasks.input.writable().map(|fd| (fd, PollFlags::OUT, Source::Input)));
        if let Some(group) = self.processes.group.as_ref() {
            let watch = group.watch().filter(|_| self.life.asks_for_processes());
            sources.extend(watch.map(|fd| (fd, PollFlags::PRI, Source::Group)));
            sources.extend(group.memory_events().map(|fd| (fd, PollFlags::IN, Source::Memory)));
        }
        sources
    }

    fn serve(&mut self, source: Source) {
        match source {
            Source::Signals => {
                // The signal only announces ended children; the kernel names them.
                while let Ok(Some(_)) = self.processes.signals.read_signal() {}
                self.reap();
            }
            Source::Listener => self.clients.admit(),
            Source::Connection(index, ready) => {
                if ready.contains(PollFlags::OUT) {
                    self.clients.all[index].flush();
                }
                if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    let frames = self.clients.all[index].receive();
                    self.handle(index, frames);
                }
            }
            Source::Report(index) => self.advance_launch(index),
            Source::Output(index, stream) => self.take_output(index, stream),
            Source::Input => self.tasks.input.advance(),
            Source::Group => {}
            Source::Memory => self.processes.memory_is_short(),
            Source::Mpi(source) => {
                self.mpi.iter_mut().for_each(|mpi| mpi.serve(source));
                self.note_server();
            }
        }
    }

    /// Feeds due inputs to the step's life, moves streams on, and drops closed connections.
    fn settle(&mut self) {
        if self.life.due().is_some_and(|due| due <= self.clock.now().steady_ms) {
            self.feed(Input::Time);
        }
        if self.look_at().is_some_and(|at| at <= Instant::now()) {
            self.processes.look();
            self.check_memory();
        }
        self.settle_mpi();
        if self.life.asks_for_processes() {
            self.look_for_processes();
        }
        self.clients.pump(&mut self.tasks);
        self.clients.forget_closed();
        if self.life.record().is_some() && self.tasks.are_read() && self.clients.have_everything() {
            self.feed(Input::ReaderGone);
        }
    }

    /// Feeds an input to the step's life, and carries out its effects.
    pub(crate) fn feed(&mut self, input: Input) {
        self.inputs.push_back(input);
        while let Some(input) = self.inputs.pop_front() {
            let was_starting = self.life.is_starting();
            for effect in self.life.handle(self.clock.now(), input) {
                self.carry_out(effect);
            }
            if was_starting && !self.life.is_starting() {
                self.tasks.input.complete();
            }
        }
    }

    /// Reports a failure to start to the step's life.
    fn fail(&mut self, failure: LaunchFailure) {
        self.log(&failure);
        self.feed(Input::Failed { failure });
    }

    fn log(&self, failure: &LaunchFailure) {
        eprintln!("spurstepd: {}: {}", self.order.attempt, failure.message);
    }

    /// Carries out an effect. Its results are fed after the other effects of the same input.
    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::StartServer => self.start_server(),
            Effect::Launch { task } => self.launch(task),
            Effect::GiveUp { task } => self.tasks.all[task].give_up(),
            Effect::StartEpilog { task, number } => self.start_epilog(task, number),
            Effect::KillEpilog { task } => self.tasks.kill_epilog(task),
            Effect::Freeze => self.processes.freeze(true),
            Effect::Resume => self.processes.freeze(false),
            Effect::Term => self.processes.terminate(),
            Effect::Kill => self.processes.kill(),
            Effect::Signal { signal, tasks_only } => self.signal(signal, tasks_only),
            Effect::Notice(notice) => self.notice(&notice),
            Effect::Tell(news) => self.tell(news),
            Effect::EndServer => {
                self.processes.helpers.extend(self.processes.server.take());
                self.mpi.iter_mut().for_each(Mpi::end_server);
            }
            Effect::KillHelpers => self.processes.kill_helpers(),
            Effect::WriteRecord { is_first } => self.write_record(is_first),
            Effect::Exit => self.is_done = true,
        }
    }

    fn start_server(&mut self) {
        match self.mpi.as_mut().map(|mpi| mpi.start(&self.order)) {
            Some(Ok(pid)) => {
                self.processes.server = pid;
                self.processes.has_child();
            }
            Some(Err(failure)) => {
                self.log(&failure);
                self.inputs.push_back(Input::ServerEnded { failure });
            }
            None => {}
        }
    }

    fn launch(&mut self, index: usize) {
        let mpi = self.mpi.as_mut().map_or_else(|| Ok(Default::default()), |mpi| mpi.connect(index));
        let launched =
            mpi.and_then(|mpi| self.tasks.launch(index, &self.order, self.processes.group.as_ref(), mpi));
        match launched {
            Ok(pid) => {
                self.processes.has_child();
                self.processes.meter.started(index, pid);
            }
            Err(error) => {
                let message = format!("task {}: {error}", self.tasks.all[index].order.global);
                let failure = LaunchFailure { stage: LaunchStage::Fork, message };
                self.log(&failure);
                self.inputs.push_back(Input::NotForked { task: index, failure });
            }
        }
    }

    /// Reads the report of a task between fork and exec. At its end, the task runs or has named the reason
    /// why not.
    fn advance_launch(&mut self, index: usize) {
        let task = &mut self.tasks.all[index];
        let Some(launching) = task.launching.take_if(Launching::advance) else { return };
        match launching.conclude() {
            Ok(stderr) => {
                task.stderr_file = stderr;
                self.feed(Input::Launched { task: index });
            }
            Err(failure) => {
                self.log(&failure);
                self.feed(Input::NotLaunched { task: index, failure });
            }
        }
    }

    fn start_epilog(&mut self, index: usize, number: usize) {
        match self.tasks.start_epilog(index, number, &self.order, self.processes.group.as_ref()) {
            Ok(()) => self.processes.has_child(),
            Err(error) => {
                eprintln!("spurstepd: task epilog: {error}");
                self.inputs.push_back(Input::EpilogEnded { task: index });
            }
        }
    }

    fn signal(&self, number: i32, tasks_only: bool) {
        let Some(signal) = setup::signal(number) else { return };
        match tasks_only {
            true => self.tasks.signal(signal, |task| self.life.exit(task).is_some()),
            false => self.processes.signal(signal),
        }
    }

    /// Writes a line for the user. A helper process writes to a file, so that nothing waits.
    fn notice(&mut self, notice: &Notice) {
        let step = || format!("{}.{}", self.order.attempt.attempt.job, self.order.attempt.step.label());
        let line = match notice {
            Notice::Text(text) => text.clone(),
            Notice::TimeLimit => cancelled(self.order.attempt, &self.order.node, "DUE TO TIME LIMIT"),
            Notice::OutOfMemory => format!(
                "slurmstepd: error: Detected 1 oom_kill event in StepId={}. Some of the step tasks have been OOM Killed.",
                step()
            ),
        };
        if let Some(pid) = self.tasks.notice(&line) {
            self.processes.add_helper(pid);
            self.inputs.push_back(Input::HelperStarted);
        }
    }

    fn tell(&mut self, news: News) {
        let event = match news {
            News::Started { at_ms } => Event::Started { at_ms, pids: self.tasks.pids() },
            News::TaskEnded(exit) => Event::TaskEnded(exit),
            News::Cancelled => Event::Cancelled,
            News::Aborted { message } => Event::Aborted { message },
            News::Ended => match self.record() {
                Some(record) => Event::Ended(record),
                None => return,
            },
        };
        self.clients.tell(&event);
    }

    /// Returns the record of the step, once the step has ended.
    pub(crate) fn record(&self) -> Option<ExitRecord> {
        let record = self.life.record()?.clone();
        Some(ExitRecord::new(self.order.attempt, record, self.processes.usage(true)))
    }

    /// Writes the record into the spool.
    ///
    /// While the disk refuses, this process stands in for the record: it stays, holds the lock of the
    /// attempt, and answers requests. Once the end is acknowledged, spurd removes the directory.
    fn write_record(&mut self, is_first: bool) {
        if let Some(group) = self.processes.group.take() {
            group.remove();
        }
        let Some(record) = self.record() else { return };
        let outcome = match setup::write_record(&record) {
            Ok(()) => Outcome::Written,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Outcome::Acknowledged,
            Err(error) => {
                if is_first {
                    eprintln!("spurstepd: {}: the exit cannot be written: {error}", self.order.attempt);
                }
                Outcome::Refused
            }
        };
        self.inputs.push_back(Input::Recorded { outcome });
    }

    /// Reads the output of a task.
    fn take_output(&mut self, index: usize, stream: Stream) {
        let filled = self.tasks.all[index].stream(stream).and_then(Outgoing::fill);
        let Some((offset, bytes)) = filled else { return };
        let end = bytes.is_empty();
        if end {
            // While a client is still there: a task that was killed for its memory has closed the stream.
            self.check_memory();
        }
        if self.clients.has_watchers() {
            let task = self.tasks.all[index].order.global;
            self.clients.show(OutputPart { task, stream, offset, bytes, end });
        }
    }

    /// Waits for every child that has ended, and reports the ends to the step's life.
    fn reap(&mut self) {
        loop {
            let (processes, tasks) = (&mut self.processes, &self.tasks);
            match processes.reap(|pid| tasks.with_epilog(pid).is_some()) {
                Some(ended) => self.reaped(ended),
                None => return,
            }
        }
    }

    fn reaped(&mut self, Ended { pid, status }: Ended) {
        if let Some(index) = self.processes.helpers.iter().position(|helper| *helper == pid) {
            self.processes.helpers.swap_remove(index);
            self.feed(Input::HelperEnded);
        } else if let Some(task) = self.tasks.with_epilog(pid) {
            self.tasks.all[task].epilog = None;
            self.feed(Input::EpilogEnded { task });
        } else if self.processes.server == Some(pid) {
            self.server_ended();
        } else if let Some(task) = self.tasks.with_pid(pid).filter(|task| self.life.exit(*task).is_none()) {
            self.task_ended(task, status);
        }
    }

    fn server_ended(&mut self) {
        self.processes.server = None;
        let Some(mpi) = &mut self.mpi else { return };
        let was_starting = mpi.is_starting();
        let failure = mpi.server_ended();
        if was_starting {
            self.log(&failure);
        }
        self.feed(Input::ServerEnded { failure });
    }

    fn task_ended(&mut self, task: usize, status: i32) {
        // The task is dead, so its report is complete, even if poll(2) has not reported it yet.
        self.advance_launch(task);
        self.check_memory();
        self.mpi.iter_mut().for_each(|mpi| mpi.task_ended(task));
        self.note_need();
        let (status, core_dumped) = task::exit_of(status);
        self.feed(Input::TaskEnded { task, status, core_dumped });
    }

    fn look_for_processes(&mut self) {
        self.reap();
        match self.processes.are_gone() {
            true => {
                self.check_memory();
                self.feed(Input::Emptied { patience_ms: self.patience_ms() });
            }
            false => self.feed(Input::Left),
        }
    }

    /// Returns the instant of the next sample; `None` once the step has a record, or for no samples.
    fn look_at(&self) -> Option<Instant> {
        self.processes.look_at().filter(|_| self.life.record().is_none())
    }

    fn check_memory(&mut self) {
        if self.life.record().is_none() && !self.life.is_out_of_memory() && self.processes.is_out_of_memory()
        {
            self.feed(Input::OverMemory);
        }
    }

    fn note_need(&mut self) {
        if let Some(mpi) = &self.mpi {
            let by_others = mpi.is_needed_by_others();
            self.feed(Input::Needed { by_others });
        }
    }

    fn settle_mpi(&mut self) {
        let Some(mpi) = &mut self.mpi else { return };
        let progress = Progress {
            is_told_to_end: self.life.is_told_to_end(),
            have_tasks_ended: self.life.have_tasks_ended(),
        };
        if let Some(event) = mpi.carry_on(progress, &mut self.clients.all) {
            self.clients.tell(&event);
        }
        if let Some(message) = mpi.due_abort(&self.order, |task| self.life.exit(task)) {
            self.feed(Input::Abort { message });
        }
        self.note_server();
        self.note_need();
    }

    /// Reports to the step's life that the process that serves MPI programs serves, or cannot serve.
    fn note_server(&mut self) {
        match self.mpi.as_mut().and_then(Mpi::take_server_state) {
            Some(ServerState::Serving) => self.feed(Input::Served),
            Some(ServerState::Refused(failure)) => self.fail(failure),
            None => {}
        }
    }

    /// Returns the time that clients have for the remaining output, in milliseconds.
    pub(crate) fn patience_ms(&self) -> u64 {
        match self.tasks.are_read() {
            true => crate::clock::millis(LAST_WORDS),
            false => self.order.output_wait_ms,
        }
    }
}
