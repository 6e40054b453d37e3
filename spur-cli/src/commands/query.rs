//! Support for commands that query and print: complete lists from the controller, and the context in which
//! they are printed.

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
use crate::format::value::time;
use crate::format::{Asker, Show, Times};
use crate::session::{Session, whoami};
use crate::zone;

/// Request of a command line.
pub enum Asked<Q> {
    /// A text to print; nothing else is done.
    Show(String),
    /// A query to run.
    Run(Q),
}

/// Returns the printing context of this process: its zone and clock, `SLURM_BITSTR_LEN`, `SLURM_TIME_FORMAT`
/// and `SLURM_JSON`.
///
/// # Errors
/// A `SLURM_BITSTR_LEN` that is not a number.
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

/// Splits a comma-separated list; empty items are ignored.
pub fn list(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|item| !item.is_empty()).map(str::to_owned).collect()
}

/// Parses a list of jobs in the users' form: `12`, `12_3`, `12_[1-4]`; an empty text has no jobs.
///
/// # Errors
/// An invalid list.
pub fn job_ids(text: &str) -> Result<Vec<String>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let jobs = JobRef::<u32>::parse_list(text).map_err(|_| format!("Invalid job id: {text}"))?;
    Ok(jobs.iter().map(JobRef::to_string).collect())
}

/// Refuses operands of a command that takes none.
///
/// # Errors
/// The first operand.
pub fn no_operands(mut operands: impl Iterator<Item = String>) -> Result<(), Failure> {
    operands.next().map_or(Ok(()), |word| Err(Failure::new(format!("Unrecognized option: {word}"))))
}

/// Returns the items with these names, in the order of the names, or all items without names. Also returns a
/// complaint in Slurm's words for each name that no item of the `kind` has.
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

/// Returns a complaint for each wanted job that is not among `jobs`, neither whole nor in part.
///
/// # Errors
/// An invalid reference.
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

/// Returns the jobs that match `filter`.
///
/// # Errors
/// A refusal, or no answer.
pub async fn jobs(connection: &mut Connection, filter: JobFilter) -> Result<Vec<Job>, CallError> {
    listed(connection, ListJobsRequest { filter: Some(filter), ..ListJobsRequest::default() }).await
}

/// Returns the jobs that match `filter`; with `details`, each with its share of every node.
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

/// Returns the jobs that match `filter`, with expected starts and nodes of the first pending ones, even
/// outside the plan.
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

/// Joins the messages of a list in order. The memory is allocated once, because jobs are large and may be
/// many.
fn joined<T>(messages: impl Iterator<Item = Vec<T>>) -> Vec<T> {
    let parts: Vec<Vec<T>> = messages.collect();
    let mut all = Vec::with_capacity(parts.iter().map(Vec::len).sum());
    parts.into_iter().for_each(|part| all.extend(part));
    all
}

/// Returns the users whom this host does not know and who have no jobs in the controller.
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

/// Returns the steps of the jobs that match `filter`.
///
/// # Errors
/// A refusal, or no answer.
pub async fn steps(connection: &mut Connection, filter: JobFilter) -> Result<Vec<Step>, CallError> {
    let request = ListStepsRequest { filter: Some(filter) };
    let call = async |mut controller: Controller, request| controller.list_steps(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.steps)))
}

/// Returns the factors of the priorities of pending jobs that match `filter` and wait for resources.
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

/// Returns jobs and steps from accounting.
///
/// # Errors
/// A refusal, or no answer.
pub async fn accounting(
    connection: &mut Connection,
    request: ListAccountingRequest,
) -> Result<Vec<AccountingRow>, CallError> {
    Ok(records(connection, request).await?.rows)
}

/// Jobs and steps from accounting.
pub struct Records {
    /// The rows of jobs and steps.
    pub rows: Vec<AccountingRow>,
    /// Time before whose ends jobs have been purged, if the request asks for jobs that ended before.
    pub complete_from: Option<i64>,
}

