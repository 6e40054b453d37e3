//! The assembled controller: recovery, the start of its threads and services, and the order of its end.

use std::fs::DirBuilder;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use spur_core::cluster::{Cluster, Entry};
use spur_core::controller::Reject;
use spur_core::id::{HistoryId, JobId};
use spur_core::model::config::{AuthMethod, Config, Local, Policy};
use spur_core::text::address::HostPort;
use spur_proto::arrival::Arrival;
use spur_proto::channel::{
    CONNECTION_WINDOW, FRAME_BYTES, KEEP_ALIVE_INTERVAL, KEEP_ALIVE_TIMEOUT, MAX_MESSAGE, MAX_REPLY,
    STREAM_WINDOW,
};
use spur_proto::identity::{Services, Window};
use spur_proto::keys::{ClusterKeys, Keyring, Role};
use spur_proto::listen::{Incoming, Limits};
use spur_proto::tls::{self, Certificate};
use spur_proto::v1::agents_server::AgentsServer;
use spur_proto::v1::controller_server::ControllerServer;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::server::Router;
use tower::layer::util::{Identity, Stack};

use crate::agents::{self, Agents, Attendance, Renderer};
use crate::alarm::{self, Alarm};
use crate::archive::{Accounts, Archive};
use crate::blobs::Blobs;
use crate::clock;
use crate::config_file::ConfigFile;
use crate::disk_space::DiskSpace;
use crate::fault;
use crate::feed::Feed;
use crate::history;
use crate::holders::Holders;
use crate::inbox::Inbox;
use crate::metrics::Metrics;
use crate::outbox::{self, Outbox};
use crate::owner::{self, Owner};
use crate::post::Post;
use crate::programs::Programs;
use crate::recover::{self, History};
use crate::reload::Reload;
use crate::rpc::Desk;
use crate::rpc::access::Gate;
use crate::rpc::fix::Fixing;
use crate::rpc::leased::Leased;
use crate::rpc::quota::Quotas;
use crate::rpc::turns::Turns;
use crate::standby::{self, Differs, Taken};
use crate::statistics::Counted;
use crate::stop::Stop;
use crate::store::accounting::Accounting;
use crate::store::{Batch, Journal, Place};
use crate::wall;
use crate::warm::Warm;

/// Longest duration of calls under way after the order to stop.
const GRACE: Duration = Duration::from_secs(5);
/// Largest number of concurrent connections, if the limit of open files allows this number. Each
/// connection takes some 27 KiB.
pub(crate) const CONNECTIONS: usize = 65_536;
/// Concurrent calls on one connection.
const CALLS: u32 = 256;
/// Memory for the bodies of large requests that are arriving, in bytes.
const ARRIVING: usize = 256 << 20;

/// A controller that has recovered and listens.
pub struct Server {
    address: SocketAddr,
    stop: Stop,
    inbox: Inbox,
    reload: Reload,
    journal: Journal,
    accounting: Accounting,
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    /// Receives the reason why the controller cannot go on.
    failure: mpsc::UnboundedReceiver<anyhow::Error>,
}

/// The recovered state, before any thread runs.
struct Recovered {
    journal: Journal,
    accounting: Accounting,
    /// The state from which accounting and snapshots go on.
    base: Cluster,
    /// The entries from `base` to `cluster`.
    entries: Vec<Arc<Entry>>,
    /// The current state.
    cluster: Cluster,
    /// The last entry that accounting has.
    reached: u64,
    /// The entry of the last snapshot.
    snapshot: u64,
    /// The replica, its followers and the planner.
    warm: Warm,
}

impl Server {
    /// Recovers the state, puts the configured policy in force, and listens.
    ///
    /// If several controllers share a database, the controller stands by until it leads; `on_standby` is
    /// called when another controller is seen to lead. `None` if the controller was stopped while it stood
    /// by.
    ///
    /// # Errors
    /// Fails if the configuration cannot be honoured, if the state cannot be read or is in use, or if an
    /// address is in use.
    pub async fn start(
        config: Config,
        config_file: ConfigFile,
        on_standby: impl FnOnce(),
    ) -> anyhow::Result<Option<Self>> {
        let Config { policy, local } = config;
        let keyring = keyring_of(&local, &policy.cluster_name)?;
        let address = standby::own_address(&local).await.to_string();
        let (recovered, listener) = match Place::of(&local.controller.state, &address)? {
            Place::File(path) => {
                make_directory(&path)?;
                let recovered = recover(&Place::File(path), policy).await?;
                (recovered, bind("listen_addr", &local.controller.listen_addr).await?)
            }
            place @ Place::Database { .. } => {
                let listener = bind("listen_addr", &local.controller.listen_addr).await?;
                let (config_file, keyring) = (config_file.clone(), keyring.clone());
                let host = standby::Host { local: &local, config_file, listener: &listener, keyring };
                let Some(recovered) = lead(&place, policy, host, on_standby).await? else {
                    return Ok(None);
                };
                (recovered, listener)
            }
        };
        Self::begin(recovered, listener, local, config_file, keyring).await.map(Some)
    }

