//! The cluster of a demonstration: a controller and sixteen nodes on loopback, in a temporary directory.
//!
//! No process remains: this process adopts the children of the daemons and kills them. If this process is
//! killed, its janitor does so.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io;
use std::net::TcpListener;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, set_child_subreaper, waitpid};
use spur_proto::keys::ClusterKey;
use spur_proto::v1::PingRequest;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::fabric;
use super::janitor::Janitor;
use crate::commands::links;
use crate::session::Session;

/// Name of the controller, also of its program.
pub(super) const CONTROLLER: &str = "spurctld";
/// Directory of the nodes' spools.
pub(super) const SPOOL: &str = "spool";
/// Program of the nodes' daemons.
const AGENT: &str = "spurd";
/// Time for a daemon to end after a signal.
const GRACE: Duration = Duration::from_secs(5);
/// Number of lines shown of a failed daemon's log.
const LOG_LINES: usize = 8;

/// Directory of the cluster, through which commands find it.
#[derive(Clone, Debug)]
pub(super) struct Site {
    directory: PathBuf,
}

/// The cluster until it is taken down.
pub(super) struct Cluster {
    pub site: Site,
    /// Directory of the daemons' programs.
    programs: PathBuf,
    /// Cleans up if this process is killed.
    janitor: Janitor,
    /// Children of this process that do not belong to the cluster.
    inherited: Vec<Pid>,
    /// Running daemons by name.
    alive: BTreeMap<String, Pid>,
    exits: mpsc::UnboundedReceiver<(String, io::Result<ExitStatus>)>,
    tell_exit: mpsc::UnboundedSender<(String, io::Result<ExitStatus>)>,
}

impl Site {
    /// Returns the session of a command in this cluster, with its output in memory.
    pub(super) fn session(&self, name: &'static str) -> Session {
        Session::in_memory(name, self.environment(), None)
    }

    /// Returns the environment in which commands find this cluster, without variables for other clusters.
    pub(super) fn environment(&self) -> BTreeMap<String, String> {
        let foreign = ["SLURM_", "SBATCH_", "SALLOC_", "SRUN_", "SQUEUE_", "SINFO_", "SPUR_"];
        let mut environment: BTreeMap<String, String> = std::env::vars()
            .filter(|(name, _)| !foreign.iter().any(|prefix| name.starts_with(prefix)))
            .collect();
        let path = environment.get("PATH").cloned().unwrap_or_else(|| "/usr/bin:/bin".to_owned());
        environment.insert("PATH".to_owned(), format!("{}:{path}", self.path("bin").display()));
        environment.insert("SPUR_CONF".to_owned(), self.conf().display().to_string());
        environment
    }

    fn conf(&self) -> PathBuf {
        self.path("spur.toml")
    }

    /// Returns the path of a file of the cluster.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }
}

