//! Submission of a job. A request that could never be honoured is refused, with the nearest one that works.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::super::command::Submission;
use super::super::{Ctx, Reject, Reply, accrual, ending, kept_priority, tasks};
use super::{account, limits, partition, qos, reservation, wckey};
use crate::cluster::{Cluster, Event, FeatureLevel, Partition};
use crate::id::{ArrayTaskId, JobId};
use crate::model::caller::Caller;
use crate::model::config::EnforcePartLimits;
use crate::model::job::{HetPart, JobSpec, MemoryNeed, Shape, Sharing};
use crate::model::phase::Phase;
use crate::model::reason::Reason;
use crate::model::waits::{MOST_TERMS, MOST_WAITING};
use crate::sched::feasible::{self, Feasibility};
use crate::text::dependency::{DependencyJob, DependencyKind, Join, TaskRef};
use crate::text::hostlist::HostList;
use crate::text::memory::MemoryMb;
use crate::text::nodes::NodeCount;
use crate::text::time::{Time, TimeLimit};

/// Largest number of components of a het job.
const MOST_COMPONENTS: usize = 128;

pub(super) struct Decision {
    /// The request; for a het job one for each component.
    specs: Vec<Arc<JobSpec>>,
    warnings: Vec<String>,
}

pub(super) fn check(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    feasibility: &Feasibility,
    submission: Submission,
) -> Result<Decision, Reject> {
    array(cluster, &submission.spec)?;
    let most = cluster.policy().jobs.max_job_count;
    let tasks = submission.spec.array.as_ref().map_or(1, |array| array.tasks.len());
    if cluster.jobs().count() + submission.rest.len() + tasks > most as usize {
        return Err(Reject::TooManyJobs(most));
    }
    if !submission.rest.is_empty() {
        return check_het(cluster, now, caller, feasibility, submission);
    }
    let mut submission = submission;
    let counted = count_nodes(&mut submission.spec);
    let (mut spec, more) = resolve(cluster, now, caller, submission)?;
    let forgotten = without_unknown(cluster, &mut spec);
    dependency(cluster, &spec)?;
    let told = counted.into_iter().chain(more).chain(forgotten);
    let over = limits::check(cluster, now, &[&spec])?;
    let warnings = told.chain(judge(cluster, now, caller, feasibility, &spec)?).chain(over).collect();
    Ok(Decision { specs: vec![Arc::new(spec)], warnings })
}

/// Judges each component by itself, and then all of them together.
fn check_het(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    feasibility: &Feasibility,
    mut first: Submission,
) -> Result<Decision, Reject> {
    let rest = std::mem::take(&mut first.rest);
    let size = rest.len() + 1;
    if size > MOST_COMPONENTS {
        return Err(Reject::Invalid(format!("{size} components: a het job has at most {MOST_COMPONENTS}")));
    }
    if first.spec.array.is_some() || rest.iter().any(|component| component.spec.array.is_some()) {
        return Err(Reject::InvalidArray("a het job has no tasks; submit an array or a het job".to_owned()));
    }
    let (leader, requeue) = (cluster.next_job(), first.requeue);
    // Components start together, so a hold of one holds all.
    let hold = std::iter::once(&first).chain(&rest).any(|component| component.spec.hold);
    let (mut specs, mut warnings): (Vec<Arc<JobSpec>>, _) = (Vec::with_capacity(size), Vec::new());
    for (offset, mut component) in std::iter::once(first).chain(rest).enumerate() {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let het = HetPart { leader, offset: number(offset), size: number(size) };
        component.requeue = requeue;
        let counted = count_nodes(&mut component.spec);
        if let Some(first) = specs.first() {
            qos::of_whole(cluster, first, &mut component.spec)
                .map_err(|reject| reject.of_component(offset))?;
        }
        let judged = resolve(cluster, now, caller, component).and_then(|(spec, more)| {
            let mut spec = JobSpec { hold, het: Some(Box::new(het)), ..spec };
            let forgotten = without_unknown(cluster, &mut spec);
            dependency(cluster, &spec)?;
            let judged = judge(cluster, now, caller, feasibility, &spec)?;
            let told = forgotten.into_iter().chain(judged).collect::<Vec<_>>();
            Ok((told, more, spec))
        });
        let (told, more, spec) = judged.map_err(|reject| reject.of_component(offset))?;
        warnings.extend(
            counted.into_iter().chain(more).chain(told).map(|told| format!("component {offset}: {told}")),
        );
        specs.push(Arc::new(spec));
    }
    warnings.extend(together(cluster, feasibility, &specs)?);
    let all: Vec<&JobSpec> = specs.iter().map(|spec| &**spec).collect();
    warnings.extend(limits::check(cluster, now, &all)?);
    Ok(Decision { specs, warnings })
}

