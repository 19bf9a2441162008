//! The signatures of JSON Web Tokens, checked by ring. Only signatures of private keys are known: a token that is signed with
//! a shared secret, or with none, fits no verifier.

use std::fmt;

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind};
use ring::signature as ring_signature;

/// The algorithms by their names in tokens, in the order in which messages list them.
const ALGORITHMS: [(&str, Algorithm); 9] = [
    ("RS256", Algorithm::RS256),
    ("RS384", Algorithm::RS384),
    ("RS512", Algorithm::RS512),
    ("PS256", Algorithm::PS256),
    ("PS384", Algorithm::PS384),
    ("PS512", Algorithm::PS512),
    ("ES256", Algorithm::ES256),
    ("ES384", Algorithm::ES384),
    ("EdDSA", Algorithm::EdDSA),
];

/// An algorithm whose signatures are made with a private key and checked with the public one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct JwtAlgorithm(pub(super) Algorithm);

impl JwtAlgorithm {
    /// Every algorithm that there is.
    #[must_use]
    pub fn all() -> Vec<Self> {
        ALGORITHMS.iter().map(|(_, algorithm)| Self(*algorithm)).collect()
    }

    /// The algorithm of this name.
    ///
    /// # Errors
    /// The problem, for the operator.
    pub fn parse(name: &str) -> Result<Self, String> {
        let found = ALGORITHMS.iter().find(|(known, _)| *known == name);
        found.map(|(_, algorithm)| Self(*algorithm)).ok_or_else(|| {
            let names: Vec<&str> = ALGORITHMS.iter().map(|(name, _)| *name).collect();
            format!(
                "expected {}, whose signatures are made with a private key; found {name:?}",
                names.join(", ")
            )
        })
    }

    /// Its name in tokens.
    #[must_use]
    pub fn name(self) -> &'static str {
        ALGORITHMS.iter().find(|(_, known)| *known == self.0).map_or("", |(name, _)| *name)
    }
}

impl fmt::Debug for JwtAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Makes ring check the signatures. A program that embeds this server may have chosen another library before; it is used
/// then.
pub(super) fn install() {
    static RING: CryptoProvider = CryptoProvider {
        signer_factory: |_, _| Err(Error::from(ErrorKind::UnsupportedAlgorithm)),
        verifier_factory: |algorithm, key| {
            Ok(Box::new(RingVerifier { algorithm: *algorithm, key: key.clone() }))
        },
        key_utils: KeyUtils::new_unimplemented(),
    };
    let _chosen_before = RING.install_default();
}

/// Checks the signatures of one key.
struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        let rsa = match self.algorithm {
            Algorithm::RS256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
            Algorithm::RS384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
            Algorithm::RS512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
            Algorithm::PS256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
            Algorithm::PS384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
            Algorithm::PS512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
            Algorithm::ES256 => {
                return self.plain(&ring_signature::ECDSA_P256_SHA256_FIXED, message, signature);
            }
            Algorithm::ES384 => {
                return self.plain(&ring_signature::ECDSA_P384_SHA384_FIXED, message, signature);
            }
            Algorithm::EdDSA => return self.plain(&ring_signature::ED25519, message, signature),
            // Shared secrets, and what a later version of the library may add.
            _ => return Err(signature::Error::new()),
        };
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                key.verify(rsa, message, signature).map_err(|_| signature::Error::new())
            }
            DecodingKeyKind::SecretOrDer(_) => Err(signature::Error::new()),
        }
    }
}

impl RingVerifier {
    fn plain(
        &self,
        algorithm: &'static dyn ring_signature::VerificationAlgorithm,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), signature::Error> {
        let key = self.key.try_get_as_bytes().map_err(|_| signature::Error::new())?;
        let key = ring_signature::UnparsedPublicKey::new(algorithm, key);
        key.verify(message, signature).map_err(|_| signature::Error::new())
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_signatures_of_private_keys_have_a_name() {
        for algorithm in JwtAlgorithm::all() {
            assert_eq!(JwtAlgorithm::parse(algorithm.name()), Ok(algorithm));
        }
        for name in ["none", "None", "HS256", "HS512", "rs256", "", "ES512"] {
            let refused = JwtAlgorithm::parse(name).unwrap_err();
            assert!(refused.contains("private key") && refused.contains("RS256"), "{refused}");
        }
    }

    #[test]
    fn a_shared_secret_verifies_nothing() {
        for algorithm in [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512] {
            let verifier = RingVerifier { algorithm, key: DecodingKey::from_secret(b"secret") };
            assert!(verifier.verify(b"x", &vec![0; 32]).is_err());
        }
    }
}
