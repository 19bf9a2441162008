//! What of a request counts when a recording of it is looked for: all that the model reads and is asked for, and
//! nothing that differs between two runs that say the same.
//!
//! Not compared are timeouts; what of a tool only the server and its hosts read; the ids of tool calls, of which
//! counts only which result belongs to which call; and what only the provider reads: signatures, hidden reasoning. A JSON schema
//! counts as what it says, however it is spaced and ordered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use agentloop_core::message::{Message, Part, Role};
use agentloop_core::tool::{Digest, ToolDeclaration};
use serde_json::{Value, json};

use super::line::Asked;

/// Characters of a text that are shown around the place where it differs from another.
const SHOWN_BEFORE: usize = 24;
const SHOWN_AFTER: usize = 72;

/// Texts that many outlines share, each kept once.
#[derive(Debug, Default)]
pub(super) struct Texts(BTreeSet<Arc<str>>);

/// A request in comparable pieces.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// What stands once in a request, with a name for each.
    fixed: [(&'static str, Arc<str>); 4],
    messages: Vec<(Role, Arc<str>)>,
}

impl Outline {
    /// Of a request.
    pub(super) fn of(asked: &Asked, texts: &mut Texts) -> Self {
        let tools: Vec<Value> = asked.tools.iter().map(|tool| tool_text(tool)).collect();
        let options = serde_json::to_string(&asked.options).expect("plain data serialises");
        let fixed = [
            ("the model", texts.one(asked.model.clone())),
            ("the system prompt", texts.one(asked.system_prompt.clone())),
            ("the list of tools", texts.one(Value::Array(tools).to_string())),
            ("the options", texts.one(options)),
        ];
        let mut calls = Calls::default();
        let told = |message: &Arc<Message>| (message.role, texts.one(calls.told(message).to_string()));
        Self { messages: asked.messages.iter().map(told).collect(), fixed }
    }

    /// Equal for requests that count as the same.
    pub(super) fn digest(&self) -> Digest {
        let fixed = self.fixed.iter().map(|(_, text)| text.as_bytes());
        let messages = self.messages.iter().map(|(_, text)| text.as_bytes());
        Digest::of(&fixed.chain(messages).collect::<Vec<_>>())
    }

    /// How much of this is in another, to be compared: messages from the beginning count most.
    pub(super) fn likeness(&self, other: &Self) -> (usize, usize, std::cmp::Reverse<usize>) {
        let messages = self.messages.iter().zip(&other.messages).take_while(|(a, b)| a == b).count();
        let fixed = self.fixed.iter().zip(&other.fixed).filter(|(a, b)| a == b).count();
        (messages, fixed, std::cmp::Reverse(self.messages.len().abs_diff(other.messages.len())))
    }

    /// Where a request first differs from this recorded one, in words; `None` where it does not.
    pub(super) fn difference(&self, asked: &Self) -> Option<String> {
        for ((name, recorded), (_, asked)) in self.fixed.iter().zip(&asked.fixed) {
            if recorded != asked {
                return Some(format!("{name} differs: {}", both(recorded, asked)));
            }
        }
        for (number, ((_, recorded), (role, asked))) in self.messages.iter().zip(&asked.messages).enumerate()
        {
            if recorded != asked {
                let number = number + 1;
                return Some(format!("message {number} ({role:?}) differs: {}", both(recorded, asked)));
            }
        }
        let (recorded, asked) = (self.messages.len(), asked.messages.len());
        (recorded != asked).then(|| {
            format!(
                "the conversation has {recorded} messages there and {asked} here, the same as far as both go"
            )
        })
    }
}

impl Texts {
    fn one(&mut self, text: String) -> Arc<str> {
        if let Some(kept) = self.0.get(text.as_str()) {
            return Arc::clone(kept);
        }
        let text: Arc<str> = text.into();
        self.0.insert(Arc::clone(&text));
        text
    }
}

/// What a model is shown of a tool.
fn tool_text(tool: &ToolDeclaration) -> Value {
    let schema = serde_json::from_str(&tool.input_schema).unwrap_or_else(|_| json!(tool.input_schema));
    json!({ "name": tool.name, "description": tool.description, "schema": schema })
}

/// Tool calls by their place in the conversation.
#[derive(Default)]
struct Calls {
    count: usize,
    latest: BTreeMap<String, usize>,
}

impl Calls {
    fn told(&mut self, message: &Message) -> Value {
        let parts: Vec<Value> = message.parts.iter().filter_map(|part| self.part(part)).collect();
        json!({ "role": message.role, "parts": parts })
    }

    /// `None` for what a recording may have otherwise, or not at all.
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

/// Two texts from shortly before the place where they part.
fn both(recorded: &str, asked: &str) -> String {
    let same = recorded.chars().zip(asked.chars()).take_while(|(a, b)| a == b).count();
    let shown = |text: &str| {
        let from = same.saturating_sub(SHOWN_BEFORE);
        text.chars().skip(from).take(SHOWN_BEFORE + SHOWN_AFTER).collect::<String>()
    };
    format!("{:?} there, {:?} here", shown(recorded), shown(asked))
}