    /// Starts all threads and services on the recovered state.
    async fn begin(
        recovered: Recovered,
        listener: TcpListener,
        local: Local,
        config_file: ConfigFile,
        keyring: Option<Keyring>,
    ) -> anyhow::Result<Self> {
        let address = listener.local_addr().context("the listening socket has no address")?;
        let window = Window::take(&local.auth.socket)?;
        let metrics = match &local.controller.metrics_addr {
            Some(listen) => Some(bind("metrics_addr", listen).await?),
            None => None,
        };
        let certified = match &local.tls.listener {
            Some(tls) => {
                let certificate = Certificate::read(&tls.cert_file, &tls.key_file)?;
                Some((bind_for("[tls] listen_addr", &tls.listen_addr).await?, certificate))
            }
            None => None,
        };
        let stop = Stop::default();
        let (failed, failure) = mpsc::unbounded_channel();
        let (journal, accounting) = (recovered.journal.clone(), recovered.accounting.clone());
        let mut machine = Machine { threads: Vec::new(), tasks: JoinSet::new(), failed };
        let local = Arc::new(local);
        let certificate = certified.as_ref().map(|(_, certificate)| certificate.clone());
        let desk = machine.begin(recovered, &local, config_file, (keyring.clone(), certificate), &stop)?;
        let (inbox, reload) = (desk.inbox.clone(), desk.reload.clone());
        if let Some(metrics) = metrics {
            let pages = Metrics::new(&desk.sources(), desk.started.0);
            machine.tasks.spawn(pages.serve(metrics, stop.clone()));
        }
        if let Some((listener, certificate)) = certified {
            let gate = Gate::for_people(keyring.clone());
            let service = InterceptedService::new(controller_service(desk.clone()), gate);
            let limits = Limits::for_process(CONNECTIONS).with_user(local.controller.shares.connections);
            let incoming = Incoming::tcp(listener, Some(certificate.server()), limits);
            machine.serve(transport().add_service(service), incoming, &stop);
        }
        machine.listen(desk, (listener, address.port()), window, &local, keyring, &stop);
        let Machine { threads, tasks, .. } = machine;
        Ok(Self { address, stop, inbox, reload, journal, accounting, threads, tasks, failure })
    }

    /// Returns the address on which the controller listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the handle that stops the controller.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Returns the handle that puts the configuration file in force again.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
    }

    /// Serves until the controller is stopped, and ends in good order.
    ///
    /// # Errors
    /// Names the reason why the controller cannot go on; nothing that is not durable has left it since.
    pub async fn run(mut self) -> anyhow::Result<()> {
        tokio::select! {
            () = self.stop.wished() => {}
            Some(error) = self.failure.recv() => return Err(error),
            // The loss of the lease must be noticed without a commit, too.
            error = self.journal.ended() => return Err(error.into()),
        }
        tracing::info!("stopping");
        let calls_end = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(GRACE, calls_end).await.is_err() {
            tracing::warn!("some calls did not end in time");
            self.tasks.abort_all();
        }
        self.inbox.stop().await;
        let threads = self.threads;
        let joined = tokio::task::spawn_blocking(move || {
            threads.into_iter().filter_map(|thread| thread.join().err()).count()
        });
        let panicked = joined.await.context("cannot wait for the threads")?;
        if let Ok(error) = self.failure.try_recv() {
            return Err(error);
        }
        ensure!(panicked == 0, "{panicked} threads have panicked");
        if tokio::time::timeout(GRACE, self.journal.close()).await.is_err() {
            tracing::warn!("the journal is still being read; everything in it is durable");
        }
        match tokio::time::timeout(GRACE, self.accounting.close()).await {
            Ok(closed) => closed.context("accounting cannot be closed")?,
            Err(_) => tracing::warn!("accounting is still being read; everything in it is durable"),
        }
        Ok(())
    }
}

/// Carries out `--new-history`; see [`history::renew`](crate::history).
///
/// # Errors
/// Names the reason why nothing was changed.
pub async fn new_history(local: &Local, adopted: Option<HistoryId>) -> anyhow::Result<String> {
    history::renew(&state_place(local)?, adopted).await
}

