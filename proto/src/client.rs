//! A client's connection to the controller: finds the leader, authenticates, and repeats calls where that is
//! safe.
//!
//! A request that changes the cluster carries an id that stays the same in every repetition, so a lost reply
//! costs only time. A refusal is final. A call that failed otherwise (no connection, a broken connection, a
//! full queue) is repeated, for [`PATIENCE`].

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
    DeleteReservationRequest, EndAllocationRequest, HoldJobsRequest, ImportHistoryRequest,
    RaiseFeatureLevelRequest, ReleaseJobsRequest, RequeueJobsRequest, SubmitRequest, SuspendJobsRequest,
    TopJobsRequest, UpdateJobRequest, UpdateNodesRequest, UpdatePartitionRequest, UpdateReservationRequest,
};
use crate::v1::{MintTokenRequest, TokenClaims};

/// Time for which a call to an unreachable controller is repeated.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// Time for which a call to one of several controllers is repeated, as one of them may have to take over
/// first.
pub const PATIENCE_AMONG: Duration = Duration::from_secs(60);

/// Number of jobs that a command names in one request. Many more are split into several requests, between
/// which other users are served.
pub const JOBS_AT_ONCE: usize = 1000;

/// Time for which a call to a busy controller is repeated: it serves others meanwhile, or too many calls of
/// this user.
pub const BUSY_PATIENCE: Duration = Duration::from_secs(300);

/// Longest wait for a token from a daemon of this host, and the number of attempts.
const MINT_TIMEOUT: Duration = Duration::from_secs(7);
const MINT_TRIES: u32 = 3;

/// First and longest pause before a call is repeated.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// Time without success after which the user is informed about a call.
const TELL_AFTER: Duration = Duration::from_millis(500);
/// Remaining lifetime below which a token is not used any more, in seconds.
const TOKEN_MARGIN: i64 = 30;

/// The controller's service, with the token in every call.
pub type Controller = ControllerClient<InterceptedService<Channel, Introduction>>;

/// The way in which a client authenticates.
#[derive(Clone, Debug)]
pub enum Identity {
    /// Tokens come from the daemon behind a Unix socket, which gets the user from the kernel.
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// Users who may serve the socket, beside root and this user.
        served_by: Vec<u32>,
        /// Dialer for controllers that are known by certificates; `None` for keys that the daemon names.
        certified: Option<Dialer>,
    },
    /// The client signs its own tokens with the cluster's keys.
    Keys(Arc<ClusterKeys>, TokenClaims),
    /// The client makes unsigned tokens, in a cluster without keys.
    Unsigned(TokenClaims),
}

/// The reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The controller has refused the request.
    #[error("{message}")]
    Refused {
        /// Slurm's name of the error, e.g. `ESLURM_INVALID_PARTITION_NAME`.
        code: String,
        /// The sentence for the user.
        message: String,
    },
    /// The controller answers, but accepts no requests at the moment.
    #[error("Slurm controller is busy: {0}")]
    Busy(String),
    /// The controller answers, but its database does not.
    #[error("Slurm controller is busy: {0}")]
    Away(String),
    /// The controller that was asked is not the leader.
    #[error("Unable to contact slurm controller (connect failure): {message}")]
    Standby {
        /// The leader's address, if the standby knows it.
        leader: Option<String>,
        /// The standby's sentence.
        message: String,
    },
    /// There is no connection.
    #[error("Unable to contact slurm controller (connect failure) at {address}")]
    Unreachable {
        /// The address that was dialled.
        address: String,
        /// The system's error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The connection broke during the call.
    #[error("Unable to contact slurm controller (receive failure) at {address}: {detail}")]
    Broken {
        /// Address of the peer.
        address: String,
        /// Description of the failure.
        detail: String,
    },
    /// The controller did not answer in time.
    #[error("Socket timed out on send/recv operation: {address} did not answer within {} s", waited.as_secs())]
    TimedOut {
        /// Address of the controller.
        address: String,
        /// Time that the client waited.
        waited: Duration,
    },
    /// The daemon of this host gave no token.
    #[error("cannot get a token at {}; is spurd or spurctld running on this host?", socket.display())]
    NoToken {
        /// Path of the socket for tokens.
        socket: PathBuf,
        /// The underlying error.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address is not on loopback, and without keys any server there would be trusted.
    #[error(transparent)]
    Afar(DialError),
}

impl CallError {
    /// True if the controller has refused the request.
    pub fn is_refusal(&self) -> bool {
        matches!(self, CallError::Refused { .. })
    }

    /// Classifies a failed call to `address`.
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
            Code::Unimplemented if status.message().is_empty() => {
                let message = "the controller runs an older release, which does not know this request; upgrade it first";
                CallError::Refused { code: "Unimplemented".to_owned(), message: message.to_owned() }
            }
            code => CallError::Refused { code: format!("{code:?}"), message: status.message().to_owned() },
        }
    }

    /// True if repeating the call may help.
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

    /// Returns Slurm's name of the error, if the controller gave one.
    pub fn code(&self) -> Option<&str> {
        match self {
            CallError::Refused { code, .. } => Some(code),
            _ => None,
        }
    }
}

