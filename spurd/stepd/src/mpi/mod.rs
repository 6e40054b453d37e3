//! The step as its MPI programs need it: their sockets served, their fences carried to other nodes, and the end of all
//! when one of them cannot go on.

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
use step_wire::record::{LaunchFailure, LaunchStage};
use step_wire::v1;
use step_wire::v1::PeerStage;
use step_wire::v1::peer_call::Question;
use step_wire::v1::pmix_down::Down;
use step_wire::v1::pmix_up::Up;
use step_wire::v1::step_peer::Message;

use self::peers::{Arrival, FIRST, Group, Peers};
use self::pmi::{News, Server, Space};
use self::pmix::Helper;
use crate::step::{Shim, Source};
use crate::task::child::MpiEnd;

/// How long a task that has left its server may take to end, so that its exit code is known.
const OWN_END: Duration = Duration::from_secs(2);

/// Groups of tasks that may meet in fences of their own. The process that serves PMIx is the user's, and names them.
const GROUPS: usize = 4096;
/// Questions of this node's tasks to other nodes that may wait for an answer.
const ASKED: usize = 65_536;
/// What PMIx calls a question that cannot be answered: `PMIX_ERROR`.
const UNANSWERED: i32 = -1;

/// What a step has for its MPI programs.
#[derive(Debug)]
pub(crate) struct Mpi {
    order: MpiOrder,
    service: Service,
    peers: Peers,
    /// The number of the next fence of each group of tasks.
    fences: BTreeMap<Group, u64>,
    /// Who waits for answers from other nodes, by the numbers of the questions.
    asked: BTreeMap<u64, Asker>,
    /// Names that tasks have published; only the first node keeps them.
    names: Space,
    /// It has been told that a way to the first node is wanted, and there is none yet.
    wants_uplink: bool,
    /// Why the first node cannot be reached any more.
    first_lost: Option<String>,
    abort: Option<Abort>,
}

/// What serves the tasks.
#[derive(Debug)]
enum Service {
    Pmi(Box<Server>),
    Pmix(Pmix),
}

/// The process that serves PMIx, and what it waits for.
#[derive(Debug)]
struct Pmix {
    /// `None` before it is started, and when it has been told to end.
    helper: Option<Helper>,
    /// Fences under way, each with the number by which the helper knows it.
    fences: BTreeMap<(Group, u64), u64>,
    /// Questions of other nodes, by the numbers under which the helper was asked.
    calls: BTreeMap<u64, v1::PeerCall>,
    questions: u64,
    /// Why it cannot serve.
    refused: Option<String>,
}

