//! The standard streams of tasks whose client is elsewhere: bounded buffers with offsets.
//!
//! Output stays in its buffer until the client has acknowledged it. A full buffer is not read into, so the
//! task waits in its write: nothing is dropped and nothing grows. Input stays until every task that still
//! reads has taken it. A client that attaches gets everything that was not acknowledged, under the same
//! offsets.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use step_wire::message::{Ack, INPUT_WINDOW, InputPart, MAX_STREAM_PART, OutputPart, Stream};

/// Ctrl-D, which ends the input of a program that reads lines from a terminal.
const END_OF_FILE: u8 = 4;
/// Bytes of one stream that are kept for a slow or absent client.
const CAPACITY: usize = 256 << 10;

/// Output of a task that its client has not yet acknowledged.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pipe: Option<OwnedFd>,
    buffer: VecDeque<u8>,
    /// Offset of the buffer's first byte.
    base: u64,
    /// Offset of the first byte not sent to the present client.
    sent: u64,
    end_sent: bool,
    end_taken: bool,
    discarded: bool,
}

impl Outgoing {
    /// Returns the stream of `pipe`, which does not block.
    pub(crate) fn new(pipe: OwnedFd) -> Outgoing {
        Outgoing { pipe: Some(pipe), ..Outgoing::ended() }
    }

    /// Returns the stream of a task that will not be started: it has ended.
    pub(crate) fn ended() -> Outgoing {
        Outgoing {
            pipe: None,
            buffer: VecDeque::new(),
            base: 0,
            sent: 0,
            end_sent: false,
            end_taken: false,
            discarded: false,
        }
    }

    /// Returns the pipe to read from; `None` if it is closed, or if the buffer is full and the output is not
    /// discarded.
    pub(crate) fn readable(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().filter(|_| self.discarded || self.buffer.len() < CAPACITY).map(AsFd::as_fd)
    }

    /// Reads once from the pipe, and returns the bytes with their offset; no bytes mean the end of the
    /// stream. `None` if the pipe is closed, or nothing can be read at present.
    pub(crate) fn fill(&mut self) -> Option<(u64, Vec<u8>)> {
        let pipe = self.pipe.as_ref()?;
        let mut bytes = [0; MAX_STREAM_PART];
        match rustix::io::read(pipe, &mut bytes) {
            Ok(0) => self.pipe = None,
            Ok(count) => return Some((self.insert(&bytes[..count]), bytes[..count].to_vec())),
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return None,
            Err(_) => self.pipe = None,
        }
        Some((self.base + self.buffer.len() as u64, Vec::new()))
    }

    /// Adds bytes, and returns their offset.
    pub(crate) fn insert(&mut self, bytes: &[u8]) -> u64 {
        let offset = self.base + self.buffer.len() as u64;
        if self.discarded {
            self.base += bytes.len() as u64;
            self.sent = self.base;
        } else {
            self.buffer.extend(bytes);
        }
        offset
    }

    /// Returns the next part for the client; `None` if everything was sent.
    pub(crate) fn next_part(&mut self, task: u32, stream: Stream) -> Option<OutputPart> {
        let from = usize::try_from(self.sent - self.base).expect("what was sent lies in the buffer");
        let bytes: Vec<u8> = self.buffer.iter().skip(from).take(MAX_STREAM_PART).copied().collect();
        let end = self.pipe.is_none() && from + bytes.len() == self.buffer.len();
        if bytes.is_empty() && (!end || self.end_sent) {
            return None;
        }
        let offset = self.sent;
        self.sent += bytes.len() as u64;
        self.end_sent = end;
        Some(OutputPart { task, stream, offset, bytes, end })
    }

    /// Drops the bytes below `offset`, which the client has.
    pub(crate) fn acknowledge(&mut self, offset: u64, end: bool) {
        let taken = offset.clamp(self.base, self.sent) - self.base;
        self.buffer.drain(..usize::try_from(taken).expect("what was sent lies in the buffer"));
        self.base += taken;
        self.end_taken |= end && self.end_sent && self.buffer.is_empty();
    }

    /// Sends everything that was not acknowledged again, for a new client.
    pub(crate) fn rewind(&mut self) {
        self.sent = self.base;
        self.end_sent = false;
    }

