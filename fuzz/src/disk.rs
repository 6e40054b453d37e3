//! Targets for the files that daemons read from their disks.

use std::fmt::Debug;

use serde_json::{from_slice, to_vec};
use spur_core::cluster::Entry;
use spur_core::cluster::snapshot::Record;
use spur_core::compute::allegiance::Allegiance;
use step_wire::attempt::StepAttempt;
use step_wire::record::ExitRecord;

use crate::text_of;

/// Asserts that a value read from `bytes` is equal after it was written and read again.
fn again<T>(bytes: &[u8])
where
    T: for<'a> serde::Deserialize<'a> + serde::Serialize + PartialEq + Debug,
{
    if let Ok(value) = from_slice::<T>(bytes) {
        let written = to_vec(&value).expect("what was read can be written");
        let read = from_slice::<T>(&written);
        let read = read.unwrap_or_else(|error| panic!("{}: {error}", String::from_utf8_lossy(&written)));
        assert_eq!(read, value);
    }
}

/// Reads each line as an entry of the journal and as a record of a snapshot.
pub fn journal(bytes: &[u8]) {
    for line in bytes.split(|byte| *byte == b'\n') {
        again::<Entry>(line);
        again::<Record>(line);
    }
}

/// Reads the bytes as each kind of content of a spool: an exit record, the allegiance of the node, the name
/// of a marker.
pub fn spool(bytes: &[u8]) {
    again::<ExitRecord>(bytes);
    again::<Allegiance>(bytes);
    if let Some(name) = text_of(bytes)
        && let Ok(attempt) = name.parse::<StepAttempt>()
    {
        assert_eq!(attempt.to_string().parse::<StepAttempt>().ok(), Some(attempt), "{name:?}");
    }
}
