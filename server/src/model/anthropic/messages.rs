//! The conversation in the terms of Messages: turns that alternate, made of blocks.

use agentloop_core::message::{Image, Message, Part, Reasoning, Role, ToolCall, ToolResult};

use crate::model::encoded::{Encoding, trim};
use crate::model::wire::{CallIds, arguments_object, element, tool_name};

const CALL_ID_BYTES_MAX: usize = 64;
/// Opens a conversation whose beginning was compacted away in the middle of a turn: the first word is the user's.
const OPENING: &str = "(The conversation goes on from here.)";
/// What marks a block for the provider's cache, put before the brace that ends it.
const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// What becomes of the model's earlier thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thoughts {
    /// Signed ones go back unchanged and in their place.
    Keep,
    /// None goes back.
    Drop,
}

/// A conversation as it is sent, and what decides how it goes on. Text that is written is never changed; marks are put
/// between its pieces when it is sent.
#[derive(Debug)]
pub(super) struct Conversation {
    /// What the operator says, before everything else: blocks, each with a comma after it.
    system: Vec<u8>,
    /// Turns that are over, each with a comma after it.
    text: Vec<u8>,
    /// The last turn, which the next message may belong to.
    open: Option<Turn>,
    /// Where in the text the last block ends that can be marked: before the model's last turn, and after that began.
    before: Option<usize>,
    since: Option<usize>,
    ids: CallIds,
    thoughts: Thoughts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    User,
    Assistant,
}

#[derive(Debug)]
struct Turn {
    speaker: Speaker,
    /// Tool results, which must stand before everything else in their turn.
    results: Vec<u8>,
    blocks: Vec<u8>,
    /// Where in the blocks the last one ends that can be marked. Thoughts cannot.
    markable: Option<usize>,
}

/// What is sent after the text that is written for good.
#[derive(Debug)]
pub(super) struct Ending {
    /// The last turn.
    text: Vec<u8>,
    /// Where marks go in the turns before it.
    before: [Option<usize>; 2],
    /// And in itself.
    within: Option<usize>,
}

impl Conversation {
    /// Before the first message.
    pub(super) fn new(thoughts: Thoughts) -> Self {
        Self {
            system: Vec::new(),
            text: Vec::new(),
            open: None,
            before: None,
            since: None,
            ids: CallIds::plain(CALL_ID_BYTES_MAX),
            thoughts,
        }
    }

    /// What the operator says besides the system prompt.
    pub(super) fn system(&self) -> &[u8] {
        &self.system
    }

    /// The end of the conversation. Where it is `marked`, it has two marks: at the end, for the request that comes
    /// next, and where the request before this one ended, since its prompt is kept up to there. The provider looks for
    /// what it keeps only some twenty blocks before a mark, and a single round of parallel calls can have more.
    pub(super) fn ending(&self, marked: bool) -> Ending {
        let mut text = Vec::new();
        let within = self.open.as_ref().and_then(|turn| turn.write(&mut text));
        let since = if within.is_none() { self.since } else { None };
        if marked {
            Ending { text, before: [self.before, since], within }
        } else {
            Ending { text, before: [None, None], within: None }
        }
    }

    /// The messages to send, in pieces.
    pub(super) fn messages<'a>(&'a self, ending: &'a Ending) -> Vec<&'a [u8]> {
        let mut pieces = marked(&self.text, ending.before);
        pieces.extend(marked(&ending.text, [ending.within]));
        pieces
    }

    fn part(&mut self, role: Role, part: &Part) {
        let speaker = if role == Role::Assistant { Speaker::Assistant } else { Speaker::User };
        match part {
            // The API refuses blank text.
            Part::Text { text, .. } if text.trim().is_empty() => {}
            Part::Text { text, .. } => self.block(speaker, |blocks| text_block(blocks, text)),
            Part::Opaque(_) => {}
            Part::Image { image } => self.block(speaker, |blocks| image_block(blocks, image)),
            Part::Reasoning(reasoning) => {
                if self.thoughts == Thoughts::Keep && is_signed(reasoning) {
                    thought_block(&mut self.turn(speaker).blocks, reasoning);
                }
            }
            Part::ToolCall(call) => {
                let id = self.ids.call(&call.provider_id);
                self.block(speaker, |blocks| call_block(blocks, call, &id));
            }
            Part::ToolResult(result) => {
                let id = self.ids.result(&result.provider_id);
                result_block(&mut self.turn(Speaker::User).results, result, &id);
            }
        }
    }

    /// Adds a block that can be marked.
    fn block(&mut self, speaker: Speaker, write: impl FnOnce(&mut Vec<u8>)) {
        let turn = self.turn(speaker);
        write(&mut turn.blocks);
        turn.markable = last_end(&turn.blocks);
    }

