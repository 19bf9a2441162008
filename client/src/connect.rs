//! The connection: the builder of a client, and the lazy channel that all its calls share.

use std::time::Duration;

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::{Backoff, Client, Error};

/// The transport of all generated clients: a channel that adds the bearer token.
pub type Service = InterceptedService<Channel, Bearer>;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A connection without any sign of life for interval plus timeout is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bound on a message of the server. It is above the 4 MiB that a server sends, to leave room for later versions.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// What `https://` uses beside the certificates of the system.
#[derive(Clone, Default)]
struct Tls {
    ca: Option<String>,
    identity: Option<(String, String)>,
    server_name: Option<String>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tls").finish_non_exhaustive()
    }
}

impl Tls {
    fn is_set(&self) -> bool {
        self.ca.is_some() || self.identity.is_some() || self.server_name.is_some()
    }

    fn config(&self) -> ClientTlsConfig {
        let config = match &self.ca {
            Some(ca) => ClientTlsConfig::new().ca_certificate(Certificate::from_pem(ca)),
            None => ClientTlsConfig::new().with_enabled_roots(),
        };
        let config = match &self.identity {
            Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
            None => config,
        };
        match &self.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

/// Builder of a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    endpoint: String,
    token: Option<String>,
    tls: Tls,
    connect_timeout: Duration,
    pub(crate) call_timeout: Duration,
    pub(crate) backoff: Backoff,
}

impl std::fmt::Debug for ClientBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The token and the key must not be printed.
        f.debug_struct("ClientBuilder").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl ClientBuilder {
    pub(crate) fn new(endpoint: impl Into<String>) -> Self {
        ClientBuilder {
            endpoint: endpoint.into(),
            token: None,
            tls: Tls::default(),
            connect_timeout: CONNECT_TIMEOUT,
            call_timeout: Duration::from_secs(30),
            backoff: Backoff::default(),
        }
    }

    /// Sends this bearer token with every call.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into());
        self
    }

    /// Trusts servers whose certificate leads to one of these roots, in PEM, instead of those of the system.
    pub fn tls_ca(mut self, pem: impl Into<String>) -> Self {
        self.tls.ca = Some(pem.into());
        self
    }

    /// Presents this certificate, in PEM, to the server. The key, in PEM, belongs to it.
    pub fn tls_identity(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.tls.identity = Some((certificate.into(), key.into()));
        self
    }

    /// Expects this name in the server's certificate, where it is not the one in the address.
    pub fn tls_server_name(mut self, name: impl Into<String>) -> Self {
        self.tls.server_name = Some(name.into());
        self
    }

    /// Sets the time that making a connection may take. Default 5 s.
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = timeout;
        self
    }

    /// Sets the timeout of one attempt of a call. It does not apply to `run`, which waits for the run. Default 30 s.
    pub fn call_timeout(mut self, timeout: Duration) -> Self {
        self.call_timeout = timeout;
        self
    }

    /// Sets the retries of calls and streams after a passing failure.
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.backoff = backoff;
        self
    }

    /// Builds the client, which connects with its first call. Must be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the endpoint is no URL, the token has characters that a header cannot carry, or a
    /// certificate is none or is given for an endpoint without `https://`.
    pub fn build(self) -> Result<Client, Error> {
        let service = self.service()?;
        Ok(Client::new(service, &self))
    }

    pub(crate) fn service(&self) -> Result<Service, Error> {
        let bearer = Bearer::new(self.token.as_deref())?;
        let channel =
            endpoint(&self.endpoint, &self.tls)?.connect_timeout(self.connect_timeout).connect_lazy();
        Ok(InterceptedService::new(channel, bearer))
    }
}

fn endpoint(address: &str, tls: &Tls) -> Result<Endpoint, Error> {
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let invalid = |error: tonic::transport::Error| Error::Endpoint(format!("{address}: {error}"));
    let endpoint = Endpoint::from_shared(url).map_err(invalid)?;
    if endpoint.uri().host().is_none() {
        return Err(Error::Endpoint(format!("{address}: names no host")));
    }
    let encrypted = endpoint.uri().scheme_str() == Some("https");
    if tls.is_set() && !encrypted {
        return Err(Error::Endpoint(format!(
            "{address}: certificates need an address that begins with https://"
        )));
    }
    let endpoint = if encrypted { endpoint.tls_config(tls.config()).map_err(invalid)? } else { endpoint };
    let endpoint = endpoint
        .tcp_nodelay(true)
        .http2_keep_alive_interval(KEEPALIVE_INTERVAL)
        .keep_alive_timeout(KEEPALIVE_TIMEOUT)
        .initial_stream_window_size(STREAM_WINDOW_BYTES)
        .initial_connection_window_size(4 * STREAM_WINDOW_BYTES);
    endpoint.user_agent(concat!("agentloop-client/", env!("CARGO_PKG_VERSION"))).map_err(invalid)
}

/// Interceptor that adds the bearer token to each call, if there is one.
#[derive(Debug, Clone)]
pub struct Bearer(Option<MetadataValue<Ascii>>);

impl Bearer {
    fn new(token: Option<&str>) -> Result<Self, Error> {
        let Some(token) = token else { return Ok(Bearer(None)) };
        let mut value: MetadataValue<Ascii> = format!("Bearer {token}")
            .parse()
            .map_err(|_| Error::Endpoint("the token has characters that a header cannot carry".into()))?;
        value.set_sensitive(true);
        Ok(Bearer(Some(value)))
    }
}

impl Interceptor for Bearer {
    fn call(&mut self, mut request: Request<()>) -> Result<Request<()>, Status> {
        if let Some(value) = &self.0 {
            request.metadata_mut().insert("authorization", value.clone());
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_or_a_host_with_a_port_is_an_endpoint() {
        for good in ["http://127.0.0.1:50051", "127.0.0.1:50051", "localhost:1"] {
            assert!(ClientBuilder::new(good).build().is_ok(), "{good}");
        }
        for bad in ["", "http://", "not an address"] {
            assert!(matches!(ClientBuilder::new(bad).build(), Err(Error::Endpoint(_))), "{bad}");
        }
    }

    #[tokio::test]
    async fn certificates_need_an_encrypted_address() {
        let built = |address: &str| ClientBuilder::new(address).tls_ca("").tls_server_name("x").build();
        for plain in ["http://localhost:1", "localhost:1"] {
            let refused = built(plain).expect_err("it is not encrypted").to_string();
            assert!(refused.contains("https://"), "{refused}");
        }
        assert!(ClientBuilder::new("https://localhost:1").build().is_ok());
    }

    #[tokio::test]
    async fn a_token_that_no_header_can_carry_is_refused() {
        let built = ClientBuilder::new("localhost:1").token("line\nbreak").build();
        assert!(matches!(built, Err(Error::Endpoint(_))));
    }
}
