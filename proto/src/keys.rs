//! The keys of a cluster: the secret that its hosts share, and the Ed25519 keys of its daemons.
//!
//! There is one secret, [`ClusterKey`]. Each daemon's own key is derived from it by HKDF-SHA256 ([RFC 5869]).
//! The info contains the role, the cluster's name and, for a node, the node's name. So a node's key differs
//! from a controller's and from another node's, and from those of another cluster with the same secret. Every
//! holder of the secret can derive all public keys.
//!
//! While a key is being replaced, two are valid: the first signs, both are accepted.
//!
//! [RFC 5869]: https://www.rfc-editor.org/rfc/rfc5869

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hkdf::Hkdf;
use rustls::crypto::ring::sign::any_eddsa_type;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use sha2::Sha256;
use tokio::sync::watch;

/// Length of a cluster key, of a derived seed and of a public key, in bytes.
pub const KEY_BYTES: usize = 32;

/// Largest number of valid keys at a time.
const KEYS: usize = 2;
/// Largest size of a key file, in bytes; a key of 32 bytes is written in 43 characters.
const KEY_FILE_LIMIT: u64 = 4096;
/// Purpose of derived keys, which has to change with their use.
const PURPOSE: &[u8] = b"spur tls v1";
/// The PKCS #8 prefix of an Ed25519 seed ([RFC 8410], section 7).
///
/// [RFC 8410]: https://www.rfc-editor.org/rfc/rfc8410
const PKCS8: [u8; 16] =
    [0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x04, 0x22, 0x04, 0x20];
/// The SubjectPublicKeyInfo prefix of an Ed25519 public key (RFC 8410, section 4).
const SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// Keeps this process's memory, with its keys, out of core files and from other processes of its user.
///
/// Programs that it starts are not affected.
///
/// # Errors
/// Fails if the kernel refuses.
pub fn keep_memory_private() -> io::Result<()> {
    Ok(rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?)
}

/// The reason why the cluster key cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// The file cannot be read or written.
    #[error("cluster key {}: cannot {action} it", path.display())]
    Io {
        /// Path of the file.
        path: PathBuf,
        /// The operation that failed.
        action: &'static str,
        /// The system's error.
        source: io::Error,
    },
    /// Other users can read or change the file.
    #[error(
        "cluster key {}: mode {mode:04o} lets others in; make it 0600 (chmod 600 {})",
        path.display(), path.display()
    )]
    Mode {
        /// Path of the file.
        path: PathBuf,
        /// Permission bits of the file.
        mode: u32,
    },
    /// The file belongs to another user, who could have written anything into it.
    #[error("cluster key {}: it belongs to uid {uid}; it must be yours or root's", path.display())]
    Owner {
        /// Path of the file.
        path: PathBuf,
        /// Owner of the file.
        uid: u32,
    },
    /// The file does not contain one or two keys.
    #[error(
        "cluster key {}: it must hold one or two lines, the key in use first, each of {KEY_BYTES} bytes in base64 \
         (URL-safe, no padding), and nothing else", path.display()
    )]
    Content {
        /// Path of the file.
        path: PathBuf,
    },
    /// Two keys are valid already.
    #[error(
        "cluster key {}: an old key is still valid beside the one in use; retire it first (spur keygen --retire)",
        path.display()
    )]
    Rotating {
        /// Path of the file.
        path: PathBuf,
    },
}

/// The secret that all daemons of a cluster share.
#[derive(Clone, PartialEq, Eq)]
pub struct ClusterKey([u8; KEY_BYTES]);

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClusterKey(..)")
    }
}

