//! How one end reaches another: addresses, time limits and message limits that all of Spur agrees on.

use std::io;
use std::net::{IpAddr, Ipv4Addr, UdpSocket};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use spur_core::text::address::HostPort;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tonic::transport::{Channel, Endpoint};
use tower::Service;

use crate::keys::{PublicKey, RoleKey};
use crate::tls::{self, ClientConfig};

/// How long a connection may take to come up.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long it may take until another daemon of this host hands out tokens in the place of one that has died; each looks
/// every second.
const TAKEOVER: Duration = Duration::from_secs(3);
/// How long an answer may take that needs nothing but the other end.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// After how much silence the other end is asked whether it is still there; so often, too, a call that waits is
/// kept from being taken for dead.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(10);
/// How long it may take to answer that.
pub const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The wait for an answer of one of several controllers before the next one is dialled as well.
const NEXT_DIAL: Duration = Duration::from_millis(300);
/// The keep-alive interval and its timeout, in that order, where another controller may have to be found.
const KEEP_ALIVE_AMONG: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(3));

/// What one stream may send ahead of its reader, in bytes: some two hundred jobs of the usual size.
pub const STREAM_WINDOW: u32 = 1 << 20;
/// What all streams of a connection may send ahead together.
pub const CONNECTION_WINDOW: u32 = 2 << 20;

/// The largest frame that the controller takes, in bytes: what a client of a stream encodes at once (32 KiB and a job) goes
/// into one, and is read at once.
pub const FRAME_BYTES: u32 = 64 << 10;

/// The largest script that a job may have, in bytes.
pub const MAX_SCRIPT: usize = 4 << 20;
/// The largest environment that a job may have, in bytes.
pub const MAX_ENVIRONMENT: usize = 8 << 20;
/// The largest message either end takes: a script, an environment and room for the rest of a job.
pub const MAX_MESSAGE: usize = MAX_SCRIPT + MAX_ENVIRONMENT + (4 << 20);
/// The largest message that the controller sends: what it says of a job is little more than what it was told.
pub const MAX_REPLY: usize = 4 * MAX_MESSAGE;

/// How to reach others, and whom to believe there.
#[derive(Clone, Debug)]
pub struct Dialer {
    /// `None` where the cluster uses no keys.
    tls: Option<Arc<ClientConfig>>,
    /// Who is asked for.
    name: ServerName<'static>,
    /// True if other controllers may answer in the place of the connected one.
    among_several: bool,
}

/// Why there is no connection.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DialError {
    /// The address is none.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Whoever answers there would be believed.
    #[error(
        "{0} is not on this host: with [auth] method = \"none\" whoever answers is believed, so only loopback is dialled; \
         use method = \"key\""
    )]
    Afar(HostPort),
    /// Nobody answers, or somebody else than was asked for.
    #[error("{0}")]
    Unreachable(String),
}

impl Dialer {
    /// Believes whoever answers, on loopback alone: for clusters that use no keys.
    pub fn believing() -> Dialer {
        Dialer { tls: None, name: server_name("loopback.spur".to_owned()), among_several: false }
    }

    /// Expects one of these keys, and shows its own if it has one.
    pub fn expecting(keys: &[PublicKey], own: Option<RoleKey>) -> Dialer {
        let name = keys.first().map_or("none.spur".to_owned(), PublicKey::server_name);
        Dialer { tls: Some(tls::client(keys.to_vec(), own)), name: server_name(name), among_several: false }
    }

    /// Expects a certificate, as `config` says; `name` is the name that is asked for.
    pub fn certified(config: Arc<ClientConfig>, name: &str) -> Dialer {
        Dialer { tls: Some(config), name: server_name(name.to_owned()), among_several: false }
    }

    /// Connects. The other end may still refuse: whoever has an answer knows that it has not.
    ///
    /// # Errors
    /// Nobody there, or not who was asked for.
    pub async fn connect(&self, address: &HostPort) -> Result<Channel, DialError> {
        let (endpoint, connector) = (self.endpoint(address)?, self.connector(address));
        let connected = endpoint.connect_with_connector(connector).await;
        connected.map_err(|error| DialError::Unreachable(crate::client::innermost(&error)))
    }

    /// Connects to one of several controllers: to the one with the number `first`, unless another one answers sooner that is
    /// dialled 300 ms later, or as soon as a dial has failed. Returns the number of the one that answered.
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

    /// Connects when something is asked for the first time.
    ///
    /// # Errors
    /// An address that nothing can connect to.
    pub fn connect_lazily(&self, address: &HostPort) -> Result<Channel, DialError> {
        Ok(self.endpoint(address)?.connect_with_connector_lazy(self.connector(address)))
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
        endpoint.map_err(|_| AddressError(address.to_string()).into())
    }

    fn connector(
        &self,
        address: &HostPort,
    ) -> impl Service<Uri, Response = TokioIo<Wire>, Error = io::Error, Future: Send> + Send + use<> {
        let (dialer, address) = (self.clone(), address.clone());
        tower::service_fn(move |_: Uri| {
            let (dialer, address) = (dialer.clone(), address.clone());
            async move { dialer.open(&address).await.map(TokioIo::new) }
        })
    }

    async fn open(&self, address: &HostPort) -> io::Result<Wire> {
        let stream = TcpStream::connect((address.host.as_str(), address.port)).await?;
        stream.set_nodelay(true)?;
        let Some(config) = &self.tls else { return Ok(Wire::Plain(stream)) };
        let secured = TlsConnector::from(Arc::clone(config)).connect(self.name.clone(), stream).await;
        secured.map(|stream| Wire::Tls(Box::new(stream))).map_err(explain)
    }
}

fn server_name(name: String) -> ServerName<'static> {
    // Names of certificates were looked at when they were read; they may be addresses.
    ServerName::try_from(name).unwrap_or(ServerName::IpAddress(IpAddr::from(Ipv4Addr::LOCALHOST).into()))
}

/// In words what is most often the matter.
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

/// A connection that was opened.
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

/// An address that nothing can connect to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot connect to `{0}`: it is no address")]
pub struct AddressError(pub String);

/// Connects to a Unix socket that is served by root, this user or one of these others; who serves it is asked of the
/// kernel. A connection that has ended is not made again: somebody else may serve the socket by then, who serves less.
///
/// # Errors
/// Nobody there, or somebody else.
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

/// Whether an address is one of this host's: only to these can a socket be bound.
pub async fn is_local(address: &HostPort) -> bool {
    let found = tokio::net::lookup_host((address.host.as_str(), 0)).await;
    found.is_ok_and(|mut found| found.next().is_some_and(|at| UdpSocket::bind((at.ip(), 0)).is_ok()))
}

/// Connects to a socket. Where a daemon has ended that served it, another one of this host takes its place.
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
