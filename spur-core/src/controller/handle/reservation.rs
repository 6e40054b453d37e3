//! Reservations of nodes: creation, change, deletion, and release of the jobs that waited for them.

use std::sync::Arc;

use super::super::{Ctx, Reject, Reply};
use super::partition;
use crate::cluster::{Cluster, Event, Node};
use crate::id::{JobId, NodeId};
use crate::model::caller::Caller;
use crate::model::config::Private;
use crate::model::job::{Job, JobSpec};
use crate::model::phase::{Hold, Phase};
use crate::model::reservation::{Edit, Flag, Members, NodesAsk, PURGE_AFTER, Reservation, ReservationAsk};
use crate::sched::licensed;
use crate::sched::site::{self, Site};
use crate::text::time::{Time, TimeLimit};

/// Seconds that Slurm takes for an infinite duration.
const YEAR: u64 = 365 * 86_400;
/// Seconds by which the start of a new reservation may lie in the past: `now` is evaluated by the client, a
/// moment earlier.
const JUST_NOW: u64 = 300;

/// A reservation as it will be.
pub(super) struct Decision(Arc<Reservation>);

pub(super) fn check_new(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    ask: &ReservationAsk,
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let missing = |what: &str| Reject::Invalid(format!("{what} must be given.  No reservation created."));
    let start = ask.start.ok_or_else(|| missing("A start time"))?;
    let end = end(ask, start)?.ok_or_else(|| missing("An end time or duration"))?;
    if start + JUST_NOW < now {
        return Err(Reject::InvalidTime("StartTime lies in the past".to_owned()));
    }
    let (users, accounts) = (first_members(ask.users.as_ref())?, first_members(ask.accounts.as_ref())?);
    if users.is_empty() && accounts.is_empty() {
        return Err(missing("Either Users and/or Accounts"));
    }
    let mut made = Reservation {
        name: name(cluster, caller, ask, &users, &accounts)?,
        start,
        end,
        lead: None,
        ends_then: ask.end.is_some(),
        nodes: Box::default(),
        licenses: ask.licenses.clone().unwrap_or_default(),
        partition: ask.partition.clone(),
        features: ask.features.as_ref().and_then(Option::as_ref).map(|wanted| wanted.to_string().into()),
        users,
        accounts,
        flags: only(ask.flags.as_ref())?,
        comment: ask.comment.clone(),
        utc_offset: ask.utc_offset,
        purge_after: ask.purge_after.unwrap_or(PURGE_AFTER),
        idle_since: None,
    };
    if ask.skip {
        return Err(Reject::Invalid(
            "Skip goes on to the next window of a reservation that there is".to_owned(),
        ));
    }
    place(cluster, now, &mut made, ask)?;
    judge(cluster, now, &made)?;
    Ok(decided(now, made))
}

/// The reservation to store; floating ones are stored relative to `now`.
fn decided(now: Time, made: Reservation) -> Decision {
    Decision(Arc::new(if made.has(Flag::TimeFloat) { made.floating(now) } else { made }))
}

pub(super) fn enact_new(ctx: &mut Ctx<'_>, Decision(reservation): Decision) -> Reply {
    let name = Arc::clone(&reservation.name);
    ctx.emit(Event::ReservationCreated { reservation });
    Reply::Reserved { name }
}