impl Cluster {
    /// Creates an empty directory for the cluster and makes this process adopt orphaned children.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn prepare() -> anyhow::Result<Cluster> {
        set_child_subreaper(Some(getpid())).context("cannot take over what daemons leave behind")?;
        let directory = std::env::temp_dir().join(format!("spur-demo-{}", std::process::id()));
        let made = fs::DirBuilder::new().mode(0o700).create(&directory);
        made.with_context(|| format!("cannot make {}", directory.display()))?;
        let janitor = Janitor::hire(&directory).context("cannot start who clears up")?;
        let program = std::env::current_exe().context("cannot find out where this program lies")?;
        let programs = program.parent().unwrap_or(Path::new(".")).to_owned();
        let (tell_exit, exits) = mpsc::unbounded_channel();
        let inherited = children();
        let site = Site { directory };
        Ok(Cluster { site, programs, janitor, inherited, alive: BTreeMap::new(), exits, tell_exit })
    }

    /// Starts the controller and the nodes. Returns when the controller answers; the nodes register later.
    ///
    /// # Errors
    /// A daemon that is missing or fails.
    pub(super) async fn start(&mut self) -> anyhow::Result<()> {
        for daemon in [CONTROLLER, AGENT] {
            let daemon = self.programs.join(daemon);
            if !daemon.exists() {
                bail!(
                    "{} is not there: build or install all of Spur, e.g. with `cargo build`",
                    daemon.display()
                );
            }
        }
        for name in ["log", "jobs", SPOOL] {
            fs::create_dir(self.site.path(name))
                .with_context(|| format!("cannot make {}", self.site.path(name).display()))?;
        }
        let key = ClusterKey::generate().context("cannot make a key")?;
        key.write_new(&self.site.path("cluster.key"))?;
        let ports = free_ports(1 + fabric::NODES).context("cannot find free ports")?;
        fs::write(self.site.conf(), fabric::configuration(&self.site.directory, &ports))
            .context("cannot write spur.toml")?;
        let program = std::env::current_exe().context("cannot find out where this program lies")?;
        let commands = self.site.path("bin");
        links::make(&commands, &program)?;
        // The shell of the demonstration can also run `spur` itself, such as `spur why`.
        symlink(&program, commands.join("spur")).context("cannot make a link to spur")?;
        self.start_controller().await?;
        fabric::nodes().try_for_each(|node| self.spawn(&node))
    }

    /// Starts the controller and waits until it answers.
    ///
    /// # Errors
    /// A controller that fails.
    pub(super) async fn start_controller(&mut self) -> anyhow::Result<()> {
        self.spawn(CONTROLLER)?;
        let mut session = self.site.session("spur demo");
        tokio::select! {
            answer = ping(&mut session) => answer,
            failure = self.failure() => Err(failure),
        }
    }

    /// Starts the controller, or the daemon of a node.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn spawn(&mut self, name: &str) -> anyhow::Result<()> {
        let log = self.site.path("log").join(name);
        let out = File::options().create(true).append(true).open(&log);
        let out = out.with_context(|| format!("cannot write {}", log.display()))?;
        let err = out.try_clone().context("cannot share a log")?;
        let program = self.programs.join(if name == CONTROLLER { CONTROLLER } else { AGENT });
        let mut command = Command::new(&program);
        if name != CONTROLLER {
            command.args(["-N", name]);
        }
        command.arg("-D").arg("-f").arg(self.site.conf()).current_dir(&self.site.directory);
        command.stdin(Stdio::null()).stdout(out).stderr(err).process_group(0).kill_on_drop(true);
        command.env_remove("SPUR_CONTROLLER");
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let pid = child.id().and_then(|pid| Pid::from_raw(i32::try_from(pid).ok()?));
        let pid = pid.with_context(|| format!("{name} ended at once"))?;
        self.alive.insert(name.to_owned(), pid);
        let (tell, name) = (self.tell_exit.clone(), name.to_owned());
        tokio::spawn(async move {
            let ended = child.wait().await;
            // The receiver is gone once the demonstration is over.
            let _ = tell.send((name, ended));
        });
        Ok(())
    }

    /// Kills a daemon and returns its pid. With `all`, also kills everything that the daemon has started.
    ///
    /// # Errors
    /// A daemon that does not run.
    pub(super) async fn kill(&mut self, name: &str, all: bool) -> anyhow::Result<Pid> {
        let pid = self.alive.remove(name).with_context(|| format!("{name} does not run"))?;
        kill_process(pid, Signal::KILL).with_context(|| format!("cannot kill {name}"))?;
        while let Some((ended, _)) = self.exits.recv().await {
            if ended == name {
                break;
            }
        }
        if all {
            // The daemon's children have become children of this process.
            let spared: Vec<Pid> = self.inherited.iter().chain(self.alive.values()).copied().collect();
            end_heirs(&spared);
        }
        Ok(pid)
    }

    /// Waits until a daemon ends unexpectedly, and returns an error with the end of its log.
    pub(super) async fn failure(&mut self) -> anyhow::Error {
        match self.exits.recv().await {
            None => std::future::pending().await,
            Some((name, status)) => {
                self.alive.remove(&name);
                let status = status.map_or_else(|error| error.to_string(), |status| status.to_string());
                let log = fs::read_to_string(self.site.path("log").join(&name)).unwrap_or_default();
                let lines: Vec<&str> = log.lines().collect();
                let last = lines[lines.len().saturating_sub(LOG_LINES)..].join("\n  ");
                anyhow::anyhow!("{name} ended unexpectedly ({status}); its last words:\n  {last}")
            }
        }
    }

    /// Runs `work` unless a daemon ends unexpectedly.
    ///
    /// # Errors
    /// The end of that daemon's log.
    pub(super) async fn while_up<T>(&mut self, work: impl Future<Output = T>) -> anyhow::Result<T> {
        tokio::select! {
            done = work => Ok(done),
            failure = self.failure() => Err(failure),
        }
    }

    /// Ends all processes and removes the directory.
    ///
    /// # Errors
    /// A directory that cannot be removed.
    pub(super) async fn take_down(mut self) -> anyhow::Result<()> {
        // The nodes end first, so that the controller receives their last reports.
        let (controller, nodes): (BTreeMap<_, _>, BTreeMap<_, _>) =
            self.alive.clone().into_iter().partition(|(name, _)| name == CONTROLLER);
        for daemons in [nodes, controller] {
            self.stop(daemons).await;
        }
        end_heirs(&self.inherited);
        let removed = fs::remove_dir_all(&self.site.directory);
        self.janitor.dismiss();
        removed.with_context(|| format!("cannot remove {}", self.site.directory.display()))
    }

    async fn stop(&mut self, daemons: BTreeMap<String, Pid>) {
        let mut waiting: BTreeSet<String> = daemons.keys().cloned().collect();
        for (signal, patience) in [(Signal::TERM, GRACE), (Signal::KILL, GRACE)] {
            for name in &waiting {
                // The daemon may have ended meanwhile.
                let _ = kill_process(daemons[name], signal);
            }
            let all = async {
                while !waiting.is_empty()
                    && let Some((name, _)) = self.exits.recv().await
                {
                    waiting.remove(&name);
                    self.alive.remove(&name);
                }
            };
            if timeout(patience, all).await.is_ok() {
                return;
            }
        }
    }
}