    /// The last turn if it is this speaker's, else a new one.
    fn turn(&mut self, speaker: Speaker) -> &mut Turn {
        if self.open.is_none() && speaker == Speaker::Assistant {
            self.block(Speaker::User, |blocks| text_block(blocks, OPENING));
        }
        if self.open.as_ref().is_some_and(|turn| turn.speaker != speaker) {
            self.close();
        }
        if self.open.is_none() && speaker == Speaker::Assistant {
            self.before = self.since.take().or(self.before);
        }
        self.open.get_or_insert_with(|| Turn {
            speaker,
            results: Vec::new(),
            blocks: Vec::new(),
            markable: None,
        })
    }

    fn close(&mut self) {
        if let Some(turn) = self.open.take() {
            self.since = turn.write(&mut self.text).or(self.since);
        }
    }
}

impl Encoding for Conversation {
    fn writes_like(&self, other: &Self) -> bool {
        self.thoughts == other.thoughts && self.ids.same_rule(&other.ids)
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            // Moving a late one to the front would change a prompt that the provider has cached.
            Role::System if self.open.is_none() => text_block(&mut self.system, &message.plain_text()),
            Role::System => {
                let text = format!("<system>\n{}\n</system>", message.plain_text());
                self.block(Speaker::User, |blocks| text_block(blocks, &text));
            }
            Role::User | Role::Assistant | Role::Tool => {
                for part in &message.parts {
                    self.part(message.role, part);
                }
            }
        }
    }

    fn trim(&mut self) {
        trim(&mut self.text);
    }

    fn bytes(&self) -> usize {
        let open = self.open.as_ref().map_or(0, |turn| turn.results.capacity() + turn.blocks.capacity());
        self.system.capacity() + self.text.capacity() + open + self.ids.bytes()
    }
}

impl Turn {
    /// Writes the turn. Gives where in the text its last block ends that can be marked.
    fn write(&self, out: &mut Vec<u8>) -> Option<usize> {
        let mut results_at = 0;
        element(out, |turn| {
            turn.field("role", if self.speaker == Speaker::User { "user" } else { "assistant" });
            turn.list("content", |content| {
                results_at = content.len();
                content.extend_from_slice(&self.results);
                content.extend_from_slice(&self.blocks);
            });
        });
        let in_results = last_end(&self.results).map(|end| results_at + end);
        self.markable.map(|end| results_at + self.results.len() + end).or(in_results)
    }
}

/// Where the last of these blocks ends: before its brace and comma.
fn last_end(blocks: &[u8]) -> Option<usize> {
    blocks.len().checked_sub(2)
}

/// The text with marks put into these places, which come in order.
pub(super) fn marked(text: &[u8], places: impl IntoIterator<Item = Option<usize>>) -> Vec<&[u8]> {
    let (mut pieces, mut done) = (Vec::new(), 0);
    for place in places.into_iter().flatten() {
        pieces.extend([&text[done..place], MARK]);
        done = place;
    }
    pieces.push(&text[done..]);
    pieces
}

/// The blocks with a mark in the last of them, where there is one.
pub(super) fn marked_last(blocks: &[u8]) -> Vec<&[u8]> {
    marked(blocks, [last_end(blocks)])
}

/// Writes a text; nothing for a blank one, which the API refuses.
pub(super) fn text_block(out: &mut Vec<u8>, text: &str) {
    if !text.trim().is_empty() {
        element(out, |block| {
            block.field("type", "text").field("text", text);
        });
    }
}

fn image_block(out: &mut Vec<u8>, image: &Image) {
    element(out, |block| {
        block.field("type", "image").object("source", |source| {
            match image {
                Image::Url { url } => source.field("type", "url").field("url", url),
                Image::Inline { media_type, base64 } => {
                    source.field("type", "base64").field("media_type", media_type).field("data", base64)
                }
            };
        });
    });
}

/// Thoughts that are not signed were never the API's own.
fn is_signed(reasoning: &Reasoning) -> bool {
    reasoning.redacted.is_some() || reasoning.signature.is_some()
}

fn thought_block(out: &mut Vec<u8>, reasoning: &Reasoning) {
    element(out, |block| {
        match &reasoning.redacted {
            Some(data) => block.field("type", "redacted_thinking").field("data", data),
            None => block
                .field("type", "thinking")
                .field("thinking", &reasoning.text)
                .field("signature", &reasoning.signature),
        };
    });
}

fn call_block(out: &mut Vec<u8>, call: &ToolCall, id: &str) {
    element(out, |block| {
        block.field("type", "tool_use").field("id", id).field("name", &*tool_name(&call.name));
        block.text("input", &arguments_object(&call.arguments));
    });
}

fn result_block(out: &mut Vec<u8>, result: &ToolResult, id: &str) {
    element(out, |block| {
        block.field("type", "tool_result").field("tool_use_id", id);
        if !result.images.is_empty() {
            block.list("content", |content| {
                text_block(content, &result.output);
                result.images.iter().for_each(|image| image_block(content, image));
            });
        } else if !result.output.trim().is_empty() {
            block.field("content", &result.output);
        }
        if result.status.is_error() {
            block.field("is_error", &true);
        }
    });
}
