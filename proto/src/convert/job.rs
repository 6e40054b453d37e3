//! Jobs, for `squeue` and `scontrol show job`.

use spur_core::cluster::{Cluster, Partition};
use spur_core::controller::environment::repeated;
use spur_core::id::NodeId;
use spur_core::model::alloc::{Alloc, GresAlloc, NodeAlloc};
use spur_core::model::clock::Clock;
use spur_core::model::config::{Oversubscribe, PriorityFlag};
use spur_core::model::job::{Batch, FabricAsk, Job, JobSpec, MemoryNeed, Shape, Sharing};
use spur_core::model::node::{Called, NodeShape};
use spur_core::model::phase::{EndState, Pending, Phase};
use spur_core::model::reason::Reason;
use spur_core::model::topology::Plugin;
pub use spur_core::model::tres::{least_cpus, least_nodes, least_tasks, requested_tres};
use spur_core::sched;
use spur_core::sched::place::BY_TOPOLOGY;
use spur_core::sched::plan::{RESERVED, UNAVAILABLE, Waiting};
use spur_core::sched::precedence::exempt_until;
use spur_core::text::array::ArraySpec;
use spur_core::text::gres::GresList;
use spur_core::text::hostlist::HostList;
use spur_core::text::time::{Civil, Time};
use spur_core::text::tres::{Tres, TresKind};

use super::{count, narrow, node};
use crate::v1;

/// The planner's view of a job, which is not part of the durable cluster.
#[derive(Clone, Copy, Debug, Default)]
pub struct Outlook<'a> {
    /// The outlook of the last pass that considered the job.
    pub waiting: Option<&'a Waiting>,
    /// Time of that pass.
    pub evaluated: Option<Time>,
}

/// Encodes a job at `now`.
pub fn render(cluster: &Cluster, job: &Job, outlook: Outlook<'_>, now: Time) -> v1::Job {
    let mut message = requested(job);
    // A het job has one script: that of its first component.
    let leader =
        job.spec.het.as_ref().and_then(|het| cluster.job(het.leader)).filter(|first| first.id != job.id);
    if let Some((leader, batch)) = leader.and_then(|leader| Some((leader, leader.spec.batch.as_ref()?))) {
        describe_files(leader, batch, &mut message);
    }
    let is_exclusive = |partition: &Partition| partition.config.oversubscribe == Oversubscribe::Exclusive;
    if job.spec.shape.sharing != Sharing::Topo
        && job.spec.partitions.iter().filter_map(|name| cluster.partition(name)).any(is_exclusive)
    {
        "NO".clone_into(&mut message.oversubscribe);
    }
    let (state, compact) = job.state_names();
    message.state = state.to_owned();
    message.state_compact = compact.to_owned();
    let waits = job.waits_for.as_ref().map(ToString::to_string);
    message.dependency = waits.unwrap_or_default();
    exits(job, &mut message);
    message.run_time = job.phase.run_time(now);
    if let (pauses, Some(started)) = (job.phase.pauses(), job.phase.started()) {
        message.suspend_time = pauses.last.map(|last| last.0);
        message.pre_suspend_time = pauses.ran_before(started);
    }
    message.last_checkpoint = job.phase.checkpoint().map(|checkpoint| checkpoint.at.0);
    match &job.phase {
        Phase::Pending(pending) => waiting(cluster, job, pending, outlook, now, &mut message),
        Phase::Running { alloc, started, preempted, .. } => {
            let end = job.ends_at(*started);
            let told = preempted.filter(|preempted| preempted.then.is_some());
            let end = told.map_or(end, |told| told.end_at.min(end));
            message.end_time = (!end.is_never()).then_some(end.0);
            message.preempt_eligible_time = exempt_until(cluster, job).map(|time| time.0);
            message.preempt_time = preempted.map(|preempted| preempted.at.0);
            if !alloc.lost.is_empty() {
                message.reason = Reason::ReplacementNode.name().to_owned();
            }
            held(cluster, alloc, *started, &mut message);
        }
        Phase::Suspended(suspended) => {
            message.end_time = suspended.ends_by.map(|end| end.0);
            message.preempt_time = suspended.preempted.map(|preempted| preempted.at.0);
            held(cluster, &suspended.alloc, suspended.started, &mut message);
        }
        Phase::Completing(completing) => {
            message.end_time = Some(completing.ended.0);
            message.ending_as = completing.outcome.state.name().to_owned();
            message.reason = completing.outcome.reason.name().to_owned();
            message.reason_detail = completing.outcome.detail.as_deref().unwrap_or_default().to_owned();
            held(cluster, &completing.alloc, completing.started, &mut message);
        }
        Phase::Ended(ended) => {
            message.end_time = Some(ended.ended.0);
            message.reason = ended.outcome.reason.name().to_owned();
            message.reason_detail = ended.outcome.detail.as_deref().unwrap_or_default().to_owned();
            message.start_time = Some(ended.started.unwrap_or(ended.ended).0);
            if let (Some(alloc), Some(started)) = (&ended.alloc, ended.started) {
                held(cluster, alloc, started, &mut message);
            } else {
                message.priority = last_priority(cluster, job, ended.ended);
            }
        }
    }
    prioritized(cluster, job, now, &mut message);
    if message.reason.is_empty() {
        message.reason = Reason::None.name().to_owned();
    }
    on_the_wall(&mut message, cluster.clock());
    message
}

