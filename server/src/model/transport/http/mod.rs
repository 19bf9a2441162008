//! The way to a provider over HTTP: one client for all, and where each provider's requests go.

mod clock;
mod exchange;
mod headers;
mod reading;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use agentloop_core::time::Millis;
use bytes::Bytes;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};

pub(crate) use self::exchange::exchange;
pub(crate) use self::reading::Decoder;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::reading::Reading;
use crate::model::options::{ProviderError, ProviderOptions};
use crate::secret::Secret;

/// Clients kept for different connect timeouts. Runs hardly ever ask for more than one.
const CLIENTS_MAX: usize = 4;
const KEEP_ALIVE: Duration = Duration::from_secs(30);

/// How to reach providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpOptions {
    /// Whether the proxy that the environment names is used.
    pub system_proxy: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { system_proxy: true }
    }
}

/// The connections to all providers. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Http(Arc<Clients>);

/// A connect timeout belongs to a client and not to a request, so each one in use has its client.
#[derive(Debug)]
struct Clients {
    options: HttpOptions,
    by_connect_timeout: Mutex<Vec<(Millis, reqwest::Client)>>,
}

impl Http {
    /// Opens nothing yet.
    pub(crate) fn new(options: HttpOptions) -> Self {
        // Refused when the process has a provider already, which is then as good.
        let _installed_before = rustls::crypto::ring::default_provider().install_default();
        Self(Arc::new(Clients { options, by_connect_timeout: Mutex::new(Vec::new()) }))
    }

    /// # Errors
    /// When the system has no usable certificates.
    pub(crate) fn client(&self, connect_timeout: Millis) -> Result<reqwest::Client, reqwest::Error> {
        let mut clients = self.0.by_connect_timeout.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, client)) = clients.iter().find(|(timeout, _)| *timeout == connect_timeout) {
            return Ok(client.clone());
        }
        let client = build(self.0.options, connect_timeout)?;
        if clients.len() >= CLIENTS_MAX {
            clients.remove(0);
        }
        clients.push((connect_timeout, client.clone()));
        Ok(client)
    }
}

/// Redirects are not followed: they would carry the key to wherever they point.
fn build(options: HttpOptions, connect_timeout: Millis) -> Result<reqwest::Client, reqwest::Error> {
    let builder = reqwest::Client::builder()
        .user_agent(concat!("agentloop/", env!("CARGO_PKG_VERSION")))
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(connect_timeout.duration())
        .tcp_nodelay(true)
        .tcp_keepalive(KEEP_ALIVE)
        .http2_keep_alive_interval(KEEP_ALIVE);
    if options.system_proxy { builder } else { builder.no_proxy() }.build()
}

/// Where a provider takes its requests, and what goes with each of them. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Endpoint(Arc<Place>);

#[derive(Clone)]
struct Place {
    url: Url,
    headers: HeaderMap,
    secrets: Arc<[Secret]>,
}

/// How a vendor is reached where a provider is not configured otherwise.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vendor {
    /// Without a slash at its end.
    pub(crate) base_url: &'static str,
    /// The header that the key is sent in.
    pub(crate) key_header: &'static str,
}

/// The headers of a provider's requests: those that are configured, and the key in the header that is configured for
/// it, else in this one. In `authorization` it is a bearer token.
fn headers(provider: &ProviderOptions, key_header: &str) -> Vec<(String, Secret)> {
    let mut headers = provider.headers.clone();
    if let Some(key) = provider.api_key.as_ref().filter(|key| !key.is_empty()) {
        let name = provider.key_header.as_deref().unwrap_or(key_header);
        let value = match name.eq_ignore_ascii_case("authorization") {
            true => Secret::new(format!("Bearer {}", key.expose())),
            false => key.clone(),
        };
        headers.push((name.to_owned(), value));
    }
    headers
}

/// A path of an API behind that of a base URL, which may have it already.
pub(crate) fn appended(base: &str, path: &str) -> String {
    if base.ends_with(path) { base.to_owned() } else { format!("{base}{path}") }
}

/// One request, ready to send.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    endpoint: Endpoint,
    body: Bytes,
}

