//! Authentication of calls: token and protocol version are checked before anything else. A node's token is
//! valid only together with the node's key, which its connection has proved.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use spur_core::model::caller::{Caller, Owner};
use spur_proto::auth::{self, AuthError};
use spur_proto::keys::{ClusterKeys, Keyring, PublicKey, Role};
use spur_proto::listen::{Complaint, Peer, Proved};
use spur_proto::refusal;
use spur_proto::v1::{Error, TokenClaims};
use tonic::service::Interceptor;
use tonic::{Code, Request, Status};

use crate::clock;

/// Largest number of remembered tokens; a client uses each of its own for minutes.
const REMEMBERED: usize = 4096;

/// Checks every call. Clones share the remembered tokens.
#[derive(Clone)]
pub(crate) struct Gate {
    keyring: Option<Keyring>,
    /// True for the gate of nodes, false for that of users.
    for_nodes: bool,
    /// User ID of the controller's process.
    own_uid: u32,
    /// Tokens that were checked and found valid. Jobs submitted with one token share their owner, too.
    known: Arc<Mutex<Tokens>>,
    /// Limits the log lines about refused calls.
    refused: Arc<Complaint>,
}

/// Valid tokens.
#[derive(Default)]
struct Tokens {
    /// The keys with which the tokens were checked.
    by: Option<Arc<ClusterKeys>>,
    owners: HashMap<Box<str>, Known>,
}

/// The content of a valid token.
#[derive(Clone)]
struct Known {
    identified: Identified,
    /// Seconds since the Unix epoch at which the token expires.
    expires: i64,
    /// Keys of which the connection must have proved one; empty for a user.
    keys: Arc<[PublicKey]>,
}

/// The caller of a request, as an extension of it.
#[derive(Clone, Debug)]
pub(crate) struct Identified {
    /// The user.
    pub(crate) caller: Caller,
    /// The node whose daemon calls; empty for a user.
    node: Arc<str>,
    /// True if the identity was proved, false in a cluster without keys.
    proved: bool,
}

impl Identified {
    /// True if the call may speak for a node.
    pub(crate) fn may_be(&self, node: &str) -> bool {
        *self.node == *node || (!self.proved && self.node.is_empty())
    }
}

impl Gate {
    /// Returns the gate of commands; without keys, every token is accepted.
    pub(crate) fn for_people(keyring: Option<Keyring>) -> Self {
        Self {
            keyring,
            for_nodes: false,
            own_uid: rustix::process::geteuid().as_raw(),
            known: Arc::default(),
            refused: Arc::default(),
        }
    }

    /// Returns the gate of nodes; without keys, every token is accepted.
    pub(crate) fn for_nodes(keyring: Option<Keyring>) -> Self {
        Self { for_nodes: true, ..Self::for_people(keyring) }
    }

    fn identify(&self, request: &Request<()>) -> Result<Identified, Status> {
        refusal::check_version(request.metadata())?;
        let token = auth::token_of(request.metadata()).map_err(|error| bad_token(&error))?;
        let known = self.known(token)?;
        let peer = request.extensions().get::<Peer>();
        if !known.keys.is_empty() {
            let shown = peer.and_then(|peer| peer.key);
            if !shown.is_some_and(|key| known.keys.contains(&key)) {
                let node = &known.identified.node;
                return Err(denied(format!("the connection does not have the key of node {node}")));
            }
        }
        if let Some(peer) = peer {
            let caller = &known.identified.caller;
            let (owner, administrator) = (&caller.owner, caller.is_administrator());
            let proved =
                if self.for_nodes || administrator { Proved::Known } else { Proved::User(owner.uid) };
            peer.prove(proved).map_err(|many| refusal::busy(&many.to_string()))?;
        }
        Ok(known.identified)
    }

    /// Logs that a call was refused for its caller's identity, without the presented token.
    fn tell(&self, request: &Request<()>, status: &Status) {
        if !matches!(status.code(), Code::Unauthenticated | Code::PermissionDenied) {
            return;
        }
        let from = request.extensions().get::<Peer>().map(|peer| peer.origin.to_string());
        let (from, why) = (from.unwrap_or_default(), status.message());
        self.refused.tell(|more| tracing::warn!(from, more, "a call was refused: {why}"));
    }

    /// Returns the content of a token; tokens that were checked before are remembered.
    fn known(&self, token: &str) -> Result<Known, Status> {
        let now = clock::wall().0;
        let keys = self.keyring.as_ref().map(Keyring::now);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(keys), by) = (&keys, &mut known.by)
            && !by.as_ref().is_some_and(|by| Arc::ptr_eq(by, keys))
        {
            *by = Some(Arc::clone(keys));
            known.owners.clear();
        }
        if let Some(known) = known.owners.get(token).filter(|known| known.expires > now) {
            return Ok(known.clone());
        }
        let found = self.look_at(keys.as_deref(), token, now).map_err(|error| bad_token(&error))?;
        if self.keyring.is_some() && found.identified.node.is_empty() == self.for_nodes {
            let text = "a node's token is for registering, a person's for everything else";
            return Err(denied(text.to_owned()));
        }
        if known.owners.len() >= REMEMBERED {
            known.owners.clear();
        }
        known.owners.insert(token.into(), found.clone());
        Ok(found)
    }

    fn look_at(&self, keys: Option<&ClusterKeys>, token: &str, now: i64) -> Result<Known, AuthError> {
        let claims = match keys {
            // A node proves its presence with each connection, and a wrong clock must not keep the node out.
            Some(keys) if self.for_nodes => keys.verify(token, i64::MIN),
            Some(keys) => keys.verify(token, now),
            None => auth::read_unverified(token, now),
        }?;
        let TokenClaims { uid, gid, user, group, expires, node, groups } = claims;
        let owner = Owner { uid, gid, user: user.into(), group: group.into() };
        let administrator = uid == 0 || uid == self.own_uid;
        let groups = groups.into_iter().map(Arc::from).collect();
        let caller = Caller::new(Arc::new(owner), groups, administrator);
        let node: Arc<str> = node.into();
        let keys = keys.filter(|_| !node.is_empty()).map(|keys| keys.public(&Role::Node(Arc::clone(&node))));
        Ok(Known {
            identified: Identified { caller, node, proved: self.keyring.is_some() },
            expires,
            keys: keys.unwrap_or_default(),
        })
    }
}

