//! State of a response that some server needs back: the field that reasoning came in, OpenRouter's
//! `reasoning_details`, Google's `extra_content` of tool calls.
//!
//! Sources: <https://openrouter.ai/docs/use-cases/reasoning-tokens>,
//! <https://ai.google.dev/gemini-api/docs/thought-signatures>, <https://api-docs.deepseek.com/guides/thinking_mode>.

use agentloop_core::message::{Message, Part, Reasoning, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::chunk::ReasoningField;
use crate::model::request::origin::{Origin, StatePolicy};

/// Signature that Google accepts for a call of another model.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Stored state of a reasoning part.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReasoningState {
    pub(super) field: ReasoningField,
    /// OpenRouter's list, with streamed pieces joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Box<RawValue>>,
}

/// Stored state of a tool call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallState {
    pub(super) extra_content: Box<RawValue>,
}

/// Selects the assistant messages that are sent with their reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendReasoning {
    Never,
    /// Messages with tool calls. The field is sent even if there was no reasoning.
    WithCalls,
    /// All messages. The field is sent even if there was no reasoning.
    Always,
}

/// Rules for sending state back. Equal rules encode the same messages identically.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct StateRules {
    pub(super) origin: Origin,
    pub(super) policy: StatePolicy,
    pub(super) send_reasoning: SendReasoning,
    /// Namespace of Google's signatures, if the model requires them.
    pub(super) signs: Option<&'static str>,
}

impl StateRules {
    /// Returns the reasoning to send back: field, text and details. Text of another model is left out; text in
    /// old journals, which did not record the model, counts as the model's own.
    pub(super) fn reasoning(&self, message: &Message) -> (ReasoningField, String, Option<Box<RawValue>>) {
        let (mut field, mut text, mut details) = (ReasoningField::Content, String::new(), None);
        for part in &message.parts {
            let Part::Reasoning(reasoning) = part else { continue };
            let state = self.state(reasoning);
            if state.is_some() || reasoning.state.is_none() {
                text.push_str(&reasoning.text);
            }
            if let Some(state) = state {
                field = state.field;
                details = state.details.filter(|_| self.policy == StatePolicy::Keep).or(details);
            }
        }
        (field, text, details)
    }

    fn state(&self, reasoning: &Reasoning) -> Option<ReasoningState> {
        serde_json::from_str(self.origin.own_data(reasoning.state.as_ref())?).ok()
    }

    /// Returns the `extra_content` to send with a tool call, as JSON text. `is_first` is true for the first
    /// call of a message.
    pub(super) fn extra_content(&self, call: &ToolCall, is_first: bool) -> Option<String> {
        let own = self.origin.own_data(call.state.as_ref()).filter(|_| self.policy == StatePolicy::Keep);
        let own = own.and_then(|data| serde_json::from_str::<CallState>(data).ok());
        if let Some(CallState { extra_content }) = own {
            return Some(extra_content.get().to_owned());
        }
        let namespace = self.signs.filter(|_| is_first)?;
        Some(format!(r#"{{"{namespace}":{{"thought_signature":"{NO_SIGNATURE}"}}}}"#))
    }
}

/// OpenRouter's reasoning details, joined from streamed pieces.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Value>);

/// Fields whose pieces are concatenated.
const GROWING: [&str; 4] = ["text", "summary", "data", "signature"];

impl Details {
    /// Adds a piece to the detail with its index and type, or begins a new detail.
    pub(super) fn add(&mut self, piece: Value) {
        let is_it = |known: &&mut Value| known["index"] == piece["index"] && known["type"] == piece["type"];
        let known = match piece["index"] {
            Value::Null => {
                self.0.last_mut().filter(|last| is_it(last) && piece["type"] != "reasoning.encrypted")
            }
            _ => self.0.iter_mut().find(is_it),
        };
        let (Some(Value::Object(known)), Value::Object(piece)) = (known, &piece) else {
            self.0.push(piece);
            return;
        };
        for (key, value) in piece {
            match (known.get_mut(key), value) {
                (_, Value::Null) => {}
                (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&key.as_str()) => {
                    text.push_str(more);
                }
                _ => drop(known.insert(key.clone(), value.clone())),
            }
        }
    }

    /// Takes the list; `None` if it is empty.
    pub(super) fn take(&mut self) -> Option<Box<RawValue>> {
        let details = std::mem::take(&mut self.0);
        if details.is_empty() { None } else { serde_json::value::to_raw_value(&details).ok() }
    }

    /// True if there is no detail.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pieces_of_details_are_put_together() {
        let mut details = Details::default();
        assert!(details.is_empty() && details.take().is_none());
        for piece in [
            json!({"type": "reasoning.text", "text": "I ", "index": 0, "format": "f", "signature": null}),
            json!({"type": "reasoning.text", "text": "think", "index": 0}),
            json!({"type": "reasoning.encrypted", "data": "x", "index": 1, "id": "rs_1"}),
            json!({"type": "reasoning.text", "signature": "c2ln", "index": 0}),
            json!({"type": "reasoning.summary", "summary": "a"}),
            json!({"type": "reasoning.summary", "summary": "b"}),
            json!({"type": "reasoning.encrypted", "data": "y"}),
            json!({"type": "reasoning.encrypted", "data": "z"}),
            json!("nonsense"),
        ] {
            details.add(piece);
        }
        let whole: Value = serde_json::from_str(details.take().unwrap().get()).unwrap();
        assert_eq!(
            whole,
            json!([
                {"type": "reasoning.text", "text": "I think", "index": 0, "format": "f", "signature": "c2ln"},
                {"type": "reasoning.encrypted", "data": "x", "index": 1, "id": "rs_1"},
                {"type": "reasoning.summary", "summary": "ab"},
                {"type": "reasoning.encrypted", "data": "y"},
                {"type": "reasoning.encrypted", "data": "z"},
                "nonsense",
            ])
        );
    }
}
