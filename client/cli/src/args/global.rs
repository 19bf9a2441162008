//! The options of every command that talks to a server, and the client that they describe.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use agentloop_client::{Backoff, Client};
use clap::{Args, ValueEnum};

use crate::{environment, exit::Failure, terminal::commands::quoted};

pub(crate) const DEFAULT_SERVER: &str = "http://127.0.0.1:50051";

pub(super) const GLOBAL: &str = "Options of every command that talks to a server";

/// Options of every subcommand that talks to a server.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// The server's address
    #[arg(
        long,
        global = true,
        env = "AGENTLOOP_SERVER",
        default_value = DEFAULT_SERVER,
        value_name = "URL",
        help_heading = GLOBAL
    )]
    pub(crate) server: String,
    /// The bearer token; better given by the environment than by the command line, which others can see
    #[arg(long, global = true, env = "AGENTLOOP_TOKEN", hide_env_values = true, value_name = "TOKEN", help_heading = GLOBAL)]
    pub(crate) token: Option<String>,
    /// The roots of the server's certificate, for https:// (PEM). Default: those of the system
    #[arg(long, global = true, env = "AGENTLOOP_CA_FILE", value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) tls_ca: Option<PathBuf>,
    /// Your certificate, for https:// (PEM)
    #[arg(long, global = true, env = "AGENTLOOP_CERT_FILE", requires = "tls_key", value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The key of your certificate (PEM)
    #[arg(long, global = true, env = "AGENTLOOP_KEY_FILE", requires = "tls_cert", value_name = "FILE", help_heading = GLOBAL)]
    pub(crate) tls_key: Option<PathBuf>,
    /// Format of the output: text for people, or JSON for programs, one object a line (`jsonl` means the same)
    #[arg(long, short, global = true, value_enum, default_value_t = Output::Text, help_heading = GLOBAL)]
    pub(crate) output: Output,
    /// Short for `--output json`
    #[arg(long = "json", global = true, conflicts_with = "output", help_heading = GLOBAL)]
    pub(crate) as_json: bool,
}

/// The format of the output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Text for people.
    Text,
    /// JSON for programs: one message of the contract per line.
    #[value(alias = "jsonl")]
    Json,
}

/// Reads a file of certificates or a key.
fn read(path: &Path) -> Result<String, Failure> {
    std::fs::read_to_string(path)
        .map_err(|error| Failure::Usage(format!("cannot read {}: {error}", path.display())))
}

/// A watch never gives up: the person decides how long to wait for an absent server.
pub(crate) const ENDLESS_BACKOFF: Backoff =
    Backoff { max_retries: u32::MAX, initial: Duration::from_millis(100), max: Duration::from_secs(2) };

/// Environment variable that lets a token travel unencrypted to another machine, as `server.allow_insecure_remote` lets a
/// server listen for it.
const ALLOW_INSECURE_REMOTE: &str = "AGENTLOOP_ALLOW_INSECURE_REMOTE";

/// Signs of a server without TLS in the cause of an error, in lower case, as all that follow.
const ANSWERS_UNENCRYPTED: [&str; 1] = ["invalidcontenttype"];
/// Signs of a server with TLS that was called without: it sends an alert, which is no frame, and closes the connection.
const DROPS_UNENCRYPTED: [&str; 4] =
    ["frame with invalid size", "broken pipe", "connection reset", "connection closed"];
/// The sign of a certificate that leads to no root that is known here.
const UNKNOWN_ROOT: &str = "unknownissuer";

/// The beginning of a certificate in PEM.
const PEM_CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----";

/// True if nobody on the way reads along: the URL is `https://`, or of this machine.
fn keeps_secret(url: &str) -> bool {
    let Ok(uri) = url.parse::<tonic::transport::Uri>() else { return false };
    uri.scheme_str() == Some("https") || is_here(&uri)
}

