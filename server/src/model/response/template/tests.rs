use std::fmt::Debug;

use rand::rngs::SmallRng;
use rand::{RngExt as _, SeedableRng as _};

use serde::de::MapAccess;

use super::*;
use crate::model::response::fields::FieldValue;

/// Pieces to insert, both into strings and at other places.
const SNIPPETS: &[&str] = &[
    "",
    "word",
    " Grüße 🙂",
    r"\n",
    r#"\"x\""#,
    r"\\",
    r"\u00e9",
    r"\",
    "\"",
    "\n",
    "}",
    ",",
    ":",
    "null",
    "{}",
    "1",
    r#"","content":"y"#,
    r#""obfuscation":"aB3""#,
    r#","obfuscation":"aB3""#,
    r#"\"obfuscation\":\"a"#,
];

/// Changes each of these single-text events at random, and compares reading by template with reading in full.
pub(in crate::model) fn check<S>(events: &[&'static str])
where
    S: TextEvent<'static> + Debug + PartialEq,
{
    let mut chance = SmallRng::seed_from_u64(11);
    for event in events {
        let padded: &str = format!(r#"{},"obfuscation":"xY9"}}"#, &event[..event.len() - 1]).leak();
        for learnt in [event, padded] {
            let mut template = Template::default();
            assert_eq!(template.read::<S>(learnt).ok(), fields::read(learnt).ok(), "{learnt}");
            let mut read = 0;
            for _ in 0..4_000 {
                let changed: &str = changed(learnt, &mut chance).leak();
                if let Some((kind, text)) = template.matches(changed) {
                    assert_eq!(
                        Some(S::with_text(kind, text)),
                        fields::read(changed).ok(),
                        "{changed}\nafter {learnt}"
                    );
                    read += 1;
                }
            }
            assert!(read > 20, "{read} like {learnt}");
        }
    }
}

/// Replaces a string, or a piece at a random place.
fn changed(event: &str, chance: &mut SmallRng) -> String {
    let snippet = SNIPPETS[chance.random_range(0..SNIPPETS.len())];
    let places: Vec<usize> = event.char_indices().map(|(at, _)| at).collect();
    let marks: Vec<usize> = event.match_indices('"').map(|(at, _)| at + 1).collect();
    let (begin, end) = if chance.random() {
        let mark = chance.random_range(1..marks.len());
        (marks[mark - 1], marks[mark] - 1)
    } else {
        let begin = chance.random_range(0..places.len());
        (places[begin], places[chance.random_range(begin..places.len().min(begin + 4))])
    };
    [&event[..begin], snippet, &event[end..]].concat()
}

/// An event with a text and a number. The number is part of the template.
#[derive(Debug, Default, PartialEq)]
struct Note<'a> {
    text: Cow<'a, str>,
    number: u64,
}

impl<'de> Fields<'de> for Note<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "text" => self.text = value.text()?.unwrap_or_default(),
            "number" => self.number = value.count()?.unwrap_or(0),
            _ => value.skip()?,
        }
        Ok(())
    }
}

impl<'a> TextEvent<'a> for Note<'a> {
    type Kind = u64;

    fn single_text(&self) -> Option<(u64, &'a str)> {
        match self.text {
            Cow::Borrowed(text) if !text.is_empty() => Some((self.number, text)),
            _ => None,
        }
    }

    fn with_text(number: u64, text: Cow<'a, str>) -> Self {
        Note { text, number }
    }
}

/// Checks the result of matching `event` with a template learned from `learnt`.
#[track_caller]
fn read(learnt: &str, event: &str, said: Option<(u64, &str)>) {
    let mut template = Template::default();
    template.read::<Note<'_>>(learnt).unwrap();
    assert_eq!(template.matches(event), said.map(|(number, text)| (number, Cow::Borrowed(text))));
    if let Some(said) = said {
        assert_eq!(fields::read(event).ok(), Some(Note::with_text(said.0, said.1.into())));
    }
}

#[test]
fn only_the_text_may_differ() {
    let learnt = r#"{"number":1,"text":"one"}"#;
    read(learnt, r#"{"number":1,"text":"two"}"#, Some((1, "two")));
    read(learnt, r#"{"number":1,"text":"a \"b\"\n"}"#, Some((1, "a \"b\"\n")));
    read(learnt, r#"{"number":1,"text": "two"}"#, Some((1, "two")));
    read(learnt, r#"{"number":2,"text":"two"}"#, None);
    read(learnt, r#"{"number":1,"text":""}"#, None);
    read(learnt, r#"{"number":1,"text":"a","more":"b"}"#, None);
    read(learnt, r#"{"number":1,"text":null}"#, None);
    read(learnt, r#"{"number":1,"text":two"}"#, None);
    read(learnt, r#"{"number":1,"text":"two\"}"#, None);
    read(learnt, r#"{"number":1,"text":"}"#, None);
    read(learnt, "", None);
}

#[test]
fn a_padding_may_differ_too() {
    let learnt = r#"{"number":1,"text":"one","obfuscation":"Xy9"}"#;
    read(learnt, r#"{"number":1,"text":"two","obfuscation":"a"}"#, Some((1, "two")));
    read(learnt, r#"{"number":1,"text":"two","obfuscation":""}"#, Some((1, "two")));
    read(learnt, r#"{"number":1,"text":"two","obfuscation":"a b"}"#, None);
    read(learnt, r#"{"number":1,"text":"two","obfuscation":"a"b"}"#, None);
    read(learnt, r#"{"number":1,"text":"two","obfuscation":1"}"#, None);
    read(learnt, r#"{"number":1,"text":"two"}"#, None);
    let escaped = r#"{"number":1,"text":"one","obfuscation":"a\"b"}"#;
    read(escaped, r#"{"number":1,"text":"two","obfuscation":"ab"}"#, None);
    read(escaped, r#"{"number":1,"text":"two","obfuscation":"a"b"}"#, None);
    read(escaped, r#"{"number":1,"text":"two","obfuscation":"a\"b"}"#, Some((1, "two")));
}

#[test]
fn what_is_long_is_not_remembered() {
    let long = |text: &str| format!(r#"{{"number":1,"text":"{text}","other":"{}"}}"#, "x".repeat(BYTES_MAX));
    read(&long("one"), &long("two"), None);
    let text = "x".repeat(2 * BYTES_MAX);
    let event = format!(r#"{{"number":1,"text":"{text}"}}"#);
    read(r#"{"number":1,"text":"one"}"#, &event, Some((1, &text)));
}

#[test]
fn the_last_that_was_learnt_from_counts() {
    let mut template = Template::default();
    for event in [r#"{"number":1,"text":"a"}"#, r#"{"text":"b","number":2}"#, r#"{"text":"c","number":2}"#] {
        assert_eq!(template.read::<Note<'_>>(event).ok(), fields::read(event).ok());
    }
    assert_eq!(template.matches(r#"{"text":"d","number":2}"#), Some((2, "d".into())));
    assert_eq!(template.matches(r#"{"number":1,"text":"d"}"#), None);
}
