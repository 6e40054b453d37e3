//! spurd: the daemon of one node.

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

/// Set for the process that goes on in the background.
const DETACHED: &str = "SPURD_DETACHED";
/// What that process writes to standard output when everything is up.
const READY: &str = "ready";
/// How long a daemon that stops waits for what it has begun and cannot leave.
const LAST_MOMENT: Duration = Duration::from_secs(1);

fn main() -> ExitCode {
    spur_proto::program::keep_descriptors_private();
    let args = match Args::try_parse() {
        Ok(args) => args,
        Err(told) => {
            // Where nobody hears it, there is nobody to tell.
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
        // The terminal spurd was started from is none of its business any more.
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
    // What waits for the network or a child is not worth waiting for; a fork that is under way is.
    runtime.shutdown_timeout(LAST_MOMENT);
    ran.map(Leftovers::clear_up)
}

/// The configured file, or one in the spool directory where there is no other place.
fn log_file(settings: &Settings, detached: bool) -> Option<PathBuf> {
    let beside = || detached.then(|| settings.spool.join("spurd.log"));
    settings.log.file_of("spurd", &settings.name).or_else(beside)
}

/// Starts spurd again in the background and waits until that one is up.
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