/// Encodes the time from which the job gains priority by age and, with `CALCULATE_RUNNING`, the present
/// priority of a running or suspended job.
fn prioritized(cluster: &Cluster, job: &Job, now: Time, message: &mut v1::Job) {
    let calculates = cluster.policy().scheduler.has_flag(PriorityFlag::CalculateRunning);
    if calculates && matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_)) {
        message.priority = sched::present_priority(cluster, job, now);
    }
    message.accrue_time = match &job.phase {
        Phase::Pending(pending) if !cluster.accrual_rules(&job.spec).is_empty() => {
            pending.accrued.map(|accrued| accrued.0)
        }
        _ => message.eligible_time.filter(|_| job.waits_for.is_none()),
    };
}

/// Converts every time from the cluster's clock to the wall's.
fn on_the_wall(message: &mut v1::Job, clock: &Clock) {
    if clock.ahead == 0 {
        return;
    }
    message.submit_time = clock.wall(Time(message.submit_time)).0;
    let times = [
        &mut message.eligible_time,
        &mut message.start_time,
        &mut message.end_time,
        &mut message.deadline,
        &mut message.last_sched_eval,
        &mut message.begin_time,
        &mut message.preempt_eligible_time,
        &mut message.preempt_time,
        &mut message.suspend_time,
        &mut message.last_checkpoint,
        &mut message.accrue_time,
    ];
    for time in times.into_iter().flatten() {
        *time = clock.wall(Time(*time)).0;
    }
}

/// Returns the time at which a job that has started or ended became eligible; `None` for a job that neither
/// started nor became eligible.
///
/// Records of earlier releases lack that time; then it is the earliest possible one.
fn started_eligible(job: &Job) -> Option<Time> {
    let earliest = || job.spec.begin.map_or(job.submitted, |begin| begin.max(job.submitted));
    job.was_eligible.or_else(|| job.phase.started().map(|_| earliest()))
}

