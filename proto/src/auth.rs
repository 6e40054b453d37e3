//! Who is asking: tokens for people and daemons, credentials for steps, and the key that signs both.
//!
//! A token is `CLAIMS.SIGNATURE`, both in URL-safe base64 without padding; the claims are a serialized
//! [`TokenClaims`], the signature is HMAC-SHA256. Without keys (`auth.method = "none"`, loopback only) the
//! signature is empty. A credential is a serialized [`StepCredential`] with its signature appended. What is
//! signed begins with its purpose, so that neither can pass for the other.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use prost::Message;
use sha2::Sha256;
use tonic::metadata::MetadataMap;

use crate::v1::{PeerPass, StepCredential, TokenClaims};

/// How long a token for a person is good, in seconds.
pub const TOKEN_SECONDS: i64 = 300;
/// The scheme of the `authorization` metadata.
pub const SCHEME: &str = "Spur ";

const KEY_BYTES: usize = 32;
const SIGNATURE_BYTES: usize = 32;
/// What a key file may hold at most; a key of 32 bytes is written in 43 characters.
const KEY_FILE_LIMIT: u64 = 4096;
const TOKEN_PURPOSE: &[u8] = b"spur token v1\0";
const CREDENTIAL_PURPOSE: &[u8] = b"spur step credential v1\0";
const PASS_PURPOSE: &[u8] = b"spur peer pass v1\0";

/// Why a token or a credential is not accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AuthError {
    /// The call carries none.
    #[error("no token: the call carries no `authorization: Spur TOKEN`")]
    Missing,
    /// It is not of the form that is read here.
    #[error("malformed {0}")]
    Malformed(&'static str),
    /// It was not signed with this cluster's key.
    #[error("{0} not signed with this cluster's key")]
    BadSignature(&'static str),
    /// It was good once.
    #[error("{what} expired {seconds} s ago; check that the clocks of the hosts agree")]
    Expired {
        /// Token or credential.
        what: &'static str,
        /// Since when.
        seconds: i64,
    },
}

/// Why the cluster key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cluster key {}: cannot {action} it", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What was tried.
        action: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Others could read or change it.
    #[error(
        "cluster key {}: mode {mode:04o} lets others in; make it 0600 (chmod 600 {})",
        path.display(), path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// It belongs to somebody who could have written anything into it.
    #[error("cluster key {}: it belongs to uid {uid}; it must be yours or root's", path.display())]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        uid: u32,
    },
    /// It holds no key.
    #[error("cluster key {}: it must hold {KEY_BYTES} bytes in base64 (URL-safe, no padding) and nothing else", path.display())]
    Content {
        /// The file.
        path: PathBuf,
    },
}

