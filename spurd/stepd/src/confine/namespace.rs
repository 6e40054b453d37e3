//! What spurstepd and all processes of a step see of the host's files: all of them, but for the directories that the job
//! has to itself.

use std::io;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use step_wire::order::PrivateDirectory;

/// Puts the job's own directories in place of the host's, for this process and those that it starts. What the host mounts
/// later is seen, too; what is mounted here is not seen elsewhere.
///
/// # Errors
/// What the system refused, with the directory.
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
