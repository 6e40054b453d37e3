//! PMI-1 on the wire: one command per line, words separated by blanks, each `name=value`.

/// Longest line that is read, in bytes: more than a put, whose value has up to 1,024.
const LONGEST: usize = 16 << 10;

/// One command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    words: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Line {
    fn read(line: &[u8]) -> Line {
        let words = line.split(|&byte| byte == b' ').filter(|word| !word.is_empty());
        let pair = |word: &[u8]| match word.iter().position(|&byte| byte == b'=') {
            Some(at) => (word[..at].to_vec(), word[at + 1..].to_vec()),
            None => (word.to_vec(), Vec::new()),
        };
        Line { words: words.map(pair).collect() }
    }

    /// Returns the value of a word; empty if the word is missing.
    pub(crate) fn value(&self, name: &str) -> &[u8] {
        let found = self.words.iter().find(|(key, _)| key == name.as_bytes());
        found.map_or(&[], |(_, value)| value)
    }

    /// Returns the name of the command.
    pub(crate) fn command(&self) -> &[u8] {
        match self.value("cmd") {
            [] => self.value("mcmd"),
            command => command,
        }
    }
}

/// The error of a line that is too long for PMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a PMI command longer than {LONGEST} bytes")]
pub(crate) struct TooLong;

/// Takes the first complete command off `inbox`; of a command with several lines (`mcmd=spawn`) returns only
/// the first.
///
/// # Errors
/// [`TooLong`] if a line does not end within [`LONGEST`] bytes.
pub(crate) fn take(inbox: &mut Vec<u8>) -> Result<Option<Line>, TooLong> {
    let Some(end) = inbox.iter().position(|&byte| byte == b'\n') else {
        return if inbox.len() > LONGEST { Err(TooLong) } else { Ok(None) };
    };
    let line = Line::read(&inbox[..end]);
    let mut taken = end + 1;
    if line.command() == b"spawn" {
        const LAST: &[u8] = b"endcmd\n";
        let Some(at) = inbox.windows(LAST.len()).position(|window| window == LAST) else {
            return if inbox.len() > LONGEST { Err(TooLong) } else { Ok(None) };
        };
        taken = at + LAST.len();
    }
    inbox.drain(..taken);
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_lines_of_words() {
        let mut inbox = b"cmd=put kvsname=1.0 key=-a-0 value=x=y\ncmd=bar".to_vec();
        let line = take(&mut inbox).unwrap().unwrap();
        assert_eq!(
            (line.command(), line.value("key"), line.value("value")),
            (&b"put"[..], &b"-a-0"[..], &b"x=y"[..])
        );
        assert_eq!(line.value("none"), b"");
        assert_eq!(take(&mut inbox), Ok(None));
        inbox.extend_from_slice(b"rier_in\n");
        assert_eq!(take(&mut inbox).unwrap().unwrap().command(), b"barrier_in");
        assert!(inbox.is_empty());
    }

    #[test]
    fn a_spawn_ends_with_its_last_line() {
        let mut inbox = b"mcmd=spawn\nnprocs=1\nexecname=a\n".to_vec();
        assert_eq!(take(&mut inbox), Ok(None));
        inbox.extend_from_slice(b"endcmd\ncmd=finalize\n");
        assert_eq!(take(&mut inbox).unwrap().unwrap().command(), b"spawn");
        assert_eq!(take(&mut inbox).unwrap().unwrap().command(), b"finalize");
    }

    #[test]
    fn a_line_without_end_is_refused() {
        assert_eq!(take(&mut vec![b'x'; LONGEST + 1]), Err(TooLong));
    }
}
