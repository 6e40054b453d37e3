//! The PMI-1 and PMI-2 server of a step: ranks, sizes, and the exchange of addresses, over one socket for
//! each task.
//!
//! A library's first line selects the protocol. In both, tasks publish data and meet in a *fence*, which is
//! over when all tasks of the step have entered it. Everything published before is then visible to all. This
//! module knows the tasks of this node; messages for other nodes are [`News`].

mod client;
mod one;
mod space;
mod two;

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;

use client::{Client, Wait, Wire};
use prost::Message as _;
use rustix::event::PollFlags;
use space::Full;
use spur_core::id::JobId;
use spur_core::id::StepId;
use spur_core::model::layout::process_mapping;
use step_wire::order::MpiOrder;
use step_wire::v1;
use step_wire::v1::peer_call::Question;

pub(crate) use space::Space;

/// Largest lengths of a space's name, of a key and of a value, in bytes, as reported to clients.
const LIMITS: &str = "kvsname_max=256 keylen_max=64 vallen_max=1024";
const LONGEST_VALUE: usize = 1024;
/// Number of reads from one task's socket before other tasks get their turn; together more than a socket
/// holds.
const READS: usize = 32;
/// The PMI-2 status of a name that was never published.
const NO_NAME: i32 = 1;
/// The PMI-2 status of a request that cannot be honoured.
const REFUSED: i32 = 14;

/// A message of this node's tasks for other nodes.
#[derive(Debug, PartialEq)]
pub(crate) enum News {
    /// All tasks here have entered the fence, with this published data (encoded `Entries`).
    Fence(Vec<u8>),
    /// A task asks the step's first node.
    Ask(usize, Question),
    /// A task ends the step, for this reason.
    Abort(usize, String),
}

/// The PMI server of one step on one node.
#[derive(Debug)]
pub(crate) struct Server {
    /// The name of the step's space of keys.
    space: String,
    size: u32,
    mapping: Option<String>,
    /// Data published before the last fence, here and on other nodes.
    visible: Space,
    /// Data published here since the last fence.
    fresh: Space,
    /// Attributes that tasks of this node share.
    attributes: Space,
    clients: Vec<Client>,
    news: Vec<News>,
}

impl Server {
    /// Returns the server for tasks of these ranks, by their local ids.
    pub(crate) fn new(
        order: &MpiOrder,
        job: JobId,
        step: StepId,
        ranks: impl Iterator<Item = u32>,
    ) -> Server {
        let mapping = process_mapping(order.nodes.iter().map(|node| &node.ranks));
        let clients: Vec<Client> = ranks.map(Client::new).collect();
        let size = order.nodes.iter().map(|node| node.ranks.len()).sum();
        Server {
            space: format!("{job}.{}", step.label()),
            size,
            // Without the mapping, libraries find the nodes out by themselves, in one more round.
            mapping: Some(mapping).filter(|mapping| mapping.len() < LONGEST_VALUE),
            visible: Space::of_tasks(size as usize),
            fresh: Space::of_tasks(clients.len()),
            attributes: Space::of_tasks(clients.len()),
            clients,
            news: Vec::new(),
        }
    }

    /// Gives a task its socket, and returns the variables for the task's environment, without the
    /// descriptor's number.
    pub(crate) fn connect(&mut self, index: usize, socket: UnixStream) -> Vec<(String, String)> {
        let client = &mut self.clients[index];
        let variables = vec![
            ("PMI_RANK", client.rank.to_string()),
            ("PMI_SIZE", self.size.to_string()),
            ("PMI_JOBID", self.space.clone()),
        ];
        client.connect(socket);
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
    }

    /// Returns the sockets and the events to poll for.
    pub(crate) fn sockets(&self) -> impl Iterator<Item = (usize, BorrowedFd<'_>, PollFlags)> {
        (0..)
            .zip(&self.clients)
            .filter_map(|(index, client)| client.watched().map(|(fd, flags)| (index, fd, flags)))
    }

    /// Reads and answers a task's commands, at most as much as a socket holds, so that no task keeps others
    /// waiting.
    pub(crate) fn serve(&mut self, index: usize) {
        for _ in 0..READS {
            self.clients[index].flush();
            if !self.clients[index].has_room() || !self.clients[index].receive() {
                break;
            }
            if let Err(refused) = self.answer_all(index) {
                eprintln!("spurstepd: {}: task {}: {refused}", self.space, self.clients[index].rank);
                return self.clients[index].close();
            }
        }
        self.clients[index].flush();
    }

    /// Answers every complete command that a task has sent.
    fn answer_all(&mut self, index: usize) -> Result<(), String> {
        loop {
            let client = &mut self.clients[index];
            match client.wire {
                Wire::One => match one::take(&mut client.inbox).map_err(|error| error.to_string())? {
                    Some(line) => self.one(index, &line)?,
                    None => return Ok(()),
                },
                Wire::Two => match two::take(&mut client.inbox).map_err(|error| error.to_string())? {
                    Some(message) => self.two(index, message)?,
                    None => return Ok(()),
                },
            }
        }
    }

