//! Draws the windows over everything else: help, sessions, queue and rules.

use std::time::SystemTime;

use agentloop_client::v1::RememberedRule;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Flex, Layout, Rect},
    text::Line,
    widgets::{Block, BorderType, Clear, Paragraph, Widget},
};

use unicode_width::UnicodeWidthStr as _;

use super::queue;
use crate::{
    chat::{
        app::{App, ChoiceList, ChoiceRow, Chosen, Overlay, RuleList, SessionPicker},
        layout::{fitting, help},
        styles::{BAD, BOLD, DIM, WARN, row},
    },
    command::conversation::overview::SessionOverview,
    terminal::format,
    terminal::rule,
    terminal::text::{cut, escape_hidden, sanitize, wrap},
};

/// Columns of a screen on which the list of sessions has all that it knows of each.
const WIDE_COLUMNS: u16 = 64;
/// Columns of a window with a list, at most, and those of the border of a window.
const LIST_COLUMNS: u16 = 100;
const BORDER: u16 = 2;

pub(super) fn draw(overlay: &Overlay, app: &App, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.height).saturating_sub(4).max(1);
    let columns = usize::from(area.width.min(LIST_COLUMNS).saturating_sub(BORDER));
    match overlay {
        Overlay::Help(at) => {
            let size = area.as_size();
            let (last, _) = help::scroll_range(size);
            let title = if last == 0 { " keys " } else { " keys: PageDown for more, Esc closes " };
            // The screen may have grown since it was scrolled.
            let lines = help::lines(size).into_iter().skip((*at).min(last)).collect();
            window(title, lines, help::WINDOW_COLUMNS, area, buf);
        }
        Overlay::Sessions(picker) => {
            let now = app.options.started + app.now;
            let titles = [
                " sessions: type to filter, Enter opens, ctrl-N new, Esc closes ",
                " sessions: type to filter, Esc closes ",
                " sessions ",
            ];
            let wide = area.width >= WIDE_COLUMNS;
            window(title(&titles, area), sessions(picker, room, wide, now), LIST_COLUMNS, area, buf);
        }
        Overlay::Queue(at) => {
            let lines = around(*at, room, queue::lines(app, *at, columns));
            let titles = [
                " queue: d removes, e takes back to edit, Esc closes ",
                " queue: d removes, e edits, Esc ends ",
                " queue ",
            ];
            window(title(&titles, area), lines, LIST_COLUMNS, area, buf);
        }
        Overlay::Choice(list) => {
            let titles = match list.chosen {
                Chosen::Agent => {
                    [" agents: Enter takes one, Esc closes ", " agents: Enter takes one ", " agents "]
                }
                Chosen::Model => [
                    " models: Enter takes one, /model PROVIDER/MODEL any other, Esc closes ",
                    " models: Enter takes one, Esc closes ",
                    " models ",
                ],
            };
            let lines = around(list.at, room, choices(list, app, columns));
            window(title(&titles, area), lines, LIST_COLUMNS, area, buf);
        }
        Overlay::Rules(list) => {
            let lines = rules(list, room, columns);
            let titles =
                [" remembered rules: d forgets, Esc closes ", " rules: d forgets, Esc closes ", " rules "];
            window(title(&titles, area), lines, LIST_COLUMNS, area, buf);
        }
    }
}

fn sessions(picker: &SessionPicker, room: usize, wide: bool, now: SystemTime) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    if picker.offers_new() {
        lines.push(row("a new session".to_owned(), picker.at == 0));
    }
    let first = lines.len();
    match &picker.sessions {
        None => lines.push(Line::styled("asking the server …", DIM)),
        Some(Err(why)) => lines.push(Line::styled(sanitize(why), BAD)),
        Some(Ok(_)) => {
            let shown = picker.shown().enumerate();
            lines.extend(shown.map(|(n, session)| row(describe(session, wide, now), picker.at == n + first)));
            if lines.is_empty() {
                lines.push(Line::styled("no session has these words", DIM));
            }
        }
    }
    let about = if wide { None } else { about(picker, first) };
    let room = room.saturating_sub(usize::from(about.is_some())).max(1);
    if picker.offers_new() {
        return around(picker.at, room, lines).into_iter().chain(about).collect();
    }
    let mut all = vec![Line::styled(format!("with: {}", picker.filter), BOLD)];
    all.extend(around(picker.at, room.saturating_sub(1).max(1), lines).into_iter().chain(about));
    all
}

