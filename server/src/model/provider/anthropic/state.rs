//! State of a response that the API needs back, and the rules for sending it.
//!
//! Newer models bind thinking to the exact system prompt, tools and messages before it
//! (<https://platform.claude.com/docs/en/build-with-claude/extended-thinking>). After any change the API
//! refuses it and all later thinking. So each thinking block is stored with a digest of everything sent before
//! it, and is only sent after the same prefix. The thinking of one message is sent completely or not at all.

use agentloop_core::message::{Part, ProviderState, Reasoning};
use agentloop_core::tool::Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::model::request::origin::{Origin, StatePolicy};

/// Stored state of a thinking block.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ThoughtState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) signature: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) redacted: Option<String>,
    /// Digest of everything sent before its message. `None` if the model does not bind thinking, and in old journals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) prefix: Option<Digest>,
}

/// Stored state of a text with citations.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct TextState {
    /// The list of citations, as received.
    pub(super) citations: Box<RawValue>,
}

/// Rules for sending state back. Equal rules encode the same messages identically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateRules {
    pub(super) origin: Origin,
    pub(super) policy: StatePolicy,
    /// Digest of the system prompt and the tools, if the model binds thinking to its prefix.
    pub(super) prompt_digest: Option<Digest>,
}

impl ThoughtState {
    fn is_signed(&self) -> bool {
        self.signature.is_some() || self.redacted.is_some()
    }

    /// Converts to stored state; `None` if the thinking is not signed.
    pub(super) fn to_provider_state(&self, origin: &Origin) -> Option<ProviderState> {
        let data = serde_json::to_string(self).ok().filter(|_| self.is_signed())?;
        Some(origin.state(data))
    }
}

/// Builds the stored state of signed thinking in an old journal.
pub(super) fn legacy_thought_state(
    origin: &Origin,
    signature: Option<String>,
    redacted: Option<String>,
) -> Option<ProviderState> {
    ThoughtState { signature, redacted, prefix: None }.to_provider_state(origin)
}

impl StateRules {
    /// Returns the state of a thinking block if it may be sent after the prefix with this digest. Unsigned
    /// thinking was never Anthropic's own.
    pub(super) fn thought(&self, reasoning: &Reasoning, prefix: Option<&Digest>) -> Option<ThoughtState> {
        if self.policy == StatePolicy::Drop {
            return None;
        }
        let state: ThoughtState = match self.origin.own_data(reasoning.state.as_ref()) {
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

    /// True if the thinking may be sent after some prefix.
    pub(super) fn may_go_back(&self, reasoning: &Reasoning) -> bool {
        self.thought(reasoning, None).is_some()
    }

    /// True if this part of a message of the model is encoded.
    pub(super) fn is_sent(&self, part: &Part) -> bool {
        match part {
            Part::Text { text, .. } => !text.trim().is_empty(),
            Part::Reasoning(reasoning) => self.may_go_back(reasoning),
            Part::Opaque(state) => self.opaque(state).is_some(),
            Part::ToolCall(_) | Part::Image { .. } => true,
            Part::ToolResult(_) => false,
        }
    }

    /// Returns the citations of a text.
    pub(super) fn citations(&self, state: Option<&ProviderState>) -> Option<Box<RawValue>> {
        let data = self.origin.own_data(state).filter(|_| self.policy == StatePolicy::Keep)?;
        let TextState { citations } = serde_json::from_str(data).ok()?;
        citations.get().starts_with('[').then_some(citations)
    }

    /// Returns a block that only the API understands.
    pub(super) fn opaque<'a>(&self, state: &'a ProviderState) -> Option<&'a str> {
        #[derive(Deserialize)]
        struct Block {
            #[expect(dead_code, reason = "every block has one")]
            r#type: String,
        }
        let data = self.origin.own_data(Some(state)).filter(|_| self.policy == StatePolicy::Keep)?;
        serde_json::from_str::<Block>(data).ok().map(|_| data)
    }
}
