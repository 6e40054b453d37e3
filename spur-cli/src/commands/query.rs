//! What the commands that ask and print have in common: whole lists from the controller, and the surroundings in
//! which they are shown.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::time::Duration;

use jiff::Timestamp;
use spur_core::text::ParseError;
use spur_core::text::hostlist::{HostExpr, HostList};
use spur_core::text::jobid::JobRef;
use spur_proto::client::{CallError, Connection, Controller};
use spur_proto::v1::{
    AccountingRow, ExpandHostlistRequest, Job, JobFilter, KeyValue, License, ListAccountingRequest,
    ListJobsRequest, ListLicensesRequest, ListNodesRequest, ListPartitionsRequest, ListPrioritiesRequest,
    ListReservationsRequest, ListStepsRequest, ListTopologyRequest, Node, Partition, PingRequest,
    PriorityFactors, Reservation, ShowConfigRequest, Step, Topology,
};
use tokio::time::MissedTickBehavior;

use crate::error::Failure;
use crate::format::fields::job;
use crate::format::{Asker, Show, Times};
use crate::session::{Session, whoami};
use crate::zone;

/// What a command line asks for.
pub enum Asked<Q> {
    /// Only this text, which is printed and that is all.
    Show(String),
    /// To do this.
    Run(Q),
}

/// The surroundings of this process: its zone, its clock, `SLURM_BITSTR_LEN`, `SLURM_TIME_FORMAT`, `SLURM_JSON`.
///
/// # Errors
/// A `SLURM_BITSTR_LEN` that is no number.
pub fn show(env: &dyn Fn(&str) -> Option<String>) -> Result<Show, Failure> {
    let mut show = Show::new(zone::local(), Timestamp::now().as_second());
    if let Some(text) = env("SLURM_BITSTR_LEN") {
        let wrong = |_| {
            let text = format!("SLURM_BITSTR_LEN: `{text}` is not a number of characters; 0 is no limit");
            Failure::new(text)
        };
        show.array_width = text.parse().map_err(wrong)?;
    }
    show.compact = env("SLURM_JSON").is_some_and(|form| form == "compact");
    show.times = match env("SLURM_TIME_FORMAT").as_deref() {
        None | Some("" | "standard") => Times::Standard,
        Some("relative") => Times::Relative,
        Some(format) => Times::Format(format.to_owned()),
    };
    Ok(show)
}

/// The items of a list with commas; empty ones do not count.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// The jobs of a list as users write them: `12`, `12_3`, `12_[1-4]`; none of an empty one.
///
/// # Errors
/// Says that the list is none.
pub fn job_ids(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let jobs = JobRef::<u32>::parse_list(text).map_err(|_| format!("Invalid job id: {text}"))?;
    Ok(jobs.iter().map(JobRef::to_string).collect())
}

/// Refuses words that no option takes.
///
/// # Errors
/// The first of them.
pub fn no_operands(mut operands: impl Iterator<Item = String>) -> Result<(), Failure> {
    operands.next().map_or(Ok(()), |word| Err(Failure::new(format!("Unrecognized option: {word}"))))
}

/// Those of `all` that have one of these names, in the order of the names; all, where none is given. Beside them what
/// there is to say of each name that nothing of the `kind` has, in Slurm's words.
pub fn named<T>(
    all: Vec<T>,
    names: &[String],
    kind: &str,
    name_of: impl Fn(&T) -> &String,
) -> (Vec<T>, Vec<String>) {
    if names.is_empty() {
        return (all, Vec::new());
    }
    let mut there: BTreeMap<String, T> = all.into_iter().map(|one| (name_of(&one).clone(), one)).collect();
    let (mut found, mut complaints) = (Vec::new(), Vec::new());
    let mut seen = BTreeSet::new();
    for name in names.iter().filter(|name| seen.insert(*name)) {
        match there.remove(name) {
            Some(one) => found.push(one),
            None => complaints.push(format!("{kind} {name} not found")),
        }
    }
    (found, complaints)
}

