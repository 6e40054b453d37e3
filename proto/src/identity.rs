//! The Unix socket at which a host's daemon hands out tokens; the kernel names the user who connects.
//!
//! Every daemon may serve the socket. The first on a host does, and the others wait until that daemon is gone
//! or does not answer. A controller that starts takes the socket, and later takes it back from a node's
//! daemon. A controller offers its other services at the socket, too: connections that do not leave the host
//! need no TLS.

use std::ffi::CString;
use std::future::Future;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use nix::unistd::{Gid, Group, Uid, User};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tonic::transport::Server;
use tonic::transport::server::Router;
use tonic::{Request, Response, Status};
use tower::layer::util::{self, Stack};

use crate::arrival::Arrival;
use crate::auth::{self, TOKEN_SECONDS};
use crate::channel::connect_locally;
use crate::keys::{Keyring, Role};
use crate::listen::{Complaint, Incoming, Limits, Origin, Peer};
use crate::v1;
use crate::v1::identity_client::IdentityClient;
use crate::v1::identity_server::{Identity, IdentityServer};

/// Interval at which a daemon checks a socket that another daemon serves, or that may have been replaced.
const LOOK: Duration = Duration::from_secs(1);

/// Longest wait for an answer of the daemon that serves the socket.
const ANSWER: Duration = Duration::from_secs(5);
/// The preface of an HTTP/2 client (RFC 9113, 3.4) with empty settings, which a server answers with its own
/// settings.
const GREETING: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// Memory for large requests to a daemon that only hands out tokens, in bytes.
const ARRIVING: usize = 1 << 20;

/// The services at a socket for tokens.
#[derive(Clone)]
pub struct Services {
    router: Router<Stack<Arrival, util::Identity>>,
    limits: Limits,
    /// True if commands reach the controller at the socket.
    has_controller: bool,
}

impl Services {
    /// Returns the service for tokens alone; they are signed with the key in use, or unsigned without keys.
    pub fn tokens(keyring: Option<Keyring>) -> Services {
        let mint = Mint { keyring, controller_port: 0 };
        let mut server = Server::builder().layer(Arrival::new(ARRIVING));
        let router = server.add_service(IdentityServer::new(mint));
        Services { router, limits: Limits::WINDOW, has_controller: false }
    }

    /// Returns the service for tokens and those of the controller, which also listens at `port`.
    pub fn with_controller(
        keyring: Option<Keyring>,
        router: Router<Stack<Arrival, util::Identity>>,
        limits: Limits,
        port: u16,
    ) -> Services {
        let mint = Mint { keyring, controller_port: port.into() };
        let router = router.add_service(IdentityServer::new(mint));
        Services { router, limits: limits.at_window(), has_controller: true }
    }

    /// Opens the socket again after another daemon took it; `None` if that daemon keeps it.
    ///
    /// A controller takes the socket back from a node's daemon, but not from another controller. Two
    /// controllers on one host would otherwise take it from each other forever.
    async fn reopen(&self, socket: &Path) -> Result<Option<Window>, WindowError> {
        match self.has_controller {
            false => Window::open(socket).await,
            true if is_served_by_controller(socket).await => Ok(None),
            true => Window::take(socket).map(Some),
        }
    }
}

/// A listening socket for tokens.
#[derive(Debug)]
pub struct Window {
    listener: UnixListener,
    socket: PathBuf,
    /// Inode of the socket's file: another daemon may have put its own file at the path.
    inode: u64,
}

/// Number of windows that this process has opened, which makes the names of their files differ.
static OPENED: AtomicU32 = AtomicU32::new(0);

/// Creates a socket that all users of the host may connect to, and returns it with its inode.
fn make(path: &Path) -> io::Result<(UnixListener, u64)> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(path)?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))?;
    Ok((listener, std::fs::metadata(path)?.ino()))
}