/// The secret that all daemons of a cluster share.
#[derive(Clone)]
pub struct ClusterKey([u8; KEY_BYTES]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// A key from the bytes themselves.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> ClusterKey {
        ClusterKey(bytes)
    }

    /// A new key from the system's source of randomness.
    ///
    /// # Errors
    /// What the system says if there is no such source.
    pub fn generate() -> io::Result<ClusterKey> {
        let mut bytes = [0; KEY_BYTES];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(ClusterKey(bytes))
    }

    /// Reads the key from a file that only its owner, who is this user or root, can read.
    ///
    /// # Errors
    /// A file that cannot be read, that others could have read or written, or that holds no key.
    pub fn read(path: &Path) -> Result<ClusterKey, KeyError> {
        let failed = |action| move |source| KeyError::Io { path: path.to_owned(), action, source };
        let file = fs::File::open(path).map_err(failed("open"))?;
        let status = file.metadata().map_err(failed("examine"))?;
        if status.mode() & 0o077 != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode: status.mode() & 0o7777 });
        }
        let own = fs::metadata("/proc/self").map_err(failed("find out who may own"))?.uid();
        if status.uid() != own && status.uid() != 0 {
            return Err(KeyError::Owner { path: path.to_owned(), uid: status.uid() });
        }
        let mut text = String::new();
        file.take(KEY_FILE_LIMIT).read_to_string(&mut text).map_err(failed("read"))?;
        let bytes = BASE64.decode(text.trim_end()).ok().and_then(|bytes| bytes.try_into().ok());
        bytes.map(ClusterKey).ok_or_else(|| KeyError::Content { path: path.to_owned() })
    }

    /// Writes the key to a new file with mode 0600.
    ///
    /// # Errors
    /// A file that is there already or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        let failed = |action| move |source| KeyError::Io { path: path.to_owned(), action, source };
        let mut options = OpenOptions::new();
        let mut file =
            options.write(true).create_new(true).mode(0o600).open(path).map_err(failed("create"))?;
        writeln!(file, "{}", BASE64.encode(self.0)).map_err(failed("write"))?;
        file.sync_all().map_err(failed("write"))
    }

    /// A signed token for these claims.
    pub fn mint(&self, claims: &TokenClaims) -> String {
        let claims = claims.encode_to_vec();
        let signature = self.mac(TOKEN_PURPOSE, &claims).finalize().into_bytes();
        format!("{}.{}", BASE64.encode(&claims), BASE64.encode(signature))
    }

    /// What a token says, if it was signed with this key and has not expired at `now` (epoch seconds).
    ///
    /// # Errors
    /// Anything but a good token.
    pub fn verify(&self, token: &str, now: i64) -> Result<TokenClaims, AuthError> {
        let (claims, signature) = split(token)?;
        let mac = self.mac(TOKEN_PURPOSE, &claims);
        mac.verify_slice(&signature).map_err(|_| AuthError::BadSignature("token"))?;
        read_claims(&claims, now)
    }

    /// A signed credential for a step.
    pub fn seal(&self, credential: &StepCredential) -> Vec<u8> {
        self.sealed(CREDENTIAL_PURPOSE, credential)
    }

    /// A signed pass from a node to the first one of a step.
    pub fn seal_pass(&self, pass: &PeerPass) -> Vec<u8> {
        self.sealed(PASS_PURPOSE, pass)
    }

    fn sealed(&self, purpose: &[u8], message: &impl Message) -> Vec<u8> {
        let mut sealed = message.encode_to_vec();
        let signature = self.mac(purpose, &sealed).finalize().into_bytes();
        sealed.extend_from_slice(&signature);
        sealed
    }

    /// What a credential says, if it was signed with this key. Whether it still allows a launch is for the node
    /// to judge; a step that runs may be attached to for as long as it does.
    ///
    /// # Errors
    /// Anything but a good credential.
    pub fn open(&self, sealed: &[u8]) -> Result<StepCredential, AuthError> {
        let body = self.signed(CREDENTIAL_PURPOSE, "credential", sealed)?;
        StepCredential::decode(body).map_err(|_| AuthError::Malformed("credential"))
    }

    /// What a pass says, if it was signed with this key and has not expired at `now` (epoch seconds).
    ///
    /// # Errors
    /// Anything but a good pass.
    pub fn open_pass(&self, sealed: &[u8], now: i64) -> Result<PeerPass, AuthError> {
        let body = self.signed(PASS_PURPOSE, "pass", sealed)?;
        let pass = PeerPass::decode(body).map_err(|_| AuthError::Malformed("pass"))?;
        not_expired("pass", pass.expires, now)?;
        Ok(pass)
    }

    fn signed<'a>(
        &self,
        purpose: &[u8],
        what: &'static str,
        sealed: &'a [u8],
    ) -> Result<&'a [u8], AuthError> {
        let body = sealed.len().checked_sub(SIGNATURE_BYTES).ok_or(AuthError::Malformed(what))?;
        let (body, signature) = sealed.split_at(body);
        self.mac(purpose, body).verify_slice(signature).map_err(|_| AuthError::BadSignature(what))?;
        Ok(body)
    }

    fn mac(&self, purpose: &[u8], message: &[u8]) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("HMAC takes keys of any length");
        mac.update(purpose);
        mac.update(message);
        mac
    }
}

