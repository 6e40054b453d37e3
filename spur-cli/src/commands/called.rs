//! How most commands begin: they read their options, or show what is asked for instead.

use std::io::Write;

use crate::options::{CommandLine, Settled};
use crate::session::Session;

/// The operands of a command line, whose options go into `settings`; none where all that is wanted has been shown, such as
/// its help.
///
/// # Errors
/// Options that make no sense.
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
