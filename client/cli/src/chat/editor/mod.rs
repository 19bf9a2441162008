//! A text field with one or more lines.

use std::ops::Range;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use ratatui::style::{Modifier, Style};
use ratatui_textarea::{CursorMove, TextArea, WrapMode};

use super::pastes::{Pastes, is_long};
use crate::terminal::text::{sanitize, wrap};

/// Bound on the text. It is below the server's bound on a prompt.
const BYTES_MAX: usize = 1024 * 1024;

/// A text field. It refuses unsafe characters.
#[derive(Debug)]
pub(crate) struct Editor {
    area: TextArea<'static>,
    /// Long pasted texts. The field shows a mark in place of each.
    pastes: Pastes,
}

impl Editor {
    pub(crate) fn new(hint: &str) -> Editor {
        Editor::holding("", hint)
    }

    /// Shows another hint while the field is empty.
    pub(crate) fn set_hint(&mut self, hint: &str) {
        self.area.set_placeholder_text(hint);
    }

    /// A field with this text; the cursor is at its end.
    pub(crate) fn holding(text: &str, hint: &str) -> Editor {
        let mut area = TextArea::from(text.split('\n'));
        area.set_cursor_line_style(Style::default());
        area.set_placeholder_text(hint);
        area.set_placeholder_style(Style::default().add_modifier(Modifier::DIM));
        area.set_wrap_mode(WrapMode::WordOrGlyph);
        area.move_cursor(CursorMove::Bottom);
        area.move_cursor(CursorMove::End);
        Editor { area, pastes: Pastes::default() }
    }

    /// The whole text, with what was pasted.
    pub(crate) fn text(&self) -> String {
        self.pastes.whole(&self.shown())
    }

    /// The text as the field shows it, with marks for what was pasted.
    pub(crate) fn shown(&self) -> String {
        self.area.lines().join("\n")
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.area.is_empty()
    }

    /// Replaces the text, but not the hint. Folds every part of the new text that was pasted earlier.
    pub(crate) fn set(&mut self, text: &str) {
        self.set_with(|pastes| pastes.fold_known(text));
    }

    /// Replaces the text by a prompt that may have been pasted where nobody saw it: all but its first line is folded, if it
    /// is long.
    pub(crate) fn set_earlier(&mut self, text: &str) {
        self.set_with(|pastes| pastes.fold_earlier(text));
    }

    fn set_with(&mut self, shown: impl FnOnce(&mut Pastes) -> String) {
        let mut pastes = std::mem::take(&mut self.pastes);
        pastes.clear();
        let shown = shown(&mut pastes);
        *self = Editor { pastes, ..Editor::holding(&shown, self.area.placeholder_text()) };
    }

    /// Returns the text, and empties the field.
    pub(crate) fn take(&mut self) -> String {
        let text = self.text();
        self.set("");
        text
    }

    /// Handles a key. Enter with Alt or Shift, and ctrl-J, begin a new line. Enter alone is for the caller.
    pub(crate) fn key(&mut self, key: KeyEvent) {
        let before = self.state();
        self.change(key);
        if !before.marks.is_empty() {
            self.delete_cut_marks(&before);
            self.leave_mark(before.cursor);
        }
    }

