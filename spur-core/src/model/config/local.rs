//! The local half of the configuration: addresses, paths and keys of this host. It is never journalled.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::State;
use crate::model::idset::IdSet;
use crate::text::address::HostPort;
use crate::text::hostlist::HostList;
use crate::text::time::Seconds;

/// Settings of this host, and addresses of others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Local {
    /// The local keys of `[controller]`.
    pub controller: ControllerLocal,
    /// Section `[auth]`: authentication on this host.
    pub auth: AuthLocal,
    /// Section `[tls]`: certificates on this host.
    pub tls: TlsLocal,
    /// Section `[agent]`: the node daemon.
    pub agent: AgentLocal,
    /// Section `[log]`: level, format and file of the log.
    pub log: LogLocal,
    /// `[[clusters]]`: other clusters that commands reach with `-M`.
    pub clusters: Vec<ClusterLocal>,
    /// `[[gres]]`: the files of devices, in the order of the file.
    pub devices: Vec<DeviceFiles>,
    /// Addresses of nodes that `[[nodes]]` gives, by node name.
    pub node_addresses: BTreeMap<Arc<str>, NodeAddress>,
}

impl Local {
    /// The address on which the daemon of `node` listens.
    pub fn agent_listens_on(&self, node: &str) -> HostPort {
        let HostPort { host, port } = self.agent.listen_addr.clone();
        let own = self.node_addresses.get(node).and_then(|address| address.port);
        HostPort { host, port: own.unwrap_or(port) }
    }

    /// The address at which clients reach the daemon of `node`: the configured one, else the node's name.
    pub fn agent_address(&self, node: &str) -> HostPort {
        let host = self.node_addresses.get(node).and_then(|address| address.host.clone());
        let port = self.agent_listens_on(node).port;
        HostPort { host: host.unwrap_or_else(|| node.to_owned()), port }
    }
}

/// Addresses and files of the controller.
#[derive(Clone, Debug, PartialEq)]
pub struct ControllerLocal {
    /// `listen_addr`: the address on which the controller listens.
    pub listen_addr: HostPort,
    /// `addr`: addresses at which clients and nodes reach the controllers, in order of preference; at least
    /// one.
    pub addresses: Vec<HostPort>,
    /// `metrics_addr`: the address that serves `/metrics`; `None` for no metrics.
    pub metrics_addr: Option<HostPort>,
    /// `state`, with `password_file` and `lease` for a database.
    pub state: State,
    /// Limits on requests of one user.
    pub shares: UserShares,
    /// `mail_prog`: the program that sends mail, called with `-s SUBJECT USER`; `None` for no mail.
    pub mail_prog: Option<PathBuf>,
}

/// Limits on what one user may request of a controller at a time. Operators are not limited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserShares {
    /// `max_requests_per_user`: number of requests under way.
    pub requests: u32,
    /// `max_lists_per_user`: number of lists under way, and of plans made for one request.
    pub lists: u32,
    /// `max_connections_per_user`: number of connections; never more than half of those that the daemon
    /// accepts.
    pub connections: u32,
    /// `lists_per_second`: number of lists and plans that may begin per second on average; ten times as many
    /// at once.
    pub lists_per_second: u32,
}

impl Default for UserShares {
    fn default() -> Self {
        Self { requests: 1024, lists: 8, connections: 1024, lists_per_second: 100 }
    }
}

/// Section `[auth]`: authentication on this host.
#[derive(Clone, Debug, PartialEq)]
pub struct AuthLocal {
    /// `method`: the method of authentication.
    pub method: AuthMethod,
    /// `key_file`: the file of the cluster's key.
    pub key_file: PathBuf,
    /// `socket`: the socket at which the daemon of each host gives out tokens.
    pub socket: PathBuf,
    /// `user`: the user besides root that may run the daemons, by name or number. Commands accept no other
    /// peer at the socket.
    pub user: Option<String>,
}

/// The method of authentication (`[auth] method`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AuthMethod {
    /// Tokens signed with the cluster's key, and TLS with keys derived from it.
    #[default]
    Key,
    /// No authentication; on loopback only.
    None,
}