/// The reason why a socket for tokens cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum WindowError {
    /// The file of an earlier daemon cannot be replaced.
    #[error("[auth] socket: cannot replace {}", .0.display())]
    Old(PathBuf, #[source] io::Error),
    /// The directory cannot be created.
    #[error("[auth] socket: cannot create {}", .0.display())]
    Directory(PathBuf, #[source] io::Error),
    /// The socket cannot be created or opened to all.
    #[error("[auth] socket: cannot listen on {}", .0.display())]
    Listen(PathBuf, #[source] io::Error),
}

impl Window {
    /// Opens the socket; `None` if another daemon of this host serves it.
    ///
    /// # Errors
    /// Explains why the socket cannot be created.
    pub async fn open(socket: &Path) -> Result<Option<Window>, WindowError> {
        if is_served(socket).await { Ok(None) } else { Window::take(socket).map(Some) }
    }

    /// Opens the socket in place of any other daemon; used by the controller, which offers more services
    /// there.
    ///
    /// # Errors
    /// Explains why the socket cannot be created.
    pub fn take(socket: &Path) -> Result<Window, WindowError> {
        if let Some(directory) = socket.parent() {
            let made = std::fs::create_dir_all(directory);
            made.map_err(|error| WindowError::Directory(directory.to_owned(), error))?;
        }
        // Created beside its place and renamed: another daemon that does the same at this moment finds a
        // complete socket.
        let mut beside = socket.as_os_str().to_owned();
        beside.push(format!(".{}.{}", std::process::id(), OPENED.fetch_add(1, Ordering::Relaxed)));
        let beside = PathBuf::from(beside);
        let made = make(&beside);
        let (listener, inode) = made.map_err(|error| WindowError::Listen(socket.to_owned(), error))?;
        if let Err(error) = std::fs::rename(&beside, socket) {
            // No file may stay behind.
            let _ = std::fs::remove_file(&beside);
            return Err(WindowError::Old(socket.to_owned(), error));
        }
        Ok(Window { listener, socket: socket.to_owned(), inode })
    }

    /// Serves until `stopped`: at `window`, or as soon as the socket can be opened (again).
    ///
    /// Calls under way continue when another daemon takes the socket.
    pub async fn hand_out(
        mut window: Option<Window>,
        socket: &Path,
        services: Services,
        stopped: impl Future<Output = ()>,
    ) {
        let mut stopped = std::pin::pin!(stopped);
        let mut served = JoinSet::new();
        let complaint = Complaint::default();
        loop {
            if let Some(open) = window.take() {
                let inode = open.inode;
                // Dropping either end wakes the other.
                let (mut here, there) = oneshot::channel::<()>();
                let until = async { there.await.unwrap_or_default() };
                served.spawn(open.serve(services.clone(), until));
                tokio::select! {
                    () = &mut stopped => break,
                    () = here.closed() => {}
                    () = displaced(socket, inode) => tracing::warn!("the socket of tokens is somebody else's"),
                }
            }
            tokio::select! {
                () = &mut stopped => break,
                () = tokio::time::sleep(LOOK) => {}
            }
            window = match services.reopen(socket).await {
                Ok(found) => found.inspect(|_| tracing::info!("hands out tokens from now on")),
                Err(error) => {
                    complaint.tell(|_| {
                        tracing::warn!(
                            %error,
                            cause = ?std::error::Error::source(&error),
                            "no tokens are handed out, which commands on this host need"
                        );
                    });
                    None
                }
            };
        }
        while served.join_next().await.is_some() {}
    }

    /// Serves until `stopped`, and then removes the socket.
    async fn serve(self, services: Services, stopped: impl Future<Output = ()>) {
        let Window { listener, socket, inode } = self;
        let Services { router, limits, .. } = services;
        let incoming = Incoming::unix(listener, limits);
        let served = router.serve_with_incoming_shutdown(incoming, stopped).await;
        let gone = if is_there(&socket, inode) { std::fs::remove_file(&socket) } else { Ok(()) };
        if let Err(error) = served.map_err(io::Error::other).and(gone) {
            tracing::error!(%error, "tokens are no longer handed out");
        }
    }
}

/// True if a daemon accepts a connection to the socket and answers in time, even if it only closes the
/// connection because it is busy. The kernel accepts connections also for a process that is stopped
/// (debugger, SIGSTOP), so a connection alone proves nothing.
async fn is_served(socket: &Path) -> bool {
    let Ok(mut stream) = UnixStream::connect(socket).await else { return false };
    let answer = async {
        stream.write_all(GREETING).await?;
        stream.read_u8().await
    };
    tokio::time::timeout(ANSWER, answer).await.is_ok()
}

/// True if a controller answers at the socket.
async fn is_served_by_controller(socket: &Path) -> bool {
    let answer = async {
        let channel = connect_locally(socket, &[]).await.ok()?;
        let minted = IdentityClient::new(channel).mint_token(v1::MintTokenRequest {}).await.ok()?;
        Some(minted.into_inner().controller_port > 0)
    };
    matches!(tokio::time::timeout(ANSWER, answer).await, Ok(Some(true)))
}

fn is_there(socket: &Path, inode: u64) -> bool {
    std::fs::metadata(socket).is_ok_and(|found| found.ino() == inode)
}

/// Waits until the path has another file, or none.
async fn displaced(socket: &Path, inode: u64) {
    while is_there(socket, inode) {
        tokio::time::sleep(LOOK).await;
    }
}

/// The service that makes tokens.
struct Mint {
    keyring: Option<Keyring>,
    /// Port of the controller at this socket; 0 for none.
    controller_port: u32,
}

#[tonic::async_trait]
impl Identity for Mint {
    async fn mint_token(
        &self,
        request: Request<v1::MintTokenRequest>,
    ) -> Result<Response<v1::MintTokenResponse>, Status> {
        let Some(&Peer { origin: Origin::User { uid, gid }, .. }) = request.extensions().get() else {
            return Err(Status::unauthenticated("the kernel does not say who is asking"));
        };
        // The name service may be slow.
        let person = tokio::task::spawn_blocking(move || person(uid, gid)).await;
        let person = person.map_err(|error| Status::internal(error.to_string()))?;
        let now =
            SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs().cast_signed());
        let expires = now + TOKEN_SECONDS;
        let claims = v1::TokenClaims { expires, ..person };
        let Some(keyring) = &self.keyring else {
            let token = auth::unsigned(&claims);
            let controller_port = self.controller_port;
            let minted = v1::MintTokenResponse { token, expires, controller_port, ..Default::default() };
            return Ok(Response::new(minted));
        };
        let keys = keyring.now();
        let controllers = keys.public(&Role::Controller);
        let controllers = controllers.iter().map(|key| key.bytes().to_vec().into());
        Ok(Response::new(v1::MintTokenResponse {
            token: keys.mint(&claims),
            expires,
            controller_keys: controllers.collect(),
            controller_port: self.controller_port,
        }))
    }
}

/// Largest size of the names of a user's other groups in a token, in bytes: a token travels with every call.
const GROUP_BYTES: usize = 8 << 10;

/// Returns the claims of a user with this primary group, and the names of the user's other groups, up to 8
/// KiB in all. A number replaces the name of the user or primary group if this host does not know it; other
/// groups without a name are omitted.
pub fn person(uid: u32, gid: u32) -> v1::TokenClaims {
    let name = |gid: Gid| Group::from_gid(gid).ok().flatten().map(|group| group.name);
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    let own = known.as_ref().and_then(|user| {
        let login = CString::new(user.name.as_str()).ok()?;
        nix::unistd::getgrouplist(&login, user.gid).ok()
    });
    let others = own.into_iter().flatten().filter(|other| other.as_raw() != gid);
    let mut room = GROUP_BYTES;
    let mut groups = Vec::new();
    for group in others.filter_map(name) {
        let Some(left) = room.checked_sub(group.len()) else {
            tracing::warn!(
                uid,
                "this user is in too many groups; allow_groups looks at the first {}",
                groups.len()
            );
            break;
        };
        room = left;
        groups.push(group);
    }
    v1::TokenClaims {
        uid,
        gid,
        user: known.map_or_else(|| uid.to_string(), |user| user.name),
        group: name(Gid::from_raw(gid)).unwrap_or_else(|| gid.to_string()),
        groups,
        ..v1::TokenClaims::default()
    }
}
