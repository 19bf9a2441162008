//! What a tool declares of itself.

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::RuntimeId;
use crate::time::Millis;

/// What it means to run a call of this tool twice. Decides what happens when a host is lost with a call in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// Changes nothing; run it as often as you like.
    ReadOnly,
    /// Twice is the same as once.
    Idempotent,
    /// The host sees to it that one idempotency key takes effect once.
    Keyed,
    /// Twice is wrong. Never run again without a human's word.
    #[default]
    Unsafe,
}

impl EffectClass {
    /// Whether a call that may have run can be given to another host.
    #[must_use]
    pub fn repeatable(self) -> bool {
        match self {
            Self::ReadOnly | Self::Idempotent | Self::Keyed => true,
            Self::Unsafe => false,
        }
    }
}

/// A tool as its host declares it. Hosts that serve the same tool must declare the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDeclaration {
    /// `[A-Za-z0-9_-]`, at most 64 bytes.
    pub name: String,
    /// What the model reads to decide when to call it.
    pub description: String,
    /// JSON schema of the arguments, an object; JSON text.
    pub input_schema: String,
    /// What running twice means.
    #[serde(default)]
    pub effect: EffectClass,
    /// Whether a human must approve each call.
    #[serde(default)]
    pub requires_approval: bool,
    /// Whether calls need a runtime that was opened for the run.
    #[serde(default)]
    pub requires_runtime: bool,
    /// From the offer of each try to its result; absent means the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// Calls of this tool in flight on one host; absent means as many as the host's credit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// Whether it sends output while it runs.
    #[serde(default)]
    pub streams_output: bool,
    /// What a call is called where people read of it: see [`crate::title`]. Empty: nothing but the tool's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
}

impl ToolDeclaration {
    /// Digest of everything declared: equal digests are the same tool.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[&serde_json::to_vec(self).expect("plain data serialises")])
    }
}

/// What a tool with [`ToolDeclaration::requires_runtime`] runs in, such as a browser or a sandbox: one per run and
/// host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Runtime {
    /// Names it.
    pub id: RuntimeId,
    /// From the run's request: a JSON object, or empty.
    pub init_data: String,
    /// Advice from the run's request: a JSON object, or empty.
    pub hints: String,
}

impl Runtime {
    /// Roughly its bytes on the wire.
    #[must_use]
    pub fn size(&self) -> usize {
        self.init_data.len() + self.hints.len()
    }
}

/// The first 16 bytes of a SHA-256, in hex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// Of these pieces, each preceded by its length, so that moving a boundary changes the digest.
    #[must_use]
    pub fn of(pieces: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for piece in pieces {
            hash.update((piece.len() as u64).to_le_bytes());
            hash.update(piece);
        }
        let digit = |nibble: u8| char::from(b"0123456789abcdef"[usize::from(nibble)]);
        Self(hash.finalize().iter().take(16).flat_map(|byte| [digit(byte >> 4), digit(byte & 15)]).collect())
    }

    /// A digest that someone claims; equal to a real one only if it is that one.
    #[must_use]
    pub fn claimed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_sees_every_boundary() {
        assert_ne!(Digest::of(&[b"ab", b"c"]), Digest::of(&[b"a", b"bc"]));
        assert_ne!(Digest::of(&[b"a"]), Digest::of(&[b"a", b""]));
        assert_eq!(Digest::of(&[b"a"]).as_str().len(), 32);
    }

    #[test]
    fn only_unsafe_is_not_repeatable() {
        assert!(!EffectClass::default().repeatable());
        for class in [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed] {
            assert!(class.repeatable());
        }
    }
}
