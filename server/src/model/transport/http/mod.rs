//! HTTP access to providers: shared clients, and the endpoint of each provider.

mod body;
mod clients;
mod deadlines;
mod exchange;
mod headers;
mod reader;
mod secrets;

use std::fmt;
use std::sync::Arc;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};

pub(crate) use self::body::HttpBody;
pub(crate) use self::clients::{ClientOfCall, Http};
pub(crate) use self::exchange::exchange;
pub(crate) use self::reader::Decoder;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) use self::reader::ResponseReader;
use crate::model::options::{ProviderError, ProviderOptions};
use crate::secret::Secret;

/// Options for all connections to providers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpOptions {
    /// True to use the proxy that the environment names.
    pub system_proxy: bool,
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self { system_proxy: true }
    }
}

/// URL and headers of a provider's requests. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Endpoint(Arc<RequestTarget>);

#[derive(Clone)]
struct RequestTarget {
    url: Url,
    headers: HeaderMap,
    secrets: Arc<[Secret]>,
}

/// Defaults of a vendor, used if the provider's options do not override them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Vendor {
    /// Base URL without a trailing slash.
    pub(crate) base_url: &'static str,
    /// Header that carries the API key.
    pub(crate) key_header: &'static str,
}

/// Returns the configured headers and the one with the key: in the configured key header, else in `key_header`.
/// In `authorization` the key is a bearer token.
fn auth_headers(provider: &ProviderOptions, key_header: &str) -> Vec<(String, Secret)> {
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

/// Appends a path to a base URL's path, unless it already ends with it.
pub(crate) fn with_suffix(base: &str, path: &str) -> String {
    if base.ends_with(path) { base.to_owned() } else { format!("{base}{path}") }
}

/// A POST request that is ready to be sent.
#[derive(Debug, Clone)]
pub(crate) struct Post {
    endpoint: Endpoint,
    body: HttpBody,
}

/// Shows the host only, because the query of the URL may hold a key.
impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("host", &self.host()).finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Creates the endpoint of a configured provider, and logs its URL. `path` maps the path of the base URL,
    /// without a trailing slash, to the path of requests.
    ///
    /// # Errors
    /// As [`Endpoint::new`].
    pub(crate) fn for_provider(
        provider: &ProviderOptions,
        vendor: Vendor,
        path: impl FnOnce(&str) -> String,
    ) -> Result<Self, ProviderError> {
        let base_url = provider.base_url.as_deref().unwrap_or(vendor.base_url);
        let headers = auth_headers(provider, vendor.key_header);
        let endpoint = Self::new(base_url, path, &headers)?.redacting(provider.api_key.as_ref());
        let kind = provider.kind.name();
        tracing::info!(provider = %provider.name, kind, url = %endpoint.display_url(), "model provider");
        Ok(endpoint)
    }

    /// Creates an endpoint. `path` maps the path of `base_url`, without a trailing slash, to the path of
    /// requests. Every header value is treated as a secret.
    ///
    /// # Errors
    /// If the URL is not an HTTP URL without credentials, or a header cannot be sent.
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
        Ok(Self(Arc::new(RequestTarget { url, headers: map, secrets })))
    }

    /// Adds a header that is not secret, unless the endpoint already has one of this name.
    ///
    /// # Errors
    /// If the value cannot be sent.
    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Result<Self, ProviderError> {
        let value = HeaderValue::from_str(value).map_err(|_| ProviderError::Header(name.to_owned()))?;
        Arc::make_mut(&mut self.0).headers.entry(name).or_insert(value);
        Ok(self)
    }

    /// Adds a secret to remove from error messages, for a key that is only part of a header value.
    fn redacting(mut self, secret: Option<&Secret>) -> Self {
        let target = Arc::make_mut(&mut self.0);
        target.secrets = target.secrets.iter().chain(secret).cloned().collect();
        self
    }

    pub(crate) fn host(&self) -> &str {
        self.0.url.host_str().unwrap_or_default()
    }

    /// True for OpenAI's own servers in any region.
    pub(crate) fn is_openai(&self) -> bool {
        self.host() == "api.openai.com" || self.host().ends_with(".api.openai.com")
    }

    /// Returns the URL for people: without the query, which may hold a key.
    pub(crate) fn display_url(&self) -> String {
        let mut url = self.0.url.clone();
        url.set_query(None);
        url.set_fragment(None);
        url.to_string()
    }

    /// Returns a copy with these path segments appended, and with this query parameter added.
    pub(crate) fn with_path<'a>(
        &self,
        segments: impl IntoIterator<Item = &'a str>,
        query: Option<(&str, &str)>,
    ) -> Self {
        let mut target = RequestTarget::clone(&self.0);
        if let Ok(mut path) = target.url.path_segments_mut() {
            path.pop_if_empty().extend(segments);
        }
        if let Some((name, value)) = query {
            target.url.query_pairs_mut().append_pair(name, value);
        }
        Self(Arc::new(target))
    }

    /// Creates a request with this body.
    pub(crate) fn post(&self, body: HttpBody) -> Post {
        Post { endpoint: self.clone(), body }
    }

    /// Returns the method and URL for error messages.
    fn request_line(&self) -> String {
        format!("POST {}", self.display_url())
    }

    fn secrets(&self) -> &Arc<[Secret]> {
        &self.0.secrets
    }
}

impl Post {
    /// Converts to the HTTP client's request type.
    fn into_request(self) -> Request {
        let target = self.endpoint.0;
        let mut request = Request::new(Method::POST, target.url.clone());
        request.headers_mut().clone_from(&target.headers);
        *request.body_mut() = Some(self.body.into());
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{OpenAiOptions, ProviderKind};

    fn endpoint(base_url: &str) -> Result<String, ProviderError> {
        let path = |base: &str| with_suffix(base, "/chat/completions");
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
        let at = endpoint.with_path(["models", "a b/c:stream"], Some(("alt", "sse")));
        assert_eq!(at.display_url(), "https://x.example/v1/models/a%20b%2Fc:stream");
        assert_eq!(at.0.url.as_str(), "https://x.example/v1/models/a%20b%2Fc:stream?key=secret&alt=sse");
    }

    #[test]
    fn the_key_is_in_one_header() {
        let kind = ProviderKind::OpenAi(OpenAiOptions::default());
        let mut provider =
            ProviderOptions { api_key: Some(Secret::new("k")), ..ProviderOptions::new("p", kind) };
        let sent = |provider: &ProviderOptions| {
            let headers = auth_headers(provider, "x-api-key");
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
}
