//! A session of one client with one step: carries output, input and events between them until either ends.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::Arc;

use spur_proto::v1;
use spur_proto::v1::step_input::Input;
use spur_proto::v1::step_output::Output as Out;
use step_wire::message::{
    Event, INPUT_WINDOW, InputPart, MAX_STREAM_PART, OutputPart, Request, SignalScope, Stream,
};
use step_wire::notice::cancelled;
use step_wire::order::{self, StepOrder};
use step_wire::record::{ExitRecord, TaskExit};
use tokio::sync::mpsc;
use tonic::Streaming;

use super::Output;
use crate::assemble;
use crate::launcher::{Step, StreamEvent, StreamReader, StreamWriter};
use crate::spool::Spool;

/// Bytes of standard input that are kept for tasks that do not read, before the client has to wait. `srun`
/// sends at most 64 KiB ahead.
const PENDING_INPUT: usize = 256 << 10;

/// The outcome of a session.
pub(super) enum Left {
    /// The client has received everything.
    Done,
    /// Another client has taken over the step.
    Replaced,
    /// The client is gone, and the step goes on.
    Gone,
}

/// The progress of one task's output stream.
#[derive(Clone, Copy, Debug, Default)]
struct Progress {
    /// Offset below which the client has received everything.
    taken: u64,
    /// The length of the stream, once it has ended.
    length: Option<u64>,
}

pub(super) struct Session {
    step: Step,
    /// The node's name, for notices.
    node: String,
    input: Streaming<v1::StepInput>,
    output: mpsc::Sender<Output>,
    spool: Arc<Spool>,
    progress: BTreeMap<(u32, Stream), Progress>,
    pending: VecDeque<u8>,
    input_ended: bool,
    /// Offset of the first byte of `pending`; `None` until the step has reported how much its tasks have
    /// read.
    input_at: Option<u64>,
    input_taken: u64,
    input_closed: bool,
    /// True if the step has ended.
    ended: bool,
    /// True if the client was informed that nothing more follows.
    done: bool,
}

impl Session {
    pub(super) fn new(
        (step, node): (Step, String),
        input: Streaming<v1::StepInput>,
        output: mpsc::Sender<Output>,
        from: Vec<v1::StepOffset>,
        spool: Arc<Spool>,
    ) -> Session {
        let known = |offset: v1::StepOffset| {
            ((offset.task, stream(offset.stderr)), Progress { taken: offset.offset, length: None })
        };
        Session {
            step,
            node,
            input,
            output,
            spool,
            progress: from.into_iter().map(known).collect(),
            pending: VecDeque::new(),
            input_ended: false,
            input_at: None,
            input_taken: 0,
            input_closed: false,
            ended: false,
            done: false,
        }
    }

    pub(super) async fn run(mut self) -> Left {
        let (mut reader, mut writer) = match self.step.attach().await {
            Ok(ends) => ends,
            // The step has ended before a client could attach.
            Err(_) => return self.tell_record().await,
        };
        for (&(task, stream), progress) in &self.progress {
            writer.acknowledge(task, stream, progress.taken, false).await;
        }
        loop {
            match self.exchange(&mut reader, &mut writer).await {
                Ok(None) => {}
                Ok(Some(left)) => return left,
                Err(error) => {
                    tracing::debug!(step = %self.step.attempt(), %error, "session broken");
                    return Left::Gone;
                }
            }
        }
    }

    /// Handles the next event of the step or message of the client; returns the outcome if the session is
    /// over.
    async fn exchange(
        &mut self,
        reader: &mut StreamReader,
        writer: &mut StreamWriter,
    ) -> io::Result<Option<Left>> {
        if self.done && self.progress.values().all(|stream| stream.length == Some(stream.taken)) {
            return Ok(Some(Left::Done));
        }
        let hears = !self.input_closed && self.pending.len() < PENDING_INPUT;
        tokio::select! {
            event = reader.receive() => match event? {
                None if self.done => Ok(Some(Left::Done)),
                None => Ok(Some(self.tell_record().await)),
                Some(StreamEvent::Detached) => Ok(Some(Left::Replaced)),
                Some(event) => self.forward(event, writer).await.map(|()| None),
            },
            message = self.input.message(), if hears => match message {
                Ok(Some(v1::StepInput { input: Some(input) })) => self.accept(input, writer).await.map(|()| None),
                Ok(Some(_)) => Ok(None),
                // The client has half closed its side, and goes on reading.
                Ok(None) if !self.done => {
                    self.input_closed = true;
                    Ok(None)
                }
                Ok(None) | Err(_) if self.done => {
                    // The client knows the end of everything and has left, so the remaining output can be
                    // discarded.
                    writer.request(Request::Discard).await;
                    Ok(Some(Left::Done))
                }
                Ok(None) | Err(_) => Ok(Some(Left::Gone)),
            },
            () = self.output.closed() => {
                if self.done {
                    writer.request(Request::Discard).await;
                }
                Ok(Some(if self.done { Left::Done } else { Left::Gone }))
            }
        }
    }

