//! Start of most commands: options are read, or a text such as the help is printed.

use std::io::Write;

use crate::options::{CommandLine, Settled};
use crate::session::Session;

/// Applies the options of a command line to `settings` and returns the operands; `None` if a text such as the
/// help was printed instead.
///
/// # Errors
/// Invalid options.
pub(super) fn operands<S>(
    session: &mut Session,
    line: &CommandLine<S>,
    words: &[String],
    settings: &mut S,
) -> anyhow::Result<Option<Vec<String>>> {
    match line.settle(words, &|name| session.env(name), settings)? {
        Settled::Show(text) => {
            write!(session.out, "{text}")?;
            Ok(None)
        }
        Settled::Run(operands) => Ok(Some(operands)),
    }
}