/// A request that changes the cluster, with the same id in every repetition.
pub trait Mutation: Clone {
    /// Sets the request's id; `retry` is true if the request may have been handled before.
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
    ImportHistoryRequest,
    RaiseFeatureLevelRequest,
);

/// Adds token and protocol version to every call.
#[derive(Clone, Debug)]
pub struct Introduction {
    authorization: MetadataValue<tonic::metadata::Ascii>,
    takes_old: bool,
}

impl Introduction {
    /// Returns an interceptor with this token.
    ///
    /// # Errors
    /// Fails if the token has characters that metadata cannot carry.
    pub fn new(token: &str) -> Result<Introduction, tonic::metadata::errors::InvalidMetadataValue> {
        Ok(Introduction { authorization: format!("{}{token}", auth::SCHEME).parse()?, takes_old: false })
    }

    /// Accepts outdated answers of a controller whose database does not answer.
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

/// The connection to the controller of a cluster, which may be on one of several hosts. Clones share open
/// connections.
#[derive(Clone)]
pub struct Connection {
    controllers: Vec<(String, HostPort)>,
    /// Index of the controller that is asked.
    current: usize,
    identity: Identity,
    /// The open service, with the end of its token's life in seconds since the Unix epoch.
    open: Option<(Controller, i64)>,
    patience: Duration,
    /// Called when a call takes long.
    notice: Option<Notice>,
    /// True while outdated answers are accepted, because no controller leads and the database of one does not
    /// answer.
    takes_old: bool,
    /// Seconds since the Unix epoch from which on answers may be outdated; `None` if none was.
    old_since: Option<i64>,
    /// Called once when an answer is outdated.
    old_notice: Option<OldNotice>,
}

/// Receives the seconds since the Unix epoch from which on an answer may be outdated.
type OldNotice = Arc<dyn Fn(i64) + Send + Sync>;

/// Receives the reason why a call takes long.
type Notice = Arc<dyn Fn(&CallError) + Send + Sync>;

/// The notice about a slow call, and the instant at which it is due.
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
    /// Prepares a connection; nothing is dialled before the first call.
    ///
    /// # Errors
    /// Fails without an address.
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

    /// Returns this connection with another time limit for repetitions; zero asks every controller once.
    pub fn with_patience(self, patience: Duration) -> Connection {
        Connection { patience, ..self }
    }

    /// Sets the time limit for repetitions; zero asks every controller once.
    pub fn set_patience(&mut self, patience: Duration) {
        self.patience = patience;
    }

    /// Sets the notice about slow calls. It is called once for each call that has waited half a second for an
    /// unreachable controller and goes on waiting.
    pub fn set_notice(&mut self, notice: impl Fn(&CallError) + Send + Sync + 'static) {
        self.notice = Some(Arc::new(notice));
    }

    /// Sets the notice about outdated answers. It is called once, with seconds since the Unix epoch.
    pub fn set_old_notice(&mut self, notice: impl Fn(i64) + Send + Sync + 'static) {
        self.old_notice = Some(Arc::new(notice));
    }

