//! What MPI libraries ask of whoever started them: who am I, how many are there, how do I reach the others. PMI-1 and
//! PMI-2 over one socket for each task.
//!
//! A library says with its first line which of the two it speaks. Both exchange what tasks put in a *fence*: it is over
//! when all tasks of the step are in it, and then everything that was put before is visible to all. This module knows
//! the tasks of this node; what concerns others is [`News`].

mod client;
mod one;
mod two;

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use prost::Message as _;
use spur_core::id::JobId;
use spur_core::id::StepId;
use spur_core::model::layout::process_mapping;
use spur_proto::v1;
use spur_proto::v1::peer_call::Question;

use super::super::order::MpiOrder;
use client::{Client, Wait, Wire};

/// The longest key and value that clients are told of, in bytes, and the longest name of a space.
const LIMITS: &str = "kvsname_max=256 keylen_max=64 vallen_max=1024";
const LONGEST_VALUE: usize = 1024;
/// What PMI-2 calls a name that nobody has published.
const NO_NAME: i32 = 1;
/// What PMI-2 calls a request that cannot be honoured.
const REFUSED: i32 = 14;

/// What this node's tasks have to do with others.
#[derive(Debug, PartialEq)]
pub(super) enum News {
    /// All tasks here are in the fence, with what they put (encoded `Entries`).
    Fence(Vec<u8>),
    /// A task waits for an answer from the step's first node.
    Ask(usize, Question),
    /// A task ends the step.
    Abort(usize, String),
}

/// The server of one step on one node.
#[derive(Debug)]
pub(super) struct Server {
    /// The name of the step's space of keys.
    space: String,
    size: u32,
    mapping: Option<String>,
    visible: BTreeMap<Vec<u8>, Vec<u8>>,
    /// What was put here since the last fence.
    fresh: v1::Entries,
    /// What tasks of this node tell each other.
    attributes: BTreeMap<Vec<u8>, Vec<u8>>,
    clients: Vec<Client>,
    news: Vec<News>,
}

impl Server {
    /// The server for tasks of these ranks, by their local ids.
    pub(super) fn new(
        order: &MpiOrder,
        job: JobId,
        step: StepId,
        ranks: impl Iterator<Item = u32>,
    ) -> Server {
        let mapping = process_mapping(order.nodes.iter().map(|node| &node.ranks));
        Server {
            space: format!("{job}.{}", step.label()),
            size: order.nodes.iter().map(|node| node.ranks.len()).sum(),
            // Without it libraries find out by themselves, in one more round.
            mapping: Some(mapping).filter(|mapping| mapping.len() < LONGEST_VALUE),
            visible: BTreeMap::new(),
            fresh: v1::Entries::default(),
            attributes: BTreeMap::new(),
            clients: ranks.map(Client::new).collect(),
            news: Vec::new(),
        }
    }

    /// Gives a task its socket; what is returned goes into the task's environment, beside the number of its end.
    pub(super) fn connect(&mut self, index: usize, socket: UnixStream) -> Vec<(String, String)> {
        let client = &mut self.clients[index];
        let variables = vec![
            ("PMI_RANK", client.rank.to_string()),
            ("PMI_SIZE", self.size.to_string()),
            ("PMI_JOBID", self.space.clone()),
        ];
        client.connect(socket);
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// The sockets to watch, and whether something waits to be written.
    pub(super) fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, bool)> {
        (0..)
            .zip(&self.clients)
            .filter_map(|(index, client)| client.watched().map(|(fd, full)| (index, fd, full)))
    }

    /// Reads what a task asks, and answers.
    pub(super) fn serve(&mut self, index: usize) {
        self.clients[index].receive();
        loop {
            let client = &mut self.clients[index];
            let refused = match client.wire {
                Wire::One => match one::take(&mut client.inbox) {
                    Ok(Some(line)) => {
                        self.one(index, &line);
                        continue;
                    }
                    Ok(None) => return self.clients[index].flush(),
                    Err(error) => error.to_string(),
                },
                Wire::Two => match two::take(&mut client.inbox) {
                    Ok(Some(message)) => {
                        self.two(index, message);
                        continue;
                    }
                    Ok(None) => return self.clients[index].flush(),
                    Err(error) => error.to_string(),
                },
            };
            eprintln!("spurstepd: {}: task {}: {refused}", self.space, client.rank);
            client.close();
            return;
        }
    }

    /// What has come up for others since the last call.
    pub(super) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// Whether the task can no longer take part although others count on it.
    pub(super) fn has_deserted(&self, index: usize) -> bool {
        self.clients[index].is_member()
    }

