//! State of a response that the API needs back, and the rules for sending it.
//!
//! A reasoning item is sent as received, and only before the very item that it preceded. Before another item, or
//! without its encrypted content, the API refuses it, because the provider stores nothing
//! (<https://platform.openai.com/docs/guides/reasoning>). So each text and each call is stored with a
//! digest of its content and of the reasoning before it. An item that was edited since is a different item
//! and is sent without reasoning.

use agentloop_core::message::{ProviderState, Reasoning, ToolCall};
use agentloop_core::tool::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::request::origin::{Origin, StatePolicy};

/// Stored state of a text or a tool call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ItemState {
    /// Digest of the item's content.
    pub(super) digest: Digest,
    /// Digest of the reasoning items right before it, if they can be sent back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Digest>,
    /// `commentary` or `final_answer`, for texts of newer models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
}

impl ItemState {
    /// Converts to stored state.
    pub(super) fn to_provider_state(&self, origin: &Origin) -> Option<ProviderState> {
        Some(origin.state(serde_json::to_string(self).ok()?))
    }
}

/// Extends the digest of consecutive reasoning items by one more.
pub(super) fn reasoning_digest(before: Option<&Digest>, item: &str) -> Digest {
    let before = before.map(ToString::to_string).unwrap_or_default();
    Digest::of(&[before.as_bytes(), item.as_bytes()])
}

/// Digest of a text's content.
pub(super) fn text_digest(text: &str) -> Digest {
    Digest::of(&[text.as_bytes()])
}

/// Digest of a call's content.
pub(super) fn call_digest(id: &str, name: &str, arguments: &str) -> Digest {
    Digest::of(&[id.as_bytes(), name.as_bytes(), arguments.as_bytes()])
}

/// True if a reasoning item can be sent back: without encrypted content the provider does not know it.
pub(super) fn is_encrypted(item: &Value) -> bool {
    item["encrypted_content"].as_str().is_some_and(|content| !content.is_empty())
}

/// Rules for sending state back. Equal rules encode the same messages identically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateRules {
    pub(super) origin: Origin,
    pub(super) policy: StatePolicy,
}

impl StateRules {
    fn own<'a>(&self, state: Option<&'a ProviderState>) -> Option<&'a str> {
        self.origin.own_data(state).filter(|_| self.policy == StatePolicy::Keep)
    }

    /// Returns a reasoning item, as received.
    pub(super) fn reasoning<'a>(&self, reasoning: &'a Reasoning) -> Option<&'a str> {
        let item = self.own(reasoning.state.as_ref())?;
        serde_json::from_str(item).is_ok_and(|value: Value| is_encrypted(&value)).then_some(item)
    }

    /// Returns an item that only the API understands, as received.
    pub(super) fn opaque<'a>(&self, state: &'a ProviderState) -> Option<&'a str> {
        let item = self.own(Some(state))?;
        serde_json::from_str(item).is_ok_and(|value: Value| value["type"].is_string()).then_some(item)
    }

    /// Returns the stored state of a text that is still as the model wrote it.
    pub(super) fn text(&self, text: &str, state: Option<&ProviderState>) -> Option<ItemState> {
        let state: ItemState = serde_json::from_str(self.own(state)?).ok()?;
        (state.digest == text_digest(text)).then_some(state)
    }

    /// Returns the stored state of a call that is still as the model wrote it.
    pub(super) fn call(&self, call: &ToolCall) -> Option<ItemState> {
        let state: ItemState = serde_json::from_str(self.own(call.state.as_ref())?).ok()?;
        (state.digest == call_digest(&call.provider_id, &call.name, &call.arguments)).then_some(state)
    }
}
