//! MPI support of a step: serves the programs' sockets, carries fences between nodes, and ends the step when
//! one task cannot go on.

mod peers;
mod pmi;
mod pmix;

use std::collections::BTreeMap;
use std::io;
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use prost::Message as _;
use rustix::event::PollFlags;
use rustix::process::Pid;
use spur_core::model::idset::IdSet;
use spur_core::text::exit::ExitCode;
use step_wire::message::{Event, Frame};
use step_wire::order::{MpiOrder, MpiPlugin, StepOrder};
use step_wire::record::{LaunchFailure, LaunchStage, TaskExit};
use step_wire::v1;
use step_wire::v1::PeerStage;
use step_wire::v1::peer_call::Question;
use step_wire::v1::pmix_down::Down;
use step_wire::v1::pmix_up::Up;
use step_wire::v1::step_peer::Message;

use self::peers::{Arrival, FIRST, Group, Peers};
use self::pmi::{News, Server, Space};
use self::pmix::Helper;
use crate::connection::Connection;
use crate::task::plan::MpiEnd;

/// Time for a task that has left its server to end, so that its exit code is known.
const OWN_END: Duration = Duration::from_secs(2);

/// Largest number of groups of tasks with fences of their own: the process that serves PMIx is the user's,
/// and chooses their names.
const GROUPS: usize = 4096;
/// Largest number of unanswered questions of this node's tasks to other nodes.
const ASKED: usize = 65_536;
/// The PMIx status of a question that cannot be answered: `PMIX_ERROR`.
const UNANSWERED: i32 = -1;

/// A socket of a server for MPI programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The PMI socket of the task with this local id.
    Pmi(usize),
    /// The socket of the process that serves PMIx.
    Pmix,
}

/// The state of a step's MPI programs.
#[derive(Debug)]
pub(crate) struct Mpi {
    order: MpiOrder,
    service: Service,
    peers: Peers,
    /// The number of the next fence of each group of tasks.
    fences: BTreeMap<Group, u64>,
    /// Senders of questions that other nodes have not answered, by question number.
    asked: BTreeMap<u64, Asker>,
    /// Names that tasks have published; only the first node keeps them.
    names: Space,
    /// True if a connection to the first node was requested and is not there yet.
    wants_uplink: bool,
    /// The reason why the first node cannot be reached any more.
    first_lost: Option<String>,
    abort: Option<Abort>,
}

/// The server for the tasks.
#[derive(Debug)]
enum Service {
    Pmi(Box<Server>),
    Pmix(Box<Pmix>),
}

/// The process that serves PMIx, and its unanswered requests.
#[derive(Debug)]
struct Pmix {
    /// The running process; `None` before its start and after the request to end.
    helper: Option<Helper>,
    /// Fences under way, each with the number by which the helper knows it.
    fences: BTreeMap<(Group, u64), u64>,
    /// Questions of other nodes, by the numbers that the helper knows.
    calls: BTreeMap<u64, v1::PeerCall>,
    questions: u64,
    /// The reason why the process cannot serve.
    refused: Option<String>,
    /// True once [`Mpi::take_server_state`] has returned that the process serves.
    is_announced: bool,
}

/// The sender of a question to another node.
#[derive(Debug)]
enum Asker {
    /// A task, by its local id.
    Task(usize),
    /// The process that serves PMIx, with its own number of the question.
    Helper(u64),
}

/// A pending decision to end the step.
#[derive(Debug)]
struct Abort {
    /// The task that is the cause, if one is.
    task: Option<usize>,
    why: String,
    /// The latest instant at which the step is ended.
    at: Instant,
}

impl Mpi {
    pub(crate) fn new(order: &StepOrder) -> Option<Mpi> {
        let mpi = order.mpi.as_ref()?;
        let ranks = order.tasks.iter().map(|task| task.global);
        let count = u32::try_from(mpi.nodes.len()).unwrap_or(u32::MAX);
        let service = match mpi.plugin {
            MpiPlugin::Pmi2 => {
                let first = mpi.first_step.unwrap_or(order.attempt);
                let server = Server::new(mpi, first.attempt.job, first.step, ranks);
                Service::Pmi(Box::new(server))
            }
            MpiPlugin::Pmix => Service::Pmix(Box::new(Pmix {
                helper: None,
                fences: BTreeMap::new(),
                calls: BTreeMap::new(),
                questions: 0,
                refused: None,
                is_announced: false,
            })),
        };
        Some(Mpi {
            order: mpi.clone(),
            service,
            peers: Peers::new(mpi.node, count),
            fences: BTreeMap::new(),
            asked: BTreeMap::new(),
            names: Space::of_tasks(mpi.nodes.iter().map(|node| node.ranks.len() as usize).sum()),
            wants_uplink: false,
            first_lost: None,
            abort: None,
        })
    }

