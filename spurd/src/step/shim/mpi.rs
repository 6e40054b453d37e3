//! The step as its MPI programs need it: their sockets served, their fences carried to other nodes, and the end of all
//! when one of them cannot go on.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::Message as _;
use rustix::event::PollFlags;
use spur_core::text::exit::ExitCode;
use spur_proto::v1;
use spur_proto::v1::peer_call::Question;
use spur_proto::v1::step_peer::Message;

use super::super::message::{Event, Frame};
use super::super::order::{MpiOrder, StepOrder};
use super::peers::{Arrival, FIRST, Peers};
use super::pmi::{News, Server};
use super::{Shim, Source};

/// How long a task that has left its server may take to end, so that its exit code is known.
const OWN_END: Duration = Duration::from_secs(2);

/// What a step has for its MPI programs.
#[derive(Debug)]
pub(super) struct Mpi {
    order: MpiOrder,
    server: Server,
    peers: Peers,
    /// The number of the next fence of all tasks.
    fence: u64,
    /// Tasks by the questions that they wait for.
    asked: BTreeMap<u64, usize>,
    /// Names that tasks have published; only the first node keeps them.
    names: BTreeMap<Vec<u8>, Vec<u8>>,
    /// It has been told that a way to the first node is wanted, and there is none yet.
    wants_uplink: bool,
    abort: Option<Abort>,
}

/// The step is to be ended.
#[derive(Debug)]
struct Abort {
    /// The task that is the cause, if one is.
    task: Option<usize>,
    why: String,
    /// When it is ended at the latest.
    at: Instant,
}

impl Mpi {
    pub(super) fn new(order: &StepOrder) -> Option<Mpi> {
        let mpi = order.mpi.as_ref()?;
        let ranks = order.tasks.iter().map(|task| task.global);
        let count = u32::try_from(mpi.nodes.len()).unwrap_or(u32::MAX);
        Some(Mpi {
            order: mpi.clone(),
            server: Server::new(mpi, order.attempt.attempt.job, order.attempt.step, ranks),
            peers: Peers::new(mpi.node, count),
            fence: 0,
            asked: BTreeMap::new(),
            names: BTreeMap::new(),
            wants_uplink: false,
            abort: None,
        })
    }

    /// Makes a task's socket: its end, and what goes into its environment beside that.
    pub(super) fn connect(&mut self, index: usize) -> io::Result<(OwnedFd, Vec<(&'static str, String)>)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        Ok((theirs.into(), self.server.connect(index, ours)))
    }

    /// When something is due although nothing happens.
    pub(super) fn due(&self) -> Option<Instant> {
        self.abort.as_ref().map(|abort| abort.at)
    }

    pub(super) fn sources(&self) -> impl Iterator<Item = (std::os::fd::BorrowedFd<'_>, PollFlags, Source)> {
        self.server.sockets().map(|(index, fd, full)| {
            let writing = if full { PollFlags::OUT } else { PollFlags::empty() };
            (fd, PollFlags::IN | writing, Source::Pmi(index))
        })
    }

    /// The step is to be ended at once.
    fn abort(&mut self, task: Option<usize>, why: String) {
        self.abort.get_or_insert(Abort { task, why, at: Instant::now() });
    }

    /// A task has left, or is about to, and others count on it.
    fn deserted(&mut self, task: usize) {
        self.abort.get_or_insert(Abort {
            task: Some(task),
            why: String::new(),
            at: Instant::now() + OWN_END,
        });
    }

    fn name(&self, node: u32) -> &str {
        self.order.nodes.get(node as usize).map_or("?", |node| &node.name)
    }

    /// Says that a way to the first node is wanted.
    fn uplink_wanted(&self) -> Event {
        Event::UplinkWanted { node: self.name(FIRST).to_owned(), address: self.order.first.clone() }
    }

    /// The number of a node by its name.
    pub(super) fn number(&self, name: &str) -> Option<u32> {
        let at = self.order.nodes.iter().position(|node| node.name == name)?;
        u32::try_from(at).ok()
    }

    /// Does what tasks and other nodes have made possible.
    fn advance(&mut self) {
        loop {
            for news in self.server.take_news() {
                match news {
                    News::Fence(data) => {
                        self.peers.bring(Vec::new(), self.fence, data);
                        self.fence += 1;
                    }
                    News::Ask(task, question) => {
                        let id = self.peers.call(FIRST, question);
                        self.asked.insert(id, task);
                    }
                    News::Abort(task, why) => self.abort(Some(task), why),
                }
            }
            let Some(arrival) = self.peers.next_arrival() else { return };
            match arrival {
                Arrival::Whole(whole) => self.server.fenced(&whole.data),
                Arrival::Reply(reply) => {
                    if let Some(task) = self.asked.remove(&reply.id) {
                        self.server.replied(task, reply.status, &reply.data);
                    }
                }
                Arrival::Call(call) => self.answer(&call),
            }
        }
    }

    fn answer(&mut self, call: &v1::PeerCall) {
        let (status, data) = match &call.question {
            Some(Question::Publish(entry)) => {
                self.names.insert(entry.key.to_vec(), entry.value.to_vec());
                (0, Vec::new())
            }
            Some(Question::Lookup(name)) => match self.names.get(&name[..]) {
                Some(port) => (0, port.clone()),
                None => (1, Vec::new()),
            },
            Some(Question::Unpublish(name)) => {
                (i32::from(self.names.remove(&name[..]).is_none()), Vec::new())
            }
            Some(Question::Modex(_)) | None => (1, Vec::new()),
        };
        self.peers.reply(call, status, data);
    }
}

impl Shim {
    /// A task has said something to the server of its MPI library.
    pub(super) fn serve_pmi(&mut self, index: usize) {
        let Some(mpi) = &mut self.mpi else { return };
        mpi.server.serve(index);
        mpi.advance();
        let gone = mpi.server.sockets().all(|(other, ..)| other != index);
        if gone && mpi.server.has_deserted(index) {
            mpi.deserted(index);
        }
    }