/// The section `[tls]`: certificates of a site for commands, on a listener of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsLocal {
    /// `controller_names`: names of which a controller's certificate must have one.
    pub controller_names: Vec<String>,
    /// `ca_file`: certificates of the authority that commands trust. With this key commands connect to
    /// `addr`.
    pub ca_file: Option<PathBuf>,
    /// `addr`: addresses at which commands reach the TLS listener.
    pub addresses: Vec<HostPort>,
    /// The TLS listener; `None` if the controller has none.
    pub listener: Option<TlsListener>,
}

/// The controller's listener with a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsListener {
    /// `listen_addr`: the address on which it listens.
    pub listen_addr: HostPort,
    /// `cert_file`: the controller's certificate, with intermediate ones up to the authority.
    pub cert_file: PathBuf,
    /// `key_file`: the private key of the certificate.
    pub key_file: PathBuf,
}

/// `[[clusters]]`: another cluster that commands reach with `-M`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterLocal {
    /// `name`: the name of the cluster.
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
    /// No job holds anything of the node.
    Idle,
    /// No job holds anything of the node, and the node is not drained.
    NondrainedIdle,
    /// Jobs hold all CPUs of the node.
    Alloc,
    /// Jobs hold something of the node, but not all of its CPUs.
    Mixed,
    /// The health is only checked at the start of the daemon.
    StartOnly,
}

impl HealthState {
    /// All states, in the order of declaration.
    pub const ALL: [HealthState; 5] = [
        HealthState::Idle,
        HealthState::NondrainedIdle,
        HealthState::Alloc,
        HealthState::Mixed,
        HealthState::StartOnly,
    ];

    /// Slurm's name of the state.
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

    /// True if a node is in this state. `busy` is true if jobs hold anything of the node, `full` if they hold
    /// all its CPUs, `drained` if it is drained.
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

/// The section `[agent]`: settings of a node's daemon.
#[derive(Clone, Debug, PartialEq)]
pub struct AgentLocal {
    /// `listen_addr`: the address on which a node's daemon listens, unless `[[nodes]] port` differs.
    pub listen_addr: HostPort,
    /// `spool_dir`, with `%n` for the node's name; see [`AgentLocal::spool_of`].
    pub spool_dir: String,
    /// `heartbeat_interval`: time between two reports of a node's condition.
    pub heartbeat_interval: Seconds,
    /// `prolog`: programs, or patterns of their names, run as root before a job's first task on a node.
    pub prolog: Vec<PathBuf>,
    /// `epilog`: programs, or patterns of their names, run as root after a job's last task on a node.
    pub epilog: Vec<PathBuf>,
    /// `health_check_program`: the program run as root when spurd starts, and then periodically.
    pub health_check_program: Option<PathBuf>,
    /// `health_check_interval`: time between the end of a health check and the next one.
    pub health_check_interval: Seconds,
    /// `health_check_node_state`: the states of the node in which its health is checked again; empty for all.
    pub health_check_node_state: Vec<HealthState>,
    /// `prolog_timeout`: time that prolog and epilog may take.
    pub prolog_timeout: Seconds,
    /// `task_prolog`: the program run as the user before each task.
    pub task_prolog: Option<PathBuf>,
    /// `task_epilog`: the program run as the user after each task.
    pub task_epilog: Option<PathBuf>,
    /// `output_wait`: time that a task waits for the directory of its output.
    pub output_wait: Seconds,
    /// `job_acct_gather_frequency`: longest time between two measurements of tasks' usage; 0 for none.
    pub job_acct_gather_frequency: Seconds,
    /// `cgroup_plugin`: the kind of control groups that contain and limit steps.
    pub cgroup_plugin: CgroupPlugin,
    /// `constrain_devices`: true if a step can only use its own devices.
    pub constrain_devices: bool,
    /// `job_container_base_path`: directory of the private directories of jobs; `None` if jobs have none.
    pub job_container_base_path: Option<PathBuf>,
    /// `job_container_dirs`: directories that are private to each job.
    pub job_container_dirs: Vec<PathBuf>,
    /// `report`: the facts about its place in the network that a node reports, each once.
    pub report: Vec<Reported>,
}

/// A fact about its place in the network that a node reports (`[agent] report`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reported {
    /// The NVLink clique of its GPUs.
    Nvlink,
    /// The switches at the other ends of its Ethernet links, from LLDP.
    Lldp,
    /// The GUIDs of its InfiniBand ports.
    Ib,
}

