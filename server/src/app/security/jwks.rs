//! The keys of JSON Web Tokens: reads them from a file or an HTTPS server, at intervals and when a token names another key.

use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::error::{SecurityError, note, report};
use crate::auth::jwt::{JWKS_BYTES_MAX, JwtCheck, KeySet, KeySource};
use crate::bounded_file;
use crate::clock::Clock;
use crate::config::{JwksPlace, JwtOptions};
use crate::grpc::edge::audit::AuditLog;
use crate::telemetry::with_causes;

/// Time in which a server must have responded in whole.
const RESPONSE_WITHIN: Duration = Duration::from_secs(5);
/// Time in which it must have accepted the connection.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// The least time between two reads of a file because of tokens.
const FILE_READ_MIN: Duration = Duration::from_secs(1);

/// The source of the keys, and the check that uses them.
pub(in crate::app) struct Jwks {
    options: JwtOptions,
    check: Arc<JwtCheck>,
    clock: Arc<dyn Clock>,
    state: Mutex<KeyState>,
    /// Told of what was read again, if there is one.
    audit: OnceLock<AuditLog>,
}

#[derive(Default)]
struct KeyState {
    /// The bytes that were read last.
    bytes: Vec<u8>,
    keys: Option<Arc<KeySet>>,
    tried: Option<Instant>,
    /// The attempt that is under way. Its caller may have gone away; then the next one goes on with it.
    fetching: Option<BoxFuture<'static, Result<Vec<u8>, String>>>,
    /// The problem that was reported last, so that each is reported once.
    reported: Option<String>,
}

/// The reason for which a source is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReloadCause {
    /// The operator requests it.
    Requested,
    /// A token names a key that is not known.
    UnknownKey,
    /// The time for it may have come.
    Tick,
}

impl Jwks {
    /// Reads the keys, if they are in a file. Those of a server are read at the first tick: the server need not be there
    /// at the start.
    ///
    /// # Errors
    /// [`SecurityError`]: the file cannot be used.
    pub(super) fn load(options: &JwtOptions, clock: Arc<dyn Clock>) -> Result<Self, SecurityError> {
        let check = Arc::new(JwtCheck::new(options.rules.clone()));
        let mut state = KeyState::default();
        if let JwksPlace::File(path) = &options.jwks {
            let bytes = read_file(path)?;
            let keys = KeySet::read_some(&bytes)
                .map_err(|error| SecurityError::Keys(options.jwks.to_string(), error))?;
            let keys = Arc::new(keys);
            check.replace_keys(keys.clone(), Timestamp(u64::MAX));
            state = KeyState { bytes, keys: Some(keys), ..state };
        }
        let (options, state) = (options.clone(), Mutex::new(state));
        Ok(Self { options, check, clock, state, audit: OnceLock::new() })
    }

    /// The check of tokens with these keys.
    pub(super) fn check(&self) -> Arc<JwtCheck> {
        self.check.clone()
    }

    /// Has the audit log told from now on.
    pub(super) fn report_to(&self, audit: AuditLog) {
        // It is set once, at the start.
        let _set = self.audit.set(audit);
    }

    /// Reads the keys again, if it is time to. A failure is reported, and the keys before stay in use: those of
    /// a file always, those of a server until `jwks_stale_max` has passed. A set without keys is none: the issuer has taken them
    /// back.
    pub(super) async fn read_again(&self, cause: ReloadCause) {
        let mut state = self.state.lock().await;
        let passed = state.tried.map(|tried| tried.elapsed());
        let is_early = passed.is_some_and(|passed| passed < self.pause(cause, state.keys.is_some()));
        // Callers who come and go must not keep the keys from being read.
        if is_early && state.fetching.is_none() {
            return;
        }
        if cause != ReloadCause::UnknownKey {
            // It may have stood still until its time was over.
            state.fetching = None;
        }
        // Looking at a file costs nothing, so that does not put off a read that a token needs.
        if cause != ReloadCause::Tick || matches!(self.options.jwks, JwksPlace::Url(_)) {
            state.tried = Some(Instant::now());
        }
        let done = self.read_into(&mut state).await;
        note(self.audit.get(), "reload keys of tokens", &done, state.reported.as_deref());
        report("the keys of tokens", done, &mut state.reported);
    }

    /// The least time since the attempt before.
    fn pause(&self, cause: ReloadCause, has_keys: bool) -> Duration {
        let is_file = matches!(self.options.jwks, JwksPlace::File(_));
        match cause {
            ReloadCause::Requested => Duration::ZERO,
            ReloadCause::UnknownKey if is_file => FILE_READ_MIN,
            ReloadCause::Tick if is_file => Duration::ZERO,
            ReloadCause::UnknownKey => self.options.refresh_min.duration(),
            ReloadCause::Tick if has_keys => self.options.refresh.duration(),
            // Nobody with a token is let in yet.
            ReloadCause::Tick => self.options.refresh_min.duration(),
        }
    }

