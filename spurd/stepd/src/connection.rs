//! One connection to the step's control socket, on spurstepd's side.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use step_wire::message::Frame;

/// Unsent bytes of a slow client beyond which no more output is added.
const BACKLOG: usize = 128 << 10;

/// A peer: spurd, or a later spurd.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: UnixStream,
    received: Vec<u8>,
    waiting: Vec<u8>,
    closed: bool,
    /// True if the peer receives events.
    pub(crate) subscribed: bool,
    /// True if the peer reads the step's output and writes its input.
    pub(crate) attached: bool,
    /// True if the peer gets a copy of the step's output.
    pub(crate) watching: bool,
    /// Number of the node to whose part of the step the connection leads.
    pub(crate) peer: Option<u32>,
    /// Number of frames of a newer release that were skipped.
    unknown: u64,
}

impl Connection {
    /// Returns a connection over `stream`; `received` was already read from it.
    pub(crate) fn new(stream: UnixStream, received: Vec<u8>) -> io::Result<Connection> {
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            received,
            waiting: Vec::new(),
            closed: false,
            subscribed: false,
            attached: false,
            watching: false,
            peer: None,
            unknown: 0,
        })
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }

    /// True if bytes wait for the peer to take them.
    pub(crate) fn pending(&self) -> bool {
        !self.closed && !self.waiting.is_empty()
    }

    /// True while output may be added.
    pub(crate) fn has_room(&self) -> bool {
        !self.closed && self.waiting.len() < BACKLOG
    }

    pub(crate) fn closed(&self) -> bool {
        self.closed
    }

    /// Closes the connection.
    pub(crate) fn close(&mut self) {
        self.closed = true;
    }

    /// Sends a frame now, or when the peer takes it.
    pub(crate) fn send(&mut self, frame: &Frame) {
        frame.encode(&mut self.waiting);
        self.flush();
    }

    /// Writes as much as the peer takes.
    pub(crate) fn flush(&mut self) {
        let mut written = 0;
        while !self.closed && written < self.waiting.len() {
            match self.stream.write(&self.waiting[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
        self.waiting.drain(..written);
    }

    /// Reads the available bytes and returns the whole frames in them.
    pub(crate) fn receive(&mut self) -> Vec<Frame> {
        let mut bytes = [0; 16 << 10];
        match self.stream.read(&mut bytes) {
            Ok(0) => self.closed = true,
            Ok(count) => self.received.extend_from_slice(&bytes[..count]),
            Err(error) if matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            Err(_) => self.closed = true,
        }
        self.frames()
    }

    /// Returns the whole frames among the received bytes; malformed frames close the connection.
    pub(crate) fn frames(&mut self) -> Vec<Frame> {
        let (mut frames, mut taken) = (Vec::new(), 0);
        loop {
            match Frame::decode(&self.received[taken..]) {
                Ok(Some((Frame::Unknown(kind), length))) => {
                    self.unknown += 1;
                    if self.unknown.is_power_of_two() {
                        let count = self.unknown;
                        eprintln!(
                            "spurstepd: spurd is newer: {count} messages skipped, the last of kind {kind}"
                        );
                    }
                    taken += length;
                }
                Ok(Some((frame, length))) => {
                    frames.push(frame);
                    taken += length;
                }
                Ok(None) => break,
                Err(error) => {
                    eprintln!("spurstepd: control connection closed: {error}");
                    self.closed = true;
                    break;
                }
            }
        }
        self.received.drain(..taken);
        frames
    }
}
