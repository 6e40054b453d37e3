//! The actions at the start and the end of spurstepd: receives the order, claims the attempt, writes the
//! record.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixListener;
use std::path::Path;

use nix::sys::signal::{SigSet, Signal as NixSignal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use rustix::fs::{FlockOperation, Mode, XattrFlags};
use rustix::process::Signal;
use step_wire::message::Frame;
use step_wire::order::{Launch, StepOrder};
use step_wire::record::{EXIT_FILE, ExitRecord, LaunchFailure, LaunchStage, UNFINISHED_FILE};
use step_wire::{LOST_FILE, SCRIPT_FILE};

use crate::confine::group::Group;
use crate::confine::namespace;
use crate::connection::Connection;

/// The order, the connection on which it came, and the socket for further connections.
pub(crate) struct Received {
    pub(crate) launch: Launch,
    pub(crate) spurd: Connection,
    pub(crate) listener: UnixListener,
}

/// Receives the order from the first connection to the control socket.
pub(crate) fn receive(listener: UnixListener) -> io::Result<Received> {
    let (mut socket, _) = listener.accept()?;
    listener.set_nonblocking(true)?;
    let mut received = Vec::new();
    let mut part = [0; 64 << 10];
    let (frame, length) = loop {
        if let Some(whole) = Frame::decode(&received)? {
            break whole;
        }
        match socket.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            count => received.extend_from_slice(&part[..count]),
        }
    };
    let Frame::Launch(launch) = frame else {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the first frame is no order"));
    };
    received.drain(..length);
    Ok(Received { launch: *launch, spurd: Connection::new(socket, received)?, listener })
}

/// The reason why an order is refused.
pub(crate) struct Refusal {
    pub(crate) message: String,
    pub(crate) node_fault: bool,
}

impl Refusal {
    fn of_the_job(message: String) -> Refusal {
        Refusal { message, node_fault: false }
    }
}

/// A step whose attempt is claimed: everything that its first task needs, or the reason why it cannot start.
pub(crate) struct Prepared {
    pub(crate) order: StepOrder,
    pub(crate) environment: Vec<u8>,
    pub(crate) argv: Vec<String>,
    pub(crate) listener: UnixListener,
    /// Readable when a child has ended.
    pub(crate) signals: SignalFd,
    pub(crate) group: Option<Group>,
    pub(crate) failure: Option<LaunchFailure>,
    /// The lock that shows, as long as this process lives, that the attempt runs.
    pub(crate) lock: File,
}

/// Claims the attempt, whose directory spurd has opened, and prepares everything for the first task.
///
/// # Errors
/// Explains why the order is refused. A failure after the attempt is claimed is a launch failure instead,
/// which ends up in the record.
pub(crate) fn prepare(launch: Launch, listener: UnixListener, directory: &File) -> Result<Prepared, Refusal> {
    let Launch { order, environment, script } = launch;
    permitted(&order).map_err(Refusal::of_the_job)?;
    let at = |what: &str, error: io::Error| Refusal {
        message: format!("{}: {what}: {error}", order.directory.display()),
        node_fault: true,
    };
    rustix::process::umask(Mode::from_raw_mode(0o077));
    rustix::process::fchdir(directory).map_err(|error| at("directory", error.into()))?;
    let lock = claim().map_err(|error| at("lock", error))?;
    if [EXIT_FILE, LOST_FILE].into_iter().any(|file| Path::new(file).exists()) {
        let ended = format!("attempt {} has ended and is not run again", order.attempt);
        return Err(Refusal::of_the_job(ended));
    }
    let signals = own_session().map_err(|error| at("session", error))?;
    let reserved = reserve_record();
    let mut failure = reserved.err().map(|error| (LaunchStage::Spool, format!("spool: {error}")));
    let mut argv = order.argv.clone();
    if let Some(script) = script {
        argv.insert(0, order.directory.join(SCRIPT_FILE).display().to_string());
        let written = write_script(&script, order.identity.uid, order.identity.gid);
        failure =
            written.err().map(|error| (LaunchStage::Spool, format!("batch script: {error}"))).or(failure);
    }
    let group =
        order.confinement.as_ref().map(|to| Group::create(to, order.attempt.step, order.oom_kill_step));
    let group = group.transpose().unwrap_or_else(|error| {
        failure = Some((LaunchStage::Confinement, format!("control group: {error}")));
        None
    });
    if let Err(error) = namespace::enter(&order.private_directories) {
        failure = Some((LaunchStage::Confinement, format!("private directories: {error}")));
    }
    if order.tasks.is_empty() || argv.is_empty() {
        failure = Some((LaunchStage::Order, "an order needs a program and at least one task".to_owned()));
    }
    let failure = failure.map(|(stage, message)| LaunchFailure { stage, message });
    Ok(Prepared { order, environment, argv, listener, signals, group, failure, lock })
}

