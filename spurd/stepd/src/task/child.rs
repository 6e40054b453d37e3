//! The steps from fork to exec of a task's process.
//!
//! The child sets itself up, as the user where the user's rights must decide (working directory, standard
//! files, search for the program). It reports to spurstepd through a socket that exec closes: a refusal as
//! JSON, the standard error file as a descriptor, and the end of file when the program runs. A program that
//! cannot be executed is the task's own failure, with Slurm's text and `errno` as exit code.

use std::collections::BTreeMap;
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::process::Pid;
use spur_core::id::StepId;
use step_wire::record::{LaunchFailure, LaunchStage};

use crate::confine::group::Group;
use crate::task::binding::{bind, bind_memory, set_limit, tell_binding, tell_memory};
use crate::task::files::{keep_open, standard_files};
use crate::task::fork::{Forked, die_with, fork, reset_signals};
use crate::task::plan::{Pipes, Plan};
use crate::task::prolog::{own_task_prolog, task_prolog};
use crate::task::say::{say, text};
use crate::task::user::{become_user, log_in};

/// A child before exec, and the socket on which it reports.
pub(crate) struct Child {
    pub(crate) pid: Pid,
    pub(crate) report: UnixStream,
}

/// Forks a child that follows `plan`.
///
/// # Errors
/// The system's error if no process or socket can be created.
pub(crate) fn spawn(plan: &Plan<'_>, pipes: Pipes) -> io::Result<Child> {
    let (report, channel) = UnixStream::pair()?;
    report.set_nonblocking(true)?;
    let parent = rustix::process::getpid();
    // SAFETY: spurstepd has one thread, so the child may do everything that the parent may.
    match unsafe { fork(plan.group.and_then(Group::directory)) }? {
        Forked::Parent(pid) => Ok(Child { pid, report }),
        Forked::Child { inside } => {
            drop(report);
            let doors = plan.group.map_or_else(Vec::new, |group| group.doors(inside));
            std::process::exit(become_program(plan, pipes, &channel, parent, &doors));
        }
    }
}

/// Forks a child that writes a line to a file of the user's.
///
/// The file may be a pipe without a reader, or on a server that does not answer. The child does not belong to
/// the step, so nothing waits for it.
///
/// # Errors
/// The system's error if no process can be created.
pub(crate) fn write_line(file: &File, line: &str) -> io::Result<Pid> {
    let parent = rustix::process::getpid();
    // SAFETY: spurstepd has one thread, so the child may do everything that the parent may.
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

/// Does everything between fork and exec; returns an exit code only if exec failed.
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
            // Without a parent that reads the pipe there is no receiver.
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

/// Enters the working directory; if that fails, enters `/tmp` and returns the error.
fn enter(cwd: &Path) -> Option<io::Error> {
    let error = rustix::process::chdir(cwd).err()?;
    // Without /tmp the process stays in the attempt's directory, which the user may at least be in.
    let _ = rustix::process::chdir("/tmp");
    Some(error.into())
}

/// Returns the step's variables, with the task's own and the process id added.
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

/// Executes the program; returns only if that failed, with the error already written to standard error.
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

/// Returns the paths at which a program may be. These are its own path, or the directories of the user's
/// `PATH` and last the working directory, as with Slurm.
fn candidates(name: &str, path: Option<&OsString>) -> Vec<PathBuf> {
    if name.contains('/') {
        return vec![PathBuf::from(name)];
    }
    let path = path.map_or(OsStr::new("/usr/local/bin:/usr/bin:/bin"), |path| path.as_os_str());
    let searched = std::env::split_paths(path).map(|directory| directory.join(name));
    searched.chain([Path::new(".").join(name)]).collect()
}

/// Returns the interpreter that a script names, if that does not exist.
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