/// Encodes the parts of a job that follow from its request alone.
fn requested(job: &Job) -> v1::Job {
    let JobSpec { owner, shape, batch, .. } = &*job.spec;
    let spec = &job.spec;
    let mut message = v1::Job {
        id: job.id.0,
        array_job_id: job.array.as_ref().map(|part| part.id.0),
        array_task_id: job.task().map(|task| task.0),
        array_tasks: waiting_tasks(job),
        array_throttle: spec.array.as_ref().and_then(|array| array.limit),
        name: spec.name.to_string(),
        uid: owner.uid,
        gid: owner.gid,
        user: owner.user.to_string(),
        group: owner.group.to_string(),
        account: spec.account.as_deref().unwrap_or_default().to_owned(),
        qos: spec.qos.as_deref().unwrap_or_default().to_owned(),
        partition: spec.partitions.join(","),
        priority: spec.priority.unwrap_or_default(),
        nice: spec.nice,
        requeue: spec.requeue,
        restarts: job.restarts,
        batch: batch.is_some(),
        submit_time: job.submitted.0,
        eligible_time: started_eligible(job).map(|at| at.0),
        deadline: spec.deadline.map(|deadline| deadline.0),
        time_limit: spec.time_limit.seconds(),
        time_min: spec.time_min.and_then(|limit| limit.seconds()),
        begin_time: spec.begin.map(|begin| begin.0),
        ..v1::Job::default()
    };
    if let Some(het) = &spec.het {
        message.het_job_id = Some(het.leader.0);
        message.het_job_offset = Some(het.offset);
        message.het_job_id_set = format!("{}-{}", het.leader, het.leader.0 + het.size.saturating_sub(1));
    }
    describe_shape(shape, &mut message);
    message.req_tres = requested_tres(shape).to_string();
    if let Some(ask) = &spec.fabric {
        describe_fabric(ask, &mut message);
    }
    if let Some(batch) = batch {
        describe_files(job, batch, &mut message);
    }
    if let Some(client) = &spec.client {
        message.command = client.command.to_string();
        message.work_dir = client.work_dir.to_string();
    }
    if let Some(extra) = &spec.extra {
        let licenses = extra.licenses.iter().map(|(name, count)| format!("{name}:{count}"));
        message.licenses = licenses.collect::<Vec<_>>().join(",");
        message.submit_line = extra.submit_line.as_deref().unwrap_or_default().to_owned();
        if let Some((events, user)) = &extra.mail {
            let user = if user.is_empty() { &spec.owner.user } else { &**user };
            (message.mail_type, message.mail_user) = (events.to_string(), user.to_string());
        }
        message.kill_on_invalid_dep = extra.kill_on_invalid_dep;
        message.comment = extra.comment.as_deref().unwrap_or_default().to_owned();
        message.extra = extra.text.as_deref().unwrap_or_default().to_owned();
        message.admin_comment = extra.admin_comment.as_deref().unwrap_or_default().to_owned();
        message.wckey = extra.wckey.as_deref().unwrap_or_default().to_owned();
        message.reservation = extra.reservation.as_deref().unwrap_or_default().to_owned();
        message.submit_host = extra.submit_host.to_string();
        message.reboot = extra.reboot;
        message.gres_anywhere = extra.gres_anywhere;
    }
    message
}

/// Returns the tasks of an array that share a record, with the limit of running tasks: `4-7,9%2`.
pub fn waiting_tasks(job: &Job) -> String {
    let part = job.array.as_ref().filter(|part| part.tasks.only().is_none());
    let limit = job.spec.array.as_ref().and_then(|array| array.limit);
    part.map_or_else(String::new, |part| ArraySpec { tasks: part.tasks.clone(), limit }.to_string())
}

fn shown<T: ToString>(value: Option<&T>) -> String {
    value.map(ToString::to_string).unwrap_or_default()
}

fn describe_shape(shape: &Shape, message: &mut v1::Job) {
    message.num_nodes = least_nodes(shape);
    message.max_nodes = shape.nodes.as_ref().and_then(|nodes| nodes.max).unwrap_or_default();
    message.num_tasks = shape.overcommit_tasks.unwrap_or_else(|| least_tasks(shape));
    message.cpus_per_task = shape.cpus_per_task.unwrap_or(1);
    message.num_cpus = least_cpus(shape);
    message.tasks_per_node = shape.tasks_per_node;
    message.cores = shape.cores.as_deref().map(|cores| v1::CoreAsk {
        sockets_per_node: cores.sockets_per_node,
        cores_per_socket: cores.cores_per_socket,
        threads_per_core: cores.threads_per_core,
        tasks_per_core: cores.tasks_per_core,
        tasks_per_socket: cores.tasks_per_socket,
        cpus_per_gpu: cores.cpus_per_gpu,
        memory_per_gpu_mb: cores.memory_per_gpu,
    });
    message.min_cpus_node =
        shape.min_cpus.max(shape.tasks_per_node.unwrap_or(1).saturating_mul(message.cpus_per_task));
    match shape.memory {
        Some(MemoryNeed::PerNode(mb)) => message.min_memory_node = Some(mb),
        Some(MemoryNeed::PerCpu(mb)) => message.min_memory_cpu = Some(mb),
        None => {}
    }
    message.tmp_disk_mb = shape.tmp_disk_mb;
    message.features = shown(shape.features.as_ref());
    message.required_nodes = shown(shape.nodelist.as_ref());
    message.excluded_nodes = shown(shape.exclude.as_ref());
    message.gres = GresList(shape.gres.clone()).to_string();
    message.gpus = GresList(shape.gpus.clone()).to_string();
    message.gpus_per_task = GresList(shape.gpus_per_task.clone()).to_string();
    message.oversubscribe = match shape.sharing {
        Sharing::Partition => "OK",
        Sharing::Shared => "YES",
        Sharing::Exclusive => "NO",
        Sharing::Topo => "TOPO",
    }
    .to_owned();
}