/// True for a server of this machine.
fn is_here(uri: &tonic::transport::Uri) -> bool {
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The texts of a certificate and of its key, in PEM.
pub(crate) struct CertificateAndKey {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

impl Global {
    /// A client with few retries: a person waits, so an absent server must be reported within two seconds.
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        self.client_that_retries(3)
    }

    /// The same, which repeats a call so many times.
    ///
    /// # Errors
    /// As [`client`](Self::client).
    pub(crate) fn client_that_retries(&self, max_retries: u32) -> Result<Client, Failure> {
        let backoff =
            Backoff { max_retries, initial: Duration::from_millis(200), max: Duration::from_secs(1) };
        let mut builder = Client::builder(self.endpoint()).backoff(backoff);
        if let Some(token) = self.token_to_present()? {
            builder = builder.token(token);
        }
        if let Some(roots) = self.tls_roots()? {
            builder = builder.tls_ca(roots);
        }
        if let Some(CertificateAndKey { certificate, key }) = self.tls_identity()? {
            builder = builder.tls_identity(certificate, key);
        }
        Ok(builder.build()?)
    }

    /// The token, if there is one.
    ///
    /// # Errors
    /// [`Failure::Usage`] where it would travel unencrypted to another machine, unless the environment allows that.
    pub(crate) fn token_to_present(&self) -> Result<Option<&str>, Failure> {
        let Some(token) = &self.token else { return Ok(None) };
        let is_allowed = environment::variable(ALLOW_INSECURE_REMOTE).is_some_and(|value| value == "true");
        if is_allowed || keeps_secret(&self.endpoint()) {
            return Ok(Some(token));
        }
        Err(Failure::Usage(format!(
            "the token would travel unencrypted to {}: use https://, or set {ALLOW_INSECURE_REMOTE}=true if the network \
             between is trusted",
            self.server
        )))
    }

    /// The roots of the server's certificate, in PEM.
    ///
    /// # Errors
    /// [`Failure::Usage`] where the file cannot be read or has none, so that no server would be trusted.
    pub(crate) fn tls_roots(&self) -> Result<Option<String>, Failure> {
        let Some(path) = &self.tls_ca else { return Ok(None) };
        let roots = read(path)?;
        if roots.contains(PEM_CERTIFICATE) {
            return Ok(Some(roots));
        }
        Err(Failure::Usage(format!(
            "{} has no certificate in PEM (--tls-ca, AGENTLOOP_CA_FILE)",
            path.display()
        )))
    }

    /// The certificate and the key to present.
    pub(crate) fn tls_identity(&self) -> Result<Option<CertificateAndKey>, Failure> {
        match (&self.tls_cert, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Ok(Some(CertificateAndKey { certificate: read(certificate)?, key: read(key)? }))
            }
            (Some(_) | None, _) => Ok(None),
        }
    }

    /// The server's URL. An address without a scheme gets `http://`.
    fn endpoint(&self) -> String {
        if self.server.contains("://") { self.server.clone() } else { format!("http://{}", self.server) }
    }

    /// The advice after the error of a server that cannot be reached for this cause: where it was looked for, and the next
    /// thing to do.
    pub(crate) fn where_asked(&self, cause: &str) -> String {
        let url = self.endpoint();
        let is_here = url.parse::<tonic::transport::Uri>().is_ok_and(|uri| is_here(&uri));
        let is_encrypted = url.starts_with("https://");
        let cause = cause.to_lowercase();
        let is = |signs: &[&str]| signs.iter().any(|sign| cause.contains(sign));
        let next = if is_encrypted && is(&ANSWERS_UNENCRYPTED) {
            ": the server there seems to have no TLS; then its address begins with http://"
        } else if !is_encrypted && is(&DROPS_UNENCRYPTED) {
            ": where the server there has TLS, its address begins with https://"
        } else if is_encrypted && (self.tls_ca.is_none() || is(&[UNKNOWN_ROOT])) {
            ": where a server runs there, --tls-ca names the root of its certificate"
        } else if is_here {
            ": `agentloop serve` starts a server, --server names another"
        } else {
            ""
        };
        format!("; asked at {url}{next}")
    }

    /// The option that another command needs to reach the same server, with a space before it. Empty if it needs none,
    /// because it reads the same environment.
    pub(crate) fn server_option(&self) -> String {
        let by_itself =
            environment::variable("AGENTLOOP_SERVER").unwrap_or_else(|| DEFAULT_SERVER.to_owned());
        if self.server == by_itself { String::new() } else { format!(" --server {}", quoted(&self.server)) }
    }

    pub(crate) fn json(&self) -> bool {
        self.as_json || self.output == Output::Json
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_goes_unencrypted_to_no_other_machine() {
        for good in ["https://10.0.0.1:443", "http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1"] {
            assert!(keeps_secret(good), "{good}");
        }
        for bad in ["http://10.0.0.1:1", "http://server:1", "http://localhost.example.org:1", "no url"] {
            assert!(!keeps_secret(bad), "{bad}");
        }
    }
}
