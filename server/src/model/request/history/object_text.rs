//! JSON objects that come as text and go on as text: looked through once, and not rebuilt.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;

/// A text that is one JSON object as every provider reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::model) struct ObjectText<'a> {
    text: Cow<'a, str>,
    has_type: bool,
    is_empty: bool,
}

/// Why a text is none.
#[derive(Debug, thiserror::Error)]
pub(in crate::model) enum NoObject {
    #[error("is not JSON: {0}")]
    NoJson(#[from] serde_json::Error),
    #[error("is not a JSON object")]
    Other,
}

impl<'a> ObjectText<'a> {
    /// The text as it is; written anew only where an object has a name twice, which some parsers refuse.
    ///
    /// # Errors
    /// When it is no JSON, or no object.
    pub(in crate::model) fn read(text: &'a str) -> Result<Self, NoObject> {
        let seen: Seen = serde_json::from_str(text)?;
        let Kind::Object { has_type, is_empty } = seen.kind else { return Err(NoObject::Other) };
        let text = if seen.has_doubles {
            Cow::Owned(serde_json::from_str::<Value>(text)?.to_string())
        } else {
            Cow::Borrowed(text.trim())
        };
        Ok(Self { text, has_type, is_empty })
    }

    /// The object.
    pub(in crate::model) fn into_text(self) -> Cow<'a, str> {
        self.text
    }

    /// The object, as a schema that says `"type": "object"` where it said nothing.
    pub(in crate::model) fn into_typed(self) -> Cow<'a, str> {
        if self.has_type {
            return self.text;
        }
        let comma = if self.is_empty { "" } else { "," };
        Cow::Owned(format!("{{\"type\":\"object\"{comma}{}", &self.text[1..]))
    }
}

/// Whether a text is one JSON object. Doubled names are its writer's affair.
pub(in crate::model) fn is_object(text: &str) -> bool {
    serde_json::from_str::<Seen>(text).is_ok_and(|seen| matches!(seen.kind, Kind::Object { .. }))
}

/// What was seen of a value. Reading it accepts exactly what reading a [`Value`] accepts.
#[derive(Debug, Clone, Copy)]
struct Seen {
    kind: Kind,
    /// Whether any object within has a name twice.
    has_doubles: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Object { has_type: bool, is_empty: bool },
    Other,
}

const OTHER: Seen = Seen { kind: Kind::Other, has_doubles: false };

#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

impl<'de> Deserialize<'de> for Seen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Look)
    }
}

struct Look;

impl<'de> Visitor<'de> for Look {
    type Value = Seen;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _value: bool) -> Result<Seen, E> {
        Ok(OTHER)
    }

    fn visit_i64<E>(self, _value: i64) -> Result<Seen, E> {
        Ok(OTHER)
    }

    fn visit_u64<E>(self, _value: u64) -> Result<Seen, E> {
        Ok(OTHER)
    }

    fn visit_f64<E>(self, _value: f64) -> Result<Seen, E> {
        Ok(OTHER)
    }

    fn visit_str<E>(self, _value: &str) -> Result<Seen, E> {
        Ok(OTHER)
    }

    fn visit_unit<E>(self) -> Result<Seen, E> {
        Ok(OTHER)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Seen, A::Error> {
        let mut has_doubles = false;
        while let Some(item) = items.next_element::<Seen>()? {
            has_doubles |= item.has_doubles;
        }
        Ok(Seen { has_doubles, ..OTHER })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Seen, A::Error> {
        let mut has_doubles = false;
        let mut names: Vec<Name<'de>> = Vec::new();
        while let Some((name, value)) = entries.next_entry::<Name<'de>, Seen>()? {
            has_doubles |= value.has_doubles;
            names.push(name);
        }
        let kind =
            Kind::Object { has_type: names.iter().any(|name| name.0 == "type"), is_empty: names.is_empty() };
        names.sort_unstable();
        has_doubles |= names.windows(2).any(|pair| pair[0] == pair[1]);
        Ok(Seen { kind, has_doubles })
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
