//! Connections that a daemon accepts: admission, limits and time-outs.
//!
//! The listener hands each connection to tonic after its handshake. Until its client authenticates, a
//! connection counts as *unauthenticated* (a stranger in the code). Few of these may exist in all and from
//! one host, and each has 30 s to authenticate. Over the limit the oldest unauthenticated connection is
//! closed; a client that authenticates does so within milliseconds. An authenticated connection counts for
//! its user, or as known if a node or a daemon holds it. A connection without requests for
//! [`Limits::silence`] is closed. The log names refused and closed connections, one line of a kind per minute
//! at most.
//!
//! When the daemon ends, it closes every connection that has no request under way. HTTP/2 alone would
//! wait until the client agrees, which a stopped client, or one whose host is gone, never does.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::process::{Resource, getrlimit};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::channel::HANDSHAKE_TIMEOUT;
use crate::keys::PublicKey;
use crate::tls::{self, ServerConfig};

/// Time in which a client must authenticate.
const STRANGER: Duration = Duration::from_secs(30);
/// Time without a request after which a connection is closed.
const SILENCE: Duration = Duration::from_secs(300);
/// Shortest time between two log lines about the same kind of trouble.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// Pause in accepting connections after accept(2) failed.
const RECOVERY: Duration = Duration::from_millis(100);
/// Idle time after which a connection is closed while its daemon ends: enough for the client to agree to
/// the end.
const FAREWELL: Duration = Duration::from_millis(200);
/// Capacity of the queue of connections between handshake and service.
const BACKLOG: usize = 64;

/// The largest numbers of concurrent connections to a listener, and their time-outs.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Connections in all.
    pub all: usize,
    /// Unauthenticated connections in all.
    pub strangers: usize,
    /// Unauthenticated connections from one host; at a Unix socket, connections of one user who has not
    /// shown a token.
    pub of_one: usize,
    /// Connections of one user who has shown a token.
    pub of_user: usize,
    /// Time in which a client must authenticate.
    pub patience: Duration,
    /// Time without a request after which a connection is closed.
    pub silence: Duration,
}

impl Limits {
    /// Limits of the Unix socket at which a daemon hands out tokens.
    pub const WINDOW: Limits =
        Limits { all: 512, strangers: 512, of_one: 64, of_user: 64, patience: STRANGER, silence: STRANGER };

    /// Limits of a daemon's service: four fifths of the files that the process may open, and at most
    /// `most` connections.
    pub fn for_process(most: usize) -> Limits {
        let files = getrlimit(Resource::Nofile)
            .current
            .map_or(usize::MAX, |files| usize::try_from(files).unwrap_or(usize::MAX));
        let all = (files / 5 * 4).min(most);
        Limits {
            all,
            strangers: all / 4,
            of_one: all / 8,
            of_user: all / 2,
            patience: STRANGER,
            silence: SILENCE,
        }
    }
}

impl Limits {
    /// Returns these limits with at most `most` connections of one user.
    #[must_use]
    pub fn with_user(self, most: u32) -> Limits {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Limits { of_user: self.of_user.min(most), ..self }
    }

    /// Returns these limits for a service at the socket that hands out tokens.
    #[must_use]
    pub fn at_window(self) -> Limits {
        Limits { of_one: Limits::WINDOW.of_one, ..self }
    }
}

/// The peer of a connection, as the kernel names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A TCP peer, on another host or this one.
    Address(SocketAddr),
    /// A user of this host, connected to a Unix socket.
    User {
        /// User ID from the socket's credentials.
        uid: u32,
        /// Group ID from the socket's credentials.
        gid: u32,
    },
}

impl std::fmt::Display for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Origin::Address(address) => address.fmt(f),
            Origin::User { uid, .. } => write!(f, "uid {uid}"),
        }
    }
}

/// The identity that the peer of a connection has proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proved {
    /// The user with this ID.
    User(u32),
    /// A node, or a client that the controller vouches for.
    Known,
}

