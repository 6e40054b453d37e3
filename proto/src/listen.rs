//! Where a daemon is connected to: who is let in, how many, and for how long.
//!
//! Connections are accepted here and handed to tonic when their handshake is over. Until its other end has proved who it
//! is, a connection is a stranger's: of those there are few in all and from one host, and they have little time. Where there
//! are too many the oldest goes: whoever means to prove something has done so in milliseconds. Whoever has a token or a
//! node's key is counted by what that says. A connection on which nothing has been asked for a while
//! is closed. Whatever is turned away or closed is said in the log, once a minute if it is much.
//!
//! When the daemon ends, every connection on which no request is under way is closed. HTTP/2 alone would wait for its
//! other end to agree, which a client that is stopped, or whose host is gone, never does.

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

use crate::keys::PublicKey;
use crate::tls::{self, ServerConfig};

/// How long a handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a stranger has to prove who it is.
const STRANGER: Duration = Duration::from_secs(30);
/// After how long without a request a connection is closed.
const SILENCE: Duration = Duration::from_secs(300);
/// How often the same trouble is told at most.
const TELL_AGAIN: Duration = Duration::from_secs(60);
/// How long nothing is accepted after the system could not.
const RECOVERY: Duration = Duration::from_millis(100);
/// How long a connection may do nothing when its daemon ends: enough for its other end to agree.
const FAREWELL: Duration = Duration::from_millis(200);
/// Connections between their handshake and the service.
const BACKLOG: usize = 64;

/// How many connections there may be at a time.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// In all.
    pub all: usize,
    /// Of strangers.
    pub strangers: usize,
    /// Of strangers from one host; at a Unix socket, of one user who has not shown a token.
    pub of_one: usize,
    /// Of one user who has a token.
    pub of_user: usize,
    /// How long a stranger has to prove who it is.
    pub patience: Duration,
    /// After how long without a request a connection is closed.
    pub silence: Duration,
}

impl Limits {
    /// Those of the socket that hands out tokens.
    pub const WINDOW: Limits =
        Limits { all: 512, strangers: 512, of_one: 64, of_user: 64, patience: STRANGER, silence: STRANGER };

    /// Those of a daemon that leaves a fifth of the files it may open for other things, and has no more connections
    /// than `most`.
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
    /// The same where one user may have no more connections than `most`.
    #[must_use]
    pub fn with_user(self, most: u32) -> Limits {
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Limits { of_user: self.of_user.min(most), ..self }
    }

    /// The same at a socket that hands out tokens.
    #[must_use]
    pub fn at_window(self) -> Limits {
        Limits { of_one: Limits::WINDOW.of_one, ..self }
    }
}

/// Where a connection comes from, as the kernel says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// From another host, or this one, over TCP.
    Address(SocketAddr),
    /// From a user of this host.
    User {
        /// The user.
        uid: u32,
        /// The group.
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

/// As what the other end of a connection has proved itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proved {
    /// As this user.
    User(u32),
    /// As a node, or as somebody whom the controller vouches for.
    Known,
}

/// One user has too many connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many connections at a time: one user may have {0}")]
pub struct TooMany(pub usize);

/// The other end of a connection; an extension of every request that comes over it.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Where it is.
    pub origin: Origin,
    /// The key that it has proved to have.
    pub key: Option<PublicKey>,
    life: Arc<Life>,
}

impl Peer {
    /// The address of its host, if it came over TCP.
    pub fn host(&self) -> Option<IpAddr> {
        match self.origin {
            Origin::Address(address) => Some(address.ip()),
            Origin::User { .. } => None,
        }
    }

    /// The user that it has proved to be, or is by the word of the kernel; `None` for a node, an operator or a stranger.
    pub fn user(&self) -> Option<u32> {
        match self.life.place().kind {
            Kind::User(uid) | Kind::Local(uid) => Some(uid),
            Kind::Stranger(..) | Kind::Known => None,
        }
    }

    /// From now on counts as what it has proved itself.
    ///
    /// # Errors
    /// A user who has too many connections.
    pub fn prove(&self, as_what: Proved) -> Result<(), TooMany> {
        self.life.place().prove(as_what)
    }

    /// Keeps the connection from being taken for silent, for as long as the answer is held.
    pub fn busy(&self) -> Busy {
        self.life.active.fetch_add(1, Ordering::Relaxed);
        Busy(Arc::clone(&self.life))
    }
}

/// A request that is under way.
#[derive(Debug)]
pub struct Busy(Arc<Life>);

