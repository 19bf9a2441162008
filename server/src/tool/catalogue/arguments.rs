//! Parses a call's arguments as JSON without duplicate names.
//!
//! If a name appears twice in one object, parsers differ about which value counts: a policy rule might check one value
//! and the host run with the other. Such arguments are refused.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Bytes of a duplicate name that are repeated to the model.
const NAME_BYTES_SHOWN_MAX: usize = 64;

/// Parses a call's arguments.
///
/// # Errors
/// The fault and its position, for the model.
pub(in crate::tool) fn parse(text: &str) -> Result<Value, serde_json::Error> {
    serde_json::from_str(text).map(|Unambiguous(value)| value)
}

/// A JSON value in which no object has a name twice.
struct Unambiguous(Value);

impl<'de> Deserialize<'de> for Unambiguous {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(UniqueNamesVisitor).map(Self)
    }
}

struct UniqueNamesVisitor;

impl<'de> Visitor<'de> for UniqueNamesVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut array = Vec::new();
        while let Some(Unambiguous(item)) = items.next_element()? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if object.contains_key(&name) {
                let shown = &name[..name.floor_char_boundary(NAME_BYTES_SHOWN_MAX)];
                return Err(A::Error::custom(format!("the name {shown:?} appears twice in one object")));
            }
            let Unambiguous(value) = fields.next_value()?;
            object.insert(name, value);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_without_duplicate_names_parse_as_usual() {
        for text in [
            r#"{"a":1,"b":[-2,2.5,true,null,"x",{"a":{}}],"c":{"a":2},"":"\u00e4\n"}"#,
            "18446744073709551615",
            "1e400",
            "[]",
            "\"text\"",
            "{",
            r#"{"a":1,}"#,
            "{} {}",
        ] {
            let plain = serde_json::from_str::<Value>(text).map_err(|fault| fault.to_string());
            assert_eq!(parse(text).map_err(|fault| fault.to_string()), plain, "{text}");
        }
    }

    #[test]
    fn a_name_that_appears_twice_is_refused_at_any_depth() {
        for text in [
            r#"{"path":"/tmp/a","path":"/etc/passwd"}"#,
            r#"{"path":"/tmp/a","p\u0061th":"/etc/passwd"}"#,
            r#"{"all":[{"path":1},{"path":2,"other":3,"path":2}]}"#,
            r#"{"path":{"path":1},"path":null}"#,
        ] {
            let fault = parse(text).unwrap_err().to_string();
            assert!(fault.contains("the name \"path\" appears twice"), "{fault}");
        }
    }

    #[test]
    fn many_names_and_long_ones_are_no_trouble() {
        let fields: Vec<String> = (0..100_000).map(|at| format!("\"field {at}\":0")).collect();
        let once = format!("{{{}}}", fields.join(","));
        assert!(parse(&once).is_ok());
        let long = "ü".repeat(10_000);
        let fault = parse(&format!("{{\"{long}\":1,\"{long}\":2}}")).unwrap_err().to_string();
        assert!(fault.len() < 300, "{fault}");
        assert!(parse(&"[".repeat(100_000)).is_err());
    }
}