impl ClusterKey {
    /// Returns a key with these bytes.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> ClusterKey {
        ClusterKey(bytes)
    }

    /// Returns a new random key.
    ///
    /// # Errors
    /// Fails without a source of randomness.
    pub fn generate() -> io::Result<ClusterKey> {
        let mut bytes = [0; KEY_BYTES];
        fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(ClusterKey(bytes))
    }

    /// Reads the keys in a file that only its owner can read; the owner has to be this user or root. The key
    /// in use comes first.
    ///
    /// # Errors
    /// Fails if the file cannot be read, if other users could have read or written it, or if it contains no
    /// key.
    pub fn read(path: &Path) -> Result<Vec<ClusterKey>, KeyError> {
        Self::read_of(path, |own, owner| owner == own || owner == 0)
    }

    /// Reads the keys in a file that will be replaced; root may do so for the controller's user.
    fn read_to_replace(path: &Path) -> Result<Vec<ClusterKey>, KeyError> {
        Self::read_of(path, |own, owner| owner == own || own == 0)
    }

    /// Reads the keys in a file; `trusted` decides by this user and the file's owner.
    fn read_of(path: &Path, trusted: impl Fn(u32, u32) -> bool) -> Result<Vec<ClusterKey>, KeyError> {
        let failed = |action| move |source| KeyError::Io { path: path.to_owned(), action, source };
        let file = fs::File::open(path).map_err(failed("open"))?;
        let status = file.metadata().map_err(failed("examine"))?;
        if status.mode() & 0o077 != 0 {
            return Err(KeyError::Mode { path: path.to_owned(), mode: status.mode() & 0o7777 });
        }
        let own = fs::metadata("/proc/self").map_err(failed("find out who may own"))?.uid();
        if !trusted(own, status.uid()) {
            return Err(KeyError::Owner { path: path.to_owned(), uid: status.uid() });
        }
        let mut text = String::new();
        file.take(KEY_FILE_LIMIT).read_to_string(&mut text).map_err(failed("read"))?;
        let key = |line: &str| BASE64.decode(line).ok()?.try_into().ok().map(ClusterKey);
        let keys: Option<Vec<ClusterKey>> = text.lines().map(key).collect();
        keys.filter(|keys| (1..=KEYS).contains(&keys.len()))
            .ok_or_else(|| KeyError::Content { path: path.to_owned() })
    }

    /// Writes the key to a new file with mode 0600.
    ///
    /// # Errors
    /// Fails if the file exists or cannot be written.
    pub fn write_new(&self, path: &Path) -> Result<(), KeyError> {
        write_new(path, std::slice::from_ref(self))
    }

    /// Puts a new key before the one in a file; both are then valid.
    ///
    /// # Errors
    /// Fails if the file cannot be read or replaced, or contains two keys already, or without a source of
    /// randomness.
    pub fn rotate(path: &Path) -> Result<(), KeyError> {
        let failed = |source| KeyError::Io { path: path.to_owned(), action: "make a new one for", source };
        let old = Self::read_to_replace(path)?;
        if old.len() == KEYS {
            return Err(KeyError::Rotating { path: path.to_owned() });
        }
        let mut keys = vec![Self::generate().map_err(failed)?];
        keys.extend(old);
        replace(path, &keys)
    }

    /// Removes the old key from a file, and returns true if there was one.
    ///
    /// # Errors
    /// Fails if the file cannot be read or replaced.
    pub fn retire(path: &Path) -> Result<bool, KeyError> {
        let mut keys = Self::read_to_replace(path)?;
        let old = keys.len() > 1;
        if old {
            keys.truncate(1);
            replace(path, &keys)?;
        }
        Ok(old)
    }

    pub(crate) fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Derives the key of a daemon.
    fn derive(&self, cluster: &str, role: &Role) -> RoleKey {
        let (role, node): (&[u8], &str) = match role {
            Role::Controller => (b"controller", ""),
            Role::Node(name) => (b"node", name),
        };
        // Names contain no NUL, so different roles have different infos.
        let info = [PURPOSE, role, cluster.as_bytes(), node.as_bytes()].join(&0);
        let mut der = [0; PKCS8.len() + KEY_BYTES];
        der[..PKCS8.len()].copy_from_slice(&PKCS8);
        let seed = &mut der[PKCS8.len()..];
        Hkdf::<Sha256>::new(None, &self.0).expand(&info, seed).expect("HKDF yields many times 32 bytes");
        let signing = any_eddsa_type(&PrivatePkcs8KeyDer::from(&der[..]));
        let signing = signing.expect("every 32 bytes are an Ed25519 seed");
        let public = signing.public_key().expect("an Ed25519 key has a public half");
        let public = PublicKey::of_spki(&public).expect("it is one of Ed25519");
        let shown = CertificateDer::from(public.spki());
        RoleKey { certified: Arc::new(CertifiedKey::new(vec![shown], signing)), public }
    }
}

fn write_new(path: &Path, keys: &[ClusterKey]) -> Result<(), KeyError> {
    let failed = |action| move |source| KeyError::Io { path: path.to_owned(), action, source };
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).map_err(failed("create"))?;
    for key in keys {
        writeln!(file, "{}", BASE64.encode(key.0)).map_err(failed("write"))?;
    }
    file.sync_all().map_err(failed("write"))
}

