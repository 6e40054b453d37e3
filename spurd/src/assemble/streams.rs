//! Where the streams of a batch script go.

use std::path::PathBuf;

use spur_core::text::pattern::{FilePattern, PatternContext};
use spur_proto::v1;
use step_wire::order::{Input, Output};

/// The name that a pattern makes.
pub(super) fn expand(pattern: &str, context: &PatternContext<'_>) -> Result<PathBuf, String> {
    let pattern: FilePattern = pattern.parse().map_err(|error| format!("{error}"))?;
    Ok(pattern.render(context).into())
}

/// Names that mean nothing to a batch script: nobody stands behind its streams.
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
