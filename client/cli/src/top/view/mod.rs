//! Draws the screen of `agentloop top`.

#[cfg(test)]
mod tests;

use std::time::{Duration, SystemTime};

use agentloop_client::v1::{HostHealth, HumanRequestKind, Run, RunStatus, Tool};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Flex, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Paragraph, Widget},
};
use unicode_width::UnicodeWidthStr as _;

use super::{
    dialog::{COLUMNS_MAX, Dialog, Size},
    meter::Meter,
    state::{ModelUse, Top, last_error},
};
use crate::{
    chat::styles::{BAD, BOLD, DIM, GOOD, PICKED, WARN},
    terminal::{
        format,
        render::status::error,
        style::Style,
        text::{cut, sanitize, wrap},
    },
};

/// Lines of hosts at most.
const HOSTS_MAX: usize = 6;
/// Lines of models at most.
const MODELS_MAX: usize = 4;
/// Lines of runs, with their heading, that come before all other lists on a small screen.
const RUN_LINES_MIN: u16 = 4;
/// Rows from which the meter of the last minute may have a line of its own.
const TALL: u16 = 12;
/// Lines of a note at most.
const NOTE_LINES_MAX: usize = 3;
/// Lines of the trouble of a model or the status of a host, at most. The last one says where all of it is.
const DETAIL_LINES_MAX: usize = 3;
const WHOLE_TROUBLE: &str = "… Enter on a run shows its error to the end";
const WHOLE_STATUS: &str = "… `agentloop tools --json` has it whole";
/// Spaces before a detail that has lines of its own.
const DETAIL_INDENT: usize = 2;
/// Columns from which every list is a table. On a narrower screen, the last columns would be missing.
const WIDE: u16 = 64;
/// Characters of a prompt.
const PREVIEW_CHARS: usize = 60;

pub(super) fn draw(top: &Top, now: SystemTime, area: Rect, buf: &mut Buffer) {
    let head = summary(top, area);
    let head_height = u16::try_from(head.len()).unwrap_or(1);
    let bottom = bottom(top, area);
    let bottom_height = u16::try_from(bottom.len()).unwrap_or(1);
    // On a small screen, lists give way that runs need the room of.
    let mut room = area.height.saturating_sub(head_height + bottom_height + RUN_LINES_MIN);
    let mut fitting = |lines: Vec<Line<'static>>| {
        let height = u16::try_from(lines.len()).unwrap_or(u16::MAX).min(room);
        // A heading alone tells nothing.
        let height = if height < 2 { 0 } else { height };
        room -= height;
        (lines, height)
    };
    let (hosts, hosts_height) = fitting(hosts(top, area.width));
    let (models, models_height) = fitting(models(&top.models(), area.width));
    let [first, runs, between, below, last] = Layout::vertical([
        Constraint::Length(head_height),
        Constraint::Min(0),
        Constraint::Length(models_height),
        Constraint::Length(hosts_height),
        Constraint::Length(bottom_height),
    ])
    .areas(area);
    Paragraph::new(head).render(first, buf);
    draw_runs(top, now, runs, buf);
    Paragraph::new(models).render(between, buf);
    Paragraph::new(hosts).render(below, buf);
    Paragraph::new(bottom).render(last, buf);
    if let Some(dialog) = &top.dialog {
        draw_dialog(dialog, area, buf);
    }
}

/// The keys, in the words that fit.
const KEYS: [&str; 3] = [
    "↑↓ select  Enter look  a answer  x abort  q leave",
    "Enter look  a answer  x abort  q leave",
    "q leave",
];

/// The lines at the bottom: a note, or the keys.
fn bottom(top: &Top, area: Rect) -> Vec<Line<'static>> {
    let (text, style) = match (&top.failed, top.note.as_str()) {
        (Some(why), "") => (format!("this does not change any more: {}", sanitize(why)), BAD),
        (None, "") => {
            let fits = |keys: &&str| keys.width() <= usize::from(area.width);
            let keys = KEYS.into_iter().find(fits).unwrap_or_default();
            return vec![Line::styled(keys, DIM)];
        }
        (_, note) => (sanitize(note), WARN),
    };
    // A note may have an id, which is of no use if its end is missing.
    let lines = wrap(&text, usize::from(area.width)).into_iter().take(NOTE_LINES_MAX);
    lines.map(|line| Line::styled(line, style)).collect()
}

/// The lines at the top. The meter has a line of its own where it does not fit beside the rest.
fn summary(top: &Top, area: Rect) -> Vec<Line<'static>> {
    let live = top.runs.values().filter(|run| is_live(run)).count();
    let queued: u64 = top.tools.iter().map(|tool| u64::from(tool.calls_queued)).sum();
    let mut state = Line::from(vec![
        connection(top.connected),
        Span::raw(format!("open runs: {}, live: {live}, questions: {}", top.runs.len(), top.questions.len())),
        Span::styled(format!("   calls waiting for a host: {queued}"), if queued > 0 { WARN } else { DIM }),
    ]);
    let minute = top.meter.minute();
    let meter = Span::raw(format!("{}: {}", Meter::period(top.now), format::usage(&minute)));
    if area.height >= TALL && state.width() + 3 + meter.width() > usize::from(area.width) {
        return vec![state, Line::from(meter)];
    }
    state.push_span(Span::raw("   "));
    state.push_span(meter);
    vec![state]
}

