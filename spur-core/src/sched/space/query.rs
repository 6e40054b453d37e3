//! What is looked for in time, and what is found.

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

/// A job to find room for, in one partition.
#[derive(Clone)]
pub(crate) struct Query<'a> {
    /// Where it may be planned.
    pub(crate) realm: usize,
    /// The number of its need.
    pub(crate) need: usize,
    pub(crate) request: &'a Request,
    pub(crate) eligible_sets: &'a [Arc<EligibleNodes>],
    /// The first of them that is asked for, not only wished for: what is said of the job is said of it.
    pub(crate) plain: &'a Arc<EligibleNodes>,
    pub(crate) stages: &'a [Stage],
    pub(crate) licenses: &'a WantedLicenses,
    /// Planned run time, seconds.
    pub(crate) run_time: u64,
    /// Only a start from this on is of interest.
    pub(crate) from: Time,
    /// Only a start before this is of interest.
    pub(crate) until: Time,
}

/// What has been found out about needs, domains and starts, for all jobs.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Needs by number, of which equal ones have the same.
    pub(crate) needs: Needs,
    pub(crate) domains: DomainTable,
    /// When requests start at the earliest, as far as that is known.
    pub(crate) start_bounds: StartBounds,
    /// Whether the domains that could have held a job and lost are named with those that may start from now on.
    pub(crate) names_rivals: bool,
}

/// A query in one stage, and through one of its sets of eligible nodes.
#[derive(Clone, Copy)]
pub(crate) struct Aspect<'a> {
    pub(crate) query: &'a Query<'a>,
    pub(crate) stage: &'a Stage,
    pub(crate) eligible: &'a Arc<EligibleNodes>,
}

/// Where a job was placed, with those that lost, and whether it can start there this moment.
pub(crate) type Placed = (Placement, Vec<Lost>, bool);

impl Aspect<'_> {
    /// What one domain has to have for it.
    pub(crate) fn wanted(&self) -> Wanted {
        let nodes = self.stage.asks.last().and_then(|ask| ask.nodes).map_or(1, |(least, _)| least);
        Wanted { nodes, slots: self.query.request.min_slots() }
    }

    /// Room that was found from a time on.
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

/// Room that was found.
#[derive(Clone, Debug)]
pub(crate) struct Hit {
    /// The realm it is in.
    pub(crate) realm: usize,
    pub(crate) start: Time,
    /// How long the job is planned to run there, seconds.
    pub(crate) lasts: u64,
    /// The time limit that it has to do with there, seconds, if that is not what it asked for.
    pub(crate) limit: Option<u64>,
    /// Whether the job can start this moment.
    pub(crate) starts: bool,
    pub(crate) placement: Placement,
    /// The best of the domains that could have held it and lost; looked for only when it starts.
    pub(crate) lost: Vec<Lost>,
    pub(crate) relaxed: Vec<String>,
    /// Whether the leaves it is in are closed to others while it runs.
    pub(crate) whole_leaves: bool,
    pub(crate) eligible: Arc<EligibleNodes>,
}

impl Query<'_> {
    /// What it asks of licenses.
    pub(crate) fn asked(&self) -> [(usize, &WantedLicenses); 1] {
        [(self.realm, self.licenses)]
    }

    /// The time before which a start is of interest next to one that was found: an equally early one only where it
    /// may have more nodes.
    pub(crate) fn beaten_by(&self, hit: &Hit) -> Time {
        let is_open = self.request.nodes.is_some_and(|(least, most)| least < most);
        hit.start + u64::from(is_open && self.eligible_sets.len() > 1)
    }
}

impl Hit {
    /// Whether it is the better of two: earlier, or at the same time on more nodes.
    pub(crate) fn beats(&self, other: &Hit) -> bool {
        let order = |hit: &Hit| (hit.start, std::cmp::Reverse(hit.placement.shares.len()));
        order(self) < order(other)
    }
}