pub(super) fn check_changed(
    cluster: &Cluster,
    now: Time,
    caller: &Caller,
    ask: &ReservationAsk,
) -> Result<Decision, Reject> {
    if !caller.is_operator() {
        return Err(Reject::AccessDenied);
    }
    let known = named(cluster, ask.name.as_deref().unwrap_or_default())?;
    if ask.skip {
        return skip(cluster, ask, known);
    }
    let mut made = known.anchored(now);
    change_times(&mut made, now, ask)?;
    made.partition = ask.partition.clone().or(made.partition);
    made.comment = ask.comment.clone().or(made.comment);
    if let Some(features) = &ask.features {
        made.features = features.as_ref().map(|wanted| wanted.to_string().into());
    }
    made.licenses = ask.licenses.clone().unwrap_or(made.licenses);
    if let Some(edit) = &ask.users {
        change_members(&mut made.users, edit)?;
    }
    if let Some(edit) = &ask.accounts {
        change_members(&mut made.accounts, edit)?;
    }
    if made.users.is_empty() && made.accounts.is_empty() {
        return Err(Reject::InvalidReservation("Users or Accounts have to say who may use it".to_owned()));
    }
    if let Some(edit) = &ask.flags {
        change_flags(&mut made.flags, edit);
    }
    made.purge_after = ask.purge_after.unwrap_or(made.purge_after);
    made.idle_since = made.idle_since.filter(|_| made.has(Flag::PurgeComp));
    match &ask.node_count {
        Some(counts) if ask.nodes.is_none() => {
            let all = counts.iter().fold(0, |sum: u32, count| sum.saturating_add(*count));
            resize(cluster, now, &mut made, all)?;
        }
        _ if ask.nodes.is_some() => place(cluster, now, &mut made, ask)?,
        _ => {}
    }
    judge(cluster, now, &made)?;
    Ok(decided(now, made))
}

/// Applies a new start, end or duration.
fn change_times(made: &mut Reservation, now: Time, ask: &ReservationAsk) -> Result<(), Reject> {
    if let Some(start) = ask.start {
        if made.is_active(now) {
            return Err(Reject::ReservationBegun);
        }
        if !made.ends_then {
            made.end = start + made.end.since(made.start);
        }
        made.start = start;
    }
    match (ask.end, &ask.duration) {
        (Some(_), Some(Edit::Add(_) | Edit::Remove(_))) => {
            return Err(Reject::InvalidTime("give EndTime or change the Duration, not both".to_owned()));
        }
        (_, Some(Edit::Add(more))) => made.end = made.end + seconds(*more),
        (_, Some(Edit::Remove(less))) => {
            let lasts = made.end.since(made.start);
            made.end = made.start + lasts.saturating_sub(seconds(*less));
        }
        (end_asked, duration) => {
            made.ends_then = end_asked.is_some() || (made.ends_then && duration.is_none());
            made.end = end(ask, made.start)?.unwrap_or(made.end);
        }
    }
    Ok(())
}

pub(super) fn enact_changed(ctx: &mut Ctx<'_>, Decision(reservation): Decision) -> Reply {
    ctx.emit(Event::ReservationUpdated { reservation });
    Reply::Done
}

pub(super) fn check_gone(cluster: &Cluster, caller: &Caller, name: &str) -> Result<Decision, Reject> {
    let known = named(cluster, name)?;
    let may = known.has(Flag::UserDelete) && known.admits(&caller.owner, None);
    if !caller.is_operator() && !may {
        return Err(Reject::AccessDenied);
    }
    if let Some(job) = cluster.running_in(name).next() {
        return Err(Reject::ReservationBusy(format!("job {} runs in {name}", job.id)));
    }
    Ok(Decision(Arc::clone(known)))
}

pub(super) fn enact_gone(ctx: &mut Ctx<'_>, Decision(reservation): Decision) -> Reply {
    delete(ctx, &reservation);
    Reply::Done
}

/// Time at which the next reservation ends, by its end or because it is idle.
pub(in super::super) fn next_end(cluster: &Cluster) -> Option<Time> {
    let comes = cluster.reservations().filter(|reservation| reservation.lead.is_none());
    comes
        .filter(|reservation| !awaits_report(cluster, reservation))
        .map(|reservation| over_at(reservation))
        .min()
}

/// True if a job in the reservation may have ended while no controller ran. The reservation stays until that
/// is known.
fn awaits_report(cluster: &Cluster, reservation: &Reservation) -> bool {
    cluster.awaits_reports() && cluster.running_in(&reservation.name).any(|job| cluster.awaits_report(job.id))
}

fn over_at(reservation: &Reservation) -> Time {
    reservation.purged_at().map_or(reservation.end, |purged| purged.min(reservation.end))
}