/// Judges if the components of a het job could ever run at once. Returns warnings for the user if they could;
/// none while the answer is open.
pub(super) fn together(
    cluster: &Cluster,
    feasibility: &Feasibility,
    specs: &[Arc<JobSpec>],
) -> Result<Vec<String>, Reject> {
    let answer = feasibility.check_together(cluster, specs);
    answer.map_or_else(|| Ok(Vec::new()), |answer| answer.map_err(refusal))
}

pub(super) fn enact(ctx: &mut Ctx<'_>, decision: Decision) -> Reply {
    let Decision { mut specs, warnings } = decision;
    let job = ctx.cluster().next_job();
    let changes_shares = specs.iter().any(|spec| ctx.cluster().newcomer(spec).is_some());
    let event = match specs.pop() {
        Some(spec) if specs.is_empty() => Event::JobSubmitted { job, spec },
        last => {
            specs.extend(last);
            let jobs = (job.0..).map(JobId).take(specs.len()).collect();
            Event::HetJobSubmitted { jobs, specs }
        }
    };
    match changes_shares {
        true => kept_priority::keep(ctx, |ctx| ctx.emit(event)),
        false => ctx.emit(event),
    }
    let mut records = tasks::part_ways(ctx, job, None);
    records.push(job);
    if ctx.cluster().limits_accrual() {
        accrual::begin(ctx, records.clone());
    }
    // The jobs that it waits for may have failed already.
    ending::end_hopeless(ctx, records, None);
    Reply::Submitted { job, warnings }
}

/// Fills in defaults of a request. Returns warnings for the user about them.
fn resolve(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    submission: Submission,
) -> Result<(JobSpec, Vec<String>), Reject> {
    let Submission { mut spec, time_limit, requeue, rest: _ } = submission;
    spec.owner = Arc::clone(&caller.owner);
    // As in Slurm, the job is accepted without the priority.
    let forbidden = spec.priority.take_if(|_| !caller.is_operator());
    let without_priority = forbidden.map(|_| {
        "only operators may set --priority, and it is left out; use --nice to lower your own job's".to_owned()
    });
    if spec.wants_reboot() && !caller.is_operator() {
        return Err(Reject::Invalid(
            "Access/permission denied: rebooting of nodes is only allowed for admins".to_owned(),
        ));
    }
    if spec.nice < 0 && !caller.is_operator() {
        return Err(Reject::Invalid("only operators may raise a priority with a negative --nice".to_owned()));
    }
    let reboots = boot_first(cluster, &mut spec);
    if let Some(batch) = spec.batch.as_mut().filter(|_| cluster.feature_level() < FeatureLevel(2)) {
        // Only a policy of level 2 treats limits that the user named differently.
        batch.limits_named = false;
    }
    if spec.partitions.is_empty() {
        let reserved = spec.reservations().find_map(|name| cluster.reservation(name)?.partition.as_deref());
        let reserved = reserved.and_then(|name| cluster.partition(name));
        let partition = reserved.or(cluster.default_partition()).ok_or(Reject::NoDefaultPartition)?;
        spec.partitions = [Arc::clone(partition.name())].into();
    }
    stand_in(cluster, &mut spec);
    let partitions = partitions(cluster, &spec)?;
    account::fill_in(cluster, &mut spec);
    wckey::fill_in(cluster, &mut spec)?;
    spec.qos = qos::default(cluster, &partitions, &spec);
    let qos = cluster.policy().qos_of(spec.qos.as_deref());
    spec.qos = qos.map(|qos| Arc::clone(&qos.name)).or(spec.qos);
    let wall = limits::most_time(cluster, &spec, &partitions);
    // The job shares the cluster's own names, so that a million jobs do not hold a million copies of them.
    spec.partitions = partitions.iter().map(|partition| Arc::clone(partition.name())).collect();
    let mut limit = time_limit.unwrap_or_else(|| default_time(&partitions).min(wall));
    // A deadline limits the time of a job without a time limit; a later start then leaves less.
    let until = spec.deadline.filter(|deadline| time_limit.is_none() && *deadline > now);
    if let Some(until) =
        until.map(|deadline| TimeLimit::Seconds(deadline.since(now))).filter(|until| *until < limit)
    {
        limit = until;
        spec.time_min.get_or_insert(until.min(TimeLimit::Seconds(60)));
    }
    spec.time_limit = spec.time_min.map_or(limit, |least| limit.min(longest(&partitions, wall, least)));
    spec.requeue = requeue.unwrap_or(cluster.policy().jobs.requeue);
    default_of_gpus(&mut spec.shape, &partitions);
    if spec.shape.memory.is_none() && spec.shape.memory_per_gpu().is_none() {
        spec.shape.memory = default_memory(&partitions);
    }
    if let Some(batch) = spec.batch.as_mut().filter(|batch| !batch.limits_named) {
        let policy = &cluster.policy().jobs;
        batch.limits = batch.limits.iter().filter(|(name, _)| policy.propagates(name)).cloned().collect();
    }
    let told = share_memory(&mut spec.shape, &partitions);
    Ok((spec, told.into_iter().chain(reboots).chain(without_priority).collect()))
}

