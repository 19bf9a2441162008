//! The stream of Responses: items one after the other, each in pieces and then once more whole.
//!
//! Source: <https://platform.openai.com/docs/api-reference/responses-streaming>. Servers that speak it too leave out
//! events, numbers of events, or pieces: what was not said in pieces is taken from the whole item, and what was not said
//! in items from the whole answer at its end.

use agentloop_core::delta::Delta;
use agentloop_core::limits::CALLS_PER_MESSAGE_MAX;
use agentloop_core::message::FinishReason;
use agentloop_core::tool::Digest;
use serde_json::Value;

use super::event::{BETWEEN, Event, Place, message_text, reasoning_text, refuses, usage};
use super::state::{ItemState, call_digest, is_encrypted, row_digest, text_digest};
use crate::model::request::history::arguments_text;
use crate::model::request::origin::Origin;
use crate::model::response::failure::{ProviderFailure, short};
use crate::model::transport::http::Decoder;
use crate::model::transport::sse::SseEvent;
use crate::model::{ModelError, ModelErrorKind};

/// Items of one answer. Each call is one, and each of these may have a thought before it.
const ITEMS_MAX: usize = 4 * CALLS_PER_MESSAGE_MAX;

/// Put behind the arguments of a call that was cut off.
const CUT_OFF: &str = " (cut off)";

/// Where the stream of one answer stands.
#[derive(Debug, Default)]
pub(in crate::model) struct ResponsesDecoder {
    origin: Origin,
    items: Vec<Item>,
    calls: u32,
    /// Of the reasoning items that are over and led to nothing yet.
    row: Option<Digest>,
    refused: bool,
    /// Whether the answer has anything in it.
    said: bool,
    done: bool,
}

/// An item that has begun.
#[derive(Debug)]
struct Item {
    index: Option<u64>,
    id: Option<String>,
    kind: Kind,
    is_over: bool,
    /// Of a call: whether it is not all that the model wanted to say.
    is_cut: bool,
}

#[derive(Debug)]
enum Kind {
    /// With what was given out of it.
    Message(String),
    /// The same, and which part of it the last piece was of.
    Reasoning {
        said: String,
        part: Option<u64>,
    },
    Call(Call),
    /// Of a kind that only the provider understands.
    Other,
}

#[derive(Debug, Default)]
struct Call {
    /// Of the delta, once its name is known.
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
        let value: Value = serde_json::from_str(data)
            .map_err(|e| ModelError::malformed(format!("an event of the stream is not JSON: {e}")))?;
        let before = deltas.len();
        let taken = self.take(&event.name, &Event { value: &value, text: data }, deltas);
        self.said |= deltas.len() > before;
        taken
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ModelError> {
        Err(ModelError::malformed("the stream ends before the answer does"))
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn document(&mut self, document: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        if !document["output"].is_array() {
            return Err(ModelError::no_answer());
        }
        let before = deltas.len();
        let kind = match document["status"].as_str() {
            Some("incomplete") => "response.incomplete",
            Some("failed" | "cancelled") => "response.failed",
            _ => "response.completed",
        };
        let ended = self.finish(kind, document, deltas);
        self.said |= deltas.len() > before;
        ended
    }
}

impl ResponsesDecoder {
    /// Of an answer of this origin.
    pub(super) fn new(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }

    fn take(&mut self, name: &str, event: &Event<'_>, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let (kind, place) = (event.kind(), event.place());
        let kind = if kind.is_empty() { name } else { kind };
        let piece = event.text_of("delta");
        match kind {
            "error" => return Err(ProviderFailure::from_value(None, event.value).into_error(None)),
            "response.output_item.added" => {
                self.added(place, &event.value["item"], deltas)?;
            }
            "response.output_item.done" => {
                let item = self.added(place, &event.value["item"], deltas)?;
                self.over(item, &event.value["item"], || event.item_text(), deltas)?;
            }
            "response.output_text.delta" | "response.refusal.delta" => {
                self.refused |= kind == "response.refusal.delta";
                let item = self.at(place, || Kind::Message(String::new()))?;
                self.text(item, piece, deltas);
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                let part = ["summary_index", "content_index"].iter().find_map(|at| event.value[*at].as_u64());
                let item = self.at(place, || Kind::Reasoning { said: String::new(), part: None })?;
                self.thought(item, part, piece, deltas);
            }
            "response.function_call_arguments.delta" => {
                let item = self.at(place, || Kind::Call(Call::default()))?;
                self.arguments(item, piece, deltas);
            }
            "response.completed" | "response.incomplete" | "response.failed" | "response.cancelled" => {
                self.finish(kind, &event.value["response"], deltas)?;
            }
            // An error that a gateway puts into the stream has no type of the protocol.
            _ if event.value.get("error").is_some_and(|error| !error.is_null()) => {
                return Err(ProviderFailure::from_value(None, event.value).into_error(None));
            }
            _ => {}
        }
        Ok(())
    }

