//! JSON objects that arrive as text and are sent as text: checked in one pass, not rebuilt.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// The text of one JSON object without duplicate names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct ObjectText<'a> {
    text: Cow<'a, str>,
    has_type: bool,
    is_empty: bool,
}

/// Reason why a text is not a JSON object.
#[derive(Debug, thiserror::Error)]
pub(in crate::model) enum NotAnObject {
    #[error("is not JSON: {0}")]
    NotJson(#[from] serde_json::Error),
    #[error("is not a JSON object")]
    Other,
}

impl<'a> ObjectText<'a> {
    /// Checks a text. It stays as it is, unless an object in it has a duplicate name, which some parsers
    /// refuse: then it is written again with the last value of each name.
    ///
    /// # Errors
    /// If it is not JSON, or not an object.
    pub(in crate::model) fn read(text: &'a str) -> Result<Self, NotAnObject> {
        let summary: ValueSummary = serde_json::from_str(text)?;
        let ValueKind::Object { has_type, is_empty } = summary.kind else { return Err(NotAnObject::Other) };
        let text = if summary.has_duplicates {
            Cow::Owned(serde_json::from_str::<Value>(text)?.to_string())
        } else {
            Cow::Borrowed(text.trim())
        };
        Ok(Self { text, has_type, is_empty })
    }

    /// Returns the checked text.
    pub(in crate::model) fn into_text(self) -> Cow<'a, str> {
        self.text
    }

    /// Returns the text as a schema, with `"type": "object"` added if it has no `type`.
    pub(in crate::model) fn into_typed(self) -> Cow<'a, str> {
        if self.has_type {
            return self.text;
        }
        let comma = if self.is_empty { "" } else { "," };
        Cow::Owned(format!("{{\"type\":\"object\"{comma}{}", &self.text[1..]))
    }
}

/// True if the text is one JSON object. Duplicate names are allowed.
pub(in crate::model) fn is_object(text: &str) -> bool {
    serde_json::from_str::<ValueSummary>(text)
        .is_ok_and(|summary| matches!(summary.kind, ValueKind::Object { .. }))
}

/// Facts about a JSON value. Deserialising it accepts exactly the texts that deserialise as a [`Value`].
#[derive(Debug, Clone, Copy)]
struct ValueSummary {
    kind: ValueKind,
    /// True if any object within the value has a duplicate name.
    has_duplicates: bool,
}

#[derive(Debug, Clone, Copy)]
enum ValueKind {
    Object { has_type: bool, is_empty: bool },
    Other,
}

const OTHER_VALUE: ValueSummary = ValueSummary { kind: ValueKind::Other, has_duplicates: false };

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for ValueSummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SummaryVisitor)
    }
}

struct SummaryVisitor;

impl<'de> Visitor<'de> for SummaryVisitor {
    type Value = ValueSummary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _value: bool) -> Result<ValueSummary, E> {
        Ok(OTHER_VALUE)
    }

    fn visit_i64<E>(self, _value: i64) -> Result<ValueSummary, E> {
        Ok(OTHER_VALUE)
    }

    fn visit_u64<E>(self, _value: u64) -> Result<ValueSummary, E> {
        Ok(OTHER_VALUE)
    }

    fn visit_f64<E>(self, _value: f64) -> Result<ValueSummary, E> {
        Ok(OTHER_VALUE)
    }

    fn visit_str<E>(self, _value: &str) -> Result<ValueSummary, E> {
        Ok(OTHER_VALUE)
    }

    fn visit_unit<E>(self) -> Result<ValueSummary, E> {
        Ok(OTHER_VALUE)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<ValueSummary, A::Error> {
        let mut has_duplicates = false;
        while let Some(item) = items.next_element::<ValueSummary>()? {
            has_duplicates |= item.has_duplicates;
        }
        Ok(ValueSummary { has_duplicates, ..OTHER_VALUE })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<ValueSummary, A::Error> {
        let mut has_duplicates = false;
        let mut names: Vec<Name<'de>> = Vec::new();
        while let Some((name, value)) = entries.next_entry::<Name<'de>, ValueSummary>()? {
            has_duplicates |= value.has_duplicates;
            names.push(name);
        }
        let kind = ValueKind::Object {
            has_type: names.iter().any(|name| name.0 == "type"),
            is_empty: names.is_empty(),
        };
        names.sort_unstable();
        has_duplicates |= names.windows(2).any(|pair| pair[0] == pair[1]);
        Ok(ValueSummary { kind, has_duplicates })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<String, String> {
        ObjectText::read(text).map(|object| object.into_text().into_owned()).map_err(|e| e.to_string())
    }

    #[test]
    fn an_object_stays_as_it_is_written() {
        for text in ["{}", "{ \"b\" : 1.50, \"a\": [null, true, -3, {\"b\":\"\\u00fc\"}] }"] {
            assert_eq!(read(text).as_deref(), Ok(text));
        }
        assert_eq!(read(" {}\n").as_deref(), Ok("{}"));
    }

    #[test]
    fn a_name_that_is_there_twice_counts_once() {
        assert_eq!(read(r#"{"a":1,"a":2}"#).as_deref(), Ok(r#"{"a":2}"#));
        assert_eq!(read(r#"{"x":[{"a":1,"b":3,"\u0061":2}]}"#).as_deref(), Ok(r#"{"x":[{"a":2,"b":3}]}"#));
        assert!(is_object(r#"{"a":1,"a":2}"#));
    }

    #[test]
    fn what_is_no_object_is_told_apart() {
        for text in ["[1]", "\"x\"", "null", "1"] {
            assert_eq!(read(text).unwrap_err(), "is not a JSON object", "{text}");
            assert!(!is_object(text));
        }
        let deep = "[".repeat(200);
        for text in ["", "{", "{} {}", "{\"a\":1e999}", "{\"a\":\"\\ud800\"}", "{\"a\":01}", deep.as_str()] {
            assert!(read(text).unwrap_err().starts_with("is not JSON: "), "{text}");
            assert!(serde_json::from_str::<Value>(text).is_err(), "a value is read from {text}");
        }
    }

    #[test]
    fn schemas_say_their_type() {
        let typed = |text| ObjectText::read(text).unwrap().into_typed().into_owned();
        assert_eq!(typed("{}"), r#"{"type":"object"}"#);
        assert_eq!(typed("{ }"), r#"{"type":"object" }"#);
        assert_eq!(typed(r#" {"a":{"type":"x"}}"#), r#"{"type":"object","a":{"type":"x"}}"#);
        assert_eq!(typed(r#"{"a":1,"type":"null"}"#), r#"{"a":1,"type":"null"}"#);
    }
}
