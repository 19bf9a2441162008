//! Encodes a conversation for `generateContent`: contents with a role, made of parts.

use agentloop_core::message::{Image, Message, Part, Role, ToolCall, ToolResult};

use super::state::StateRules;
use crate::model::request::encoded_text::EncodedText;
use crate::model::request::history::{
    GO_ON, OPENING, ObjectWriter, arguments_object, element, later_system_text, tool_name,
};
use crate::model::request::prefix::Encoder;

/// Encoded conversation. Encoded text never changes.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Parts of system messages, each followed by a comma.
    system: Vec<u8>,
    /// Complete contents, each followed by a comma.
    text: EncodedText,
    /// The last content. The next message may still be added to it.
    open: Option<(Speaker, Vec<u8>)>,
    /// The last response's calls, in their order.
    calls: Vec<SentCall>,
    /// Results in the open content: the place of the call, and the bytes of the result. The API matches results without
    /// ids with the calls by their order, and calls end in any order.
    results: Vec<(usize, usize)>,
    rules: StateRules,
}

/// A call of the last response.
#[derive(Debug)]
struct SentCall {
    provider_id: String,
    /// True if the call was sent with its id. Its result then has the id, too.
    has_id: bool,
}

/// Origin of a content. Tool results are separate contents, because the API matches them with the calls before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    User,
    Tool,
    Model,
}

impl Speaker {
    fn role(self) -> &'static str {
        match self {
            Self::User | Self::Tool => "user",
            Self::Model => "model",
        }
    }
}

impl Conversation {
    /// Creates the encoder of an empty conversation.
    pub(super) fn new(rules: StateRules) -> Self {
        let (system, text) = (Vec::new(), EncodedText::default());
        Self { system, text, open: None, calls: Vec::new(), results: Vec::new(), rules }
    }

    /// Returns the parts of system messages.
    pub(super) fn system(&self) -> &[u8] {
        &self.system
    }

    /// Returns the complete contents.
    pub(super) fn text(&self) -> &EncodedText {
        &self.text
    }

    /// Returns the contents to send after the complete ones. If the model's own content is last, a
    /// request to continue follows.
    pub(super) fn end(&self) -> Vec<u8> {
        let mut end = Vec::new();
        if let Some((speaker, parts)) = &self.open {
            content(&mut end, *speaker, parts);
        }
        if self.is_open(Speaker::Model) {
            let mut part = Vec::new();
            text_part(&mut part, GO_ON);
            content(&mut end, Speaker::User, &part);
        }
        end
    }

    fn is_open(&self, speaker: Speaker) -> bool {
        self.open.as_ref().is_some_and(|(open, _)| *open == speaker)
    }

    /// Returns the parts of this speaker's open content, which begins now if the last one is another's.
    fn parts(&mut self, speaker: Speaker) -> &mut Vec<u8> {
        if !self.is_open(speaker) {
            self.close();
        }
        &mut self.open.get_or_insert_with(|| (speaker, Vec::new())).1
    }

    fn close(&mut self) {
        if let Some((speaker, parts)) = self.open.take() {
            content(self.text.writer(), speaker, &parts);
        }
    }

    fn user(&mut self, message: &Message) {
        for part in &message.parts {
            match part {
                Part::Text { text, .. } if text.is_empty() => {}
                Part::Text { text, .. } => text_part(self.parts(Speaker::User), text),
                Part::Image { image } => image_part(self.parts(Speaker::User), image),
                Part::Reasoning(_) | Part::Opaque(_) | Part::ToolCall(_) | Part::ToolResult(_) => {}
            }
        }
    }

    fn assistant(&mut self, message: &Message) {
        let parts = self.response(message);
        if parts.is_empty() {
            return;
        }
        // A content of the model must follow a content of another role.
        if self.is_open(Speaker::Model) {
            text_part(self.parts(Speaker::User), GO_ON);
        } else if self.open.is_none() {
            text_part(self.parts(Speaker::User), OPENING);
        }
        self.parts(Speaker::Model).extend_from_slice(&parts);
    }

    /// Encodes the parts of a response.
    fn response(&mut self, message: &Message) -> Vec<u8> {
        let mut parts = Vec::new();
        let mut calls = 0;
        self.calls.clear();
        for part in &message.parts {
            match part {
                Part::Text { text, .. } if text.is_empty() => {}
                Part::Text { text, state } => {
                    let signature = self.rules.part(state.as_ref()).thought_signature;
                    element(&mut parts, |part| {
                        part.field("text", text).optional("thoughtSignature", signature);
                    });
                }
                Part::Reasoning(reasoning) => {
                    // The API ignores thoughts without a signature.
                    if let Some(signature) = self.rules.part(reasoning.state.as_ref()).thought_signature {
                        element(&mut parts, |part| {
                            part.field("text", &reasoning.text).field("thought", &true);
                            part.field("thoughtSignature", &signature);
                        });
                    }
                }
                Part::Opaque(state) => {
                    if let Some(part) = self.rules.opaque(state) {
                        parts.extend_from_slice(part.as_bytes());
                        parts.push(b',');
                    }
                }
                Part::ToolCall(call) => {
                    self.call(&mut parts, call, calls == 0);
                    calls += 1;
                }
                Part::Image { image } => image_part(&mut parts, image),
                Part::ToolResult(_) => {}
            }
        }
        parts
    }

