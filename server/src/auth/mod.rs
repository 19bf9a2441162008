//! Callers: principals, the credentials that prove them, and the roles that say what they may do.
//!
//! This module knows nothing of gRPC. `grpc/edge/identity.rs` takes the credentials out of a request, and
//! `grpc/rpc.rs` has the table of RPCs and roles.

mod bad_principal;
pub mod certificate;
mod der;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzz;
mod grant;
mod identity;
pub mod jwt;
mod name;
mod principal;
mod private_file;
mod quota;
mod reserved_name;
pub mod tokens;

use std::sync::Arc;

use agentloop_core::time::Timestamp;
use parking_lot::RwLock;
use tokio::sync::watch;

pub use self::bad_principal::BadPrincipal;
pub use self::certificate::{CertificateFacts, SubjectPattern};
pub use self::grant::{GrantedKind, HostGrant};
pub use self::identity::Identity;
use self::identity::Proof;
use self::jwt::JwtCheck;
pub use self::name::approver_problem;
pub use self::principal::{Principal, Role};
pub use self::quota::{
    Holder, Quota, QuotaBound, QuotaExceeded, QuotaLimits, QuotaScope, QuotaUse, Quotas, UsePermit,
};
pub use self::reserved_name::ReservedName;
use self::tokens::TokenTable;

/// The beginning of every token.
const TOKEN_PREFIX: &str = "agt_";

/// The demand that callers of the gRPC port present credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authentication {
    /// Without credentials no RPC is done.
    Required,
    /// No caller says who it is, and everybody may do everything.
    NotRequired,
}

impl Authentication {
    /// Callers must say who they are if there is something that tells.
    #[must_use]
    pub fn by<T>(configured: Option<&T>) -> Self {
        if configured.is_some() { Self::Required } else { Self::NotRequired }
    }

    /// True if callers must present credentials.
    #[must_use]
    pub fn is_required(self) -> bool {
        self == Self::Required
    }
}

/// The demand that clients of the gRPC port present certificates.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ClientAuth {
    /// No certificate is requested.
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
    /// The principal that holds it.
    pub principal: Arc<Principal>,
}

/// The credentials of one request. A bearer token decides if there is one, else the certificate of the connection.
#[derive(Debug, Clone, Copy, Default)]
pub struct Credentials<'a> {
    /// The text after `Bearer ` in the metadata `authorization`.
    pub bearer: Option<&'a str>,
    /// The verified certificate of the client.
    pub certificate: Option<&'a CertificateFacts>,
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
    /// The certificate was valid until a time that has passed. The connection was made before.
    #[error("expired certificate")]
    ExpiredCertificate,
    /// The configuration names no principal for the certificate.
    #[error("no principal for this certificate")]
    UnknownCertificate,
    /// It is no JSON Web Token, or one that this server does not understand.
    #[error("not a token that is understood")]
    MalformedToken,
    /// The token is signed by an algorithm that is not allowed.
    #[error("the token's algorithm is not in auth.jwt.algorithms")]
    WrongAlgorithm,
    /// No known key could have signed the token.
    #[error("the token is signed with a key that is not among those of auth.jwt.jwks")]
    UnknownKey,
    /// The token's signature is wrong.
    #[error("the token's signature is wrong")]
    BadSignature,
    /// Another issuer made the token.
    #[error("the token's iss is not auth.jwt.issuer")]
    WrongIssuer,
    /// The token is for another service.
    #[error("the token's aud has no auth.jwt.audience")]
    WrongAudience,
    /// The token becomes valid later.
    #[error("the token is not valid yet")]
    NotYetValid,
    /// A claim is missing, or not what it must be.
    #[error("the token's exp, nbf, name or tenant is missing or cannot be used")]
    BadClaims,
    /// The principal's name is empty, too long, or one that people may take for another.
    #[error(
        "the token's name is empty, too long, or has characters by which it may be taken for another name"
    )]
    BadName,
}

impl Rejection {
    /// Its name in metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::UnknownToken => "unknown_token",
            Self::ExpiredToken => "expired_token",
            Self::ExpiredCertificate => "expired_certificate",
            Self::UnknownCertificate => "unknown_certificate",
            Self::MalformedToken => "malformed_token",
            Self::WrongAlgorithm => "wrong_algorithm",
            Self::UnknownKey => "unknown_key",
            Self::BadSignature => "bad_signature",
            Self::WrongIssuer => "wrong_issuer",
            Self::WrongAudience => "wrong_audience",
            Self::NotYetValid => "not_yet_valid",
            Self::BadClaims => "bad_claims",
            Self::BadName => "bad_name",
        }
    }
}

/// Tells who presents which credentials. Shared by all requests; the tokens can be replaced while it is used.
#[derive(Debug)]
pub struct Authenticator {
    tokens: RwLock<Arc<TokenTable>>,
    certificates: Vec<CertificateRule>,
    jwt: Option<Arc<JwtCheck>>,
    /// Changes when tokens or keys were replaced, so that open streams look again.
    replaced: Arc<watch::Sender<()>>,
}