    /// True if tasks have to wait until the server is ready.
    pub(crate) fn is_starting(&self) -> bool {
        match &self.service {
            Service::Pmi(_) => false,
            Service::Pmix(pmix) => pmix.helper.as_ref().is_none_or(Helper::is_starting),
        }
    }

    /// Returns the socket and the variables by which a task finds its server.
    pub(crate) fn connect(&mut self, index: usize) -> io::Result<MpiEnd> {
        match &mut self.service {
            Service::Pmi(server) => {
                let (ours, theirs) = UnixStream::pair()?;
                ours.set_nonblocking(true)?;
                Ok(MpiEnd { socket: Some(theirs.into()), variables: server.connect(index, ours) })
            }
            Service::Pmix(pmix) => {
                let variables = pmix.helper.as_ref().map(|helper| helper.environment(index));
                Ok(MpiEnd { socket: None, variables: variables.unwrap_or_default() })
            }
        }
    }

    /// Returns the next instant at which a time-out of MPI support is due; `None` if none is pending.
    pub(crate) fn due(&self) -> Option<Instant> {
        let abort = self.abort.as_ref().map(|abort| abort.at);
        [abort, self.peers.due()].into_iter().flatten().min()
    }

    pub(crate) fn sources(&self) -> Vec<(std::os::fd::BorrowedFd<'_>, PollFlags, Source)> {
        match &self.service {
            Service::Pmi(server) => {
                server.sockets().map(|(index, fd, flags)| (fd, flags, Source::Pmi(index))).collect()
            }
            Service::Pmix(pmix) => {
                let watched = pmix.helper.as_ref().and_then(Helper::watched);
                watched.into_iter().map(|(fd, flags)| (fd, flags, Source::Pmix)).collect()
            }
        }
    }

    /// Decides to end the step at once.
    fn abort(&mut self, task: Option<usize>, why: String) {
        self.abort.get_or_insert(Abort { task, why, at: Instant::now() });
    }

    /// Decides to end the step because a task has left, or is about to, while others wait for it.
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

    /// Returns the request for a connection to the first node.
    fn uplink_wanted(&self) -> Event {
        Event::UplinkWanted {
            node: self.name(FIRST).to_owned(),
            address: self.order.first.clone(),
            of: self.order.first_step.map(|first| (first, self.order.node)),
        }
    }

    /// Returns the number of a node by its name; `None` for an unknown name.
    fn number(&self, name: &str) -> Option<u32> {
        let at = self.order.nodes.iter().position(|node| node.name == name)?;
        u32::try_from(at).ok()
    }

    /// Handles everything that tasks and other nodes have sent.
    fn advance(&mut self) {
        loop {
            self.hear_service();
            let Some(arrival) = self.peers.next_arrival() else { return };
            match arrival {
                Arrival::Whole(whole) => self.fenced(whole),
                Arrival::Reply(reply) => match (self.asked.remove(&reply.id), &mut self.service) {
                    (Some(Asker::Task(task)), Service::Pmi(server)) => {
                        server.replied(task, reply.status, &reply.data);
                    }
                    (Some(Asker::Helper(id)), Service::Pmix(pmix)) => {
                        pmix.answer(v1::PmixData { id, status: reply.status, data: reply.data });
                    }
                    _ => {}
                },
                Arrival::Call(call) => self.answer(call),
            }
        }
    }

    /// Handles the messages of the tasks.
    fn hear_service(&mut self) {
        match &mut self.service {
            Service::Pmi(server) => {
                for news in server.take_news() {
                    match news {
                        News::Fence(data) => {
                            self.bring(Group::default(), data);
                        }
                        News::Ask(task, question) => {
                            let id = self.peers.call(FIRST, question);
                            self.asked.insert(id, Asker::Task(task));
                        }
                        News::Abort(task, why) => self.abort(Some(task), why),
                    }
                }
            }
            Service::Pmix(pmix) => {
                for up in pmix.helper.as_mut().map(Helper::serve).unwrap_or_default() {
                    self.hear_helper(up);
                }
            }
        }
    }