/// Ends or moves on the reservations that are over or idle.
pub(in super::super) fn expire(ctx: &mut Ctx<'_>, now: Time) {
    let over = ctx.cluster().reservations().filter(|reservation| over_at(reservation) <= now);
    let over = over.filter(|reservation| !awaits_report(ctx.cluster(), reservation));
    for reservation in over.cloned().collect::<Vec<_>>() {
        let idle = reservation.end > now;
        match if idle { reservation.moved() } else { reservation.moved_past(now) } {
            Some(moved) => ctx.emit(Event::ReservationUpdated { reservation: Arc::new(moved) }),
            None => delete(ctx, &reservation),
        }
    }
}

/// Deletes a reservation. Pending jobs that name no other one are held, or wait on without it. A job that
/// runs without being bound to it does the same if it is requeued.
fn delete(ctx: &mut Ctx<'_>, reservation: &Reservation) {
    ctx.emit(Event::ReservationDeleted { name: Arc::clone(&reservation.name) });
    let holds = !reservation.has(Flag::NoHoldJobsAfter);
    let jobs = ctx.cluster().jobs();
    let runs = |job: &&Job| matches!(job.phase, Phase::Running { .. } | Phase::Suspended(_));
    let active = jobs.active().filter(|job| !holds && runs(job));
    let waits = |job: &&Job| job.spec.reservations().any(|name| *name == *reservation.name);
    let concerned: Vec<JobId> = jobs.pending().chain(active).filter(waits).map(|job| job.id).collect();
    for job in concerned {
        if forget_missing(ctx, job) && holds {
            hold(ctx, job);
        }
    }
}

/// Holds a requeued job whose reservation was deleted while it ran.
pub(in super::super) fn requeued(ctx: &mut Ctx<'_>, job: JobId) {
    if forget_missing(ctx, job) {
        hold(ctx, job);
    }
}

fn hold(ctx: &mut Ctx<'_>, job: JobId) {
    let phase = ctx.cluster().job(job).map(|job| &job.phase);
    if matches!(phase, Some(Phase::Pending(pending)) if pending.hold.is_none()) {
        ctx.emit(Event::JobHeld { job, by: Hold::Reservation });
    }
}

/// Removes missing reservations from a job's request. Returns true if the job named some and has none left.
pub(in super::super) fn forget_missing(ctx: &mut Ctx<'_>, job: JobId) -> bool {
    let Some(found) = ctx.cluster().job(job) else { return false };
    let is_there = |name: &&str| ctx.cluster().reservation(name).is_some();
    if found.spec.reservations().all(|name| is_there(&name)) {
        return false;
    }
    let left: Vec<&str> = found.spec.reservations().filter(is_there).collect();
    let is_last = left.is_empty();
    let mut spec = JobSpec::clone(&found.spec);
    spec.extra.get_or_insert_default().reservation = (!is_last).then(|| left.join(",").into());
    ctx.emit(Event::JobUpdated { job, spec: Arc::new(spec) });
    is_last
}

/// The reservation of this name, or the refusal.
pub(super) fn named<'a>(cluster: &'a Cluster, name: &str) -> Result<&'a Arc<Reservation>, Reject> {
    cluster.reservation(name).ok_or_else(|| {
        let known: Vec<&str> = cluster.reservations().map(|known| &*known.name).collect();
        if cluster.policy().jobs.private_data.contains(&Private::Reservations) {
            return Reject::InvalidReservation(format!("there is no reservation {name}"));
        }
        let known = if known.is_empty() {
            "there are none".to_owned()
        } else {
            format!("there are {}", known.join(", "))
        };
        Reject::InvalidReservation(format!("there is no reservation {name}; {known}"))
    })
}

/// The reservation of this name, if the job may use it. A hidden one is refused as if there were none.
pub(super) fn open_to<'a>(
    cluster: &'a Cluster,
    caller: &Caller,
    spec: &JobSpec,
    name: &str,
) -> Result<&'a Arc<Reservation>, Reject> {
    let known = named(cluster, name)?;
    if known.admits(&spec.owner, spec.account.as_deref()) {
        return Ok(known);
    }
    let hidden = cluster.policy().jobs.hides(Private::Reservations, caller);
    Err(match hidden && !known.users.admit(Some(&caller.owner.user)) {
        true => Reject::InvalidReservation(format!("there is no reservation {name}")),
        false => Reject::ReservationForbidden(Arc::clone(&known.name)),
    })
}

