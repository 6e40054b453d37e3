//! Takes out of a job's dependency what has come true, and notices what no longer can.

use super::Jobs;
use crate::id::JobId;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{EndState, Phase};
use crate::model::waits::{Wait, WaitKind, Waits};
use crate::text::time::Time;

/// What one condition has come to.
enum Verdict {
    /// It holds from this time on.
    Met(Time),
    /// Not yet.
    Open,
    /// It never will.
    Never,
}

/// The dependency of a new or changed request, as far as it is still open.
pub(super) fn of(id: JobId, spec: &JobSpec, jobs: &Jobs) -> Option<Box<Waits>> {
    let dependency = spec.dependency.as_deref()?;
    let before = |job: &&Job| {
        job.id < id
            && job.spec.name == spec.name
            && job.spec.owner.uid == spec.owner.uid
            && !matches!(job.phase, Phase::Ended(_))
    };
    let earlier: Vec<JobId> = jobs.iter().filter(before).map(|job| job.id).collect();
    Waits::of(dependency, &earlier).map(Box::new)
}

/// Looks at the jobs that `job` waits for, and updates what it still waits for.
pub(super) fn settle(job: &mut Job, jobs: &Jobs) {
    let Some(waits) = job.waits_for.as_deref_mut() else { return };
    let any = waits.any;
    let (mut held, mut never, mut from) = (false, 0, None);
    waits.terms.retain(|wait| match verdict(*wait, jobs) {
        Verdict::Met(at) => {
            held = true;
            from = from.max(Some(at));
            false
        }
        Verdict::Open => true,
        Verdict::Never => {
            never += 1;
            !any
        }
    });
    let open = waits.terms.len();
    let satisfied = if any { held } else { open == 0 };
    job.never = !satisfied && if any { open == 0 } else { never > 0 };
    if satisfied {
        job.waits_for = None;
        if let (Phase::Pending(pending), Some(from)) =
            (&mut job.phase, from.filter(|from| *from > Time::ZERO))
        {
            pending.not_before = pending.not_before.max(Some(from));
        }
    }
}

fn verdict(wait: Wait, jobs: &Jobs) -> Verdict {
    // A job that has left memory ended long ago; how is no longer known, and Slurm then takes it as done.
    let Some(other) = jobs.get(wait.job) else { return Verdict::Met(Time::ZERO) };
    let ended = match &other.phase {
        Phase::Ended(ended) => Some(ended),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Completing(_) => None,
    };
    let completed = ended.map(|ended| ended.outcome.state == EndState::Completed);
    match (wait.kind, completed) {
        (WaitKind::Started, _) => match other.phase.started().or(ended.map(|ended| ended.ended)) {
            Some(started) if wait.delay == 0 => Verdict::Met(started.min(Time::ZERO)),
            Some(started) => Verdict::Met(started + wait.delay),
            None => Verdict::Open,
        },
        (WaitKind::Ended | WaitKind::Singleton, Some(_))
        | (WaitKind::Completed, Some(true))
        | (WaitKind::Failed, Some(false)) => Verdict::Met(Time::ZERO),
        (WaitKind::Completed, Some(false)) | (WaitKind::Failed, Some(true)) => Verdict::Never,
        (_, None) => Verdict::Open,
    }
}
