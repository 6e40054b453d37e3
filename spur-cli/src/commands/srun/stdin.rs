//! Standard input on its way to one node: kept until the tasks there have taken it, so that it can be sent again when
//! the connection breaks, and never more of it under way than the node has room for.

use std::collections::VecDeque;

use bytes::Bytes;
use spur_proto::v1::StepStdin;

/// How much may be under way beyond what the node has taken, in bytes.
const WINDOW: u64 = 64 << 10;
/// How much is sent in one message, in bytes.
const PART: usize = 32 << 10;

/// The input of one node.
#[derive(Debug, Default)]
pub(super) struct Stdin {
    /// What was not taken yet, beginning at `taken`.
    kept: VecDeque<u8>,
    taken: u64,
    sent: u64,
    /// Whether nothing comes after what is kept.
    ended: bool,
    end_sent: bool,
    /// Whether the node must first say where to go on.
    waiting: bool,
}

impl Stdin {
    /// Whether there is room for more.
    pub(super) fn has_room(&self) -> bool {
        !self.ended && (self.kept.len() as u64) < WINDOW
    }

    /// Takes more in; `None` is the end.
    pub(super) fn push(&mut self, data: Option<Bytes>) {
        match data {
            Some(data) => self.kept.extend(data),
            None => self.ended = true,
        }
    }

    /// A new connection: after a launch input begins as it did, after an attach the node says where.
    pub(super) fn connected(&mut self, attached: bool) {
        self.sent = self.taken;
        self.end_sent = false;
        self.waiting = attached;
    }

    /// The tasks have taken everything below `offset`.
    pub(super) fn taken(&mut self, offset: u64) {
        let gone = usize::try_from(offset.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        self.kept.drain(..gone.min(self.kept.len()));
        self.taken = self.taken.max(offset);
        if std::mem::take(&mut self.waiting) {
            self.sent = self.taken;
        }
        self.sent = self.sent.max(self.taken);
    }

    /// Whether something may be sent now.
    pub(super) fn is_ready(&self) -> bool {
        let unsent = self.taken + self.kept.len() as u64 > self.sent;
        let room = self.sent < self.taken + WINDOW;
        !self.waiting && ((unsent && room) || (!unsent && self.ended && !self.end_sent))
    }

    /// The next part to send, if there is one.
    pub(super) fn next(&mut self) -> Option<StepStdin> {
        if !self.is_ready() {
            return None;
        }
        let from = usize::try_from(self.sent - self.taken).unwrap_or(usize::MAX);
        let room = usize::try_from(self.taken + WINDOW - self.sent).unwrap_or(usize::MAX);
        let data: Bytes = self.kept.iter().skip(from).take(room.min(PART)).copied().collect();
        self.sent += data.len() as u64;
        let end = self.ended && self.sent == self.taken + self.kept.len() as u64;
        self.end_sent = end;
        Some(StepStdin { data, end })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(stdin: &mut Stdin) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        let mut end = false;
        while let Some(part) = stdin.next() {
            all.extend_from_slice(&part.data);
            end |= part.end;
        }
        (all, end)
    }

    #[test]
    fn no_more_is_under_way_than_the_window_holds() {
        let mut stdin = Stdin::default();
        stdin.push(Some(vec![7; 100_000].into()));
        stdin.push(None);
        assert!(!stdin.has_room());
        assert_eq!(sent(&mut stdin), (vec![7; 65_536], false));
        stdin.taken(40_000);
        assert_eq!(sent(&mut stdin), (vec![7; 34_464], true));
        stdin.taken(100_000);
        assert_eq!(sent(&mut stdin), (vec![], false), "the end is told once");
    }

    #[test]
    fn what_was_not_taken_is_sent_again() {
        let mut stdin = Stdin::default();
        stdin.push(Some(Bytes::from_static(b"abcdef")));
        stdin.push(None);
        assert_eq!(sent(&mut stdin), (b"abcdef".to_vec(), true));
        stdin.connected(true);
        assert!(!stdin.is_ready(), "the node says first where to go on");
        stdin.taken(4);
        assert_eq!(sent(&mut stdin), (b"ef".to_vec(), true));
        stdin.connected(false);
        assert_eq!(sent(&mut stdin), (b"ef".to_vec(), true));
    }

    #[test]
    fn an_empty_input_ends_at_once() {
        let mut stdin = Stdin::default();
        assert!(!stdin.is_ready());
        stdin.push(None);
        assert_eq!(sent(&mut stdin), (vec![], true));
        assert!(!stdin.is_ready());
    }
}