    fn change(&mut self, key: KeyEvent) {
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => self.area.insert_newline(),
            KeyCode::Char('j') if ctrl => self.area.insert_newline(),
            // As in a shell, ctrl-U deletes to the start of the line.
            KeyCode::Char('u') if ctrl => {
                self.area.delete_line_by_head();
            }
            // As in most text fields, ctrl-Z takes back the last change.
            KeyCode::Char('z') if ctrl => {
                self.area.undo();
            }
            KeyCode::Char(c) if !ctrl && crate::terminal::style::is_unsafe(c) => {}
            _ if self.text_bytes() >= BYTES_MAX && matches!(key.code, KeyCode::Char(_)) => {}
            _ => {
                self.area.input(key);
            }
        }
    }

    /// Inserts a sanitized text at the cursor.
    pub(crate) fn paste(&mut self, text: &str) {
        let room = BYTES_MAX.saturating_sub(self.text_bytes());
        let text = sanitize(&text.replace("\r\n", "\n").replace('\r', "\n"));
        self.area.insert_str(&text[..text.floor_char_boundary(room)]);
    }

    /// Inserts a pasted text; a long one is shown as a mark.
    pub(crate) fn paste_folded(&mut self, text: &str) {
        let text = sanitize(&text.replace("\r\n", "\n").replace('\r', "\n"));
        let room = BYTES_MAX.saturating_sub(self.text_bytes());
        let text = &text[..text.floor_char_boundary(room)];
        if !is_long(text) {
            return self.paste(text);
        }
        let mark = self.pastes.add(text.to_owned(), &self.shown());
        self.area.insert_str(mark);
    }

    /// Shows a pasted text in place of the mark before the cursor. False if there is none.
    pub(crate) fn unfold(&mut self) -> bool {
        let State { cursor, marks, .. } = self.state();
        let Some(mark) = marks.into_iter().find(|mark| (mark.row, mark.columns.end) == cursor) else {
            return false;
        };
        let Some(text) = self.pastes.text_of(&mark.name).map(str::to_owned) else { return false };
        self.delete_columns(mark.columns);
        self.area.insert_str(text);
        true
    }

    fn state(&self) -> State {
        let lines = self.area.lines();
        let marks = lines.iter().enumerate().flat_map(|(row, line)| {
            self.pastes.marks_in(line).map(move |(columns, name)| Mark {
                row,
                columns,
                name: name.to_owned(),
            })
        });
        let row = self.area.cursor().0;
        State {
            cursor: (row, self.area.cursor().1),
            marks: marks.collect(),
            lines: lines.len(),
            columns: lines.get(row).map_or(0, |line| line.chars().count()),
        }
    }

    /// A mark is deleted as a whole: where a key deleted a part of one, deletes the rest.
    fn delete_cut_marks(&mut self, before: &State) {
        let after = self.state();
        let (row, from) = after.cursor;
        let deleted = before.columns.saturating_sub(after.columns);
        if deleted == 0 || before.lines != after.lines || before.cursor.0 != row {
            return;
        }
        let range = from..from + deleted;
        let cut = before.marks.iter().filter(|mark| mark.row == row && overlap(&mark.columns, &range));
        let whole = cut.fold(range.clone(), |whole, mark| {
            whole.start.min(mark.columns.start)..whole.end.max(mark.columns.end)
        });
        if whole != range {
            self.area.undo();
            self.delete_columns(whole);
        }
    }

    /// Deletes a part of the cursor's line. Ctrl-Y inserts it again, and ctrl-Z takes the deletion back.
    fn delete_columns(&mut self, columns: Range<usize>) {
        self.area.cancel_selection();
        self.move_to_column(columns.start);
        self.area.delete_str(columns.len());
    }

    /// Moves the cursor out of a mark, to the end to which it was on its way.
    fn leave_mark(&mut self, from: (usize, usize)) {
        let State { cursor: (row, column), marks, .. } = self.state();
        let inside =
            |mark: &&Mark| mark.row == row && mark.columns.start < column && column < mark.columns.end;
        let Some(Mark { columns, .. }) = marks.iter().find(inside) else { return };
        let left = column - columns.start;
        let is_backward = match from {
            (from_row, from_column) if from_row == row => from_column >= columns.end,
            _ => left <= columns.end - column,
        };
        self.move_to_column(if is_backward { columns.start } else { columns.end });
    }

    /// Moves the cursor within its line. A selection grows with it.
    fn move_to_column(&mut self, column: usize) {
        let at = self.area.cursor().1;
        let (step, steps) = match at.checked_sub(column) {
            Some(back) => (CursorMove::Back, back),
            None => (CursorMove::Forward, column - at),
        };
        (0..steps).for_each(|_| self.area.move_cursor(step));
    }

    /// True if the cursor is in the first line.
    pub(crate) fn is_on_first_line(&self) -> bool {
        self.area.cursor().0 == 0
    }

    /// True if the cursor is in the last line.
    pub(crate) fn is_on_last_line(&self) -> bool {
        self.area.cursor().0 + 1 == self.area.lines().len()
    }

    /// Rows of the text at a width, with room for the cursor behind it.
    pub(crate) fn rows(&self, width: u16) -> usize {
        let width = usize::from(width.max(2)) - 1;
        self.area.lines().iter().map(|line| wrap(line, width).len()).sum()
    }

    /// The widget that draws the field.
    pub(crate) fn widget(&self) -> &TextArea<'static> {
        &self.area
    }

    fn text_bytes(&self) -> usize {
        self.area.lines().iter().map(|line| line.len() + 1).sum::<usize>()
            + self.pastes.bytes_in(self.area.lines())
    }
}

/// The text of a field before a key.
struct State {
    /// Row and column of the cursor. Columns count characters.
    cursor: (usize, usize),
    marks: Vec<Mark>,
    lines: usize,
    /// Number of columns in the cursor's line.
    columns: usize,
}

/// A mark in the text.
struct Mark {
    row: usize,
    columns: Range<usize>,
    name: String,
}

fn overlap(one: &Range<usize>, other: &Range<usize>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
mod tests;
