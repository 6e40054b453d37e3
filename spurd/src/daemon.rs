//! The assembled node daemon: starts its parts, and handles signals.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::Context;
use spur_core::model::config::CgroupPlugin;
use spur_proto::arrival::Arrival;
use spur_proto::channel::{KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_MESSAGE};
use spur_proto::identity::{Services, Window};
use spur_proto::keys::{ClusterKeys, Keyring, Role};
use spur_proto::listen::{Incoming, Limits};
use spur_proto::tls;
use spur_proto::v1::steps_server::StepsServer;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

use crate::args::Args;
use crate::assemble::NodeFacts;
use crate::clock::ControllerClock;
use crate::launcher::Launcher;
use crate::log;
use crate::node::groups::Groups;
use crate::node::inventory::{Inventory, Kernel};
use crate::node::job_container::JobContainers;
use crate::node::{fabric, health};
use crate::owner::register::{self, Registrar};
use crate::owner::{Owner, Tools};
use crate::rpc::StepService;
use crate::settings::{self, Settings};
use crate::spool::Spool;

/// Containment that a node without control groups reports, in the notation of [`Groups::describe`].
const UNCONTAINED: &str = "kill:process-tree,memory:sampled";
/// Largest number of concurrent connections, if the limit of open files allows this number.
const CONNECTIONS: usize = 4096;
/// Concurrent calls on one connection.
const STEPS: u32 = 16;
/// Memory for the bodies of large requests that are arriving, in bytes.
const ARRIVING: usize = 64 << 20;

/// The parts of a stopped daemon that have to be removed once none of its tasks runs.
pub struct Leftovers {
    spool: Arc<Spool>,
    groups: Option<Groups>,
}

impl Leftovers {
    /// Removes the control groups without processes, except those of attempts that may be starting.
    pub fn clear_up(self) {
        // A spool that cannot be read is left to the next daemon.
        let Ok(spawned) = self.spool.spawned() else { return };
        self.groups.into_iter().for_each(|groups| groups.close(&spawned));
    }
}

/// Runs the daemon until it is requested to stop.
///
/// `ready` is called when all services are up; `log_file` is reopened at SIGHUP.
///
/// # Errors
/// Names the reason why the daemon cannot start or go on, for users.
pub async fn run(
    args: Args,
    settings: Settings,
    log_file: Option<PathBuf>,
    ready: impl FnOnce(),
) -> anyhow::Result<Leftovers> {
    let (settings, started, clock) = (Arc::new(settings), register::now(), Arc::new(ControllerClock::new()));
    let kernel = Kernel::default();
    let inventory = Arc::new(kernel.take_stock(Path::new("/tmp")));
    let spool = Arc::new(Spool::open(&settings.spool)?);
    let listener = listen(&settings).await?;
    let groups = control_groups(&settings, spool.place())?;
    let containers = JobContainers::open(&settings.agent, &settings.name, &settings.spool)?;
    let constrains = groups.as_ref().is_some_and(Groups::constrains_devices);
    let facts = Arc::new(facts(&settings, &inventory, constrains));
    let address = advertised(&settings, listener.local_addr()?.port());
    let keyring = settings.keys.as_ref().map(|keys| Keyring::new(ClusterKeys::clone(keys)));
    let launcher = Launcher::new(shim()?, Arc::clone(&spool), groups.clone());
    let tools = Tools {
        settings: Arc::clone(&settings),
        facts: Arc::clone(&facts),
        spool: Arc::clone(&spool),
        launcher: launcher.clone(),
        groups: groups.clone(),
        containers,
        clock: Arc::clone(&clock),
        keyring: keyring.clone(),
    };
    keep_watch(&spool, &settings);
    let (owner, inbox, messages) = Owner::recover(tools).await.context("the spool cannot be read")?;
    let owner = tokio::spawn(owner.run(messages));
    let (settings_now, settings_seen) = watch::channel(Arc::clone(&settings));
    let (facts_now, facts_seen) = watch::channel(facts);
    let service = StepService {
        inbox: inbox.clone(),
        facts: facts_seen,
        spool: Arc::clone(&spool),
        launcher,
        keyring: keyring.clone(),
        clock: Arc::clone(&clock),
        refused: Arc::default(),
        visits: Arc::new(Mutex::new(BTreeMap::new())),
        shares: Default::default(),
    };
    let server = tokio::spawn(serve(incoming(listener, &settings, keyring.as_ref()), service));
    keyring.iter().cloned().for_each(|keyring| serve_tokens(&settings, keyring));
    // An unhealthy node is drained before jobs arrive.
    let asked = health::look_after(settings_seen.clone()).await;
    let fabric = fabric::follow(settings_seen.clone(), kernel.clone()).await;
    let registrar = Registrar {
        settings: settings_seen,
        inventory: Arc::clone(&inventory),
        spool: Arc::clone(&spool),
        containment: groups.as_ref().map_or_else(|| UNCONTAINED.to_owned(), Groups::describe),
        kernel,
        address: address.clone(),
        started,
        clock,
        instance: crate::spool::random_id().context("no random name can be drawn")?,
        inbox: inbox.clone(),
        fabric,
    };
    let registrar = tokio::spawn(registrar.run(asked));
    tracing::info!(node = settings.name, address, spool = %settings.spool.display(), "spurd is up");
    ready();
    let reload =
        Reload { args, log_file, inventory, settings: settings_now, facts: facts_now, keyring, inbox };
    tokio::select! {
        stopped = reload.until_stopped() => stopped?,
        ended = owner => ended.context("the owner of the node's state has failed")?,
        ended = server => ended.context("the node's service has failed")??,
        ended = registrar => ended.context("the stream to the controller has failed")?,
    }
    tracing::info!("spurd stops; jobs go on");
    Ok(Leftovers { spool, groups })
}

