//! The conversation on the screen, as a list of blocks in the order of their events.

mod apply;
#[cfg(test)]
mod tests;
mod tool;

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use agentloop_client::v1::{Entry, Message, Role, TodoItem, part::Content};

pub(crate) use self::tool::{CallBlock, CallState, answer_to};
use crate::terminal::{
    format,
    model_attempt::ModelAttempt,
    render::status::AskedQuestion,
    text::{sanitize, truncate},
};

/// Beginning of the note that the server adds for the model after a response that was cut off.
pub(crate) const CUT_OFF_NOTE: &str = "[The answer above was cut off";

/// Bound on blocks. Older ones are dropped; the session has them.
const BLOCKS_MAX: usize = 4000;
/// Bound on one text. A longer one is cut.
const TEXT_BYTES_MAX: usize = 256 * 1024;
/// Words after a text that was cut.
const REST_IS_ELSEWHERE: &str =
    "\n\n[the rest is too long for this screen; `agentloop runs RUN` prints the answer of a run in whole]";

/// The blocks of a conversation.
#[derive(Debug, Default)]
pub(crate) struct Transcript {
    blocks: VecDeque<Block>,
    /// Number of dropped blocks, so that a block's number never changes.
    dropped: usize,
    /// The attempt of a model call whose text is being shown.
    attempt: ModelAttempt,
    /// Open questions, by id.
    asked: HashMap<String, AskedQuestion>,
}

/// A piece of the conversation. All its text is sanitized.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Block {
    /// A message of the user.
    User(String),
    /// Text of the model.
    Text(TextBlock),
    /// Reasoning of the model.
    Reasoning(TextBlock),
    /// A tool call, with its state and result.
    Call(Box<CallBlock>),
    /// The session's to-do list, one item a line. There is at most one: the last one counts.
    Todos(Vec<String>),
    /// A note about another event.
    Note(Tone, String),
}

/// A text of the model.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct TextBlock {
    pub(crate) text: String,
    /// True until the text is finished. It may still grow or be removed.
    pub(crate) unfinished: bool,
}

/// The importance of a note.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Quiet,
    Warning,
    Bad,
}

impl Transcript {
    /// The blocks with their numbers, which never change.
    pub(crate) fn blocks(&self) -> impl DoubleEndedIterator<Item = (usize, &Block)> + ExactSizeIterator {
        let dropped = self.dropped;
        self.blocks.iter().enumerate().map(move |(n, block)| (n + dropped, block))
    }

    /// The block above the one with this number.
    pub(crate) fn before(&self, number: usize) -> Option<&Block> {
        number.checked_sub(self.dropped + 1).and_then(|at| self.blocks.get(at))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    pub(crate) fn user(&mut self, text: &str) {
        self.push(Block::User(truncate(&sanitize(text), TEXT_BYTES_MAX)));
    }

    /// Removes the last message of the user, which did not reach the server.
    pub(crate) fn remove_last_user(&mut self) {
        if let Some(at) = self.blocks.iter().rposition(|block| matches!(block, Block::User(_))) {
            self.blocks.remove(at);
        }
    }

    pub(crate) fn note(&mut self, tone: Tone, text: &str) {
        self.push(Block::Note(tone, truncate(&sanitize(text), TEXT_BYTES_MAX)));
    }

    /// Shows the session's to-do list, in place of an earlier one.
    pub(crate) fn todos(&mut self, items: &[TodoItem]) {
        self.blocks.retain(|block| !matches!(block, Block::Todos(_)));
        if !items.is_empty() {
            self.push(Block::Todos(format::todos(items).iter().map(|line| sanitize(line)).collect()));
        }
    }

    /// Adds an entry of a session.
    pub(crate) fn entry(&mut self, entry: &Entry) {
        if entry.damaged {
            self.note(Tone::Bad, &format!("entry {} is damaged and cannot be read", entry.entry_no));
        }
        if let Some(compaction) = &entry.compaction {
            self.compacted(compaction);
        }
        if let Some(message) = &entry.message {
            self.message(message);
        }
    }

    /// After the entries of the runs that have ended: a call without a result among them gets none.
    pub(crate) fn end_open_calls(&mut self) {
        for block in &mut self.blocks {
            if let Block::Call(call) = block
                && matches!(call.state, CallState::Pending { .. })
            {
                call.state = CallState::NotCompleted;
            }
        }
    }

    fn message(&mut self, message: &Message) {
        for part in &message.parts {
            match &part.content {
                Some(Content::Text(text)) => self.text(message.role(), text),
                Some(Content::Reasoning(reasoning)) if !reasoning.text.is_empty() => {
                    self.push(Block::Reasoning(TextBlock::finished(&reasoning.text)));
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
            Role::Assistant => self.push(Block::Text(TextBlock::finished(text))),
            Role::User if text.starts_with(CUT_OFF_NOTE) => self.note(Tone::Quiet, text),
            Role::User => self.user(text),
            _ => self.note(Tone::Quiet, text),
        }
    }

    /// The block of a tool call; it is added if there is none. The search begins at the end, because most events are about
    /// recent calls.
    fn call(&mut self, call_id: &str) -> &mut CallBlock {
        let is_it = |block: &Block| matches!(block, Block::Call(call) if call.call_id == call_id);
        let at = self.blocks.iter().rposition(is_it).unwrap_or_else(|| {
            self.push(Block::Call(Box::new(CallBlock::new(call_id))));
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

impl TextBlock {
    fn finished(text: &str) -> TextBlock {
        let text = sanitize(text);
        let mut shown = truncate(&text, TEXT_BYTES_MAX);
        if text.len() > TEXT_BYTES_MAX {
            shown.push_str(REST_IS_ELSEWHERE);
        }
        TextBlock { text: shown, unfinished: false }
    }

    /// Adds a delta. If deltas split an escape sequence, its second part is shown as harmless text.
    fn grow(&mut self, piece: &str) {
        if self.text.len() < TEXT_BYTES_MAX {
            self.text.push_str(&sanitize(piece));
        }
    }
}

/// Time since the start of the program.
pub(crate) type Elapsed = Duration;
