//! Decodes the stream of Chat Completions, with the deviations of its many servers.

use std::borrow::Cow;

use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::Calls;
use super::chunk::{CallFragment, CallFunction, ChatChunk, ChatText, ReasoningField};
use super::state::{Details, ReasoningState, StoredCallState};
use crate::model::ModelError;
use crate::model::request::origin::Origin;
use crate::model::response::failure::short;
use crate::model::response::fields::read;
use crate::model::response::template::Template;
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;

/// State of one response's stream.
#[derive(Debug, Default)]
pub(in crate::model) struct ChatDecoder {
    origin: Origin,
    calls: Calls,
    /// Field of the reasoning that is still open.
    reasoning: Option<ReasoningField>,
    details: Details,
    /// The template of the last event with a single text.
    template: Template<ChatText>,
    /// Finish reason, sent at the end because token counts follow it, and with some servers more text.
    finish: Option<FinishReason>,
    refused: bool,
    /// True once the response has any content.
    has_content: bool,
    done: bool,
}

impl Decoder for ChatDecoder {
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() {
            return Ok(());
        }
        if data == "[DONE]" {
            if self.finish.is_none() && self.has_content {
                self.finish = Some(FinishReason::Stop);
            }
            return self.end(deltas);
        }
        if event.name == "error" {
            return Err(ModelError::of_event(data));
        }
        if let Some((kind, text)) = self.template.matches(data) {
            return self.handle_text(kind, text, deltas);
        }
        let chunk: ChatChunk<'_> = self.template.read(data).map_err(|e| ModelError::not_json(&e))?;
        if chunk.is_error {
            return Err(ModelError::of_event(data));
        }
        self.handle(chunk, deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the response does"));
        };
        if reason == FinishReason::ContextWindow && !self.has_content {
            return Err(ModelError::context_full());
        }
        self.calls.end(deltas);
        self.end_reasoning(deltas);
        let reason = match reason {
            FinishReason::Stop if self.refused => FinishReason::Refusal,
            FinishReason::Stop if !self.calls.is_empty() => FinishReason::ToolCalls,
            reason => reason,
        };
        deltas.push(Delta::Finish { reason });
        self.done = true;
        Ok(())
    }

    fn is_done(&self) -> bool {
        self.done
    }

    /// Reads the document as one event whose delta is the complete message.
    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let choices = document["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let first = choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0);
        let choice =
            first.filter(|choice| choice["message"].is_object()).ok_or_else(ModelError::not_a_response)?;
        let reason = choice["finish_reason"].as_str().unwrap_or("stop");
        let choice = json!({ "delta": choice["message"], "finish_reason": reason });
        let chunk = json!({ "choices": [choice], "usage": document["usage"] }).to_string();
        self.handle(read(&chunk).map_err(|e| ModelError::not_json(&e))?, deltas)?;
        self.end(deltas)
    }
}

impl ChatDecoder {
    /// Creates the decoder of a response from this origin.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }

    /// Ends the open reasoning, with its state.
    fn end_reasoning(&mut self, deltas: &mut Vec<Delta>) {
        let details = self.details.take();
        let field = match (self.reasoning.take(), &details) {
            (Some(field), _) => field,
            (None, Some(_)) => ReasoningField::Plain,
            (None, None) => return,
        };
        let data = serde_json::to_string(&ReasoningState { field, details }).ok();
        deltas.push(Delta::reasoning_end(data.map(|data| self.origin.state(data))));
    }

    fn handle(&mut self, chunk: ChatChunk<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let ChatChunk { usage, mut delta, finish_reason, .. } = chunk;
        deltas.extend(usage.map(Delta::Usage));
        let before = deltas.len();
        let ends_reasoning = delta.content.is_some() || !delta.calls.is_empty();
        if let Some(piece) = delta.take_reasoning() {
            self.reasoning = Some(piece.field);
            deltas.push(Delta::Reasoning { text: piece.text.into_owned() });
        }
        delta.details.into_iter().try_for_each(|piece| self.details.add(piece))?;
        if ends_reasoning {
            self.end_plain_reasoning(deltas);
        }
        deltas.extend(delta.content.map(|text| Delta::Text { text: text.into_owned() }));
        self.refused |= delta.refusal.is_some();
        deltas.extend(delta.refusal.map(|text| Delta::Text { text: text.into_owned() }));
        delta.calls.into_iter().try_for_each(|fragment| self.call(fragment, deltas))?;
        self.has_content |= deltas.len() > before;
        if let Some(reason) = finish_reason {
            self.finish = Some(finish_reason_of(&reason));
        }
        Ok(())
    }

    /// Handles an event that has one text and nothing else, as [`Self::handle`] would.
    fn handle_text(
        &mut self,
        kind: ChatText,
        text: Cow<'_, str>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let before = deltas.len();
        match kind {
            ChatText::Content => {
                self.end_plain_reasoning(deltas);
                deltas.push(Delta::Text { text: text.into_owned() });
            }
            ChatText::Reasoning { field } => {
                self.reasoning = Some(field);
                deltas.push(Delta::Reasoning { text: text.into_owned() });
            }
            ChatText::Arguments { index } => {
                self.end_plain_reasoning(deltas);
                let function = CallFunction { arguments: text, ..CallFunction::default() };
                self.call(CallFragment { index, function, ..CallFragment::default() }, deltas)?;
            }
        }
        self.has_content |= deltas.len() > before;
        Ok(())
    }

    /// Ends the open reasoning if it has no details: these are only complete at the end of the response.
    fn end_plain_reasoning(&mut self, deltas: &mut Vec<Delta>) {
        if self.reasoning.is_some() && self.details.is_empty() {
            self.end_reasoning(deltas);
        }
    }

    fn call(&mut self, fragment: CallFragment<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let extra = fragment.extra.and_then(|extra| RawValue::from_string(extra.to_owned()).ok());
        let index = self.calls.add(fragment, deltas)?;
        if let Some(extra_content) = extra {
            let data = serde_json::to_string(&StoredCallState { extra_content }).ok();
            let state = data.map(|data| self.origin.state(data));
            self.calls.attach_state(index, state, deltas);
        }
        Ok(())
    }
}

fn finish_reason_of(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "end_turn" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" | "max_tokens" => FinishReason::Length,
        // Gateways to Anthropic and GLM send the first, Mistral the second.
        "model_context_window_exceeded" | "model_length" => FinishReason::ContextWindow,
        "content_filter" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(short(other)),
    }
}

#[cfg(test)]
mod tests;
