//! The command `salloc`: requests an allocation and runs a command, or a shell, in it on this host.
//!
//! The command stays in the process group of `salloc`. Keys of a terminal therefore reach both, and the
//! calling shell stops and continues both.

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::iter;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

use anyhow::Context;
use nix::unistd::{Uid, User};
use rustix::process::Pid;
use spur_core::text::exit::ExitCode;
use spur_core::text::signal::Signal;
use spur_proto::v1::{Client, JobSpec, KeyValue};
use tokio::process::{Child, Command};
use tokio::time::Instant;

use crate::commands::allocation::{Allocation, Grant, Wait, busy, patience};
use crate::commands::gres;
use crate::commands::login;
use crate::commands::sbatch;
use crate::commands::signals::Signals;
use crate::commands::srun::read_hostfile;
use crate::commands::verbose;
use crate::error::{FAILURE, Failure};
use crate::options::Layer;
use crate::options::defs::SALLOC_LINE;
use crate::options::het::{self, Reading};
use crate::options::submission::Submission;
use crate::place::{self, Here};
use crate::session::Session;

/// Numbers of the signals that end the wait for an allocation.
const WHILE_WAITING: &[u8] = &[1, 2, 3, 10, 12, 15];
/// Wait after which the terminal's bell rings.
const LONG_WAIT: Duration = Duration::from_secs(10);
/// Name of a job without one, regardless of its command, as with Slurm.
const NAMELESS: &str = "interactive";

/// Runs `salloc`.
///
/// # Errors
/// A failure to get the allocation or to run its command.
pub async fn run(session: &mut Session, words: Vec<String>) -> anyhow::Result<u8> {
    let (components, argv) = match het::read(&SALLOC_LINE, &words)? {
        Reading::Run { components, operands } => (components, operands),
        Reading::Show(text) => {
            write!(session.out, "{text}")?;
            return Ok(0);
        }
    };
    if gres::help_is_said(&components) {
        return gres::help(session).await;
    }
    let (wishes, login, mut spec) = compose(session, components, &argv).await?;
    let says_memory = |spec: &JobSpec| spec.memory_per_node_mb.or(spec.memory_per_cpu_mb).is_some();
    let say_memory: Vec<bool> = iter::once(&spec).chain(&spec.components).map(says_memory).collect();
    if let Some(directory) = &wishes.chdir {
        // The trailing `/.` makes the check fail for a directory that cannot be entered.
        let inside = std::fs::metadata(format!("{}/.", place::directory(Some(directory))?));
        inside.with_context(|| format!("chdir({directory})"))?;
    }
    spec.submit_line = [&["salloc".to_owned()], &words[..]].concat().join(" ");
    sbatch::check_cluster(session, wishes.clusters.as_deref()).await?;
    let kill = wishes.kill_command.as_deref().map(kill_signal).transpose()?;
    let mut signals = Signals::listen(WHILE_WAITING)?;
    let begun = Instant::now();
    let asked = Allocation::ask(session, spec, wishes.quiet).await;
    let mut allocation = asked.context("Job submit/allocate failed")?;
    let Grant { job, mut environment, use_interactive_step } =
        *granted(session, &mut allocation, &wishes, &mut signals).await?;
    environment.retain(|variable| is_told(&variable.key, &say_memory));
    let environment = Environment { login, job: environment };
    ring(&wishes, begun.elapsed())?;
    if wishes.no_shell {
        return Ok(0);
    }
    let what = match argv.is_empty() {
        false => What::Command(argv),
        true if use_interactive_step => What::Step,
        true => What::Command(vec![shell()]),
    };
    let ended = run_command(session, &mut allocation, (&wishes, kill), what, environment).await;
    let exit = match &ended {
        Ok(status) => exit_of(*status),
        Err(_) => ExitCode::exited(FAILURE),
    };
    if !allocation.is_revoked(session) {
        tell(session, &wishes, &format!("Relinquishing job allocation {}", job.id));
        allocation.end(session, exit).await;
    }
    Ok(exit_code(ended?))
}

/// The program that runs in the allocation.
enum What {
    /// A command on this host: the one that was named, or the user's shell.
    Command(Vec<String>),
    /// The user's shell, in a step on the first node (`[controller] use_interactive_step`).
    Step,
}

impl What {
    /// Returns the program to start in a directory, with its arguments.
    fn command(&self, directory: &str) -> anyhow::Result<Command> {
        match self {
            What::Command(argv) => {
                let mut command = Command::new(place::program(&argv[0], directory));
                command.args(&argv[1..]);
                Ok(command)
            }
            What::Step => {
                // This executable is also `srun`, so no link to it has to be found.
                let mut command = Command::new(std::env::current_exe().context("cannot find srun")?);
                command.arg0("srun").args(["--interactive", "--preserve-env", "--pty"]).arg(shell());
                Ok(command)
            }
        }
    }

