//! Lenient reading of JSON events, borrowed from the event's text.
//!
//! Servers that speak a vendor's format differ in details. A field of an unexpected type is therefore absent, an unknown
//! field is skipped, and of a duplicate field the last one counts. An event is refused only if it is not JSON.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object of an event: the fields that matter, at their defaults until they are read.
pub(in crate::model) trait Fields<'de>: Default {
    /// Reads the value of the field `name`, or skips it. Called for each field in the order of the text.
    ///
    /// # Errors
    /// If the value is not JSON.
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error>;
}

/// The value of one field, to be read by one of its methods.
pub(in crate::model) struct FieldValue<'m, A>(&'m mut A);

/// Reads an event. An event that is not an object has no fields.
///
/// # Errors
/// If the event is not JSON.
pub(in crate::model) fn read<'de, T: Fields<'de>>(event: &'de str) -> Result<T, serde_json::Error> {
    serde_json::from_str::<Lenient<Object<T>>>(event).map(|Lenient(object)| object_of(object))
}

/// Reads the JSON text of a string; `None` if it is none.
pub(in crate::model) fn text(json: &str) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Lenient<Text<'_>>>(json).ok().and_then(|Lenient(Text(text))| text)
}

impl<'de, A: MapAccess<'de>> FieldValue<'_, A> {
    /// Skips the value of a field that nobody needs.
    pub(in crate::model) fn skip(self) -> Result<(), A::Error> {
        self.0.next_value::<IgnoredAny>().map(drop)
    }

    /// Reads a string; `None` if the value is of another type.
    pub(in crate::model) fn text(self) -> Result<Option<Cow<'de, str>>, A::Error> {
        self.0.next_value().map(|Lenient(Text(text))| text)
    }

    /// Reads a string. An empty one is absent.
    pub(in crate::model) fn filled_text(self) -> Result<Option<Cow<'de, str>>, A::Error> {
        self.text().map(|text| text.filter(|text| !text.is_empty()))
    }

    /// Reads a string, or the concatenated `text` fields of a list of parts. An empty text is absent.
    pub(in crate::model) fn text_or_parts(self) -> Result<Option<Cow<'de, str>>, A::Error> {
        let Lenient(TextOrParts(text)) = self.0.next_value()?;
        Ok(text.filter(|text| !text.is_empty()))
    }

    /// Reads a whole number that is not negative, also one that is written as `12.0` or `"12"`.
    pub(in crate::model) fn count(self) -> Result<Option<u64>, A::Error> {
        self.0.next_value().map(|Lenient(CountField(count))| count)
    }

    /// Reads an object; `None` if the value is of another type.
    pub(in crate::model) fn object<T: Fields<'de>>(self) -> Result<Option<T>, A::Error> {
        self.0.next_value().map(|Lenient(Object(object))| object)
    }

    /// Reads a list of objects; empty if it is none. An element that is not an object has no fields.
    pub(in crate::model) fn objects<T: Fields<'de>>(self) -> Result<Vec<T>, A::Error> {
        self.0.next_value().map(|Lenient(Objects(objects))| objects)
    }

    /// Reads a string, or any other value but null as JSON text.
    pub(in crate::model) fn text_or_json(self) -> Result<Option<Cow<'de, str>>, A::Error> {
        match self.json()? {
            Some(json) if json.starts_with('"') => {
                serde_json::from_str(json).map(|Lenient(Text(text))| text).map_err(A::Error::custom)
            }
            json => Ok(json.map(Cow::Borrowed)),
        }
    }

    /// Reads any value but null, as JSON text.
    pub(in crate::model) fn json(self) -> Result<Option<&'de str>, A::Error> {
        let value: &'de RawValue = self.0.next_value()?;
        Ok(Some(value.get()).filter(|json| *json != "null"))
    }
}

/// A JSON value of any type, read as a `T`.
struct Lenient<T>(T);

/// A type that can be read from a JSON value of any type. It has its default if the value does not fit.
trait FromAny<'de>: Default {
    fn from_text(_text: Cow<'de, str>) -> Self {
        Self::default()
    }

    fn from_count(_count: u64) -> Self {
        Self::default()
    }

    fn from_float(_number: f64) -> Self {
        Self::default()
    }

    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        while list.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }

    fn from_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        Ok(Self::default())
    }
}