fn connection(connected: bool) -> Span<'static> {
    if connected { Span::styled("● ", GOOD) } else { Span::styled("○ the server is away   ", BAD) }
}

fn is_live(run: &Run) -> bool {
    !matches!(run.status(), RunStatus::Queued | RunStatus::AwaitingHuman | RunStatus::Paused)
}

fn draw_runs(top: &Top, now: SystemTime, area: Rect, buf: &mut Buffer) {
    let is_wide = area.width >= WIDE;
    let heading = match is_wide {
        true => "RUN         STATUS          FOR    AGENT       WAITS FOR / PROMPT",
        false => "RUN      FOR  WAITS FOR / PROMPT",
    };
    let mut lines = vec![Line::styled(heading, BOLD)];
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
        let row = RunRow::of(top, run, now);
        lines.push(Line::styled(if is_wide { row.wide() } else { row.narrow(area.width) }, style));
    }
    if listed.is_empty() {
        lines.push(Line::styled("no run is open", DIM));
    }
    Paragraph::new(lines).render(area, buf);
}

/// The texts of a run's row.
struct RunRow {
    run_id: String,
    status: String,
    age: String,
    agent: String,
    /// The question that is open, the reason for the wait, or the prompt.
    about: String,
    /// True if `about` says what the run is doing, so that its status adds nothing.
    waits: bool,
}

impl RunRow {
    fn of(top: &Top, run: &Run, now: SystemTime) -> RunRow {
        let since = run.updated_at.and_then(|at| SystemTime::try_from(at).ok());
        let age = since.map(|since| now.duration_since(since).unwrap_or(Duration::ZERO)).map(format::age);
        let (about, waits) = match (top.question_of(&run.run_id), &run.waiting_on) {
            (Some(question), _) if question.kind() == HumanRequestKind::Approve => {
                (format!("may {} run?", question.tool), true)
            }
            (Some(question), _) => (question.question.clone(), true),
            (None, Some(waiting)) if !waiting.what.is_empty() => {
                (format::waited_for(waiting.kind(), &waiting.what), true)
            }
            _ => (format!("\"{}\"", run.preview), false),
        };
        RunRow {
            run_id: run.run_id.clone(),
            status: format::status(run.status()),
            age: age.unwrap_or_default(),
            agent: sanitize(&run.agent),
            about: format::first_line(&sanitize(&about), PREVIEW_CHARS),
            waits,
        }
    }

    /// The last characters of the id, which tell runs of the same time apart.
    fn end_of_id(&self, chars: usize) -> &str {
        let from = self.run_id.char_indices().rev().nth(chars - 1).map_or(0, |(at, _)| at);
        &self.run_id[from..]
    }

    fn wide(&self) -> String {
        let (end, RunRow { status, age, agent, about, .. }) = (self.end_of_id(10), self);
        format!("{end:<10}  {status:<14}  {age:>4}   {agent:<10}  {about}")
    }

    /// The row without the agent, which the window of the run has.
    fn narrow(&self, columns: u16) -> String {
        let (end, RunRow { status, age, about, .. }) = (self.end_of_id(6), self);
        let about = if self.waits { about.clone() } else { format!("{status} {about}") };
        cut(&format!("{end:<6}  {age:>4}  {about}"), usize::from(columns))
    }
}

fn hosts(top: &Top, columns: u16) -> Vec<Line<'static>> {
    let is_wide = columns >= WIDE;
    let heading = match is_wide {
        true => "HOST              HEALTH        CALLS   FREE  TOOLS",
        false => "HOST AND TOOLS",
    };
    let mut lines = vec![Line::styled(heading, BOLD)];
    lines.extend(top.hosts.iter().take(HOSTS_MAX).flat_map(|host| {
        let health = format::enum_name(host.health().as_str_name(), "HOST_HEALTH_");
        let (id, calls, free) = (sanitize(&host.host_id), host.calls_in_flight, host.free_credit);
        let tools: Vec<String> = host.tools.iter().map(|name| tool(top, name)).collect();
        let (tools, status) = (tools.join(" "), sanitize(&host.status_text));
        let style = if host.health() == HostHealth::Connected { GOOD } else { BAD };
        if is_wide {
            let row = format!("{id:<16}  {health:<12}  {calls:>5}  {free:>5}  {tools}");
            return with_detail(row, &status, WHOLE_STATUS, columns, style);
        }
        let row = format!("{id}  {health}  {calls} calls, {free} free");
        with_detail(row, format!("{tools}\n{status}").trim(), WHOLE_STATUS, columns, style)
    }));
    match top.hosts.len() {
        0 => lines.push(Line::styled("no tool host is connected", DIM)),
        more if more > HOSTS_MAX => {
            lines.push(Line::styled(format!("… and {} more", more - HOSTS_MAX), DIM));
        }
        _ => {}
    }
    lines
}

