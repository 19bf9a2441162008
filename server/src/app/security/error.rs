//! The errors that keep certificates, tokens and keys from being used, and their report.

use std::io;
use std::path::PathBuf;

use crate::auth::jwt::BadKeySet;
use crate::auth::tokens::TokenFileError;
use crate::grpc::edge::audit::AuditLog;
use crate::grpc::edge::tls::BadTlsFiles;

/// The reason why certificates, tokens or keys of tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SecurityError {
    /// A file that a key names cannot be read.
    #[error("{key}: cannot read {}: {cause}", path.display())]
    Read {
        /// The key of the configuration.
        key: &'static str,
        /// The file that cannot be read.
        path: PathBuf,
        /// The operating system's error.
        cause: io::Error,
    },
    /// The files of `[tls]` make no acceptor.
    #[error("tls.{0}")]
    Tls(BadTlsFiles),
    /// The files of `[cluster]` make no acceptor.
    #[error("cluster.tls_cert, tls_key, tls_ca: {0}")]
    ClusterTls(BadTlsFiles),
    /// The file of tokens.
    #[error("auth.tokens: {0}")]
    Tokens(TokenFileError),
    /// The keys of JSON Web Tokens cannot be used.
    #[error("auth.jwt.jwks: {0}: {1}")]
    Keys(String, BadKeySet),
    /// The keys of JSON Web Tokens cannot be fetched.
    #[error("auth.jwt.jwks: cannot fetch {0}: {1}")]
    FetchKeys(String, String),
}

// Their texts are part of these errors already, so neither is a source.
impl From<BadTlsFiles> for SecurityError {
    fn from(problem: BadTlsFiles) -> Self {
        Self::Tls(problem)
    }
}

impl From<TokenFileError> for SecurityError {
    fn from(problem: TokenFileError) -> Self {
        Self::Tokens(problem)
    }
}

/// Has the audit log written that something was read again, or cannot be used. `reported` is the problem that was written last.
pub(super) fn note(
    audit: Option<&AuditLog>,
    what: &str,
    done: &Result<bool, SecurityError>,
    reported: Option<&str>,
) {
    let Some(audit) = audit else { return };
    match done {
        Ok(true) => audit.record_server_act(what, None),
        Ok(false) => {}
        Err(error) => {
            let problem = error.to_string();
            if reported != Some(problem.as_str()) {
                audit.record_server_act(what, Some(problem));
            }
        }
    }
}

/// Reports that something was read again, or that it cannot be; each problem once.
pub(super) fn report(what: &str, done: Result<bool, SecurityError>, reported: &mut Option<String>) {
    match done {
        Ok(true) => {
            *reported = None;
            tracing::info!("read {what} again, after a change");
        }
        Ok(false) => {
            if reported.take().is_some() {
                tracing::info!("{what} can be read again, and did not change");
            }
        }
        Err(error) => {
            let text = error.to_string();
            if reported.as_ref() != Some(&text) {
                tracing::warn!(%error, "cannot read {what} again; what was read before stays in use");
                *reported = Some(text);
            }
        }
    }
}
