//! Frames between spurd and spurstepd on the step's control socket.
//!
//! A frame is a `u32` with the length of the rest (little endian), a `u8` kind, and a body. Control messages
//! are JSON, because a spurd must understand a spurstepd of an older version; bytes of tasks are raw. Streams
//! carry offsets, counted from the first byte that the task ever wrote or read. The attached client
//! acknowledges what it has received ([`Frame::Ack`]). Everything beyond is sent again to the next client
//! that attaches, and repeated bytes are recognised by their offset. So no byte is lost or doubled when spurd
//! or srun lose their connection.

use std::io;

use serde::{Deserialize, Serialize};
use spur_core::model::usage::Usage;

use crate::attempt::StepAttempt;
use crate::order::{Launch, StepOrder, Window};
use crate::record::{ExitRecord, TaskExit};

/// Longest accepted frame, in bytes: enough for a script of 4 MiB and an environment of 8 MiB.
pub const MAX_FRAME: usize = 20 << 20;
/// Largest number of bytes of a task's stream in one frame.
pub const MAX_STREAM_PART: usize = 32 << 10;
/// Largest number of unacknowledged bytes of standard input.
pub const INPUT_WINDOW: u64 = 64 << 10;

/// The processes that a signal reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalScope {
    /// Every process of the step.
    All,
    /// The processes that were started as tasks, not their children: for a batch step, the batch shell.
    Tasks,
}

/// A request of spurd to a running step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "ask", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// Answer with [`Event::Status`], then send every event that follows.
    Subscribe,
    /// Send a signal.
    Signal {
        /// The signal's number.
        signal: i32,
        /// The processes that the signal reaches.
        scope: SignalScope,
    },
    /// Stop every process of the step, including those forked meanwhile, and answer with [`Event::Stopped`];
    /// or let the processes go on.
    Suspend {
        /// True to stop the processes, false to let them go on.
        stop: bool,
    },
    /// End the step: SIGTERM and SIGCONT now, SIGKILL after `kill_wait_ms`; 0 kills at once.
    Terminate {
        /// Time for the processes to end by themselves, in milliseconds; `None` without a limit.
        kill_wait_ms: Option<u64>,
        /// A line for the step's standard error.
        notice: Option<String>,
    },
    /// Write a line to the step's standard error.
    Notice {
        /// The line.
        text: String,
    },
    /// Change the size of the first task's terminal.
    Resize {
        /// The terminal's new size.
        window: Window,
    },
    /// Send the step's streams to this connection from here on.
    Attach,
    /// Send this connection a copy of the tasks' output from here on, as far as it keeps up.
    Watch,
    /// Discard the step's output, which no client will read.
    Discard,
    /// Answer with the usage of the step so far ([`Event::Used`]).
    Usage,
    /// Exchange [`Frame::Peer`]s with the step's part on another node over this connection. Sent only to the
    /// first node of a step.
    Peer {
        /// The other node's name.
        node: String,
        /// Number of the node among the nodes of all steps that run one program; `None` if only one step
        /// runs the program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        part: Option<u32>,
    },
    /// Exchange [`Frame::Peer`]s with the step's first node over this connection.
    Uplink,
    /// The first node cannot be reached.
    UplinkLost {
        /// The reason.
        why: String,
    },
}