/// Replaces a file atomically by one with these keys, of the same owner.
fn replace(path: &Path, keys: &[ClusterKey]) -> Result<(), KeyError> {
    let failed = |action| move |source| KeyError::Io { path: path.to_owned(), action, source };
    let status = fs::metadata(path).map_err(failed("examine"))?;
    let mut new = path.to_owned().into_os_string();
    new.push(".new");
    let new = PathBuf::from(new);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(failed("replace")(error)),
        _ => write_new(&new, keys)?,
    }
    std::os::unix::fs::chown(&new, Some(status.uid()), Some(status.gid()))
        .and_then(|()| fs::rename(&new, path))
        .map_err(failed("replace"))?;
    let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty());
    let directory = fs::File::open(directory.unwrap_or(Path::new(".")));
    directory.and_then(|directory| directory.sync_all()).map_err(failed("replace"))
}

/// The role of a daemon.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// A controller.
    Controller,
    /// The daemon of this node.
    Node(Arc<str>),
}

/// An Ed25519 public key.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PublicKey([u8; KEY_BYTES]);

impl PublicKey {
    /// Returns the key with these bytes; `None` if they are not 32.
    pub fn from_bytes(bytes: &[u8]) -> Option<PublicKey> {
        bytes.try_into().ok().map(PublicKey)
    }

    /// Returns the key's bytes.
    pub fn bytes(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// Reads a SubjectPublicKeyInfo in DER; `None` for any other kind of key.
    pub fn of_spki(der: &[u8]) -> Option<PublicKey> {
        PublicKey::from_bytes(der.strip_prefix(&SPKI)?)
    }

    /// Encodes the key as a SubjectPublicKeyInfo in DER.
    pub fn spki(&self) -> Vec<u8> {
        [&SPKI[..], &self.0].concat()
    }

    /// Returns the server name for a peer with this key: `ID.spur`, where the id is the first eight bytes.
    pub fn server_name(&self) -> String {
        let id: String = self.0[..8].iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{id}.spur")
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", self.server_name())
    }
}

/// A daemon's own key pair.
#[derive(Clone)]
pub struct RoleKey {
    pub(crate) certified: Arc<CertifiedKey>,
    /// The public key.
    pub public: PublicKey,
}

impl fmt::Debug for RoleKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RoleKey({})", self.public.server_name())
    }
}

/// The valid keys of a cluster.
pub struct ClusterKeys {
    cluster: Arc<str>,
    /// The key that signs, then the one that is still accepted.
    keys: Vec<ClusterKey>,
    /// Derived public keys by role: a derivation takes some 20 µs.
    public: Mutex<HashMap<Role, Arc<[PublicKey]>>>,
}

impl fmt::Debug for ClusterKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKeys({}, {} keys)", self.cluster, self.keys.len())
    }
}

impl Clone for ClusterKeys {
    fn clone(&self) -> ClusterKeys {
        ClusterKeys { cluster: Arc::clone(&self.cluster), keys: self.keys.clone(), public: Mutex::default() }
    }
}

impl ClusterKeys {
    /// Returns one key, of a cluster of this name.
    pub fn of(key: ClusterKey, cluster: &str) -> ClusterKeys {
        ClusterKeys { cluster: cluster.into(), keys: vec![key], public: Mutex::default() }
    }

    /// Reads the keys in a file, of a cluster of this name.
    ///
    /// # Errors
    /// Fails as [`ClusterKey::read`] does.
    pub fn read(path: &Path, cluster: &str) -> Result<ClusterKeys, KeyError> {
        Ok(ClusterKeys { cluster: cluster.into(), keys: ClusterKey::read(path)?, public: Mutex::default() })
    }

    /// Returns the number of valid keys.
    pub fn count(&self) -> usize {
        self.keys.len()
    }

    /// Returns the valid keys, the signing one first.
    pub(crate) fn all(&self) -> &[ClusterKey] {
        &self.keys
    }

    /// Returns a daemon's own keys; the first is shown unless the client asks for another.
    pub fn own(&self, role: &Role) -> Vec<RoleKey> {
        self.keys.iter().map(|key| key.derive(&self.cluster, role)).collect()
    }

    /// Returns the public keys by which a daemon is known.
    pub fn public(&self, role: &Role) -> Arc<[PublicKey]> {
        let mut known = self.public.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = known.get(role) {
            return Arc::clone(known);
        }
        let derived: Arc<[PublicKey]> = self.own(role).iter().map(|key| key.public).collect();
        known.insert(role.clone(), Arc::clone(&derived));
        derived
    }
}

/// The valid keys of a cluster, which can be replaced at run time. Clones share them.
#[derive(Clone, Debug)]
pub struct Keyring(Arc<watch::Sender<Arc<ClusterKeys>>>);

impl Keyring {
    /// Returns a keyring with these keys.
    pub fn new(keys: ClusterKeys) -> Keyring {
        Keyring(Arc::new(watch::Sender::new(Arc::new(keys))))
    }

