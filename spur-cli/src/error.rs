//! Printing of errors, and their exit codes.

use std::io;

use spur_proto::client::CallError;

use crate::options::OptionError;
use crate::session::Session;

/// Exit code of a command that fails.
pub const FAILURE: u8 = 1;
/// Exit code of a command that requests nodes with an unknown option or an invalid value, as with Slurm.
const BAD_OPTION: u8 = 255;
/// Exit code if the output's reader has closed it: the shell's code for SIGPIPE.
const BROKEN_PIPE: u8 = 141;

/// An error whose text is complete: no causes are added.
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    /// Text to print.
    pub text: String,
    /// Exit code of the command.
    pub code: u8,
}

/// An error that Slurm's command prints without its own name.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Bare(pub String);

impl Failure {
    /// Returns an error with the usual exit code.
    pub fn new(text: impl Into<String>) -> Failure {
        Failure { text: text.into(), code: FAILURE }
    }

    /// Returns a context that changes only the exit code of an error.
    pub fn coded(code: u8) -> Failure {
        Failure { text: String::new(), code }
    }
}

/// Prints `error` as Slurm's commands do and returns the exit code. Prints nothing if the output's reader has
/// closed it.
pub fn report(session: &mut Session, error: &anyhow::Error) -> u8 {
    if is_broken_pipe(error) {
        return BROKEN_PIPE;
    }
    let option = error.chain().find_map(|cause| cause.downcast_ref::<OptionError>());
    let getopts = option.is_some_and(OptionError::is_about_usage) && error.chain().count() == 1;
    let bare = error.downcast_ref::<Bare>().is_some();
    let call = error.downcast_ref::<CallError>().filter(|_| !bare);
    let unanswered = call.is_some_and(|error| !error.is_refusal());
    let text = render(error);
    let text = match limit_word(&text) {
        Some((word, rest)) => format!("{word}\n{rest}"),
        None => text,
    };
    for line in text.lines() {
        if unanswered {
            let asking = session.unanswered();
            session.say(&format!("{asking}: {line}"));
        } else if bare {
            session.say(line);
        } else if getopts {
            // The form is that of `getopt_long`.
            let name = session.name;
            session.say(&format!("{name}: {line}"));
        } else if line.starts_with(' ') {
            // Indented lines are quoted output.
            session.say(line);
        } else {
            session.error(line);
        }
    }
    if let Some(hint) = hint(session.name, error) {
        session.say(&hint);
    }
    let for_jobs = matches!(session.name, "sbatch" | "salloc" | "srun");
    let said = || session.env("SLURM_EXIT_ERROR").filter(|_| for_jobs)?.parse().ok();
    let own = error.downcast_ref::<Failure>().map(|failure| failure.code).filter(|code| *code != FAILURE);
    match own {
        Some(code) => code,
        None if option.is_some() && for_jobs => BAD_OPTION,
        None => said().unwrap_or(FAILURE),
    }
}

/// Returns the error and its causes on one line, without causes that repeat it.
fn render(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        // The error's number adds nothing to its text.
        let cause = cause.split(" (os error ").next().unwrap_or_default().to_owned();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// Splits the refusal of a job over a limit into Slurm's word for the limit, which its commands print first,
/// and the other text. `None` for any other text.
fn limit_word(text: &str) -> Option<(&str, String)> {
    let marker = "user's size and/or time limits): ";
    let (before, after) = text.split_once(marker)?;
    let (word, limit) = after.split_once(": ")?;
    let is_word = word.bytes().all(|byte| byte.is_ascii_alphanumeric());
    is_word.then(|| (word, format!("{before}{marker}{limit}")))
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
    // A broken connection to the controller is reported; a closed output is not.
    !error.chain().any(|cause| cause.is::<CallError>()) && error.chain().any(broken)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use anyhow::Context;

    use super::*;

    fn reported(error: anyhow::Error) -> (u8, String) {
        let mut session = Session::in_memory("sbatch", BTreeMap::new(), None);
        let code = report(&mut session, &error);
        (code, session.take_complaints())
    }

    fn not_found() -> io::Error {
        io::Error::from_raw_os_error(2)
    }

    #[test]
    fn causes_stand_behind_what_they_caused() {
        let error = Err::<(), _>(not_found()).context("cannot read x").context("Batch job submission failed");
        let (code, text) = reported(error.unwrap_err());
        assert_eq!(code, 1);
        assert_eq!(
            text,
            "sbatch: error: Batch job submission failed: cannot read x: No such file or directory\n"
        );
    }

    #[test]
    fn what_slurm_says_without_a_name_has_none() {
        let (code, text) = reported(Bare("invalid keyword: foo".into()).into());
        assert_eq!((code, text.as_str()), (1, "invalid keyword: foo\n"));
        let error = Err::<(), _>(not_found()).context(Bare("slurm_update error".into())).unwrap_err();
        assert_eq!(reported(error).1, "slurm_update error: No such file or directory\n");
    }

    #[test]
    fn another_exit_code_changes_no_word() {
        let error = Err::<(), _>(not_found()).context(Failure::coded(42)).unwrap_err();
        assert_eq!(reported(error), (42, "sbatch: error: No such file or directory\n".to_owned()));
    }

    #[test]
    fn every_line_is_marked_except_quotations() {
        let (_, text) = reported(anyhow::anyhow!("one\n  two\nthree"));
        assert_eq!(text, "sbatch: error: one\n  two\nsbatch: error: three\n");
    }

    #[test]
    fn usage_is_pointed_to_where_it_helps() {
        let error = OptionError::usage(crate::options::Origin::Argument("-N".into()), "it needs a value");
        let (_, text) = reported(error.into());
        assert_eq!(text, "sbatch: -N: it needs a value\nTry \"sbatch --help\" for more information\n");
    }

    #[test]
    fn a_pipe_that_nobody_reads_is_left_in_silence() {
        let error = io::Error::from(io::ErrorKind::BrokenPipe);
        assert_eq!(reported(error.into()), (BROKEN_PIPE, String::new()));
    }
}