/// Returns jobs and steps from accounting, with the time from which on they are complete.
///
/// # Errors
/// A refusal, or no answer.
pub async fn records(
    connection: &mut Connection,
    request: ListAccountingRequest,
) -> Result<Records, CallError> {
    let call = async |mut controller: Controller, request| controller.list_accounting(request).await;
    let pages = connection.list(request, call).await?;
    let complete_from = pages.iter().find_map(|page| page.complete_from);
    Ok(Records { rows: joined(pages.into_iter().map(|page| page.rows)), complete_from })
}

/// Says on the standard error from when on accounting has all jobs, if `complete_from` is the end before
/// which jobs have been purged.
pub fn warn_of_purge(session: &mut Session, complete_from: Option<i64>, show: &Show) {
    let Some(from) = complete_from else { return };
    let from = time(Some(from), "", show);
    session.inform(&format!("records are complete from {from} on: jobs that ended before have been purged"));
}

/// Adds the cluster's name and the caller to the printing context, for JSON and a few fields.
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

/// Returns the name of the cluster.
///
/// # Errors
/// A refusal, or no answer.
pub async fn cluster_name(session: &mut Session) -> anyhow::Result<String> {
    let call = async |mut controller: Controller, request| controller.ping(request).await;
    Ok(session.connection()?.read(PingRequest::default(), call).await?.cluster_name)
}

/// Returns the configuration in force.
///
/// # Errors
/// A refusal, or no answer.
pub async fn settings(connection: &mut Connection) -> Result<Vec<KeyValue>, CallError> {
    let call = async |mut controller: Controller, request| controller.show_config(request).await;
    Ok(connection.read(ShowConfigRequest {}, call).await?.settings)
}

/// Returns the nodes of a hostlist without unknown ones; all nodes if it is empty.
///
/// # Errors
/// A refusal, or no answer.
pub async fn nodes(connection: &mut Connection, nodes: &str) -> Result<Vec<Node>, CallError> {
    let request = ListNodesRequest { nodes: nodes.to_owned(), ..ListNodesRequest::default() };
    let call = async |mut controller: Controller, request| controller.list_nodes(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.nodes)))
}

/// Returns all nodes with their reports about their places in the network.
///
/// # Errors
/// A refusal, or no answer.
pub async fn reports(connection: &mut Connection) -> Result<Vec<Node>, CallError> {
    let request = ListNodesRequest { fabric: true, ..ListNodesRequest::default() };
    let call = async |mut controller: Controller, request| controller.list_nodes(request).await;
    Ok(joined(connection.list(request, call).await?.into_iter().map(|message| message.nodes)))
}

/// Returns all partitions, with `only_visible` without the hidden ones.
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

/// Returns all reservations.
///
/// # Errors
/// A refusal, or no answer.
pub async fn reservations(connection: &mut Connection) -> Result<Vec<Reservation>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_reservations(request).await;
    Ok(connection.read(ListReservationsRequest::default(), call).await?.reservations)
}

/// Returns all licenses.
///
/// # Errors
/// A refusal, or no answer.
pub async fn licenses(connection: &mut Connection) -> Result<Vec<License>, CallError> {
    let call = async |mut controller: Controller, request| controller.list_licenses(request).await;
    Ok(connection.read(ListLicensesRequest {}, call).await?.licenses)
}

/// Returns one topology, whose domains may arrive in several messages.
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

/// Returns the names in a hostlist. The controller is queried only if the list names parts of the fabric.
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

/// Prints a page, or with an interval a page per interval until the program is interrupted.
///
/// # Errors
/// The first page that fails, or an output that cannot be written.
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

/// Parses the value of `--iterate`: seconds, at least one.
///
/// # Errors
/// An invalid number.
pub fn interval(text: &str) -> Result<Duration, String> {
    match text.parse() {
        Ok(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("`{text}` is not a number of seconds above 0")),
    }
}
