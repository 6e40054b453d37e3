//! A standby controller: follows the journal, redirects clients to the leader, and takes over.
//!
//! A takeover reads no file: the policy of the journal stays in force. A configuration that differs from
//! that policy is reported in the log, in answers to pings, and in the standby's row in the database.
//! While the database is away, commands that found no leader receive an old answer from the standby's own
//! replica.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context as _, ensure};
use spur_core::cluster::{Cluster, Event};
use spur_core::controller::{self, Command, Input, Reply};
use spur_core::model::config::{Local, Policy};
use spur_core::text::address::HostPort;
use spur_proto::channel::is_local;
use spur_proto::identity::{Services, Window};
use spur_proto::keys::{Keyring, Role};
use spur_proto::listen::{Incoming, Limits};
use spur_proto::tls;
use spur_proto::v1::agents_server::AgentsServer;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tonic::body::Body;
use tonic::codegen::{Service, http};
use tonic::server::NamedService;
use tonic::service::interceptor::InterceptedService;

use crate::agents::{Agents, Attendance};
use crate::archive::Accounts;
use crate::blobs::Blobs;
use crate::clock;
use crate::config_file::ConfigFile;
use crate::holders::Holders;
use crate::owner;
use crate::recover::{self, History, Names};
use crate::reload::Reload;
use crate::rpc::access::Gate;
use crate::rpc::fix::Fixing;
use crate::rpc::quota::Quotas;
use crate::rpc::turns::Turns;
use crate::rpc::{Desk, leased};
use crate::server::{self, CONNECTIONS};
use crate::stop::Stop;
use crate::store::accounting::Accounting;
use crate::store::{Database, Follower, Journal, Place, StoreError, Turn};
use crate::warm::Warm;

/// Interval at which a standby records its progress in the database.
const REPORT: Duration = Duration::from_secs(1);
/// Interval at which a standby checks for a newer snapshot, before which it need not keep entries.
const LOOK_FOR_SNAPSHOT: Duration = Duration::from_secs(10);

/// Configuration, listener and keys of a standby's host.
pub(crate) struct Host<'a> {
    pub(crate) local: &'a Local,
    pub(crate) config_file: ConfigFile,
    pub(crate) listener: &'a TcpListener,
    pub(crate) keyring: Option<Keyring>,
}

/// Differences between the configuration of a standby's host and the policy in force; empty without
/// differences. Clones share one text.
#[derive(Clone, Default)]
pub(crate) struct Differs(Arc<Mutex<String>>);

impl Differs {
    pub(crate) fn read(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, differs: String) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = differs;
    }
}

/// A controller that follows the journal and does not lead.
pub(crate) struct Standby {
    follower: Follower,
    /// The address of this controller, which is its name in the database.
    name: String,
    history: History,
    names: Names,
    warm: Warm,
    accounting: Accounting,
    /// The entry of the snapshot at which `history` begins.
    snapshot: u64,
    differs: Differs,
    config_file: ConfigFile,
    /// Modification time of the configuration file at the last comparison.
    compared: Option<SystemTime>,
    /// Time of this standby's last report of its progress to the database; `None` if a report is due.
    reported: Option<Instant>,
}

/// The state with which a leader begins.
pub(crate) struct Taken {
    pub(crate) journal: Journal,
    pub(crate) accounting: Accounting,
    pub(crate) history: History,
    pub(crate) snapshot: u64,
    /// The reading of the cluster's own clock, in milliseconds; `None` if no leader has recorded it.
    pub(crate) own_ms: Option<i64>,
    /// The replica and the planner that a standby has kept ready; `None` for a controller that leads at
    /// once.
    pub(crate) warm: Option<Warm>,
}

/// Follows the journal until this controller leads; `None` if it was stopped.
///
/// `tell` is called once another controller is seen to lead. `address` is the address of this controller.
pub(crate) async fn follow(
    database: &Database,
    address: &str,
    host: Host<'_>,
    tell: impl FnOnce(),
) -> anyhow::Result<Option<Taken>> {
    let name = address.to_owned();
    let mut follower = Follower::open(database, address).await?;
    let recovered = follower.recover().await?;
    let snapshot = recovered.snapshot_seq;
    let mut names = Names::default();
    let history = recover::recover_with(recovered, &mut names).await?;
    let place = Place::Database { database: database.clone(), address: address.to_owned() };
    let accounting = Accounting::open(place.accounting()).await?;
    let (warm, differs) = (Warm::new(&history.cluster), Differs::default());
    let config_file = host.config_file.clone();
    let mut standby = Standby {
        follower,
        name,
        history,
        names,
        warm,
        accounting,
        snapshot,
        differs,
        config_file,
        compared: None,
        reported: None,
    };
    standby.compare();
    let doors = Doors::open(&standby, host)?;
    let mut signals = Signals::new()?;
    let mut tell = Some(tell);
    let (mut looked, mut seen) = (Instant::now(), None::<u64>);
    loop {
        let turn = tokio::select! {
            turn = standby.follower.turn() => turn?,
            stop = signals.next() => match stop {
                true => {
                    doors.close().await;
                    return Ok(None);
                }
                false => {
                    standby.compare();
                    continue;
                }
            },
        };
        let Turn::Follows { last } = turn else { break };
        if let Some(own_ms) = standby.follower.own_ms() {
            clock::follow(own_ms);
        }
        standby.catch_up(last).await?;
        if standby.reported.is_none_or(|at| at.elapsed() >= REPORT) {
            // A lease that is renewed has a leader that is alive.
            let version = standby.follower.version();
            if seen.is_some_and(|seen| Some(seen) != version)
                && let Some(tell) = tell.take()
            {
                tracing::info!(leader = doors.journal.leader(), "standing by");
                tell();
            }
            (standby.reported, seen) = (Some(Instant::now()), version);
            if standby.config_file.modified() != standby.compared {
                standby.compare();
            }
            standby.report().await;
        }
        if looked.elapsed() >= LOOK_FOR_SNAPSHOT {
            looked = Instant::now();
            standby.forget_before_snapshot().await;
        }
    }
    doors.close().await;
    standby.lead().await.map(Some)
}