    /// True if the keys are others than before.
    async fn read_into(&self, state: &mut KeyState) -> Result<bool, SecurityError> {
        let (bytes, good_for) = match &self.options.jwks {
            JwksPlace::File(path) => (read_file(path)?, Millis(u64::MAX)),
            JwksPlace::Url(url) => {
                let fetching = state.fetching.get_or_insert_with(|| fetch(url.clone()).boxed());
                let fetched = fetching.await;
                state.fetching = None;
                let failed = |problem| SecurityError::FetchKeys(url.clone(), problem);
                (fetched.map_err(failed)?, self.options.stale_max)
            }
        };
        let is_new = state.bytes != bytes || state.keys.is_none();
        let keys = match &state.keys {
            Some(keys) if !is_new => keys.clone(),
            Some(_) | None => {
                let keys = KeySet::read(&bytes);
                Arc::new(keys.map_err(|error| SecurityError::Keys(self.options.jwks.to_string(), error))?)
            }
        };
        self.check.replace_keys(keys.clone(), self.clock.now().after(good_for));
        if is_new && keys.is_empty() {
            tracing::warn!(
                keys = %self.options.jwks,
                "the issuer has no public key that checks signatures any more: no token is accepted until it has one"
            );
        }
        (state.bytes, state.keys) = (bytes, Some(keys));
        Ok(is_new)
    }
}

#[async_trait]
impl KeySource for Jwks {
    async fn refresh(&self) {
        self.read_again(ReloadCause::UnknownKey).await;
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, SecurityError> {
    let failed = |cause| SecurityError::Read { key: "auth.jwt.jwks", path: path.to_owned(), cause };
    bounded_file::read(path, JWKS_BYTES_MAX).map_err(failed)
}

/// Fetches the keys. Redirects are not followed: the address is the configured one and no other.
async fn fetch(url: String) -> Result<Vec<u8>, String> {
    // Fails if the process already has a crypto provider, which is then used.
    let _installed_before = rustls::crypto::ring::default_provider().install_default();
    let client = reqwest::Client::builder()
        .user_agent(concat!("agentloop/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(CONNECT_WITHIN)
        .timeout(RESPONSE_WITHIN)
        .build()
        .map_err(|error| with_causes(&error))?;
    let mut response = client.get(url).send().await.map_err(|error| with_causes(&error))?;
    if response.status() != reqwest::StatusCode::OK {
        return Err(format!("it responded with {}", response.status()));
    }
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| with_causes(&error))? {
        if bytes.len() + chunk.len() > JWKS_BYTES_MAX {
            return Err(format!("it is longer than {JWKS_BYTES_MAX} bytes"));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::auth::HostGrant;
    use crate::auth::jwt::{ClaimPath, JwtAlgorithm, JwtRules, RoleMap};
    use crate::clock::SystemClock;

    /// The key of RFC 8037, appendix A.
    const KEYS: &str =
        r#"{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

    fn of_server(url: String) -> Jwks {
        let rules = JwtRules {
            issuer: "https://issuer.example".to_owned(),
            audience: "agentloop".to_owned(),
            algorithms: JwtAlgorithm::all(),
            leeway: Millis(0),
            name: ClaimPath::parse("sub").unwrap(),
            tenant: None,
            default_tenant: None,
            roles: None,
            groups: None,
            role_map: RoleMap::default(),
            default_roles: Vec::new(),
            host: HostGrant::default(),
        };
        let hour = Millis::secs(60 * 60);
        let options = JwtOptions {
            rules,
            jwks: JwksPlace::Url(url),
            refresh: hour,
            refresh_min: hour,
            stale_max: hour,
        };
        Jwks::load(&options, Arc::new(SystemClock)).unwrap()
    }

    /// Responds to the one request of a connection with the keys.
    async fn respond(mut connection: TcpStream) {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            assert_ne!(connection.read_buf(&mut request).await.unwrap(), 0, "the request was given up");
        }
        let length = KEYS.len();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n");
        connection.write_all(format!("{head}{KEYS}").as_bytes()).await.unwrap();
    }

    /// An attempt whose caller has gone away before the response.
    async fn left_alone() -> (Jwks, TcpListener, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let jwks = of_server(format!("http://{}/keys", listener.local_addr().unwrap()));
        let (connection, _) = tokio::select! {
            () = jwks.read_again(ReloadCause::UnknownKey) => panic!("nobody has responded"),
            accepted = listener.accept() => accepted.unwrap(),
        };
        (jwks, listener, connection)
    }

    #[tokio::test]
    async fn an_attempt_whose_caller_went_away_goes_on() {
        let (jwks, _listener, connection) = left_alone().await;
        tokio::join!(jwks.read_again(ReloadCause::UnknownKey), respond(connection));
        assert!(jwks.state.lock().await.keys.is_some());
    }

    #[tokio::test]
    async fn callers_who_go_away_do_not_put_off_the_next_look() {
        let (jwks, listener, _connection) = left_alone().await;
        let responds = async {
            respond(listener.accept().await.unwrap().0).await;
            std::future::pending::<()>().await
        };
        tokio::select! {
            () = jwks.read_again(ReloadCause::Tick) => {}
            () = responds => {}
        }
        assert!(jwks.state.lock().await.keys.is_some());
    }
}
