//! Preemption as the planner proposes, if its premises still hold: reserves the nodes for the job and
//! notifies the victims.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::super::{Ctx, Reject, Reply, ending};
use super::start;
use super::target::Target;
use crate::cluster::{Cluster, Event};
use crate::id::{Attempt, JobId, NodeId};
use crate::model::alloc::StartPart;
use crate::model::job::Job;
use crate::model::nomination::Nomination;
use crate::model::phase::{Phase, Then};
use crate::sched::plan::{Preemption, Start};
use crate::sched::precedence::{self, Rank};
use crate::text::time::Time;

pub(super) struct Decision {
    /// The job, or the first component of a het job.
    job: Target,
    nominations: Vec<(JobId, Arc<Nomination>)>,
    victims: Vec<Told>,
    /// Jobs that lose their nominations to this one.
    displaced: Vec<JobId>,
}

/// A job that is preempted.
struct Told {
    job: JobId,
    /// The job ends or is requeued; `None` if it is suspended.
    then: Option<Then>,
    end_at: Time,
}

/// Checks a proposed preemption. The job must be allowed to preempt every victim. Once they and all jobs
/// already leaving are gone, the whole job must fit beside the jobs that stay and all other nominations. For
/// a het job this holds for all components together.
pub(super) fn check(cluster: &Cluster, now: Time, proposed: &Preemption) -> Result<Decision, Reject> {
    let Preemption { start, detail, places, victims, displaces } = proposed;
    let id = start.attempt.job;
    let stale = |what: &str| Err(Reject::Stale(format!("job {id}: {what}")));
    let policy = cluster.policy();
    let mut ranks = Vec::with_capacity(1 + start.rest.len());
    for start in start.all() {
        let (job, partition) = start::proposed(cluster, now, start)?;
        if job.nomination().is_some() {
            return stale("nodes are kept for it already");
        }
        ranks.push(Rank::of(policy, &job.spec, &partition.config));
    }
    if !start.all().map(|start| start.attempt.job).eq(cluster.jobs().components(id)) {
        return stale("a component is missing");
    }
    within_limits(cluster, now, proposed)?;
    let covers = |other: &JobId| {
        let Some((other, kept)) = cluster.job(*other).and_then(|job| Some((job, job.nomination()?))) else {
            return true;
        };
        let theirs = cluster.partition(&kept.partition);
        let theirs = theirs.map(|theirs| Rank::of(policy, &other.spec, &theirs.config));
        theirs.is_some_and(|theirs| ranks.iter().all(|rank| rank.covers(theirs, policy)))
    };
    if !displaces.iter().all(covers) {
        return stale("what is kept for a job of a higher rank is not taken over");
    }
    let array = |id: JobId| cluster.job(id).and_then(|job| job.array.as_ref()).map(|part| part.id);
    let is_sibling = |other: JobId| array(id).is_some() && array(id) == array(other);
    if displaces.iter().copied().chain(victims.iter().map(|victim| victim.job)).any(is_sibling) {
        return stale("a task of the same array does not make way");
    }
    let Some(told) = told(cluster, now, victims, &ranks) else {
        return stale("a job that was to make way cannot be asked to");
    };
    let leaves = |id: &JobId| Leaving::of(cluster, *id, &told);
    let mut stays: BTreeMap<NodeId, Option<Stays>> = BTreeMap::new();
    for (part, exclusive) in parts(start) {
        let stays =
            stays.entry(part.node).or_insert_with(|| Stays::on(cluster, part.node, &leaves, displaces));
        let fits = stays.as_mut().is_some_and(|stays| stays.makes_room_for(part, exclusive));
        if !fits {
            return stale("it would not fit if they made way");
        }
    }
    let displaced = displaces.iter().copied();
    let displaced = displaced.filter(|id| cluster.job(*id).is_some_and(|job| job.nomination().is_some()));
    let mut waits_for: Vec<Attempt> =
        told.iter().filter_map(|victim| cluster.job(victim.job)).map(Job::attempt).collect();
    for id in parts(start).filter_map(|(part, _)| cluster.node(part.node)).flat_map(|node| &node.jobs) {
        waits_for.extend(cluster.job(*id).filter(|job| leaves(&job.id) != Leaving::Stays).map(Job::attempt));
    }
    waits_for.sort_unstable();
    waits_for.dedup();
    let nomination = |start: &Start, place: Option<Arc<str>>| Nomination {
        partition: Arc::clone(&start.partition),
        reservation: start.reservation.clone(),
        parts: start.parts.clone().into_boxed_slice(),
        exclusive: start.exclusive,
        why: start.why.clone(),
        detail: detail.as_str().into(),
        place,
        victims: waits_for.clone().into_boxed_slice(),
    };
    let places = places.iter().cloned().chain(std::iter::repeat(None));
    let nominations = start.all().zip(places);
    let nominations =
        nominations.map(|(start, place)| (start.attempt.job, Arc::new(nomination(start, place)))).collect();
    let job = Target::task(id, start.task);
    Ok(Decision { job, nominations, victims: told, displaced: displaced.collect() })
}

