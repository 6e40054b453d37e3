//! The standard streams of a batch script, and of the tasks of a step.

use std::path::PathBuf;

use spur_core::text::jobid::StepRef;
use spur_core::text::pattern::{FilePattern, PatternContext};
use spur_proto::v1;
use step_wire::order::{Input, Output};

use super::NodeFacts;

impl NodeFacts {
    /// Returns standard input, output and error of a task of a step.
    pub(super) fn files(
        &self,
        launch: &v1::StepLaunch,
        credential: &v1::StepCredential,
        (number, rank): (usize, u32),
    ) -> Result<(Input, Output, Output), String> {
        let said = launch.files.clone().unwrap_or_default();
        let context = PatternContext {
            job: credential.job_id,
            array: said.array_job_id.zip(said.array_task_id),
            step: Some(StepRef::Number(credential.step_id)),
            node: &self.name,
            node_number: u32::try_from(number).unwrap_or(u32::MAX),
            task: rank,
            user: &credential.user,
            job_name: &credential.job_name,
            restarts: credential.restart,
        };
        let stream = |pattern: &str| -> Result<Output, String> {
            Ok(match pattern {
                "" if launch.terminal.is_some() && rank > 0 => Output::Null,
                "" => Output::Stream,
                pattern => Output::File { path: expand(pattern, &context)?, append: said.append },
            })
        };
        let stdin = match said.stdin.as_str() {
            "" if !launch.no_stdin && launch.stdin_task.is_none_or(|task| task == rank) => Input::Stream,
            "" => Input::Null,
            pattern => Input::File(expand(pattern, &context)?),
        };
        let joined = said.joined || (launch.terminal.is_some() && rank == 0);
        let stderr = if joined { Output::Stdout } else { stream(&said.stderr)? };
        Ok((stdin, stream(&said.stdout)?, stderr))
    }
}

/// Expands a file name pattern.
fn expand(pattern: &str, context: &PatternContext<'_>) -> Result<PathBuf, String> {
    let pattern: FilePattern = pattern.parse().map_err(|error| format!("{error}"))?;
    Ok(pattern.render(context).into())
}

/// Files that stand for no stream: a batch script has no terminal or client to which its streams could
/// lead.
const NOWHERE: [&str; 7] =
    ["/dev/null", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2"];

pub(super) fn stdin(pattern: &str, context: &PatternContext<'_>) -> Result<Input, String> {
    if pattern.is_empty() || NOWHERE.contains(&pattern) {
        return Ok(Input::Null);
    }
    expand(pattern, context).map(Input::File)
}

pub(super) fn stdout(batch: &v1::Batch, context: &PatternContext<'_>) -> Result<Output, String> {
    let default = if context.array.is_some() { FilePattern::DEFAULT_ARRAY } else { FilePattern::DEFAULT };
    output(if batch.stdout.is_empty() { default } else { &batch.stdout }, batch, context)
}

pub(super) fn stderr(batch: &v1::Batch, context: &PatternContext<'_>) -> Result<Output, String> {
    if batch.stderr.is_empty() {
        return Ok(Output::Stdout);
    }
    output(&batch.stderr, batch, context)
}

fn output(pattern: &str, batch: &v1::Batch, context: &PatternContext<'_>) -> Result<Output, String> {
    if NOWHERE.contains(&pattern) {
        return Ok(Output::Null);
    }
    Ok(Output::File { path: expand(pattern, context)?, append: batch.append.unwrap_or(false) })
}