/// A tool, with the calls that wait for a host with room.
fn tool(top: &Top, name: &str) -> String {
    let is_it = |tool: &&Tool| tool.declaration.as_ref().is_some_and(|declared| declared.name == name);
    match top.tools.iter().find(is_it).map_or(0, |tool| tool.calls_queued) {
        0 => sanitize(name),
        waiting => format!("{} ({waiting} wait)", sanitize(name)),
    }
}

/// The models in use, with a heading. Without any there is nothing.
fn models(used: &[ModelUse], columns: u16) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let is_wide = columns >= WIDE;
    if !used.is_empty() {
        let heading = match is_wide {
            true => "MODEL                           CALLS  RETRYING  IN/MIN  OUT/MIN  COST/MIN",
            false => "MODEL AND ITS CALLS",
        };
        lines.push(Line::styled(heading, BOLD));
    }
    lines.extend(used.iter().take(MODELS_MAX).flat_map(|used| {
        let (name, calls, retrying, minute) = (sanitize(&used.name), used.calls, used.retrying, used.minute);
        let cost = match minute.cost_micros {
            0 => "-".to_owned(),
            micros => format!("{:.4}", micros as f64 / 1e6),
        };
        let (tokens_in, tokens_out) = (minute.input_tokens, minute.output_tokens);
        let row =
            format!("{name:<30}  {calls:>5}  {retrying:>8}  {tokens_in:>6}  {tokens_out:>7}  {cost:>8}");
        let style = if retrying > 0 { WARN } else { ratatui::style::Style::new() };
        let trouble = sanitize(&used.trouble);
        if is_wide {
            return with_detail(row, &trouble, WHOLE_TROUBLE, columns, style);
        }
        let cost = format::cost(minute.cost_micros);
        let facts = format!(
            "{calls} calls, {retrying} retrying\na minute: {tokens_in} in, {tokens_out} out{cost}\n{trouble}"
        );
        with_detail(name, facts.trim_end(), WHOLE_TROUBLE, columns, style)
    }));
    if used.len() > MODELS_MAX {
        lines.push(Line::styled(format!("… and {} more", used.len() - MODELS_MAX), DIM));
    }
    lines
}

/// A row of a list with a text about it: beside it where the screen is wide enough, else below it. `whole` says where all of
/// a long text is.
fn with_detail(
    row: String,
    detail: &str,
    whole: &str,
    columns: u16,
    style: ratatui::style::Style,
) -> Vec<Line<'static>> {
    let row = row.trim_end().to_owned();
    let columns = usize::from(columns);
    if detail.is_empty() {
        return vec![Line::styled(row, style)];
    }
    let beside = Line::styled(format!("{row}  {detail}"), style);
    if !detail.contains('\n') && beside.width() <= columns {
        return vec![beside];
    }
    let mut below = wrap(detail, columns.saturating_sub(DETAIL_INDENT));
    if below.len() > DETAIL_LINES_MAX {
        below.truncate(DETAIL_LINES_MAX - 1);
        below.push(whole.to_owned());
    }
    let below = below.into_iter().map(|line| format!("{:DETAIL_INDENT$}{line}", ""));
    std::iter::once(row).chain(below).map(|line| Line::styled(line, style)).collect()
}

fn draw_dialog(dialog: &Dialog, area: Rect, buf: &mut Buffer) {
    let size = Size { columns: area.width, rows: area.height };
    let (title, lines) = match dialog {
        Dialog::Abort(run_id) => {
            (" abort? ", vec![format!("Abort run {run_id}?"), "y aborts it, any other key does not".into()])
        }
        Dialog::Question(_) | Dialog::Answer(_) => {
            let lines = dialog.lines_of_question(size).unwrap_or_else(|| {
                vec!["no room for all of it: make the screen larger".into(), "any key leaves it open".into()]
            });
            (" question ", lines)
        }
        Dialog::Run(run) => (" run: any key closes ", about(run)),
    };
    let lines: Vec<String> = lines.iter().flat_map(|line| wrap(line, size.inner_columns().max(1))).collect();
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [row] = Layout::vertical([Constraint::Max(height)]).flex(Flex::Center).areas(area);
    let [inside] = Layout::horizontal([Constraint::Max(COLUMNS_MAX)]).flex(Flex::Center).areas(row);
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
        format!("so far   {}", format::calls(run.iterations, run.tool_calls)),
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
    lines.extend(
        last_error(run).map(|last| format!("error    {}", sanitize(&error(Style::plain(), Some(last))))),
    );
    lines
}
