//! What is kept of an answer beside its text, so that the API takes it again.
//!
//! A reasoning item goes back as it came, and only before the very item that it led to: before any other it is refused,
//! and so it is without its encrypted content, since nothing is stored with the provider
//! (<https://platform.openai.com/docs/guides/reasoning>). Hence each text and each call is kept with a digest of what it
//! was, and of the reasoning that led to it: what was edited since is another item, and so is what stood behind it.

use agentloop_core::message::{ProviderState, Reasoning, ToolCall};
use agentloop_core::tool::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::request::origin::{Origin, States};

/// Of a text or a tool call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ItemState {
    /// Of what the item said.
    pub(super) digest: Digest,
    /// Of the reasoning items right before it, where they can go back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) after: Option<Digest>,
    /// `commentary` or `final_answer`, on texts of newer models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) phase: Option<String>,
}

impl ItemState {
    /// As it is kept.
    pub(super) fn kept(&self, origin: &Origin) -> Option<ProviderState> {
        Some(origin.state(serde_json::to_string(self).ok()?))
    }
}

/// Of reasoning items in a row: of those before, and one more.
pub(super) fn row_digest(before: Option<&Digest>, item: &str) -> Digest {
    let before = before.map(ToString::to_string).unwrap_or_default();
    Digest::of(&[before.as_bytes(), item.as_bytes()])
}

/// Of a text.
pub(super) fn text_digest(text: &str) -> Digest {
    Digest::of(&[text.as_bytes()])
}

/// Of a call.
pub(super) fn call_digest(id: &str, name: &str, arguments: &str) -> Digest {
    Digest::of(&[id.as_bytes(), name.as_bytes(), arguments.as_bytes()])
}

/// Whether a reasoning item can go back: without its content the provider knows nothing of it.
pub(super) fn is_encrypted(item: &Value) -> bool {
    item["encrypted_content"].as_str().is_some_and(|content| !content.is_empty())
}

/// What decides which state goes back. Equal for requests that write the same messages alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) origin: Origin,
    pub(super) states: States,
}

impl Rules {
    fn own<'a>(&self, state: Option<&'a ProviderState>) -> Option<&'a str> {
        self.origin.own(state).filter(|_| self.states == States::Keep)
    }

    /// A reasoning item, as it came.
    pub(super) fn reasoning<'a>(&self, reasoning: &'a Reasoning) -> Option<&'a str> {
        let item = self.own(reasoning.state.as_ref())?;
        serde_json::from_str(item).is_ok_and(|value: Value| is_encrypted(&value)).then_some(item)
    }

    /// An item that only the API understands, as it came.
    pub(super) fn opaque<'a>(&self, state: &'a ProviderState) -> Option<&'a str> {
        let item = self.own(Some(state))?;
        serde_json::from_str(item).is_ok_and(|value: Value| value["type"].is_string()).then_some(item)
    }

    /// What is kept of a text, where it is still what the model said.
    pub(super) fn text(&self, text: &str, state: Option<&ProviderState>) -> Option<ItemState> {
        let state: ItemState = serde_json::from_str(self.own(state)?).ok()?;
        (state.digest == text_digest(text)).then_some(state)
    }

    /// What is kept of a call, where it is still what the model said.
    pub(super) fn call(&self, call: &ToolCall) -> Option<ItemState> {
        let state: ItemState = serde_json::from_str(self.own(call.state.as_ref())?).ok()?;
        (state.digest == call_digest(&call.provider_id, &call.name, &call.arguments)).then_some(state)
    }
}
