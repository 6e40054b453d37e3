//! Streams of job states as they change.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use spur_core::cluster::sight::Sight;
use spur_core::controller::Reject;
use spur_core::id::JobId;
use spur_core::model::caller::Caller;
use spur_core::model::job::Job;
use spur_core::model::phase::Phase;
use spur_core::text::jobid::JobRef;
use spur_proto::convert::{BadField, job, reject};
use spur_proto::v1;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::{Desk, Listing};
use crate::clock;
use crate::watchers::Watch;

/// Messages queued for a slow reader, which then sees only the last of several states.
const AHEAD: usize = 16;
/// Largest number of jobs that one request may watch.
const MOST: usize = 10_000;

/// The last state sent to a watcher, as a hash: one request may watch all tasks of large arrays, and node
/// lists are long.
#[derive(Clone, Copy, PartialEq)]
struct Told {
    hash: u64,
    over: bool,
}

impl Told {
    fn new(message: &v1::Job, over: bool) -> Told {
        let mut hasher = DefaultHasher::new();
        let v1::Job { state, reason, nodes, restarts, array_task_id, .. } = message;
        (state, reason, nodes, restarts, array_task_id).hash(&mut hasher);
        Told { hash: hasher.finish(), over }
    }
}

impl Desk {
    /// Streams every named job, and again whenever its state, its nodes or its reason changes, until all have
    /// ended. For an array, every record is sent.
    pub(super) fn watch(
        &self,
        caller: &Caller,
        ids: &[u32],
    ) -> Result<Listing<v1::WatchJobsResponse>, Status> {
        if ids.len() > MOST {
            let problem = format!("one request watches {MOST} jobs at most, not {}", ids.len());
            return Err(reject::bad_field(&BadField::new("job ids", problem)));
        }
        let ids: Vec<JobId> = ids.iter().copied().map(JobId).collect();
        // Before the first look-up, so that no change is missed.
        let watch = self.watchers.watch(ids.clone());
        let sight = Sight::of(&self.replica.read(), caller);
        let unknown = |id: &JobId| {
            let cluster = self.replica.read();
            let seen = |id| cluster.job(id).is_some_and(|job| sight.job(&job.spec));
            !cluster.jobs().meant(&JobRef::whole(*id)).into_iter().any(seen)
        };
        if ids.iter().any(unknown) {
            return Err(reject::status(&Reject::InvalidJobId));
        }
        let (messages, outgoing) = mpsc::channel(AHEAD);
        let desk = self.clone();
        tokio::spawn(async move {
            tokio::select! {
                () = desk.follow(ids, watch, &sight, &messages) => {}
                () = desk.stop.wished() => {
                    // A watcher that is gone needs no answer.
                    let _ = messages.send(Err(Status::unavailable("the controller is stopping"))).await;
                }
                () = messages.closed() => {}
            }
        });
        Ok(Box::pin(ReceiverStream::new(outgoing)))
    }

    async fn follow(
        &self,
        ids: Vec<JobId>,
        watch: Watch,
        sight: &Sight,
        messages: &mpsc::Sender<Result<v1::WatchJobsResponse, Status>>,
    ) {
        let mut told = BTreeMap::new();
        let mut open: BTreeSet<JobId> = ids.into_iter().collect();
        let mut changed = open.clone();
        loop {
            for message in self.news(&changed, &mut open, &mut told) {
                let reason_detail = sight.sentence(&self.replica.read(), &message.reason_detail);
                let message = v1::Job { reason_detail, ..message };
                let message = v1::WatchJobsResponse { job: Some(message) };
                if messages.send(Ok(message)).await.is_err() {
                    return;
                }
            }
            if open.is_empty() {
                return;
            }
            changed = watch.changed().await;
        }
    }

    /// Returns the changed jobs that a watcher named; jobs that have ended, or are forgotten, are removed
    /// from `open`.
    fn news(
        &self,
        changed: &BTreeSet<JobId>,
        open: &mut BTreeSet<JobId>,
        told: &mut BTreeMap<JobId, Told>,
    ) -> Vec<v1::Job> {
        let cluster = self.replica.read();
        let outlooks = self.overlay.read();
        let mut news = Vec::new();
        for &named in changed {
            if !open.contains(&named) {
                continue;
            }
            let mut goes_on = false;
            for id in cluster.jobs().meant(&JobRef::whole(named)) {
                let Some(found) = cluster.job(id) else { continue };
                goes_on |= !over(found);
                if told.get(&id).is_some_and(|told| told.over && over(found)) {
                    continue;
                }
                let message = job::render(&cluster, found, outlooks.of(id), clock::now(&cluster));
                let now = Told::new(&message, over(found));
                if told.get(&id) != Some(&now) {
                    told.insert(id, now);
                    news.push(message);
                }
            }
            if !goes_on {
                open.remove(&named);
            }
        }
        news
    }
}

fn over(job: &Job) -> bool {
    matches!(job.phase, Phase::Ended(_))
}
