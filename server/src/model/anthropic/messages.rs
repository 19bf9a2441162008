//! The conversation in the terms of Messages: turns that alternate, made of blocks.

use agentloop_core::message::{Image, Message, Part, Reasoning, Role, ToolCall, ToolResult};
use serde_json::{Value, json};

use crate::model::ModelRequest;
use crate::model::wire::{CallIds, arguments_object, tool_name};

const CALL_ID_BYTES_MAX: usize = 64;
/// Opens a conversation whose beginning was compacted away in the middle of a turn: the first word is the user's.
const OPENING: &str = "(The conversation goes on from here.)";

/// What becomes of the model's earlier thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thoughts {
    /// Signed ones go back unchanged and in their place.
    Keep,
    /// None goes back.
    Drop,
}

/// A history in blocks.
#[derive(Debug)]
pub(super) struct Conversation {
    /// What the operator says, before everything else.
    pub(super) system: Vec<Value>,
    turns: Vec<Turn>,
    ids: CallIds,
    thoughts: Thoughts,
}

#[derive(Debug)]
struct Turn {
    role: &'static str,
    /// Tool results, which must stand before everything else in their turn.
    results: Vec<Value>,
    blocks: Vec<Value>,
}

impl Turn {
    /// Thoughts cannot be marked.
    fn last_markable(&mut self) -> Option<&mut Value> {
        let is_thought =
            |block: &Value| matches!(block["type"].as_str(), Some("thinking" | "redacted_thinking"));
        self.results.iter_mut().chain(&mut self.blocks).rev().find(|block| !is_thought(block))
    }
}

fn mark(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

impl Conversation {
    /// Reads the history of a request.
    pub(super) fn read(request: &ModelRequest, thoughts: Thoughts) -> Self {
        let mut conversation =
            Self { system: Vec::new(), turns: Vec::new(), ids: CallIds::plain(CALL_ID_BYTES_MAX), thoughts };
        conversation.system.extend(text_block(&request.system_prompt));
        for message in &request.messages {
            conversation.add(message);
        }
        if conversation.turns.first().is_some_and(|turn| turn.role == "assistant") {
            let blocks = text_block(OPENING).into_iter().collect();
            conversation.turns.insert(0, Turn { role: "user", results: Vec::new(), blocks });
        }
        conversation
    }

    /// Sets the mark after the system prompt, up to which the provider keeps the prompt for all conversations.
    pub(super) fn mark_system(&mut self) {
        if let Some(block) = self.system.last_mut() {
            mark(block);
        }
    }

    /// Sets two marks: at the end, for the request that comes next, and where the request before this one ended, since
    /// its prompt is kept up to there. The provider looks for what it keeps only some twenty blocks before a mark, and
    /// a single round of parallel calls can have more.
    pub(super) fn mark_ends(&mut self) {
        let answer = self.turns.iter().rposition(|turn| turn.role == "assistant");
        let (before, last) = self.turns.split_at_mut(answer.unwrap_or(0));
        for turns in [before, last] {
            if let Some(block) = turns.iter_mut().rev().find_map(Turn::last_markable) {
                mark(block);
            }
        }
    }

    /// The messages to send.
    pub(super) fn into_messages(self) -> Vec<Value> {
        let message = |turn: Turn| {
            let content = turn.results.into_iter().chain(turn.blocks).collect();
            let mut message = json!({ "role": turn.role });
            // Moved in: a long conversation is not copied once more.
            message["content"] = Value::Array(content);
            message
        };
        self.turns.into_iter().map(message).collect()
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            // Moving a late one to the front would change a prompt that the provider has cached.
            Role::System if self.turns.is_empty() => self.system.extend(text_block(&message.plain_text())),
            Role::System => {
                let text = message.plain_text();
                self.block("user", text_block(&format!("<system>\n{text}\n</system>")));
            }
            Role::User | Role::Assistant | Role::Tool => {
                for part in &message.parts {
                    self.part(message.role, part);
                }
            }
        }
    }

    fn part(&mut self, role: Role, part: &Part) {
        let speaker = if role == Role::Assistant { "assistant" } else { "user" };
        match part {
            Part::Text { text } => self.block(speaker, text_block(text)),
            Part::Image { image } => self.block(speaker, Some(image_block(image))),
            Part::Reasoning(reasoning) => self.block(speaker, thought_block(reasoning, self.thoughts)),
            Part::ToolCall(call) => {
                let block = call_block(call, self.ids.call(&call.provider_id));
                self.block(speaker, Some(block));
            }
            Part::ToolResult(result) => {
                let block = result_block(result, self.ids.result(&result.provider_id));
                self.turn("user").results.push(block);
            }
        }
    }

    fn block(&mut self, role: &'static str, block: Option<Value>) {
        if let Some(block) = block {
            self.turn(role).blocks.push(block);
        }
    }

    /// The last turn if it is this role's, else a new one.
    fn turn(&mut self, role: &'static str) -> &mut Turn {
        if self.turns.last().is_none_or(|turn| turn.role != role) {
            self.turns.push(Turn { role, results: Vec::new(), blocks: Vec::new() });
        }
        self.turns.last_mut().expect("pushed just above")
    }
}

/// Nothing for blank text, which the API refuses.
fn text_block(text: &str) -> Option<Value> {
    (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
}

fn image_block(image: &Image) -> Value {
    let source = match image {
        Image::Url { url } => json!({ "type": "url", "url": url }),
        Image::Inline { media_type, base64 } => {
            json!({ "type": "base64", "media_type": media_type, "data": base64 })
        }
    };
    json!({ "type": "image", "source": source })
}

/// Nothing for thoughts that are not signed, which were never the API's own.
fn thought_block(reasoning: &Reasoning, thoughts: Thoughts) -> Option<Value> {
    match (thoughts, &reasoning.redacted, &reasoning.signature) {
        (Thoughts::Keep, Some(data), _) => Some(json!({ "type": "redacted_thinking", "data": data })),
        (Thoughts::Keep, None, Some(signature)) => {
            Some(json!({ "type": "thinking", "thinking": reasoning.text, "signature": signature }))
        }
        (Thoughts::Keep, None, None) | (Thoughts::Drop, _, _) => None,
    }
}

fn call_block(call: &ToolCall, id: String) -> Value {
    json!({
        "type": "tool_use",
        "id": id,
        "name": tool_name(&call.name),
        "input": arguments_object(&call.arguments),
    })
}

fn result_block(result: &ToolResult, id: String) -> Value {
    let mut block = json!({ "type": "tool_result", "tool_use_id": id });
    let text = text_block(&result.output);
    if !result.images.is_empty() {
        block["content"] = text.into_iter().chain(result.images.iter().map(image_block)).collect();
    } else if text.is_some() {
        block["content"] = json!(result.output);
    }
    if result.status.is_error() {
        block["is_error"] = json!(true);
    }
    block
}
