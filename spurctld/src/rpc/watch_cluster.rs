//! `WatchCluster`: streams the selected jobs and nodes, and then each of them that has changed.

use std::collections::BTreeSet;
use std::time::Duration;

use spur_core::cluster::sight::Sight;
use spur_core::id::{JobId, NodeId};
use spur_core::model::caller::Caller;
use spur_core::model::config::Private;
use spur_proto::convert::{BadField, job, reject};
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::filter::{self, Filter};
use super::lists::{PAGE, parts};
use super::{Desk, Listing};
use crate::changes::News;
use crate::clock;

/// Messages that wait for a reader. A slower reader receives several changes of a job as one.
const AHEAD: usize = 2;
/// The delay after a change, during which further changes are collected for the same messages.
const TOGETHER: Duration = Duration::from_millis(100);
/// Largest number of jobs that one request may name.
const MOST: usize = 1000;

type Messages = mpsc::Sender<Result<v1::WatchClusterResponse, Status>>;

/// The reader has closed the stream, or has received an error.
struct Gone;

/// The jobs and nodes that a reader follows; no jobs without a filter, no nodes if `nodes` is empty.
struct Wish {
    caller: Caller,
    jobs: Option<v1::JobFilter>,
    nodes: String,
}

impl Desk {
    /// Streams the selected jobs and nodes, and then their changes. Continues after the request's entry if
    /// the log still has all later changes of the same history, and begins with all records otherwise.
    pub(super) fn watch_cluster_of(
        &self,
        caller: Caller,
        request: v1::WatchClusterRequest,
    ) -> Result<Listing<v1::WatchClusterResponse>, Status> {
        let v1::WatchClusterRequest { filter, nodes, after_seq, history } = request;
        let wish = Wish { caller, jobs: filter, nodes };
        let named = wish.jobs.as_ref().map_or(0, |filter| filter.job_ids.len());
        if named > MOST {
            let problem = format!(
                "one request follows {MOST} jobs by number at most, not {named}; WatchJobs follows more"
            );
            return Err(reject::bad_field(&BadField::new("job ids", problem)));
        }
        if !wish.nodes.is_empty() && self.replica.read().policy().jobs.hides(Private::Nodes, &wish.caller) {
            return Err(reject::status(&spur_core::controller::Reject::AccessDenied));
        }
        // An invalid filter is refused before the stream begins.
        self.meant_jobs(&wish)?;
        self.meant_nodes(&wish)?;
        let place = match after_seq {
            0 => None,
            seq => self.changes.place_after(seq).filter(|_| history == self.history()),
        };
        let (messages, outgoing) = mpsc::channel(AHEAD);
        let desk = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                // The stream has ended already.
                Err(Gone) = desk.follow_cluster(&wish, place, &messages) => {}
                () = desk.stop.wished() => {
                    let _ = messages.send(Err(Status::unavailable("the controller is stopping"))).await;
                }
                () = messages.closed() => {}
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    fn history(&self) -> String {
        self.replica.read().history().map(|history| history.id.to_string()).unwrap_or_default()
    }

    /// Returns the filter of the selected jobs; `None` if the reader follows no jobs.
    fn meant_jobs(&self, wish: &Wish) -> Result<Option<Filter>, Status> {
        let Some(wire) = &wish.jobs else { return Ok(None) };
        let cluster = self.replica.read();
        let named = wire.job_ids.iter().flat_map(|written| filter::meant(&cluster, written));
        let ids: Option<BTreeSet<JobId>> = (!wire.job_ids.is_empty()).then(|| named.collect());
        Filter::read(&cluster, &wish.caller, wire, ids).map(Some)
    }

    /// Returns the selected nodes; empty if the reader follows no nodes.
    fn meant_nodes(&self, wish: &Wish) -> Result<BTreeSet<NodeId>, Status> {
        match wish.nodes.as_str() {
            "" => Ok(BTreeSet::new()),
            written => Ok(filter::node_ids(&self.replica.read(), written)?.into_iter().collect()),
        }
    }

    async fn follow_cluster(
        &self,
        wish: &Wish,
        mut place: Option<u64>,
        messages: &Messages,
    ) -> Result<(), Gone> {
        loop {
            let news = place.and_then(|place| self.changes.since(place));
            place = Some(match news {
                Some(news) => self.tell_news(wish, news, messages).await?,
                None => self.tell_all(wish, messages).await?,
            });
            self.changes.beyond(place.unwrap_or_default()).await;
            tokio::time::sleep(TOGETHER).await;
        }
    }

    /// Sends all selected jobs and nodes. Returns the position in the log from which changes have to be
    /// sent.
    async fn tell_all(&self, wish: &Wish, messages: &Messages) -> Result<u64, Gone> {
        // The position is read before the records, so that changes during the transfer are sent again.
        let (place, seq) = self.changes.end();
        let begins = v1::WatchClusterResponse { begins: true, ..v1::WatchClusterResponse::default() };
        self.send(begins, messages).await?;
        let filter = self.or_end(self.meant_jobs(wish), messages).await?;
        let mut next = filter.as_ref().map(|_| JobId(0));
        while let (Some(first), Some(filter)) = (next, &filter) {
            let ids: BTreeSet<JobId> = {
                let cluster = self.replica.read();
                filter.candidates(&cluster, first, PAGE).take(PAGE).map(|job| job.id).collect()
            };
            next = ids.last().filter(|_| ids.len() == PAGE).map(|last| JobId(last.0.saturating_add(1)));
            let (jobs, _) = self.render_jobs(wish, Some(filter), &ids).await;
            self.send_jobs(jobs, messages).await?;
        }
        let nodes: Vec<NodeId> = self.or_end(self.meant_nodes(wish), messages).await?.into_iter().collect();
        self.send_nodes(wish, &nodes, messages).await?;
        self.complete(seq, messages).await?;
        Ok(place)
    }

    /// Sends changed jobs and nodes. Returns the position in the log from which further changes have to be
    /// sent.
    async fn tell_news(&self, wish: &Wish, news: News, messages: &Messages) -> Result<u64, Gone> {
        let News { jobs, nodes, place, seq } = news;
        if wish.jobs.is_some() {
            let filter = self.or_end(self.meant_jobs(wish), messages).await?;
            let jobs: Vec<JobId> = jobs.into_iter().collect();
            for some in jobs.chunks(PAGE) {
                let some: BTreeSet<JobId> = some.iter().copied().collect();
                let (jobs, gone_jobs) = self.render_jobs(wish, filter.as_ref(), &some).await;
                self.send_jobs(jobs, messages).await?;
                if !gone_jobs.is_empty() {
                    let gone = v1::WatchClusterResponse { gone_jobs, ..v1::WatchClusterResponse::default() };
                    self.send(gone, messages).await?;
                }
            }
        }
        let meant = self.or_end(self.meant_nodes(wish), messages).await?;
        let nodes: Vec<NodeId> = nodes.intersection(&meant).copied().collect();
        self.send_nodes(wish, &nodes, messages).await?;
        self.complete(seq, messages).await?;
        Ok(place)
    }

    /// Returns the messages of the jobs that the filter selects, and the numbers of the jobs that are gone
    /// or that the filter does not select. Jobs that the caller may not see are in neither.
    async fn render_jobs(
        &self,
        wish: &Wish,
        filter: Option<&Filter>,
        ids: &BTreeSet<JobId>,
    ) -> (Vec<v1::Job>, Vec<u32>) {
        let turn = self.turns.take(&wish.caller).await;
        let (mut jobs, mut gone) = (Vec::new(), Vec::new());
        let cluster = self.replica.read();
        let (sight, outlooks, now) =
            (Sight::of(&cluster, &wish.caller), self.overlay.read(), clock::now(&cluster));
        for id in ids {
            match cluster.job(*id) {
                Some(found) if !sight.job(&found.spec) => {}
                Some(found) if filter.is_some_and(|filter| filter.admits(found)) && !found.is_withdrawn() => {
                    let mut message = job::render(&cluster, found, outlooks.of(*id), now);
                    message.reason_detail = sight.sentence(&cluster, &message.reason_detail);
                    jobs.push(message);
                }
                Some(_) | None => gone.push(id.0),
            }
        }
        drop(cluster);
        turn.end(ids.len());
        (jobs, gone)
    }

    async fn send_jobs(&self, jobs: Vec<v1::Job>, messages: &Messages) -> Result<(), Gone> {
        for jobs in parts(jobs) {
            self.send(v1::WatchClusterResponse { jobs, ..v1::WatchClusterResponse::default() }, messages)
                .await?;
        }
        Ok(())
    }

    async fn send_nodes(&self, wish: &Wish, ids: &[NodeId], messages: &Messages) -> Result<(), Gone> {
        for some in ids.chunks(PAGE) {
            let turn = self.turns.take(&wish.caller).await;
            let sight = Sight::of(&self.replica.read(), &wish.caller);
            let nodes = self.render_nodes(some, &sight);
            turn.end(some.len());
            for nodes in parts(nodes) {
                self.send(
                    v1::WatchClusterResponse { nodes, ..v1::WatchClusterResponse::default() },
                    messages,
                )
                .await?;
            }
        }
        Ok(())
    }

    /// Sends the message that all changes up to an entry have been sent.
    async fn complete(&self, seq: u64, messages: &Messages) -> Result<(), Gone> {
        let history = self.history();
        let complete =
            v1::WatchClusterResponse { complete: true, seq, history, ..v1::WatchClusterResponse::default() };
        self.send(complete, messages).await
    }

    async fn send(&self, message: v1::WatchClusterResponse, messages: &Messages) -> Result<(), Gone> {
        // Without a valid lease this controller may lack changes that another one has acknowledged.
        if !self.journal.may_answer() {
            let _ = messages.send(Err(super::leased::refused(&self.journal))).await;
            return Err(Gone);
        }
        messages.send(Ok(message)).await.map_err(|_| Gone)
    }

    /// Returns the value, or ends the stream with the refusal.
    async fn or_end<T>(&self, read: Result<T, Status>, messages: &Messages) -> Result<T, Gone> {
        match read {
            Ok(value) => Ok(value),
            Err(status) => {
                let _ = messages.send(Err(status)).await;
                Err(Gone)
            }
        }
    }
}
