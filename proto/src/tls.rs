//! TLS 1.3 between the parts of a cluster, whose peers know each other by raw public keys ([RFC 7250]).
//!
//! A server shows the key of its role, a node that dials shows its own, and commands show none: they send a
//! token. Clocks, host names and authorities play no role. In addition, a site may offer commands a listener
//! with certificates of its own; of these, clients only check the authority and the controllers' names.
//!
//! A client that the server refuses sees its handshake succeed at first; only the first answer proves that
//! the connection works.
//!
//! [RFC 7250]: https://www.rfc-editor.org/rfc/rfc7250

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{ResolvesClientCert, Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring, verify_tls13_signature_with_raw_key};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    CertificateError, DigitallySignedStruct, DistinguishedName, Error, PeerIncompatible, RootCertStore,
    SignatureScheme,
};

pub use rustls::{ClientConfig, ServerConfig};

use crate::keys::{ClusterKeys, Keyring, PublicKey, Role, RoleKey};

/// The reason why the certificates of `[tls]` cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum CertificateFileError {
    /// A file that cannot be read, or does not contain what it should.
    #[error("[tls] {key}: cannot read {what} from {}: {problem}", path.display())]
    Read {
        /// The key in the configuration.
        key: &'static str,
        /// The expected content.
        what: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// The problem with the file.
        problem: String,
    },
    /// Certificate and key do not match, or are of an unknown kind.
    #[error("[tls] cert_file and key_file: {0}")]
    Pair(Error),
    /// A name that cannot be in a certificate.
    #[error("[tls] controller_names: `{0}` is no name that a certificate bears")]
    Name(String),
    /// An authority that cannot be used.
    #[error("[tls] ca_file: {0}")]
    Authority(String),
}

/// Returns the settings of a server that shows the key of `role`, and asks clients for theirs if they have
/// one.
pub fn server(keyring: &Keyring, role: Role) -> Arc<ServerConfig> {
    let shown = Shown { keyring: keyring.clone(), role, last: Mutex::new(None) };
    let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let config = config.expect("the provider has suites of TLS 1.3");
    let mut config = config.with_client_cert_verifier(Arc::new(AnyKey)).with_cert_resolver(Arc::new(shown));
    without_sessions(&mut config);
    Arc::new(config)
}

/// Returns the settings of a client that accepts servers with one of these keys; `own` is the key that it
/// shows.
pub fn client(expected: Vec<PublicKey>, own: Option<RoleKey>) -> Arc<ClientConfig> {
    let config = ClientConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
    let config = config.expect("the provider has suites of TLS 1.3").dangerous();
    let config = config.with_custom_certificate_verifier(Arc::new(Expected(expected)));
    let mut config = config.with_client_cert_resolver(Arc::new(Own(own.map(|own| own.certified))));
    config.resumption = Resumption::disabled();
    Arc::new(config)
}

/// A site's own certificate, which can be renewed at run time. Clones share it.
#[derive(Clone, Debug)]
pub struct Certificate {
    cert_file: PathBuf,
    key_file: PathBuf,
    shown: Arc<RwLock<Arc<CertifiedKey>>>,
}

impl Certificate {
    /// Reads a certificate and its key.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the two do not match.
    pub fn read(cert_file: &Path, key_file: &Path) -> Result<Certificate, CertificateFileError> {
        let shown = Arc::new(RwLock::new(Arc::new(certified(cert_file, key_file)?)));
        Ok(Certificate { cert_file: cert_file.to_owned(), key_file: key_file.to_owned(), shown })
    }

    /// Reads both files again, and returns true if the certificate has changed.
    ///
    /// # Errors
    /// Fails as [`Certificate::read`] does; the previous certificate is then still shown.
    pub fn renew(&self) -> Result<bool, CertificateFileError> {
        let new = certified(&self.cert_file, &self.key_file)?;
        let mut shown = self.shown.write().unwrap_or_else(PoisonError::into_inner);
        let differs = shown.cert != new.cert;
        *shown = Arc::new(new);
        Ok(differs)
    }

    /// Returns the settings of a server that shows the certificate and asks clients for none.
    pub fn server(&self) -> Arc<ServerConfig> {
        let config = ServerConfig::builder_with_provider(provider()).with_protocol_versions(&[&TLS13]);
        let config = config.expect("the provider has suites of TLS 1.3").with_no_client_auth();
        let mut config = config.with_cert_resolver(Arc::new(self.clone()));
        // Foreign clients use HTTP/2 only if it is negotiated.
        config.alpn_protocols = vec![b"h2".to_vec()];
        without_sessions(&mut config);
        Arc::new(config)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.shown.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn certified(cert_file: &Path, key_file: &Path) -> Result<CertifiedKey, CertificateFileError> {
    let chain = certificates("cert_file", cert_file)?;
    let key =
        PrivateKeyDer::from_pem_file(key_file).map_err(unreadable("key_file", "a private key", key_file))?;
    CertifiedKey::from_der(chain, key, &provider()).map_err(CertificateFileError::Pair)
}

/// Returns the settings of a client that accepts controllers with one of these names in a certificate of this
/// authority, at any address.
///
/// # Errors
/// Fails if the file contains no certificate, or a name cannot be in a certificate.
pub fn certificate_client(
    ca_file: &Path,
    names: &[String],
) -> Result<Arc<ClientConfig>, CertificateFileError> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates("ca_file", ca_file)? {
        roots.add(certificate).map_err(|error| CertificateFileError::Authority(error.to_string()))?;
    }
    let provider = provider();
    let chain = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider)).build();
    let chain = chain.map_err(|error| CertificateFileError::Authority(error.to_string()))?;
    let names = names
        .iter()
        .map(|name| ServerName::try_from(name.clone()).map_err(|_| CertificateFileError::Name(name.clone())));
    let verifier = Named { chain, names: names.collect::<Result<_, _>>()? };
    let config = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13]);
    let config = config.expect("the provider has suites of TLS 1.3").dangerous();
    let mut config = config.with_custom_certificate_verifier(Arc::new(verifier)).with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(Arc::new(config))
}

