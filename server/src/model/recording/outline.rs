//! The parts of a request that a recording must match: everything that the model reads, and nothing that
//! differs between two runs with the same content.
//!
//! Not compared are timeouts, the parts of a tool that only the server and its hosts read, and the parts that only the
//! provider reads, such as signatures and hidden reasoning. Ids of tool calls may differ, but each result must belong to
//! the same call. JSON schemas are compared as values, without spacing and order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::message::{Message, Part, Role};
use agentloop_core::tool::{Digest, ToolDeclaration};
use serde_json::{Value, json};

use super::format::RecordedRequest;

/// Characters shown before and after the place where two texts differ.
const SHOWN_BEFORE: usize = 24;
const SHOWN_AFTER: usize = 72;

/// Texts that several outlines share, each stored once.
#[derive(Debug, Default)]
pub(super) struct SharedTexts(BTreeSet<Arc<str>>);

/// The comparable parts of a request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// Parts that occur once in a request, each with its name for messages.
    fixed: [(&'static str, Arc<str>); 4],
    messages: Vec<(Role, Arc<str>)>,
}

impl Outline {
    /// Builds the outline of a request.
    pub(super) fn of(requested: &RecordedRequest, texts: &mut SharedTexts) -> Self {
        let tools: Vec<Value> = requested.tools.iter().map(|tool| tool_json(tool)).collect();
        let options = serde_json::to_string(&requested.options).expect("plain data serialises");
        let fixed = [
            ("the model", texts.shared(requested.model.clone())),
            ("the system prompt", texts.shared(requested.system_prompt.clone())),
            ("the list of tools", texts.shared(Value::Array(tools).to_string())),
            ("the options", texts.shared(options)),
        ];
        let mut calls = CallNumbers::default();
        let encode = |message: &Arc<Message>| (message.role, texts.shared(calls.encode(message).to_string()));
        Self { messages: requested.messages.iter().map(encode).collect(), fixed }
    }

    /// Returns a digest that is equal for requests with equal outlines.
    pub(super) fn digest(&self) -> Digest {
        let fixed = self.fixed.iter().map(|(_, text)| text.as_bytes());
        let messages = self.messages.iter().map(|(_, text)| text.as_bytes());
        Digest::of(&fixed.chain(messages).collect::<Vec<_>>())
    }

    /// Rates the similarity to another outline, for comparison: equal messages at the beginning count most.
    pub(super) fn likeness(&self, other: &Self) -> (usize, usize, std::cmp::Reverse<usize>) {
        let messages = self.messages.iter().zip(&other.messages).take_while(|(a, b)| a == b).count();
        let fixed = self.fixed.iter().zip(&other.fixed).filter(|(a, b)| a == b).count();
        (messages, fixed, std::cmp::Reverse(self.messages.len().abs_diff(other.messages.len())))
    }

    /// Describes the first difference between this recorded request and another one; `None` if there is none.
    pub(super) fn difference(&self, requested: &Self) -> Option<String> {
        for ((name, recorded), (_, requested)) in self.fixed.iter().zip(&requested.fixed) {
            if recorded != requested {
                return Some(format!("{name} differs: {}", excerpts(recorded, requested)));
            }
        }
        for (number, ((_, recorded), (role, requested))) in
            self.messages.iter().zip(&requested.messages).enumerate()
        {
            if recorded != requested {
                let number = number + 1;
                return Some(format!(
                    "message {number} ({role:?}) differs: {}",
                    excerpts(recorded, requested)
                ));
            }
        }
        let (recorded, requested) = (self.messages.len(), requested.messages.len());
        (recorded != requested).then(|| {
            format!(
                "the conversation has {recorded} messages there and {requested} here, the same as far as both go"
            )
        })
    }
}

impl SharedTexts {
    fn shared(&mut self, text: String) -> Arc<str> {
        if let Some(kept) = self.0.get(text.as_str()) {
            return Arc::clone(kept);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }
}

/// Returns the parts of a tool that a model sees.
fn tool_json(tool: &ToolDeclaration) -> Value {
    let schema = serde_json::from_str(&tool.input_schema).unwrap_or_else(|_| json!(tool.input_schema));
    json!({ "name": tool.name, "description": tool.description, "schema": schema })
}

/// Numbers tool calls by their order in the conversation.
#[derive(Default)]
struct CallNumbers {
    count: usize,
    latest: BTreeMap<String, usize>,
}

impl CallNumbers {
    fn encode(&mut self, message: &Message) -> Value {
        let parts: Vec<Value> = message.parts.iter().filter_map(|part| self.part(part)).collect();
        json!({ "role": message.role, "parts": parts })
    }

    /// Encodes a part; `None` for a part that may differ or be missing in a recording.
    fn part(&mut self, part: &Part) -> Option<Value> {
        Some(match part {
            Part::Opaque(_) => return None,
            Part::Text { text, state: Some(_) } if text.is_empty() => return None,
            Part::Text { text, .. } => json!({ "text": text }),
            Part::Reasoning(reasoning) => json!({ "reasoning": reasoning.text }),
            Part::Image { image } => json!({ "image": image }),
            Part::ToolCall(call) => {
                self.count += 1;
                self.latest.insert(call.provider_id.clone(), self.count);
                json!({ "call": self.count, "tool": call.name, "arguments": call.arguments })
            }
            Part::ToolResult(result) => json!({
                "result_of": self.latest.get(&result.provider_id),
                "status": result.status,
                "output": result.output,
                "images": result.images,
            }),
        })
    }
}

/// Shows both texts around the place where they begin to differ.
fn excerpts(recorded: &str, requested: &str) -> String {
    let same = recorded.chars().zip(requested.chars()).take_while(|(a, b)| a == b).count();
    let shown = |text: &str| {
        let from = same.saturating_sub(SHOWN_BEFORE);
        text.chars().skip(from).take(SHOWN_BEFORE + SHOWN_AFTER).collect::<String>()
    };
    format!("{:?} there, {:?} here", shown(recorded), shown(requested))
}
