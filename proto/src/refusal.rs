//! Refusals as they cross the wire: a gRPC status whose details are a serialized [`Error`], and the versions of
//! the protocol that may talk to each other.

use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::{Code, Status};

use crate::v1::Error;

/// This protocol, as `MAJOR.MINOR`. Ends of the same major version understand each other.
pub const PROTOCOL: &str = "2.0";
/// The metadata key under which a client says which protocol it speaks.
pub const VERSION_KEY: &str = "spur-version";
/// The code of a refusal because too much is going on; asking again a little later helps.
pub const BUSY: &str = "EAGAIN";
/// The code of a refusal because the other end speaks another protocol.
pub const WRONG_VERSION: &str = "SLURM_PROTOCOL_VERSION_ERROR";

impl Error {
    /// An error by its stable code and its sentence.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Error {
        Error { code: code.into(), message: message.into() }
    }
}

/// The status that carries `error`.
pub fn status(code: Code, error: &Error) -> Status {
    Status::with_details(code, error.message.clone(), error.encode_to_vec().into())
}

/// The status of a server whose queue is full.
pub fn busy(message: &str) -> Status {
    status(Code::ResourceExhausted, &Error::new(BUSY, message))
}

/// What a status carries, if it is a refusal of ours and not a failure of the transport.
pub fn error_of(status: &Status) -> Option<Error> {
    let details = status.details();
    if details.is_empty() { None } else { Error::decode(details).ok() }
}

/// Whether two protocol versions understand each other.
pub fn compatible(ours: &str, theirs: &str) -> bool {
    let major = |version: &str| version.split('.').next().and_then(|n| n.parse::<u32>().ok());
    major(ours).is_some() && major(ours) == major(theirs)
}

/// Refuses a call from a client that says it speaks another protocol, or does not say what it speaks.
///
/// # Errors
/// The status to answer with; it names both versions.
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
