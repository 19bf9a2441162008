//! The public keys of an identity provider: a JSON Web Key Set (RFC 7517).

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, KeyOperations, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// Largest set of keys that is read, in bytes.
pub const JWKS_BYTES_MAX: usize = 1024 * 1024;
/// Most keys that are tried for one token.
const KEYS_TRIED_MAX: usize = 4;
/// Most keys of one set.
const KEYS_MAX: usize = 64;

/// The reason why a set of keys cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct BadKeySet(String);

/// Public keys that check signatures.
#[derive(Debug, Clone, Default)]
pub struct KeySet(Vec<PublicKey>);

#[derive(Debug, Clone)]
pub(super) struct PublicKey {
    id: Option<String>,
    /// Tells it from every other key, whatever a set says of it beside.
    pub(super) print: KeyPrint,
    /// The algorithms whose signatures it can check.
    algorithms: Vec<Algorithm>,
    pub(super) key: DecodingKey,
}

/// SHA-256 of the parts of a public key.
pub(in crate::auth) type KeyPrint = [u8; 32];

/// The parts of a JSON Web Key that make it the key that it is.
const PARTS: [&str; 6] = ["kty", "crv", "x", "y", "n", "e"];

fn print(jwk: &Value) -> KeyPrint {
    let mut sum = Sha256::new();
    for part in PARTS {
        let text = jwk.get(part).and_then(Value::as_str).unwrap_or_default();
        sum.update((text.len() as u64).to_le_bytes());
        sum.update(text);
    }
    sum.finalize().into()
}

#[derive(Deserialize)]
struct Set {
    keys: Vec<Value>,
}

impl KeySet {
    /// Reads a set of keys. Keys for other uses, and of kinds that are not known, are left out.
    ///
    /// # Errors
    /// [`BadKeySet`]: it is no set of keys, or has too many.
    pub fn read(json: &[u8]) -> Result<Self, BadKeySet> {
        if json.len() > JWKS_BYTES_MAX {
            return Err(BadKeySet(format!("it is longer than {JWKS_BYTES_MAX} bytes")));
        }
        let set: Set = serde_json::from_slice(json)
            .map_err(|error| BadKeySet(format!("it is no set of keys: {error}")))?;
        if set.keys.len() > KEYS_MAX {
            return Err(BadKeySet(format!("it has {} keys; at most {KEYS_MAX} are read", set.keys.len())));
        }
        Ok(Self(set.keys.into_iter().filter_map(key).collect()))
    }

    /// The same, refused if no key checks a signature: nobody has taken back the last one.
    ///
    /// # Errors
    /// [`BadKeySet`].
    pub fn read_some(json: &[u8]) -> Result<Self, BadKeySet> {
        let set = Self::read(json)?;
        if set.is_empty() {
            return Err(BadKeySet("it has no public key that checks signatures".to_owned()));
        }
        Ok(set)
    }

    /// True if no token can be checked.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// True if this key is one of them.
    pub(super) fn has(&self, print: &KeyPrint) -> bool {
        self.0.iter().any(|key| key.print == *print)
    }

    /// True if the other set has the same keys in the same order.
    pub(super) fn is_same_as(&self, other: &Self) -> bool {
        let prints = |set: &Self| set.0.iter().map(|key| key.print).collect::<Vec<_>>();
        prints(self) == prints(other)
    }

    /// The first few keys that a token of this key id and algorithm may be signed with. More are not tried: each takes time,
    /// and the sender of the token is not known yet.
    pub(super) fn fitting<'a>(
        &'a self,
        id: Option<&'a str>,
        algorithm: Algorithm,
    ) -> impl Iterator<Item = &'a PublicKey> {
        let fits = move |key: &&PublicKey| {
            key.algorithms.contains(&algorithm) && id.is_none_or(|id| key.id.as_deref() == Some(id))
        };
        self.0.iter().filter(fits).take(KEYS_TRIED_MAX)
    }
}

