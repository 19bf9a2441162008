//! Names of contents that are too large for a message.

use serde::{Deserialize, Serialize};

use crate::text::hex;

/// Text before the digits of a digest on the wire.
const PREFIX: &str = "sha256:";
/// Hexadecimal digits of a digest.
const DIGITS: usize = 64;

/// The name of a blob: the SHA-256 of its bytes. Written as `sha256:` and 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct BlobDigest(String);

/// The text is not the digest of a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("must be `sha256:` and 64 lower-case hexadecimal digits")]
pub struct BadBlobDigest;

impl BlobDigest {
    /// Parses a digest as it is written on the wire.
    ///
    /// # Errors
    /// [`BadBlobDigest`].
    pub fn parse(text: impl Into<String>) -> Result<Self, BadBlobDigest> {
        let text = text.into();
        let digits = text.strip_prefix(PREFIX).ok_or(BadBlobDigest)?;
        let is_hex = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() == DIGITS && is_hex { Ok(Self(text)) } else { Err(BadBlobDigest) }
    }

    /// The digest of which these are the bytes.
    #[must_use]
    pub fn of_hash(hash: [u8; 32]) -> Self {
        Self(format!("{PREFIX}{}", hex::encode(&hash)))
    }

    /// The digest as it is written on the wire.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The digits alone, for names of files.
    #[must_use]
    pub fn digits(&self) -> &str {
        &self.0[PREFIX.len()..]
    }
}

impl TryFrom<String> for BlobDigest {
    type Error = BadBlobDigest;

    fn try_from(text: String) -> Result<Self, BadBlobDigest> {
        Self::parse(text)
    }
}

impl From<BlobDigest> for String {
    fn from(digest: BlobDigest) -> Self {
        digest.0
    }
}

impl std::fmt::Display for BlobDigest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_digests_in_lower_case_are_parsed() {
        let good = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(BlobDigest::parse(&*good).map(|digest| digest.digits().len()), Ok(64));
        for bad in ["", "sha256:", &good[1..], &good[..70], &good.to_uppercase(), &format!("{good}0")] {
            assert_eq!(BlobDigest::parse(bad), Err(BadBlobDigest), "{bad}");
        }
        let slashes = format!("sha256:../{}", "0".repeat(61));
        assert_eq!(BlobDigest::parse(slashes), Err(BadBlobDigest));
    }

    #[test]
    fn a_hash_is_written_as_it_is_parsed() {
        let digest = BlobDigest::of_hash([0xaf; 32]);
        assert_eq!(BlobDigest::parse(digest.as_str()), Ok(digest.clone()));
        assert_eq!(digest.digits(), "af".repeat(32));
    }
}
