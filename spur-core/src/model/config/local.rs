//! The half of the configuration that belongs to this host: addresses, paths and keys. Never journalled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::State;
use crate::model::idset::IdSet;
use crate::text::address::HostPort;
use crate::text::hostlist::HostList;
use crate::text::time::Seconds;

/// Facts about this host and about how to reach others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Local {
    /// `[controller]`, as far as it is local.
    pub controller: ControllerLocal,
    /// `[auth]`.
    pub auth: AuthLocal,
    /// `[tls]`.
    pub tls: TlsLocal,
    /// `[agent]`.
    pub agent: AgentLocal,
    /// `[log]`.
    pub log: LogLocal,
    /// `[[clusters]]`: other clusters that commands reach with `-M`.
    pub clusters: Vec<ClusterLocal>,
    /// `[[gres]]`: the files of devices, in the order of the file.
    pub devices: Vec<DeviceFiles>,
    /// Where each configured node is reached, as far as `[[nodes]]` says: by node name.
    pub node_addresses: BTreeMap<Arc<str>, NodeAddress>,
}

impl Local {
    /// Where the daemon of `node` listens.
    pub fn agent_listens_on(&self, node: &str) -> HostPort {
        let HostPort { host, port } = self.agent.listen_addr.clone();
        let own = self.node_addresses.get(node).and_then(|address| address.port);
        HostPort { host, port: own.unwrap_or(port) }
    }

    /// Where clients reach the daemon of `node`: as configured, otherwise under the node's name.
    pub fn agent_address(&self, node: &str) -> HostPort {
        let host = self.node_addresses.get(node).and_then(|address| address.host.clone());
        let port = self.agent_listens_on(node).port;
        HostPort { host: host.unwrap_or_else(|| node.to_owned()), port }
    }
}

/// The controller's own addresses and files.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerLocal {
    /// `listen_addr`.
    pub listen_addr: HostPort,
    /// `addr`: where clients and nodes reach the controllers, the first choice first; at least one.
    pub addresses: Vec<HostPort>,
    /// `metrics_addr`: where `/metrics` is served, if it is.
    pub metrics_addr: Option<HostPort>,
    /// `state`, and for a database `password_file` and `lease`.
    pub state: State,
    /// What one user may ask at a time.
    pub shares: UserShares,
    /// `mail_prog`: what sends mail, called with `-s SUBJECT USER`; none: no mail is sent.
    pub mail_prog: Option<PathBuf>,
}

/// What one user may ask of a controller at a time; operators may ask without limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserShares {
    /// `max_requests_per_user`: requests under way.
    pub requests: u32,
    /// `max_lists_per_user`: lists under way, and plans that are made for one request.
    pub lists: u32,
    /// `max_connections_per_user`: connections; never more than half of what the daemon has room for.
    pub connections: u32,
    /// `lists_per_second`: how many of these may begin in a second on average; ten times as many at once.
    pub lists_per_second: u32,
}

impl Default for UserShares {
    fn default() -> Self {
        Self { requests: 1024, lists: 8, connections: 1024, lists_per_second: 100 }
    }
}

/// `[auth]`.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthLocal {
    /// `method`.
    pub method: AuthMethod,
    /// `key_file`: the cluster's key.
    pub key_file: PathBuf,
    /// `socket`: where the daemon of each host hands out tokens.
    pub socket: PathBuf,
    /// `user`: who runs the daemons beside root, by name or number; commands believe nobody else at the socket.
    pub user: Option<String>,
}

/// `[auth] method`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    /// Tokens signed with the cluster's key, and TLS with keys derived from it.
    #[default]
    Key,
    /// Whoever connects is believed; on loopback only.
    None,
}

/// `[tls]`: a site's own certificates, for commands, on a listener of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsLocal {
    /// `controller_names`: names that a controller's certificate may bear.
    pub controller_names: Vec<String>,
    /// `ca_file`: the authority whose certificates commands believe; with it, they go to `addr`.
    pub ca_file: Option<PathBuf>,
    /// `addr`: where commands reach that listener.
    pub addresses: Vec<HostPort>,
    /// The listener, if the controller has one.
    pub listener: Option<TlsListener>,
}

/// The controller's listener for certificates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsListener {
    /// `listen_addr`.
    pub listen_addr: HostPort,
    /// `cert_file`: the controller's certificate and those between it and the authority.
    pub cert_file: PathBuf,
    /// `key_file`: its private key.
    pub key_file: PathBuf,
}

