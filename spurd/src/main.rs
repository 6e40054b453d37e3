//! `spurd`: the daemon of one node.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use clap::Parser;
use spurd::args::Args;
use spurd::daemon::Leftovers;
use spurd::log;
use spurd::settings::Settings;

/// Environment variable of the process that runs in the background.
const DETACHED: &str = "SPURD_DETACHED";
/// Line that the background process writes to standard output when all services are up.
const READY: &str = "ready";
/// Longest wait of a stopping daemon for blocking work under way.
const LAST_MOMENT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    spur_proto::program::keep_descriptors_private();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(told) => {
            // Without a standard output there is no reader.
            let _ = told.print();
            return if told.use_stderr() { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    match start(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("spurd: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(args: Args) -> anyhow::Result<()> {
    spur_proto::keys::keep_memory_private().context("cannot keep the cluster's key out of core files")?;
    let settings = Settings::load(&args, |name| std::env::var(name).ok())?;
    let detached = std::env::var_os(DETACHED).is_some();
    if !args.foreground && !detached {
        return detach(&settings);
    }
    if detached {
        // The daemon must survive the terminal from which it was started.
        rustix::process::setsid().context("cannot leave the session")?;
    }
    log::begin(&settings.log);
    let log_file = log_file(&settings, detached);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ran = runtime.block_on(spurd::daemon::run(args, settings, log_file.clone(), move || {
        if detached {
            println!("{READY}");
        }
        log_file.as_deref().inspect(|path| log::write_to(path));
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::debug!(%error, "systemd was not told");
        }
    }));
    // Waits on the network or on a child may be abandoned; a fork under way must complete.
    runtime.shutdown_timeout(LAST_MOMENT);
    ran.map(Leftovers::clear_up)
}

/// Returns the configured log file, or for a detached daemon without one a file in the spool directory.
/// `None` for standard error.
fn log_file(settings: &Settings, detached: bool) -> Option<PathBuf> {
    let beside = || detached.then(|| settings.spool.join("spurd.log"));
    settings.log.file_of("spurd", &settings.name).or_else(beside)
}

/// Starts spurd again in the background and waits until its services are up.
fn detach(settings: &Settings) -> anyhow::Result<()> {
    std::fs::create_dir_all(&settings.spool)
        .with_context(|| format!("cannot make {}", settings.spool.display()))?;
    let log = log_file(settings, true).context("there is no place for the log")?;
    let file = log::open(&log).with_context(|| format!("cannot write {}", log.display()))?;
    let own = std::env::current_exe().context("spurd does not know where it is")?;
    let mut child = Command::new(own)
        .args(std::env::args_os().skip(1))
        .env(DETACHED, "1")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(file)
        .spawn()
        .context("cannot start in the background")?;
    let mut said = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut said).context("cannot hear from the background")?;
    }
    anyhow::ensure!(said.trim() == READY, "did not start: {} says why", log.display());
    Ok(())
}
