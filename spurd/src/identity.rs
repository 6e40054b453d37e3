//! Tokens for the people on this host: who connects to the socket is asked of the kernel, not of the caller.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::unistd::{Gid, Group, Uid, User};
use spur_proto::auth::{ClusterKey, TOKEN_SECONDS};
use spur_proto::v1;
use spur_proto::v1::identity_server::{Identity, IdentityServer};
use tokio::net::{UnixListener, UnixStream};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::server::UdsConnectInfo;
use tonic::{Request, Response, Status};

use crate::register::now;

struct Mint {
    key: ClusterKey,
}

#[tonic::async_trait]
impl Identity for Mint {
    async fn mint_token(
        &self,
        request: Request<v1::MintTokenRequest>,
    ) -> Result<Response<v1::MintTokenResponse>, Status> {
        let peer = request.extensions().get::<UdsConnectInfo>().and_then(|info| info.peer_cred);
        let peer = peer.ok_or_else(|| Status::unauthenticated("the kernel does not say who is asking"))?;
        let (uid, gid) = (peer.uid(), peer.gid());
        // A directory service may take its time.
        let names = tokio::task::spawn_blocking(move || names(uid, gid)).await;
        let (user, group) = names.map_err(|error| Status::internal(error.to_string()))?;
        let expires = now() + TOKEN_SECONDS;
        let claims = v1::TokenClaims { uid, gid, user, group, expires, node: String::new() };
        Ok(Response::new(v1::MintTokenResponse { token: self.key.mint(&claims), expires }))
    }
}

/// The names of a user and a group; their numbers where this host knows no names.
fn names(uid: u32, gid: u32) -> (String, String) {
    let user = User::from_uid(Uid::from_raw(uid)).ok().flatten().map(|user| user.name);
    let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten().map(|group| group.name);
    (user.unwrap_or_else(|| uid.to_string()), group.unwrap_or_else(|| gid.to_string()))
}

/// Hands out tokens at `socket` for as long as this is polled; returns at once if another daemon of this host does.
///
/// # Errors
/// A socket that cannot be made.
pub(crate) async fn serve(socket: &Path, key: ClusterKey) -> io::Result<()> {
    if UnixStream::connect(socket).await.is_ok() {
        tracing::debug!(socket = %socket.display(), "another daemon of this host hands out tokens");
        return Ok(());
    }
    if let Some(directory) = socket.parent() {
        std::fs::create_dir_all(directory)?;
    }
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(socket)?;
    // Everybody on this host may ask who they are.
    std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
    let server = tonic::transport::Server::builder().add_service(IdentityServer::new(Mint { key }));
    server.serve_with_incoming(UnixListenerStream::new(listener)).await.map_err(io::Error::other)
}
