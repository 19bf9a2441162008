//! Decodes the stream of `generateContent`: each event has the next parts of the response, and the last
//! one its finish reason.
//!
//! Source: `GenerateContentResponse` under <https://ai.google.dev/api/generate-content>.

use agentloop_core::limits::CALLS_PER_MESSAGE_MAX;
use agentloop_core::message::{FinishReason, Usage};
use agentloop_core::model::delta::Delta;
use serde_json::Value;

use super::state::PartState;
use crate::model::ModelError;
use crate::model::request::origin::Origin;
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::response::fields::count_of;
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;

/// Arguments of a call that streams them in pieces, which a request has to switch on. They are no JSON, so that the
/// call is rejected to the model and does not run without its arguments.
const STREAMED_ARGUMENTS: &str = "(streamed in pieces, which are not read)";

/// State of one response's stream.
#[derive(Debug, Default)]
pub(in crate::model) struct GeminiDecoder {
    origin: Origin,
    calls: u32,
    /// True while the last call has further pieces.
    in_pieces: bool,
    /// True while a thought is open.
    is_thinking: bool,
    /// True while a text is open.
    is_speaking: bool,
    /// Finish reason, sent at the end of the stream because token counts may follow it.
    finish: Option<FinishReason>,
    done: bool,
}

impl Decoder for GeminiDecoder {
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let chunk: Value = serde_json::from_str(data).map_err(|e| ModelError::not_json(&e))?;
        self.handle(&chunk, deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the response does"));
        };
        self.end_thought(deltas);
        let reason = match reason {
            FinishReason::Stop | FinishReason::Other(_) if self.calls > 0 => FinishReason::ToolCalls,
            reason => reason,
        };
        deltas.push(Delta::Finish { reason });
        self.done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one response, or a list of the events that a stream would have sent.
    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let chunks = document.as_array().map_or(std::slice::from_ref(document), Vec::as_slice);
        let is_response = |chunk: &Value| {
            ["candidates", "promptFeedback", "error"].iter().any(|field| chunk.get(field).is_some())
        };
        if !chunks.iter().any(is_response) {
            return Err(ModelError::not_a_response());
        }
        chunks.iter().try_for_each(|chunk| self.handle(chunk, deltas))?;
        self.end(deltas)
    }
}

impl GeminiDecoder {
    /// Creates the decoder of a response from this origin.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }

    fn handle(&mut self, chunk: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let failed = |value: &Value| value.get("error").is_some_and(|error| !error.is_null());
        if failed(chunk) || chunk.get(0).is_some_and(failed) {
            return Err(ProviderFailure::from_value(None, chunk).into_error(None));
        }
        deltas.extend(usage(&chunk["usageMetadata"]).map(Delta::Usage));
        let candidates = chunk["candidates"].as_array().map(Vec::as_slice).unwrap_or_default();
        // The request is for one candidate. A server that sends more gives them an index.
        let candidate = candidates.iter().find(|candidate| candidate["index"].as_u64().unwrap_or(0) == 0);
        if let Some(candidate) = candidate {
            let parts = candidate["content"]["parts"].as_array().map(Vec::as_slice).unwrap_or_default();
            parts.iter().try_for_each(|part| self.part(part, deltas))?;
            if let Some(reason) = candidate["finishReason"].as_str() {
                self.finish = Some(finish_reason(reason, &candidate["finishMessage"])?);
            }
        } else if chunk["promptFeedback"]["blockReason"].is_string() {
            self.finish = Some(FinishReason::ContentFilter);
        }
        Ok(())
    }

    fn part(&mut self, part: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let signature = part["thoughtSignature"].as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let state = PartState { thought_signature: signature, id: None };
        let text = part["text"].as_str();
        if part["functionCall"].is_object() {
            self.end_thought(deltas);
            return self.call(&part["functionCall"], state, deltas);
        }
        if part["thought"] == true {
            self.thought(text.unwrap_or_default(), &state, deltas);
            return Ok(());
        }
        self.end_thought(deltas);
        match text {
            // A signature without a text arrives at the end of a stream.
            Some("") if state.thought_signature.is_none() => {}
            Some("") => self.opaque(part, deltas),
            Some(text) => self.text(text, &state, deltas),
            None if part.as_object().is_some_and(|part| !part.is_empty()) => self.opaque(part, deltas),
            None => {}
        }
        Ok(())
    }

