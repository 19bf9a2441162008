//! The certificate of the gRPC port and the tokens of callers: reads their files, and reads them again when they change.
//! The same for the certificates of links between replicas, and for the keys of JSON Web Tokens.

mod certificate_end;
mod error;
mod jwks;
mod link_reload;
mod pem;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use self::certificate_end::CERTIFICATE_WARN_BEFORE;
use self::certificate_end::EndWarning;
pub use self::error::SecurityError;
use self::error::{note, report};
use self::jwks::{Jwks, ReloadCause};
use self::link_reload::LinkReload;
use self::pem::read_pem;
use crate::auth::Authenticator;
use crate::auth::jwt::JwtCheck;
use crate::auth::tokens::{TokenRecord, TokenTable, read};
use crate::clock::{Clock, SystemClock};
use crate::config::{AuthOptions, Config, TlsOptions};
use crate::grpc::edge::audit::AuditLog;
use crate::grpc::edge::tls::{Acceptor, BadTlsFiles, TlsClients, TlsFiles};

/// Time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The protection of the gRPC port.
pub(super) struct Security {
    /// The newest acceptor, if there is TLS.
    pub(super) acceptor: Option<watch::Receiver<Acceptor>>,
    /// Called for each RPC, if callers must present credentials.
    pub(super) authenticator: Option<Arc<Authenticator>>,
    /// Reads the keys of JSON Web Tokens, if there are any.
    pub(super) jwks: Option<Arc<Jwks>>,
    /// The links to other replicas, if they have certificates.
    pub(super) links: Option<Arc<LinkReload>>,
    /// Reads the files again; `None` if there are none.
    pub(super) reloader: Option<Arc<Reloader>>,
    /// True if the certificate of a client proves a replica, too.
    clients_are_replicas: bool,
}

/// The contents of the files of `[tls]`, `[auth]` and `[cluster]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SecurityFacts {
    /// The last moment at which the certificate of the gRPC port is valid, in seconds since 1970. `None` without TLS.
    pub not_after: Option<i64>,
    /// As `not_after`, of the certificate that replicas present to each other. `None` if they present none.
    pub links_not_after: Option<i64>,
    /// True if the certificate of a client proves a replica, too: whoever has one may speak for any caller.
    pub clients_are_replicas: bool,
    /// The number of tokens. `None` if there is no file of them.
    pub tokens: Option<usize>,
}

/// Reads the files that the configuration names, as a server does when it starts. Blocks. Keys of tokens that a server has are not
/// fetched.
///
/// # Errors
/// [`SecurityError`]: a server with this configuration does not start.
pub fn check_security(config: &Config) -> Result<SecurityFacts, SecurityError> {
    let Security { reloader, clients_are_replicas, .. } = Security::load(config, Arc::new(SystemClock))?;
    let tokens = reloader.as_ref().and_then(|reloader| reloader.tokens.as_ref());
    let count = |tokens: &TokenReload| tokens.state.lock().records.len();
    Ok(SecurityFacts {
        not_after: reloader.as_ref().and_then(|reloader| reloader.certificate_not_after()),
        links_not_after: reloader.as_ref().and_then(|reloader| reloader.links_not_after()),
        clients_are_replicas,
        tokens: tokens.map(count),
    })
}

/// Reads the files again, and replaces what they are read into.
pub(super) struct Reloader {
    tls: Option<TlsReload>,
    tokens: Option<TokenReload>,
    jwks: Option<Arc<Jwks>>,
    links: Option<LinkState>,
    clock: Arc<dyn Clock>,
    /// Told of what was read again, if there is one.
    audit: OnceLock<AuditLog>,
}

struct TlsReload {
    options: TlsOptions,
    newest: watch::Sender<Acceptor>,
    state: Mutex<TlsState>,
    end: EndWarning,
}

/// The links to other replicas.
struct LinkState {
    reload: Arc<LinkReload>,
    reported: Mutex<Option<String>>,
    end: EndWarning,
}

struct TlsState {
    files: TlsFiles,
    /// The problem that was reported last, so that each is reported once.
    reported: Option<String>,
}

struct TokenReload {
    path: PathBuf,
    authenticator: Arc<Authenticator>,
    state: Mutex<TokenState>,
}

