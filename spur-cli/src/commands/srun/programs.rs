//! What else a step runs than one program in all tasks: programs of single tasks (`--multi-prog`), and those that are run
//! before and after it here (`--prolog`, `--epilog`) or beside each task (`--task-prolog`, `--task-epilog`).

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

/// Looks at the file of `--multi-prog` before anything is asked for: where nobody has said how many tasks there are, the
/// highest rank in it does.
///
/// # Errors
/// A file that cannot be read, or does not say what each task runs.
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

/// What each task of the step runs, where that is not the same for all.
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

/// The path of a program for nodes to run: as it was said, below the working directory, or where PATH has it; empty
/// for none.
pub(super) fn path(program: Option<&str>, session: &Session, directory: &str) -> String {
    let Some(program) = program else { return String::new() };
    let here = Path::new(directory).join(program);
    let search = session.env("PATH").unwrap_or_default();
    let places = search.split(':').map(|place| Path::new(place).join(program));
    let found = std::iter::once(here.clone()).chain(places.filter(|_| !program.contains('/')));
    let found = found.into_iter().find(|path| path.is_file());
    found.unwrap_or(here).display().to_string()
}

/// Runs the prolog or epilog of a step here; how it failed, if it did.
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
    // What the command has said so far comes before what the program says.
    let _ = std::io::Write::flush(&mut session.out);
    match command.status().await {
        Ok(status) if status.success() => None,
        Ok(status) => Some(status.code().map_or_else(|| status.to_string(), |code| format!("rc = {code}"))),
        Err(error) => Some(format!("({program}: {error})")),
    }
}
