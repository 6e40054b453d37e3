//! PMI-2 on the wire: a length in six digits, then `cmd=name;key=value;...;`, with every `;` of a value
//! doubled.

/// Longest command that is read, in bytes.
const LONGEST: usize = 64 << 10;
const HEADER: usize = 6;

/// One command, or one answer.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Message {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Message {
    /// Returns an answer to a command, with the thread id of the command if it has one.
    pub(crate) fn answer(command: &Message, rc: i32) -> Message {
        let name = [command.command(), b"-response"].concat();
        let mut answer = Message { pairs: vec![(b"cmd".to_vec(), name)] };
        let mark = command.value("thrid");
        if !mark.is_empty() {
            answer.pairs.push((b"thrid".to_vec(), mark.to_vec()));
        }
        answer.with("rc", rc.to_string())
    }

    pub(crate) fn with(mut self, key: &str, value: impl AsRef<[u8]>) -> Message {
        self.pairs.push((key.as_bytes().to_vec(), value.as_ref().to_vec()));
        self
    }

    pub(crate) fn command(&self) -> &[u8] {
        self.value("cmd")
    }

    /// Returns the value of a key; empty if the key is missing.
    pub(crate) fn value(&self, key: &str) -> &[u8] {
        let found = self.pairs.iter().find(|(name, _)| name == key.as_bytes());
        found.map_or(&[], |(_, value)| value)
    }

    fn read(body: &[u8]) -> Message {
        let mut pairs = Vec::new();
        let mut pair = Vec::new();
        let mut bytes = body.iter().peekable();
        while let Some(&byte) = bytes.next() {
            if byte != b';' {
                pair.push(byte);
            } else if bytes.next_if(|next| **next == b';').is_some() {
                pair.push(b';');
            } else {
                pairs.push(std::mem::take(&mut pair));
            }
        }
        let split = |pair: Vec<u8>| match pair.iter().position(|&byte| byte == b'=') {
            Some(at) => (pair[..at].to_vec(), pair[at + 1..].to_vec()),
            None => (pair, Vec::new()),
        };
        Message { pairs: pairs.into_iter().map(split).collect() }
    }

    /// Appends the message's bytes to `out`.
    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let mut body = Vec::new();
        for (key, value) in &self.pairs {
            body.extend_from_slice(key);
            body.push(b'=');
            for &byte in value {
                body.push(byte);
                if byte == b';' {
                    body.push(b';');
                }
            }
            body.push(b';');
        }
        out.extend_from_slice(format!("{:<HEADER$}", body.len()).as_bytes());
        out.extend_from_slice(&body);
    }
}

/// The error of a client that does not speak PMI-2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no length of a PMI-2 command where one is due")]
pub(crate) struct NoLength;

/// Takes the first complete command off `inbox`; `None` if it is not complete.
///
/// # Errors
/// [`NoLength`] if the first bytes are not a length, or the length exceeds [`LONGEST`].
pub(crate) fn take(inbox: &mut Vec<u8>) -> Result<Option<Message>, NoLength> {
    let Some((header, rest)) = inbox.split_first_chunk::<HEADER>() else { return Ok(None) };
    let length = std::str::from_utf8(header).ok().and_then(|text| text.trim().parse::<usize>().ok());
    let length = length.filter(|length| *length <= LONGEST).ok_or(NoLength)?;
    let Some(body) = rest.get(..length) else { return Ok(None) };
    let message = Message::read(body);
    inbox.drain(..HEADER + length);
    Ok(Some(message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_round_trip() {
        let command = Message::default().with("cmd", "kvs-put").with("thrid", "7").with("value", "a;b;;c");
        let mut bytes = Vec::new();
        command.write(&mut bytes);
        assert_eq!(bytes, b"36    cmd=kvs-put;thrid=7;value=a;;b;;;;c;".to_vec());
        for cut in 0..bytes.len() {
            assert_eq!(take(&mut bytes[..cut].to_vec()), Ok(None));
        }
        assert_eq!(take(&mut bytes), Ok(Some(command)));
        assert!(bytes.is_empty());
    }

    #[test]
    fn an_answer_bears_the_mark_of_its_command() {
        let command = Message::default().with("cmd", "kvs-get").with("thrid", "9");
        let mut bytes = Vec::new();
        Message::answer(&command, 0).with("found", "FALSE").write(&mut bytes);
        assert_eq!(bytes, b"46    cmd=kvs-get-response;thrid=9;rc=0;found=FALSE;".to_vec());
    }

    #[test]
    fn what_is_no_length_is_refused() {
        for bytes in [&b"cmd=in"[..], b"-1    ", b"999999"] {
            assert_eq!(take(&mut bytes.to_vec()), Err(NoLength));
        }
    }
}
