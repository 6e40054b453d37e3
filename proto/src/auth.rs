//! Authentication: tokens of users and daemons, credentials of steps, and their signatures.
//!
//! A token is `CLAIMS.SIGNATURE`, both in URL-safe base64 without padding; the claims are a serialized
//! [`TokenClaims`], the signature is HMAC-SHA256. Without keys (`auth.method = "none"`, loopback only) the
//! signature is empty. A credential is a serialized [`StepCredential`], followed by the HMAC-SHA256 of its
//! SHA-256 with every valid key, and one byte with the number of signatures. Signed data begin with their
//! purpose, so that neither kind can pass for the other.
//!
//! A call to a node carries the [`pass`] of its credential in the metadata. The node can therefore
//! authenticate the call before it reads the body.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use prost::Message;
use sha2::{Digest, Sha256};
use tonic::metadata::MetadataMap;

use crate::keys::{ClusterKey, ClusterKeys};
use crate::v1::{PeerPass, StepCredential, TokenClaims};

/// Lifetime of a user's token, in seconds.
pub const TOKEN_SECONDS: i64 = 300;
/// The error code of a token that is not accepted.
pub const BAD_TOKEN: &str = "ESLURM_AUTH_CRED_INVALID";
/// The scheme of the `authorization` metadata for tokens.
pub const SCHEME: &str = "Spur ";
/// The scheme of the `authorization` metadata for a step's pass, in calls to a node.
pub const STEP_SCHEME: &str = "Spur-Step ";
/// The scheme of the `authorization` metadata for the pass of another node.
pub const PEER_SCHEME: &str = "Spur-Peer ";

const SIGNATURE_BYTES: usize = 32;
const TOKEN_PURPOSE: &[u8] = b"spur token v1\0";
const CREDENTIAL_PURPOSE: &[u8] = b"spur step credential v2\0";
/// Largest number of signatures of a credential that are checked.
const SIGNATURES: usize = 2;
const TOKEN: &str = "token";
const CREDENTIAL: &str = "credential";
const PEER_PURPOSE: &[u8] = b"spur peer pass v2\0";
const PEER: &str = "pass";

/// The reason why a token, a credential or a pass is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The call carries none.
    #[error("no {what}: the call carries no `authorization: {scheme}…`")]
    Missing {
        /// `token`, `credential` or `pass`.
        what: &'static str,
        /// The expected scheme.
        scheme: &'static str,
    },
    /// The text or the bytes do not have the expected form.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// No valid key of this cluster made the signature.
    #[error("{0} not signed with this cluster's key")]
    BadSignature(&'static str),
    /// The lifetime is over.
    #[error("{what} expired {seconds} s ago; check that the clocks of the hosts agree")]
    Expired {
        /// `token`, `credential` or `pass`.
        what: &'static str,
        /// Seconds since the end of the lifetime.
        seconds: i64,
    },
}

impl ClusterKeys {
    /// Returns a token for these claims, signed with the key in use.
    pub fn mint(&self, claims: &TokenClaims) -> String {
        let claims = claims.encode_to_vec();
        let signature = mac(&self.all()[0], TOKEN_PURPOSE, &claims).finalize().into_bytes();
        format!("{}.{}", BASE64.encode(&claims), BASE64.encode(signature))
    }

    /// Returns the claims of a token that was signed with a valid key and has not expired at `now`, in
    /// seconds since the Unix epoch.
    ///
    /// # Errors
    /// Any token but a valid one.
    pub fn verify(&self, token: &str, now: i64) -> Result<TokenClaims, AuthError> {
        let (claims, signature) = split(token, TOKEN)?;
        let mut macs = self.all().iter().map(|key| mac(key, TOKEN_PURPOSE, &claims));
        if !macs.any(|mac| mac.verify_slice(&signature).is_ok()) {
            return Err(AuthError::BadSignature(TOKEN));
        }
        read_claims(&claims, now)
    }

