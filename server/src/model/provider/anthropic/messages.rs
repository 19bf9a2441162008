//! Encodes a conversation as Messages: alternating turns made of blocks. A turn is one message of the API.

use agentloop_core::message::{Message, Part, Role};
use agentloop_core::tool::Digest;

use super::blocks::{
    call_block, cited_block, image_block, result_block, text_block, thought_block, writes_call_unchanged,
};
use super::state::StateRules;
use crate::model::request::encoded_text::{EncodedText, Piece};
use crate::model::request::history::{CallIds, GO_ON, OPENING, element, later_system_text};
use crate::model::request::prefix::Encoder;

const CALL_ID_BYTES_MAX: usize = 64;
/// Cache mark of a block, inserted before its closing brace.
const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

/// Encoded conversation. Encoded text never changes; cache marks are inserted between its pieces when it is sent.
#[derive(Debug)]
pub(super) struct Conversation {
    /// Blocks of system messages before the first turn, each followed by a comma.
    system: Vec<u8>,
    /// Complete turns, each followed by a comma.
    text: EncodedText,
    /// The last turn. The next message may still be added to it.
    last_turn: Option<Turn>,
    /// End of the last markable block in `text` before the model's last turn.
    mark_before_response: Option<usize>,
    /// The same, after the model's last turn began.
    mark_since_response: Option<usize>,
    ids: CallIds,
    rules: StateRules,
    /// Digest of everything encoded so far, if the model binds thinking to its prefix.
    digest: Option<Digest>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Speaker {
    User,
    Assistant,
}

#[derive(Debug)]
struct Turn {
    speaker: Speaker,
    /// Tool results. They must come first in their turn.
    results: Vec<u8>,
    blocks: Vec<u8>,
    /// End of the last markable block in `blocks`. Thinking cannot be marked.
    markable: Option<usize>,
}

/// The cache marks of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheMarks {
    /// Two: at the end, for the next request, and where the previous request ended, because the prompt is cached up to there.
    /// The provider searches only some twenty blocks before a mark, and one round of parallel calls can have more.
    Set,
    Omitted,
}

/// The end of a conversation whose last turn is the model's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterModel {
    /// The model continues its turn, which is a partial response.
    Continues,
    /// The user asks it to go on.
    GoOn,
}

/// The end of the conversation, sent after the complete turns.
#[derive(Debug)]
pub(super) struct ConversationEnd {
    /// The last turn, and the request to go on.
    text: Vec<u8>,
    /// Positions of cache marks in the complete turns.
    marks_in_text: [Option<usize>; 2],
    /// Position of the cache mark in this text.
    mark_in_last_turn: Option<usize>,
    /// True if it ends with the request to go on.
    asks_to_go_on: bool,
}

impl Conversation {
    /// Creates the encoder of an empty conversation.
    pub(super) fn new(rules: StateRules) -> Self {
        Self {
            digest: rules.prompt_digest.clone(),
            system: Vec::new(),
            text: EncodedText::default(),
            last_turn: None,
            mark_before_response: None,
            mark_since_response: None,
            ids: CallIds::plain(CALL_ID_BYTES_MAX),
            rules,
        }
    }

    /// Returns the blocks of system messages.
    pub(super) fn system(&self) -> &[u8] {
        &self.system
    }

    /// Returns the digest of everything sent before the response.
    pub(super) fn digest(&self, ending: &ConversationEnd) -> Option<Digest> {
        let before = self.digest.as_ref()?;
        if !ending.asks_to_go_on {
            return Some(before.clone());
        }
        let mut block = Vec::new();
        text_block(&mut block, GO_ON);
        Some(after(before, Speaker::User, &block))
    }

    /// Encodes the end of the conversation.
    pub(super) fn ending(&self, marks: CacheMarks, after_model: AfterModel) -> ConversationEnd {
        let mut text = Vec::new();
        let mut mark_in_last_turn = self.last_turn.as_ref().and_then(|turn| turn.write(&mut text));
        let asks_to_go_on = after_model == AfterModel::GoOn && self.ends_with_model();
        if asks_to_go_on {
            let mut turn = Turn::new(Speaker::User);
            text_block(&mut turn.blocks, GO_ON);
            turn.markable = last_end(&turn.blocks);
            mark_in_last_turn = turn.write(&mut text);
        }
        let mark_since_response = if mark_in_last_turn.is_none() { self.mark_since_response } else { None };
        match marks {
            CacheMarks::Set => ConversationEnd {
                text,
                marks_in_text: [self.mark_before_response, mark_since_response],
                mark_in_last_turn,
                asks_to_go_on,
            },
            CacheMarks::Omitted => {
                ConversationEnd { text, marks_in_text: [None, None], mark_in_last_turn: None, asks_to_go_on }
            }
        }
    }

