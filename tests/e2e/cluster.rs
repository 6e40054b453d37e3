//! A cluster of real daemons on loopback, in a directory of its own that is removed when the test ends.
//!
//! Nothing here guesses how long something takes. A daemon is up when it reports so (as it would to systemd),
//! and a job has ended when the controller reports so. Processes that a test leaves running, jobs of killed
//! nodes included, are ended by process id. They are found by the directory in their environment.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{ErrorKind, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process};
use spur_core::text::address::HostPort;
use spur_proto::client::{Connection, Identity};
use spur_proto::keys::{ClusterKey, ClusterKeys};
use spur_proto::v1::TokenClaims;
use tempfile::TempDir;

use crate::client::Client;

pub(crate) use spur_tests::program;

/// The longest wait for an event that should happen at once. Only a failing test waits for the whole time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// The name of every cluster.
const NAME: &str = "e2e";

/// The options of a test's cluster.
pub(crate) struct Setup {
    /// Number of nodes: n1, n2, …
    pub nodes: usize,
    /// Number of CPUs of each node.
    pub cpus: u32,
    /// Devices of each node, such as `gpu:4`.
    pub gres: &'static str,
    /// `[auth] method`.
    pub auth: &'static str,
    /// The time from TERM to KILL; whole seconds, so it may be up to one second shorter.
    pub kill_wait: &'static str,
    /// More lines of its `[agent]`.
    pub agent: &'static str,
    /// More lines of its `[controller]`.
    pub controller: &'static str,
    /// More lines of spur.toml.
    pub more: &'static str,
}

impl Default for Setup {
    fn default() -> Self {
        let (auth, kill_wait) = ("key", "1s");
        Self { nodes: 1, cpus: 4, gres: "", auth, kill_wait, agent: "", controller: "", more: "" }
    }
}

/// A cluster of real daemons.
pub(crate) struct Cluster {
    directory: TempDir,
    method: &'static str,
    port: u16,
    cpus: u32,
    gres: &'static str,
    /// True if `[[gres]]` names the device files.
    has_device_files: bool,
    /// The port of each node, used again when the node is started again.
    ports: BTreeMap<String, u16>,
    daemons: BTreeMap<String, Daemon>,
}

/// A running daemon.
struct Daemon {
    child: Child,
    log: PathBuf,
}