    /// Returns the messages for other nodes since the last call.
    pub(crate) fn take_news(&mut self) -> Vec<News> {
        std::mem::take(&mut self.news)
    }

    /// True if the task can no longer take part although others wait for it.
    pub(crate) fn has_deserted(&self, index: usize) -> bool {
        self.clients[index].is_member()
    }

    /// True if a task has begun PMI and not finalized it.
    pub(crate) fn is_spoken_to(&self) -> bool {
        self.clients.iter().any(Client::is_member)
    }

    /// Ends the fence; `data` is the data of all nodes.
    ///
    /// # Errors
    /// Fails if the data exceed the space; no task then learns that the fence is over.
    pub(crate) fn fenced(&mut self, data: &[u8]) -> Result<(), Full> {
        match v1::Entries::decode(data) {
            Ok(all) => {
                all.entries.iter().try_for_each(|one| self.visible.insert(&one.key, &one.value))?;
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
        Ok(())
    }

    /// Passes the first node's reply to the task that asked.
    pub(crate) fn replied(&mut self, index: usize, status: i32, data: &[u8]) {
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

    fn one(&mut self, index: usize, line: &one::Line) -> Result<(), String> {
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
            b"put" => match self.put(line.value("key"), line.value("value")) {
                Ok(()) => "cmd=put_result rc=0 msg=success".to_owned(),
                // Blanks separate words.
                Err(full) => format!("cmd=put_result rc=-1 msg={}", full.to_string().replace(' ', "_")),
            },
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
                // There is no answer: the task waits for its end.
                self.news
                    .push(News::Abort(index, format!("called abort with exit code {}", text("exitcode"))));
                return Ok(());
            }
            b"spawn" => "cmd=spawn_result rc=-1 status=steps_do_not_grow".to_owned(),
            other => {
                let command = String::from_utf8_lossy(other).into_owned();
                eprintln!("spurstepd: {}: no such PMI command: {command}", self.space);
                format!("cmd={command}_result rc=-1 msg=unknown_command")
            }
        };
        self.clients[index].line(&reply);
        Ok(())
    }

    fn two(&mut self, index: usize, command: two::Message) -> Result<(), String> {
        let done = two::Message::answer(&command, 0);
        let stored = |stored: Result<(), Full>| match stored {
            Ok(()) => two::Message::answer(&command, 0),
            Err(full) => two::Message::answer(&command, REFUSED).with("errmsg", full.to_string()),
        };
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
                let inserted = self.attributes.insert(command.value("key"), command.value("value"));
                self.unpark();
                stored(inserted)
            }
            b"info-getnodeattr" => {
                let value = self.attributes.get(command.value("key")).cloned();
                if value.is_none() && command.value("wait").eq_ignore_ascii_case(b"TRUE") {
                    return self.wait(index, Wait::Attribute(command));
                }
                found(value)
            }
            b"kvs-put" => stored(self.put(command.value("key"), command.value("value"))),
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
                return Ok(());
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
        Ok(())
    }

    fn put(&mut self, key: &[u8], value: &[u8]) -> Result<(), Full> {
        let is_new = self.visible.get(key).is_none() && self.fresh.get(key).is_none();
        let bound = self.visible.bound();
        if is_new && self.visible.bytes() + self.fresh.bytes() + key.len() + value.len() > bound {
            return Err(Full(bound));
        }
        self.fresh.insert(key, value)
    }

    /// Returns the visible value of a key; `None` if there is none.
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

    /// Answers the tasks that wait for an attribute of this node.
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

    fn enter_fence(&mut self, index: usize, command: Option<two::Message>) -> Result<(), String> {
        self.wait(index, Wait::Fence(command))?;
        if self.clients.iter().all(|client| matches!(client.wait, Wait::Fence(_))) {
            let entry = |(key, value): (Vec<u8>, Vec<u8>)| v1::Entry { key: key.into(), value: value.into() };
            let entries = self.fresh.take().into_iter().map(entry).collect();
            self.news.push(News::Fence(v1::Entries { entries }.encode_to_vec()));
        }
        Ok(())
    }

    fn publish(
        &mut self,
        index: usize,
        name: &[u8],
        port: &[u8],
        command: Option<two::Message>,
    ) -> Result<(), String> {
        let entry = v1::Entry { key: name.to_vec().into(), value: port.to_vec().into() };
        self.ask(index, "publish", Question::Publish(entry), command)
    }

    fn ask(
        &mut self,
        index: usize,
        what: &'static str,
        question: Question,
        command: Option<two::Message>,
    ) -> Result<(), String> {
        self.wait(index, Wait::Name(what, command))?;
        self.news.push(News::Ask(index, question));
        Ok(())
    }

    /// Records what a task waits for: one answer at a time, so that a task's requests are bounded.
    fn wait(&mut self, index: usize, wait: Wait) -> Result<(), String> {
        let client = &mut self.clients[index];
        if !matches!(client.wait, Wait::Nothing) {
            return Err("a task asks for something to wait for while it waits".to_owned());
        }
        client.wait = wait;
        Ok(())
    }
}

#[cfg(test)]
mod tests;
