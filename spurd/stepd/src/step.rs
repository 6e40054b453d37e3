//! spurstepd: one process that runs one step on one node, from its order to its exit record.
//!
//! It has one thread and one loop around poll(2); every wait is for an event. It promises: an attempt whose record
//! exists is not run again; what it starts is either running below it or in the record; when it says `Ended`,
//! no process of the step is left; it needs nobody to go on, and serves whoever connects.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use nix::sys::signalfd::SignalFd;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, Signal};
use spur_core::text::exit::ExitCode as TaskStatus;
use step_wire::message::{Ack, Event, Frame, Request, SignalScope, Stream};
use step_wire::notice::cancelled;
use step_wire::order::{Input, Output, StepOrder};
use step_wire::process::Process;
use step_wire::record::{ExitRecord, LaunchFailure, LaunchStage};

use crate::confine::group::Group;
use crate::confine::meter::Meter;
use crate::confine::tree;
use crate::connection::Connection;
use crate::mpi::Mpi;
use crate::setup;
use crate::stream::{self, Incoming, Kept, Outgoing};
use crate::task::child::{self, Pipes, Plan};
use crate::task::terminal::Terminal;
use crate::task::{self, Launching, Task, fork, terminal};

/// How long a peer that does not read may keep spurstepd from ending, once everything else is done.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Messages that may be on their way to a file that takes none; more are lost.
const NOTICES: usize = 16;

/// How long a disk is left alone that did not take the record of the step's end.
const WRITE_AGAIN: Duration = Duration::from_secs(1);

/// How long the processes of a step have to end when its time limit is over.
const AFTER_LIMIT: Duration = Duration::from_secs(30);

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

/// What poll(2) found ready.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Signals,
    Listener,
    Connection(usize, PollFlags),
    Report,
    Output(usize, Stream),
    Input,
    Group,
    Memory,
    Pmi(usize),
    Pmix,
}

/// The step.
pub(crate) struct Shim {
    pub(crate) order: StepOrder,
    pub(crate) environment: Vec<u8>,
    pub(crate) argv: Vec<String>,
    pub(crate) signals: SignalFd,
    pub(crate) listener: UnixListener,
    pub(crate) connections: Vec<Connection>,
    pub(crate) group: Option<Group>,
    pub(crate) tasks: Vec<Task>,
    pub(crate) meter: Meter,
    /// It was seen to use more memory than it may.
    pub(crate) over_memory: bool,
    /// Its user has been told that memory ran out.
    pub(crate) memory_told: bool,
    pub(crate) launching: Option<Launching>,
    pub(crate) input: Incoming,
    pub(crate) mpi: Option<Mpi>,
    pub(crate) terminal: Option<Terminal>,
    pub(crate) started_ms: Option<u64>,
    pub(crate) failure: Option<LaunchFailure>,
    /// The step is being ended; no more tasks are started.
    pub(crate) terminated: bool,
    /// Every process of the step is stopped; no more tasks are started for now.
    pub(crate) stopped: bool,
    pub(crate) kill_at: Option<Instant>,
    /// When its own time limit ends it.
    pub(crate) limit_at: Option<Instant>,
    /// Processes of spurstepd's own that are about to end: those that write notices, and what served the tasks. And until
    /// when they may.
    pub(crate) notices: Vec<Pid>,
    pub(crate) notices_until: Option<Instant>,
    /// There is no child left to wait for.
    pub(crate) childless: bool,
    pub(crate) record: Option<ExitRecord>,
    /// When the disk is tried again that did not take the record.
    pub(crate) write_at: Option<Instant>,
    pub(crate) leave_at: Option<Instant>,
    pub(crate) _lock: File,
}

impl Shim {
    pub(crate) fn run(mut self, spurd: Connection) -> io::Result<()> {
        let mut spurd = spurd;
        spurd.subscribed = true;
        let early = spurd.frames();
        self.connections.push(spurd);
        self.handle(0, early);
        if self.failure.is_some() {
            self.terminate(Some(Duration::ZERO));
        } else {
            self.start_mpi();
        }
        self.launch_next();
        self.settle();
        while !self.may_leave() {
            for source in self.wait()? {
                self.serve(source);
            }
            self.settle();
        }
        Ok(())
    }