/// `[[clusters]]`: another cluster that commands reach with `-M`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterLocal {
    /// `name`.
    pub name: String,
    /// `addr`: the hosts that its controller may be on.
    pub addresses: Vec<HostPort>,
    /// `socket`: where the daemon of that cluster on this host hands out tokens.
    pub socket: Option<PathBuf>,
    /// `ca_file`: the authority whose certificates make a controller of that cluster.
    pub ca_file: Option<PathBuf>,
    /// `controller_names`: names that such a certificate may bear.
    pub controller_names: Vec<String>,
}

/// `health_check_node_state`: a state of a node in which its health is looked at, by Slurm's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// No job has anything of it.
    Idle,
    /// The same, and it is not drained.
    NondrainedIdle,
    /// Jobs have all its CPUs.
    Alloc,
    /// Jobs have some of it.
    Mixed,
    /// Never again after the daemon's start.
    StartOnly,
}

impl HealthState {
    /// All of them.
    pub const ALL: [HealthState; 5] = [
        HealthState::Idle,
        HealthState::NondrainedIdle,
        HealthState::Alloc,
        HealthState::Mixed,
        HealthState::StartOnly,
    ];

    /// Slurm's name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            HealthState::Idle => "IDLE",
            HealthState::NondrainedIdle => "NONDRAINED_IDLE",
            HealthState::Alloc => "ALLOC",
            HealthState::Mixed => "MIXED",
            HealthState::StartOnly => "START_ONLY",
        }
    }

    /// Whether a node is in this state: whether jobs have anything of it, whether they have all its CPUs, and whether it is
    /// drained.
    #[must_use]
    pub fn is_of(self, busy: bool, full: bool, drained: bool) -> bool {
        match self {
            HealthState::Idle => !busy,
            HealthState::NondrainedIdle => !busy && !drained,
            HealthState::Alloc => busy && full,
            HealthState::Mixed => busy && !full,
            HealthState::StartOnly => false,
        }
    }
}

/// `[agent]`: what a node's daemon needs.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentLocal {
    /// `listen_addr`: where a node's daemon listens, unless `[[nodes]] port` says otherwise.
    pub listen_addr: HostPort,
    /// `spool_dir` with `%n` for the node's name; see [`AgentLocal::spool_of`].
    pub spool_dir: String,
    /// `heartbeat_interval`: how often a node tells how it is.
    pub heartbeat_interval: Seconds,
    /// `prolog`: programs, or patterns of their names, run as root before a job's first task on a node.
    pub prolog: Vec<PathBuf>,
    /// `epilog`: programs, or patterns of their names, run as root after a job's last task on a node.
    pub epilog: Vec<PathBuf>,
    /// `health_check_program`: run as root when spurd starts, and then again and again.
    pub health_check_program: Option<PathBuf>,
    /// `health_check_interval`: the time between its end and the next run.
    pub health_check_interval: Seconds,
    /// `health_check_node_state`: in which states of the node it is run again; none: in all.
    pub health_check_node_state: Vec<HealthState>,
    /// `prolog_timeout`: how long prolog and epilog may take.
    pub prolog_timeout: Seconds,
    /// `task_prolog`: run as the user before each task.
    pub task_prolog: Option<PathBuf>,
    /// `task_epilog`: run as the user after each task.
    pub task_epilog: Option<PathBuf>,
    /// `output_wait`: how long a task waits for the directory of its output.
    pub output_wait: Seconds,
    /// `job_acct_gather_frequency`: the longest time between two looks at what tasks use; 0: nobody looks.
    pub job_acct_gather_frequency: Seconds,
    /// `cgroup_plugin`: which control groups hold steps together and limit them.
    pub cgroup_plugin: CgroupPlugin,
    /// `constrain_devices`: whether a step can use those devices only that it has.
    pub constrain_devices: bool,
    /// `job_container_base_path`: where the private directories of jobs lie; `None`: jobs have none.
    pub job_container_base_path: Option<PathBuf>,
    /// `job_container_dirs`: the directories of which each job sees its own.
    pub job_container_dirs: Vec<PathBuf>,
}

/// `[[gres]]`: devices of nodes by the files through which they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFiles {
    /// `nodes`: whose they are; `None`: every node's.
    pub nodes: Option<HostList>,
    /// `name`, such as `gpu`.
    pub name: String,
    /// `type`; empty: none.
    pub kind: String,
    /// `file`: one for each device; or `multiple_files`: all of one.
    pub files: Vec<Vec<PathBuf>>,
    /// `cores`: the cores of the node that are near, numbered socket by socket; none: all are alike.
    pub cores: IdSet,
    /// `count` of `shard`: how many of these the GPUs have together; 0: none.
    pub shards: u32,
    /// `links`: how many links a device has to each of its name, in their order; `None` in the place of itself.
    pub links: Vec<Option<u32>>,
}