    fn hear_helper(&mut self, up: Up) {
        match up {
            Up::Refused(why) => {
                if let Service::Pmix(pmix) = &mut self.service {
                    pmix.refused = Some(why);
                }
            }
            Up::Fence(fence) => {
                let group = self.group(&fence.ranks);
                if self.fences.len() >= GROUPS && !self.fences.contains_key(&group) {
                    return self
                        .abort(None, format!("more than {GROUPS} groups of tasks have fences of their own"));
                }
                let number = self.bring(group.clone(), fence.data.to_vec());
                if let Service::Pmix(pmix) = &mut self.service {
                    pmix.fences.insert((group, number), fence.id);
                }
            }
            Up::Modex(asked) => {
                let node = self.order.nodes.iter().position(|node| node.ranks.contains(asked.rank));
                let node = node.filter(|_| self.asked.len() < ASKED);
                match node.and_then(|node| u32::try_from(node).ok()) {
                    Some(node) => {
                        let id = self.peers.call(node, Question::Modex(asked.rank));
                        self.asked.insert(id, Asker::Helper(asked.id));
                    }
                    None => {
                        if let Service::Pmix(pmix) = &mut self.service {
                            pmix.answer(v1::PmixData {
                                id: asked.id,
                                status: UNANSWERED,
                                ..Default::default()
                            });
                        }
                    }
                }
            }
            Up::Published(data) => {
                let Service::Pmix(pmix) = &mut self.service else { return };
                if let Some(call) = pmix.calls.remove(&data.id) {
                    self.peers.reply(&call, data.status, data.data.to_vec());
                }
            }
            Up::Abort(v1::PmixAbort { rank, status, message }) => {
                let Service::Pmix(pmix) = &self.service else { return };
                let task = pmix.helper.as_ref().and_then(|helper| helper.index(rank));
                // OpenMPI sends `N/A` if the program gave no message.
                let said = Some(message.trim()).filter(|said| !["", "N/A"].contains(said));
                let said = said.map_or(String::new(), |said| format!(": {said}"));
                self.abort(task, format!("called abort with exit code {status}{said}"));
            }
            Up::Ready(_) | Up::Connected(_) | Up::Finalized(_) => {}
        }
    }

    /// Brings the data of this node's tasks to a fence, and returns the fence's number among those of the
    /// group.
    fn bring(&mut self, group: Group, data: Vec<u8>) -> u64 {
        let next = self.fences.entry(group.clone()).or_default();
        let number = *next;
        *next += 1;
        self.peers.bring(group, number, data);
        number
    }

    /// Returns the group of these ranks; all tasks are the default group.
    fn group(&self, ranks: &str) -> Group {
        let Ok(members) = ranks.parse::<IdSet>() else { return Group::default() };
        let nodes = (0..).zip(&self.order.nodes);
        let nodes: Vec<u32> = nodes
            .filter(|(_, node)| node.ranks.iter().any(|rank| members.contains(rank)))
            .map(|(number, _)| number)
            .collect();
        let all: u32 = self.order.nodes.iter().map(|node| node.ranks.len()).sum();
        if members.is_empty() || members.len() == all {
            return Group::default();
        }
        Group { nodes, ranks: ranks.to_owned() }
    }

    fn fenced(&mut self, whole: v1::FenceWhole) {
        match &mut self.service {
            Service::Pmi(server) => {
                if let Err(full) = server.fenced(&whole.data) {
                    self.abort(None, format!("what tasks have put by PMI is too much: {full}"));
                }
            }
            Service::Pmix(pmix) => {
                let group = Group { nodes: whole.nodes, ranks: whole.ranks };
                if let Some(id) = pmix.fences.remove(&(group, whole.number)) {
                    pmix.answer(v1::PmixData { id, status: 0, data: whole.data });
                }
            }
        }
    }

    fn answer(&mut self, call: v1::PeerCall) {
        let (status, data) = match (&call.question, &mut self.service) {
            (Some(Question::Publish(entry)), _) => {
                (i32::from(self.names.insert(&entry.key, &entry.value).is_err()), Vec::new())
            }
            (Some(Question::Lookup(name)), _) => match self.names.get(&name[..]) {
                Some(port) => (0, port.clone()),
                None => (1, Vec::new()),
            },
            (Some(Question::Unpublish(name)), _) => (i32::from(!self.names.remove(&name[..])), Vec::new()),
            (Some(Question::Modex(rank)), Service::Pmix(pmix)) => {
                let rank = *rank;
                return pmix.ask(rank, call);
            }
            (Some(Question::Modex(_)), Service::Pmi(_)) | (None, _) => (1, Vec::new()),
        };
        self.peers.reply(&call, status, data);
    }

