//! The spool: this node's memory of the attempts that it was ordered to run, across crashes and power loss.
//!
//! ```text
//! spool/lock                    held by the one spurd that owns the spool
//! spool/spawned/42.0.batch      marker: durable before any user code of the attempt runs
//! spool/ended/42.0.batch        tombstone: the end was acknowledged; stays until the attempt is forgotten
//! spool/attempts/42.0.batch/    locked by a live spurstepd; its control socket, the script, exit.json
//! spool/jobs/42.0               the record of a job's attempt, apart from its steps
//! spool/id                      the spool's name
//! spool/history                 the history whose controllers the node obeys, and the latest reign
//! spool/told                    the latest entry and job number of that history that an order named
//! spool/boot                    the host's boot to which everything belongs that is not sealed as lost
//! spool/blank                   the empty file that every marker is a link to
//! ```
//!
//! The spool promises that an attempt with a marker is never launched again, also after a power loss. A
//! marker is an exclusive entry in a directory that is synced before [`Spool::mark_spawning`] returns.
//! Markers that arrive during a sync share the next one. An attempt without a marker needs no memory: the
//! controller repeats the order. The same holds for an attempt with a marker whose spurstepd is gone and
//! never began, which can be seen until the host boots again. Any other marker without a live spurstepd
//! or an exit record belongs to an attempt whose end is unknown, and is reported as lost.
//!
//! Refusals of the disk are recorded ([`Spool::fault`]): the node then takes no work until the disk takes
//! writes again.

mod making;
mod sweep;
mod told;
mod variables;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::Duration;

use rustix::fs::FlockOperation;
use spur_core::compute::allegiance::Allegiance;
use spur_core::compute::{Record, Recovered, StepEnd};
use spur_core::id::{Attempt, StepId};
use step_wire::LOST_FILE;
use step_wire::attempt::{StepAttempt, file_name};
use step_wire::record::{EXIT_FILE, ExitRecord};
use tokio::sync::oneshot;

use self::making::{create_durably, open_for, write_durably};
use self::told::Told;
use crate::condition::{Condition, News};

/// The reason why a spool cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another spurd holds the spool's lock.
    #[error("{} is in use by another spurd; several on one host need a spool directory each (--spool)", .0.display())]
    InUse(PathBuf),
    /// The file system refused an operation.
    #[error("spool: {}", path.display())]
    Io {
        /// Path of the file or directory.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

/// The reason why an attempt is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// The attempt was spawned before.
    #[error("attempt {0} was launched on this node before and is not launched again")]
    Known(StepAttempt),
    /// The file system refused the attempt's directory.
    #[error("no directory for the attempt in the spool")]
    Io(#[from] io::Error),
}

/// The state of an attempt that was spawned and whose end was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// The attempt's spurstepd lives and can be connected to.
    Live,
    /// The attempt has ended with this record.
    Ended(Box<ExitRecord>),
    /// The end of the attempt is unknown; it can never run again.
    Lost,
}

type Waiting = (StepAttempt, oneshot::Sender<io::Result<()>>);

/// The spool of one spurd.
#[derive(Debug)]
pub struct Spool {
    root: PathBuf,
    id: String,
    place: String,
    allegiance: Mutex<Kept>,
    told: Told,
    marks: mpsc::Sender<Waiting>,
    condition: Arc<Condition>,
    /// Lost attempts that could not be marked as lost on disk; their held locks keep a late spurstepd from
    /// starting.
    sealed: Mutex<BTreeMap<StepAttempt, File>>,
    _lock: File,
}

/// The history and reign that the node obeys.
#[derive(Debug)]
struct Kept {
    allegiance: Allegiance,
    /// True if the disk has the current value.
    durable: bool,
}

/// A shared lock on an attempt's directory; the attempt's live spurstepd holds an exclusive one.
///
/// A shared lock does not make a reader look like a spurstepd to another reader. The lock is released
/// explicitly: a child forked by another thread holds the same open file until it executes its program.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    /// Waits until the attempt's spurstepd is gone.
    fn of(directory: &'a File) -> io::Result<Self> {
        rustix::fs::flock(directory, FlockOperation::LockShared)?;
        Ok(Self(directory))
    }

    /// Takes the lock; `None` while the attempt's spurstepd lives.
    fn try_of(directory: &'a File) -> io::Result<Option<Self>> {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            other => Ok(other.map(|()| Some(Self(directory)))?),
        }
    }
}