/// An event that a step reports to spurd.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// The order was refused; this process has run nothing and will run nothing.
    Refused {
        /// The reason, for users.
        message: String,
        /// True if the node is at fault, not the job.
        #[serde(default)]
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
    /// Every process of the step has ended, and its record is in the spool.
    Ended(ExitRecord),
    /// The state of the step, in answer to [`Request::Subscribe`].
    Status {
        /// The order that the step carries out.
        order: Box<StepOrder>,
        /// Milliseconds since the Unix epoch at which every task ran its program; `None` before that.
        started_ms: Option<u64>,
        /// Process ids of the started tasks, in the order of local ids.
        pids: Vec<u32>,
        /// The tasks that have ended.
        ended: Vec<TaskExit>,
    },
    /// Every process of the step has been stopped.
    Stopped,
    /// The usage of the step's tasks here so far, and its processes, in answer to [`Request::Usage`].
    Used {
        /// The usage.
        usage: Box<Usage>,
        /// Process ids of the step.
        pids: Vec<u32>,
        /// Rank and process id of each task, in the order of local ids.
        tasks: Vec<(u32, u32)>,
    },
    /// Another connection has taken over the step's streams.
    Detached,
    /// The step needs a connection to its first node, which spurd opens ([`Request::Uplink`]).
    UplinkWanted {
        /// Name of the first node.
        node: String,
        /// `host:port` of that node's service.
        address: String,
        /// The step on the first node, and the number of this node's part; only if several steps run one
        /// program.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        of: Option<(StepAttempt, u32)>,
    },
    /// The step is being ended early: by a request with a notice for the user, or by its own time limit.
    Cancelled,
    /// The step's tasks cannot go on, and those here are being killed: the step has to end on all nodes.
    Aborted {
        /// The reason, for users.
        message: String,
    },
}

/// A task's standard stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Bytes that a task wrote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputPart {
    /// The task's rank in the step.
    pub task: u32,
    /// The stream to which the task wrote.
    pub stream: Stream,
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes; empty only together with `end`.
    pub bytes: Vec<u8>,
    /// True if nothing follows.
    pub end: bool,
}

/// Input for each of the tasks whose order has [`Input::Stream`](crate::order::Input::Stream).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputPart {
    /// Offset of the first byte.
    pub offset: u64,
    /// The bytes; empty only together with `end`.
    pub bytes: Vec<u8>,
    /// True if nothing follows.
    pub end: bool,
}

/// The acknowledgement of a stream up to an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ack {
    /// The client has received everything of this task's stream below the offset.
    Output {
        /// The task's rank.
        task: u32,
        /// The stream.
        stream: Stream,
        /// Offset of the first byte that the client has not received.
        offset: u64,
        /// True if the client has received the end of the stream, too.
        end: bool,
    },
    /// All tasks that still read have taken the input below the offset.
    Input {
        /// Offset of the first byte that is not taken.
        offset: u64,
    },
}

/// One frame of the control socket, in either direction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The order, spurd's first frame to a new spurstepd.
    Launch(Box<Launch>),
    /// A request of spurd to spurstepd.
    Request(Request),
    /// An event of spurstepd for spurd.
    Event(Event),
    /// Output of a task for the attached client or a watcher.
    Output(OutputPart),
    /// Input from the attached client for the tasks.
    Input(InputPart),
    /// An acknowledgement, in either direction.
    Ack(Ack),
    /// An encoded `StepPeer` between the step's parts on two nodes, in either direction.
    Peer(Vec<u8>),
    /// A frame of a newer release: of a kind that this release does not know, or with a request or event that
    /// it does not understand. The receiver skips the frame; no release sends this one.
    Unknown(u8),
}

/// Bytes that are not a frame.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame's length exceeds [`MAX_FRAME`].
    #[error("a frame of {0} bytes is over the limit of {MAX_FRAME}")]
    TooLong(usize),
    /// The kind is unknown, or the body does not match it.
    #[error("malformed frame of kind {0}")]
    Malformed(u8),
    /// The JSON in the frame is not the expected message.
    #[error("message not understood")]
    Json(#[from] serde_json::Error),
}

impl From<FrameError> for io::Error {
    fn from(error: FrameError) -> Self {
        io::Error::new(io::ErrorKind::InvalidData, error)
    }
}

const LAUNCH: u8 = 1;
const REQUEST: u8 = 2;
const EVENT: u8 = 3;
const OUTPUT: u8 = 4;
const INPUT: u8 = 5;
const ACK: u8 = 6;
const PEER: u8 = 7;