/// The connections to the node's service.
fn incoming(listener: TcpListener, settings: &Settings, keyring: Option<&Keyring>) -> Incoming {
    let tls = keyring.map(|keys| tls::server(keys, Role::Node(settings.name.as_str().into())));
    Incoming::tcp(listener, tls, Limits::for_process(CONNECTIONS))
}

/// Listens on the address of the node's service.
async fn listen(settings: &Settings) -> anyhow::Result<TcpListener> {
    let listener = TcpListener::bind((settings.listen.host.as_str(), settings.listen.port)).await;
    listener.with_context(|| format!("cannot listen on {}", settings.listen))
}

/// Starts handing out tokens to the users of this host.
fn serve_tokens(settings: &Settings, keyring: Keyring) {
    tokio::spawn(hand_out_tokens(settings.identity_socket.clone(), keyring));
}

/// Tests the spool before this node registers, and then once per heartbeat interval.
fn keep_watch(spool: &Arc<Spool>, settings: &Settings) {
    spool.try_out();
    let every = Duration::from_secs(settings.agent.heartbeat_interval.0.max(1));
    tokio::spawn(Arc::clone(spool).watch(every));
}

async fn serve(incoming: Incoming, service: StepService) -> Result<(), tonic::transport::Error> {
    let service = StepsServer::new(service).max_decoding_message_size(MAX_MESSAGE);
    tonic::transport::Server::builder()
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .max_concurrent_streams(STEPS)
        .layer(Arrival::new(ARRIVING))
        .add_service(service)
        .serve_with_incoming(incoming)
        .await
}

async fn hand_out_tokens(socket: PathBuf, keyring: Keyring) {
    let window = Window::open(&socket).await.unwrap_or_else(|error| {
        // The attempt is repeated.
        tracing::warn!(
            "no tokens are handed out, which commands on this host need: {:#}",
            anyhow::Error::new(error)
        );
        None
    });
    Window::hand_out(window, &socket, Services::tokens(Some(keyring)), std::future::pending()).await;
}

/// Collects the facts that the node adds to every order.
fn facts(settings: &Settings, inventory: &Inventory, constrains_devices: bool) -> NodeFacts {
    NodeFacts {
        name: settings.name.clone(),
        variables: settings.of_cluster(),
        cpus: settings.overrides.bindable(inventory).map(<[u32]>::to_vec),
        places: inventory.cpus.places.clone(),
        threads_per_core: inventory.cpus.threads_per_core,
        memory_nodes: Kernel::default().memory_nodes(),
        devices: settings.overrides.devices(inventory),
        constrains_devices,
        task_prolog: settings.agent.task_prolog.clone(),
        task_epilog: settings.agent.task_epilog.clone(),
        directory_wait_ms: settings.agent.output_wait.0 * 1000,
        usage_interval_ms: settings.agent.job_acct_gather_frequency.0 * 1000,
    }
}

