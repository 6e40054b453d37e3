//! Preemption as part of a pass: jobs that nodes are kept for, and jobs that do not fit and may make others leave.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::cluster::Cluster;
use crate::id::{Attempt, JobId};
use crate::model::config::Backfill;
use crate::model::job::Job;
use crate::model::nomination::Nomination;
use crate::model::phase::Phase;
use crate::model::reason::Reason;
use crate::sched::explain;
use crate::sched::plan::{Preemption, Start, Waiting};
use crate::sched::preempt::rule::Rank;
use crate::sched::preempt::{Claimant, Field, NoWay, Way, claims, needs};
use crate::sched::prospect::Prospect;
use crate::sched::queue::forecast::{ENDLESS, Forecast};
use crate::sched::queue::rows::Counts;
use crate::sched::queue::{Candidate, Queued};
use crate::sched::scene::Scene;
use crate::sched::state::{Hit, Part};
use crate::sched::timeline::licenses::wanted;
use crate::sched::timeline::stairs::{Family, Size};
use crate::text::time::Time;

use super::space::Space;
use super::walk::Walk;

/// Searches for victims in one deep pass: a count, so that many waiting jobs of a high rank do not hold it up. What was
/// in vain for one job is not tried again for one of the same kind that is no smaller; those for whom room was made
/// need no search in the next pass.
pub(in crate::sched) const SEARCHES: u32 = 16;
/// The same in a quick pass, which others wait for.
pub(in crate::sched) const QUICK_SEARCHES: u32 = 4;

/// What a pass knows of preemption.
#[derive(Debug, Default)]
pub(in crate::sched) struct Ways {
    field: Field,
    /// Jobs that nodes are kept for.
    nominated: BTreeMap<JobId, Turn>,
    /// Searches that are left.
    searches: u32,
    /// Whether the next pass may decide otherwise although nothing happens: there were no searches left, or a job waits for
    /// those who are leaving already.
    pub(in crate::sched) restless: bool,
    /// Rank, kind, number of the need and size of jobs for which nobody can make room.
    hopeless: Vec<(Rank, Family, usize, Size)>,
}

/// A job that nodes are kept for.
#[derive(Debug)]
struct Turn {
    nomination: Arc<Nomination>,
    /// Whether all that is kept for it is free.
    ready: bool,
    /// When the last of its victims has ended, and which that is.
    waits_for: Option<(Time, JobId)>,
}

impl Ways {
    /// Looks at who may leave, and books what is kept for jobs that wait.
    pub(in crate::sched) fn new(
        cluster: &Cluster,
        scene: &Scene,
        forecast: &dyn Forecast,
        searches: u32,
        space: &mut impl Space,
    ) -> Self {
        let now = space.now();
        let mut nominated = BTreeMap::new();
        for (job, nomination) in cluster.jobs().nominated() {
            let part = |(node, amount): (_, Vec<i64>)| {
                let taken = amount.into_iter().map(|amount| u64::try_from(amount).unwrap_or(0)).collect();
                Part { node, slots: 1, taken }
            };
            let parts: Vec<Part> = claims(scene, &job.spec, nomination).into_iter().map(part).collect();
            let ready =
                needs(scene, &job.spec, nomination).into_iter().map(part).all(|part| space.is_free(&part));
            let asked = (space.realms().within(nomination.reservation.as_deref()), wanted(&job.spec));
            // Whoever is suspended for it goes on after it, with all that is left of its time.
            let lasts = forecast.run_time(job).max(1) + longest_rest(cluster, nomination, now);
            space.start(job.id, false, &parts, asked, lasts);
            let ends = nomination.victims.iter().filter_map(|victim| gone(cluster, *victim));
            let turn = Turn { nomination: Arc::clone(nomination), ready, waits_for: ends.max() };
            nominated.insert(job.id, turn);
        }
        let field = Field::new(cluster, scene, now);
        Self { field, nominated, searches, restless: false, hopeless: Vec::new() }
    }
}

/// The most that is left of the time of a job that is suspended, or will be, on the nodes that are kept for another.
fn longest_rest(cluster: &Cluster, nomination: &Nomination, now: Time) -> u64 {
    let jobs = nomination.nodes().filter_map(|node| cluster.node(node)).flat_map(|node| &node.jobs);
    let comes_back = |job: &&Job| match &job.phase {
        Phase::Running { preempted, .. } => preempted.is_some_and(|told| told.then.is_none()),
        Phase::Suspended(suspended) => suspended.wanted.is_some(),
        Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => false,
    };
    let rests = jobs.filter_map(|id| cluster.job(*id)).filter(comes_back);
    rests.map(|job| job.remaining(now).seconds().unwrap_or(ENDLESS)).max().unwrap_or(0)
}

