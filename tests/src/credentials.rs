//! Certificates and tokens of a test.

use std::path::{Path, PathBuf};
use std::time::Duration;

use agentloop_client::{Client, ClientBuilder};
use agentloop_core::time::Timestamp;
use agentloop_server::auth::Principal;
use agentloop_server::auth::tokens::{self, TokenRecord};
use parking_lot::Mutex;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose,
};
use tempfile::TempDir;

use crate::server::TestServer;

/// A certificate authority with a folder for files.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

/// A certificate and its key, in PEM.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The certificate, in PEM.
    pub certificate: String,
    /// The private key of the certificate, in PEM.
    pub key: String,
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

impl Authority {
    /// A new one, which nobody trusts yet.
    ///
    /// # Panics
    /// When no key can be made.
    #[must_use]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.distinguished_name.push(DnType::CommonName, "a test's authority");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().expect("a key can be made");
        Self { issuer: CertifiedIssuer::self_signed(params, key).expect("it signs itself") }
    }

    /// Its own certificate, in PEM.
    #[must_use]
    pub fn root(&self) -> String {
        self.issuer.pem()
    }

    /// The certificate of a server at loopback.
    #[must_use]
    pub fn server(&self) -> Identity {
        self.sign("server", &["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth, None)
    }

    /// As [`Self::server`], until this time in seconds since 1970.
    #[must_use]
    pub fn server_until(&self, end: u64) -> Identity {
        self.sign("server", &["localhost", "127.0.0.1"], ExtendedKeyUsagePurpose::ServerAuth, Some(end))
    }

    /// The certificate of a client with this common name.
    #[must_use]
    pub fn client(&self, name: &str) -> Identity {
        self.sign(name, &[], ExtendedKeyUsagePurpose::ClientAuth, None)
    }

    /// As [`Self::client`], until this time in seconds since 1970.
    #[must_use]
    pub fn client_until(&self, name: &str, end: u64) -> Identity {
        self.sign(name, &[], ExtendedKeyUsagePurpose::ClientAuth, Some(end))
    }

    /// The certificate of a replica at loopback, which is both a server and a client of the others.
    #[must_use]
    pub fn replica(&self) -> Identity {
        let both = [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
        self.sign_for("replica", &["127.0.0.1"], both.to_vec(), None)
    }

    fn sign(
        &self,
        name: &str,
        hosts: &[&str],
        purpose: ExtendedKeyUsagePurpose,
        end: Option<u64>,
    ) -> Identity {
        self.sign_for(name, hosts, vec![purpose], end)
    }

    fn sign_for(
        &self,
        name: &str,
        hosts: &[&str],
        purposes: Vec<ExtendedKeyUsagePurpose>,
        end: Option<u64>,
    ) -> Identity {
        let hosts: Vec<String> = hosts.iter().map(|&host| host.to_owned()).collect();
        let mut params = CertificateParams::new(hosts).expect("names of hosts");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages = purposes;
        if let Some(end) = end {
            params.not_after = rcgen::date_time_ymd(1970, 1, 1) + Duration::from_secs(end);
        }
        let key = KeyPair::generate().expect("a key can be made");
        let certificate = params.signed_by(&key, &self.issuer).expect("it signs");
        Identity { certificate: certificate.pem(), key: key.serialize_pem() }
    }
}

/// A folder with the files that a server's configuration names.
pub struct SecurityFiles {
    folder: TempDir,
    tokens: Mutex<Vec<TokenRecord>>,
}

impl Default for SecurityFiles {
    fn default() -> Self {
        Self::new()
    }
}

impl SecurityFiles {
    /// Makes an empty temporary folder, which ends with this value.
    ///
    /// # Panics
    /// When there is no room for one.
    #[must_use]
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder can be made"), tokens: Mutex::default() }
    }

    /// The path of a file.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Path of the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Writes a file into the folder, and returns its path.
    ///
    /// # Panics
    /// When that fails.
    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("the file is written");
    }

    /// Writes the certificate and key of the server.
    pub fn write_identity(&self, identity: &Identity) {
        self.write("server.pem", &identity.certificate);
        self.write("server.key", &identity.key);
    }

    /// The section `[tls]` with these files, and more keys.
    #[must_use]
    pub fn tls(&self, keys: &str) -> String {
        let (certificate, key) = (self.path("server.pem"), self.path("server.key"));
        format!("[tls]\ncertificate = {certificate:?}\nkey = {key:?}\n{keys}\n")
    }

    /// The section `[auth]` with the file of tokens.
    #[must_use]
    pub fn auth(&self) -> String {
        self.save();
        format!("[auth]\ntokens = {:?}\n", self.path("tokens.toml"))
    }

    /// Makes a token and adds it to the file.
    ///
    /// # Panics
    /// When the principal is none.
    pub fn token(&self, name: &str, tenant: &str, roles: &[&str]) -> String {
        self.token_in(name, tenant, roles, &["a-group"])
    }

    /// The same in these groups.
    ///
    /// # Panics
    /// When the principal is none.
    pub fn token_in(&self, name: &str, tenant: &str, roles: &[&str], groups: &[&str]) -> String {
        let principal = Principal::new(name, Some(tenant), roles.iter().copied(), groups.iter().copied());
        let (token, record) = tokens::new_token(&principal.expect("a principal"), Timestamp(0), None);
        self.tokens.lock().push(record);
        self.save();
        token.expose().to_owned()
    }

    /// Makes a token for tool hosts of this tenant, whose record is changed before it is written.
    ///
    /// # Panics
    /// When the principal is none.
    pub fn host_token(&self, name: &str, tenant: &str, change: impl FnOnce(&mut TokenRecord)) -> String {
        let token = self.token(name, tenant, &["host"]);
        change(self.tokens.lock().last_mut().expect("it was added"));
        self.save();
        token
    }

    /// Takes every token out of the file.
    pub fn revoke_all(&self) {
        self.tokens.lock().clear();
        self.save();
    }

    fn save(&self) {
        let records = self.tokens.lock().clone();
        tokens::write(&self.path("tokens.toml"), records).expect("the file is written");
    }
}

impl TestServer {
    /// A client of it that does not repeat what fails, to be given credentials.
    #[must_use]
    pub fn client_builder(&self) -> ClientBuilder {
        let once = agentloop_client::Backoff { max_retries: 0, ..agentloop_client::Backoff::default() };
        Client::builder(self.url()).backoff(once)
    }

    /// A client of it with this token.
    ///
    /// # Panics
    /// When the token is none.
    #[must_use]
    pub fn as_caller(&self, token: &str) -> Client {
        self.client_builder().token(token).build().expect("a client")
    }
}