/// A token without a signature, for clusters that use no keys.
pub fn unsigned(claims: &TokenClaims) -> String {
    format!("{}.", BASE64.encode(claims.encode_to_vec()))
}

/// What a token says, whoever signed it or did not: only for clusters that use no keys.
///
/// # Errors
/// A malformed or expired token.
pub fn read_unverified(token: &str, now: i64) -> Result<TokenClaims, AuthError> {
    let (claims, _) = split(token)?;
    read_claims(&claims, now)
}

/// The token that a call carries.
///
/// # Errors
/// A call without one.
pub fn token_of(metadata: &MetadataMap) -> Result<&str, AuthError> {
    let value = metadata.get("authorization").ok_or(AuthError::Missing)?;
    let text = value.to_str().map_err(|_| AuthError::Malformed("token"))?;
    text.strip_prefix(SCHEME).map(str::trim).ok_or(AuthError::Missing)
}

fn split(token: &str) -> Result<(Vec<u8>, Vec<u8>), AuthError> {
    let part = |text: &str| BASE64.decode(text).map_err(|_| AuthError::Malformed("token"));
    let (claims, signature) = token.split_once('.').ok_or(AuthError::Malformed("token"))?;
    Ok((part(claims)?, part(signature)?))
}

fn read_claims(claims: &[u8], now: i64) -> Result<TokenClaims, AuthError> {
    let claims = TokenClaims::decode(claims).map_err(|_| AuthError::Malformed("token"))?;
    not_expired("token", claims.expires, now)?;
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
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn key(byte: u8) -> ClusterKey {
        ClusterKey::from_bytes([byte; KEY_BYTES])
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
        let (body, signature) = sealed.split_at(sealed.len() - SIGNATURE_BYTES);
        let forged = format!("{}.{}", BASE64.encode(body), BASE64.encode(signature));
        assert!(key(1).verify(&forged, 0).is_err());
        assert!(key(1).open(&sealed[1..]).is_err());
        assert!(key(1).open(b"short").is_err());
    }

    #[test]
    fn a_pass_is_made_by_daemons_alone() {
        let pass = PeerPass { job_id: 42, node: "n2".into(), expires: 9, ..PeerPass::default() };
        let sealed = key(1).seal_pass(&pass);
        assert_eq!(key(1).open_pass(&sealed, 8), Ok(pass));
        assert_eq!(key(1).open_pass(&sealed, 9), Err(AuthError::Expired { what: "pass", seconds: 0 }));
        assert_eq!(key(2).open_pass(&sealed, 8), Err(AuthError::BadSignature("pass")));
        let credential = StepCredential { job_id: 42, ..StepCredential::default() };
        assert!(key(1).open_pass(&key(1).seal(&credential), 0).is_err(), "what clients hold is no pass");
    }

    #[test]
    fn a_key_file_is_for_its_owner_alone() {
        let dir = std::env::temp_dir().join(format!("spur-key-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let path = dir.join("spur.key");
        let generated = ClusterKey::generate().unwrap();
        generated.write_new(&path).unwrap();
        assert!(generated.write_new(&path).is_err(), "an existing key is never overwritten");
        assert_eq!(ClusterKey::read(&path).unwrap().0, generated.0);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(ClusterKey::read(&path), Err(KeyError::Mode { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "secret").unwrap();
        assert!(matches!(ClusterKey::read(&path), Err(KeyError::Content { .. })));
        assert!(matches!(ClusterKey::read(&dir.join("none")), Err(KeyError::Io { action: "open", .. })));
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn the_token_is_taken_from_the_authorization_metadata() {
        let mut metadata = MetadataMap::new();
        assert_eq!(token_of(&metadata), Err(AuthError::Missing));
        metadata.insert("authorization", "Bearer abc".parse().unwrap());
        assert_eq!(token_of(&metadata), Err(AuthError::Missing));
        metadata.insert("authorization", "Spur abc.def".parse().unwrap());
        assert_eq!(token_of(&metadata), Ok("abc.def"));
    }
}
