//! Powering down of idle nodes, and powering up of nodes that jobs need, by programs of the site.
//!
//! [`settle`] runs after every input. A node that is to be off is powered down as soon as it has no jobs, and
//! a node that has got a job is powered up. Actions at a time are in [`expire`].

use super::effect::{Effect, PowerProgram};
use super::{Ctx, ending, reboot};
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::config::PowerPolicy;
use crate::model::node::{Drain, Health, Power};
use crate::model::phase::{EndState, Phase};
use crate::model::reason::Reason;
use crate::text::time::Time;

/// Slurm's reason for a node that does not power up in time.
const NOT_RESUMED: &str = "ResumeTimeout reached";
/// Seconds in which at most `suspend_rate` nodes are powered down, and `resume_rate` up.
const MINUTE: u64 = 60;

/// The way in which a node is powered down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Haste {
    /// Once the node has no jobs; until then the node accepts new ones.
    Idle,
    /// Once the node's present jobs have ended; the node accepts no new ones.
    Drain,
    /// At once: the node's jobs are ended, and an earlier drain or down state is cleared.
    Force,
}

/// Powers a node down on an operator's command; `drain` has the operator's name and reason.
pub(super) fn off(ctx: &mut Ctx<'_>, id: NodeId, drain: &Drain, haste: Haste) {
    let Some(node) = ctx.cluster().node(id) else { return };
    match node.power {
        None | Some(Power::PowerDown { .. }) => {}
        Some(Power::PoweringUp { .. }) if node.idle() || haste == Haste::Force => {}
        Some(Power::PoweringDown { since, wake: true }) if node.idle() => {
            return change(ctx, id, Power::PoweringDown { since, wake: false });
        }
        Some(Power::PoweredDown { since, wake: true }) if node.idle() => {
            return change(ctx, id, Power::PoweredDown { since, wake: false });
        }
        Some(_) => return,
    }
    if haste == Haste::Force && (node.drain.is_some() || matches!(node.health, Health::Down { .. })) {
        ctx.emit(Event::NodeResumed { node: id });
    }
    let drained_before = matches!(node_power(ctx, id), Some(Power::PowerDown { drained: true }));
    let may_drain = ctx.cluster().node(id).is_some_and(|node| node.drain.is_none());
    let drained = drained_before || (haste != Haste::Idle && may_drain);
    if drained && may_drain {
        let reason = if drain.reason.is_empty() { "POWER_DOWN_ASAP".into() } else { drain.reason.clone() };
        ctx.emit(Event::NodeDrained { node: id, drain: Drain { reason, ..drain.clone() } });
    }
    change(ctx, id, Power::PowerDown { drained });
    if haste == Haste::Force {
        let jobs = ctx.cluster().node(id).map_or_else(Vec::new, |node| node.jobs.clone());
        for job in jobs {
            ending::lose_attempt(ctx, job, ending::outcome(EndState::NodeFail, Reason::NodeDown));
        }
    }
}

/// Powers a node up on an operator's command, or cancels its powering down.
pub(super) fn on(ctx: &mut Ctx<'_>, node: NodeId) {
    match node_power(ctx, node) {
        Some(Power::PowerDown { drained }) => {
            clear(ctx, node);
            if drained {
                ctx.emit(Event::NodeMended { node });
            }
        }
        Some(Power::PoweringDown { since, .. }) => {
            change(ctx, node, Power::PoweringDown { since, wake: true });
        }
        Some(Power::PoweredDown { since, .. }) => change(ctx, node, Power::PoweredDown { since, wake: true }),
        None | Some(Power::PoweringUp { .. } | Power::Reboot(_)) => {}
    }
}

/// Cancels the powering down of a node that an operator resumes.
pub(super) fn resume(ctx: &mut Ctx<'_>, node: NodeId) {
    if matches!(node_power(ctx, node), Some(Power::PowerDown { .. } | Power::PoweringDown { .. })) {
        on(ctx, node);
    }
}

/// Marks nodes without a host yet as powered down, unless they have ever registered.
pub(super) fn never_on(ctx: &mut Ctx<'_>, nodes: &[NodeId]) {
    for &node in nodes {
        if ctx.cluster().node(node).is_some_and(|node| node.health == Health::Unknown) {
            // No program was run for the node, so it does not count for the rate.
            change(ctx, node, Power::PoweredDown { since: Time::ZERO, wake: false });
        }
    }
}

