//! Who is asking: every call's token and protocol version, looked at before anything else.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use spur_core::model::caller::{Caller, Owner};
use spur_proto::auth::{self, AuthError, ClusterKey};
use spur_proto::refusal;
use spur_proto::v1::{Error, TokenClaims};
use tonic::service::Interceptor;
use tonic::{Code, Request, Status};

use crate::clock;

/// The code of a token that is not accepted.
const BAD_TOKEN: &str = "ESLURM_AUTH_CRED_INVALID";

/// Tokens that are remembered at most; a client uses each of its own for minutes.
const REMEMBERED: usize = 4096;

/// Looks at every call. Clones share what they remember.
#[derive(Clone)]
pub(crate) struct Gate {
    key: Option<Arc<ClusterKey>>,
    /// The user the controller runs as.
    own_uid: u32,
    /// Tokens that have been looked at and found good. Jobs of one token share their owner, too.
    known: Arc<Mutex<HashMap<Box<str>, Known>>>,
}

/// Whose a good token is.
#[derive(Clone)]
struct Known {
    identified: Identified,
    /// Until when it is good.
    expires: i64,
}

/// Who a call comes from. An extension of every request.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    /// The user.
    pub(crate) caller: Caller,
    /// The node whose daemon it is; empty for a person.
    node: Arc<str>,
    /// Whether that was proved.
    proved: bool,
}

impl Identified {
    /// Whether the call may speak for a node.
    pub(crate) fn may_be(&self, node: &str) -> bool {
        *self.node == *node || (!self.proved && self.node.is_empty())
    }
}

impl Gate {
    /// A gate that asks for signatures of `key`; without one, whoever connects is believed.
    pub(crate) fn new(key: Option<Arc<ClusterKey>>) -> Self {
        Self { key, own_uid: rustix::process::geteuid().as_raw(), known: Arc::default() }
    }

    fn identify(&self, request: &Request<()>) -> Result<Identified, Status> {
        refusal::check_version(request.metadata())?;
        let now = clock::now().0;
        let token = auth::token_of(request.metadata()).map_err(|error| bad_token(&error))?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(token).filter(|known| known.expires > now) {
            return Ok(known.identified.clone());
        }
        let found = self.look_at(token, now).map_err(|error| bad_token(&error))?;
        if known.len() >= REMEMBERED {
            known.clear();
        }
        known.insert(token.into(), found.clone());
        Ok(found.identified)
    }

    fn look_at(&self, token: &str, now: i64) -> Result<Known, AuthError> {
        let claims = match &self.key {
            Some(key) => key.verify(token, now),
            None => auth::read_unverified(token, now),
        }?;
        let TokenClaims { uid, gid, user, group, expires, node } = claims;
        let owner = Owner { uid, gid, user: user.into(), group: group.into() };
        let operator = uid == 0 || uid == self.own_uid;
        let caller = Caller { owner: Arc::new(owner), operator };
        Ok(Known {
            identified: Identified { caller, node: node.into(), proved: self.key.is_some() },
            expires,
        })
    }
}

fn bad_token(error: &AuthError) -> Status {
    refusal::status(Code::Unauthenticated, &Error::new(BAD_TOKEN, error.to_string()))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn call(token: &str) -> Request<()> {
        let mut request = Request::new(());
        let metadata = request.metadata_mut();
        metadata.insert("authorization", format!("{}{token}", auth::SCHEME).parse().unwrap());
        metadata.insert(refusal::VERSION_KEY, refusal::PROTOCOL.parse().unwrap());
        request
    }

    fn claims(uid: u32, expires: i64) -> TokenClaims {
        TokenClaims { uid, gid: 1, user: "alice".into(), group: "staff".into(), expires, node: String::new() }
    }

    #[test]
    fn a_token_is_looked_at_once_and_one_that_is_not_good_every_time() {
        let key = Arc::new(ClusterKey::from_bytes([7; 32]));
        let gate = Gate::new(Some(Arc::clone(&key)));
        let later = clock::now().0 + 100;
        let token = key.mint(&claims(1000, later));
        let first = gate.identify(&call(&token)).unwrap();
        let again = gate.identify(&call(&token)).unwrap();
        assert!(Arc::ptr_eq(&first.caller.owner, &again.caller.owner), "remembered");
        assert_eq!(first.caller.owner.uid, 1000);
        let forged = ClusterKey::from_bytes([8; 32]).mint(&claims(0, later));
        for _ in 0..2 {
            assert_eq!(gate.identify(&call(&forged)).unwrap_err().code(), Code::Unauthenticated);
        }
        assert_eq!(gate.known.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_remembered_token_expires_all_the_same() {
        let gate = Gate::new(None);
        let token = auth::unsigned(&claims(1000, clock::now().0 + 100));
        gate.identify(&call(&token)).unwrap();
        let expired = clock::now().0;
        gate.known.lock().unwrap().values_mut().for_each(|known| known.expires = expired);
        // What is remembered is not believed any more; the token itself says that it is good.
        gate.identify(&call(&token)).unwrap();
        assert!(gate.known.lock().unwrap().values().all(|known| known.expires > expired));
        let old = auth::unsigned(&claims(1000, expired));
        assert_eq!(gate.identify(&call(&old)).unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(gate.known.lock().unwrap().len(), 1);
    }
}
