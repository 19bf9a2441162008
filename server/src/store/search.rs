//! Full-text search: what of a message is indexed, and what a query may ask for. Pure text, no SQL but FTS5's terms.
//!
//! Words are runs of letters and digits. Scripts that are written without spaces are indexed character by character and
//! sought by pairs, since nobody marks where their words end.

use agentloop_core::id::TenantId;
use agentloop_core::id::{EntryNo, RunId, SessionId};
use agentloop_core::message::Role;
use agentloop_core::time::Timestamp;
use async_trait::async_trait;

use super::StoreError;

/// Of one message, what is indexed, in bytes.
const INDEXED_BYTES_MAX: usize = 64 * 1024;
/// Of a query, what is looked at, in bytes.
const QUERY_BYTES_MAX: usize = 4 * 1024;
/// Different terms of one query; more are left out.
const TERMS_MAX: usize = 32;
/// A longer word is none that anybody would seek, such as encoded data, and is not indexed.
const WORD_BYTES_MAX: usize = 64;
/// What is shown of a message around a word that was found, in characters, and how many of them before it.
const SNIPPET_CHARS_MAX: usize = 240;
const SNIPPET_CHARS_BEFORE: usize = 60;
/// A word is taken for a form of another if it begins with this many characters of it.
const STEM_CHARS_MIN: usize = 4;

/// Where to search.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchFilter {
    /// Only in this session.
    pub session: Option<SessionId>,
    /// Not for what this session has, also where others share it.
    pub not_session: Option<SessionId>,
}

/// An entry that was found.
#[derive(Debug, Clone, PartialEq)]
pub struct SearchHit {
    /// Its session; where forks share it, the one that it came from, as long as that is there.
    pub session: SessionId,
    /// Its place.
    pub entry: EntryNo,
    /// The run that added it, which may be deleted where it is shared.
    pub run: RunId,
    /// The time at which it happened.
    pub at: Timestamp,
    /// Who said it: user or assistant.
    pub role: Role,
    /// A part of its text, around what was found.
    pub snippet: String,
    /// How well it fits, higher is better. Comparable within one answer alone.
    pub score: f64,
}

/// The words of a text that are indexed. `None` for none.
pub(super) fn indexed(text: &str) -> Option<String> {
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

/// What a query asks for.
pub(super) struct Terms(Vec<String>);

impl Terms {
    /// The different terms of a free text; `None` where it has none.
    pub(super) fn of(query: &str) -> Option<Self> {
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

    /// For FTS5: any of the terms. Terms are letters, digits and single spaces, and each is quoted, so nothing in them
    /// is an operator.
    pub(super) fn expression(&self) -> String {
        let quoted: Vec<String> = self.0.iter().map(|term| format!("\"{term}\"")).collect();
        quoted.join(" OR ")
    }

    /// A part of a text around the first term that is found in it, or its beginning.
    pub(super) fn snippet(&self, text: &str) -> String {
        let found = words(text).find_map(|(at, word)| self.within(word).map(|offset| at + offset));
        let found = found.unwrap_or(0);
        let begin = text[..found].char_indices().rev().take(SNIPPET_CHARS_BEFORE).last();
        let begin = begin.map_or(found, |(at, _)| at);
        let part: String = text[begin..].chars().take(SNIPPET_CHARS_MAX).collect();
        let cut = text.len() > begin + part.len();
        let plain = part.split_whitespace().collect::<Vec<_>>().join(" ");
        format!("{}{plain}{}", if begin > 0 { "…" } else { "" }, if cut { "…" } else { "" })
    }

    /// Where in a word a term is found.
    fn within(&self, word: &str) -> Option<usize> {
        if is_dense(word) {
            let plain = |term: &String| term.replace(' ', "");
            return self.0.iter().filter_map(|term| word.find(&plain(term))).min();
        }
        let word = word.to_lowercase();
        self.0.iter().any(|term| is_form(&word, term)).then_some(0)
    }
}

/// A word's terms: itself, or the pairs of its characters.
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

/// Runs of letters and digits, each of one kind of script, with where they begin.
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

fn is_dense(word: &str) -> bool {
    word.chars().next().is_some_and(is_dense_char)
}

/// Whether a character is of a script that is written without spaces: Thai to Khmer, Chinese, Japanese, and Korean,
/// whose words grow by what is appended to them.
fn is_dense_char(c: char) -> bool {
    matches!(u32::from(c),
        0x0e00..=0x0eff | 0x1000..=0x109f | 0x1780..=0x17ff | 0x2e80..=0x9fff | 0xac00..=0xd7af
        | 0xf900..=0xfaff | 0x2_0000..=0x3_ffff)
}

/// Full-text search.
#[async_trait]
pub trait SearchStore: Send + Sync + 'static {
    /// Finds what users and models said by words: the entries of user and assistant messages that have any of the words
    /// of a free text, those that fit best first, at most `limit` and at most 100. Nothing in the text is an operator,
    /// and no more than its beginning counts.
    ///
    /// # Errors
    /// [`StoreError::SearchOff`].
    async fn search(
        &self,
        tenant: &TenantId,
        query: &str,
        filter: SearchFilter,
        limit: u32,
    ) -> Result<Vec<SearchHit>, StoreError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expression(query: &str) -> Option<String> {
        Terms::of(query).map(|terms| terms.expression())
    }

    fn snippet(query: &str, text: &str) -> String {
        Terms::of(query).unwrap().snippet(text)
    }

    #[test]
    fn a_query_is_quoted_words() {
        for (query, expected) in [
            ("Rome", "\"rome\""),
            ("don't rome Rome", "\"don\" OR \"t\" OR \"rome\""),
            ("\" OR text : * NEAR(a) -b ^c", "\"or\" OR \"text\" OR \"near\" OR \"a\" OR \"b\" OR \"c\""),
            ("a\0b", "\"a\" OR \"b\""),
            ("北京大学2024", "\"北 京\" OR \"京 大\" OR \"大 学\" OR \"2024\""),
            ("我", "\"我\""),
        ] {
            assert_eq!(expression(query).as_deref(), Some(expected), "{query:?}");
        }
        for nothing in ["", " ", "\"'*()", "🙂", &"x".repeat(65)] {
            assert_eq!(expression(nothing), None, "{nothing:?}");
        }
    }

    #[test]
    fn a_query_is_bounded() {
        let many: String = (0..10_000).map(|n| format!("w{n} ")).collect();
        assert_eq!(Terms::of(&many).unwrap().0.len(), TERMS_MAX);
        let late = format!("{} late", " ".repeat(QUERY_BYTES_MAX));
        assert_eq!(expression(&late), None);
        assert_eq!(expression(&format!("{}ü", " ".repeat(QUERY_BYTES_MAX - 1))), None);
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
