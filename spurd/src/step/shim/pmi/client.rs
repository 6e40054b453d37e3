//! One task's end of the conversation.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use super::two;

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wire {
    One,
    Two,
}

/// What a client waits for; of PMI-2, the command to answer.
#[derive(Debug, Default)]
pub(super) enum Wait {
    #[default]
    Nothing,
    Fence(Option<two::Message>),
    /// That a task of this node says something.
    Attribute(two::Message),
    /// That a name has been published, looked up or withdrawn.
    Name(&'static str, Option<two::Message>),
}

#[derive(Debug)]
pub(super) struct Client {
    pub(super) rank: u32,
    socket: Option<UnixStream>,
    pub(super) inbox: Vec<u8>,
    outbox: Vec<u8>,
    pub(super) wire: Wire,
    /// It has begun and not yet finished.
    member: bool,
    pub(super) wait: Wait,
}

impl Client {
    pub(super) fn new(rank: u32) -> Client {
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

    pub(super) fn connect(&mut self, socket: UnixStream) {
        self.socket = Some(socket);
    }

    pub(super) fn watched(&self) -> Option<(BorrowedFd<'_>, bool)> {
        self.socket.as_ref().map(|socket| (socket.as_fd(), !self.outbox.is_empty()))
    }

    /// It has begun to take part.
    pub(super) fn joined(&mut self) {
        self.member = true;
    }

    /// It has said that it is done; the program after it may begin anew.
    pub(super) fn finalized(&mut self) {
        self.member = false;
    }

    /// Whether it has begun PMI and not finalized it.
    pub(super) fn is_member(&self) -> bool {
        self.member
    }

    /// Whatever comes next, it is not from this task.
    pub(super) fn close(&mut self) {
        self.socket = None;
    }

    /// Reads what is there.
    pub(super) fn receive(&mut self) {
        let mut bytes = [0; 8 << 10];
        while let Some(socket) = &mut self.socket {
            match socket.read(&mut bytes) {
                Ok(0) => self.socket = None,
                Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(_) => self.socket = None,
            }
        }
    }

    pub(super) fn line(&mut self, line: &str) {
        self.outbox.extend_from_slice(line.as_bytes());
        self.outbox.push(b'\n');
    }

    pub(super) fn message(&mut self, message: &two::Message) {
        message.write(&mut self.outbox);
    }

    /// Writes what the socket takes.
    pub(super) fn flush(&mut self) {
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
