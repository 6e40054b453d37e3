//! The spool: what this node remembers of the attempts it was ordered to run, across crashes and power loss.
//!
//! ```text
//! spool/lock                    held by the one spurd that owns the spool
//! spool/spawned/42.0.batch      durable before any user code of the attempt runs
//! spool/ended/42.0.batch        the end was acknowledged: the tombstone, until the controller forgets the attempt
//! spool/attempts/42.0.batch/    locked by its spurstepd while that lives; its control socket, the script, exit.json
//! spool/jobs/42.0               what is known of the attempt of a job beside its steps
//! spool/id                      the spool's name
//! spool/history                 which controllers are obeyed: of which history, and the latest reign of that
//! spool/told                    the latest entry and job number of that history that the node was told of
//! spool/boot                    of which boot of the host all is that is not sealed as lost
//! spool/blank                   the empty file that every marker is a name of
//! ```
//!
//! It promises: an attempt that has a marker is never launched again, also after a power loss, because a marker is
//! an entry made exclusively in a directory that is synced before [`Spool::mark_spawning`] returns; markers wait for
//! their sync together, so that a sync under way costs the next ones nothing. What is not yet spawned needs no
//! memory: the controller gives the order again. The same goes for an attempt with a marker whose spurstepd is gone and
//! never began, which shows as long as the host has not booted again. Any other marker without a live spurstepd or
//! an exit record is an attempt whose end nobody knows, and it is reported as lost.
//!
//! What the disk refuses is noted ([`Spool::fault`]): such a node takes no work until that is over.

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

/// A spool that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another spurd has it.
    #[error("{} is in use by another spurd; several on one host need a spool directory each (--spool)", .0.display())]
    InUse(PathBuf),
    /// The file system refused something.
    #[error("spool: {}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// Why an attempt is not accepted.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// It was spawned before.
    #[error("attempt {0} was launched on this node before and is not launched again")]
    Known(StepAttempt),
    /// The file system refused something.
    #[error("no directory for the attempt in the spool")]
    Io(#[from] io::Error),
}

/// What the spool knows of an attempt that was spawned and whose end was not acknowledged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// Its spurstepd lives: connect to it.
    Live,
    /// It has ended, and this is how.
    Ended(Box<ExitRecord>),
    /// Nobody knows how it ended; it can never run again.
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
    /// Lost attempts that no file says so of: what is locked here cannot start late.
    sealed: Mutex<BTreeMap<StepAttempt, File>>,
    _lock: File,
}

/// Whom the node obeys.
#[derive(Debug)]
struct Kept {
    allegiance: Allegiance,
    /// Whether the disk has it.
    durable: bool,
}

/// A shared lock of an attempt's directory, which nobody has while the attempt's spurstepd lives: that one's is exclusive.
/// Whoever looks at an attempt is thus never taken for its spurstepd by another who looks. It is given back, not only
/// closed: a child that another thread has forked holds the same open file until it executes its program.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    /// Waits until the spurstepd is gone.
    fn of(directory: &'a File) -> io::Result<Self> {
        rustix::fs::flock(directory, FlockOperation::LockShared)?;
        Ok(Self(directory))
    }

    /// Takes it, unless the spurstepd has its own.
    fn try_of(directory: &'a File) -> io::Result<Option<Self>> {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockShared) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            other => Ok(other.map(|()| Some(Self(directory)))?),
        }
    }
}

impl Lock<'_> {
    /// Leaves it to whoever keeps the open file.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Closing the last copy of the file would do the same.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// Whom a spool's node obeys; nobody yet where there is no such file.
fn read_allegiance(path: &Path) -> io::Result<Allegiance> {
    match fs::read(path) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Allegiance::default()),
        Err(error) => Err(error),
    }
}

impl Spool {
    /// Opens the spool, making it if need be, and keeps every other spurd out of it.
    ///
    /// # Errors
    /// [`SpoolError`] if another spurd has it or the file system refuses.
    pub fn open(root: &Path) -> Result<Spool, SpoolError> {
        let at = |path: PathBuf| move |source| SpoolError::Io { path, source };
        // Users must be able to pass through to their scripts, and to read nothing else.
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
        // What stays is only in the way, and a disk that does not let it go is noted.
        let _ = spool.condition.noted(spool.sweep());
        Ok(spool)
    }

    /// What keeps this node from taking work, for people; empty if nothing does.
    pub fn fault(&self) -> Arc<str> {
        self.condition.fault()
    }

    /// Tells of changes of that.
    pub(crate) fn news(&self) -> News {
        self.condition.news()
    }

    /// Notes what a step could not write.
    pub(crate) fn note(&self, what: &str) {
        self.condition.note(what, false);
    }

    /// Notes what the disk refused, and passes it on.
    pub(crate) fn noted<T>(&self, result: io::Result<T>) -> io::Result<T> {
        self.condition.noted(result)
    }