    /// Returns the keys that are valid now.
    pub fn now(&self) -> Arc<ClusterKeys> {
        Arc::clone(&self.0.borrow())
    }

    /// Replaces the keys, and returns true if they differ.
    pub fn replace(&self, keys: ClusterKeys) -> bool {
        self.0.send_if_modified(|now| {
            let changed = now.keys != keys.keys || now.cluster != keys.cluster;
            if changed {
                *now = Arc::new(keys);
            }
            changed
        })
    }

    /// Waits until a key of this role is no longer valid.
    pub async fn retired(&self, role: &Role, key: &PublicKey) {
        // The sender exists, so the wait ends only with the condition.
        let _ = self.0.subscribe().wait_for(|now| !now.public(role).contains(key)).await;
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn keys(byte: u8, cluster: &str) -> ClusterKeys {
        ClusterKeys::of(ClusterKey::from_bytes([byte; KEY_BYTES]), cluster)
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("spur-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    #[test]
    fn every_role_cluster_and_node_has_a_key_of_its_own() {
        let node = |name: &str| Role::Node(name.into());
        let all = [
            keys(1, "a").public(&Role::Controller)[0],
            keys(2, "a").public(&Role::Controller)[0],
            keys(1, "b").public(&Role::Controller)[0],
            keys(1, "a").public(&node("n1"))[0],
            keys(1, "a").public(&node("n2"))[0],
            keys(1, "a").public(&node(""))[0],
            keys(1, "b").public(&node("n1"))[0],
        ];
        let distinct: std::collections::HashSet<PublicKey> = all.into_iter().collect();
        assert_eq!(distinct.len(), all.len());
        assert_eq!(keys(1, "a").public(&node("n1"))[0], keys(1, "a").own(&node("n1"))[0].public);
    }

    #[test]
    fn derived_keys_are_the_same_in_every_release() {
        // Computed independently: HKDF-SHA256 and Ed25519 of Python's `cryptography`.
        let key = keys(7, "demo").public(&Role::Node("n1".into()))[0];
        let hex: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "98678ad5ae898911f65dc3b5eebdb895a2797bf47ad4a81931c23ade91257e8b");
        let key = keys(7, "demo").public(&Role::Controller)[0];
        let hex: String = key.bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, "458e413cd2dc186c7e66b7aaab211c071d6bb73db7e06be09cf9d15c87b1b708");
        assert_eq!(PublicKey::of_spki(&key.spki()), Some(key));
        assert_eq!(PublicKey::of_spki(&key.spki()[1..]), None);
    }

    #[test]
    fn a_key_file_is_for_its_owner_alone() {
        let directory = directory("key");
        let path = directory.join("spur.key");
        let generated = ClusterKey::generate().unwrap();
        generated.write_new(&path).unwrap();
        assert!(generated.write_new(&path).is_err(), "an existing key is never overwritten");
        assert_eq!(ClusterKey::read(&path).unwrap(), [generated]);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(matches!(ClusterKey::read(&path), Err(KeyError::Mode { mode: 0o640, .. })));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        for wrong in ["secret", "", "\n"] {
            fs::write(&path, wrong).unwrap();
            assert!(matches!(ClusterKey::read(&path), Err(KeyError::Content { .. })), "{wrong:?}");
        }
        assert!(matches!(
            ClusterKey::read(&directory.join("none")),
            Err(KeyError::Io { action: "open", .. })
        ));
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_rotated_file_holds_the_new_key_and_the_old_one_until_that_is_retired() {
        let directory = directory("rotated");
        let path = directory.join("spur.key");
        let old = ClusterKey::generate().unwrap();
        old.write_new(&path).unwrap();
        assert!(!ClusterKey::retire(&path).unwrap(), "there is only one");
        ClusterKey::rotate(&path).unwrap();
        let both = ClusterKey::read(&path).unwrap();
        assert!(both.len() == 2 && both[0] != old && both[1] == old);
        assert!(matches!(ClusterKey::rotate(&path), Err(KeyError::Rotating { .. })));
        assert!(ClusterKey::retire(&path).unwrap());
        assert_eq!(ClusterKey::read(&path).unwrap(), both[..1]);
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 1, "nothing is left beside it");
        fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_keyring_says_whether_it_was_changed() {
        let ring = Keyring::new(keys(1, "a"));
        let shared = ring.clone();
        assert!(!ring.replace(keys(1, "a")));
        assert!(ring.replace(keys(2, "a")));
        assert_eq!(shared.now().public(&Role::Controller), keys(2, "a").public(&Role::Controller));
    }
}
