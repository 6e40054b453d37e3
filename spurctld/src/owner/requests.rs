//! Requests that were served and may be asked for again.
//!
//! What is durable the journal remembers; what is not yet is remembered here. A request that says it may have been
//! made before, and is not known here, is looked up in the journal; while it is, others of the same name wait.

use std::collections::{HashMap, VecDeque};

use spur_core::id::RequestId;

use crate::answer::Answer;
use crate::inbox::Ask;

/// See the module.
#[derive(Default)]
pub(super) struct Requests {
    /// Served, and perhaps not durable yet.
    served: HashMap<RequestId, Served>,
    /// In the order of their entries.
    order: VecDeque<(u64, RequestId)>,
    /// Being looked up, and who waits for that.
    wanted: HashMap<RequestId, Vec<Ask>>,
}

struct Served {
    uid: u32,
    answer: Answer,
}

/// What is known of a request that has just come.
#[derive(Debug, PartialEq)]
pub(super) enum Met {
    /// It has not been made before.
    New,
    /// It was answered so.
    Served(Answer),
    /// Somebody else made it.
    Foreign,
    /// The journal is being asked.
    BeingLookedUp,
    /// The journal should be asked.
    Unknown,
}

impl Requests {
    /// What is known of a request; `committed` is the last durable entry.
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
        // Only after the look above: what is not here now is durable, and the journal knows it.
        while self.order.front().is_some_and(|(seq, _)| *seq <= committed) {
            if let Some((_, id)) = self.order.pop_front() {
                self.served.remove(&id);
            }
        }
        met
    }

    /// The answer a request got a moment ago.
    pub(super) fn served(&self, id: RequestId, uid: u32) -> Option<Answer> {
        self.served.get(&id).filter(|served| served.uid == uid).map(|served| served.answer.clone())
    }

    /// Remembers an answer until its entries, the last of which is `seq`, are durable.
    pub(super) fn serve(&mut self, id: RequestId, uid: u32, seq: u64, answer: Answer) {
        self.served.insert(id, Served { uid, answer });
        self.order.push_back((seq, id));
    }

    /// Lets a request wait for what the journal knows.
    pub(super) fn wait(&mut self, id: RequestId, ask: Ask) {
        self.wanted.entry(id).or_default().push(ask);
    }

    /// Those who waited for what the journal knows.
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