/// Without the URL, whose query may hold a key.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("host", &self.host()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Of a provider as it is configured, with a line in the log that says where it is. `path` says where requests go
    /// by the path of the base URL, which comes without a slash at its end.
    ///
    /// # Errors
    /// As [`Endpoint::new`].
    pub(crate) fn of(
        provider: &ProviderOptions,
        vendor: Vendor,
        path: impl FnOnce(&str) -> String,
    ) -> Result<Self, ProviderError> {
        let base_url = provider.base_url.as_deref().unwrap_or(vendor.base_url);
        let headers = headers(provider, vendor.key_header);
        let endpoint = Self::new(base_url, path, &headers)?.hiding(provider.api_key.as_ref());
        let kind = provider.kind.name();
        tracing::info!(provider = %provider.name, kind, url = %endpoint.shown(), "model provider");
        Ok(endpoint)
    }

    /// `path` says where requests go by the path of `base_url`, which comes without a slash at its end. Every header
    /// value is treated as a secret.
    ///
    /// # Errors
    /// When the URL is none that we can post to, or a header cannot be sent.
    pub(crate) fn new(
        base_url: &str,
        path: impl FnOnce(&str) -> String,
        headers: &[(String, Secret)],
    ) -> Result<Self, ProviderError> {
        let mut url = Url::parse(base_url.trim()).map_err(|e| ProviderError::BaseUrl(e.to_string()))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            return Err(ProviderError::BaseUrl("must begin with http:// or https://".to_owned()));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(ProviderError::BaseUrl("must not hold credentials; use api_key".to_owned()));
        }
        let path = path(url.path().trim_end_matches('/'));
        url.set_path(&path);
        let mut map = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        for (name, value) in headers {
            let name = name.parse::<HeaderName>().map_err(|_| ProviderError::Header(name.clone()))?;
            let mut value =
                HeaderValue::from_str(value.expose()).map_err(|_| ProviderError::Header(name.to_string()))?;
            value.set_sensitive(true);
            map.insert(name, value);
        }
        let secrets = headers.iter().map(|(_, secret)| secret.clone()).collect();
        Ok(Self(Arc::new(Place { url, headers: map, secrets })))
    }

    /// Each request has this header too, which is no secret, where it has none of this name.
    ///
    /// # Errors
    /// When it cannot be sent.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Result<Self, ProviderError> {
        let value = HeaderValue::from_str(value).map_err(|_| ProviderError::Header(name.to_owned()))?;
        Arc::make_mut(&mut self.0).headers.entry(name).or_insert(value);
        Ok(self)
    }

    /// Texts that come back are cleaned of `secret` too, where a header holds it only in part.
    pub(crate) fn hiding(mut self, secret: Option<&Secret>) -> Self {
        let place = Arc::make_mut(&mut self.0);
        place.secrets = place.secrets.iter().chain(secret).cloned().collect();
        self
    }

    pub(crate) fn host(&self) -> &str {
        self.0.url.host_str().unwrap_or_default()
    }

    /// Whether this is OpenAI itself, in whatever region.
    pub(crate) fn is_openai(&self) -> bool {
        self.host() == "api.openai.com" || self.host().ends_with(".api.openai.com")
    }

    /// Where requests go, for people: without the query, which may hold a key.
    pub(crate) fn shown(&self) -> String {
        let mut url = self.0.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    /// The same place but for its path, to which these segments are added, and its query, to which this is.
    pub(crate) fn at<'a>(
        &self,
        segments: impl IntoIterator<Item = &'a str>,
        query: Option<(&str, &str)>,
    ) -> Self {
        let mut place = Place::clone(&self.0);
        if let Ok(mut path) = place.url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if let Some((name, value)) = query {
            place.url.query_pairs_mut().append_pair(name, value);
        }
        Self(Arc::new(place))
    }

    /// A request with this body.
    pub(crate) fn post(&self, body: Vec<u8>) -> Post {
        Post { endpoint: self.clone(), body: body.into() }
    }

    /// What an error says of the request that it is about.
    fn request_line(&self) -> String {
        format!("POST {}", self.shown())
    }

    fn secrets(&self) -> &Arc<[Secret]> {
        &self.0.secrets
    }
}

