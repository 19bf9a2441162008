//! A question, drawn above the editor.

mod remember;

use agentloop_client::v1::HumanRequestKind;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::Line,
    widgets::{Block, BorderType, Borders, Paragraph, Widget},
};

use super::{BAD, BOLD, DIM, PICKED, WARN};
use crate::{
    chat::{
        app::{App, Focus},
        card::{Card, Choice, Stage},
        editor::Editor,
    },
    terminal::names,
    terminal::text::{exact, members, tame, wrap},
};

/// Columns and rows of the border.
const BORDER: u16 = 2;
/// Rows of the card below which it has a title and no border.
const ROWS_FOR_BORDERS: u16 = 8;
const EDITOR_ROWS_MAX: usize = 6;
/// What is shown of arguments: more than anybody reads, and less than what takes long to lay out.
const ARGUMENTS_BYTES_MAX: usize = 64 * 1024;

/// How many rows it takes at a width.
pub(super) fn rows(card: &Card, width: u16) -> usize {
    let inner = width.saturating_sub(BORDER);
    about(card, inner).len() + answer_rows(card, inner) + usize::from(BORDER)
}

pub(super) fn draw(card: &Card, app: &App, area: Rect, buf: &mut Buffer) {
    let has_keys = app.focus == Focus::Card && app.overlay.is_none();
    // Where there is little room, the question has it.
    let borders = if area.height < ROWS_FOR_BORDERS { Borders::TOP } else { Borders::ALL };
    let block = Block::new()
        .borders(borders)
        .border_type(BorderType::Rounded)
        .border_style(if has_keys { WARN } else { DIM })
        .title(title(card, app.cards.len(), has_keys));
    let inner = block.inner(area);
    block.render(area, buf);
    let answer = u16::try_from(answer_rows(card, inner.width)).unwrap_or(u16::MAX);
    // How to answer must be seen, even where the arguments are cut off.
    let [question, answer] = Layout::vertical([Constraint::Min(1), Constraint::Max(answer)]).areas(inner);
    draw_about(card, question, buf);
    draw_answer(card, has_keys, answer, buf);
}

fn title(card: &Card, count: usize, has_keys: bool) -> String {
    let what = match card.request.kind() {
        HumanRequestKind::Approve => "may this run?",
        HumanRequestKind::InDoubt => "did this take effect? Its host was lost",
        _ => "a question",
    };
    let more = if count > 1 { format!(" (1 of {count})") } else { String::new() };
    let how = if has_keys { "" } else { " · Tab: answer" };
    format!(" {what}{more}{how} ")
}

/// What is asked. Nothing of it is hidden: this is what a human decides about.
fn about(card: &Card, width: u16) -> Vec<Line<'static>> {
    let width = usize::from(width);
    let request = &card.request;
    let mut lines = Vec::new();
    let mut add = |text: &str, style: Style| {
        lines.extend(wrap(text, width).into_iter().map(|line| Line::styled(line, style)));
    };
    if !request.question.is_empty() {
        add(&tame(&request.question), BOLD);
    }
    if !request.tool.is_empty() {
        add(&exact(&request.tool), BOLD);
    }
    if !request.arguments_json.is_empty() {
        add(&arguments(&request.arguments_json), Style::new());
    }
    if request.expires_at.is_some() {
        add(&format!("denied by itself at {} UTC", names::time(request.expires_at.as_ref())), DIM);
    }
    lines
}

/// A member a line, spelt as they are.
fn arguments(json: &str) -> String {
    let cut = &json[..json.floor_char_boundary(ARGUMENTS_BYTES_MAX)];
    let sign = if cut.len() < json.len() { " … (too long to be shown whole)" } else { "" };
    exact(&members(cut)) + sign
}

fn draw_about(card: &Card, area: Rect, buf: &mut Buffer) {
    let mut lines = about(card, area.width);
    let height = usize::from(area.height);
    if lines.len() > height {
        lines.truncate(height);
        if let Some(last) = lines.last_mut() {
            *last = Line::styled("… more than fits: enlarge the terminal to see it whole", WARN);
        }
    }
    Paragraph::new(lines).render(area, buf);
}

fn answer_rows(card: &Card, width: u16) -> usize {
    let error = card.error.as_ref().map_or(0, |error| wrap(error, usize::from(width)).len());
    error
        + hint_rows(card)
        + match &card.stage {
            Stage::Choosing { .. } => card.choices().len(),
            Stage::Writing { editor, .. } => editor.rows(width).clamp(1, EDITOR_ROWS_MAX) + 1,
            Stage::Remembering(remembering) => remember::rows(remembering, width),
            Stage::Selecting { .. } => card.request.options.len(),
        }
}

