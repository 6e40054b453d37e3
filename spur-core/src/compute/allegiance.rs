//! Whom a node obeys: the controllers of one history, and of these the one that reigns.

use serde::{Deserialize, Serialize};

use crate::id::HistoryId;

/// Whom a node obeys; kept in its spool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Allegiance {
    /// The history that the node belongs to; none before a controller has welcomed it.
    pub history: Option<HistoryId>,
    /// The latest reign within it.
    pub epoch: u64,
    /// What that reign's controller drew when it began.
    pub reign: u64,
}

/// Why somebody is not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Disobedience {
    /// It does not say which history it is of.
    #[error("names no history: it is of an earlier release, or no controller")]
    Nameless,
    /// It is of another history.
    #[error("is of history {theirs}, this node belongs to {ours}")]
    Foreign {
        /// Its history.
        theirs: HistoryId,
        /// The node's.
        ours: HistoryId,
    },
    /// Its reign is not the latest.
    #[error("gives orders of reign {given}: this node obeys reign {known}")]
    Deposed {
        /// Its reign.
        given: u64,
        /// The latest.
        known: u64,
    },
}

impl Allegiance {
    /// Whom the node obeys once a controller has welcomed it; to be kept before anything else is done. A node that belongs to
    /// one of the `ancestors` of a history belongs to that from then on, and its reigns are counted anew.
    ///
    /// # Errors
    /// Why this controller is not obeyed; nothing has changed then.
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

    /// Whether the node carries out an order of the controller that has welcomed it.
    ///
    /// # Errors
    /// Why not.
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
            // However high its epoch is.
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