    /// Returns the progress of this node's tasks; `ended` if all of them have ended.
    fn stage(&self, ended: bool) -> PeerStage {
        let speaks = match &self.service {
            Service::Pmi(server) => server.is_spoken_to(),
            Service::Pmix(pmix) => pmix.helper.as_ref().is_some_and(Helper::is_spoken_to),
        };
        match (ended, speaks) {
            (true, _) => PeerStage::Ended,
            (false, true) => PeerStage::Speaking,
            (false, false) => PeerStage::Finalized,
        }
    }

    /// Returns the reason why the step cannot go on, if a task waits for a node that cannot serve it.
    fn hopeless(&self) -> Option<String> {
        if let Some(why) = self.first_lost.as_ref().filter(|_| self.peers.is_waiting()) {
            return Some(format!(
                "node {}, the first of the step, cannot be reached: {why}",
                self.name(FIRST)
            ));
        }
        let gone = self.peers.gone_from_fence()?;
        Some(format!("node {} takes part no more, and others wait for it", self.name(gone)))
    }

    /// True if the task can no longer take part although others wait for it.
    fn has_deserted(&self, index: usize) -> bool {
        match &self.service {
            Service::Pmi(server) => server.has_deserted(index),
            Service::Pmix(pmix) => pmix.helper.as_ref().is_some_and(|helper| helper.has_deserted(index)),
        }
    }
}

impl Pmix {
    fn answer(&mut self, answer: v1::PmixData) {
        if let Some(helper) = &mut self.helper {
            helper.tell(Down::Answer(answer));
        }
    }

    /// Asks the helper, on behalf of another node, for the published data of a task of this node.
    fn ask(&mut self, rank: u32, call: v1::PeerCall) {
        self.questions += 1;
        let id = self.questions;
        self.calls.insert(id, call);
        if let Some(helper) = &mut self.helper {
            helper.tell(Down::Modex(v1::PmixModex { id, rank }));
        }
    }
}

/// A change of the process that serves PMIx.
pub(crate) enum ServerState {
    /// The process serves; tasks may start.
    Serving,
    /// The process cannot serve.
    Refused(LaunchFailure),
}

/// The progress of the step as far as MPI support needs it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Progress {
    /// True if the step is being ended by anything but the end of its own tasks.
    pub(crate) is_told_to_end: bool,
    /// True if every task of this node has ended.
    pub(crate) have_tasks_ended: bool,
}

impl Mpi {
    /// True if a separate process serves the tasks.
    pub(crate) fn has_server(&self) -> bool {
        matches!(self.service, Service::Pmix(_))
    }

    /// Starts the process that serves the tasks, if one is needed.
    ///
    /// # Errors
    /// Explains why tasks cannot be served.
    pub(crate) fn start(&mut self, order: &StepOrder) -> Result<Option<Pid>, LaunchFailure> {
        let Service::Pmix(pmix) = &mut self.service else { return Ok(None) };
        match Helper::start(order, &self.order) {
            Ok(helper) => Ok(Some(pmix.helper.insert(helper).pid())),
            Err(error) => {
                let message = format!("the process that serves PMIx: {error}");
                Err(LaunchFailure { stage: LaunchStage::Mpi, message })
            }
        }
    }

    /// Reads a socket.
    pub(crate) fn serve(&mut self, source: Source) {
        match source {
            Source::Pmi(index) => self.serve_pmi(index),
            Source::Pmix => self.advance(),
        }
    }

    /// Returns whether the PMIx server serves or cannot serve, once for each change; `None` without a change.
    ///
    /// Every method that advances the exchange may read the server's message, so the caller asks after each.
    pub(crate) fn take_server_state(&mut self) -> Option<ServerState> {
        let Service::Pmix(pmix) = &mut self.service else { return None };
        if let Some(why) = pmix.refused.take() {
            let message = format!("--mpi=pmix: {why}");
            return Some(ServerState::Refused(LaunchFailure { stage: LaunchStage::Mpi, message }));
        }
        let serves = pmix.helper.as_ref().is_some_and(|helper| !helper.is_starting());
        let is_new = serves && !std::mem::replace(&mut pmix.is_announced, true);
        is_new.then_some(ServerState::Serving)
    }

    fn serve_pmi(&mut self, index: usize) {
        let Service::Pmi(server) = &mut self.service else { return };
        server.serve(index);
        let gone = server.sockets().all(|(other, ..)| other != index);
        self.advance();
        if gone && self.has_deserted(index) {
            self.deserted(index);
        }
    }

