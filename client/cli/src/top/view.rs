//! Draws the screen of `agentloop top`.

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{HostHealth, HumanRequestKind, Run, RunStatus};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Flex, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Paragraph, Widget},
};

use super::state::{Dialog, Top};
use crate::{
    chat::styles::{BAD, BOLD, DIM, GOOD, PICKED, WARN},
    terminal::{
        format,
        text::{escape_hidden, members, sanitize, wrap},
    },
};

/// Widest window over the lists.
const DIALOG_COLUMNS: u16 = 90;
/// Lines of hosts at most.
const HOSTS_MAX: usize = 6;
/// Characters of a prompt.
const PREVIEW_CHARS: usize = 60;

pub(super) fn draw(top: &Top, now: SystemTime, area: Rect, buf: &mut Buffer) {
    let hosts = hosts(top);
    let hosts_height = u16::try_from(hosts.len() + 1).unwrap_or(u16::MAX);
    let [head, runs, below, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(3),
        Constraint::Length(hosts_height),
        Constraint::Length(1),
    ])
    .areas(area);
    Paragraph::new(summary(top)).render(head, buf);
    draw_runs(top, now, runs, buf);
    let mut lines = vec![Line::styled("HOST              HEALTH        CALLS   FREE  TOOLS", BOLD)];
    lines.extend(hosts);
    Paragraph::new(lines).render(below, buf);
    let keys_text = match (&top.failed, top.note.as_str()) {
        (Some(why), "") => Line::styled(format!("this does not change any more: {}", sanitize(why)), BAD),
        (None, "") => Line::styled("↑↓ select  Enter look  a answer  x abort  q leave", DIM),
        (_, note) => Line::styled(sanitize(note), WARN),
    };
    Paragraph::new(keys_text).render(keys, buf);
    if let Some(dialog) = &top.dialog {
        draw_dialog(dialog, area, buf);
    }
}

fn summary(top: &Top) -> Line<'static> {
    let live = top.runs.values().filter(|run| is_live(run)).count();
    let queued: u64 = top.tools.iter().map(|tool| u64::from(tool.calls_queued)).sum();
    let minute = top.meter.minute();
    let mut spans = vec![
        connection(top.connected),
        Span::raw(format!("open runs: {}, live: {live}, questions: {}", top.runs.len(), top.questions.len())),
        Span::styled(format!("   calls waiting for a host: {queued}"), if queued > 0 { WARN } else { DIM }),
        Span::raw(format!("   last minute: {} tokens in, {} out", minute.input_tokens, minute.output_tokens)),
    ];
    if minute.cost_micros > 0 {
        spans.push(Span::raw(format!(", cost {:.4}", minute.cost_micros as f64 / 1e6)));
    }
    Line::from(spans)
}

fn connection(connected: bool) -> Span<'static> {
    if connected { Span::styled("● ", GOOD) } else { Span::styled("○ the server is away   ", BAD) }
}

fn is_live(run: &Run) -> bool {
    !matches!(run.status(), RunStatus::Queued | RunStatus::AwaitingHuman | RunStatus::Paused)
}

fn draw_runs(top: &Top, now: SystemTime, area: Rect, buf: &mut Buffer) {
    let mut lines =
        vec![Line::styled("RUN         STATUS          FOR    AGENT       WAITS FOR / PROMPT", BOLD)];
    let listed = top.listed();
    let at = listed.iter().position(|run| Some(&run.run_id) == top.selected.as_ref()).unwrap_or(0);
    let room = usize::from(area.height).saturating_sub(1).max(1);
    let first = (at + 1).saturating_sub(room);
    for (n, run) in listed.iter().enumerate().skip(first).take(room) {
        let style = match run.status() {
            _ if n == at => PICKED,
            RunStatus::AwaitingHuman => WARN,
            RunStatus::Paused => BAD,
            _ => ratatui::style::Style::new(),
        };
        lines.push(Line::styled(row(top, run, now), style));
    }
    if listed.is_empty() {
        lines.push(Line::styled("no run is open", DIM));
    }
    Paragraph::new(lines).render(area, buf);
}

