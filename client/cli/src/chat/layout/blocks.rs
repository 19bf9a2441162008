//! The lines of a block of the conversation.

use std::time::Duration;

use ratatui::{
    style::Style,
    text::{Line, Span},
};

use agentloop_client::v1::ToolStatus;
use unicode_width::UnicodeWidthStr as _;

use super::{cut_to, diff, markdown};

use crate::{
    chat::{
        styles::{BAD, BOLD, DIM, GOOD, WARN},
        transcript::{Block, CallBlock, CallState, Tone},
    },
    terminal::format,
    terminal::text::wrap,
};

/// Lines of a result, an output or a reasoning while details are hidden.
const BRIEF_LINES: usize = 4;
const ARGUMENTS_CHARS: usize = 400;

/// The settings that the lines of a block depend on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BlockOptions {
    /// Columns of the screen.
    pub(crate) width: u16,
    /// True if results and reasoning are shown in full.
    pub(crate) details: bool,
    /// Time since the start of the program, for the age of running calls.
    pub(crate) now: Duration,
}

/// The lines of a block that stands below another. A message of the user is always set apart from it.
pub(crate) fn lines_below(above: Option<&Block>, block: &Block, options: BlockOptions) -> Vec<Line<'static>> {
    let mut lines = lines(block, options);
    let is_apart =
        above.is_none_or(|above| matches!(above, Block::User(_) | Block::Text(_) | Block::Todos(_)));
    if matches!(block, Block::User(_)) && !is_apart {
        lines.insert(0, Line::default());
    }
    lines
}

/// The lines of a block. There is always at least one.
fn lines(block: &Block, options: BlockOptions) -> Vec<Line<'static>> {
    let width = usize::from(options.width);
    match block {
        Block::User(text) => spaced(prefixed("> ", text, BOLD, width)),
        Block::Text(text) => spaced(markdown::lines(text.text.trim_end(), width)),
        Block::Reasoning(text) => {
            let lines = prefixed("", text.text.trim(), DIM, width);
            if text.unfinished { lines } else { brief(lines, options.details) }
        }
        Block::Call(call) => call_lines(call, width, options),
        Block::Todos(items) => todo_lines(items, width),
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

fn todo_lines(items: &[String], width: usize) -> Vec<Line<'static>> {
    let head = prefixed("☰ ", "to do", BOLD, width);
    let items = items.iter().flat_map(|item| prefixed("  ", item, Style::new(), width));
    spaced(head.into_iter().chain(items).collect())
}

fn call_lines(call: &CallBlock, width: usize, options: BlockOptions) -> Vec<Line<'static>> {
    let (sign, style) = mark(&call.state);
    let arguments = if options.details {
        call.arguments.clone()
    } else {
        format::first_line(&call.arguments, ARGUMENTS_CHARS)
    };
    let title = if call.title.is_empty() { String::new() } else { format!("{}  ", call.title) };
    let mut lines = prefixed(&format!("{sign} "), &format!("{title}{} {arguments}", call.tool), style, width);
    lines.extend(prefixed("  ", &call.describe(options.now), DIM, width));
    let (rail, text) = match &call.state {
        CallState::Settled { result, .. } => ("  ⎿ ", result),
        _ => ("  │ ", &call.output),
    };
    if !text.trim().is_empty() {
        let shown = result_lines(rail, text.trim_end(), width);
        // The end of growing output is shown.
        lines.extend(if call.is_running() {
            end(shown, options.details)
        } else {
            brief(shown, options.details)
        });
    }
    lines
}

/// The lines of a result or an output. A diff has its colours.
fn result_lines(rail: &str, text: &str, width: usize) -> Vec<Line<'static>> {
    if !diff::is_diff(text) {
        return prefixed(rail, text, DIM, width);
    }
    let pad = " ".repeat(rail.width());
    let columns = width.saturating_sub(rail.width());
    let parts = text.lines().flat_map(|line| {
        let style = diff::style(line);
        cut_to(line, columns).into_iter().map(move |part| Span::styled(part, style))
    });
    let rails = std::iter::once(rail.to_owned()).chain(std::iter::repeat(pad));
    rails.zip(parts).map(|(rail, part)| Line::from(vec![Span::styled(rail, DIM), part])).collect()
}

fn mark(state: &CallState) -> (&'static str, Style) {
    match state {
        CallState::Pending { .. } => ("○", Style::new()),
        CallState::AwaitingHuman(_) | CallState::InDoubt => ("?", WARN),
        CallState::Running { .. } => ("◐", Style::new()),
        CallState::Settled { status: ToolStatus::Succeeded | ToolStatus::Answered, .. } => ("●", GOOD),
        CallState::NotCompleted => ("✗", Style::new()),
        CallState::Settled { .. } => ("✗", BAD),
    }
}

/// Wraps a text. The first line has the prefix, the others are indented by its width.
fn prefixed(prefix: &str, text: &str, style: Style, width: usize) -> Vec<Line<'static>> {
    let indent = prefix.width();
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