    /// Name of the program for messages to the user.
    fn name(&self) -> &str {
        match self {
            What::Command(argv) => &argv[0],
            What::Step => "srun",
        }
    }
}

/// The variables of the command, beside those of `salloc` itself.
struct Environment {
    /// Login environment of the user; variables of `salloc` override it.
    login: Vec<(OsString, OsString)>,
    /// Variables of the allocation, which override all others.
    job: Vec<KeyValue>,
}

/// Returns the meaning of the command line and the environment.
async fn compose(
    session: &mut Session,
    components: Vec<Layer<Submission>>,
    argv: &[String],
) -> anyhow::Result<(Submission, Vec<(OsString, OsString)>, JobSpec)> {
    let count = components.len();
    let mut wishes = Vec::with_capacity(count);
    for (inherited, args) in het::inherit(components, count) {
        let mut one = Submission::default();
        let env = SALLOC_LINE.read_env(&|name| session.env(name));
        one.take([env, inherited, args])?;
        verbose::tell(session, &one);
        wishes.push(one);
    }
    let mut wishes = wishes.into_iter();
    let mut first = wishes.next().unwrap_or_default();
    let login = match &first.login_environment {
        Some(said) => login::environment(first.uid.as_deref(), said).await?,
        None => Vec::new(),
    };
    place::become_user(first.uid.as_deref(), first.gid.as_deref())?;
    place::read_hosts(&mut first)?;
    read_hostfile(session, &mut first)?;
    place::count_named(session, &mut first)?;
    let mut spec = first.clone().into_spec(&Here)?;
    if spec.name.is_empty() {
        let name = if first.no_shell { "no-shell" } else { NAMELESS };
        name.clone_into(&mut spec.name);
    }
    spec.submit_host = place::hostname();
    spec.client = Some(Client {
        command: argv.first().cloned().unwrap_or_default(),
        work_dir: place::directory(first.chdir.as_deref())?,
        no_shell: first.no_shell,
    });
    for mut component in wishes {
        place::read_hosts(&mut component)?;
        place::count_named(session, &mut component)?;
        let own = component.into_spec(&Here)?;
        let name = if own.name.is_empty() { spec.name.clone() } else { own.name.clone() };
        let (submit_host, client) = (spec.submit_host.clone(), spec.client.clone());
        spec.components.push(JobSpec { name, submit_host, client, ..own });
    }
    Ok((first, login, spec))
}

/// True if the command gets a variable. As in Slurm, variables of memory are omitted unless their component
/// requested memory. Only batch scripts get a partition's default.
fn is_told(name: &str, say_memory: &[bool]) -> bool {
    let component =
        name.split_once("_HET_GROUP_").and_then(|(_, offset)| offset.parse().ok()).unwrap_or(0_usize);
    !name.starts_with("SLURM_MEM_PER_") || say_memory.get(component).is_some_and(|says| *says)
}

/// Waits until the allocation starts, and prints messages.
async fn granted(
    session: &mut Session,
    allocation: &mut Allocation,
    wishes: &Submission,
    signals: &mut Signals,
) -> anyhow::Result<Box<Grant>> {
    let id = allocation.job;
    let mut waited = false;
    let queued = |session: &mut Session| {
        waited = true;
        tell(session, wishes, &format!("Pending job allocation {id}"));
        tell(session, wishes, &format!("job {id} queued and waiting for resources"));
    };
    let wait = allocation.wait(session, patience(wishes), async || signals.next().await, queued).await?;
    match wait {
        Wait::Granted(grant) => {
            if waited {
                tell(session, wishes, &format!("job {id} has been allocated resources"));
            }
            tell(session, wishes, &format!("Granted job allocation {id}"));
            tell(session, wishes, &format!("Nodes {} are ready for job", grant.job.nodes));
            Ok(grant)
        }
        Wait::Busy => Err(busy(session).into()),
        Wait::Interrupted(_) => {
            tell(session, wishes, &format!("Job allocation {id} has been revoked."));
            Err(Failure::new("Job aborted due to signal").into())
        }
        Wait::Revoked => {
            tell(session, wishes, &format!("Job allocation {id} has been revoked."));
            Err(Failure::new("Job submit/allocate failed: Job has been cancelled").into())
        }
    }
}

fn tell(session: &mut Session, wishes: &Submission, text: &str) {
    if !wishes.quiet {
        session.inform(text);
    }
}

fn ring(wishes: &Submission, waited: Duration) -> anyhow::Result<()> {
    let mut terminal = std::io::stdout();
    if wishes.bell.unwrap_or(waited >= LONG_WAIT) && terminal.is_terminal() {
        terminal.write_all(b"\x07")?;
        terminal.flush()?;
    }
    Ok(())
}