impl Post {
    /// In the client's terms.
    fn into_request(self) -> Request {
        let place = self.endpoint.0;
        let mut request = Request::new(Method::POST, place.url.clone());
        request.headers_mut().clone_from(&place.headers);
        *request.body_mut() = Some(self.body.into());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{OpenAiOptions, ProviderKind};

    fn endpoint(base_url: &str) -> Result<String, ProviderError> {
        let path = |base: &str| appended(base, "/chat/completions");
        Endpoint::new(base_url, path, &[]).map(|endpoint| endpoint.0.url.to_string())
    }

    #[test]
    fn the_path_is_appended() {
        for (base_url, url) in [
            ("https://api.openai.com/v1", "https://api.openai.com/v1/chat/completions"),
            ("http://localhost:11434/v1/", "http://localhost:11434/v1/chat/completions"),
            ("http://localhost:8080", "http://localhost:8080/chat/completions"),
            ("http://localhost:8080/v1/chat/completions/", "http://localhost:8080/v1/chat/completions"),
            (
                "https://x.example/openai?api-version=1",
                "https://x.example/openai/chat/completions?api-version=1",
            ),
        ] {
            assert_eq!(endpoint(base_url).as_deref(), Ok(url));
        }
    }

    #[test]
    fn what_cannot_be_posted_to_is_refused() {
        for base_url in ["", "api.openai.com", "ftp://x", "file:///x", "https://key@x", "https://u:p@x"] {
            assert!(matches!(endpoint(base_url), Err(ProviderError::BaseUrl(_))), "{base_url}");
        }
    }

    #[test]
    fn headers_that_cannot_be_sent_are_refused_without_their_value() {
        let header = |name: &str, value: &str| {
            let headers = [(name.to_owned(), Secret::new(value))];
            Endpoint::new("http://x", str::to_owned, &headers).map(|endpoint| {
                let shown = format!("{endpoint:?}");
                assert!(!shown.contains(value), "{shown}");
            })
        };
        assert_eq!(header("x-key", "sk-1234567"), Ok(()));
        assert_eq!(header("x key", "sk-1234567"), Err(ProviderError::Header("x key".to_owned())));
        assert_eq!(header("x-key", "sk-1234\n567"), Err(ProviderError::Header("x-key".to_owned())));
    }

    #[test]
    fn a_place_is_shown_without_its_query() {
        let endpoint = Endpoint::new("https://x.example/v1?key=secret", str::to_owned, &[]).unwrap();
        let at = endpoint.at(["models", "a b/c:stream"], Some(("alt", "sse")));
        assert_eq!(at.shown(), "https://x.example/v1/models/a%20b%2Fc:stream");
        assert_eq!(at.0.url.as_str(), "https://x.example/v1/models/a%20b%2Fc:stream?key=secret&alt=sse");
    }

    #[test]
    fn the_key_is_in_one_header() {
        let kind = ProviderKind::OpenAi(OpenAiOptions::default());
        let mut provider =
            ProviderOptions { api_key: Some(Secret::new("k")), ..ProviderOptions::new("p", kind) };
        let sent = |provider: &ProviderOptions| {
            let headers = headers(provider, "x-api-key");
            headers.iter().map(|(name, value)| format!("{name}: {}", value.expose())).collect::<Vec<_>>()
        };
        assert_eq!(sent(&provider), ["x-api-key: k"]);
        provider.key_header = Some("Authorization".to_owned());
        assert_eq!(sent(&provider), ["Authorization: Bearer k"]);
        provider.key_header = Some("api-key".to_owned());
        assert_eq!(sent(&provider), ["api-key: k"]);
        provider.api_key = Some(Secret::new(""));
        assert!(sent(&provider).is_empty());
    }

    #[test]
    fn clients_are_shared_and_bounded() {
        let http = Http::new(HttpOptions::default());
        for seconds in 0..10 {
            http.client(Millis::secs(seconds % 6 + 1)).unwrap();
        }
        assert_eq!(http.0.by_connect_timeout.lock().unwrap().len(), CLIENTS_MAX);
    }
}
