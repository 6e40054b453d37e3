//! The interactive mode of `scontrol`: runs commands line by line until `exit` or the end of the input.

use std::io::{self, IsTerminal, Write};

use super::{Call, command, meant_command};
use crate::error::{self, FAILURE, Failure};
use crate::session::Session;

const PROMPT: &str = "scontrol: ";
/// Command that repeats the previous one.
const AGAIN: &str = "!!";

/// Reads commands from the standard input. Unless the input is a terminal, each command is printed.
pub(super) async fn run(session: &mut Session, call: Call) -> anyhow::Result<u8> {
    let echo = !io::stdin().is_terminal();
    let next = async || tokio::task::spawn_blocking(|| io::stdin().lines().next().transpose()).await?;
    follow(session, call, next, echo).await
}

async fn follow(
    session: &mut Session,
    mut call: Call,
    mut next: impl AsyncFnMut() -> io::Result<Option<String>>,
    echo: bool,
) -> anyhow::Result<u8> {
    let (mut last, mut code) = (Vec::new(), 0);
    loop {
        write!(session.out, "{PROMPT}")?;
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
        if matches!(meant_command(word), Some("exit" | "quit")) {
            return Ok(code);
        }
        last.clone_from(&words);
        let ended = command(session, &mut call, &words).await;
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
    use std::collections::BTreeMap;

    use super::*;

    async fn said(input: &str) -> (u8, String, String) {
        let mut session = Session::in_memory("scontrol", BTreeMap::new(), None);
        let mut lines = input.lines();
        let next = async || Ok(lines.next().map(str::to_owned));
        let code = follow(&mut session, Call::default(), next, true).await.unwrap();
        (code, session.out.take_text(), session.take_complaints())
    }

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

    #[tokio::test]
    async fn commands_follow_one_another() {
        let (code, out, err) = said("show hostlist a1,a2\n!!\nfoo\nhide\nexit\nversion\n").await;
        assert_eq!(
            out,
            "scontrol: show hostlist a1,a2\na[1-2]\nscontrol: !!\na[1-2]\nscontrol: foo\nscontrol: hide\nscontrol: exit\n"
        );
        assert!(err.contains("invalid keyword: foo"), "{err}");
        assert_eq!(code, FAILURE);
        assert_eq!(said("quit\n").await, (0, "scontrol: quit\n".into(), String::new()));
        // The end of the input ends the program.
        assert_eq!(said("").await, (0, "scontrol: \n".into(), String::new()));
    }
}
