//! Draws a question above the editor.

use agentloop_client::v1::{HumanRequestKind, UrlOutcome};
use ratatui::{
    buffer::Buffer,
    layout::{Constraint, Layout, Rect},
    style::Style,
    text::Line,
    widgets::{Block, BorderType, Borders, Paragraph, Widget},
};

use crate::{
    chat::{
        card::{Card, Stage},
        editor::Editor,
        layout::{
            question::{self, about, answer_rows, has_border, hint, lines_and_rows},
            rule_draft,
        },
        styles::{BAD, DIM, PICKED, WARN},
    },
    terminal::text::wrap,
};

/// The state around a card that its drawing depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct CardFrame {
    /// Number of open questions.
    pub(super) count: usize,
    /// True if keys go to the card.
    pub(super) has_keys: bool,
}

pub(super) fn draw(card: &Card, frame: CardFrame, area: Rect, buf: &mut Buffer) {
    let CardFrame { count, has_keys } = frame;
    let borders = if has_border(area) { Borders::ALL } else { Borders::TOP };
    let block = Block::new()
        .borders(borders)
        .border_type(BorderType::Rounded)
        .border_style(if has_keys { WARN } else { DIM })
        .title(title(card, count, has_keys, lines_and_rows(card, area)));
    let inner = block.inner(area);
    block.render(area, buf);
    let answer = u16::try_from(answer_rows(card, inner.width)).unwrap_or(u16::MAX);
    // The choices must be visible, even if the arguments are cut off.
    let [question, answer] = Layout::vertical([Constraint::Min(1), Constraint::Max(answer)]).areas(inner);
    draw_about(card, question, buf);
    draw_answer(card, has_keys, answer, buf);
}

fn title(card: &Card, count: usize, has_keys: bool, (lines, rows): (usize, usize)) -> String {
    let what = match card.request.kind() {
        HumanRequestKind::Approve => "may this run?",
        HumanRequestKind::InDoubt => "did this take effect?",
        _ => "a question",
    };
    let more = if count > 1 { format!(" (1 of {count})") } else { String::new() };
    let how = if !has_keys {
        " · Tab: answer"
    } else if card.view.first + rows < lines {
        " · PageDown: more"
    } else if card.view.first > 0 {
        " · PageUp: back"
    } else {
        ""
    };
    format!(" {what}{more}{how} ")
}

fn draw_about(card: &Card, area: Rect, buf: &mut Buffer) {
    let mut lines = about(card, area.width);
    lines.drain(..card.view.first.min(lines.len()));
    Paragraph::new(lines).render(area, buf);
}

fn draw_answer(card: &Card, has_keys: bool, area: Rect, buf: &mut Buffer) {
    let mut lines: Vec<Line<'static>> = card
        .error
        .iter()
        .flat_map(|error| wrap(error, usize::from(area.width)))
        .map(|line| Line::styled(line, BAD))
        .collect();
    let hint = hint(card, area.width);
    match &card.stage {
        Stage::Choosing { picked, .. } => {
            let room = usize::from(area.height).saturating_sub(lines.len() + hint.len()).max(1);
            lines.extend(items(
                card,
                area.width,
                card.choices().iter().position(|c| Some(*c) == *picked),
                room,
            ));
            lines.extend(hint);
            Paragraph::new(lines).render(area, buf);
        }
        Stage::Selecting { at, .. } => {
            let room = usize::from(area.height).saturating_sub(lines.len() + hint.len()).max(1);
            lines.extend(items(card, area.width, *at, room));
            lines.extend(hint);
            Paragraph::new(lines).render(area, buf);
        }
        Stage::RuleDraft(draft) => {
            lines.extend(rule_draft::head(draft, area.width));
            let mut below = rule_draft::foot(draft, area.width);
            below.extend(hint);
            Field { above: lines, editor: &draft.editor, below, has_keys }.draw(area, buf);
        }
        Stage::Filling { form, editor } => {
            let prompt = wrap(&form.prompt(), usize::from(area.width));
            lines.extend(prompt.into_iter().map(|line| Line::styled(line, DIM)));
            Field { above: lines, editor, below: hint, has_keys }.draw(area, buf);
        }
        Stage::Visiting { picked } => {
            let outcomes = [
                (UrlOutcome::Done, " y  I did there what is asked "),
                (UrlOutcome::NotDone, " n  I did not "),
            ];
            lines.extend(outcomes.map(|(outcome, text)| {
                if Some(outcome) == *picked { Line::styled(text, PICKED) } else { Line::raw(text) }
            }));
            lines.extend(hint);
            Paragraph::new(lines).render(area, buf);
        }
        Stage::Writing { of, editor } => {
            let head = of.map_or("your answer:", |choice| choice.label(card.request.kind()));
            lines.push(Line::styled(head, DIM));
            Field { above: lines, editor, below: hint, has_keys }.draw(area, buf);
        }
    }
}

/// A field with lines above and below it.
struct Field<'a> {
    above: Vec<Line<'static>>,
    editor: &'a Editor,
    below: Vec<Line<'static>>,
    has_keys: bool,
}

impl Field<'_> {
    /// Draws the field. With little room, only the editor stays.
    fn draw(self, area: Rect, buf: &mut Buffer) {
        let rows = |lines: &[Line<'_>]| Constraint::Max(u16::try_from(lines.len()).unwrap_or(u16::MAX));
        let parts = [rows(&self.above), Constraint::Min(1), rows(&self.below)];
        let [top, middle, bottom] = Layout::vertical(parts).areas(area);
        Paragraph::new(self.above).render(top, buf);
        if self.has_keys {
            self.editor.widget().render(middle, buf);
        } else {
            Paragraph::new(self.editor.shown()).style(DIM).render(middle, buf);
        }
        Paragraph::new(self.below).render(bottom, buf);
    }
}

/// The rows of the list that fit. The picked item is always among them, at least with its first row.
fn items(card: &Card, width: u16, picked: Option<usize>, room: usize) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    let mut first = 0;
    for (n, rows) in question::items(card, width).into_iter().enumerate() {
        let style = if picked == Some(n) { PICKED } else { Style::new() };
        if picked == Some(n) {
            first = (lines.len() + rows.len()).saturating_sub(room).min(lines.len());
        }
        lines.extend(rows.into_iter().map(|row| Line::styled(row, style)));
    }
    lines.into_iter().skip(first).take(room).collect()
}
