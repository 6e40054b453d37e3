//! `spurctld`: reads the command line and the configuration, runs the controller, and handles signals.

use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, ensure};
use clap::Parser;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sd_notify::NotifyState;
use spur_proto::keys::keep_memory_private;
use spur_proto::program::keep_descriptors_private;
use spurctld::args::Args;
use spurctld::config_file::ConfigFile;
use spurctld::reload::Reload;
use spurctld::server::{self, Server};
use spurctld::stop::Stop;
use spurctld::{detach, fault, log, moving};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Each pass of the planner allocates and frees some twenty small records per job; jemalloc does so faster
/// than the system's allocator.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// Path beside which a detached controller with its state in PostgreSQL writes its log.
const STATE_DIRECTORY: &str = "/var/lib/spur/state";
/// Longest duration of the controller's end.
const LONGEST_END: Duration = Duration::from_secs(30);

fn main() -> ExitCode {
    keep_descriptors_private();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(told) => {
            // Without a standard output there is no reader.
            let _ = told.print();
            return if told.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let ended = match args {
        Args { new_history: true, .. } => renew(args),
        Args { migrate: Some(_), .. } | Args { backup: Some(_), .. } | Args { restore: Some(_), .. } => {
            move_journal(args)
        }
        Args { foreground: true, .. } => run(args),
        _ => detach::spawn(std::env::args_os().skip(1)),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spurctld: error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Carries out `--new-history`.
fn renew(args: Args) -> anyhow::Result<()> {
    let config = ConfigFile::find(args.config).read()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let told = runtime.block_on(server::new_history(&config.local, args.adopt))?;
    println!("spurctld: {told}");
    Ok(())
}

/// Carries out `--migrate`, `--backup` and `--restore`.
fn move_journal(args: Args) -> anyhow::Result<()> {
    let local = ConfigFile::find(args.config).read()?.local;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let told = runtime.block_on(async {
        match (args.migrate, args.backup, args.restore) {
            (Some(from), _, _) => moving::migrate(&from, &local).await,
            (_, Some(to), _) => moving::backup(&local, &to).await,
            (_, _, Some(from)) => moving::put_back(&local, &from),
            _ => Ok(String::new()),
        }
    })?;
    println!("spurctld: {told}");
    Ok(())
}

fn run(args: Args) -> anyhow::Result<()> {
    keep_memory_private().context("cannot keep the cluster's key out of core files")?;
    let file = ConfigFile::find(args.config);
    let config = file.read()?;
    log::begin(&config.local.log, args.verbose);
    fault::log_panics();
    config.policy.warnings().iter().for_each(|warning| tracing::warn!("{warning}"));
    detach::leave_terminal()?;
    allow_many_files();
    let state = config.local.controller.state.file().unwrap_or(Path::new(STATE_DIRECTORY)).to_owned();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let host = host.split('.').next().unwrap_or_default();
    let beside = || detach::is_detached().then(|| state.with_file_name("spurctld.log"));
    let log_file = config.local.log.file_of("spurctld", host).or_else(beside);
    tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
        let be_ready = || {
            detach::say_ready();
            log_file.as_deref().inspect(|path| log::write_to(path));
            notify(&[NotifyState::Ready]);
        };
        // A standby has its own handlers. A signal that arrives during its takeover waits here.
        let ends = [SignalKind::terminate(), SignalKind::interrupt()].map(signal);
        let mut stood_by = false;
        let started = Server::start(config, file, || {
            stood_by = true;
            be_ready();
        });
        let Some(server) = started.await? else { return Ok(()) };
        tracing::info!(address = %server.address(), version = env!("CARGO_PKG_VERSION"), "ready");
        let signals = tokio::spawn(obey_signals(ends, server.stop(), server.reload(), log_file.clone()));
        if !stood_by {
            be_ready();
        }
        let stop = server.stop();
        let ended = server.run().await;
        signals.abort();
        ended?;
        // Reported as a failure, so that the service manager starts this controller again.
        ensure!(!stop.hands_over(), "the lease is handed over: started again, this controller stands by");
        Ok(())
    })
}

/// Raises the limit of open files: every connection is one, and service managers set a low limit.
fn allow_many_files() {
    let files = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: files.maximum, ..files }) {
        tracing::warn!(%error, "no more files can be opened than {:?}", files.current);
    }
}

/// Stops at SIGTERM and SIGINT; reopens the log and reads the configuration again at SIGHUP.
async fn obey_signals(ends: [io::Result<Signal>; 2], stop: Stop, reload: Reload, log_file: Option<PathBuf>) {
    let ([Ok(mut terminate), Ok(mut interrupt)], Ok(mut hang_up)) = (ends, signal(SignalKind::hangup()))
    else {
        tracing::error!("signals cannot be received: stop the controller with scontrol shutdown");
        return;
    };
    loop {
        tokio::select! {
            _ = terminate.recv() => break,
            _ = interrupt.recv() => break,
            () = stop.wished() => break,
            Some(()) = hang_up.recv() => {
                log_file.as_deref().inspect(|path| log::write_to(path));
                if let Ok(now) = NotifyState::monotonic_usec_now() {
                    notify(&[NotifyState::Reloading, now]);
                }
                reload.now().await;
                notify(&[NotifyState::Ready]);
            }
        }
    }
    notify(&[NotifyState::Stopping]);
    end_in(LONGEST_END);
    stop.wish();
}

/// Ends the process after `time` if it has not ended by itself.
///
/// A disk that hangs may keep it from ending. Nothing that is not durable has left the process, and the next
/// start reads the durable state.
fn end_in(time: Duration) {
    let begun = std::thread::Builder::new().name("deadline".to_owned()).spawn(move || {
        std::thread::sleep(time);
        tracing::error!(
            "a disk keeps the controller from ending in good order; what was acknowledged is durable"
        );
        std::process::exit(1);
    });
    if let Err(error) = begun {
        tracing::warn!(%error, "nothing ends this process if a disk does not let it");
    }
}

/// Notifies the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, "the service manager was not told");
    }
}