    /// The item of this place, which begins where it has not. Without a place it is the last one of its kind.
    fn at(&mut self, place: Place<'_>, begin: impl FnOnce() -> Kind) -> Result<usize, ModelError> {
        let begun = begin();
        let is_it = |item: &Item| match (place.index, item.index, place.id, item.id.as_deref()) {
            (Some(asked), Some(index), _, _) => asked == index,
            (_, _, Some(asked), Some(id)) => asked == id,
            _ => !item.is_over && std::mem::discriminant(&item.kind) == std::mem::discriminant(&begun),
        };
        if let Some(at) = self.items.iter().rposition(is_it) {
            return Ok(at);
        }
        if self.items.len() >= ITEMS_MAX {
            let message = format!("the answer has more than {ITEMS_MAX} items");
            return Err(ModelError::new(ModelErrorKind::TooLarge, message));
        }
        let id = place.id.map(str::to_owned);
        self.items.push(Item { index: place.index, id, kind: begun, is_over: false, is_cut: false });
        Ok(self.items.len() - 1)
    }

    fn added(
        &mut self,
        place: Place<'_>,
        item: &Value,
        deltas: &mut Vec<Delta>,
    ) -> Result<usize, ModelError> {
        let at = self.at(place, || kind_of(item))?;
        if let Kind::Call(call) = &mut self.items[at].kind {
            let text = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
            if call.number.is_none() {
                (call.id, call.name) = (text("call_id"), text("name"));
                self.name(at, deltas)?;
            }
        }
        Ok(at)
    }