fn seconds(duration: TimeLimit) -> u64 {
    duration.seconds().unwrap_or(YEAR)
}

/// The requested end, from end time or duration; `None` if neither is given.
fn end(ask: &ReservationAsk, start: Time) -> Result<Option<Time>, Reject> {
    let duration = ask.duration.as_ref().map(set).transpose()?;
    let by_duration = duration.map(|duration| start + seconds(duration));
    match (ask.end, by_duration) {
        (Some(end), Some(other)) if end != other => {
            Err(Reject::InvalidTime("EndTime and Duration say different things; give one of them".to_owned()))
        }
        (end, by_duration) => Ok(end.or(by_duration)),
    }
}

/// The value for a new reservation, which has nothing to add to or remove from.
fn only<T: Clone + Default>(edit: Option<&Edit<T>>) -> Result<T, Reject> {
    edit.map_or_else(|| Ok(T::default()), set)
}

fn set<T: Clone>(edit: &Edit<T>) -> Result<T, Reject> {
    match edit {
        Edit::Set(value) => Ok(value.clone()),
        Edit::Add(_) | Edit::Remove(_) => {
            Err(Reject::Invalid("+= and -= change a reservation that there is; write =".to_owned()))
        }
    }
}

/// The members of a new reservation; `-=` excludes them.
fn first_members(edit: Option<&Edit<Members>>) -> Result<Members, Reject> {
    match edit {
        Some(Edit::Remove(members)) => Ok(Members { except: true, ..members.clone() }),
        _ => only(edit),
    }
}

/// Moves a repeated reservation to its next window.
fn skip(cluster: &Cluster, ask: &ReservationAsk, known: &Reservation) -> Result<Decision, Reject> {
    let alone = ReservationAsk {
        name: ask.name.clone(),
        skip: true,
        utc_offset: ask.utc_offset,
        ..ReservationAsk::default()
    };
    if *ask != alone {
        return Err(Reject::Invalid("Skip goes alone; update the rest before or after it".to_owned()));
    }
    if let Some(job) = cluster.running_in(&known.name).next() {
        return Err(Reject::ReservationBusy(format!("job {} runs in {}", job.id, known.name)));
    }
    let moved = known.moved().ok_or_else(|| {
        let text = format!("{} does not repeat; delete it, or update its StartTime", known.name);
        Reject::InvalidReservation(text)
    })?;
    Ok(Decision(Arc::new(moved)))
}

/// Changes the number of nodes: adds nodes like those that the reservation has, or removes nodes: first
/// unavailable ones, then idle ones.
fn resize(cluster: &Cluster, now: Time, made: &mut Reservation, count: u32) -> Result<(), Reject> {
    if made.has(Flag::PartNodes) {
        return Err(Reject::Invalid("with PART_NODES it has all nodes of its partition".to_owned()));
    }
    made.flags.retain(|flag| *flag != Flag::AllNodes);
    let mut nodes = made.nodes.to_vec();
    let wanted = usize::try_from(count).unwrap_or(usize::MAX);
    let more = u32::try_from(wanted.saturating_sub(nodes.len())).unwrap_or(u32::MAX);
    if more > 0 {
        nodes.extend(site::more(cluster, now, made, more).map_err(Reject::NodesBusy)?);
    }
    let use_of = |id: &NodeId| {
        let node = cluster.node(*id);
        (!node.is_some_and(Node::available), node.is_some_and(Node::idle))
    };
    nodes.sort_by_key(|id| (use_of(id), *id));
    nodes.truncate(wanted);
    nodes.sort_unstable();
    made.nodes = nodes.into();
    Ok(())
}

