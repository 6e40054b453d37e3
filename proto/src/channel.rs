//! Outgoing connections: addresses, and the limits on time and size that all parts of Spur share.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use spur_core::text::address::HostPort;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

use crate::keys::{PublicKey, RoleKey};
use crate::tls::{self, ClientConfig};

/// Longest time to establish a connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Longest handshake: on an overloaded host it may take many seconds, and an attempt that is repeated too
/// early adds to the load.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time for another daemon of this host to take over the socket for tokens from one that has died; each looks
/// every second.
const TAKEOVER: Duration = Duration::from_secs(3);
/// Longest wait for an answer that depends on the peer alone.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Silence after which a peer is asked for a sign of life; also the interval at which a waiting call sends
/// one.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// Longest wait for the answer to that.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Wait for an answer of one of several controllers before the next one is dialled as well.
const NEXT_DIAL: Duration = Duration::from_millis(300);
/// Keep-alive interval and time-out where another controller may have to be found.
const KEEP_ALIVE_AMONG: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));

/// Flow-control window of one stream, in bytes: some two hundred jobs of the usual size.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// Flow-control window of all streams of a connection together, in bytes.
pub const CONNECTION_WINDOW: u32 = 2 << 20;

/// Largest frame that the controller accepts, in bytes. A client of a stream encodes at most 32 KiB and one
/// job at once. Its output then fits into one frame and is read at once.
pub const FRAME_BYTES: u32 = 64 << 10;

/// Largest script of a job, in bytes.
pub const MAX_SCRIPT: usize = 4 << 20;
/// Largest environment of a job, in bytes.
pub const MAX_ENVIRONMENT: usize = 8 << 20;
/// Largest message that either end accepts, in bytes: a script, an environment, and 4 MiB for the rest of a
/// job.
pub const MAX_MESSAGE: usize = MAX_SCRIPT + MAX_ENVIRONMENT + (4 << 20);
/// Largest message that the controller sends, in bytes; a job in a reply is little larger than its
/// submission.
pub const MAX_REPLY: usize = 4 * MAX_MESSAGE;

/// The way to connect: the expected keys or certificates, and the own key.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// TLS settings; `None` in a cluster without keys.
    tls: Option<Arc<ClientConfig>>,
    /// The server name in the handshake.
    name: ServerName<'static>,
    /// True if other controllers may answer in place of this one.
    among_several: bool,
    /// True if the handshake may take [`HANDSHAKE_TIMEOUT`] in addition to [`CONNECT_TIMEOUT`].
    patient: bool,
}

/// The reason why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// The text is not an address.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// The address is not on loopback, and without keys any server there would be trusted.
    #[error(
        "{0} is not on this host: with [auth] method = \"none\" whoever answers is believed, so only loopback is dialled; \
         use method = \"key\""
    )]
    Afar(HostPort),
    /// No server answers, or a server without the expected key or certificate.
    #[error("{0}")]
    Unreachable(String),
    /// The host took the connection, but its server did not complete the handshake: it is overloaded or
    /// stopped, or has just ended.
    #[error("{0}")]
    Unanswered(String),
}

/// The progress of one attempt to connect: true if the host took the connection and no wrong server answered.
type Taken = Arc<AtomicBool>;

impl Dialer {
    /// Returns a dialer for clusters without keys: it trusts any server, and connects on loopback only.
    pub fn believing() -> Dialer {
        Dialer::new(None, server_name("loopback.spur".to_owned()))
    }

    /// Returns a dialer that accepts servers with one of these keys, and shows `own` if there is one.
    pub fn expecting(keys: &[PublicKey], own: Option<RoleKey>) -> Dialer {
        let name = keys.first().map_or("none.spur".to_owned(), PublicKey::server_name);
        Dialer::new(Some(tls::client(keys.to_vec(), own)), server_name(name))
    }

    /// Returns a dialer that accepts certificates according to `config`, and asks for the server `name`.
    pub fn certified(config: Arc<ClientConfig>, name: &str) -> Dialer {
        Dialer::new(Some(config), server_name(name.to_owned()))
    }

    fn new(tls: Option<Arc<ClientConfig>>, name: ServerName<'static>) -> Dialer {
        Dialer { tls, name, among_several: false, patient: false }
    }

    /// Returns this dialer with [`HANDSHAKE_TIMEOUT`] for the handshake. An overloaded host may need that
    /// time.
    #[must_use]
    pub fn patient(self) -> Dialer {
        Dialer { patient: true, ..self }
    }

