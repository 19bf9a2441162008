//! The text processing of full-text search: the words of a message that are indexed, and the terms of a query. Nothing here is
//! SQL.
//!
//! A word is a sequence of letters and digits. Scripts that are written without spaces are indexed character by character
//! and searched by pairs, because the text does not show where a word ends.

/// Bytes of one message that are indexed.
const INDEXED_BYTES_MAX: usize = 64 * 1024;
/// Bytes of a query that are read.
const QUERY_BYTES_MAX: usize = 4 * 1024;
/// Distinct terms of one query. Further ones are ignored.
const TERMS_MAX: usize = 32;
/// Longest word that is indexed, in bytes. Longer ones, such as encoded data, are not what people search for.
const WORD_BYTES_MAX: usize = 64;
/// Length of a snippet in characters, and how many of them come before the word that was found.
const SNIPPET_CHARS_MAX: usize = 240;
const SNIPPET_CHARS_BEFORE: usize = 60;
/// Leading characters that two forms of a word have in common, at least.
const STEM_CHARS_MIN: usize = 4;

/// The words of a text that are indexed, separated by spaces. `None` if there are none.
pub(in crate::store) fn indexed(text: &str) -> Option<String> {
    let mut all = String::new();
    for (_, word) in words(&text[..text.floor_char_boundary(INDEXED_BYTES_MAX)]) {
        if is_dense(word) {
            word.chars().for_each(|c| push(&mut all, c.encode_utf8(&mut [0; 4])));
        } else if word.len() <= WORD_BYTES_MAX {
            push(&mut all, word);
        }
    }
    (!all.is_empty()).then_some(all)
}

fn push(all: &mut String, word: &str) {
    if !all.is_empty() {
        all.push(' ');
    }
    all.push_str(word);
}

/// The terms of a query, any of which may match.
pub(in crate::store) struct Terms(Vec<String>);

impl Terms {
    /// The distinct terms of a free text. `None` if it has none.
    pub(in crate::store) fn of(query: &str) -> Option<Self> {
        let mut terms: Vec<String> = Vec::new();
        for (_, word) in words(&query[..query.floor_char_boundary(QUERY_BYTES_MAX)]) {
            for term in terms_of(word) {
                if terms.len() < TERMS_MAX && !terms.contains(&term) {
                    terms.push(term);
                }
            }
        }
        (!terms.is_empty()).then_some(Self(terms))
    }

    /// The terms: words in lower case, and pairs of characters with a space between them.
    pub(in crate::store) fn all(&self) -> &[String] {
        &self.0
    }

    /// The part of a text around the first term in it, or its beginning if no term is found.
    pub(in crate::store) fn snippet(&self, text: &str) -> String {
        let found = words(text).find_map(|(at, word)| self.within(word).map(|offset| at + offset));
        let found = found.unwrap_or(0);
        let begin = text[..found].char_indices().rev().take(SNIPPET_CHARS_BEFORE).last();
        let begin = begin.map_or(found, |(at, _)| at);
        let part: String = text[begin..].chars().take(SNIPPET_CHARS_MAX).collect();
        let cut = text.len() > begin + part.len();
        let plain = part.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{}{plain}{}", if begin > 0 { "…" } else { "" }, if cut { "…" } else { "" })
    }

    /// The byte offset at which the first term is found in a word.
    fn within(&self, word: &str) -> Option<usize> {
        if is_dense(word) {
            let plain = |term: &String| term.replace(' ', "");
            return self.0.iter().filter_map(|term| word.find(&plain(term))).min();
        }
        let word = word.to_lowercase();
        self.0.iter().any(|term| is_form(&word, term)).then_some(0)
    }
}

/// The terms of a word: the word itself, or the pairs of its characters in a script without spaces.
fn terms_of(word: &str) -> Vec<String> {
    if !is_dense(word) {
        return if word.len() <= WORD_BYTES_MAX { vec![word.to_lowercase()] } else { Vec::new() };
    }
    let chars: Vec<char> = word.chars().collect();
    match chars.as_slice() {
        [only] => vec![only.to_string()],
        chars => chars.windows(2).map(|pair| format!("{} {}", pair[0], pair[1])).collect(),
    }
}

