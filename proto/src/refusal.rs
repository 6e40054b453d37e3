//! Refusals on the wire: a gRPC status whose details are a serialized [`Error`], and the check of protocol
//! versions.

use std::borrow::Cow;

use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::v1::Error;

/// The version of this protocol, `MAJOR.MINOR`. Ends with the same major version understand each other.
pub const PROTOCOL: &str = "2.0";
/// The metadata key of a client's protocol version.
pub const VERSION_KEY: &str = "spur-version";
/// The error code of an overloaded server; the client repeats the call a little later.
pub const BUSY: &str = "EAGAIN";
/// The error code of incompatible protocol versions.
pub const WRONG_VERSION: &str = "SLURM_PROTOCOL_VERSION_ERROR";

/// The error code of a controller that is not the leader.
pub const STANDBY: &str = "SPUR_STANDBY";
/// The metadata key of the leader's address in a standby's refusal.
pub const LEADER_KEY: &str = "spur-leader";

/// The error code of a controller whose database does not answer.
pub const AWAY: &str = "SPUR_DATABASE_AWAY";
/// The metadata key by which a client accepts outdated answers. A controller returns under this key the
/// seconds since the Unix epoch from which on its answers may be outdated.
pub const STALE_KEY: &str = "spur-stale";

/// Largest size of a sentence in the details of a status, in bytes; it travels in base64.
const MOST_DETAILS: usize = 6 << 10;
/// Largest size of a sentence in the message of a status, in bytes; some bytes travel as three.
const MOST_PLAIN: usize = 1 << 10;

impl Error {
    /// Returns an error with a stable code and a sentence.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Error {
        Error { code: code.into(), message: message.into() }
    }
}

/// Returns the status that carries `error`. A long sentence is cut, because a status travels in the trailers
/// of a call, of which HTTP/2 clients accept 16 KiB.
pub fn status(code: Code, error: &Error) -> Status {
    let details = Error::new(error.code.as_str(), shortened(&error.message, MOST_DETAILS));
    Status::with_details(code, shortened(&error.message, MOST_PLAIN), details.encode_to_vec().into())
}

/// Cuts a text to `most` bytes: after a sentence, else after an entry of a list or a word, followed by `…`.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    const MORE: &str = " …";
    if text.len() <= most {
        return text.into();
    }
    let kept = &text[..text.floor_char_boundary(most.saturating_sub(MORE.len()))];
    // At most half of the space is given up for a good end.
    let mut ends =
        [". ", "; ", ", ", " "].into_iter().filter_map(|end| Some(kept.rfind(end)? + end.trim_end().len()));
    let end = ends.find(|end| *end > kept.len() / 2).unwrap_or(kept.len());
    format!("{}{MORE}", &kept[..end]).into()
}

/// Returns the status of a server whose queue is full.
pub fn busy(message: &str) -> Status {
    status(Code::ResourceExhausted, &Error::new(BUSY, message))
}

/// Returns the status with which a standby on `host` refuses. `leader` is the address of the leader; empty
/// if no controller leads.
pub fn standby(host: &str, leader: &str) -> Status {
    let message = match leader {
        "" => format!("the controller on {host} stands by, and nobody leads yet"),
        leader => format!("the controller on {host} stands by; the controller at {leader} leads"),
    };
    let mut status = status(Code::Unavailable, &Error::new(STANDBY, message));
    if let Ok(leader) = leader.parse() {
        status.metadata_mut().insert(LEADER_KEY, leader);
    }
    status
}

/// Returns the status of a controller whose database does not answer.
pub fn away(message: &str) -> Status {
    status(Code::ResourceExhausted, &Error::new(AWAY, message))
}

/// Returns the leader's address in a standby's refusal: `None` for another status, `Some(None)` without a
/// leader.
pub fn leader_of(status: &Status) -> Option<Option<&str>> {
    let is_standby = error_of(status).is_some_and(|error| error.code == STANDBY);
    let leader = status.metadata().get(LEADER_KEY).and_then(|leader| leader.to_str().ok());
    is_standby.then_some(leader.filter(|leader| !leader.is_empty()))
}

/// Returns the error in a status; `None` for a failure of the transport.
pub fn error_of(status: &Status) -> Option<Error> {
    let details = status.details();
    if details.is_empty() { None } else { Error::decode(details).ok() }
}

/// True if two protocol versions understand each other.
pub fn compatible(ours: &str, theirs: &str) -> bool {
    let major = |version: &str| version.split('.').next().and_then(|n| n.parse::<u32>().ok());
    major(ours).is_some() && major(ours) == major(theirs)
}

/// Refuses a call whose protocol version is incompatible or missing.
///
/// # Errors
/// The status for the answer, which names both versions.
pub fn check_version(metadata: &MetadataMap) -> Result<(), Status> {
    let theirs = metadata.get(VERSION_KEY).and_then(|value| value.to_str().ok()).unwrap_or("none");
    if compatible(PROTOCOL, theirs) {
        return Ok(());
    }
    let message = format!(
        "incompatible versions: this end speaks Spur protocol {PROTOCOL}, the other {theirs}; \
         install the same major version on both"
    );
    Err(status(Code::FailedPrecondition, &Error::new(WRONG_VERSION, message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_survives_the_status_that_carries_it() {
        let error = Error::new("ESLURM_INVALID_PARTITION_NAME", "Invalid partition name specified");
        let carried = status(Code::InvalidArgument, &error);
        assert_eq!(error_of(&carried), Some(error));
        assert_eq!(error_of(&Status::unavailable("connection refused")), None);
    }

    #[test]
    fn a_long_sentence_is_cut_where_it_may_be() {
        for (text, most, expected) in [
            ("One. Two. Three.", 16, "One. Two. Three."),
            ("One. Two. Three.", 15, "One. Two. …"),
            ("there are a, b, c, d", 19, "there are a, …"),
            ("no list of anything", 18, "no list of …"),
            ("xxxxxxxxxxxx", 10, "xxxxxx …"),
            ("üüüüüüüü", 11, "üüü …"),
            ("a. bbbbbbbbbbbbbbbbbbbbb", 20, "a. bbbbbbbbbbbbb …"),
        ] {
            let cut = shortened(text, most);
            assert_eq!(cut, expected);
            assert!(cut.len() <= most, "{cut}");
        }
    }

    #[test]
    fn the_longest_refusal_fits_into_what_a_client_takes() {
        let metadata_bytes = |status: &Status| {
            let headers = status.clone().into_http::<()>().headers().clone();
            headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 32).sum::<usize>()
        };
        for text in ["ü".repeat(4 << 20), "n1, ".repeat(1 << 20), "Never. ".repeat(1 << 20)] {
            let status = status(Code::InvalidArgument, &Error::new("ESLURM_INVALID_PARTITION_NAME", text));
            let bytes = metadata_bytes(&status);
            assert!(bytes < 15 << 10, "{bytes}");
            assert!(error_of(&status).unwrap().message.ends_with('…'));
        }
    }

    #[test]
    fn only_the_major_version_must_agree() {
        for (theirs, good) in [("2.0", true), ("2.7", true), ("1.0", false), ("", false), ("x", false)] {
            assert_eq!(compatible("2.0", theirs), good, "{theirs}");
            let mut metadata = MetadataMap::new();
            metadata.insert(VERSION_KEY, theirs.parse().unwrap());
            assert_eq!(check_version(&metadata).is_ok(), good, "{theirs}");
        }
        let missing = check_version(&MetadataMap::new()).unwrap_err();
        assert_eq!(error_of(&missing).unwrap().code, WRONG_VERSION);
    }
}
