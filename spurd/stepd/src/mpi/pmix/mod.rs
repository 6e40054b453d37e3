//! PMIx for the tasks of a step: spurstepd's side of the process that serves it.

mod abi;
mod server;

use std::collections::BTreeSet;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;

use prost::Message;
use rustix::event::PollFlags;
use rustix::process::Pid;
use server::Served;
use step_wire::order::{MpiOrder, StepOrder};
use step_wire::v1;
use step_wire::v1::pmix_down::Down;
use step_wire::v1::pmix_up::Up;

use crate::task::fork::{self, Forked, fork};
use crate::task::user;

/// Longest message from or to the process, in bytes: the data of one node's tasks for a fence.
const LONGEST: usize = 16 << 20;

/// Name of the directory for the library's files, in the attempt's directory.
const DIRECTORY: &str = "pmix";

/// The process that serves PMIx.
#[derive(Debug)]
pub(crate) struct Helper {
    pid: Pid,
    socket: Option<UnixStream>,
    inbox: Vec<u8>,
    outbox: Vec<u8>,
    /// The environment of each task, once the process serves.
    environments: Option<Vec<Vec<(String, String)>>>,
    ranks: Vec<u32>,
    /// Local ids of the tasks that have begun PMIx and not finalized it.
    members: BTreeSet<usize>,
}

