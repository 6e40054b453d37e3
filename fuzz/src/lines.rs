//! Targets for command lines, batch scripts and output formats.

use spur_cli::format::fields::{job, node, priority, step};
use spur_cli::format::report::Report;
use spur_cli::format::table::header;
use spur_cli::format::{Columns, Table};
use spur_cli::options::defs::{SALLOC_LINE, SRUN_LINE};
use spur_cli::options::Settled;
use spur_cli::options::submission::Submission;

use crate::text_of;
use crate::wire::submit;
use crate::world::Afternoon;

/// Submits the options of a command to a controller.
fn go_on(wishes: Submission) {
    match wishes.into_spec(&Afternoon) {
        Ok(spec) => submit(spec),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses a command line, one word a line. The first line names the command (`srun`, `salloc`, else
/// `sbatch`). Lines `NAME=VALUE` before the words are environment variables.
pub fn options(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else { return };
    let mut lines = text.lines().peekable();
    let command = lines.next().unwrap_or_default();
    let mut variables = Vec::new();
    while let Some(variable) =
        lines.peek().filter(|line| !line.starts_with('-')).and_then(|line| line.split_once('='))
    {
        variables.push(variable);
        lines.next();
    }
    let env =
        |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
    let words: Vec<String> = lines.map(str::to_owned).collect();
    let line = match command {
        "srun" => &SRUN_LINE,
        "salloc" => &SALLOC_LINE,
        _ => {
            match Submission::parse(&words, &env, None) {
                Ok(components) => components.into_iter().for_each(go_on),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
            return;
        }
    };
    let mut wishes = Submission::default();
    match wishes.settle_line(line, &words, &env) {
        Ok(Settled::Run(_)) => go_on(wishes),
        Ok(Settled::Show(text)) => assert!(!text.is_empty()),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

/// Parses a batch script with its directives.
pub fn script(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else { return };
    match Submission::parse(&[], &|_| None, Some(text)) {
        Ok(components) => components.into_iter().for_each(go_on),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn columns<R>(text: &str, table: &'static Table<R>) {
    for columns in [Columns::Letters(text.to_owned()), Columns::Names(text.to_owned())] {
        let format = columns.read(table);
        // The width of a column is not bounded, so a header of very many wide columns would exhaust memory.
        if format.columns.len() < 64 {
            drop(header(&format));
        }
    }
}

/// Parses the formats of `-o`, `-O` and `--format`.
pub fn formats(bytes: &[u8]) {
    let Some(text) = text_of(bytes) else { return };
    columns(text, &job::TABLE);
    columns(text, &node::TABLE);
    columns(text, &priority::TABLE);
    columns(text, &step::TABLE);
    if let Err(error) = Report::parse(text) {
        assert!(!error.to_string().is_empty());
    }
}
