//! A server with TLS and tokens, and what its clients need for it.

use std::path::{Path, PathBuf};

use agentloop_client::host::ToolHostBuilder;
use agentloop_client::{Client, ClientBuilder};
use tokio::process::Command;

use crate::Failure;

/// The sections of the configuration.
pub(crate) const SECTIONS: &str = "[tls]\ncertificate = \"certs/server.pem\"\nkey = \"certs/server.key\"\n\
                                   [auth]\ntokens = \"tokens.toml\"\n";
/// The name in the certificate.
const NAME: &str = "localhost";

/// Credentials of a client: the root of the server's certificate, and a token.
#[derive(Debug, Clone)]
pub(crate) struct Credentials {
    pub(crate) ca: PathBuf,
    pub(crate) token: String,
}

/// Credentials of callers and of tool hosts.
#[derive(Debug, Clone)]
pub(crate) struct Protection {
    pub(crate) caller: Credentials,
    pub(crate) host: Credentials,
}

impl Protection {
    /// Makes certificates and tokens in a folder, by the command itself.
    pub(crate) async fn make(program: &Path, dir: &Path) -> Result<Self, Failure> {
        command(program, dir, &["cert", "dev", "--dir", "certs"]).await?;
        let ca = dir.join("certs/ca.pem");
        let token = async |role: &str| {
            let args = ["token", "new", "--file", "tokens.toml", "--name", role, "--role", role];
            let token = command(program, dir, &args).await?;
            Ok::<_, Failure>(Credentials { ca: ca.clone(), token })
        };
        Ok(Self { caller: token("operator").await?, host: token("host").await? })
    }
}

impl Credentials {
    /// A client with them.
    pub(crate) fn client(&self, url: &str) -> Result<ClientBuilder, Failure> {
        let ca = std::fs::read_to_string(&self.ca)?;
        Ok(Client::builder(url).tls_ca(ca).tls_server_name(NAME).token(&self.token))
    }

    /// A tool host with them.
    pub(crate) fn host(&self, builder: ToolHostBuilder) -> Result<ToolHostBuilder, Failure> {
        let ca = std::fs::read_to_string(&self.ca)?;
        Ok(builder.tls_ca(ca).tls_server_name(NAME).token(&self.token))
    }
}

/// Runs the command, and returns what it says.
async fn command(program: &Path, dir: &Path, args: &[&str]) -> Result<String, Failure> {
    let output = Command::new(program).args(args).current_dir(dir).output().await?;
    if !output.status.success() {
        return Err(format!("{args:?}: {}", String::from_utf8_lossy(&output.stderr)).into());
    }
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}
