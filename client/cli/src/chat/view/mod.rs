//! Draws the chat: a pure function of its state.

mod card;
mod overlay;
mod queue;
mod status;
#[cfg(test)]
mod tests;

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    style::Style,
    text::Line,
    widgets::{Block, Borders, Paragraph, Widget},
};

use self::card::CardFrame;
use super::{
    app::{App, Focus, Scroll},
    layout::{blocks, fitting},
    styles::DIM,
    transcript::Block as TranscriptBlock,
};

/// Keys of the editor while a run is live, in words for a wide screen and for narrow ones.
const BUSY_KEYS: [&str; 3] = [
    " Enter queues · ctrl-S tells the run · ctrl-Q the queue · ctrl-C aborts ",
    " Enter queues · ctrl-S tells the run · ctrl-C aborts ",
    " Enter queues · ctrl-C aborts ",
];

/// Draws the whole screen.
pub(crate) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let areas = app.layout().areas(area);
    draw_transcript(app, areas.transcript, buf);
    if let Some(first) = app.cards.front() {
        let has_keys = app.focus == Focus::Card && app.overlay.is_none();
        card::draw(first, CardFrame { count: app.cards.len(), has_keys }, areas.card, buf);
    }
    queue::draw(app, areas.queue, buf);
    draw_editor(app, areas.editor, buf);
    status::draw(app, areas.status, buf);
    if let Some(over) = &app.overlay {
        overlay::draw(over, app, area, buf);
    }
}

fn draw_transcript(app: &App, area: Rect, buf: &mut Buffer) {
    if app.transcript.is_empty() {
        let welcome =
            if app.session.opening { "reading the session …" } else { "a new session: ask something" };
        return Paragraph::new(Line::styled(welcome, DIM)).centered().render(area, buf);
    }
    let lines = match app.scroll {
        Scroll::AtEnd => last_lines(app, area),
        Scroll::At { block, line } => lines_from(app, area, block, line),
    };
    Paragraph::new(lines).render(area, buf);
}

/// The last lines that fit. Only visible blocks are wrapped.
fn last_lines(app: &App, area: Rect) -> Vec<Line<'static>> {
    let height = usize::from(area.height);
    let mut lines = Vec::new();
    for (n, block) in app.transcript.blocks().rev() {
        if lines.len() >= height {
            break;
        }
        lines.extend(lines_of(app, n, block, area).into_iter().rev());
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
        lines.extend(lines_of(app, n, block, area).into_iter().skip(skipped));
        if lines.len() >= height {
            break;
        }
    }
    lines.truncate(height);
    lines
}

/// The lines of the block with this number.
fn lines_of(app: &App, number: usize, block: &TranscriptBlock, area: Rect) -> Vec<Line<'static>> {
    blocks::lines_below(app.transcript.before(number), block, app.block_options(area.width))
}

fn draw_editor(app: &App, area: Rect, buf: &mut Buffer) {
    let has_keys = app.focus == Focus::Editor && app.overlay.is_none();
    let mut block =
        Block::new().borders(Borders::TOP).border_style(if has_keys { Style::new() } else { DIM });
    if has_keys && (app.live.is_some() || !app.queue.runs.is_empty()) {
        block = block.title(fitting(&BUSY_KEYS, area.width));
    }
    let inner = block.inner(area);
    block.render(area, buf);
    if has_keys {
        app.editor.widget().render(inner, buf);
    } else {
        Paragraph::new(app.editor.shown()).style(DIM).render(inner, buf);
    }
}
