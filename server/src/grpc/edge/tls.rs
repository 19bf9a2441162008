//! TLS on the gRPC port: the acceptor, made of PEM files, and the handshakes of new connections.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, TrustAnchor};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::auth::{CertificateFacts, ClientAuth, SubjectPattern, certificate};

/// The protocol that a client must offer: gRPC is HTTP/2.
const PROTOCOL: &[u8] = b"h2";

/// The files that an acceptor is made of, as read.
#[derive(Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The server's certificate and those that lead to its root, in PEM.
    pub certificate: Vec<u8>,
    /// The key of the certificate, in PEM.
    pub key: Vec<u8>,
    /// The roots of clients' certificates, in PEM.
    pub client_ca: Option<Vec<u8>>,
}

impl std::fmt::Debug for TlsFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsFiles")
    }
}

/// The treatment of an acceptor's clients.
#[derive(Debug, Clone)]
pub struct TlsClients {
    /// The demand that they present certificates.
    pub auth: ClientAuth,
    /// The names of which a certificate must have one; empty means any.
    pub allowed_subjects: Vec<SubjectPattern>,
    /// Time that a client has for the handshake.
    pub handshake_timeout: Duration,
}

/// The reason why files make no acceptor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{file}: {problem}")]
pub struct BadTlsFiles {
    /// The key of the file that is wrong, such as `certificate`, or words for several.
    pub file: &'static str,
    /// The problem, for people.
    pub problem: String,
}

/// Makes the handshakes of new connections. Cheap to clone.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<ServerConfig>,
    clients: Arc<TlsClients>,
    not_after: i64,
}

impl std::fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Acceptor").field("not_after", &self.not_after).finish_non_exhaustive()
    }
}

/// The reason why a connection is not accepted. The text is for the audit log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum HandshakeError {
    /// The client left before its first byte, as a probe of the port does. It has tried nothing.
    #[error("the client has sent nothing")]
    Silent,
    /// The client has not completed the handshake in its time.
    #[error("the handshake was not completed in time")]
    Late,
    /// The handshake was the oldest of too many.
    #[error("the handshake was not completed, and too many others had begun")]
    Displaced,
    /// The client speaks no TLS, or its certificate is missing, not known, expired or not allowed.
    #[error("{0}")]
    Failed(String),
}

/// An accepted connection with the verified certificate of the client, if it presented one.
pub(super) struct Accepted {
    pub(super) stream: TlsStream<TcpStream>,
    pub(super) certificate: Option<Arc<CertificateFacts>>,
}

impl Acceptor {
    /// Reads the files, and checks that the key belongs to the certificate.
    ///
    /// # Errors
    /// [`BadTlsFiles`], with the file that is wrong.
    pub fn new(files: &TlsFiles, clients: TlsClients) -> Result<Self, BadTlsFiles> {
        let provider = Arc::new(ring::default_provider());
        let chain = certificates("certificate", &files.certificate)?;
        let leaf = chain.first().ok_or_else(|| bad("certificate", "there is none"))?;
        let facts = certificate::facts(leaf).map_err(|problem| bad("certificate", problem))?;
        let key = private_key(&files.key)?;
        let builder = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| bad("tls", error))?;
        let builder = match (&files.client_ca, clients.auth) {
            (Some(roots), ClientAuth::Optional | ClientAuth::Required) => {
                builder.with_client_cert_verifier(verifier(roots, clients.auth, provider)?)
            }
            (None, _) | (Some(_), ClientAuth::None) => builder.with_no_client_auth(),
        };
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| bad("certificate and key", error))?;
        config.alpn_protocols = vec![PROTOCOL.to_vec()];
        Ok(Self { config: Arc::new(config), clients: Arc::new(clients), not_after: facts.not_after })
    }

    /// The last moment at which the certificate is valid, in seconds since 1970.
    #[must_use]
    pub fn not_after(&self) -> i64 {
        self.not_after
    }

    /// Makes the handshake of one connection.
    pub(super) async fn handshake(self, stream: TcpStream) -> Result<Accepted, HandshakeError> {
        let failed = |problem: &str| Err(HandshakeError::Failed(problem.to_owned()));
        let config = self.config.clone();
        let handshake = async move {
            match stream.peek(&mut [0]).await {
                Ok(0) | Err(_) => return Err(HandshakeError::Silent),
                Ok(_) => {}
            }
            let accepted = TlsAcceptor::from(config).accept(stream).await;
            accepted.map_err(|error| HandshakeError::Failed(error.to_string()))
        };
        let done = tokio::time::timeout(self.clients.handshake_timeout, handshake).await;
        let stream = done.map_err(|_| HandshakeError::Late)??;
        let session = stream.get_ref().1;
        if session.alpn_protocol() != Some(PROTOCOL) {
            return failed("the client does not offer h2");
        }
        let presented = session.peer_certificates().and_then(<[_]>::first);
        let Some(presented) = presented else { return Ok(Accepted { stream, certificate: None }) };
        let facts = certificate::facts(presented).map_err(HandshakeError::Failed)?;
        let allowed = &self.clients.allowed_subjects;
        if !allowed.is_empty() && !allowed.iter().any(|subject| subject.matches(&facts.names)) {
            return failed("the client's certificate has none of allowed_subjects");
        }
        Ok(Accepted { stream, certificate: Some(Arc::new(facts)) })
    }
}

