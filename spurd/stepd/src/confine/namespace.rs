//! The mount namespace of spurstepd and a step's processes: the host's files, with the job's private
//! directories.

use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use step_wire::order::PrivateDirectory;

/// Mounts the job's private directories over the host's, for this process and its descendants.
///
/// Later mounts of the host are visible in the namespace; mounts made here are not visible outside.
///
/// # Errors
/// Names the directory that could not be mounted, with the system's error.
pub(crate) fn enter(directories: &[PrivateDirectory]) -> io::Result<()> {
    if directories.is_empty() {
        return Ok(());
    }
    let none: Option<&str> = None;
    unshare(CloneFlags::CLONE_NEWNS)?;
    mount(none, "/", none, MsFlags::MS_SLAVE | MsFlags::MS_REC, none)?;
    for PrivateDirectory { source, target } in directories {
        mount(Some(source), target, none, MsFlags::MS_BIND, none)
            .map_err(|error| io::Error::other(format!("{}: {}", target.display(), io::Error::from(error))))?;
    }
    Ok(())
}