impl Frame {
    /// Appends the frame's bytes to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&[0; 4]);
        match self {
            Frame::Launch(launch) => encode_launch(launch, out),
            Frame::Request(request) => encode_json(REQUEST, request, out),
            Frame::Event(event) => encode_json(EVENT, event, out),
            Frame::Output(part) => {
                out.push(OUTPUT);
                out.extend_from_slice(&part.task.to_le_bytes());
                out.push(part.stream as u8);
                encode_part(part.offset, part.end, &part.bytes, out);
            }
            Frame::Input(part) => {
                out.push(INPUT);
                encode_part(part.offset, part.end, &part.bytes, out);
            }
            Frame::Ack(ack) => encode_ack(*ack, out),
            Frame::Peer(message) => {
                out.push(PEER);
                out.extend_from_slice(message);
            }
            Frame::Unknown(kind) => out.push(*kind),
        }
        let length = u32::try_from(out.len() - start - 4).expect("frames are far below 4 GiB");
        out[start..start + 4].copy_from_slice(&length.to_le_bytes());
    }

    /// Decodes the first whole frame of `bytes`; returns it with its length, or `None` if it is not complete
    /// yet.
    ///
    /// # Errors
    /// [`FrameError`] if the bytes can never become a frame; the connection is then useless.
    pub fn decode(bytes: &[u8]) -> Result<Option<(Frame, usize)>, FrameError> {
        let Some((length, rest)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_le_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(FrameError::TooLong(length));
        }
        let Some(body) = rest.get(..length) else { return Ok(None) };
        let (&kind, body) = body.split_first().ok_or(FrameError::Malformed(0))?;
        let frame = match kind {
            REQUEST => serde_json::from_slice(body).map_or(Frame::Unknown(kind), Frame::Request),
            EVENT => serde_json::from_slice(body).map_or(Frame::Unknown(kind), Frame::Event),
            PEER => Frame::Peer(body.to_vec()),
            LAUNCH | OUTPUT | INPUT | ACK => decode_raw(kind, body)?,
            _ => Frame::Unknown(kind),
        };
        Ok(Some((frame, 4 + length)))
    }
}

fn encode_json(kind: u8, message: &impl Serialize, out: &mut Vec<u8>) {
    out.push(kind);
    serde_json::to_writer(out, message).expect("control messages have string keys and no failing parts");
}

fn encode_launch(launch: &Launch, out: &mut Vec<u8>) {
    let order = serde_json::to_vec(&launch.order).expect("orders have string keys and UTF-8 paths");
    out.push(LAUNCH);
    for part in [&order, &launch.environment] {
        out.extend_from_slice(&(part.len() as u64).to_le_bytes());
        out.extend_from_slice(part);
    }
    out.push(u8::from(launch.script.is_some()));
    out.extend_from_slice(launch.script.as_deref().unwrap_or_default());
}

fn encode_part(offset: u64, end: bool, bytes: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&offset.to_le_bytes());
    out.push(u8::from(end));
    out.extend_from_slice(bytes);
}

