//! A directory as the records build it: its durable state, and the changes that a power cut would put at
//! risk.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_chance::Chance;

use crate::record::{Action, Record, TraceError};

/// The unit that a disk writes as a whole or not at all, in bytes.
const SECTOR: u64 = 512;

/// The changes that a power cut takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Loss {
    /// Everything that was not synced.
    Unsynced,
    /// A part of the changes that were not synced: sectors of content chosen by the seed, and names from some
    /// moment on. The disk had begun to write them in an order of its own.
    Some {
        /// Equal seeds take the same part.
        seed: u64,
    },
    /// No change: the image is the state that the page cache holds after a process was killed.
    Nothing,
}

/// The state of the directory after some records.
pub struct Disk {
    log: Arc<Vec<u8>>,
    files: Vec<File>,
    /// The index in `files` of each inode: the number of a deleted file may be used again.
    inodes: BTreeMap<u64, usize>,
    names: Names,
    durable: Names,
    /// Changes of names that are not durable, oldest first.
    pending: Vec<(usize, Change)>,
    /// Syncs that have begun.
    syncs: BTreeMap<u64, Sync>,
}

#[derive(Default, Clone)]
struct File {
    content: Vec<u8>,
    /// Changes since the content was durable, oldest first.
    pending: Vec<(usize, Edit)>,
}

#[derive(Clone)]
enum Edit {
    Write { offset: u64, content: Range<usize> },
    Size(u64),
}

/// Names of files; a directory is a name without a file.
type Names = BTreeMap<PathBuf, Option<usize>>;

enum Change {
    Add { path: PathBuf, file: Option<usize> },
    Remove { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
}

struct Sync {
    begun: usize,
    what: Synced,
}

enum Synced {
    File(usize),
    Directory(PathBuf),
}

impl Disk {
    pub(crate) fn new(log: Arc<Vec<u8>>) -> Self {
        Self {
            log,
            files: Vec::new(),
            inodes: BTreeMap::new(),
            names: Names::new(),
            durable: Names::new(),
            pending: Vec::new(),
            syncs: BTreeMap::new(),
        }
    }

    /// Applies one more record; all must come, in order.
    ///
    /// # Errors
    /// [`TraceError::Unknown`] if it changes a file that no record created.
    pub fn apply(&mut self, record: &Record) -> Result<(), TraceError> {
        let number = record.number;
        let file = |inode: u64| {
            self.inodes.get(&inode).copied().ok_or(TraceError::Unknown { record: number, inode })
        };
        match &record.action {
            Action::Create { inode, path } => {
                let file = self.files.len();
                self.files.push(File::default());
                self.inodes.insert(*inode, file);
                self.change(number, Change::Add { path: path.clone(), file: Some(file) });
            }
            Action::Directory { path } => self.change(number, Change::Add { path: path.clone(), file: None }),
            Action::Link { from, to } => {
                let file = self.names.get(from).copied().flatten();
                self.change(number, Change::Add { path: to.clone(), file });
            }
            Action::Remove { path } => self.change(number, Change::Remove { path: path.clone() }),
            Action::Rename { from, to } => {
                self.change(number, Change::Rename { from: from.clone(), to: to.clone() });
            }
            Action::Write { inode, offset, content } => {
                let edit = Edit::Write { offset: *offset, content: content.clone() };
                let file = file(*inode)?;
                self.files[file].pending.push((number, edit));
            }
            Action::Truncate { inode, size } => {
                let file = file(*inode)?;
                self.files[file].pending.push((number, Edit::Size(*size)));
            }
            Action::SyncBegin { inode, path, sync } => {
                let what = match self.names.get(path) {
                    None if !path.as_os_str().is_empty() => Synced::File(file(*inode)?),
                    Some(Some(_)) => Synced::File(file(*inode)?),
                    _ => Synced::Directory(path.clone()),
                };
                self.syncs.insert(*sync, Sync { begun: number, what });
            }
            Action::SyncEnd { sync } => match self.syncs.remove(sync) {
                Some(Sync { begun, what: Synced::File(file) }) => self.sync_file(file, begun),
                Some(Sync { begun, what: Synced::Directory(path) }) => self.sync_directory(&path, begun),
                None => {}
            },
            Action::Mark { .. } => {}
        }
        Ok(())
    }

    fn change(&mut self, number: usize, change: Change) {
        rename(&mut self.names, &change);
        self.pending.push((number, change));
    }

    fn sync_file(&mut self, file: usize, begun: usize) {
        let File { content, pending } = &mut self.files[file];
        let covered = pending.partition_point(|(number, _)| *number < begun);
        for (_, edit) in pending.drain(..covered) {
            self::edit(content, &edit, &self.log);
        }
    }

    fn sync_directory(&mut self, path: &Path, begun: usize) {
        let durable = &mut self.durable;
        self.pending.retain(|(number, change)| {
            let covered = *number < begun && change.touches(path);
            if covered {
                rename(durable, change);
            }
            !covered
        });
    }

