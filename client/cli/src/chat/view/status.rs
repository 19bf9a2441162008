//! Draws the status line: the run and the reason for its wait, tokens, and the session. A hint takes its place.

use agentloop_client::v1::RunStatus;
use ratatui::{
    buffer::Buffer,
    layout::Rect,
    text::{Line, Span},
    widgets::{Paragraph, Widget},
};
use unicode_width::UnicodeWidthStr as _;

use crate::{
    chat::{
        app::{App, LiveRun, Scroll},
        layout::hint_lines,
        styles::{BOLD, DIM, WARN},
        transcript::answer_to,
    },
    terminal::{
        format,
        text::{cut, sanitize},
    },
};

const SESSION_COLUMNS: usize = 40;
/// Room for the part of an id that has the time of its creation, and a sign of the cut. `agentloop sessions` finds it by that.
const BRIEF_SESSION_COLUMNS: usize = 14;
const NAME_CHARS: usize = 24;

pub(super) fn draw(app: &App, area: Rect, buf: &mut Buffer) {
    match &app.hint {
        Some(hint) => {
            let lines: Vec<Line<'static>> =
                hint_lines(hint, area.width).into_iter().map(Line::from).collect();
            Paragraph::new(lines).style(WARN).render(area, buf);
        }
        None if area.height > 1 => Paragraph::new(two_lines(app, usize::from(area.width))).render(area, buf),
        None => line(app, usize::from(area.width), &ends(app)).render(area, buf),
    }
}

/// The lines of a narrow screen: the run and the session, then tokens, agent and model.
fn two_lines(app: &App, columns: usize) -> Vec<Line<'static>> {
    let sessions =
        [SESSION_COLUMNS, BRIEF_SESSION_COLUMNS].map(|columns| format!("  {}", session(app, columns)));
    let (_, tokens) = tokens(app);
    let (agent, both) = names(app);
    let used = [format!("{tokens}  {both}"), format!("{tokens}  {agent}"), tokens.clone()];
    let used = used.iter().find(|used| used.width() <= columns).unwrap_or(&tokens);
    vec![line(app, columns, &sessions), Line::styled(cut(used, columns), DIM)]
}

/// The line that fits, with one of these ends. The state of the run comes first, and the session keeps a part that names it.
fn line(app: &App, columns: usize, ends: &[String]) -> Line<'static> {
    let mut spans = match &app.live {
        Some(live) => run(app, live),
        None if app.session.away => vec![Span::styled("reconnecting…", WARN)],
        None => vec![Span::styled("ready", BOLD)],
    };
    if app.scroll != Scroll::AtEnd {
        spans.push(Span::styled("  ↓ ctrl-End: the end", WARN));
    }
    let state: usize = spans.iter().map(Span::width).sum();
    let reason = app.live.as_ref().and_then(reason).unwrap_or_default();
    let fits = |end: &&String| state + reason.width() + end.width() <= columns;
    let end = ends.iter().find(fits).or(ends.last()).cloned().unwrap_or_default();
    let room = columns.saturating_sub(state + end.width());
    spans.push(Span::styled(cut(&reason, room), DIM));
    spans.push(Span::styled(end, DIM));
    Line::from(spans)
}

/// The ends of the line, the longest one first: tokens, agent and model, session.
fn ends(app: &App) -> Vec<String> {
    let (session, brief_session) = (session(app, SESSION_COLUMNS), session(app, BRIEF_SESSION_COLUMNS));
    let (agent, both) = names(app);
    let (whole, brief) = tokens(app);
    vec![
        format!("  {whole}  {both}  {session}"),
        format!("  {whole}  {both}  {brief_session}"),
        format!("  {brief}  {both}  {brief_session}"),
        format!("  {brief}  {agent}  {brief_session}"),
        format!("  {brief}  {brief_session}"),
        format!("  {brief_session}"),
    ]
}

/// The agent, and the agent with its model.
fn names(app: &App) -> (String, String) {
    let (agent, model) = (format::first_line(&app.agent(), NAME_CHARS), app.model());
    let both = match model.as_str() {
        "" => agent.clone(),
        model => format!("{agent} · {}", format::first_line(model, NAME_CHARS)),
    };
    (agent, both)
}

/// The tokens and the cost so far, in words and with fewer of them.
fn tokens(app: &App) -> (String, String) {
    let (given, made) = (app.usage.total.input_tokens, app.usage.total.output_tokens);
    let cost = format::cost(app.usage.total.cost_micros);
    (format!("{given} tokens in, {made} out{cost}"), format!("{given} in, {made} out{cost}"))
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
        spans.push(Span::styled(format!("  {}", format::next_try(left)), WARN));
    }
    spans
}

/// The reason why a run waits.
fn reason(live: &LiveRun) -> Option<String> {
    let is_known = live.connected && !live.waiting_on.is_empty();
    is_known.then(|| format!("  waits for {}", live.waiting_on))
}

/// The session by its title. One without a title has its id, whose first characters name it, too.
fn session(app: &App, columns: usize) -> String {
    match (&app.session.id, app.session.title.as_str()) {
        (None, _) => "new session".to_owned(),
        (Some(id), "") => format!("session {}", cut(&sanitize(id), columns)),
        (Some(_), title) => format!("session {}", cut(title.lines().next().unwrap_or_default(), columns)),
    }
}