impl Lock<'_> {
    /// Keeps the lock until the file is closed.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Closing the last copy of the file would release the lock, too.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Reads the history and reign that the node obeys; the default if there is no such file.
fn read_allegiance(path: &Path) -> io::Result<Allegiance> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Allegiance::default()),
        Err(error) => Err(error),
    }
}

impl Spool {
    /// Opens the spool, creating it if necessary, and locks it against every other spurd.
    ///
    /// # Errors
    /// [`SpoolError`] if another spurd holds the spool or the file system refuses.
    pub fn open(root: &Path) -> Result<Spool, SpoolError> {
        let at = |path: PathBuf| move |source| SpoolError::Io { path, source };
        // Users must be able to reach their scripts, and must not read anything else.
        create_durably(root).map_err(at(root.to_owned()))?;
        for directory in [root.to_owned(), root.join("attempts")] {
            open_for(&directory, 0o711).map_err(at(directory))?;
        }
        for directory in [root.join("spawned"), root.join("ended"), root.join("jobs")] {
            open_for(&directory, 0o700).map_err(at(directory))?;
        }
        let lock_path = root.join("lock");
        let lock = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock_path);
        let lock = lock.map_err(at(lock_path))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(SpoolError::InUse(root.to_owned())),
            Err(error) => return Err(SpoolError::Io { path: root.join("lock"), source: error.into() }),
        }
        let root = fs::canonicalize(root).map_err(at(root.to_owned()))?;
        make_blank(&root).map_err(at(root.join(BLANK)))?;
        let id = own_id(&root).map_err(at(root.join("id")))?;
        let allegiance = read_allegiance(&root.join("history")).map_err(at(root.join("history")))?;
        let allegiance = Mutex::new(Kept { allegiance, durable: true });
        let told = Told::open(&root.join("told")).map_err(at(root.join("told")))?;
        let inode = fs::metadata(&root).map_err(at(root.clone()))?.ino();
        let place = format!("{id}_{inode}");
        let condition = Arc::new(Condition::new(root.clone()));
        let marks = start_committer(&root, Arc::clone(&condition))?;
        let sealed = Mutex::default();
        let spool = Spool { marks, root, id, place, allegiance, told, condition, sealed, _lock: lock };
        // What stays behind is harmless, and the disk's refusal is recorded.
        let _ = spool.condition.noted(spool.sweep());
        Ok(spool)
    }

    /// Returns the reason why this node takes no work, for users; empty if there is none.
    pub fn fault(&self) -> Arc<str> {
        self.condition.fault()
    }

    /// Returns a receiver of changes of [`Spool::fault`].
    pub(crate) fn news(&self) -> News {
        self.condition.news()
    }

    /// Records that a step could not write.
    pub(crate) fn note(&self, what: &str) {
        self.condition.note(what, false);
    }

    /// Records the disk's refusal, if there is one, and returns the result unchanged.
    pub(crate) fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        self.condition.noted(result)
    }

    /// Tries at every interval whether the spool can be written, for ever.
    pub(crate) async fn watch(self: Arc<Self>, every: Duration) {
        let mut beat = tokio::time::interval(every);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let tried = Arc::clone(&self);
            let mut trial = tokio::task::spawn_blocking(move || tried.try_out());
            if tokio::time::timeout(PATIENCE, &mut trial).await.is_err() {
                self.condition.note("the disk does not answer", false);
                // A trial that panicked has shown nothing; the next one follows.
                let _ = trial.await;
            }
        }
    }

    /// Tests the disk: writes a file of 256 KiB durably, and removes it. If that succeeds, also writes the
    /// allegiance if the disk refused it before.
    pub fn try_out(&self) {
        let place = self.root.join("trial");
        let write = || {
            absent_is_fine(fs::remove_dir_all(&place))?;
            DirBuilder::new().mode(0o700).create(&place)?;
            let mut file = File::create(place.join("room"))?;
            file.write_all(&vec![0; ROOM])?;
            Ok(file)
        };
        let synced = match self.noted(write()) {
            Ok(file) => file.sync_all().inspect_err(|error| self.condition.note(&error.to_string(), true)),
            Err(error) => Err(error),
        };
        // A directory that stays makes the next trial fail, which is recorded then.
        let _ = fs::remove_dir_all(&place);
        let mut kept = self.allegiance.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.is_ok() && self.save(&mut kept).is_ok() {
            self.condition.written();
        }
    }

    /// Returns the random name of the spool: another name means that the records of attempts are gone.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// Returns a name of the spool's directory that a copy on the same host does not share.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Returns the history and reign that this node obeys.
    pub fn allegiance(&self) -> Allegiance {
        self.allegiance.lock().unwrap_or_else(PoisonError::into_inner).allegiance
    }

    /// Sets the history and reign that this node obeys.
    ///
    /// The entry and job numbers of the old history are forgotten when another history begins. A later reign
    /// of the same history counts even if the disk refuses it: the node launches nothing until the disk takes
    /// writes again.
    ///
    /// # Errors
    /// Fails if the file system refuses a new history.
    pub fn set_allegiance(&self, new: Allegiance) -> io::Result<()> {
        let mut kept = self.allegiance.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.allegiance == new {
            return Ok(());
        }
        let before = std::mem::replace(&mut *kept, Kept { allegiance: new, durable: false });
        if before.allegiance.history == new.history {
            // The refusal is recorded, and the write is tried again.
            let _ = self.save(&mut kept);
            return Ok(());
        }
        let kept_now = self.noted(self.told.forget()).and_then(|()| self.save(&mut kept));
        if kept_now.is_err() {
            *kept = before;
        }
        kept_now
    }

    fn save(&self, kept: &mut Kept) -> io::Result<()> {
        if !kept.durable {
            let text = serde_json::to_string(&kept.allegiance)?;
            self.noted(write_durably(&self.root.join("history"), &text))?;
            kept.durable = true;
        }
        Ok(())
    }

    /// Returns the latest entry and the largest job number that an order named.
    pub fn told(&self) -> (u64, u32) {
        self.told.latest()
    }

    /// Stores the entry and job number of an order. A power loss or a full disk may lose the latest ones.
    pub fn tell(&self, seq: u64, last_job: u32) {
        // A refusal is recorded; the next order brings later numbers.
        let _ = self.noted(self.told.keep(seq, last_job));
    }

    /// Returns the directory of an attempt.
    pub fn directory(&self, attempt: StepAttempt) -> PathBuf {
        self.root.join("attempts").join(attempt.to_string())
    }

    /// Creates the directory of an attempt that may be launched.
    ///
    /// # Errors
    /// [`AcceptError::Known`] if the attempt was spawned before; otherwise the file system's refusal.
    pub fn accept(&self, attempt: StepAttempt) -> Result<(), AcceptError> {
        if self.knows(attempt) {
            return Err(AcceptError::Known(attempt));
        }
        match DirBuilder::new().mode(0o711).create(self.directory(attempt)) {
            // The attempt was accepted before, and never spawned.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => Ok(self.noted(other)?),
        }
    }

    /// True if the attempt was spawned, whether or not it has ended.
    pub fn knows(&self, attempt: StepAttempt) -> bool {
        self.marker("spawned", attempt).exists() || self.marker("ended", attempt).exists()
    }

    /// Records durably that user code of the attempt may run from here on.
    ///
    /// # Errors
    /// [`io::ErrorKind::AlreadyExists`] if the attempt was spawned before; it must not be launched then.
    /// Otherwise the file system's refusal.
    pub async fn mark_spawning(&self, attempt: StepAttempt) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        let gone = || io::Error::other("the spool's thread has ended");
        self.marks.send((attempt, answer)).map_err(|_| gone())?;
        self.noted(answered.await.map_err(|_| gone())?)
    }

    /// Returns the attempts of jobs with a spawned step whose end was not acknowledged.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn spawned(&self) -> io::Result<BTreeSet<Attempt>> {
        Ok(self.markers("spawned")?.into_iter().map(|step| step.attempt).collect())
    }

    /// Returns every attempt that was spawned and whose end was not acknowledged, with its state.
    ///
    /// A lost attempt is sealed: its spurstepd refuses to run if it starts late.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn unacknowledged(&self) -> io::Result<Vec<(StepAttempt, Found)>> {
        let attempts = self.markers("spawned")?;
        attempts.into_iter().map(|attempt| Ok((attempt, self.find(attempt)?))).collect()
    }

    /// Returns the state of a spawned attempt, and seals the attempt if it is lost.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn find(&self, attempt: StepAttempt) -> io::Result<Found> {
        let directory = self.opened(attempt)?;
        let Some(lock) = Lock::try_of(&directory)? else { return Ok(Found::Live) };
        if let Some(record) = self.record(attempt) {
            return Ok(Found::Ended(Box::new(record)));
        }
        if self.seal(attempt).is_err() {
            lock.keep();
            self.sealed().insert(attempt, directory);
        }
        Ok(Found::Lost)
    }

    /// Waits until the spurstepd of an attempt is gone, and returns its record; `None` if the attempt is lost
    /// (and sealed).
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn find_ended(&self, attempt: StepAttempt) -> io::Result<Option<ExitRecord>> {
        if let Some(record) = read_record(&self.marker("ended", attempt)) {
            return Ok(Some(record));
        }
        let directory = self.opened(attempt)?;
        let lock = Lock::of(&directory)?;
        let record = self.record(attempt);
        if record.is_none() && self.seal(attempt).is_err() {
            lock.keep();
            self.sealed().insert(attempt, directory);
        }
        Ok(record)
    }

    fn opened(&self, attempt: StepAttempt) -> io::Result<File> {
        let directory = self.directory(attempt);
        DirBuilder::new().recursive(true).mode(0o711).create(&directory)?;
        File::open(directory)
    }

    /// Returns the record of a spurstepd that is gone. A record that a power loss truncated counts as
    /// missing.
    fn record(&self, attempt: StepAttempt) -> Option<ExitRecord> {
        read_record(&self.directory(attempt).join(EXIT_FILE))
    }

    /// Marks an attempt, whose lock is held, as lost.
    fn seal(&self, attempt: StepAttempt) -> io::Result<()> {
        self.noted(File::create(self.directory(attempt).join(LOST_FILE))).map(drop)
    }

    fn sealed(&self) -> std::sync::MutexGuard<'_, BTreeMap<StepAttempt, File>> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the attempt's marker by a tombstone, which holds the record for a client that returns.
    ///
    /// The controller has the end of the attempt. While its spurstepd still has output for a client, the
    /// directory with the control socket stays, until the attempt is forgotten.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn acknowledge(&self, attempt: StepAttempt) -> io::Result<()> {
        let alive = match File::open(self.directory(attempt)) {
            Ok(directory) => Lock::try_of(&directory).ok().flatten().is_none(),
            Err(_) => false,
        };
        // Not synced: after a power loss the end is reported, and acknowledged, once more.
        let moved = fs::rename(self.marker("spawned", attempt), self.marker("ended", attempt));
        self.noted(absent_is_fine(moved))?;
        // A spurstepd without a record has no output that a client may fetch.
        if alive && self.directory(attempt).join(EXIT_FILE).exists() {
            return Ok(());
        }
        let kept = fs::rename(self.directory(attempt).join(EXIT_FILE), self.marker("ended", attempt));
        self.noted(absent_is_fine(kept))?;
        let removed = self.noted(absent_is_fine(fs::remove_dir_all(self.directory(attempt))));
        self.sealed().remove(&attempt);
        removed
    }

    /// Returns the attempts whose end was acknowledged and that the controller has not forgotten.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn tombstones(&self) -> io::Result<Vec<StepAttempt>> {
        self.markers("ended")
    }

    /// Stores the record of a job's attempt for the next spurd.
    ///
    /// A power loss may lose the record; the controller then repeats its orders.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn remember(&self, attempt: Attempt, record: &Record) -> io::Result<()> {
        let path = self.job(attempt);
        let temporary = self.root.join("jobs").join(format!("{}.new", file_name(attempt)));
        self.noted(fs::write(&temporary, serde_json::to_vec(record)?))?;
        self.noted(fs::rename(temporary, path))
    }

    /// Removes everything about an attempt that the controller will never mention again.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn forget(&self, attempt: Attempt, steps: &[StepId]) -> io::Result<()> {
        for &step in steps {
            let step = StepAttempt { attempt, step };
            absent_is_fine(fs::remove_file(self.marker("ended", step)))?;
            absent_is_fine(fs::remove_file(self.marker("spawned", step)))?;
            absent_is_fine(fs::remove_dir_all(self.directory(step)))?;
            self.sealed().remove(&step);
        }
        for kind in ["variables", "end"] {
            absent_is_fine(fs::remove_file(self.beside_job(attempt, kind)))?;
        }
        absent_is_fine(fs::remove_file(self.job(attempt)))
    }

    /// Returns everything that an earlier spurd left, by attempts of jobs, and the steps that still run.
    ///
    /// # Errors
    /// Fails if the file system refuses.
    pub fn recover(&self) -> io::Result<(Vec<Recovered>, Vec<StepAttempt>)> {
        let mut found: BTreeMap<Attempt, Recovered> = BTreeMap::new();
        let blank = |attempt, record| Recovered { attempt, record, steps: vec![], acknowledged: vec![] };
        for attempt in self.jobs()? {
            // A record that a power loss truncated counts as missing; the markers are reliable.
            let record = fs::read(self.job(attempt)).ok().and_then(|text| serde_json::from_slice(&text).ok());
            found.insert(attempt, blank(attempt, record.unwrap_or_default()));
        }
        let mut live = Vec::new();
        for (step, state) in self.unacknowledged()? {
            let end = match state {
                Found::Live => {
                    live.push(step);
                    None
                }
                Found::Ended(record) => Some(record.end()),
                Found::Lost => Some(StepEnd::Lost),
            };
            let job = found.entry(step.attempt).or_insert_with(|| blank(step.attempt, Record::default()));
            job.steps.push((step.step, end));
        }
        self.note_boot();
        for step in self.tombstones()? {
            let job = found.entry(step.attempt).or_insert_with(|| blank(step.attempt, Record::default()));
            job.acknowledged.push(step.step);
        }
        Ok((found.into_values().collect(), live))
    }

    fn job(&self, attempt: Attempt) -> PathBuf {
        self.root.join("jobs").join(file_name(attempt))
    }

    fn jobs(&self) -> io::Result<Vec<Attempt>> {
        let mut attempts = Vec::new();
        for entry in fs::read_dir(self.root.join("jobs"))? {
            let name = entry?.file_name();
            // The name of a job's attempt is that of its batch step without the step.
            let named = name.to_str().and_then(|name| format!("{name}.batch").parse::<StepAttempt>().ok());
            attempts.extend(named.map(|step| step.attempt));
        }
        attempts.sort_unstable();
        Ok(attempts)
    }

    fn marker(&self, kind: &str, attempt: StepAttempt) -> PathBuf {
        self.root.join(kind).join(attempt.to_string())
    }

    /// Returns the attempts with a marker, in order; files with other names are ignored.
    fn markers(&self, kind: &str) -> io::Result<Vec<StepAttempt>> {
        let mut attempts = Vec::new();
        for entry in fs::read_dir(self.root.join(kind))? {
            attempts.extend(entry?.file_name().to_str().and_then(|name| name.parse::<StepAttempt>().ok()));
        }
        attempts.sort_unstable();
        Ok(attempts)
    }
}

