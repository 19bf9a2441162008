//! State of a response that some server needs back: the field that reasoning came in, OpenRouter's
//! `reasoning_details`, Google's `extra_content` of tool calls.
//!
//! Sources: <https://openrouter.ai/docs/use-cases/reasoning-tokens>,
//! <https://ai.google.dev/gemini-api/docs/thought-signatures>, <https://api-docs.deepseek.com/guides/thinking_mode>.

use agentloop_core::limits::PROVIDER_STATE_BYTES_MAX;
use agentloop_core::message::{Message, Part, Reasoning, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::chunk::ReasoningField;
use crate::model::ModelError;
use crate::model::request::origin::{NO_SIGNATURE, Origin, StatePolicy};

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
pub(super) struct StoredCallState {
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
        let own = own.and_then(|data| serde_json::from_str::<StoredCallState>(data).ok());
        if let Some(StoredCallState { extra_content }) = own {
            return Some(extra_content.get().to_owned());
        }
        let namespace = self.signs.filter(|_| is_first)?;
        Some(format!(r#"{{"{namespace}":{{"thought_signature":"{NO_SIGNATURE}"}}}}"#))
    }
}

/// OpenRouter's reasoning details, joined from streamed pieces.
#[derive(Debug, Default)]
pub(super) struct Details {
    all: Vec<Value>,
    /// Bytes that they have, without the list around them.
    bytes: usize,
}

/// Fields whose pieces are concatenated.
const GROWING: [&str; 4] = ["text", "summary", "data", "signature"];

impl Details {
    /// Adds a piece to the detail with its index and type, or begins a new detail.
    ///
    /// # Errors
    /// If all of them are larger than the state of a part may be.
    pub(super) fn add(&mut self, piece: Value) -> Result<(), ModelError> {
        self.bytes += self.join(piece);
        if self.bytes > PROVIDER_STATE_BYTES_MAX {
            return Err(ModelError::too_many(PROVIDER_STATE_BYTES_MAX, "bytes of reasoning details"));
        }
        Ok(())
    }

    /// Returns the bytes that the piece adds.
    fn join(&mut self, piece: Value) -> usize {
        let is_it = |known: &&mut Value| known["index"] == piece["index"] && known["type"] == piece["type"];
        let known = match piece["index"] {
            Value::Null => {
                self.all.last_mut().filter(|last| is_it(last) && piece["type"] != "reasoning.encrypted")
            }
            _ => self.all.iter_mut().find(is_it),
        };
        let (Some(Value::Object(known)), Value::Object(piece)) = (known, &piece) else {
            let bytes = bytes_of(&piece);
            self.all.push(piece);
            return bytes;
        };
        let mut bytes = 0;
        for (key, value) in piece {
            match (known.get_mut(key), value) {
                (_, Value::Null) => {}
                (Some(Value::String(text)), Value::String(more)) if GROWING.contains(&key.as_str()) => {
                    bytes += more.len();
                    text.push_str(more);
                }
                (Some(same), value) if same == value => {}
                _ => {
                    bytes += key.len() + bytes_of(value);
                    known.insert(key.clone(), value.clone());
                }
            }
        }
        bytes
    }

    /// Takes the list; `None` if it is empty.
    pub(super) fn take(&mut self) -> Option<Box<RawValue>> {
        let Self { all: details, .. } = std::mem::take(self);
        if details.is_empty() { None } else { serde_json::value::to_raw_value(&details).ok() }
    }

    /// True if there is no detail.
    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }
}

fn bytes_of(value: &Value) -> usize {
    value.to_string().len()
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
            details.add(piece).unwrap();
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

    #[test]
    fn details_are_bounded() {
        let piece =
            || json!({"type": "reasoning.text", "index": 0, "format": "f", "text": "x".repeat(1_000)});
        let mut details = Details::default();
        let taken = (0..).take_while(|_| details.add(piece()).is_ok()).count();
        assert_eq!(
            taken,
            PROVIDER_STATE_BYTES_MAX / 1_000,
            "fields that are the same in each piece count once"
        );
        let mut details = Details::default();
        let separate =
            |at: usize| json!({"type": "reasoning.encrypted", "data": "x".repeat(1_000), "index": at});
        let taken = (0..).take_while(|at| details.add(separate(*at)).is_ok()).count();
        assert!(taken < PROVIDER_STATE_BYTES_MAX / 1_000, "{taken}");
    }
}