/// What there is to say of the jobs of a list of which none of those found is one, or a part of one.
///
/// # Errors
/// A reference that cannot be read.
pub fn unknown_jobs(jobs: &[Job], wanted: &[String]) -> Result<Vec<String>, ParseError> {
    let mut complaints = Vec::new();
    for written in wanted {
        let wanted: JobRef = written.parse()?;
        if !jobs.iter().any(|found| job::is_meant(found, &wanted)) {
            complaints.push(format!("Invalid job id specified for job {written}"));
        }
    }
    match (&complaints[..], wanted) {
        ([_], [_]) => Ok(vec!["Invalid job id specified".to_owned()]),
        _ => Ok(complaints),
    }
}

/// The jobs that `filter` admits.
///
/// # Errors
/// A refusal, or no answer.
pub async fn jobs(connection: &mut Connection, filter: JobFilter) -> Result<Vec<Job>, CallError> {
    listed(connection, ListJobsRequest { filter: Some(filter), ..ListJobsRequest::default() }).await
}

/// The same, with what each has of its nodes if `details` are wanted.
///
/// # Errors
/// A refusal, or no answer.
pub async fn jobs_with(
    connection: &mut Connection,
    filter: JobFilter,
    details: bool,
) -> Result<Vec<Job>, CallError> {
    let filter = Some(filter);
    listed(connection, ListJobsRequest { filter, details, ..ListJobsRequest::default() }).await
}

/// The same, with when and where each of the first that wait will start, also where no plan has a start for it.
///
/// # Errors
/// A refusal, or no answer.
pub async fn jobs_with_starts(connection: &mut Connection, filter: JobFilter) -> Result<Vec<Job>, CallError> {
    let filter = Some(filter);
    listed(connection, ListJobsRequest { filter, starts: true, ..ListJobsRequest::default() }).await
}

async fn listed(connection: &mut Connection, request: ListJobsRequest) -> Result<Vec<Job>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_jobs(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.jobs)))
}

/// What the messages of a list hold, in their order. Room for it is made once: jobs are large, and there may be many.
fn joined<T>(messages: impl Iterator<Item = Vec<T>>) -> Vec<T> {
    let parts: Vec<Vec<T>> = messages.collect();
    let mut all = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    parts.into_iter().for_each(|part| all.extend(part));
    all
}

/// Those of some users whom neither this host knows nor the controller, by any job of theirs.
///
/// # Errors
/// A refusal, or no answer.
pub async fn unknown_users(session: &mut Session, users: &[String]) -> anyhow::Result<Vec<String>> {
    let mut unknown = Vec::new();
    for user in users {
        if session.knows_user(user) {
            continue;
        }
        let (users, states) = (vec![user.clone()], vec!["all".to_owned()]);
        let filter = JobFilter { users, states, ..JobFilter::default() };
        if jobs(session.connection()?, filter).await?.is_empty() {
            unknown.push(user.clone());
        }
    }
    Ok(unknown)
}

/// The steps of the jobs that `filter` admits.
///
/// # Errors
/// A refusal, or no answer.
pub async fn steps(connection: &mut Connection, filter: JobFilter) -> Result<Vec<Step>, CallError> {
    let request = ListStepsRequest { filter: Some(filter) };
    let call = async |mut controller: Controller, request| controller.list_steps(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.steps)))
}

/// What makes up the priorities of the jobs that `filter` admits and that wait for room.
///
/// # Errors
/// A refusal, or no answer.
pub async fn priorities(
    connection: &mut Connection,
    filter: JobFilter,
) -> Result<Vec<PriorityFactors>, CallError> {
    let request = ListPrioritiesRequest { filter: Some(filter) };
    let call = async |mut controller: Controller, request| controller.list_priorities(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.priorities)))
}

/// Jobs and steps from accounting.
///
/// # Errors
/// A refusal, or no answer.
pub async fn accounting(
    connection: &mut Connection,
    request: ListAccountingRequest,
) -> Result<Vec<AccountingRow>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_accounting(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.rows)))
}

/// Adds what only JSON and few fields say: the cluster's name, and who asks.
///
/// # Errors
/// A refusal, or no answer.
pub async fn identify(session: &mut Session, show: &mut Show) -> anyhow::Result<()> {
    show.cluster = cluster_name(session).await?;
    show.stale = session.connection()?.old_since();
    let user = whoami();
    let terminal = rustix::termios::ttyname(std::io::stdin(), Vec::new());
    show.asker = Asker {
        terminal: terminal.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default(),
        user: user.user,
        group: user.group,
        command: std::env::args().collect(),
    };
    Ok(())
}

