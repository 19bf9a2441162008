//! What waits for its turn, drawn above the editor.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::Line,
    widgets::{Paragraph, Widget},
};

use super::{DIM, overlay::row};
use crate::{
    chat::app::{App, Queued},
    terminal::names,
};

/// Of more, the number is shown.
const ROWS_MAX: usize = 3;
const TEXT_CHARS: usize = 200;

/// How many rows it takes.
pub(super) fn rows(app: &App) -> usize {
    app.queue.len().min(ROWS_MAX)
}

pub(super) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let count = app.queue.len();
    let shown = if count > ROWS_MAX { ROWS_MAX - 1 } else { count };
    let mut lines: Vec<Line<'static>> = app
        .queue
        .iter()
        .take(shown)
        .map(|queued| Line::styled(format!("⋯ {}", in_words(queued)), DIM))
        .collect();
    if shown < count {
        lines.push(Line::styled(format!("⋯ and {} more (ctrl-Q)", count - shown), DIM));
    }
    Paragraph::new(lines).render(area, buf);
}

/// All of it, to pick one.
pub(super) fn lines(app: &App, at: usize) -> Vec<Line<'static>> {
    if app.queue.is_empty() {
        return vec![Line::styled("nothing waits: what is sent while a run is under way does", DIM)];
    }
    let numbered = app.queue.iter().enumerate();
    numbered.map(|(n, queued)| row(format!("{:>2}  {}", n + 1, in_words(queued)), n == at)).collect()
}

fn in_words(queued: &Queued) -> String {
    let state = match queued {
        Queued { leaving: true, .. } => "removing: ",
        Queued { sure: false, .. } => "sending: ",
        Queued { .. } => "queued: ",
    };
    format!("{state}{}", names::brief(&queued.text, TEXT_CHARS))
}