fn is_form(word: &str, term: &str) -> bool {
    let common = word.chars().zip(term.chars()).take_while(|(a, b)| a == b).count();
    word == term || common >= STEM_CHARS_MIN.max(term.chars().count().saturating_sub(3))
}

/// Sequences of letters and digits, each in one kind of script, with their byte offsets.
fn words(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut read = 0;
    std::iter::from_fn(move || {
        let begin = read + text[read..].find(char::is_alphanumeric)?;
        let rest = &text[begin..];
        let dense = is_dense(rest);
        let end = rest.find(|c: char| !c.is_alphanumeric() || is_dense_char(c) != dense);
        let word = &rest[..end.unwrap_or(rest.len())];
        read = begin + word.len();
        Some((begin, word))
    })
}

/// True for a word of a script that is written without spaces.
pub(in crate::store) fn is_dense(word: &str) -> bool {
    word.chars().next().is_some_and(is_dense_char)
}

/// True for scripts that are written without spaces: Thai to Khmer, Chinese and Japanese. Also for Korean, where particles
/// are appended to words.
fn is_dense_char(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x9fff | 0xac00..=0xd7af
        | 0xf900..=0xfaff | 0x2_0000..=0x3_ffff)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn terms(query: &str) -> Vec<String> {
        Terms::of(query).map_or_else(Vec::new, |terms| terms.0)
    }

    fn snippet(query: &str, text: &str) -> String {
        Terms::of(query).unwrap().snippet(text)
    }

    #[test]
    fn a_query_is_distinct_words() {
        let queries: [(&str, &[&str]); 6] = [
            ("Rome", &["rome"]),
            ("don't rome Rome", &["don", "t", "rome"]),
            ("\" OR text : * NEAR(a) -b ^c", &["or", "text", "near", "a", "b", "c"]),
            ("a\0b", &["a", "b"]),
            ("北京大学2024", &["北 京", "京 大", "大 学", "2024"]),
            ("我", &["我"]),
        ];
        for (query, expected) in queries {
            assert_eq!(terms(query), expected, "{query:?}");
        }
        for nothing in ["", " ", "\"'*()", "🙂", &"x".repeat(65)] {
            assert_eq!(terms(nothing), [""; 0], "{nothing:?}");
        }
    }

    #[test]
    fn a_query_is_bounded() {
        let many: String = (0..10_000).map(|n| format!("w{n} ")).collect();
        assert_eq!(terms(&many).len(), TERMS_MAX);
        assert_eq!(terms(&format!("{} late", " ".repeat(QUERY_BYTES_MAX))), [""; 0]);
        assert_eq!(terms(&format!("{}ü", " ".repeat(QUERY_BYTES_MAX - 1))), [""; 0]);
    }

    #[test]
    fn what_is_said_is_indexed() {
        assert_eq!(indexed("Hi, Rome!").as_deref(), Some("Hi Rome"));
        assert_eq!(indexed("去北京 by train").as_deref(), Some("去 北 京 by train"));
        assert_eq!(indexed("…"), None);
        let blob = format!("data {} end", "A".repeat(10_000));
        assert_eq!(indexed(&blob).as_deref(), Some("data end"));
        assert!(indexed(&"ab ".repeat(INDEXED_BYTES_MAX)).unwrap().len() <= INDEXED_BYTES_MAX);
    }

    #[test]
    fn a_snippet_is_around_what_was_found() {
        assert_eq!(snippet("rome", "We go to\n Rome."), "We go to Rome.");
        assert_eq!(snippet("remember", "He remembered it."), "He remembered it.");
        assert_eq!(snippet("nothing", "Short."), "Short.");
        let long = format!("{}Rome{}", "before ".repeat(50), " after".repeat(100));
        let part = snippet("rome", &long);
        assert!(part.starts_with('…') && part.ends_with('…') && part.contains("before Rome after"), "{part}");
        assert!(part.chars().count() <= SNIPPET_CHARS_MAX + 2);
        let dense = format!("{}北京大学", "去".repeat(100));
        assert!(snippet("京大", &dense).ends_with("北京大学"));
    }
}