    /// Waits for the next thing to happen.
    pub(crate) fn wait(&self) -> io::Result<Vec<Source>> {
        let sources = self.sources();
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(fd, flags, _)| PollFd::from_borrowed_fd(*fd, *flags)).collect();
        let due = self.mpi.as_ref().and_then(Mpi::due);
        let times = [self.kill_at, self.leave_at, self.notices_until, due, self.limit_at, self.write_at];
        let epilogs = self.tasks.iter().map(|task| task.epilog.and_then(|(_, until)| until));
        let deadline = times.into_iter().chain([self.look_at()]).chain(epilogs).flatten().min();
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

    pub(crate) fn sources(&self) -> Vec<(BorrowedFd<'_>, PollFlags, Source)> {
        let mut sources = vec![
            (self.signals.as_fd(), PollFlags::IN, Source::Signals),
            (self.listener.as_fd(), PollFlags::IN, Source::Listener),
        ];
        for (index, connection) in self.connections.iter().enumerate() {
            let writing = if connection.pending() { PollFlags::OUT } else { PollFlags::empty() };
            sources.push((connection.as_fd(), PollFlags::IN | writing, Source::Connection(index, writing)));
        }
        if let Some(launching) = &self.launching {
            sources.push((launching.as_fd(), PollFlags::IN, Source::Report));
        }
        for (index, task) in self.tasks.iter().enumerate() {
            for (stream, outgoing) in task.streams() {
                sources
                    .extend(outgoing.readable().map(|fd| (fd, PollFlags::IN, Source::Output(index, stream))));
            }
        }
        sources.extend(self.mpi.iter().flat_map(Mpi::sources));
        sources.extend(self.input.writable().map(|fd| (fd, PollFlags::OUT, Source::Input)));
        if let Some(group) = self.group.as_ref().filter(|_| self.record.is_none()) {
            let watch = group.watch().filter(|_| self.all_ended());
            sources.extend(watch.map(|fd| (fd, PollFlags::PRI, Source::Group)));
            sources.extend(group.memory_events().map(|fd| (fd, PollFlags::IN, Source::Memory)));
        }
        sources
    }

