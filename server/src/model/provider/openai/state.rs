//! What is kept of an answer beside its text, since some server wants it back: which field reasoning came in,
//! OpenRouter's `reasoning_details`, Google's `extra_content` of tool calls.
//!
//! Sources: <https://openrouter.ai/docs/use-cases/reasoning-tokens>,
//! <https://ai.google.dev/gemini-api/docs/thought-signatures>, <https://api-docs.deepseek.com/guides/thinking_mode>.

use agentloop_core::message::{Message, Part, Reasoning, ToolCall};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::chunk::ReasoningField;
use crate::model::request::origin::{Origin, States};

/// Google takes this in place of the signature of a call that another model made.
const NO_SIGNATURE: &str = "skip_thought_signature_validator";

/// Of reasoning.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct ReasoningState {
    pub(super) field: ReasoningField,
    /// A list, as OpenRouter sent it, with its pieces put together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) details: Option<Box<RawValue>>,
}

/// Of a tool call.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct CallState {
    pub(super) extra_content: Box<RawValue>,
}

/// Which messages of the model get a field with their reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendReasoning {
    Never,
    /// Those with tool calls, also where there was none.
    WithCalls,
    /// All, also where there was none.
    Always,
}

/// What decides which state goes back. Equal for requests that write the same messages alike.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Rules {
    pub(super) origin: Origin,
    pub(super) states: States,
    pub(super) send_reasoning: SendReasoning,
    /// The namespace of Google's signatures, where the model demands them.
    pub(super) signs: Option<&'static str>,
}

impl Rules {
    /// What goes back of a message's reasoning: the field and its text, and the details. Text that another model wrote
    /// does not; of old journals it is taken to be the model's own.
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
                details = state.details.filter(|_| self.states == States::Keep).or(details);
            }
        }
        (field, text, details)
    }

    fn state(&self, reasoning: &Reasoning) -> Option<ReasoningState> {
        serde_json::from_str(self.origin.own(reasoning.state.as_ref())?).ok()
    }

    /// What goes back with a tool call, which is the first of its message or not, as JSON text.
    pub(super) fn extra_content(&self, call: &ToolCall, is_first: bool) -> Option<String> {
        let own = self.origin.own(call.state.as_ref()).filter(|_| self.states == States::Keep);
        let own = own.and_then(|data| serde_json::from_str::<CallState>(data).ok());
        if let Some(CallState { extra_content }) = own {
            return Some(extra_content.get().to_owned());
        }
        let namespace = self.signs.filter(|_| is_first)?;
        Some(format!(r#"{{"{namespace}":{{"thought_signature":"{NO_SIGNATURE}"}}}}"#))
    }
}

/// OpenRouter's details, put together from the pieces that are streamed.
#[derive(Debug, Default)]
pub(super) struct Details(Vec<Value>);

/// Fields of a detail that grow.
const GROWING: [&str; 4] = ["text", "summary", "data", "signature"];

impl Details {
    /// Adds a piece: to the detail of its index and type, where there is one.
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

    /// The whole list; `None` where there is nothing in it.
    pub(super) fn take(&mut self) -> Option<Box<RawValue>> {
        let details = std::mem::take(&mut self.0);
        if details.is_empty() { None } else { serde_json::value::to_raw_value(&details).ok() }
    }

    /// Whether there is nothing in it.
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