    async fn forward(&mut self, event: StreamEvent, writer: &mut StreamWriter) -> io::Result<()> {
        match event {
            StreamEvent::Output(part) => self.forward_output(part, writer).await?,
            StreamEvent::InputTaken(offset) => {
                self.input_taken = offset;
                self.input_at.get_or_insert(offset);
                self.send(Out::StdinTaken(offset)).await?;
                self.feed(writer).await;
            }
            StreamEvent::Step(event) => self.forward_event(event).await?,
            StreamEvent::Detached => {}
        }
        self.finish().await
    }

    async fn forward_output(&mut self, part: OutputPart, writer: &mut StreamWriter) -> io::Result<()> {
        let OutputPart { task, stream, offset, mut bytes, end } = part;
        let progress = self.progress.entry((task, stream)).or_default();
        let length = offset + bytes.len() as u64;
        // The client received this part before it returned.
        let known = progress.taken.saturating_sub(offset).min(bytes.len() as u64);
        bytes.drain(..usize::try_from(known).unwrap_or(bytes.len()));
        if end {
            progress.length = Some(length);
            if progress.taken == length {
                writer.acknowledge(task, stream, length, true).await;
            }
        }
        if !bytes.is_empty() {
            let stderr = stream == Stream::Stderr;
            self.send(Out::Data(v1::StepData { task, stderr, offset: offset + known, data: bytes.into() }))
                .await?;
        }
        Ok(())
    }

    async fn forward_event(&mut self, event: Event) -> io::Result<()> {
        match event {
            Event::Status { order, started_ms, pids, ended } => {
                for key in streams(&order) {
                    self.progress.entry(key).or_default();
                }
                if started_ms.is_some() {
                    self.send(Out::Started(v1::StepStarted { pids })).await?;
                }
                for exit in ended {
                    self.send(task_ended(exit)).await?;
                }
            }
            Event::Started { pids, .. } => self.send(Out::Started(v1::StepStarted { pids })).await?,
            Event::TaskEnded(exit) => self.send(task_ended(exit)).await?,
            Event::Ended(record) => {
                self.ended = true;
                self.tell_failure(&record).await?;
            }
            Event::Aborted { message } => self.send(Out::Aborted(message)).await?,
            Event::Cancelled => self.send(Out::Cancelled(v1::StepCancelled {})).await?,
            Event::Refused { .. }
            | Event::Stopped
            | Event::Detached
            | Event::UplinkWanted { .. }
            | Event::Used { .. } => {}
        }
        Ok(())
    }

    /// Tells the client that nothing more follows, once the step and all its streams have ended.
    async fn finish(&mut self) -> io::Result<()> {
        if !self.ended || self.done || self.progress.values().any(|stream| stream.length.is_none()) {
            return Ok(());
        }
        self.done = true;
        self.send(Out::Done(v1::StepDone {})).await
    }

