//! spurd: the daemon of one node.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Command, ExitCode, Stdio};

use anyhow::Context;
use spur_core::model::config::{LogFormat, LogLevel, LogLocal};
use spurd::args::{Args, USAGE, Wish};
use spurd::settings::Settings;

/// Set for the process that goes on in the background.
const DETACHED: &str = "SPURD_DETACHED";
/// What that process writes to standard output when everything is up.
const READY: &str = "ready";

fn main() -> ExitCode {
    let args = match Args::parse(std::env::args().skip(1)) {
        Ok(Wish::Run(args)) => *args,
        Ok(Wish::Help) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Ok(Wish::Version) => {
            println!("spurd {}", env!("CARGO_PKG_VERSION"));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("spurd: {error}");
            return ExitCode::from(2);
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
    let settings = Settings::load(&args, |name| std::env::var(name).ok())?;
    let detached = std::env::var_os(DETACHED).is_some();
    if !args.foreground && !detached {
        return detach(&settings);
    }
    if detached {
        // The terminal spurd was started from is none of its business any more.
        rustix::process::setsid().context("cannot leave the session")?;
    }
    log_to_stderr(&settings.log);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let ran = runtime.block_on(spurd::daemon::run(args, settings, move || {
        if detached {
            println!("{READY}");
        }
        if let Err(error) = sd_notify::notify(&[sd_notify::NotifyState::Ready]) {
            tracing::debug!(%error, "systemd was not told");
        }
    }));
    // Tasks that wait for the network or a child are not worth waiting for.
    runtime.shutdown_background();
    ran
}

/// Starts spurd again in the background and waits until that one is up.
fn detach(settings: &Settings) -> anyhow::Result<()> {
    std::fs::create_dir_all(&settings.spool)
        .with_context(|| format!("cannot make {}", settings.spool.display()))?;
    let log = settings.spool.join("spurd.log");
    let file = OpenOptions::new().create(true).append(true).mode(0o640).open(&log);
    let file = file.with_context(|| format!("cannot write {}", log.display()))?;
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

fn log_to_stderr(log: &LogLocal) {
    let level = match log.level {
        LogLevel::Error => "error",
        LogLevel::Warn => "warn",
        LogLevel::Info => "info",
        LogLevel::Debug => "debug",
        LogLevel::Trace => "trace",
    };
    let filter = tracing_subscriber::EnvFilter::try_from_default_env()
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new(level));
    let subscriber =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match log.format {
        LogFormat::Plain => subscriber.with_ansi(false).init(),
        LogFormat::Json => subscriber.json().init(),
    }
}
