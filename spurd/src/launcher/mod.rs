//! spurd's side of a step: starts its spurstepd, follows it, and finds it again.
//!
//! A [`Step`] is a handle on a live spurstepd, which this spurd or an earlier one started. The step's
//! progress arrives as [`StepEvent`]s, in order; the last is `Refused`, `Ended` or `Lost`. This module makes
//! no decisions: the pure half of spurd and the controller do.

mod fork_server;

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_core::model::usage::Usage;
use step_wire::CONTROL_SOCKET;
use step_wire::attempt::StepAttempt;
use step_wire::message::{Ack, Event, Frame, InputPart, OutputPart, Request, Stream};
use step_wire::order::{Launch, ReadOrder, StepOrder};
use step_wire::process::{Process, processes};
use step_wire::record::{ExitRecord, LaunchStage, TaskExit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;

use self::fork_server::ForkServer;
use crate::node::groups::Groups;
use crate::spool::Spool;

/// The variable that marks every process of an attempt; its value is the attempt's directory.
pub const ATTEMPT_VARIABLE: &str = "SPURD_ATTEMPT";

/// Capacity of the queue of events; spurstepd waits while it is full.
const EVENTS: usize = 64;
/// Capacity of the queue of requests to spurstepd.
const REQUESTS: usize = 64;

/// An event in the life of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepEvent {
    /// spurstepd refused the order; no user code ran.
    Refused {
        /// The reason, for users.
        message: String,
        /// True if the node is at fault, not the job.
        node_fault: bool,
    },
    /// Every task runs its program.
    Started {
        /// Milliseconds since the Unix epoch at which the last task began its program.
        at_ms: u64,
        /// Process ids in the order of local ids.
        pids: Vec<u32>,
    },
    /// A task has ended.
    TaskEnded(TaskExit),
    /// The state of a step that an earlier spurd started.
    Found {
        /// The order that the step carries out.
        order: Box<StepOrder>,
        /// Milliseconds since the Unix epoch at which every task ran its program.
        started_ms: Option<u64>,
        /// The tasks that have ended.
        ended: Vec<TaskExit>,
    },
    /// The step has been stopped (suspended).
    Stopped,
    /// The step asks for a connection to its first node ([`Step::uplink`]).
    UplinkWanted {
        /// Name of the first node.
        node: String,
        /// `host:port` of that node's service.
        address: String,
        /// The step on the first node, and the number of this node's part; only if several steps run one
        /// program.
        of: Option<(StepAttempt, u32)>,
    },
    /// The step has ended with all its processes.
    Ended(ExitRecord),
    /// spurstepd is gone without a record; the remaining processes of the step were killed.
    Lost,
}

/// The reason why a step could not be started.
#[derive(Debug, thiserror::Error)]
pub enum LaunchError {
    /// The program spurstepd could not be started.
    #[error("cannot start {}", path.display())]
    Spawn {
        /// Path of the program.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The control socket could not be created or connected.
    #[error("no control socket for the step")]
    Socket(#[from] io::Error),
}

/// A handle on a live step.
#[derive(Clone, Debug)]
pub struct Step {
    attempt: StepAttempt,
    directory: PathBuf,
    requests: mpsc::Sender<Request>,
}

/// The usage and processes of a step on this node at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Used {
    /// The usage of the step's tasks here so far.
    pub usage: Usage,
    /// Process ids of the step.
    pub pids: Vec<u32>,
    /// Rank and process id of each task, in the order of local ids.
    pub tasks: Vec<(u32, u32)>,
}

/// The error of a request to a step that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("step {0} has ended")]
pub struct StepGone(pub StepAttempt);

impl Step {
    /// Returns the attempt that the step runs.
    pub fn attempt(&self) -> StepAttempt {
        self.attempt
    }

    /// Sends a request to the step.
    ///
    /// # Errors
    /// [`StepGone`] if spurstepd is gone; the last event has the result of the step.
    pub async fn request(&self, request: Request) -> Result<(), StepGone> {
        self.requests.send(request).await.map_err(|_| StepGone(self.attempt))
    }

    /// Takes over the step's streams and receives its events, the first of which is its state,
    /// [`Event::Status`].
    ///
    /// # Errors
    /// The system's error, [`io::ErrorKind::NotFound`] or [`io::ErrorKind::ConnectionRefused`] if the step is
    /// gone.
    pub async fn attach(&self) -> io::Result<(StreamReader, StreamWriter)> {
        let (reading, mut writing) = wire(connect(&self.directory).await?);
        writing.send(&Frame::Request(Request::Subscribe)).await?;
        writing.send(&Frame::Request(Request::Attach)).await?;
        Ok((StreamReader { reading, writing: None }, StreamWriter { writing }))
    }

