//! Creation of the spool's files and directories: durable, and inaccessible to other users.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Replaces a file as a whole, durably.
pub(super) fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let options = OpenOptions::new().create(true).truncate(true).write(true).mode(0o600).open(&temporary);
    let mut file = options?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Creates a directory and its parents so that their names survive a power loss.
pub(super) fn create_durably(directory: &Path) -> io::Result<()> {
    if directory.is_dir() {
        return Ok(());
    }
    let parent = directory.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    create_durably(parent)?;
    match DirBuilder::new().mode(0o711).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(parent)?.sync_all()
}

/// Creates a directory with at most the permissions in `mode`.
///
/// An existing directory must not belong to another user, who could put scripts and records of ends into it.
pub(super) fn open_for(directory: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(mode).create(directory)?;
    let found = fs::metadata(directory)?;
    let (owner, own) = (found.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        let problem = format!("it belongs to uid {owner}; it must be that of uid {own}, or root's");
        return Err(io::Error::other(problem));
    }
    if owner == own && found.mode() & 0o777 & !mode != 0 {
        fs::set_permissions(directory, Permissions::from_mode(found.mode() & mode))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{BLANK, Spool};
    use super::*;

    #[test]
    fn nobody_else_reads_or_makes_anything_in_a_spool() {
        let root = tempfile::tempdir().unwrap();
        let place = |name: &str| root.path().join("spool").join(name);
        // Permissions as an administrator might set them.
        for name in ["attempts", "spawned"] {
            fs::create_dir_all(place(name)).unwrap();
            fs::set_permissions(place(name), Permissions::from_mode(0o777)).unwrap();
        }
        fs::set_permissions(place("."), Permissions::from_mode(0o777)).unwrap();
        let spool = Spool::open(&place(".")).unwrap();
        spool.accept("1.0.batch".parse().unwrap()).unwrap();
        let mode = |name: &str| fs::metadata(place(name)).unwrap().mode() & 0o777;
        let passable = [".", "attempts", "attempts/1.0.batch"].map(mode);
        assert_eq!(passable, [0o711; 3]);
        assert_eq!(["spawned", "ended", "jobs"].map(mode), [0o700; 3]);
        assert_eq!(["lock", "told", "id", BLANK].map(mode), [0o600; 4]);
        drop(spool);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(place("attempts"), Some(1), None).unwrap();
            let refused = Spool::open(&place(".")).unwrap_err().to_string();
            assert!(refused.contains("attempts"), "{refused}");
        }
    }
}
