//! Decodes the stream of the Responses API: items one after the other, each in pieces and then complete.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses-streaming>. Compatible servers omit
//! events, indices or pieces. Text that did not arrive in pieces is taken from the complete item, and items
//! that did not arrive are taken from the complete response at its end.

use agentloop_core::context::assemble::CUT_OFF_ARGUMENTS;
use agentloop_core::limits::CALLS_PER_MESSAGE_MAX;
use agentloop_core::message::FinishReason;
use agentloop_core::model::delta::Delta;
use agentloop_core::tool::Digest;
use serde_json::Value;

use super::event::{
    ItemRef, PARAGRAPH_BREAK, ResponseEvent, call_arguments, message_text, reasoning_text, refuses, usage,
};
use super::state::{ItemState, call_digest, is_encrypted, reasoning_digest, text_digest};
use crate::model::ModelError;
use crate::model::request::history::arguments_text;
use crate::model::request::origin::Origin;
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;

/// Maximum number of items in one response. Each call is one, and each may have reasoning before it.
const ITEMS_MAX: usize = 4 * CALLS_PER_MESSAGE_MAX;

/// State of one response's stream.
#[derive(Debug, Default)]
pub(in crate::model) struct ResponsesDecoder {
    origin: Origin,
    items: Vec<OpenItem>,
    calls: u32,
    /// Digest of the complete reasoning items since the last other item.
    reasoning: Option<Digest>,
    refused: bool,
    /// True once the response has any content.
    has_content: bool,
    done: bool,
}

/// An item of the response that has begun.
#[derive(Debug)]
struct OpenItem {
    index: Option<u64>,
    id: Option<String>,
    kind: ItemKind,
    is_complete: bool,
    /// True for a call that is incomplete.
    is_cut: bool,
}

#[derive(Debug)]
enum ItemKind {
    Message(MessageItem),
    /// Reasoning, with the text that was sent as deltas and the part of the last piece.
    Reasoning {
        shown: String,
        part: Option<u64>,
    },
    Call(CallItem),
    /// An item that only the provider understands.
    Other,
}

/// A message, with the text that was sent as deltas.
#[derive(Debug, Default)]
struct MessageItem {
    shown: String,
    /// The part of the last piece, and where it begins in the text.
    part: Option<u64>,
    part_begin: usize,
}

#[derive(Debug, Default)]
struct CallItem {
    /// Number of the call in deltas; `None` until its name is known.
    number: Option<u32>,
    id: String,
    name: String,
    arguments: String,
}

impl Decoder for ResponsesDecoder {
    fn event(&mut self, event: &SseEvent<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let data = event.data.trim();
        if data.is_empty() || data == "[DONE]" {
            return Ok(());
        }
        let value: Value = serde_json::from_str(data).map_err(|e| ModelError::not_json(&e))?;
        let before = deltas.len();
        let taken = self.handle(&event.name, &ResponseEvent { value: &value, text: data }, deltas);
        self.has_content |= deltas.len() > before;
        taken
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ModelError> {
        Err(ModelError::malformed("the stream ends before the response does"))
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if !document["output"].is_array() {
            return Err(ModelError::not_a_response());
        }
        let before = deltas.len();
        let kind = match document["status"].as_str() {
            Some("incomplete") => "response.incomplete",
            Some("failed" | "cancelled") => "response.failed",
            _ => "response.completed",
        };
        let ended = self.finish(kind, document, deltas);
        self.has_content |= deltas.len() > before;
        ended
    }
}

impl ResponsesDecoder {
    /// Creates the decoder of a response from this origin.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }

    fn handle(
        &mut self,
        name: &str,
        event: &ResponseEvent<'_>,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        let (kind, item_ref) = (event.kind(), event.item_ref());
        let kind = if kind.is_empty() { name } else { kind };
        let piece = event.text_of("delta");
        match kind {
            "error" => self.failed(event.value, deltas)?,
            "response.output_item.added" => {
                self.added(item_ref, &event.value["item"], deltas)?;
            }
            "response.output_item.done" => {
                let item = self.added(item_ref, &event.value["item"], deltas)?;
                self.complete(item, &event.value["item"], || event.item_text(), deltas)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.refused |= kind == "response.refusal.delta";
                let item = self.item(item_ref, || ItemKind::Message(MessageItem::default()))?;
                self.text(item, event.part(), piece, deltas);
            }
            "response.output_text.done" | "response.refusal.done" => {
                self.refused |= kind == "response.refusal.done";
                let item = self.item(item_ref, || ItemKind::Message(MessageItem::default()))?;
                let field = if kind == "response.refusal.done" { "refusal" } else { "text" };
                self.whole_part(item, event.part(), event.text_of(field), deltas);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let item =
                    self.item(item_ref, || ItemKind::Reasoning { shown: String::new(), part: None })?;
                self.thought(item, event.part(), piece, deltas);
            }
            "response.function_call_arguments.delta" => {
                let item = self.item(item_ref, || ItemKind::Call(CallItem::default()))?;
                self.arguments(item, piece, deltas);
            }
            "response.function_call_arguments.done" => {
                let item = self.item(item_ref, || ItemKind::Call(CallItem::default()))?;
                self.whole_arguments(item, event.value, deltas);
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.finish(kind, &event.value["response"], deltas)?;
            }
            // A gateway's error in the stream has no event type of the protocol.
            _ if event.value.get("error").is_some_and(|error| !error.is_null()) => {
                self.failed(event.value, deltas)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the index of the referenced item, which begins now if it is new. Without a reference it is the
    /// last incomplete item of the same kind.
    fn item(&mut self, item_ref: ItemRef<'_>, begin: impl FnOnce() -> ItemKind) -> Result<usize, ModelError> {
        let begun = begin();
        let is_it = |item: &OpenItem| match (item_ref.index, item.index, item_ref.id, item.id.as_deref()) {
            (Some(asked), Some(index), _, _) => asked == index,
            (_, _, Some(asked), Some(id)) => asked == id,
            _ => !item.is_complete && std::mem::discriminant(&item.kind) == std::mem::discriminant(&begun),
        };
        if let Some(at) = self.items.iter().rposition(is_it) {
            return Ok(at);
        }
        if self.items.len() >= ITEMS_MAX {
            return Err(ModelError::too_many(ITEMS_MAX, "items"));
        }
        let id = item_ref.id.map(str::to_owned);
        self.items.push(OpenItem {
            index: item_ref.index,
            id,
            kind: begun,
            is_complete: false,
            is_cut: false,
        });
        Ok(self.items.len() - 1)
    }

    fn added(
        &mut self,
        item_ref: ItemRef<'_>,
        item: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<usize, ModelError> {
        let at = self.item(item_ref, || kind_of(item))?;
        if let ItemKind::Call(call) = &mut self.items[at].kind {
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            if call.number.is_none() {
                (call.id, call.name) = (text("call_id"), text("name"));
                self.name(at, deltas)?;
            }
        }
        Ok(at)
    }

    /// Returns the index of the item that matches an item of the complete response: the next known one of its
    /// kind, or a new one. Indices and ids may be missing on either side.
    fn of_output(
        &mut self,
        item: &Value,
        known: &mut usize,
        deltas: &mut Vec<Delta>,
    ) -> Result<usize, ModelError> {
        let kind = std::mem::discriminant(&kind_of(item));
        let found =
            (*known..self.items.len()).find(|at| std::mem::discriminant(&self.items[*at].kind) == kind);
        if let Some(at) = found {
            *known = at + 1;
            let item_ref = ItemRef { index: self.items[at].index, id: None };
            return if self.items[at].is_complete { Ok(at) } else { self.added(item_ref, item, deltas) };
        }
        let index = self.items.iter().filter_map(|item| item.index).max().map_or(0, |index| index + 1);
        let at = self.added(ItemRef { index: Some(index), id: None }, item, deltas)?;
        *known = self.items.len();
        Ok(at)
    }

    /// Sends the start of a call once its name is known.
    fn name(&mut self, at: usize, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let ItemKind::Call(call) = &mut self.items[at].kind else { return Ok(()) };
        if call.name.is_empty() {
            return Ok(());
        }
        if self.calls as usize >= CALLS_PER_MESSAGE_MAX {
            return Err(ModelError::too_many(CALLS_PER_MESSAGE_MAX, "tool calls"));
        }
        let index = self.calls;
        self.calls += 1;
        call.number = Some(index);
        let provider_id = (!call.id.is_empty()).then(|| call.id.clone());
        deltas.push(Delta::ToolCallStart { index, provider_id, name: call.name.clone() });
        if !call.arguments.is_empty() {
            deltas.push(Delta::ToolCallArguments { index, fragment: call.arguments.clone() });
        }
        Ok(())
    }

    fn text(&mut self, at: usize, part: Option<u64>, piece: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[at];
        if let (ItemKind::Message(message), false, false) =
            (&mut item.kind, item.is_complete, piece.is_empty())
        {
            if message.part != part {
                (message.part, message.part_begin) = (part, message.shown.len());
            }
            message.shown.push_str(piece);
            deltas.push(Delta::Text { text: piece.to_owned() });
        }
    }

    /// Sends what is missing of a part of a message.
    fn whole_part(&mut self, at: usize, part: Option<u64>, whole: &str, deltas: &mut Vec<Delta>) {
        let ItemKind::Message(message) = &self.items[at].kind else { return };
        // Some servers number the parts in a few events only.
        let is_same = message.part == part || message.part.is_none() || part.is_none();
        let shown = if is_same { &message.shown[message.part_begin..] } else { "" };
        let rest = rest(shown, whole);
        self.text(at, part, rest, deltas);
    }

    fn thought(&mut self, at: usize, part: Option<u64>, piece: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[at];
        let ItemKind::Reasoning { shown, part: last } = &mut item.kind else { return };
        if item.is_complete || piece.is_empty() {
            return;
        }
        let mut text = piece.to_owned();
        if !shown.is_empty() && part.is_some() && *last != part {
            text.insert_str(0, PARAGRAPH_BREAK);
        }
        *last = part;
        shown.push_str(&text);
        deltas.push(Delta::Reasoning { text });
    }

    fn arguments(&mut self, at: usize, piece: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[at];
        if let (ItemKind::Call(call), false, false) = (&mut item.kind, item.is_complete, piece.is_empty()) {
            call.arguments.push_str(piece);
            if let Some(index) = call.number {
                deltas.push(Delta::ToolCallArguments { index, fragment: piece.to_owned() });
            }
        }
    }

    /// Sends what is missing of a call's arguments.
    fn whole_arguments(&mut self, at: usize, whole: &Value, deltas: &mut Vec<Delta>) {
        let ItemKind::Call(call) = &self.items[at].kind else { return };
        let rest = rest(&call.arguments, &call_arguments(whole)).to_owned();
        self.arguments(at, &rest, deltas);
    }

    /// Completes an item: sends the text that did not arrive in pieces, and its state.
    fn complete(
        &mut self,
        at: usize,
        whole: &Value,
        text: impl FnOnce() -> String,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        if self.items[at].is_complete {
            return Ok(());
        }
        match &self.items[at].kind {
            ItemKind::Message(MessageItem { shown, part, .. }) => {
                let (part, whole_text) = (*part, message_text(whole));
                let rest = rest(shown, &whole_text).to_owned();
                self.refused |= refuses(whole);
                self.text(at, part, &rest, deltas);
                let after = self.reasoning.take();
                self.sign_text(at, whole, after, deltas);
            }
            ItemKind::Reasoning { shown, .. } => {
                let rest = rest(shown, &reasoning_text(whole)).to_owned();
                self.thought(at, None, &rest, deltas);
                self.sign_reasoning(at, whole, text, deltas);
            }
            ItemKind::Call(_) => {
                self.whole_arguments(at, whole, deltas);
                self.items[at].is_cut = whole["status"] == "incomplete";
                let after = self.reasoning.take();
                self.sign_call(at, after, deltas);
            }
            ItemKind::Other if whole["type"].is_string() => {
                self.reasoning = None;
                deltas.push(Delta::Opaque(self.origin.state(text())));
            }
            ItemKind::Other => {}
        }
        self.items[at].is_complete = true;
        Ok(())
    }

    fn sign_text(&self, at: usize, whole: &Value, after: Option<Digest>, deltas: &mut Vec<Delta>) {
        let ItemKind::Message(MessageItem { shown, .. }) = &self.items[at].kind else { return };
        if !shown.is_empty() {
            let phase = whole["phase"].as_str().map(short);
            let state =
                ItemState { digest: text_digest(shown), after, phase }.to_provider_state(&self.origin);
            deltas.push(Delta::TextEnd { state });
        }
    }

    fn sign_reasoning(
        &mut self,
        at: usize,
        whole: &Value,
        text: impl FnOnce() -> String,
        deltas: &mut Vec<Delta>,
    ) {
        let ItemKind::Reasoning { shown, .. } = &self.items[at].kind else { return };
        let item = is_encrypted(whole).then(text);
        // Reasoning that cannot be sent back also keeps back the reasoning before it.
        self.reasoning = item.as_ref().map(|item| reasoning_digest(self.reasoning.as_ref(), item));
        if !shown.is_empty() || item.is_some() {
            deltas.push(Delta::reasoning_end(item.map(|item| self.origin.state(item))));
        }
    }

    fn sign_call(&self, at: usize, after: Option<Digest>, deltas: &mut Vec<Delta>) {
        let ItemKind::Call(call) = &self.items[at].kind else { return };
        let Some(index) = call.number else { return };
        let digest = call_digest(&call.id, &call.name, &call.arguments);
        let state = ItemState { digest, after, phase: None }.to_provider_state(&self.origin);
        deltas.extend(state.map(|state| Delta::ToolCallState { index, state }));
    }

    /// Ends the response with what its last event says.
    fn finish(&mut self, kind: &str, response: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        deltas.extend(usage(response).map(Delta::Usage));
        if matches!(kind, "response.failed" | "response.cancelled") {
            return self.failed(response, deltas);
        }
        let output = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut known = 0;
        for item in output {
            let at = self.of_output(item, &mut known, deltas)?;
            self.complete(at, item, || item.to_string(), deltas)?;
        }
        self.cut(kind);
        let reason = self.reason(kind, response);
        deltas.extend(self.items.iter().filter_map(OpenItem::invalidation));
        deltas.push(Delta::Finish { reason });
        self.done = true;
        Ok(())
    }

    /// Ends the response with its error, or as one that a filter cut.
    fn failed(&mut self, error: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let failure = ProviderFailure::from_value(None, error);
        if !failure.is_content_filter() {
            return Err(failure.into_error(None));
        }
        deltas.push(Delta::Finish { reason: FinishReason::ContentFilter });
        self.done = true;
        Ok(())
    }

    /// Marks calls that were never completed as cut, unless the response is complete and their arguments are valid.
    fn cut(&mut self, kind: &str) {
        for item in self.items.iter_mut().filter(|item| !item.is_complete) {
            if let ItemKind::Call(call) = &item.kind {
                let looks_whole = arguments_text(&call.arguments) == call.arguments;
                item.is_cut = kind == "response.incomplete" || !looks_whole;
            }
        }
    }

    fn reason(&self, kind: &str, response: &Value) -> FinishReason {
        if kind == "response.incomplete" {
            return match response["incomplete_details"]["reason"].as_str() {
                Some("max_output_tokens") | None => FinishReason::Length,
                Some("content_filter") => FinishReason::ContentFilter,
                Some(other) => FinishReason::Other(short(other)),
            };
        }
        match () {
            () if self.items.iter().any(|item| item.invalidation().is_some()) => FinishReason::Length,
            () if self.calls > 0 => FinishReason::ToolCalls,
            () if self.refused => FinishReason::Refusal,
            () => FinishReason::Stop,
        }
    }
}

impl OpenItem {
    /// Makes the arguments of a cut call invalid JSON, because such a call must not be run.
    fn invalidation(&self) -> Option<Delta> {
        let ItemKind::Call(CallItem { number: Some(index), .. }) = self.kind else { return None };
        self.is_cut.then(|| Delta::ToolCallArguments { index, fragment: format!(" {CUT_OFF_ARGUMENTS}") })
    }
}

/// Returns what is missing of a whole text after the text that was shown.
fn rest<'a>(shown: &str, whole: &'a str) -> &'a str {
    whole.strip_prefix(shown).unwrap_or_default()
}

fn kind_of(item: &Value) -> ItemKind {
    match item["type"].as_str() {
        Some("message") => ItemKind::Message(MessageItem::default()),
        Some("reasoning") => ItemKind::Reasoning { shown: String::new(), part: None },
        Some("function_call") => ItemKind::Call(CallItem::default()),
        _ => ItemKind::Other,
    }
}

#[cfg(test)]
mod tests;