/// Reads a key of a set; `None` if it checks no signature that is known here.
fn key(value: Value) -> Option<PublicKey> {
    let print = print(&value);
    let jwk: Jwk = serde_json::from_value(value).ok()?;
    let mut algorithms = match &jwk.algorithm {
        AlgorithmParameters::RSA(_) => vec![
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P256 => vec![Algorithm::ES256],
        AlgorithmParameters::EllipticCurve(key) if key.curve == EllipticCurve::P384 => vec![Algorithm::ES384],
        AlgorithmParameters::OctetKeyPair(key) if key.curve == EllipticCurve::Ed25519 => {
            vec![Algorithm::EdDSA]
        }
        // Other curves and kinds. A shared secret above all must never check a signature: whoever reads the set could make
        // tokens.
        _ => return None,
    };
    let common = &jwk.common;
    if common.public_key_use.as_ref().is_some_and(|usage| *usage != PublicKeyUse::Signature) {
        return None;
    }
    if common.key_operations.as_ref().is_some_and(|all| !all.contains(&KeyOperations::Verify)) {
        return None;
    }
    if let Some(named) = common.key_algorithm {
        let named = named.to_string().parse::<Algorithm>().ok()?;
        algorithms.retain(|algorithm| *algorithm == named);
    }
    let key = DecodingKey::from_jwk(&jwk).ok()?;
    (!algorithms.is_empty()).then(|| PublicKey { id: jwk.common.key_id, print, algorithms, key })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The key of RFC 7515, appendix A.3.
    fn elliptic(more: &Value) -> Value {
        let mut key = json!({
            "kty": "EC", "crv": "P-256", "kid": "1",
            "x": "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",
            "y": "x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0",
        });
        for (name, value) in more.as_object().unwrap() {
            key[name] = value.clone();
        }
        key
    }

    fn read(keys: &[Value]) -> Result<KeySet, String> {
        KeySet::read(json!({ "keys": keys }).to_string().as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn a_key_fits_its_id_and_its_algorithm() {
        let set = read(&[elliptic(&json!({}))]).unwrap();
        let count = |id: Option<&str>, algorithm| set.fitting(id, algorithm).count();
        assert_eq!((count(None, Algorithm::ES256), count(Some("1"), Algorithm::ES256)), (1, 1));
        assert_eq!(count(Some("2"), Algorithm::ES256), 0);
        for other in [Algorithm::ES384, Algorithm::RS256, Algorithm::HS256, Algorithm::EdDSA] {
            assert_eq!(count(None, other), 0, "{other:?}");
        }
    }

    #[test]
    fn few_of_many_keys_are_tried() {
        let set = read(&vec![elliptic(&json!({})); KEYS_MAX]).unwrap();
        assert_eq!(set.fitting(None, Algorithm::ES256).count(), KEYS_TRIED_MAX);
    }

    #[test]
    fn a_key_is_the_same_whatever_is_said_of_it() {
        let set = read(&[elliptic(&json!({}))]).unwrap();
        let said = read(&[elliptic(&json!({ "kid": "2", "alg": "ES256" }))]).unwrap();
        assert!(set.has(&said.0[0].print) && !KeySet::default().has(&said.0[0].print));
    }

    #[test]
    fn keys_for_something_else_are_left_out() {
        let good = elliptic(&json!({ "use": "sig", "alg": "ES256", "key_ops": ["verify"] }));
        for other in [
            elliptic(&json!({ "use": "enc" })),
            elliptic(&json!({ "key_ops": ["encrypt"] })),
            elliptic(&json!({ "alg": "ES384" })),
            elliptic(&json!({ "alg": "RSA-OAEP" })),
            elliptic(&json!({ "crv": "P-521" })),
            elliptic(&json!({ "x": "%" })),
            json!({ "kty": "oct", "k": "c2VjcmV0", "alg": "HS256" }),
            json!({ "kty": "AKP", "alg": "ML-DSA-44", "pub": "x" }),
            json!(7),
        ] {
            assert_eq!(read(&[good.clone(), other.clone()]).unwrap().0.len(), 1, "{other}");
            assert!(read(std::slice::from_ref(&other)).unwrap().is_empty(), "{other}");
            let alone = json!({ "keys": [other] }).to_string();
            let refused = KeySet::read_some(alone.as_bytes()).unwrap_err().to_string();
            assert!(refused.contains("no public key"), "{refused}");
        }
    }

    #[test]
    fn a_set_has_bounds() {
        assert!(read(&vec![elliptic(&json!({})); KEYS_MAX + 1]).unwrap_err().contains("at most 64"));
        assert!(KeySet::read(&vec![b' '; JWKS_BYTES_MAX + 1]).is_err());
        let deep = format!("{{\"keys\":[{}]}}", "[".repeat(100_000));
        for text in ["", "[]", "{}", "{\"keys\":{}}", &deep] {
            let refused = KeySet::read(text.as_bytes()).unwrap_err().to_string();
            assert!(refused.contains("no set of keys"), "{refused}");
        }
    }
}