/// Longest duration of a trial of the disk.
const PATIENCE: Duration = Duration::from_secs(30);

/// Free space that a trial requires, in bytes.
const ROOM: usize = 256 << 10;

/// The name of the empty file.
const BLANK: &str = "blank";

/// Creates the empty file that markers link to, durably.
///
/// A link is much cheaper than a new file. Some file systems do not reuse the number of a removed file for
/// minutes. Their search for a free number grows with the number of removed files.
fn make_blank(root: &Path) -> io::Result<()> {
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(root.join(BLANK)) {
        Ok(blank) => blank.sync_all().and_then(|()| File::open(root)?.sync_all()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// Reads the record in a file; `None` if it is missing or incomplete.
fn read_record(path: &Path) -> Option<ExitRecord> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Returns the spool's own name, which is drawn after everything else is created: the sync of its directory
/// covers all.
fn own_id(root: &Path) -> io::Result<String> {
    let path = root.join("id");
    match fs::read_to_string(&path) {
        Ok(id) if !id.is_empty() => return Ok(id),
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let id = random_id()?;
    write_durably(&path, &id)?;
    Ok(id)
}

/// Returns a random UUID.
pub(crate) fn random_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Starts the thread that makes markers durable: one sync for all that wait.
fn start_committer(root: &Path, condition: Arc<Condition>) -> Result<mpsc::Sender<Waiting>, SpoolError> {
    let (path, blank) = (root.join("spawned"), root.join(BLANK));
    let at = |source| SpoolError::Io { path: path.clone(), source };
    let directory = File::open(&path).map_err(at)?;
    let (sender, receiver) = mpsc::channel::<Waiting>();
    let committer = {
        let path = path.clone();
        let work = move || {
            while let Ok(first) = receiver.recv() {
                let batch: Vec<Waiting> = std::iter::once(first).chain(receiver.try_iter()).collect();
                commit(&path, &blank, &directory, &condition, batch);
            }
        };
        move || {
            // Without this thread nothing can be launched; the next spurd finds all running steps.
            if std::panic::catch_unwind(std::panic::AssertUnwindSafe(work)).is_err() {
                std::process::abort();
            }
        }
    };
    std::thread::Builder::new().name("spool".to_owned()).spawn(committer).map_err(at)?;
    Ok(sender)
}

fn commit(path: &Path, blank: &Path, directory: &File, condition: &Condition, batch: Vec<Waiting>) {
    let create = |attempt: StepAttempt| {
        let marker = path.join(attempt.to_string());
        match fs::hard_link(blank, &marker) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Err(error),
            // The number of links of a file is limited, and some file systems allow one only.
            Err(_) => OpenOptions::new().create_new(true).write(true).mode(0o600).open(marker).map(drop),
        }
    };
    let (made, refused): (Vec<_>, Vec<_>) = batch
        .into_iter()
        .map(|(attempt, answer)| (create(attempt), answer))
        .partition(|(created, _)| created.is_ok());
    let synced = if made.is_empty() { Ok(()) } else { directory.sync_all() };
    if let Err(error) = &synced {
        condition.note(&error.to_string(), true);
    }
    let copy = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
    for (_, answer) in made {
        // The launch may have been abandoned; the marker stays, and the attempt is reported as lost.
        let _ = answer.send(synced.as_ref().copied().map_err(copy));
    }
    for (created, answer) in refused {
        let _ = answer.send(created);
    }
}

#[cfg(test)]
mod tests {
    use spur_core::id::HistoryId;

    use super::*;
    use step_wire::record::UNFINISHED_FILE;

    fn attempt(text: &str) -> StepAttempt {
        text.parse().unwrap()
    }

    #[tokio::test]
    async fn an_attempt_is_spawned_once() {
        let root = tempfile::tempdir().unwrap();
        let first = attempt("1.0.batch");
        {
            let spool = Spool::open(root.path()).unwrap();
            spool.accept(first).unwrap();
            spool.mark_spawning(first).await.unwrap();
            assert_eq!(spool.mark_spawning(first).await.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
            assert!(matches!(spool.accept(first), Err(AcceptError::Known(_))));
            fs::write(spool.directory(first).join(UNFINISHED_FILE), "").unwrap();
            spool.accept(attempt("1.1.batch")).unwrap();
        }
        let spool = Spool::open(root.path()).unwrap();
        assert!(matches!(spool.accept(first), Err(AcceptError::Known(_))));
        assert_eq!(spool.unacknowledged().unwrap(), [(first, Found::Lost)]);
        assert!(!spool.directory(attempt("1.1.batch")).exists(), "accepted only: nothing stays");
        spool.acknowledge(first).unwrap();
        assert_eq!(spool.unacknowledged().unwrap(), []);
        assert!(matches!(spool.accept(first), Err(AcceptError::Known(_))), "the tombstone still refuses");
        assert_eq!(spool.tombstones().unwrap(), [first]);
        spool.forget(first.attempt, &[first.step]).unwrap();
        spool.accept(first).unwrap();
    }

    #[tokio::test]
    async fn the_tombstone_tells_how_a_step_ended() {
        let root = tempfile::tempdir().unwrap();
        let spool = Spool::open(root.path()).unwrap();
        let step = attempt("1.0.0");
        spool.accept(step).unwrap();
        spool.mark_spawning(step).await.unwrap();
        let text = r#"{"attempt":"1.0.0","started_ms":1,"ended_ms":2,"tasks":[],"failure":null,"out_of_memory":true}"#;
        fs::write(spool.directory(step).join(EXIT_FILE), text).unwrap();
        spool.acknowledge(step).unwrap();
        assert!(!spool.directory(step).exists());
        assert!(spool.find_ended(step).unwrap().unwrap().out_of_memory);
        assert_eq!(spool.tombstones().unwrap(), [step]);
        assert!(!spool.directory(step).exists(), "a question leaves nothing");
    }

    #[tokio::test]
    async fn a_returning_spurd_finds_everything() {
        let root = tempfile::tempdir().unwrap();
        let (batch, acknowledged) = (attempt("5.1.batch"), attempt("5.1.0"));
        let record = Record { terminated: true, epilog: None };
        let allegiance = Allegiance { history: Some(HistoryId([3; 16])), epoch: 7, reign: u64::MAX };
        let id = {
            let spool = Spool::open(root.path()).unwrap();
            spool.remember(batch.attempt, &record).unwrap();
            spool.remember(attempt("6.0.batch").attempt, &Record::default()).unwrap();
            for step in [batch, acknowledged] {
                spool.accept(step).unwrap();
                spool.mark_spawning(step).await.unwrap();
            }
            spool.acknowledge(acknowledged).unwrap();
            spool.set_allegiance(allegiance).unwrap();
            spool.tell(12, 6);
            spool.tell(11, 7);
            spool.id().to_owned()
        };
        let spool = Spool::open(root.path()).unwrap();
        assert_eq!((spool.id(), spool.allegiance(), spool.told()), (id.as_str(), allegiance, (12, 7)));
        let (found, live) = spool.recover().unwrap();
        let five = Recovered {
            attempt: batch.attempt,
            record,
            steps: vec![(StepId::BATCH, Some(StepEnd::Lost))],
            acknowledged: vec![acknowledged.step],
        };
        assert_eq!((found.len(), &found[0], live), (2, &five, vec![]));
    }

    #[test]
    fn a_second_spurd_is_kept_out() {
        let root = tempfile::tempdir().unwrap();
        let _first = Spool::open(root.path()).unwrap();
        assert!(matches!(Spool::open(root.path()), Err(SpoolError::InUse(_))));
    }

    #[test]
    fn a_spool_that_cannot_be_written_says_so_until_it_can() {
        let root = tempfile::tempdir().unwrap();
        let spool = Spool::open(root.path()).unwrap();
        spool.try_out();
        assert_eq!(&*spool.fault(), "");
        // Root may write where the mode forbids it, but cannot create a directory below a file.
        let (attempts, aside) = (root.path().join("attempts"), root.path().join("aside"));
        fs::rename(&attempts, &aside).unwrap();
        fs::write(&attempts, "").unwrap();
        assert!(spool.accept(attempt("1.0.batch")).is_err());
        assert!(spool.fault().ends_with("Not a directory (os error 20)"), "{}", spool.fault());
        fs::remove_file(&attempts).unwrap();
        fs::rename(&aside, &attempts).unwrap();
        spool.accept(attempt("1.0.batch")).unwrap();
        spool.try_out();
        assert_eq!(&*spool.fault(), "");
    }

    #[tokio::test]
    async fn a_torn_record_is_a_lost_attempt() {
        let root = tempfile::tempdir().unwrap();
        let spool = Spool::open(root.path()).unwrap();
        let torn = attempt("7.2.3");
        spool.accept(torn).unwrap();
        spool.mark_spawning(torn).await.unwrap();
        fs::write(spool.directory(torn).join(EXIT_FILE), "{\"attempt\":").unwrap();
        assert_eq!(spool.find(torn).unwrap(), Found::Lost);
        assert!(spool.directory(torn).join(LOST_FILE).exists());
    }
}
