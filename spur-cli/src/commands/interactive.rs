//! The interactive mode of `scontrol` and `sacctmgr`: runs commands line by line until one ends it, or until
//! the end of the input.

use std::io::{self, IsTerminal, Write};

use crate::error::{self, FAILURE, Failure};
use crate::session::Session;

/// Command that repeats the previous one.
const AGAIN: &str = "!!";

/// The prompt of a command, and the words that end its interactive mode.
#[derive(Clone, Copy)]
pub(super) struct Console {
    /// Text before each line, such as `scontrol: `.
    pub(super) prompt: &'static str,
    /// Returns true for a word that ends the mode.
    pub(super) ends: fn(&str) -> bool,
}

/// Reads commands from the standard input and runs each with `command`. Unless the input is a terminal, each
/// command is printed.
///
/// # Errors
/// An error of the input or the output.
pub(super) async fn run(
    session: &mut Session,
    console: Console,
    command: impl AsyncFnMut(&mut Session, &[String]) -> anyhow::Result<u8>,
) -> anyhow::Result<u8> {
    let echo = !io::stdin().is_terminal();
    let next = async || tokio::task::spawn_blocking(|| io::stdin().lines().next().transpose()).await?;
    follow(session, console, next, command, echo).await
}

/// Runs the commands that `next` returns. Returns the largest of their exit codes.
pub(super) async fn follow(
    session: &mut Session,
    Console { prompt, ends }: Console,
    mut next: impl AsyncFnMut() -> io::Result<Option<String>>,
    mut command: impl AsyncFnMut(&mut Session, &[String]) -> anyhow::Result<u8>,
    echo: bool,
) -> anyhow::Result<u8> {
    let (mut last, mut code) = (Vec::new(), 0);
    loop {
        write!(session.out, "{prompt}")?;
        session.out.flush()?;
        let Some(line) = next().await? else {
            writeln!(session.out)?;
            return Ok(code);
        };
        if echo {
            writeln!(session.out, "{line}")?;
        }
        let words = match split(&line) {
            Ok(words) if words == [AGAIN] => last.clone(),
            Ok(words) => words,
            Err(failure) => {
                session.out.flush()?;
                session.say(&failure.text);
                code = FAILURE;
                continue;
            }
        };
        let Some(word) = words.first() else { continue };
        if ends(word) {
            return Ok(code);
        }
        last.clone_from(&words);
        let ended = command(session, &words).await;
        session.out.flush()?;
        match ended {
            Ok(ended) => code = code.max(ended),
            Err(error) => code = code.max(error::report(session, &error)),
        }
    }
}

/// Splits a line into words at blanks outside quotes, and removes the quotes.
fn split(line: &str) -> Result<Vec<String>, Failure> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for letter in line.chars() {
        match (quote, letter) {
            (Some(open), _) if letter == open => quote = None,
            (None, '"' | '\'') => {
                quote = Some(letter);
                word.get_or_insert_default();
            }
            (None, _) if letter.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(letter),
        }
    }
    if let Some(open) = quote {
        return Err(Failure::new(format!("the second {open} is missing")));
    }
    words.extend(word);
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotes_hold_blanks_together() {
        for (line, words) in [
            ("show  job 1", &["show", "job", "1"][..]),
            ("update jobid=1 comment=\"a b\"", &["update", "jobid=1", "comment=a b"]),
            ("name='it\"s' ''", &["name=it\"s", ""]),
            (" ", &[]),
        ] {
            assert_eq!(split(line).unwrap(), words, "{line}");
        }
        assert!(split("comment=\"a b").is_err());
    }
}
