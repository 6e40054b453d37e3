//! The stream to the controller, which the node opens, and opens again for as long as spurd lives.
//!
//! The registration names the node's resources and the attempts that it holds. Orders come down the stream;
//! heartbeats and reports go up. A controller whose orders are of another history, or of a reign that is
//! over, is refused and left.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prost::bytes::Bytes;
use spur_core::cluster::FeatureLevel;
use spur_core::compute::allegiance::Disobedience;
use spur_core::id::HistoryId;
use spur_core::model::fabric_report::FabricReport;
use spur_core::model::node::NodeShape;
use spur_core::text::address::HostPort;
use spur_proto::auth;
use spur_proto::channel::{DialError, Dialer};
use spur_proto::client::Introduction;
use spur_proto::convert::{BadField, agent};
use spur_proto::keys::Role;
use spur_proto::refusal::{self, PROTOCOL};
use spur_proto::v1;
use spur_proto::v1::agents_client::AgentsClient;
use spur_proto::v1::node_message::Message as Up;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Streaming;

use crate::clock::ControllerClock;
use crate::node::health::StandingWanted;
use crate::node::inventory::{Inventory, Kernel};
use crate::owner::report;
use crate::owner::{Holdings, Message};
use crate::settings::{self, Settings};
use crate::spool::Spool;

/// The first and the longest pause between attempts to reach the controller.
const PAUSES: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(3));
/// The longest pause with several controllers, since another one may have taken over.
const LONGEST_AMONG: Duration = Duration::from_secs(1);
/// Longest wait for the controller's answer to a registration.
const WELCOME: Duration = Duration::from_secs(60);

/// The node's side of the stream.
pub(crate) struct Registrar {
    /// The containment of steps, in the notation of
    /// [`Groups::describe`](crate::node::groups::Groups::describe).
    pub(crate) containment: String,
    pub(crate) settings: watch::Receiver<Arc<Settings>>,
    pub(crate) inventory: Arc<Inventory>,
    pub(crate) spool: Arc<Spool>,
    pub(crate) kernel: Kernel,
    /// `host:port` of the node's service, for clients.
    pub(crate) address: String,
    pub(crate) started: i64,
    /// Random name that distinguishes this process from every other spurd.
    pub(crate) instance: String,
    pub(crate) clock: Arc<ControllerClock>,
    pub(crate) inbox: mpsc::Sender<Message>,
    /// The node's place in the network; each change is registered.
    pub(crate) fabric: watch::Receiver<FabricReport>,
}

