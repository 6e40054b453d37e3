//! How failures are told and which exit codes they become.

use std::io;

use spur_proto::client::CallError;

use crate::options::OptionError;
use crate::session::Session;

/// The exit code of a command that failed by itself.
pub const FAILURE: u8 = 1;
/// The exit code when nobody reads the output any more: what a shell shows for SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// An error whose text is all there is to say, without `error:` lines of its causes.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// What to print.
    pub text: String,
    /// How the command ends.
    pub code: u8,
}

impl Failure {
    /// An error with the usual exit code.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: FAILURE }
    }

    /// Another exit code for the error that this is the context of.
    pub fn coded(code: u8) -> Failure {
        Failure { text: String::new(), code }
    }
}

/// Prints `error` as Slurm's commands do and gives the exit code. Nothing is said of a pipe that nobody reads.
pub fn report(session: &mut Session, error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return BROKEN_PIPE;
    }
    for line in render(error).lines() {
        // Indented lines quote somebody else.
        if line.starts_with(' ') { session.say(line) } else { session.error(line) }
    }
    if let Some(hint) = hint(session.name, error) {
        session.say(&hint);
    }
    error.downcast_ref::<Failure>().map_or(FAILURE, |failure| failure.code)
}

/// The error with its causes on one line, each only if it adds something.
fn render(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // The number says nothing that the words do not.
        let cause = cause.split(" (os error ").next().unwrap_or_default().to_owned();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

fn hint(name: &str, error: &anyhow::Error) -> Option<String> {
    let options = error.chain().find_map(|cause| cause.downcast_ref::<OptionError>());
    let usage = options?.is_about_usage();
    usage.then(|| format!("Try \"{name} --help\" for more information"))
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe)
    };
    // A connection that broke is told of; only our own output is not.
    !error.chain().any(|cause| cause.is::<CallError>()) && error.chain().any(broken)
}
