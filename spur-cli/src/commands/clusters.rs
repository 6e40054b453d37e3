//! Several clusters in one command: `-M`.

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

/// How long a cluster among several may take to answer at all.
const FIRST_ANSWER: Duration = Duration::from_secs(5);

/// A cluster, and the way to it.
pub struct Target {
    /// The name of the cluster.
    pub name: String,
    /// A session of the same command there, whose output is kept in memory.
    pub session: Session,
}

/// Something that is done at one cluster.
type Doing<'s, T> = Pin<Box<dyn Future<Output = anyhow::Result<T>> + 's>>;

/// What came of one cluster.
pub struct Outcome<T> {
    /// The name of the cluster.
    pub name: String,
    /// The result, of a cluster that has one.
    pub result: Option<T>,
}

/// The clusters that `-M` names, each once, in the order of their names; for `all` the own one and those of
/// the configuration. Names that no cluster has are complained of, as long as there are others. Every cluster
/// is asked for a sign of life, and those that give none are complained of and left out.
///
/// # Errors
/// No name that a cluster has.
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

/// The names of clusters that are meant, each once, in order.
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
    // As Slurm has them.
    wanted.sort_unstable();
    wanted.dedup();
    Ok(wanted)
}

/// What is said where no cluster has any of the names, in Slurm's words.
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

/// The way to a cluster of which it is known that there is one. Nobody is waited for.
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

/// Does something at each of these clusters at one time. What was complained of, and what failed, is said
/// with the name of the cluster.
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

/// Says why there is no result of a cluster.
fn complain(session: &mut Session, target: &mut Target, error: &anyhow::Error) {
    error::report(&mut target.session, error);
    let said = target.session.take_complaints();
    for line in said.lines() {
        session.say(&format!("cluster {}: {line}", target.name));
    }
}

/// The pages of several clusters, one below another. With `headed` each stands below a line with the name of
/// its cluster, as with Slurm.
///
/// # Errors
/// A name that no cluster has, or no page of any cluster.
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

/// Goes to the one cluster that is named, for a command that asks one cluster at a time.
///
/// # Errors
/// Several names, a name that no cluster has, or no answer.
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

/// Refuses clusters other than the own one, where a job would have to leave it.
///
/// # Errors
/// The first that is another, or that no cluster is, or no answer.
pub async fn none_but_own(session: &mut Session, named: &[String]) -> anyhow::Result<()> {
    let known = Settings::clusters(&|name| session.env(name))?;
    let is_other = |name: &&String| known.others.iter().any(|(other, _)| other == *name);
    if let Some(other) = named.iter().find(is_other) {
        let text = format!("'{other}' is another cluster, and this is done in the own one only");
        return Err(Failure::new(text).into());
    }
    wanted(session, &known, named).await.map(|_| ())
}

/// The largest exit code of what was done, and failure where a cluster has none.
pub fn exit_code(outcomes: &[Outcome<u8>], named: usize) -> u8 {
    let codes = outcomes.iter().map(|outcome| outcome.result.unwrap_or(FAILURE));
    let missing = if outcomes.len() < named { FAILURE } else { 0 };
    codes.max().unwrap_or(FAILURE).max(missing)
}

/// Waits until all of some futures are done.
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
