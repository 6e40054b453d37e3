//! The mark beside the database: the last acknowledged entry, as far as it was recorded.
//!
//! SQLite takes a log with a missing or unreadable end for one that ends earlier, and a missing database for
//! a new one. The mark shows the difference. It is written after a commit is durable and never synced, so it
//! is at or before the end of an intact journal.

use std::fs::{File, OpenOptions};
use std::io::Read;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use super::{StoreError, beside};

/// The mark of one journal.
pub(super) struct Mark {
    file: File,
    cluster: String,
}

/// Returns the path of a database's mark.
pub(super) fn place(path: &Path) -> PathBuf {
    beside(path, ".mark")
}

/// Reads the mark: the journal's random name and the entry; `None` if there is no readable mark.
pub(super) fn read(path: &Path) -> Result<Option<(String, u64)>, StoreError> {
    let name = place(path);
    let mut text = String::new();
    match File::open(&name).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        // A power loss has left bytes that are not text.
        Err(error) if error.kind() == std::io::ErrorKind::InvalidData => return Ok(None),
        Err(error) => return Err(StoreError::io("read", &name, error)),
    }
    let mut words = text.split_whitespace();
    Ok(words
        .next()
        .zip(words.next().and_then(|seq| seq.parse().ok()))
        .map(|(name, seq)| (name.to_owned(), seq)))
}

impl Mark {
    /// Opens the mark, and writes the present end of the journal of that name.
    pub(super) fn open(path: &Path, cluster: &str, last: u64) -> Result<Mark, StoreError> {
        let name = place(path);
        let options = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&name);
        let mark = options.map(|file| Mark { file, cluster: cluster.to_owned() });
        let mark = mark.map_err(|error| StoreError::io("open", &name, error))?;
        mark.write(last).map_err(|error| StoreError::io("write", &name, error))?;
        Ok(mark)
    }

    /// Records that the entry is durable.
    pub(super) fn reach(&self, seq: u64) {
        // A mark that lags detects less after the next start; nothing else depends on it.
        let _ = self.write(seq);
    }

    fn write(&self, seq: u64) -> std::io::Result<()> {
        self.file.write_all_at(format!("{} {seq:020}\n", self.cluster).as_bytes(), 0)
    }
}
