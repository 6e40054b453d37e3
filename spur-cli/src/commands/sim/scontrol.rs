//! Commands of `scontrol` that make changes: parsed like the real ones and performed by the simulated
//! controller.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use jiff::tz::TimeZone;
use spur_core::controller::command::{NodeChange, NodeStateChange};
use spur_core::controller::{Command, Reject, Reply};
use spur_core::id::JobId;
use spur_core::model::change::JobChange;
use spur_core::model::config::edit;
use spur_core::sim::{Watch, World};
use spur_core::text::ParseError;
use spur_core::text::dependency::Dependency;
use spur_core::text::hostlist::HostList;
use spur_core::text::jobid::{JobPart, JobRef};
use spur_proto::convert::reservation as convert;
use spur_proto::v1::{UpdateJobRequest, UpdateNodesRequest};

use super::command::{Ran, complaints};
use crate::commands::scontrol::{reservation, update};

/// Runs a command of `scontrol`.
///
/// # Errors
/// An error that `scontrol` reports before it sends a request.
pub(super) fn run<W: Watch>(world: &mut World<W>, keyword: &str, words: &[String]) -> Result<Ran, String> {
    match keyword {
        "create" => {
            let request =
                reservation::create(words, &TimeZone::UTC, moment(world)?).map_err(|failure| failure.text)?;
            let ask = convert::ask(&request.settings, request.utc_offset).map_err(|error| error.problem)?;
            match operate(world, Command::CreateReservation(Box::new(ask)))? {
                Reply::Reserved { name } => Ok(said(format!("Reservation created: {name}\n"))),
                _ => Ok(Ran::default()),
            }
        }
        "delete" => {
            let name = reservation::delete(words).map_err(|failure| failure.text)?.name.into();
            operate(world, Command::DeleteReservation { name })?;
            Ok(Ran::default())
        }
        "update" => change(world, words),
        _ => queue(world, keyword, words),
    }
}

/// Returns the time of the simulation.
fn moment<W: Watch>(world: &World<W>) -> Result<Timestamp, String> {
    Timestamp::from_second(world.now().0).map_err(|error| error.to_string())
}

fn operate<W: Watch>(world: &mut World<W>, command: Command) -> Result<Reply, String> {
    world.operate(command).map_err(|reject| reject.to_string())
}

fn said(stdout: String) -> Ran {
    Ran { stdout, ..Ran::default() }
}

fn change<W: Watch>(world: &mut World<W>, words: &[String]) -> Result<Ran, String> {
    let words = words.iter().map(|word| numbered(world, word)).collect::<Result<Vec<_>, _>>()?;
    let now = moment(world)?;
    if let Some(request) = reservation::change(&words, &TimeZone::UTC, now).map_err(|failure| failure.text)? {
        let mut ask = convert::ask(&request.settings, 0).map_err(|error| error.problem)?;
        ask.name = Some(request.name.into());
        operate(world, Command::UpdateReservation(Box::new(ask)))?;
        return Ok(said("Reservation updated.\n".to_owned()));
    }
    match update::read(&words, &TimeZone::UTC, now).map_err(|failure| failure.text)? {
        update::Update::Job(request) => update_jobs(world, &request),
        update::Update::Named { .. } => Err("name jobs by their numbers: JobId=".to_owned()),
        update::Update::FeatureLevel(_) => Err("a simulation has the newest feature level".to_owned()),
        update::Update::Nodes(request) => update_nodes(world, &request),
        update::Update::Partition(request) => {
            let settings = request.settings.into_iter();
            let settings = settings.map(|setting| (setting.key.into(), setting.value.into())).collect();
            operate(world, Command::UpdatePartition { name: request.name.into(), settings })?;
            Ok(Ran::default())
        }
    }
}

/// Replaces the names of jobs in `JobId=` and `Dependency=` by their numbers.
fn numbered<W: Watch>(world: &World<W>, word: &str) -> Result<String, String> {
    let Some((key, value)) = word.split_once('=') else { return Ok(word.to_owned()) };
    match key.to_ascii_lowercase().as_str() {
        "jobid" | "job" => Ok(format!("{key}={}", numbers(world, value)?)),
        "dependency" if !value.is_empty() => {
            let dependency: Dependency = value.parse().map_err(|error| format!("{error}"))?;
            let named = dependency.map_jobs(|name| number(world, &name))?;
            Ok(format!("{key}={named}"))
        }
        _ => Ok(word.to_owned()),
    }
}

/// Returns the number of a job by its name in the workload or by its number.
pub(super) fn number<W: Watch>(world: &World<W>, name: &str) -> Result<JobId, String> {
    let known = world.number(name).or_else(|| name.parse().ok());
    known.ok_or_else(|| format!("Invalid job id specified: there is no job {name} now"))
}

