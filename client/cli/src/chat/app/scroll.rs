//! Scrolling through the conversation.

use ratatui::layout::{Position, Rect};

use super::{App, Focus};
use crate::chat::layout::{
    BlockHeight, LayoutInput, block_heights, blocks::BlockOptions, question::lines_and_rows,
};

/// The position of the conversation on the screen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scroll {
    /// The end of the conversation is visible.
    AtEnd,
    /// This line is at the top, so that later blocks move nothing.
    At { block: usize, line: usize },
}

impl App {
    /// The state that the layout of the screen depends on.
    pub(crate) fn layout(&self) -> LayoutInput<'_> {
        LayoutInput {
            editor: &self.editor,
            card: self.cards.front(),
            card_has_keys: self.focus == Focus::Card,
            queued: self.queue.runs.len(),
            hint: self.hint.as_deref(),
        }
    }

    /// The settings of blocks at this width.
    pub(crate) fn block_options(&self, width: u16) -> BlockOptions {
        BlockOptions { width, details: self.details, now: self.now }
    }

    fn transcript_area(&self) -> Rect {
        self.layout().areas(Rect::from((Position::ORIGIN, self.size))).transcript
    }

    /// The lines of the question that has the keys, and the rows that show them. `None` without one on the screen.
    fn question_size(&self) -> Option<(usize, usize)> {
        let card = self.cards.front().filter(|_| self.focus == Focus::Card)?;
        let area = self.layout().areas(Rect::from((Position::ORIGIN, self.size))).card;
        (area.height > 0).then(|| lines_and_rows(card, area))
    }

    /// Notes what is on the screen of the question that has the keys.
    pub(super) fn note_question(&mut self) {
        if let Some((lines, rows)) = self.question_size()
            && let Some(card) = self.cards.front_mut()
        {
            card.view.shown(lines, rows);
        }
    }

    /// Scrolls the question that has the keys by pages. False if it needs no scrolling.
    pub(super) fn scroll_question(&mut self, pages: isize) -> bool {
        let Some((lines, rows)) = self.question_size().filter(|(lines, rows)| lines > rows) else {
            return false;
        };
        let Some(card) = self.cards.front_mut() else { return false };
        card.view.shown(lines, rows);
        card.view.first = card.view.first.saturating_add_signed(pages * rows.cast_signed());
        card.view.shown(lines, rows);
        card.error = None;
        true
    }

    pub(super) fn scroll_to_end(&mut self) {
        self.scroll = Scroll::AtEnd;
    }

    pub(super) fn scroll_to_start(&mut self) {
        self.scroll = Scroll::At { block: 0, line: 0 };
    }

    /// Scrolls by pages, each two lines less than the visible area. Negative is up.
    pub(super) fn scroll_pages(&mut self, pages: isize) {
        let page = self.transcript_area().height.saturating_sub(2).max(1);
        self.scroll_lines(pages * isize::from(page.cast_signed().max(1)));
    }

    /// Scrolls by lines. Negative is up.
    pub(super) fn scroll_lines(&mut self, lines: isize) {
        let area = self.transcript_area();
        let heights = block_heights(&self.transcript, self.block_options(area.width));
        let total: usize = heights.iter().map(|height| height.lines).sum();
        let bottom = total.saturating_sub(usize::from(area.height));
        let top = match self.scroll {
            Scroll::AtEnd => bottom,
            Scroll::At { block, line } => {
                let before: usize =
                    heights.iter().take_while(|height| height.block < block).map(|height| height.lines).sum();
                (before + line).min(bottom)
            }
        };
        let top = top.saturating_add_signed(lines);
        self.scroll = if top >= bottom { Scroll::AtEnd } else { at(&heights, top) };
    }
}

/// The position with this line of the whole conversation at the top.
fn at(heights: &[BlockHeight], top: usize) -> Scroll {
    let mut line = top;
    for height in heights {
        if line < height.lines {
            return Scroll::At { block: height.block, line };
        }
        line -= height.lines;
    }
    Scroll::AtEnd
}