    /// Handles the early end of the process that serves PMIx.
    ///
    /// Returns the reason why tasks that wait for the process cannot start; running tasks are aborted.
    pub(crate) fn server_ended(&mut self) -> LaunchFailure {
        self.advance();
        let why = "the process that serves PMIx has ended before its time";
        let mut refused = None;
        if let Service::Pmix(pmix) = &mut self.service {
            let is_starting = pmix.helper.take().is_some_and(|helper| helper.is_starting());
            refused = pmix.refused.take();
            if refused.is_none() && !is_starting {
                self.abort(None, why.to_owned());
            }
        }
        let message = format!("--mpi=pmix: {}", refused.as_deref().unwrap_or(why));
        LaunchFailure { stage: LaunchStage::Mpi, message }
    }

    /// Tells the process that serves PMIx to end, once no task needs it.
    pub(crate) fn end_server(&mut self) {
        if let Service::Pmix(pmix) = &mut self.service {
            pmix.helper = None;
        }
    }

    /// Handles the end of a task's process; the step ends, too, if others still wait for the task.
    pub(crate) fn task_ended(&mut self, index: usize) {
        // The last bytes of the task may be unread.
        if let Service::Pmi(server) = &mut self.service {
            server.serve(index);
        }
        self.advance();
        if self.has_deserted(index) {
            self.deserted(index);
        }
    }

    /// Makes a connection lead to a node of the step, or to the first one for `None`. Returns false if there
    /// is no such node.
    pub(crate) fn join_peer(
        &mut self,
        connections: &mut [Connection],
        index: usize,
        node: Option<(&str, Option<u32>)>,
    ) -> bool {
        let is_first = self.order.node == FIRST;
        let is_named = |part: &u32, name: &str| {
            *part != FIRST && self.order.nodes.get(*part as usize).is_some_and(|node| node.name == name)
        };
        let number = match node {
            Some((name, Some(part))) if is_first => Some(part).filter(|part| is_named(part, name)),
            Some((name, None)) if is_first => self.number(name),
            None if !is_first => Some(FIRST),
            _ => None,
        };
        let Some(number) = number else { return false };
        for connection in connections.iter_mut().filter(|one| one.peer == Some(number)) {
            connection.close();
        }
        connections[index].peer = Some(number);
        (self.wants_uplink, self.first_lost) = (false, None);
        self.peers.connected(number);
        true
    }

