//! Who is asking: every call's token and protocol version, looked at before anything else.

use std::sync::Arc;

use spur_core::model::caller::{Caller, Owner};
use spur_proto::auth::{self, ClusterKey};
use spur_proto::refusal;
use spur_proto::v1::{Error, TokenClaims};
use tonic::service::Interceptor;
use tonic::{Code, Request, Status};

use crate::clock;

/// The code of a token that is not accepted.
const BAD_TOKEN: &str = "ESLURM_AUTH_CRED_INVALID";

/// Looks at every call.
#[derive(Clone)]
pub(crate) struct Gate {
    key: Option<Arc<ClusterKey>>,
    /// The user the controller runs as.
    own_uid: u32,
}

/// Who a call comes from. An extension of every request.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    /// The user.
    pub(crate) caller: Caller,
    /// The node whose daemon it is; empty for a person.
    node: String,
    /// Whether that was proved.
    proved: bool,
}

impl Identified {
    /// Whether the call may speak for a node.
    pub(crate) fn may_be(&self, node: &str) -> bool {
        self.node == node || (!self.proved && self.node.is_empty())
    }
}

impl Gate {
    /// A gate that asks for signatures of `key`; without one, whoever connects is believed.
    pub(crate) fn new(key: Option<Arc<ClusterKey>>) -> Self {
        Self { key, own_uid: rustix::process::geteuid().as_raw() }
    }

    fn identify(&self, request: &Request<()>) -> Result<Identified, Status> {
        refusal::check_version(request.metadata())?;
        let now = clock::now().0;
        let claims = auth::token_of(request.metadata()).and_then(|token| match &self.key {
            Some(key) => key.verify(token, now),
            None => auth::read_unverified(token, now),
        });
        let claims = claims.map_err(|error| {
            refusal::status(Code::Unauthenticated, &Error::new(BAD_TOKEN, error.to_string()))
        })?;
        let TokenClaims { uid, gid, user, group, expires: _, node } = claims;
        let owner = Owner { uid, gid, user: user.into(), group: group.into() };
        let operator = uid == 0 || uid == self.own_uid;
        let caller = Caller { owner: Arc::new(owner), operator };
        Ok(Identified { caller, node, proved: self.key.is_some() })
    }
}

impl Interceptor for Gate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let identified = self.identify(&request)?;
        request.extensions_mut().insert(identified);
        Ok(request)
    }
}

/// Who a request comes from.
///
/// # Errors
/// A request that did not pass the gate.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Result<Caller, Status> {
    let identified = request.extensions().get::<Identified>();
    identified
        .map(|identified| identified.caller.clone())
        .ok_or_else(|| Status::unauthenticated("the call names nobody"))
}