fn row(top: &Top, run: &Run, now: SystemTime) -> String {
    let since = run.updated_at.and_then(|at| SystemTime::try_from(at).ok());
    let age = since.map(|since| now.duration_since(since).unwrap_or(Duration::ZERO)).map(format::age);
    let status = format::status(run.status());
    let about = match (top.question_of(&run.run_id), &run.waiting_on) {
        (Some(question), _) if question.kind() == HumanRequestKind::Approve => {
            format!("may {} run?", question.tool)
        }
        (Some(question), _) => question.question.clone(),
        (None, Some(waiting)) if !waiting.what.is_empty() => {
            format::waited_for(waiting.kind(), &waiting.what)
        }
        _ => format!("\"{}\"", run.preview),
    };
    let (age, about) = (age.unwrap_or_default(), format::first_line(&sanitize(&about), PREVIEW_CHARS));
    let end: String = run.run_id.chars().rev().take(10).collect::<Vec<_>>().into_iter().rev().collect();
    format!("{end:<10}  {status:<14}  {age:>4}   {:<10}  {about}", sanitize(&run.agent))
}

fn hosts(top: &Top) -> Vec<Line<'static>> {
    let mut lines: Vec<Line<'static>> = top
        .hosts
        .iter()
        .take(HOSTS_MAX)
        .map(|host| {
            let health = format::enum_name(host.health().as_str_name(), "HOST_HEALTH_");
            let (id, calls, free) = (sanitize(&host.host_id), host.calls_in_flight, host.free_credit);
            let tools = sanitize(&host.tools.join(" "));
            let status = format::first_line(&sanitize(&host.status_text), PREVIEW_CHARS);
            let text = format!("{id:<16}  {health:<12}  {calls:>5}  {free:>5}  {tools}  {status}");
            let text = text.trim_end().to_owned();
            Line::styled(text, if host.health() == HostHealth::Connected { GOOD } else { BAD })
        })
        .collect();
    match top.hosts.len() {
        0 => lines.push(Line::styled("no tool host is connected", DIM)),
        more if more > HOSTS_MAX => {
            lines.push(Line::styled(format!("… and {} more", more - HOSTS_MAX), DIM));
        }
        _ => {}
    }
    lines
}

fn draw_dialog(dialog: &Dialog, area: Rect, buf: &mut Buffer) {
    let (title, lines) = match dialog {
        Dialog::Abort(run_id) => {
            (" abort? ", vec![format!("Abort run {run_id}?"), "y aborts it, any other key does not".into()])
        }
        Dialog::Question(request) => {
            let mut lines = vec![format!("May {} run with these arguments?", escape_hidden(&request.tool))];
            lines.extend(escape_hidden(&members(&request.arguments_json)).lines().map(str::to_owned));
            lines.push("y runs it, n does not, any other key leaves it open".into());
            (" question ", lines)
        }
        Dialog::Run(run) => (" run: any key closes ", about(run)),
    };
    // Wrapped before the height is known: what is below the window would be approved unseen.
    let width = usize::from(area.width.min(DIALOG_COLUMNS)).saturating_sub(2);
    let lines: Vec<String> = lines.iter().flat_map(|line| wrap(line, width)).collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [row] = Layout::vertical([Constraint::Max(height)]).flex(Flex::Center).areas(area);
    let [inside] = Layout::horizontal([Constraint::Max(DIALOG_COLUMNS)]).flex(Flex::Center).areas(row);
    Clear.render(inside, buf);
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(WARN).title(title);
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::raw).collect();
    Paragraph::new(lines).block(block).render(inside, buf);
}

fn about(run: &Run) -> Vec<String> {
    let mut lines = vec![
        format!("run      {}", run.run_id),
        format!("session  {}", run.session_id),
        format!("status   {}", format::status(run.status())),
        format!("agent    {}, model {}", sanitize(&run.agent), sanitize(&run.model)),
        format!("created  {}", format::time(run.created_at.as_ref())),
        format!("so far   {} model calls, {} tool calls", run.iterations, run.tool_calls),
        format!("prompt   {}", sanitize(&run.preview)),
    ];
    lines.extend(run.usage.as_ref().map(|usage| format!("tokens   {}", format::usage(usage))));
    lines.extend(run.waiting_on.as_ref().map(|waiting| {
        format!("waits    for {}", sanitize(&format::waited_for(waiting.kind(), &waiting.what)))
    }));
    lines.extend(run.tool_calls_open.iter().map(|call| {
        let state = format::enum_name(call.state().as_str_name(), "TOOL_CALL_STATE_");
        format!("call     {} {state} {}", sanitize(&call.tool), sanitize(&call.host_id))
    }));
    lines.extend(run.last_error.as_ref().map(|error| format!("error    {}", sanitize(&error.message))));
    lines
}
