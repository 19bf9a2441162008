//! Colours for terminals, and only for terminals.

use std::{borrow::Cow, io::IsTerminal};

/// How text is set apart on one stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Style {
    terminal: bool,
    colours: bool,
}

impl Style {
    /// For a stream: plain unless it is a terminal. `NO_COLOR` takes the colours away.
    pub(crate) fn of(stream: &impl IsTerminal) -> Style {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        let terminal = stream.is_terminal();
        Style { terminal, colours: terminal && wanted }
    }

    /// Neither colours nor protection: for text that goes elsewhere first.
    pub(crate) fn plain() -> Style {
        Style { terminal: false, colours: false }
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

    /// What came from a model or a tool must not steer the terminal: control characters are left out.
    pub(crate) fn harmless(self, text: &str) -> Cow<'_, str> {
        if self.terminal { harmless(text) } else { Cow::Borrowed(text) }
    }
}

fn harmless(text: &str) -> Cow<'_, str> {
    if text.contains(steers) { Cow::Owned(text.replace(steers, "")) } else { Cow::Borrowed(text) }
}

/// Whether a character moves the cursor, changes the order in which its neighbours are shown, or is not seen at all.
pub(crate) fn steers(c: char) -> bool {
    let hides = matches!(c,
        '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}');
    hides || (c.is_control() && c != '\n' && c != '\t')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_left_out() {
        assert_eq!(harmless("a\x1b[2Jb\r\tc\n"), "a[2Jb\tc\n");
        assert_eq!(harmless("to \u{202e}moc.live\u{202c}\u{200b}\u{e0041}"), "to moc.live");
        assert_eq!(harmless("grüße 👩\u{200d}🚀"), "grüße 👩\u{200d}🚀");
        assert_eq!(Style::plain().harmless("a\x1b[2J"), "a\x1b[2J");
    }

    #[test]
    fn plain_text_has_no_colours() {
        assert_eq!(Style::plain().red("x"), "x");
    }
}
