//! Signals to jobs or to one of their steps.

use super::super::{Ctx, Effect, Reject, Reply};
use super::target::{Sorted, sort};
use crate::cluster::Cluster;
use crate::id::{JobId, StepId};
use crate::model::caller::Caller;
use crate::model::phase::Phase;
use crate::text::jobid::{JobPart, JobRef};
use crate::text::signal::Signal;

/// A signal and its receivers.
#[derive(Clone, Copy)]
pub(super) struct Wish {
    /// The step that gets the signal; `None` for the whole job.
    pub(super) step: Option<StepId>,
    pub(super) signal: Signal,
    pub(super) batch: bool,
    pub(super) steps: bool,
}

/// Decides on a signal. Signals are not journalled: one that is lost with a connection is not repeated.
pub(super) fn check(
    cluster: &Cluster,
    caller: &Caller,
    jobs: &[JobRef<JobId>],
    wish: Wish,
) -> Sorted<Vec<Effect>> {
    let mut sorted = sort(cluster, caller, &all(cluster, jobs, wish), |job| {
        let alloc = match &job.phase {
            Phase::Running { alloc, .. } => alloc,
            // A suspended job must stay stopped, so it only gets SIGKILL.
            Phase::Suspended(suspended) if wish.signal == Signal::KILL => &suspended.alloc,
            Phase::Suspended(_) => return Err(Reject::Suspended),
            // Steps of a job that is ending have been signalled already and get KillWait.
            Phase::Completing(_) if wish.step.is_some_and(|step| step != StepId::BATCH) => {
                return Err(Reject::AlreadyDone);
            }
            Phase::Completing(completing) => &completing.alloc,
            Phase::Pending(_) => return Err(Reject::Pending),
            Phase::Ended(_) => return Err(Reject::AlreadyDone),
        };
        if let Some(step) = wish.step
            && step != StepId::BATCH
            && !job.steps.iter().any(|running| running.id == step)
        {
            return Err(Reject::InvalidStep { job: job.id, step });
        }
        let Wish { step, signal, batch, steps } = wish;
        let attempt = job.attempt();
        let send = |part: &crate::model::alloc::NodeAlloc| Effect::Signal {
            node: part.node,
            attempt,
            step,
            signal,
            batch,
            steps,
        };
        Ok(alloc.nodes.iter().map(send).collect())
    });
    let follows = |id: JobId| cluster.job(id).is_some_and(|job| job.spec.is_follower());
    sorted.problems.retain(|(named, _)| jobs.contains(named) || !follows(named.job));
    sorted
}

/// The jobs to signal. Without a step, the number of a het job stands for all its components, that of a later
/// component for itself.
fn all(cluster: &Cluster, jobs: &[JobRef<JobId>], wish: Wish) -> Vec<JobRef<JobId>> {
    let mut all = Vec::with_capacity(jobs.len());
    for named in jobs {
        let job = cluster.job(named.job).filter(|_| named.part == JobPart::Whole && wish.step.is_none());
        if job.is_some_and(|job| job.spec.het.is_some() && !job.spec.is_follower()) {
            all.extend(cluster.jobs().components(named.job).into_iter().map(JobRef::whole));
        } else if !all.contains(named) {
            all.push(named.clone());
        }
    }
    all
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Sorted<Vec<Effect>>) -> Reply {
    for effect in decision.doable.into_iter().flat_map(|(_, effects)| effects) {
        ctx.effect(effect);
    }
    Sorted::<Vec<Effect>>::reply(decision.problems)
}