    /// A task has ended; if others still count on it, so has the step.
    pub(super) fn mpi_task_ended(&mut self, index: usize) {
        let Some(mpi) = &mut self.mpi else { return };
        // What it said last may not have been read.
        mpi.server.serve(index);
        mpi.advance();
        if mpi.server.has_deserted(index) {
            mpi.deserted(index);
        }
    }

    /// Another connection is the way to a node of the step; `None`: to the first one.
    pub(super) fn join_peer(&mut self, index: usize, node: Option<&str>) {
        let number = match (&self.mpi, node) {
            (Some(mpi), Some(node)) if mpi.order.node == FIRST => mpi.number(node),
            (Some(mpi), None) if mpi.order.node != FIRST => Some(FIRST),
            _ => None,
        };
        let Some((mpi, number)) = self.mpi.as_mut().zip(number) else {
            eprintln!("spurstepd: {}: no such part of the step: {node:?}", self.order.attempt);
            return self.connections[index].close();
        };
        for connection in &mut self.connections {
            if connection.peer == Some(number) {
                connection.close();
            }
        }
        self.connections[index].peer = Some(number);
        mpi.wants_uplink = false;
        mpi.peers.connected(number);
    }

    pub(super) fn hear_peer(&mut self, index: usize, message: &[u8]) {
        let known = self.connections[index].peer.is_some();
        let Some(mpi) = self.mpi.as_mut().filter(|_| known) else { return };
        match v1::StepPeer::decode(message) {
            Ok(v1::StepPeer { message: Some(message) }) => mpi.peers.receive(message),
            Ok(_) | Err(_) => eprintln!("spurstepd: {}: another node talks nonsense", self.order.attempt),
        }
    }

    pub(super) fn uplink_lost(&mut self, why: &str) {
        let Some(mpi) = &mut self.mpi else { return };
        let why = format!("node {}, the first of the step, cannot be reached: {why}", mpi.name(FIRST));
        mpi.abort(None, why);
    }

    /// Whether a new listener must hear that a way to the first node is wanted.
    pub(super) fn uplink_wanted(&self) -> Option<Event> {
        let mpi = self.mpi.as_ref().filter(|mpi| mpi.wants_uplink)?;
        Some(mpi.uplink_wanted())
    }

    /// Carries on what has become possible between tasks and nodes, and ends the step if that is due.
    pub(super) fn settle_mpi(&mut self) {
        let Some(mpi) = &mut self.mpi else { return };
        mpi.advance();
        let connections = &mut self.connections;
        let open = |connections: &[super::Connection], node| {
            connections.iter().position(|one| one.peer == Some(node) && !one.closed())
        };
        while let Some((to, message)) = mpi.peers.next_outgoing(|node| open(connections, node).is_some()) {
            let Some(index) = open(connections, to) else { break };
            send(&mut connections[index], message);
        }
        let wanted = mpi.order.node != FIRST
            && !mpi.wants_uplink
            && mpi.peers.has_words_for(FIRST)
            && open(connections, FIRST).is_none();
        if wanted {
            mpi.wants_uplink = true;
            let event = mpi.uplink_wanted();
            self.tell(&event);
        }
        self.abort_if_due();
    }

    fn abort_if_due(&mut self) {
        let Some(mpi) = &mut self.mpi else { return };
        let ended = |task: Option<usize>| task.is_none_or(|task| self.tasks[task].exit.is_some());
        let Some(abort) = mpi.abort.take_if(|abort| ended(abort.task) || abort.at <= Instant::now()) else {
            return;
        };
        if self.terminated || self.record.is_some() {
            return;
        }
        let task = abort.task.map(|task| &self.tasks[task]);
        let subject = task.map_or(String::new(), |task| format!("task {}: ", task.order.global));
        let why = match (abort.why.as_str(), task.and_then(|task| task.exit)) {
            ("", Some(exit)) => {
                format!("ended without MPI_Finalize ({}), and others wait for it", in_words(exit.status))
            }
            ("", None) => "left its MPI server without MPI_Finalize, and others wait for it".to_owned(),
            (why, _) => why.to_owned(),
        };
        let waits = match mpi.peers.missing() {
            missing if missing.is_empty() || abort.task.is_some() => String::new(),
            missing => {
                let names: Vec<&str> = missing.iter().map(|node| mpi.name(*node)).collect();
                format!("; missing in the fence: {}", names.join(","))
            }
        };
        let step = format!("{}.{}", self.order.attempt.attempt.job, self.order.attempt.step.label());
        let message = format!("{subject}{why}{waits}; StepId={step} is ended");
        self.tell(&Event::Aborted { message });
        self.terminate(Some(Duration::ZERO));
    }
}

fn in_words(exit: ExitCode) -> String {
    if exit.signal == 0 { format!("exit code {}", exit.code) } else { format!("signal {}", exit.signal) }
}

fn send(connection: &mut super::Connection, message: Message) {
    let message = v1::StepPeer { message: Some(message) };
    connection.send(&Frame::Peer(message.encode_to_vec()));
}