impl<'de, T: FromAny<'de>> Deserialize<'de> for Lenient<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyVisitor(PhantomData)).map(Self)
    }
}

struct AnyVisitor<T>(PhantomData<T>);

impl<'de, T: FromAny<'de>> Visitor<'de> for AnyVisitor<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, _value: bool) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_i64<E>(self, _value: i64) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_u64<E>(self, value: u64) -> Result<T, E> {
        Ok(T::from_count(value))
    }

    fn visit_f64<E>(self, value: f64) -> Result<T, E> {
        Ok(T::from_float(value))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<T, E> {
        Ok(T::from_text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<T, E> {
        Ok(T::from_text(Cow::Owned(text.to_owned())))
    }

    fn visit_unit<E>(self) -> Result<T, E> {
        Ok(T::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<T, A::Error> {
        T::from_list(list)
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::from_map(map)
    }
}

/// A string, borrowed unless it has escapes.
#[derive(Default)]
struct Text<'de>(Option<Cow<'de, str>>);

impl<'de> FromAny<'de> for Text<'de> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(Some(text))
    }
}

#[derive(Default)]
struct CountField(Option<u64>);

impl<'de> FromAny<'de> for CountField {
    fn from_count(count: u64) -> Self {
        Self(Some(count))
    }

    fn from_float(number: f64) -> Self {
        Self(whole(number))
    }

    fn from_text(text: Cow<'de, str>) -> Self {
        Self(text.trim().parse().ok())
    }
}

/// Reads a whole number that is not negative, also from servers that write `12.0` or `"12"`.
pub(in crate::model) fn count_of(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| number.as_f64().and_then(whole)),
        Value::String(text) => text.trim().parse().ok(),
        _ => None,
    }
}

/// The number, if a float holds it exactly.
fn whole(number: f64) -> Option<u64> {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    ((0.0..=EXACT_MAX).contains(&number) && number.fract() == 0.0).then_some(number as u64)
}

struct Object<T>(Option<T>);

impl<T> Default for Object<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Fields<'de>> FromAny<'de> for Object<T> {
    fn from_map<A: MapAccess<'de>>(mut map: A) -> Result<Self, A::Error> {
        let mut object = T::default();
        while let Some(Lenient(Text(name))) = map.next_key()? {
            object.field(&name.unwrap_or_default(), FieldValue(&mut map))?;
        }
        Ok(Self(Some(object)))
    }
}

fn object_of<T: Default>(Object(object): Object<T>) -> T {
    object.unwrap_or_default()
}

struct Objects<T>(Vec<T>);

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Fields<'de>> FromAny<'de> for Objects<T> {
    fn from_list<A: SeqAccess<'de>>(mut list: A) -> Result<Self, A::Error> {
        let mut objects = Vec::new();
        while let Some(Lenient(object)) = list.next_element()? {
            objects.push(object_of(object));
        }
        Ok(Self(objects))
    }
}

#[derive(Default)]
struct TextOrParts<'de>(Option<Cow<'de, str>>);

impl<'de> FromAny<'de> for TextOrParts<'de> {
    fn from_text(text: Cow<'de, str>) -> Self {
        Self(Some(text))
    }

    fn from_list<A: SeqAccess<'de>>(list: A) -> Result<Self, A::Error> {
        let Objects(parts) = Objects::<TextPart<'de>>::from_list(list)?;
        let text: String = parts.into_iter().filter_map(|part| part.text).collect();
        Ok(Self(Some(Cow::Owned(text))))
    }
}

/// A part of a text that is given as a list.
#[derive(Default)]
struct TextPart<'de> {
    text: Option<Cow<'de, str>>,
}