/// Refuses an order for a user that this process cannot become.
fn permitted(order: &StepOrder) -> Result<(), String> {
    let own = rustix::process::geteuid();
    if own.is_root() || own.as_raw() == order.identity.uid {
        return Ok(());
    }
    let (own, uid, user) = (own.as_raw(), order.identity.uid, &order.identity.user);
    Err(format!(
        "attempt {} belongs to user {user} ({uid}), but spurd runs as user {own} and may not change user; run spurd \
         as root, or submit as the user it runs as",
        order.attempt
    ))
}

/// Locks the attempt's directory for as long as this process lives.
///
/// A later spurd that found the attempt not begun has removed the directory, and may have created another one
/// of that name.
fn claim() -> io::Result<File> {
    // Opened again: a lock belongs to the open file, and spurd shares the open file that it passed.
    let lock = File::open(".")?;
    match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
        Err(rustix::io::Errno::WOULDBLOCK) => return Err(io::Error::other("the attempt is running already")),
        other => other?,
    }
    if lock.metadata()?.nlink() == 0 {
        return Err(io::Error::other("the attempt was taken back"));
    }
    Ok(lock)
}

/// Leaves spurd's session, adopts every orphan below, and blocks signals, which are then read from a
/// descriptor.
fn own_session() -> io::Result<SignalFd> {
    // A process that leads a group already is in a session of its own.
    let _ = rustix::process::setsid();
    let this = rustix::process::getpid();
    rustix::process::set_child_subreaper(Some(this))?;
    // SIGCHLD reports children. The other signals would only kill the one process that knows how the tasks
    // end; a step is ended through its control socket.
    let watched = [
        NixSignal::SIGCHLD,
        NixSignal::SIGTERM,
        NixSignal::SIGINT,
        NixSignal::SIGHUP,
        NixSignal::SIGQUIT,
        NixSignal::SIGUSR1,
        NixSignal::SIGUSR2,
    ];
    let set: SigSet = watched.into_iter().collect();
    set.thread_block()?;
    Ok(SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?)
}

/// Writes the script, which its user may read and run. As root's file it cannot be written by the user, who
/// could fill the spool through it. A file system without access control lists has no other way than to give
/// the file to the user.
fn write_script(script: &[u8], uid: u32, gid: u32) -> io::Result<()> {
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o500).open(SCRIPT_FILE)?;
    file.write_all(script)?;
    if !rustix::process::geteuid().is_root() || uid == 0 {
        return Ok(());
    }
    match rustix::fs::fsetxattr(&file, ACCESS_LIST, &readable_by(uid), XattrFlags::empty()) {
        Err(rustix::io::Errno::OPNOTSUPP) => std::os::unix::fs::fchown(&file, Some(uid), Some(gid)),
        set => Ok(set?),
    }
}

/// The extended attribute that holds a file's access control list.
const ACCESS_LIST: &str = "system.posix_acl_access";

/// An access control list by which the owner and one user may read and execute a file, in the kernel's form:
/// a version, then entries of tag, permissions and id.
fn readable_by(uid: u32) -> Vec<u8> {
    const VERSION: u32 = 2;
    const NO_ID: u32 = u32::MAX;
    let (owner, user, group, mask, others) = (0x01, 0x02, 0x04, 0x10, 0x20);
    let entries =
        [(owner, 5, NO_ID), (user, 5, uid), (group, 0, NO_ID), (mask, 5, NO_ID), (others, 0, NO_ID)];
    let entry = |(tag, permissions, id): (u16, u16, u32)| {
        [&tag.to_le_bytes()[..], &permissions.to_le_bytes(), &id.to_le_bytes()].concat()
    };
    VERSION.to_le_bytes().into_iter().chain(entries.into_iter().flat_map(entry)).collect()
}

/// Bytes reserved for the record, so that a disk that fills up meanwhile still has space for some dozens of
/// tasks. On a disk without even this space, nothing runs.
const RESERVED: usize = 4096;

fn reserve_record() -> io::Result<()> {
    fs::write(UNFINISHED_FILE, [b' '; RESERVED])
}

/// Writes the record, which readers see whole or not at all.
///
/// The write is not synced: syncing would cost every step the time of a disk. A power loss may lose the
/// record; the attempt is then reported as lost, which is true.
pub(crate) fn write_record(record: &ExitRecord) -> io::Result<()> {
    let text = serde_json::to_vec(record)?;
    // Overwrites the reserved file in place.
    let file =
        OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(UNFINISHED_FILE)?;
    file.write_all_at(&text, 0)?;
    file.set_len(text.len() as u64)?;
    fs::rename(UNFINISHED_FILE, EXIT_FILE)
}

/// Returns the signal of this number, if it may be sent to a process.
pub(crate) fn signal(number: i32) -> Option<Signal> {
    // 32 and 33 belong to the C library's threads.
    let sendable = (1..=31).contains(&number) || (34..=64).contains(&number);
    // SAFETY: the number is that of a signal which no library keeps for itself.
    sendable.then(|| unsafe { Signal::from_raw_unchecked(number) })
}