    /// Handles a message of another node; returns false if it cannot be decoded.
    pub(crate) fn hear_peer(&mut self, message: &[u8]) -> bool {
        match v1::StepPeer::decode(message) {
            Ok(v1::StepPeer { message: Some(message) }) => {
                self.peers.receive(message);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    pub(crate) fn uplink_lost(&mut self, why: &str) {
        self.first_lost = Some(why.to_owned());
    }

    /// True if this is the first node, and tasks of other nodes may still need it.
    pub(crate) fn is_needed_by_others(&self) -> bool {
        self.peers.is_needed()
    }

    /// Returns the request for a connection to the first node, for a new subscriber, if the request is still
    /// open.
    pub(crate) fn wanted_uplink(&self) -> Option<Event> {
        self.wants_uplink.then(|| self.uplink_wanted())
    }

    /// Sends and handles everything that has become possible. Returns an event for subscribers, if there is
    /// one.
    pub(crate) fn carry_on(&mut self, progress: Progress, connections: &mut [Connection]) -> Option<Event> {
        self.advance();
        if self.abort.is_none() && !progress.is_told_to_end {
            self.peers.set_stage(self.stage(progress.have_tasks_ended));
        } else if progress.have_tasks_ended {
            // Killed tasks need the first node no longer, and their absence in a fence is not why the step
            // ends.
            self.peers.set_stage(PeerStage::Finalized);
        }
        let open = |connections: &[Connection], node| {
            connections.iter().position(|one| one.peer == Some(node) && !one.closed())
        };
        self.peers.watch(|node| open(connections, node).is_some(), Instant::now());
        self.advance();
        if let Some(why) = self.hopeless() {
            self.abort(None, why);
        }
        while let Some((to, message)) = self.peers.next_outgoing(|node| open(connections, node).is_some()) {
            let Some(index) = open(connections, to) else { break };
            send(&mut connections[index], message);
        }
        let is_wanted = self.order.node != FIRST
            && !self.wants_uplink
            && self.peers.needs(FIRST)
            && open(connections, FIRST).is_none();
        self.wants_uplink |= is_wanted;
        is_wanted.then(|| self.uplink_wanted())
    }

    /// Returns the reason why the step has to end, for users, once the end is due.
    ///
    /// The end is due at its deadline, or when the task that is the cause has ended; without such a task it
    /// is due at once. `exit` returns the ends of tasks.
    pub(crate) fn due_abort(
        &mut self,
        order: &StepOrder,
        exit: impl Fn(usize) -> Option<TaskExit>,
    ) -> Option<String> {
        let has_ended = |task: Option<usize>| task.is_none_or(|task| exit(task).is_some());
        let abort = self.abort.take_if(|abort| has_ended(abort.task) || abort.at <= Instant::now())?;
        let rank = abort.task.map(|task| order.tasks[task].global);
        let subject = rank.map_or(String::new(), |rank| format!("task {rank}: "));
        let why = match (abort.why.as_str(), abort.task.and_then(exit)) {
            ("", Some(exit)) => {
                format!("ended without MPI_Finalize ({}), and others wait for it", in_words(exit.status))
            }
            ("", None) => "left its MPI server without MPI_Finalize, and others wait for it".to_owned(),
            (why, _) => why.to_owned(),
        };
        let waits = match self.peers.missing() {
            missing if missing.is_empty() || abort.task.is_some() => String::new(),
            missing => {
                let names: Vec<&str> = missing.iter().map(|node| self.name(*node)).collect();
                format!("; missing in the fence: {}", names.join(","))
            }
        };
        let step = format!("{}.{}", order.attempt.attempt.job, order.attempt.step.label());
        Some(format!("{subject}{why}{waits}; StepId={step} is ended"))
    }
}

fn in_words(exit: ExitCode) -> String {
    if exit.signal == 0 { format!("exit code {}", exit.code) } else { format!("signal {}", exit.signal) }
}

fn send(connection: &mut Connection, message: Message) {
    let message = v1::StepPeer { message: Some(message) };
    connection.send(&Frame::Peer(message.encode_to_vec()));
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    /// Returns a step of one node whose tasks wait for PMIx, and the end of the process that serves it.
    fn starting() -> (Mpi, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("there are descriptors");
        ours.set_nonblocking(true).expect("sockets have this mode");
        let ranks = [0].into_iter().collect();
        let mpi = Mpi {
            order: MpiOrder {
                plugin: MpiPlugin::Pmix,
                node: 0,
                nodes: vec![step_wire::order::MpiNode { name: "n1".to_owned(), ranks }],
                first_step: None,
                first: String::new(),
            },
            service: Service::Pmix(Box::new(Pmix {
                helper: Some(Helper::at(ours)),
                fences: BTreeMap::new(),
                calls: BTreeMap::new(),
                questions: 0,
                refused: None,
                is_announced: false,
            })),
            peers: Peers::new(0, 1),
            fences: BTreeMap::new(),
            asked: BTreeMap::new(),
            names: Space::of_tasks(1),
            wants_uplink: false,
            first_lost: None,
            abort: None,
        };
        (mpi, theirs)
    }

    fn said(up: Up) -> Vec<u8> {
        v1::PmixUp { up: Some(up) }.encode_length_delimited_to_vec()
    }

    /// The message may be read while another event is handled, before poll(2) has reported it.
    #[test]
    fn a_server_that_is_ready_is_reported_once_whoever_reads_the_message() {
        let progress = Progress { is_told_to_end: false, have_tasks_ended: false };
        let read_by: [fn(&mut Mpi, Progress); 2] = [
            |mpi, _| mpi.serve(Source::Pmix),
            |mpi, progress| assert!(mpi.carry_on(progress, &mut []).is_none()),
        ];
        for read in read_by {
            let (mut mpi, mut server) = starting();
            assert!(mpi.take_server_state().is_none());
            server.write_all(&said(Up::Ready(v1::PmixReady::default()))).expect("the other end is open");
            read(&mut mpi, progress);
            assert!(matches!(mpi.take_server_state(), Some(ServerState::Serving)));
            assert!(mpi.take_server_state().is_none());
            let (mut mpi, mut server) = starting();
            server.write_all(&said(Up::Refused("no library".to_owned()))).expect("the other end is open");
            read(&mut mpi, progress);
            assert!(matches!(mpi.take_server_state(), Some(ServerState::Refused(_))));
            assert!(mpi.take_server_state().is_none());
        }
    }
}
