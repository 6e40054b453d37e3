//! Registration of a node that has opened its stream: both sides compare their attempts on it.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::command::{Held, Unacknowledged};
use super::super::{Ctx, Effect, Reject, Reply, ending, power, reboot, reported, resume};
use super::{condition, report};
use crate::cluster::{Cluster, Event, Node};
use crate::id::{Attempt, JobId, NodeId};
use crate::model::fabric_report::FabricReport;
use crate::model::job::Job;
use crate::model::node::{Health, NodeGres, Registration, SHARD};
use crate::model::phase::{EndState, Hold, Phase};
use crate::model::reason::Reason;

pub(super) struct Decision {
    node: NodeId,
    registration: Arc<Registration>,
    held: BTreeSet<Attempt>,
    /// Attempts that live on the node and must not.
    stale: Vec<Attempt>,
    /// Attempts of an earlier history that live on the node and that this journal does not know.
    foreign: Vec<Attempt>,
    /// The largest job number that the node has seen, if it exceeds those of the journal.
    last_job: Option<JobId>,
    /// Attempts that are over on the node and unknown here.
    over: Vec<Attempt>,
    /// Jobs whose processes on the node are gone without a record: the node was booted or its spool is new.
    lost: Vec<JobId>,
    /// Ending jobs of which the node has nothing.
    gone: Vec<JobId>,
    /// True if a requested reboot has happened.
    booted: bool,
    /// Resources of which the node has less than configured, as a drain reason.
    lacking: Option<String>,
    /// The effect of the fault that the node reports.
    fault: condition::Decision,
}

/// Decides on a registration. `adopted` is the largest job number that the node has seen, if it comes from an
/// earlier history.
pub(super) fn check(
    cluster: &Cluster,
    name: &str,
    registration: Arc<Registration>,
    held: &[Held],
    adopted: Option<JobId>,
) -> Result<Decision, Reject> {
    // A node that was removed from the configuration is accepted while jobs hold resources of it.
    let node = cluster.node_named(name).filter(|node| node.configured || !node.jobs.is_empty());
    let node = node.ok_or_else(|| Reject::UnknownNode(name.to_owned()))?;
    kept_by_host(cluster, node, &registration)?;
    let registration = of_level(cluster, registration);
    let wanted = |attempt: Attempt| {
        cluster.job(attempt.job).is_some_and(|job| job.attempt() == attempt && holds(job, node.id))
    };
    let unwanted = |live: bool| {
        held.iter()
            .filter(|held| held.live == live && !wanted(held.attempt))
            .map(|held| held.attempt)
            .collect()
    };
    let (live, over): (Vec<Attempt>, _) = (unwanted(true), unwanted(false));
    // Attempts of an earlier history stay foreign until they end or an operator ends them.
    let (foreign, stale) =
        live.into_iter().partition(|attempt| adopted.is_some() || node.foreign.contains(attempt));
    let held: BTreeSet<Attempt> = held.iter().map(|held| held.attempt).collect();
    let fresh = node.registration.as_ref().is_some_and(|before| {
        before.boot_id != registration.boot_id || before.spool_id != registration.spool_id
    });
    let (mut lost, mut gone) = (Vec::new(), Vec::new());
    for job in node.jobs.iter().filter_map(|id| cluster.job(*id)) {
        let absent = !held.contains(&job.attempt()) && !job.configuring.nodes.contains(&node.id);
        match &job.phase {
            Phase::Running { .. } | Phase::Suspended(_)
                if absent && (adopted.is_some() || fresh && !launchable(job, node, &registration)) =>
            {
                lost.push(job.id)
            }
            Phase::Completing(_) if absent => gone.push(job.id),
            Phase::Running { .. }
            | Phase::Suspended(_)
            | Phase::Completing(_)
            | Phase::Pending(_)
            | Phase::Ended(_) => {}
        }
    }
    let booted = reboot::is_over(node, &registration.boot_id);
    let stays_drained = node.drain.is_some() && !(booted && reboot::undrains(node));
    let lacking = if stays_drained { None } else { lacking(node, &registration) };
    let fault = condition::check(node, registration.fault.clone());
    let last_job = adopted.filter(|seen| *seen > cluster.last_job());
    let node = node.id;
    Ok(Decision {
        node,
        registration,
        held,
        stale,
        foreign,
        last_job,
        over,
        lost,
        gone,
        booted,
        lacking,
        fault,
    })
}

/// A registration without the parts that the cluster's level does not contain.
fn of_level(cluster: &Cluster, registration: Arc<Registration>) -> Arc<Registration> {
    match cluster.allows(&*registration) {
        Ok(()) => registration,
        Err(_) => {
            Arc::new(Registration { fabric: FabricReport::default(), ..Registration::clone(&registration) })
        }
    }
}

