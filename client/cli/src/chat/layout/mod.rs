//! The layout of the screen: the area of each part, and the lines of blocks and questions. It draws nothing.

pub(crate) mod blocks;
mod diff;
pub(crate) mod help;
mod markdown;
mod pieces;
pub(crate) mod question;
pub(crate) mod rule_draft;
mod table;

use ratatui::layout::{Constraint, Layout, Rect};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use self::blocks::BlockOptions;
use super::{card::Card, editor::Editor, transcript::Transcript};
use crate::terminal::text::wrap;

/// A lower screen does not show everything at once.
const ROWS_FOR_ALL: u16 = 12;
/// A narrower screen has two rows of status.
const COLUMNS_FOR_STATUS: u16 = 64;
/// Rows that a card leaves to the conversation, the editor and the status.
const ROWS_BESIDE_CARD: usize = 6;
const EDITOR_ROWS_MAX: usize = 8;
/// Bound on the rows of a text field in a card.
const CARD_EDITOR_ROWS_MAX: usize = 6;
/// Bound on the rows of the queue. With more runs, the last row shows how many are left out.
pub(crate) const QUEUE_ROWS_MAX: usize = 3;
/// Bound on the rows of a hint.
const HINT_ROWS_MAX: usize = 3;

/// The state of the chat that decides the areas.
pub(crate) struct LayoutInput<'a> {
    pub(crate) editor: &'a Editor,
    /// The question that is shown, if there is one.
    pub(crate) card: Option<&'a Card>,
    /// True if keys go to the card, false if they go to the editor.
    pub(crate) card_has_keys: bool,
    /// Number of queued runs.
    pub(crate) queued: usize,
    /// The hint that is shown in place of the status.
    pub(crate) hint: Option<&'a str>,
}

/// The areas of the screen, from top to bottom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Areas {
    pub(crate) transcript: Rect,
    pub(crate) card: Rect,
    pub(crate) queue: Rect,
    pub(crate) editor: Rect,
    pub(crate) status: Rect,
}

impl LayoutInput<'_> {
    /// Divides the screen.
    pub(crate) fn areas(&self, screen: Rect) -> Areas {
        let editor_rows = self.editor.rows(screen.width).clamp(1, EDITOR_ROWS_MAX);
        let card_rows = self.card.map_or(0, |card| question::rows(card, screen.width));
        // A part of the conversation stays visible, however long the arguments are.
        let height = usize::from(screen.height);
        let card_rows = card_rows.min((height * 2 / 3).max(height.saturating_sub(ROWS_BESIDE_CARD)));
        let is_small = screen.height < ROWS_FOR_ALL;
        // With no room for both, the part with the keys is shown.
        let (card_rows, editor_rows) = match (is_small, self.card_has_keys) {
            (true, true) => (usize::from(screen.height).saturating_sub(1), None),
            (true, false) => (card_rows.min(1), Some(editor_rows.min(usize::from(screen.height / 3).max(1)))),
            (false, _) => (card_rows, Some(editor_rows)),
        };
        let queue_rows = if is_small { 0 } else { self.queued.min(QUEUE_ROWS_MAX) };
        let hint_rows = self.hint.map_or(1, |hint| hint_lines(hint, screen.width).len());
        let status_rows = match (is_small, screen.width < COLUMNS_FOR_STATUS) {
            (true, _) => 1,
            (false, narrow) => hint_rows.max(if narrow { 2 } else { 1 }),
        };
        let rows = |rows: usize| Constraint::Length(u16::try_from(rows).unwrap_or(u16::MAX));
        let parts = [
            Constraint::Fill(1),
            rows(card_rows),
            rows(queue_rows),
            rows(editor_rows.map_or(0, |rows| rows + 1)),
            rows(status_rows),
        ];
        let [transcript, card, queue, editor, status] = Layout::vertical(parts).areas(screen);
        Areas { transcript, card, queue, editor, status }
    }
}

/// A hint as lines of at most this many columns. The end of a very long one is left out.
pub(crate) fn hint_lines(hint: &str, width: u16) -> Vec<String> {
    let mut lines = wrap(hint, usize::from(width));
    lines.truncate(HINT_ROWS_MAX);
    lines
}

/// The first of these texts that has room in so many columns, or else the last one.
pub(crate) fn fitting(texts: &[&'static str], columns: u16) -> &'static str {
    let fits = |text: &&&str| text.width() <= usize::from(columns);
    texts.iter().find(fits).or(texts.last()).copied().unwrap_or_default()
}

/// Number of lines of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeight {
    /// The block's number in the transcript.
    pub(crate) block: usize,
    pub(crate) lines: usize,
}

/// The heights of all blocks.
pub(crate) fn block_heights(transcript: &Transcript, options: BlockOptions) -> Vec<BlockHeight> {
    let height = |(number, block)| {
        let lines = blocks::lines_below(transcript.before(number), block, options);
        BlockHeight { block: number, lines: lines.len() }
    };
    transcript.blocks().map(height).collect()
}

/// Cuts a line into parts of at most so many columns, at any place. There is always one part.
fn cut_to(line: &str, columns: usize) -> Vec<String> {
    let mut parts = vec![String::new()];
    let mut used = 0;
    for c in line.chars() {
        let width = c.width().unwrap_or(0);
        if used + width > columns.max(2) {
            parts.push(String::new());
            used = 0;
        }
        used += width;
        if let Some(part) = parts.last_mut() {
            part.push(c);
        }
    }
    parts
}
