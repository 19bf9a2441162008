//! The list of keys.

use ratatui::{
    layout::Size,
    text::{Line, Span},
};

use crate::{chat::styles::BOLD, terminal::text::wrap};

/// Columns of the window, with its frame.
pub(crate) const WINDOW_COLUMNS: u16 = 74;
/// Columns and rows of the frame.
const FRAME: usize = 2;
/// Columns of the keys, where their effects stand beside them.
const KEY_COLUMNS: usize = 22;

/// Keys with their effects.
const HELP: [(&str, &str); 20] = [
    ("Enter", "send; while a run is under way: queue"),
    ("ctrl-S", "send; while a run is under way: tell it"),
    ("Alt-Enter, ctrl-J", "begin a new line"),
    ("ctrl-Z", "take back the last change of the text"),
    ("Up, Down", "earlier and later prompts"),
    ("PageUp, PageDown", "scroll; also a question longer than its card"),
    ("ctrl-Home, ctrl-End", "first and last message"),
    ("Tab", "to the question that waits; else unfold a paste"),
    ("Esc", "put the question aside, close a window"),
    ("ctrl-T", "results and reasoning whole, or brief"),
    ("ctrl-Q, /queue", "what waits for its turn"),
    ("/rules", "remembered rules, to see and to forget"),
    ("/agent, /model", "another one, from the next message on"),
    ("ctrl-O, ctrl-N", "the sessions; a new one"),
    ("ctrl-G", "let a paused run go on"),
    ("ctrl-C", "abort the run; twice: leave; with a queue it asks"),
    ("ctrl-D, /quit", "leave; a run goes on without you"),
    ("ctrl-E", "in a question: answer with an empty text, or none"),
    ("ctrl-X", "in a question: decline it"),
    ("F1", "this help"),
];

/// The lines of the window. On a narrow screen, each effect stands below its keys.
pub(crate) fn lines(screen: Size) -> Vec<Line<'static>> {
    if screen.width >= WINDOW_COLUMNS {
        let beside = |(key, what): (&'static str, &'static str)| {
            Line::from(vec![Span::styled(format!("{key:<KEY_COLUMNS$}"), BOLD), Span::raw(what)])
        };
        return HELP.into_iter().map(beside).collect();
    }
    let columns = usize::from(screen.width).saturating_sub(FRAME + 2);
    let below = |(key, what): (&'static str, &'static str)| {
        let what = wrap(what, columns).into_iter().map(|line| Line::from(format!("  {line}")));
        std::iter::once(Line::styled(key, BOLD)).chain(what)
    };
    HELP.into_iter().flat_map(below).collect()
}

/// The last line that can be the first on the screen, and the lines of a page.
pub(crate) fn scroll_range(screen: Size) -> (usize, usize) {
    let rows = usize::from(screen.height).saturating_sub(FRAME).max(1);
    (lines(screen).len().saturating_sub(rows), rows)
}