/// Parses a job, an array, tasks or a component, by the name in the workload or by number.
pub(super) fn reference<W: Watch>(world: &World<W>, name: &str) -> Result<JobRef<JobId>, String> {
    // The name of a job may have the form of a task.
    if let Ok(job) = number(world, name) {
        return Ok(JobRef::whole(job));
    }
    let named: JobRef<String> = name.parse().map_err(|error| format!("{error}"))?;
    let named = named.map_job(|name| number(world, &name))?;
    let component = match named.part {
        JobPart::Component(offset) => world.cluster().jobs().component(named.job, offset),
        JobPart::Whole | JobPart::Tasks(_) => None,
    };
    Ok(component.map_or(named, JobRef::whole))
}

/// Replaces the names in a list by numbers.
pub(super) fn numbers<W: Watch>(world: &World<W>, names: &str) -> Result<String, String> {
    let mut inside = false;
    let names = names.split(|c: char| {
        inside = (inside || c == '[') && c != ']';
        c == ',' && !inside
    });
    let numbers = names.map(|name| reference(world, name).map(|job| job.to_string()));
    Ok(numbers.collect::<Result<Vec<_>, _>>()?.join(","))
}

fn job_ids(words: &[String]) -> Result<Vec<JobRef<JobId>>, String> {
    let mut ids = Vec::new();
    for word in words {
        let read = update::job_ids(word).map_err(|failure| failure.text)?;
        let read = read.iter().map(|id| id.parse().map_err(|error| format!("{error}")));
        ids.extend(read.collect::<Result<Vec<JobRef<JobId>>, _>>()?);
    }
    Ok(ids)
}

fn update_jobs<W: Watch>(world: &mut World<W>, request: &UpdateJobRequest) -> Result<Ran, String> {
    // Messages do not preserve the order of keys, so the keys are sorted to get the same result each time.
    let sorted: BTreeMap<_, _> = request.changes.iter().collect();
    let read =
        |(key, value): (&String, &String)| JobChange::parse(key, value).map_err(|error| error.to_string());
    let changes = sorted.into_iter().map(read).collect::<Result<Vec<_>, _>>()?;
    let mut problems = Vec::new();
    for job in job_ids(&request.job_ids)? {
        let command = Command::UpdateJob { job: job.clone(), changes: changes.clone() };
        match world.operate(command) {
            Ok(Reply::Jobs { problems: found, .. }) => problems.extend(found),
            Ok(_) => {}
            Err(reject) => problems.push((job, reject)),
        }
    }
    Ok(told(&problems))
}

fn update_nodes<W: Watch>(world: &mut World<W>, request: &UpdateNodesRequest) -> Result<Ran, String> {
    let names: HostList = request.nodes.parse().map_err(|error| format!("{error}"))?;
    let state = match request.state.as_str() {
        "" => None,
        "DRAIN" => Some(NodeStateChange::Drain),
        "RESUME" => Some(NodeStateChange::Resume),
        "UNDRAIN" => Some(NodeStateChange::Undrain),
        _ => Some(NodeStateChange::Down),
    };
    let words = |text: &String| text.split(',').filter(|word| !word.is_empty()).map(Arc::from).collect();
    let problem = |error: ParseError| error.to_string();
    let change = NodeChange {
        state,
        reason: (!request.reason.is_empty()).then(|| request.reason.as_str().into()),
        weight: request.weight,
        features: request.features.as_ref().map(words),
        gres: request.gres.as_deref().map(edit::devices).transpose()?,
        comment: request.comment.as_deref().map(Into::into),
        extra: request.extra.as_deref().map(Into::into),
        end_foreign: request.end_foreign,
        places: request.topology.as_deref().map(str::parse).transpose().map_err(problem)?,
    };
    let nodes = names.iter().map(Arc::from).collect();
    world.operate(Command::UpdateNodes { nodes, change }).map_err(|reject| reject.to_string())?;
    Ok(Ran::default())
}

/// Holds, releases, requeues, suspends or resumes jobs.
fn queue<W: Watch>(world: &mut World<W>, keyword: &str, words: &[String]) -> Result<Ran, String> {
    if words.is_empty() {
        return Err(format!("too few arguments for keyword:{keyword}"));
    }
    let named =
        |word: &String| numbers(world, word.split_once('=').map_or(word.as_str(), |(_, names)| names));
    let jobs = job_ids(&words.iter().map(named).collect::<Result<Vec<_>, _>>()?)?;
    let command = match keyword {
        "release" => Command::Release { jobs },
        "suspend" => Command::Suspend { jobs },
        "resume" => Command::Resume { jobs },
        "requeue" | "requeuehold" => Command::Requeue { jobs, hold: keyword == "requeuehold" },
        _ => Command::Hold { jobs, by_user: keyword == "uhold" },
    };
    match world.operate(command).map_err(|reject| reject.to_string())? {
        Reply::Jobs { problems, .. } => Ok(told(&problems)),
        _ => Ok(Ran::default()),
    }
}

/// Returns the messages of `scontrol` for jobs with problems.
fn told(problems: &[(JobRef<JobId>, Reject)]) -> Ran {
    let texts: Vec<String> = problems.iter().map(|(job, reject)| format!("{reject} for job {job}")).collect();
    Ran {
        status: u8::from(!texts.is_empty()),
        stdout: String::new(),
        stderr: complaints("scontrol", texts.iter().map(String::as_str)),
    }
}
