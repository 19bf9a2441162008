//! Draws the queued runs, above the editor and in a window.

use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::Line,
    widgets::{Paragraph, Widget},
};

use crate::{
    chat::{
        app::{App, QueueItem},
        layout::QUEUE_ROWS_MAX,
        styles::{DIM, row},
    },
    terminal::{
        format,
        text::{cut, wrap},
    },
};

const TEXT_CHARS: usize = 200;

pub(super) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    let count = app.queue.runs.len();
    let shown = if count > QUEUE_ROWS_MAX { QUEUE_ROWS_MAX - 1 } else { count };
    let mut lines: Vec<Line<'static>> = app
        .queue
        .runs
        .iter()
        .take(shown)
        .map(|queued| Line::styled(cut(&format!("⋯ {}", describe(queued)), usize::from(area.width)), DIM))
        .collect();
    if shown < count {
        lines.push(Line::styled(format!("⋯ and {} more (ctrl-Q)", count - shown), DIM));
    }
    Paragraph::new(lines).render(area, buf);
}

/// All queued runs, as lines of the window.
pub(super) fn lines(app: &App, at: usize, columns: usize) -> Vec<Line<'static>> {
    if app.queue.runs.is_empty() {
        let empty = "the queue is empty: a message that is sent while a run is live is queued";
        return wrap(empty, columns).into_iter().map(|line| Line::styled(line, DIM)).collect();
    }
    let line = |n: usize, queued| cut(&format!("{:>2}  {}", n + 1, describe(queued)), columns);
    app.queue.runs.iter().enumerate().map(|(n, queued)| row(line(n, queued), n == at)).collect()
}

fn describe(queued: &QueueItem) -> String {
    let state = match queued {
        QueueItem { removing: true, .. } => "removing: ",
        QueueItem { accepted: false, .. } => "sending: ",
        QueueItem { .. } => "queued: ",
    };
    format!("{state}{}", format::first_line(&queued.text, TEXT_CHARS))
}
