//! Changes of files, as `diff -u` and git write them.

use ratatui::style::Style;

use crate::chat::styles::{ADDED, BOLD, DIM, REMOVED};

/// Lines that are looked at to tell whether a text is a diff.
const LOOKED_AT: usize = 64;

/// True for a text with a change in the unified format.
pub(super) fn is_diff(text: &str) -> bool {
    let mut lines = text.lines().take(LOOKED_AT).peekable();
    while let Some(line) = lines.next() {
        let next = lines.peek().copied().unwrap_or_default();
        if line.starts_with("diff --git ") || (line.starts_with("--- ") && next.starts_with("+++ ")) {
            return true;
        }
        if line.starts_with("@@ -") && line.matches("@@").count() == 2 {
            return true;
        }
    }
    false
}

/// The style of a line of a diff.
pub(super) fn style(line: &str) -> Style {
    match line.as_bytes() {
        [b'+', b'+', b'+', b' ', ..] | [b'-', b'-', b'-', b' ', ..] => BOLD,
        [b'+', ..] => ADDED,
        [b'-', ..] => REMOVED,
        [b'@', b'@', ..] => DIM,
        _ if line.starts_with("diff ") || line.starts_with("index ") => DIM,
        _ => Style::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGE: &str = "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n one\n-two\n+zwei\n";

    #[test]
    fn a_diff_is_told_from_other_texts() {
        assert!(is_diff(CHANGE));
        assert!(is_diff(&format!("Here it is:\n{CHANGE}")));
        assert!(!is_diff("- one\n- two\n+ three\n--- \nrest"));
        assert!(!is_diff(""));
    }

    #[test]
    fn lines_have_the_colour_of_their_change() {
        let styles: Vec<Style> = CHANGE.lines().map(style).collect();
        assert_eq!(styles, [BOLD, BOLD, DIM, Style::new(), REMOVED, ADDED]);
    }
}
