//! Lines of a rule draft: its scope, and the questions that it matches.

use ratatui::text::{Line, Span};

use super::CARD_EDITOR_ROWS_MAX;
use crate::{
    chat::{
        card::{RuleDraft, SCOPES},
        styles::{BAD, DIM, PICKED},
    },
    terminal::text::wrap,
};

pub(crate) const KEYS: &str = "Tab: how long, ctrl-R: narrower or wider, Enter decides, Esc goes back";

/// Rows of the draft at a width, without the hint below.
pub(crate) fn rows(draft: &RuleDraft, width: u16) -> usize {
    head(draft, width).len()
        + draft.editor.rows(width).clamp(1, CARD_EDITOR_ROWS_MAX)
        + foot(draft, width).len()
}

/// The lines above the field: the effect of the rule, and its scope.
pub(crate) fn head(draft: &RuleDraft, width: u16) -> Vec<Line<'static>> {
    let what = if draft.allow { "run like calls unasked for" } else { "deny like calls for" };
    let (_, picked) = SCOPES[draft.at];
    let all: usize = SCOPES.iter().map(|(_, words)| words.len() + 3).sum();
    let what = Line::styled(what, DIM);
    // If the scopes do not fit, only the selected one is shown.
    if all > usize::from(width) {
        return vec![what, Line::styled(picked, PICKED)];
    }
    let scopes = SCOPES.iter().flat_map(|(_, words)| {
        let style = if *words == picked { PICKED } else { DIM };
        [Span::styled(format!(" {words} "), style), Span::raw(" ")]
    });
    vec![what, Line::from_iter(scopes)]
}

/// The lines below the field: the questions that the rule matches.
pub(crate) fn foot(draft: &RuleDraft, width: u16) -> Vec<Line<'static>> {
    let (words, fits) = draft.preview.describe();
    let style = if fits { DIM } else { BAD };
    wrap(&words, usize::from(width)).into_iter().map(|line| Line::styled(line, style)).collect()
}
