//! Who is calling: principals, the credentials that prove them, and the roles that say what they may do.
//!
//! This module knows nothing of gRPC. `grpc/edge/identity.rs` takes the credentials out of a request, and
//! `grpc/access.rs` has the table of RPCs and roles.

pub mod certificate;
mod der;
mod grant;
mod principal;
mod quota;
pub mod tokens;

use std::sync::{Arc, PoisonError, RwLock};

use agentloop_core::time::Timestamp;

pub use self::certificate::SubjectPattern;
pub use self::grant::{GrantedKind, HostGrant};
pub use self::principal::{BadPrincipal, Principal, Role};
pub use self::quota::{QuotaExceeded, QuotaLimits, Quotas};
use self::tokens::TokenTable;

/// Whether clients of the gRPC port present certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is asked for.
    #[default]
    None,
    /// A certificate is verified if there is one.
    Optional,
    /// Without a certificate there is no connection.
    Required,
}

/// A principal for each client certificate whose subject matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateRule {
    /// The names that a certificate must have one of.
    pub subject: SubjectPattern,
    /// Who its holder is.
    pub principal: Arc<Principal>,
}

/// The credentials of one request. A bearer token decides if there is one, else the certificate of the connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The text after `Bearer ` in the metadata `authorization`.
    pub bearer: Option<&'a str>,
    /// The verified names of the client's certificate, such as `CN=ada`.
    pub certificate: Option<&'a [String]>,
}

/// The cause of a refusal. It goes to the log and never to the caller: every refused caller gets the same message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// The request has no credentials.
    #[error("no credentials")]
    Missing,
    /// No such token exists, or its secret part is wrong.
    #[error("unknown token")]
    UnknownToken,
    /// The token was valid until a time that has passed.
    #[error("expired token")]
    ExpiredToken,
    /// The configuration names no principal for the certificate.
    #[error("no principal for this certificate")]
    UnknownCertificate,
}

impl Rejection {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::UnknownToken => "unknown_token",
            Self::ExpiredToken => "expired_token",
            Self::UnknownCertificate => "unknown_certificate",
        }
    }
}

/// Tells who presents which credentials. Shared by all requests; the tokens can be replaced while it is used.
#[derive(Debug)]
pub struct Authenticator {
    tokens: RwLock<Arc<TokenTable>>,
    certificates: Vec<CertificateRule>,
}

impl Authenticator {
    /// `certificates` are tried in this order.
    #[must_use]
    pub fn new(tokens: TokenTable, certificates: Vec<CertificateRule>) -> Self {
        Self { tokens: RwLock::new(Arc::new(tokens)), certificates }
    }

    /// Replaces the tokens. Calls under way keep their principal.
    pub fn replace_tokens(&self, tokens: TokenTable) {
        *self.tokens.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(tokens);
    }

    /// The principal that the credentials prove.
    ///
    /// # Errors
    /// [`Rejection`]. A wrong token is refused even beside a right certificate.
    pub fn authenticate(
        &self,
        credentials: Credentials<'_>,
        now: Timestamp,
    ) -> Result<Arc<Principal>, Rejection> {
        if let Some(bearer) = credentials.bearer {
            let tokens = self.tokens.read().unwrap_or_else(PoisonError::into_inner).clone();
            return tokens.find(bearer, now);
        }
        let names = credentials.certificate.ok_or(Rejection::Missing)?;
        let rule = self.certificates.iter().find(|rule| rule.subject.matches(names));
        rule.map(|rule| rule.principal.clone()).ok_or(Rejection::UnknownCertificate)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use agentloop_core::id::TenantId;

    use super::tokens::{TokenRecord, new_token};
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn principal(name: &str) -> Principal {
        Principal {
            name: name.to_owned(),
            tenant: TenantId::local(),
            roles: vec![Role::Caller],
            groups: Vec::new(),
            host: HostGrant::default(),
        }
    }

    fn of(record: TokenRecord) -> TokenTable {
        TokenTable::new(vec![record]).expect("one token is right")
    }

    fn rule(pattern: &str, name: &str) -> CertificateRule {
        let subject = SubjectPattern::parse(pattern).expect("a pattern");
        CertificateRule { subject, principal: Arc::new(principal(name)) }
    }

    #[test]
    fn a_token_proves_its_principal_until_it_expires_or_is_replaced() {
        let (token, record) = new_token(&principal("ada"), NOW, Some(Duration::from_secs(10)));
        let all = Authenticator::new(of(record), Vec::new());
        let ask = |bearer: &str, now: Timestamp| {
            let credentials = Credentials { bearer: Some(bearer), certificate: None };
            all.authenticate(credentials, now).map(|principal| principal.name.clone())
        };
        assert_eq!(ask(token.expose(), NOW), Ok("ada".to_owned()));
        assert_eq!(ask(token.expose(), Timestamp(NOW.0 + 9_999)), Ok("ada".to_owned()));
        assert_eq!(ask(token.expose(), Timestamp(NOW.0 + 10_000)), Err(Rejection::ExpiredToken));
        let mut wrong = token.expose().to_owned();
        let last = wrong.pop().expect("it is long");
        wrong.push(if last == 'a' { 'b' } else { 'a' });
        let (id, _secret) = token.expose().rsplit_once('_').expect("it has a secret");
        for bad in ["", "x", &wrong, id, &token.expose()[1..], &format!("{} ", token.expose())] {
            assert_eq!(ask(bad, NOW), Err(Rejection::UnknownToken), "{bad}");
        }
        all.replace_tokens(TokenTable::default());
        assert_eq!(ask(token.expose(), NOW), Err(Rejection::UnknownToken));
    }

    #[test]
    fn the_first_rule_that_matches_a_certificate_decides() {
        let rules = vec![rule("CN=ada", "ada"), rule("URI=spiffe://prod/*", "prod"), rule("CN=a*", "other")];
        let all = Authenticator::new(TokenTable::default(), rules);
        let ask = |names: &[&str], bearer: Option<&str>| {
            let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
            let credentials = Credentials { bearer, certificate: Some(&names) };
            all.authenticate(credentials, NOW).map(|principal| principal.name.clone())
        };
        assert_eq!(ask(&["CN=ada"], None), Ok("ada".to_owned()));
        assert_eq!(ask(&["CN=ann"], None), Ok("other".to_owned()));
        assert_eq!(ask(&["CN=x", "URI=spiffe://prod/eu/1"], None), Ok("prod".to_owned()));
        assert_eq!(ask(&["CN=bob", "DNS=ada"], None), Err(Rejection::UnknownCertificate));
        assert_eq!(ask(&[], None), Err(Rejection::UnknownCertificate));
        assert_eq!(ask(&["CN=ada"], Some("wrong")), Err(Rejection::UnknownToken));
        let nothing = Credentials::default();
        assert_eq!(all.authenticate(nothing, NOW).expect_err("nothing"), Rejection::Missing);
    }
}
