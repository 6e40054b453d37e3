//! Those who look on: a copy of what tasks write goes to each of them. They hold up nobody; who is too slow misses something,
//! and sees that from the offsets.

use step_wire::message::{Frame, OutputPart, Stream};

use crate::step::Shim;

impl Shim {
    /// Shows what a task has written, or, with no bytes, that it will write no more.
    pub(crate) fn show(&mut self, index: usize, stream: Stream, offset: u64, bytes: Vec<u8>) {
        let watchers = || self.connections.iter().any(|one| one.watching);
        if !watchers() {
            return;
        }
        let end = bytes.is_empty();
        let part = OutputPart { task: self.tasks[index].order.global, stream, offset, bytes, end };
        let frame = Frame::Output(part);
        for connection in self.connections.iter_mut().filter(|one| one.watching && one.has_room()) {
            connection.send(&frame);
        }
    }
}
