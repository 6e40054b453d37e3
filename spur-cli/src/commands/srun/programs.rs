//! Further programs of a step: programs per task (`--multi-prog`), programs before and after the step on this
//! host (`--prolog`, `--epilog`), and programs of each task (`--task-prolog`, `--task-epilog`).

use std::ops::Range;
use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, anyhow};
use spur_core::model::idset::IdSet;
use spur_core::text::multiprog::MultiProg;
use spur_proto::v1::StepProgram;

use super::group;
use crate::options::submission::Submission;
use crate::session::Session;

/// Reads the file of `--multi-prog` before any request. If the number of tasks is not given, the highest rank
/// in the file determines it.
///
/// # Errors
/// A file that cannot be read, or without a program for a task.
pub(super) fn read(session: &Session, wishes: &mut Submission, argv: &[String]) -> anyhow::Result<()> {
    if !wishes.step.multi_prog {
        return Ok(());
    }
    let file = programs(argv)?;
    let said =
        wishes.spec.tasks.is_some() || (group::is_inside(session) && session.env("SLURM_NTASKS").is_some());
    if !said {
        wishes.spec.tasks = file.tasks();
    }
    if let Some(tasks) = wishes.spec.tasks {
        file.programs(tasks, &[]).map_err(|error| anyhow!(error.of_file(&argv[0])))?;
    }
    Ok(())
}

fn programs(argv: &[String]) -> anyhow::Result<MultiProg> {
    let file = &argv[0];
    let text = std::fs::read_to_string(file)
        .with_context(|| format!("Could not open multi_prog config file {file}"))?;
    MultiProg::parse(&text).map_err(|error| anyhow!(error.of_file(file)))
}

/// Returns the programs of the tasks if they differ; empty if all tasks run the same.
///
/// # Errors
/// As of [`read`].
pub(super) fn of_tasks(
    wishes: &Submission,
    tasks: Range<u32>,
    argv: &[String],
) -> anyhow::Result<Vec<StepProgram>> {
    if !wishes.step.components.is_empty() {
        return Ok(of_components(&wishes.step.components, tasks));
    }
    if !wishes.step.multi_prog {
        return Ok(Vec::new());
    }
    let count = u32::try_from(tasks.len()).unwrap_or(u32::MAX);
    let all = programs(argv)?.programs(count, &argv[1..]);
    let all = all.map_err(|error| anyhow!(error.of_file(&argv[0])))?;
    let wire = all.into_iter().map(|program| StepProgram {
        ranks: program.ranks.into_iter().map(|rank| rank + tasks.start).collect::<IdSet>().to_string(),
        argv: program.words,
    });
    Ok(wire.collect())
}

fn of_components(components: &[(u32, Vec<String>)], tasks: Range<u32>) -> Vec<StepProgram> {
    let mut next = tasks.start;
    let mut one = |(number, (count, argv)): (usize, &(u32, Vec<String>))| {
        let end = if number + 1 == components.len() { tasks.end } else { next + count };
        let ranks = std::mem::replace(&mut next, end)..end;
        StepProgram { ranks: ranks.collect::<IdSet>().to_string(), argv: argv.clone() }
    };
    components.iter().enumerate().map(&mut one).collect()
}

/// Returns the path of a program for the nodes, searched below the working directory and in PATH; empty for
/// none.
pub(super) fn path(program: Option<&str>, session: &Session, directory: &str) -> String {
    let Some(program) = program else { return String::new() };
    let here = Path::new(directory).join(program);
    let search = session.env("PATH").unwrap_or_default();
    let places = search.split(':').map(|place| Path::new(place).join(program));
    let found = std::iter::once(here.clone()).chain(places.filter(|_| !program.contains('/')));
    let found = found.into_iter().find(|path| path.is_file());
    found.unwrap_or(here).display().to_string()
}

/// Runs the prolog or epilog of a step on this host; returns its failure, if any.
pub(super) async fn beside(
    session: &mut Session,
    (which, program): (&str, Option<&str>),
    (job, step): (u32, u32),
    argv: &[String],
) -> Option<String> {
    let program = program?;
    let mut command = tokio::process::Command::new(program);
    command.args(argv).stdin(Stdio::null()).env_clear().envs(session.environment());
    command.env("SLURM_JOB_ID", job.to_string()).env("SLURM_STEP_ID", step.to_string());
    command.env("SLURM_SCRIPT_CONTEXT", format!("{which}_srun"));
    // Earlier output of this command must precede that of the program.
    let _ = std::io::Write::flush(&mut session.out);
    match command.status().await {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.code().map_or_else(|| status.to_string(), |code| format!("rc = {code}"))),
        Err(error) => Some(format!("({program}: {error})")),
    }
}
