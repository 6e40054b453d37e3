//! Standard input on its way to one node. Data is kept until the tasks have read it, so that it can be sent
//! again after a broken connection. The amount in transit is limited.

use std::collections::VecDeque;

use bytes::Bytes;
use spur_proto::v1::StepStdin;

/// Maximum number of bytes in transit beyond those that the node has consumed.
const WINDOW: u64 = 64 << 10;
/// Maximum number of bytes in one message.
const PART: usize = 32 << 10;

/// Input of one node.
#[derive(Debug, Default)]
pub(super) struct Stdin {
    /// Data that was not consumed, starting at offset `taken`.
    kept: VecDeque<u8>,
    taken: u64,
    sent: u64,
    /// True if the input ends after the kept data.
    ended: bool,
    end_sent: bool,
    /// True until the node has reported the position at which to continue.
    waiting: bool,
}

impl Stdin {
    /// True if more data can be added.
    pub(super) fn has_room(&self) -> bool {
        !self.ended && (self.kept.len() as u64) < WINDOW
    }

    /// Adds data; `None` marks the end.
    pub(super) fn push(&mut self, data: Option<Bytes>) {
        match data {
            Some(data) => self.kept.extend(data),
            None => self.ended = true,
        }
    }

    /// Starts a new connection. After a launch, input continues at the kept data; after an attach, the node
    /// reports the position.
    pub(super) fn connected(&mut self, attached: bool) {
        self.sent = self.taken;
        self.end_sent = false;
        self.waiting = attached;
    }

    /// Discards data below `offset`, which the tasks have consumed.
    pub(super) fn taken(&mut self, offset: u64) {
        let gone = usize::try_from(offset.saturating_sub(self.taken)).unwrap_or(usize::MAX);
        self.kept.drain(..gone.min(self.kept.len()));
        self.taken = self.taken.max(offset);
        if std::mem::take(&mut self.waiting) {
            self.sent = self.taken;
        }
        self.sent = self.sent.max(self.taken);
    }

    /// True if a part can be sent.
    pub(super) fn is_ready(&self) -> bool {
        let unsent = self.taken + self.kept.len() as u64 > self.sent;
        let room = self.sent < self.taken + WINDOW;
        !self.waiting && ((unsent && room) || (!unsent && self.ended && !self.end_sent))
    }

    /// Returns the next part to send, if any.
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
