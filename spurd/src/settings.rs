//! The settings of this daemon: configuration, environment and command line, combined.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use spur_core::model::config::{AgentLocal, AuthMethod, Config, Local, LogLocal};
use spur_core::model::idset::IdSet;
use spur_core::model::node::{NodeGres, NodeShape, SHARD};
use spur_core::text::address::HostPort;
use spur_core::text::gres::GresSpec;
use spur_proto::keys::ClusterKeys;

use crate::args::Args;
use crate::node::inventory::Inventory;
use crate::node::inventory::device::{self, Device};

/// The settings of a running daemon; SIGHUP may replace them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The node's name.
    pub name: String,
    /// Absolute path of the configuration file, if there is one.
    pub config: Option<PathBuf>,
    /// Addresses of the controllers, in the order of preference.
    pub controllers: Vec<HostPort>,
    /// Controllers passed on to jobs, because the configuration does not name them.
    pub told_controllers: Option<String>,
    /// Listening address of the node's service.
    pub listen: HostPort,
    /// Address at which clients reach the service, if one is configured.
    pub address: Option<HostPort>,
    /// Path of the spool directory.
    pub spool: PathBuf,
    /// The section `[agent]`: prolog, epilog, heartbeat and more.
    pub agent: AgentLocal,
    /// Program that reboots this host.
    pub reboot_program: Option<PathBuf>,
    /// True if the daemon's start counts as a boot of its host.
    pub counts_as_boot: bool,
    /// Format and level of the log.
    pub log: LogLocal,
    /// The cluster's keys; `None` without authentication.
    pub keys: Option<Arc<ClusterKeys>>,
    /// Path of the Unix socket at which this host hands out tokens.
    pub identity_socket: PathBuf,
    /// Resources that replace the detected ones.
    pub overrides: Overrides,
}

impl Settings {
    /// Returns the variables by which jobs and programs find their cluster.
    pub(crate) fn of_cluster(&self) -> Vec<(String, String)> {
        let config = self.config.iter().map(|path| ("SPUR_CONF".to_owned(), path.display().to_string()));
        let controllers =
            self.told_controllers.iter().map(|told| ("SPUR_CONTROLLER".to_owned(), told.clone()));
        config.chain(controllers).collect()
    }
}

/// Resources that the command line or `[[gres]]` gives to the node, whatever the host has.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Overrides {
    /// Number of CPUs; `None` for the detected ones.
    pub cpus: Option<u32>,
    /// Memory in MiB; `None` for the detected amount.
    pub memory_mb: Option<u64>,
    /// Devices from the command line, by number only; `None` for detected and declared ones.
    pub gres: Option<Vec<GresSpec>>,
    /// Devices that `[[gres]]` declares, in place of the detected ones of the same name.
    pub devices: Vec<Device>,
    /// Names and types of `[[gres]]`, also those without a device on this node.
    pub declared: Vec<(String, String)>,
    /// Number of shards into which the GPUs can be divided together; 0 if GPUs are only allocated whole.
    pub shards: u32,
    /// The node's features.
    pub features: Vec<String>,
    /// The node's position in the topologies.
    pub topology: String,
}

/// Settings with which spurd cannot run.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// The configuration cannot be read.
    #[error("cannot read {}{}", path.display(), hint(*named))]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// True if the user named the file.
        named: bool,
        /// The system's error.
        source: std::io::Error,
    },
    /// The configuration is wrong.
    #[error("{0}")]
    Config(String),
    /// The cluster's key cannot be read.
    #[error(transparent)]
    Key(#[from] spur_proto::keys::KeyError),
    /// Settings contradict each other, or the node has no name.
    #[error("{0}")]
    Refused(String),
}

fn hint(named: bool) -> &'static str {
    if named { "" } else { " (name another configuration with -f or SPUR_CONF)" }
}