/// Listens on the address that a key of `[controller]` gives.
async fn bind(key: &str, listen: &HostPort) -> anyhow::Result<TcpListener> {
    bind_for(&format!("[controller] {key}"), listen).await
}

async fn bind_for(key: &str, listen: &HostPort) -> anyhow::Result<TcpListener> {
    let bound = TcpListener::bind((listen.host.as_str(), listen.port)).await;
    bound.with_context(|| format!("{key}: cannot listen on {listen}"))
}

/// Returns a gRPC server with Spur's settings, without services.
pub(crate) fn transport() -> tonic::transport::Server<Stack<Arrival, Identity>> {
    tonic::transport::Server::builder()
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_frame_size(FRAME_BYTES)
        .http2_keepalive_interval(Some(KEEP_ALIVE_INTERVAL))
        .http2_keepalive_timeout(Some(KEEP_ALIVE_TIMEOUT))
        .max_concurrent_streams(CALLS)
        .layer(Arrival::new(ARRIVING))
}

/// The service for commands.
pub(crate) fn controller_service(desk: Desk) -> Leased<Counted<ControllerServer<Desk>>> {
    let (statistics, journal) = (desk.statistics.clone(), desk.journal.clone());
    let inner = ControllerServer::new(desk)
        .max_decoding_message_size(MAX_MESSAGE)
        .max_encoding_message_size(MAX_REPLY);
    Leased { inner: Counted { inner, statistics }, journal }
}

/// Returns the cluster's keys; `None` without authentication.
fn keyring_of(local: &Local, cluster: &str) -> anyhow::Result<Option<Keyring>> {
    let listen = &local.controller.listen_addr;
    match local.auth.method {
        AuthMethod::Key => Ok(Some(Keyring::new(ClusterKeys::read(&local.auth.key_file, cluster)?))),
        AuthMethod::None if listen.is_loopback() => Ok(None),
        AuthMethod::None => bail!(
            "[auth] method = \"none\" believes whoever connects, so [controller] listen_addr must be a loopback \
             address, not {listen}; use method = \"key\""
        ),
    }
}

/// Returns the journal's place, and creates the directory of a journal's file.
fn state_place(local: &Local) -> anyhow::Result<Place> {
    if let Some(path) = local.controller.state.file() {
        make_directory(path)?;
    }
    let addresses: Vec<String> = local.controller.addresses.iter().map(ToString::to_string).collect();
    Ok(Place::of(&local.controller.state, &addresses.join(","))?)
}

/// Creates the directory of the journal's file.
fn make_directory(path: &Path) -> anyhow::Result<()> {
    let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) else {
        return Ok(());
    };
    // Only its owner may enter: the journal holds what users have submitted.
    let made = DirBuilder::new().recursive(true).mode(0o700).create(directory);
    made.with_context(|| format!("[controller] state: cannot create {}", directory.display()))
}

/// Returns another handle of the same listening socket.
pub(crate) fn cloned(listener: &TcpListener) -> anyhow::Result<TcpListener> {
    let cloned =
        rustix::io::fcntl_dupfd_cloexec(listener, 0).context("the listening socket cannot be shared")?;
    Ok(TcpListener::from_std(std::net::TcpListener::from(cloned))?)
}

/// Recovers the state from a file and puts the configured policy in force, durably.
async fn recover(place: &Place, policy: Policy) -> anyhow::Result<Recovered> {
    let begun = Instant::now();
    let (journal, recovered) = Journal::open(place).await?;
    let snapshot = recovered.snapshot_seq;
    let history = recover::recover(recovered).await?;
    let accounting = Accounting::open(place.accounting()).await?;
    let taken = Taken { journal, accounting, history, snapshot, own_ms: None, warm: None };
    reign(taken, Some(policy), begun).await
}

/// Stands by until this controller leads, and begins its reign.
///
/// The policy in the journal stays in force; only a new journal takes the file's. `None` if the controller
/// was stopped.
async fn lead(
    place: &Place,
    policy: Policy,
    host: standby::Host<'_>,
    on_standby: impl FnOnce(),
) -> anyhow::Result<Option<Recovered>> {
    let Place::Database { database, address } = place else { bail!("no database is shared") };
    let taken = standby::follow(database, address, host, on_standby).await?;
    let Some(taken) = taken else { return Ok(None) };
    let begun = Instant::now();
    let differs = standby::differences(&taken.history.cluster, policy.clone());
    if !differs.is_empty() {
        tracing::warn!(
            "the policy of the journal stays in force until scontrol reconfigure; the file changes: {differs}"
        );
    }
    let first = taken.history.cluster.seq() == 0;
    reign(taken, first.then_some(policy), begun).await.map(Some)
}