/// The name of the cluster.
///
/// # Errors
/// A refusal, or no answer.
pub async fn cluster_name(session: &mut Session) -> anyhow::Result<String> {
    let call = async |mut controller: Controller, request| controller.ping(request).await;
    Ok(session.connection()?.read(PingRequest::default(), call).await?.cluster_name)
}

/// The configuration in force.
///
/// # Errors
/// A refusal, or no answer.
pub async fn settings(connection: &mut Connection) -> Result<Vec<KeyValue>, CallError> {
    let call = async |mut controller: Controller, request| controller.show_config(request).await;
    Ok(connection.read(ShowConfigRequest {}, call).await?.settings)
}

/// The nodes of a hostlist, without those that there are not; all if it is empty.
///
/// # Errors
/// A refusal, or no answer.
pub async fn nodes(connection: &mut Connection, nodes: &str) -> Result<Vec<Node>, CallError> {
    let request = ListNodesRequest { nodes: nodes.to_owned(), ..ListNodesRequest::default() };
    let call = async |mut controller: Controller, request| controller.list_nodes(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.nodes)))
}

/// The partitions of these names; all if there are none.
///
/// # Errors
/// A refusal, or no answer.
pub async fn partitions(
    connection: &mut Connection,
    only_visible: bool,
) -> Result<Vec<Partition>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_partitions(request).await;
    Ok(connection
        .read(ListPartitionsRequest { only_visible, ..ListPartitionsRequest::default() }, call)
        .await?
        .partitions)
}

/// All reservations of nodes and time.
///
/// # Errors
/// A refusal, or no answer.
pub async fn reservations(connection: &mut Connection) -> Result<Vec<Reservation>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_reservations(request).await;
    Ok(connection.read(ListReservationsRequest::default(), call).await?.reservations)
}

/// All licenses.
///
/// # Errors
/// A refusal, or no answer.
pub async fn licenses(connection: &mut Connection) -> Result<Vec<License>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_licenses(request).await;
    Ok(connection.read(ListLicensesRequest {}, call).await?.licenses)
}

/// One topology; its domains may come in several messages.
///
/// # Errors
/// A refusal, or no answer.
pub async fn topology(
    connection: &mut Connection,
    request: ListTopologyRequest,
) -> Result<Topology, CallError> {
    let call = async |mut controller: Controller, request| controller.list_topology(request).await;
    let mut whole = Topology::default();
    for part in connection.list(request, call).await?.into_iter().filter_map(|message| message.topology) {
        let mut domains = std::mem::take(&mut whole.domains);
        domains.extend(part.domains.iter().cloned());
        whole = Topology { domains, ..part };
    }
    Ok(whole)
}

/// The names that a hostlist stands for; the controller is asked only where it names parts of the fabric.
///
/// # Errors
/// A part that the controller does not know, or no answer.
pub async fn expand(session: &mut Session, expression: &HostExpr) -> anyhow::Result<HostList> {
    if let Some(names) = expression.as_plain() {
        return Ok(names);
    }
    let request = ExpandHostlistRequest { expression: expression.to_string() };
    let call = async |mut controller: Controller, request| controller.expand_hostlist(request).await;
    Ok(session.connection()?.read(request, call).await?.nodes.parse()?)
}

/// Prints a page; with an interval again and again, until the program is interrupted.
///
/// # Errors
/// The first page that cannot be had, or an output that cannot be written.
pub async fn pages(
    session: &mut Session,
    every: Option<Duration>,
    page: impl AsyncFn(&mut Session) -> anyhow::Result<String>,
) -> anyhow::Result<()> {
    let Some(period) = every else {
        let text = page(session).await?;
        write!(session.out, "{text}")?;
        return Ok(());
    };
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let text = page(session).await?;
        write!(session.out, "{text}")?;
        session.out.flush()?;
    }
}

/// What `--iterate` takes: seconds, at least one.
///
/// # Errors
/// What is wrong with it.
pub fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{text}` is not a number of seconds above 0")),
    }
}
