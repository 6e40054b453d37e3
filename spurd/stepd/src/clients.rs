//! The connections to the step's control socket: subscribers, the attached client, and watchers.

use std::os::unix::net::UnixListener;

use step_wire::message::{Ack, Event, Frame, OutputPart};

use crate::connection::Connection;
use crate::task::set::Tasks;

/// All connections to the control socket.
pub(crate) struct Clients {
    pub(crate) listener: UnixListener,
    pub(crate) all: Vec<Connection>,
}

impl Clients {
    /// Accepts the waiting connections.
    pub(crate) fn admit(&mut self) {
        while let Ok((stream, _)) = self.listener.accept() {
            match Connection::new(stream, Vec::new()) {
                Ok(connection) => self.all.push(connection),
                Err(error) => eprintln!("spurstepd: a connection could not be taken up: {error}"),
            }
        }
    }

    pub(crate) fn forget_closed(&mut self) {
        self.all.retain(|connection| !connection.closed());
    }

    /// Sends an event to all subscribers.
    pub(crate) fn tell(&mut self, event: &Event) {
        let subscribed = self.all.iter_mut().filter(|connection| connection.subscribed);
        subscribed.for_each(|connection| connection.send(&Frame::Event(event.clone())));
    }

    /// Attaches one connection to the step's streams, and detaches the previous one; `state` is the offset of
    /// the input.
    pub(crate) fn attach(&mut self, index: usize, state: Ack) {
        for (other, connection) in self.all.iter_mut().enumerate() {
            if connection.attached && other != index {
                connection.attached = false;
                connection.send(&Frame::Event(Event::Detached));
            }
        }
        self.all[index].attached = true;
        self.all[index].send(&Frame::Ack(state));
    }

    /// Sends output and acknowledgements to the attached client as far as it takes them.
    pub(crate) fn pump(&mut self, tasks: &mut Tasks) {
        let Some(reader) = self.all.iter_mut().find(|one| one.attached && !one.closed()) else { return };
        if let Some(ack) = tasks.input.acknowledgement() {
            reader.send(&Frame::Ack(ack));
        }
        for task in &mut tasks.all {
            let global = task.order.global;
            for (stream, outgoing) in task.streams_mut() {
                while reader.has_room() {
                    let Some(part) = outgoing.next_part(global, stream) else { break };
                    reader.send(&Frame::Output(part));
                }
            }
        }
    }

    pub(crate) fn has_watchers(&self) -> bool {
        self.all.iter().any(|one| one.watching)
    }

    /// Sends a copy of output to the watchers. A slow watcher misses parts, and sees that from the offsets.
    pub(crate) fn show(&mut self, part: OutputPart) {
        let frame = Frame::Output(part);
        for connection in self.all.iter_mut().filter(|one| one.watching && one.has_room()) {
            connection.send(&frame);
        }
    }

    /// True if no connection has unsent bytes.
    pub(crate) fn have_everything(&self) -> bool {
        self.all.iter().all(|connection| !connection.pending())
    }
}