/// Returns the trackable resources of an allocation, with the billing amount.
pub fn allocated_tres(cluster: &Cluster, alloc: &Alloc) -> Tres {
    let mut tres = cluster.held_tres(&alloc.nodes);
    tres.set(TresKind::Billing, alloc.billed().count());
    tres
}

fn describe_fabric(ask: &FabricAsk, message: &mut v1::Job) {
    message.topology = ask.topology.as_deref().unwrap_or_default().to_owned();
    message.gather = shown(ask.gather.as_ref());
    message.switches = shown(ask.switches.as_ref());
    message.segment = ask.segment;
    message.spread_segments = ask.spread_segments;
    message.consolidate_segments = ask.consolidate_segments;
    message.contiguous = ask.contiguous;
    message.placement = shown(ask.placement.as_ref());
    message.network = shown(ask.network.as_ref());
    message.prefer = shown(ask.prefer.as_ref());
}

fn describe_files(job: &Job, batch: &Batch, message: &mut v1::Job) {
    message.command = match &*batch.args {
        [] => batch.command.to_string(),
        args => format!("{} {}", batch.command, args.join(" ")),
    };
    message.work_dir = batch.work_dir.to_string();
    message.stdin = job.input_path(batch);
    message.stdout = job.output_path(batch);
    message.stderr = job.error_path(batch);
}

fn exits(job: &Job, message: &mut v1::Job) {
    let outcome = match &job.phase {
        Phase::Completing(completing) => Some(&completing.outcome),
        Phase::Ended(ended) => Some(&ended.outcome),
        Phase::Pending(_) | Phase::Running { .. } | Phase::Suspended(_) => None,
    };
    // A cancelled job shows the exit code of its script.
    let script = job.batch_end.as_ref().map(|batch| batch.end.exit);
    let script = script.filter(|_| outcome.is_some_and(|outcome| outcome.state == EndState::Cancelled));
    let exit = script.or(outcome.map(|outcome| outcome.exit)).unwrap_or_default();
    (message.exit_code, message.exit_signal) = (exit.code.into(), exit.signal.into());
    (message.derived_exit_code, message.derived_exit_signal) =
        (job.derived_exit.code.into(), job.derived_exit.signal.into());
}

/// Returns the part of an explanation that Slurm puts into the reason itself: the unavailable nodes, or the
/// purpose of their reservation. The explanation of a het job begins with the component. `None` for any other
/// explanation.
fn not_available(detail: &str) -> Option<&str> {
    let reserved = RESERVED.into_iter().find(|what| detail.contains(what));
    let nodes = || detail.find(UNAVAILABLE).and_then(|at| detail[at..].split([' ', ';']).next());
    reserved.or_else(nodes)
}

/// Slurm's text in place of `Resources` for a job that only the blocks of its fabric keep from starting.
const NO_BLOCK: &str = "No_suitable_topology_unit_found";

/// True if enough nodes may be free for a job, but not in blocks as the job needs them.
fn lacks_block(cluster: &Cluster, job: &Job, detail: &str) -> bool {
    let mut partitions = job.spec.partitions.iter().filter_map(|name| cluster.partition(name));
    let has_blocks = |partition: &Partition| {
        cluster.fabric_of(partition).is_some_and(|fabric| fabric.plugin() == Plugin::Block)
    };
    detail.contains(BY_TOPOLOGY) && partitions.any(has_blocks)
}

/// Returns the word of a reason, without Slurm's addition, which is in the sentence as well.
pub fn word(reason: &str) -> &str {
    match reason.split(',').next().unwrap_or(reason) {
        word if word.starts_with(NO_BLOCK) => Reason::Resources.name(),
        word => word,
    }
}

/// Serializes a reason as its word alone, because readers of JSON compare it.
pub(crate) fn one_word<S: serde::Serializer>(reason: &str, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(word(reason))
}

