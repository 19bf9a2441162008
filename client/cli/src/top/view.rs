//! Draws the screen of `agentloop top`.

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
        text::{sanitize, wrap},
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
    let mut used = format!(
        "{}: {} tokens in, {} out",
        Meter::period(top.now),
        minute.input_tokens,
        minute.output_tokens
    );
    if minute.cost_micros > 0 {
        used += &format!(", cost {:.4}", minute.cost_micros as f64 / 1e6);
    }
    let meter = Span::raw(used);
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

fn hosts(top: &Top, columns: u16) -> Vec<Line<'static>> {
    let mut lines = vec![Line::styled("HOST              HEALTH        CALLS   FREE  TOOLS", BOLD)];
    lines.extend(top.hosts.iter().take(HOSTS_MAX).flat_map(|host| {
        let health = format::enum_name(host.health().as_str_name(), "HOST_HEALTH_");
        let (id, calls, free) = (sanitize(&host.host_id), host.calls_in_flight, host.free_credit);
        let tools: Vec<String> = host.tools.iter().map(|name| tool(top, name)).collect();
        let row = format!("{id:<16}  {health:<12}  {calls:>5}  {free:>5}  {}", tools.join(" "));
        let style = if host.health() == HostHealth::Connected { GOOD } else { BAD };
        with_detail(row, &sanitize(&host.status_text), WHOLE_STATUS, columns, style)
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
    if !used.is_empty() {
        let heading = "MODEL                           CALLS  RETRYING  IN/MIN  OUT/MIN  COST/MIN";
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
        with_detail(row, &sanitize(&used.trouble), WHOLE_TROUBLE, columns, style)
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
    lines.extend(
        last_error(run).map(|last| format!("error    {}", sanitize(&error(Style::plain(), Some(last))))),
    );
    lines
}

#[cfg(test)]
mod tests {
    use agentloop_client::v1::{Host, HumanRequest, RunError, ToolDeclaration, WaitingOn};

    use super::{super::state::Told, *};

    /// The screen of this size, without the spaces at the ends of its lines.
    fn screen(top: &Top, columns: u16, rows: u16) -> Vec<String> {
        let area = Rect::new(0, 0, columns, rows);
        let mut buf = Buffer::empty(area);
        draw(top, SystemTime::UNIX_EPOCH, area, &mut buf);
        let line = |row: u16| (0..columns).map(|column| buf[(column, row)].symbol()).collect::<String>();
        (0..rows).map(|row| line(row).trim_end().to_owned()).collect()
    }

    fn busy() -> Top {
        let mut top = Top { connected: true, ..Top::default() };
        for number in 0..3 {
            let run = Run {
                run_id: format!("run-{number}"),
                model: "local/m".into(),
                status: RunStatus::ModelRunning.into(),
                preview: "How is Rome?".into(),
                ..Run::default()
            };
            top.told(Told::Run(Box::new(run)));
        }
        let declaration = Some(ToolDeclaration { name: "mail".into(), ..ToolDeclaration::default() });
        let tools = vec![Tool { declaration, calls_queued: 2, ..Tool::default() }];
        let health = HostHealth::Connected.into();
        let host = Host { host_id: "h".into(), tools: vec!["mail".into()], health, ..Host::default() };
        top.told(Told::Lists { hosts: vec![host], tools, questions: vec![] });
        top
    }

    #[test]
    fn all_lists_are_on_a_screen_of_the_usual_size() {
        let lines = screen(&busy(), 80, 24);
        assert!(lines[0].contains("open runs: 3, live: 3"), "{lines:#?}");
        assert_eq!(lines[1], "since it was opened: 0 tokens in, 0 out", "{lines:#?}");
        assert!(lines[3].starts_with("run-") && lines[5].starts_with("run-"), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.starts_with("local/m") && line.contains("    3 ")),
            "{lines:#?}"
        );
        assert!(lines.iter().any(|line| line.ends_with("mail (2 wait)")), "{lines:#?}");
        assert!(lines[23].starts_with("↑↓ select"), "{lines:#?}");
    }

    #[test]
    fn a_wide_screen_has_all_of_the_summary_in_one_line() {
        let lines = screen(&busy(), 120, 24);
        assert!(lines[0].ends_with("   since it was opened: 0 tokens in, 0 out"), "{lines:#?}");
        assert!(lines[2].starts_with("run-"), "{lines:#?}");
    }

    #[test]
    fn the_first_minute_is_not_called_the_last_one() {
        for (seconds, words) in [(59, "since it was opened"), (60, "last minute")] {
            let top = Top { now: Duration::from_secs(seconds), ..busy() };
            assert_eq!(screen(&top, 80, 24)[1], format!("{words}: 0 tokens in, 0 out"));
        }
    }

    #[test]
    fn a_small_screen_keeps_the_runs_and_the_keys() {
        for (columns, rows) in [(40, 8), (40, 6), (20, 4), (10, 2), (1, 1), (0, 0)] {
            let lines = screen(&busy(), columns, rows);
            if rows >= 4 {
                assert!(lines[2].starts_with("run-"), "{columns}x{rows}: {lines:#?}");
                assert!(lines.last().is_some_and(|line| line.ends_with("q leave")), "{lines:#?}");
            }
        }
        assert!(!screen(&busy(), 40, 6).iter().any(|line| line.starts_with("HOST")));
    }

    #[test]
    fn the_trouble_of_a_model_is_read_to_its_end() {
        let message =
            "The account has used all of its tokens: wait, or raise its limit at the provider of models";
        let waiting_on = |message: &str| {
            let last_error = RunError { message: message.into(), ..RunError::default() };
            Some(WaitingOn { last_error: Some(last_error), ..WaitingOn::default() })
        };
        let run = |message: &str| Run {
            run_id: "run-0".into(),
            model: "local/m".into(),
            status: RunStatus::BackingOff.into(),
            waiting_on: waiting_on(message),
            ..Run::default()
        };
        let mut top = Top { connected: true, ..Top::default() };
        top.told(Told::Run(Box::new(run(message))));
        let lines = screen(&top, 80, 24);
        let at = lines.iter().position(|line| line.starts_with("local/m")).expect("its row");
        assert_eq!(
            &lines[at + 1..at + 3],
            [
                "  The account has used all of its tokens: wait, or raise its limit at the",
                "  provider of models [unspecified]"
            ],
            "{lines:#?}"
        );
        let wide = screen(&top, 200, 24);
        let ends = format!("{message} [unspecified]");
        assert!(wide.iter().any(|line| line.starts_with("local/m") && line.ends_with(&ends)), "{wide:#?}");

        // A text without end takes no more lines than the list has room for; the run itself has all of it.
        let long = run(&format!("{} the end", message.repeat(5)));
        top.told(Told::Run(Box::new(long.clone())));
        let lines = screen(&top, 80, 24);
        assert!(lines.iter().any(|line| line.starts_with("  … Enter on a run shows")), "{lines:#?}");
        assert!(!lines.iter().any(|line| line.contains("end [unspecified]")), "{lines:#?}");
        top.told(Told::Shown(Box::new(long)));
        let lines = screen(&top, 80, 24);
        assert!(lines.iter().any(|line| line.contains("end [unspecified]")), "{lines:#?}");
    }

    #[test]
    fn the_status_of_a_host_has_its_own_line_where_it_does_not_fit_beside() {
        let status_text = "three of its four workers are being replaced by newer ones";
        let host = Host { host_id: "h".into(), status_text: status_text.into(), ..Host::default() };
        let mut top = Top { connected: true, ..Top::default() };
        top.told(Told::Lists { hosts: vec![host], tools: vec![], questions: vec![] });
        assert!(screen(&top, 80, 24).contains(&format!("  {status_text}")));
        assert!(
            screen(&top, 140, 24).iter().any(|line| line.starts_with("h ") && line.ends_with(status_text))
        );
    }

    #[test]
    fn a_note_is_read_to_its_end_on_a_narrow_screen() {
        let id = "0193d3c4-8f1e-7c55-b1a2-0f5e6d7c8b9a:1.0:0";
        let note = format!("no room for all of it: agentloop approve {id} answers it");
        let top = Top { note, ..busy() };
        for rows in [24, 8, 6] {
            let lines = screen(&top, 44, rows);
            assert!(lines.iter().any(|line| line.contains(id)), "{lines:#?}");
            let heading = lines.iter().position(|line| line.starts_with("RUN ")).expect("a heading");
            assert!(heading < 3 && lines[heading + 1].starts_with("run-"), "{lines:#?}");
        }
    }

    #[test]
    fn a_question_without_room_says_so() {
        let mut top = busy();
        let request = HumanRequest {
            tool: "mail".into(),
            kind: HumanRequestKind::Approve.into(),
            ..Default::default()
        };
        let size = Size { columns: 80, rows: 24 };
        top.dialog = Dialog::for_question(&request, size);
        assert!(screen(&top, 80, 24).iter().any(|line| line.contains("May mail run")));
        assert!(screen(&top, 80, 3).iter().any(|line| line.contains("no room for all of it")));
    }
}
