//! Changes that let a waiting job start earlier (`spur why --fix`). They are planned on a copy of the
//! cluster, on a thread for long work.
//!
//! A question takes many plans. So one question is answered at a time, each user has at most one, and other
//! questions that need a copy are answered between two plans. When a client is gone, its question ends after
//! the plan under way.

use std::collections::HashSet;
use std::sync::{Arc, Mutex as Lock, PoisonError};

use spur_core::cluster::sight::Sight;
use spur_core::controller::Reject;
use spur_core::controller::fix::{FixSearch, Planned};
use spur_core::id::{JobId, NodeId};
use spur_core::model::caller::Caller;
use spur_core::model::change::JobChange;
use spur_core::text::hostlist::HostList;
use spur_proto::convert::reject;
use spur_proto::v1;
use tokio::sync::Mutex;
use tonic::Status;

use super::Desk;
use crate::clock;

/// The questions that wait or are being answered. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct Fixing {
    /// The users with a question.
    users: Arc<Lock<HashSet<u32>>>,
    /// Held by the question that is being answered.
    turn: Arc<Mutex<()>>,
}

/// A user's question; it counts until the value is dropped.
struct Question {
    users: Arc<Lock<HashSet<u32>>>,
    uid: u32,
}

impl Fixing {
    /// Counts a user's question.
    ///
    /// # Errors
    /// The user has a question already.
    fn begin(&self, uid: u32) -> Result<Question, Status> {
        if self.users.lock().unwrap_or_else(PoisonError::into_inner).insert(uid) {
            return Ok(Question { users: Arc::clone(&self.users), uid });
        }
        let text = "another spur why --fix of yours is being answered; each user has one at a time";
        Err(reject::status(&Reject::Invalid(text.to_owned())))
    }
}

impl Drop for Question {
    fn drop(&mut self) {
        self.users.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.uid);
    }
}

impl Desk {
    /// Returns the planned start of a waiting job, and the changes with which the job starts earlier.
    pub(super) async fn fix(&self, caller: Caller, job: JobId) -> Result<v1::FixJobResponse, Status> {
        let _question = self.fixing.begin(caller.owner.uid)?;
        {
            let cluster = self.replica.read();
            let sight = Sight::of(&cluster, &caller);
            let is_seen = cluster.job(job).is_some_and(|known| sight.job(&known.spec));
            if !is_seen {
                return Err(reject::status(&Reject::InvalidJobId));
            }
        }
        let _turn = self.fixing.turn.lock().await;
        let mut search = self
            .on_copy(move |cluster| {
                let now = clock::now(&cluster).max(cluster.at());
                FixSearch::new(cluster, caller, job, now).map_err(|refused| reject::status(&refused))
            })
            .await?;
        loop {
            // Questions of others that plan on a copy wait for one plan at most.
            let copies = self.copies.lock().await;
            let stepped = tokio::task::spawn_blocking(move || {
                let goes_on = search.step();
                (search, goes_on)
            });
            let (stepped, goes_on) = stepped.await.map_err(|error| Status::internal(error.to_string()))?;
            drop(copies);
            search = stepped;
            if !goes_on {
                return Ok(self.rendered(search));
            }
        }
    }

    fn rendered(&self, search: FixSearch) -> v1::FixJobResponse {
        let plans = search.plans();
        let (planned, fixes) = search.finish();
        let cluster = self.replica.read();
        let names =
            |nodes: &[NodeId]| HostList::from_names(cluster.names_of(nodes.iter().copied())).to_string();
        let start = |planned: &Planned| cluster.clock().wall(planned.start).0;
        let fixes = fixes.into_iter().filter_map(|fix| {
            let (key, value) = written(&fix.change)?;
            Some(v1::JobFix {
                key: key.to_owned(),
                value,
                start_time: start(&fix.planned),
                nodes: names(&fix.planned.nodes),
            })
        });
        v1::FixJobResponse {
            start_time: planned.as_ref().map(start),
            nodes: planned.map(|planned| names(&planned.nodes)).unwrap_or_default(),
            fixes: fixes.collect(),
            plans,
        }
    }
}

/// Returns a change as `scontrol update` takes it; `None` for a change that no search makes.
fn written(change: &JobChange) -> Option<(&'static str, String)> {
    Some(match change {
        JobChange::TimeLimit(limit) => ("TimeLimit", limit.long()),
        JobChange::Nodes(nodes) => ("NumNodes", nodes.to_string()),
        JobChange::Partition(names) => ("Partition", names.join(",")),
        JobChange::Account(name) => ("Account", name.as_deref()?.to_owned()),
        JobChange::Qos(name) => ("QOS", name.as_deref()?.to_owned()),
        _ => return None,
    })
}