/// Who waits for an answer from another node.
#[derive(Debug)]
enum Asker {
    /// A task, by its local id.
    Task(usize),
    /// The process that serves PMIx, which has given the question this number.
    Helper(u64),
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
    pub(crate) fn new(order: &StepOrder) -> Option<Mpi> {
        let mpi = order.mpi.as_ref()?;
        let ranks = order.tasks.iter().map(|task| task.global);
        let count = u32::try_from(mpi.nodes.len()).unwrap_or(u32::MAX);
        let service = match mpi.plugin {
            MpiPlugin::Pmi2 => {
                let server = Server::new(mpi, order.attempt.attempt.job, order.attempt.step, ranks);
                Service::Pmi(Box::new(server))
            }
            MpiPlugin::Pmix => Service::Pmix(Pmix {
                helper: None,
                fences: BTreeMap::new(),
                calls: BTreeMap::new(),
                questions: 0,
                refused: None,
            }),
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

    /// Whether tasks have to wait until they are served.
    pub(crate) fn is_starting(&self) -> bool {
        match &self.service {
            Service::Pmi(_) => false,
            Service::Pmix(pmix) => pmix.helper.as_ref().is_none_or(Helper::is_starting),
        }
    }

    /// The process that serves the tasks and is none of them.
    pub(crate) fn helper(&self) -> Option<Pid> {
        match &self.service {
            Service::Pmi(_) => None,
            Service::Pmix(pmix) => pmix.helper.as_ref().map(Helper::pid),
        }
    }

    /// What a task finds its server by.
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

    /// When something is due although nothing happens.
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
    pub(crate) fn number(&self, name: &str) -> Option<u32> {
        let at = self.order.nodes.iter().position(|node| node.name == name)?;
        u32::try_from(at).ok()
    }

    /// Does what tasks and other nodes have made possible.
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

    /// Takes what the tasks have to say.
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
                // OpenMPI says `N/A` where the program has said nothing.
                let said = Some(message.trim()).filter(|said| !["", "N/A"].contains(said));
                let said = said.map_or(String::new(), |said| format!(": {said}"));
                self.abort(task, format!("called abort with exit code {status}{said}"));
            }
            Up::Ready(_) | Up::Connected(_) | Up::Finalized(_) => {}
        }
    }

    /// Brings what the tasks of this node have to a fence; its number among those of the group.
    fn bring(&mut self, group: Group, data: Vec<u8>) -> u64 {
        let next = self.fences.entry(group.clone()).or_default();
        let number = *next;
        *next += 1;
        self.peers.bring(group, number, data);
        number
    }

    /// The group of these ranks.
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

    /// How far the tasks of this node are. `ended`: all of them have ended.
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

    /// Why the step cannot go on, if a task waits for a node that cannot serve it.
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

    /// Whether the task can no longer take part although others count on it.
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

    /// Asks the helper for what a task of this node has published, for another node.
    fn ask(&mut self, rank: u32, call: v1::PeerCall) {
        self.questions += 1;
        let id = self.questions;
        self.calls.insert(id, call);
        if let Some(helper) = &mut self.helper {
            helper.tell(Down::Modex(v1::PmixModex { id, rank }));
        }
    }
}

impl Shim {
    /// Starts what serves the tasks, where that is a process of its own.
    pub(crate) fn start_mpi(&mut self) {
        let Some(Mpi { order, service: Service::Pmix(pmix), .. }) = &mut self.mpi else { return };
        match Helper::start(&self.order, order) {
            Ok(helper) => {
                pmix.helper = Some(helper);
                self.childless = false;
            }
            Err(error) => {
                let message = format!("the process that serves PMIx: {error}");
                self.fail(LaunchFailure { stage: LaunchStage::Mpi, message });
            }
        }
    }

    /// The process that serves PMIx has said something.
    pub(crate) fn serve_pmix(&mut self) {
        let Some(mpi) = &mut self.mpi else { return };
        let was_starting = mpi.is_starting();
        mpi.advance();
        let Service::Pmix(pmix) = &mut mpi.service else { return };
        if let Some(why) = pmix.refused.take() {
            let message = format!("--mpi=pmix: {why}");
            self.fail(LaunchFailure { stage: LaunchStage::Mpi, message });
        } else if was_starting && !mpi.is_starting() {
            self.launch_next();
        }
    }

    /// A process has ended that is perhaps the one that serves PMIx. Whether it is.
    pub(crate) fn mpi_helper_ended(&mut self, pid: Pid) -> bool {
        let Some(mpi) = self.mpi.as_mut().filter(|mpi| mpi.helper() == Some(pid)) else { return false };
        mpi.advance();
        let Service::Pmix(pmix) = &mut mpi.service else { return false };
        let starting = pmix.helper.take().is_some_and(|helper| helper.is_starting());
        let why = "the process that serves PMIx has ended before its time";
        match (pmix.refused.take(), starting) {
            (None, false) => mpi.abort(None, why.to_owned()),
            (refused, _) => {
                let message = format!("--mpi=pmix: {}", refused.as_deref().unwrap_or(why));
                self.fail(LaunchFailure { stage: LaunchStage::Mpi, message });
            }
        }
        true
    }

    /// No task needs to be served any more: the process that did so is told to end.
    pub(crate) fn end_mpi(&mut self) {
        let Some(Mpi { service: Service::Pmix(pmix), .. }) = &mut self.mpi else { return };
        if let Some(helper) = pmix.helper.take() {
            self.notices.push(helper.pid());
            self.notices_until.get_or_insert(Instant::now() + crate::notice::NOTICE_WAIT);
        }
    }