/// Ends the power action of a node that has registered, unless it is only still powering down.
pub(super) fn registered(ctx: &mut Ctx<'_>, node: NodeId) {
    if matches!(node_power(ctx, node), Some(Power::PoweredDown { .. } | Power::PoweringUp { .. })) {
        clear(ctx, node);
    }
}

fn node_power(ctx: &Ctx<'_>, node: NodeId) -> Option<Power> {
    ctx.cluster().node(node)?.power.clone()
}

fn change(ctx: &mut Ctx<'_>, node: NodeId, power: Power) {
    ctx.emit(Event::PowerChanged { node, power: Some(power), jobs: Vec::new() });
}

/// Ends the power action on a node's host; jobs that waited for this node only begin.
pub(super) fn clear(ctx: &mut Ctx<'_>, id: NodeId) {
    let held = ctx.cluster().node(id).map_or_else(Vec::new, |node| node.jobs.clone());
    let waits = |job: &JobId| {
        let job = ctx
            .cluster()
            .job(*job)
            .filter(|job| matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_)));
        job.is_some_and(|job| job.configuring.nodes.len() == 1 && job.configuring.nodes.contains(&id))
    };
    let jobs = held.into_iter().filter(waits).collect();
    ctx.emit(Event::PowerChanged { node: id, power: None, jobs });
}

/// Powers down nodes that are to be off, and powers up those that have got jobs.
pub(super) fn settle(ctx: &mut Ctx<'_>) {
    let those = |wants: fn(&Node) -> bool| -> Vec<NodeId> {
        ctx.cluster().powered().filter(|node| wants(node)).map(|node| node.id).collect()
    };
    let (down, up) = (those(wants_down), those(wants_up));
    run(ctx, PowerProgram::Suspend, down);
    run(ctx, PowerProgram::Resume, up);
}

fn wants_down(node: &Node) -> bool {
    matches!(node.power, Some(Power::PowerDown { .. })) && reboot::is_free(node)
}

fn wants_up(node: &Node) -> bool {
    matches!(node.power, Some(Power::PoweredDown { wake, .. }) if wake || !node.idle())
}

/// Has a program power nodes up or down, as many as the rate allows.
fn run(ctx: &mut Ctx<'_>, program: PowerProgram, mut nodes: Vec<NodeId>) {
    let now = ctx.now();
    let policy = &ctx.cluster().policy().power;
    let rate = rate(policy, program);
    if rate > 0 {
        let lately = switched(ctx.cluster(), program).filter(|since| *since + MINUTE > now).count();
        nodes.truncate((rate as usize).saturating_sub(lately));
    }
    if nodes.is_empty() {
        return;
    }
    for &node in &nodes {
        let drained = matches!(node_power(ctx, node), Some(Power::PowerDown { drained: true }));
        change(
            ctx,
            node,
            match program {
                PowerProgram::Suspend => Power::PoweringDown { since: now, wake: false },
                PowerProgram::Resume | PowerProgram::ResumeFail => Power::PoweringUp { since: now },
            },
        );
        if drained {
            ctx.emit(Event::NodeMended { node });
        }
    }
    ctx.effect(Effect::Power { program, nodes });
}

fn rate(policy: &PowerPolicy, program: PowerProgram) -> u32 {
    match program {
        PowerProgram::Suspend => policy.suspend_rate,
        PowerProgram::Resume | PowerProgram::ResumeFail => policy.resume_rate,
    }
}

/// Times at which `program` was last run for each node that it has switched: for nodes that power down or are
/// powered down with `Suspend`, for nodes that power up with `Resume`; none with `ResumeFail`.
fn switched(cluster: &Cluster, program: PowerProgram) -> impl Iterator<Item = Time> + '_ {
    cluster.powered().filter_map(move |node| match (program, node.power.as_ref()?) {
        (PowerProgram::Suspend, Power::PoweringDown { since, .. } | Power::PoweredDown { since, .. }) => {
            Some(*since)
        }
        (PowerProgram::Resume, Power::PoweringUp { since }) => Some(*since),
        _ => None,
    })
}

/// Time from which the rate allows another node.
fn rate_allows_at(cluster: &Cluster, program: PowerProgram) -> Time {
    let rate = rate(&cluster.policy().power, program) as usize;
    let mut times: Vec<Time> = switched(cluster, program).collect();
    if rate == 0 || times.len() < rate {
        return Time(i64::MIN);
    }
    times.sort_unstable();
    times[times.len() - rate] + MINUTE
}