/// State, agent and messages of the picked session, which its row has no room for on a narrow screen.
fn about(picker: &SessionPicker, first: usize) -> Option<Line<'static>> {
    let SessionOverview { session, agent, state, .. } = picker.shown().nth(picker.at.checked_sub(first)?)?;
    let facts = [state.clone(), sanitize(agent), format!("{} messages", session.entry_count)];
    let facts: Vec<String> = facts.into_iter().filter(|fact| !fact.is_empty()).collect();
    Some(Line::styled(facts.join(", "), DIM))
}

/// The lines that fit, around the selected one.
fn around(at: usize, room: usize, lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    let first = (at + 1).saturating_sub(room);
    lines.into_iter().skip(first).take(room).collect()
}

fn choices(list: &ChoiceList, app: &App, columns: usize) -> Vec<Line<'static>> {
    let rows = app.choices(list.chosen);
    let widest = rows.iter().map(|row| row.name.width()).max().unwrap_or_default().min(40);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, ChoiceRow { name, about, current }) in rows.iter().enumerate() {
        let mark = if *current { '●' } else { ' ' };
        let pad = " ".repeat(widest.saturating_sub(name.width()));
        let about = format::first_line(about, 80);
        // On a narrow screen, the description follows the name at once, without a column of its own.
        let beside = format!("{mark} {name}{pad}  {about}");
        let fits = beside.width() <= columns;
        let text = if fits { beside } else { format!("{mark} {name}  {about}") };
        lines.push(row(cut(&text, columns), n == list.at));
    }
    match &app.agents {
        None => lines.push(Line::styled("asking the server …", DIM)),
        Some(Err(why)) => lines.push(Line::styled(sanitize(why), BAD)),
        Some(Ok(agents)) if agents.is_empty() => lines.push(Line::styled("no agent is configured", DIM)),
        Some(Ok(_)) => {}
    }
    lines
}

fn rules(list: &RuleList, room: usize, columns: usize) -> Vec<Line<'static>> {
    let lines = match &list.listed {
        None => vec![Line::styled("asking the server …", DIM)],
        Some(Err(why)) => vec![Line::styled(sanitize(why), BAD)],
        Some(Ok(rules)) if rules.is_empty() => vec![Line::styled("no decision is remembered", DIM)],
        Some(Ok(rules)) => {
            let rows = rules.iter().enumerate();
            rows.map(|(n, remembered)| row(cut(&rule_in_words(remembered), columns), list.at == n)).collect()
        }
    };
    // If the row of the picked rule cuts it, all of it is below the list.
    let picked = list.listed.iter().flatten().flatten().nth(list.at).map(rule_in_words);
    let whole = picked.filter(|words| words.width() > columns).map(|words| wrap(&words, columns));
    let mut below: Vec<_> = whole.into_iter().flatten().map(|line| Line::styled(line, DIM)).collect();
    let error = list.error.iter().flat_map(|why| wrap(&sanitize(why), columns));
    below.extend(error.map(|line| Line::styled(line, BAD)));
    let mut lines = around(list.at, room.saturating_sub(below.len()).max(1), lines);
    lines.extend(below);
    lines
}

fn rule_in_words(remembered: &RememberedRule) -> String {
    let of = if remembered.session_id.is_empty() { "every run   " } else { "this session" };
    let words = remembered.rule.as_ref().map(rule::describe).unwrap_or_default();
    format!("{of}  {}  (by {})", escape_hidden(&words), escape_hidden(&remembered.decided_by))
}

/// A session on one line. On a narrow screen it is age, and title or first prompt.
fn describe(overview: &SessionOverview, wide: bool, now: SystemTime) -> String {
    let session = &overview.session;
    let live = if session.live_run_id.is_empty() { ' ' } else { '◐' };
    let about = if overview.about.is_empty() { &session.session_id } else { &overview.about };
    let about = format::first_line(&sanitize(about), 80);
    if !wide {
        return format!("{live} {:>4}  {about}", overview.age(now));
    }
    let (age, entries) = (overview.age(now), session.entry_count);
    let (agent, state) = (sanitize(&overview.agent), &overview.state);
    format!("{live} {age:>4}  {entries:>4}  {state:<14}  {agent:<10}  {about}")
}

/// The first of these titles that has room, or else the last one.
fn title(titles: &[&'static str], area: Rect) -> &'static str {
    fitting(titles, area.width.min(LIST_COLUMNS).saturating_sub(BORDER))
}

fn window(title: &str, lines: Vec<Line<'_>>, width: u16, area: Rect, buf: &mut Buffer) {
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [row] = Layout::vertical([Constraint::Max(height)]).flex(Flex::Center).areas(area);
    let [inside] = Layout::horizontal([Constraint::Max(width)]).flex(Flex::Center).areas(row);
    Clear.render(inside, buf);
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(WARN).title(title);
    Paragraph::new(lines).block(block).render(inside, buf);
}