fn hint_rows(_: &Card) -> usize {
    1
}

fn draw_answer(card: &Card, has_keys: bool, area: Rect, buf: &mut Buffer) {
    let mut lines: Vec<Line<'static>> = card
        .error
        .iter()
        .flat_map(|error| wrap(error, usize::from(area.width)))
        .map(|line| Line::styled(line, BAD))
        .collect();
    match &card.stage {
        Stage::Choosing { picked, .. } => {
            let room = usize::from(area.height).saturating_sub(lines.len() + hint_rows(card)).max(1);
            lines.extend(choices(card, *picked, room));
            lines.push(hint(card, "one letter or ↑↓ picks, Enter confirms, Esc puts it aside"));
            Paragraph::new(lines).render(area, buf);
        }
        Stage::Selecting { at, chosen } => {
            lines.extend(options(card, *at, chosen, area));
            let how = if card.request.multiple {
                "Space marks, Enter answers"
            } else {
                "↑↓ picks, Enter answers"
            };
            lines.push(hint(card, &format!("{how}, Esc puts it aside")));
            Paragraph::new(lines).render(area, buf);
        }
        Stage::Remembering(remembering) => {
            lines.extend(remember::head(remembering, area.width));
            let mut below = remember::foot(remembering, area.width);
            below.push(hint(card, remember::KEYS));
            draw_editor(lines, &remembering.editor, below, has_keys, area, buf);
        }
        Stage::Writing { of, editor } => {
            let head = of.map_or("your answer:", |choice| choice.label(card.request.kind()));
            lines.push(Line::styled(head, DIM));
            let below = vec![hint(card, "Enter answers, Esc goes back")];
            draw_editor(lines, editor, below, has_keys, area, buf);
        }
    }
}

/// A field with lines above and below it. The field is what stays where there is little room.
fn draw_editor(
    above: Vec<Line<'static>>,
    editor: &Editor,
    below: Vec<Line<'static>>,
    has_keys: bool,
    area: Rect,
    buf: &mut Buffer,
) {
    let rows = |lines: &[Line<'_>]| Constraint::Max(u16::try_from(lines.len()).unwrap_or(u16::MAX));
    let parts = [rows(&above), Constraint::Min(1), rows(&below)];
    let [top, middle, bottom] = Layout::vertical(parts).areas(area);
    Paragraph::new(above).render(top, buf);
    if has_keys {
        editor.widget().render(middle, buf);
    } else {
        Paragraph::new(editor.text()).style(DIM).render(middle, buf);
    }
    Paragraph::new(below).render(bottom, buf);
}

/// Where there are more choices than rows, those up to the picked one.
fn choices(card: &Card, picked: Option<Choice>, room: usize) -> Vec<Line<'static>> {
    let at = card.choices().iter().position(|choice| Some(*choice) == picked).unwrap_or_default();
    let first = (at + 1).saturating_sub(room);
    let line = |choice: &Choice| {
        let line = format!(" {}  {} ", choice.letter(), choice.label(card.request.kind()));
        if Some(*choice) == picked { Line::styled(line, PICKED) } else { Line::raw(line) }
    };
    card.choices().iter().skip(first).take(room).map(line).collect()
}

/// Where there are more options than rows, those around the cursor.
fn options(
    card: &Card,
    at: usize,
    chosen: &std::collections::BTreeSet<usize>,
    area: Rect,
) -> Vec<Line<'static>> {
    let room = usize::from(area.height).saturating_sub(hint_rows(card)).max(1);
    let first = (at + 1).saturating_sub(room);
    let options = card.request.options.iter().enumerate().skip(first).take(room);
    let line = |(n, option): (usize, &agentloop_client::v1::SelectOption)| {
        let mark = match (card.request.multiple, chosen.contains(&n)) {
            (true, true) => "[x]",
            (true, false) => "[ ]",
            (false, _) if n == at => " → ",
            (false, _) => "   ",
        };
        let label = if option.label.is_empty() { &option.id } else { &option.label };
        let text = format!("{mark} {}", names::brief(&tame(label), 200));
        if n == at { Line::styled(text, PICKED) } else { Line::raw(text) }
    };
    options.map(line).collect()
}

fn hint(card: &Card, text: &str) -> Line<'static> {
    let text = if card.sent { "sending the answer …" } else { text };
    Line::styled(text.to_owned(), DIM)
}