    /// Discards the stream's bytes, for lack of a client.
    pub(crate) fn discard(&mut self) {
        self.discarded = true;
        self.base += self.buffer.len() as u64;
        self.sent = self.base;
        self.buffer.clear();
    }

    /// True if the client has not been informed of the stream's end.
    pub(crate) fn is_read(&self) -> bool {
        !self.end_sent
    }

    /// True if nothing is left that a client could want.
    pub(crate) fn done(&self) -> bool {
        self.pipe.is_none() && (self.end_taken || self.discarded)
    }
}

/// The connection of one task to the shared standard input.
#[derive(Debug)]
struct Drain {
    pipe: OwnedFd,
    /// Offset of the first byte that the task has not been given.
    at: u64,
    /// True for a terminal, which gets an end-of-file key at the end of the input and stays open.
    is_terminal: bool,
}

/// The standard input of a step, the same for every task that reads it.
#[derive(Debug, Default)]
pub(crate) struct Incoming {
    buffer: VecDeque<u8>,
    base: u64,
    acknowledged: u64,
    ended: bool,
    drains: Vec<Drain>,
    /// True if every task that will read is connected.
    complete: bool,
}

/// Input that violates the protocol.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InputRefused {
    #[error("input at offset {offset} leaves a gap after {expected}")]
    Gap { offset: u64, expected: u64 },
    #[error("input exceeds the window of {INPUT_WINDOW} bytes")]
    Window,
}

impl Incoming {
    /// Adds a task that reads from the beginning through `pipe`, which does not block.
    pub(crate) fn connect(&mut self, pipe: OwnedFd) {
        self.drains.push(Drain { pipe, at: 0, is_terminal: false });
    }

    /// Adds a task that reads from a terminal, whose other end does not block.
    pub(crate) fn connect_terminal(&mut self, end: OwnedFd) {
        self.drains.push(Drain { pipe: end, at: 0, is_terminal: true });
    }

    /// Records that no more tasks will be connected, so that input may be given out and dropped.
    pub(crate) fn complete(&mut self) {
        self.complete = true;
        self.advance();
    }

    /// Accepts a part of the input; repeated bytes are recognised by their offset.
    pub(crate) fn accept(&mut self, part: &InputPart) -> Result<(), InputRefused> {
        let expected = self.base + self.buffer.len() as u64;
        if part.offset > expected {
            return Err(InputRefused::Gap { offset: part.offset, expected });
        }
        let known = usize::try_from(expected - part.offset).unwrap_or(usize::MAX);
        let news = part.bytes.get(known..).unwrap_or_default();
        if (self.buffer.len() + news.len()) as u64 > INPUT_WINDOW {
            return Err(InputRefused::Window);
        }
        self.buffer.extend(news);
        self.ended |= part.end;
        self.advance();
        Ok(())
    }

    /// Returns the pipes for which input is waiting.
    pub(crate) fn writable(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let end = self.base + self.buffer.len() as u64;
        self.drains
            .iter()
            .filter(move |drain| self.complete && drain.at < end)
            .map(|drain| drain.pipe.as_fd())
    }

    /// Writes as much as the tasks' pipes take, and closes the pipes of tasks that have everything.
    pub(crate) fn advance(&mut self) {
        if !self.complete {
            return;
        }
        let (base, ended) = (self.base, self.ended);
        let bytes = self.buffer.make_contiguous();
        let end = base + bytes.len() as u64;
        self.drains.retain_mut(|drain| {
            while drain.at < end {
                let from = usize::try_from(drain.at - base).expect("a task is never behind the buffer");
                match rustix::io::write(&drain.pipe, &bytes[from..]) {
                    Ok(count) => drain.at += count as u64,
                    Err(rustix::io::Errno::INTR) => {}
                    Err(error) => return error == rustix::io::Errno::AGAIN,
                }
            }
            if ended && drain.is_terminal {
                // A terminal that takes nothing more belongs to a program that does not read.
                let _ = rustix::io::write(&drain.pipe, &[END_OF_FILE]);
            }
            !ended
        });
        let taken = self.drains.iter().map(|drain| drain.at).min().unwrap_or(end) - base;
        self.buffer.drain(..usize::try_from(taken).expect("what is taken lies in the buffer"));
        self.base += taken;
    }

