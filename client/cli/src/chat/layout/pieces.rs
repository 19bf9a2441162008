//! Pieces of text, each in one style, and their lines.

use ratatui::style::Style;
use unicode_width::UnicodeWidthStr as _;

use crate::terminal::text::wrap;

/// A piece of text in one style.
pub(super) type Piece = (String, Style);

/// Columns that the pieces take beside each other.
pub(super) fn width_of(pieces: &[Piece]) -> usize {
    pieces.iter().map(|(text, _)| text.width()).sum()
}

/// Wraps pieces of a paragraph, each of which keeps its style. There is always one line.
pub(super) fn wrapped(pieces: &[Piece], columns: usize) -> Vec<Vec<Piece>> {
    let text: String = pieces.iter().map(|(text, _)| text.as_str()).collect();
    let (mut from, mut rest, mut before) = (0, pieces, 0);
    let mut lines = Vec::new();
    for line in wrap(&text, columns) {
        // A line is a part of the text; only white space between two lines is left out.
        let start = text[from..].find(&line).map_or(from, |at| from + at);
        from = (start + line.len()).min(text.len());
        // The pieces that end before this line are of no use for it and the next ones.
        while let [(first, _), later @ ..] = rest
            && before + first.len() <= start
        {
            (before, rest) = (before + first.len(), later);
        }
        lines.push(part_of(rest, start - before, from - before));
    }
    lines
}

/// The part of the pieces between two bytes of their whole text.
fn part_of(pieces: &[Piece], start: usize, end: usize) -> Vec<Piece> {
    let mut at = 0;
    let mut part = Vec::new();
    for (text, style) in pieces {
        if at >= end {
            break;
        }
        let (from, to) = (start.clamp(at, at + text.len()), end.clamp(at, at + text.len()));
        if from < to {
            part.push((text[from - at..to - at].to_owned(), *style));
        }
        at += text.len();
    }
    part
}