/// Gives a job that asks for GPUs the default CPUs and memory per GPU if the job names none.
fn default_of_gpus(shape: &mut Shape, partitions: &[&Partition]) {
    let listed = shape.gres.iter().chain(&shape.gpus).chain(&shape.gpus_per_task);
    if !listed.clone().any(|spec| spec.name == "gpu" && spec.count > 0) {
        return;
    }
    let cpus = partitions.iter().filter_map(|partition| partition.config.def_cpu_per_gpu).max();
    let memory = partitions.iter().filter_map(|partition| partition.config.def_mem_per_gpu).max();
    let names_cpus = shape.cpus_per_task.is_some()
        || shape.cores.as_ref().is_some_and(|cores| cores.cpus_per_gpu.is_some());
    if let Some(cpus) = cpus.filter(|_| !names_cpus) {
        shape.cores.get_or_insert_default().cpus_per_gpu = Some(cpus);
    }
    if let Some(memory) = memory.filter(|_| shape.memory.is_none() && shape.memory_per_gpu().is_none()) {
        shape.cores.get_or_insert_default().memory_per_gpu = Some(memory);
    }
}

/// The memory of a job that names none: the largest default per CPU of its partitions, or else the largest
/// default per node; `None` if no partition has a default.
pub(super) fn default_memory(partitions: &[&Partition]) -> Option<MemoryNeed> {
    let by_cpu = partitions.iter().filter_map(|partition| partition.config.def_mem_per_cpu).max();
    let by_node = partitions.iter().filter_map(|partition| partition.config.def_mem_per_node).max();
    by_cpu.map(MemoryNeed::PerCpu).or(by_node.map(MemoryNeed::PerNode))
}

/// Makes a job with `--reboot` exclusive. Returns a warning if no program reboots nodes.
fn boot_first(cluster: &Cluster, spec: &mut JobSpec) -> Option<String> {
    if !spec.wants_reboot() {
        return None;
    }
    if !matches!(spec.shape.sharing, Sharing::Exclusive | Sharing::Topo) {
        spec.shape.sharing = Sharing::Exclusive;
    }
    let none = cluster.policy().power.reboot_program.is_none();
    none.then(|| "--reboot has no effect: there is no [power] reboot_program on this cluster".to_owned())
}

/// Gives a job with more memory per CPU than a partition allows more CPUs instead, as in Slurm. Returns a
/// warning for the user; `None` if nothing was changed.
pub(super) fn share_memory(shape: &mut Shape, partitions: &[&Partition]) -> Option<String> {
    let limit =
        |partition: &&Partition| Some((partition.config.max_mem_per_cpu?, Arc::clone(partition.name())));
    let (most, name) = partitions.iter().filter_map(limit).min().filter(|(most, _)| *most > 0)?;
    match shape.memory? {
        MemoryNeed::PerCpu(asked) if asked > most => {
            let times = u32::try_from(asked.div_ceil(most)).unwrap_or(u32::MAX);
            let cpus = shape.cpus_per_task.unwrap_or(1).saturating_mul(times);
            shape.cpus_per_task = Some(cpus);
            shape.memory = Some(MemoryNeed::PerCpu(asked.div_ceil(times.into())));
            Some(format!(
                "{} for each CPU: partition {name} gives {}; each task gets {cpus} CPUs",
                MemoryMb(asked),
                MemoryMb(most)
            ))
        }
        MemoryNeed::PerNode(asked) if asked > 0 => {
            let cpus = u32::try_from(asked.div_ceil(most)).unwrap_or(u32::MAX);
            shape.min_cpus = shape.min_cpus.max(cpus);
            None
        }
        MemoryNeed::PerCpu(_) | MemoryNeed::PerNode(_) => None,
    }
}

