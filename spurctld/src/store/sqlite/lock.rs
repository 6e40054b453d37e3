//! The lock that keeps a second controller out. It is held on a file beside the database while that is open,
//! and the kernel releases it however the process ends.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{StoreError, beside};

/// Longest wait for the lock: a child that its last holder has just forked holds it, too, until the child
/// executes its program.
const FORKED: Duration = Duration::from_secs(1);

/// Takes the lock of the database at `path` and records this process's id in it.
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
    if !lock(&file).map_err(|error| StoreError::io("lock", &name, error))? {
        let mut pid = String::new();
        let read = file.read_to_string(&mut pid);
        let pid = read.ok().and_then(|_| pid.trim().parse().ok());
        return Err(StoreError::InUse { path: path.to_owned(), pid });
    }
    // The process id is for messages only, so it need not be durable.
    file.set_len(0)
        .and_then(|()| file.seek(SeekFrom::Start(0)))
        .and_then(|_| writeln!(file, "{}", std::process::id()))
        .map_err(|error| StoreError::io("write the lock", &name, error))?;
    Ok(file)
}

/// Locks a file; `false` if another process keeps it locked.
fn lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => return Ok(true),
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Err(error),
    }
    let (tell, told) = mpsc::channel();
    let waiting = file.try_clone()?;
    thread::Builder::new().name("lock".to_owned()).spawn(move || {
        let locked = waiting.lock();
        // Without a waiter the lock is released with the file.
        let _ = tell.send(locked);
    })?;
    told.recv_timeout(FORKED).map_or(Ok(false), |locked| locked.map(|()| true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_that_is_let_go_is_waited_for_and_another_is_told_of() {
        let directory = std::env::temp_dir().join(format!("spur-lock-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let path = directory.join("spur.db");
        // Plays a forked child that releases the lock when it executes its program, before or after the next
        // attempt.
        for _ in 0..200 {
            let forked = take(&path).unwrap().try_clone().unwrap();
            let child = thread::spawn(move || drop(forked));
            drop(take(&path).unwrap());
            child.join().unwrap();
        }
        let held = take(&path).unwrap();
        match take(&path) {
            Err(StoreError::InUse { pid, .. }) => assert_eq!(pid, Some(std::process::id())),
            other => panic!("{other:?}"),
        }
        drop(held);
        std::fs::remove_dir_all(directory).unwrap();
    }
}
