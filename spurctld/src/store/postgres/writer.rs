//! The writer: one task, one connection, and every change of the journal while this controller leads.
//!
//! Batches that wait are committed in one statement, in order. Between commits the lease is renewed. A batch
//! is offered to the lease until the lease confirms it, however often connections break.

use std::sync::OnceLock;
use std::time::Duration;

use spur_core::controller::lease::{End, Step};
use tokio::sync::{mpsc, watch};

use super::lease::Session;
use crate::clock;
use crate::store::backend::{Submission, check_order, gather, refuse};
use crate::store::{Batch, Committed, StoreError};

/// The session that leads, with the end of the journal.
pub(super) struct Writer {
    pub(super) session: Session,
    pub(super) epoch: u64,
    pub(super) last_seq: u64,
    pub(super) committed: watch::Sender<u64>,
}

/// Batches that are committed together.
struct Offer {
    batches: Vec<Batch>,
    last: u64,
}

/// Serves the queue until it is closed, the lease is lost, or a statement cannot succeed; `failure` then has
/// the reason.
pub(super) async fn serve(
    mut writer: Writer,
    batches: &mut mpsc::Receiver<Submission>,
    failure: &OnceLock<StoreError>,
) {
    let mut group = Vec::new();
    let Err(error) = writer.work(batches, &mut group).await else {
        return writer.session.disconnect().await;
    };
    let error = failure.get_or_init(|| error);
    refuse(batches, group, error);
}

impl Writer {
    /// Works through the queue. After an error, `group` contains the batches that could not be committed.
    async fn work(
        &mut self,
        batches: &mut mpsc::Receiver<Submission>,
        group: &mut Vec<Submission>,
    ) -> Result<(), StoreError> {
        let (mut offer, mut closing) = (None::<Offer>, false);
        loop {
            if offer.is_none()
                && let Ok(first) = batches.try_recv()
            {
                offer = self.offer(first, batches, group)?;
            }
            match self.session.lease.next(clock::since_boot_ms(), offer.as_ref().map(|offer| offer.last)) {
                Step::End(End::Released) if closing => return Ok(()),
                Step::End(end) => return Err(self.session.ended(end)),
                Step::Send(statement) => {
                    let offered = offer.as_ref().map_or(&[][..], |offer| &offer.batches);
                    if self.session.send(&statement, offered).await?
                        && let Some(durable) = offer.take()
                    {
                        self.acknowledge(&durable, group);
                    }
                }
                Step::Wait { until } => {
                    let rest = u64::try_from(until - clock::since_boot_ms()).unwrap_or(0);
                    tokio::select! {
                        biased;
                        first = batches.recv(), if offer.is_none() && !closing => match first {
                            Some(first) => offer = self.offer(first, batches, group)?,
                            None => {
                                closing = true;
                                self.session.lease.resign();
                            }
                        },
                        () = tokio::time::sleep(Duration::from_millis(rest)) => {}
                    }
                }
            }
        }
    }

    /// Collects the batches that are committed together; `None` if all of them are empty.
    fn offer(
        &mut self,
        first: Submission,
        queue: &mut mpsc::Receiver<Submission>,
        group: &mut Vec<Submission>,
    ) -> Result<Option<Offer>, StoreError> {
        gather(first, queue, group);
        let batches: Vec<Batch> =
            group.iter_mut().map(|submission| std::mem::take(&mut submission.batch)).collect();
        let last = check_order(self.last_seq, self.epoch, batches.iter().flat_map(|batch| &batch.entries))?;
        let offer = Offer { batches, last };
        if offer.batches.iter().all(Batch::is_empty) {
            self.acknowledge(&offer, group);
            return Ok(None);
        }
        Ok(Some(offer))
    }

    fn acknowledge(&mut self, durable: &Offer, group: &mut Vec<Submission>) {
        self.last_seq = durable.last;
        self.committed.send_if_modified(|last| {
            let moved = *last != durable.last;
            *last = durable.last;
            moved
        });
        for submission in group.drain(..) {
            // The submitter may have given up.
            let _ = submission.done.send(Ok(Committed { seq: durable.last }));
        }
    }
}