/// The refusal of a connection whose user has too many of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many connections at a time: one user may have {0}")]
pub struct TooMany(pub usize);

/// The peer of a connection; an extension of every request that comes over the connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Address of the peer, or its user at a Unix socket.
    pub origin: Origin,
    /// The public key that the peer has proved to hold; `None` without a client key or without TLS.
    pub key: Option<PublicKey>,
    life: Arc<Life>,
}

impl Peer {
    /// Returns the peer's IP address; `None` at a Unix socket.
    pub fn host(&self) -> Option<IpAddr> {
        match self.origin {
            Origin::Address(address) => Some(address.ip()),
            Origin::User { .. } => None,
        }
    }

    /// Returns the user that the peer has proved to be, or is according to the kernel.
    ///
    /// `None` for a node, an operator and an unauthenticated peer.
    pub fn user(&self) -> Option<u32> {
        match self.life.place().kind {
            Kind::User(uid) | Kind::Local(uid) => Some(uid),
            Kind::Stranger(..) | Kind::Known => None,
        }
    }

    /// Counts the connection as authenticated from here on.
    ///
    /// # Errors
    /// Fails if the user already has as many connections as one may have.
    pub fn prove(&self, as_what: Proved) -> Result<(), TooMany> {
        self.life.place().prove(as_what)
    }

    /// Exempts the connection from the silence time-out until the returned value is dropped.
    pub fn busy(&self) -> Busy {
        self.life.active.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.life))
    }
}

/// A request that is under way; dropping the value ends the request.
#[derive(Debug)]
pub struct Busy(Arc<Life>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The state of one connection that its requests and its timer share.
#[derive(Debug)]
struct Life {
    begun: Instant,
    /// Number of requests under way.
    active: AtomicUsize,
    /// The instant at which the last request ended.
    last: Mutex<Instant>,
    place: Mutex<Place>,
}

impl Life {
    fn new(place: Place) -> Life {
        let now = Instant::now();
        Life { begun: now, active: AtomicUsize::new(0), last: Mutex::new(now), place: Mutex::new(place) }
    }

    fn place(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the next instant at which the connection has to be checked, or the reason to close it.
    fn verdict(&self, limits: &Limits) -> Result<Instant, &'static str> {
        let now = Instant::now();
        if matches!(self.place().kind, Kind::Stranger(..)) {
            let end = self.begun + limits.patience;
            return if now < end { Ok(end) } else { Err("it has not said who it is") };
        }
        if self.active.load(Ordering::Relaxed) > 0 {
            return Ok(now + limits.silence);
        }
        let end = *self.last.lock().unwrap_or_else(PoisonError::into_inner) + limits.silence;
        if now < end { Ok(end) } else { Err("it was silent") }
    }
}

/// Numbers of open connections by kind.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    strangers: usize,
    /// Unauthenticated connections by host, oldest first, each with the notifier that closes the
    /// connection.
    hosts: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
    users: HashMap<u32, usize>,
    /// Connections to a Unix socket of users who have not shown a token, by user ID.
    local: HashMap<u32, usize>,
    /// Number of connections that were ever accepted; numbers unauthenticated connections by age.
    came: u64,
}

/// One counted connection; dropping the value uncounts it.
#[derive(Debug)]
struct Place {
    hall: Arc<Hall>,
    kind: Kind,
    /// Notified when an unauthenticated connection has to close in favour of a new one.
    go: Arc<Notify>,
}

/// The category under which a connection is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An unauthenticated peer at this address; the number orders such connections by age.
    Stranger(IpAddr, u64),
    /// A user of this host, according to the kernel, who has not shown a token.
    Local(u32),
    User(u32),
    Known,
}

