//! A client's way to the controller: finds the one that answers, says who is asking, and asks again where that
//! is safe.
//!
//! A request that changes something carries an id that stays the same however often it is asked, so a reply
//! that was lost on the way costs nothing but time. What the controller refuses is never asked again; what it
//! could not take (no connection, a connection that broke, a queue that is full) is, for [`PATIENCE`].

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use spur_core::text::address::HostPort;
use tokio::time::{Instant, sleep, timeout};
use tonic::metadata::MetadataValue;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status, Streaming};
use uuid::Uuid;

use crate::auth;
use crate::channel::{
    AddressError, CALL_TIMEOUT, DialError, Dialer, MAX_MESSAGE, MAX_REPLY, connect_locally, is_local,
};
use crate::keys::{ClusterKeys, PublicKey, Role};
use crate::refusal;
use crate::v1::controller_client::ControllerClient;
use crate::v1::identity_client::IdentityClient;
use crate::v1::{
    CancelJobsRequest, ChangeAccountsRequest, CreateNodesRequest, CreatePartitionRequest,
    CreateReservationRequest, CreateStepRequest, DeleteNodesRequest, DeletePartitionRequest,
    DeleteReservationRequest, EndAllocationRequest, HoldJobsRequest, ReleaseJobsRequest, RequeueJobsRequest,
    SubmitRequest, SuspendJobsRequest, TopJobsRequest, UpdateJobRequest, UpdateNodesRequest,
    UpdatePartitionRequest, UpdateReservationRequest,
};
use crate::v1::{MintTokenRequest, TokenClaims};

/// For how long a controller that cannot be reached, or is busy, is asked again.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The time for which a command tries to reach one of several controllers, as one of them may have to take over first.
pub const PATIENCE_AMONG: Duration = Duration::from_secs(60);

/// Jobs that a command names in one request: many more than these are asked for in several, between which others are
/// served.
pub const JOBS_AT_ONCE: usize = 1000;

/// For how long one that is busy is asked again: it serves others meanwhile, or too much of ours.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(300);

/// How long a daemon of this host may take to give a token, and how often one is asked for.
const MINT_TIMEOUT: Duration = Duration::from_secs(7);
const MINT_TRIES: u32 = 3;

/// How long is waited before a call is made again: at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// A call that has come to nothing for so long is told of.
const TELL_AFTER: Duration = Duration::from_millis(500);
/// A token that expires sooner than this is not used any more, in seconds.
const TOKEN_MARGIN: i64 = 30;

/// The controller's service, with who is asking already in every call.
pub type Controller = ControllerClient<InterceptedService<Channel, Introduction>>;

/// How a client says who it is, and learns whom to say it to.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Gets tokens from the daemon behind a Unix socket, which asks the kernel.
    Socket {
        /// The socket.
        path: PathBuf,
        /// Who may serve it, beside root and this user.
        served_by: Vec<u32>,
        /// Where controllers are known by certificates, not by the keys that the daemon tells.
        certified: Option<Dialer>,
    },
    /// Says so itself, as whoever has the cluster's keys can.
    Keys(Arc<ClusterKeys>, TokenClaims),
    /// Says so itself, where the cluster uses no keys.
    Unsigned(TokenClaims),
}

