//! Blocks of the conversation as lines.

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use agentloop_client::v1::ToolStatus;

use super::{BAD, BOLD, DIM, GOOD, WARN};
use crate::{
    chat::{
        app::App,
        transcript::{Block, Call, State, Tone},
    },
    terminal::names,
    terminal::text::wrap,
};

/// Lines that a result, an output or a thought takes where details are not asked for.
const BRIEF_LINES: usize = 4;
const ARGUMENTS_CHARS: usize = 400;

/// A block at a width. There is always at least one line.
pub(super) fn lines(block: &Block, width: u16, app: &App) -> Vec<Line<'static>> {
    let width = usize::from(width);
    match block {
        Block::User(text) => spaced(prefixed("> ", text, BOLD, width)),
        Block::Said(said) => spaced(prefixed("", said.text.trim_end(), Style::new(), width)),
        Block::Reasoning(said) => {
            let lines = prefixed("", said.text.trim(), DIM, width);
            if said.live { lines } else { brief(lines, app.details) }
        }
        Block::Call(call) => call_lines(call, width, app),
        Block::Note(tone, text) => {
            let style = match tone {
                Tone::Quiet => DIM,
                Tone::Warning => WARN,
                Tone::Bad => BAD,
            };
            prefixed("· ", text, style, width)
        }
    }
}

fn call_lines(call: &Call, width: usize, app: &App) -> Vec<Line<'static>> {
    let (sign, style) = mark(&call.state);
    let arguments =
        if app.details { call.arguments.clone() } else { names::brief(&call.arguments, ARGUMENTS_CHARS) };
    let mut lines = prefixed(&format!("{sign} "), &format!("{} {arguments}", call.tool), style, width);
    lines.extend(prefixed("  ", &call.in_words(app.now), DIM, width));
    let (rail, text) = match &call.state {
        State::Settled { result, .. } => ("  ⎿ ", result),
        _ => ("  │ ", &call.output),
    };
    if !text.trim().is_empty() {
        let shown = prefixed(rail, text.trim_end(), DIM, width);
        // Of what is still being put out, the end is what matters.
        lines.extend(if call.is_running() { end(shown, app.details) } else { brief(shown, app.details) });
    }
    lines
}

fn mark(state: &State) -> (&'static str, Style) {
    match state {
        State::Pending { .. } => ("○", Style::new()),
        State::AwaitingHuman | State::InDoubt => ("?", WARN),
        State::Running { .. } => ("◐", Style::new()),
        State::Settled { status: ToolStatus::Succeeded | ToolStatus::Answered, .. } => ("●", GOOD),
        State::Settled { .. } => ("✗", BAD),
    }
}

/// The first line has the prefix, the others are indented by its width.
fn prefixed(prefix: &str, text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let indent = prefix.chars().count();
    let pad = " ".repeat(indent);
    wrap(text, width.saturating_sub(indent))
        .into_iter()
        .enumerate()
        .map(|(n, line)| {
            let before = if n == 0 { prefix.to_owned() } else { pad.clone() };
            Line::from(vec![Span::styled(before, style), Span::styled(line, style)])
        })
        .collect()
}

fn spaced(mut lines: Vec<Line<'static>>) -> Vec<Line<'static>> {
    lines.push(Line::default());
    lines
}

fn brief(mut lines: Vec<Line<'static>>, details: bool) -> Vec<Line<'static>> {
    if !details && lines.len() > BRIEF_LINES {
        let more = lines.len() - BRIEF_LINES;
        lines.truncate(BRIEF_LINES);
        lines.push(Line::styled(format!("    … {more} more lines (ctrl-T)"), DIM));
    }
    lines
}

fn end(mut lines: Vec<Line<'static>>, details: bool) -> Vec<Line<'static>> {
    if !details && lines.len() > BRIEF_LINES {
        lines.drain(..lines.len() - BRIEF_LINES);
    }
    lines
}
