//! The controllers that a node obeys: those of one history, and among them the one of the latest reign.

use serde::{Deserialize, Serialize};

use crate::id::HistoryId;

/// The history and the reign that a node obeys; kept in its spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allegiance {
    /// The history of the node; `None` before a controller has accepted the node.
    pub history: Option<HistoryId>,
    /// The epoch of the latest reign in that history.
    pub epoch: u64,
    /// The random number that the controller of that reign drew when it began.
    pub reign: u64,
}

/// The reason for which a node does not obey a controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disobedience {
    /// The controller names no history.
    #[error("names no history: it is of an earlier release, or no controller")]
    Nameless,
    /// The controller belongs to another history.
    #[error("is of history {theirs}, this node belongs to {ours}")]
    Foreign {
        /// History that the controller belongs to.
        theirs: HistoryId,
        /// History that the node belongs to.
        ours: HistoryId,
    },
    /// The controller's reign is not the latest.
    #[error("gives orders of reign {given}: this node obeys reign {known}")]
    Deposed {
        /// The epoch of the controller.
        given: u64,
        /// The latest epoch that the node knows.
        known: u64,
    },
}

impl Allegiance {
    /// The allegiance of a node that a controller has accepted; it must be stored before anything else is
    /// done. If the node's history is among `ancestors`, the node changes to the new history, whose epochs
    /// are compared anew.
    ///
    /// # Errors
    /// The reason for which the node does not obey this controller; its allegiance stays as it is.
    pub fn welcomed(
        self,
        history: Option<HistoryId>,
        ancestors: &[HistoryId],
        epoch: u64,
        reign: u64,
    ) -> Result<Allegiance, Disobedience> {
        let theirs = history.ok_or(Disobedience::Nameless)?;
        match self.history {
            Some(ours) if ours == theirs && epoch < self.epoch => {
                return Err(Disobedience::Deposed { given: epoch, known: self.epoch });
            }
            Some(ours) if ours != theirs && !ancestors.contains(&ours) => {
                return Err(Disobedience::Foreign { theirs, ours });
            }
            Some(_) | None => {}
        }
        Ok(Allegiance { history, epoch, reign })
    }

    /// Accepts an order of the controller that has accepted the node.
    ///
    /// # Errors
    /// The reason for which the order is not obeyed.
    pub fn obeys(self, history: Option<HistoryId>, epoch: u64) -> Result<(), Disobedience> {
        let theirs = history.ok_or(Disobedience::Nameless)?;
        match self.history {
            Some(ours) if ours != theirs => Err(Disobedience::Foreign { theirs, ours }),
            _ if epoch != self.epoch => Err(Disobedience::Deposed { given: epoch, known: self.epoch }),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: HistoryId = HistoryId([1; 16]);
    const B: HistoryId = HistoryId([2; 16]);

    #[test]
    fn reigns_are_compared_within_a_history_only() {
        let own = Allegiance { history: Some(A), epoch: 5, reign: 7 };
        let to = |history, epoch| Ok(Allegiance { history: Some(history), epoch, reign: 9 });
        let foreign = Err(Disobedience::Foreign { theirs: B, ours: A });
        for (before, history, ancestors, epoch, expected) in [
            (Allegiance::default(), Some(A), &[][..], 3, to(A, 3)),
            (Allegiance::default(), None, &[], 3, Err(Disobedience::Nameless)),
            (own, Some(A), &[], 6, to(A, 6)),
            (own, Some(A), &[], 5, to(A, 5)),
            (own, Some(A), &[], 4, Err(Disobedience::Deposed { given: 4, known: 5 })),
            // An epoch does not count across histories, however high it is.
            (own, Some(B), &[], u64::MAX, foreign),
            (own, Some(B), &[B], u64::MAX, foreign),
            (own, Some(B), &[A], 1, to(B, 1)),
        ] {
            assert_eq!(before.welcomed(history, ancestors, epoch, 9), expected, "{before:?} {history:?}");
        }
    }

    #[test]
    fn an_order_within_a_stream_is_of_the_reign_that_was_welcomed() {
        let own = Allegiance { history: Some(A), epoch: 5, reign: 7 };
        assert_eq!(own.obeys(Some(A), 5), Ok(()));
        for (history, epoch) in [(Some(A), 4), (Some(A), u64::MAX), (Some(B), 5), (None, 5)] {
            assert!(own.obeys(history, epoch).is_err(), "{history:?} {epoch}");
        }
    }
}