    async fn accept(&mut self, input: Input, writer: &mut StreamWriter) -> io::Result<()> {
        match input {
            Input::Stdin(v1::StepStdin { data, end }) => {
                self.pending.extend(data);
                self.input_ended |= end;
                self.feed(writer).await;
            }
            Input::Signal(v1::StepSignal { signal }) => {
                let signal = i32::try_from(signal).unwrap_or(0);
                writer.request(Request::Signal { signal, scope: SignalScope::All }).await;
            }
            Input::Terminate(v1::StepTerminate { kill_wait_ms }) => {
                let notice = cancelled(self.step.attempt(), &self.node, "");
                let request = Request::Terminate { kill_wait_ms: Some(kill_wait_ms), notice: Some(notice) };
                writer.request(request).await;
            }
            Input::Window(window) => {
                writer.request(Request::Resize { window: assemble::window(&window) }).await;
            }
            Input::Taken(v1::StepOffset { task, stderr, offset }) => {
                let stream = stream(stderr);
                let Some(progress) = self.progress.get_mut(&(task, stream)) else { return Ok(()) };
                progress.taken = progress.taken.max(offset);
                let (taken, end) = (progress.taken, progress.length == Some(progress.taken));
                writer.acknowledge(task, stream, taken, end).await;
            }
            Input::Launch(_) | Input::Attach(_) | Input::Watch(_) | Input::Logs(_) => {
                return Err(io::Error::other("a second launch on one stream"));
            }
        }
        Ok(())
    }

    /// Sends pending input to the step as far as the window allows.
    async fn feed(&mut self, writer: &mut StreamWriter) {
        while let Some(offset) = self.input_at {
            let room = (self.input_taken + INPUT_WINDOW).saturating_sub(offset);
            let count =
                self.pending.len().min(MAX_STREAM_PART).min(usize::try_from(room).unwrap_or(usize::MAX));
            let end = self.input_ended && count == self.pending.len();
            if count == 0 && !end {
                break;
            }
            let bytes: Vec<u8> = self.pending.drain(..count).collect();
            writer.input(InputPart { offset, bytes, end }).await;
            self.input_at = Some(offset + count as u64);
            if end {
                self.input_ended = false;
                break;
            }
        }
    }

    /// Tells the client the end of a step whose spurstepd is gone, from the record in the spool.
    async fn tell_record(&mut self) -> Left {
        let (spool, attempt) = (Arc::clone(&self.spool), self.step.attempt());
        let found = tokio::task::spawn_blocking(move || spool.find_ended(attempt)).await;
        let told = match found.map_err(io::Error::other).flatten() {
            Ok(Some(record)) => self.tell_end(&record).await,
            Ok(None) => self.fail("the step is lost: its spurstepd is gone and left no record").await,
            Err(error) => self.fail(&format!("the spool does not say how the step ended: {error}")).await,
        };
        // A client that is gone needs no answer.
        drop(told);
        Left::Done
    }

    async fn tell_end(&mut self, record: &ExitRecord) -> io::Result<()> {
        for &exit in &record.tasks {
            self.send(task_ended(exit)).await?;
        }
        self.tell_failure(record).await?;
        self.send(Out::Done(v1::StepDone {})).await
    }

    async fn tell_failure(&mut self, record: &ExitRecord) -> io::Result<()> {
        match failure(record) {
            Some(failure) => self.send(failure).await,
            None => Ok(()),
        }
    }

    async fn fail(&mut self, message: &str) -> io::Result<()> {
        self.send(failed(message)).await
    }

    async fn send(&mut self, output: Out) -> io::Result<()> {
        let sent = self.output.send(Ok(v1::StepOutput { output: Some(output) })).await;
        sent.map_err(|_| io::Error::other("the client is gone"))
    }
}

fn stream(stderr: bool) -> Stream {
    if stderr { Stream::Stderr } else { Stream::Stdout }
}

/// Returns the message about the failure of a step; `None` if it has not failed.
pub(super) fn failure(record: &ExitRecord) -> Option<Out> {
    record.failure.as_ref().map(|failure| failed(&failure.message))
}

fn failed(message: &str) -> Out {
    Out::Failed(v1::Error::new("ESLURMD_SETUP_ENVIRONMENT_ERROR", message))
}

pub(super) fn task_ended(exit: TaskExit) -> Out {
    Out::TaskEnded(v1::TaskEnded {
        task: exit.global,
        exit_code: exit.status.code.into(),
        exit_signal: exit.status.signal.into(),
        core_dumped: exit.core_dumped,
    })
}

/// Returns the streams of a step that go to its client.
fn streams(order: &StepOrder) -> Vec<(u32, Stream)> {
    let mut streams = Vec::new();
    for task in &order.tasks {
        if task.stdout == order::Output::Stream {
            streams.push((task.global, Stream::Stdout));
        }
        if task.stderr == order::Output::Stream {
            streams.push((task.global, Stream::Stderr));
        }
    }
    streams
}