    /// Returns a credential signed with every valid key.
    ///
    /// A node that does not have a new key yet accepts the signature of the old one.
    pub fn seal(&self, credential: &StepCredential) -> Vec<u8> {
        let body = credential.encode_to_vec();
        let digest = Sha256::digest(&body);
        let macs = self.all().iter().map(|key| mac(key, CREDENTIAL_PURPOSE, &digest));
        let signatures: Vec<u8> = macs.flat_map(|mac| mac.finalize().into_bytes()).collect();
        assemble(body, &signatures)
    }

    /// Returns the content of a credential that was signed with a valid key.
    ///
    /// The node decides whether the credential still allows a launch. A client may attach to a step as long
    /// as the step runs.
    ///
    /// # Errors
    /// Any credential but a valid one.
    pub fn open(&self, sealed: &[u8]) -> Result<StepCredential, AuthError> {
        let (body, signatures) = take_apart(sealed)?;
        self.any_of(CREDENTIAL_PURPOSE, CREDENTIAL, &Sha256::digest(body), signatures)?;
        read_credential(body)
    }

    /// Checks a pass that was signed with a valid key.
    ///
    /// # Errors
    /// Any pass but a valid one.
    pub fn passed(&self, pass: &str) -> Result<Pass, AuthError> {
        let (digest, signatures) = split(pass, CREDENTIAL)?;
        self.any_of(CREDENTIAL_PURPOSE, CREDENTIAL, &digest, &signatures)?;
        Ok(Pass(digest))
    }

    /// Returns a pass from a node to the first node of a step, signed with every valid key.
    pub fn peer_pass(&self, pass: &PeerPass) -> String {
        let body = pass.encode_to_vec();
        let macs = self.all().iter().map(|key| mac(key, PEER_PURPOSE, &body));
        let signatures: Vec<u8> = macs.flat_map(|mac| mac.finalize().into_bytes()).collect();
        format!("{}.{}", BASE64.encode(&body), BASE64.encode(signatures))
    }

    /// Returns the content of a node's pass that was signed with a valid key and has not expired at `now`, in
    /// seconds since the Unix epoch.
    ///
    /// # Errors
    /// Any pass but a valid one.
    pub fn open_peer_pass(&self, pass: &str, now: i64) -> Result<PeerPass, AuthError> {
        let (body, signatures) = split(pass, PEER)?;
        self.any_of(PEER_PURPOSE, PEER, &body, &signatures)?;
        read_peer_pass(&body, now)
    }

    /// Checks that one of the signatures is by a valid key.
    fn any_of(
        &self,
        purpose: &[u8],
        what: &'static str,
        message: &[u8],
        signatures: &[u8],
    ) -> Result<(), AuthError> {
        let good = |signature: &[u8]| {
            let mut macs = self.all().iter().map(|key| mac(key, purpose, message));
            macs.any(|mac| mac.verify_slice(signature).is_ok())
        };
        // A cluster has at most two keys.
        let mut signatures = signatures.chunks(SIGNATURE_BYTES).take(SIGNATURES);
        if signatures.any(good) { Ok(()) } else { Err(AuthError::BadSignature(what)) }
    }
}

/// The short form of a credential that a call carries in its metadata: the digest with its signatures.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pass(Vec<u8>);

impl Pass {
    /// True if the pass was made of this credential.
    pub fn is_for(&self, sealed: &[u8]) -> bool {
        take_apart(sealed).is_ok_and(|(body, _)| *self.0 == *Sha256::digest(body))
    }

    /// Reads a pass without checking signatures, for clusters without keys.
    ///
    /// # Errors
    /// A malformed pass.
    pub fn read_unverified(pass: &str) -> Result<Pass, AuthError> {
        split(pass, CREDENTIAL).map(|(digest, _)| Pass(digest))
    }
}

/// Returns the pass of a credential; only a holder of the credential can make it.
///
/// # Errors
/// A malformed credential.
pub fn pass(sealed: &[u8]) -> Result<String, AuthError> {
    let (body, signatures) = take_apart(sealed)?;
    Ok(format!("{}.{}", BASE64.encode(Sha256::digest(body)), BASE64.encode(signatures)))
}