/// Runs the command to its end. If the allocation ends earlier, a message is printed. The command continues
/// unless `--kill-command` was given.
async fn run_command(
    session: &mut Session,
    allocation: &mut Allocation,
    (wishes, kill): (&Submission, Option<Option<Signal>>),
    what: What,
    environment: Environment,
) -> anyhow::Result<ExitStatus> {
    // At a terminal, INT and QUIT also reach the command, which decides how to react. Elsewhere the
    // command has its own process group, so that signals reach the command with its child processes.
    let is_group = !std::io::stdin().is_terminal();
    let mut signals = Signals::listen(&[1, 2, 3, 10, 12, 15])?;
    let directory = place::directory(wishes.chdir.as_deref())?;
    let mut command = what.command(&directory)?;
    for name in session.environment().keys().filter(|name| place::is_of_het_job(name)) {
        command.env_remove(name);
    }
    command
        .envs(environment.login.into_iter().filter(|(name, _)| !session.environment().contains_key(name)))
        .envs(&wishes.advice)
        .envs(environment.job.into_iter().map(|variable| (variable.key, variable.value)));
    command.current_dir(directory);
    if is_group {
        command.process_group(0);
    }
    let mut child = command.spawn().with_context(|| format!("Unable to find command \"{}\"", what.name()))?;
    let mut told = false;
    loop {
        tokio::select! {
            status = child.wait() => return status.context("cannot wait for the command"),
            signal = signals.next() => match signal {
                Signal::INT | Signal::QUIT if !is_group => {}
                Signal::HUP => {
                    pass_on(&child, signal, is_group);
                    return Ok(ExitStatus::from_raw(i32::from(FAILURE) << 8));
                }
                signal => pass_on(&child, signal, is_group),
            },
            () = allocation.revoked(session), if !told => {
                told = true;
                tell(session, wishes, &format!("Job allocation {} has been revoked.", allocation.job));
                if let Some(signal) = kill {
                    end_command(&child, signal, is_group);
                }
            }
        }
    }
}

/// Ends the command, and the process group in the terminal's foreground.
fn end_command(child: &Child, signal: Option<Signal>, is_group: bool) {
    let terminal = std::io::stdin();
    let front = rustix::termios::tcgetpgrp(&terminal).ok();
    if let Some(front) = front.filter(|front| *front != rustix::process::getpgrp()) {
        // The process group may have ended.
        let _ = rustix::process::kill_process_group(front, rustix::process::Signal::HUP);
    }
    let default = if front.is_some() { Signal::HUP } else { Signal::TERM };
    pass_on(child, signal.unwrap_or(default), is_group);
}

/// Sends a signal to the command, or to its group.
fn pass_on(child: &Child, signal: Signal, is_group: bool) {
    let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
    if let (Some(pid), Some(signal)) =
        (pid, rustix::process::Signal::from_named_raw(i32::from(signal.number())))
    {
        // The process may have ended.
        let _ = match is_group {
            true => rustix::process::kill_process_group(pid, signal),
            false => rustix::process::kill_process(pid, signal),
        };
    }
}

/// Returns the signal of `--kill-command`; `None` for the default.
fn kill_signal(said: &str) -> anyhow::Result<Option<Signal>> {
    if said.is_empty() || said == "1" {
        return Ok(None);
    }
    Ok(Some(said.parse().with_context(|| format!("--kill-command={said}"))?))
}

/// Returns the user's shell.
fn shell() -> String {
    let known = User::from_uid(Uid::current()).ok().flatten();
    let known = known.map(|user| user.shell.to_string_lossy().into_owned()).filter(|shell| !shell.is_empty());
    known.unwrap_or_else(|| "/bin/sh".to_owned())
}

fn exit_of(status: ExitStatus) -> ExitCode {
    let byte = |number: Option<i32>| number.and_then(|number| u8::try_from(number).ok()).unwrap_or(0);
    ExitCode { code: byte(status.code()), signal: byte(status.signal()) }
}

/// Returns the exit code of `salloc`: that of the command, or 0 after signals that end a shell normally.
fn exit_code(status: ExitStatus) -> u8 {
    let exit = exit_of(status);
    match Signal::new(exit.signal) {
        Some(Signal::HUP | Signal::INT | Signal::QUIT | Signal::KILL) => 0,
        Some(_) => FAILURE,
        None => exit.code,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_told_to_whoever_asked_for_it() {
        let told = |name| is_told(name, &[false, true]);
        assert!(told("SLURM_JOB_ID") && told("SLURM_MEM_PER_CPU_HET_GROUP_1"));
        assert!(!told("SLURM_MEM_PER_CPU") && !told("SLURM_MEM_PER_NODE_HET_GROUP_0"));
    }

    #[test]
    fn it_ends_as_its_command_does() {
        for (raw, code) in [(0, 0), (3 << 8, 3), (1, 0), (9, 0), (15, 1), (11, 1)] {
            assert_eq!(exit_code(ExitStatus::from_raw(raw)), code, "{raw}");
        }
    }
}
