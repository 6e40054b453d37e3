//! From fork to exec: what happens in a new process before it is the user's program.
//!
//! The child does its own setting up, as the user where the user's rights must decide (working directory, standard
//! files, search for the program). It tells spurstepd through a socket that closes by itself at exec: a refusal as
//! JSON, the standard error file as a descriptor, and the end of file that means the program runs. A program that
//! cannot be executed is the task's own failure, with Slurm's text and `errno` as exit code.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal as NixSignal};
use rustix::fs::{Mode, OFlags};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use rustix::process::{Pid, Resource, Rlimit, Signal};
use spur_core::id::StepId;
use spur_core::model::idset::IdSet;
use spur_core::text::cpubind::{Bits, CpuBinding};
use step_wire::order::{
    Identity, Input, Limit, LimitedResource, MemoryBinding, Output, StepOrder, TaskOrder,
};
use step_wire::record::{LaunchFailure, LaunchStage};

use crate::confine::group::Group;
use crate::task::fork::{Forked, fork};
use crate::task::terminal;
use crate::task::user;

/// The variable by which sbatch says, as Slurm's does, that the script is to have the user's login environment, too.
const LOGIN_ENVIRONMENT: &str = "SLURM_GET_USER_ENV";
/// How often a missing directory is looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// The standard streams of a task as spurstepd made them: the ends of pipes that the child takes over.
#[derive(Debug, Default)]
pub(crate) struct Pipes {
    pub(crate) stdin: Option<OwnedFd>,
    pub(crate) stdout: Option<OwnedFd>,
    pub(crate) stderr: Option<OwnedFd>,
    /// What an MPI library in the task finds its server by.
    pub(crate) mpi: MpiEnd,
    /// The terminal that takes the place of all three.
    pub(crate) terminal: Option<OwnedFd>,
}

/// A task's end of the way to its MPI server.
#[derive(Debug, Default)]
pub(crate) struct MpiEnd {
    /// The socket for PMI.
    pub(crate) socket: Option<OwnedFd>,
    /// What goes into the task's environment.
    pub(crate) variables: Vec<(String, String)>,
}

/// What one child is to become.
pub(crate) struct Plan<'a> {
    pub(crate) order: &'a StepOrder,
    pub(crate) task: &'a TaskOrder,
    /// `NAME=value` entries, each ended by a NUL.
    pub(crate) environment: &'a [u8],
    pub(crate) argv: &'a [String],
    /// Empty the output files that do not append; set for the first task that uses them.
    pub(crate) truncate: (bool, bool),
    /// The control group.
    pub(crate) group: Option<&'a Group>,
    /// The CPU set and the limits are applied, the prolog is run: false for a task's epilog.
    pub(crate) is_task: bool,
}

/// A child under way, and the socket on which it reports.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) report: UnixStream,
}

/// Forks a child that follows `plan`.
///
/// # Errors
/// The system's error if no process or socket can be made.
pub(crate) fn spawn(plan: &Plan<'_>, pipes: Pipes) -> io::Result<Child> {
    let (report, channel) = UnixStream::pair()?;
    report.set_nonblocking(true)?;
    let parent = rustix::process::getpid();
    // SAFETY: spurstepd has only this thread, so the child may do everything that the parent may.
    match unsafe { fork(plan.group.and_then(Group::directory)) }? {
        Forked::Parent(pid) => Ok(Child { pid, report }),
        Forked::Child { inside } => {
            drop(report);
            let doors = plan.group.map_or_else(Vec::new, |group| group.doors(inside));
            std::process::exit(become_program(plan, pipes, &channel, parent, &doors));
        }
    }
}

/// Forks a child that writes a line to a file of the user's, which may be a pipe that nobody reads or lie on a server that
/// does not answer: it is no process of the step, and may take as long as it likes.
///
/// # Errors
/// The system's error if no process can be made.
pub(crate) fn write_line(file: &File, line: &str) -> io::Result<Pid> {
    let parent = rustix::process::getpid();
    // SAFETY: spurstepd has only this thread, so the child may do everything that the parent may.
    match unsafe { fork(None) }? {
        Forked::Parent(pid) => Ok(pid),
        Forked::Child { .. } => {
            let written = reset_signals()
                .and_then(|()| die_with(parent))
                .and_then(|()| (&mut &*file).write_all(line.as_bytes()));
            std::process::exit(i32::from(written.is_err()));
        }
    }
}