/// Opens the control groups that this host allows; a version that the site names must exist.
fn control_groups(settings: &Settings, spool: &str) -> anyhow::Result<Option<Groups>> {
    let plugin = settings.agent.cgroup_plugin;
    match Groups::open(plugin, &settings.name, spool) {
        Ok(groups) => {
            let groups = groups.constraining_devices(settings.agent.constrain_devices);
            tracing::info!(containment = groups.describe(), "steps are held together by control groups");
            Ok(Some(groups))
        }
        Err(reason) if matches!(plugin, CgroupPlugin::V1 | CgroupPlugin::V2) => {
            anyhow::bail!("[agent] cgroup_plugin names control groups that cannot be had: {reason}")
        }
        Err(reason) => {
            tracing::info!(
                "steps are held together as process trees, memory is looked at now and then: {reason}"
            );
            Ok(None)
        }
    }
}

/// Returns the address at which clients reach this node: the configured one, else the listening address, else
/// the host's name.
fn advertised(settings: &Settings, port: u16) -> String {
    let mut address = settings.address.clone().unwrap_or_else(|| {
        let mut own = settings.listen.clone();
        let anywhere = own.host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_unspecified());
        if anywhere {
            own.host = settings::host_name();
        }
        own
    });
    if address.port == 0 || settings.address.is_none() {
        address.port = port;
    }
    address.to_string()
}

/// Returns the path of the program spurstepd, beside spurd itself.
fn shim() -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("spurd does not know where it is")?;
    let shim = own.with_file_name("spurstepd");
    anyhow::ensure!(shim.is_file(), "{} is missing: spurd and spurstepd belong together", shim.display());
    Ok(shim)
}

/// Reads the configuration again at SIGHUP.
struct Reload {
    args: Args,
    log_file: Option<PathBuf>,
    inventory: Arc<Inventory>,
    settings: watch::Sender<Arc<Settings>>,
    facts: watch::Sender<Arc<NodeFacts>>,
    keyring: Option<Keyring>,
    inbox: tokio::sync::mpsc::Sender<crate::owner::Message>,
}

impl Reload {
    async fn until_stopped(self) -> anyhow::Result<()> {
        let mut terminated = signal(SignalKind::terminate())?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        loop {
            tokio::select! {
                _ = terminated.recv() => return Ok(()),
                _ = interrupted.recv() => return Ok(()),
                _ = hung_up.recv() => {
                    self.log_file.as_deref().inspect(|path| log::write_to(path));
                    self.reload().await;
                }
            }
        }
    }

    async fn reload(&self) {
        let settings = match Settings::load(&self.args, |name| std::env::var(name).ok()) {
            Ok(settings) => Arc::new(settings),
            Err(error) => {
                tracing::error!("the configuration stays as it was: {error}");
                return;
            }
        };
        let before = Arc::clone(&self.settings.borrow());
        if (&settings.listen, &settings.spool) != (&before.listen, &before.spool) {
            tracing::warn!(
                "a new listen address or spool directory takes effect when spurd is started again"
            );
        }
        if let (Some(keyring), Some(keys)) = (&self.keyring, &settings.keys)
            && keyring.replace(ClusterKeys::clone(keys))
        {
            tracing::info!(valid = keys.count(), "the cluster's key has changed");
        }
        // What holds steps together stays as it is.
        let constrains_devices = self.facts.borrow().constrains_devices;
        let facts = Arc::new(facts(&settings, &self.inventory, constrains_devices));
        let told = crate::owner::Message::Settings(Arc::clone(&settings), Arc::clone(&facts));
        if self.inbox.send(told).await.is_ok() {
            self.facts.send_replace(facts);
            self.settings.send_replace(settings);
            tracing::info!("the configuration was read again");
        }
    }
}
