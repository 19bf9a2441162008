//! Declarations of tools, runtimes, and digests.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::id::RuntimeId;
use crate::limits::TOOL_NAME_BYTES_MAX;
use crate::text::canonical::canonical_json;
use crate::text::hex;
use crate::time::Millis;

/// Effect of running a call twice. It decides what happens to a call whose host is lost.
///
/// A later variant is stricter than an earlier one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EffectClass {
    /// The call changes nothing.
    ReadOnly,
    /// Running it twice has the same effect as running it once.
    Idempotent,
    /// The host makes sure that a call with the same idempotency key takes effect only once.
    Keyed,
    /// Running it twice does harm. It is never run again without a person's decision.
    #[default]
    Unsafe,
}

impl EffectClass {
    /// True if a call that may have run can go to another host.
    #[must_use]
    pub fn repeatable(self) -> bool {
        match self {
            Self::ReadOnly | Self::Idempotent | Self::Keyed => true,
            Self::Unsafe => false,
        }
    }

    /// The class as the contract writes it.
    #[must_use]
    pub fn contract_name(self) -> &'static str {
        match self {
            Self::ReadOnly => "READ_ONLY",
            Self::Idempotent => "IDEMPOTENT",
            Self::Keyed => "KEYED",
            Self::Unsafe => "UNSAFE",
        }
    }
}

/// A tool as its host declares it. Hosts that serve the same tool must declare the same [`ToolTerms`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolDeclaration {
    /// Name of the tool: `[A-Za-z0-9_-]`, at most 64 bytes.
    pub name: String,
    /// Description by which the model decides when to call the tool.
    pub description: String,
    /// JSON schema of the arguments, as JSON text. The arguments are an object.
    pub input_schema: String,
    /// Effect of running a call twice.
    #[serde(default)]
    pub effect: EffectClass,
    /// True if a person must approve each call.
    #[serde(default)]
    pub requires_approval: bool,
    /// True if calls need a runtime that is opened for the run.
    #[serde(default)]
    pub requires_runtime: bool,
    /// Longest time from the offer of an attempt to its result; absent means the server's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<Millis>,
    /// Calls of it that may run on one host at the same time; absent leaves the host's credit as the only bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_concurrency: Option<u32>,
    /// True if the tool sends output while it runs.
    #[serde(default)]
    pub streams_output: bool,
    /// Template for the titles of calls: see [`crate::text::title`]. Without one, people read the tool's name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// True if a passed deadline is an outcome that the model reads, though the tool is UNSAFE. Otherwise such a call is
    /// in doubt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deadline_is_outcome: bool,
    /// JSON schema of the typed output, as JSON text. Empty if the tool gives none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub output_schema: String,
}

impl ToolDeclaration {
    /// Digest of the whole declaration. Equal digests mean equal declarations.
    #[must_use]
    pub fn digest(&self) -> Digest {
        Digest::of(&[&serde_json::to_vec(self).expect("plain data serialises")])
    }

    /// Digest of the schema of the typed output; empty if the tool gives none.
    fn output_schema_digest(&self) -> Digest {
        match self.output_schema.trim() {
            "" => Digest::claimed(""),
            schema => Digest::of(&[b"output", schema.as_bytes()]),
        }
    }

    /// The part of the declaration that approvals and repetitions rest on.
    #[must_use]
    pub fn terms(&self) -> ToolTerms {
        let flags = [self.effect as u8, u8::from(self.requires_approval), u8::from(self.requires_runtime)];
        let schema = canonical_json(&self.input_schema);
        ToolTerms {
            effect: self.effect,
            requires_approval: self.requires_approval,
            output_schema: Some(self.output_schema_digest()),
            digest: Digest::of(&[b"terms", self.name.as_bytes(), &flags, schema.as_bytes()]),
        }
    }
}

/// A tool's terms: its name, effect class, approval, runtime and schema. A new description, title or timeout leaves
/// them as they are. The schema is compared as JSON, not letter by letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolTerms {
    /// Meaning of running it twice.
    pub effect: EffectClass,
    /// True if a human must approve each call.
    pub requires_approval: bool,
    /// Digest of all the terms: equal digests are equal terms.
    pub digest: Digest,
    /// Digest of the schema of the typed output; empty if the tool gives none. It is no term, so `digest` leaves it out: hosts of
    /// one tool may differ in it, and a result is checked against what its own host declared. `None` in terms of an earlier
    /// version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Digest>,
}

