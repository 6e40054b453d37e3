//! The records in the recorder's format.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::ops::Range;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::{Disk, Image, Loss};

const MAGIC: u32 = 0x4c50_5253;
const HEADER: usize = 32;
const MARK: u32 = 10;

/// The reason that a log cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The log cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The log contains something that the recorder does not write.
    #[error("no record begins at byte {0} of the log")]
    Garbled(usize),
    /// A file was changed that was not created under the recorder.
    #[error("record {record} changes a file that is not in the records: inode {inode}")]
    Unknown {
        /// Number of the record.
        record: usize,
        /// The inode of the file.
        inode: u64,
    },
    /// The real directory differs from the records.
    #[error("{} is not what the records say: it was changed in a way that the recorder does not see", path.display())]
    Blind {
        /// The file or directory that differs.
        path: PathBuf,
    },
}

/// One action of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// A file was created under a new name.
    Create {
        /// The new inode.
        inode: u64,
        /// The name, relative to the root.
        path: PathBuf,
    },
    /// A directory was created.
    Directory {
        /// The name, relative to the root.
        path: PathBuf,
    },
    /// Content was written.
    Write {
        /// The inode of the file.
        inode: u64,
        /// The offset of the first byte written.
        offset: u64,
        /// The range of the content in the log.
        content: Range<usize>,
    },
    /// A file was set to a size.
    Truncate {
        /// The inode of the file.
        inode: u64,
        /// The new size, in bytes.
        size: u64,
    },
    /// A sync began.
    SyncBegin {
        /// The inode of the file or directory.
        inode: u64,
        /// The name at the time of the sync.
        path: PathBuf,
        /// The number that links it to its end.
        sync: u64,
    },
    /// A sync succeeded.
    SyncEnd {
        /// The number that links it to its beginning.
        sync: u64,
    },
    /// A file or directory got another name.
    Rename {
        /// The old name.
        from: PathBuf,
        /// The new name.
        to: PathBuf,
    },
    /// A name was removed.
    Remove {
        /// The removed name.
        path: PathBuf,
    },
    /// A file got a second name.
    Link {
        /// The first name.
        from: PathBuf,
        /// The second name.
        to: PathBuf,
    },
    /// Bytes are about to be sent to a pipe or socket, or were put in by
    /// [`Recorder::mark`](crate::Recorder::mark).
    Mark {
        /// The range of the bytes in the log; of a long message only the first few thousand.
        said: Range<usize>,
    },
}

/// An action with its number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The number of the record, from 0.
    pub number: usize,
    /// The action.
    pub action: Action,
}

/// All records of a run.
pub struct Trace {
    root: PathBuf,
    pub(crate) log: Arc<Vec<u8>>,
    records: Vec<Record>,
}

impl Trace {
    /// Reads the log of the actions under `root`.
    ///
    /// # Errors
    /// [`TraceError::Read`] and [`TraceError::Garbled`].
    pub fn read(root: &Path, log: &Path) -> Result<Self, TraceError> {
        let unreadable = |source| TraceError::Read { path: log.to_owned(), source };
        let bytes = fs::read(log).map_err(unreadable)?;
        let mut records = Vec::new();
        let mut at = 0;
        while at < bytes.len() {
            let (action, next) = action(&bytes, at, root).ok_or(TraceError::Garbled(at))?;
            records.push(Record { number: records.len(), action });
            at = next;
        }
        Ok(Self { root: root.to_owned(), log: Arc::new(bytes), records })
    }

    /// The records in order.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The bytes sent to pipes and sockets, with the number of the record.
    pub fn marks(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.records.iter().filter_map(|record| match &record.action {
            Action::Mark { said } => Some((record.number, &self.log[said.clone()])),
            _ => None,
        })
    }

    /// An empty disk to which these records can be applied.
    pub fn disk(&self) -> Disk {
        Disk::new(Arc::clone(&self.log))
    }

    /// The directory if the power had failed after the first `records` records.
    ///
    /// # Errors
    /// [`TraceError::Unknown`].
    pub fn cut(&self, records: usize, loss: Loss) -> Result<Image, TraceError> {
        let mut disk = self.disk();
        for record in &self.records[..records] {
            disk.apply(record)?;
        }
        Ok(disk.image(loss))
    }

    /// Checks that the recorder has seen everything: rebuilt without any loss, the directory must equal the
    /// real one. The recorded processes must have ended before the call.
    ///
    /// # Errors
    /// [`TraceError::Blind`] with the first difference.
    pub fn check_complete(&self) -> Result<(), TraceError> {
        let rebuilt = self.cut(self.records.len(), Loss::Nothing)?;
        let real =
            Image::read(&self.root).map_err(|source| TraceError::Read { path: self.root.clone(), source })?;
        match rebuilt.difference(&real) {
            Some(path) => Err(TraceError::Blind { path: self.root.join(path) }),
            None => Ok(()),
        }
    }
}

/// The action whose record begins at `at`, and the position of the next one.
fn action(log: &[u8], at: usize, root: &Path) -> Option<(Action, usize)> {
    let header = log.get(at..at + HEADER)?;
    let word = |at: usize| header[at..at + 4].try_into().map(u32::from_le_bytes).ok();
    let long = |at: usize| header[at..at + 8].try_into().map(u64::from_le_bytes).ok();
    let (magic, kind, inode, number) = (word(0)?, word(4)?, long(8)?, long(16)?);
    let content = at + HEADER..at + HEADER + usize::try_from(long(24)?).ok()?;
    let bytes = log.get(content.clone())?;
    let next = content.end;
    let relative =
        |bytes: &[u8]| Path::new(OsStr::from_bytes(bytes)).strip_prefix(root).map(Path::to_owned).ok();
    let pair = || {
        let zero = bytes.iter().position(|&byte| byte == 0)?;
        Some((relative(&bytes[..zero])?, relative(&bytes[zero + 1..])?))
    };
    let action = match kind {
        _ if magic != MAGIC => return None,
        1 => Action::Create { inode, path: relative(bytes)? },
        2 => Action::Directory { path: relative(bytes)? },
        3 => Action::Write { inode, offset: number, content },
        4 => Action::Truncate { inode, size: number },
        5 => Action::SyncBegin { inode, path: relative(bytes)?, sync: number },
        6 => Action::SyncEnd { sync: number },
        7 => pair().map(|(from, to)| Action::Rename { from, to })?,
        8 => Action::Remove { path: relative(bytes)? },
        9 => pair().map(|(from, to)| Action::Link { from, to })?,
        MARK => Action::Mark { said: content },
        _ => return None,
    };
    Some((action, next))
}

/// The record of a mark.
pub(crate) fn mark(said: &[u8]) -> Vec<u8> {
    let mut record = Vec::with_capacity(HEADER + said.len());
    record.extend(MAGIC.to_le_bytes());
    record.extend(MARK.to_le_bytes());
    record.extend([0; 16]);
    record.extend((said.len() as u64).to_le_bytes());
    record.extend(said);
    record
}
