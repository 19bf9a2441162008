//! Words of messages and of queries, as PostgreSQL's search takes them: apart by spaces, without accents.
//!
//! Scripts without spaces are indexed by characters and by pairs of them, so that a query needs no phrases.

use unicode_normalization::UnicodeNormalization as _;
use unicode_normalization::char::is_combining_mark;

use crate::store::support::search_terms::{self, Terms};

/// The words of a text that are indexed, separated by spaces. `None` if there are none.
pub(in crate::store::postgres) fn indexed(text: &str) -> Option<String> {
    let words = search_terms::indexed(text)?;
    let mut all = String::with_capacity(words.len());
    let mut before = None;
    for word in words.split(' ') {
        if search_terms::is_dense(word) {
            push(&mut all, word);
            if let Some(before) = before {
                push(&mut all, before);
                all.push_str(word);
            }
            before = Some(word);
        } else {
            push(&mut all, &plain(word));
            before = None;
        }
    }
    Some(all)
}

fn push(all: &mut String, word: &str) {
    if !all.is_empty() {
        all.push(' ');
    }
    all.push_str(word);
}

/// The query that matches any of the terms, as `to_tsquery` reads it. Terms are letters, digits and single spaces, and each
/// is quoted, so that nothing in them works as an operator. A term of marks alone, such as a vowel sign behind a nukta, has no
/// plain form and is left out: `to_tsquery` refuses an empty word. `None` if no term is left.
pub(in crate::store::postgres) fn query(terms: &Terms) -> Option<String> {
    let form = |term: &String| if search_terms::is_dense(term) { term.replace(' ', "") } else { plain(term) };
    let forms = terms.all().iter().map(form).filter(|form| !form.is_empty());
    let quoted: Vec<_> = forms.map(|form| format!("'{form}'")).collect();
    (!quoted.is_empty()).then(|| quoted.join(" | "))
}

/// A word in lower case and without accents.
fn plain(word: &str) -> String {
    word.nfd().filter(|letter| !is_combining_mark(*letter)).flat_map(char::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_plain_and_scripts_without_spaces_are_pairs() {
        assert_eq!(indexed("Köln, und CAFÉ!").as_deref(), Some("koln und cafe"));
        assert_eq!(indexed("去北京 by train").as_deref(), Some("去 北 去北 京 北京 by train"));
        assert_eq!(indexed("…"), None);
    }

    #[test]
    fn a_query_is_quoted_words() {
        let query = |text| query(&Terms::of(text).unwrap());
        assert_eq!(query("Rome | 'or' !Café").as_deref(), Some("'rome' | 'or' | 'cafe'"));
        assert_eq!(query("北京大").as_deref(), Some("'北京' | '京大'"));
        // A nukta ends a word, and the vowel sign behind it is a word of its own.
        assert_eq!(query("ज\u{93c}\u{940}न").as_deref(), Some("'ज' | 'न'"));
        assert_eq!(query("\u{940}"), None);
    }
}