    /// The directory after the power is back.
    pub fn image(&self, loss: Loss) -> Image {
        let mut chance = Chance::new(match loss {
            Loss::Some { seed } => seed,
            Loss::Unsynced | Loss::Nothing => 0,
        });
        let kept_changes = match loss {
            Loss::Unsynced => 0,
            Loss::Some { .. } => chance.below(self.pending.len() as u64 + 1) as usize,
            Loss::Nothing => self.pending.len(),
        };
        let mut names = self.durable.clone();
        for (_, change) in &self.pending[..kept_changes] {
            rename(&mut names, change);
        }
        let mut image = Image::default();
        for (path, file) in &names {
            let reachable = path
                .parent()
                .is_none_or(|parent| parent.as_os_str().is_empty() || image.directories.contains(parent));
            match file {
                _ if !reachable || volatile(path) => {}
                None => {
                    image.directories.insert(path.clone());
                }
                Some(file) => {
                    let content = self.content(&self.files[*file], loss, &mut chance);
                    image.files.insert(path.clone(), content);
                }
            }
        }
        image
    }

    fn content(&self, file: &File, loss: Loss, chance: &mut Chance) -> Vec<u8> {
        let mut content = file.content.clone();
        // The part of this file that had reached the disk: little, half or nearly all.
        let odds = [1, 4, 7][chance.below(3) as usize];
        for (_, edit) in &file.pending {
            match (loss, edit) {
                (Loss::Unsynced, _) => {}
                (Loss::Nothing, _) => self::edit(&mut content, edit, &self.log),
                (Loss::Some { .. }, Edit::Size(_)) => {
                    if chance.below(8) < odds {
                        self::edit(&mut content, edit, &self.log);
                    }
                }
                (Loss::Some { .. }, Edit::Write { offset, content: bytes }) => {
                    for sector in sectors(*offset, bytes) {
                        if chance.below(8) < odds {
                            self::edit(&mut content, &sector, &self.log);
                        }
                    }
                }
            }
        }
        content
    }
}

impl Change {
    /// True if a sync of `directory` makes the change durable.
    fn touches(&self, directory: &Path) -> bool {
        let within = |path: &Path| path.parent() == Some(directory);
        match self {
            Self::Add { path, .. } | Self::Remove { path } => within(path),
            Self::Rename { from, to } => within(from) || within(to),
        }
    }
}

fn rename(names: &mut Names, change: &Change) {
    match change {
        Change::Add { path, file } => {
            names.insert(path.clone(), *file);
        }
        Change::Remove { path } => {
            names.remove(path);
        }
        Change::Rename { from, to } => {
            // A directory takes its whole content along.
            let moved: Vec<PathBuf> = names.keys().filter(|name| name.starts_with(from)).cloned().collect();
            for name in moved {
                let file = names.remove(&name).flatten();
                let rest = name.strip_prefix(from).unwrap_or(Path::new(""));
                let to = if rest.as_os_str().is_empty() { to.clone() } else { to.join(rest) };
                names.insert(to, file);
            }
        }
    }
}

fn edit(content: &mut Vec<u8>, edit: &Edit, log: &[u8]) {
    match edit {
        Edit::Size(size) => content.resize(*size as usize, 0),
        Edit::Write { offset, content: bytes } => {
            let (start, end) = (*offset as usize, *offset as usize + bytes.len());
            if content.len() < end {
                content.resize(end, 0);
            }
            content[start..end].copy_from_slice(&log[bytes.clone()]);
        }
    }
}

/// A write, cut at the borders of sectors.
fn sectors(offset: u64, content: &Range<usize>) -> impl Iterator<Item = Edit> {
    let end = offset + content.len() as u64;
    let start = content.start;
    let mut at = offset;
    std::iter::from_fn(move || {
        let next = (at / SECTOR + 1).saturating_mul(SECTOR).min(end);
        let place = |at: u64| start + (at - offset) as usize;
        let edit = (at < end).then(|| Edit::Write { offset: at, content: place(at)..place(next) });
        at = next;
        edit
    })
}

/// True for SQLite's index of its log, a shared mapping, which no file system preserves.
fn volatile(path: &Path) -> bool {
    path.to_str().is_some_and(|path| path.ends_with("-shm"))
}

/// A directory with its content; paths are relative to it.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Image {
    /// Files and their content.
    pub files: BTreeMap<PathBuf, Vec<u8>>,
    /// Directories within.
    pub directories: BTreeSet<PathBuf>,
}

impl Image {
    /// Writes the directory to `path`, replacing the present content.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        match fs::remove_dir_all(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => fs::create_dir_all(path)?,
        }
        for directory in &self.directories {
            fs::create_dir(path.join(directory))?;
        }
        for (name, content) in &self.files {
            fs::write(path.join(name), content)?;
        }
        Ok(())
    }

    /// Reads the directory at `path`.
    ///
    /// # Errors
    /// The error of the file system.
    pub fn read(path: &Path) -> io::Result<Self> {
        let mut image = Self::default();
        image.add(path, Path::new(""))?;
        Ok(image)
    }

    fn add(&mut self, root: &Path, directory: &Path) -> io::Result<()> {
        for item in fs::read_dir(root.join(directory))? {
            let item = item?;
            let name = directory.join(item.file_name());
            let kind = item.file_type()?;
            if kind.is_dir() {
                self.add(root, &name)?;
                self.directories.insert(name);
            } else if kind.is_file() && !volatile(&name) {
                self.files.insert(name.clone(), fs::read(root.join(name))?);
            }
        }
        Ok(())
    }

    /// The first path at which two directories differ; `None` if they are equal.
    pub fn difference(&self, other: &Self) -> Option<PathBuf> {
        let directory = self.directories.symmetric_difference(&other.directories).next().cloned();
        let names = self.files.keys().chain(other.files.keys());
        let file = names.filter(|name| self.files.get(*name) != other.files.get(*name)).min().cloned();
        directory.or(file)
    }
}