/// Refuses an array with too large an index, or without a batch script.
fn array(cluster: &Cluster, spec: &JobSpec) -> Result<(), Reject> {
    let Some(array) = &spec.array else { return Ok(()) };
    let size = cluster.policy().jobs.max_array_size;
    let last = array.tasks.last().unwrap_or_default();
    if last >= size {
        return Err(Reject::InvalidArray(format!(
            "the largest index is {last}; here it is {} at most ([controller] max_array_size)",
            size.saturating_sub(1)
        )));
    }
    if spec.batch.is_none() {
        return Err(Reject::InvalidArray("only batch jobs have tasks; submit it with sbatch".to_owned()));
    }
    Ok(())
}

/// Sets the number of nodes of a job with a node list. As in Slurm, a list without a number means all its
/// nodes. With a number of tasks, nodes are added until these fit. A list with functions (`switch{}`) does
/// not count. A job with fewer tasks than nodes gets as many nodes as tasks, the first of its list, with a
/// warning.
fn count_nodes(spec: &mut JobSpec) -> Option<String> {
    let shape = &mut spec.shape;
    let named = shape.nodelist.as_ref().and_then(|list| list.as_plain()).map(|named| named.unique().sorted());
    let listed = named.as_ref().map(|named| u32::try_from(named.len()).unwrap_or(u32::MAX));
    let (min, max) = shape.nodes.as_ref().map_or((0, None), |nodes| (nodes.min, nodes.max));
    let has_sizes = shape.nodes.as_ref().is_some_and(|nodes| nodes.sizes.is_some());
    let least = min.max(listed.unwrap_or(0));
    if let Some(tasks) = shape.tasks.filter(|tasks| *tasks < least && !has_sizes)
        && max.is_none_or(|max| least <= max)
    {
        shape.nodes = Some(NodeCount::exactly(tasks));
        if let Some(named) = named.filter(|_| listed > Some(tasks)) {
            let first = HostList::from_names(named.iter().take(tasks as usize));
            shape.nodelist = Some(Box::new(first.into()));
        }
        return Some(format!("can't run {tasks} processes on {least} nodes, setting nnodes to {tasks}"));
    }
    // Of a list with more nodes than the job may have, the first are taken.
    if let (Some(most), Some(named)) = (max.filter(|_| listed > max), &named) {
        let first = HostList::from_names(named.iter().take(most as usize));
        shape.nodelist = Some(Box::new(first.into()));
        return Some(format!("{} nodes are named for {most}: the first {most} are taken", named.len()));
    }
    if let (None, None, Some(listed)) = (&shape.nodes, shape.tasks, listed) {
        shape.nodes = Some(NodeCount::exactly(listed));
    }
    None
}

/// Judges a new or changed request of `caller`. Returns warnings for the user.
pub(super) fn judge(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    feasibility: &Feasibility,
    spec: &JobSpec,
) -> Result<Vec<String>, Reject> {
    cluster.allows(spec)?;
    for partition in partitions(cluster, spec)? {
        admit(partition, caller, spec)?;
    }
    account::check(cluster, spec)?;
    qos::check(cluster, caller, spec)?;
    let forbids = spec.extra.as_ref().is_some_and(|extra| extra.no_preempt);
    if forbids && !cluster.policy().preempt.jobs_may_forbid {
        return Err(Reject::Invalid(
            "--no-preempt: jobs may not forbid it on this cluster ([preempt] jobs_may_forbid); leave it out"
                .to_owned(),
        ));
    }
    het(spec)?;
    for name in spec.reservations() {
        reservation::open_to(cluster, caller, spec, name)?;
    }
    if let Some(deadline) = spec.deadline {
        let shortest = spec.least_time();
        if spec.begin.is_some_and(|begin| begin >= deadline) {
            let text =
                "Incompatible begin and deadline time specification: it would begin after its deadline";
            return Err(Reject::Invalid(text.to_owned()));
        }
        if deadline <= now {
            return Err(Reject::InvalidTimeLimit("--deadline has passed; give a later one".to_owned()));
        }
        if shortest.end(now) > deadline {
            return Err(Reject::InvalidTimeLimit(format!(
                "a job of {shortest} that starts now ends after its deadline; ask {} ≤ {}",
                spec.least_time_option(),
                TimeLimit::Seconds(deadline.since(now))
            )));
        }
    }
    let mut warnings = allowed(cluster, feasibility, spec)?;
    warnings.extend(companion(cluster, spec));
    Ok(warnings)
}