/// Everything between fork and exec; returns the exit code only if exec did not happen.
fn become_program(
    plan: &Plan<'_>,
    pipes: Pipes,
    channel: &UnixStream,
    parent: Pid,
    doors: &[BorrowedFd<'_>],
) -> i32 {
    match prepare(plan, pipes, channel, parent, doors) {
        Ok(mut environment) => {
            let prolog = plan.order.own_task_prolog.as_deref().filter(|_| plan.is_task);
            if let Some(Err(status)) = prolog.map(|prolog| own_task_prolog(prolog, &mut environment)) {
                return status;
            }
            let error = execute(plan.argv, &environment);
            errno_code(&error)
        }
        Err(failure) => {
            let text = serde_json::to_vec(&failure).expect("failures are plain text");
            // Without a parent that listens there is nobody left to tell.
            let _ = (&mut &*channel).write_all(&text);
            1
        }
    }
}

fn prepare(
    plan: &Plan<'_>,
    mut pipes: Pipes,
    channel: &UnixStream,
    parent: Pid,
    doors: &[BorrowedFd<'_>],
) -> Result<BTreeMap<OsString, OsString>, LaunchFailure> {
    use LaunchStage::{Confinement, Identity, Limits, Order, StandardFiles};
    reset_signals().map_err(|error| failed(Order, "signals", &error))?;
    rustix::process::setsid().map_err(|error| failed(Order, "setsid", &error.into()))?;
    for door in doors {
        rustix::io::write(door, b"0").map_err(|error| failed(Confinement, "control group", &error.into()))?;
    }
    if plan.is_task {
        let binding = bind(&plan.task.cpus);
        binding.map_err(|error| failed(Limits, &format!("CPUs {:?}", plan.task.cpus), &error))?;
        if let Some(memory) = &plan.task.memory {
            let bound = bind_memory(memory);
            bound.map_err(|error| failed(Limits, &format!("NUMA nodes {:?}", memory.nodes), &error))?;
        }
        for limit in &plan.order.limits {
            set_limit(limit).map_err(|error| failed(Limits, &format!("{:?}", limit.resource), &error))?;
        }
    }
    let who = &plan.order.identity;
    become_user(who)
        .map_err(|error| failed(Identity, &format!("user {} ({})", who.user, who.uid), &error))?;
    die_with(parent).map_err(|error| failed(Order, "parent death signal", &error))?;
    rustix::process::umask(Mode::from_bits_truncate(plan.order.umask));
    let fallback = enter(&plan.order.cwd);
    let mpi = std::mem::take(&mut pipes.mpi);
    standard_files(plan, pipes, channel).map_err(|(what, error)| failed(StandardFiles, &what, &error))?;
    if plan.is_task
        && let Some(kind) = &plan.task.tell_binding
    {
        tell_binding(plan, kind);
    }
    if plan.is_task
        && let Some(memory) = &plan.task.memory
        && let Some(kind) = &memory.tell
    {
        tell_memory(plan, memory, kind);
    }
    if let Some(error) = fallback {
        say(&format!(
            "couldn't chdir to `{}': {}: going to /tmp instead",
            plan.order.cwd.display(),
            text(&error)
        ));
    }
    let mut environment = environment(plan);
    if plan.is_task && plan.order.attempt.step == StepId::BATCH {
        log_in(who.uid, &mut environment);
    }
    if let Some(prolog) = plan.order.task_prolog.as_deref().filter(|_| plan.is_task) {
        task_prolog(prolog, &mut environment)?;
    }
    if let Some(socket) = mpi.socket {
        let number = keep_open(socket).map_err(|error| failed(StandardFiles, "MPI socket", &error))?;
        environment.insert("PMI_FD".into(), number.to_string().into());
    }
    environment.extend(mpi.variables.into_iter().map(|(name, value)| (name.into(), value.into())));
    Ok(environment)
}

fn failed(stage: LaunchStage, what: &str, error: &io::Error) -> LaunchFailure {
    LaunchFailure { stage, message: format!("{what}: {}", text(error)) }
}

/// The system's words for an error, without Rust's ` (os error N)`.
fn text(error: &io::Error) -> String {
    let full = error.to_string();
    full.split(" (os error").next().unwrap_or_default().to_owned()
}

/// A line of ours in the task's standard error.
fn say(message: &str) {
    // A standard error that takes no bytes leaves no way to say so.
    let _ = writeln!(io::stderr(), "slurmstepd: error: {message}");
}

/// Undoes what spurstepd blocks or ignores, or was told to ignore by what started it: a shell that runs a daemon in the
/// background has it ignore INT and QUIT, `nohup` HUP. All would be inherited.
pub(crate) fn reset_signals() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    let is_fixed = |signal: &NixSignal| matches!(signal, NixSignal::SIGKILL | NixSignal::SIGSTOP);
    for signal in NixSignal::iterator().filter(|signal| !is_fixed(signal)) {
        // SAFETY: no handler is installed, only the default action.
        unsafe { nix::sys::signal::sigaction(signal, &default) }?;
    }
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Says what the task is bound to, in Slurm's words.
fn tell_binding(plan: &Plan<'_>, kind: &str) {
    let own = rustix::thread::sched_getaffinity(None).map(|set| {
        let numbers = 0..rustix::thread::CpuSet::MAX_CPU;
        numbers.filter(|&cpu| set.is_set(cpu)).filter_map(|cpu| u32::try_from(cpu).ok()).collect::<Bits>()
    });
    let local = plan.order.tasks.iter().position(|task| task.global == plan.task.global).unwrap_or_default();
    let (node, rank, pid) = (&plan.order.node, plan.task.global, std::process::id());
    let action = if kind == CpuBinding::UNBOUND { "" } else { " set" };
    // A standard error that takes no bytes leaves no way to say so.
    let _ = writeln!(
        io::stderr(),
        "cpu-bind{kind} - {node}, task {rank:2} {local:2} [{pid}]: mask {}{action}",
        own.unwrap_or_default()
    );
}

/// The same of its memory.
fn tell_memory(plan: &Plan<'_>, memory: &MemoryBinding, kind: &str) {
    let local = plan.order.tasks.iter().position(|task| task.global == plan.task.global).unwrap_or_default();
    let (node, rank, pid) = (&plan.order.node, plan.task.global, std::process::id());
    let (mask, action) = match memory.nodes.is_empty() {
        true => (allowed_memory(), ""),
        false => (memory.nodes.iter().copied().collect(), " set"),
    };
    let _ = writeln!(
        io::stderr(),
        "mem-bind={kind} - {node}, task {rank:2} {local:2} [{pid}]: mask {mask}{action}"
    );
}

/// The NUMA nodes that this process may use.
fn allowed_memory() -> Bits {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Mems_allowed_list:"));
    let nodes: IdSet = list.and_then(|list| list.trim().parse().ok()).unwrap_or_default();
    nodes.iter().collect()
}

/// Binds what the task will allocate to NUMA nodes, or has it prefer the first of them.
fn bind_memory(memory: &MemoryBinding) -> io::Result<()> {
    const BITS: u32 = libc::c_ulong::BITS;
    let mut mask = [0 as libc::c_ulong; 1024 / BITS as usize];
    let (mode, count) = match memory.prefer {
        true => (libc::MPOL_PREFERRED, 1),
        false => (libc::MPOL_BIND, memory.nodes.len()),
    };
    for &node in memory.nodes.iter().take(count) {
        let place = mask.get_mut((node / BITS) as usize).ok_or(rustix::io::Errno::INVAL)?;
        *place |= 1 << (node % BITS);
    }
    if memory.nodes.is_empty() {
        return Ok(());
    }
    // SAFETY: the kernel reads as many bits of the mask as are said, less one, as it is wont.
    let done = unsafe { libc::syscall(libc::SYS_set_mempolicy, mode, mask.as_ptr(), 1024 + 1) };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn bind(cpus: &[u32]) -> io::Result<()> {
    if cpus.is_empty() {
        return Ok(());
    }
    let mut set = rustix::thread::CpuSet::new();
    for &cpu in cpus {
        if cpu as usize >= rustix::thread::CpuSet::MAX_CPU {
            return Err(io::Error::from(rustix::io::Errno::INVAL));
        }
        set.set(cpu as usize);
    }
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}

/// Sets one limit; where it is over what this process may have, it takes the most it may, as Slurm does.
fn set_limit(limit: &Limit) -> io::Result<()> {
    let resource = match limit.resource {
        LimitedResource::As => Resource::As,
        LimitedResource::Core => Resource::Core,
        LimitedResource::Cpu => Resource::Cpu,
        LimitedResource::Data => Resource::Data,
        LimitedResource::Fsize => Resource::Fsize,
        LimitedResource::Memlock => Resource::Memlock,
        LimitedResource::Nofile => Resource::Nofile,
        LimitedResource::Nproc => Resource::Nproc,
        LimitedResource::Rss => Resource::Rss,
        LimitedResource::Stack => Resource::Stack,
    };
    let hard = rustix::process::getrlimit(resource).maximum;
    // No limit is more than any limit.
    let over = match (limit.soft, hard) {
        (Some(soft), Some(hard)) => soft > hard,
        (None, Some(_)) => true,
        (_, None) => false,
    };
    let wish = Rlimit { current: limit.soft, maximum: if over { limit.soft } else { hard } };
    match rustix::process::setrlimit(resource, wish) {
        Err(_) if over => Ok(rustix::process::setrlimit(resource, Rlimit { current: hard, maximum: hard })?),
        other => Ok(other?),
    }
}

/// Becomes the user, with the out-of-memory score that any process has: spurstepd has its service manager's, which would
/// protect what its user runs.
///
/// The process cannot be traced until it executes a program: it may have memory and descriptors of spurstepd's, and be
/// outside of its user's control groups.
pub(crate) fn become_user(who: &Identity) -> io::Result<()> {
    use rustix::process::{DumpableBehavior, Gid, Uid};
    // Where the score may only be raised, it is what the whole container was given.
    let _ = fs::write("/proc/self/oom_score_adj", "0");
    if !rustix::process::geteuid().is_root() {
        // Orders for somebody else were refused before; there is nothing to change and no right to.
        return Ok(());
    }
    let groups: Vec<Gid> = who.groups.iter().map(|&group| Gid::from_raw(group)).collect();
    let (gid, uid) = (Gid::from_raw(who.gid), Uid::from_raw(who.uid));
    rustix::thread::set_thread_groups(&groups)?;
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid)?;
    // The kernel does the same, unless `fs.suid_dumpable` says otherwise.
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

/// The program is killed if spurstepd dies: a task that nobody watches could not be told from a lost one.
pub(crate) fn die_with(parent: Pid) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    if rustix::process::getppid() == Some(parent) {
        Ok(())
    } else {
        Err(io::Error::from(rustix::io::Errno::SRCH))
    }
}

/// Enters the working directory, or `/tmp` in its place; the error that made that necessary.
fn enter(cwd: &Path) -> Option<io::Error> {
    let error = rustix::process::chdir(cwd).err()?;
    // A system without /tmp leaves the attempt's directory, which the user may at least be in.
    let _ = rustix::process::chdir("/tmp");
    Some(error.into())
}

type FileError = (String, io::Error);

fn standard_files(plan: &Plan<'_>, pipes: Pipes, channel: &UnixStream) -> Result<(), FileError> {
    if let Some(slave) = &pipes.terminal {
        let placed = terminal::control(slave).and_then(|()| {
            rustix::stdio::dup2_stdin(slave)?;
            rustix::stdio::dup2_stdout(slave)?;
            Ok(rustix::stdio::dup2_stderr(slave)?)
        });
        return placed.map_err(|error| ("terminal".to_owned(), error));
    }
    let cwd = &plan.order.cwd;
    let null = || open(Path::new("/dev/null"), OFlags::RDWR, "null device");
    let stdin = match &plan.task.stdin {
        Input::Null => null()?,
        Input::File(path) => open(&cwd.join(path), OFlags::RDONLY, "stdin")?,
        Input::Stream => pipes.stdin.map_or_else(null, Ok)?,
    };
    let output = |to: &Output, pipe: Option<OwnedFd>, truncate: bool, name: &str| match to {
        Output::Null | Output::Stdout => null(),
        Output::File { path, append } => {
            let emptied = if truncate && !append { OFlags::TRUNC } else { OFlags::empty() };
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::APPEND | emptied;
            match plan.is_task {
                true => open_when_there(&cwd.join(path), flags, name, plan.order.directory_wait_ms),
                // What a task waits for is its user's affair; what comes after it waits for nobody.
                false => open(&cwd.join(path), flags | OFlags::NONBLOCK, name).or_else(|_| null()),
            }
        }
        Output::Stream => pipe.map_or_else(null, Ok),
    };
    let stdout = output(&plan.task.stdout, pipes.stdout, plan.truncate.0, "stdout")?;
    let stderr = match &plan.task.stderr {
        Output::Stdout => None,
        other => Some(output(other, pipes.stderr, plan.truncate.1, "stderr")?),
    };
    let stderr = stderr.as_ref().unwrap_or(&stdout);
    let stderr_order = if plan.task.stderr == Output::Stdout { &plan.task.stdout } else { &plan.task.stderr };
    // Of a stream only the task may hold the end, or it would never be seen to close.
    if plan.is_task && matches!(stderr_order, Output::File { .. }) {
        // Without it, a later notice (cancelled, time limit) only misses its place in the file.
        let _ = hand_over(channel, stderr.as_fd());
    }
    let placed = rustix::stdio::dup2_stdin(&stdin)
        .and_then(|()| rustix::stdio::dup2_stdout(&stdout))
        .and_then(|()| rustix::stdio::dup2_stderr(stderr));
    placed.map_err(|error| ("standard files".to_owned(), error.into()))
}

fn open(path: &Path, flags: OFlags, name: &str) -> Result<OwnedFd, FileError> {
    rustix::fs::open(path, flags | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::from_bits_truncate(0o666))
        .map_err(|error| (format!("Could not open {name} file {}", path.display()), error.into()))
}

/// Opens a file whose directory may not be there yet: whoever submits a job may make it right after. Nothing tells of that
/// on a network file system, so it is looked at again and again. This is the task's own process, and is killed like it.
fn open_when_there(path: &Path, flags: OFlags, name: &str, patience_ms: u64) -> Result<OwnedFd, FileError> {
    let until = Instant::now() + Duration::from_millis(patience_ms);
    loop {
        let opened = open(path, flags, name);
        let missing = |(_, error): &FileError| {
            error.kind() == io::ErrorKind::NotFound && path.parent().is_some_and(|parent| !parent.exists())
        };
        if !opened.as_ref().is_err_and(missing) || Instant::now() >= until {
            return opened;
        }
        std::thread::sleep(LOOK_AGAIN);
    }
}

/// Has the program inherit a descriptor; its number.
fn keep_open(fd: OwnedFd) -> io::Result<i32> {
    rustix::io::fcntl_setfd(&fd, rustix::io::FdFlags::empty())?;
    Ok(fd.into_raw_fd())
}

/// Gives spurstepd a copy of the standard error file, which only the user may be able to open.
pub(crate) fn hand_over(channel: &UnixStream, fd: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    control.push(SendAncillaryMessage::ScmRights(&fds));
    // A descriptor travels with at least one byte; a blank is no part of any report.
    rustix::net::sendmsg(channel, &[io::IoSlice::new(b" ")], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The step's variables, this task's over them, and the process id.
fn environment(plan: &Plan<'_>) -> BTreeMap<OsString, OsString> {
    let split = |entry: &[u8]| {
        let at = entry.iter().position(|&byte| byte == b'=').filter(|&at| at > 0)?;
        Some((OsString::from_vec(entry[..at].to_vec()), OsString::from_vec(entry[at + 1..].to_vec())))
    };
    let mut variables: BTreeMap<_, _> = plan.environment.split(|&byte| byte == 0).filter_map(split).collect();
    variables.extend(plan.task.env.iter().map(|(name, value)| (name.into(), value.into())));
    variables.insert("SLURM_TASK_PID".into(), rustix::process::getpid().as_raw_pid().to_string().into());
    variables
}

/// Adds what the user would have after logging in and does not bring along, if the submission says so.
fn log_in(uid: u32, environment: &mut BTreeMap<OsString, OsString>) {
    if environment.remove(OsStr::new(LOGIN_ENVIRONMENT)).is_none() {
        return;
    }
    match user::environment(uid) {
        Ok(variables) => {
            for (name, value) in variables {
                environment.entry(name).or_insert(value);
            }
        }
        Err(problem) => say(&format!("no login environment: {problem}; the job goes on without it")),
    }
}

/// Runs the site's task prolog, without which no task runs.
fn task_prolog(prolog: &Path, environment: &mut BTreeMap<OsString, OsString>) -> Result<(), LaunchFailure> {
    let failure = |why: String| LaunchFailure {
        stage: LaunchStage::TaskProlog,
        message: format!("task prolog {}: {why}", prolog.display()),
    };
    let status = run_prolog(prolog, environment).map_err(|error| failure(text(&error)))?;
    if status.success() { Ok(()) } else { Err(failure(status.to_string())) }
}

/// Runs the user's own task prolog; one that fails ends its task in its place, with this exit code.
fn own_task_prolog(prolog: &Path, environment: &mut BTreeMap<OsString, OsString>) -> Result<(), i32> {
    let status = match run_prolog(prolog, environment) {
        Ok(status) if status.success() => return Ok(()),
        Ok(status) => {
            if let Some(signal) = status.signal() {
                say(&format!("user task_prolog did not exit normally. reason: signal {signal}"));
            }
            status.code().unwrap_or(1)
        }
        Err(error) => {
            let (path, why) = (prolog.display(), text(&error));
            say(&format!("run_command: user task_prolog can not be executed ({path}) {why}"));
            say("user task_prolog did not exit normally. reason: Run command failed - configuration error");
            1
        }
    };
    say(&format!("--task-prolog failed status={status}"));
    Err(status)
}

/// Runs a task prolog and, if it succeeds, does what its output says: `export NAME=value`, `unset NAME`, `print text`.
fn run_prolog(prolog: &Path, environment: &mut BTreeMap<OsString, OsString>) -> io::Result<ExitStatus> {
    let run = std::process::Command::new(prolog)
        .env_clear()
        .envs(&*environment)
        .stderr(std::process::Stdio::inherit())
        .output()?;
    if !run.status.success() {
        return Ok(run.status);
    }
    for line in run.stdout.split(|&byte| byte == b'\n') {
        if let Some(rest) = line.strip_prefix(b"export ") {
            let at = rest.iter().position(|&byte| byte == b'=').unwrap_or(rest.len());
            let value = rest.get(at + 1..).unwrap_or_default();
            environment.insert(OsStr::from_bytes(&rest[..at]).into(), OsStr::from_bytes(value).into());
        } else if let Some(name) = line.strip_prefix(b"unset ") {
            environment.remove(OsStr::from_bytes(name.trim_ascii()));
        } else if let Some(rest) = line.strip_prefix(b"print ") {
            // As with any program: an output that cannot be written is lost.
            let _ = io::stdout().write_all(&[rest, b"\n"].concat());
        }
    }
    Ok(run.status)
}

/// Becomes the program; returns only the error, already told to the user.
fn execute(argv: &[String], environment: &BTreeMap<OsString, OsString>) -> io::Error {
    let name = argv.first().map_or("", String::as_str);
    let error = find_and_execute(name, argv, environment);
    match interpreter(Path::new(name)).filter(|_| error.kind() == io::ErrorKind::NotFound) {
        Some(missing) => say(&format!("execve(): bad interpreter({}): {}", missing.display(), text(&error))),
        None => say(&format!("execve(): {name}: {}", text(&error))),
    }
    error
}

fn find_and_execute(name: &str, argv: &[String], environment: &BTreeMap<OsString, OsString>) -> io::Error {
    let entry = |(name, value): (&OsString, &OsString)| {
        let mut entry = name.as_bytes().to_vec();
        entry.push(b'=');
        entry.extend_from_slice(value.as_bytes());
        CString::new(entry)
    };
    let prepared = (
        argv.iter().map(|argument| CString::new(argument.as_str())).collect::<Result<Vec<_>, _>>(),
        environment.iter().map(entry).collect::<Result<Vec<_>, _>>(),
    );
    let (Ok(argv), Ok(envp)) = prepared else { return io::Error::from(rustix::io::Errno::INVAL) };
    let mut refused = None;
    for path in candidates(name, environment.get(OsStr::new("PATH"))) {
        let Ok(path) = CString::new(path.into_os_string().into_vec()) else { continue };
        let error =
            io::Error::from(nix::unistd::execve(&path, &argv, &envp).expect_err("exec returns only errors"));
        match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {}
            io::ErrorKind::PermissionDenied => refused = Some(error),
            _ => return error,
        }
    }
    refused.unwrap_or_else(|| io::Error::from(rustix::io::Errno::NOENT))
}

/// Where a program may be: where its name says, or in the directories of the user's `PATH`, or at last in the working
/// directory, as with Slurm.
fn candidates(name: &str, path: Option<&OsString>) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![PathBuf::from(name)];
    }
    let path = path.map_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"), |path| path.as_os_str());
    let searched = std::env::split_paths(path).map(|directory| directory.join(name));
    searched.chain([Path::new(".").join(name)]).collect()
}

/// The interpreter that a script names, if it does and there is none such.
fn interpreter(script: &Path) -> Option<PathBuf> {
    use std::io::Read;
    let mut head = Vec::new();
    File::open(script).ok()?.take(256).read_to_end(&mut head).ok()?;
    let line = head.strip_prefix(b"#!")?.split(|&byte| byte == b'\n').next()?;
    let name = line.trim_ascii().split(|&byte| byte == b' ' || byte == b'\t').next()?;
    let interpreter = PathBuf::from(OsStr::from_bytes(name));
    (!interpreter.exists()).then_some(interpreter)
}

fn errno_code(error: &io::Error) -> i32 {
    error.raw_os_error().unwrap_or(1) & 0xff
}