    /// True if the last turn is the model's.
    fn ends_with_model(&self) -> bool {
        self.last_turn.as_ref().is_some_and(|turn| turn.speaker == Speaker::Assistant)
    }

    /// Returns the messages to send, in pieces.
    pub(super) fn messages<'a>(&'a self, ending: &'a ConversationEnd) -> Vec<Piece<'a>> {
        let (mut pieces, mut done) = (Vec::new(), 0);
        for mark in ending.marks_in_text.into_iter().flatten() {
            pieces.extend(self.text.range(done..mark));
            pieces.push(Piece::Copied(MARK));
            done = mark;
        }
        pieces.extend(self.text.range(done..self.text.len()));
        pieces.extend(with_mark(&ending.text, ending.mark_in_last_turn));
        pieces
    }

    /// Returns the number of parts of the model's message up to the last one that is encoded and is no thinking. The API
    /// refuses a turn that ends with thinking, such as one that was cut off.
    fn parts_before_end(&self, message: &Message) -> usize {
        let may_be_last = |part: &Part| self.rules.is_sent(part) && !matches!(part, Part::Reasoning(_));
        message.parts.iter().rposition(may_be_last).map_or(0, |last| last + 1)
    }

    /// Encodes a message of the model.
    fn assistant(&mut self, message: &Message) {
        let parts = &message.parts[..self.parts_before_end(message)];
        if parts.is_empty() {
            return;
        }
        if self.ends_with_model() {
            self.block(Speaker::User, |blocks| text_block(blocks, GO_ON));
        }
        if self.last_turn.is_none() {
            self.block(Speaker::User, |blocks| text_block(blocks, OPENING));
        }
        let prefix = self.digest.clone();
        // True while everything in this message is encoded exactly as the model wrote it.
        let mut is_unchanged = true;
        for part in parts {
            match part {
                Part::Reasoning(reasoning) => {
                    let state = self.rules.thought(reasoning, prefix.as_ref());
                    match state.filter(|_| is_unchanged || prefix.is_none()) {
                        Some(state) => {
                            self.unmarkable_block(|blocks| thought_block(blocks, &reasoning.text, &state));
                        }
                        None => is_unchanged = false,
                    }
                }
                // The API refuses blank text.
                Part::Text { text, .. } if text.trim().is_empty() => is_unchanged = false,
                Part::Text { text, state } => match self.rules.citations(state.as_ref()) {
                    Some(citations) => {
                        self.block(Speaker::Assistant, |blocks| cited_block(blocks, text, &citations));
                    }
                    None => self.block(Speaker::Assistant, |blocks| text_block(blocks, text)),
                },
                Part::Opaque(state) => match self.rules.opaque(state) {
                    Some(block) => self.unmarkable_block(|blocks| {
                        blocks.extend_from_slice(block.as_bytes());
                        blocks.push(b',');
                    }),
                    None => is_unchanged = false,
                },
                Part::ToolCall(call) => {
                    let id = self.ids.call(&call.provider_id);
                    is_unchanged &= writes_call_unchanged(call, &id);
                    self.block(Speaker::Assistant, |blocks| call_block(blocks, call, &id));
                }
                Part::Image { image } => {
                    self.block(Speaker::Assistant, |blocks| image_block(blocks, image));
                }
                Part::ToolResult(_) => {}
            }
        }
    }

    /// Encodes a message of the user or of tools.
    fn user(&mut self, message: &Message) {
        for part in &message.parts {
            match part {
                Part::Text { text, .. } if text.trim().is_empty() => {}
                Part::Text { text, .. } => self.block(Speaker::User, |blocks| text_block(blocks, text)),
                Part::Image { image } => self.block(Speaker::User, |blocks| image_block(blocks, image)),
                Part::ToolResult(result) => {
                    let id = self.ids.result(&result.provider_id);
                    let results = &mut self.turn(Speaker::User).results;
                    let begin = results.len();
                    result_block(results, result, &id);
                    self.update_digest(begin, true);
                }
                Part::Reasoning(_) | Part::Opaque(_) | Part::ToolCall(_) => {}
            }
        }
    }