/// The requested name, or one made from an account or user and the next number.
fn name(
    cluster: &Cluster,
    caller: &Caller,
    ask: &ReservationAsk,
    users: &Members,
    accounts: &Members,
) -> Result<Arc<str>, Reject> {
    if let Some(name) = &ask.name {
        return match cluster.reservation(name) {
            Some(_) => Err(Reject::InvalidReservation(format!("the name {name} is in use"))),
            None => Ok(Arc::clone(name)),
        };
    }
    let whose = accounts.names.first().or(users.names.first()).unwrap_or(&caller.owner.user);
    let mut names = (cluster.next_reservation()..).map(|number| format!("{whose}_{number}"));
    Ok(names.find(|name| cluster.reservation(name).is_none()).unwrap_or_default().into())
}

fn change_members(members: &mut Members, edit: &Edit<Members>) -> Result<(), Reject> {
    match edit {
        Edit::Set(new) => *members = new.clone(),
        Edit::Add(more) | Edit::Remove(more) if more.except != members.except && !members.is_empty() => {
            return Err(Reject::InvalidReservation(
                "name who may, or with - who may not, not both".to_owned(),
            ));
        }
        Edit::Add(more) => {
            let new = more.names.iter().filter(|name| !members.names.contains(name)).cloned();
            let new: Vec<Arc<str>> = new.collect();
            members.except = more.except;
            members.names.extend(new);
        }
        Edit::Remove(less) => members.names.retain(|name| !less.names.contains(name)),
    }
    Ok(())
}

/// Changes the flags. As in Slurm, `=` adds like `+=`.
fn change_flags(flags: &mut Vec<Flag>, edit: &Edit<Vec<Flag>>) {
    match edit {
        Edit::Set(more) | Edit::Add(more) => flags.extend(more),
        Edit::Remove(less) => flags.retain(|flag| !less.contains(flag)),
    }
    flags.sort_unstable();
    flags.dedup();
}

/// True if a reservation needs no nodes.
fn is_of_licenses(made: &Reservation) -> bool {
    made.has(Flag::AnyNodes) && !made.licenses.is_empty()
}

/// Determines the nodes of a reservation from the request.
fn place(cluster: &Cluster, now: Time, made: &mut Reservation, ask: &ReservationAsk) -> Result<(), Reject> {
    let partition = match &made.partition {
        Some(name) => Some(cluster.partition(name).ok_or_else(|| partition::unknown(cluster, name))?),
        None => None,
    };
    let of_list = |asked: &NodesAsk| match asked {
        NodesAsk::All => {
            let all = cluster.nodes().iter().filter(|node| node.configured).map(|node| node.id);
            Ok(partition.map_or_else(|| all.collect(), |partition| partition.nodes.clone()))
        }
        NodesAsk::These(list) => site::nodes_named(cluster, list).map_err(Reject::InvalidNodeName),
    };
    let mut nodes: Vec<NodeId> = match (&ask.nodes, &ask.node_count) {
        (Some(_), Some(_)) => {
            return Err(Reject::Invalid("Nodes and NodeCnt exclude each other; give one of them".to_owned()));
        }
        (None, None) if made.has(Flag::PartNodes) => of_list(&NodesAsk::All)?,
        (None, None) if is_of_licenses(made) => Vec::new(),
        (None, None) if !made.licenses.is_empty() => {
            let text = "Licenses alone are reserved with Flags=LICENSE_ONLY; add that, or Nodes= or NodeCnt=";
            return Err(Reject::InvalidNodeName(text.to_owned()));
        }
        (None, None) => {
            let text = "Nodes, NodeCnt or Licenses must be specified.  No reservation created.";
            return Err(Reject::Invalid(text.to_owned()));
        }
        (Some(Edit::Set(list)), None) => of_list(list)?,
        (Some(Edit::Add(list)), None) => made.nodes.iter().copied().chain(of_list(list)?).collect(),
        (Some(Edit::Remove(list)), None) => {
            let gone = of_list(list)?;
            made.nodes.iter().copied().filter(|node| !gone.contains(node)).collect()
        }
        (None, Some(counts)) => {
            let partition = partition.or(cluster.default_partition()).ok_or(Reject::NoDefaultPartition)?;
            made.partition = Some(Arc::clone(partition.name()));
            let features = ask.features.as_ref().and_then(Option::as_ref);
            let partition = partition.name();
            let groups = counts.iter().map(|count| Site { count: *count, has: 0, partition, features });
            site::choose(cluster, now, made, groups).map_err(Reject::NodesBusy)?
        }
    };
    nodes.sort_unstable();
    nodes.dedup();
    made.nodes = nodes.into();
    let all = matches!(ask.nodes, Some(Edit::Set(NodesAsk::All)));
    let chosen = [Flag::SpecNodes, Flag::AllNodes];
    made.flags.retain(|flag| !chosen.contains(flag));
    if made.has(Flag::PartNodes) && (made.partition.is_none() || !(all || ask.nodes.is_none())) {
        return Err(Reject::Invalid("PART_NODES goes with PartitionName= and Nodes=ALL".to_owned()));
    }
    if ask.nodes.is_some() && !made.nodes.is_empty() {
        made.flags.extend(if all { &chosen[..] } else { &chosen[..1] });
    }
    made.flags.sort_unstable();
    Ok(())
}

