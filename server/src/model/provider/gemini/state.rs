//! State of a response that the API needs back, and the rules for sending it.
//!
//! A signature belongs to the part that it arrived with, and is sent with exactly that part. From Gemini 3
//! on the API refuses the first call of a step without one. A call of another model gets the placeholder
//! that Google documents (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

use agentloop_core::message::{ProviderState, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::request::origin::{NO_SIGNATURE, Origin, StatePolicy};

/// Stored state of a text, a thought or a call.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thought_signature: Option<String>,
    /// Id of a call, if it arrived with one. Some servers do not know ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
}

impl PartState {
    /// Converts to stored state; `None` if it is empty.
    pub(super) fn to_provider_state(&self, origin: &Origin) -> Option<ProviderState> {
        let data = serde_json::to_string(self).ok().filter(|_| *self != Self::default())?;
        Some(origin.state(data))
    }
}

/// Rules for sending state back. Equal rules encode the same messages identically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateRules {
    pub(super) origin: Origin,
    pub(super) policy: StatePolicy,
    /// True if the model requires signatures.
    pub(super) signs: bool,
    /// True if the model accepts images within tool results.
    pub(super) shows_results: bool,
}

impl StateRules {
    /// Returns the stored state of a part; empty if there is none to send.
    pub(super) fn part(&self, state: Option<&ProviderState>) -> PartState {
        let data = self.origin.own_data(state).filter(|_| self.policy == StatePolicy::Keep);
        data.and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default()
    }

    /// Returns a part that only the API understands, as received.
    pub(super) fn opaque<'a>(&self, state: &'a ProviderState) -> Option<&'a str> {
        let data = self.origin.own_data(Some(state)).filter(|_| self.policy == StatePolicy::Keep)?;
        serde_json::from_str(data).is_ok_and(|part: Value| part.is_object()).then_some(data)
    }

    /// Returns the state to send with a call. `is_first` is true for the first call of a message.
    pub(super) fn call(&self, call: &ToolCall, is_first: bool) -> PartState {
        let own = self.part(call.state.as_ref());
        let missing = self.signs && is_first && own.thought_signature.is_none();
        let signature = if missing { Some(NO_SIGNATURE.to_owned()) } else { own.thought_signature };
        PartState { thought_signature: signature, id: own.id }
    }
}