/// Judges if the cluster can ever hold a job. Returns warnings for the user, none while the answer is open. A
/// job over a limit that an administrator may raise is accepted and waits; for limits of partitions, only if
/// `enforce_part_limits` allows it.
fn allowed(cluster: &Cluster, feasibility: &Feasibility, spec: &JobSpec) -> Result<Vec<String>, Reject> {
    let enforce = cluster.policy().jobs.enforce_part_limits;
    if enforce == EnforcePartLimits::All && spec.partitions.len() > 1 {
        for partition in &spec.partitions {
            let alone = JobSpec { partitions: [Arc::clone(partition)].into(), ..spec.clone() };
            allowed(cluster, feasibility, &alone)?;
        }
    }
    let refused = match feasibility.check(cluster, spec) {
        None => return Ok(Vec::new()),
        Some(Ok(warnings)) => return Ok(warnings),
        Some(Err(refused)) => refused,
    };
    match refused.waits {
        Some(reason) if enforce == EnforcePartLimits::No || !is_partitions(reason) => {
            Ok(vec![format!("the job waits ({reason}): {}", refused.message)])
        }
        Some(_) | None => Err(refusal(refused)),
    }
}

/// True if a job with this reason waits for a limit of its partition.
fn is_partitions(reason: Reason) -> bool {
    reason != Reason::QOSMaxWallDurationPerJobLimit
}

/// A warning if the job named by `--gather-with` does not exist or has ended.
fn companion(cluster: &Cluster, spec: &JobSpec) -> Option<String> {
    let id = spec.fabric.as_ref()?.gather_with?;
    let why = match cluster.job(id) {
        None => format!("there is no job {id}"),
        Some(job) if matches!(job.phase, Phase::Ended(_)) => format!("job {id} has ended"),
        Some(_) => return None,
    };
    Some(format!("--gather-with={id} has no effect: {why}"))
}

/// Refuses `--het-gather` unless it is given with the first component of a het job, and `--array` for a het
/// job.
fn het(spec: &JobSpec) -> Result<(), Reject> {
    let gathers = spec.fabric.as_ref().is_some_and(|fabric| fabric.het_gather.is_some());
    let problem = match &spec.het {
        None if gathers => {
            "--het-gather: the job has one component; part the components with `:`, or use --gather"
        }
        Some(het) if gathers && het.offset > 0 => {
            "--het-gather goes with the first component, for all of them"
        }
        Some(_) if spec.array.is_some() => "--array: a het job cannot be an array; submit it several times",
        None | Some(_) => return Ok(()),
    };
    Err(Reject::Invalid(problem.to_owned()))
}

fn refusal(refusal: feasible::Refusal) -> Reject {
    let feasible::Refusal { kind, message, works: _, waits: _ } = refusal;
    match kind {
        feasible::RefusalKind::NodeCount | feasible::RefusalKind::PartitionSize => {
            Reject::InvalidNodeCount(message)
        }
        feasible::RefusalKind::TimeLimit => Reject::InvalidTimeLimit(message),
        feasible::RefusalKind::TimeMin => Reject::InvalidTimeMin(message),
        feasible::RefusalKind::NodeConfig => Reject::NodeConfigUnavailable(message),
        feasible::RefusalKind::Features => Reject::InvalidFeature(message),
        feasible::RefusalKind::Prefer => Reject::InvalidPrefer(message),
        feasible::RefusalKind::Gres => Reject::InvalidGres(message),
        feasible::RefusalKind::License => Reject::InvalidLicense(message),
        feasible::RefusalKind::Topology => Reject::TopologyUnavailable(message),
        feasible::RefusalKind::NodeName => Reject::InvalidNodeName(message),
        feasible::RefusalKind::Qos => Reject::InvalidQos(message),
        feasible::RefusalKind::Account => Reject::InvalidAccount(message),
    }
}

