//! Handling of spurd's frames: requests, input, acknowledgements, and messages of other nodes.

use spur_core::compute::step::Input;
use step_wire::message::{Ack, Event, Frame, Request, SignalScope};

use crate::poll::Shell;

impl Shell {
    /// Handles frames of one connection.
    pub(crate) fn handle(&mut self, index: usize, frames: Vec<Frame>) {
        for frame in frames {
            match frame {
                Frame::Request(request) => self.fulfil(index, request),
                Frame::Input(part) if self.clients.all[index].attached => {
                    if let Err(error) = self.tasks.input.accept(&part) {
                        eprintln!("spurstepd: input refused: {error}");
                        self.clients.all[index].close();
                    }
                }
                Frame::Peer(message) => self.hear_peer(index, &message),
                Frame::Ack(Ack::Output { task, stream, offset, end }) if self.clients.all[index].attached => {
                    let task = self.tasks.with_rank(task);
                    if let Some(outgoing) = task.and_then(|task| task.stream(stream)) {
                        outgoing.acknowledge(offset, end);
                    }
                }
                // These are from a client that was attached before, so the offsets are out of date.
                Frame::Input(_) | Frame::Ack(Ack::Output { .. }) => {}
                // `Connection::frames` has counted and skipped these.
                Frame::Unknown(_) => {}
                Frame::Launch(_) | Frame::Event(_) | Frame::Output(_) | Frame::Ack(Ack::Input { .. }) => {
                    eprintln!("spurstepd: a frame that only spurstepd sends; connection closed");
                    self.clients.all[index].close();
                }
            }
        }
    }

    fn fulfil(&mut self, index: usize, request: Request) {
        match request {
            Request::Subscribe => self.subscribe(index),
            Request::Signal { signal, scope } => {
                self.feed(Input::Signal { signal, tasks_only: scope == SignalScope::Tasks });
            }
            Request::Suspend { stop } => {
                self.feed(Input::Suspend { stop });
                if stop {
                    self.clients.all[index].send(&Frame::Event(Event::Stopped));
                }
            }
            Request::Terminate { kill_wait_ms, notice } => {
                self.feed(Input::Terminate { kill_wait_ms, notice });
            }
            Request::Notice { text } => self.feed(Input::Notice { text }),
            Request::Usage => self.tell_usage(index),
            Request::Resize { window } => {
                if let Some(Err(error)) = self.tasks.terminal.as_ref().map(|one| one.resize(window)) {
                    eprintln!("spurstepd: the terminal keeps its size: {error}");
                }
            }
            Request::Attach => self.attach(index),
            Request::Watch => self.clients.all[index].watching = true,
            Request::Discard => self.tasks.streams_mut().for_each(|(_, outgoing)| outgoing.discard()),
            Request::Peer { node, part } => self.join_peer(index, Some((&node, part))),
            Request::Uplink => self.join_peer(index, None),
            Request::UplinkLost { why } => self.mpi.iter_mut().for_each(|mpi| mpi.uplink_lost(&why)),
        }
    }

    fn subscribe(&mut self, index: usize) {
        let status = Event::Status {
            order: Box::new(self.order.clone()),
            started_ms: self.life.started_ms(),
            pids: self.tasks.pids(),
            ended: (0..self.tasks.all.len()).filter_map(|task| self.life.exit(task)).collect(),
        };
        let wanted = self.mpi.as_ref().and_then(|mpi| mpi.wanted_uplink());
        let events = [Some(status), wanted, self.record().map(Event::Ended)];
        let connection = &mut self.clients.all[index];
        connection.subscribed = true;
        events.into_iter().flatten().for_each(|event| connection.send(&Frame::Event(event)));
    }

    fn attach(&mut self, index: usize) {
        self.tasks.streams_mut().for_each(|(_, outgoing)| outgoing.rewind());
        self.clients.attach(index, self.tasks.input.restate());
        self.feed(Input::Attached { patience_ms: self.patience_ms() });
    }

    fn tell_usage(&mut self, index: usize) {
        let has_ended = self.life.record().is_some();
        let members = if has_ended { Vec::new() } else { self.processes.look() };
        let pids = members.iter().map(|process| process.pid.unsigned_abs()).collect();
        let usage = Box::new(self.processes.usage(has_ended));
        let tasks = self.tasks.all.iter().filter_map(|task| Some((task.order.global, task.id()?))).collect();
        self.clients.all[index].send(&Frame::Event(Event::Used { usage, pids, tasks }));
    }

    /// Makes a connection the way to another node of the step; `None`: to the first one.
    fn join_peer(&mut self, index: usize, node: Option<(&str, Option<u32>)>) {
        let connections = &mut self.clients.all;
        if !self.mpi.as_mut().is_some_and(|mpi| mpi.join_peer(connections, index, node)) {
            eprintln!("spurstepd: {}: no such part of the step: {node:?}", self.order.attempt);
            self.clients.all[index].close();
        }
    }

    fn hear_peer(&mut self, index: usize, message: &[u8]) {
        let is_known = self.clients.all[index].peer.is_some();
        let Some(mpi) = self.mpi.as_mut().filter(|_| is_known) else { return };
        if !mpi.hear_peer(message) {
            eprintln!("spurstepd: {}: a message of another node makes no sense", self.order.attempt);
        }
    }
}