/// Returns the last priority of a job that ended before it started; 0 if its user held it all the time.
pub fn last_priority(cluster: &Cluster, job: &Job, ended: Time) -> u32 {
    let held = job.spec.hold && job.eligible().is_none();
    if held { 0 } else { sched::present_priority(cluster, job, ended) }
}

/// Encodes the reason why a job waits, and its planned start.
fn waiting(
    cluster: &Cluster,
    job: &Job,
    pending: &Pending,
    outlook: Outlook<'_>,
    now: Time,
    message: &mut v1::Job,
) {
    message.eligible_time = pending.eligible.or(pending.not_before).map(|eligible| eligible.0);
    if job.spec.shape.nodes.is_none() {
        message.num_nodes = message.num_nodes.max(sched::fewest_nodes(cluster, &job.spec));
    }
    let planned = outlook.waiting;
    if let Some(planned) = planned {
        message.priority = planned.priority;
        message.last_sched_eval = outlook.evaluated.map(|at| at.0);
    }
    let (reason, detail) = reason(cluster, job, pending, planned, now);
    message.reason = match reason {
        Reason::ReqNodeNotAvail => match not_available(&detail) {
            Some(what) => format!("{reason}, {what}"),
            None => reason.name().to_owned(),
        },
        Reason::Resources if lacks_block(cluster, job, &detail) => match job.spec.fabric.as_deref() {
            Some(FabricAsk { segment: Some(_), .. }) => format!("{NO_BLOCK}_for_segment"),
            _ => NO_BLOCK.to_owned(),
        },
        _ => reason.name().to_owned(),
    };
    message.reason_detail = detail;
    if pending.hold.is_some() {
        message.priority = 0;
        begins(job, pending, now, message);
        return;
    }
    if message.priority == 0 {
        message.priority = sched::present_priority(cluster, job, now);
    }
    if let Some(start) = planned.and_then(|planned| planned.start) {
        message.start_time = Some(start.0);
        message.start_is_planned = true;
        let end = job.spec.time_limit.end(start);
        message.end_time = (!end.is_never()).then_some(end.0);
    } else {
        begins(job, pending, now, message);
    }
    let nominated = job.nomination();
    let nodes = match (nominated, planned) {
        (Some(nomination), _) => nomination.nodes().collect(),
        (None, Some(planned)) => planned.nodes.clone(),
        (None, None) => Vec::new(),
    };
    if !nodes.is_empty() {
        message.planned_nodes = HostList::from_names(cluster.names_of(nodes)).to_string();
    }
}

fn reason(
    cluster: &Cluster,
    job: &Job,
    pending: &Pending,
    planned: Option<&Waiting>,
    now: Time,
) -> (Reason, String) {
    if let Some(reason) = job.waits_because(now) {
        let waits = job.waits_for.as_ref().filter(|_| pending.hold.is_none());
        return (reason, waits.map(ToString::to_string).unwrap_or_default());
    }
    let date = |time: Time| format!("{}Z", Civil::from_utc(cluster.clock().wall(time)));
    // The nomination is durable, so it is known even if no pass has been made since.
    if let Some(nomination) = job.nomination() {
        let known = planned.filter(|planned| planned.reason == Reason::Preempting);
        let detail = known.map_or_else(|| nomination.detail.to_string(), |planned| planned.sentence(date));
        return (Reason::Preempting, detail);
    }
    planned.map_or((Reason::None, String::new()), |planned| (planned.reason, planned.sentence(date)))
}

/// Encodes the start of a job with a begin time in the future, held or not: the earliest possible, as in
/// Slurm.
fn begins(job: &Job, pending: &Pending, now: Time, message: &mut v1::Job) {
    let Some(begin) = pending.not_before.filter(|begin| *begin > now) else { return };
    message.start_time = Some(begin.0);
    let end = job.spec.time_limit.end(begin);
    message.end_time = (!end.is_never()).then_some(end.0);
}

