//! A rule that is being written: for how long it counts, and what it matches.

use ratatui::text::{Line, Span};

use super::{BAD, DIM, EDITOR_ROWS_MAX, PICKED, wrap};
use crate::chat::card::{Remembering, SCOPES};

pub(super) const KEYS: &str = "Tab: how long, ctrl-R: narrower or wider, Enter decides, Esc goes back";

/// Rows without the hint below.
pub(super) fn rows(remembering: &Remembering, width: u16) -> usize {
    head(remembering, width).len()
        + remembering.editor.rows(width).clamp(1, EDITOR_ROWS_MAX)
        + foot(remembering, width).len()
}

/// What becomes of like calls, and for how long.
pub(super) fn head(remembering: &Remembering, width: u16) -> Vec<Line<'static>> {
    let what = if remembering.allow { "run like calls unasked for" } else { "deny like calls for" };
    let (_, picked) = SCOPES[remembering.at];
    let all: usize = SCOPES.iter().map(|(_, words)| words.len() + 3).sum();
    let what = Line::styled(what, DIM);
    // Where they do not fit, only the one that counts is shown.
    if all > usize::from(width) {
        return vec![what, Line::styled(picked, PICKED)];
    }
    let scopes = SCOPES.iter().flat_map(|(_, words)| {
        let style = if *words == picked { PICKED } else { DIM };
        [Span::styled(format!(" {words} "), style), Span::raw(" ")]
    });
    vec![what, Line::from_iter(scopes)]
}

/// What the rule matches.
pub(super) fn foot(remembering: &Remembering, width: u16) -> Vec<Line<'static>> {
    let (words, fits) = remembering.preview.in_words();
    let style = if fits { DIM } else { BAD };
    wrap(&words, usize::from(width)).into_iter().map(|line| Line::styled(line, style)).collect()
}