/// The partitions that the request names, or the refusal of one that does not exist.
pub(super) fn partitions<'a>(cluster: &'a Cluster, spec: &JobSpec) -> Result<Vec<&'a Partition>, Reject> {
    let find = |name: &Arc<str>| cluster.partition(name).ok_or_else(|| partition::unknown(cluster, name));
    spec.partitions.iter().map(find).collect()
}

/// Replaces partitions that accept no jobs by their alternates.
fn stand_in(cluster: &Cluster, spec: &mut JobSpec) {
    let alternate = |name: &Arc<str>| -> Option<Arc<str>> {
        let partition = cluster.partition(name).filter(|partition| !partition.queues())?;
        let other = cluster.partition(partition.config.alternate.as_deref()?)?;
        other.queues().then(|| Arc::clone(other.name()))
    };
    if spec.partitions.iter().any(|name| alternate(name).is_some()) {
        let mut names: Vec<Arc<str>> = Vec::new();
        for name in &spec.partitions {
            let name = alternate(name).unwrap_or_else(|| Arc::clone(name));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        spec.partitions = names.into();
    }
}

/// The longest time limit of a job with `--time-min`: the least of its QOS's and its partitions' limits, of
/// those that allow at least `least`.
fn longest(partitions: &[&Partition], wall: TimeLimit, least: TimeLimit) -> TimeLimit {
    let most = partitions.iter().map(|partition| partition.config.max_time).chain([wall]);
    most.filter(|most| *most >= least).min().unwrap_or(TimeLimit::Unlimited)
}

/// The time limit of a job that requests none: the shortest default of its partitions, so that it fits all of
/// them.
pub(super) fn default_time(partitions: &[&Partition]) -> TimeLimit {
    let default = |partition: &&Partition| partition.config.default_time.unwrap_or(partition.config.max_time);
    partitions.iter().map(default).min().unwrap_or(TimeLimit::Unlimited)
}

fn admit(partition: &Partition, caller: &Caller, spec: &JobSpec) -> Result<(), Reject> {
    let config = &partition.config;
    if !partition.queues() {
        return Err(Reject::PartitionUnavailable(Arc::clone(&config.name)));
    }
    let root = spec.owner.uid == 0;
    if (config.root_only && !root) || (config.disable_root_jobs && root) {
        return Err(Reject::PartitionForbidden(Arc::clone(&config.name)));
    }
    if !config.allow_groups.is_empty() && !caller.is_in_any(&config.allow_groups) {
        return Err(Reject::PartitionForbidden(Arc::clone(&config.name)));
    }
    let host = spec.extra.as_ref().map_or("", |extra| &extra.submit_host);
    if !config.alloc_nodes.is_empty() && !config.alloc_nodes.iter().any(|node| **node == *host) {
        return Err(Reject::Invalid(format!(
            "Required partition not available (inactive or drain): {} takes no jobs from host {host}, only from {}",
            config.name,
            config.alloc_nodes.join(", ")
        )));
    }
    if config.req_resv && spec.reservations().next().is_none() {
        return Err(Reject::ReservationForbidden(
            format!("partition {} is for reservations; name one", config.name).into(),
        ));
    }
    if let (Some(most), Some(MemoryNeed::PerNode(asked))) = (config.max_mem_per_node, spec.shape.memory)
        && (asked > most || asked == 0)
    {
        let asked = if asked == 0 { "all memory".to_owned() } else { format!("{asked} MiB") };
        return Err(Reject::NodeConfigUnavailable(format!(
            "{asked} on each node: partition {} allows {most} MiB; ask ≤ {most}",
            config.name
        )));
    }
    Ok(())
}

/// Removes jobs that neither the cluster nor accounting knows from the dependency. As in Slurm, a condition
/// on them counts as satisfied. Returns a warning for the user.
pub(super) fn without_unknown(cluster: &Cluster, spec: &mut JobSpec) -> Option<String> {
    let gone = gone_of(spec);
    let is_known = |on: &DependencyJob<JobId>| {
        gone.contains(&about(on)) || cluster.job(on.job).is_some() || cluster.jobs().array(on.job).is_some()
    };
    let dependency = spec.dependency.as_deref()?;
    if dependency.terms.iter().flat_map(|term| &term.jobs).all(is_known) {
        return None;
    }
    let mut dependency = dependency.clone();
    let mut unknown = Vec::new();
    dependency.terms.retain_mut(|term| {
        let named = term.jobs.len();
        unknown.extend(term.jobs.extract_if(.., |on| !is_known(on)).map(|other| other.job.to_string()));
        named == 0 || !term.jobs.is_empty()
    });
    let is_over = dependency.terms.is_empty() || dependency.join == Join::Any;
    spec.dependency = (!is_over).then(|| Box::new(dependency));
    Some(format!(
        "--dependency: there is no job {}; what is said of it counts as fulfilled",
        unknown.join(", ")
    ))
}

/// Refuses a dependency on jobs or tasks that do not exist, and too many terms for one user or one job.
pub(super) fn dependency(cluster: &Cluster, spec: &JobSpec) -> Result<(), Reject> {
    let Some(dependency) = spec.dependency.as_deref() else { return Ok(()) };
    let known = cluster.jobs().terms_of(spec.owner.uid);
    let terms: usize = dependency.terms.iter().map(|term| term.jobs.len().max(1)).sum();
    if known + terms > MOST_TERMS {
        return Err(Reject::Dependency(format!(
            "it names {terms} jobs, and the other jobs of {} that wait name {known}; together they may name \
             {MOST_TERMS}: name an array in place of its tasks, or ask again when fewer wait",
            spec.owner.user
        )));
    }
    let gone = gone_of(spec);
    for term in dependency.terms.iter().filter(|term| term.kind != DependencyKind::Singleton) {
        for on in &term.jobs {
            if !gone.contains(&about(on)) {
                named(cluster, on).map_err(Reject::Dependency)?;
            }
            if cluster.jobs().namers(on.job) >= MOST_WAITING {
                return Err(Reject::Dependency(format!(
                    "{MOST_WAITING} jobs wait for job {} already, and no more may; submit an array, whose tasks wait \
                     as one",
                    on.job
                )));
            }
            if term.kind == DependencyKind::AfterCorr && on.task.is_none() {
                counterparts(cluster, spec, on.job).map_err(Reject::Dependency)?;
            }
        }
    }
    Ok(())
}

/// The jobs and tasks of a dependency that had left memory when the dependency was made.
fn gone_of(spec: &JobSpec) -> BTreeSet<(JobId, Option<ArrayTaskId>)> {
    let gone = spec.extra.iter().flat_map(|extra| &extra.gone);
    gone.map(|gone| (gone.job, gone.task)).collect()
}

/// The job, and the task if one is named, that an item of a dependency refers to.
fn about(on: &DependencyJob<JobId>) -> (JobId, Option<ArrayTaskId>) {
    let task = match on.task {
        Some(TaskRef::One(task)) => Some(ArrayTaskId(task)),
        Some(TaskRef::All) | None => None,
    };
    (on.job, task)
}

/// Refuses an item of a dependency that refers to a job or task that does not exist.
fn named(cluster: &Cluster, on: &DependencyJob<JobId>) -> Result<(), String> {
    let (jobs, id) = (cluster.jobs(), on.job);
    match (on.task, jobs.array(id)) {
        (None, None) if jobs.get(id).is_none() => Err(format!("there is no job {id}")),
        (Some(_), None) => Err(format!("there is no job array {id}; for a job without tasks write {id}")),
        (Some(TaskRef::One(task)), Some(array)) => {
            let ended = array.ended();
            let has_ended = ended.completed.contains(task) || ended.failed.contains(task);
            let known = has_ended || jobs.task(id, task).is_some();
            if known { Ok(()) } else { Err(format!("job array {id} has no task {task}")) }
        }
        (None, _) | (Some(TaskRef::All), Some(_)) => Ok(()),
    }
}

/// Refuses tasks without a counterpart in another array, if both are arrays.
fn counterparts(cluster: &Cluster, spec: &JobSpec, other: JobId) -> Result<(), String> {
    let mut records = cluster.jobs().array(other).into_iter().flat_map(|array| array.records());
    let theirs = records.next().and_then(|id| cluster.job(id)?.spec.array.as_ref());
    let Some((mine, theirs)) = spec.array.as_ref().zip(theirs) else { return Ok(()) };
    let alone = mine.tasks.without(&theirs.tasks);
    match alone.is_empty() {
        true => Ok(()),
        false => {
            Err(format!("aftercorr: job array {other} has no task {alone}; its tasks are {}", theirs.tasks))
        }
    }
}