impl Helper {
    /// Starts the process.
    ///
    /// # Errors
    /// The system's error if the directory, the socket or the process cannot be created.
    pub(crate) fn start(order: &StepOrder, mpi: &MpiOrder) -> io::Result<Helper> {
        let directory = order.directory.join(DIRECTORY);
        std::fs::DirBuilder::new().mode(0o700).create(&directory)?;
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&directory, Some(order.identity.uid), Some(order.identity.gid))?;
        }
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        let ranks: Vec<u32> = order.tasks.iter().map(|task| task.global).collect();
        let attempt = mpi.first_step.unwrap_or(order.attempt);
        let served = Served {
            namespace: format!("spur.{}.{}", attempt.attempt.job, attempt.step.label()),
            order: mpi,
            ranks: ranks.clone(),
            identity: &order.identity,
            directory: &directory,
        };
        let parent = rustix::process::getpid();
        // SAFETY: spurstepd has one thread, so the child may do everything that the parent may.
        let pid = match unsafe { fork(None) }? {
            Forked::Parent(pid) => pid,
            Forked::Child { .. } => {
                drop(ours);
                std::process::exit(i32::from(become_server(&served, theirs, parent).is_err()));
            }
        };
        Ok(Helper {
            pid,
            socket: Some(ours),
            inbox: Vec::new(),
            outbox: Vec::new(),
            environments: None,
            ranks,
            members: BTreeSet::new(),
        })
    }

    /// Returns a helper of one task whose process is at the other end of the socket.
    #[cfg(test)]
    pub(super) fn at(socket: UnixStream) -> Helper {
        Helper {
            pid: rustix::process::getpid(),
            socket: Some(socket),
            inbox: Vec::new(),
            outbox: Vec::new(),
            environments: None,
            ranks: vec![0],
            members: BTreeSet::new(),
        }
    }

    pub(crate) fn pid(&self) -> Pid {
        self.pid
    }

    /// True if the process does not serve yet.
    pub(crate) fn is_starting(&self) -> bool {
        self.environments.is_none()
    }

    /// Returns the variables by which a task finds the process.
    pub(crate) fn environment(&self, index: usize) -> Vec<(String, String)> {
        self.environments.as_ref().and_then(|all| all.get(index)).cloned().unwrap_or_default()
    }

    /// Returns the socket and the events to poll for; `None` once the socket is closed. Nothing is read from
    /// a process that does not read.
    pub(crate) fn watched(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let reading = if self.outbox.len() < LONGEST { PollFlags::IN } else { PollFlags::empty() };
        let writing = if self.outbox.is_empty() { PollFlags::empty() } else { PollFlags::OUT };
        self.socket.as_ref().map(|socket| (socket.as_fd(), reading | writing))
    }

    /// True if the task can no longer take part although others wait for it.
    pub(crate) fn has_deserted(&self, index: usize) -> bool {
        self.members.contains(&index)
    }

    /// True if a task has begun PMIx and not finalized it.
    pub(crate) fn is_spoken_to(&self) -> bool {
        !self.members.is_empty()
    }

    /// Returns the local id of a task; `None` for a task of another node.
    pub(crate) fn index(&self, rank: u32) -> Option<usize> {
        self.ranks.iter().position(|known| *known == rank)
    }

    /// Exchanges messages with the process, and returns those that have arrived.
    pub(crate) fn serve(&mut self) -> Vec<Up> {
        let mut bytes = [0; 64 << 10];
        // The process is the user's, and may send more than the library does.
        while let Some(socket) = self.socket.as_mut().filter(|_| self.inbox.len() <= LONGEST) {
            match socket.read(&mut bytes) {
                Ok(0) => self.socket = None,
                Ok(count) => self.inbox.extend_from_slice(&bytes[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(_) => self.socket = None,
            }
        }
        self.flush();
        let mut said = Vec::new();
        if prost::decode_length_delimiter(&self.inbox[..]).is_ok_and(|length| length > LONGEST) {
            self.socket = None;
            self.inbox = Vec::new();
            said.push(Up::Refused(format!("what one node brings to a fence exceeds {LONGEST} bytes")));
        }
        while let Some(v1::PmixUp { up }) = take(&mut self.inbox) {
            match up {
                Some(Up::Ready(ready)) => {
                    let pairs = |task: v1::PmixTask| {
                        task.environment.into_iter().map(|pair| (pair.key, pair.value)).collect()
                    };
                    self.environments = Some(ready.tasks.into_iter().map(pairs).collect());
                    said.push(Up::Ready(v1::PmixReady::default()));
                }
                Some(Up::Connected(rank)) => self.members.extend(self.index(rank)),
                Some(Up::Finalized(rank)) => {
                    self.index(rank).map(|index| self.members.remove(&index));
                }
                other => said.extend(other),
            }
        }
        said
    }

    /// Sends a message to the process.
    pub(crate) fn tell(&mut self, down: Down) {
        let bytes = v1::PmixDown { down: Some(down) }.encode_length_delimited_to_vec();
        self.outbox.extend_from_slice(&bytes);
        self.flush();
    }

    fn flush(&mut self) {
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

/// Takes the next complete message off the received bytes; `None` if it is incomplete or malformed.
fn take<M: Message + Default>(received: &mut Vec<u8>) -> Option<M> {
    let length = prost::decode_length_delimiter(&received[..]).ok()?;
    let whole = prost::length_delimiter_len(length) + length;
    if received.len() < whole {
        return None;
    }
    let message = M::decode_length_delimited(&received[..whole]).ok();
    received.drain(..whole);
    message
}

/// Turns the child into the server: the user's process, without spurstepd's descriptors.
fn become_server(served: &Served<'_>, socket: UnixStream, parent: Pid) -> io::Result<()> {
    fork::reset_signals()?;
    user::become_user(served.identity)?;
    fork::die_with(parent)?;
    close_all_but(socket.as_raw_fd())?;
    let foreign = std::env::vars_os().map(|(name, _)| name);
    let foreign = foreign.filter(|name| name.as_encoded_bytes().starts_with(b"PMIX_"));
    for name in foreign.collect::<Vec<_>>() {
        // SAFETY: this process has only one thread yet.
        unsafe { std::env::remove_var(name) };
    }
    server::serve(served, socket);
    Ok(())
}

/// Closes the inherited descriptors: spurstepd's lock is released only when its last copy is closed.
fn close_all_but(kept: i32) -> io::Result<()> {
    let open: Vec<i32> = std::fs::read_dir("/proc/self/fd")?
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .filter(|fd| *fd > 2 && *fd != kept)
        .collect();
    for fd in open {
        // SAFETY: this process never uses what it has inherited, and ends without dropping it.
        unsafe { libc::close(fd) };
    }
    Ok(())
}