    /// The item that an item of the whole answer is: the next that is known of its kind, or a new one. Numbers and ids
    /// may be missing in one of the two.
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
            let place = Place { index: self.items[at].index, id: None };
            return if self.items[at].is_over { Ok(at) } else { self.added(place, item, deltas) };
        }
        let index = self.items.iter().filter_map(|item| item.index).max().map_or(0, |index| index + 1);
        let at = self.added(Place { index: Some(index), id: None }, item, deltas)?;
        *known = self.items.len();
        Ok(at)
    }

    /// Gives out the beginning of a call whose name is known.
    fn name(&mut self, at: usize, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        let Kind::Call(call) = &mut self.items[at].kind else { return Ok(()) };
        if call.name.is_empty() {
            return Ok(());
        }
        if self.calls as usize >= CALLS_PER_MESSAGE_MAX {
            let message = format!("the answer has more than {CALLS_PER_MESSAGE_MAX} tool calls");
            return Err(ModelError::new(ModelErrorKind::TooLarge, message));
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

    fn text(&mut self, at: usize, piece: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[at];
        if let (Kind::Message(said), false, false) = (&mut item.kind, item.is_over, piece.is_empty()) {
            said.push_str(piece);
            deltas.push(Delta::Text { text: piece.to_owned() });
        }
    }

    fn thought(&mut self, at: usize, part: Option<u64>, piece: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[at];
        let Kind::Reasoning { said, part: last } = &mut item.kind else { return };
        if item.is_over || piece.is_empty() {
            return;
        }
        let mut text = piece.to_owned();
        if !said.is_empty() && part.is_some() && *last != part {
            text.insert_str(0, BETWEEN);
        }
        *last = part;
        said.push_str(&text);
        deltas.push(Delta::Reasoning { text });
    }

    fn arguments(&mut self, at: usize, piece: &str, deltas: &mut Vec<Delta>) {
        let item = &mut self.items[at];
        if let (Kind::Call(call), false, false) = (&mut item.kind, item.is_over, piece.is_empty()) {
            call.arguments.push_str(piece);
            if let Some(index) = call.number {
                deltas.push(Delta::ToolCallArguments { index, fragment: piece.to_owned() });
            }
        }
    }

    /// An item is whole: gives out what was not said of it, and its state.
    fn over(
        &mut self,
        at: usize,
        whole: &Value,
        text: impl FnOnce() -> String,
        deltas: &mut Vec<Delta>,
    ) -> Result<(), ModelError> {
        if self.items[at].is_over {
            return Ok(());
        }
        let rest = |said: &str, whole: &str| whole.strip_prefix(said).unwrap_or_default().to_owned();
        match &self.items[at].kind {
            Kind::Message(said) => {
                let rest = rest(said, &message_text(whole));
                self.refused |= refuses(whole);
                self.text(at, &rest, deltas);
                let after = self.row.take();
                self.sign_text(at, whole, after, deltas);
            }
            Kind::Reasoning { said, .. } => {
                let rest = rest(said, &reasoning_text(whole));
                self.thought(at, None, &rest, deltas);
                self.sign_reasoning(at, whole, text, deltas);
            }
            Kind::Call(call) => {
                let rest = rest(&call.arguments, whole["arguments"].as_str().unwrap_or_default());
                self.arguments(at, &rest, deltas);
                self.items[at].is_cut = whole["status"] == "incomplete";
                let after = self.row.take();
                self.sign_call(at, after, deltas);
            }
            Kind::Other if whole["type"].is_string() => {
                self.row = None;
                deltas.push(Delta::Opaque(self.origin.state(text())));
            }
            Kind::Other => {}
        }
        self.items[at].is_over = true;
        Ok(())
    }

    fn sign_text(&self, at: usize, whole: &Value, after: Option<Digest>, deltas: &mut Vec<Delta>) {
        let Kind::Message(said) = &self.items[at].kind else { return };
        if !said.is_empty() {
            let phase = whole["phase"].as_str().map(short);
            let state = ItemState { digest: text_digest(said), after, phase }.kept(&self.origin);
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
        let Kind::Reasoning { said, .. } = &self.items[at].kind else { return };
        let item = is_encrypted(whole).then(text);
        // What follows reasoning that cannot go back was led to by it, too.
        self.row = item.as_ref().map(|item| row_digest(self.row.as_ref(), item));
        if !said.is_empty() || item.is_some() {
            deltas.push(Delta::reasoning_end(item.map(|item| self.origin.state(item))));
        }
    }

    fn sign_call(&self, at: usize, after: Option<Digest>, deltas: &mut Vec<Delta>) {
        let Kind::Call(call) = &self.items[at].kind else { return };
        let Some(index) = call.number else { return };
        let digest = call_digest(&call.id, &call.name, &call.arguments);
        let state = ItemState { digest, after, phase: None }.kept(&self.origin);
        deltas.extend(state.map(|state| Delta::ToolCallState { index, state }));
    }

    /// The answer is over, in whatever way.
    fn finish(&mut self, kind: &str, response: &Value, deltas: &mut Vec<Delta>) -> Result<(), ModelError> {
        deltas.extend(usage(response).map(Delta::Usage));
        if matches!(kind, "response.failed" | "response.cancelled") {
            return Err(ProviderFailure::from_value(None, response).into_error(None));
        }
        let output = response["output"].as_array().map(Vec::as_slice).unwrap_or_default();
        let mut known = 0;
        for item in output {
            let at = self.of_output(item, &mut known, deltas)?;
            self.over(at, item, || item.to_string(), deltas)?;
        }
        self.cut(kind);
        let reason = self.reason(kind, response);
        deltas.extend(self.items.iter().filter_map(Item::spoilt));
        deltas.push(Delta::Finish { reason });
        self.done = true;
        Ok(())
    }

    /// Calls that never came whole are cut off, unless the answer is complete and they look whole.
    fn cut(&mut self, kind: &str) {
        for item in self.items.iter_mut().filter(|item| !item.is_over) {
            if let Kind::Call(call) = &item.kind {
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
            () if self.items.iter().any(|item| item.spoilt().is_some()) => FinishReason::Length,
            () if self.calls > 0 => FinishReason::ToolCalls,
            () if self.refused => FinishReason::Refusal,
            () => FinishReason::Stop,
        }
    }
}

impl Item {
    /// A call that is cut off must not be run, whatever its arguments are so far: with this they are no JSON.
    fn spoilt(&self) -> Option<Delta> {
        let Kind::Call(Call { number: Some(index), .. }) = self.kind else { return None };
        self.is_cut.then(|| Delta::ToolCallArguments { index, fragment: CUT_OFF.to_owned() })
    }
}

fn kind_of(item: &Value) -> Kind {
    match item["type"].as_str() {
        Some("message") => Kind::Message(String::new()),
        Some("reasoning") => Kind::Reasoning { said: String::new(), part: None },
        Some("function_call") => Kind::Call(Call::default()),
        _ => Kind::Other,
    }
}

#[cfg(test)]
mod tests;