/// True if a running job would have room for these parts of nodes once its attempt has ended, together with
/// the attempts that end already. Everything that is kept for others stays kept.
pub(super) fn has_room_elsewhere(cluster: &Cluster, job: JobId, start: &Start) -> bool {
    let told = [Told { job, then: Some(Then::End), end_at: Time::ZERO }];
    let leaves = |id: &JobId| Leaving::of(cluster, *id, &told);
    start.parts.iter().all(|part| {
        let stays = Stays::on(cluster, part.node, &leaves, &[]);
        stays.is_some_and(|mut stays| stays.makes_room_for(part, start.exclusive))
    })
}

/// Checks that licences and the limits of associations and QOS let the job start beside all running jobs.
/// Otherwise victims would leave for a job that these then stop.
fn within_limits(cluster: &Cluster, now: Time, proposed: &Preemption) -> Result<(), Reject> {
    start::has_licenses(cluster, now, &proposed.start)?;
    let amounts = |start: &Start| {
        cluster.amounts_proposed(&start.spec, &start.partition, &start.parts, start.exclusive)
    };
    let starts = proposed.start.all().map(|start| (start, amounts(start))).collect();
    start::within_limits(cluster, now, starts, &proposed.displaces)
}

/// All components of the victims with the manner of their leaving. `None` if one of them has ended, cannot
/// be preempted at present, or may not be preempted by a job of these ranks.
fn told(cluster: &Cluster, now: Time, victims: &[Attempt], ranks: &[Rank]) -> Option<Vec<Told>> {
    let mut told = Vec::with_capacity(victims.len());
    for victim in victims {
        let running = cluster.job(victim.job).filter(|job| job.attempt() == *victim)?;
        let manner = precedence::manner(cluster, running, now)?;
        if !ranks.iter().all(|rank| rank.preempts(manner.rank, cluster.policy())) {
            return None;
        }
        let (then, end_at) = (manner.then, now + manner.grace.0);
        let all = cluster.jobs().components(victim.job).into_iter();
        told.extend(all.map(|job| Told { job, then, end_at }));
    }
    Some(told)
}

/// The parts of all components, each with true if its component takes the whole node.
fn parts(start: &Start) -> impl Iterator<Item = (&StartPart, bool)> {
    start.all().flat_map(|start| start.parts.iter().map(|part| (part, start.exclusive)))
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { job, nominations, victims, displaced } = decision;
    // Nodes are reserved for one task of an array, not for all tasks in the record.
    let by = job.single_out(ctx);
    for job in displaced {
        ctx.emit(Event::NominationDropped { job });
    }
    // Victims are preempted first, so that reserved resources fit beside the rest after every event.
    for Told { job, then, end_at } in &victims {
        ctx.emit(Event::JobPreempted { job: *job, by, then: *then, end_at: *end_at });
        let phase = ctx.cluster().job(*job).map(|job| &job.phase);
        if then.is_none() && matches!(phase, Some(Phase::Suspended(_))) {
            ctx.emit(Event::JobSuspended { job: *job, wanted: true });
        }
    }
    for (number, (job, nomination)) in nominations.into_iter().enumerate() {
        let job = if number == 0 { by } else { job };
        ctx.emit(Event::JobNominated { job, nomination });
    }
    for victim in victims {
        if victim.end_at <= ctx.now() {
            ending::preempt(ctx, victim.job);
        }
    }
    Reply::Done
}