    /// Connects. The server may still refuse a client's key: only an answer shows that it has not.
    ///
    /// # Errors
    /// Fails if no server answers, or one without the expected key.
    pub async fn connect(&self, address: &HostPort) -> Result<Channel, DialError> {
        let taken = Taken::default();
        let (endpoint, connector) = (self.endpoint(address)?, self.connector(address, &taken));
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| {
            let text = crate::client::innermost(&error);
            if taken.load(Ordering::Relaxed) {
                DialError::Unanswered(text)
            } else {
                DialError::Unreachable(text)
            }
        })
    }

    /// Connects to one of several controllers, and returns its index with the connection.
    ///
    /// The controller `first` is dialled first. The next one is dialled when 300 ms have passed without an
    /// answer, or at once after a failed dial; the first to answer wins.
    ///
    /// # Errors
    /// The error of the last dial, if every dial failed.
    pub async fn connect_to_any(
        &self,
        addresses: &[HostPort],
        first: usize,
    ) -> Result<(usize, Channel), DialError> {
        if let [address] = addresses {
            return self.connect(address).await.map(|channel| (0, channel));
        }
        let mut next = (first..addresses.len()).chain(0..first);
        let (mut dials, mut failed) = (JoinSet::new(), None);
        let mut dial = |dials: &mut JoinSet<_>| {
            let number = next.next()?;
            let (dialer, address) =
                (Dialer { among_several: true, ..self.clone() }, addresses[number].clone());
            dials.spawn(async move { (number, dialer.connect(&address).await) });
            Some(())
        };
        let mut more = dial(&mut dials).is_some();
        loop {
            tokio::select! {
                ended = dials.join_next() => match ended {
                    Some(Ok((number, Ok(channel)))) => return Ok((number, channel)),
                    Some(Ok((_, Err(error)))) => {
                        failed = Some(error);
                        more = more && dial(&mut dials).is_some();
                    }
                    Some(Err(_)) => {}
                    None => {
                        return Err(failed.unwrap_or_else(|| DialError::Unreachable("no address".to_owned())));
                    }
                },
                () = tokio::time::sleep(NEXT_DIAL), if more => more = dial(&mut dials).is_some(),
            }
        }
    }

    /// Returns a channel that connects on its first call.
    ///
    /// # Errors
    /// Fails if the address is not valid or not allowed.
    pub fn connect_lazily(&self, address: &HostPort) -> Result<Channel, DialError> {
        Ok(self.endpoint(address)?.connect_with_connector_lazy(self.connector(address, &Taken::default())))
    }

    fn endpoint(&self, address: &HostPort) -> Result<Endpoint, DialError> {
        if self.tls.is_none() && !address.is_loopback() {
            return Err(DialError::Afar(address.clone()));
        }
        let endpoint = Endpoint::from_shared(format!("http://{address}")).map(settings);
        let endpoint = endpoint.map(|endpoint| match (self.among_several, KEEP_ALIVE_AMONG) {
            (true, (interval, timeout)) => {
                endpoint.http2_keep_alive_interval(interval).keep_alive_timeout(timeout)
            }
            (false, _) => endpoint,
        });
        let endpoint = endpoint.map(|endpoint| match self.patient {
            true => endpoint.connect_timeout(CONNECT_TIMEOUT + HANDSHAKE_TIMEOUT),
            false => endpoint,
        });
        endpoint.map_err(|_| AddressError(address.to_string()).into())
    }

    fn connector(
        &self,
        address: &HostPort,
        taken: &Taken,
    ) -> impl Service<Uri, Response = TokioIo<Wire>, Error = io::Error, Future: Send> + Send + use<> {
        let (dialer, address, taken) = (self.clone(), address.clone(), Arc::clone(taken));
        tower::service_fn(move |_: Uri| {
            let (dialer, address, taken) = (dialer.clone(), address.clone(), Arc::clone(&taken));
            async move { dialer.open(&address, &taken).await.map(TokioIo::new) }
        })
    }

    async fn open(&self, address: &HostPort, taken: &Taken) -> io::Result<Wire> {
        let connected = TcpStream::connect((address.host.as_str(), address.port));
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the host does not answer");
        let stream = timeout(CONNECT_TIMEOUT, connected).await.unwrap_or_else(|_| Err(late()))?;
        taken.store(true, Ordering::Relaxed);
        stream.set_nodelay(true)?;
        let Some(config) = &self.tls else { return Ok(Wire::Plain(stream)) };
        let secured = TlsConnector::from(Arc::clone(config)).connect(self.name.clone(), stream).await;
        secured.map(|stream| Wire::Tls(Box::new(stream))).map_err(|error| {
            let is_answer = error.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
            taken.store(!is_answer, Ordering::Relaxed);
            explain(error)
        })
    }
}

