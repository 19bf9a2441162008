//! Windows over everything else.

use agentloop_client::v1::Session;
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Flex, Layout, Rect},
    text::{Line, Span},
    widgets::{Block, BorderType, Clear, Paragraph, Widget},
};

use super::{BAD, BOLD, DIM, PICKED, WARN};
use crate::{
    chat::app::{HELP, Overlay, Picker},
    names,
    text::tame,
};

pub(super) fn draw(overlay: &Overlay, area: Rect, buf: &mut Buffer) {
    match overlay {
        Overlay::Help => {
            let lines: Vec<Line<'_>> = HELP
                .iter()
                .map(|(key, what)| {
                    Line::from(vec![Span::styled(format!("{key:<22}"), BOLD), Span::raw(*what)])
                })
                .collect();
            window(" keys ", lines, 64, area, buf);
        }
        Overlay::Sessions(picker) => {
            let room = usize::from(area.height).saturating_sub(4).max(1);
            window(" sessions: Enter opens, n new, Esc closes ", sessions(picker, room), 100, area, buf);
        }
    }
}

fn sessions(picker: &Picker, room: usize) -> Vec<Line<'static>> {
    let mut lines = vec![row("a new session".to_owned(), picker.at == 0)];
    match &picker.sessions {
        None => lines.push(Line::styled("asking the server …", DIM)),
        Some(Err(why)) => lines.push(Line::styled(tame(why), BAD)),
        Some(Ok(sessions)) => {
            let listed = sessions.iter().enumerate();
            lines.extend(listed.map(|(n, session)| row(in_words(session), picker.at == n + 1)));
        }
    }
    let first = (picker.at + 1).saturating_sub(room);
    lines.into_iter().skip(first).take(room).collect()
}

fn row(text: String, picked: bool) -> Line<'static> {
    if picked { Line::styled(text, PICKED) } else { Line::raw(text) }
}

fn in_words(session: &Session) -> String {
    let live = if session.live_run_id.is_empty() { ' ' } else { '◐' };
    let title = if session.title.is_empty() { &session.session_id } else { &session.title };
    let at = names::time(session.updated_at.as_ref());
    format!("{live} {at}  {:>4}  {}", session.entry_count, names::brief(&tame(title), 80))
}

fn window(title: &str, lines: Vec<Line<'_>>, width: u16, area: Rect, buf: &mut Buffer) {
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX);
    let [row] = Layout::vertical([Constraint::Max(height)]).flex(Flex::Center).areas(area);
    let [inside] = Layout::horizontal([Constraint::Max(width)]).flex(Flex::Center).areas(row);
    Clear.render(inside, buf);
    let block = Block::bordered().border_type(BorderType::Rounded).border_style(WARN).title(title);
    Paragraph::new(lines).block(block).render(inside, buf);
}
