//! Glob patterns: `*` matches any characters, `?` one character. A `\` before `*`, `?` or `\` makes it literal.
//!
//! The pieces between the stars are found one after the other, each at its first match, without backtracking. A piece without
//! `?` takes a time that is linear in the text. One with `?` is looked for at all places at once, with a bit for each character
//! of the piece: 64 of them cost one step per character of the text. See Baeza-Yates and Gonnet, "A new approach to text
//! searching", 1992.

use std::collections::HashMap;

use crate::limits::POLICY_WILD_PIECE_MAX;

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

/// True if no piece with `?` is so long that a search for it takes long. Those at the ends of a pattern have one place alone.
pub(super) fn is_quick(pattern: &str) -> bool {
    let pieces = pieces(pattern);
    let middle = pieces.get(1..pieces.len() - 1).unwrap_or_default();
    middle.iter().all(|piece| piece.len() <= POLICY_WILD_PIECE_MAX || !piece.contains(&Unit::Any))
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
        None => Search::of(piece).first_in(text),
    }
}

/// A piece that is looked for at every place of a text at once.
struct Search {
    /// For each ASCII character, the bits of the places in the piece that take it.
    ascii: Vec<Vec<u64>>,
    /// The same for the other characters of the piece.
    others: HashMap<char, Vec<u64>>,
    /// The bits of the places that take any character.
    any: Vec<u64>,
    /// Word and bit of the last place.
    last: (usize, u64),
}

impl Search {
    /// The piece is not empty.
    fn of(piece: &[Unit]) -> Self {
        let mut any = vec![0; piece.len().div_ceil(64)];
        for (at, _) in piece.iter().enumerate().filter(|(_, unit)| **unit == Unit::Any) {
            any[at / 64] |= 1 << (at % 64);
        }
        let (mut ascii, mut others) = (vec![any.clone(); 128], HashMap::<char, Vec<u64>>::new());
        for (at, unit) in piece.iter().enumerate() {
            if let Unit::This(character) = unit {
                let places = match ascii.get_mut(*character as usize) {
                    Some(places) => places,
                    None => others.entry(*character).or_insert_with(|| any.clone()),
                };
                places[at / 64] |= 1 << (at % 64);
            }
        }
        let last = piece.len() - 1;
        Self { ascii, others, any, last: (last / 64, 1 << (last % 64)) }
    }

    /// The rest of the text after the first match.
    fn first_in<'t>(&self, text: &'t str) -> Option<&'t str> {
        let mut fitting = vec![0_u64; self.any.len()];
        for (at, character) in text.char_indices() {
            let known = self.ascii.get(character as usize).or_else(|| self.others.get(&character));
            let places = known.unwrap_or(&self.any);
            let mut carried = 1;
            for (word, places) in fitting.iter_mut().zip(places) {
                let next = *word >> 63;
                *word = ((*word << 1) | carried) & places;
                carried = next;
            }
            let (word, bit) = self.last;
            if fitting[word] & bit != 0 {
                return Some(&text[at + character.len_utf8()..]);
            }
        }
        None
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
        check(&format!("*{}b*", "?".repeat(4_093)), &[], &[&text]);
    }

    #[test]
    fn a_piece_is_found_wherever_it_is_first() {
        let long = "a?".repeat(50);
        let text = format!("b{}c", "ax".repeat(50));
        check(&format!("*{long}*c"), &[&text, &format!("aa{text}")], &[&text[..text.len() - 3]]);
        check("*a?c*a?c*", &["abcabc", "aabcxaacc"], &["abcbc", "abc"]);
        check("*ä?*x", &["öäßx", "ää-x"], &["äx", "ä"]);
        for piece_length in 1..=130 {
            let piece = "?".repeat(piece_length);
            let text = "y".repeat(piece_length);
            check(&format!("*{piece}*"), &[&text, &format!("{text}z")], &[&text[1..]]);
        }
    }

    #[test]
    fn long_pieces_with_question_marks_are_not_quick() {
        let piece = |length: usize| "?".repeat(length);
        assert!(is_quick(&format!("*{}*", piece(64))) && !is_quick(&format!("*{}*", piece(65))));
        assert!(is_quick(&format!("{}*{}", piece(4_000), piece(4_000))) && is_quick(&piece(4_000)));
        assert!(is_quick(&format!("*{}*", "a".repeat(4_000))));
    }
}
