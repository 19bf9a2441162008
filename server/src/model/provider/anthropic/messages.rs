//! The conversation in the terms of Messages: turns that alternate, made of blocks.

use agentloop_core::message::{Message, Part, Role};
use agentloop_core::tool::Digest;

use super::blocks::{
    call_block, cited_block, image_block, result_block, text_block, thought_block, writes_call_unchanged,
};
use super::state::Rules;
use crate::model::request::history::{CallIds, GO_ON, OPENING, element};
use crate::model::request::prefix::{Encoding, trim};

const CALL_ID_BYTES_MAX: usize = 64;
/// What marks a block for the provider's cache, put before the brace that ends it.
const MARK: &[u8] = br#","cache_control":{"type":"ephemeral"}"#;

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
    rules: Rules,
    /// Of all that is written so far, where that decides which thoughts go back.
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
    /// Whether it asks the model to go on.
    goes_on: bool,
}

impl Conversation {
    /// Before the first message.
    pub(super) fn new(rules: Rules) -> Self {
        Self {
            digest: rules.base.clone(),
            system: Vec::new(),
            text: Vec::new(),
            open: None,
            before: None,
            since: None,
            ids: CallIds::plain(CALL_ID_BYTES_MAX),
            rules,
        }
    }

    /// What the operator says besides the system prompt.
    pub(super) fn system(&self) -> &[u8] {
        &self.system
    }

    /// Of all that is sent before the answer.
    pub(super) fn digest(&self, ending: &Ending) -> Option<Digest> {
        let before = self.digest.as_ref()?;
        if !ending.goes_on {
            return Some(before.clone());
        }
        let mut block = Vec::new();
        text_block(&mut block, GO_ON);
        Some(after(before, Speaker::User, &block))
    }

    /// The end of the conversation; where the model's own words are the last, it is asked to `go_on`. Where it is `marked`, it has two marks: at the end, for the request that comes
    /// next, and where the request before this one ended, since its prompt is kept up to there. The provider looks for
    /// what it keeps only some twenty blocks before a mark, and a single round of parallel calls can have more.
    pub(super) fn ending(&self, marked: bool, go_on: bool) -> Ending {
        let mut text = Vec::new();
        let mut within = self.open.as_ref().and_then(|turn| turn.write(&mut text));
        let goes_on = go_on && self.is_the_models();
        if goes_on {
            let mut turn = Turn::new(Speaker::User);
            text_block(&mut turn.blocks, GO_ON);
            turn.markable = last_end(&turn.blocks);
            within = turn.write(&mut text);
        }
        let since = if within.is_none() { self.since } else { None };
        if marked {
            Ending { text, before: [self.before, since], within, goes_on }
        } else {
            Ending { text, before: [None, None], within: None, goes_on }
        }
    }

    /// Whether the last words are the model's.
    fn is_the_models(&self) -> bool {
        self.open.as_ref().is_some_and(|turn| turn.speaker == Speaker::Assistant)
    }

    /// The messages to send, in pieces.
    pub(super) fn messages<'a>(&'a self, ending: &'a Ending) -> Vec<&'a [u8]> {
        let mut pieces = marked(&self.text, ending.before);
        pieces.extend(marked(&ending.text, [ending.within]));
        pieces
    }

    /// Whether a message of the model has anything that is written.
    fn says_anything(&self, message: &Message) -> bool {
        message.parts.iter().any(|part| match part {
            Part::Text { text, .. } => !text.trim().is_empty(),
            Part::Reasoning(reasoning) => self.rules.may_go_back(reasoning),
            Part::Opaque(state) => self.rules.opaque(state).is_some(),
            Part::ToolCall(_) | Part::Image { .. } => true,
            Part::ToolResult(_) => false,
        })
    }

