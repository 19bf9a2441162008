//! Colours, and removal of unsafe characters, for output on a terminal.

use std::{borrow::Cow, io::IsTerminal};

use crate::environment;

/// The style of text on one output stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    terminal: bool,
    colours: bool,
}

impl Style {
    /// The style of a stream: plain unless it is a terminal. `NO_COLOR` turns colours off.
    pub(crate) fn of(stream: &impl IsTerminal) -> Style {
        let wanted = environment::variable_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal = stream.is_terminal();
        Style { terminal, colours: terminal && wanted }
    }

    /// No colours, and unsafe characters are kept: for text that is sanitized later.
    pub(crate) fn plain() -> Style {
        Style { terminal: false, colours: false }
    }

    /// The style of a terminal without colours, whose output a test compares.
    #[cfg(test)]
    pub(crate) fn of_terminal() -> Style {
        Style { terminal: true, colours: false }
    }

    /// True for a terminal, on which a line can be written over.
    pub(crate) fn is_terminal(self) -> bool {
        self.terminal
    }

    /// True if text may be coloured.
    pub(crate) fn has_colours(self) -> bool {
        self.colours
    }

    pub(crate) fn dim(self, text: &str) -> String {
        self.with("2", text)
    }

    pub(crate) fn bold(self, text: &str) -> String {
        self.with("1", text)
    }

    pub(crate) fn red(self, text: &str) -> String {
        self.with("31", text)
    }

    pub(crate) fn yellow(self, text: &str) -> String {
        self.with("33", text)
    }

    fn with(self, code: &str, text: &str) -> String {
        if self.colours { format!("\x1b[{code}m{text}\x1b[0m") } else { text.to_owned() }
    }

    /// Removes unsafe characters from text of a model or a tool, so that it cannot control the terminal.
    pub(crate) fn strip_unsafe(self, text: &str) -> Cow<'_, str> {
        if self.terminal { strip_unsafe(text) } else { Cow::Borrowed(text) }
    }
}

fn strip_unsafe(text: &str) -> Cow<'_, str> {
    if text.contains(is_unsafe) { Cow::Owned(text.replace(is_unsafe, "")) } else { Cow::Borrowed(text) }
}

/// True for a character that moves the cursor, changes the order of its neighbours, or is invisible.
pub(crate) fn is_unsafe(c: char) -> bool {
    let hides = matches!(c,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    hides || (c.is_control() && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsafe_characters_are_removed() {
        assert_eq!(strip_unsafe("a\x1b[2Jb\r\tc\n"), "a[2Jb\tc\n");
        assert_eq!(strip_unsafe("to \u{202e}moc.live\u{202c}\u{200b}\u{e0041}"), "to moc.live");
        assert_eq!(strip_unsafe("grüße 👩\u{200d}🚀"), "grüße 👩\u{200d}🚀");
        assert_eq!(Style::plain().strip_unsafe("a\x1b[2J"), "a\x1b[2J");
    }

    #[test]
    fn plain_text_has_no_colours() {
        assert_eq!(Style::plain().red("x"), "x");
    }
}