impl Standby {
    /// Reads and applies the entries up to `last`.
    async fn catch_up(&mut self, last: u64) -> anyhow::Result<()> {
        let reached = self.history.cluster.seq();
        ensure!(
            last >= reached,
            "the database ends at entry {last}, and entry {reached} was read from it: it was restored, or failed over to \
             a replica that lacked the end; this controller begins anew"
        );
        let mut policy_changed = false;
        while self.history.cluster.seq() < last {
            let page = match self.follower.entries(self.history.cluster.seq()).await {
                Ok(page) => page,
                Err(error @ (StoreError::Damaged { .. } | StoreError::Compacted { .. })) => {
                    return Err(error.into());
                }
                // The next turn reads again.
                Err(error) => {
                    tracing::debug!(%error, "the journal cannot be read now");
                    break;
                }
            };
            if page.is_empty() {
                break;
            }
            let entries = self.history.follow(page, &mut self.names)?;
            self.warm.follow(&entries);
            policy_changed |= entries.iter().any(|entry| matches!(entry.event, Event::PolicyChanged { .. }));
        }
        if policy_changed {
            self.compare();
            self.reported = None;
        }
        Ok(())
    }

    /// Compares this host's configuration with the policy in force, and logs new differences.
    fn compare(&mut self) {
        self.compared = self.config_file.modified();
        let differs = match self.config_file.read() {
            Ok(config) => differences(&self.history.cluster, config.policy),
            Err(error) => format!("{error:#}"),
        };
        if differs != self.differs.read() && !differs.is_empty() {
            tracing::warn!("the configuration of this host is not what is in force: {differs}");
        }
        self.differs.set(differs);
    }

    async fn report(&self) {
        let reported =
            self.follower.report(&self.name, self.history.cluster.seq(), &self.differs.read()).await;
        if let Err(error) = reported {
            tracing::debug!(%error, "this standby cannot say how far it has come");
        }
    }

    /// Drops the entries that the newest snapshot covers.
    async fn forget_before_snapshot(&mut self) {
        match self.follower.snapshot().await {
            Ok(snapshot) if snapshot > self.snapshot && snapshot <= self.history.cluster.seq() => {
                let History { base, entries, .. } = &mut self.history;
                while entries.front().is_some_and(|entry| entry.seq <= snapshot) {
                    if let Some(entry) = entries.pop_front() {
                        base.apply(&entry);
                    }
                }
                self.snapshot = snapshot;
            }
            Ok(_) => {}
            Err(error) => tracing::debug!(%error, "snapshots cannot be looked for now"),
        }
    }

    /// Takes the lead, and reads the entries that the previous leader wrote last.
    async fn lead(mut self) -> anyhow::Result<Taken> {
        let own_ms = self.follower.own_ms();
        let (journal, recovered) = self.follower.lead(&self.name).await?;
        while self.history.cluster.seq() < recovered.last_seq {
            let page = journal.entries(self.history.cluster.seq()).await?;
            ensure!(!page.is_empty(), "entry {} is missing", self.history.cluster.seq() + 1);
            let entries = self.history.follow(page, &mut self.names)?;
            self.warm.follow(&entries);
        }
        let (accounting, warm) = (self.accounting, Some(self.warm));
        Ok(Taken { journal, accounting, history: self.history, snapshot: self.snapshot, own_ms, warm })
    }
}

/// Returns the changes that `scontrol reconfigure` would make, one sentence each.
pub(crate) fn differences(cluster: &Cluster, policy: Policy) -> String {
    if cluster.seq() == 0 {
        return String::new();
    }
    let mut trial = cluster.clone();
    let input = Input::Command {
        caller: owner::daemon(),
        request: None,
        command: Command::Reconfigure(policy.into()),
    };
    let now = clock::now(&trial).max(trial.at());
    match controller::handle(&mut trial, 0, now, input).answer {
        Ok(Reply::Reconfigured { changes }) => changes.join("; "),
        Ok(_) => String::new(),
        Err(refused) => refused.to_string(),
    }
}