/// Begins a reign on a journal: what it writes first is durable.
async fn reign(taken: Taken, policy: Option<Policy>, begun: Instant) -> anyhow::Result<Recovered> {
    let Taken { journal, accounting, history, snapshot, own_ms, warm } = taken;
    let History { mut cluster, base, mut entries } = history;
    let reached = accounting.reached().await?;
    let known = (reached, JobId(accounting.last_job().await?));
    let mut first = history::resume_clock(&mut cluster, journal.epoch(), own_ms)?;
    wall::say(cluster.clock());
    journal.follow_clock(cluster.clock().base_ms);
    first.extend(history::begin(&mut cluster, journal.epoch(), known)?);
    if let Some(doubt) = cluster.doubt() {
        tracing::error!("{}", Reject::OldCopy(Arc::clone(&doubt.why)));
    }
    if reached < snapshot {
        tracing::warn!(reached, snapshot, "accounting lacks entries that the journal no longer has");
    }
    if let Some(policy) = policy {
        let now = clock::now(&cluster);
        let changed = owner::reconfigure_first(&mut cluster, journal.epoch(), now, policy.into())
            .context("the configured policy cannot be put in force")?;
        first.extend(changed);
    }
    let batch =
        Batch { entries: first.iter().map(|entry| recover::to_store(entry)).collect(), ..Batch::default() };
    journal.commit(batch).await?;
    let warm = match warm {
        Some(mut warm) => {
            warm.follow(&first);
            warm
        }
        None => Warm::new(&cluster),
    };
    entries.extend(first);
    tracing::info!(
        epoch = journal.epoch(),
        seq = cluster.seq(),
        jobs = cluster.jobs().len(),
        milliseconds = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX),
        "recovered"
    );
    let entries = entries.into();
    Ok(Recovered { journal, accounting, base, entries, cluster, reached, snapshot, warm })
}

/// The threads and tasks that run.
struct Machine {
    threads: Vec<JoinHandle<()>>,
    tasks: JoinSet<()>,
    failed: mpsc::UnboundedSender<anyhow::Error>,
}

impl Machine {
    /// Starts everything that works behind the network.
    #[expect(clippy::too_many_lines, reason = "one part after another, each a few lines")]
    fn begin(
        &mut self,
        recovered: Recovered,
        local: &Arc<Local>,
        config_file: ConfigFile,
        (keyring, certificate): (Option<Keyring>, Option<Certificate>),
        stop: &Stop,
    ) -> anyhow::Result<Desk> {
        let Recovered { journal, accounting, base, entries, cluster, reached, snapshot, warm } = recovered;
        let Warm { inbox, messages, replica, watchers, changes, overlay, statistics, planning, to_planner } =
            warm;
        let (outbox, queue) = Outbox::new();
        let (agents, arrived) = Agents::new();
        let (alarm, alarms) = watch::channel(Alarm::default());
        let (to_archive, for_archive) = mpsc::unbounded_channel();
        let (copies, copied) = mpsc::channel(1);
        let (accounts, wanted) = Accounts::new();
        let (blobs, epoch) = (Blobs::new(journal.clone()), journal.epoch());
        let holders = Holders::of(&cluster);
        let config_path = config_file.path().to_owned();
        let reload =
            Reload::new(inbox.clone(), config_file, Arc::clone(local), (keyring.clone(), certificate));

        let archive = Archive {
            cluster: base,
            journal: journal.clone(),
            accounting: accounting.clone(),
            reached,
            // An old copy has nothing for accounting.
            written: if cluster.doubt().is_some() { u64::MAX } else { 0 },
            snapshot,
            bytes: 0,
            refused: Default::default(),
            snapshot_refused: Default::default(),
            statistics: statistics.clone(),
        };
        // The queue is new and its receiver exists, so sending succeeds.
        let _ = to_archive.send(entries.into());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        self.thread("archive", move || {
            runtime.block_on(archive.run(for_archive, copied, wanted));
            Ok(())
        })?;
        self.thread("planner", move || {
            planning.run();
            Ok(())
        })?;
        let mut feed = Feed {
            replica: replica.clone(),
            watchers: watchers.clone(),
            changes: changes.clone(),
            holders: holders.clone(),
            statistics: statistics.clone(),
            planner: to_planner,
            archive: to_archive,
        };
        let (orders, config) = (agents.clone(), std::path::absolute(config_path)?);
        let post = Post::new(local.controller.mail_prog.clone(), config.clone());
        let programs = Programs::new(replica.clone(), inbox.clone(), config);
        programs.resume(&cluster);
        self.thread("outbox", move || Ok(outbox::run(&queue, &mut feed, &orders, (&post, &programs))?))?;
        let owner = Owner {
            cluster,
            journal: journal.clone(),
            inbox: inbox.clone(),
            outbox,
            blobs: blobs.clone(),
            disk_space: DiskSpace::of(local.controller.state.file()),
            alarm,
            effort: statistics.effort.owner.clone(),
            runtime: tokio::runtime::Handle::current(),
        };
        self.thread("owner", move || Ok(owner.run(messages)?))?;
        fault::vital("alarm", alarm::run(alarms, inbox.clone()));
        fault::vital("wall", wall::run(replica.clone(), inbox.clone()));
        fault::vital("silence", agents::listen(agents.clone(), arrived, replica.clone(), inbox.clone()));
        Ok(Desk {
            journal,
            inbox,
            replica,
            overlay,
            agents,
            watchers,
            changes,
            holders,
            blobs,
            accounting,
            accounts,
            keyring,
            node_addresses: Arc::new(local.node_addresses.clone()),
            reload,
            quotas: Quotas::new(local.controller.shares),
            turns: Turns::of_this_host(statistics.effort.lists.clone()),
            stop: stop.clone(),
            statistics,
            epoch,
            started: clock::wall(),
            copies: Arc::new(Mutex::new(copies)),
            fixing: Fixing::default(),
            differs: Differs::default(),
        })
    }