impl<'de> Fields<'de> for TextPart<'de> {
    fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
        match name {
            "text" => self.text = value.text()?,
            _ => value.skip()?,
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One field for each method of [`FieldValue`].
    #[derive(Debug, Default, PartialEq)]
    struct Event<'a> {
        text: Option<Cow<'a, str>>,
        filled: Option<Cow<'a, str>>,
        parts: Option<Cow<'a, str>>,
        any: Option<Cow<'a, str>>,
        count: Option<u64>,
        inner: Option<Box<Event<'a>>>,
        list: Vec<Event<'a>>,
        json: Option<&'a str>,
    }

    impl<'de> Fields<'de> for Event<'de> {
        fn field<A: MapAccess<'de>>(&mut self, name: &str, value: FieldValue<'_, A>) -> Result<(), A::Error> {
            match name {
                "text" => self.text = value.text()?,
                "filled" => self.filled = value.filled_text()?,
                "parts" => self.parts = value.text_or_parts()?,
                "any" => self.any = value.text_or_json()?,
                "count" => self.count = value.count()?,
                "inner" => self.inner = value.object()?.map(Box::new),
                "list" => self.list = value.objects()?,
                "json" => self.json = value.json()?,
                _ => value.skip()?,
            }
            Ok(())
        }
    }

    fn event(json: &str) -> Event<'_> {
        read(json).unwrap()
    }

    #[test]
    fn fields_of_the_expected_type_are_read() {
        let read = event(
            r#"{"other":[{"text":1}],"text":"","filled":"a\n","parts":[{"text":"b"},7,{"text":"c"}],"count":3,
                "inner":{"count":1},"list":[{"count":2},null,[]],"json":{"x": [1]}}"#,
        );
        let counted = |count| Event { count: Some(count), ..Event::default() };
        assert_eq!(
            read,
            Event {
                text: Some("".into()),
                filled: Some("a\n".into()),
                any: None,
                parts: Some("bc".into()),
                count: Some(3),
                inner: Some(Box::new(counted(1))),
                list: vec![counted(2), Event::default(), Event::default()],
                json: Some(r#"{"x": [1]}"#),
            }
        );
        assert_eq!(event(r#"{"filled":"","parts":"","json":null}"#), Event::default());
        assert_eq!(event(r#"{"parts":"a"}"#).parts, Some("a".into()));
        for (json, expected) in [
            (r#""a\n""#, Some("a\n")),
            (r#"{"x": 1}"#, Some(r#"{"x": 1}"#)),
            ("7", Some("7")),
            ("null", None),
        ] {
            assert_eq!(event(&format!(r#"{{"any":{json}}}"#)).any.as_deref(), expected);
        }
    }

    #[test]
    fn a_field_of_another_type_is_absent() {
        let values = ["null", "true", "-1", "0.5", "1e300", "[]", "[[1],\"a\"]", "{}", r#"{"a":{"b":[]}}"#];
        for value in values {
            for (field, fits) in
                [("text", "none"), ("filled", "none"), ("count", "none"), ("list", "["), ("inner", "{")]
            {
                let json = format!(r#"{{"{field}":{value},"after":1,"json":7}}"#);
                let expected = Event { json: Some("7"), ..Event::default() };
                if !value.starts_with(fits) {
                    assert_eq!(event(&json), expected, "{json}");
                }
            }
        }
        for json in ["null", "7", "\"text\"", "[]", r#"[{"text":"a"}]"#] {
            assert_eq!(event(json), Event::default(), "{json}");
        }
        assert_eq!(event(r#"{"text":7,"count":"seven","inner":"7","list":"7"}"#), Event::default());
        for count in ["\"12\"", "12.0", "12"] {
            assert_eq!(event(&format!(r#"{{"count":{count}}}"#)).count, Some(12), "{count}");
        }
    }

    #[test]
    fn the_last_of_duplicate_fields_counts() {
        assert_eq!(event(r#"{"text":"a","text":"b","\u0074ext":"c"}"#).text, Some("c".into()));
        assert_eq!(event(r#"{"text":"a","text":7}"#), Event::default());
    }

    #[test]
    fn invalid_json_is_refused() {
        for json in [
            "",
            "{",
            "{\"text\":}",
            "{\"text\":\"a\"",
            "{} {}",
            "{\"other\":[}",
            "{\"json\":x}",
            "{\"a\":01}",
            r#"{"text":"\ud800"}"#,
            r#"{"any":"\ud800"}"#,
        ] {
            assert!(read::<Event<'_>>(json).is_err(), "{json}");
        }
        let deep = "[".repeat(100_000);
        for json in [deep.clone(), format!("{{\"inner\":{deep}"), "{\"inner\":".repeat(100_000)] {
            assert!(read::<Event<'_>>(&json).is_err());
        }
    }

    #[test]
    fn strings_are_borrowed_unless_they_have_escapes() {
        assert!(matches!(event(r#"{"text":"ü"}"#).text, Some(Cow::Borrowed("ü"))));
        assert!(matches!(event(r#"{"text":"a\n"}"#).text, Some(Cow::Owned(text)) if text == "a\n"));
    }
}