/// Returns the configured address of this controller: the one that belongs to this host and has the listening
/// port.
pub(crate) async fn own_address(local: &Local) -> HostPort {
    let (listen, addresses) = (&local.controller.listen_addr, &local.controller.addresses);
    if addresses.contains(listen) {
        return listen.clone();
    }
    for address in addresses {
        if address.port == listen.port && is_local(address).await {
            return address.clone();
        }
    }
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    HostPort { host, port: listen.port }
}

/// Services of a standby: the address of the leader, old answers while the database is away, and tokens
/// for users of its host.
struct Doors {
    journal: Journal,
    stop: Stop,
    tasks: tokio::task::JoinSet<()>,
}

impl Doors {
    fn open(standby: &Standby, host: Host<'_>) -> anyhow::Result<Doors> {
        let (journal, stop) = (standby.follower.journal(), Stop::default());
        let mut tasks = tokio::task::JoinSet::new();
        let (listener, keyring, socket) =
            (server::cloned(host.listener)?, host.keyring.clone(), host.local.auth.socket.clone());
        let limits = Limits::for_process(CONNECTIONS).with_user(host.local.controller.shares.connections);
        let tls = keyring.as_ref().map(|keyring| tls::server(keyring, Role::Controller));
        let incoming = Incoming::tcp(listener, tls, limits);
        let commands = server::controller_service(desk(standby, host, journal.clone(), &stop));
        let router = server::transport()
            .add_service(InterceptedService::new(commands, Gate::for_people(keyring.clone())))
            .add_service(Redirect::<AgentsServer<Attendance>>::with(journal.clone()));
        let stopped = stop.clone();
        tasks.spawn(async move {
            // Without this service no client is redirected, but the lease still works.
            if let Err(error) = router.serve_with_incoming_shutdown(incoming, stopped.wished()).await {
                tracing::error!(%error, "whoever asks this standby is not answered");
            }
        });
        let stopped = stop.clone();
        tasks.spawn(async move {
            match Window::open(&socket).await {
                Ok(window) => {
                    Window::hand_out(window, &socket, Services::tokens(keyring), stopped.wished()).await;
                }
                Err(error) => tracing::warn!(%error, "this standby hands out no tokens"),
            }
        });
        Ok(Doors { journal, stop, tasks })
    }

    async fn close(mut self) {
        self.stop.wish();
        while self.tasks.join_next().await.is_some() {}
    }
}

/// Returns the service of a standby. Calls that need the owner, a node or the database are refused,
/// because a standby has no lease.
fn desk(standby: &Standby, host: Host<'_>, journal: Journal, stop: &Stop) -> Desk {
    let Host { local, config_file, keyring, .. } = host;
    let warm = &standby.warm;
    let inbox = warm.inbox.clone();
    let reload = Reload::new(inbox.clone(), config_file, Arc::new(local.clone()), (keyring.clone(), None));
    Desk {
        blobs: Blobs::new(journal.clone()),
        journal,
        inbox,
        replica: warm.replica.clone(),
        overlay: warm.overlay.clone(),
        agents: Agents::new().0,
        watchers: warm.watchers.clone(),
        changes: warm.changes.clone(),
        holders: Holders::default(),
        accounting: standby.accounting.clone(),
        accounts: Accounts::new().0,
        keyring,
        node_addresses: Arc::new(local.node_addresses.clone()),
        reload,
        quotas: Quotas::new(local.controller.shares),
        turns: Turns::of_this_host(warm.statistics.effort.lists.clone()),
        stop: stop.clone(),
        statistics: warm.statistics.clone(),
        epoch: 0,
        started: clock::wall(),
        copies: Arc::new(tokio::sync::Mutex::new(tokio::sync::mpsc::channel(1).0)),
        fixing: Fixing::default(),
        differs: standby.differs.clone(),
    }
}

/// Answers every call of a service with the way to the leader.
struct Redirect<T> {
    journal: Journal,
    service: PhantomData<fn() -> T>,
}

impl<T> Redirect<T> {
    fn with(journal: Journal) -> Self {
        Self { journal, service: PhantomData }
    }
}

impl<T> Clone for Redirect<T> {
    fn clone(&self) -> Self {
        Self::with(self.journal.clone())
    }
}

impl<T: NamedService> NamedService for Redirect<T> {
    const NAME: &'static str = T::NAME;
}

impl<T> Service<http::Request<Body>> for Redirect<T> {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Request<Body>) -> Self::Future {
        ready(Ok(leased::standing_by(&self.journal).into_http()))
    }
}

/// The signals that a standby obeys.
struct Signals {
    terminate: tokio::signal::unix::Signal,
    interrupt: tokio::signal::unix::Signal,
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn new() -> anyhow::Result<Signals> {
        let listen = |kind| signal(kind).context("signals cannot be received");
        let (terminate, interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Signals { terminate, interrupt, hang_up: listen(SignalKind::hangup())? })
    }

    /// Waits for a signal; true if the process is to end, false if the configuration is to be read again.
    async fn next(&mut self) -> bool {
        tokio::select! {
            _ = self.terminate.recv() => true,
            _ = self.interrupt.recv() => true,
            _ = self.hang_up.recv() => false,
        }
    }
}
