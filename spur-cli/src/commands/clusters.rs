//! `-M`: one command at several clusters.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use spur_core::text::nearest::nearest;
use spur_proto::client::{Connection, Controller};
use spur_proto::v1::PingRequest;

use super::query;
use crate::error::{self, Bare, FAILURE, Failure};
use crate::session::{self, Session};
use crate::settings::{Clusters, Settings};

/// Longest wait for a cluster's answer to the first ping, before the cluster is left out.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// A cluster with a session for it.
pub struct Target {
    /// The name of the cluster.
    pub name: String,
    /// A session of the same command at this cluster, whose output is kept in memory.
    pub session: Session,
}

/// Work at one cluster.
type Doing<'s, T> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + 's>>;

/// Result of the work at one cluster.
pub struct Outcome<T> {
    /// The name of the cluster.
    pub name: String,
    /// The result; `None` if the work failed.
    pub result: Option<T>,
}

/// Returns the clusters that `-M` names, each once, sorted by name. `all` stands for the own cluster and
/// those of the configuration. Unknown names are reported as errors if other names are known. Every
/// cluster is pinged; a cluster that does not answer is reported and left out.
///
/// # Errors
/// Fails if no name is that of a cluster.
pub async fn targets(session: &mut Session, named: &[String]) -> anyhow::Result<Vec<Target>> {
    let known = Settings::clusters(&|name| session.env(name))?;
    let mut targets = Vec::new();
    for name in wanted(session, &known, named).await? {
        let connection = way(session, &known, &name)?;
        let session = session.at(connection);
        targets.push(Target { name, session });
    }
    let calls = targets.iter_mut().map(|target| Box::pin(is_there(&mut target.session)) as Doing<'_, ()>);
    let answers = all(calls.collect()).await;
    let mut there = Vec::with_capacity(targets.len());
    for (mut target, answer) in targets.into_iter().zip(answers) {
        match answer {
            Ok(()) => there.push(target),
            Err(error) => complain(session, &mut target, &error),
        }
    }
    Ok(there)
}

/// Returns the names of the clusters that the words of `-M` select, each once, sorted.
async fn wanted(session: &mut Session, known: &Clusters, named: &[String]) -> anyhow::Result<Vec<String>> {
    let is_other = |name: &String| known.others.iter().any(|(other, _)| other == name);
    let own = match &known.own {
        _ if named.iter().all(is_other) => None,
        Some(own) => Some(own.clone()),
        None => Some(query::cluster_name(session).await?),
    };
    let mut wanted: Vec<String> = Vec::new();
    for name in named {
        let names: Vec<String> = match name.as_str() {
            "all" => own.iter().cloned().chain(known.others.iter().map(|(name, _)| name.clone())).collect(),
            _ if is_other(name) || own.as_ref() == Some(name) => vec![name.clone()],
            _ => {
                session.error(&format!("No cluster '{name}' known by database."));
                Vec::new()
            }
        };
        wanted.extend(names);
    }
    if wanted.is_empty() {
        return Err(unknown(&named.join(","), own.as_deref(), known).into());
    }
    // Slurm also prints clusters in the order of their names.
    wanted.sort_unstable();
    wanted.dedup();
    Ok(wanted)
}

/// Returns the error for names of which none is that of a cluster, in Slurm's words.
fn unknown(name: &str, own: Option<&str>, known: &Clusters) -> Failure {
    let names = || own.into_iter().chain(known.others.iter().map(|(name, _)| name.as_str()));
    let hint = nearest(name, names()).map(|near| format!("; did you mean {near}?"));
    let here: Vec<&str> = names().collect();
    Failure::new(format!(
        "'{name}' can't be reached now, or it is an invalid entry for --cluster; clusters here: {}{}",
        here.join(", "),
        hint.unwrap_or_default()
    ))
}

/// Returns a connection to a known cluster, which does not wait for a controller that is away.
fn way(session: &mut Session, known: &Clusters, name: &str) -> anyhow::Result<Connection> {
    let connection = match known.others.iter().find(|(other, _)| other == name) {
        Some((_, settings)) => session::open(settings)?,
        None => session.connection()?.clone(),
    };
    Ok(connection.with_patience(Duration::ZERO))
}

async fn is_there(session: &mut Session) -> anyhow::Result<()> {
    let call = async |mut controller: Controller, request| controller.ping(request).await;
    let answer = session.connection()?.read(PingRequest::default(), call);
    match tokio::time::timeout(FIRST_ANSWER, answer).await {
        Ok(answer) => Ok(answer.map(|_| ())?),
        Err(_) => anyhow::bail!("it gave no answer in {} s", FIRST_ANSWER.as_secs()),
    }
}

/// Does the work at all these clusters concurrently. Each complaint and error is printed; errors name
/// their cluster.
pub async fn at_each<T>(
    session: &mut Session,
    mut targets: Vec<Target>,
    doing: impl AsyncFn(&mut Session, &str) -> anyhow::Result<T>,
) -> Vec<Outcome<T>> {
    let futures =
        targets.iter_mut().map(|target| Box::pin(doing(&mut target.session, &target.name)) as Doing<'_, T>);
    let results = all(futures.collect()).await;
    let mut outcomes = Vec::with_capacity(targets.len());
    for (mut target, result) in targets.into_iter().zip(results) {
        let said = target.session.take_complaints();
        said.lines().for_each(|line| session.say(line));
        let result = result.map_err(|error| complain(session, &mut target, &error)).ok();
        outcomes.push(Outcome { name: target.name, result });
    }
    outcomes
}

/// Prints the error of a cluster, and the earlier complaints at it, with the name of the cluster.
fn complain(session: &mut Session, target: &mut Target, error: &anyhow::Error) {
    error::report(&mut target.session, error);
    let said = target.session.take_complaints();
    for line in said.lines() {
        session.say(&format!("cluster {}: {line}", target.name));
    }
}

/// Returns the pages of several clusters, one below another. With `headed`, a line with the name of the
/// cluster precedes each page, as in Slurm.
///
/// # Errors
/// Fails if no name is that of a cluster, or if no cluster has a page.
pub async fn pages(
    session: &mut Session,
    named: &[String],
    headed: bool,
    page: impl AsyncFn(&mut Session, &str) -> anyhow::Result<String>,
) -> anyhow::Result<String> {
    let targets = targets(session, named).await?;
    let outcomes = at_each(session, targets, page).await;
    let mut pages = Vec::with_capacity(outcomes.len());
    for Outcome { name, result } in outcomes {
        let Some(page) = result else { continue };
        pages.push(if headed { format!("CLUSTER: {name}\n{page}") } else { page });
    }
    if pages.is_empty() {
        return Err(Failure::new("").into());
    }
    Ok(pages.join(if headed { "\n" } else { "" }))
}

/// Directs the session to the named cluster, for a command that works at one cluster at a time.
///
/// # Errors
/// Fails if the names are of several clusters, if no name is that of a cluster, or if the own controller
/// does not answer.
pub async fn only(session: &mut Session, named: &[String]) -> anyhow::Result<()> {
    let known = Settings::clusters(&|name| session.env(name))?;
    if named.is_empty() || named.iter().all(|name| name == "all") && known.others.is_empty() {
        return Ok(());
    }
    let wanted = wanted(session, &known, named).await?;
    let [name] = &wanted[..] else {
        let name = session.name;
        let text = format!("{name}: fatal: Only one cluster can be used at a time with {name}");
        return Err(Bare(text).into());
    };
    if let Some((_, settings)) = known.others.iter().find(|(other, _)| other == name) {
        session.go_to(session::open(settings)?);
    }
    Ok(())
}

/// Refuses all clusters but the own one, for a command that acts on a job of this cluster.
///
/// # Errors
/// Fails if a name is that of another cluster, if no name is that of a cluster, or if the own controller
/// does not answer.
pub async fn none_but_own(session: &mut Session, named: &[String]) -> anyhow::Result<()> {
    let known = Settings::clusters(&|name| session.env(name))?;
    let is_other = |name: &&String| known.others.iter().any(|(other, _)| other == *name);
    if let Some(other) = named.iter().find(is_other) {
        let text = format!("'{other}' is another cluster, and this is done in the own one only");
        return Err(Failure::new(text).into());
    }
    wanted(session, &known, named).await.map(|_| ())
}

/// Returns the largest exit code of the clusters; a cluster without a result, or without an outcome,
/// counts as a failure.
pub fn exit_code(outcomes: &[Outcome<u8>], named: usize) -> u8 {
    let codes = outcomes.iter().map(|outcome| outcome.result.unwrap_or(FAILURE));
    let missing = if outcomes.len() < named { FAILURE } else { 0 };
    codes.max().unwrap_or(FAILURE).max(missing)
}

/// Polls the futures concurrently until all have ended. Returns the results in the order of the futures.
async fn all<T>(mut futures: Vec<Doing<'_, T>>) -> Vec<anyhow::Result<T>> {
    let mut results: Vec<Option<anyhow::Result<T>>> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        let mut pending = false;
        for (future, result) in futures.iter_mut().zip(&mut results).filter(|(_, result)| result.is_none()) {
            match future.as_mut().poll(context) {
                Poll::Ready(ready) => *result = Some(ready),
                Poll::Pending => pending = true,
            }
        }
        if pending { Poll::Pending } else { Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}