fn certificates(
    key: &'static str,
    file: &Path,
) -> Result<Vec<CertificateDer<'static>>, CertificateFileError> {
    let found = CertificateDer::pem_file_iter(file).map_err(unreadable(key, "certificates", file))?;
    let found = found.collect::<Result<Vec<_>, _>>().map_err(unreadable(key, "certificates", file))?;
    if found.is_empty() {
        return Err(unreadable(key, "certificates", file)("it holds none"));
    }
    Ok(found)
}

fn unreadable<E: fmt::Display>(
    key: &'static str,
    what: &'static str,
    file: &Path,
) -> impl Fn(E) -> CertificateFileError {
    let path = file.to_owned();
    move |problem| CertificateFileError::Read { key, what, path: path.clone(), problem: problem.to_string() }
}

/// Returns `ring`'s provider, with the suite first that is fastest on processors with AES.
fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    provider.cipher_suites = vec![
        ring::cipher_suite::TLS13_AES_128_GCM_SHA256,
        ring::cipher_suite::TLS13_AES_256_GCM_SHA384,
        ring::cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
    ];
    Arc::new(provider)
}

/// Disables sessions: a handshake costs less than keeping tickets.
fn without_sessions(config: &mut ServerConfig) {
    config.send_tls13_tickets = 0;
    config.session_storage = Arc::new(NoServerSessionStorage {});
}

/// Returns the public key that a peer has shown; `None` if it has shown none.
pub fn key_of(shown: Option<&[CertificateDer<'_>]>) -> Option<PublicKey> {
    PublicKey::of_spki(shown?.first()?)
}

fn signed_by_raw_key(
    message: &[u8],
    shown: &CertificateDer<'_>,
    signature: &DigitallySignedStruct,
) -> Result<HandshakeSignatureValid, Error> {
    let key = SubjectPublicKeyInfoDer::from(shown.as_ref());
    let algorithms = ring::default_provider().signature_verification_algorithms;
    verify_tls13_signature_with_raw_key(message, &key, signature, &algorithms)
}

/// The keys that a server may show: the one that the client asks for by its id, otherwise the one in use.
struct Shown {
    keyring: Keyring,
    role: Role,
    /// The last derived keys, with the cluster keys that they were derived from.
    last: Mutex<Option<(Arc<ClusterKeys>, Vec<RoleKey>)>>,
}

impl fmt::Debug for Shown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Shown({:?})", self.role)
    }
}

impl ResolvesServerCert for Shown {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let keys = self.keyring.now();
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.as_ref().is_none_or(|(of, _)| !Arc::ptr_eq(of, &keys)) {
            *last = Some((Arc::clone(&keys), keys.own(&self.role)));
        }
        let (_, own) = last.as_ref()?;
        let wanted = own.iter().find(|key| hello.server_name() == Some(&key.public.server_name()));
        wanted.or(own.first()).map(|key| Arc::clone(&key.certified))
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }
}

/// The key that a client shows, if it has one.
#[derive(Debug)]
struct Own(Option<Arc<CertifiedKey>>);

impl ResolvesClientCert for Own {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.clone()
    }

    fn only_raw_public_keys(&self) -> bool {
        true
    }

    fn has_certs(&self) -> bool {
        self.0.is_some()
    }
}

/// Accepts servers with one of these keys.
#[derive(Debug)]
struct Expected(Vec<PublicKey>);

impl ServerCertVerifier for Expected {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match PublicKey::of_spki(shown) {
            Some(key) if self.0.contains(&key) => Ok(ServerCertVerified::assertion()),
            _ => Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed_by_raw_key(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts any key that a client proves to hold; authorization comes later.
#[derive(Debug)]
struct AnyKey;

impl ClientCertVerifier for AnyKey {
    fn client_auth_mandatory(&self) -> bool {
        false
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        match PublicKey::of_spki(shown) {
            Some(_) => Ok(ClientCertVerified::assertion()),
            None => Err(Error::InvalidCertificate(CertificateError::BadEncoding)),
        }
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        signed_by_raw_key(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Accepts servers with a certificate for one of these names, whichever name was dialled.
#[derive(Debug)]
struct Named {
    chain: Arc<WebPkiServerVerifier>,
    names: Vec<ServerName<'static>>,
}

impl ServerCertVerifier for Named {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let mut last = Error::InvalidCertificate(CertificateError::NotValidForName);
        for name in &self.names {
            match self.chain.verify_server_cert(shown, intermediates, name, ocsp, now) {
                Ok(believed) => return Ok(believed),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(PeerIncompatible::Tls12NotOffered.into())
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.chain.verify_tls13_signature(message, shown, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chain.supported_verify_schemes()
    }
}
