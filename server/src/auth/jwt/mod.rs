//! JSON Web Tokens of an identity provider (RFC 7519): the keys that check them, and the principals that they describe.
//!
//! Nothing in a token says where its key comes from: `jku`, `jwk`, `x5u` and `x5c` are not looked at.

mod claims;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzz;
mod keys;
mod signature;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use agentloop_core::id::TenantId;
use agentloop_core::time::{Millis, Timestamp};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::Header;
use parking_lot::RwLock;
use serde_json::{Map, Value};
use tokio::sync::watch;

pub use self::claims::{ClaimPath, RoleMap};
pub(super) use self::keys::KeyPrint;
pub use self::keys::{BadKeySet, JWKS_BYTES_MAX, KeySet};
pub use self::signature::JwtAlgorithm;
use super::grant::HostGrant;
use super::principal::{Principal, Role};
use super::{Rejection, TOKEN_PREFIX};

/// Longest token that is looked at, in bytes.
const TOKEN_BYTES_MAX: usize = 12 * 1024;

/// The requirements on a token, and the meaning of its claims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JwtRules {
    /// The maker of the tokens: the claim `iss`.
    pub issuer: String,
    /// The service that they are made for: the claim `aud`, or one of its values.
    pub audience: String,
    /// The algorithms that they may be signed with.
    pub algorithms: Vec<JwtAlgorithm>,
    /// The most that the clocks of the issuer and this server may differ.
    pub leeway: Millis,
    /// The claim with the principal's name.
    pub name: ClaimPath,
    /// The claim with its tenant.
    pub tenant: Option<ClaimPath>,
    /// The tenant of a token without that claim. `None` refuses such a token.
    pub default_tenant: Option<TenantId>,
    /// The claim with its roles.
    pub roles: Option<ClaimPath>,
    /// The claim with its groups.
    pub groups: Option<ClaimPath>,
    /// The roles that values of the claim mean.
    pub role_map: RoleMap,
    /// The roles of a token whose claim names none.
    pub default_roles: Vec<Role>,
    /// The grant of tool hosts with such a token.
    pub host: HostGrant,
}

/// Reads the keys of tokens again. Called when a token names a key that is not known.
#[async_trait]
pub trait KeySource: Send + Sync + 'static {
    /// Reads them, unless that was tried a moment ago. Callers at one time share one attempt.
    async fn refresh(&self);
}

/// The keys that tokens are checked with now.
struct CurrentKeys {
    keys: Arc<KeySet>,
    /// The time until which they may be used, if their source cannot be read again.
    good_until: Timestamp,
}

/// Checks tokens. Shared by all requests; the keys can be replaced while it is used.
pub struct JwtCheck {
    rules: JwtRules,
    keys: RwLock<Option<CurrentKeys>>,
    /// Changes when keys were replaced, so that open streams look again.
    pub(super) replaced: Arc<watch::Sender<()>>,
}

impl std::fmt::Debug for JwtCheck {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JwtCheck").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A principal, and the moment at which its token ends.
pub(super) struct Described {
    pub(super) principal: Principal,
    pub(super) expires: Timestamp,
    /// The key that has signed it.
    pub(super) key: KeyPrint,
}

impl JwtCheck {
    /// Without keys, it refuses every token.
    #[must_use]
    pub fn new(rules: JwtRules) -> Self {
        signature::install();
        Self { rules, keys: RwLock::new(None), replaced: Arc::new(watch::Sender::new(())) }
    }

    /// Replaces the keys. They may be used until this time. Streams whose token was signed with another key end; they need
    /// not look again while the keys are the same.
    pub fn replace_keys(&self, keys: Arc<KeySet>, good_until: Timestamp) {
        let current = CurrentKeys { keys: keys.clone(), good_until };
        let before = self.keys.write().replace(current);
        if before.is_none_or(|before| !before.keys.is_same_as(&keys)) {
            self.replaced.send_replace(());
        }
    }

    /// True if the key is still one of the issuer's, as far as its source could be read.
    pub(super) fn has_key(&self, key: &KeyPrint) -> bool {
        let keys = self.keys.read();
        keys.as_ref().is_some_and(|current| current.keys.has(key))
    }

    /// The principal that a token describes.
    ///
    /// # Errors
    /// [`Rejection`]. [`Rejection::UnknownKey`] may be another after the keys were read again.
    pub(super) fn check(&self, token: &str, now: Timestamp) -> Result<Described, Rejection> {
        let (header, signed, signature) = parts(token)?;
        if !self.rules.algorithms.iter().any(|allowed| allowed.0 == header.alg) {
            return Err(Rejection::WrongAlgorithm);
        }
        let keys = self.keys_at(now).ok_or(Rejection::UnknownKey)?;
        let mut fits = false;
        let verified = keys.fitting(header.kid.as_deref(), header.alg).find(|key| {
            fits = true;
            let verified = jsonwebtoken::crypto::verify(signature, signed.as_bytes(), &key.key, header.alg);
            verified.unwrap_or(false)
        });
        let Some(verified) = verified else {
            // Without an id, the key may be one that is not known yet.
            let unknown = !fits || header.kid.is_none();
            return Err(if unknown { Rejection::UnknownKey } else { Rejection::BadSignature });
        };
        let claims = claims_of(signed)?;
        let expires = claims::check(&self.rules, &claims, now)?;
        let principal = claims::principal(&self.rules, &claims)?;
        Ok(Described { principal, expires, key: verified.print })
    }

    fn keys_at(&self, now: Timestamp) -> Option<Arc<KeySet>> {
        let keys = self.keys.read();
        keys.as_ref().filter(|current| now < current.good_until).map(|current| current.keys.clone())
    }
}

/// True for what can only be a JSON Web Token.
pub(super) fn looks_like_one(bearer: &str) -> bool {
    !bearer.starts_with(TOKEN_PREFIX) && bearer.contains('.')
}

/// The header of a token, the part that is signed, and the signature.
fn parts(token: &str) -> Result<(Header, &str, &str), Rejection> {
    if token.len() > TOKEN_BYTES_MAX || token.split('.').count() != 3 {
        return Err(Rejection::MalformedToken);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|_| Rejection::MalformedToken)?;
    // `crit` names extensions that a reader must understand, and this one understands none.
    if header.crit.is_some() {
        return Err(Rejection::MalformedToken);
    }
    let (signed, signature) = token.rsplit_once('.').ok_or(Rejection::MalformedToken)?;
    Ok((header, signed, signature))
}

/// The claims of a token whose signature is right.
fn claims_of(signed: &str) -> Result<Map<String, Value>, Rejection> {
    let (_, payload) = signed.split_once('.').ok_or(Rejection::MalformedToken)?;
    let json = URL_SAFE_NO_PAD.decode(payload).map_err(|_| Rejection::MalformedToken)?;
    match serde_json::from_slice(&json) {
        Ok(Value::Object(claims)) => Ok(claims),
        Ok(_) | Err(_) => Err(Rejection::MalformedToken),
    }
}