impl Settings {
    /// Combines the command line with the configuration and the environment.
    ///
    /// # Errors
    /// [`SettingsError`] names the mistake and its place.
    pub fn load(args: &Args, variable: impl Fn(&str) -> Option<String>) -> Result<Settings, SettingsError> {
        let from_environment = variable("SPUR_CONF").map(PathBuf::from);
        let named = args.config.clone().or(from_environment);
        let path = named.clone().unwrap_or_else(|| Config::DEFAULT_FILE.into());
        let text = std::fs::read_to_string(&path).map_err(|source| SettingsError::Read {
            path: path.clone(),
            named: named.is_some(),
            source,
        })?;
        let path = std::path::absolute(&path).unwrap_or(path);
        let parsed = Config::parse(&text, &path.display().to_string());
        let Config { policy, local } = parsed.map_err(|errors| SettingsError::Config(errors.to_string()))?;
        let told_controllers = args.controller.clone().or_else(|| variable("SPUR_CONTROLLER"));
        let controllers = match &told_controllers {
            Some(list) => HostPort::parse_list(list)
                .map_err(|error| SettingsError::Refused(format!("controllers {list}: {error}")))?,
            None => local.controller.addresses.clone(),
        };
        // Commands that know controllers by certificates reach them at other addresses than nodes do.
        let told_controllers = told_controllers.filter(|_| local.tls.ca_file.is_none());
        let name = args.name.clone().map_or_else(own_name, Ok)?;
        let listen = args.listen.clone().unwrap_or_else(|| local.agent_listens_on(&name));
        let keys = keys(&local, &policy.cluster_name, &listen, &controllers)?;
        let configured = local.node_addresses.get(name.as_str()).and_then(|node| node.host.clone());
        let address = configured.map(|_| local.agent_address(&name));
        let (devices, wrong) = Device::declared(&local.devices, &name);
        wrong.iter().for_each(|why| tracing::warn!("a device is not counted: {why}"));
        let own = || local.devices.iter().filter(|entry| entry.are_of(&name));
        let (shards, declared) =
            (own().map(|entry| entry.shards).sum(), own().filter(|entry| entry.shards == 0));
        Ok(Settings {
            config: Some(path),
            controllers,
            told_controllers,
            address: args.address.clone().or(address),
            spool: args.spool.clone().unwrap_or_else(|| local.agent.spool_of(&name)),
            listen,
            agent: local.agent,
            reboot_program: policy.power.reboot_program.as_deref().map(PathBuf::from),
            counts_as_boot: args.boot,
            log: local.log,
            keys,
            identity_socket: local.auth.socket,
            overrides: Overrides {
                cpus: args.cpus,
                memory_mb: args.memory_mb,
                gres: args.gres.clone(),
                devices,
                declared: declared.map(|entry| (entry.name.clone(), entry.kind.clone())).collect(),
                shards,
                features: args.features.clone(),
                topology: args.topology.clone(),
            },
            name,
        })
    }
}

/// Reads the cluster's keys; `None` without authentication, which is allowed on loopback only.
fn keys(
    local: &Local,
    cluster: &str,
    listen: &HostPort,
    controllers: &[HostPort],
) -> Result<Option<Arc<ClusterKeys>>, SettingsError> {
    let afar = controllers.iter().find(|address| !address.is_loopback());
    match (local.auth.method, afar) {
        (AuthMethod::Key, _) => {
            Ok(Some(Arc::new(ClusterKeys::read(Path::new(&local.auth.key_file), cluster)?)))
        }
        (AuthMethod::None, Some(afar)) => Err(SettingsError::Refused(format!(
            "auth.method = \"none\" believes whoever answers, so spurd registers on loopback only, not with {afar}: \
             use auth.method = \"key\""
        ))),
        (AuthMethod::None, None) if listen.is_loopback() => Ok(None),
        (AuthMethod::None, None) => Err(SettingsError::Refused(format!(
            "auth.method = \"none\" believes everybody, so spurd listens on loopback only, not on {listen}: use \
             --listen 127.0.0.1:{} or auth.method = \"key\"",
            listen.port
        ))),
    }
}

/// Returns the host's name up to the first dot.
fn own_name() -> Result<String, SettingsError> {
    let full = host_name();
    let short = full.split('.').next().unwrap_or_default();
    if short.is_empty() {
        return Err(SettingsError::Refused("this host has no name: give the node one with -N".to_owned()));
    }
    Ok(short.to_owned())
}

/// Returns the host's full name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Overrides {
    /// Returns the resources with which the node registers.
    pub fn shape(&self, found: &Inventory) -> NodeShape {
        let flat = self.is_flat(found);
        let devices = self.devices(found);
        NodeShape {
            // CPUs beyond the detected ones have no known sockets and cores.
            sockets: if flat { 1 } else { found.cpus.sockets },
            cores_per_socket: if flat { self.cpus.unwrap_or(1) } else { found.cpus.cores_per_socket },
            threads_per_core: if flat { 1 } else { found.cpus.threads_per_core },
            cpus: self.cpus.unwrap_or(found.cpus.threads.len() as u32),
            memory_mb: self.memory_mb.unwrap_or(found.memory_mb),
            tmp_disk_mb: found.tmp_disk_mb,
            gres: self
                .gres
                .as_ref()
                .map_or_else(|| counted(&devices, &self.declared, self.shards), |gres| named(gres)),
            features: self.features.iter().map(|feature| Arc::from(feature.as_str())).collect(),
            places: device::places(&devices),
            shared_gpus: false,
        }
    }

    /// True if the node registers a number of CPUs without known sockets and cores.
    fn is_flat(&self, found: &Inventory) -> bool {
        self.cpus.is_some_and(|cpus| cpus != found.cpus.threads.len() as u32)
    }

    /// Returns the devices with known files; none if the command line gives their numbers only.
    pub fn devices(&self, found: &Inventory) -> Vec<Device> {
        if self.gres.is_some() {
            return Vec::new();
        }
        let declared = |name: &str| self.devices.iter().any(|device| device.name == name);
        let mut detected: Vec<Device> =
            found.gpus.iter().filter(|gpu| !declared(&gpu.name)).cloned().collect();
        if self.is_flat(found) {
            // The detected locality does not apply to a different number of CPUs.
            detected.iter_mut().for_each(|gpu| gpu.cores = IdSet::default());
        }
        let mut declared = self.devices.clone();
        for device in declared.iter_mut().filter(|device| device.files.len() > 1) {
            // A file that opens a MIG instance opens no other.
            let opens = |gpu: &&Device| gpu.files.iter().skip(1).any(|file| device.files.contains(file));
            if let Some(instance) = found.gpus.iter().find(opens) {
                device.called.clone_from(&instance.called);
            }
        }
        declared.into_iter().chain(detected).collect()
    }

    /// Returns the CPUs to which tasks can be bound, in the node's numbering; `None` if more are registered
    /// than exist.
    pub fn bindable<'a>(&self, found: &'a Inventory) -> Option<&'a [u32]> {
        let real = self.cpus.is_none_or(|cpus| cpus as usize <= found.cpus.threads.len());
        real.then_some(found.cpus.threads.as_slice())
    }
}