/// Carries out a registration. Unacknowledged reports are handled in the same step, so that no time limit
/// strikes between the registration and the report of a job's end.
pub(super) fn enact(
    ctx: &mut Ctx<'_>,
    decision: Decision,
    connection: u64,
    reports: Vec<Unacknowledged>,
) -> Reply {
    let Decision { node, registration, held, stale, foreign, .. } = decision;
    let Decision { last_job, over, lost, gone, booted, lacking, fault, .. } = decision;
    let doubtful: Vec<JobId> = foreign.iter().map(|attempt| attempt.job).collect();
    ctx.effect(Effect::Open { node, connection });
    ctx.emit(Event::NodeRegistered { node, registration, stale, foreign, last_job });
    for job in doubtful {
        // The attempt has started without this journal's knowledge: the job must not start a second time.
        let waits = ctx.cluster().job(job).map(|job| &job.phase);
        if matches!(waits, Some(Phase::Pending(pending)) if pending.hold.is_none()) {
            ctx.emit(Event::JobHeld { job, by: Hold::Admin });
        }
    }
    if booted {
        reboot::end(ctx, node);
    }
    power::registered(ctx, node);
    if let Some(reason) = lacking {
        report::drain(ctx, node, reason);
    }
    condition::enact(ctx, node, fault);
    for attempt in over {
        ctx.effect(Effect::Forget { node, attempt });
    }
    for job in lost {
        if ending::goes_on_without(ctx.cluster(), job, node) {
            ending::go_on_without(ctx, job, node, false);
            continue;
        }
        ending::lose_attempt(ctx, job, ending::outcome(EndState::NodeFail, Reason::NodeDown));
        ending::release(ctx, job, node, false);
    }
    for job in gone {
        ending::release(ctx, job, node, false);
    }
    for Unacknowledged { id, attempt, report } in reports {
        let decision = report::check(ctx.cluster(), node, attempt, report);
        report::enact(ctx, node, id, attempt, decision);
    }
    for order in resume::orders(ctx.cluster(), node, &held) {
        ctx.effect(order);
    }
    reported::settle_near(ctx, node);
    Reply::Done
}

/// Refuses a node's name to another host while processes may still run on its current host. A daemon
/// elsewhere cannot know about them, even with a copied spool. An operator who sets the node down declares
/// the host dead.
///
/// # Errors
/// [`Reject::KeptByHost`].
pub fn kept_by_host(cluster: &Cluster, node: &Node, registration: &Registration) -> Result<(), Reject> {
    let Some(before) = node.registration.as_ref().filter(|before| registration.is_elsewhere(before)) else {
        return Ok(());
    };
    let given_up = matches!(node.health, Health::Down { by: Some(_), .. });
    let launched = |job: &&Job| holds(job, node.id) && !job.configuring.nodes.contains(&node.id);
    let mut jobs = node.jobs.iter().filter_map(|job| cluster.job(*job));
    match jobs.find(launched).filter(|_| !given_up) {
        None => Ok(()),
        Some(job) => Err(Reject::KeptByHost {
            node: Arc::clone(node.name()),
            host: format!("{} ({})", before.hostname, before.peer),
            job: job.id,
        }),
    }
}

/// True if the job still holds resources of the node.
fn holds(job: &Job, node: NodeId) -> bool {
    match &job.phase {
        Phase::Running { alloc, .. } => alloc.on(node).is_some(),
        Phase::Suspended(suspended) => suspended.alloc.on(node).is_some(),
        Phase::Completing(completing) => completing.waiting.contains(&node),
        Phase::Pending(_) | Phase::Ended(_) => false,
    }
}

/// True if a job without a record on the node can be launched there after a boot. Its order never arrived,
/// which the unchanged spool proves for the node of the batch script.
fn launchable(job: &Job, node: &Node, registration: &Registration) -> bool {
    let same_spool =
        node.registration.as_ref().is_some_and(|before| before.spool_id == registration.spool_id);
    let batch_here = job.phase.alloc().and_then(|alloc| alloc.batch_node()) == Some(node.id);
    same_spool && batch_here && job.spec.batch.is_some()
}

/// The first resource of which the node has less than configured, as a drain reason. `None` if the node has
/// enough of each, or is not in the configuration. Slurm drains such a node, too.
fn lacking(node: &Node, registration: &Registration) -> Option<String> {
    if !node.configured {
        return None;
    }
    let (want, have) = (&node.config.shape, &registration.shape);
    if have.cpus < want.cpus {
        return Some(format!("Low CPUs: {} found, {} configured", have.cpus, want.cpus));
    }
    if have.memory_mb < want.memory_mb {
        return Some(format!("Low RealMemory: {} MiB found, {} configured", have.memory_mb, want.memory_mb));
    }
    lacking_devices(node, registration)
}

/// A sentence about the first devices of which a node registers fewer than are configured; `None` if it
/// registers enough.
pub(super) fn lacking_devices(node: &Node, registration: &Registration) -> Option<String> {
    let (want, have) = (&node.config.shape, &registration.shape);
    // A resource that the node does not report is only a count, such as licenses of a node, and no device.
    let is_device = |gres: &&NodeGres| {
        *gres.name != *SHARD && (gres.is_gpu() || have.gres.iter().any(|other| other.name == gres.name))
    };
    let short = want.gres.iter().filter(is_device).find(|gres| {
        let found = have.gres.iter().filter(|other| other.name == gres.name && other.kind == gres.kind);
        found.map(|other| other.count).sum::<u32>() < gres.count
    })?;
    Some(format!("gres/{} count reported lower than configured ({})", short.name, short.count))
}
