//! Which part of the conversation is seen.

use super::App;
use crate::chat::view;

/// What the top of the screen shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scroll {
    /// Whatever makes the end seen.
    Follow,
    /// A line of a block, so that what comes later moves nothing.
    At { block: usize, line: usize },
}

impl App {
    pub(super) fn scroll_to_end(&mut self) {
        self.scroll = Scroll::Follow;
    }

    pub(super) fn scroll_to_start(&mut self) {
        self.scroll = Scroll::At { block: 0, line: 0 };
    }

    /// Scrolls by pages of what is seen, less two lines to find one's way; negative is up.
    pub(super) fn scroll_pages(&mut self, pages: isize) {
        let page = view::transcript_area(self).height.saturating_sub(2).max(1);
        self.scroll_lines(pages * isize::from(page.cast_signed().max(1)));
    }

    /// Scrolls by lines; negative is up.
    pub(super) fn scroll_lines(&mut self, lines: isize) {
        let area = view::transcript_area(self);
        let heights: Vec<(usize, usize)> = view::heights(self, area.width);
        let total: usize = heights.iter().map(|(_, height)| height).sum();
        let bottom = total.saturating_sub(usize::from(area.height));
        let top = match self.scroll {
            Scroll::Follow => bottom,
            Scroll::At { block, line } => {
                let before: usize =
                    heights.iter().take_while(|(n, _)| *n < block).map(|(_, height)| height).sum();
                (before + line).min(bottom)
            }
        };
        let top = top.saturating_add_signed(lines);
        self.scroll = if top >= bottom { Scroll::Follow } else { at(&heights, top) };
    }
}

fn at(heights: &[(usize, usize)], top: usize) -> Scroll {
    let mut line = top;
    for (block, height) in heights {
        if line < *height {
            return Scroll::At { block: *block, line };
        }
        line -= height;
    }
    Scroll::Follow
}