/// The reaction to a declaration that is weaker than the known terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum WeakerTerms {
    /// It is refused until an operator accepts it.
    #[default]
    Refuse,
    /// It is accepted with a warning. For machines where everybody who can declare a tool is trusted.
    Accept,
}

/// The least that the configuration demands of a tool, whoever declares it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConfiguredTerms {
    /// The lowest effect class that a declaration may have.
    pub effect: EffectClass,
    /// True if a declaration must require approval.
    pub requires_approval: bool,
}

/// The configuration's part in the terms of tools.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TermsOptions {
    /// The reaction to weaker declarations.
    pub weaker: WeakerTerms,
    /// Terms that the configuration sets, by the name of the tool, for all tenants.
    pub configured: BTreeMap<String, ConfiguredTerms>,
}

/// A runtime: what a tool with [`ToolDeclaration::requires_runtime`] runs in, such as a browser or a sandbox. A run has
/// one at a time, on one host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runtime {
    /// Id of the runtime, with its run.
    pub id: RuntimeId,
    /// Initial data from the run's request: a JSON object, or empty.
    pub init_data: String,
    /// Hints from the run's request: a JSON object, or empty.
    pub hints: String,
}

impl Runtime {
    /// Approximate size on the wire, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        self.init_data.len() + self.hints.len()
    }
}

/// A digest: the first 16 bytes of a SHA-256 hash, in hex.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Digest(String);

impl Digest {
    /// The digest of these pieces. The length of each is hashed too, so that moving a boundary changes the digest.
    #[must_use]
    pub fn of(pieces: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        for piece in pieces {
            hash.update((piece.len() as u64).to_le_bytes());
            hash.update(piece);
        }
        Self(hex::encode(&hash.finalize()[..16]))
    }

    /// A digest from outside, to be compared with a computed one.
    #[must_use]
    pub fn claimed(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The digest as lower-case hex digits.
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

/// True for a name that a tool or an extension can have: 1 to [`TOOL_NAME_BYTES_MAX`] ASCII letters, digits, `_` and `-`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    (1..=TOOL_NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(fits)
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

    fn declared() -> ToolDeclaration {
        serde_json::from_value(serde_json::json!({
            "name": "pay", "description": "Pays", "effect": "keyed",
            "input_schema": r#"{"type":"object","properties":{"to":{"type":"string"}},"required":["to"]}"#,
        }))
        .unwrap()
    }

    #[test]
    fn terms_are_what_approvals_and_repetitions_rest_on_and_nothing_else() {
        let terms = declared().terms();
        let same = [
            ToolDeclaration { description: "Pays somebody".to_owned(), ..declared() },
            ToolDeclaration { timeout: Some(Millis(5)), ..declared() },
            ToolDeclaration {
                input_schema:
                    r#"{ "required": ["to"], "properties": {"to": {"type": "string"}}, "type": "object" }"#
                        .to_owned(),
                ..declared()
            },
        ];
        for declaration in same {
            assert_eq!(declaration.terms(), terms, "{declaration:?}");
        }
        let others = [
            ToolDeclaration { name: "paid".to_owned(), ..declared() },
            ToolDeclaration { effect: EffectClass::Unsafe, ..declared() },
            ToolDeclaration { requires_approval: true, ..declared() },
            ToolDeclaration { requires_runtime: true, ..declared() },
            ToolDeclaration {
                input_schema: declared().input_schema.replace("string", "number"),
                ..declared()
            },
        ];
        for declaration in others {
            assert_ne!(declaration.terms(), terms, "{declaration:?}");
        }
    }

    #[test]
    fn only_unsafe_is_not_repeatable() {
        assert!(!EffectClass::default().repeatable());
        for class in [EffectClass::ReadOnly, EffectClass::Idempotent, EffectClass::Keyed] {
            assert!(class.repeatable());
        }
    }
}