/// Counts devices by name and type, and the shards of GPUs; names that are `declared` but have no device
/// count zero.
fn counted(devices: &[Device], declared: &[(String, String)], shards: u32) -> Vec<NodeGres> {
    let none = |(name, kind): &(String, String)| NodeGres {
        name: name.as_str().into(),
        kind: kind.as_str().into(),
        count: 0,
    };
    let mut gres: Vec<NodeGres> = Vec::new();
    for entry in declared.iter().map(none) {
        if !gres.contains(&entry) {
            gres.push(entry);
        }
    }
    for Device { name, kind, .. } in devices {
        match gres.iter_mut().find(|entry| *entry.name == **name && *entry.kind == **kind) {
            Some(entry) => entry.count += 1,
            None => gres.push(NodeGres { name: name.as_str().into(), kind: kind.as_str().into(), count: 1 }),
        }
    }
    if shards > 0 && gres.iter().any(NodeGres::is_gpu) {
        gres.push(NodeGres { name: SHARD.into(), kind: "".into(), count: shards });
    }
    gres
}

fn named(gres: &[GresSpec]) -> Vec<NodeGres> {
    let entry = |spec: &GresSpec| NodeGres {
        name: spec.name.as_str().into(),
        kind: spec.kind.as_deref().unwrap_or_default().into(),
        count: u32::try_from(spec.count).unwrap_or(u32::MAX),
    };
    gres.iter().map(entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::inventory::cpu::Cpus;

    fn load(config: &str, args: Args) -> Result<Settings, SettingsError> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("spur.toml");
        std::fs::write(&path, config).unwrap();
        Settings::load(&Args { config: Some(path), ..args }, |_| None)
    }

    const OPEN: &str = "cluster_name = \"demo\"\n[auth]\nmethod = \"none\"\n";

    fn on_loopback() -> Args {
        Args { name: Some("n1".to_owned()), listen: "127.0.0.1:0".parse().ok(), ..Args::default() }
    }

    #[test]
    fn the_command_line_wins_over_the_configuration() {
        let plain = load(OPEN, on_loopback()).unwrap();
        assert_eq!((plain.name.as_str(), plain.spool), ("n1", PathBuf::from("/var/spool/spurd/n1")));
        assert_eq!(plain.controllers[0].to_string(), "127.0.0.1:6817");
        let args = Args {
            spool: Some("/s".into()),
            controller: Some("127.0.0.1:1,localhost:2".to_owned()),
            ..on_loopback()
        };
        let told = load(OPEN, args).unwrap();
        assert_eq!((told.spool, told.controllers.len()), (PathBuf::from("/s"), 2));
    }

    #[test]
    fn nobody_is_believed_from_afar() {
        let args = Args { listen: "0.0.0.0:6818".parse().ok(), ..on_loopback() };
        let refused = load(OPEN, args).unwrap_err().to_string();
        assert!(refused.contains("loopback only"), "{refused}");
        let args = Args { controller: Some("127.0.0.1:1,head:2".to_owned()), ..on_loopback() };
        let refused = load(OPEN, args).unwrap_err().to_string();
        assert!(refused.contains("not with head:2"), "{refused}");
        let refused = load("auth = 3\n", on_loopback()).unwrap_err().to_string();
        assert!(refused.contains("spur.toml"), "{refused}");
    }

    #[test]
    fn a_node_registers_what_it_was_told_or_what_it_has() {
        let cpus = Cpus {
            sockets: 2,
            cores_per_socket: 2,
            threads_per_core: 1,
            threads: vec![0, 2, 1, 3],
            places: vec![],
        };
        let found = Inventory { cpus, memory_mb: 100, tmp_disk_mb: 7, gpus: vec![] };
        let shape = Overrides::default().shape(&found);
        assert_eq!((shape.sockets, shape.cpus, shape.memory_mb), (2, 4, 100));
        assert_eq!(Overrides::default().bindable(&found), Some([0, 2, 1, 3].as_slice()));
        let told = Overrides { cpus: Some(64), memory_mb: Some(9), ..Overrides::default() };
        let shape = told.shape(&found);
        assert_eq!((shape.sockets, shape.cores_per_socket, shape.cpus, shape.memory_mb), (1, 64, 64, 9));
        assert_eq!(told.bindable(&found), None);
    }
}