    /// Tries, for ever and now and then, whether the spool can be written.
    pub(crate) async fn watch(self: Arc<Self>, every: Duration) {
        let mut beat = tokio::time::interval(every);
        beat.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            beat.tick().await;
            let tried = Arc::clone(&self);
            let mut trial = tokio::task::spawn_blocking(move || tried.try_out());
            if tokio::time::timeout(PATIENCE, &mut trial).await.is_err() {
                self.condition.note("the disk does not answer", false);
                // A trial that panicked has shown nothing, and the next one will.
                let _ = trial.await;
            }
        }
    }

    /// Makes what an attempt needs, durably, and takes it away again. What the disk had not taken before is written.
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
        // What cannot be removed is in the way of the next trial, which says so.
        let _ = fs::remove_dir_all(&place);
        let mut kept = self.allegiance.lock().unwrap_or_else(PoisonError::into_inner);
        if synced.is_ok() && self.save(&mut kept).is_ok() {
            self.condition.written();
        }
    }

    /// A name that a new spool does not share: who hears another one knows that the records are gone.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// A name of the directory that a copy of it on the same host does not share either.
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Whom this node obeys.
    pub fn allegiance(&self) -> Allegiance {
        self.allegiance.lock().unwrap_or_else(PoisonError::into_inner).allegiance
    }

    /// Keeps whom this node obeys from now on. What it was told of by controllers of another history does not count
    /// any more. A later reign of the same history is obeyed although the disk does not take it: the node has no work to
    /// lose to an earlier one until the disk does.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn set_allegiance(&self, new: Allegiance) -> io::Result<()> {
        let mut kept = self.allegiance.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.allegiance == new {
            return Ok(());
        }
        let before = std::mem::replace(&mut *kept, Kept { allegiance: new, durable: false });
        if before.allegiance.history == new.history {
            // It is noted, and tried again.
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

    /// The latest entry of the journal and the largest job number that this node was told of.
    pub fn told(&self) -> (u64, u32) {
        self.told.latest()
    }

    /// Keeps what an order says of the journal. A power loss may take the last of it, and so may a disk that is full.
    pub fn tell(&self, seq: u64, last_job: u32) {
        // It is noted; the next order says more.
        let _ = self.noted(self.told.keep(seq, last_job));
    }

    /// The directory of an attempt.
    pub fn directory(&self, attempt: StepAttempt) -> PathBuf {
        self.root.join("attempts").join(attempt.to_string())
    }

    /// Makes room for an attempt that may be launched.
    ///
    /// # Errors
    /// [`AcceptError::Known`] if it was spawned before, else what the file system refused.
    pub fn accept(&self, attempt: StepAttempt) -> Result<(), AcceptError> {
        if self.knows(attempt) {
            return Err(AcceptError::Known(attempt));
        }
        match DirBuilder::new().mode(0o711).create(self.directory(attempt)) {
            // Accepted before, and never spawned.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => Ok(self.noted(other)?),
        }
    }

    /// True if the attempt was spawned, whether or not it has ended.
    pub fn knows(&self, attempt: StepAttempt) -> bool {
        self.marker("spawned", attempt).exists() || self.marker("ended", attempt).exists()
    }

    /// Makes it durable that user code of the attempt may run from now on.
    ///
    /// # Errors
    /// What the file system refused, [`io::ErrorKind::AlreadyExists`] if the attempt was spawned before; it
    /// must not be launched then.
    pub async fn mark_spawning(&self, attempt: StepAttempt) -> io::Result<()> {
        let (answer, answered) = oneshot::channel();
        let gone = || io::Error::other("the spool's thread has ended");
        self.marks.send((attempt, answer)).map_err(|_| gone())?;
        self.noted(answered.await.map_err(|_| gone())?)
    }

    /// The attempts of jobs of which something was spawned whose end was not acknowledged.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn spawned(&self) -> io::Result<BTreeSet<Attempt>> {
        Ok(self.markers("spawned")?.into_iter().map(|step| step.attempt).collect())
    }

    /// Every attempt that was spawned and whose end was not acknowledged. An attempt found lost is sealed: a
    /// spurstepd that starts late refuses it.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn unacknowledged(&self) -> io::Result<Vec<(StepAttempt, Found)>> {
        let attempts = self.markers("spawned")?;
        attempts.into_iter().map(|attempt| Ok((attempt, self.find(attempt)?))).collect()
    }

    /// What has become of a spawned attempt; seals it if it is lost.
    ///
    /// # Errors
    /// What the file system refused.
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

    /// Waits until the spurstepd of an attempt is gone: the record it left, or `None` if the attempt is lost
    /// (and sealed).
    ///
    /// # Errors
    /// What the file system refused.
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

    /// What a spurstepd that is gone has left. A record that was not written whole, which takes a power loss, says
    /// nothing.
    fn record(&self, attempt: StepAttempt) -> Option<ExitRecord> {
        read_record(&self.directory(attempt).join(EXIT_FILE))
    }

    /// Says of an attempt whose lock is held that it is lost.
    fn seal(&self, attempt: StepAttempt) -> io::Result<()> {
        self.noted(File::create(self.directory(attempt).join(LOST_FILE))).map(drop)
    }

    fn sealed(&self) -> std::sync::MutexGuard<'_, BTreeMap<StepAttempt, File>> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The controller has the end of the attempt: only its tombstone stays, which holds the record for a client that
    /// comes back. While its spurstepd still has output for a client, the directory with the way to it stays too,
    /// until the attempt is forgotten.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn acknowledge(&self, attempt: StepAttempt) -> io::Result<()> {
        let alive = match File::open(self.directory(attempt)) {
            Ok(directory) => Lock::try_of(&directory).ok().flatten().is_none(),
            Err(_) => false,
        };
        // Not synced: after a power loss the end is reported, and acknowledged, once more.
        let moved = fs::rename(self.marker("spawned", attempt), self.marker("ended", attempt));
        self.noted(absent_is_fine(moved))?;
        // One without a record is still there only for that, and nobody needs it any more.
        if alive && self.directory(attempt).join(EXIT_FILE).exists() {
            return Ok(());
        }
        let kept = fs::rename(self.directory(attempt).join(EXIT_FILE), self.marker("ended", attempt));
        self.noted(absent_is_fine(kept))?;
        let removed = self.noted(absent_is_fine(fs::remove_dir_all(self.directory(attempt))));
        self.sealed().remove(&attempt);
        removed
    }

    /// The attempts whose end was acknowledged and that the controller has not forgotten.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn tombstones(&self) -> io::Result<Vec<StepAttempt>> {
        self.markers("ended")
    }

    /// Keeps what is known of the attempt of a job. Good for a returning spurd; a power loss may take it, and the
    /// controller then says again what it wants.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn remember(&self, attempt: Attempt, record: &Record) -> io::Result<()> {
        let path = self.job(attempt);
        let temporary = self.root.join("jobs").join(format!("{}.new", file_name(attempt)));
        self.noted(fs::write(&temporary, serde_json::to_vec(record)?))?;
        self.noted(fs::rename(temporary, path))
    }

    /// The controller will never mention the attempt again: nothing of it stays.
    ///
    /// # Errors
    /// What the file system refused.
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

    /// Everything that an earlier spurd left, by attempts of jobs, and the steps among it that live.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn recover(&self) -> io::Result<(Vec<Recovered>, Vec<StepAttempt>)> {
        let mut found: BTreeMap<Attempt, Recovered> = BTreeMap::new();
        let blank = |attempt, record| Recovered { attempt, record, steps: vec![], acknowledged: vec![] };
        for attempt in self.jobs()? {
            // A record that a power loss tore says nothing; what the markers say holds.
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
            // The names of jobs are those of their batch steps without the step.
            let named = name.to_str().and_then(|name| format!("{name}.batch").parse::<StepAttempt>().ok());
            attempts.extend(named.map(|step| step.attempt));
        }
        attempts.sort_unstable();
        Ok(attempts)
    }

    fn marker(&self, kind: &str, attempt: StepAttempt) -> PathBuf {
        self.root.join(kind).join(attempt.to_string())
    }

    /// The attempts with a marker, in order; files that name none are left alone.
    fn markers(&self, kind: &str) -> io::Result<Vec<StepAttempt>> {
        let mut attempts = Vec::new();
        for entry in fs::read_dir(self.root.join(kind))? {
            attempts.extend(entry?.file_name().to_str().and_then(|name| name.parse::<StepAttempt>().ok()));
        }
        attempts.sort_unstable();
        Ok(attempts)
    }
}

