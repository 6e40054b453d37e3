//! Tokens for whoever asks on this host: the kernel says who it is.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use nix::unistd::{Gid, Group, Uid, User};
use spur_proto::auth::{self, ClusterKey, TOKEN_SECONDS};
use spur_proto::v1;
use spur_proto::v1::identity_server::{Identity, IdentityServer};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

use crate::clock;
use crate::stop::Stop;

/// Hands out tokens.
struct Window {
    key: Option<Arc<ClusterKey>>,
}

#[tonic::async_trait]
impl Identity for Window {
    async fn mint_token(
        &self,
        request: Request<v1::MintTokenRequest>,
    ) -> Result<Response<v1::MintTokenResponse>, Status> {
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let peer = peer.ok_or_else(|| Status::unauthenticated("the kernel does not say who you are"))?;
        let (uid, gid) = (peer.uid(), peer.gid());
        // A directory service may be behind these names.
        let names = tokio::task::spawn_blocking(move || (user_name(uid), group_name(gid))).await;
        let (user, group) = names.map_err(|error| Status::internal(error.to_string()))?;
        let expires = clock::now().0 + TOKEN_SECONDS;
        let claims = v1::TokenClaims { uid, gid, user, group, expires, node: String::new() };
        let token = match &self.key {
            Some(key) => key.mint(&claims),
            None => auth::unsigned(&claims),
        };
        Ok(Response::new(v1::MintTokenResponse { token, expires }))
    }
}

/// A user's name, or the number where there is none.
fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        Ok(None) | Err(_) => uid.to_string(),
    }
}

/// A group's name, or the number where there is none.
fn group_name(gid: u32) -> String {
    match Group::from_gid(Gid::from_raw(gid)) {
        Ok(Some(group)) => group.name,
        Ok(None) | Err(_) => gid.to_string(),
    }
}

/// Opens the socket; nothing if another daemon of this host hands out tokens there already.
///
/// # Errors
/// A socket that cannot be opened.
pub(crate) async fn listen(socket: &Path) -> anyhow::Result<Option<UnixListener>> {
    if UnixStream::connect(socket).await.is_ok() {
        tracing::info!(socket = %socket.display(), "another daemon hands out tokens here");
        return Ok(None);
    }
    // What is left of a daemon that has ended.
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot remove the old {}", socket.display()));
        }
        _ => {}
    }
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory)
            .with_context(|| format!("[auth] socket: cannot create {}", directory.display()))?;
    }
    let listener = UnixListener::bind(socket)
        .with_context(|| format!("[auth] socket: cannot listen on {}", socket.display()))?;
    // Everybody may ask; the kernel says who did.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))
        .with_context(|| format!("[auth] socket: cannot open {} to all", socket.display()))?;
    Ok(Some(listener))
}

/// Hands out tokens until the controller stops.
pub(crate) async fn serve(listener: UnixListener, socket: PathBuf, key: Option<Arc<ClusterKey>>, stop: Stop) {
    let service = IdentityServer::new(Window { key });
    let incoming = UnixListenerStream::new(listener);
    let server = tonic::transport::Server::builder().add_service(service);
    if let Err(error) = server.serve_with_incoming_shutdown(incoming, stop.wished()).await {
        tracing::error!(%error, "tokens are no longer handed out");
    }
    if let Err(error) = std::fs::remove_file(&socket) {
        tracing::warn!(%error, socket = %socket.display(), "the socket stays behind");
    }
}