/// When an attempt that was told to make way has ended at the latest, as far as that is known, and whose it is.
fn gone(cluster: &Cluster, victim: Attempt) -> Option<(Time, JobId)> {
    let job = cluster.job(victim.job).filter(|job| job.attempt() == victim)?;
    let end = match &job.phase {
        Phase::Running { preempted, .. } => (*preempted)?.end_at,
        Phase::Completing(completing) => completing.ended,
        // What it was to give up, it has given up.
        Phase::Pending(_) | Phase::Suspended(_) | Phase::Ended(_) => return None,
    };
    Some((end, job.id))
}

impl Ways {
    /// Whether nodes are kept for jobs.
    pub(in crate::sched) fn has_nominated(&self) -> bool {
        !self.nominated.is_empty()
    }

    /// The lowest level that may be asked to leave, and what there would be at most if everybody left who may be.
    pub(in crate::sched) fn reach(&self, scene: &Scene) -> Option<(u32, Counts)> {
        self.field.reach(scene)
    }
}

impl<S: Space> Walk<S> {
    /// Starts a job on the nodes that are kept for it, or says why it waits for them; false if none are.
    pub(super) fn starts_as_nominated(&mut self, candidate: &Queued) -> bool {
        let job = candidate.attempt.job;
        let Some(turn) = self.ways.nominated.remove(&job) else { return false };
        if let Err(by) = self.ways.field.confirm(job) {
            // What else there is for it is found out when the controller has agreed.
            let detail = format!("job {by} takes over the nodes that were kept for it");
            self.wait(candidate, Reason::Priority, detail, None);
            return true;
        }
        let Turn { nomination, ready, waits_for } = turn;
        if ready {
            self.plan.starts.push(Start {
                attempt: candidate.attempt,
                task: candidate.task(candidate.dealt),
                spec: Arc::clone(&candidate.spec),
                ground: self.scene.ground,
                partition: Arc::clone(&nomination.partition),
                reservation: nomination.reservation.clone(),
                time_limit: None,
                parts: nomination.parts.to_vec(),
                exclusive: nomination.exclusive,
                why: nomination.why.clone(),
                rest: Vec::new(),
            });
            return true;
        }
        let waiting = Waiting {
            priority: candidate.priority,
            reason: Reason::Preempting,
            detail: nomination.detail.to_string(),
            start: waits_for.map(|(end, _)| end),
            nodes: nomination.nodes().collect(),
            place: nomination.place.clone(),
            after: waits_for.map(|(_, job)| job),
            ..Waiting::of(job)
        };
        self.plan.waiting.extend(self.deep.then_some(waiting));
        self.close_queue_behind(candidate);
        true
    }

    /// Finds out who would have to leave for a job that does not fit, and proposes it; false if nobody can.
    pub(super) fn clears_the_way(&mut self, candidate: &Queued, prospects: &[Prospect]) -> bool {
        let scene = Arc::clone(&self.scene);
        let rank = |prospect: &Prospect| {
            let partition = &scene.partitions[prospect.partition].partition;
            Rank::of(&scene.policy, &candidate.spec, &partition.config)
        };
        let may = prospects.iter().any(|prospect| self.ways.field.has_victims_for(rank(prospect)));
        let strict = self.backfill == Backfill::None
            && prospects.iter().any(|prospect| self.head_of(prospect).is_some());
        if !may || strict {
            return false;
        }
        // Licenses are taken from nobody.
        let has_licenses = |prospect: &&Prospect| {
            let asked = (prospect.realm, wanted(&candidate.spec));
            let lasts = self.over_at(candidate, prospect).since(self.now);
            self.space.licenses().lacking(&[asked], self.now, lasts).is_none()
        };
        let licensed: Vec<&Prospect> = prospects.iter().filter(has_licenses).collect();
        if licensed.is_empty() {
            return false;
        }
        self.ways.field.catch_up(&self.scene, &self.plan.starts, &self.made);
        let mut best: Option<(&Prospect, usize, Way)> = None;
        for prospect in licensed {
            for lens in 0..prospect.lenses.len() {
                match self.search_victims(candidate, prospect, lens, rank(prospect)) {
                    Ok(way) if best.as_ref().is_none_or(|(_, _, best)| way.price < best.price) => {
                        best = Some((prospect, lens, way));
                    }
                    Ok(_) | Err(NoWay::Hopeless) => {}
                    Err(NoWay::Needless) => return false,
                }
            }
        }
        let Some((prospect, lens, way)) = best else { return false };
        self.propose_way(candidate, prospects, prospect, lens, way);
        true
    }