/// Why a call came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The controller has said no.
    #[error("{message}")]
    Refused {
        /// Slurm's name of the error, e.g. `ESLURM_INVALID_PARTITION_NAME`.
        code: String,
        /// The sentence for people.
        message: String,
    },
    /// The controller is there but cannot take requests now.
    #[error("Slurm controller is busy: {0}")]
    Busy(String),
    /// The controller is there, and its database does not answer.
    #[error("Slurm controller is busy: {0}")]
    Away(String),
    /// The controller that was asked does not lead.
    #[error("Unable to contact slurm controller (connect failure): {message}")]
    Standby {
        /// Where the leader is, as far as the standby knows.
        leader: Option<String>,
        /// The standby's sentence.
        message: String,
    },
    /// There is no connection.
    #[error("Unable to contact slurm controller (connect failure) at {address}")]
    Unreachable {
        /// Who does not answer.
        address: String,
        /// What the system said.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke while the call was under way.
    #[error("Unable to contact slurm controller (receive failure) at {address}: {detail}")]
    Broken {
        /// With whom.
        address: String,
        /// What is known of it.
        detail: String,
    },
    /// The controller did not answer.
    #[error("Socket timed out on send/recv operation: {address} did not answer within {} s", waited.as_secs())]
    TimedOut {
        /// Who.
        address: String,
        /// For how long that was awaited.
        waited: Duration,
    },
    /// The daemon of this host gives no token.
    #[error("cannot get a token at {}; is spurd or spurctld running on this host?", socket.display())]
    NoToken {
        /// Where tokens come from.
        socket: PathBuf,
        /// What went wrong.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Whoever answers there would be believed.
    #[error(transparent)]
    Afar(DialError),
}

impl CallError {
    /// Whether the controller has answered, and said no.
    pub fn is_refusal(&self) -> bool {
        matches!(self, CallError::Refused { .. })
    }

    /// What a failed call to `address` means.
    pub fn from_status(status: &Status, address: &str) -> CallError {
        if let Some(leader) = refusal::leader_of(status) {
            let (leader, message) = (leader.map(str::to_owned), status.message().to_owned());
            return CallError::Standby { leader, message };
        }
        if let Some(error) = refusal::error_of(status) {
            return match status.code() {
                _ if error.code == refusal::BUSY => CallError::Busy(error.message),
                _ if error.code == refusal::AWAY => CallError::Away(error.message),
                Code::Unavailable => CallError::Broken { address: address.to_owned(), detail: error.message },
                _ => CallError::Refused { code: error.code, message: error.message },
            };
        }
        let detail = detail(status);
        match status.code() {
            Code::Unavailable | Code::Unknown | Code::Internal | Code::Cancelled | Code::DeadlineExceeded => {
                CallError::Broken { address: address.to_owned(), detail }
            }
            code => CallError::Refused { code: format!("{code:?}"), message: status.message().to_owned() },
        }
    }

    /// Whether asking again may help.
    pub fn is_transient(&self) -> bool {
        match self {
            CallError::Busy(_)
            | CallError::Away(_)
            | CallError::Standby { .. }
            | CallError::Unreachable { .. }
            | CallError::Broken { .. }
            | CallError::NoToken { .. } => true,
            CallError::Refused { .. }
            | CallError::TimedOut { .. }
            | CallError::Address(_)
            | CallError::Afar(_) => false,
        }
    }

    /// Slurm's name of the error, if the controller gave one.
    pub fn code(&self) -> Option<&str> {
        match self {
            CallError::Refused { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// A request that changes something, and is the same one when it is asked again.
pub trait Mutation: Clone {
    /// Gives it its id, and says whether it may have been asked before.
    fn identify(&mut self, id: Bytes, retry: bool);
}

macro_rules! mutations {
    ($($request:ty),+ $(,)?) => {$(
        impl Mutation for $request {
            fn identify(&mut self, id: Bytes, retry: bool) {
                self.request_id = id;
                self.retry = retry;
            }
        }
    )+};
}
mutations!(
    SubmitRequest,
    CancelJobsRequest,
    UpdateJobRequest,
    HoldJobsRequest,
    ReleaseJobsRequest,
    RequeueJobsRequest,
    SuspendJobsRequest,
    CreateStepRequest,
    UpdateNodesRequest,
    UpdatePartitionRequest,
    CreatePartitionRequest,
    DeletePartitionRequest,
    CreateNodesRequest,
    DeleteNodesRequest,
    CreateReservationRequest,
    UpdateReservationRequest,
    DeleteReservationRequest,
    EndAllocationRequest,
    TopJobsRequest,
    ChangeAccountsRequest,
);

/// Puts token and protocol version into every call.
#[derive(Clone, Debug)]
pub struct Introduction {
    authorization: MetadataValue<tonic::metadata::Ascii>,
    takes_old: bool,
}

impl Introduction {
    /// Introduces the owner of `token`.
    ///
    /// # Errors
    /// A token with characters that no token has.
    pub fn new(token: &str) -> Result<Introduction, tonic::metadata::errors::InvalidMetadataValue> {
        Ok(Introduction { authorization: format!("{}{token}", auth::SCHEME).parse()?, takes_old: false })
    }

    /// Accepts old answers of a controller whose database is away.
    #[must_use]
    pub fn taking_old_answers(self) -> Introduction {
        Introduction { takes_old: true, ..self }
    }
}

impl Interceptor for Introduction {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let metadata = request.metadata_mut();
        metadata.insert("authorization", self.authorization.clone());
        metadata.insert(refusal::VERSION_KEY, MetadataValue::from_static(refusal::PROTOCOL));
        if self.takes_old {
            metadata.insert(refusal::STALE_KEY, MetadataValue::from_static("1"));
        }
        Ok(request)
    }
}

/// The way to the controller of a cluster, which may be one of several hosts. Clones share what is open.
#[derive(Clone)]
pub struct Connection {
    controllers: Vec<(String, HostPort)>,
    /// Which of them is asked.
    current: usize,
    identity: Identity,
    /// With the end of the token's life, in epoch seconds.
    open: Option<(Controller, i64)>,
    patience: Duration,
    /// Whom to tell that somebody is waited for.
    notice: Option<Notice>,
    /// Whether old answers are taken: no controller leads, and the database of one is away.
    takes_old: bool,
    /// Since when answers may be old, in seconds since the Unix epoch, where one said so.
    old_since: Option<i64>,
    /// Whom to tell that an answer is old, once.
    old_notice: Option<OldNotice>,
}

/// Is told since when an answer may be old, in seconds since the Unix epoch.
type OldNotice = Arc<dyn Fn(i64) + Send + Sync>;

/// Is told why something takes long.
type Notice = Arc<dyn Fn(&CallError) + Send + Sync>;

/// Whom to tell that a call takes long, and when.
struct Wait {
    notice: Option<Notice>,
    tell_at: Instant,
}

impl Wait {
    fn tell(&mut self, why: &CallError) {
        if let Some(notice) = self.notice.take() {
            notice(why);
        }
    }
}

impl Connection {
    /// Prepares the way; nothing is connected before the first call.
    ///
    /// # Errors
    /// An address that is none, or no address at all.
    pub fn new(controllers: &[HostPort], identity: Identity) -> Result<Connection, CallError> {
        if controllers.is_empty() {
            return Err(AddressError(String::new()).into());
        }
        let controllers: Vec<_> =
            controllers.iter().map(|address| (address.to_string(), address.clone())).collect();
        let patience = if controllers.len() > 1 { PATIENCE_AMONG } else { PATIENCE };
        Ok(Connection {
            controllers,
            current: 0,
            identity,
            open: None,
            patience,
            notice: None,
            takes_old: false,
            old_since: None,
            old_notice: None,
        })
    }

    /// The same with another patience; none at all asks every controller once.
    pub fn with_patience(self, patience: Duration) -> Connection {
        Connection { patience, ..self }
    }

    /// From now on asks again for so long; not at all asks every controller once.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// From now on tells why a call takes long: once for each, when it has waited for half a second for a controller that
    /// cannot be reached, and goes on waiting.
    pub fn set_notice(&mut self, notice: impl Fn(&CallError) + Send + Sync + 'static) {
        self.notice = Some(Arc::new(notice));
    }

    /// From now on tells, once, that an answer may be old, and since when, in seconds since the Unix epoch.
    pub fn set_old_notice(&mut self, notice: impl Fn(i64) + Send + Sync + 'static) {
        self.old_notice = Some(Arc::new(notice));
    }

    /// Since when what was read may be old, in seconds since the Unix epoch: the controller's database was away. `None` where
    /// everything is as it was when it was asked for.
    pub fn old_since(&self) -> Option<i64> {
        self.old_since
    }

    /// How many hosts the controller may be on.
    pub fn controllers(&self) -> usize {
        self.controllers.len()
    }

    /// A connection to each of these hosts alone.
    pub fn each(&self) -> Vec<Connection> {
        let alone = |controller: &(String, HostPort)| Connection {
            controllers: vec![controller.clone()],
            current: 0,
            open: None,
            ..self.clone()
        };
        self.controllers.iter().map(alone).collect()
    }

    /// The address of the controller that is asked.
    pub fn address(&self) -> &str {
        &self.controllers[self.current].0
    }

    /// Asks for something that changes nothing, or opens a stream of it.
    ///
    /// # Errors
    /// A refusal, or the last failure when patience ran out.
    pub async fn read<Q: Clone, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        self.repeat((Some(CALL_TIMEOUT), true), |_| request.clone(), call).await
    }

    /// Asks for a list, and reads it to its end. One that breaks off is asked for anew for as long as patience lasts.
    ///
    /// # Errors
    /// A refusal, or the last failure when patience ran out.
    pub async fn list<Q: Clone, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<Streaming<A>>, Status>,
    ) -> Result<Vec<A>, CallError> {
        let give_up = Instant::now() + self.patience;
        loop {
            let mut stream = self.read(request.clone(), &call).await?;
            let mut all = Vec::new();
            let error = loop {
                match self.next(&mut stream).await {
                    Ok(Some(message)) => all.push(message),
                    Ok(None) => return Ok(all),
                    Err(error) => break error,
                }
            };
            if !error.is_transient() || Instant::now() >= give_up {
                return Err(error);
            }
        }
    }

    /// Asks for a change; it is made once however often it had to be asked for.
    ///
    /// # Errors
    /// A refusal, or the last failure when patience ran out.
    pub async fn change<Q: Mutation, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        self.repeat((Some(CALL_TIMEOUT), false), identified(request), call).await
    }

    /// Like [`Connection::change`] for what may have to wait for others; only a lost connection ends it.
    ///
    /// # Errors
    /// A refusal, or the last failure when patience ran out.
    pub async fn change_when_possible<Q: Mutation, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        self.repeat((None, false), identified(request), call).await
    }

    /// The next message of a stream, `None` at its end.
    ///
    /// # Errors
    /// A refusal or a broken connection.
    pub async fn next<T>(&self, stream: &mut Streaming<T>) -> Result<Option<T>, CallError> {
        stream.message().await.map_err(|status| CallError::from_status(&status, self.address()))
    }

    async fn repeat<Q, A>(
        &mut self,
        (limit, reads): (Option<Duration>, bool),
        request: impl Fn(bool) -> Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        let mut pause = FIRST_PAUSE;
        let mut give_up = Instant::now() + self.patience;
        let busy_until = Instant::now() + BUSY_PATIENCE;
        // `tried` counts the controllers that were asked since the last pause.
        let (mut attempt, mut tried) = (0_usize, 0_usize);
        let notice = self.notice.clone().filter(|_| !self.patience.is_zero());
        let mut wait = Wait { notice, tell_at: Instant::now() + TELL_AFTER };
        // What a controller whose database is away has said since the last pause.
        let mut away = None;
        loop {
            let (begun, known) = (Instant::now(), self.open.is_some());
            let error = match self.attempt(limit, request(attempt > 0), &call, &mut wait).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // A token of a key that was valid when it was fetched; a new one is of the key that is.
            let outdated = known && error.code() == Some(auth::BAD_TOKEN);
            if outdated {
                self.open = None;
                continue;
            }
            if !error.is_transient() {
                self.open = None;
                return Err(error);
            }
            if matches!(error, CallError::Busy(_)) && !self.patience.is_zero() {
                // It is there, and serves others or us: its time will come.
                let rest = pause.min(busy_until.saturating_duration_since(Instant::now()));
                if rest.is_zero() {
                    return Err(error);
                }
                sleep(rest).await;
                (pause, give_up) = ((pause * 2).min(LONGEST_PAUSE), Instant::now() + self.patience);
                attempt += 1;
                continue;
            }
            self.open = None;
            if matches!(error, CallError::Broken { .. }) {
                // It was there until a moment ago: the time of the call itself is no time spent in vain.
                give_up += begun.elapsed();
            }
            attempt += 1;
            tried += 1;
            self.current = self.leader_of(&error).unwrap_or((self.current + 1) % self.controllers.len());
            if let CallError::Away(why) = &error {
                away = Some(why.clone());
            }
            if tried < self.controllers.len() {
                continue;
            }
            // Nobody leads: an old answer is better than none.
            if reads && away.is_some() && !self.takes_old {
                (self.takes_old, tried, away) = (true, 0, None);
                continue;
            }
            tried = 0;
            let error = away.take().map_or(error, CallError::Away);
            let is_away = matches!(error, CallError::Away(_)) && !reads && !self.patience.is_zero();
            if is_away {
                // The controller is there, and goes on by itself when its database is back.
                give_up = busy_until;
            }
            if Instant::now() + pause > give_up {
                return Err(error);
            }
            if Instant::now() + pause > wait.tell_at {
                wait.tell(&error);
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if is_away {
                give_up = Instant::now() + self.patience;
            }
        }
    }

    /// The number of the controller that leads, where a standby has said so.
    fn leader_of(&self, error: &CallError) -> Option<usize> {
        let CallError::Standby { leader: Some(leader), .. } = error else { return None };
        self.controllers.iter().position(|(address, _)| address == leader)
    }

    async fn attempt<Q, A>(
        &mut self,
        limit: Option<Duration>,
        request: Q,
        call: &impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
        wait: &mut Wait,
    ) -> Result<A, CallError> {
        let address = self.address().to_owned();
        let controller = {
            let mut reached = std::pin::pin!(self.controller());
            match tokio::time::timeout_at(wait.tell_at, &mut reached).await {
                Ok(controller) => controller?,
                Err(late) => {
                    wait.tell(&CallError::Unreachable { address, source: late.into() });
                    reached.await?
                }
            }
        };
        let answer = call(controller, Request::new(request));
        let answer = match limit {
            None => answer.await,
            Some(limit) => timeout(limit, answer)
                .await
                .map_err(|_| CallError::TimedOut { address: self.address().to_owned(), waited: limit })?,
        };
        let answer = answer.map_err(|status| CallError::from_status(&status, self.address()))?;
        let since = answer.metadata().get(refusal::STALE_KEY).and_then(|since| since.to_str().ok());
        self.old_since = since.and_then(|since| since.parse().ok());
        if let Some(since) = self.old_since
            && let Some(notice) = self.old_notice.take()
        {
            notice(since);
        }
        if self.takes_old && self.old_since.is_none() {
            // The next call asks for what is so now, with another introduction.
            (self.takes_old, self.open) = (false, None);
        }
        Ok(answer.into_inner())
    }

    async fn controller(&mut self) -> Result<Controller, CallError> {
        if let Some((controller, expires)) = &self.open
            && *expires > epoch_seconds() + TOKEN_MARGIN
        {
            return Ok(controller.clone());
        }
        let Introduced { token, expires, way } = self.introduced().await?;
        let channel = match way {
            Way::Open(channel) => channel,
            Way::Dial(dialer) => {
                let addresses: Vec<HostPort> =
                    self.controllers.iter().map(|(_, address)| address.clone()).collect();
                let connected = dialer.connect_to_any(&addresses, self.current).await;
                let connected = connected.map_err(|error| match error {
                    DialError::Address(error) => CallError::Address(error),
                    error @ DialError::Afar(_) => CallError::Afar(error),
                    error @ DialError::Unreachable(_) => {
                        CallError::Unreachable { address: self.address().to_owned(), source: error.into() }
                    }
                })?;
                self.current = connected.0;
                connected.1
            }
        };
        let introduction = Introduction::new(&token).map_err(|_| CallError::Refused {
            code: auth::BAD_TOKEN.into(),
            message: "the token that this host's daemon gave out is malformed".into(),
        })?;
        let introduction = if self.takes_old { introduction.taking_old_answers() } else { introduction };
        let controller = ControllerClient::with_interceptor(channel, introduction)
            .max_decoding_message_size(MAX_REPLY)
            .max_encoding_message_size(MAX_MESSAGE);
        self.open = Some((controller.clone(), expires));
        Ok(controller)
    }

    /// A token, and the way to whom it may be shown.
    async fn introduced(&self) -> Result<Introduced, CallError> {
        match &self.identity {
            Identity::Unsigned(claims) => {
                let expires = epoch_seconds() + auth::TOKEN_SECONDS;
                let token = auth::unsigned(&TokenClaims { expires, ..claims.clone() });
                Ok(Introduced { token, expires, way: Way::Dial(Dialer::believing()) })
            }
            Identity::Keys(keys, claims) => {
                let expires = epoch_seconds() + auth::TOKEN_SECONDS;
                let token = keys.mint(&TokenClaims { expires, ..claims.clone() });
                let dialer = Dialer::expecting(&keys.public(&Role::Controller), None);
                Ok(Introduced { token, expires, way: Way::Dial(dialer) })
            }
            Identity::Socket { path, served_by, certified } => {
                let failed = |source| CallError::NoToken { socket: path.clone(), source };
                let minted = async || {
                    let channel = connect_locally(path, served_by).await?;
                    let answer = IdentityClient::new(channel.clone()).mint_token(MintTokenRequest {}).await;
                    let minted = answer.map(Response::into_inner);
                    minted
                        .map(|minted| (minted, channel))
                        .map_err(|status| status.message().to_owned().into())
                };
                let mut tries = 0;
                let minted: Result<_, Box<dyn std::error::Error + Send + Sync>> = loop {
                    tries += 1;
                    match timeout(MINT_TIMEOUT, minted()).await {
                        Ok(minted) => break minted,
                        // Another daemon of this host takes the place of one that stands still.
                        Err(_) if tries < MINT_TRIES => {}
                        Err(_) => break Err("no answer".into()),
                    }
                };
                let (minted, channel) = minted.map_err(failed)?;
                let (token, expires) = (minted.token, minted.expires);
                // Where it shows a certificate, it is known by nothing else.
                let address = &self.controllers[self.current].1;
                let is_at_socket =
                    minted.controller_port == u32::from(address.port) && is_local(address).await;
                if certified.is_none() && is_at_socket {
                    return Ok(Introduced { token, expires, way: Way::Open(channel) });
                }
                let keys = minted.controller_keys.iter().filter_map(|key| PublicKey::from_bytes(key));
                let keys: Vec<PublicKey> = keys.collect();
                let dialer = match certified {
                    Some(certified) => certified.clone(),
                    None if keys.is_empty() => return Err(failed("it names no controller's key".into())),
                    None => Dialer::expecting(&keys, None),
                };
                Ok(Introduced { token, expires, way: Way::Dial(dialer) })
            }
        }
    }
}

/// What a connection begins with.
struct Introduced {
    token: String,
    /// Epoch seconds.
    expires: i64,
    way: Way,
}

/// The way to the controller.
enum Way {
    /// It is where the token came from.
    Open(Channel),
    Dial(Dialer),
}

fn identified<Q: Mutation>(request: Q) -> impl Fn(bool) -> Q {
    // Ids that begin with the time lie side by side where the controller keeps them.
    let id = Bytes::copy_from_slice(Uuid::now_v7().as_bytes());
    move |retry| {
        let mut request = request.clone();
        request.identify(id.clone(), retry);
        request
    }
}

/// What went wrong with a call that nobody refused.
pub fn detail(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => innermost(source),
        None => status.message().to_owned(),
    }
}

/// The text of the error at the bottom: what the system said, without the layers above it.
pub fn innermost(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

fn epoch_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}