/// Time at which the next action is due; `None` if none is.
pub(super) fn next_deadline(cluster: &Cluster) -> Option<Time> {
    let policy = &cluster.policy().power;
    let (mut down, mut up) = (false, false);
    let mut next = None;
    for node in cluster.powered() {
        down |= wants_down(node);
        up |= wants_up(node);
        next = next.into_iter().chain(deadline(policy, node)).min();
    }
    let waits = [(down, PowerProgram::Suspend), (up, PowerProgram::Resume)];
    let waits =
        waits.into_iter().filter(|(any, _)| *any).map(|(_, program)| rate_allows_at(cluster, program));
    let idle = first_idle(cluster).map(|at| at.max(rate_allows_at(cluster, PowerProgram::Suspend)));
    next.into_iter().chain(waits).chain(idle).min()
}

/// Time until which a node may take to power up or down; `None` if it does neither.
fn deadline(policy: &PowerPolicy, node: &Node) -> Option<Time> {
    match node.power.as_ref()? {
        Power::PoweringDown { since, .. } => Some(*since + policy.suspend_timeout.0),
        Power::PoweringUp { since } => Some(*since + policy.resume_timeout.0),
        Power::Reboot(_) | Power::PowerDown { .. } | Power::PoweredDown { .. } => None,
    }
}

/// Time at which the first idle node has been idle for `suspend_time`; `None` without such a node or time.
/// Nodes that stay on when idle are left out.
fn first_idle(cluster: &Cluster) -> Option<Time> {
    // Without a suspend time, the nodes need not be examined.
    cluster.policy().power.suspend_time?;
    let mut first: Option<Time> = None;
    for node in cluster.nodes() {
        let at = idle_until(cluster, node);
        if at.is_some_and(|at| first.is_none_or(|first| at < first)) && !is_excluded(cluster, node) {
            first = at;
        }
    }
    first
}

/// Time at which an idle node is to be powered down. `None` without a suspend time, and for a node that is
/// in use, reserved for a job, drained, down or under a power action.
fn idle_until(cluster: &Cluster, node: &Node) -> Option<Time> {
    let time = cluster.policy().power.suspend_time?;
    let is_idle = node.power.is_none() && node.works() && node.idle() && node.nominees.is_empty();
    node.last_busy.filter(|_| is_idle).map(|since| since + time.0)
}

fn is_excluded(cluster: &Cluster, node: &Node) -> bool {
    let policy = &cluster.policy().power;
    (node.drain.is_some() && !policy.suspend_exc_states.is_empty())
        || policy.suspend_exc_nodes.contains(node.name())
        || policy.suspend_exc_parts.iter().any(|name| {
            cluster.partition(name).is_some_and(|partition| partition.members.contains(node.id.index()))
        })
}

/// Carries out the actions that are due at `now`.
pub(super) fn expire(ctx: &mut Ctx<'_>, now: Time) {
    let policy = &ctx.cluster().policy().power;
    let is_due = |node: &&Node| deadline(policy, node).is_some_and(|at| at <= now);
    let due: Vec<NodeId> = ctx.cluster().powered().filter(is_due).map(|node| node.id).collect();
    let mut failed = Vec::new();
    for node in due {
        match node_power(ctx, node) {
            Some(Power::PoweringDown { since, wake }) => {
                change(ctx, node, Power::PoweredDown { since, wake });
            }
            Some(Power::PoweringUp { since }) => {
                change(ctx, node, Power::PoweredDown { since, wake: false });
                let (reason, by) = (NOT_RESUMED.into(), Some(reboot::CONTROLLER.into()));
                ctx.emit(Event::NodeDowned { node, reason, silent: true, by });
                ending::lose_node(ctx, node);
                failed.push(node);
            }
            _ => {}
        }
    }
    if !failed.is_empty() && ctx.cluster().policy().power.resume_fail_program.is_some() {
        ctx.effect(Effect::Power { program: PowerProgram::ResumeFail, nodes: failed });
    }
    let is_idle = |node: &&Node| {
        idle_until(ctx.cluster(), node).is_some_and(|at| at <= now) && !is_excluded(ctx.cluster(), node)
    };
    let idle: Vec<NodeId> = ctx.cluster().nodes().iter().filter(is_idle).map(|node| node.id).collect();
    run(ctx, PowerProgram::Suspend, idle);
    settle(ctx);
}