/// The resources that a job gives up on the nodes of another one.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    /// The job stays as it is.
    Stays,
    /// The job is suspended: it keeps memory and devices.
    Stops,
    Goes,
}

impl Leaving {
    /// The manner in which a job leaves after `told` and all earlier victims were preempted.
    fn of(cluster: &Cluster, id: JobId, told: &[Told]) -> Self {
        let way = |then: Option<Then>| if then.is_some() { Self::Goes } else { Self::Stops };
        if let Some(victim) = told.iter().find(|victim| victim.job == id) {
            return way(victim.then);
        }
        let Some(job) = cluster.job(id) else { return Self::Goes };
        match &job.phase {
            Phase::Running { .. } | Phase::Suspended(_) => {
                job.phase.preempted().map_or(Self::Stays, |preempted| way(preempted.then))
            }
            Phase::Pending(_) | Phase::Completing(_) | Phase::Ended(_) => Self::Goes,
        }
    }
}

/// Resources of a node that are not free and will not become free, with those that the node has.
struct Stays {
    nobody: bool,
    cpus: u32,
    memory_mb: u64,
    gres: BTreeMap<u16, u32>,
    have: Have,
}

/// Resources of a node in all.
struct Have {
    cpus: u32,
    memory_mb: u64,
    gres: Vec<u32>,
}

impl Stays {
    /// The resources that stay in use on an available node when some jobs leave and some nominations are
    /// dropped; `None` if the node is not available.
    fn on(
        cluster: &Cluster,
        node: NodeId,
        leaves: &dyn Fn(&JobId) -> Leaving,
        displaced: &[JobId],
    ) -> Option<Self> {
        let known = cluster.node(node).filter(|node| node.available())?;
        let kept = cluster.kept(node, displaced);
        let shape = &known.shape;
        let have = Have {
            cpus: shape.cpus,
            memory_mb: shape.memory_mb,
            gres: shape.gres.iter().map(|gres| gres.count).collect(),
        };
        let mut stays = Self {
            nobody: !kept.any,
            cpus: if kept.exclusive { shape.cpus } else { kept.cpus },
            memory_mb: kept.memory_mb,
            gres: kept.gres,
            have,
        };
        let there = known.jobs.iter().map(|id| (*id, leaves(id))).filter(|(_, how)| *how != Leaving::Goes);
        for (job, how) in there.filter_map(|(id, how)| Some((cluster.job(id)?, how))) {
            let Some(part) = job.phase.holds_on(node) else { continue };
            if how == Leaving::Stays {
                let has_all = matches!(&job.phase, Phase::Running { alloc, .. } if alloc.exclusive);
                stays.nobody &= part.cpus.is_empty();
                stays.cpus += if has_all { shape.cpus } else { part.cpus.len() };
            }
            stays.memory_mb += part.memory_mb;
            for held in &part.gres {
                *stays.gres.entry(held.entry).or_default() += held.ids.len();
            }
        }
        Some(stays)
    }

    /// Adds a part if it fits; returns false if it does not.
    fn makes_room_for(&mut self, part: &StartPart, exclusive: bool) -> bool {
        if !self.leaves_room_for(part, exclusive) {
            return false;
        }
        self.nobody = false;
        self.cpus += if exclusive { self.have.cpus } else { part.cpus };
        self.memory_mb += part.memory_mb;
        for (entry, count) in &part.gres {
            *self.gres.entry(*entry).or_default() += count;
        }
        true
    }

    fn leaves_room_for(&self, part: &StartPart, exclusive: bool) -> bool {
        if exclusive && !self.nobody {
            return false;
        }
        let gres = |(entry, count): &(u16, u32)| {
            let have = self.have.gres.get(usize::from(*entry)).copied().unwrap_or(0);
            self.gres.get(entry).copied().unwrap_or(0) + count <= have
        };
        self.cpus + part.cpus <= self.have.cpus
            && (part.memory_mb == 0 || self.memory_mb + part.memory_mb <= self.have.memory_mb)
            && part.gres.iter().all(gres)
    }
}
