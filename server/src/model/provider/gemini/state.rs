//! What is kept of an answer beside its text, so that the API takes it again.
//!
//! A signature belongs to the part that it came with, and goes back with exactly that part. From Gemini 3 on the API
//! refuses the first call of a step without one. A call that another model made gets the text that Google documents for
//! that (<https://ai.google.dev/gemini-api/docs/thought-signatures>).

use agentloop_core::message::{ProviderState, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::request::origin::{Origin, States};

/// Stands in place of the signature of a call that another model made.
pub(super) const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Of a text, a thought or a call.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PartState {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) thought_signature: Option<String>,
    /// Of a call that came with one. Some servers know of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) id: Option<String>,
}

impl PartState {
    /// As it is kept; `None` where there is nothing to keep.
    pub(super) fn kept(&self, origin: &Origin) -> Option<ProviderState> {
        let data = serde_json::to_string(self).ok().filter(|_| *self != Self::default())?;
        Some(origin.state(data))
    }
}

/// What decides which state goes back. Equal for requests that write the same messages alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) origin: Origin,
    pub(super) states: States,
    /// Whether the model demands signatures.
    pub(super) signs: bool,
    /// Whether it takes pictures within results of tools.
    pub(super) shows_results: bool,
}

impl Rules {
    /// What is kept of a part.
    pub(super) fn part(&self, state: Option<&ProviderState>) -> PartState {
        let data = self.origin.own(state).filter(|_| self.states == States::Keep);
        data.and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default()
    }

    /// A part that only the API understands, as it came.
    pub(super) fn opaque<'a>(&self, state: &'a ProviderState) -> Option<&'a str> {
        let data = self.origin.own(Some(state)).filter(|_| self.states == States::Keep)?;
        serde_json::from_str(data).is_ok_and(|part: Value| part.is_object()).then_some(data)
    }

    /// What goes with a call, which is the first of its message or not.
    pub(super) fn call(&self, call: &ToolCall, is_first: bool) -> PartState {
        let own = self.part(call.state.as_ref());
        let missing = self.signs && is_first && own.thought_signature.is_none();
        let signature = if missing { Some(NO_SIGNATURE.to_owned()) } else { own.thought_signature };
        PartState { thought_signature: signature, id: own.id }
    }
}
