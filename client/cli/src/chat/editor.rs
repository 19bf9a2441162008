//! A text field with one or more lines.

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
        let ctrl = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Enter => self.area.insert_newline(),
            KeyCode::Char('j') if ctrl => self.area.insert_newline(),
            // As in a shell, ctrl-U deletes to the start of the line.
            KeyCode::Char('u') if ctrl => {
                self.area.delete_line_by_head();
            }
            KeyCode::Backspace if key.modifiers.is_empty() && self.delete_mark() => {}
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
        let mark = self.pastes.add(text.to_owned());
        self.area.insert_str(mark);
    }

    /// Shows a pasted text in place of the mark before the cursor. False if there is none.
    pub(crate) fn unfold(&mut self) -> bool {
        let Some(text) = self.take_mark() else { return false };
        self.area.insert_str(text);
        true
    }

    /// Deletes the mark that ends at the cursor, as one character. False if there is none.
    fn delete_mark(&mut self) -> bool {
        self.take_mark().is_some()
    }

    /// Removes the mark that ends at the cursor. Returns the text in its place; `None` if there is no mark.
    fn take_mark(&mut self) -> Option<String> {
        let (row, column) = (self.area.cursor().0, self.area.cursor().1);
        let line = self.area.lines().get(row)?;
        let before: String = line.chars().take(column).collect();
        let (characters, text) = self.pastes.take_last(&before)?;
        for _ in 0..characters {
            self.area.delete_char();
        }
        Some(text)
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
        self.area.lines().iter().map(|line| line.len() + 1).sum::<usize>() + self.pastes.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn press(editor: &mut Editor, code: KeyCode, modifiers: KeyModifiers) {
        editor.key(KeyEvent::new(code, modifiers));
    }

    fn write(editor: &mut Editor, text: &str) {
        text.chars().for_each(|c| press(editor, KeyCode::Char(c), KeyModifiers::NONE));
    }

    #[test]
    fn text_is_written_and_taken_out() {
        let mut editor = Editor::new("hint");
        write(&mut editor, "one");
        press(&mut editor, KeyCode::Char('j'), KeyModifiers::CONTROL);
        write(&mut editor, "two");
        assert_eq!(editor.text(), "one\ntwo");
        assert_eq!((editor.is_on_first_line(), editor.is_on_last_line()), (false, true));
        assert_eq!(editor.take(), "one\ntwo");
        assert!(editor.is_empty());
        assert_eq!(editor.widget().placeholder_text(), "hint");
    }

    #[test]
    fn editing_begins_at_the_end() {
        let mut editor = Editor::holding("a\nbc", "");
        write(&mut editor, "d");
        press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
        press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
        assert_eq!(editor.text(), "a\nb");
    }

    #[test]
    fn a_pasted_text_is_sanitized() {
        let mut editor = Editor::new("");
        editor.paste("a\r\nb\x1b[2J\rc\u{202e}");
        assert_eq!(editor.text(), "a\nb\nc");
    }

    #[test]
    fn a_long_pasted_text_is_folded_until_it_is_sent() {
        let (long, lines) = ("x".repeat(crate::chat::pastes::BYTES_MAX + 1), "line\n".repeat(20));
        let mut editor = Editor::new("");
        write(&mut editor, "see ");
        editor.paste_folded(&lines);
        write(&mut editor, " and ");
        editor.paste_folded(&long);
        let shown = editor.widget().lines().join("\n");
        assert_eq!(
            shown,
            "see [pasted text 1: 20 lines, 100 characters] and [pasted text 2: 1 lines, 1001 characters]"
        );
        assert_eq!(editor.text(), format!("see {lines} and {long}"));
        press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
        assert_eq!(editor.text(), format!("see {lines} and "), "a mark is deleted as one character");
        editor.paste_folded("short");
        assert_eq!(editor.take(), format!("see {lines} and short"));
        assert_eq!((editor.text(), editor.is_empty()), (String::new(), true));
    }

    #[test]
    fn a_text_that_comes_back_is_folded_as_it_was() {
        let lines = "line\n".repeat(20);
        let mut editor = Editor::new("hint");
        write(&mut editor, "see ");
        editor.paste_folded(&lines);
        let (shown, sent) = (editor.shown(), editor.take());
        assert_eq!((editor.shown().as_str(), editor.widget().placeholder_text()), ("", "hint"));
        editor.set(&sent);
        assert_eq!((editor.shown(), editor.text()), (shown.clone(), sent.clone()));
        editor.set_earlier(&sent);
        assert_eq!(editor.shown(), shown);

        let mut restarted = Editor::new("");
        restarted.set_earlier(&sent);
        assert_eq!(restarted.shown(), "see line\n[earlier text 1: 19 lines, 95 characters]");
        write(&mut restarted, "!");
        assert_eq!(restarted.take(), format!("{sent}!"));
        restarted.set(&sent);
        assert_eq!(restarted.shown(), sent, "what was typed here is not folded");
    }

    #[test]
    fn a_mark_before_the_cursor_is_unfolded() {
        let lines = "line\n".repeat(20);
        let mut editor = Editor::new("");
        assert!(!editor.unfold());
        editor.paste_folded(&lines);
        write(&mut editor, "!");
        assert!(!editor.unfold(), "the mark is not before the cursor");
        press(&mut editor, KeyCode::Backspace, KeyModifiers::NONE);
        assert!(editor.unfold());
        assert_eq!((editor.shown(), editor.text()), (lines.clone(), lines));
    }

    #[test]
    fn a_text_has_a_bound() {
        let mut editor = Editor::new("");
        editor.paste(&"ä".repeat(BYTES_MAX));
        write(&mut editor, "x");
        assert!(editor.text().len() <= BYTES_MAX, "{}", editor.text().len());
    }

    #[test]
    fn rows_are_counted_as_they_are_wrapped() {
        assert_eq!(Editor::holding("", "").rows(10), 1);
        assert_eq!(Editor::holding("aaaa bbbb", "").rows(6), 2);
        assert_eq!(Editor::holding("a\nb\n", "").rows(6), 3);
    }
}