    /// When a job for which others make way is over at the latest.
    fn over_at(&self, candidate: &Candidate, prospect: &Prospect) -> Time {
        let lasts = self.space.realms().lasts(prospect.realm, self.now, candidate.run_time);
        self.ways.field.last_gone().max(self.now) + self.scene.policy.jobs.kill_wait.0 + lasts
    }

    fn search_victims(
        &mut self,
        candidate: &Queued,
        prospect: &Prospect,
        lens: usize,
        rank: Rank,
    ) -> Result<Way, NoWay> {
        let (lens, stage) = (&prospect.lenses[lens], &prospect.stages[0]);
        let request = prospect.request();
        // How long a job lasts matters where nodes are reserved for some time.
        let run_time = if self.space.realms().is_single() { 0 } else { candidate.run_time };
        let size = Size { nodes: request.min_nodes(), slots: request.min_slots(), run_time };
        let family = Family::of(lens.outline, stage.ask()).filter(|_| request.sizes.is_none());
        let hopeless = family.as_ref().is_some_and(|family| {
            let mut known = self.ways.hopeless.iter();
            known.any(|(of, kind, need, least)| {
                of.covers(rank, &self.scene.policy)
                    && kind == family
                    && *need == prospect.need
                    && least.within(&size)
            })
        });
        if hopeless {
            return Err(NoWay::Hopeless);
        }
        let Some(left) = self.ways.searches.checked_sub(1) else {
            self.ways.restless = true;
            self.plan.report.gave_up = true;
            return Err(NoWay::Hopeless);
        };
        self.ways.searches = left;
        let shut = self.space.shut(prospect.realm, self.over_at(candidate, prospect));
        let claimant = Claimant { rank, request, lens, asks: &stage.asks, shut: shut.as_ref() };
        let found = self.ways.field.way(&self.scene, &claimant);
        match found {
            Err(NoWay::Hopeless) => {
                self.ways.hopeless.extend(family.map(|family| (rank, family, prospect.need, size)))
            }
            Err(NoWay::Needless) => self.ways.restless = true,
            Ok(_) => {}
        }
        found
    }

    fn propose_way(
        &mut self,
        candidate: &Queued,
        prospects: &[Prospect],
        prospect: &Prospect,
        lens: usize,
        way: Way,
    ) {
        let detail = self.missing(candidate, prospects, None);
        self.ways.field.follow(candidate.attempt.job, &way);
        let stage = &prospect.stages[0];
        let lasts = self.space.realms().lasts(prospect.realm, self.now, candidate.run_time);
        let hit = Hit {
            realm: prospect.realm,
            lasts,
            limit: None,
            start: self.now,
            starts: true,
            placement: way.placement,
            lost: Vec::new(),
            relaxed: stage.relaxed.clone(),
            whole_leaves: stage.ask().whole_leaves,
            lens: Arc::clone(&prospect.lenses[lens]),
        };
        let mut why = explain::why(&hit, false, candidate.priority);
        why.exact &= way.exact;
        let task = candidate.task(candidate.dealt);
        let reservation = self.space.realms().reservation(prospect.realm);
        let start = prospect.start(&self.scene, (candidate, task), reservation, &way.parts, why);
        self.throttle.count(candidate);
        let asked = (prospect.realm, wanted(&candidate.spec));
        self.space.start(candidate.attempt.job, task.is_some(), &way.parts, asked, lasts);
        let place = explain::place(&hit);
        let waiting = Waiting {
            priority: candidate.priority,
            reason: Reason::Preempting,
            detail: detail.clone(),
            start: Some(way.gone.max(self.now)),
            nodes: start.parts.iter().map(|part| part.node).collect(),
            place: place.clone(),
            after: way.last,
            ..Waiting::of(candidate.attempt.job)
        };
        self.plan.waiting.extend((self.deep && !candidate.told).then_some(waiting));
        let (victims, displaces) = (way.victims, way.displaces);
        self.plan.preemptions.push(Preemption { start, detail, place, victims, displaces });
        self.close_queue_behind(candidate);
    }

    /// Without backfill nobody starts before a job that waits.
    fn close_queue_behind(&mut self, candidate: &Queued) {
        if self.backfill == Backfill::None {
            for seat in self.seats(candidate).collect::<Vec<_>>() {
                self.sit(candidate.attempt.job, seat);
            }
        }
    }
}
