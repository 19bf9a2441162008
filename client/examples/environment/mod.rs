//! The server of the examples and the credentials for it, from the command line and the environment.

use std::{io, net::IpAddr};

use agentloop_client::Error;

/// Certificates and a token, as the environment has them: `AGENTLOOP_CA_FILE`, `AGENTLOOP_CERT_FILE`, `AGENTLOOP_KEY_FILE` and
/// `AGENTLOOP_TOKEN`.
pub(crate) struct Credentials {
    /// The roots that the server's certificate leads to, in PEM.
    pub(crate) ca: Option<String>,
    /// A certificate for the server and its key, in PEM.
    pub(crate) identity: Option<(String, String)>,
    pub(crate) token: Option<String>,
}

/// The value of an option of the command line, such as `--server`, or else of the environment.
pub(crate) fn option(name: &str, variable: &str) -> Option<String> {
    let mut arguments = std::env::args().skip_while(|argument| argument != name).skip(1);
    arguments.next().or_else(|| std::env::var(variable).ok())
}

/// The URL of the server that the command line or the environment names, or else of the one on this machine.
pub(crate) fn server() -> String {
    let server = option("--server", "AGENTLOOP_SERVER").unwrap_or_else(|| "127.0.0.1:50051".to_owned());
    if server.contains("://") { server } else { format!("http://{server}") }
}

/// The credentials for this server.
pub(crate) fn credentials(server: &str) -> Result<Credentials, Error> {
    let ca = file_of("AGENTLOOP_CA_FILE")?;
    let identity = match file_of("AGENTLOOP_CERT_FILE")? {
        Some(certificate) => Some((certificate, file_of("AGENTLOOP_KEY_FILE")?.unwrap_or_default())),
        None => None,
    };
    let token = std::env::var("AGENTLOOP_TOKEN").ok();
    let is_allowed = std::env::var("AGENTLOOP_ALLOW_INSECURE_REMOTE").is_ok_and(|value| value == "true");
    if token.is_some() && !is_allowed && !keeps_secret(server) {
        return Err(Error::Endpoint(format!("the token would travel unencrypted to {server}: use https://")));
    }
    Ok(Credentials { ca, identity, token })
}

/// True if nobody on the way reads along: the URL is `https://`, or of this machine.
fn keeps_secret(url: &str) -> bool {
    let Some(address) = url.strip_prefix("http://") else { return url.starts_with("https://") };
    let host = address.trim_end_matches('/').rsplit_once(':').map_or(address, |(host, _)| host);
    host == "localhost" || host.trim_matches(['[', ']']).parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback())
}

/// The text of the file that the environment names, if it names one.
fn file_of(variable: &str) -> io::Result<Option<String>> {
    std::env::var_os(variable).map(std::fs::read_to_string).transpose()
}
