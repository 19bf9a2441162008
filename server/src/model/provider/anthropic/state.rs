//! What is kept of an answer beside its text, so that the API takes it again, and when it does.
//!
//! Newer models bind each thought to the exact system prompt, tools and messages before it: sent after anything else,
//! it is refused, and so is every later thought
//! (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking>). So each thought is kept with a digest of
//! all that was sent before it, and goes back only behind the same. Thoughts of one message stand or fall together.

use agentloop_core::message::{ProviderState, Reasoning};
use agentloop_core::tool::Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::model::request::origin::{Origin, States};

/// Of a thought.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ThoughtState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) redacted: Option<String>,
    /// Of all that was sent before the message that it is in. Absent where the model does not bind thoughts, and in
    /// journals of old.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prefix: Option<Digest>,
}

/// Of a text that quotes what the provider found.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TextState {
    /// A list, as it came.
    pub(super) citations: Box<RawValue>,
}

/// What decides which state goes back. Equal for requests that write the same messages alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) origin: Origin,
    pub(super) states: States,
    /// Of the system prompt and the tools, where the model binds thoughts to what stands before them.
    pub(super) base: Option<Digest>,
}

impl ThoughtState {
    fn is_signed(&self) -> bool {
        self.signature.is_some() || self.redacted.is_some()
    }

    /// As it is kept.
    pub(super) fn kept(&self, origin: &Origin) -> Option<ProviderState> {
        let data = serde_json::to_string(self).ok().filter(|_| self.is_signed())?;
        Some(origin.state(data))
    }
}

/// A thought's state as it is kept, of a journal that names no provider.
pub(in crate::model) fn old_state(
    origin: &Origin,
    signature: Option<String>,
    redacted: Option<String>,
) -> Option<ProviderState> {
    ThoughtState { signature, redacted, prefix: None }.kept(origin)
}

impl Rules {
    /// The state of a thought that this model takes behind a prefix of this digest, if it binds them. Thoughts that are not signed were
    /// never the API's own.
    pub(super) fn thought(&self, reasoning: &Reasoning, prefix: Option<&Digest>) -> Option<ThoughtState> {
        if self.states == States::Drop {
            return None;
        }
        let state: ThoughtState = match self.origin.own(reasoning.state.as_ref()) {
            Some(data) => serde_json::from_str(data).ok()?,
            None if reasoning.state.is_none() => ThoughtState {
                signature: reasoning.signature.clone(),
                redacted: reasoning.redacted.clone(),
                prefix: None,
            },
            None => return None,
        };
        let is_bound_elsewhere = prefix.is_some() && state.prefix.as_ref() != prefix;
        (state.is_signed() && !is_bound_elsewhere).then_some(state)
    }

    /// Whether a thought goes back behind some prefix.
    pub(super) fn may_go_back(&self, reasoning: &Reasoning) -> bool {
        self.thought(reasoning, None).is_some()
    }

    /// The citations of a text.
    pub(super) fn citations(&self, state: Option<&ProviderState>) -> Option<Box<RawValue>> {
        let data = self.origin.own(state).filter(|_| self.states == States::Keep)?;
        let TextState { citations } = serde_json::from_str(data).ok()?;
        citations.get().starts_with('[').then_some(citations)
    }

    /// A block that only the API understands.
    pub(super) fn opaque<'a>(&self, state: &'a ProviderState) -> Option<&'a str> {
        #[derive(Deserialize)]
        struct Block {
            #[expect(dead_code, reason = "every block has one")]
            r#type: String,
        }
        let data = self.origin.own(Some(state)).filter(|_| self.states == States::Keep)?;
        serde_json::from_str::<Block>(data).ok().map(|_| data)
    }
}
