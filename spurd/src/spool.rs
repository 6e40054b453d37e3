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
//! spool/blank                   the empty file that every marker is a name of
//! ```
//!
//! It promises: an attempt that has a marker is never launched again, also after a power loss, because a marker is
//! an entry made exclusively in a directory that is synced before [`Spool::mark_spawning`] returns; markers wait for
//! their sync together, so that a sync under way costs the next ones nothing. What is not yet spawned needs no
//! memory: the controller gives the order again. A marker without a live spurstepd or an exit record is
//! an attempt whose end nobody knows, and it is reported as lost.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError, mpsc};

use rustix::fs::FlockOperation;
use spur_core::compute::allegiance::Allegiance;
use spur_core::compute::{Record, Recovered, StepEnd};
use spur_core::id::{Attempt, StepId};
use tokio::sync::oneshot;

use crate::step::LOST_FILE;
use crate::step::attempt::StepAttempt;
use crate::step::record::{EXIT_FILE, ExitRecord};

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
    allegiance: Mutex<Allegiance>,
    told: Told,
    marks: mpsc::Sender<Waiting>,
    _lock: File,
}

/// The lock of an attempt's directory. It is given back, not only closed: a child that another thread has forked holds
/// the same open file until it executes its program.
struct Lock<'a>(&'a File);

impl<'a> Lock<'a> {
    /// Waits for it.
    fn of(directory: &'a File) -> io::Result<Self> {
        rustix::fs::flock(directory, FlockOperation::LockExclusive)?;
        Ok(Self(directory))
    }

    /// Takes it, unless somebody has it.
    fn try_of(directory: &'a File) -> io::Result<Option<Self>> {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            other => Ok(other.map(|()| Some(Self(directory)))?),
        }
    }
}

impl Drop for Lock<'_> {
    fn drop(&mut self) {
        // Closing the last copy of the file would do the same.
        let _ = rustix::fs::flock(self.0, FlockOperation::Unlock);
    }
}

/// What orders have said of the journal, in one line that is written over.
#[derive(Debug)]
struct Told {
    file: File,
    latest: Mutex<(u64, u32)>,
}

impl Told {
    fn open(path: &Path) -> io::Result<Told> {
        let mut options = OpenOptions::new();
        let mut file = options.create(true).truncate(false).read(true).write(true).mode(0o600).open(path)?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut numbers = text.split_whitespace();
        // A line that a power loss tore says nothing.
        let seq = numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        let last_job = numbers.next().and_then(|number| number.parse().ok()).unwrap_or(0);
        Ok(Told { file, latest: Mutex::new((seq, last_job)) })
    }