/// Returns a pass to the first node of a step without signatures, for clusters without keys.
pub fn unsigned_peer_pass(pass: &PeerPass) -> String {
    format!("{}.", BASE64.encode(pass.encode_to_vec()))
}

/// Reads a node's pass without checking signatures, for clusters without keys.
///
/// # Errors
/// A malformed or expired pass.
pub fn read_unverified_peer_pass(pass: &str, now: i64) -> Result<PeerPass, AuthError> {
    let (body, _) = split(pass, PEER)?;
    read_peer_pass(&body, now)
}

fn read_peer_pass(body: &[u8], now: i64) -> Result<PeerPass, AuthError> {
    let pass = PeerPass::decode(body).map_err(|_| AuthError::Malformed(PEER))?;
    not_expired(PEER, pass.expires, now)?;
    Ok(pass)
}

/// Returns a credential without signatures, for clusters without keys.
pub fn unsealed(credential: &StepCredential) -> Vec<u8> {
    assemble(credential.encode_to_vec(), &[])
}

/// Reads a credential without checking signatures, for clusters without keys.
///
/// # Errors
/// A malformed credential.
pub fn open_unverified(sealed: &[u8]) -> Result<StepCredential, AuthError> {
    read_credential(take_apart(sealed)?.0)
}

/// Assembles a credential: content, signatures, and the number of signatures.
fn assemble(mut body: Vec<u8>, signatures: &[u8]) -> Vec<u8> {
    body.extend_from_slice(signatures);
    body.push(u8::try_from(signatures.len() / SIGNATURE_BYTES).expect("there are at most two keys"));
    body
}

/// Splits a credential into its content and its signatures.
fn take_apart(sealed: &[u8]) -> Result<(&[u8], &[u8]), AuthError> {
    let malformed = AuthError::Malformed(CREDENTIAL);
    let Some((&count, rest)) = sealed.split_last() else { return Err(malformed) };
    match rest.len().checked_sub(usize::from(count) * SIGNATURE_BYTES) {
        Some(body) => Ok(rest.split_at(body)),
        None => Err(malformed),
    }
}

fn read_credential(body: &[u8]) -> Result<StepCredential, AuthError> {
    StepCredential::decode(body).map_err(|_| AuthError::Malformed(CREDENTIAL))
}

fn mac(key: &ClusterKey, purpose: &[u8], message: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.bytes()).expect("HMAC takes keys of any length");
    mac.update(purpose);
    mac.update(message);
    mac
}

/// Returns a token without a signature, for clusters without keys.
pub fn unsigned(claims: &TokenClaims) -> String {
    format!("{}.", BASE64.encode(claims.encode_to_vec()))
}

/// Reads a token without checking the signature, for clusters without keys.
///
/// # Errors
/// A malformed or expired token.
pub fn read_unverified(token: &str, now: i64) -> Result<TokenClaims, AuthError> {
    let (claims, _) = split(token, TOKEN)?;
    read_claims(&claims, now)
}

/// Returns the token that a call carries.
///
/// # Errors
/// A call without a token.
pub fn token_of(metadata: &MetadataMap) -> Result<&str, AuthError> {
    authorization(metadata, SCHEME, TOKEN)
}

/// Returns the pass that a client's call carries.
///
/// # Errors
/// A call without a pass.
pub fn pass_of(metadata: &MetadataMap) -> Result<&str, AuthError> {
    authorization(metadata, STEP_SCHEME, CREDENTIAL)
}

/// Returns the pass that another node's call carries.
///
/// # Errors
/// A call without a pass.
pub fn peer_pass_of(metadata: &MetadataMap) -> Result<&str, AuthError> {
    authorization(metadata, PEER_SCHEME, PEER)
}

fn authorization<'a>(
    metadata: &'a MetadataMap,
    scheme: &'static str,
    what: &'static str,
) -> Result<&'a str, AuthError> {
    let missing = AuthError::Missing { what, scheme };
    let Some(value) = metadata.get("authorization") else { return Err(missing) };
    let text = value.to_str().map_err(|_| AuthError::Malformed(what))?;
    text.strip_prefix(scheme).map(str::trim).ok_or(missing)
}