/// The reason why a stream ended.
#[derive(Debug, thiserror::Error)]
enum StreamError {
    #[error("cannot be reached: {0}")]
    Unreachable(#[from] DialError),
    #[error("{}", .0.message())]
    Broken(#[from] Box<tonic::Status>),
    #[error("does not answer the registration")]
    Silent,
    #[error("refuses this node: {0}")]
    Refused(String),
    #[error(transparent)]
    Disobeyed(#[from] Disobedience),
    #[error(transparent)]
    Unreadable(#[from] BadField),
    #[error("the stream ended")]
    Ended,
    #[error(transparent)]
    Spool(#[from] std::io::Error),
    #[error("spurd is stopping")]
    Stopping,
    #[error("tells this node to shut down")]
    Dismissed,
}

impl From<tonic::Status> for StreamError {
    fn from(status: tonic::Status) -> Self {
        StreamError::Broken(Box::new(status))
    }
}

impl StreamError {
    /// Returns the index of the leading controller, if a standby has named it.
    fn leader(&self, controllers: &[HostPort]) -> Option<usize> {
        let StreamError::Broken(status) = self else { return None };
        let leader = refusal::leader_of(status)??;
        controllers.iter().position(|controller| controller.to_string() == leader)
    }
}

/// The controller to which a stream was opened, and the outcome.
struct Attended {
    /// Index of the controller in the configuration.
    number: usize,
    /// True if the controller has welcomed this node.
    welcomed: bool,
}

impl Registrar {
    /// Keeps a stream to one of the controllers, until a controller shuts spurd down or the owner ends.
    pub(crate) async fn run(mut self, mut asked: mpsc::Receiver<StandingWanted>) {
        let mut pause = PAUSES.0;
        // The last message logged about each controller, so that the same trouble is logged once.
        let mut said: BTreeMap<HostPort, String> = BTreeMap::new();
        // Index of the next controller to dial, and the number tried since the last pause.
        let (mut next, mut tried) = (0, 0);
        loop {
            let settings = Arc::clone(&self.settings.borrow_and_update());
            let count = settings.controllers.len();
            let longest = if count > 1 { LONGEST_AMONG } else { PAUSES.1 };
            let mut attended = Attended { number: next % count, welcomed: false };
            let ended = self.attend(&settings, &mut attended, &mut asked).await;
            let controller = &settings.controllers[attended.number];
            if attended.welcomed {
                (pause, tried) = (PAUSES.0, 0);
            }
            match ended {
                Ok(()) => {
                    tracing::info!("registering again: the configuration or the place in the network is new");
                    continue;
                }
                Err(StreamError::Stopping) => return,
                Err(StreamError::Dismissed) => {
                    tracing::info!("controller {controller} tells this node to shut down");
                    return;
                }
                Err(error) => {
                    next = error.leader(&settings.controllers).unwrap_or((attended.number + 1) % count);
                    let complaint = error.to_string();
                    if attended.welcomed || said.get(controller) != Some(&complaint) {
                        tracing::warn!("controller {controller} {complaint}");
                    }
                    said.insert(controller.clone(), complaint);
                }
            }
            tried += 1;
            if tried >= count {
                tokio::time::sleep(pause).await;
                (pause, tried) = ((pause * 2).min(longest), 0);
            }
        }
    }

    /// Runs one stream from its opening to its end; `Ok` if the configuration or the node's place in the
    /// network has changed.
    async fn attend(
        &self,
        settings: &Settings,
        attended: &mut Attended,
        asked: &mut mpsc::Receiver<StandingWanted>,
    ) -> Result<(), StreamError> {
        let dialled = dialer(settings).connect_to_any(&settings.controllers, attended.number).await?;
        let channel = dialled.1;
        attended.number = dialled.0;
        let controller = &settings.controllers[attended.number];
        let introduction = Introduction::new(&token(settings)).map_err(|_| StreamError::Ended)?;
        let mut client = AgentsClient::with_interceptor(channel, introduction)
            .max_decoding_message_size(spur_proto::channel::MAX_MESSAGE);
        let (uplink, mut reports) = mpsc::unbounded_channel();
        let (held, holds) = oneshot::channel();
        let connected = Message::Connected { uplink, held };
        self.inbox.send(connected).await.map_err(|_| StreamError::Stopping)?;
        let mut fabric = self.fabric.clone();
        let place = agent::wire_fabric_report(&fabric.borrow_and_update());
        let holdings = holds.await.map_err(|_| StreamError::Stopping)?;
        let hello = self.hello(settings, holdings, place);
        // The node's holdings bound this queue: it contains every report at most once.
        let (up, upwards) = mpsc::unbounded_channel();
        let send = |message: v1::NodeMessage| up.send(message).map_err(|_| StreamError::Ended);
        send(report::message(Up::Hello(hello)))?;
        let opening = async {
            let mut orders = client.attend(UnboundedReceiverStream::new(upwards)).await?.into_inner();
            let first = orders.message().await?.ok_or(StreamError::Ended)?;
            Ok::<_, StreamError>((orders, first))
        };
        let (mut orders, first) =
            tokio::time::timeout(WELCOME, opening).await.map_err(|_| StreamError::Silent)??;
        let welcome = self.welcomed(first)?;
        attended.welcomed = true;
        let (mut news, mut condition, mut unknown) = (self.settings.clone(), self.spool.news(), 0);
        tracing::info!(%controller, cluster = welcome.cluster_name, "registered as {}", settings.name);
        let mut standing_wanted: Option<StandingWanted> = None;
        let mut beat = tokio::time::interval(Duration::from_secs(welcome.heartbeat_interval.max(1).into()));
        loop {
            tokio::select! {
                order = self.next_order(&mut orders, &mut unknown) => match order? {
                    v1::order::Order::Standing(standing) => {
                        // A health check that has stopped waiting needs no answer.
                        let _ = standing_wanted.take().map(|wanted| wanted.send(standing));
                    }
                    v1::order::Order::Ping(_) => send(report::message(Up::Pong(v1::Pong {})))?,
                    order => {
                        let message = Message::Order(Box::new(order));
                        self.inbox.send(message).await.map_err(|_| StreamError::Stopping)?;
                    }
                },
                Some(report) = reports.recv() => {
                    // The controller must know of the disk's fault before it hears of a launch that failed
                    // for it. An operator may have returned the node to service meanwhile.
                    if condition.take() || !self.spool.fault().is_empty() {
                        send(self.heartbeat())?;
                    }
                    send(report)?;
                }
                Some(wanted) = asked.recv() => {
                    standing_wanted = Some(wanted);
                    send(report::message(Up::Standing(v1::StandingQuery {})))?;
                }
                () = condition.changed() => send(self.heartbeat())?,
                _ = beat.tick() => send(self.heartbeat())?,
                changed = news.changed() => return changed.map_err(|_| StreamError::Stopping),
                changed = fabric.changed() => return changed.map_err(|_| StreamError::Stopping),
            }
        }
    }

    /// Checks the controller's first answer, and changes nothing unless this node obeys that controller.
    fn welcomed(&self, mut first: v1::Order) -> Result<v1::Welcome, StreamError> {
        let welcome = match first.order.take() {
            Some(v1::order::Order::Welcome(welcome)) => welcome,
            Some(v1::order::Order::Refusal(refusal)) => {
                return Err(StreamError::Refused(refusal.error.unwrap_or_default().message));
            }
            _ => return Err(StreamError::Refused("orders before a welcome".to_owned())),
        };
        let ancestors = welcome.ancestors.iter().map(|ancestor| agent::history(ancestor));
        let ancestors: Vec<HistoryId> = ancestors.filter_map(Result::transpose).collect::<Result<_, _>>()?;
        let before = self.spool.allegiance();
        let history = agent::history(&first.history)?;
        let after = before.welcomed(history, &ancestors, first.epoch, welcome.reign)?;
        if let (Some(old), Some(new)) = (before.history, after.history)
            && old != new
        {
            tracing::warn!("history {new} goes on from {old}: this node belongs to it from now on");
        }
        self.spool.set_allegiance(after)?;
        self.heed(&first);
        Ok(welcome)
    }

    /// Stores the controller's time, entry number and job number of an order.
    fn heed(&self, order: &v1::Order) {
        self.clock.set(order.now_ms);
        self.spool.tell(order.seq, order.last_job);
    }

    /// Returns the next order that this release knows; `unknown` counts the others of the stream.
    async fn next_order(
        &self,
        orders: &mut Streaming<v1::Order>,
        unknown: &mut u64,
    ) -> Result<v1::order::Order, StreamError> {
        loop {
            let order = orders.message().await?.ok_or(StreamError::Ended)?;
            self.spool.allegiance().obeys(agent::history(&order.history)?, order.epoch)?;
            self.heed(&order);
            match order.order {
                Some(v1::order::Order::Shutdown(_)) => return Err(StreamError::Dismissed),
                Some(order) => return Ok(order),
                None => {
                    *unknown += 1;
                    if unknown.is_power_of_two() {
                        tracing::error!(
                            unknown = *unknown,
                            "the controller is newer: an order of it is skipped"
                        );
                    }
                }
            }
        }
    }

    fn heartbeat(&self) -> v1::NodeMessage {
        report::message(Up::Heartbeat(v1::Heartbeat {
            load_hundredths: self.kernel.load_hundredths(),
            memory_free_mb: self.kernel.memory().available_mb,
            fault: self.spool.fault().to_string(),
        }))
    }

    fn hello(&self, settings: &Settings, holdings: Holdings, fabric: v1::FabricReport) -> v1::Hello {
        let Holdings { attempts, reports } = holdings;
        let uname = rustix::system::uname();
        let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
        let shape: NodeShape = settings.overrides.shape(&self.inventory);
        let (boot_id, boot_time) = match settings.counts_as_boot {
            true => (format!("{}+{}", self.kernel.boot_id(), self.instance), self.started),
            false => (self.kernel.boot_id(), self.kernel.booted_at().unwrap_or(0)),
        };
        let (allegiance, (seq, last_job)) = (self.spool.allegiance(), self.spool.told());
        v1::Hello {
            node_name: settings.name.clone(),
            protocol: PROTOCOL.to_owned(),
            shape: Some(report::shape(&shape)),
            boot_id,
            spool_id: self.spool.id().to_owned(),
            address: self.address.clone(),
            hostname: settings::host_name(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            arch: text(uname.machine()),
            os: format!("{} {}", text(uname.sysname()), text(uname.release())),
            boot_time,
            started_time: self.started,
            attempts,
            reports,
            topology: settings.overrides.topology.clone(),
            instance: self.instance.clone(),
            history: allegiance.history.map_or_else(Bytes::new, |history| history.0.to_vec().into()),
            epoch: allegiance.epoch,
            reign: allegiance.reign,
            seq,
            last_job,
            fault: self.spool.fault().to_string(),
            containment: self.containment.clone(),
            fabric: Some(fabric),
            feature_level: FeatureLevel::NEWEST.0,
        }
    }
}

/// Returns a dialer with this daemon's key that accepts only the controller's key.
fn dialer(settings: &Settings) -> Dialer {
    let Some(keys) = &settings.keys else { return Dialer::believing() };
    let own = keys.own(&Role::Node(settings.name.as_str().into())).into_iter().next();
    Dialer::expecting(&keys.public(&Role::Controller), own)
}

/// Returns a token that identifies this daemon to the controller.
fn token(settings: &Settings) -> String {
    let claims = v1::TokenClaims {
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        user: "spurd".to_owned(),
        group: String::new(),
        expires: now() + auth::TOKEN_SECONDS,
        node: settings.name.clone(),
        groups: Vec::new(),
    };
    match &settings.keys {
        Some(keys) => keys.mint(&claims),
        None => auth::unsigned(&claims),
    }
}

/// Returns this host's time in seconds since the Unix epoch.
pub(crate) fn now() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed())
}
