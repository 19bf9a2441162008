//! An identity provider for tests: signs JSON Web Tokens, and serves its public keys over HTTP on loopback.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use agentloop_server::clock::{Clock as _, SystemClock};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use parking_lot::Mutex;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// Name of the issuer in its tokens.
pub const NAME: &str = "https://issuer.example";
/// The audience of its tokens.
pub const AUDIENCE: &str = "agentloop";

/// An identity provider with one key at a time.
pub struct Issuer {
    state: Arc<State>,
    url: String,
}

struct State {
    key: Mutex<SigningKey>,
    requests: AtomicUsize,
    is_down: AtomicBool,
}

struct SigningKey {
    number: u32,
    pair: EcdsaKeyPair,
}

impl SigningKey {
    fn new(number: u32) -> Self {
        let random = SystemRandom::new();
        let document = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random);
        let document = document.expect("a key can be made");
        let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, document.as_ref(), &random);
        Self { number, pair: pair.expect("it was made here") }
    }

    fn id(&self) -> String {
        format!("key-{}", self.number)
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(header), part(claims));
        let signature = self.pair.sign(&SystemRandom::new(), signed.as_bytes()).expect("it signs");
        format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

impl State {
    fn jwks(&self) -> String {
        let key = self.key.lock();
        let point = key.pair.public_key().as_ref();
        let part = |from: usize| URL_SAFE_NO_PAD.encode(&point[from..from + 32]);
        let jwk = json!({ "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": key.id(),
            "x": part(1), "y": part(33) });
        json!({ "keys": [jwk] }).to_string()
    }

    async fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        let mut request = Vec::new();
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut request).await? == 0 {
                return Ok(());
            }
        }
        self.requests.fetch_add(1, Ordering::SeqCst);
        if self.is_down.load(Ordering::SeqCst) {
            return Ok(());
        }
        let body = self.jwks();
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).await
    }
}

impl Issuer {
    /// Makes a key and serves it.
    ///
    /// # Panics
    /// When no port is free.
    pub async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let url = format!("http://{}/jwks.json", listener.local_addr().expect("it is bound"));
        let state = Arc::new(State {
            key: Mutex::new(SigningKey::new(1)),
            requests: AtomicUsize::new(0),
            is_down: AtomicBool::new(false),
        });
        let serving = state.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                // A client that goes away is its own affair.
                let _gone = serving.answer(stream).await;
            }
        });
        Self { state, url }
    }

    /// Address of its keys.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its public keys, as it serves them.
    #[must_use]
    pub fn jwks(&self) -> String {
        self.state.jwks()
    }

    /// Number of requests for its keys.
    #[must_use]
    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::SeqCst)
    }

    /// From now on it answers no more, or again.
    pub fn set_down(&self, is_down: bool) {
        self.state.is_down.store(is_down, Ordering::SeqCst);
    }

    /// Replaces its key by another with another id.
    pub fn rotate(&self) {
        let mut key = self.state.key.lock();
        *key = SigningKey::new(key.number + 1);
    }

    /// A token for this name with these roles, and more claims or others.
    #[must_use]
    pub fn token(&self, name: &str, roles: &[&str], more: &Value) -> String {
        let key = self.state.key.lock();
        self.sign_with(&key, json!({ "alg": "ES256", "kid": key.id() }), name, roles, more)
    }

    /// As [`Self::token`], signed with a key that nobody knows.
    #[must_use]
    pub fn forged(&self, header: Value, name: &str) -> String {
        self.sign_with(&SigningKey::new(0), header, name, &["operator"], &json!({}))
    }

    fn sign_with(&self, key: &SigningKey, header: Value, name: &str, roles: &[&str], more: &Value) -> String {
        let mut claims = json!({
            "iss": NAME, "aud": AUDIENCE, "sub": name, "exp": now_seconds() + 300, "org": { "id": "local" },
            "realm_access": { "roles": roles }, "groups": ["a-group"],
        });
        for (name, value) in more.as_object().into_iter().flatten() {
            claims[name] = value.clone();
        }
        key.sign(&header, &claims)
    }

    /// The section `[auth.jwt]`, with the keys there and more settings.
    #[must_use]
    pub fn auth(jwks: &str, more: &str) -> String {
        format!(
            "[auth.jwt]\nissuer = \"{NAME}\"\naudience = \"{AUDIENCE}\"\njwks = {jwks:?}\ntenant = \"org.id\"\n\
             roles = \"realm_access.roles\"\ngroups = \"groups\"\n{more}\n"
        )
    }
}

/// The time of day in seconds since 1970, as tokens have it.
#[must_use]
pub fn now_seconds() -> u64 {
    SystemClock.now().0 / 1_000
}