    fn call(&mut self, parts: &mut Vec<u8>, call: &ToolCall, is_first: bool) {
        let state = self.rules.call(call, is_first);
        element(parts, |part| {
            part.object("functionCall", |function| {
                // The same id as with the result: a model may give two calls the same one.
                let id = state.id.is_some().then_some(&call.provider_id);
                function.optional("id", id).field("name", &*tool_name(&call.name));
                function.text("args", &arguments_object(&call.arguments));
            });
            part.optional("thoughtSignature", state.thought_signature);
        });
        self.calls.push(SentCall { provider_id: call.provider_id.clone(), has_id: state.id.is_some() });
    }

    fn result(&mut self, result: &ToolResult) {
        let place = self.calls.iter().position(|call| call.provider_id == result.provider_id);
        let has_id = place.is_some_and(|place| self.calls[place].has_id);
        let id = has_id.then_some(&result.provider_id);
        // Only inline images can be part of a result.
        let within = |image: &&Image| self.rules.shows_results && matches!(image, Image::Inline { .. });
        let (shown, after): (Vec<&Image>, Vec<&Image>) = result.images.iter().partition(within);
        let mut encoded = Vec::new();
        element(&mut encoded, |part| {
            part.object("functionResponse", |function| {
                function.optional("id", id).field("name", &*tool_name(&result.name));
                function.object("response", |response| {
                    let key = if result.status.is_error() { "error" } else { "output" };
                    response.field(key, &result.output);
                });
                if !shown.is_empty() {
                    function.list("parts", |parts| shown.iter().for_each(|image| image_part(parts, image)));
                }
            });
        });
        if !after.is_empty() {
            text_part(&mut encoded, &format!("Images returned by the tool {}:", tool_name(&result.name)));
            after.iter().for_each(|image| image_part(&mut encoded, image));
        }
        self.insert_result(place.unwrap_or(self.calls.len()), &encoded);
    }

    /// Adds the result of a call at its place among the results.
    fn insert_result(&mut self, call: usize, encoded: &[u8]) {
        if !self.is_open(Speaker::Tool) {
            self.results.clear();
        }
        let place = self.results.partition_point(|(before, _)| *before <= call);
        let at: usize = self.results[..place].iter().map(|(_, bytes)| bytes).sum();
        self.results.insert(place, (call, encoded.len()));
        self.parts(Speaker::Tool).splice(at..at, encoded.iter().copied());
    }
}

impl Encoder for Conversation {
    fn is_compatible_with(&self, other: &Self) -> bool {
        self.rules == other.rules
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            // Moving a later system message to the front would change the cached prompt.
            Role::System if self.open.is_none() => message.parts.iter().for_each(|part| {
                if let Part::Text { text, .. } = part {
                    text_part(&mut self.system, text);
                }
            }),
            Role::System => {
                text_part(self.parts(Speaker::User), &later_system_text(message));
            }
            Role::User => self.user(message),
            Role::Assistant => self.assistant(message),
            Role::Tool => message.parts.iter().for_each(|part| {
                if let Part::ToolResult(result) = part {
                    self.result(result);
                }
            }),
        }
    }

    fn text_mut(&mut self) -> &mut EncodedText {
        &mut self.text
    }

    fn own_bytes(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |(_, parts)| parts.capacity());
        let ids: usize = self.calls.iter().map(|call| size_of::<SentCall>() + call.provider_id.len()).sum();
        self.system.capacity() + self.text.own_bytes() + open + ids
    }
}

fn content(out: &mut Vec<u8>, speaker: Speaker, parts: &[u8]) {
    element(out, |content| {
        content.field("role", speaker.role()).list("parts", |list| list.extend_from_slice(parts));
    });
}

/// Writes a text part.
pub(super) fn text_part(parts: &mut Vec<u8>, text: &str) {
    element(parts, |part| {
        part.field("text", text);
    });
}

fn image_part(parts: &mut Vec<u8>, image: &Image) {
    element(parts, |part| match image {
        Image::Inline { media_type, base64 } => {
            part.object("inlineData", |data| {
                data.field("mimeType", media_type).field("data", base64);
            });
        }
        Image::Url { url } => {
            part.object("fileData", |data: &mut ObjectWriter<'_>| {
                data.field("fileUri", url).optional("mimeType", media_type(url));
            });
        }
    });
}

/// Guesses the media type by the extension of a URL's path.
fn media_type(url: &str) -> Option<&'static str> {
    let path = url.split(['?', '#']).next().unwrap_or_default().to_ascii_lowercase();
    match path.rsplit('.').next()? {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "webp" => Some("image/webp"),
        "heic" => Some("image/heic"),
        _ => None,
    }
}