struct TokenState {
    /// The file as it was read last. A file that looks the same is not read again.
    seen: Option<FileLook>,
    records: Vec<TokenRecord>,
    reported: Option<String>,
}

impl Security {
    /// Reads the files that the configuration names.
    ///
    /// # Errors
    /// [`SecurityError`]: the server must not start without what protects it.
    pub(super) fn load(config: &Config, clock: Arc<dyn Clock>) -> Result<Self, SecurityError> {
        let (tls, acceptor) = match &config.tls {
            Some(options) => {
                let (reload, acceptor) = TlsReload::load(options)?;
                (Some(reload), Some(acceptor))
            }
            None => (None, None),
        };
        let jwt = config.auth.as_ref().and_then(|options| options.jwt.as_ref());
        let jwks = jwt.map(|options| Jwks::load(options, clock.clone())).transpose()?.map(Arc::new);
        let (tokens, authenticator) = match &config.auth {
            Some(options) => {
                let (reload, authenticator) = load_auth(options, jwks.as_ref().map(|jwks| jwks.check()))?;
                (reload, Some(authenticator))
            }
            None => (None, None),
        };
        let cluster = config.cluster.as_ref().and_then(|cluster| cluster.tls.as_ref());
        let links = cluster.map(LinkReload::load).transpose()?.map(Arc::new);
        let watched = tls.is_some() || tokens.is_some() || jwks.is_some() || links.is_some();
        let client_ca = tls.as_ref().and_then(TlsReload::client_ca);
        let lets_in = |roots: Vec<u8>| links.as_ref().is_some_and(|links| links.lets_in(&roots));
        let clients_are_replicas = client_ca.is_some_and(lets_in);
        let reloader = watched.then(|| {
            let links = links.clone().map(LinkState::new);
            Arc::new(Reloader { tls, tokens, jwks: jwks.clone(), links, clock, audit: OnceLock::new() })
        });
        if let Some(reloader) = &reloader {
            reloader.warn_of_the_end();
        }
        Ok(Self { acceptor, authenticator, jwks, links, reloader, clients_are_replicas })
    }

    /// One line that says how the port is protected, and one if the port for replicas is not.
    pub(super) fn describe(&self) {
        if self.clients_are_replicas {
            tracing::warn!(
                "tls.client_ca and cluster.tls_ca have a root in common, so every client with a certificate can speak as a \
                 replica, for any caller: set cluster.tls_name, or give the replicas a root of their own"
            );
        }
        let (encrypted, authenticated) = (self.acceptor.is_some(), self.authenticator.is_some());
        match (encrypted, authenticated) {
            (_, false) => tracing::info!(
                tls = encrypted,
                "the server runs without authentication: whoever reaches the port may do everything; [auth] changes that"
            ),
            (false, true) => tracing::warn!(
                "callers present credentials, and the port is not encrypted: [tls] keeps others from reading them"
            ),
            (true, true) => tracing::info!("callers present credentials, over TLS"),
        }
    }
}

fn load_auth(
    options: &AuthOptions,
    jwt: Option<Arc<JwtCheck>>,
) -> Result<(Option<TokenReload>, Arc<Authenticator>), SecurityError> {
    let Some(path) = options.tokens.clone() else {
        let authenticator = Authenticator::new(TokenTable::default(), options.certificates.clone(), jwt);
        return Ok((None, Arc::new(authenticator)));
    };
    let records = read(&path)?;
    let table = TokenTable::of_file(&path, records.clone())?;
    if table.is_empty() {
        tracing::warn!(file = %path.display(), "there is no token; `agentloop token new` makes one");
    }
    let authenticator = Arc::new(Authenticator::new(table, options.certificates.clone(), jwt));
    let state = Mutex::new(TokenState { seen: None, records, reported: None });
    Ok((Some(TokenReload { path, authenticator: authenticator.clone(), state }), authenticator))
}

impl TlsReload {
    fn load(options: &TlsOptions) -> Result<(Self, watch::Receiver<Acceptor>), SecurityError> {
        let files = read_tls(options)?;
        let (newest, receiver) = watch::channel(acceptor(&files, options)?);
        let state = Mutex::new(TlsState { files, reported: None });
        Ok((Self { options: options.clone(), newest, state, end: EndWarning::of_port() }, receiver))
    }

