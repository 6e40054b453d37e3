//! Whether a node's groups are still somebody's: a lock on their directory says that their spurd lives.
//!
//! A spurd that is killed leaves its groups behind. The next one with the same spool takes them over; if there is none, the
//! next one that starts on this host removes them, as far as nothing runs in them.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use rustix::fs::{FlockOperation, flock};

use super::remove_node;

/// Makes the group of a node, and holds it until the file is closed.
pub(super) fn hold(group: &Path, make: impl Fn() -> io::Result<()>) -> io::Result<File> {
    loop {
        make()?;
        let directory = match File::open(group) {
            // Another spurd that starts has taken it for one that is left.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        flock(&directory, FlockOperation::LockShared)?;
        if group.is_dir() {
            return Ok(directory);
        }
    }
}

/// Removes the groups beside this one that nobody holds and nothing runs in.
pub(super) fn sweep(own: &Path) {
    let nodes = own.parent().and_then(|above| fs::read_dir(above).ok());
    for path in nodes.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())) {
        let other = (path != own && path.is_dir()).then(|| File::open(&path));
        let Some(Ok(directory)) = other else { continue };
        // The lock is kept until they are gone: whoever makes them anew meanwhile waits for it.
        if flock(&directory, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove_node(&path, &BTreeSet::new());
        }
    }
}