    /// Whether a task has begun PMI and not finalized it.
    pub(super) fn is_spoken_to(&self) -> bool {
        self.clients.iter().any(Client::is_member)
    }

    /// The fence is over; `data` is what all nodes brought to it.
    pub(super) fn fenced(&mut self, data: &[u8]) {
        match v1::Entries::decode(data) {
            Ok(all) => {
                self.visible.extend(all.entries.into_iter().map(|one| (one.key.into(), one.value.into())))
            }
            Err(error) => eprintln!("spurstepd: {}: what a fence brought is unreadable: {error}", self.space),
        }
        for client in &mut self.clients {
            match std::mem::take(&mut client.wait) {
                Wait::Fence(None) => client.line("cmd=barrier_out"),
                Wait::Fence(Some(command)) => client.message(&two::Message::answer(&command, 0)),
                other => client.wait = other,
            }
            client.flush();
        }
    }

    /// The first node has answered a task's question.
    pub(super) fn replied(&mut self, index: usize, status: i32, data: &[u8]) {
        let client = &mut self.clients[index];
        match std::mem::take(&mut client.wait) {
            Wait::Name(what, None) => {
                let verdict = if status == 0 { "rc=0 info=ok" } else { "rc=1 info=fail" };
                let port = String::from_utf8_lossy(data);
                match what {
                    "lookup" if status == 0 => {
                        client.line(&format!("cmd=lookup_result {verdict} port={port}"))
                    }
                    what => client.line(&format!("cmd={what}_result {verdict}")),
                }
            }
            Wait::Name("lookup", Some(command)) if status == 0 => {
                client.message(&two::Message::answer(&command, 0).with("value", data));
            }
            Wait::Name(_, Some(command)) => {
                client.message(&two::Message::answer(&command, if status == 0 { 0 } else { NO_NAME }));
            }
            other => client.wait = other,
        }
        client.flush();
    }

    fn one(&mut self, index: usize, line: &one::Line) {
        let text = |name: &str| String::from_utf8_lossy(line.value(name)).into_owned();
        let reply = match line.command() {
            b"init" => {
                let client = &mut self.clients[index];
                client.joined();
                let two = line.value("pmi_version") == b"2";
                client.wire = if two { Wire::Two } else { Wire::One };
                let version =
                    if two { "pmi_version=2 pmi_subversion=0" } else { "pmi_version=1 pmi_subversion=1" };
                format!("cmd=response_to_init {version} rc=0")
            }
            b"get_maxes" => format!("cmd=maxes {LIMITS}"),
            b"get_appnum" => "cmd=appnum appnum=0".to_owned(),
            b"get_my_kvsname" => format!("cmd=my_kvsname kvsname={}", self.space),
            b"get_universe_size" => format!("cmd=universe_size size={}", self.size),
            b"put" => {
                self.put(line.value("key"), line.value("value"));
                "cmd=put_result rc=0 msg=success".to_owned()
            }
            b"get" => match self.found(line.value("key")) {
                Some(value) => {
                    format!("cmd=get_result rc=0 msg=success value={}", String::from_utf8_lossy(&value))
                }
                None => "cmd=get_result rc=-1 msg=key_not_found value=unknown".to_owned(),
            },
            b"barrier_in" => return self.enter_fence(index, None),
            b"publish_name" => return self.publish(index, line.value("service"), line.value("port"), None),
            b"unpublish_name" => {
                return self.ask(
                    index,
                    "unpublish",
                    Question::Unpublish(line.value("service").to_vec().into()),
                    None,
                );
            }
            b"lookup_name" => {
                return self.ask(
                    index,
                    "lookup",
                    Question::Lookup(line.value("service").to_vec().into()),
                    None,
                );
            }
            b"finalize" => {
                self.clients[index].finalized();
                "cmd=finalize_ack".to_owned()
            }
            b"abort" => {
                // There is no answer: who asks waits for its end.
                self.news
                    .push(News::Abort(index, format!("called abort with exit code {}", text("exitcode"))));
                return;
            }
            b"spawn" => "cmd=spawn_result rc=-1 status=steps_do_not_grow".to_owned(),
            other => {
                let command = String::from_utf8_lossy(other).into_owned();
                eprintln!("spurstepd: {}: no such PMI command: {command}", self.space);
                format!("cmd={command}_result rc=-1 msg=unknown_command")
            }
        };
        self.clients[index].line(&reply);
    }