impl Place {
    fn prove(&mut self, as_what: Proved) -> Result<(), TooMany> {
        let kind = match as_what {
            Proved::User(uid) => Kind::User(uid),
            Proved::Known => Kind::Known,
        };
        // A connection that serves several users (a program that holds the key) counts for the first of
        // them.
        if !matches!(self.kind, Kind::Stranger(..) | Kind::Local(_)) {
            return Ok(());
        }
        let mut counts = self.hall.counts();
        if let Kind::User(uid) = kind
            && counts.users.get(&uid).is_some_and(|have| *have >= self.hall.limits.of_user)
        {
            return Err(TooMany(self.hall.limits.of_user));
        }
        counts.remove(self.kind);
        if let Kind::User(uid) = kind {
            *counts.users.entry(uid).or_default() += 1;
        }
        self.kind = kind;
        Ok(())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.hall.counts();
        counts.remove(self.kind);
        counts.all -= 1;
    }
}

impl Counts {
    fn remove(&mut self, kind: Kind) {
        match kind {
            Kind::Stranger(host, number) => {
                // A connection that was notified to close is uncounted already.
                if self.hosts.get_mut(&host).is_some_and(|there| there.remove(&number).is_some()) {
                    self.strangers -= 1;
                }
                if self.hosts.get(&host).is_some_and(BTreeMap::is_empty) {
                    self.hosts.remove(&host);
                }
            }
            Kind::Local(uid) => less(&mut self.local, uid),
            Kind::User(uid) => less(&mut self.users, uid),
            Kind::Known => {}
        }
    }

    /// Closes the oldest unauthenticated connection if one more from `host` would be over a limit.
    ///
    /// Returns the line for the log; `None` if no connection had to close.
    fn make_room(&mut self, host: IpAddr, limits: &Limits) -> Option<String> {
        let (from, why) = if self.hosts.get(&host).is_some_and(|there| there.len() >= limits.of_one) {
            (host, format!("{} from there had not said who they are", limits.of_one))
        } else if self.strangers >= limits.strangers {
            let most = self.hosts.iter().max_by_key(|(_, there)| there.len());
            (*most?.0, format!("{} had not said who they are, most of them from there", limits.strangers))
        } else {
            return None;
        };
        let (_, go) = self.hosts.get_mut(&from)?.pop_first()?;
        self.strangers -= 1;
        go.notify_one();
        Some(format!("the oldest connection from {from} has to go: {why}"))
    }
}

/// Lowers the count of `key` by one, and removes `key` at zero.
fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// The connections of one listener: limits, counts and complaints.
#[derive(Debug)]
struct Hall {
    limits: Limits,
    counts: Mutex<Counts>,
    /// Notifies all connections that the listener has stopped.
    over: Arc<Notify>,
    turned_away: Complaint,
    closed: Complaint,
    failed: Complaint,
}

impl Hall {
    fn new(limits: Limits) -> Arc<Hall> {
        Arc::new(Hall {
            limits,
            counts: Mutex::default(),
            over: Arc::default(),
            turned_away: Complaint::default(),
            closed: Complaint::default(),
            failed: Complaint::default(),
        })
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a new connection, or returns the reason to refuse it.
    fn let_in(self: &Arc<Self>, origin: Origin) -> Result<Place, String> {
        let limits = &self.limits;
        let mut counts = self.counts();
        if counts.all >= limits.all {
            return Err(format!("there are {} connections, as many as there may be", limits.all));
        }
        let go = Arc::new(Notify::new());
        let kind = match origin {
            Origin::User { uid, .. } => {
                let have = counts.local.entry(uid).or_default();
                if *have >= limits.of_one {
                    return Err(format!(
                        "this user has {} connections, as many as one may have",
                        limits.of_one
                    ));
                }
                *have += 1;
                Kind::Local(uid)
            }
            Origin::Address(address) => {
                let host = address.ip();
                if let Some(why) = counts.make_room(host, limits) {
                    self.turned_away.tell(|more| tracing::warn!(more, "too many connections: {why}"));
                }
                let number = counts.came;
                counts.came += 1;
                counts.strangers += 1;
                counts.hosts.entry(host).or_default().insert(number, Arc::clone(&go));
                Kind::Stranger(host, number)
            }
        };
        counts.all += 1;
        drop(counts);
        Ok(Place { hall: Arc::clone(self), kind, go })
    }
}

/// A rate limit for log lines about one kind of trouble: one line per minute.
#[derive(Debug, Default)]
pub struct Complaint(Mutex<Option<(Instant, u64)>>);

impl Complaint {
    /// Calls `tell` with the number of suppressed reports since the last one.
    ///
    /// Within a minute of the last call the report is suppressed and counted.
    pub fn tell(&self, tell: impl FnOnce(u64)) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        match last.as_mut() {
            Some((told, untold)) if now < *told + TELL_AGAIN => *untold += 1,
            Some((told, untold)) => {
                tell(std::mem::take(untold));
                *told = now;
            }
            None => {
                tell(0);
                *last = Some((now, 0));
            }
        }
    }
}

