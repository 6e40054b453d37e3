//! The query for a start, and its result.

use std::sync::Arc;

use crate::sched::place::{Lost, Placement};
use crate::sched::request::Request;
use crate::sched::request::constraints::Stage;
use crate::sched::request::domains::DomainTable;
use crate::sched::request::eligible_nodes::EligibleNodes;
use crate::sched::timeline::licenses::WantedLicenses;
use crate::sched::timeline::needs::Needs;
use crate::sched::timeline::realm::Realms;
use crate::sched::timeline::start_bounds::StartBounds;
use crate::sched::timeline::sweep::Wanted;
use crate::text::time::Time;

/// A search for the start of a job in one partition.
#[derive(Clone)]
pub(crate) struct Query<'a> {
    /// The realm in which the job may be planned.
    pub(crate) realm: usize,
    /// The number of the job's need.
    pub(crate) need: usize,
    pub(crate) request: &'a Request,
    pub(crate) eligible_sets: &'a [Arc<EligibleNodes>],
    /// The first set of the job's required constraint, after those of its preferences. Sentences about the
    /// job use it.
    pub(crate) plain: &'a Arc<EligibleNodes>,
    pub(crate) stages: &'a [Stage],
    pub(crate) licenses: &'a WantedLicenses,
    /// Planned run time, in seconds.
    pub(crate) run_time: u64,
    /// The earliest start of interest.
    pub(crate) from: Time,
    /// Only a start before this time is of interest.
    pub(crate) until: Time,
}

/// Findings about needs, domains and starts, for all jobs.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Needs by number; equal ones share a number.
    pub(crate) needs: Needs,
    pub(crate) domains: DomainTable,
    /// Known lower bounds of the start times of requests.
    pub(crate) start_bounds: StartBounds,
    /// True if the placement of a job that starts now also names the best domains that could have held it.
    pub(crate) names_rivals: bool,
}

/// A query in one stage and one of its sets of eligible nodes.
#[derive(Clone, Copy)]
pub(crate) struct Aspect<'a> {
    pub(crate) query: &'a Query<'a>,
    pub(crate) stage: &'a Stage,
    pub(crate) eligible: &'a Arc<EligibleNodes>,
}

/// A placement, the domains that lost to it, and whether the job can start on it now.
pub(crate) type Placed = (Placement, Vec<Lost>, bool);

impl Aspect<'_> {
    /// The nodes and slots that one domain must have for the job.
    pub(crate) fn wanted(&self) -> Wanted {
        let nodes = self.stage.asks.last().and_then(|ask| ask.nodes).map_or(1, |(least, _)| least);
        Wanted { nodes, slots: self.query.request.min_slots() }
    }

    /// The result for a placement that was found at `start`.
    pub(crate) fn hit(&self, realms: &Realms, start: Time, (placement, lost, starts): Placed) -> Hit {
        Hit {
            realm: self.query.realm,
            start,
            lasts: realms.lasts(self.query.realm, start, self.query.run_time),
            limit: None,
            starts,
            placement,
            lost,
            relaxed: self.stage.relaxed.clone(),
            whole_leaves: self.stage.ask().whole_leaves,
            eligible: Arc::clone(self.eligible),
        }
    }
}

/// A start that a search found.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// The realm of the start.
    pub(crate) realm: usize,
    pub(crate) start: Time,
    /// Planned run time at this start, in seconds.
    pub(crate) lasts: u64,
    /// The lowered time limit of this start, in seconds; `None` if it is the requested one.
    pub(crate) limit: Option<u64>,
    /// True if the job can start now.
    pub(crate) starts: bool,
    pub(crate) placement: Placement,
    /// The best domains that could have held the job and lost; computed only for a start now.
    pub(crate) lost: Vec<Lost>,
    pub(crate) relaxed: Vec<String>,
    /// True if the job's leaves are closed to others while it runs.
    pub(crate) whole_leaves: bool,
    pub(crate) eligible: Arc<EligibleNodes>,
}

impl Query<'_> {
    /// The demand of the job for licenses.
    pub(crate) fn asked(&self) -> [(usize, &WantedLicenses); 1] {
        [(self.realm, self.licenses)]
    }

    /// The time before which a start is better than `hit`. A start at the same time counts only where it may
    /// have more nodes.
    pub(crate) fn beaten_by(&self, hit: &Hit) -> Time {
        let is_open = self.request.nodes.is_some_and(|(least, most)| least < most);
        hit.start + u64::from(is_open && self.eligible_sets.len() > 1)
    }
}

impl Hit {
    /// True if this start is earlier than the other, or equally early on more nodes.
    pub(crate) fn beats(&self, other: &Hit) -> bool {
        let order = |hit: &Hit| (hit.start, std::cmp::Reverse(hit.placement.shares.len()));
        order(self) < order(other)
    }
}
