//! The words of SQLite's search index. Each word of a message or a query has the number of its tenant in front.
//!
//! FTS5 knows no tenants. The number makes the same word of two tenants two words. So a search reads the documents of its own
//! tenant alone: neither its hits nor its time depend on the words of others.
//!
//! FTS5 does not tell a search how often a document has a word. So a word that a message repeats is indexed a second time, with
//! another mark in front.

use std::ops::Range;

use agentloop_core::id::TenantId;
use sha2::{Digest as _, Sha256};

use crate::store::support::search_terms::{self, Terms};

/// Comes before the number in a word of a message.
const SAID: char = '1';
/// Comes before the number in a word that a message has more than once.
const REPEATED: char = '2';
/// Numbers are below this. All are written with 18 digits, so that no number goes on in a word.
const NUMBERS: u64 = 1_000_000_000_000_000_000;

/// The words of one tenant.
pub(in crate::store::sqlite) struct TenantWords {
    /// A number of digits alone: letters would count in the rules by which FTS5 takes endings off. It follows from the
    /// tenant's id, so nothing has to be stored for it. If two tenants had the same one, which is as good as impossible, their
    /// statistics would be mixed, but not their hits.
    number: String,
}

/// The expressions by which FTS5 finds a term of a query.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::store::sqlite) struct TermExpressions {
    /// Matches the documents that have the term.
    pub(in crate::store::sqlite) said: String,
    /// Matches the documents that have it more than once.
    pub(in crate::store::sqlite) repeated: String,
}

impl TenantWords {
    /// The words of this tenant.
    pub(in crate::store::sqlite) fn of(tenant: &TenantId) -> Self {
        let digest: [u8; 32] = Sha256::digest(tenant.as_str()).into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        let number = u64::from_be_bytes([a, b, c, d, e, f, g, h]) % NUMBERS;
        Self { number: format!("{number:018}") }
    }

    /// The words of a text that are indexed, separated by spaces. Empty if there are none.
    pub(in crate::store::sqlite) fn indexed(&self, text: &str) -> String {
        let Some(words) = search_terms::indexed(text) else { return String::new() };
        let count = words.split(' ').count();
        let mut all = String::with_capacity(words.len() + count * (self.number.len() + 1));
        let mut terms = Occurrences::with_capacity(words.len(), count);
        let mut before = None;
        for word in words.split(' ') {
            self.push(&mut all, SAID, word);
            if search_terms::is_dense(word) {
                if let Some(before) = before {
                    terms.add(&[before, word]);
                }
                before = Some(word);
            } else {
                before = None;
            }
            terms.add(&[word]);
        }
        for term in terms.repeated() {
            self.push(&mut all, REPEATED, term);
        }
        all
    }

    /// The expressions of each term of a query. Terms are letters, digits and single spaces, and each is quoted, so that
    /// nothing in them works as an operator.
    pub(in crate::store::sqlite) fn expressions(&self, terms: &Terms) -> Vec<TermExpressions> {
        let expressions = terms.all().iter().map(|term| {
            let (mut said, mut repeated) = (String::new(), String::new());
            // A pair of characters is two words in the order of the text, and one word among the repeated ones.
            term.split(' ').for_each(|part| self.push(&mut said, SAID, part));
            self.push(&mut repeated, REPEATED, &term.replace(' ', ""));
            TermExpressions { said: format!("\"{said}\""), repeated: format!("\"{repeated}\"") }
        });
        expressions.collect()
    }

    fn push(&self, all: &mut String, kind: char, word: &str) {
        if !all.is_empty() {
            all.push(' ');
        }
        all.push(kind);
        all.push_str(&self.number);
        all.push_str(word);
    }
}

/// The terms of a text in lower case, as often as they occur.
struct Occurrences {
    /// All terms, one after the other.
    text: String,
    /// The place of each term in `text`.
    places: Vec<Range<usize>>,
}

impl Occurrences {
    fn with_capacity(bytes: usize, terms: usize) -> Self {
        Self { text: String::with_capacity(bytes), places: Vec::with_capacity(terms) }
    }

    /// Adds a term that consists of these parts.
    fn add(&mut self, parts: &[&str]) {
        let begin = self.text.len();
        for part in parts {
            if part.is_ascii() {
                self.text.extend(part.bytes().map(|byte| char::from(byte.to_ascii_lowercase())));
            } else {
                self.text.push_str(&part.to_lowercase());
            }
        }
        self.places.push(begin..self.text.len());
    }

    /// The terms that occur more than once, each once.
    fn repeated(&mut self) -> impl Iterator<Item = &str> {
        let Self { text, places } = self;
        places.sort_unstable_by(|a, b| text[a.clone()].cmp(&text[b.clone()]));
        let same = places.chunk_by(|a, b| text[a.clone()] == text[b.clone()]);
        same.filter(|places| places.len() > 1).map(|places| &text[places[0].clone()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> TenantWords {
        TenantWords { number: "#".to_owned() }
    }

    #[test]
    fn words_are_behind_the_number_of_their_tenant_and_repeated_ones_are_there_once_more() {
        for (text, expected) in [
            ("To Rome, to Köln!", "1#To 1#Rome 1#to 1#Köln 2#to"),
            ("go go go", "1#go 1#go 1#go 2#go"),
            ("去北京, 北京 by 北", "1#去 1#北 1#京 1#北 1#京 1#by 1#北 2#京 2#北 2#北京"),
            ("…", ""),
        ] {
            assert_eq!(words().indexed(text), expected, "{text}");
        }
    }

    #[test]
    fn a_query_asks_for_both_words_of_a_term() {
        let expressions = |query| {
            let all = words().expressions(&Terms::of(query).unwrap()).into_iter();
            all.map(|term| format!("{} {}", term.said, term.repeated)).collect::<Vec<_>>()
        };
        assert_eq!(
            expressions("Rome \"OR\" -x"),
            ["\"1#rome\" \"2#rome\"", "\"1#or\" \"2#or\"", "\"1#x\" \"2#x\""]
        );
        assert_eq!(expressions("北京大"), ["\"1#北 1#京\" \"2#北京\"", "\"1#京 1#大\" \"2#京大\""]);
    }

    #[test]
    fn each_tenant_has_its_own_number_of_eighteen_digits() {
        let number = |id: &str| TenantWords::of(&TenantId::parse(id).unwrap()).number;
        let all: Vec<String> = ["local", "a", "b"].map(number).into();
        for (at, one) in all.iter().enumerate() {
            assert!(one.len() == 18 && one.bytes().all(|digit| digit.is_ascii_digit()), "{one}");
            assert!(!all[..at].contains(one), "{one}");
        }
        // An index on disk has the numbers in it, so a change of them needs another version of the index.
        assert_eq!(number("local"), "720048942872260880");
    }
}
