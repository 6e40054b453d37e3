//! The limits of associations and QOS in a pass: a job is stopped if one leaves too little for it now. A stopped job keeps
//! no nodes and keeps nobody else waiting.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::amounts::{self, Amounts};
use crate::cluster::limits::{Asked, Judge, Rules, Started, Stop};
use crate::cluster::usage::Usage;
use crate::cluster::{Accounts, Cluster, Counters};
use crate::id::JobId;
use crate::model::accounts::Charged;
use crate::model::config::AccountingEnforce;
use crate::sched::forecast::PlanInput;
use crate::sched::plan::{Start, StartPart};
use crate::sched::prospect::{Prospect, Prospects, start_part};
use crate::sched::queue::{Candidate, Queued};
use crate::sched::request::Part;
use crate::sched::space::{Hit, Space};
use crate::text::time::{Time, TimeLimit};

use super::walk::Walk;

/// The limits as a pass goes by them.
#[derive(Debug)]
pub(crate) struct PassLimits {
    tree: Arc<Accounts>,
    counters: Arc<Counters>,
    /// The past usage of those that have budgets.
    usage: Usage,
    safe: bool,
    now: Time,
    /// The starts that the pass has proposed.
    started: Started,
    /// The limits that apply, by what jobs count for and whose they are.
    rules: BTreeMap<(Charged, Arc<str>), Arc<Rules>>,
    /// The partitions in which a limit stops the job that is looked at.
    barred: Vec<usize>,
    /// The limit that stopped the job that is looked at, if one did.
    stop: Option<Stop>,
}

impl PassLimits {
    /// The limits of a cluster; `None` where none are enforced.
    pub(crate) fn new(PlanInput { cluster, now, .. }: PlanInput<'_>) -> Option<Box<Self>> {
        let enforces = |part| Cluster::enforces(cluster, part);
        enforces(AccountingEnforce::Limits).then(|| {
            Box::new(Self {
                tree: Arc::clone(cluster.accounts()),
                counters: Arc::clone(cluster.counters()),
                usage: cluster.usage().of_budgets(cluster.accounts()),
                safe: enforces(AccountingEnforce::Safe),
                now,
                started: Started::default(),
                rules: BTreeMap::new(),
                barred: Vec::new(),
                stop: None,
            })
        })
    }
}

impl<S: Space> Walk<S> {
    /// Forgets which limits stopped the job before.
    pub(super) fn forget_stops(&mut self) {
        if let Some(limits) = &mut self.limits {
            limits.barred.clear();
            limits.stop = None;
        }
    }