fn encode_ack(ack: Ack, out: &mut Vec<u8>) {
    out.push(ACK);
    match ack {
        Ack::Output { task, stream, offset, end } => {
            out.push(stream as u8);
            out.extend_from_slice(&task.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.push(u8::from(end));
        }
        Ack::Input { offset } => {
            out.push(2);
            out.extend_from_slice(&0u32.to_le_bytes());
            out.extend_from_slice(&offset.to_le_bytes());
            out.push(0);
        }
    }
}

fn decode_raw(kind: u8, body: &[u8]) -> Result<Frame, FrameError> {
    let mut fields = Fields(body);
    let frame = match kind {
        LAUNCH => fields.launch()?.map(|launch| Frame::Launch(Box::new(launch))),
        OUTPUT => fields.output().map(Frame::Output),
        INPUT => fields.input().map(Frame::Input),
        ACK => fields.ack().map(Frame::Ack),
        _ => None,
    };
    frame.ok_or(FrameError::Malformed(kind))
}

/// The unread rest of a body; each method takes a field off its front.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (field, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*field)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.take()? {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }

    fn stream(&mut self) -> Option<Stream> {
        self.flag().map(|second| if second { Stream::Stderr } else { Stream::Stdout })
    }

    fn blob(&mut self) -> Option<Vec<u8>> {
        let length = usize::try_from(self.u64()?).ok()?;
        let (blob, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(blob.to_vec())
    }

    fn launch(&mut self) -> Result<Option<Launch>, FrameError> {
        let mut parts = || Some((self.blob()?, self.blob()?, self.flag()?));
        let Some((order, environment, has_script)) = parts() else { return Ok(None) };
        let script = has_script.then(|| self.0.to_vec());
        Ok(Some(Launch { order: serde_json::from_slice(&order)?, environment, script }))
    }

    fn output(&mut self) -> Option<OutputPart> {
        let (task, stream) = (self.u32()?, self.stream()?);
        let (offset, end) = (self.u64()?, self.flag()?);
        Some(OutputPart { task, stream, offset, bytes: self.0.to_vec(), end })
    }

    fn input(&mut self) -> Option<InputPart> {
        let (offset, end) = (self.u64()?, self.flag()?);
        Some(InputPart { offset, bytes: self.0.to_vec(), end })
    }

    fn ack(&mut self) -> Option<Ack> {
        let [which] = self.take()?;
        let (task, offset, end) = (self.u32()?, self.u64()?, self.flag()?);
        match which {
            0 => Some(Ack::Output { task, stream: Stream::Stdout, offset, end }),
            1 => Some(Ack::Output { task, stream: Stream::Stderr, offset, end }),
            2 => Some(Ack::Input { offset }),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames() -> Vec<Frame> {
        vec![
            Frame::Request(Request::Subscribe),
            Frame::Request(Request::Terminate {
                kill_wait_ms: Some(30_000),
                notice: Some("\u{e4}\n".to_owned()),
            }),
            Frame::Request(Request::Suspend { stop: true }),
            Frame::Request(Request::Notice { text: "\u{e4}".to_owned() }),
            Frame::Event(Event::Started { at_ms: 7, pids: vec![1, 2] }),
            Frame::Event(Event::Refused { message: "no".to_owned(), node_fault: true }),
            Frame::Output(OutputPart {
                task: 3,
                stream: Stream::Stderr,
                offset: 1 << 40,
                bytes: vec![0, 255],
                end: true,
            }),
            Frame::Input(InputPart { offset: 5, bytes: vec![], end: true }),
            Frame::Input(InputPart { offset: 5, bytes: vec![1], end: false }),
            Frame::Ack(Ack::Output { task: 9, stream: Stream::Stdout, offset: 77, end: false }),
            Frame::Ack(Ack::Input { offset: 78 }),
            Frame::Peer(vec![0, 1, 255]),
        ]
    }

    #[test]
    fn frames_round_trip_however_they_are_cut() {
        for frame in frames() {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for cut in 0..bytes.len() {
                assert!(Frame::decode(&bytes[..cut]).unwrap().is_none(), "{frame:?} cut at {cut}");
            }
            bytes.extend_from_slice(b"next");
            assert_eq!(Frame::decode(&bytes).unwrap(), Some((frame, bytes.len() - 4)));
        }
    }

    #[test]
    fn frames_of_a_newer_release_are_skipped_whole() {
        let request = br#"{"ask":"notice","text":"hello","colour":"red"}"#;
        for (kind, body) in [(99, &b"anything"[..]), (REQUEST, request), (EVENT, br#"{"event":"dreamt"}"#)] {
            let mut bytes = u32::try_from(body.len() + 1).unwrap().to_le_bytes().to_vec();
            bytes.push(kind);
            bytes.extend_from_slice(body);
            let length = bytes.len();
            Frame::Request(Request::Usage).encode(&mut bytes);
            assert_eq!(Frame::decode(&bytes).unwrap(), Some((Frame::Unknown(kind), length)));
            let next = Frame::decode(&bytes[length..]).unwrap().map(|(frame, _)| frame);
            assert_eq!(next, Some(Frame::Request(Request::Usage)));
        }
    }

    #[test]
    fn bytes_that_are_no_frame_are_refused() {
        let cases: [&[u8]; 4] = [
            &[255, 255, 255, 255],
            &[0, 0, 0, 0],
            &[3, 0, 0, 0, OUTPUT, 1, 2],
            &[9, 0, 0, 0, LAUNCH, 255, 255, 255, 255, 255, 255, 255, 255],
        ];
        for bytes in cases {
            assert!(Frame::decode(bytes).is_err(), "{bytes:?}");
        }
    }
}