impl DeviceFiles {
    /// Whether a node has them.
    pub fn are_of(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.iter().any(|name| name == node))
    }
}

/// `[agent] cgroup_plugin`, by Slurm's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupPlugin {
    /// Whatever the host has.
    #[default]
    Autodetect,
    /// Those of version 1 alone.
    V1,
    /// Those of version 2 alone.
    V2,
    /// None.
    Disabled,
}

impl CgroupPlugin {
    /// Every choice with its name.
    pub const ALL: [(&str, CgroupPlugin); 4] = [
        ("autodetect", CgroupPlugin::Autodetect),
        ("cgroup/v1", CgroupPlugin::V1),
        ("cgroup/v2", CgroupPlugin::V2),
        ("disabled", CgroupPlugin::Disabled),
    ];

    /// The name in the configuration, which is Slurm's.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, plugin)| *plugin == self).map_or("", |(name, _)| name)
    }
}

impl AgentLocal {
    /// The spool directory of a node's daemon.
    pub fn spool_of(&self, node: &str) -> PathBuf {
        PathBuf::from(self.spool_dir.replace("%n", node))
    }
}

/// Where a node's daemon is reached, as far as the configuration says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddress {
    /// `addr`: its host; otherwise the node's name, or what the node itself says.
    pub host: Option<String>,
    /// `port`: its port; otherwise that of `[agent] listen_addr`.
    pub port: Option<u16>,
}

/// `[log]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLocal {
    /// `level`.
    pub level: LogLevel,
    /// `format`.
    pub format: LogFormat,
    /// `file`: where a daemon writes once it is up; see [`LogLocal::file_of`].
    pub file: Option<String>,
}

impl LogLocal {
    /// The file of a daemon, with `%d` for the daemon's name and `%n` for that of its host or node.
    pub fn file_of(&self, daemon: &str, node: &str) -> Option<PathBuf> {
        Some(self.file.as_ref()?.replace("%d", daemon).replace("%n", node).into())
    }
}

/// `[log] level`: the least important messages that are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// What has failed.
    Error,
    /// What may need attention, too.
    Warn,
    /// What has happened, too.
    #[default]
    Info,
    /// How it came about, too.
    Debug,
    /// Everything.
    Trace,
}

/// `[log] format`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for each message.
    #[default]
    Plain,
    /// A JSON object for each message.
    Json,
}

impl ControllerLocal {
    /// The port of the controller unless it is configured otherwise.
    pub const DEFAULT_PORT: u16 = 6817;
}

impl AgentLocal {
    /// The port of a node's daemon unless it is configured otherwise.
    pub const DEFAULT_PORT: u16 = 6818;
}

impl Default for ControllerLocal {
    fn default() -> Self {
        let listen_addr = HostPort { host: "127.0.0.1".to_owned(), port: Self::DEFAULT_PORT };
        Self {
            addresses: vec![listen_addr.clone()],
            listen_addr,
            metrics_addr: None,
            shares: UserShares::default(),
            state: State::Sqlite("/var/lib/spur/spur.db".into()),
            mail_prog: None,
        }
    }
}

impl Default for AuthLocal {
    fn default() -> Self {
        Self {
            method: AuthMethod::default(),
            key_file: "/etc/spur/cluster.key".into(),
            socket: "/run/spur/auth.sock".into(),
            user: None,
        }
    }
}

impl Default for AgentLocal {
    fn default() -> Self {
        Self {
            listen_addr: HostPort { host: "0.0.0.0".to_owned(), port: Self::DEFAULT_PORT },
            spool_dir: "/var/spool/spurd/%n".to_owned(),
            heartbeat_interval: Seconds(10),
            prolog: Vec::new(),
            epilog: Vec::new(),
            health_check_program: None,
            health_check_interval: Seconds(300),
            health_check_node_state: Vec::new(),
            prolog_timeout: Seconds(300),
            output_wait: Seconds(10),
            job_acct_gather_frequency: Seconds(30),
            cgroup_plugin: CgroupPlugin::Autodetect,
            constrain_devices: true,
            job_container_base_path: None,
            job_container_dirs: vec!["/tmp".into(), "/dev/shm".into()],
            task_prolog: None,
            task_epilog: None,
        }
    }
}