/// Refuses a new or changed reservation that contradicts itself, another one, or running jobs.
fn judge(cluster: &Cluster, now: Time, made: &Reservation) -> Result<(), Reject> {
    if made.end <= made.start || made.end <= now {
        return Err(Reject::InvalidTime("the end lies before the start, or in the past".to_owned()));
    }
    if made.nodes.is_empty() && !is_of_licenses(made) {
        let text = "a reservation has at least one node, or Licenses= and the flag ANY_NODES";
        return Err(Reject::InvalidNodeName(text.to_owned()));
    }
    let often = [Flag::Hourly, Flag::Daily, Flag::Weekday, Flag::Weekend, Flag::Weekly];
    if often.iter().filter(|flag| made.has(**flag)).count() > 1 {
        return Err(Reject::Invalid("HOURLY, DAILY, WEEKDAY, WEEKEND, WEEKLY: give one of them".to_owned()));
    }
    if made.has(Flag::TimeFloat) && (made.repeats() || made.has(Flag::PurgeComp)) {
        let text = "a reservation with TIME_FLOAT never begins: it goes with neither PURGE_COMP nor HOURLY, DAILY, \
                    WEEKDAY, WEEKEND, WEEKLY";
        return Err(Reject::Invalid(text.to_owned()));
    }
    if made.has(Flag::TimeFloat) && made.start <= now {
        return Err(Reject::InvalidTime(
            "with TIME_FLOAT the start lies ahead; StartTime=now+10minutes".to_owned(),
        ));
    }
    let replaces = [Flag::Replace, Flag::ReplaceDown];
    if let Some(flag) = replaces.into_iter().find(|flag| made.has(*flag)) {
        let stays = [Flag::SpecNodes, Flag::AllNodes, Flag::PartNodes, Flag::StaticAlloc];
        let names = stays.iter().any(|flag| made.has(*flag)) || made.nodes.is_empty();
        if names || replaces.iter().all(|flag| made.has(*flag)) {
            let name = flag.name();
            let text = format!(
                "{name} goes with NodeCnt=, and not with named nodes, STATIC_ALLOC or another of its kind"
            );
            return Err(Reject::Invalid(text));
        }
    }
    if made.next_window().is_some_and(|(start, _)| start < made.end) {
        return Err(Reject::InvalidTime("it would not be over when it comes again".to_owned()));
    }
    licensed::check(cluster, now, made).map_err(Reject::InvalidLicense)?;
    let before = cluster.reservation(&made.name);
    for node in &made.nodes {
        let shown = || cluster.node(*node).map(|node| node.name().to_string()).unwrap_or_default();
        if let Some(other) = site::others(cluster, now, made, *node) {
            return Err(Reject::ReservationOverlap(format!("{} is in {} then", shown(), other.name)));
        }
        let is_new =
            before.is_none_or(|before| !before.holds(*node) || made.start < before.anchored(now).start);
        if is_new
            && !made.has(Flag::IgnoreJobs)
            && let Some(job) = site::in_use(cluster, made, *node)
        {
            let what = format!("job {job} may still run on {} then; add Flags=IGNORE_JOBS", shown());
            return Err(Reject::NodesBusy(what));
        }
    }
    Ok(())
}
