//! The stream of Chat Completions, as its many speakers really send it.

use agentloop_core::delta::Delta;
use agentloop_core::message::FinishReason;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::calls::Calls;
use super::chunk::{ReasoningField, Said, Single};
use super::state::{CallState, Details, ReasoningState};
use crate::model::ModelError;
use crate::model::request::origin::Origin;
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::response::template::Template;
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;

/// Where the stream of one answer stands.
#[derive(Debug, Default)]
pub(in crate::model) struct ChatDecoder {
    origin: Origin,
    calls: Calls,
    /// The field of reasoning that still waits for its end.
    reasoning: Option<ReasoningField>,
    details: Details,
    /// Of the last event that said one thing.
    last: Template<Single>,
    /// Held back to the end, since token counts and, with some servers, more text follow it.
    finish: Option<FinishReason>,
    refused: bool,
    /// Whether the answer has anything in it.
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
        let fast = if event.name == "error" { None } else { self.last.fast(data) };
        if let Some(said) = fast {
            return self.handle(said, deltas);
        }
        let chunk: Value = serde_json::from_str(data)
            .map_err(|e| ModelError::malformed(format!("an event of the stream is not JSON: {e}")))?;
        if event.name == "error" || chunk.get("error").is_some_and(|error| !error.is_null()) {
            return Err(ProviderFailure::from_value(None, &chunk).into_error(None));
        }
        self.handle(Said::lenient(&chunk), deltas)
    }

    fn end(&mut self, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Some(reason) = self.finish.take() else {
            return Err(ModelError::malformed("the stream ends before the answer does"));
        };
        if reason == FinishReason::ContextWindow && !self.has_content {
            return Err(ModelError::no_room());
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

    /// As one event that has the whole message for its delta.
    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let choices = document["choices"].as_array().map(Vec::as_slice).unwrap_or_default();
        let first = choices.iter().find(|choice| choice["index"].as_u64().unwrap_or(0) == 0);
        let choice =
            first.filter(|choice| choice["message"].is_object()).ok_or_else(ModelError::no_answer)?;
        let reason = choice["finish_reason"].as_str().unwrap_or("stop");
        let choice = json!({ "delta": choice["message"], "finish_reason": reason });
        let chunk = json!({ "choices": [choice], "usage": document["usage"] });
        self.handle(Said::lenient(&chunk), deltas)?;
        self.end(deltas)
    }
}

impl ChatDecoder {
    /// Of an answer of this origin.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }

    /// What was thought so far is complete.
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

    fn handle(&mut self, said: Said<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        deltas.extend(said.usage.map(Delta::Usage));
        let before = deltas.len();
        let goes_on = said.content.is_some() || !said.calls.is_empty();
        if let Some(thought) = said.reasoning {
            self.reasoning = Some(thought.field);
            deltas.push(Delta::Reasoning { text: thought.text.into_owned() });
        }
        said.details.into_iter().for_each(|piece| self.details.add(piece));
        // Details are only whole at the end of the answer.
        if goes_on && self.details.is_empty() {
            self.end_reasoning(deltas);
        }
        deltas.extend(said.content.map(|text| Delta::Text { text: text.into_owned() }));
        self.refused |= said.refusal.is_some();
        deltas.extend(said.refusal.map(|text| Delta::Text { text: text.into_owned() }));
        for mut fragment in said.calls {
            let extra = fragment.extra.take();
            let index = self.calls.add(fragment, deltas)?;
            if let Some(extra) = extra.and_then(|extra| RawValue::from_string(extra).ok()) {
                let data = serde_json::to_string(&CallState { extra_content: extra }).ok();
                let state = data.map(|data| self.origin.state(data));
                self.calls.attach_state(index, state, deltas);
            }
        }
        self.has_content |= deltas.len() > before;
        if let Some(reason) = said.finish_reason {
            self.finish = Some(finish_reason(&reason));
        }
        Ok(())
    }
}

fn finish_reason(reason: &str) -> FinishReason {
    match reason {
        "stop" | "eos" | "end_turn" => FinishReason::Stop,
        "tool_calls" | "function_call" => FinishReason::ToolCalls,
        "length" | "max_tokens" => FinishReason::Length,
        // Of gateways to Anthropic and of GLM; of Mistral.
        "model_context_window_exceeded" | "model_length" => FinishReason::ContextWindow,
        "content_filter" => FinishReason::ContentFilter,
        "refusal" => FinishReason::Refusal,
        other => FinishReason::Other(short(other)),
    }
}

#[cfg(test)]
mod tests;
