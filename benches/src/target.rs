//! The controller that is put under load, and who we are to it.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use spur_core::text::address::HostPort;
use spur_proto::auth::{self, ClusterKey};
use spur_proto::channel;
use spur_proto::client::Introduction;
use spur_proto::v1::TokenClaims;
use tonic::transport::Channel;

use crate::arguments::Arguments;

/// How long our tokens are good for, seconds.
const LIFE: i64 = 3600;

/// A controller and a way to be believed by it.
pub(crate) struct Target {
    address: HostPort,
    key: Option<ClusterKey>,
}

impl Target {
    pub(crate) fn new(arguments: &Arguments) -> anyhow::Result<Self> {
        let address = std::env::var("SPUR_CONTROLLER").unwrap_or_else(|_| "127.0.0.1:6817".to_owned());
        let key = arguments.key.as_ref().map(|file| ClusterKey::read(Path::new(file))).transpose()?;
        Ok(Self { address: address.parse().with_context(|| address.clone())?, key })
    }

    /// A connection of its own.
    pub(crate) async fn connect(&self) -> anyhow::Result<Channel> {
        Ok(channel::endpoint(&self.address)?.connect().await?)
    }

    /// What every call carries; `node` for a node's.
    pub(crate) fn introduction(&self, node: &str) -> anyhow::Result<Introduction> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
        let claims = TokenClaims {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            user: "bench".to_owned(),
            group: "bench".to_owned(),
            expires: i64::try_from(now.as_secs())? + LIFE,
            node: node.to_owned(),
        };
        let token = match &self.key {
            Some(key) => key.mint(&claims),
            None => auth::unsigned(&claims),
        };
        Introduction::new(&token).context("a token that no header can carry")
    }
}
