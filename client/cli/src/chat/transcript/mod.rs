//! The conversation as it is shown: blocks, in the order in which they came about.

mod apply;
#[cfg(test)]
mod tests;
mod tool;

use std::{collections::VecDeque, time::Duration};

use agentloop_client::v1::{Entry, Message, Role, part::Content};

pub(crate) use self::tool::{Call, State};
use crate::terminal::text::{beginning, tame};

/// Older blocks are dropped: they are in the session.
const BLOCKS_MAX: usize = 4000;
/// What is kept of one text.
const TEXT_BYTES_MAX: usize = 256 * 1024;

/// What is said and done in a conversation.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    blocks: VecDeque<Block>,
    /// Blocks that were dropped, so that a block's number never changes.
    dropped: usize,
    /// Model call and try of what is being said.
    speaking: (u32, u32),
}

/// A piece of the conversation. All text in it can be drawn as it is.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    /// The caller's words.
    User(String),
    /// The model's words.
    Said(Said),
    /// What the model thought before.
    Reasoning(Said),
    /// A tool call.
    Call(Box<Call>),
    /// What happened beside it.
    Note(Tone, String),
}

/// Words of the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Said {
    pub(crate) text: String,
    /// Whether they are still coming, and may be taken back.
    pub(crate) live: bool,
}

/// How much a note matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Quiet,
    Warning,
    Bad,
}

impl Transcript {
    /// The blocks with their numbers.
    pub(crate) fn blocks(&self) -> impl DoubleEndedIterator<Item = (usize, &Block)> + ExactSizeIterator {
        let dropped = self.dropped;
        self.blocks.iter().enumerate().map(move |(n, block)| (n + dropped, block))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn user(&mut self, text: &str) {
        self.push(Block::User(beginning(&tame(text), TEXT_BYTES_MAX)));
    }

    /// Takes back the last words of the caller, which did not reach the server.
    pub(crate) fn take_back_user(&mut self) {
        if let Some(at) = self.blocks.iter().rposition(|block| matches!(block, Block::User(_))) {
            self.blocks.remove(at);
        }
    }

    pub(crate) fn note(&mut self, tone: Tone, text: &str) {
        self.push(Block::Note(tone, beginning(&tame(text), TEXT_BYTES_MAX)));
    }

    /// A message that a session holds.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        if let Some(compaction) = &entry.compaction {
            self.compacted(compaction);
        }
        if let Some(message) = &entry.message {
            self.message(message);
        }
    }

    fn message(&mut self, message: &Message) {
        for part in &message.parts {
            match &part.content {
                Some(Content::Text(text)) => self.text(message.role(), text),
                Some(Content::Reasoning(reasoning)) if !reasoning.text.is_empty() => {
                    self.push(Block::Reasoning(Said::finished(&reasoning.text)));
                }
                Some(Content::ToolCall(call)) => self.call(&call.call_id).asked(call),
                Some(Content::ToolResult(result)) => {
                    self.call(&result.call_id).settled(result, String::new());
                }
                Some(Content::Image(image)) => {
                    self.note(Tone::Quiet, &format!("(picture {})", image.media_type))
                }
                Some(Content::Reasoning(_)) | None => {}
            }
        }
    }

    fn text(&mut self, role: Role, text: &str) {
        if text.is_empty() {
            return;
        }
        match role {
            Role::Assistant => self.push(Block::Said(Said::finished(text))),
            Role::User => self.user(text),
            _ => self.note(Tone::Quiet, text),
        }
    }

    /// A tool call, which is made where there is none of this id. A result may come long after its call: the search
    /// begins at the end.
    fn call(&mut self, call_id: &str) -> &mut Call {
        let is_it = |block: &Block| matches!(block, Block::Call(call) if call.call_id == call_id);
        let at = self.blocks.iter().rposition(is_it).unwrap_or_else(|| {
            self.push(Block::Call(Box::new(Call::new(call_id))));
            self.blocks.len() - 1
        });
        match &mut self.blocks[at] {
            Block::Call(call) => call,
            _ => unreachable!("the block was chosen for being a call"),
        }
    }

    fn push(&mut self, block: Block) {
        if self.blocks.len() == BLOCKS_MAX {
            self.blocks.pop_front();
            self.dropped += 1;
        }
        self.blocks.push_back(block);
    }
}

impl Said {
    fn finished(text: &str) -> Said {
        Said { text: beginning(&tame(text), TEXT_BYTES_MAX), live: false }
    }

    /// Another piece. Pieces may cut an escape sequence in two, whose rest is then shown as the harmless text it is.
    fn grow(&mut self, piece: &str) {
        if self.text.len() < TEXT_BYTES_MAX {
            self.text.push_str(&tame(piece));
        }
    }
}

/// When something was seen, from the start of the program.
pub(crate) type Moment = Duration;