    fn thread(
        &mut self,
        name: &'static str,
        work: impl FnOnce() -> anyhow::Result<()> + Send + 'static,
    ) -> anyhow::Result<()> {
        let failed = self.failed.clone();
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn(move || {
            let ended = catch_unwind(AssertUnwindSafe(work));
            let ended = ended.unwrap_or_else(|_| fault::end(&format!("the {name} thread has panicked")));
            if let Err(error) = ended {
                // The receiver is gone only when the process ends for another reason.
                let _ = failed.send(error);
            }
        });
        self.threads.push(thread.with_context(|| format!("cannot start the {name} thread"))?);
        Ok(())
    }

    /// Serves incoming connections until the controller is stopped.
    fn serve(&mut self, router: Router<Stack<Arrival, Identity>>, incoming: Incoming, stop: &Stop) {
        let (wish, failed) = (stop.clone(), self.failed.clone());
        self.tasks.spawn(async move {
            if let Err(error) = router.serve_with_incoming_shutdown(incoming, wish.wished()).await {
                // The receiver is gone only when the process ends for another reason.
                let _ = failed.send(anyhow::Error::new(error).context("the service has failed"));
            }
        });
    }

    /// Starts the services for commands and nodes, and the socket for tokens.
    fn listen(
        &mut self,
        desk: Desk,
        (listener, port): (TcpListener, u16),
        window: Window,
        local: &Local,
        keyring: Option<Keyring>,
        stop: &Stop,
    ) {
        let attendance = Attendance {
            agents: desk.agents.clone(),
            renderer: Renderer {
                replica: desk.replica.clone(),
                blobs: desk.blobs.clone(),
                inbox: desk.inbox.clone(),
                epoch: desk.epoch,
            },
            inbox: desk.inbox.clone(),
            heartbeat_interval: local.agent.heartbeat_interval,
            keyring: keyring.clone(),
            stop: stop.clone(),
            journal: desk.journal.clone(),
        };
        fault::vital("holders", desk.holders.clone().watch(desk.replica.clone(), desk.inbox.clone()));
        let (people, nodes) = (Gate::for_people(keyring.clone()), Gate::for_nodes(keyring.clone()));
        let agents = AgentsServer::new(attendance)
            .max_decoding_message_size(MAX_MESSAGE)
            .max_encoding_message_size(MAX_MESSAGE);
        let commands = transport().add_service(InterceptedService::new(controller_service(desk), people));
        let tls = keyring.as_ref().map(|keyring| tls::server(keyring, Role::Controller));
        let limits = Limits::for_process(CONNECTIONS).with_user(local.controller.shares.connections);
        let services = Services::with_controller(keyring, commands.clone(), limits, port);
        let incoming = Incoming::tcp(listener, tls, limits);
        self.serve(commands.add_service(InterceptedService::new(agents, nodes)), incoming, stop);
        let (stop, socket) = (stop.clone(), local.auth.socket.clone());
        self.tasks.spawn(async move {
            Window::hand_out(Some(window), &socket, services, stop.wished()).await;
        });
    }
}