fn denied(message: String) -> Status {
    refusal::status(Code::PermissionDenied, &Error::new("ESLURM_ACCESS_DENIED", message))
}

fn bad_token(error: &AuthError) -> Status {
    refusal::status(Code::Unauthenticated, &Error::new(auth::BAD_TOKEN, error.to_string()))
}

impl Interceptor for Gate {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        let identified = self.identify(&request).inspect_err(|status| self.tell(&request, status))?;
        request.extensions_mut().insert(identified);
        Ok(request)
    }
}

/// Returns the caller of a request.
///
/// # Errors
/// Fails if the request did not pass the gate.
pub(crate) fn caller_of<T>(request: &Request<T>) -> Result<Caller, Status> {
    let identified = request.extensions().get::<Identified>();
    identified
        .map(|identified| identified.caller.clone())
        .ok_or_else(|| Status::unauthenticated("the call names nobody"))
}

#[cfg(test)]
mod tests {
    use spur_proto::keys::ClusterKey;

    use super::*;

    fn call(token: &str) -> Request<()> {
        let mut request = Request::new(());
        let metadata = request.metadata_mut();
        metadata.insert("authorization", format!("{}{token}", auth::SCHEME).parse().unwrap());
        metadata.insert(refusal::VERSION_KEY, refusal::PROTOCOL.parse().unwrap());
        request
    }

    fn keys(byte: u8) -> ClusterKeys {
        ClusterKeys::of(ClusterKey::from_bytes([byte; 32]), "test")
    }

    fn claims(uid: u32, expires: i64) -> TokenClaims {
        TokenClaims {
            uid,
            gid: 1,
            user: "alice".into(),
            group: "staff".into(),
            expires,
            ..TokenClaims::default()
        }
    }

    #[test]
    fn a_token_is_looked_at_once_and_one_that_is_not_good_every_time() {
        let keyring = Keyring::new(keys(7));
        let gate = Gate::for_people(Some(keyring.clone()));
        let later = clock::wall().0 + 100;
        let token = keys(7).mint(&claims(1000, later));
        let first = gate.identify(&call(&token)).unwrap();
        let again = gate.identify(&call(&token)).unwrap();
        assert!(Arc::ptr_eq(&first.caller.owner, &again.caller.owner), "remembered");
        assert_eq!(first.caller.owner.uid, 1000);
        let forged = keys(8).mint(&claims(0, later));
        for _ in 0..2 {
            assert_eq!(gate.identify(&call(&forged)).unwrap_err().code(), Code::Unauthenticated);
        }
        assert_eq!(gate.known.lock().unwrap().owners.len(), 1);
        keyring.replace(keys(8));
        assert!(gate.identify(&call(&token)).is_err(), "its key is not valid any more");
    }

    #[test]
    fn a_node_registers_and_does_nothing_else() {
        let later = clock::wall().0 + 100;
        let node = keys(7).mint(&TokenClaims { node: "n1".into(), ..claims(0, later) });
        let person = keys(7).mint(&claims(0, later));
        let people = Gate::for_people(Some(Keyring::new(keys(7))));
        let nodes = Gate::for_nodes(Some(Keyring::new(keys(7))));
        for (gate, token) in [(&people, &node), (&nodes, &person), (&nodes, &node)] {
            assert_eq!(gate.identify(&call(token)).unwrap_err().code(), Code::PermissionDenied);
        }
        people.identify(&call(&person)).unwrap();
    }

    #[test]
    fn the_clock_of_a_node_does_not_matter() {
        let gate = Gate::for_nodes(Some(Keyring::new(keys(7))));
        let behind = TokenClaims { node: "n1".into(), ..claims(0, clock::wall().0 - 7200) };
        assert_eq!(&*gate.known(&keys(7).mint(&behind)).unwrap().identified.node, "n1");
        assert!(gate.known(&keys(8).mint(&behind)).is_err());
    }

    #[test]
    fn a_remembered_token_expires_all_the_same() {
        let gate = Gate::for_people(None);
        let token = auth::unsigned(&claims(1000, clock::wall().0 + 100));
        gate.identify(&call(&token)).unwrap();
        let expired = clock::wall().0;
        gate.known.lock().unwrap().owners.values_mut().for_each(|known| known.expires = expired);
        // The remembered entry has expired, but the token itself is still valid.
        gate.identify(&call(&token)).unwrap();
        assert!(gate.known.lock().unwrap().owners.values().all(|known| known.expires > expired));
        let old = auth::unsigned(&claims(1000, expired));
        assert_eq!(gate.identify(&call(&old)).unwrap_err().code(), Code::Unauthenticated);
        assert_eq!(gate.known.lock().unwrap().owners.len(), 1);
    }
}