    fn thought(&mut self, text: &str, state: &PartState, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.is_thinking = true;
            deltas.push(Delta::Reasoning { text: text.to_owned() });
        }
        if let Some(state) = state.to_provider_state(&self.origin) {
            self.is_thinking = false;
            deltas.push(Delta::reasoning_end(Some(state)));
        }
    }

    fn end_thought(&mut self, deltas: &mut Vec<Delta>) {
        if std::mem::take(&mut self.is_thinking) {
            deltas.push(Delta::reasoning_end(None));
        }
    }

    /// Adds text. A text with a signature is a separate part.
    fn text(&mut self, text: &str, state: &PartState, deltas: &mut Vec<Delta>) {
        let text = Delta::Text { text: text.to_owned() };
        match state.to_provider_state(&self.origin) {
            None => {
                self.is_speaking = true;
                deltas.push(text);
            }
            Some(state) => {
                if std::mem::take(&mut self.is_speaking) {
                    deltas.push(Delta::TextEnd { state: None });
                }
                deltas.extend([text, Delta::TextEnd { state: Some(state) }]);
            }
        }
    }

    fn opaque(&mut self, part: &Value, deltas: &mut Vec<Delta>) {
        self.is_speaking = false;
        deltas.push(Delta::Opaque(self.origin.state(part.to_string())));
    }

    fn call(&mut self, call: &Value, state: PartState, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let name = call["name"].as_str().unwrap_or_default().to_owned();
        let continues = call["willContinue"] == true;
        let is_piece = continues || call["partialArgs"].is_array();
        if std::mem::replace(&mut self.in_pieces, continues) && name.is_empty() {
            return Ok(());
        }
        if self.calls as usize >= CALLS_PER_MESSAGE_MAX {
            return Err(ModelError::too_many(CALLS_PER_MESSAGE_MAX, "tool calls"));
        }
        let index = self.calls;
        self.calls += 1;
        self.is_speaking = false;
        let id = call["id"].as_str().filter(|id| !id.is_empty()).map(str::to_owned);
        deltas.push(Delta::ToolCallStart { index, provider_id: id.clone(), name });
        let fragment = match &call["args"] {
            _ if is_piece => STREAMED_ARGUMENTS.to_owned(),
            Value::Null => "{}".to_owned(),
            args => args.to_string(),
        };
        deltas.push(Delta::ToolCallArguments { index, fragment });
        let state = PartState { id, ..state }.to_provider_state(&self.origin);
        deltas.extend(state.map(|state| Delta::ToolCallState { index, state }));
        Ok(())
    }
}

/// Reads token counts. The API counts thoughts beside the response, not as part of it.
fn usage(usage: &Value) -> Option<Usage> {
    let count = |name: &str| count_of(&usage[name]).unwrap_or(0);
    usage.is_object().then(|| Usage {
        input_tokens: count("promptTokenCount").saturating_add(count("toolUsePromptTokenCount")),
        output_tokens: count("candidatesTokenCount").saturating_add(count("thoughtsTokenCount")),
        cached_input_tokens: count("cachedContentTokenCount"),
        cache_write_tokens: 0,
        reasoning_tokens: count("thoughtsTokenCount"),
        cost_micros: 0,
        unpriced_calls: 0,
    })
}

/// Maps a finish reason.
///
/// # Errors
/// If the model failed, so that repeating the request may help.
fn finish_reason(reason: &str, message: &Value) -> Result<FinishReason, ModelError> {
    let failed = || {
        let why = message.as_str().map(|why| format!(": {}", short(why))).unwrap_or_default();
        ModelError::malformed(format!("the response ends with {reason}{why}"))
    };
    Ok(match reason {
        "STOP" => FinishReason::Stop,
        "MAX_TOKENS" | "CONTINUATION" => FinishReason::Length,
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "MODEL_ARMOR"
        | "ESCALATION" => FinishReason::ContentFilter,
        image if image.starts_with("IMAGE_") => FinishReason::ContentFilter,
        "MALFORMED_FUNCTION_CALL"
        | "UNEXPECTED_TOOL_CALL"
        | "TOO_MANY_TOOL_CALLS"
        | "MALFORMED_RESPONSE"
        | "LANGUAGE"
        | "OTHER"
        | "NO_IMAGE" => return Err(failed()),
        "MISSING_THOUGHT_SIGNATURE" => {
            return Err(ModelError::bad_request("the response ends for want of a thought_signature"));
        }
        other => FinishReason::Other(short(other)),
    })
}

#[cfg(test)]
mod tests;