    /// The roots of clients' certificates, in PEM.
    fn client_ca(&self) -> Option<Vec<u8>> {
        self.state.lock().files.client_ca.clone()
    }

    fn reload(&self) -> Result<bool, SecurityError> {
        // Read under the lock: an earlier reload must not replace the newer files of this one.
        let mut state = self.state.lock();
        let files = read_tls(&self.options)?;
        if state.files == files {
            return Ok(false);
        }
        self.newest.send_replace(acceptor(&files, &self.options)?);
        state.files = files;
        Ok(true)
    }
}

impl LinkState {
    fn new(reload: Arc<LinkReload>) -> Self {
        Self { reload, reported: Mutex::default(), end: EndWarning::of_links() }
    }
}

/// Properties that tell one version of a file from the next: writers replace the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct FileLook {
    /// Time of the last change, also of its mode.
    changed: (i64, i64),
    length: u64,
    inode: u64,
}

impl FileLook {
    /// `None` for a file that was changed so lately that a further change could look the same.
    fn of(path: &Path) -> Option<Self> {
        use std::os::unix::fs::MetadataExt as _;
        let file = fs::metadata(path).ok()?;
        let changed = SystemTime::UNIX_EPOCH + Duration::from_secs(file.ctime().try_into().ok()?);
        let is_old = changed.elapsed().is_ok_and(|age| age > LOOK_EVERY);
        let changed = (file.ctime(), file.ctime_nsec());
        is_old.then(|| Self { changed, length: file.len(), inode: file.ino() })
    }
}

impl TokenReload {
    fn reload(&self) -> Result<bool, SecurityError> {
        let mut state = self.state.lock();
        let look = FileLook::of(&self.path);
        if look.is_some() && state.seen == look {
            return Ok(false);
        }
        // A file that cannot be used is looked at again, and reported once.
        let records = read(&self.path)?;
        let has_changed = state.records != records;
        if has_changed {
            self.authenticator.replace_tokens(TokenTable::of_file(&self.path, records.clone())?);
            state.records = records;
        }
        state.seen = look;
        Ok(has_changed)
    }
}

impl Reloader {
    /// Reads the files again. A file that cannot be used is reported, and the old one stays in use.
    pub(super) fn reload(&self) {
        if let Some(tls) = &self.tls {
            let done = tls.reload();
            let mut state = tls.state.lock();
            note(self.audit.get(), "reload certificate", &done, state.reported.as_deref());
            report("the certificate", done, &mut state.reported);
        }
        if let Some(tokens) = &self.tokens {
            let done = tokens.reload();
            let mut state = tokens.state.lock();
            note(self.audit.get(), "reload tokens", &done, state.reported.as_deref());
            report("the tokens", done, &mut state.reported);
        }
        if let Some(links) = &self.links {
            let done = links.reload.reload();
            let mut reported = links.reported.lock();
            note(self.audit.get(), "reload certificate of replicas", &done, reported.as_deref());
            report("the certificate of the links between replicas", done, &mut reported);
        }
        self.warn_of_the_end();
    }

    /// Has the audit log told from now on.
    pub(super) fn report_to(&self, audit: AuditLog) {
        if let Some(jwks) = &self.jwks {
            jwks.report_to(audit.clone());
        }
        // It is set once, at the start.
        let _set = self.audit.set(audit);
    }

    /// The last moment at which the server's certificate is valid, in seconds since 1970.
    pub(super) fn certificate_not_after(&self) -> Option<i64> {
        self.tls.as_ref().map(|tls| tls.newest.borrow().not_after())
    }

    /// As [`Self::certificate_not_after`], of the certificate that replicas present to each other.
    pub(super) fn links_not_after(&self) -> Option<i64> {
        self.links.as_ref().map(|links| links.reload.not_after())
    }

    fn warn_of_the_end(&self) {
        let now = self.clock.now();
        if let (Some(tls), Some(end)) = (&self.tls, self.certificate_not_after()) {
            tls.end.look(end, now);
        }
        if let (Some(links), Some(end)) = (&self.links, self.links_not_after()) {
            links.end.look(end, now);
        }
    }
}