/// Decodes two base64 texts with a dot between them.
fn split(text: &str, what: &'static str) -> Result<(Vec<u8>, Vec<u8>), AuthError> {
    let part = |text: &str| BASE64.decode(text).map_err(|_| AuthError::Malformed(what));
    let (first, second) = text.split_once('.').ok_or(AuthError::Malformed(what))?;
    Ok((part(first)?, part(second)?))
}

fn read_claims(claims: &[u8], now: i64) -> Result<TokenClaims, AuthError> {
    let claims = TokenClaims::decode(claims).map_err(|_| AuthError::Malformed(TOKEN))?;
    not_expired(TOKEN, claims.expires, now)?;
    Ok(claims)
}

fn not_expired(what: &'static str, expires: i64, now: i64) -> Result<(), AuthError> {
    if expires > now {
        Ok(())
    } else {
        Err(AuthError::Expired { what, seconds: now.saturating_sub(expires) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(byte: u8) -> ClusterKeys {
        ClusterKeys::of(ClusterKey::from_bytes([byte; 32]), "test")
    }

    fn both(new: u8, old: u8) -> ClusterKeys {
        let file = std::env::temp_dir().join(format!("spur-both-{new}-{old}-{}", std::process::id()));
        ClusterKey::from_bytes([old; 32]).write_new(&file).unwrap();
        let old = std::fs::read_to_string(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        ClusterKey::from_bytes([new; 32]).write_new(&file).unwrap();
        let text = std::fs::read_to_string(&file).unwrap() + &old;
        std::fs::write(&file, text).unwrap();
        let keys = ClusterKeys::read(&file, "test").unwrap();
        std::fs::remove_file(&file).unwrap();
        keys
    }

    fn claims() -> TokenClaims {
        TokenClaims { uid: 1000, gid: 1001, user: "ada".into(), expires: 500, ..TokenClaims::default() }
    }

    #[test]
    fn a_token_is_read_by_the_key_that_signed_it() {
        let token = key(1).mint(&claims());
        assert_eq!(key(1).verify(&token, 499), Ok(claims()));
        assert_eq!(key(2).verify(&token, 499), Err(AuthError::BadSignature("token")));
        assert_eq!(key(1).verify(&token, 500), Err(AuthError::Expired { what: "token", seconds: 0 }));
    }

    #[test]
    fn no_changed_token_is_accepted() {
        let token = key(1).mint(&claims());
        for at in 0..token.len() {
            let mut bytes = token.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            assert!(key(1).verify(&changed, 0).is_err(), "{changed}");
        }
        let root = TokenClaims { uid: 0, ..claims() };
        assert!(key(1).verify(&unsigned(&root), 0).is_err());
        for text in ["", ".", "a", "!!.!!", &token[..token.len() - 1]] {
            assert!(key(1).verify(text, 0).is_err(), "{text}");
        }
    }

    #[test]
    fn an_unsigned_token_is_only_read_where_nobody_asks_for_a_signature() {
        assert_eq!(read_unverified(&unsigned(&claims()), 0), Ok(claims()));
        assert_eq!(read_unverified(&key(1).mint(&claims()), 0), Ok(claims()));
    }

    #[test]
    fn a_credential_is_no_token_and_a_token_no_credential() {
        let credential = StepCredential { job_id: 42, issued_ms: 9, ..StepCredential::default() };
        let sealed = key(1).seal(&credential);
        assert_eq!(key(1).open(&sealed), Ok(credential.clone()));
        assert_eq!(key(2).open(&sealed), Err(AuthError::BadSignature("credential")));
        let (body, signature) = sealed[..sealed.len() - 1].split_at(sealed.len() - 1 - SIGNATURE_BYTES);
        let forged = format!("{}.{}", BASE64.encode(body), BASE64.encode(signature));
        assert!(key(1).verify(&forged, 0).is_err());
        assert!(key(1).open(&sealed[1..]).is_err());
        assert!(key(1).open(b"short").is_err());
    }

    #[test]
    fn a_peer_pass_is_made_by_daemons_alone() {
        let pass = PeerPass { job_id: 42, node: "n2".into(), expires: 9, ..PeerPass::default() };
        let sealed = both(1, 3).peer_pass(&pass);
        assert_eq!(key(1).open_peer_pass(&sealed, 8), Ok(pass.clone()));
        assert_eq!(key(3).open_peer_pass(&sealed, 8), Ok(pass.clone()), "nodes have either key");
        assert_eq!(key(1).open_peer_pass(&sealed, 9), Err(AuthError::Expired { what: "pass", seconds: 0 }));
        assert_eq!(key(2).open_peer_pass(&sealed, 8), Err(AuthError::BadSignature("pass")));
        assert_eq!(read_unverified_peer_pass(&unsigned_peer_pass(&pass), 8), Ok(pass));
        let credential = StepCredential { job_id: 42, ..StepCredential::default() };
        let clients = super::pass(&key(1).seal(&credential)).unwrap();
        assert!(key(1).open_peer_pass(&clients, 0).is_err(), "what clients hold is no pass");
    }

    #[test]
    fn while_a_key_is_replaced_both_are_believed() {
        let both = both(2, 1);
        assert_eq!(both.count(), 2);
        for of in [key(1), key(2)] {
            assert_eq!(both.verify(&of.mint(&claims()), 0), Ok(claims()));
        }
        let token = both.mint(&claims());
        assert!(key(2).verify(&token, 0).is_ok() && key(1).verify(&token, 0).is_err(), "the new one signs");
        let credential = StepCredential { job_id: 42, ..StepCredential::default() };
        let sealed = both.seal(&credential);
        for of in [key(1), key(2), both] {
            assert_eq!(of.open(&sealed), Ok(credential.clone()), "nodes have either");
            assert!(of.passed(&pass(&sealed).unwrap()).unwrap().is_for(&sealed));
        }
        assert!(key(3).open(&sealed).is_err());
    }

    #[test]
    fn a_pass_is_for_one_credential() {
        let sealed = key(1).seal(&StepCredential { job_id: 42, ..StepCredential::default() });
        let other = key(1).seal(&StepCredential { job_id: 43, ..StepCredential::default() });
        let text = pass(&sealed).unwrap();
        let good = key(1).passed(&text).unwrap();
        assert!(good.is_for(&sealed) && !good.is_for(&other) && !good.is_for(b""));
        assert_eq!(key(2).passed(&text), Err(AuthError::BadSignature("credential")));
        assert_eq!(Pass::read_unverified(&text), Ok(good));
        for wrong in ["", ".", "a.b", "AAAA.", &text[1..]] {
            assert!(key(1).passed(wrong).is_err(), "{wrong}");
        }
        assert!(pass(b"").is_err() && pass(&[9]).is_err());
    }

    #[test]
    fn an_unsigned_credential_is_only_read_where_nobody_asks_for_a_signature() {
        let credential = StepCredential { job_id: 42, ..StepCredential::default() };
        let sealed = unsealed(&credential);
        assert_eq!(open_unverified(&sealed), Ok(credential));
        assert!(Pass::read_unverified(&pass(&sealed).unwrap()).unwrap().is_for(&sealed));
        assert_eq!(key(1).open(&sealed), Err(AuthError::BadSignature("credential")));
        assert!(key(1).passed(&pass(&sealed).unwrap()).is_err());
    }

    #[test]
    fn the_token_is_taken_from_the_authorization_metadata() {
        let mut metadata = MetadataMap::new();
        assert!(matches!(token_of(&metadata), Err(AuthError::Missing { .. })));
        metadata.insert("authorization", "Bearer abc".parse().unwrap());
        assert!(matches!(token_of(&metadata), Err(AuthError::Missing { .. })));
        metadata.insert("authorization", "Spur abc.def".parse().unwrap());
        assert_eq!(token_of(&metadata), Ok("abc.def"));
    }
}