    /// Writes a message of the model.
    fn assistant(&mut self, message: &Message) {
        if !self.says_anything(message) {
            return;
        }
        if self.is_the_models() {
            self.block(Speaker::User, |blocks| text_block(blocks, GO_ON));
        }
        if self.open.is_none() {
            self.block(Speaker::User, |blocks| text_block(blocks, OPENING));
        }
        let prefix = self.digest.clone();
        // Whether all that the model said so far in this message is written as it said it.
        let mut is_whole = true;
        for part in &message.parts {
            match part {
                Part::Reasoning(reasoning) => {
                    let state = self.rules.thought(reasoning, prefix.as_ref());
                    match state.filter(|_| is_whole || prefix.is_none()) {
                        Some(state) => {
                            self.unmarked(|blocks| thought_block(blocks, &reasoning.text, &state));
                        }
                        None => is_whole = false,
                    }
                }
                // The API refuses blank text.
                Part::Text { text, .. } if text.trim().is_empty() => is_whole = false,
                Part::Text { text, state } => match self.rules.citations(state.as_ref()) {
                    Some(citations) => {
                        self.block(Speaker::Assistant, |blocks| cited_block(blocks, text, &citations));
                    }
                    None => self.block(Speaker::Assistant, |blocks| text_block(blocks, text)),
                },
                Part::Opaque(state) => match self.rules.opaque(state) {
                    Some(block) => self.unmarked(|blocks| {
                        blocks.extend_from_slice(block.as_bytes());
                        blocks.push(b',');
                    }),
                    None => is_whole = false,
                },
                Part::ToolCall(call) => {
                    let id = self.ids.call(&call.provider_id);
                    is_whole &= writes_call_unchanged(call, &id);
                    self.block(Speaker::Assistant, |blocks| call_block(blocks, call, &id));
                }
                Part::Image { image } => {
                    self.block(Speaker::Assistant, |blocks| image_block(blocks, image));
                }
                Part::ToolResult(_) => {}
            }
        }
    }

    /// Writes a message of the user or of tools.
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
                    self.note(begin, true);
                }
                Part::Reasoning(_) | Part::Opaque(_) | Part::ToolCall(_) => {}
            }
        }
    }

    /// Adds a block that can be marked.
    fn block(&mut self, speaker: Speaker, write: impl FnOnce(&mut Vec<u8>)) {
        self.written(speaker, write);
        if let Some(turn) = &mut self.open {
            turn.markable = last_end(&turn.blocks);
        }
    }

    /// Adds a block of the model's that cannot be marked.
    fn unmarked(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        self.written(Speaker::Assistant, write);
    }

    fn written(&mut self, speaker: Speaker, write: impl FnOnce(&mut Vec<u8>)) {
        let blocks = &mut self.turn(speaker).blocks;
        let begin = blocks.len();
        write(blocks);
        self.note(begin, false);
    }

    /// Takes into the digest the block that is the turn's last, in its results or not, and begins there.
    fn note(&mut self, begin: usize, in_results: bool) {
        if let (Some(before), Some(turn)) = (&self.digest, &self.open) {
            let block = &(if in_results { &turn.results } else { &turn.blocks })[begin..];
            if !block.is_empty() {
                self.digest = Some(after(before, turn.speaker, block));
            }
        }
    }

    /// The last turn if it is this speaker's, else a new one.
    fn turn(&mut self, speaker: Speaker) -> &mut Turn {
        if self.open.as_ref().is_some_and(|turn| turn.speaker != speaker) {
            self.close();
        }
        if self.open.is_none() && speaker == Speaker::Assistant {
            self.before = self.since.take().or(self.before);
        }
        self.open.get_or_insert_with(|| Turn::new(speaker))
    }

    fn close(&mut self) {
        if let Some(turn) = self.open.take() {
            self.since = turn.write(&mut self.text).or(self.since);
        }
    }
}

impl Encoding for Conversation {
    fn writes_like(&self, other: &Self) -> bool {
        self.rules == other.rules && self.ids.same_rule(&other.ids)
    }

    fn add(&mut self, message: &Message) {
        match message.role {
            // Moving a late one to the front would change a prompt that the provider has cached.
            Role::System if self.open.is_none() => {
                let begin = self.system.len();
                text_block(&mut self.system, &message.plain_text());
                let block = &self.system[begin..];
                self.digest = self.digest.as_ref().map(|before| after(before, Speaker::User, block));
            }
            Role::System => {
                let text = format!("<system>\n{}\n</system>", message.plain_text());
                self.block(Speaker::User, |blocks| text_block(blocks, &text));
            }
            Role::Assistant => self.assistant(message),
            Role::User | Role::Tool => self.user(message),
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
    fn new(speaker: Speaker) -> Self {
        Self { speaker, results: Vec::new(), blocks: Vec::new(), markable: None }
    }

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

/// The digest of what is written before a block and of the block.
fn after(before: &Digest, speaker: Speaker, block: &[u8]) -> Digest {
    let speaker: &[u8] = if speaker == Speaker::User { b"user" } else { b"assistant" };
    Digest::of(&[before.as_str().as_bytes(), speaker, block])
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
