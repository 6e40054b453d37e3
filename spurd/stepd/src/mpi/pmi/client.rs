//! The server's side of one task's PMI socket.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use rustix::event::PollFlags;

use super::two;

/// Bytes of unread answers beyond which no more is read from a task.
const UNREAD: usize = 64 << 10;

/// The protocol of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    One,
    Two,
}

/// The answer that a client waits for; for PMI-2 with the command to answer.
#[derive(Debug, Default)]
pub(crate) enum Wait {
    #[default]
    Nothing,
    Fence(Option<two::Message>),
    /// Waits until a task of this node sets an attribute.
    Attribute(two::Message),
    /// Waits until a name has been published, looked up or withdrawn.
    Name(&'static str, Option<two::Message>),
}

#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) rank: u32,
    socket: Option<UnixStream>,
    pub(crate) inbox: Vec<u8>,
    outbox: Vec<u8>,
    pub(crate) wire: Wire,
    /// True if the client has begun PMI and not finalized it.
    member: bool,
    pub(crate) wait: Wait,
}

impl Client {
    pub(crate) fn new(rank: u32) -> Client {
        Client {
            rank,
            socket: None,
            inbox: Vec::new(),
            outbox: Vec::new(),
            wire: Wire::One,
            member: false,
            wait: Wait::Nothing,
        }
    }

    pub(crate) fn connect(&mut self, socket: UnixStream) {
        self.socket = Some(socket);
    }

    /// Returns the socket and the events to poll for; `None` once the socket is closed.
    pub(crate) fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let reading = if self.has_room() { PollFlags::IN } else { PollFlags::empty() };
        let writing = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        self.socket.as_ref().map(|socket| (socket.as_fd(), reading | writing))
    }

    /// True if more answers may be queued.
    pub(crate) fn has_room(&self) -> bool {
        self.outbox.len() < UNREAD
    }

    /// Records that the client has begun PMI.
    pub(crate) fn joined(&mut self) {
        self.member = true;
    }

    /// Records that the client has finalized PMI; the task's next program may begin again.
    pub(crate) fn finalized(&mut self) {
        self.member = false;
    }

    /// True if the client has begun PMI and not finalized it.
    pub(crate) fn is_member(&self) -> bool {
        self.member
    }

    /// Closes the socket.
    pub(crate) fn close(&mut self) {
        self.socket = None;
    }

    /// Reads once, and returns true if more may be there.
    pub(crate) fn receive(&mut self) -> bool {
        let mut bytes = [0; 8 << 10];
        let Some(socket) = &mut self.socket else { return false };
        match socket.read(&mut bytes) {
            Ok(count) if count > 0 => {
                self.inbox.extend_from_slice(&bytes[..count]);
                return true;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return true,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Ok(_) | Err(_) => self.socket = None,
        }
        false
    }

    pub(crate) fn line(&mut self, line: &str) {
        self.outbox.extend_from_slice(line.as_bytes());
        self.outbox.push(b'\n');
    }

    pub(crate) fn message(&mut self, message: &two::Message) {
        message.write(&mut self.outbox);
    }

    /// Writes as much as the socket takes.
    pub(crate) fn flush(&mut self) {
        let mut written = 0;
        while let Some(socket) = self.socket.as_mut().filter(|_| written < self.outbox.len()) {
            match socket.write(&self.outbox[written..]) {
                Ok(count) => written += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.socket = None,
            }
        }
        self.outbox.drain(..written);
    }
}
