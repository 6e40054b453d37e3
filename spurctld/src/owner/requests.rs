//! Requests that were handled and may be repeated.
//!
//! The journal remembers durable requests; the others are remembered here. A request that may be a repetition
//! and is not known here is looked up in the journal; requests with the same id wait meanwhile.

use std::collections::{HashMap, VecDeque};

use spur_core::id::RequestId;

use crate::answer::Answer;
use crate::inbox::Ask;

/// The requests, see the [module](self).
#[derive(Default)]
pub(super) struct Requests {
    /// Handled requests that may not be durable yet.
    served: HashMap<RequestId, Served>,
    /// Handled requests in the order of their entries.
    order: VecDeque<(u64, RequestId)>,
    /// Requests under look-up, each with those that wait for it.
    wanted: HashMap<RequestId, Vec<Ask>>,
}

struct Served {
    uid: u32,
    answer: Answer,
}

/// The state of a request that has just come.
#[derive(Debug, PartialEq)]
pub(super) enum Met {
    /// The request is new.
    New,
    /// The request was handled, with this answer.
    Served(Answer),
    /// Another user made the request.
    Foreign,
    /// The request is being looked up in the journal.
    BeingLookedUp,
    /// The request has to be looked up in the journal.
    Unknown,
}

impl Requests {
    /// Returns the state of a request; `committed` is the last durable entry.
    pub(super) fn meet(&mut self, id: RequestId, uid: u32, retry: bool, committed: u64) -> Met {
        if self.wanted.contains_key(&id) {
            return Met::BeingLookedUp;
        }
        let met = match self.served.get(&id) {
            Some(served) if served.uid != uid => Met::Foreign,
            Some(served) => Met::Served(served.answer.clone()),
            None if retry => Met::Unknown,
            None => Met::New,
        };
        // Only after the look-up above: requests that are removed here are durable, so that the journal has
        // them.
        while self.order.front().is_some_and(|(seq, _)| *seq <= committed) {
            if let Some((_, id)) = self.order.pop_front() {
                self.served.remove(&id);
            }
        }
        met
    }

    /// Returns the answer of a request that was handled a moment ago; `None` if it is not remembered for this
    /// user.
    pub(super) fn served(&self, id: RequestId, uid: u32) -> Option<Answer> {
        self.served.get(&id).filter(|served| served.uid == uid).map(|served| served.answer.clone())
    }

    /// Remembers an answer until its last entry, `seq`, is durable.
    pub(super) fn serve(&mut self, id: RequestId, uid: u32, seq: u64, answer: Answer) {
        self.served.insert(id, Served { uid, answer });
        self.order.push_back((seq, id));
    }

    /// Lets a request wait for the journal's look-up.
    pub(super) fn wait(&mut self, id: RequestId, ask: Ask) {
        self.wanted.entry(id).or_default().push(ask);
    }

    /// Returns the requests that waited for the journal's look-up.
    pub(super) fn looked_up(&mut self, id: RequestId) -> Vec<Ask> {
        self.wanted.remove(&id).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: RequestId = RequestId([7; 16]);

    #[test]
    fn an_answer_is_repeated_to_its_asker_until_the_journal_has_it() {
        let mut requests = Requests::default();
        assert_eq!(requests.meet(ID, 1000, false, 0), Met::New);
        requests.serve(ID, 1000, 5, Answer::Done);
        assert_eq!(requests.meet(ID, 1000, false, 4), Met::Served(Answer::Done));
        assert_eq!(requests.meet(ID, 1001, true, 4), Met::Foreign);
        assert_eq!(requests.meet(ID, 1000, true, 5), Met::Served(Answer::Done));
        assert_eq!(requests.meet(ID, 1000, true, 5), Met::Unknown);
    }
}