/// The exit code and the output of a command.
#[derive(Debug)]
pub(crate) struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Cluster {
    /// Starts the controller and all nodes, and waits until the nodes are registered.
    pub(crate) fn start(setup: &Setup) -> Self {
        let mut cluster = Self::prepare(setup);
        cluster.start_controller();
        let nodes: Vec<String> = (1..=setup.nodes).map(|number| format!("n{number}")).collect();
        for node in &nodes {
            cluster.start_node(node);
        }
        for node in &nodes {
            cluster.wait_for_log(node, &format!("registered as {node}"));
        }
        cluster
    }

    /// Makes a directory with a configuration, and starts nothing.
    pub(crate) fn prepare(setup: &Setup) -> Self {
        let directory =
            tempfile::Builder::new().prefix("spur-e2e-").tempdir().expect("there is room in /tmp");
        let port = free_port();
        let ports = (1..=setup.nodes).map(|number| (format!("n{number}"), free_port())).collect();
        let Setup { auth: method, cpus, gres, .. } = *setup;
        let has_device_files = setup.more.contains("[[gres]]");
        let daemons = BTreeMap::new();
        let cluster = Self { directory, method, port, cpus, gres, has_device_files, ports, daemons };
        for name in ["state", "spool", "work", "bin", "log"] {
            fs::create_dir(cluster.path(name)).expect("the directory is ours");
        }
        for name in [
            "spur", "sbatch", "salloc", "srun", "sattach", "sbcast", "squeue", "sinfo", "sprio", "scancel",
            "scontrol", "sacct", "sdiag", "sacctmgr", "sshare", "sreport", "seff", "sstat",
        ] {
            std::os::unix::fs::symlink(program("spur"), cluster.path("bin").join(name)).expect("it is empty");
        }
        let key = ClusterKey::generate().expect("there is randomness");
        key.write_new(&cluster.path("key")).expect("the directory is ours");
        fs::write(cluster.path("spur.toml"), configuration(setup, port, cluster.directory.path()))
            .expect("the directory is ours");
        cluster
    }

    /// Adds lines to an existing table of the configuration.
    pub(crate) fn configure(&self, table: &str, lines: &str) {
        let path = self.path("spur.toml");
        let text = fs::read_to_string(&path).expect("it was made with the directory");
        let head = format!("[{table}]\n");
        assert!(text.contains(&head), "there is no {head}");
        fs::write(path, text.replace(&head, &format!("{head}{lines}"))).expect("the directory is ours");
    }

    /// The path of a file of the cluster.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The path of a file in the directory in which commands are called and jobs run.
    pub(crate) fn work(&self, name: &str) -> PathBuf {
        self.path("work").join(name)
    }

    /// The content of a file in that directory.
    pub(crate) fn read(&self, name: &str) -> String {
        let path = self.work(name);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// The controller's port.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Starts the controller and waits until it is ready.
    pub(crate) fn start_controller(&mut self) {
        self.start_daemon("spurctld", self.controller(Command::new(program("spurctld"))));
    }

    /// Makes two controllers, `ctl1` and `ctl2`, keep their state in the database at `url`. Each has a
    /// configuration of its own; the configuration of all others names both.
    pub(crate) fn share_state(&mut self, url: &str) {
        let text = fs::read_to_string(self.path("spur.toml")).expect("it was made with the directory");
        let first = format!("listen_addr = \"127.0.0.1:{}\"", self.port);
        let (other, port) = (free_port(), self.port);
        let addresses = format!("addr = \"127.0.0.1:{port},127.0.0.1:{other}\"");
        let state = format!("state = \"{}/state\"", self.directory.path().display());
        let text = text.replace(&state, &format!("state = \"{url}\"\n{addresses}"));
        let second = text.replace(&first, &format!("listen_addr = \"127.0.0.1:{other}\""));
        for (name, text, socket) in
            [("spur", &text, "auth"), ("ctl1", &text, "ctl1"), ("ctl2", &second, "ctl2")]
        {
            let text = text.replace("/auth.sock", &format!("/{socket}.sock"));
            fs::write(self.path(&format!("{name}.toml")), text).expect("the directory is ours");
        }
    }

    /// Starts a controller of a pair, and waits until it leads or finds that another one leads.
    pub(crate) fn start_controller_of_pair(&mut self, name: &str) {
        let mut command = Command::new(program("spurctld"));
        command.arg("-D").arg("-f").arg(self.path(&format!("{name}.toml")));
        self.start_daemon(name, command);
    }

    /// Starts the controller under a command that runs the rest of its line, such as a recorder.
    pub(crate) fn start_controller_under(&mut self, mut command: Command) {
        command.arg(program("spurctld"));
        self.start_daemon("spurctld", self.controller(command));
    }

    /// Starts a command that takes the place of the controller.
    pub(crate) fn start_controller_as(&mut self, command: Command) {
        self.start_daemon("spurctld", self.controller(command));
    }

    fn controller(&self, mut command: Command) -> Command {
        command.arg("-D").arg("-f").arg(self.path("spur.toml"));
        command
    }

    /// Starts a node and waits until it is ready; it registers by itself.
    pub(crate) fn start_node(&mut self, name: &str) {
        self.start_daemon(name, self.node(name, Command::new(program("spurd"))));
    }

    /// Starts a command that takes the place of the node's daemon.
    pub(crate) fn start_node_as(&mut self, name: &str, command: Command) {
        self.start_daemon(name, self.node(name, command));
    }

    /// Starts a node whose service has a given port of this host.
    pub(crate) fn start_node_at(&mut self, name: &str, port: u16) {
        let mut command = self.node(name, Command::new(program("spurd")));
        command.arg("--listen").arg(format!("127.0.0.1:{port}"));
        self.start_daemon(name, command);
    }

    /// Starts one more daemon under a node's name, called `daemon` in the test, with a copy of the node's
    /// spool.
    pub(crate) fn start_clone(&mut self, node: &str, daemon: &str) {
        self.clone_behind(Command::new(program("spurd")), node, daemon);
    }

    /// Starts such a daemon with another host name. That needs root.
    pub(crate) fn start_clone_elsewhere(&mut self, node: &str, daemon: &str) {
        let mut command = Command::new("unshare");
        command.args(["--uts", "sh", "-c", "hostname elsewhere; exec \"$@\"", "sh"]);
        command.arg(program("spurd")).arg("-b");
        self.clone_behind(command, node, daemon);
    }

    fn clone_behind(&mut self, command: Command, node: &str, daemon: &str) {
        let spool = self.path("spool").join(daemon);
        let copied = Command::new("cp").arg("-a").arg(self.path("spool").join(node)).arg(&spool).status();
        assert!(copied.expect("cp is there").success());
        let mut command = self.node(node, command);
        command.arg("--spool").arg(spool).args(["--listen", "127.0.0.1:0"]);
        self.start_daemon(daemon, command);
    }

    fn node(&self, name: &str, mut command: Command) -> Command {
        let cpus = self.cpus.to_string();
        let listen = format!("127.0.0.1:{}", self.ports.get(name).unwrap_or(&0));
        command.args(["-D", "-N", name, "--listen", &listen, "--cpus", &cpus, "--memory", "64000"]);
        command.arg("-f").arg(self.path("spur.toml"));
        if !self.gres.is_empty() && !self.has_device_files {
            command.args(["--gres", self.gres]);
        }
        command
    }

    /// Starts a daemon that reports when it is ready.
    fn start_daemon(&mut self, name: &str, mut command: Command) {
        let socket = self.path(&format!("{name}.notify"));
        let _ = fs::remove_file(&socket);
        let ready = UnixDatagram::bind(&socket).expect("the path is short");
        // A daemon of another user must be able to report, too.
        fs::set_permissions(&socket, PermissionsExt::from_mode(0o666)).expect("it is ours");
        let log = self.path("log").join(name);
        let out = File::options().create(true).append(true).open(&log).expect("the directory is ours");
        self.surround(&mut command);
        command.env("NOTIFY_SOCKET", &socket).stdin(Stdio::null());
        command.stdout(out.try_clone().expect("a descriptor is free")).stderr(out);
        let child = command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let mut daemon = Daemon { child, log };
        daemon.wait_until_ready(name, &ready);
        self.daemons.insert(name.to_owned(), daemon);
    }

    /// Ends a daemon at once, as the kernel would when memory runs out.
    pub(crate) fn kill(&mut self, name: &str) {
        let mut daemon = self.daemons.remove(name).expect("it runs");
        daemon.child.kill().expect("it is ours");
        daemon.child.wait().expect("it is ours");
    }

    /// Waits until a daemon has ended by itself.
    pub(crate) fn wait_for_end(&mut self, name: &str) -> ExitStatus {
        self.daemons.remove(name).expect("it runs").child.wait().expect("it is ours")
    }

    /// Asks a daemon to end, and waits until it has.
    pub(crate) fn stop(&mut self, name: &str) {
        self.signal(name, Signal::TERM);
        let status = self.daemons.remove(name).expect("it runs").child.wait().expect("it is ours");
        assert!(status.success(), "{name} ended badly ({status}):\n{}", self.log(name));
    }

    /// Shuts the controller down as an operator, and waits until it has ended.
    pub(crate) fn shut_down(&mut self) {
        self.ok(&["scontrol", "shutdown", "controller"]);
        let status = self.daemons.remove("spurctld").expect("it runs").child.wait().expect("it is ours");
        assert!(status.success(), "the controller ended badly ({status}):\n{}", self.log("spurctld"));
    }

    /// Shuts all daemons down as an operator, and waits until they have ended.
    pub(crate) fn shut_down_all(&mut self) {
        self.ok(&["scontrol", "shutdown"]);
        for (name, mut daemon) in std::mem::take(&mut self.daemons) {
            let status = daemon.child.wait().expect("it is ours");
            assert!(status.success(), "{name} ended badly ({status}):\n{}", self.log(&name));
        }
    }

    /// Ends a node and everything that runs on it, as if the power had failed: in a cluster of one node only.
    pub(crate) fn cut_power(&mut self, node: &str) {
        self.kill(node);
        let own = self.directory.path().as_os_str().as_encoded_bytes().to_owned();
        let daemons: Vec<Pid> = self.daemons.values().map(Daemon::pid).collect();
        for pid in processes_with(&own).into_iter().filter(|pid| !daemons.contains(pid)) {
            // The process may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
    }

    /// Sends a signal to a daemon.
    pub(crate) fn signal(&self, name: &str, signal: Signal) {
        kill_process(self.daemons[name].pid(), signal).expect("it runs and is ours");
    }

    /// The process id of a daemon.
    pub(crate) fn pid(&self, name: &str) -> Pid {
        self.daemons[name].pid()
    }

    /// The processes of the cluster that run this program, in the order of their numbers.
    pub(crate) fn processes(&self, program: &str) -> Vec<Pid> {
        let own = self.directory.path().as_os_str().as_encoded_bytes();
        let named =
            |pid: Pid| fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).unwrap_or_default();
        let mut found = processes_with(own);
        found.retain(|&pid| named(pid).trim_end() == program);
        found.sort_unstable_by_key(|pid| pid.as_raw_nonzero());
        found
    }

    /// The log of a daemon.
    pub(crate) fn log(&self, name: &str) -> String {
        fs::read_to_string(self.path("log").join(name)).unwrap_or_default()
    }

    /// Waits until a daemon has logged these words.
    pub(crate) fn wait_for_log(&self, name: &str, words: &str) {
        let begun = Instant::now();
        while !self.log(name).contains(words) {
            assert!(begun.elapsed() < PATIENCE, "{name} does not say `{words}`:\n{}", self.log(name));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits by polling until `holds` is true, for conditions that no process announces.
    pub(crate) fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        let begun = Instant::now();
        while !holds(self) {
            assert!(begun.elapsed() < PATIENCE, "it does not come true:\n{}", self.logs());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// A client of the controller's service.
    pub(crate) fn client(&self) -> Client {
        self.client_of(rustix::process::getuid().as_raw())
    }

    /// A client in the name of a user.
    pub(crate) fn client_of(&self, uid: u32) -> Client {
        Client::new(self.connection(uid))
    }

    /// A connection of a user, which asks again for as long as a controller may take to come back.
    pub(crate) fn connection(&self, uid: u32) -> Connection {
        let claims = TokenClaims {
            uid,
            gid: uid,
            user: format!("u{uid}"),
            group: format!("g{uid}"),
            ..TokenClaims::default()
        };
        let identity = match self.keys() {
            Some(keys) => Identity::Keys(keys, claims),
            None => Identity::Unsigned(claims),
        };
        let connection = Connection::new(&[self.address()], identity).expect("an address");
        connection.with_patience(PATIENCE.saturating_sub(Duration::from_secs(10)))
    }

    /// The controller's address.
    pub(crate) fn address(&self) -> HostPort {
        HostPort { host: "127.0.0.1".to_owned(), port: self.port }
    }

    /// The keys of the cluster; `None` if it uses none.
    pub(crate) fn keys(&self) -> Option<Arc<ClusterKeys>> {
        let keys = || ClusterKeys::read(&self.path("key"), NAME).expect("it is ours");
        (self.method == "key").then(|| Arc::new(keys()))
    }

    /// A command in the cluster's environment: `&["sbatch", "-N", "2", …]`.
    pub(crate) fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(self.path("bin").join(words[0]));
        command.args(&words[1..]).current_dir(self.path("work")).stdin(Stdio::null());
        self.surround(&mut command);
        command
    }

    /// Sets the environment of a process of the cluster, without anything from the environment of the test.
    fn surround(&self, command: &mut Command) {
        let recorder = ["LD_PRELOAD", "SPUR_POWERLOSS_ROOT", "SPUR_POWERLOSS_LOG"];
        let kept: Vec<_> = command
            .get_envs()
            .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
            .filter(|(name, _)| recorder.iter().any(|known| name == known))
            .collect();
        let path = std::env::var("PATH").unwrap_or_default();
        command.env_clear().envs(kept);
        command.env("PATH", format!("{}:{path}", self.path("bin").display()));
        command.env("HOME", self.path("work")).env("LC_ALL", "C").env("TZ", "UTC");
        command.env("SPUR_CONF", self.path("spur.toml"));
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, words: &[&str]) -> Said {
        said(self.command(words).output().expect("the command is there"))
    }

    /// Runs a command that must succeed, and returns its output.
    pub(crate) fn ok(&self, words: &[&str]) -> String {
        let said = self.run(words);
        assert!(said.code == Some(0), "{words:?}: {said:?}\n{}", self.logs());
        said.out
    }

    /// Runs a command that must succeed, and returns the lines of its output in order of their text.
    pub(crate) fn rows(&self, words: &[&str]) -> Vec<String> {
        let mut rows: Vec<String> = self.ok(words).lines().map(str::to_owned).collect();
        rows.sort_unstable();
        rows
    }

    /// Runs a command that must fail, and returns its errors.
    pub(crate) fn fails(&self, words: &[&str]) -> String {
        let said = self.run(words);
        assert!(said.code != Some(0), "{words:?} should have failed: {said:?}");
        assert!(!said.err.trim().is_empty(), "{words:?} failed without a word: {said:?}");
        said.err
    }

    /// Submits with these words and returns the number of the job.
    pub(crate) fn sbatch(&self, words: &[&str]) -> u32 {
        let words = [&["sbatch", "--parsable"], words].concat();
        let out = self.ok(&words);
        out.trim().parse().unwrap_or_else(|_| panic!("{words:?} printed {out:?}"))
    }

    /// The content of the only file of jobs whose name begins so.
    pub(crate) fn read_matching(&self, beginning: &str) -> String {
        let names = fs::read_dir(self.path("work")).expect("it is there").flatten();
        let mut names = names.filter_map(|item| item.file_name().into_string().ok());
        let name = names.find(|name| name.starts_with(beginning));
        self.read(&name.unwrap_or_else(|| panic!("no file begins with {beginning}")))
    }

    /// Writes a batch script.
    pub(crate) fn script(&self, name: &str, text: &str) {
        fs::write(self.work(name), text).expect("the directory is ours");
    }

    /// Makes a pipe in the directory in which jobs run.
    pub(crate) fn gate(&self, name: &str) -> Gate {
        let path = self.work(name);
        let made = Command::new("mkfifo").arg(&path).status().expect("mkfifo is there");
        assert!(made.success());
        // Both ends are opened, so that no process blocks in open.
        Gate { fifo: File::options().read(true).write(true).open(path).expect("it was made above") }
    }

    /// The logs of all daemons, for a test that fails.
    pub(crate) fn logs(&self) -> String {
        let mut all = String::new();
        for item in fs::read_dir(self.path("log")).expect("it is there").flatten() {
            let text = fs::read_to_string(item.path()).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            all.push_str(&format!("--- {}\n{last}\n", item.path().display()));
        }
        all
    }

    /// Ends all remaining processes of this cluster.
    fn end_all(&mut self) {
        for daemon in self.daemons.values_mut() {
            // The process may have ended by itself.
            let _ = daemon.child.kill();
            let _ = daemon.child.wait();
        }
        let own = self.directory.path().as_os_str().as_encoded_bytes().to_owned();
        let mut found = true;
        while found {
            found = false;
            for pid in processes_with(&own) {
                found |= kill_process(pid, Signal::KILL).is_ok();
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        self.end_all();
    }
}

/// A pipe between the test and its jobs.
pub(crate) struct Gate {
    fifo: File,
}

impl Gate {
    /// Lets one job continue that waits with `read x <NAME`.
    pub(crate) fn open(&mut self) {
        self.fifo.write_all(b"go\n").expect("there is room in the pipe");
    }

    /// Waits until a job has written something with `echo x >NAME`.
    pub(crate) fn wait(&mut self) {
        let timeout = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
        let look = || poll(&mut [PollFd::new(&self.fifo, PollFlags::IN)], Some(&timeout));
        let ready = rustix::io::retry_on_intr(look);
        assert!(ready.expect("the pipe is open") == 1, "no job has said anything");
        let mut byte = [0];
        while byte != *b"\n" {
            self.fifo.read_exact(&mut byte).expect("a line comes whole");
        }
    }
}

impl Daemon {
    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    fn wait_until_ready(&mut self, name: &str, ready: &UnixDatagram) {
        // The socket wakes this thread; the timeout serves to notice a daemon that has failed.
        ready.set_read_timeout(Some(Duration::from_millis(200))).expect("it is not zero");
        let begun = Instant::now();
        let mut message = [0; 512];
        loop {
            match ready.recv(&mut message) {
                Ok(length) if message[..length].windows(7).any(|word| word == b"READY=1") => return,
                Ok(_) => {}
                Err(error) if passes(error.kind()) => {}
                Err(error) => panic!("the notify socket: {error}"),
            }
            let log = || fs::read_to_string(&self.log).unwrap_or_default();
            if let Some(status) = self.child.try_wait().expect("it is ours") {
                panic!("{name} did not start ({status}):\n{}", log());
            }
            assert!(begun.elapsed() < PATIENCE, "{name} is not ready:\n{}", log());
        }
    }
}

/// Reads the output of a command until it contains `word`.
pub(crate) fn await_word(stream: &mut impl Read, word: &str) -> String {
    let (mut text, mut byte) = (String::new(), [0]);
    while !text.contains(word) {
        assert_eq!(stream.read(&mut byte).unwrap(), 1, "`{word}` is not said: {text}");
        text.push(char::from(byte[0]));
    }
    text
}

/// The exit code and the output of a finished command.
pub(crate) fn said(output: Output) -> Said {
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn configuration(setup: &Setup, port: u16, directory: &Path) -> String {
    let (directory, Setup { nodes, cpus, gres, auth, kill_wait, agent, controller, more }) =
        (directory.display(), setup);
    let gres = if gres.is_empty() { String::new() } else { format!("\ngres = [\"{gres}\"]") };
    // Empty options add no lines, so that the other lines stay where they are.
    let line = |text: &str| if text.is_empty() { String::new() } else { format!("\n{text}") };
    let (agent, controller) = (line(agent), line(controller));
    format!(
        r#"cluster_name = "{NAME}"
[controller]
listen_addr = "127.0.0.1:{port}"
state = "{directory}/state"
kill_wait = "{kill_wait}"{controller}
[auth]
method = "{auth}"
key_file = "{directory}/key"
socket = "{directory}/auth.sock"
[agent]
listen_addr = "127.0.0.1:0"
spool_dir = "{directory}/spool/%n"
heartbeat_interval = "1s"{agent}
[[nodes]]
names = "n[1-{nodes}]"
cpus = {cpus}
memory_mb = 64000{gres}
[[partitions]]
name = "main"
nodes = "ALL"
default = true
max_time = "1:00:00"
{more}
"#
    )
}

/// True if waiting was only cut short, by its timeout or by a signal.
fn passes(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted)
}

/// A port below those that the system gives to outgoing connections, so that none takes it while a controller
/// is down.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    const FIRST: u32 = 10_240;
    const PORTS: u32 = 20_000;
    loop {
        let number = std::process::id().wrapping_mul(61) + u32::from(NEXT.fetch_add(1, Ordering::Relaxed));
        let port = u16::try_from(FIRST + number % PORTS).expect("it is in range");
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// The processes whose environment names the directory.
fn processes_with(directory: &[u8]) -> Vec<Pid> {
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let ours = |name: String| {
        let pid = name.parse::<i32>().ok()?;
        let environment = fs::read(format!("/proc/{pid}/environ")).ok()?;
        let named = environment.windows(directory.len()).any(|part| part == directory);
        named.then(|| Pid::from_raw(pid)).flatten()
    };
    processes.flatten().filter_map(|entry| ours(entry.file_name().into_string().ok()?)).collect()
}
