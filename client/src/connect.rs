//! The connection: the lazy channel that all calls of a client share.

use std::time::Duration;

use tonic::{
    Request, Status,
    metadata::{Ascii, MetadataValue},
    service::{Interceptor, interceptor::InterceptedService},
    transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity},
};

use crate::Error;

/// The transport of all generated clients: a channel that adds the bearer token.
pub type Service = InterceptedService<Channel, Bearer>;

/// A connection without any sign of life for interval plus timeout is closed.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(20);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Bound on a message of the server. It is above the 4 MiB that a server sends, to leave room for later versions.
pub(crate) const MESSAGE_BYTES_MAX: usize = 16 * 1024 * 1024;
const STREAM_WINDOW_BYTES: u32 = 1024 * 1024;

/// The certificates that `https://` uses beside the certificates of the system.
#[derive(Clone, Default)]
pub(crate) struct Tls {
    pub(crate) ca: Option<String>,
    pub(crate) identity: Option<CertificateAndKey>,
    pub(crate) server_name: Option<String>,
}

/// A certificate and its key, in PEM. The key is a secret, so neither is shown.
#[derive(Clone)]
pub(crate) struct CertificateAndKey {
    pub(crate) certificate: String,
    pub(crate) key: String,
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
            Some(CertificateAndKey { certificate, key }) => {
                config.identity(Identity::from_pem(certificate, key))
            }
            None => config,
        };
        match &self.server_name {
            Some(name) => config.domain_name(name),
            None => config,
        }
    }
}

/// The endpoint at a URL, or at a host with a port.
pub(crate) fn endpoint(address: &str, tls: &Tls) -> Result<Endpoint, Error> {
    let url = if address.contains("://") { address.to_owned() } else { format!("http://{address}") };
    let invalid = |error: tonic::transport::Error| Error::Endpoint(format!("{address}: {error}"));
    if !url.split_once("://").is_some_and(|(scheme, _)| matches!(scheme, "http" | "https")) {
        return Err(Error::Endpoint(format!("{address}: an address begins with http:// or https://")));
    }
    let endpoint = Endpoint::from_shared(url).map_err(invalid)?;
    if endpoint.uri().host().is_none() {
        return Err(Error::Endpoint(format!("{address}: names no host")));
    }
    // Without this, a port that is none would be that of the scheme.
    let has_port = endpoint.uri().authority().is_some_and(|authority| {
        let host_and_port = authority.as_str().rsplit('@').next().unwrap_or_default();
        host_and_port.len() > authority.host().len()
    });
    if has_port && endpoint.uri().port_u16().is_none_or(|port| port == 0) {
        return Err(Error::Endpoint(format!("{address}: a port is a number from 1 to 65535")));
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
    pub(crate) fn new(token: Option<&str>) -> Result<Self, Error> {
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