impl Reported {
    /// Every fact with its name in the configuration.
    pub const ALL: [(&str, Reported); 3] =
        [("nvlink", Reported::Nvlink), ("lldp", Reported::Lldp), ("ib", Reported::Ib)];

    /// The name in the configuration.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, fact)| *fact == self).map_or("", |(name, _)| name)
    }
}

/// A section `[[gres]]`: devices of nodes, with the files by which they are used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceFiles {
    /// `nodes`: the nodes that have the devices; `None` for every node.
    pub nodes: Option<HostList>,
    /// `name`: the name, such as `gpu`.
    pub name: String,
    /// `type`: the type; empty for none.
    pub kind: String,
    /// `file`, one file for each device, or `multiple_files`, all files of one device.
    pub files: Vec<Vec<PathBuf>>,
    /// `cores`: ids of the node's cores near the devices, numbered socket by socket; empty if all are equally
    /// near.
    pub cores: IdSet,
    /// `count` of `shard`: number of shards of all GPUs together; 0 for none.
    pub shards: u32,
    /// `links`: number of links from a device to each device of its name, in their order; `None` for itself.
    pub links: Vec<Option<u32>>,
}

impl DeviceFiles {
    /// True if a node has these devices.
    pub fn are_of(&self, node: &str) -> bool {
        self.nodes.as_ref().is_none_or(|nodes| nodes.iter().any(|name| name == node))
    }
}

/// The kind of control groups (`[agent] cgroup_plugin`), with Slurm's names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CgroupPlugin {
    /// The version that the host has.
    #[default]
    Autodetect,
    /// Control groups of version 1 only.
    V1,
    /// Control groups of version 2 only.
    V2,
    /// Control groups are not used.
    Disabled,
}

impl CgroupPlugin {
    /// Every kind with its name.
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

/// The address of a node's daemon, as far as it is configured.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeAddress {
    /// `addr`: the host; `None` for the node's name, or the host that the node reports.
    pub host: Option<String>,
    /// `port`: the port; `None` for that of `[agent] listen_addr`.
    pub port: Option<u16>,
}

/// Section `[log]`: level, format and file of the log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogLocal {
    /// `level`: the least important messages that are written.
    pub level: LogLevel,
    /// `format`: the format of messages.
    pub format: LogFormat,
    /// `file`: the file to which a daemon writes once it is up; see [`LogLocal::file_of`].
    pub file: Option<String>,
}

impl LogLocal {
    /// The log file of a daemon: `%d` is replaced by the daemon's name and `%n` by that of its host or node.
    /// `None` without a log file.
    pub fn file_of(&self, daemon: &str, node: &str) -> Option<PathBuf> {
        Some(self.file.as_ref()?.replace("%d", daemon).replace("%n", node).into())
    }
}

/// The least important messages that are written (`[log] level`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogLevel {
    /// Messages about failures only.
    Error,
    /// Messages about conditions that may need attention, too.
    Warn,
    /// Messages about events, too.
    #[default]
    Info,
    /// Messages about the causes of events, too.
    Debug,
    /// Messages of every level.
    Trace,
}

/// The format of messages (`[log] format`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text for each message.
    #[default]
    Plain,
    /// A JSON object for each message.
    Json,
}

impl ControllerLocal {
    /// The port of the controller, unless configured otherwise.
    pub const DEFAULT_PORT: u16 = 6817;
}

impl AgentLocal {
    /// The port of a node's daemon, unless configured otherwise.
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
            report: Vec::new(),
        }
    }
}