    /// A task has said something to the server of its MPI library.
    pub(crate) fn serve_pmi(&mut self, index: usize) {
        let Some(mpi) = &mut self.mpi else { return };
        let Service::Pmi(server) = &mut mpi.service else { return };
        server.serve(index);
        let gone = server.sockets().all(|(other, ..)| other != index);
        mpi.advance();
        if gone && mpi.has_deserted(index) {
            mpi.deserted(index);
        }
    }

    /// A task has ended; if others still count on it, so has the step.
    pub(crate) fn mpi_task_ended(&mut self, index: usize) {
        let Some(mpi) = &mut self.mpi else { return };
        // What it said last may not have been read.
        if let Service::Pmi(server) = &mut mpi.service {
            server.serve(index);
        }
        mpi.advance();
        if mpi.has_deserted(index) {
            mpi.deserted(index);
        }
    }

    /// Another connection is the way to a node of the step; `None`: to the first one.
    pub(crate) fn join_peer(&mut self, index: usize, node: Option<&str>) {
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
        (mpi.wants_uplink, mpi.first_lost) = (false, None);
        mpi.peers.connected(number);
    }

    pub(crate) fn hear_peer(&mut self, index: usize, message: &[u8]) {
        let known = self.connections[index].peer.is_some();
        let Some(mpi) = self.mpi.as_mut().filter(|_| known) else { return };
        match v1::StepPeer::decode(message) {
            Ok(v1::StepPeer { message: Some(message) }) => mpi.peers.receive(message),
            Ok(_) | Err(_) => eprintln!("spurstepd: {}: another node talks nonsense", self.order.attempt),
        }
    }

    pub(crate) fn uplink_lost(&mut self, why: &str) {
        let Some(mpi) = &mut self.mpi else { return };
        mpi.first_lost = Some(why.to_owned());
    }

    /// Whether this is the first node and tasks of others may still need it, although its own have ended.
    pub(crate) fn serves_others(&self) -> bool {
        !self.terminated && self.mpi.as_ref().is_some_and(|mpi| mpi.peers.is_needed())
    }

    /// Whether a new listener must hear that a way to the first node is wanted.
    pub(crate) fn uplink_wanted(&self) -> Option<Event> {
        let mpi = self.mpi.as_ref().filter(|mpi| mpi.wants_uplink)?;
        Some(mpi.uplink_wanted())
    }

    /// Carries on what has become possible between tasks and nodes, and ends the step if that is due.
    pub(crate) fn settle_mpi(&mut self) {
        let Some(mpi) = &mut self.mpi else { return };
        mpi.advance();
        let ended = self.tasks.iter().all(|task| task.exit.is_some());
        if mpi.abort.is_none() && !self.terminated {
            mpi.peers.set_stage(mpi.stage(ended));
        } else if ended {
            // Tasks that were killed need the first node no more. That they are missing in a fence is not why the step ends.
            mpi.peers.set_stage(PeerStage::Finalized);
        }
        let connections = &mut self.connections;
        let open = |connections: &[crate::connection::Connection], node| {
            connections.iter().position(|one| one.peer == Some(node) && !one.closed())
        };
        mpi.peers.watch(|node| open(connections, node).is_some(), Instant::now());
        mpi.advance();
        if let Some(why) = mpi.hopeless() {
            mpi.abort(None, why);
        }
        while let Some((to, message)) = mpi.peers.next_outgoing(|node| open(connections, node).is_some()) {
            let Some(index) = open(connections, to) else { break };
            send(&mut connections[index], message);
        }
        let wanted = mpi.order.node != FIRST
            && !mpi.wants_uplink
            && mpi.peers.needs(FIRST)
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

fn send(connection: &mut crate::connection::Connection, message: Message) {
    let message = v1::StepPeer { message: Some(message) };
    connection.send(&Frame::Peer(message.encode_to_vec()));
}
