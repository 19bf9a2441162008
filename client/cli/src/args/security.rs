//! Arguments of `agentloop token` and `agentloop cert`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// Make, list and revoke the tokens of callers
///
/// The file has the name, tenant, roles and digest of each token, and no token itself. A running server reads it again
/// within seconds; SIGHUP makes it do so at once.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  agentloop token new --file tokens.toml --name ada --role caller --role approver --expires 90d
  agentloop token list --file tokens.toml
  agentloop token revoke --file tokens.toml 1f0c2a9b77e1

Roles:
  caller    starts runs, and works with the runs and sessions that it created
  viewer    reads everything of its tenant
  approver  decides approvals and calls in doubt
  host      connects as a tool host
  operator  does everything in its tenant but connect as a tool host")]
pub(crate) struct TokenArgs {
    #[command(subcommand)]
    pub(crate) command: TokenCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a token, print it, and add its digest to the file. It is shown this once
    New(NewTokenArgs),
    /// List the tokens of a file
    List {
        #[command(flatten)]
        file: TokenFile,
    },
    /// Take a token out of the file
    Revoke {
        #[command(flatten)]
        file: TokenFile,
        /// The token's id, as the list shows it
        id: String,
    },
}

/// The file of tokens.
#[derive(Debug, Args)]
pub(crate) struct TokenFile {
    /// The file, as `auth.tokens` of the configuration names it
    #[arg(long, value_name = "FILE", env = "AGENTLOOP_AUTH_TOKENS")]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct NewTokenArgs {
    #[command(flatten)]
    pub(crate) file: TokenFile,
    /// Name of the person, service or host that it is for
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// The tenant: callers of one tenant see nothing of another
    #[arg(long, value_name = "TENANT", default_value = "local")]
    pub(crate) tenant: String,
    /// A role: caller, viewer, approver, host or operator; may be repeated
    #[arg(long = "role", value_name = "ROLE", required = true)]
    pub(crate) roles: Vec<String>,
    /// A group that the caller is in, which rules about approvals name; may be repeated
    #[arg(long = "group", value_name = "GROUP")]
    pub(crate) groups: Vec<String>,
    /// Pattern of the tools that its hosts may offer, such as 'git_*'; may be repeated. Default: any
    #[arg(long = "host-tool", value_name = "PATTERN")]
    pub(crate) host_tools: Vec<String>,
    /// The weakest effect class that its hosts may claim: read_only, idempotent, keyed or unsafe. Default: any
    #[arg(long, value_name = "CLASS")]
    pub(crate) host_effect: Option<String>,
    /// Kinds that its hosts may offer beside plain tools: planner, hook, context_source or runtime; may be repeated.
    /// Default: plain tools alone
    #[arg(long = "host-extension", value_name = "KIND")]
    pub(crate) host_extensions: Vec<String>,
    /// Time for which it is valid, such as 12h or 90d. Default: for ever
    #[arg(long, value_name = "TIME", value_parser = validity)]
    pub(crate) expires: Option<std::time::Duration>,
}

/// Time for which a token is valid: a second to a hundred years.
fn validity(text: &str) -> Result<std::time::Duration, String> {
    const YEARS_100: std::time::Duration = std::time::Duration::from_secs(100 * 365 * 24 * 60 * 60);
    let length = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if length.as_secs() == 0 || length > YEARS_100 {
        return Err("must be 1s to 36500d; leave it out for a token without an end".to_owned());
    }
    Ok(length)
}

/// Make certificates for development
#[derive(Debug, Args)]
pub(crate) struct CertArgs {
    #[command(subcommand)]
    pub(crate) command: CertCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertCommand {
    /// Make a certificate authority, a certificate for the server, and one for each client
    ///
    /// The files are for development: they are valid for a year, and whoever has ca.key can make more.
    #[command(after_help = "\
Example:
  agentloop cert dev --dir certs --client ada
  agentloop serve --config agentloop.toml        with [tls] certificate = \"certs/server.pem\", key = \"certs/server.key\"
  agentloop runs --server https://localhost:50051 --tls-ca certs/ca.pem")]
    Dev {
        /// The folder for the files. Files that are there are not replaced, but for an authority that is used again
        #[arg(long, value_name = "DIR", default_value = "certs")]
        dir: PathBuf,
        /// A name or address of the server; may be repeated
        #[arg(long = "host", value_name = "NAME", default_values = ["localhost", "127.0.0.1", "::1"])]
        hosts: Vec<String>,
        /// A client, which gets a certificate with this common name; may be repeated
        #[arg(long = "client", value_name = "NAME")]
        clients: Vec<String>,
    },
}