    fn two(&mut self, index: usize, command: two::Message) {
        let done = two::Message::answer(&command, 0);
        let found = |value: Option<Vec<u8>>| match value {
            Some(value) => two::Message::answer(&command, 0).with("found", "TRUE").with("value", value),
            None => two::Message::answer(&command, 0).with("found", "FALSE"),
        };
        let answer = match command.command() {
            b"fullinit" => {
                let rank = self.clients[index].rank.to_string();
                done.with("pmi-version", "2")
                    .with("pmi-subversion", "0")
                    .with("rank", rank)
                    .with("size", self.size.to_string())
                    .with("appnum", "0")
                    .with("debugged", "FALSE")
                    .with("pmiverbose", "FALSE")
            }
            b"job-getid" => done.with("jobid", &self.space),
            b"info-getjobattr" => found(self.job_attribute(command.value("key"))),
            b"info-putnodeattr" => {
                let (key, value) = (command.value("key").to_vec(), command.value("value").to_vec());
                self.attributes.insert(key, value);
                self.unpark();
                done
            }
            b"info-getnodeattr" => {
                let value = self.attributes.get(command.value("key")).cloned();
                if value.is_none() && command.value("wait").eq_ignore_ascii_case(b"TRUE") {
                    self.clients[index].wait = Wait::Attribute(command);
                    return;
                }
                found(value)
            }
            b"kvs-put" => {
                self.put(command.value("key"), command.value("value"));
                done
            }
            b"kvs-get" => found(self.found(command.value("key"))),
            b"kvs-fence" => return self.enter_fence(index, Some(command)),
            b"name-publish" => {
                let (name, port) = (command.value("name").to_vec(), command.value("port").to_vec());
                return self.publish(index, &name, &port, Some(command));
            }
            b"name-unpublish" => {
                let question = Question::Unpublish(command.value("name").to_vec().into());
                return self.ask(index, "unpublish", question, Some(command));
            }
            b"name-lookup" => {
                let question = Question::Lookup(command.value("name").to_vec().into());
                return self.ask(index, "lookup", question, Some(command));
            }
            b"finalize" => {
                self.clients[index].finalized();
                done
            }
            b"abort" => {
                let message = String::from_utf8_lossy(command.value("msg")).trim().to_owned();
                self.news.push(News::Abort(index, format!("called abort: {message}")));
                return;
            }
            b"spawn" => two::Message::answer(&command, REFUSED)
                .with("errmsg", "a step does not grow: no task was spawned"),
            other => {
                let name = String::from_utf8_lossy(other);
                eprintln!("spurstepd: {}: no such PMI-2 command: {name}", self.space);
                two::Message::answer(&command, REFUSED).with("errmsg", "unknown command")
            }
        };
        self.clients[index].message(&answer);
    }

    fn put(&mut self, key: &[u8], value: &[u8]) {
        let entry = v1::Entry { key: key.to_vec().into(), value: value.to_vec().into() };
        self.fresh.entries.push(entry);
    }

    /// The value of a key that is visible here.
    fn found(&self, key: &[u8]) -> Option<Vec<u8>> {
        match key {
            b"PMI_process_mapping" => self.mapping.clone().map(String::into_bytes),
            key => self.visible.get(key).cloned(),
        }
    }

    fn job_attribute(&self, key: &[u8]) -> Option<Vec<u8>> {
        match key {
            b"universeSize" => Some(self.size.to_string().into_bytes()),
            key => self.found(key),
        }
    }

    /// Answers those who waited for an attribute of this node.
    fn unpark(&mut self) {
        for client in &mut self.clients {
            let Wait::Attribute(command) = &client.wait else { continue };
            let Some(value) = self.attributes.get(command.value("key")) else { continue };
            let answer = two::Message::answer(command, 0).with("found", "TRUE").with("value", value);
            client.wait = Wait::Nothing;
            client.message(&answer);
            client.flush();
        }
    }

    fn enter_fence(&mut self, index: usize, command: Option<two::Message>) {
        self.clients[index].wait = Wait::Fence(command);
        if self.clients.iter().all(|client| matches!(client.wait, Wait::Fence(_))) {
            let brought = std::mem::take(&mut self.fresh);
            self.news.push(News::Fence(brought.encode_to_vec()));
        }
    }

    fn publish(&mut self, index: usize, name: &[u8], port: &[u8], command: Option<two::Message>) {
        let entry = v1::Entry { key: name.to_vec().into(), value: port.to_vec().into() };
        self.ask(index, "publish", Question::Publish(entry), command);
    }

    fn ask(&mut self, index: usize, what: &'static str, question: Question, command: Option<two::Message>) {
        self.clients[index].wait = Wait::Name(what, command);
        self.news.push(News::Ask(index, question));
    }
}

#[cfg(test)]
mod tests;