fn acceptor(files: &TlsFiles, options: &TlsOptions) -> Result<Acceptor, SecurityError> {
    Acceptor::new(files, clients(options)).map_err(|BadTlsFiles { file, problem }| {
        let path = match file {
            "certificate" => Some(&options.certificate),
            "key" => Some(&options.key),
            "client_ca" => options.client_ca.as_ref(),
            _ => None,
        };
        let at = path.map_or(String::new(), |path| format!("{}: ", path.display()));
        SecurityError::Tls(BadTlsFiles { file, problem: format!("{at}{problem}") })
    })
}

fn clients(options: &TlsOptions) -> TlsClients {
    TlsClients {
        auth: options.client_auth,
        allowed_subjects: options.allowed_subjects.clone(),
        handshake_timeout: options.handshake_timeout.duration(),
    }
}

fn read_tls(options: &TlsOptions) -> Result<TlsFiles, SecurityError> {
    let client_ca = options.client_ca.as_deref().map(|path| read_pem("tls.client_ca", path));
    Ok(TlsFiles {
        certificate: read_pem("tls.certificate", &options.certificate)?,
        key: read_pem("tls.key", &options.key)?,
        client_ca: client_ca.transpose()?,
    })
}

/// Reads the files again when they change and at SIGHUP, until the soft stop.
pub(super) async fn keep_current(reloader: Arc<Reloader>, stop: CancellationToken) {
    let mut hangup = match signal(SignalKind::hangup()) {
        Ok(hangup) => Some(hangup),
        Err(error) => {
            tracing::warn!(%error, "cannot watch for SIGHUP; changed files are still read again");
            None
        }
    };
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    loop {
        let requested = async {
            match &mut hangup {
                Some(hangup) => drop(hangup.recv().await),
                None => std::future::pending().await,
            }
        };
        let cause = tokio::select! {
            () = stop.cancelled() => return,
            () = requested => ReloadCause::Requested,
            _ = ticks.tick() => ReloadCause::Tick,
        };
        read_again(reloader.clone(), cause).await;
    }
}

/// Reads everything again, because an operator requests it.
pub(super) async fn reload(reloader: Arc<Reloader>) {
    read_again(reloader, ReloadCause::Requested).await;
}

/// As [`Reloader::reload`], away from the tasks that must not block; and the keys of tokens.
async fn read_again(reloader: Arc<Reloader>, cause: ReloadCause) {
    let jwks = reloader.jwks.clone();
    if let Err(error) = tokio::task::spawn_blocking(move || reloader.reload()).await {
        tracing::error!(%error, "reading certificates and tokens again failed");
    }
    if let Some(jwks) = jwks {
        jwks.read_again(cause).await;
    }
}

#[cfg(test)]
mod tests {
    use agentloop_core::time::{Millis, Timestamp};
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::certificate_end::DAY;
    use super::*;
    use crate::auth::ClientAuth;
    use crate::clock::TestClock;
    use crate::config::ClusterTls;
    use crate::telemetry::testing::warnings;

    /// The beginning of a day, in seconds since 1970.
    const END: i64 = 20_000 * DAY;