    /// Returns the seconds since the Unix epoch from which on answers may be outdated, because the
    /// controller's database does not answer; `None` if all answers are current.
    pub fn old_since(&self) -> Option<i64> {
        self.old_since
    }

    /// Returns the number of configured controllers.
    pub fn controllers(&self) -> usize {
        self.controllers.len()
    }

    /// Returns a separate connection to each controller.
    pub fn each(&self) -> Vec<Connection> {
        let alone = |controller: &(String, HostPort)| Connection {
            controllers: vec![controller.clone()],
            current: 0,
            open: None,
            ..self.clone()
        };
        self.controllers.iter().map(alone).collect()
    }

    /// Returns the address of the controller that is asked.
    pub fn address(&self) -> &str {
        &self.controllers[self.current].0
    }

    /// Makes a call that changes nothing, or opens a stream.
    ///
    /// # Errors
    /// A refusal, or the last failure when the time limit is over.
    pub async fn read<Q: Clone, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        self.repeat((Some(CALL_TIMEOUT), true), |_| request.clone(), call).await
    }

    /// Reads a list to its end. A list that breaks off is read again from its beginning, within the time
    /// limit.
    ///
    /// # Errors
    /// A refusal, or the last failure when the time limit is over.
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

    /// Makes a change, which takes effect once however often the call is repeated.
    ///
    /// # Errors
    /// A refusal, or the last failure when the time limit is over.
    pub async fn change<Q: Mutation, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        self.repeat((Some(CALL_TIMEOUT), false), identified(request), call).await
    }

    /// Makes a change that may have to wait for other users, without a time limit for the answer.
    ///
    /// # Errors
    /// A refusal, or the last failure when the time limit is over.
    pub async fn change_when_possible<Q: Mutation, A>(
        &mut self,
        request: Q,
        call: impl AsyncFn(Controller, Request<Q>) -> Result<Response<A>, Status>,
    ) -> Result<A, CallError> {
        self.repeat((None, false), identified(request), call).await
    }

    /// Returns the next message of a stream, `None` at its end.
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
        // The last refusal, since the pause, of a controller whose database is away.
        let mut away = None;
        loop {
            let (begun, known) = (Instant::now(), self.open.is_some());
            let error = match self.attempt(limit, request(attempt > 0), &call, &mut wait).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            // The token was signed with a key that is no longer valid; a new token uses a valid one.
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
                // The controller runs and serves other requests first, so the call is repeated for longer.
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
                // The controller was alive until a moment ago, so the time of the call itself does not count.
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
                // The controller runs, and continues by itself when its database is back.
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

    /// Returns the index of the leading controller, if a standby has named it.
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
            // The next call asks for current answers again, with a new interceptor.
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
                    error @ (DialError::Unreachable(_) | DialError::Unanswered(_)) => {
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

    /// Returns a token, and the way to the controller that may see it.
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
                        // Another daemon of this host takes over from one that does not respond.
                        Err(_) if tries < MINT_TRIES => {}
                        Err(_) => break Err("no answer".into()),
                    }
                };
                let (minted, channel) = minted.map_err(failed)?;
                let (token, expires) = (minted.token, minted.expires);
                // A controller with a certificate is recognised by nothing else.
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

/// A token with the way to the controller.
struct Introduced {
    token: String,
    /// End of the token's life, in seconds since the Unix epoch.
    expires: i64,
    way: Way,
}

/// The way to the controller.
enum Way {
    /// The controller is behind the socket from which the token came.
    Open(Channel),
    Dial(Dialer),
}

fn identified<Q: Mutation>(request: Q) -> impl Fn(bool) -> Q {
    // Ids that begin with the time are adjacent in the controller's index.
    let id = Bytes::copy_from_slice(Uuid::now_v7().as_bytes());
    move |retry| {
        let mut request = request.clone();
        request.identify(id.clone(), retry);
        request
    }
}

/// Describes the failure of a call that was not refused.
pub fn detail(status: &Status) -> String {
    match std::error::Error::source(status) {
        Some(source) => innermost(source),
        None => status.message().to_owned(),
    }
}

/// Returns the text of the innermost error: the system's words, without the layers above.
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
