//! The shell around the core, as thin as possible: it commits in order, and nothing leaves before its commit.

use std::collections::{BTreeMap, VecDeque};

use spur_core::cluster::Cluster;
use spur_core::controller::{self, Effect, Input, Reject, Reply};
use spur_core::id::{NodeId, RequestId};
use spur_core::text::time::Time;

use crate::disk::Batch;

/// The results that wait for a commit.
pub(crate) struct InFlight {
    pub(crate) batch: Batch,
    pub(crate) effects: Vec<Effect>,
    /// The client's request that this commit answers, with the reply.
    pub(crate) reply: Option<(u64, Result<Reply, Reject>)>,
}

/// A running controller.
pub(crate) struct Controller {
    pub(crate) epoch: u64,
    /// The owner's state: ahead of the disk by the commits in flight.
    pub(crate) cluster: Cluster,
    /// The committed state.
    pub(crate) replica: Cluster,
    pub(crate) in_flight: VecDeque<InFlight>,
    /// The time at which the last commit in flight will be done, in milliseconds.
    pub(crate) busy_until: u64,
    pub(crate) sessions: BTreeMap<NodeId, u64>,
    /// The sessions that take orders.
    pub(crate) open: BTreeMap<NodeId, u64>,
}

impl Controller {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self {
            epoch: cluster.epoch() + 1,
            replica: cluster.clone(),
            cluster,
            in_flight: VecDeque::new(),
            busy_until: 0,
            sessions: BTreeMap::new(),
            open: BTreeMap::new(),
        }
    }

    /// Handles an input and queues its results for the next commit.
    pub(crate) fn handle(&mut self, now: u64, input: Input, client: Option<(u64, RequestId)>) {
        let at = Time(i64::try_from(now / 1000).expect("small"));
        let before = self.cluster.seq();
        let outcome = controller::handle(&mut self.cluster, self.epoch, at, input);
        if outcome.answer.is_err() {
            assert!(outcome.entries.is_empty() && outcome.effects.is_empty(), "a refusal changes nothing");
            assert_eq!(self.cluster.seq(), before, "a refusal changes nothing");
        }
        let answered = client.and_then(|(_, request)| Some((request, outcome.answer.as_ref().ok()?.clone())));
        self.in_flight.push_back(InFlight {
            batch: Batch { entries: outcome.entries, answered },
            effects: outcome.effects,
            reply: client.map(|(number, _)| (number, outcome.answer)),
        });
    }
}