    /// Whether a limit stops a job in a partition.
    pub(super) fn is_barred(&self, partition: usize) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.barred.contains(&partition))
    }

    /// Whether a limit stopped the job that is looked at.
    pub(super) fn is_stopped(&self) -> bool {
        self.limits.as_ref().is_some_and(|limits| limits.stop.is_some())
    }

    /// Notes that the job that is looked at waits for the limit that stopped it.
    pub(super) fn stop_noted(&mut self, candidate: &Queued) {
        if let Some(stop) = self.take_stop() {
            self.stop(candidate, &stop);
        }
    }

    /// The limit that stopped the job that is looked at, if one did.
    pub(super) fn take_stop(&mut self) -> Option<Stop> {
        self.limits.as_mut()?.stop.take()
    }

    /// Looks at the limits of a job that comes next, by what it takes at least: finds the partitions in which one stops it.
    /// The limit, if that is so in all.
    pub(super) fn stopped(&mut self, candidate: &Queued) -> Option<Stop> {
        self.limits.as_ref()?;
        let mut first = None;
        for (partition, request) in candidate.choices.iter() {
            let amounts = request.least(&candidate.spec);
            let starts = [(&**candidate, *partition, amounts, None)];
            if let Some(stop) = self.judge(candidate, &starts, !request.need.whole) {
                first = first.or(Some(stop));
                self.bar(*partition);
            }
        }
        let all = candidate.choices.iter().all(|(partition, _)| self.is_barred(*partition));
        first.filter(|_| all)
    }

    /// Looks at the limits of all components of a het job, each in any of its partitions, by what each takes at least.
    pub(super) fn stopped_together(&mut self, candidate: &Queued) -> Option<Stop> {
        self.limits.as_ref()?;
        for component in candidate.all() {
            let mut stops = component.choices.iter().map(|(partition, request)| {
                let amounts = request.least(&component.spec);
                self.judge(candidate, &[(component, *partition, amounts, None)], !request.need.whole)
            });
            let first = stops.next()?;
            if let Some(stop) = first.filter(|_| stops.all(|stop| stop.is_some())) {
                return Some(stop);
            }
        }
        None
    }

    /// Whether a limit stops a job, with all its components, on the nodes that were found for it; notes the limit.
    pub(super) fn stops_on<'p>(
        &mut self,
        candidate: &Queued,
        found: impl Iterator<Item = (&'p Prospect, &'p [Part], Option<u64>)>,
        displaced: &[JobId],
    ) -> bool {
        if self.limits.is_none() {
            return false;
        }
        let starts: Vec<_> = candidate
            .all()
            .zip(found)
            .map(|(component, (prospect, parts, limit))| {
                (component, prospect.partition, self.amounts(component, prospect, parts), limit)
            })
            .collect();
        let stop = self.judge_beside(candidate, &starts, false, displaced);
        if let (Some(limits), Some(stop)) = (&mut self.limits, stop) {
            limits.stop = Some(stop);
            return true;
        }
        false
    }

    /// Bars the partition in which a limit stops the job that is looked at; says whether that was the last.
    pub(super) fn bar_last(&mut self, prospects: &Prospects, partition: usize) -> bool {
        self.bar(partition);
        prospects.iter().all(|prospect| self.is_barred(prospect.partition))
    }

    fn bar(&mut self, partition: usize) {
        self.limits.iter_mut().for_each(|limits| limits.barred.push(partition));
    }

    /// Counts a start that is proposed.
    pub(super) fn count_start(&mut self, candidate: &Candidate, partition: usize, start: &Start) {
        if self.limits.is_none() {
            return;
        }
        let nodes = &self.inventory.nodes;
        let shape = |node: crate::id::NodeId| nodes.get(node.index()).map(|node| &*node.shape);
        let amounts = amounts::proposed(&candidate.spec, &start.parts, start.exclusive, shape);
        let limit = start.time_limit.unwrap_or(candidate.spec.time_limit);
        let Some(rules) = self.rules(candidate, partition) else { return };
        let asked = Asked { spec: &candidate.spec, rules: &rules, amounts: &amounts, limit, at_least: false };
        self.limits.iter_mut().for_each(|limits| limits.started.add(&asked));
    }

    /// The resources of what was found for a job.
    fn amounts(&self, candidate: &Candidate, prospect: &Prospect, parts: &[Part]) -> Amounts {
        let need = &prospect.request().need;
        let used = parts.iter().filter(|part| part.slots > 0);
        let parts: Vec<StartPart> =
            used.map(|part| start_part(need, part.node, part.slots, &part.taken)).collect();
        let nodes = &self.inventory.nodes;
        let shape = |node: crate::id::NodeId| nodes.get(node.index()).map(|node| &*node.shape);
        amounts::proposed(&candidate.spec, &parts, need.whole, shape)
    }

    fn judge(
        &mut self,
        candidate: &Queued,
        starts: &[(&Candidate, usize, Amounts, Option<u64>)],
        is_exact: bool,
    ) -> Option<Stop> {
        self.judge_beside(candidate, starts, !is_exact, &[])
    }

    /// The first limit that keeps jobs from starting together, beside the starts of this pass.
    fn judge_beside(
        &mut self,
        candidate: &Queued,
        starts: &[(&Candidate, usize, Amounts, Option<u64>)],
        at_least: bool,
        displaced: &[JobId],
    ) -> Option<Stop> {
        let mut more: Option<Started> = None;
        let own = candidate.all().map(|component| component.attempt.job);
        // The tasks of an array have numbers of their own once they have started.
        let except: Vec<JobId> = own.chain(displaced.iter().copied()).collect();
        for (number, (component, partition, amounts, limit)) in starts.iter().enumerate() {
            let rules = self.rules(component, *partition)?;
            let limits = self.limits.as_ref()?;
            let limit = limit.map_or(component.spec.time_limit, TimeLimit::Seconds);
            let asked = Asked { spec: &component.spec, rules: &rules, amounts, limit, at_least };
            let started = more.as_ref().unwrap_or(&limits.started);
            let PassLimits { counters, usage, safe, now, .. } = &**limits;
            let usage = Some(usage);
            let judge = Judge { counters, usage, started, except: &except, safe: *safe, now: *now };
            if let Some(stop) = judge.start(&asked) {
                return Some(stop);
            }
            if number + 1 < starts.len() {
                more.get_or_insert_with(|| limits.started.clone()).add(&asked);
            }
        }
        None
    }

    /// The limits that apply to a job in a partition.
    fn rules(&mut self, candidate: &Candidate, partition: usize) -> Option<Arc<Rules>> {
        let partition = &self.inventory.partitions.get(partition)?.partition;
        let limits = self.limits.as_mut()?;
        let charged = limits.tree.charged(&candidate.spec, partition);
        let user = &candidate.spec.owner.user;
        let tree = &limits.tree;
        let rules = limits.rules.entry((charged, Arc::clone(user)));
        Some(Arc::clone(rules.or_insert_with(|| Arc::new(Rules::new(tree, charged, user)))))
    }

    /// The earliest start of a job, and the start now if there is one that the limits let it have; the limit that stops the
    /// job wherever it could start now.
    pub(super) fn find_within_limits(
        &mut self,
        candidate: &Queued,
        prospects: &Prospects,
        is_known: bool,
    ) -> Result<Found, Box<Stop>> {
        loop {
            let mut found = self.search(candidate, prospects, is_known);
            let starts = found.take_if(|(_, hit)| hit.starts && candidate.waits == 0);
            let starts = starts.map(|(index, hit)| (index, self.seated(candidate, &prospects[index], hit)));
            if let Some((index, (hit, Some(parts)))) = &starts {
                let prospect = &prospects[*index];
                let seat = (prospect, &**parts, hit.limit);
                if self.stops_on(candidate, std::iter::once(seat), &[]) {
                    let is_last = self.bar_last(prospects, prospect.partition);
                    match self.take_stop() {
                        Some(stop) if is_last => return Err(Box::new(stop)),
                        _ => continue,
                    }
                }
            }
            return Ok(Found { later: found, now: starts });
        }
    }
}

/// Where a job fits, and what it takes of each node; nothing if that cannot be given after all.
type SeatedHit = (Hit, Option<Vec<Part>>);

/// Where and when a job fits.
pub(super) struct Found {
    /// The earliest start, if that is later.
    pub(super) later: Option<(usize, Hit)>,
    /// The start now, with what the job takes of each node.
    pub(super) now: Option<(usize, SeatedHit)>,
}
