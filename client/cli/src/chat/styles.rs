//! Text styles of the chat. Their colours are of the 16 that every terminal has, so that its own palette applies.
//! [`backend`](super::backend) writes them.

use ratatui::{
    style::{Color, Modifier, Style},
    text::Line,
};

pub(crate) const DIM: Style = Style::new().add_modifier(Modifier::DIM);
pub(crate) const BOLD: Style = Style::new().add_modifier(Modifier::BOLD);
pub(crate) const WARN: Style = Style::new().fg(Color::Yellow);
pub(crate) const BAD: Style = Style::new().fg(Color::Red);
pub(crate) const GOOD: Style = Style::new().fg(Color::Green);
pub(crate) const CODE: Style = Style::new().fg(Color::Cyan);
pub(crate) const ADDED: Style = GOOD;
pub(crate) const REMOVED: Style = BAD;
pub(crate) const PICKED: Style = Style::new().add_modifier(Modifier::REVERSED);

/// A row of a list. The picked one is shown in reverse.
pub(crate) fn row(text: String, picked: bool) -> Line<'static> {
    if picked { Line::styled(text, PICKED) } else { Line::raw(text) }
}