    pub(crate) fn serve(&mut self, source: Source) {
        match source {
            Source::Signals => {
                // Only the news that there is some matters; what ended is asked of the kernel.
                while let Ok(Some(_)) = self.signals.read_signal() {}
                self.reap();
            }
            Source::Listener => self.admit(),
            Source::Connection(index, ready) => {
                if ready.contains(PollFlags::OUT) {
                    self.connections[index].flush();
                }
                if ready.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                    let frames = self.connections[index].receive();
                    self.handle(index, frames);
                }
            }
            Source::Report => {
                if self.launching.as_mut().is_some_and(Launching::advance) {
                    self.conclude_launch();
                }
            }
            Source::Output(index, stream) => {
                let filled = self.tasks[index].stream(stream).and_then(stream::Outgoing::fill);
                if let Some((offset, bytes)) = filled {
                    if bytes.is_empty() {
                        // While there is a reader: whoever was killed has closed it.
                        self.tell_of_memory();
                    }
                    self.show(index, stream, offset, bytes);
                }
            }
            Source::Input => self.input.advance(),
            Source::Pmi(index) => self.serve_pmi(index),
            Source::Pmix => self.serve_pmix(),
            Source::Group => {}
            Source::Memory => self.memory_is_short(),
        }
    }

    /// Does what has become possible: kills what is due, moves streams on, ends the step.
    pub(crate) fn settle(&mut self) {
        if self.kill_at.is_some_and(|at| at <= Instant::now()) {
            self.kill_at = None;
            self.kill_all();
        }
        if self.notices_until.is_some_and(|at| at <= Instant::now()) {
            self.notices_until = None;
            for pid in self.notices.drain(..) {
                // An id that was not waited for is not handed out again.
                let _ = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        if self.limit_at.is_some_and(|at| at <= Instant::now()) {
            self.limit_at = None;
            self.time_is_up();
        }
        if self.look_at().is_some_and(|at| at <= Instant::now()) {
            self.look();
        }
        self.end_late_epilogs();
        self.settle_mpi();
        let may_end = self.all_ended() && !self.serves_others();
        if may_end {
            self.end_mpi();
        }
        if self.all_ended() && self.record.is_none() && self.emptied() && may_end && !self.tell_of_memory() {
            self.end();
        }
        if self.write_at.is_some_and(|at| at <= Instant::now()) {
            self.leave_record();
        }
        self.pump();
        self.connections.retain(|connection| !connection.closed());
    }

    pub(crate) fn admit(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            match Connection::new(stream, Vec::new()) {
                Ok(connection) => self.connections.push(connection),
                Err(error) => eprintln!("spurstepd: a connection could not be taken up: {error}"),
            }
        }
    }

    pub(crate) fn handle(&mut self, index: usize, frames: Vec<Frame>) {
        for frame in frames {
            match frame {
                Frame::Request(request) => self.fulfil(index, request),
                Frame::Input(part) if self.connections[index].attached => {
                    if let Err(error) = self.input.accept(&part) {
                        eprintln!("spurstepd: input refused: {error}");
                        self.connections[index].close();
                    }
                }
                Frame::Peer(message) => self.hear_peer(index, &message),
                Frame::Ack(Ack::Output { task, stream, offset, end }) if self.connections[index].attached => {
                    let task = self.tasks.iter_mut().find(|known| known.order.global == task);
                    if let Some(outgoing) = task.and_then(|task| task.stream(stream)) {
                        outgoing.acknowledge(offset, end);
                    }
                }
                // From one who was attached before: what it says about the streams is out of date.
                Frame::Input(_) | Frame::Ack(Ack::Output { .. }) => {}
                Frame::Launch(_) | Frame::Event(_) | Frame::Output(_) | Frame::Ack(Ack::Input { .. }) => {
                    eprintln!("spurstepd: a frame that only spurstepd sends; connection closed");
                    self.connections[index].close();
                }
            }
        }
    }

    pub(crate) fn fulfil(&mut self, index: usize, request: Request) {
        match request {
            Request::Subscribe => {
                let status = Event::Status {
                    order: Box::new(self.order.clone()),
                    started_ms: self.started_ms,
                    pids: self.pids(),
                    ended: self.tasks.iter().filter_map(|task| task.exit).collect(),
                };
                let wanted = self.uplink_wanted();
                let connection = &mut self.connections[index];
                connection.subscribed = true;
                connection.send(&Frame::Event(status));
                if let Some(wanted) = wanted {
                    connection.send(&Frame::Event(wanted));
                }
                if let Some(record) = &self.record {
                    connection.send(&Frame::Event(Event::Ended(record.clone())));
                }
            }
            Request::Signal { signal, scope } => self.signal(signal, scope),
            Request::Suspend { stop } => {
                self.suspend(stop);
                if stop {
                    self.connections[index].send(&Frame::Event(Event::Stopped));
                }
            }
            Request::Terminate { kill_wait_ms, notice } => {
                // The user is told once.
                if let Some(notice) = notice.filter(|_| !self.terminated) {
                    self.notice(&notice);
                    self.tell(&Event::Cancelled);
                }
                self.terminate(kill_wait_ms.map(Duration::from_millis));
            }
            Request::Notice { text } if self.record.is_none() && self.notices.len() < NOTICES => {
                self.notice(&text)
            }
            Request::Notice { .. } => {}
            Request::Usage => self.tell_usage(index),
            Request::Resize { window } => {
                if let Some(Err(error)) = self.terminal.as_ref().map(|terminal| terminal.resize(window)) {
                    eprintln!("spurstepd: the terminal keeps its size: {error}");
                }
            }
            Request::Attach => self.attach(index),
            Request::Watch => self.connections[index].watching = true,
            Request::Discard => {
                let streams = self.tasks.iter_mut().flat_map(Task::streams_mut);
                streams.for_each(|(_, outgoing)| outgoing.discard());
            }
            Request::Peer { node } => self.join_peer(index, Some(&node)),
            Request::Uplink => self.join_peer(index, None),
            Request::UplinkLost { why } => self.uplink_lost(&why),
        }
    }

    pub(crate) fn attach(&mut self, index: usize) {
        for (other, connection) in self.connections.iter_mut().enumerate() {
            if connection.attached && other != index {
                connection.attached = false;
                connection.send(&Frame::Event(Event::Detached));
            }
        }
        self.tasks.iter_mut().flat_map(Task::streams_mut).for_each(|(_, outgoing)| outgoing.rewind());
        let state = self.input.restate();
        self.connections[index].attached = true;
        self.connections[index].send(&Frame::Ack(state));
        // What kept spurstepd waiting was a reader.
        self.leave_at = self.leave_at.map(|_| Instant::now() + self.output_wait());
    }

    /// Sends output and acknowledgements to the reader as far as it takes them.
    pub(crate) fn pump(&mut self) {
        let Some(reader) = self.connections.iter_mut().find(|one| one.attached && !one.closed()) else {
            return;
        };
        if let Some(ack) = self.input.acknowledgement() {
            reader.send(&Frame::Ack(ack));
        }
        for task in &mut self.tasks {
            let global = task.order.global;
            for (stream, outgoing) in task.streams_mut() {
                while reader.has_room() {
                    let Some(part) = outgoing.next_part(global, stream) else { break };
                    reader.send(&Frame::Output(part));
                }
            }
        }
    }

    pub(crate) fn tell(&mut self, event: &Event) {
        let subscribed = self.connections.iter_mut().filter(|connection| connection.subscribed);
        subscribed.for_each(|connection| connection.send(&Frame::Event(event.clone())));
    }

    pub(crate) fn pids(&self) -> Vec<u32> {
        self.tasks.iter().filter_map(|task| task.pid).map(|pid| pid.as_raw_pid().unsigned_abs()).collect()
    }

    /// Starts the next task; one at a time, so that the first to use a file has emptied it before the next writes.
    pub(crate) fn launch_next(&mut self) {
        let unserved = self.mpi.as_ref().is_some_and(Mpi::is_starting);
        if unserved || self.launching.is_some() || self.terminated || self.stopped {
            return;
        }
        let Some(index) = self.tasks.iter().position(|task| task.pid.is_none()) else {
            self.input.complete();
            self.started_ms = Some(now_ms());
            let event = Event::Started { at_ms: now_ms(), pids: self.pids() };
            self.tell(&event);
            return;
        };
        if let Err(error) = self.launch(index) {
            let message = format!("task {}: {error}", self.tasks[index].order.global);
            self.fail(LaunchFailure { stage: LaunchStage::Fork, message });
        }
    }

    pub(crate) fn launch(&mut self, index: usize) -> io::Result<()> {
        let mut pipes = Pipes::default();
        let task = &mut self.tasks[index];
        let window = self.order.terminal.filter(|_| task.order.global == 0);
        if let Some(window) = window {
            let (terminal, slave) = terminal::open(window, &self.order.identity)?;
            pipes.terminal = Some(slave);
            task.stdout = Some(Outgoing::new(terminal.end()?));
            if task.order.stdin == Input::Stream {
                self.input.connect_terminal(terminal.end()?);
            }
            self.terminal = Some(terminal);
        }
        if window.is_none() && task.order.stdin == Input::Stream {
            let (kept, given) = stream::pipe(Kept::Write)?;
            pipes.stdin = Some(given);
            self.input.connect(kept);
        }
        if window.is_none() && task.order.stdout == Output::Stream {
            let (kept, given) = match self.order.unbuffered {
                true => terminal::raw(&self.order.identity)?,
                false => stream::pipe(Kept::Read)?,
            };
            pipes.stdout = Some(given);
            task.stdout = Some(Outgoing::new(kept));
        }
        if window.is_none() && task.order.stderr == Output::Stream {
            let (kept, given) = stream::pipe(Kept::Read)?;
            pipes.stderr = Some(given);
            task.stderr = Some(Outgoing::new(kept));
        }
        if let Some(mpi) = &mut self.mpi {
            pipes.mpi = mpi.connect(index)?;
        }
        let truncate = task::first_users(&self.tasks, index);
        let task = &self.tasks[index].order;
        let plan = Plan {
            order: &self.order,
            task,
            environment: &self.environment,
            argv: if task.argv.is_empty() { &self.argv } else { &task.argv },
            truncate,
            group: self.group.as_ref(),
            is_task: true,
        };
        let child = child::spawn(&plan, pipes)?;
        self.childless = false;
        self.tasks[index].pid = Some(child.pid);
        self.meter.started(index, child.pid);
        self.launching = Some(Launching::new(index, child.report));
        Ok(())
    }

    /// The report of the task being launched is complete: it runs, or it told why not.
    pub(crate) fn conclude_launch(&mut self) {
        let Some(launching) = self.launching.take() else { return };
        let (index, outcome) = launching.conclude();
        match outcome {
            Ok(stderr) => {
                self.tasks[index].stderr_file = stderr;
                self.launch_next();
            }
            Err(failure) => {
                self.tasks[index].failed = true;
                self.fail(failure);
            }
        }
    }

    /// The step cannot be started: what runs of it is killed.
    pub(crate) fn fail(&mut self, failure: LaunchFailure) {
        eprintln!("spurstepd: {}: {}", self.order.attempt, failure.message);
        self.failure.get_or_insert(failure);
        self.terminate(Some(Duration::ZERO));
    }

    /// Waits for every child that has ended.
    pub(crate) fn reap(&mut self) {
        loop {
            match fork::ended_child() {
                Ok(Some(pid)) => {
                    // What it read and wrote is known until it is waited for.
                    let look = (!self.is_ours(pid)).then(|| self.meter.last_look(pid));
                    let Ok(reaped) = fork::reap(pid) else { continue };
                    if let Some(look) = look {
                        self.meter.ended(look, &reaped);
                    }
                    if reaped.status == libc::SIGKILL {
                        self.memory_is_short();
                    }
                    self.reaped(pid, reaped.status);
                }
                Ok(None) => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => {
                    self.childless = true;
                    return;
                }
            }
        }
    }

    /// Whether it is a process of spurstepd's own, which the step need not answer for.
    pub(crate) fn is_ours(&self, pid: Pid) -> bool {
        self.notices.contains(&pid)
            || self.tasks.iter().any(|task| task.has_epilog(pid))
            || self.mpi.as_ref().and_then(Mpi::helper) == Some(pid)
    }

    pub(crate) fn reaped(&mut self, pid: Pid, status: i32) {
        if self.launching.as_ref().is_some_and(|launching| self.tasks[launching.index].pid == Some(pid)) {
            // It is dead, so its report is complete, whether or not poll has said so yet.
            if self.launching.as_mut().is_some_and(Launching::advance) {
                self.conclude_launch();
            }
        }
        if let Some(index) = self.notices.iter().position(|notice| *notice == pid) {
            self.notices.swap_remove(index);
            self.notices_until = self.notices_until.filter(|_| !self.notices.is_empty());
            return;
        }
        if let Some(index) = self.tasks.iter().position(|task| task.has_epilog(pid)) {
            return self.next_epilog(index);
        }
        if self.mpi_helper_ended(pid) {
            return;
        }
        let Some(index) = self.tasks.iter().position(|task| task.pid == Some(pid) && task.exit.is_none())
        else {
            return;
        };
        let mut exit = self.tasks[index].ended(status, self.failure.as_ref());
        // As with Slurm: once memory has run out, whatever the tasks that are left end with.
        if self.out_of_memory() {
            self.tell_of_memory();
            exit = self.tasks[index].out_of_memory(exit);
        }
        self.tell(&Event::TaskEnded(exit));
        self.mpi_task_ended(index);
        self.next_epilog(index);
    }

    /// Nothing that was begun for a task is under way.
    pub(crate) fn all_ended(&self) -> bool {
        self.notices.is_empty() && self.tasks.iter().all(|task| task.exit.is_some() && task.epilog.is_none())
    }

    /// The processes that tasks started, and the tasks.
    pub(crate) fn members(&self) -> Vec<Process> {
        match &self.group {
            Some(group) => group.members(),
            None => {
                let all = tree::descendants(rustix::process::getpid().as_raw_pid());
                let helper = self.mpi.as_ref().and_then(Mpi::helper);
                let own: Vec<i32> =
                    self.notices.iter().copied().chain(helper).map(|pid| pid.as_raw_pid()).collect();
                all.into_iter().filter(|process| !own.contains(&process.pid)).collect()
            }
        }
    }

    pub(crate) fn signal(&mut self, number: i32, scope: SignalScope) {
        let Some(signal) = setup::signal(number) else { return };
        if self.stopped && signal == Signal::CONT {
            // What is stopped by order goes on by order.
            return;
        }
        match scope {
            SignalScope::All => self.members().into_iter().for_each(|process| process.signal(signal)),
            SignalScope::Tasks => {
                let running =
                    self.tasks.iter().filter(|task| task.exit.is_none()).filter_map(|task| task.pid);
                for pid in running {
                    // An id that was not waited for is not handed out again; a dead task needs no signal.
                    let _ = rustix::process::kill_process(pid, signal);
                }
            }
        }
    }

    /// Ends the step: politely first if there is time for that.
    pub(crate) fn terminate(&mut self, kill_wait: Option<Duration>) {
        self.terminated = true;
        self.input.complete();
        self.give_up_launches();
        if self.record.is_some() {
            return;
        }
        if kill_wait == Some(Duration::ZERO) {
            self.kill_at = None;
            self.kill_all();
            return;
        }
        self.suspend(false);
        for process in self.members() {
            process.signal(Signal::TERM);
            process.signal(Signal::CONT);
        }
        let at = kill_wait.and_then(|wait| Instant::now().checked_add(wait));
        self.kill_at = [self.kill_at, at].into_iter().flatten().min();
    }

    /// No more tasks are started. A failure of the launch is told once, not as the end of each task.
    fn give_up_launches(&mut self) {
        let status = self.failure.as_ref().map_or(TaskStatus::signaled(9), task::failure_status);
        let unlaunched = self.tasks.iter_mut().filter(|task| task.pid.is_none() && task.exit.is_none());
        let exits: Vec<_> = unlaunched.map(|task| task.never_ran(status)).collect();
        if self.failure.is_none() {
            exits.into_iter().for_each(|exit| self.tell(&Event::TaskEnded(exit)));
        }
    }

    /// The step's own time limit is over.
    pub(crate) fn time_is_up(&mut self) {
        if self.terminated || self.record.is_some() {
            return;
        }
        self.notice(&cancelled(self.order.attempt, &self.order.node, "DUE TO TIME LIMIT"));
        self.tell(&Event::Cancelled);
        self.terminate(Some(AFTER_LIMIT));
    }

    pub(crate) fn kill_all(&mut self) {
        match &self.group {
            Some(group) => group.kill(),
            None => {
                // Who is stopped makes no more processes while the others are killed.
                self.stop_all();
                self.members().into_iter().for_each(|process| process.signal(Signal::KILL));
            }
        }
    }

    /// True when no process of the step is left; what is left is killed, and its end is the next event.
    pub(crate) fn emptied(&mut self) -> bool {
        self.reap();
        let populated = self.group.as_ref().and_then(Group::populated);
        let empty = populated.map_or(self.childless, |populated| !populated);
        if !empty {
            self.kill_all();
        }
        empty
    }

    /// The step is over: leaves the record and says so.
    pub(crate) fn end(&mut self) {
        let out_of_memory = self.out_of_memory();
        let record = ExitRecord {
            attempt: self.order.attempt,
            started_ms: self.started_ms,
            ended_ms: now_ms(),
            tasks: self.tasks.iter().filter_map(|task| task.exit).collect(),
            failure: self.failure.clone(),
            out_of_memory,
            usage: Some(Box::new(self.meter.usage(true))),
        };
        if let Some(group) = self.group.take() {
            group.remove();
        }
        self.record = Some(record.clone());
        self.leave_record();
        self.tell(&Event::Ended(record));
        self.kill_at = None;
        self.leave_at = Some(Instant::now() + self.output_wait());
    }

    /// Writes the record into the spool. While the disk refuses it, this process is the record: it stays, with the lock
    /// that says so, and tells everybody who asks. Once the end is acknowledged spurd removes the directory.
    pub(crate) fn leave_record(&mut self) {
        let Some(record) = &self.record else { return };
        let told = self.write_at.take().is_some();
        match setup::write_record(record) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                if !told {
                    eprintln!("spurstepd: {}: the exit cannot be written: {error}", self.order.attempt);
                }
                self.write_at = Some(Instant::now() + WRITE_AGAIN);
            }
        }
    }

    pub(crate) fn output_wait(&self) -> Duration {
        let undelivered = self.tasks.iter().flat_map(Task::streams).any(|(_, outgoing)| !outgoing.done());
        if undelivered { Duration::from_millis(self.order.output_wait_ms) } else { LAST_WORDS }
    }

    /// True when nobody needs this process any more.
    pub(crate) fn may_leave(&self) -> bool {
        let Some(leave_at) = self.leave_at.filter(|_| self.write_at.is_none()) else { return false };
        let delivered = self.tasks.iter().flat_map(Task::streams).all(|(_, outgoing)| outgoing.done());
        let said = self.connections.iter().all(|connection| !connection.pending());
        (delivered && said) || leave_at <= Instant::now()
    }
}

/// Takes bytes, and what files come with them: two at most.
pub(crate) fn receive_with_descriptors(
    socket: &UnixStream,
    bytes: &mut [u8],
) -> rustix::io::Result<(usize, Vec<File>)> {
    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [io::IoSliceMut::new(bytes)];
    let received = rustix::net::recvmsg(socket, &mut slices, &mut control, RecvFlags::CMSG_CLOEXEC)?;
    let descriptors = control.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    Ok((received.bytes, descriptors.flatten().map(File::from).collect()))
}
