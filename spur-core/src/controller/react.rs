//! Effects that follow from an event.

use super::effect::{Effect, Program};
use super::mail;
use crate::cluster::{Cluster, Event};
use crate::id::JobId;
use crate::model::job::Job;
use crate::model::node::{Power, Reboot};
use crate::model::phase::{Phase, Suspended};
use crate::text::signal::Signal;

/// Adds the effects of `event`, which has been applied, for when it is durable.
pub(super) fn react(cluster: &Cluster, event: &Event, effects: &mut Vec<Effect>) {
    mail::tell(cluster, event, effects);
    match event {
        Event::JobStarted { job, configuring, .. } => {
            if configuring.prolog {
                program(cluster, *job, Program::Prolog, effects);
            }
            effects.extend(launch(cluster, *job));
        }
        Event::PrologEnded { job } => {
            effects.extend(launch(cluster, *job));
            effects.push(Effect::StepsChanged { job: *job });
        }
        Event::JobPreempted { job, end_at, then: Some(_), .. } if *end_at > cluster.at() => {
            ask_to_leave(cluster, *job, effects);
        }
        Event::JobEnding { job, kill_at, epilog, .. } => {
            if *epilog {
                program(cluster, *job, Program::Epilog, effects);
            }
            terminate(cluster, *job, kill_at.is_none(), effects);
            effects.push(Effect::StepsChanged { job: *job });
        }
        Event::JobSuspended { job, .. } => suspend(cluster, *job, true, effects),
        Event::JobResumed { job } => suspend(cluster, *job, false, effects),
        Event::JobKilled { job } => terminate(cluster, *job, true, effects),
        Event::JobEnded { job, .. } => forget(cluster, *job, effects),
        Event::JobWarned { job } => warn(cluster, *job, effects),
        Event::StepNodeEnded { job, .. } => effects.push(Effect::StepsChanged { job: *job }),
        Event::ForeignDropped { node } => {
            let stale = cluster.node(*node).map_or(&[][..], |node| &node.stale);
            let kill = |attempt| Effect::Terminate { node: *node, attempt, kill: true };
            effects.extend(stale.iter().copied().map(kill));
        }
        Event::NodeRegistered { node, stale, .. } => {
            let kill = |attempt| Effect::Terminate { node: *node, attempt, kill: true };
            effects.extend(stale.iter().copied().map(kill));
        }
        Event::JobNodeLost { job, node, lingers: true } => {
            let attempt = cluster.job(*job).map(Job::attempt);
            effects.extend(attempt.map(|attempt| Effect::Terminate { node: *node, attempt, kill: true }));
        }
        Event::NodeCleaned { node, attempt } => {
            effects.push(Effect::Forget { node: *node, attempt: *attempt });
        }
        Event::PowerChanged { node, power: Some(Power::Reboot(Reboot { issued: Some(_), .. })), .. } => {
            effects.push(Effect::Reboot { node: *node });
        }
        Event::PowerChanged { node, jobs, .. } => {
            for job in jobs {
                // The node itself gets the order to launch when it registers.
                let elsewhere =
                    |order: &Effect| !matches!(order, Effect::Launch { node: on, .. } if on == node);
                effects.extend(launch(cluster, *job).filter(elsewhere));
                effects.push(Effect::StepsChanged { job: *job });
            }
        }
        // Other events have no effects. `ending` still knows the nodes of a requeued attempt and makes them
        // forget it. A job that is preempted without a grace time ends at once, and one that is only
        // suspended is not warned. A lost node gets the orders about its jobs when it registers again.
        _ => {}
    }
}

/// Adds the run of the controller's prolog or epilog for a job.
fn program(cluster: &Cluster, job: JobId, program: Program, effects: &mut Vec<Effect>) {
    let attempt = cluster.job(job).map(Job::attempt);
    effects.extend(attempt.map(|attempt| Effect::Program { attempt, program }));
}

/// The order to launch a job's batch script; `None` if the job has no script, does not run, or still waits
/// for something. A het job waits for all its components, and the first one has the script.
pub(super) fn launch(cluster: &Cluster, job: JobId) -> Option<Effect> {
    let components = cluster.jobs().components(job);
    let waits = |id: &JobId| cluster.job(*id).is_some_and(|job| !job.configuring.is_done());
    if components.iter().any(waits) {
        return None;
    }
    let job = cluster.job(*components.first()?)?;
    let (Phase::Running { alloc, .. } | Phase::Suspended(Suspended { alloc, .. })) = &job.phase else {
        return None;
    };
    job.spec.batch.as_ref()?;
    alloc.batch_node().map(|node| Effect::Launch { node, attempt: job.attempt() })
}

/// Adds orders to stop or continue all processes of a job.
fn suspend(cluster: &Cluster, job: JobId, stop: bool, effects: &mut Vec<Effect>) {
    let Some(job) = cluster.job(job) else { return };
    let attempt = job.attempt();
    let nodes = job.phase.alloc().into_iter().flat_map(|alloc| &alloc.nodes);
    effects.extend(nodes.map(|part| Effect::Suspend { node: part.node, attempt, stop }));
}

fn terminate(cluster: &Cluster, job: JobId, kill: bool, effects: &mut Vec<Effect>) {
    let Some(job) = cluster.job(job) else { return };
    if let Phase::Completing(completing) = &job.phase {
        let attempt = job.attempt();
        effects.extend(completing.waiting.iter().map(|node| Effect::Terminate {
            node: *node,
            attempt,
            kill,
        }));
    }
}

/// Adds the signal of `--signal`: with `B:` to the batch script only, otherwise to the steps only.
fn warn(cluster: &Cluster, job: JobId, effects: &mut Vec<Effect>) {
    let Some(job) = cluster.job(job) else { return };
    let wish = job.spec.extra.as_ref().and_then(|extra| extra.signal.as_ref());
    let (Some(wish), Some(alloc)) = (wish, job.phase.alloc()) else { return };
    effects.extend(alloc.nodes.iter().map(|part| Effect::Signal {
        node: part.node,
        attempt: job.attempt(),
        step: None,
        signal: wish.signal,
        batch: wish.batch_only,
        steps: !wish.batch_only,
    }));
}

/// Adds the signals at the beginning of a grace time: SIGCONT, which wakes stopped processes, and SIGTERM.
/// The batch script gets them only without running steps; with steps it sees these end and has the grace time
/// to react.
fn ask_to_leave(cluster: &Cluster, job: JobId, effects: &mut Vec<Effect>) {
    let Some(job) = cluster.job(job) else { return };
    let Some(alloc) = job.phase.alloc() else { return };
    let attempt = job.attempt();
    effects.extend(alloc.nodes.iter().flat_map(|part| {
        [Signal::CONT, Signal::TERM].map(|signal| Effect::Signal {
            node: part.node,
            attempt,
            step: None,
            signal,
            batch: job.steps.is_empty(),
            steps: true,
        })
    }));
}

fn forget(cluster: &Cluster, job: JobId, effects: &mut Vec<Effect>) {
    let Some(job) = cluster.job(job) else { return };
    let attempt = job.attempt();
    let nodes = match &job.phase {
        Phase::Ended(ended) => ended.alloc.as_ref(),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) | Phase::Completing(_) => None,
    };
    for part in nodes.iter().flat_map(|alloc| alloc.nodes.iter()) {
        effects.push(Effect::Forget { node: part.node, attempt });
    }
}
