//! The builder of a client.

use std::time::Duration;

use tonic::service::interceptor::InterceptedService;

use crate::{
    Backoff, Client, Error,
    connect::{Bearer, CertificateAndKey, Tls, endpoint},
};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

impl Client {
    /// A client of the server at `endpoint`, such as `http://127.0.0.1:50051`. It connects with its first call. Must
    /// be called inside a tokio runtime.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the endpoint is no URL.
    pub fn connect(endpoint: impl Into<String>) -> Result<Client, Error> {
        Client::builder(endpoint).build()
    }

    /// Starts to build a client with a token, other timeouts or another backoff.
    pub fn builder(endpoint: impl Into<String>) -> ClientBuilder {
        ClientBuilder::new(endpoint)
    }
}

/// Builder of a [`Client`].
#[derive(Clone)]
pub struct ClientBuilder {
    endpoint: String,
    token: Option<String>,
    tls: Tls,
    connect_timeout: Duration,
    call_timeout: Duration,
    backoff: Backoff,
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
        self.tls.identity = Some(CertificateAndKey { certificate: certificate.into(), key: key.into() });
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
        let bearer = Bearer::new(self.token.as_deref())?;
        let channel =
            endpoint(&self.endpoint, &self.tls)?.connect_timeout(self.connect_timeout).connect_lazy();
        Ok(Client::new(InterceptedService::new(channel, bearer), self.backoff, self.call_timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_url_or_a_host_with_a_port_is_an_endpoint() {
        for good in [
            "http://127.0.0.1:50051",
            "127.0.0.1:50051",
            "localhost:1",
            "https://a.example",
            "http://[::1]:1",
        ] {
            assert!(ClientBuilder::new(good).build().is_ok(), "{good}");
        }
        for bad in [
            "",
            "http://",
            "not an address",
            "http://127.0.0.1:99999",
            "http://127.0.0.1:",
            "[::1]:0",
            "ftp://localhost:1",
            "unix:///run/agentloop",
        ] {
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
