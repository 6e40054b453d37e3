//! The latest journal entry and the largest job number that any order to this node has named.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// The numbers, in one line of a file that is overwritten in place.
#[derive(Debug)]
pub(super) struct Told {
    file: File,
    latest: Mutex<(u64, u32)>,
}

impl Told {
    pub(super) fn open(path: &Path) -> io::Result<Told> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut numbers = text.split_whitespace();
        // A line that a power loss truncated counts as missing.
        let seq = numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let last_job = numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        Ok(Told { file, latest: Mutex::new((seq, last_job)) })
    }

    pub(super) fn latest(&self) -> (u64, u32) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn keep(&self, seq: u64, last_job: u32) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if seq > latest.0 || last_job > latest.1 {
            *latest = (seq.max(latest.0), last_job.max(latest.1));
            self.write(*latest)?;
        }
        Ok(())
    }

    pub(super) fn forget(&self) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (0, 0);
        self.write(*latest)?;
        self.file.sync_all()
    }

    fn write(&self, (seq, last_job): (u64, u32)) -> io::Result<()> {
        self.file.write_all_at(format!("{seq:020} {last_job:010}\n").as_bytes(), 0)
    }
}