    /// Watches the step: receives its state, its events, and a copy of the output from here on.
    ///
    /// # Errors
    /// The system's error, as of [`attach`](Step::attach).
    pub async fn watch(&self) -> io::Result<StreamReader> {
        let (reading, mut writing) = wire(connect(&self.directory).await?);
        writing.send(&Frame::Request(Request::Watch)).await?;
        writing.send(&Frame::Request(Request::Subscribe)).await?;
        Ok(StreamReader { reading, writing: Some(writing) })
    }

    /// Returns the usage of the step's tasks here so far, and its processes.
    ///
    /// # Errors
    /// The system's error, as of [`attach`](Step::attach).
    pub async fn usage(&self) -> io::Result<Used> {
        let (mut reading, mut writing) = wire(connect(&self.directory).await?);
        writing.send(&Frame::Request(Request::Usage)).await?;
        loop {
            match reading.receive().await? {
                Some(Frame::Event(Event::Used { usage, pids, tasks })) => {
                    return Ok(Used { usage: *usage, pids, tasks });
                }
                Some(_) => {}
                None => return Err(io::ErrorKind::UnexpectedEof.into()),
            }
        }
    }

    /// Connects this part of the step, on its first node, to the part on another node.
    ///
    /// # Errors
    /// The system's error, as of [`attach`](Step::attach).
    pub async fn peer(&self, node: String, part: Option<u32>) -> io::Result<(PeerReader, PeerWriter)> {
        self.tied(Request::Peer { node, part }).await
    }

    /// Connects this part of the step to the part on its first node.
    ///
    /// # Errors
    /// The system's error, as of [`attach`](Step::attach).
    pub async fn uplink(&self) -> io::Result<(PeerReader, PeerWriter)> {
        self.tied(Request::Uplink).await
    }

