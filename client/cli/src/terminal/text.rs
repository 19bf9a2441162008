//! Makes untrusted text safe to show: text of a model, a tool or another caller must not control the terminal or look
//! different from its content.

use std::{iter::Peekable, str::Chars};

use textwrap::{Options, WordSeparator, WordSplitter, WrapAlgorithm};

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

use crate::terminal::style::is_unsafe;

const TAB: &str = "    ";
/// Marks a cut in a text.
const CUT: &str = "…";

/// Removes escape sequences and unsafe characters, and replaces tabs by spaces.
pub(crate) fn sanitize(text: &str) -> String {
    let mut tamed = String::with_capacity(text.len());
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\x1b' => skip_escape(&mut chars),
            '\u{9b}' => skip_control_sequence(&mut chars),
            '\u{90}' | '\u{98}' | '\u{9d}'..='\u{9f}' => skip_string(&mut chars),
            '\t' => tamed.push_str(TAB),
            c if is_unsafe(c) => {}
            c => tamed.push(c),
        }
    }
    tamed
}

/// Spells unsafe characters as `\u{…}`, so that nothing is hidden. For text that a human approves.
pub(crate) fn escape_hidden(text: &str) -> String {
    let mut spelt = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\t' => spelt.push_str(TAB),
            '\u{200c}' | '\u{200d}' => spelt.extend(c.escape_unicode()),
            c if is_unsafe(c) => spelt.extend(c.escape_unicode()),
            c => spelt.push(c),
        }
    }
    spelt
}

/// Puts each member of a JSON object on its own line. The text is not parsed, so repeated members, large numbers, escapes
/// and invalid JSON stay as they are.
pub(crate) fn members(json: &str) -> String {
    let mut broken = String::with_capacity(json.len() + 16);
    let mut chars = json.trim().chars().peekable();
    let (mut depth, mut in_string) = (0usize, false);
    while let Some(c) = chars.next() {
        broken.push(c);
        match c {
            '\\' if in_string => broken.extend(chars.next()),
            '"' => in_string = !in_string,
            _ if in_string => {}
            '{' | '[' => depth += 1,
            '}' | ']' => depth = depth.saturating_sub(1),
            ':' if depth == 1 => broken.push(' '),
            _ => {}
        }
        let next = chars.peek().copied();
        if !in_string && depth == 1 && matches!(c, ',' | '{') && next.is_some_and(|next| next != '}') {
            broken.push_str("\n  ");
            while chars.next_if(|c| c.is_ascii_whitespace()).is_some() {}
        } else if !in_string && depth == 1 && next == Some('}') && c != '{' {
            broken.push('\n');
        }
    }
    broken
}

/// Cuts a text to `bytes_max` bytes. `…` marks a cut.
pub(crate) fn truncate(text: &str, bytes_max: usize) -> String {
    if text.len() <= bytes_max {
        return text.to_owned();
    }
    format!("{}{CUT}", &text[..text.floor_char_boundary(bytes_max)])
}

/// Cuts a growing text to its last `bytes_max` bytes.
pub(crate) fn keep_end(text: &mut String, bytes_max: usize) {
    if text.len() > bytes_max {
        let from = text.ceil_char_boundary(text.len() - bytes_max);
        text.drain(..from);
    }
}

/// Wraps a text into lines of at most `width` columns. There is always one line. A date or an id does not break at its hyphens.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let options = Options::new(width.max(1))
        .word_separator(WordSeparator::AsciiSpace)
        .word_splitter(WordSplitter::NoHyphenation)
        .wrap_algorithm(WrapAlgorithm::FirstFit)
        .break_words(true);
    textwrap::wrap(text, options).into_iter().map(std::borrow::Cow::into_owned).collect()
}

/// The beginning of a text in so many columns. `…` marks a cut.
pub(crate) fn cut(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut used = 1;
    let fits = |c: &char| {
        used += c.width().unwrap_or_default();
        used <= columns
    };
    let kept: String = text.chars().take_while(fits).collect();
    if columns == 0 { kept } else { format!("{}…", kept.trim_end()) }
}

/// Skips the rest of an escape sequence, after ESC.
fn skip_escape(chars: &mut Peekable<Chars<'_>>) {
    match chars.peek() {
        Some('[') => {
            chars.next();
            skip_control_sequence(chars);
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            chars.next();
            skip_string(chars);
        }
        // An intermediate character is followed by a final one.
        Some(' '..='/') => {
            chars.next();
            chars.next_if(|c| c.is_ascii_graphic());
        }
        Some('0'..='~') => {
            chars.next();
        }
        _ => {}
    }
}