/// How long a trial of the disk may take.
const PATIENCE: Duration = Duration::from_secs(30);

/// What there must be room for, in bytes.
const ROOM: usize = 256 << 10;

/// The name of the empty file.
const BLANK: &str = "blank";

/// Makes the empty file that markers are names of, durably. To give a file one more name is much cheaper than to make one:
/// some file systems do not use the number of a removed file again for minutes, and search the longer for another the more of
/// them there are.
fn make_blank(root: &Path) -> io::Result<()> {
    match OpenOptions::new().create_new(true).write(true).mode(0o600).open(root.join(BLANK)) {
        Ok(blank) => blank.sync_all().and_then(|()| File::open(root)?.sync_all()),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(error),
    }
}

/// The record in a file, if it holds a whole one.
fn read_record(path: &Path) -> Option<ExitRecord> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The spool's own name, drawn when the spool is made, after everything else in it: its sync keeps that too.
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

/// A name that nobody else has.
pub(crate) fn random_id() -> io::Result<String> {
    Ok(fs::read_to_string("/proc/sys/kernel/random/uuid")?.trim().to_owned())
}

/// Starts the thread that makes markers durable, all that wait in one sync.
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
            // Without this thread nothing can be launched any more; the next spurd finds all that runs.
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
            // A file cannot have any number of names, and not every file system knows more than one.
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
        // Whoever asked may have given up; the marker stays, and the attempt is reported as lost.
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
        // Root may write where the mode forbids it, but nobody makes a directory in a file.
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