/// Encodes the allocation of a job that has started.
fn held(cluster: &Cluster, alloc: &Alloc, started: Time, message: &mut v1::Job) {
    let names = || cluster.names_of(alloc.nodes.iter().map(|part| part.node));
    message.start_time = Some(started.0);
    // The pass that started the job was the last to consider it.
    message.last_sched_eval = Some(started.0);
    message.priority = alloc.why.priority;
    message.partition = alloc.partition.to_string();
    // As in Slurm, a job that asked for several reservations shows all of them; one that asked for none shows
    // the one used.
    if let Some(reservation) = alloc.reservation.as_ref().filter(|_| message.reservation.is_empty()) {
        message.reservation = reservation.to_string();
    }
    message.nodes = HostList::from_names(names()).to_string();
    message.batch_host = names().next().unwrap_or_default().to_owned();
    message.num_nodes = count(alloc.nodes.len());
    message.num_cpus = narrow(alloc.cpus());
    message.num_tasks = narrow(alloc.tasks());
    message.alloc_tres = allocated_tres(cluster, alloc).to_string();
    message.cpus_per_node = repeated(alloc.nodes.iter().map(|part| part.cpus.len()));
    message.tasks_per_nodes = repeated(alloc.nodes.iter().map(|part| part.tasks));
    message.why.clone_from(&alloc.why.sentence);
    message.spans = alloc.why.spans.iter().map(|(layer, count)| span(layer, *count)).collect();
    message.relaxed.clone_from(&alloc.why.relaxed);
    message.backfilled = alloc.why.backfilled;
    message.exact = Some(alloc.why.exact);
}

/// Encodes the job's parts of its nodes; consecutive nodes with equal parts share an entry.
pub fn shares(cluster: &Cluster, alloc: &Alloc) -> Vec<v1::AllocatedNodes> {
    let mut shares: Vec<(Vec<NodeId>, v1::AllocatedNodes)> = Vec::new();
    let shape = |part: &NodeAlloc| cluster.node(part.node).map(|node| &node.shape);
    for part in &alloc.nodes {
        let gres: Vec<String> = shape(part).map_or_else(Vec::new, |shape| devices(shape, &part.gres));
        let share = v1::AllocatedNodes {
            nodes: String::new(),
            cpu_ids: part.cpus.to_string(),
            memory_mb: part.memory_mb,
            gres: gres.join(","),
            sockets: shape(part).map_or(0, |shape| shape.sockets),
            cores_per_socket: shape(part).map_or(0, |shape| shape.cores_per_socket),
            threads_per_core: shape(part).map_or(0, |shape| shape.threads_per_core),
        };
        match shares.last_mut() {
            Some((nodes, last)) if *last == share => nodes.push(part.node),
            _ => shares.push((vec![part.node], share)),
        }
    }
    let named = |(nodes, share)| v1::AllocatedNodes {
        nodes: HostList::from_names(cluster.names_of(nodes)).to_string(),
        ..share
    };
    shares.into_iter().map(named).collect()
}

/// Returns a job's devices on a node, by their numbers among all of their name there: `gpu:a100:2(IDX:0-1)`.
fn devices(shape: &NodeShape, held: &[GresAlloc]) -> Vec<String> {
    let mut all: Vec<Called<'_>> = Vec::new();
    for one in held.iter().filter_map(|held| shape.called(held)) {
        match all.iter_mut().find(|other| other.name == one.name && other.kind == one.kind) {
            Some(other) => {
                other.count += one.count;
                other.ids.insert_all(&one.ids);
            }
            None => all.push(one),
        }
    }
    let written = |called: &Called<'_>| {
        format!("{}(IDX:{})", node::devices(called.name, called.kind, called.count), called.ids)
    };
    all.iter().map(written).collect()
}

/// Encodes the number of domains of a layer that a placement uses.
pub fn span(layer: &str, count: u32) -> v1::Span {
    v1::Span { layer: layer.to_owned(), count }
}

#[cfg(test)]
mod tests {
    use spur_core::text::gres::GresSpec;

    use super::*;

    #[test]
    fn gpus_of_tasks_count_once() {
        let gpus = |count: u64| if count == 0 { Vec::new() } else { vec![GresSpec::new("gpu", None, count)] };
        // GPUs of each node, of the job, of each of four tasks, and the total.
        for (node, job, task, all) in [(4, 0, 1, 4), (0, 4, 1, 4), (0, 0, 2, 8), (2, 0, 0, 2)] {
            let (gres, gpus_per_task) = (gpus(node), gpus(task));
            let shape = Shape { tasks: Some(4), gres, gpus: gpus(job), gpus_per_task, ..Shape::default() };
            let kind = TresKind::Gres { name: "gpu".into(), kind: None };
            assert_eq!(requested_tres(&shape).get(&kind), all, "{node} {job} {task}");
        }
    }
}
