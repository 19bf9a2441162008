//! Messages as JSON, in the form of OpenTelemetry's conventions for generative AI. Used only if the operator turns on
//! `telemetry.capture_content`.

use agentloop_core::message::{FinishReason, Message, Part, Role};
use serde_json::{Value, json};

use crate::mask::Masks;

/// Converts a message. `finish` is set for messages of a model.
pub(super) fn message(message: &Message, finish: Option<&FinishReason>, masks: &Masks) -> Value {
    let role = match message.role {
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::Tool => "tool",
    };
    let parts: Vec<Value> = message.parts.iter().filter_map(|one| part(one, masks)).collect();
    match finish {
        Some(finish) => json!({ "role": role, "parts": parts, "finish_reason": finish_reason(finish) }),
        None => json!({ "role": role, "parts": parts }),
    }
}

/// Converts a part; `None` for a provider's own state.
fn part(part: &Part, masks: &Masks) -> Option<Value> {
    Some(match part {
        Part::Opaque(_) => return None,
        Part::Text { text, .. } => json!({ "type": "text", "content": text }),
        Part::Reasoning(reasoning) => json!({ "type": "reasoning", "content": reasoning.text }),
        // The data of images is left out, because it is too large for a span.
        Part::Image { .. } => json!({ "type": "image" }),
        Part::ToolCall(call) => {
            let arguments = masks.mask(&call.name, &call.arguments);
            let arguments = arguments.as_deref().unwrap_or(&call.arguments);
            json!({ "type": "tool_call", "id": call.provider_id, "name": call.name, "arguments": arguments })
        }
        Part::ToolResult(result) => {
            let text = result.text_for_model();
            let shown = masks.mask_result(&result.name, &text);
            let response = shown.as_deref().unwrap_or(&text);
            json!({ "type": "tool_call_response", "id": result.provider_id, "response": response })
        }
    })
}

/// The conventions' name of a finish reason.
pub(super) fn finish_reason(reason: &FinishReason) -> &str {
    match reason {
        FinishReason::Stop => "stop",
        FinishReason::ToolCalls => "tool_call",
        FinishReason::Length | FinishReason::ContextWindow => "length",
        FinishReason::ContentFilter | FinishReason::Refusal => "content_filter",
        FinishReason::CutOff | FinishReason::Other(_) => "other",
    }
}