impl Drop for Busy {
    fn drop(&mut self) {
        *self.0.last.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is known of a connection while it lasts.
#[derive(Debug)]
struct Life {
    begun: Instant,
    /// Requests under way.
    active: AtomicUsize,
    /// When the last one ended.
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

    /// Until when it may go on without being looked at again, or why it may not.
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

/// Who is there.
#[derive(Debug, Default)]
struct Counts {
    all: usize,
    strangers: usize,
    /// Strangers by host, in the order in which they came; each with what tells it to go.
    hosts: HashMap<IpAddr, BTreeMap<u64, Arc<Notify>>>,
    users: HashMap<u32, usize>,
    /// Of users of this host who have not shown a token, at a Unix socket.
    local: HashMap<u32, usize>,
    /// How many have come.
    came: u64,
}

/// One of the connections that are counted.
#[derive(Debug)]
struct Place {
    hall: Arc<Hall>,
    kind: Kind,
    /// Tells a stranger to go.
    go: Arc<Notify>,
}

/// What a connection counts as, beside being one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With its number among those that came.
    Stranger(IpAddr, u64),
    /// A user of this host, as the kernel says.
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
        // A connection of a user who is several (a program that holds the key) counts as the first of them.
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
                // One that was told to go is not counted any more.
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

    /// Makes room for a stranger from `host`, if there is none.
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

/// One less of something; what there is none of is forgotten.
fn less<K: std::hash::Hash + Eq>(counts: &mut HashMap<K, usize>, key: K) {
    if let Some(count) = counts.get_mut(&key) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&key);
        }
    }
}

/// All connections of one listener.
#[derive(Debug)]
struct Hall {
    limits: Limits,
    counts: Mutex<Counts>,
    /// Tells all connections that nobody comes in any more.
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

    /// A place for a connection, or why there is none.
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

/// Trouble of one kind, told at most once in a while.
#[derive(Debug, Default)]
pub struct Complaint(Mutex<Option<(Instant, u64)>>);

impl Complaint {
    /// Tells of it, unless that was done a moment ago; then it is counted. `tell` hears how often it happened untold.
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

/// The connections that come in; for tonic's `serve_with_incoming`.
#[derive(Debug)]
pub struct Incoming {
    hall: Arc<Hall>,
    accepted: mpsc::Receiver<Connection>,
    accepting: JoinHandle<()>,
}

impl Incoming {
    /// Those over TCP; without `tls` they are in clear, which is for loopback alone.
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

    /// Those at a Unix socket.
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

/// Tells that nothing can be accepted, and waits a moment: most often files are short.
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

/// Takes a connection from its first byte to the service.
async fn welcome(
    stream: TcpStream,
    origin: Origin,
    place: Place,
    acceptor: Option<TlsAcceptor>,
    accepted: mpsc::Sender<Connection>,
) {
    // Without it small answers wait for the other end's acknowledgement.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let Some(acceptor) = acceptor else {
        // Nobody accepts any more when the daemon is stopping.
        let _ = accepted.send(Connection::new(Wire::Plain(stream), origin, None, place)).await;
        return;
    };
    let go = Arc::clone(&place.go);
    let handshake = async {
        tokio::select! {
            done = timeout(HANDSHAKE, acceptor.accept(stream)) => Some(done),
            () = go.notified() => None,
        }
    };
    // Who was told to go is gone already for everybody else.
    let Some(done) = handshake.await else { return };
    let why = match done {
        Ok(Ok(stream)) => {
            let key = tls::key_of(stream.get_ref().1.peer_certificates());
            let _ = accepted.send(Connection::new(Wire::Tls(Box::new(stream)), origin, key, place)).await;
            return;
        }
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("it took more than {} s", HANDSHAKE.as_secs()),
    };
    place.hall.failed.tell(|more| tracing::warn!(from = %origin, more, "a handshake failed: {why}"));
}

/// A connection that was let in.
#[derive(Debug)]
pub struct Connection {
    wire: Wire,
    peer: Peer,
    limits: Limits,
    /// When it is looked at again.
    timer: Pin<Box<Sleep>>,
    /// Comes true when a stranger has to make room.
    go: Pin<Box<OwnedNotified>>,
    /// Comes true when the daemon ends.
    over: Pin<Box<OwnedNotified>>,
    /// Whether it has, so that the limits are those of a farewell.
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

    /// Whether it has to end, for somebody who waits for more of it.
    fn is_over(&mut self, cx: &mut Context<'_>) -> bool {
        // Asked until it has said so once, which is the end of the connection.
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
            // Nothing read is the end.
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
