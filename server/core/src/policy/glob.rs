//! Glob patterns: `*` matches any characters, `?` one character. A `\` before `*`, `?` or `\` makes it literal.
//!
//! The pieces between the stars are found one after the other, each at its first match. No backtracking is needed, so the
//! time is at most the length of the text times that of the longest piece.

/// A piece of a pattern that matches exactly one character.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Any,
    This(char),
}

/// True if the pattern matches the whole text.
pub fn matches(pattern: &str, text: &str) -> bool {
    let pieces = pieces(pattern);
    let [first, middle @ .., last] = pieces.as_slice() else {
        return pieces.first().is_some_and(|only| after(only, text) == Some(""));
    };
    let Some(mut rest) = after(first, text) else { return false };
    for piece in middle {
        match after_first(piece, rest) {
            Some(behind) => rest = behind,
            None => return false,
        }
    }
    ends_with(last, rest)
}

/// The pattern that matches only this text.
pub(super) fn literal(text: &str) -> String {
    let mut pattern = String::with_capacity(text.len());
    for character in text.chars() {
        if matches!(character, '*' | '?' | '\\') {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}

/// True if the pattern matches one text only.
pub(super) fn is_literal(pattern: &str) -> bool {
    match pieces(pattern).as_slice() {
        [only] => only.iter().all(|unit| matches!(unit, Unit::This(_))),
        _ => false,
    }
}

/// True if the pattern matches every text.
pub(super) fn is_any(pattern: &str) -> bool {
    !pattern.is_empty() && pattern.bytes().all(|byte| byte == b'*')
}

/// The pieces between the stars: always one more than there are stars.
fn pieces(pattern: &str) -> Vec<Vec<Unit>> {
    let mut pieces = vec![Vec::new()];
    let mut characters = pattern.chars().peekable();
    while let Some(character) = characters.next() {
        let unit = match character {
            '*' => {
                pieces.push(Vec::new());
                continue;
            }
            '?' => Unit::Any,
            '\\' => Unit::This(characters.next_if(|next| matches!(next, '*' | '?' | '\\')).unwrap_or('\\')),
            other => Unit::This(other),
        };
        pieces.last_mut().expect("there is always a piece").push(unit);
    }
    pieces
}

/// The rest of the text after the piece, if the text begins with it.
fn after<'t>(piece: &[Unit], text: &'t str) -> Option<&'t str> {
    let mut characters = text.chars();
    let fits = piece.iter().all(|unit| match (characters.next(), unit) {
        (Some(_), Unit::Any) => true,
        (Some(found), Unit::This(wanted)) => found == *wanted,
        (None, _) => false,
    });
    fits.then_some(characters.as_str())
}

/// The rest of the text after the first match of the piece.
fn after_first<'t>(piece: &[Unit], text: &'t str) -> Option<&'t str> {
    let plain: Option<String> = piece
        .iter()
        .map(|unit| match unit {
            Unit::This(character) => Some(*character),
            Unit::Any => None,
        })
        .collect();
    match plain {
        // The standard library's search takes linear time for every text.
        Some(plain) => text.split_once(plain.as_str()).map(|(_, behind)| behind),
        None => text.char_indices().find_map(|(at, _)| after(piece, &text[at..])),
    }
}

fn ends_with(piece: &[Unit], text: &str) -> bool {
    match piece.len().checked_sub(1) {
        None => true,
        Some(before_last) => text
            .char_indices()
            .nth_back(before_last)
            .is_some_and(|(at, _)| after(piece, &text[at..]) == Some("")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        for text in yes {
            assert!(matches(pattern, text), "{pattern:?} matches {text:?}");
        }
        for text in no {
            assert!(!matches(pattern, text), "{pattern:?} does not match {text:?}");
        }
    }

    #[test]
    fn patterns_match_whole_texts() {
        check("", &[""], &["a"]);
        check("*", &["", "a", "ä\nb"], &[]);
        check("?", &["a", "ä", "🌤"], &["", "ab"]);
        check("rm", &["rm"], &["rm ", "farm", "RM"]);
        check("rm *", &["rm ", "rm -rf /"], &["rm", "farm x"]);
        check("*.rs", &[".rs", "a.rs", "a.rs.rs"], &["a.rsx", "rs"]);
        check("a*b*c", &["abc", "axbxc", "abbc", "a c b c"], &["acb", "ab", "abcd"]);
        check("a*a", &["aa", "aba"], &["a", "ab"]);
        check("*a?c*", &["abc", "xxabcx", "aacc"], &["ac", "ab"]);
        check("a??", &["abc", "aäö"], &["ab", "abcd"]);
        check("*ab?", &["ababa", "xabc"], &["ab", "abcd"]);
    }

    #[test]
    fn a_backslash_makes_a_character_literal() {
        check(r"a\*", &["a*"], &["ab", r"a\b", r"a\*"]);
        check(r"\?", &["?"], &["a"]);
        check(r"\\*", &[r"\", r"\a"], &["a"]);
        check(r"\n", &[r"\n"], &["n", "\n"]);
        check("\\", &["\\"], &[""]);
    }

    #[test]
    fn a_literal_matches_itself_alone() {
        for text in ["", "rm *", "a?b", r"C:\*\?", r#"{"a":"\\*"}"#, r"\\\"] {
            assert!(matches(&literal(text), text), "{text:?}");
            assert!(!matches(&literal(text), &format!("{text}x")), "{text:?}");
        }
        assert!(!matches(&literal("rm *"), "rm -rf"));
    }

    #[test]
    fn no_text_takes_long() {
        let text = "a".repeat(1 << 20);
        check(&"*a".repeat(400), &[&text], &[]);
        check(&format!("{}b", "*a".repeat(400)), &[], &[&text]);
        check(&format!("*{}b*", "a?".repeat(4)), &[], &[&text]);
    }
}