/// The accepted connections of one listener, for tonic's `serve_with_incoming`.
#[derive(Debug)]
pub struct Incoming {
    hall: Arc<Hall>,
    accepted: mpsc::Receiver<Connection>,
    accepting: JoinHandle<()>,
}

impl Incoming {
    /// Accepts connections over TCP. Without `tls` they are in clear, which is meant for loopback alone.
    pub fn tcp(listener: TcpListener, tls: Option<Arc<ServerConfig>>, limits: Limits) -> Incoming {
        let acceptor = tls.map(TlsAcceptor::from);
        Incoming::of(limits, async move |hall: Arc<Hall>, accepted: mpsc::Sender<Connection>| {
            loop {
                let (stream, address) = match listener.accept().await {
                    Ok(found) => found,
                    Err(error) => {
                        pause(&hall, &error).await;
                        continue;
                    }
                };
                let origin = Origin::Address(address);
                if let Some(place) = place(&hall, origin) {
                    let welcome = welcome(stream, origin, place, acceptor.clone(), accepted.clone());
                    tokio::spawn(welcome);
                }
            }
        })
    }

    /// Accepts connections at a Unix socket.
    pub fn unix(listener: UnixListener, limits: Limits) -> Incoming {
        Incoming::of(limits, async move |hall: Arc<Hall>, accepted: mpsc::Sender<Connection>| {
            loop {
                let asked = match listener.accept().await {
                    Ok((stream, _)) => stream.peer_cred().map(|who| (stream, who)),
                    Err(error) => Err(error),
                };
                let (stream, who) = match asked {
                    Ok(found) => found,
                    Err(error) => {
                        pause(&hall, &error).await;
                        continue;
                    }
                };
                let origin = Origin::User { uid: who.uid(), gid: who.gid() };
                let Some(place) = place(&hall, origin) else { continue };
                if accepted.send(Connection::new(Wire::Unix(stream), origin, None, place)).await.is_err() {
                    return;
                }
            }
        })
    }

    fn of<F>(limits: Limits, accept: impl FnOnce(Arc<Hall>, mpsc::Sender<Connection>) -> F) -> Incoming
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let hall = Hall::new(limits);
        let (sender, accepted) = mpsc::channel(BACKLOG);
        let accepting = tokio::spawn(accept(Arc::clone(&hall), sender));
        Incoming { hall, accepted, accepting }
    }
}

impl Drop for Incoming {
    fn drop(&mut self) {
        self.accepting.abort();
        self.hall.over.notify_waiters();
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(ready!(self.accepted.poll_recv(cx)).map(Ok))
    }
}

/// Logs that accept(2) failed and waits a moment; the usual cause is too many open files.
async fn pause(hall: &Hall, error: &io::Error) {
    hall.failed.tell(|_| tracing::error!(%error, "connections cannot be accepted"));
    sleep(RECOVERY).await;
}