/// Skips the parameters and the final character of a control sequence. An unfinished one ends before the next line.
fn skip_control_sequence(chars: &mut Peekable<Chars<'_>>) {
    while chars.next_if(|c| matches!(c, ' '..='?')).is_some() {}
    chars.next_if(|c| matches!(c, '@'..='~'));
}

/// Skips a control string, up to its terminator or the end of the line.
fn skip_string(chars: &mut Peekable<Chars<'_>>) {
    while let Some(c) = chars.next_if(|c| *c != '\n') {
        match c {
            '\x07' | '\u{9c}' => return,
            '\x1b' => {
                chars.next_if(|c| *c == '\\');
                return;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_unsafe_characters_are_removed() {
        let cases = [
            ("plain\ntext", "plain\ntext"),
            ("\x1b[31mred\x1b[0m", "red"),
            ("\x1b]0;title\x07after", "after"),
            ("\x1b]52;c;c2VjcmV0\x1b\\after", "after"),
            ("\x1bPq#0\x1b\\after", "after"),
            ("\x1b]unfinished\nnext", "\nnext"),
            ("\x1b(Bafter", "after"),
            ("\x1bcafter", "after"),
            ("\u{9b}2Jafter\u{9d}0;x\u{9c}!", "after!"),
            ("a\rb\x08\x7f", "ab"),
            ("a\tb", "a    b"),
            ("\u{202e}evil\u{202c}", "evil"),
            ("\x1b", ""),
            ("\x1b[", ""),
            ("\x1b[3", ""),
            ("\x1b[3\nx", "\nx"),
        ];
        for (given, expected) in cases {
            assert_eq!(sanitize(given), expected, "{given:?}");
        }
    }

    #[test]
    fn text_to_approve_hides_nothing() {
        let cases = [
            ("{\"to\":\"a@b\"}", "{\"to\":\"a@b\"}"),
            ("a\u{202e}b", "a\\u{202e}b"),
            ("a\u{200b}\u{200d}b", "a\\u{200b}\\u{200d}b"),
            ("a\x1b[2Jb", "a\\u{1b}[2Jb"),
        ];
        for (given, expected) in cases {
            assert_eq!(escape_hidden(given), expected, "{given:?}");
        }
    }

    #[test]
    fn members_have_lines_of_their_own() {
        let cases = [
            ("{}", "{}"),
            ("", ""),
            ("no json", "no json"),
            (r#"{"a":1}"#, "{\n  \"a\": 1\n}"),
            (
                r#"{"a":{"b":[1,2],"c":3},  "d":"x,}"}"#,
                "{\n  \"a\": {\"b\":[1,2],\"c\":3},\n  \"d\": \"x,}\"\n}",
            ),
            (r#"{"a":1,"a":12345678901234567890123}"#, "{\n  \"a\": 1,\n  \"a\": 12345678901234567890123\n}"),
            (r#"{"a":"\",{"}"#, "{\n  \"a\": \"\\\",{\"\n}"),
        ];
        for (given, expected) in cases {
            assert_eq!(members(given), expected, "{given}");
        }
    }

    #[test]
    fn lines_have_the_width_at_most() {
        let cases: [(&str, usize, &[&str]); 8] = [
            ("", 5, &[""]),
            ("one two", 20, &["one two"]),
            ("one two three", 7, &["one two", "three"]),
            ("abcdefgh", 3, &["abc", "def", "gh"]),
            ("天气很好", 5, &["天气", "很好"]),
            ("a\n\nb", 5, &["a", "", "b"]),
            ("x", 0, &["x"]),
            ("at 2026-11-25 soon", 10, &["at", "2026-11-25", "soon"]),
        ];
        for (given, width, expected) in cases {
            assert_eq!(wrap(given, width), expected, "{given:?}");
        }
    }

    #[test]
    fn cuts_fall_between_characters() {
        assert_eq!(truncate("äöü", 3), "ä…");
        assert_eq!(truncate("äöü", 6), "äöü");
        let mut text = "äöü".to_owned();
        keep_end(&mut text, 3);
        assert_eq!(text, "ü");
    }
}
