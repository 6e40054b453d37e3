//! The lock that keeps a second controller out: held on a file beside the database for as long as it is open, let
//! go by the system however the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::{StoreError, beside};

/// Takes the lock of the database at `path` and leaves this process's number in it.
pub(super) fn take(path: &Path) -> Result<File, StoreError> {
    let name = beside(path, ".lock");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(false)
        .read(true)
        .write(true)
        .mode(0o600)
        .open(&name)
        .map_err(|error| StoreError::io("open the lock", &name, error))?;
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => {
            let mut pid = String::new();
            let read = file.read_to_string(&mut pid);
            let pid = read.ok().and_then(|_| pid.trim().parse().ok());
            return Err(StoreError::InUse { path: path.to_owned(), pid });
        }
        Err(TryLockError::Error(error)) => return Err(StoreError::io("lock", &name, error)),
    }
    // The number is a help for people, the lock is what counts: it need not be durable.
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| writeln!(file, "{}", std::process::id()))
        .map_err(|error| StoreError::io("write the lock", &name, error))?;
    Ok(file)
}
