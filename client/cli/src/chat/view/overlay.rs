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
        layout::help,
        styles::{BAD, BOLD, DIM, WARN, row},
    },
    command::overview::SessionOverview,
    terminal::format,
    terminal::rule,
    terminal::text::{escape_hidden, sanitize},
};

/// Columns of a screen on which the list of sessions has all that it knows of each.
const WIDE_COLUMNS: u16 = 64;

pub(super) fn draw(overlay: &Overlay, app: &App, area: Rect, buf: &mut Buffer) {
    let room = usize::from(area.height).saturating_sub(4).max(1);
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
            let title = " sessions: type to filter, Enter opens, ctrl-N new, Esc closes ";
            window(title, sessions(picker, room, area.width >= WIDE_COLUMNS, now), 100, area, buf);
        }
        Overlay::Queue(at) => {
            let lines = around(*at, room, queue::lines(app, *at));
            window(" queue: d removes, e takes back to edit, Esc closes ", lines, 100, area, buf);
        }
        Overlay::Choice(list) => {
            let title = match list.chosen {
                Chosen::Agent => " agents: Enter takes one, Esc closes ",
                Chosen::Model => " models: Enter takes one, /model PROVIDER/MODEL any other, Esc closes ",
            };
            window(title, around(list.at, room, choices(list, app)), 100, area, buf);
        }
        Overlay::Rules(list) => {
            let lines = around(list.at, room, rules(list));
            window(" remembered rules: d forgets, Esc closes ", lines, 100, area, buf);
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
    if picker.offers_new() {
        return around(picker.at, room, lines);
    }
    let mut all = vec![Line::styled(format!("with: {}", picker.filter), BOLD)];
    all.extend(around(picker.at, room.saturating_sub(1).max(1), lines));
    all
}

/// The lines that fit, around the selected one.
fn around(at: usize, room: usize, lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    let first = (at + 1).saturating_sub(room);
    lines.into_iter().skip(first).take(room).collect()
}

fn choices(list: &ChoiceList, app: &App) -> Vec<Line<'static>> {
    let rows = app.choices(list.chosen);
    let widest = rows.iter().map(|row| row.name.width()).max().unwrap_or_default().min(40);
    let mut lines: Vec<Line<'static>> = Vec::new();
    for (n, ChoiceRow { name, about, current }) in rows.iter().enumerate() {
        let mark = if *current { '●' } else { ' ' };
        let pad = " ".repeat(widest.saturating_sub(name.width()));
        let about = format::first_line(about, 80);
        lines.push(row(format!("{mark} {name}{pad}  {about}"), n == list.at));
    }
    match &app.agents {
        None => lines.push(Line::styled("asking the server …", DIM)),
        Some(Err(why)) => lines.push(Line::styled(sanitize(why), BAD)),
        Some(Ok(agents)) if agents.is_empty() => lines.push(Line::styled("no agent is configured", DIM)),
        Some(Ok(_)) => {}
    }
    lines
}

fn rules(list: &RuleList) -> Vec<Line<'static>> {
    let mut lines = match &list.listed {
        None => vec![Line::styled("asking the server …", DIM)],
        Some(Err(why)) => vec![Line::styled(sanitize(why), BAD)],
        Some(Ok(rules)) if rules.is_empty() => vec![Line::styled("no decision is remembered", DIM)],
        Some(Ok(rules)) => {
            let rows = rules.iter().enumerate();
            rows.map(|(n, remembered)| row(rule_in_words(remembered), list.at == n)).collect()
        }
    };
    lines.extend(list.error.iter().map(|why| Line::styled(sanitize(why), BAD)));
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

fn window(title: &str, lines: Vec<Line<'_>>, width: u16, area: Rect, buf: &mut Buffer) {
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [row] = Layout::vertical([Constraint::Max(height)]).flex(Flex::Center).areas(area);
    let [inside] = Layout::horizontal([Constraint::Max(width)]).flex(Flex::Center).areas(row);
    Clear.render(inside, buf);
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(WARN).title(title);
    Paragraph::new(lines).block(block).render(inside, buf);
}
