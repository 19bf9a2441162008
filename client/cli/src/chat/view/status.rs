//! Draws the status line: the run and the reason for its wait, tokens, and the session. A hint takes its place.

use agentloop_client::v1::RunStatus;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Paragraph, Widget},
};

use crate::{
    chat::{
        app::{App, LiveRun, Scroll},
        layout::hint_lines,
        styles::{BOLD, DIM, WARN},
        transcript::answer_to,
    },
    terminal::format,
};

const SESSION_CHARS: usize = 40;
const NAME_CHARS: usize = 24;

pub(super) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    match &app.hint {
        Some(hint) => {
            let lines: Vec<Line<'static>> =
                hint_lines(hint, area.width).into_iter().map(Line::from).collect();
            Paragraph::new(lines).style(WARN).render(area, buf);
        }
        None => line(app).render(area, buf),
    }
}

fn line(app: &App) -> Line<'static> {
    let mut spans = Vec::new();
    if let Some(live) = &app.live {
        spans.extend(run(app, live));
    } else {
        spans.push(Span::styled("ready", BOLD));
    }
    if app.scroll != Scroll::FollowOptions {
        spans.push(Span::styled("  ↓ ctrl-End: the end", WARN));
    }
    let usage = &app.usage;
    spans.push(Span::styled(format!("  {} tokens in, {} out", usage.input_tokens, usage.output_tokens), DIM));
    if usage.cost_micros > 0 {
        spans.push(Span::styled(format!(", cost {:.4}", usage.cost_micros as f64 / 1e6), DIM));
    }
    spans.push(Span::styled(format!("  {}", agent_and_model(app)), DIM));
    spans.push(Span::styled(format!("  {}", session(app)), DIM));
    Line::from(spans)
}

fn run(app: &App, live: &LiveRun) -> Vec<Span<'static>> {
    if !live.connected {
        return vec![Span::styled("reconnecting…", WARN)];
    }
    let status = match live.status {
        _ if live.aborting => "aborting…".to_owned(),
        RunStatus::Unspecified => "sending…".to_owned(),
        RunStatus::AwaitingHuman if !app.cards.is_empty() => {
            format!("waits for your {}", answer_to(app.cards[0].request.kind()))
        }
        status => format::status(status).replace('_', " "),
    };
    let needs_somebody = matches!(live.status, RunStatus::AwaitingHuman | RunStatus::Paused);
    let mut spans = vec![Span::styled(status, if needs_somebody { WARN } else { BOLD })];
    if live.status == RunStatus::Paused {
        spans.push(Span::styled(" (ctrl-G lets it go on)", DIM));
    }
    if let Some(left) = live.next_try.map(|at| at.saturating_sub(app.now)) {
        spans.push(Span::styled(format!("  next try in {}", format::countdown(left)), WARN));
    }
    if !live.waiting_on.is_empty() {
        spans.push(Span::styled(format!("  waits for {}", live.waiting_on), DIM));
    }
    spans
}

/// The agent and the model of the next run.
fn agent_and_model(app: &App) -> String {
    let model = app.model();
    let agent = format::first_line(&app.agent(), NAME_CHARS);
    if model.is_empty() { agent } else { format!("{agent} · {}", format::first_line(&model, NAME_CHARS)) }
}

fn session(app: &App) -> String {
    match (&app.session.id, app.session.title.as_str()) {
        (None, _) => "new session".to_owned(),
        (Some(id), "") => format!("session {}", format::first_line(id, SESSION_CHARS)),
        (Some(_), title) => format!("session {}", format::first_line(title, SESSION_CHARS)),
    }
}