    /// Returns the acknowledgement, if it has changed.
    pub(crate) fn acknowledgement(&mut self) -> Option<Ack> {
        (self.acknowledged != self.base).then(|| self.restate())
    }

    /// Returns the acknowledgement, for a new client.
    pub(crate) fn restate(&mut self) -> Ack {
        self.acknowledged = self.base;
        Ack::Input { offset: self.base }
    }
}

/// Creates a pipe; the end that spurstepd keeps does not block. Returns the kept end and the other one.
pub(crate) fn pipe(keep: Kept) -> io::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (kept, given) = match keep {
        Kept::Read => (read, write),
        Kept::Write => (write, read),
    };
    let flags = rustix::fs::fcntl_getfl(&kept)?;
    rustix::fs::fcntl_setfl(&kept, flags | rustix::fs::OFlags::NONBLOCK)?;
    Ok((kept, given))
}

/// The end of a pipe that spurstepd keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Read,
    Write,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing() -> (Outgoing, OwnedFd) {
        let (read, write) = pipe(Kept::Read).unwrap();
        (Outgoing::new(read), write)
    }

    fn drained(stream: &mut Outgoing) -> (u64, Vec<u8>, bool) {
        let (mut bytes, mut first, mut end) = (Vec::new(), None, false);
        while let Some(part) = stream.next_part(0, Stream::Stdout) {
            first.get_or_insert(part.offset);
            bytes.extend(part.bytes);
            end = part.end;
        }
        (first.unwrap_or(0), bytes, end)
    }

    #[test]
    fn a_new_reader_gets_what_was_not_acknowledged() {
        let (mut stream, write) = outgoing();
        rustix::io::write(&write, b"one two three").unwrap();
        drop(write);
        stream.fill();
        assert_eq!(drained(&mut stream), (0, b"one two three".to_vec(), false));
        stream.acknowledge(4, false);
        stream.fill();
        stream.rewind();
        assert_eq!(drained(&mut stream), (4, b"two three".to_vec(), true));
        assert!(!stream.done());
        stream.acknowledge(13, true);
        assert!(stream.done());
    }

    #[test]
    fn a_full_buffer_is_not_read_into() {
        let (mut stream, write) = outgoing();
        let mut written = 0;
        while stream.readable().is_some() {
            written += rustix::io::write(&write, &[7; 4096]).unwrap();
            stream.fill();
        }
        assert!(written <= CAPACITY + MAX_STREAM_PART);
        stream.discard();
        assert!(stream.readable().is_some());
        assert_eq!(drained(&mut stream).1, b"");
    }

    #[test]
    fn input_reaches_every_task_once() {
        let mut input = Incoming::default();
        let (first, first_read) = pipe(Kept::Write).unwrap();
        let (second, second_read) = pipe(Kept::Write).unwrap();
        input.connect(first);
        input.connect(second);
        input.complete();
        let part = |offset, bytes: &[u8], end| InputPart { offset, bytes: bytes.to_vec(), end };
        input.accept(&part(0, b"hello ", false)).unwrap();
        input.accept(&part(3, b"lo world", true)).unwrap();
        assert_eq!(input.acknowledgement(), Some(Ack::Input { offset: 11 }));
        assert_eq!(input.acknowledgement(), None);
        for read in [first_read, second_read] {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut std::fs::File::from(read), &mut bytes).unwrap();
            assert_eq!(bytes, b"hello world");
        }
        assert!(matches!(input.accept(&part(99, b"x", false)), Err(InputRefused::Gap { .. })));
    }

    #[test]
    fn input_for_nobody_is_taken_and_a_slow_task_holds_it_back() {
        let mut input = Incoming::default();
        input.complete();
        let part = |offset: u64| InputPart { offset, bytes: vec![1; MAX_STREAM_PART], end: false };
        input.accept(&part(0)).unwrap();
        assert_eq!(input.acknowledgement(), Some(Ack::Input { offset: MAX_STREAM_PART as u64 }));

        let mut input = Incoming::default();
        let (write, _read) = pipe(Kept::Write).unwrap();
        input.connect(write);
        input.complete();
        let mut offset = 0;
        while input.accept(&part(offset)).is_ok() {
            offset += MAX_STREAM_PART as u64;
        }
        assert!(input.writable().next().is_some());
        assert!(offset < 10 * INPUT_WINDOW);
    }
}