/// The configuration of a client that presents this certificate, and believes certificates of these roots. All are PEM.
///
/// # Errors
/// [`BadTlsFiles`]
pub(in crate::grpc::edge) fn client_config(
    certificate: &[u8],
    key: &[u8],
    ca: &[u8],
) -> Result<ClientConfig, BadTlsFiles> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(|error| bad("tls", error))?
        .with_root_certificates(root_store(ca)?)
        .with_client_auth_cert(certificates("certificate", certificate)?, private_key(key)?);
    let mut config = config.map_err(|error| bad("certificate and key", error))?;
    config.alpn_protocols = vec![PROTOCOL.to_vec()];
    Ok(config)
}

fn verifier(
    roots: &[u8],
    auth: ClientAuth,
    provider: Arc<CryptoProvider>,
) -> Result<Arc<dyn rustls::server::danger::ClientCertVerifier>, BadTlsFiles> {
    let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(root_store(roots)?), provider);
    let builder = if auth == ClientAuth::Optional { builder.allow_unauthenticated() } else { builder };
    builder.build().map_err(|error| bad("client_ca", error))
}

/// The roots of a file, in PEM.
fn root_store(pem: &[u8]) -> Result<RootCertStore, BadTlsFiles> {
    let mut store = RootCertStore::empty();
    for root in certificates("client_ca", pem)? {
        store.add(root).map_err(|error| bad("client_ca", error))?;
    }
    Ok(store)
}

/// True if a certificate may lead to a root of both files, in PEM. A root that was issued again has the same name and key. Files
/// that cannot be read have no root.
#[must_use]
pub fn have_common_root(one: &[u8], other: &[u8]) -> bool {
    let (Ok(one), Ok(other)) = (root_store(one), root_store(other)) else { return false };
    let same = |a: &TrustAnchor<'_>, b: &TrustAnchor<'_>| {
        a.subject == b.subject && a.subject_public_key_info == b.subject_public_key_info
    };
    one.roots.iter().any(|a| other.roots.iter().any(|b| same(a, b)))
}

/// The key of a file, in PEM.
fn private_key(pem: &[u8]) -> Result<PrivateKeyDer<'static>, BadTlsFiles> {
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| bad("key", words(&error)))
}

/// The certificates of this file, in PEM. There is one at least.
fn certificates(file: &'static str, pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, BadTlsFiles> {
    let found = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    let found = found.map_err(|error| bad(file, words(&error)))?;
    if found.is_empty() { Err(bad(file, "there is no certificate in it")) } else { Ok(found) }
}

/// Says what is wrong with a PEM file, in words of our own. The parser's message repeats a line of the file, which may be a key.
fn words(error: &pem::Error) -> &'static str {
    match error {
        pem::Error::MissingSectionEnd { .. } => "the line that ends a section is missing",
        pem::Error::IllegalSectionStart { .. } => "a line that begins a section has more on it, or less",
        pem::Error::Base64Decode(_) => "a section is not base64",
        pem::Error::NoItemsFound => "it has none in PEM",
        _ => "it cannot be read as PEM",
    }
}

fn bad(file: &'static str, problem: impl std::fmt::Display) -> BadTlsFiles {
    BadTlsFiles { file, problem: problem.to_string() }
}

#[cfg(test)]
mod tests {
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    fn pair() -> (Vec<u8>, Vec<u8>) {
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().self_signed(&key);
        (certificate.unwrap().pem().into_bytes(), key.serialize_pem().into_bytes())
    }

    fn made(certificate: Vec<u8>, key: Vec<u8>, client_ca: Option<Vec<u8>>) -> Result<Acceptor, String> {
        let auth = if client_ca.is_some() { ClientAuth::Required } else { ClientAuth::None };
        let clients =
            TlsClients { auth, allowed_subjects: Vec::new(), handshake_timeout: Duration::from_secs(1) };
        let files = TlsFiles { certificate, key, client_ca };
        Acceptor::new(&files, clients).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_wrong_with_a_key_does_not_show_it() {
        let (certificate, key) = pair();
        let key = String::from_utf8(key).unwrap();
        let secret = key.lines().nth(1).unwrap();
        let one_line = key.replace('\n', " ");
        for (key, told) in [
            (one_line.as_str(), "ends a section is missing"),
            (one_line.split("-----END").next().unwrap(), "has more on it"),
            (key.split("-----END").next().unwrap(), "ends a section is missing"),
        ] {
            let key = key.trim().as_bytes().to_vec();
            let refused = made(certificate.clone(), key, None).unwrap_err();
            assert!(refused.starts_with("key: ") && refused.contains(told), "{refused}");
            let bytes = format!("{:?}", &secret.as_bytes()[..8]);
            let shown = bytes.trim_matches(['[', ']']);
            assert!(!refused.contains(shown) && !refused.contains(&secret[..8]), "{refused}");
        }
    }

    #[test]
    fn only_a_pair_that_belongs_together_makes_an_acceptor() {
        let (one, other) = (pair(), pair());
        assert!(made(one.0.clone(), one.1.clone(), None).unwrap().not_after() > 0);
        assert!(made(one.0.clone(), one.1.clone(), Some(other.0.clone())).is_ok());
        for (certificate, key, ca, problem) in [
            (&one.0, &other.1, None, "certificate and key: "),
            (&one.1, &one.1, None, "certificate: "),
            (&one.0, &one.0, None, "key: "),
            (&one.0, &one.1, Some(one.1.clone()), "client_ca: "),
            (&Vec::new(), &one.1, None, "certificate: "),
        ] {
            let refused = made(certificate.clone(), key.clone(), ca).unwrap_err();
            assert!(refused.starts_with(problem), "{refused}");
        }
    }
}
