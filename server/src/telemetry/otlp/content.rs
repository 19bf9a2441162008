//! What was said, in the form that the conventions give it. Only where the operator wants it sent.

use agentloop_core::message::{FinishReason, Message, Part, Role};
use serde_json::{Value, json};

/// One message; `finish` where a model wrote it.
pub(super) fn message(message: &Message, finish: Option<&FinishReason>) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let parts: Vec<Value> = message.parts.iter().filter_map(part).collect();
    match finish {
        Some(finish) => json!({ "role": role, "parts": parts, "finish_reason": finish_reason(finish) }),
        None => json!({ "role": role, "parts": parts }),
    }
}

/// `None` for what is only between the model's provider and us.
fn part(part: &Part) -> Option<Value> {
    Some(match part {
        Part::Opaque(_) => return None,
        Part::Text { text, .. } => json!({ "type": "text", "content": text }),
        Part::Reasoning(reasoning) => json!({ "type": "reasoning", "content": reasoning.text }),
        // Pictures are too large to be told of.
        Part::Image { .. } => json!({ "type": "image" }),
        Part::ToolCall(call) => {
            json!({ "type": "tool_call", "id": call.provider_id, "name": call.name, "arguments": call.arguments })
        }
        Part::ToolResult(result) => {
            json!({ "type": "tool_call_response", "id": result.provider_id, "response": result.output })
        }
    })
}

/// As the conventions call it.
pub(super) fn finish_reason(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length | FinishReason::ContextWindow => "length",
        FinishReason::ContentFilter | FinishReason::Refusal => "content_filter",
        FinishReason::Other(_) => "other",
    }
}
