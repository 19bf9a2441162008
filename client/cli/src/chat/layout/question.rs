//! The lines of a question, and the rows of its card.

use agentloop_client::v1::HumanRequestKind;
use ratatui::{layout::Rect, style::Style, text::Line};
use unicode_width::UnicodeWidthStr as _;

use super::{CARD_EDITOR_ROWS_MAX, rule_draft};
use crate::{
    chat::{
        card::{Card, Choice, Stage},
        styles::{BOLD, DIM},
    },
    terminal::{
        format,
        text::{escape_hidden, members, sanitize, wrap},
    },
};

/// Columns and rows of the border.
const BORDER: u16 = 2;
/// Bound on the arguments that are shown, so that wrapping stays fast.
const ARGUMENTS_BYTES_MAX: usize = 64 * 1024;
/// A lower card has a title and no border.
const ROWS_FOR_BORDERS: u16 = 8;
/// Bound on the rows of the hint below the answer.
const HINT_ROWS_MAX: usize = 2;

/// Bound on the label of an option, in characters.
const OPTION_CHARS: usize = 200;
/// Rows of the two outcomes of a visit.
const VISIT_ROWS: usize = 2;

/// Rows of a card at a width, with its border.
pub(crate) fn rows(card: &Card, width: u16) -> usize {
    let inner = width.saturating_sub(BORDER);
    about(card, inner).len() + answer_rows(card, inner) + usize::from(BORDER)
}

/// True if a card of this height has a border around it. A lower one has a title.
pub(crate) fn has_border(area: Rect) -> bool {
    area.height >= ROWS_FOR_BORDERS
}

/// The lines of the question of a card in this area, and the rows that show them.
pub(crate) fn lines_and_rows(card: &Card, area: Rect) -> (usize, usize) {
    let (columns, rows) = if has_border(area) { (BORDER, BORDER) } else { (0, 1) };
    let (width, height) = (area.width.saturating_sub(columns), area.height.saturating_sub(rows));
    let room = usize::from(height).saturating_sub(answer_rows(card, width)).max(1);
    (about(card, width).len(), room)
}

/// The lines of the question. Nothing is hidden, because a person decides about it.
pub(crate) fn about(card: &Card, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let request = &card.request;
    let mut lines = Vec::new();
    let mut add = |text: &str, style: Style| {
        lines.extend(wrap(text, width).into_iter().map(|line| Line::styled(line, style)));
    };
    if !request.question.is_empty() {
        add(&sanitize(&request.question), BOLD);
    }
    if !request.tool.is_empty() {
        add(&escape_hidden(&request.tool), BOLD);
    }
    if !request.arguments_json.is_empty() {
        add(&arguments(&request.arguments_json), Style::new());
    }
    if !request.url.is_empty() {
        add(&escape_hidden(&request.url), Style::new());
    }
    if request.expires_at.is_some() {
        let end = match request.kind() {
            HumanRequestKind::Approve => "denied by itself at",
            _ => "open until",
        };
        add(&format!("{end} {} UTC", format::time(request.expires_at.as_ref())), DIM);
    }
    lines
}

/// The arguments with one member per line and nothing hidden.
fn arguments(json: &str) -> String {
    let cut = &json[..json.floor_char_boundary(ARGUMENTS_BYTES_MAX)];
    let sign = if cut.len() < json.len() { " … (too long to be shown whole)" } else { "" };
    escape_hidden(&members(cut)) + sign
}

/// Rows of the answer at a width: the choices, options or fields, with an error and the hint.
pub(crate) fn answer_rows(card: &Card, width: u16) -> usize {
    let error = card.error.as_ref().map_or(0, |error| wrap(error, usize::from(width)).len());
    error
        + hint(card, width).len()
        + match &card.stage {
            Stage::Choosing { .. } | Stage::Selecting { .. } => items(card, width).iter().map(Vec::len).sum(),
            Stage::Writing { editor, .. } => editor.rows(width).clamp(1, CARD_EDITOR_ROWS_MAX) + 1,
            Stage::RuleDraft(draft) => rule_draft::rows(draft, width),
            Stage::Filling { form, editor } => {
                let prompt = wrap(&form.prompt(), usize::from(width)).len();
                prompt + editor.rows(width).clamp(1, CARD_EDITOR_ROWS_MAX)
            }
            Stage::Visiting { .. } => VISIT_ROWS,
        }
}

/// The choices or options of a card, each with the rows that show it: a long label is wrapped behind its mark.
pub(crate) fn items(card: &Card, width: u16) -> Vec<Vec<String>> {
    let kind = card.request.kind();
    match &card.stage {
        Stage::Choosing { .. } => {
            let item = |choice: &Choice| item(&format!(" {}  ", choice.letter()), choice.label(kind), width);
            card.choices().iter().map(item).collect()
        }
        Stage::Selecting { at, chosen } => {
            let mark = |n: usize| match (card.request.multiple, chosen.contains(&n)) {
                (true, true) => "[x] ",
                (true, false) => "[ ] ",
                (false, _) if Some(n) == *at => " →  ",
                (false, _) => "    ",
            };
            let options = card.request.options.iter().enumerate().map(|(n, option)| {
                let label = if option.label.is_empty() { &option.id } else { &option.label };
                item(mark(n), &format::first_line(&sanitize(label), OPTION_CHARS), width)
            });
            options.collect()
        }
        _ => Vec::new(),
    }
}

fn item(mark: &str, label: &str, width: u16) -> Vec<String> {
    let indent = " ".repeat(mark.width());
    let rows = wrap(label, usize::from(width).saturating_sub(indent.len())).into_iter().enumerate();
    rows.map(|(n, row)| format!("{}{row} ", if n == 0 { mark } else { &indent })).collect()
}

/// The lines of the hint below the answer: the keys. A narrow card has them on two lines.
pub(crate) fn hint(card: &Card, width: u16) -> Vec<Line<'static>> {
    let mut lines = wrap(keys(card), usize::from(width));
    lines.truncate(HINT_ROWS_MAX);
    lines.into_iter().map(|line| Line::styled(line, DIM)).collect()
}

fn keys(card: &Card) -> &'static str {
    if card.sent {
        return "sending the answer …";
    }
    match &card.stage {
        Stage::Choosing { .. } => "one letter or ↑↓ picks, Enter confirms, Esc puts it aside",
        Stage::Selecting { .. } if card.request.multiple => {
            "Space marks, Enter answers, ctrl-X declines, Esc puts it aside"
        }
        Stage::Selecting { .. } => "↑↓ picks, Enter answers, ctrl-X declines, Esc puts it aside",
        Stage::RuleDraft(_) => rule_draft::KEYS,
        Stage::Filling { .. } => "Enter takes the value, ctrl-X declines, Esc puts it aside",
        Stage::Visiting { .. } => "y or n picks, Enter answers, ctrl-X declines, Esc puts it aside",
        Stage::Writing { of: Some(_), .. } => "Enter answers, Esc goes back",
        Stage::Writing { of: None, .. } => "Enter answers, ctrl-X declines, Esc puts it aside",
    }
}