    /// Adds a markable block.
    fn block(&mut self, speaker: Speaker, write: impl FnOnce(&mut Vec<u8>)) {
        self.write_block(speaker, write);
        if let Some(turn) = &mut self.last_turn {
            turn.markable = last_end(&turn.blocks);
        }
    }

    /// Adds a block of the model that cannot be marked.
    fn unmarkable_block(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.write_block(Speaker::Assistant, write);
    }

    fn write_block(&mut self, speaker: Speaker, write: impl FnOnce(&mut Vec<u8>)) {
        let blocks = &mut self.turn(speaker).blocks;
        let begin = blocks.len();
        write(blocks);
        self.update_digest(begin, false);
    }

    /// Adds the last block of the turn, which begins at `begin`, to the digest.
    fn update_digest(&mut self, begin: usize, in_results: bool) {
        if let (Some(before), Some(turn)) = (&self.digest, &self.last_turn) {
            let block = &(if in_results { &turn.results } else { &turn.blocks })[begin..];
            if !block.is_empty() {
                self.digest = Some(after(before, turn.speaker, block));
            }
        }
    }

    /// Returns the last turn if it is this speaker's, else a new one.
    fn turn(&mut self, speaker: Speaker) -> &mut Turn {
        if self.last_turn.as_ref().is_some_and(|turn| turn.speaker != speaker) {
            self.close();
        }
        if self.last_turn.is_none() && speaker == Speaker::Assistant {
            self.mark_before_response = self.mark_since_response.take().or(self.mark_before_response);
        }
        self.last_turn.get_or_insert_with(|| Turn::new(speaker))
    }

    fn close(&mut self) {
        if let Some(turn) = self.last_turn.take() {
            let mark = turn.write(self.text.writer());
            self.mark_since_response = mark.map(|mark| self.text.position(mark)).or(self.mark_since_response);
        }
    }
}

impl Encoder for Conversation {
    fn is_compatible_with(&self, other: &Self) -> bool {
        self.rules == other.rules && self.ids.has_same_limit(&other.ids)
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            // Moving a later system message to the front would change the cached prompt.
            Role::System if self.last_turn.is_none() => {
                let begin = self.system.len();
                text_block(&mut self.system, &message.plain_text());
                let block = &self.system[begin..];
                self.digest = self.digest.as_ref().map(|before| after(before, Speaker::User, block));
            }
            Role::System => {
                let text = later_system_text(message);
                self.block(Speaker::User, |blocks| text_block(blocks, &text));
            }
            Role::Assistant => self.assistant(message),
            Role::User | Role::Tool => self.user(message),
        }
    }

    fn text_mut(&mut self) -> &mut EncodedText {
        &mut self.text
    }

    fn own_bytes(&self) -> usize {
        let last_turn =
            self.last_turn.as_ref().map_or(0, |turn| turn.results.capacity() + turn.blocks.capacity());
        self.system.capacity() + self.text.own_bytes() + last_turn + self.ids.bytes()
    }
}

impl Turn {
    fn new(speaker: Speaker) -> Self {
        Self { speaker, results: Vec::new(), blocks: Vec::new(), markable: None }
    }

    /// Writes the turn. Returns the end of its last markable block.
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

/// Extends a digest by one block.
fn after(before: &Digest, speaker: Speaker, block: &[u8]) -> Digest {
    let speaker: &[u8] = if speaker == Speaker::User { b"user" } else { b"assistant" };
    Digest::of(&[before.as_str().as_bytes(), speaker, block])
}

/// Returns the end of the last block: before its brace and comma.
fn last_end(blocks: &[u8]) -> Option<usize> {
    blocks.len().checked_sub(2)
}

/// The text with a mark at this position.
fn with_mark(text: &[u8], position: Option<usize>) -> Vec<Piece<'_>> {
    match position {
        Some(position) => {
            let (before, after) = text.split_at(position);
            [before, MARK, after].map(Piece::Copied).into()
        }
        None => vec![Piece::Copied(text)],
    }
}

/// Returns the blocks with a mark in the last one, if there is one.
pub(super) fn with_mark_in_last(blocks: &[u8]) -> Vec<Piece<'_>> {
    with_mark(blocks, last_end(blocks))
}
