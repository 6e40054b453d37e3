//! Ownership of a node's control groups: spurd holds a lock on their directory while it lives.
//!
//! A spurd that is killed leaves its groups behind. The next spurd with the same spool takes them over.
//! Otherwise the next one that starts on this host removes those without processes.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::remove_node;

/// Creates a node's group with `make`, and locks it until the returned file is closed.
pub(super) fn hold(group: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<File> {
    loop {
        make()?;
        let directory = match File::open(group) {
            // Another starting spurd has removed the group as abandoned.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        flock(&directory, FlockOperation::LockShared)?;
        if group.is_dir() {
            return Ok(directory);
        }
    }
}

/// Removes the groups beside `own` that have neither a lock nor processes.
pub(super) fn sweep(own: &Path) {
    let nodes = own.parent().and_then(|above| fs::read_dir(above).ok());
    for path in nodes.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
        let other = (path != own && path.is_dir()).then(|| File::open(&path));
        let Some(Ok(directory)) = other else { continue };
        // The lock stays until the groups are gone, so that a spurd that creates them again waits.
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_node(&path, &BTreeSet::new());
        }
    }
}