fn place(hall: &Arc<Hall>, origin: Origin) -> Option<Place> {
    let found = hall.let_in(origin);
    found
        .inspect_err(|why| {
            hall.turned_away
                .tell(|more| tracing::warn!(from = %origin, more, "a connection was turned away: {why}"));
        })
        .ok()
}

/// Takes a TCP connection through its handshake and passes it to the service.
async fn welcome(
    stream: TcpStream,
    origin: Origin,
    place: Place,
    acceptor: Option<TlsAcceptor>,
    accepted: mpsc::Sender<Connection>,
) {
    // With Nagle's algorithm, small answers would wait for the peer's acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(acceptor) = acceptor else {
        // Sending fails only when the daemon is stopping and no longer accepts.
        let _ = accepted.send(Connection::new(Wire::Plain(stream), origin, None, place)).await;
        return;
    };
    let go = Arc::clone(&place.go);
    let handshake = async {
        tokio::select! {
            done = timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)) => Some(done),
            () = go.notified() => None,
        }
    };
    // A connection that was notified to close is uncounted already.
    let Some(done) = handshake.await else { return };
    let why = match done {
        Ok(Ok(stream)) => {
            let key = tls::key_of(stream.get_ref().1.peer_certificates());
            let _ = accepted.send(Connection::new(Wire::Tls(Box::new(stream)), origin, key, place)).await;
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took more than {} s", HANDSHAKE_TIMEOUT.as_secs()),
    };
    place.hall.failed.tell(|more| tracing::warn!(from = %origin, more, "a handshake failed: {why}"));
}

/// A connection that was admitted.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    peer: Peer,
    limits: Limits,
    /// The instant of the next check for time-outs.
    timer: Pin<Box<Sleep>>,
    /// Ready when this unauthenticated connection has to close in favour of a new one.
    go: Pin<Box<OwnedNotified>>,
    /// Ready when the daemon ends.
    over: Pin<Box<OwnedNotified>>,
    /// True if the daemon ends; the limits are then the short ones of that end.
    ending: bool,
}

#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
    Unix(UnixStream),
}

impl Connection {
    fn new(wire: Wire, origin: Origin, key: Option<PublicKey>, place: Place) -> Connection {
        let limits = place.hall.limits;
        let go = Box::pin(Arc::clone(&place.go).notified_owned());
        let over = Box::pin(Arc::clone(&place.hall.over).notified_owned());
        let timer = Box::pin(sleep(limits.patience.min(limits.silence)));
        let peer = Peer { origin, key, life: Arc::new(Life::new(place)) };
        Connection { wire, peer, limits, timer, go, over, ending: false }
    }

    /// Returns true if the connection has to close; called by readers while no data is there.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        // Polled until ready once; the connection closes then.
        if self.go.as_mut().poll(cx).is_ready() {
            return true;
        }
        if !self.ending && self.over.as_mut().poll(cx).is_ready() {
            self.ending = true;
            (self.limits.patience, self.limits.silence) = (FAREWELL, FAREWELL);
            self.timer.as_mut().reset(Instant::now() + FAREWELL);
        }
        while self.timer.as_mut().poll(cx).is_ready() {
            match self.peer.life.verdict(&self.limits) {
                Ok(next) => self.timer.as_mut().reset(next),
                Err(_) if self.ending => return true,
                Err(why) => {
                    let hall = Arc::clone(&self.peer.life.place().hall);
                    let from = self.peer.origin;
                    hall.closed.tell(|more| tracing::info!(%from, more, "a connection was closed: {why}"));
                    return true;
                }
            }
        }
        false
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer.clone()
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
            Wire::Unix(stream) => Pin::new(stream).poll_read(cx, buffer),
        };
        match read {
            // A read of no bytes is the end of the stream.
            Poll::Pending if self.is_over(cx) => Poll::Ready(Ok(())),
            read => read,
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, data),
            Wire::Unix(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, data),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, data),
            Wire::Unix(stream) => Pin::new(stream).poll_write_vectored(cx, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.wire {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
            Wire::Unix(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.wire {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Unix(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}