    fn latest(&self) -> (u64, u32) {
        *self.latest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, seq: u64, last_job: u32) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if seq > latest.0 || last_job > latest.1 {
            *latest = (seq.max(latest.0), last_job.max(latest.1));
            self.write(*latest)?;
        }
        Ok(())
    }

    fn forget(&self) -> io::Result<()> {
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        *latest = (0, 0);
        self.write(*latest)?;
        self.file.sync_all()
    }

    fn write(&self, (seq, last_job): (u64, u32)) -> io::Result<()> {
        self.file.write_all_at(format!("{seq:020} {last_job:010}\n").as_bytes(), 0)
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
            DirBuilder::new().recursive(true).mode(0o711).create(&directory).map_err(at(directory))?;
        }
        for directory in [root.join("spawned"), root.join("ended"), root.join("jobs")] {
            DirBuilder::new().recursive(true).mode(0o700).create(&directory).map_err(at(directory))?;
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
        let allegiance =
            Mutex::new(read_allegiance(&root.join("history")).map_err(at(root.join("history")))?);
        let told = Told::open(&root.join("told")).map_err(at(root.join("told")))?;
        let inode = fs::metadata(&root).map_err(at(root.clone()))?.ino();
        let place = format!("{id}_{inode}");
        let spool = Spool { marks: start_committer(&root)?, root, id, place, allegiance, told, _lock: lock };
        spool.sweep_unspawned().map_err(at(spool.root.join("attempts")))?;
        Ok(spool)
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
        *self.allegiance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps whom this node obeys from now on. What it was told of by controllers of another history does not count
    /// any more.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn set_allegiance(&self, new: Allegiance) -> io::Result<()> {
        let mut kept = self.allegiance.lock().unwrap_or_else(PoisonError::into_inner);
        if *kept == new {
            return Ok(());
        }
        if kept.history != new.history {
            self.told.forget()?;
        }
        write_durably(&self.root.join("history"), &serde_json::to_string(&new)?)?;
        *kept = new;
        Ok(())
    }

    /// The latest entry of the journal and the largest job number that this node was told of.
    pub fn told(&self) -> (u64, u32) {
        self.told.latest()
    }

    /// Keeps what an order says of the journal. A power loss may take the last of it.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn tell(&self, seq: u64, last_job: u32) -> io::Result<()> {
        self.told.keep(seq, last_job)
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
            other => Ok(other?),
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
        answered.await.map_err(|_| gone())?
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
        let Some(_lock) = Lock::try_of(&directory)? else { return Ok(Found::Live) };
        Ok(self.examine(attempt)?.map_or(Found::Lost, |record| Found::Ended(Box::new(record))))
    }

    /// Waits until the spurstepd of an attempt is gone: the record it left, or `None` if the attempt is lost
    /// (and sealed).
    ///
    /// # Errors
    /// What the file system refused.
    pub fn find_ended(&self, attempt: StepAttempt) -> io::Result<Option<ExitRecord>> {
        let directory = self.opened(attempt)?;
        let _lock = Lock::of(&directory)?;
        self.examine(attempt)
    }

    fn opened(&self, attempt: StepAttempt) -> io::Result<File> {
        let directory = self.directory(attempt);
        DirBuilder::new().recursive(true).mode(0o711).create(&directory)?;
        File::open(directory)
    }

    /// Looks at an attempt whose lock is held.
    fn examine(&self, attempt: StepAttempt) -> io::Result<Option<ExitRecord>> {
        let directory = self.directory(attempt);
        // A record that was not written whole, which takes a power loss, says nothing.
        let record =
            fs::read(directory.join(EXIT_FILE)).ok().and_then(|text| serde_json::from_slice(&text).ok());
        if record.is_none() {
            File::create(directory.join(LOST_FILE))?;
        }
        Ok(record)
    }

    /// The controller has the end of the attempt: only its tombstone stays. While its spurstepd still has output for
    /// a client, the directory with the way to it stays too, until the attempt is forgotten.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn acknowledge(&self, attempt: StepAttempt) -> io::Result<()> {
        let alive = match File::open(self.directory(attempt)) {
            Ok(directory) => Lock::try_of(&directory).ok().flatten().is_none(),
            Err(_) => false,
        };
        // Not synced: after a power loss the end is reported, and acknowledged, once more.
        absent_is_fine(fs::rename(self.marker("spawned", attempt), self.marker("ended", attempt)))?;
        if alive { Ok(()) } else { absent_is_fine(fs::remove_dir_all(self.directory(attempt))) }
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
        let temporary = self.root.join("jobs").join(format!("{}.{}.new", attempt.job, attempt.restart));
        fs::write(&temporary, serde_json::to_vec(record)?)?;
        fs::rename(temporary, path)
    }

    /// Keeps what prolog and epilog of an attempt are told.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn remember_variables(&self, attempt: Attempt, variables: &[(String, String)]) -> io::Result<()> {
        fs::write(self.variables_file(attempt), serde_json::to_vec(variables)?)
    }

    /// What prolog and epilog of an attempt are told; nothing if that is not known.
    pub fn variables(&self, attempt: Attempt) -> Vec<(String, String)> {
        let text = fs::read(self.variables_file(attempt)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    fn variables_file(&self, attempt: Attempt) -> PathBuf {
        self.root.join("jobs").join(format!("{}.{}.variables", attempt.job, attempt.restart))
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
        }
        absent_is_fine(fs::remove_file(self.variables_file(attempt)))?;
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
        for step in self.tombstones()? {
            let job = found.entry(step.attempt).or_insert_with(|| blank(step.attempt, Record::default()));
            job.acknowledged.push(step.step);
        }
        Ok((found.into_values().collect(), live))
    }

    fn job(&self, attempt: Attempt) -> PathBuf {
        self.root.join("jobs").join(format!("{}.{}", attempt.job, attempt.restart))
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

    /// Removes what attempts left that were accepted and never spawned, and those acknowledged.
    fn sweep_unspawned(&self) -> io::Result<()> {
        for attempt in self.markers("attempts")? {
            if !self.marker("spawned", attempt).exists() {
                absent_is_fine(fs::remove_dir_all(self.directory(attempt)))?;
            }
        }
        Ok(())
    }
}

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

fn absent_is_fine(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// Replaces a file as a whole, durably.
fn write_durably(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = File::create(&temporary)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&temporary, path)?;
    File::open(path.parent().unwrap_or(path))?.sync_all()
}

/// Makes a directory and those above it so that their names outlast a power loss.
fn create_durably(directory: &Path) -> io::Result<()> {
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
fn start_committer(root: &Path) -> Result<mpsc::Sender<Waiting>, SpoolError> {
    let (path, blank) = (root.join("spawned"), root.join(BLANK));
    let at = |source| SpoolError::Io { path: path.clone(), source };
    let directory = File::open(&path).map_err(at)?;
    let (sender, receiver) = mpsc::channel::<Waiting>();
    let committer = {
        let path = path.clone();
        let work = move || {
            while let Ok(first) = receiver.recv() {
                let batch: Vec<Waiting> = std::iter::once(first).chain(receiver.try_iter()).collect();
                commit(&path, &blank, &directory, batch);
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

fn commit(path: &Path, blank: &Path, directory: &File, batch: Vec<Waiting>) {
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
            spool.tell(12, 6).unwrap();
            spool.tell(11, 7).unwrap();
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