    async fn tied(&self, request: Request) -> io::Result<(PeerReader, PeerWriter)> {
        let (reading, mut writing) = wire(connect(&self.directory).await?);
        writing.send(&Frame::Request(request)).await?;
        Ok((PeerReader { reading }, PeerWriter { writing }))
    }
}

/// Receives messages of this part of a step to the part on another node.
#[derive(Debug)]
pub struct PeerReader {
    reading: Reading,
}

impl PeerReader {
    /// Returns the next message; `None` if spurstepd is gone or has closed the connection. Safe to cancel: no
    /// message is lost.
    ///
    /// # Errors
    /// The system's error if the connection broke.
    pub async fn receive(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            match self.reading.receive().await? {
                Some(Frame::Peer(message)) => return Ok(Some(message)),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Sends messages of the part on another node to this part of a step.
#[derive(Debug)]
pub struct PeerWriter {
    writing: Writing,
}

impl PeerWriter {
    /// Passes a message to spurstepd.
    ///
    /// # Errors
    /// The system's error if the connection broke.
    pub async fn send(&mut self, message: Vec<u8>) -> io::Result<()> {
        self.writing.send(&Frame::Peer(message)).await
    }
}

/// Starts spurstepds.
#[derive(Clone, Debug)]
pub struct Launcher {
    fork_server: Arc<ForkServer>,
    spool: Arc<Spool>,
    groups: Option<Groups>,
}

impl Launcher {
    /// Returns a launcher that runs the program `shim`, keeps attempts in `spool`, and contains steps in
    /// `groups`.
    pub fn new(shim: PathBuf, spool: Arc<Spool>, groups: Option<Groups>) -> Launcher {
        Launcher { fork_server: Arc::new(ForkServer::new(shim)), spool, groups }
    }

    /// Starts a spurstepd for an attempt that is marked as spawning, and sends it the order.
    ///
    /// # Errors
    /// [`LaunchError`] if no process could be started; no user code ran or will run.
    pub async fn launch(&self, mut launch: Launch) -> Result<(Step, mpsc::Receiver<StepEvent>), LaunchError> {
        let attempt = launch.order.attempt;
        let directory = self.spool.directory(attempt);
        mark_environment(&mut launch.environment, &directory);
        launch.order.directory.clone_from(&directory);
        // The new spurstepd serves every connection from here on, this order first.
        let listener = self.spool.noted(listen(&directory))?;
        let opened = self.spool.noted(File::open(&directory))?;
        let ours = connect(&directory).await?;
        let fork_server = Arc::clone(&self.fork_server);
        // A fork blocks, so it must not run on a thread of the runtime.
        let forked = tokio::task::spawn_blocking(move || fork_server.fork(&listener, &opened));
        let forked = forked.await.map_err(io::Error::other)?;
        let path = self.fork_server.program().to_owned();
        forked.map_err(|source| LaunchError::Spawn { path, source })?;
        Ok(self.follow(attempt, ours, Frame::Launch(Box::new(launch))))
    }

    /// Starts a process that reads a file as a user. Returns the socket on which the process answers
    /// ([`ReadOrder::OPENED`], [`ReadOrder::REFUSED`]).
    ///
    /// # Errors
    /// The system's error if no process could be created.
    pub async fn read(&self, order: &ReadOrder) -> io::Result<UnixStream> {
        let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let fork_server = Arc::clone(&self.fork_server);
        tokio::task::spawn_blocking(move || fork_server.fork_reader(&theirs))
            .await
            .map_err(io::Error::other)??;
        let mut socket = UnixStream::from_std(ours)?;
        socket.write_all(format!("{}\n", serde_json::to_string(order)?).as_bytes()).await?;
        Ok(socket)
    }

    /// Follows a step that an earlier spurd started. If the step is ending or lost, its events say so.
    pub async fn resume(&self, attempt: StepAttempt) -> (Step, mpsc::Receiver<StepEvent>) {
        match connect(&self.spool.directory(attempt)).await {
            Ok(stream) => self.follow(attempt, stream, Frame::Request(Request::Subscribe)),
            Err(error) => {
                tracing::info!(%attempt, %error, "no control socket: the step is ending");
                let (events, received) = mpsc::channel(EVENTS);
                let (requests, _) = mpsc::channel(1);
                let follower = self.follower(attempt, events);
                tokio::spawn(follower.conclude());
                (Step { attempt, directory: self.spool.directory(attempt), requests }, received)
            }
        }
    }

    /// Kills the remaining processes of lost attempts, and waits until they are gone.
    ///
    /// # Errors
    /// Fails if the kernel refuses.
    pub async fn bury(&self, lost: Vec<StepAttempt>) -> io::Result<()> {
        if lost.is_empty() {
            return Ok(());
        }
        let (spool, groups) = (Arc::clone(&self.spool), self.groups.clone());
        let buried = tokio::task::spawn_blocking(move || bury(&lost, &spool, groups.as_ref()));
        buried.await.map_err(io::Error::other).flatten()
    }

    fn follower(&self, attempt: StepAttempt, events: mpsc::Sender<StepEvent>) -> Follower {
        Follower { attempt, spool: Arc::clone(&self.spool), groups: self.groups.clone(), events }
    }

    /// Returns a handle on a step that has ended, whose output may still be read.
    pub fn ended(&self, attempt: StepAttempt) -> Step {
        let (requests, _) = mpsc::channel(1);
        Step { attempt, directory: self.spool.directory(attempt), requests }
    }

    fn follow(
        &self,
        attempt: StepAttempt,
        stream: UnixStream,
        first: Frame,
    ) -> (Step, mpsc::Receiver<StepEvent>) {
        let (events, received) = mpsc::channel(EVENTS);
        let (requests, asked) = mpsc::channel(REQUESTS);
        let directory = self.spool.directory(attempt);
        let follower = self.follower(attempt, events);
        tokio::spawn(follower.run(stream, first, asked));
        (Step { attempt, directory, requests }, received)
    }
}

/// Adds the variable by which the processes of the attempt are recognised.
fn mark_environment(environment: &mut Vec<u8>, directory: &Path) {
    environment.extend_from_slice(format!("{ATTEMPT_VARIABLE}={}\0", directory.display()).as_bytes());
}

/// Creates the control socket of an attempt.
fn listen(directory: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    match std::fs::remove_file(directory.join(CONTROL_SOCKET)) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let (_directory, path) = short_path(directory)?;
    let listener = std::os::unix::net::UnixListener::bind(path)?;
    std::fs::set_permissions(directory.join(CONTROL_SOCKET), std::fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Connects to the control socket of an attempt.
async fn connect(directory: &Path) -> io::Result<UnixStream> {
    let (_directory, path) = short_path(directory)?;
    UnixStream::connect(path).await
}

/// Returns a path to the control socket that fits into a socket address, valid while the descriptor is open.
fn short_path(directory: &Path) -> io::Result<(OwnedFd, String)> {
    let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::DIRECTORY | rustix::fs::OFlags::CLOEXEC;
    let directory = rustix::fs::open(directory, flags, rustix::fs::Mode::empty())?;
    let path = format!("/proc/self/fd/{}/{CONTROL_SOCKET}", directory.as_raw_fd());
    Ok((directory, path))
}

/// Follows one step, from its order or from its discovery, to its last event.
struct Follower {
    attempt: StepAttempt,
    spool: Arc<Spool>,
    groups: Option<Groups>,
    events: mpsc::Sender<StepEvent>,
}

impl Follower {
    async fn run(self, stream: UnixStream, first: Frame, asked: mpsc::Receiver<Request>) {
        let (mut reading, writing) = wire(stream);
        let writer = tokio::spawn(forward(writing, first, asked));
        let last = self.read(&mut reading).await;
        writer.abort();
        match &last {
            Some(StepEvent::Refused { message, node_fault: true }) => self.spool.note(message),
            Some(StepEvent::Ended(ExitRecord { failure: Some(failure), .. }))
                if failure.stage == LaunchStage::Spool =>
            {
                self.spool.note(&failure.message);
            }
            Some(_) | None => {}
        }
        match last {
            // Without a receiver spurd is stopping, and the record stays in the spool.
            Some(last) => drop(self.events.send(last).await),
            None => self.conclude().await,
        }
    }

    /// Passes on all events but the last, which it returns; `None` if the connection ends first.
    async fn read(&self, reading: &mut Reading) -> Option<StepEvent> {
        loop {
            let event = match reading.receive().await {
                Ok(Some(Frame::Event(event))) => event,
                Ok(Some(_)) => continue,
                Ok(None) => return None,
                Err(error) => {
                    tracing::warn!(attempt = %self.attempt, %error, "control connection lost");
                    return None;
                }
            };
            let event = match event {
                Event::Refused { message, node_fault } => {
                    return Some(StepEvent::Refused { message, node_fault });
                }
                Event::Ended(record) => return Some(StepEvent::Ended(record)),
                Event::Started { at_ms, pids } => StepEvent::Started { at_ms, pids },
                Event::TaskEnded(exit) => StepEvent::TaskEnded(exit),
                Event::Stopped => StepEvent::Stopped,
                Event::Status { order, started_ms, pids: _, ended } => {
                    StepEvent::Found { order, started_ms, ended }
                }
                Event::UplinkWanted { node, address, of } => StepEvent::UplinkWanted { node, address, of },
                // The client hears of these; the end of the step follows.
                Event::Detached | Event::Cancelled | Event::Aborted { .. } | Event::Used { .. } => continue,
            };
            if self.events.send(event).await.is_err() {
                return None;
            }
        }
    }

    /// Reports the end of an attempt whose spurstepd does not report it.
    async fn conclude(self) {
        let Follower { attempt, spool, groups, events } = self;
        let found = tokio::task::spawn_blocking(move || {
            let found = spool.find_ended(attempt)?;
            if found.is_none() {
                bury(&[attempt], &spool, groups.as_ref())?;
            }
            io::Result::Ok(found)
        });
        let last = match found.await.map_err(io::Error::other).flatten() {
            Ok(Some(record)) => StepEvent::Ended(record),
            Ok(None) => StepEvent::Lost,
            Err(error) => {
                tracing::error!(%attempt, %error, "it cannot be told how the step ended");
                StepEvent::Lost
            }
        };
        // Without a receiver spurd is stopping, and the next spurd reads the same from the spool.
        let _ = events.send(last).await;
    }
}

/// Sends the first frame, then requests as they come.
async fn forward(mut writing: Writing, first: Frame, mut asked: mpsc::Receiver<Request>) -> io::Result<()> {
    writing.send(&first).await?;
    while let Some(request) = asked.recv().await {
        writing.send(&Frame::Request(request)).await?;
    }
    // All handles are dropped; the step goes on, and so does the reader of its events.
    std::future::pending().await
}

/// Kills the remaining processes of lost attempts, and waits until they are gone.
///
/// The processes are found by their control group and by a variable of their environment. Without control
/// groups, a process that removed the variable escapes.
fn bury(lost: &[StepAttempt], spool: &Spool, groups: Option<&Groups>) -> io::Result<()> {
    if let Some(groups) = groups {
        lost.iter().try_for_each(|&attempt| groups.kill(attempt))?;
    }
    let mark = |attempt: &StepAttempt| {
        format!("{ATTEMPT_VARIABLE}={}", spool.directory(*attempt).display()).into_bytes()
    };
    let marks: BTreeSet<Vec<u8>> = lost.iter().map(mark).collect();
    let marked = |process: &Process| {
        let environment = std::fs::read(format!("/proc/{}/environ", process.pid)).unwrap_or_default();
        environment.split(|&byte| byte == 0).any(|entry| marks.contains(entry))
    };
    loop {
        let strays: Vec<Process> =
            processes().into_iter().filter(|process| !process.zombie && marked(process)).collect();
        if strays.is_empty() {
            return Ok(());
        }
        for stray in strays {
            stray.kill_and_wait();
        }
    }
}

/// Splits a control connection into its two directions.
fn wire(stream: UnixStream) -> (Reading, Writing) {
    let (reading, writing) = stream.into_split();
    (Reading { half: reading, received: Vec::new(), unknown: 0 }, Writing { half: writing })
}

#[derive(Debug)]
struct Reading {
    half: OwnedReadHalf,
    received: Vec<u8>,
    /// Number of frames of a newer release that were skipped.
    unknown: u64,
}

impl Reading {
    /// Returns the next frame; `None` if the peer has closed the connection. Safe to cancel: no frame is
    /// lost.
    async fn receive(&mut self) -> io::Result<Option<Frame>> {
        loop {
            if let Some((frame, length)) = Frame::decode(&self.received)? {
                self.received.drain(..length);
                if let Frame::Unknown(kind) = frame {
                    self.unknown += 1;
                    if self.unknown.is_power_of_two() {
                        tracing::warn!(
                            kind,
                            unknown = self.unknown,
                            "spurstepd is newer: a message of it is skipped"
                        );
                    }
                    continue;
                }
                return Ok(Some(frame));
            }
            match self.half.read_buf(&mut self.received).await {
                Ok(0) => return Ok(None),
                Ok(_) => {}
                // The peer closed its end before it had read everything.
                Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
                Err(error) => return Err(error),
            }
        }
    }
}

#[derive(Debug)]
struct Writing {
    half: OwnedWriteHalf,
}

impl Writing {
    async fn send(&mut self, frame: &Frame) -> io::Result<()> {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.half.write_all(&bytes).await
    }
}

/// An event on the streams of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEvent {
    /// Output of a task.
    Output(OutputPart),
    /// The tasks that still read have taken the input below this offset.
    InputTaken(u64),
    /// An event of the step; the last is [`Event::Ended`], before or after the end of the streams.
    Step(Event),
    /// Another client has taken over the streams.
    Detached,
}

/// Receives the output and events of a step.
#[derive(Debug)]
pub struct StreamReader {
    reading: Reading,
    /// The sending half of a watcher's connection, which stays open only while both halves exist.
    #[expect(dead_code, reason = "it is kept for its drop")]
    writing: Option<Writing>,
}

impl StreamReader {
    /// Returns the next event; `None` if spurstepd is gone. Safe to cancel: no event is lost.
    ///
    /// # Errors
    /// The system's error if the connection broke.
    pub async fn receive(&mut self) -> io::Result<Option<StreamEvent>> {
        loop {
            match self.reading.receive().await? {
                Some(Frame::Output(part)) => return Ok(Some(StreamEvent::Output(part))),
                Some(Frame::Ack(Ack::Input { offset })) => return Ok(Some(StreamEvent::InputTaken(offset))),
                Some(Frame::Event(Event::Detached)) => return Ok(Some(StreamEvent::Detached)),
                Some(Frame::Event(event)) => return Ok(Some(StreamEvent::Step(event))),
                Some(_) => {}
                None => return Ok(None),
            }
        }
    }
}

/// Sends input, requests and acknowledgements of output to a step. Frames to a step that is over are dropped.
#[derive(Debug)]
pub struct StreamWriter {
    writing: Writing,
}

impl StreamWriter {
    /// Sends input; at most [`INPUT_WINDOW`](super::message::INPUT_WINDOW) bytes may be unacknowledged.
    pub async fn input(&mut self, part: InputPart) {
        self.send(Frame::Input(part)).await;
    }

    /// Sends a request to the step.
    pub async fn request(&mut self, request: Request) {
        self.send(Frame::Request(request)).await;
    }

    /// Acknowledges the output of a task below `offset`, so that the step may discard it.
    pub async fn acknowledge(&mut self, task: u32, stream: Stream, offset: u64, end: bool) {
        self.send(Frame::Ack(Ack::Output { task, stream, offset, end })).await;
    }

    async fn send(&mut self, frame: Frame) {
        // A step that is over needs nothing more, and its reader reports the result.
        let _ = self.writing.send(&frame).await;
    }
}