    /// Writes a certificate that ends at [`END`], and its key.
    fn write_certificate(folder: &Path) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        params.not_after = date_time_ymd(1970, 1, 1) + Duration::from_secs(END.unsigned_abs());
        let key = KeyPair::generate().unwrap();
        let (certificate, key_file) = (folder.join("server.pem"), folder.join("server.key"));
        fs::write(&certificate, params.self_signed(&key).unwrap().pem()).unwrap();
        fs::write(&key_file, key.serialize_pem()).unwrap();
        (certificate, key_file)
    }

    /// Reads the certificate of the gRPC port.
    fn of_port(folder: &Path, clock: &TestClock) -> Reloader {
        let (certificate, key) = write_certificate(folder);
        let options = TlsOptions {
            certificate,
            key,
            client_ca: None,
            client_auth: ClientAuth::None,
            allowed_subjects: Vec::new(),
            handshake_timeout: Millis::secs(1),
        };
        let (tls, _) = TlsReload::load(&options).unwrap();
        let clock = Arc::new(clock.clone());
        Reloader { tls: Some(tls), tokens: None, jwks: None, links: None, clock, audit: OnceLock::new() }
    }

    /// Reads the certificate of the links between replicas.
    fn of_links(folder: &Path, clock: &TestClock) -> Reloader {
        let (certificate, key) = write_certificate(folder);
        let options = ClusterTls { ca: certificate.clone(), certificate, key, name: None };
        let links = Some(LinkState::new(Arc::new(LinkReload::load(&options).unwrap())));
        let clock = Arc::new(clock.clone());
        Reloader { tls: None, tokens: None, jwks: None, links, clock, audit: OnceLock::new() }
    }

    #[test]
    fn the_end_of_a_certificate_is_warned_about_once_a_day() {
        let (folder, clock) = (tempfile::tempdir().unwrap(), TestClock::default());
        for (reloader, name) in [
            (of_port(folder.path(), &clock), "the certificate of the gRPC port"),
            (of_links(folder.path(), &clock), "the certificate of the links between replicas"),
        ] {
            let ends = [reloader.certificate_not_after(), reloader.links_not_after()];
            assert_eq!(ends.into_iter().flatten().collect::<Vec<i64>>(), [END], "{name}");
            let warned = |seconds_left: i64| {
                clock.set(Timestamp((END - seconds_left).unsigned_abs() * 1_000));
                warnings(|| reloader.reload())
            };
            assert_eq!(warned(15 * DAY), Vec::<String>::new(), "there is time");
            for days in [13, 12, 0] {
                let told = warned(days * DAY + DAY / 2);
                assert_eq!(told.len(), 1, "{told:?}");
                let words = [format!("{name} expires soon"), format!("days={days}")];
                assert!(words.iter().all(|word| told[0].contains(word)), "{told:?}");
                assert_eq!(warned(days * DAY + 1), Vec::<String>::new(), "it was told today");
            }
            let told = warned(-1);
            assert_eq!(told.len(), 1, "{told:?}");
            assert!(told[0].contains(&format!("{name} has expired")), "{told:?}");
        }
    }

    /// The root of an authority, and a certificate of it with its key.
    fn issued() -> (String, String, String) {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = rcgen::CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &issuer).unwrap();
        (issuer.pem(), certificate.pem(), key.serialize_pem())
    }

    #[test]
    fn a_root_that_clients_and_replicas_share_is_warned_about() {
        let folder = tempfile::tempdir().unwrap();
        let ((root, certificate, key), (other, ..)) = (issued(), issued());
        let both = format!("{other}{root}");
        let name = folder.path().join("agentloop.toml");
        for (file, text) in [
            ("c.pem", &certificate),
            ("c.key", &key),
            ("root.pem", &root),
            ("other.pem", &other),
            ("both.pem", &both),
        ] {
            fs::write(folder.path().join(file), text).unwrap();
        }
        for (clients, replicas, tls_name, is_shared) in [
            ("root.pem", "root.pem", "", true),
            ("both.pem", "root.pem", "", true),
            ("root.pem", "both.pem", "", true),
            ("other.pem", "root.pem", "", false),
            ("root.pem", "root.pem", "tls_name = 'replicas.test'", false),
        ] {
            let text = format!(
                "[store]\nurl = 'postgres://u@127.0.0.1:1/x'\n\
                 [cluster]\nlisten = '127.0.0.1:0'\ntls_cert = 'c.pem'\ntls_key = 'c.key'\ntls_ca = '{replicas}'\n{tls_name}\n\
                 [tls]\ncertificate = 'c.pem'\nkey = 'c.key'\nclient_ca = '{clients}'\nclient_auth = 'optional'\n"
            );
            let config = Config::parse(&text, &name.to_string_lossy()).unwrap();
            let security = Security::load(&config, Arc::new(SystemClock)).unwrap();
            let told = warnings(|| security.describe());
            let told: Vec<&String> = told.iter().filter(|line| line.contains("cluster.tls_ca")).collect();
            assert_eq!(told.len(), usize::from(is_shared), "{text}\n{told:?}");
            assert!(told.iter().all(|line| line.contains("set cluster.tls_name")), "{told:?}");
            assert_eq!(check_security(&config).unwrap().clients_are_replicas, is_shared, "{text}");
        }
    }
}