fn server_name(name: String) -> ServerName<'static> {
    // Names of certificates were checked when they were read, and may be addresses.
    ServerName::try_from(name).unwrap_or(ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into()))
}

/// Explains TLS errors in terms of their usual cause.
fn explain(error: io::Error) -> io::Error {
    use rustls::{CertificateError, Error};
    let Some(cause) = error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) else { return error };
    let text = match cause {
        Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure) => {
            "somebody else answers there: it does not have the key that this cluster's daemon has".to_owned()
        }
        Error::InvalidMessage(_) => "whoever answers there does not speak TLS".to_owned(),
        Error::InvalidCertificate(_) => format!("somebody else answers there: {cause}"),
        _ => format!("no secure connection: {cause}"),
    };
    io::Error::new(error.kind(), text)
}

/// An established connection.
#[derive(Debug)]
enum Wire {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Wire::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Wire {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, data: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Wire::Tls(stream) => Pin::new(stream).poll_write(cx, data),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, data),
            Wire::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, data),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Wire::Plain(stream) => stream.is_write_vectored(),
            Wire::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Wire::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Wire::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

/// The error of a text that is not an address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to `{0}`: it is no address")]
pub struct AddressError(pub String);

/// Connects to a Unix socket whose server, according to the kernel, is root, this user or one of `others`.
///
/// An ended connection is not made again: by then another daemon may serve the socket, without the
/// controller's services.
///
/// # Errors
/// Fails if no server answers, or one of another user.
pub async fn connect_locally(path: &Path, others: &[u32]) -> Result<Channel, DialError> {
    let trusted = [&[0, rustix::process::geteuid().as_raw()], others].concat();
    let connector = {
        let mut once = Some((path.to_owned(), trusted));
        tower::service_fn(move |_: Uri| {
            let once = once.take();
            async move {
                let (path, trusted) = once.ok_or(io::ErrorKind::NotConnected)?;
                let stream = connect_to_socket(&path).await?;
                let uid = stream.peer_cred()?.uid();
                if trusted.contains(&uid) {
                    return Ok(TokioIo::new(stream));
                }
                let text = format!(
                    "{} is served by uid {uid}, who is neither root nor the user of [auth] user: nothing from there is \
                     believed",
                    path.display()
                );
                Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
            }
        })
    };
    let endpoint = settings(Endpoint::from_static("http://localhost"));
    let connected = endpoint.connect_with_connector(connector).await;
    connected.map_err(|error| DialError::Unreachable(crate::client::innermost(&error)))
}

/// True if the address belongs to this host: only then can a socket be bound to it.
pub async fn is_local(address: &HostPort) -> bool {
    let found = tokio::net::lookup_host((address.host.as_str(), 0)).await;
    found.is_ok_and(|mut found| found.next().is_some_and(|at| UdpSocket::bind((at.ip(), 0)).is_ok()))
}

/// Connects to a Unix socket, and waits a moment for another daemon if the one that served it has ended.
async fn connect_to_socket(path: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(path).await;
    let was_served = |error: &io::Error| match error.kind() {
        io::ErrorKind::ConnectionRefused => true,
        io::ErrorKind::NotFound => path.parent().is_some_and(Path::is_dir),
        _ => false,
    };
    if !stream.as_ref().is_err_and(was_served) {
        return stream;
    }
    let until = Instant::now() + TAKEOVER;
    while Instant::now() < until {
        tokio::time::sleep(TAKEOVER / 30).await;
        if let Ok(stream) = UnixStream::connect(path).await {
            return Ok(stream);
        }
    }
    stream
}

fn settings(endpoint: Endpoint) -> Endpoint {
    endpoint
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_keys_only_loopback_is_dialled() {
        let port = |text: &str| {
            let endpoint = Dialer::believing().endpoint(&text.parse().unwrap());
            endpoint.map(|endpoint| endpoint.uri().port_u16())
        };
        assert_eq!(port("localhost:7000").unwrap(), Some(7000));
        assert_eq!(port("[::1]:5").unwrap(), Some(5));
        assert!(matches!(port("head1:7000"), Err(DialError::Afar(_))));
        assert!(matches!(port("10.0.0.1:7000"), Err(DialError::Afar(_))));
    }
}