impl Authenticator {
    /// `certificates` are tried in this order.
    #[must_use]
    pub fn new(tokens: TokenTable, certificates: Vec<CertificateRule>, jwt: Option<Arc<JwtCheck>>) -> Self {
        let replaced = jwt.as_ref().map(|jwt| jwt.replaced.clone());
        let replaced = replaced.unwrap_or_else(|| Arc::new(watch::Sender::new(())));
        Self { tokens: RwLock::new(Arc::new(tokens)), certificates, jwt, replaced }
    }

    /// Replaces the tokens. Streams whose token is not among them any more end.
    pub fn replace_tokens(&self, tokens: TokenTable) {
        *self.tokens.write() = Arc::new(tokens);
        self.replaced.send_replace(());
    }

    /// Notified when [`Self::is_current`] may have another value than before.
    pub fn changes(&self) -> watch::Receiver<()> {
        self.replaced.subscribe()
    }

    /// The identity that the credentials prove.
    ///
    /// # Errors
    /// [`Rejection`]. A wrong token is refused even beside a right certificate.
    pub fn authenticate(&self, credentials: Credentials<'_>, now: Timestamp) -> Result<Identity, Rejection> {
        if let Some(bearer) = credentials.bearer {
            if let Some(jwt) = self.jwt.as_ref().filter(|_| jwt::looks_like_one(bearer)) {
                let described = jwt.check(bearer, now)?;
                let (principal, expires) = (Arc::new(described.principal), Some(described.expires));
                return Ok(Identity { principal, expires, proof: Proof::Jwt(described.key) });
            }
            return self.tokens().identity(bearer, now);
        }
        let certificate = credentials.certificate.ok_or(Rejection::Missing)?;
        let rule = self.certificates.iter().find(|rule| rule.subject.matches(&certificate.names));
        let principal = rule.map(|rule| rule.principal.clone()).ok_or(Rejection::UnknownCertificate)?;
        let expires = certificate.expires();
        if now >= expires {
            return Err(Rejection::ExpiredCertificate);
        }
        Ok(Identity { principal, expires: Some(expires), proof: Proof::Certificate })
    }

    /// The public id and the principal of a token that is known but may have expired, for the audit log.
    #[must_use]
    pub fn holder(&self, token: &str) -> Option<(String, Arc<Principal>)> {
        self.tokens().holder(token)
    }

    /// True if the credential that proved this identity still would.
    #[must_use]
    pub fn is_current(&self, identity: &Identity, now: Timestamp) -> bool {
        let is_known = match &identity.proof {
            Proof::Token { id, sha256 } => self.tokens().proves(id, sha256, &identity.principal),
            Proof::Jwt(key) => self.jwt.as_ref().is_some_and(|jwt| jwt.has_key(key)),
            Proof::Certificate => true,
        };
        is_known && identity.expires.is_none_or(|expires| now < expires)
    }

    fn tokens(&self) -> Arc<TokenTable> {
        self.tokens.read().clone()
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
        let all = Authenticator::new(of(record), Vec::new(), None);
        let ask = |bearer: &str, now: Timestamp| {
            let credentials = Credentials { bearer: Some(bearer), certificate: None };
            all.authenticate(credentials, now).map(|identity| identity.principal.name.clone())
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
        let credentials = Credentials { bearer: Some(token.expose()), certificate: None };
        let identity = all.authenticate(credentials, NOW).expect("it is right");
        let changes = all.changes();
        assert!(all.is_current(&identity, Timestamp(NOW.0 + 9_999)));
        assert!(!all.is_current(&identity, Timestamp(NOW.0 + 10_000)));
        all.replace_tokens(TokenTable::default());
        assert!(changes.has_changed().expect("it is there") && !all.is_current(&identity, NOW));
        assert_eq!(ask(token.expose(), NOW), Err(Rejection::UnknownToken));
    }

    #[test]
    fn the_first_rule_that_matches_a_certificate_decides() {
        let rules = vec![rule("CN=ada", "ada"), rule("URI=spiffe://prod/*", "prod"), rule("CN=a*", "other")];
        let all = Authenticator::new(TokenTable::default(), rules, None);
        let ask = |names: &[&str], bearer: Option<&str>| {
            let names = names.iter().map(|&name| name.to_owned()).collect();
            let certificate = CertificateFacts { names, not_after: 2_000 };
            let credentials = Credentials { bearer, certificate: Some(&certificate) };
            all.authenticate(credentials, NOW).map(|identity| identity.principal.name.clone())
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

    #[test]
    fn a_certificate_proves_its_principal_until_it_ends_also_on_an_open_connection() {
        let all = Authenticator::new(TokenTable::default(), vec![rule("CN=ada", "ada")], None);
        // Its last valid second is the 1,001st.
        let certificate = CertificateFacts { names: vec!["CN=ada".to_owned()], not_after: 1_001 };
        let credentials = Credentials { bearer: None, certificate: Some(&certificate) };
        let identity = all.authenticate(credentials, NOW).expect("it is valid");
        assert!(all.is_current(&identity, Timestamp(NOW.0 + 1_999)));
        assert!(!all.is_current(&identity, Timestamp(NOW.0 + 2_000)));
        let ended = all.authenticate(credentials, Timestamp(NOW.0 + 2_000));
        assert_eq!(ended.expect_err("it has ended"), Rejection::ExpiredCertificate);
    }
}
