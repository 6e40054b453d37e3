//! Selection of the job, or of the components of a het job, in which a step runs.

use anyhow::{Context, bail, ensure};
use spur_proto::v1::{HetStep, JobFilter};

use super::{LaidOut, ask_again, not_created};
use crate::commands::query;
use crate::options::defs::SRUN_LINE;
use crate::options::submission::Submission;
use crate::session::Session;

/// Infix of variables for one component, before its number.
const GROUP: &str = "_HET_GROUP_";

/// Returns the jobs in which a step runs, with the options for each. These are the job of this command, or
/// the components selected by `--het-group`.
///
/// # Errors
/// No job, or a component that the job does not have.
pub(super) fn parts(
    session: &Session,
    wishes: Submission,
    words: &[String],
) -> anyhow::Result<Vec<(u32, Submission)>> {
    if wishes.step.het_group.is_empty() {
        return Ok(vec![(current_job(session)?, wishes)]);
    }
    let mut parts = Vec::with_capacity(wishes.step.het_group.len());
    for group in wishes.step.het_group {
        let name = format!("SLURM_JOB_ID{GROUP}{group}");
        let Some(job) = session.env(&name) else {
            let size = session.env("SLURM_HET_SIZE");
            match size.and_then(|size| size.parse::<u32>().ok()) {
                Some(size) => bail!(
                    "Attempt to run a job step with het group value of {group}, but the job allocation has \
                     maximum value of {}",
                    size.saturating_sub(1)
                ),
                None => bail!("--het-group={group}: this is not a heterogeneous job; leave the option out"),
            }
        };
        let job = job.parse().with_context(|| format!("{name} is `{job}`, which is no job number"))?;
        parts.push((job, of_component(session, group, words)?));
    }
    Ok(parts)
}

/// Returns the jobs in which a step runs, each with its options: the job that `--jobid` names, or those of
/// its components that `--het-group` selects.
///
/// # Errors
/// Fails if there is no such job, or if the job lacks a component.
pub(super) async fn parts_of(
    session: &mut Session,
    name: &str,
    wishes: Submission,
    words: &[String],
) -> anyhow::Result<Vec<(u32, Submission)>> {
    if wishes.step.het_group.is_empty() {
        return Ok(vec![(named(session, name).await?, wishes)]);
    }
    let mut parts = Vec::with_capacity(wishes.step.het_group.len());
    for group in wishes.step.het_group {
        let component = named(session, &format!("{name}+{group}")).await;
        let job = component.with_context(|| format!("--het-group={group}"))?;
        parts.push((job, of_component(session, group, words)?));
    }
    Ok(parts)
}

/// Returns the options of one component. A variable that exists per component is read with the value for
/// this component.
fn of_component(session: &Session, group: u32, words: &[String]) -> anyhow::Result<Submission> {
    let env = |name: &str| {
        let own = session.env(&format!("{name}{GROUP}{group}"));
        let is_of_components = || {
            let mark = format!("{name}{GROUP}");
            session.environment().keys().any(|name| name.to_string_lossy().starts_with(&mark))
        };
        own.or_else(|| if is_of_components() { None } else { session.env(name) })
    };
    let mut wishes = Submission::default();
    wishes.settle_line(&SRUN_LINE, words, &env)?;
    Ok(wishes)
}

/// Requests the layout of each step again as a part of one program, so that the ranks of all tasks are
/// numbered through all components. Does nothing for a single step.
///
/// # Errors
/// Fails if the controller does not know the steps any longer, or does not answer.
pub(super) async fn make_one_world(session: &mut Session, steps: &mut [LaidOut]) -> anyhow::Result<()> {
    if steps.len() < 2 {
        return Ok(());
    }
    let named = |one: &LaidOut| HetStep { job_id: one.job, step_id: one.step.step_id };
    let world: Vec<HetStep> = steps.iter().map(named).collect();
    for one in steps {
        one.world.clone_from(&world);
        one.step = ask_again(session.connection()?, one.job, one.step.step_id, &world)
            .await
            .map_err(|error| not_created(one.job, error))?;
    }
    Ok(())
}

/// True if this command runs inside a job, by the environment.
pub(super) fn is_inside(session: &Session) -> bool {
    session.env("SLURM_JOB_ID").or_else(|| session.env("SLURM_JOBID")).is_some()
}

/// Returns the number of a job by its name in `--jobid`: a number, or that of an array with a task.
///
/// # Errors
/// An invalid name, or one of several jobs.
pub(super) async fn named(session: &mut Session, name: &str) -> anyhow::Result<u32> {
    if let Ok(job) = name.parse() {
        return Ok(job);
    }
    ensure!(name.starts_with(|c: char| c.is_ascii_digit()), "Invalid numeric value \"{name}\" for --jobid.");
    let filter = JobFilter { job_ids: vec![name.to_owned()], ..JobFilter::default() };
    let mut found = query::jobs(session.connection()?, filter).await?.into_iter();
    match (found.next(), found.next()) {
        (Some(job), None) => Ok(job.id),
        (Some(_), Some(_)) => {
            bail!("--jobid={name}: several jobs have that name; give the number of one task")
        }
        (None, _) => bail!("--jobid={name}: Invalid job id specified"),
    }
}

/// Returns the job in which this command runs.
fn current_job(session: &Session) -> anyhow::Result<u32> {
    let text = session.env("SLURM_JOB_ID").or_else(|| session.env("SLURM_JOBID")).unwrap_or_default();
    text.parse().with_context(|| format!("SLURM_JOB_ID is `{text}`, which is no job number"))
}
