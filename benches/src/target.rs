//! The controller under load, and the identity used towards it.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use spur_core::text::address::HostPort;
use spur_proto::auth;
use spur_proto::channel::Dialer;
use spur_proto::client::{Connection, Identity, Introduction};
use spur_proto::keys::{ClusterKeys, Role};
use spur_proto::v1::TokenClaims;
use tonic::service::interceptor::InterceptedService;
use tonic::transport::Channel;

use crate::arguments::Arguments;

/// The lifetime of tokens, in seconds.
const LIFE: i64 = 3600;

/// The name of the cluster.
const CLUSTER: &str = "bench";

/// A controller and the keys to authenticate to it.
pub(crate) struct Target {
    address: HostPort,
    keys: Option<ClusterKeys>,
}

impl Target {
    pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let address = std::env::var("SPUR_CONTROLLER").unwrap_or_else(|_| "127.0.0.1:6817".to_owned());
        let keys = arguments.key.as_ref().map(|file| ClusterKeys::read(file, CLUSTER)).transpose()?;
        Ok(Self { address: address.parse().with_context(|| address.clone())?, keys })
    }

    /// A separate connection; `node` is the name of a node, or empty for a user.
    pub(crate) async fn connect(&self, node: &str) -> anyhow::Result<Channel> {
        let dialer = match &self.keys {
            None => Dialer::believing(),
            Some(keys) => {
                let own = (!node.is_empty()).then(|| keys.own(&Role::Node(node.into())).remove(0));
                Dialer::expecting(&keys.public(&Role::Controller), own)
            }
        };
        Ok(dialer.connect(&self.address).await?)
    }

    /// A separate connection for a user, whose name is the letter `u` and the number.
    pub(crate) async fn channel_as(
        &self,
        uid: u32,
    ) -> anyhow::Result<InterceptedService<Channel, Introduction>> {
        let (user, group) = (format!("u{uid}"), format!("g{uid}"));
        let claims = TokenClaims { uid, gid: uid, user, group, ..TokenClaims::default() };
        Ok(InterceptedService::new(self.connect("").await?, self.introduction_of(claims)?))
    }

    /// A connection for a user as commands have them, which tries again after failures.
    pub(crate) fn connection_as(&self, uid: u32) -> anyhow::Result<Connection> {
        let (user, group) = (format!("u{uid}"), format!("g{uid}"));
        let claims = TokenClaims { uid, gid: uid, user, group, ..TokenClaims::default() };
        let identity = match &self.keys {
            Some(keys) => Identity::Keys(Arc::new(keys.clone()), claims),
            None => Identity::Unsigned(claims),
        };
        Ok(Connection::new(std::slice::from_ref(&self.address), identity)?)
    }

    /// The credentials of every call; `node` is the name of a node, or empty for a user.
    pub(crate) fn introduction(&self, node: &str) -> anyhow::Result<Introduction> {
        self.introduction_of(TokenClaims {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            user: "bench".to_owned(),
            group: "bench".to_owned(),
            node: node.to_owned(),
            ..TokenClaims::default()
        })
    }

    fn introduction_of(&self, claims: TokenClaims) -> anyhow::Result<Introduction> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let claims = TokenClaims { expires: i64::try_from(now.as_secs())? + LIFE, ..claims };
        let token = match &self.keys {
            Some(keys) => keys.mint(&claims),
            None => auth::unsigned(&claims),
        };
        Introduction::new(&token).context("a token that no header can carry")
    }
}