async fn ping(session: &mut Session) -> anyhow::Result<()> {
    let connection = session.connection()?;
    let answer =
        connection.read(PingRequest::default(), async |mut controller, r| controller.ping(r).await).await;
    answer.map(|_| ()).context("the controller does not come up")
}

/// Kills adopted processes, and repeatedly those that they leave behind.
fn end_heirs(spared: &[Pid]) {
    loop {
        let heirs: Vec<Pid> = children().into_iter().filter(|child| !spared.contains(child)).collect();
        if heirs.is_empty() {
            return;
        }
        for heir in heirs {
            let _ = kill_process(heir, Signal::KILL);
            let _ = waitpid(Some(heir), WaitOptions::empty());
        }
    }
}

/// Returns the children of this process.
fn children() -> Vec<Pid> {
    let own = std::process::id().to_string();
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let child = |entry: io::Result<fs::DirEntry>| {
        let name = entry.ok()?.file_name();
        let pid = name.to_str()?.parse::<i32>().ok()?;
        let status = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The program's name, in parentheses, may contain any character.
        let parent = status.rsplit_once(')')?.1.split_whitespace().nth(1)?;
        (parent == own).then(|| Pid::from_raw(pid)).flatten()
    };
    processes.filter_map(child).collect()
}

/// Returns ports on which no process listens at present.
fn free_ports(count: usize) -> io::Result<Vec<u16>> {
    let listeners = (0..count).map(|_| TcpListener::bind("127.0.0.1:0")).collect::<io::Result<Vec<_>>>()?;
    listeners.iter().map(|listener| Ok(listener.local_addr()?.port())).collect()
}
