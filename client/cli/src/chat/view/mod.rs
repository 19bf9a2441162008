//! The chat on the screen: a pure function of its state.

mod blocks;
mod card;
mod overlay;
mod queue;
mod status;
#[cfg(test)]
mod tests;

use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::{Color, Modifier, Style},
    text::Line,
    widgets::{Block, Borders, Paragraph, Widget},
};

use super::app::{App, Focus, Scroll};

/// Rows of the screen below which not everything is shown at once.
const ROWS_FOR_ALL: u16 = 12;
const EDITOR_ROWS_MAX: usize = 8;
/// What can be done with words while a run is under way.
const BUSY_KEYS: &str = " Enter queues · ctrl-S tells the run · ctrl-Q the queue · ctrl-C aborts ";
const DIM: Style = Style::new().add_modifier(Modifier::DIM);
const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
const WARN: Style = Style::new().fg(Color::Yellow);
const BAD: Style = Style::new().fg(Color::Red);
const GOOD: Style = Style::new().fg(Color::Green);
const PICKED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// Draws everything.
pub(crate) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let [transcript, question, waiting, editor, status] = parts(app, area);
    draw_transcript(app, transcript, buf);
    if let Some(first) = app.cards.front() {
        card::draw(first, app, question, buf);
    }
    queue::draw(app, waiting, buf);
    draw_editor(app, editor, buf);
    status::draw(app, status, buf);
    if let Some(over) = &app.overlay {
        overlay::draw(over, app, area, buf);
    }
}

/// Where the conversation is drawn.
pub(crate) fn transcript_area(app: &App) -> Rect {
    let (width, height) = app.size;
    let [transcript, ..] = parts(app, Rect::new(0, 0, width, height));
    transcript
}

/// How many lines each block takes at a width, by its number.
pub(crate) fn heights(app: &App, width: u16) -> Vec<(usize, usize)> {
    app.transcript.blocks().map(|(n, block)| (n, blocks::lines(block, width, app).len())).collect()
}

fn parts(app: &App, area: Rect) -> [Rect; 5] {
    let editor_rows = app.editor.rows(area.width).clamp(1, EDITOR_ROWS_MAX);
    let card_rows = app.cards.front().map_or(0, |card| card::rows(card, area.width));
    // Something of the conversation stays in sight, however long the arguments are.
    let card_rows = card_rows.min(usize::from(area.height) * 2 / 3);
    let is_small = area.height < ROWS_FOR_ALL;
    // Where there is no room for both, whatever has the keys is seen.
    let (card_rows, editor_rows) = match (is_small, app.focus) {
        (true, Focus::Card) => (usize::from(area.height).saturating_sub(1), None),
        (true, Focus::Editor) => {
            (card_rows.min(1), Some(editor_rows.min(usize::from(area.height / 3).max(1))))
        }
        (false, _) => (card_rows, Some(editor_rows)),
    };
    let queue_rows = if is_small { 0 } else { queue::rows(app) };
    let rows = |rows: usize| Constraint::Length(u16::try_from(rows).unwrap_or(u16::MAX));
    let parts = [
        Constraint::Fill(1),
        rows(card_rows),
        rows(queue_rows),
        rows(editor_rows.map_or(0, |rows| rows + 1)),
        rows(1),
    ];
    Layout::vertical(parts).areas(area)
}

fn draw_transcript(app: &App, area: Rect, buf: &mut Buffer) {
    if app.transcript.is_empty() {
        let welcome =
            if app.session.opening { "reading the session …" } else { "a new session: ask something" };
        return Paragraph::new(Line::styled(welcome, DIM)).centered().render(area, buf);
    }
    let lines = match app.scroll {
        Scroll::Follow => last_lines(app, area),
        Scroll::At { block, line } => lines_from(app, area, block, line),
    };
    Paragraph::new(lines).render(area, buf);
}

/// Only the blocks that are seen are laid out.
fn last_lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let height = usize::from(area.height);
    let mut lines = Vec::new();
    for (_, block) in app.transcript.blocks().rev() {
        if lines.len() >= height {
            break;
        }
        lines.extend(blocks::lines(block, area.width, app).into_iter().rev());
    }
    lines.truncate(height);
    lines.reverse();
    lines
}

fn lines_from(app: &App, area: Rect, first: usize, line: usize) -> Vec<Line<'static>> {
    let height = usize::from(area.height);
    let mut lines = Vec::new();
    for (n, block) in app.transcript.blocks().skip_while(|(n, _)| *n < first) {
        let skipped = if n == first { line } else { 0 };
        lines.extend(blocks::lines(block, area.width, app).into_iter().skip(skipped));
        if lines.len() >= height {
            break;
        }
    }
    lines.truncate(height);
    lines
}

fn draw_editor(app: &App, area: Rect, buf: &mut Buffer) {
    let has_keys = app.focus == Focus::Editor && app.overlay.is_none();
    let mut block =
        Block::new().borders(Borders::TOP).border_style(if has_keys { Style::new() } else { DIM });
    if has_keys && (app.live.is_some() || !app.queue.is_empty()) {
        block = block.title(BUSY_KEYS);
    }
    let inner = block.inner(area);
    block.render(area, buf);
    if has_keys {
        app.editor.widget().render(inner, buf);
    } else {
        Paragraph::new(app.editor.text()).style(DIM).render(inner, buf);
    }
}
