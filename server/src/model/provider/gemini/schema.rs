//! Rewrites JSON schemas into the subset that `generateContent` accepts.
//!
//! Annotations are dropped. Limits that the API does not know are added to the description
//! for the model, because the server checks arguments against the complete schema anyway. A
//! keyword that changes the meaning and cannot be expressed otherwise is refused by name.
//! Source: `responseJsonSchema` under <https://ai.google.dev/api/generate-content>.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::ModelError;

/// Keywords that are sent unchanged.
const SUPPORTED: [&str; 19] = [
    "$id",
    "$anchor",
    "$ref",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "required",
    "propertyOrdering",
    "additionalProperties",
    "items",
    "prefixItems",
    "anyOf",
    "oneOf",
];
/// Keywords without influence on validity. They are dropped.
const ANNOTATIONS: [&str; 14] = [
    "$schema",
    "$comment",
    "$vocabulary",
    "examples",
    "example",
    "default",
    "deprecated",
    "readOnly",
    "writeOnly",
    "contentEncoding",
    "contentMediaType",
    "contentSchema",
    "discriminator",
    "externalDocs",
];
/// Keywords that are moved into the description.
const DESCRIBED: [&str; 12] = [
    "pattern",
    "minLength",
    "maxLength",
    "multipleOf",
    "uniqueItems",
    "minProperties",
    "maxProperties",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "propertyNames",
    "minContains",
    "maxContains",
];

/// Rewrites a schema into the subset. A schema within the subset keeps its text. `what` names the schema in errors.
///
/// # Errors
/// If a keyword cannot be expressed. The error has the keyword and its position as a JSON pointer.
pub(super) fn within_subset<'a>(schema: Cow<'a, str>, what: &str) -> Result<Cow<'a, str>, ModelError> {
    let read = |e| ModelError::bad_request(format!("{what} is not JSON: {e}"));
    let mut tree: OrderedJson = serde_json::from_str(&schema).map_err(read)?;
    let mut reader = SubsetReader { at: String::new(), changed: false };
    reader
        .schema(&mut tree)
        .map_err(|unsupported| ModelError::bad_request(format!("{what} {unsupported}")))?;
    if !reader.changed {
        return Ok(schema);
    }
    serde_json::to_string(&tree).map(Cow::Owned).map_err(read)
}

/// A keyword that Gemini does not accept and that cannot be expressed otherwise.
#[derive(Debug, thiserror::Error)]
#[error("has {keyword:?} at \"{at}\", which Gemini does not take; say it in another way")]
struct UnsupportedKeyword {
    keyword: String,
    at: String,
}

struct SubsetReader {
    /// Current position, as a JSON pointer.
    at: String,
    changed: bool,
}

impl SubsetReader {
    fn within<T>(
        &mut self,
        step: &str,
        read: impl FnOnce(&mut Self) -> Result<T, UnsupportedKeyword>,
    ) -> Result<T, UnsupportedKeyword> {
        let length = self.at.len();
        self.at.push('/');
        self.at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        let value = read(self);
        self.at.truncate(length);
        value
    }

    fn schema(&mut self, schema: &mut OrderedJson) -> Result<(), UnsupportedKeyword> {
        // `true` and `false` are schemas as well.
        let OrderedJson::Object(keywords) = schema else { return Ok(()) };
        let mut descriptions = Vec::new();
        let mut kept = Vec::with_capacity(keywords.len());
        for (keyword, value) in std::mem::take(keywords) {
            self.keyword(keyword, value, &mut kept, &mut descriptions)?;
        }
        if !descriptions.is_empty() {
            describe(&mut kept, &descriptions.join("; "));
        }
        *keywords = kept;
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: String,
        mut value: OrderedJson,
        kept: &mut Vec<(String, OrderedJson)>,
        descriptions: &mut Vec<String>,
    ) -> Result<(), UnsupportedKeyword> {
        match keyword.as_str() {
            "properties" | "$defs" | "definitions" => {
                self.within(&keyword, |reader| reader.each_member(&mut value))?;
                // `definitions` is the older name of `$defs`.
                self.changed |= keyword == "definitions";
                let name = if keyword == "definitions" { "$defs" } else { &keyword };
                self.put(kept, &keyword, name, value)?;
            }
            "items" | "additionalProperties" => {
                self.within(&keyword, |reader| reader.schema(&mut value))?;
                self.put(kept, &keyword, &keyword, value)?;
            }
            "anyOf" | "oneOf" | "prefixItems" => {
                self.within(&keyword, |reader| reader.each_item(&mut value))?;
                self.put(kept, &keyword, &keyword, value)?;
            }
            "$ref" => {
                let target = self.reference(value)?;
                self.put(kept, &keyword, &keyword, target)?;
            }
            "const" => self.constant(value, kept, descriptions)?,
            "enum" if !is_plain(&value) => {
                self.changed = true;
                descriptions.push(format!("one of {}", value.text()));
            }
            "allOf" => self.all_of(value, kept)?,
            taken if SUPPORTED.contains(&taken) => self.put(kept, taken, taken, value)?,
            note if ANNOTATIONS.contains(&note) || note.starts_with("x-") => self.changed = true,
            bound if DESCRIBED.contains(&bound) => {
                self.changed = true;
                descriptions.push(format!("{bound}: {}", value.text()));
            }
            _ => return Err(UnsupportedKeyword { keyword, at: self.at.clone() }),
        }
        Ok(())
    }

    fn each_member(&mut self, members: &mut OrderedJson) -> Result<(), UnsupportedKeyword> {
        let OrderedJson::Object(members) = members else { return Ok(()) };
        members.iter_mut().try_for_each(|(name, schema)| self.within(name, |reader| reader.schema(schema)))
    }

    fn each_item(&mut self, items: &mut OrderedJson) -> Result<(), UnsupportedKeyword> {
        let OrderedJson::List(items) = items else { return Ok(()) };
        let mut numbered = items.iter_mut().enumerate();
        numbered.try_for_each(|(at, schema)| self.within(&at.to_string(), |reader| reader.schema(schema)))
    }

    /// Checks a reference. Only references within the same schema are possible.
    fn reference(&mut self, value: OrderedJson) -> Result<OrderedJson, UnsupportedKeyword> {
        let OrderedJson::Other(Value::String(target)) = &value else { return Ok(value) };
        if !target.starts_with('#') {
            return Err(UnsupportedKeyword { keyword: format!("$ref: {target}"), at: self.at.clone() });
        }
        match target.strip_prefix("#/definitions/") {
            Some(name) => {
                self.changed = true;
                Ok(OrderedJson::Other(Value::String(format!("#/$defs/{name}"))))
            }
            None => Ok(value),
        }
    }

    /// Rewrites `const` as `enum` with one value. The API knows `enum` for strings and numbers only.
    fn constant(
        &mut self,
        value: OrderedJson,
        kept: &mut Vec<(String, OrderedJson)>,
        descriptions: &mut Vec<String>,
    ) -> Result<(), UnsupportedKeyword> {
        self.changed = true;
        let one = OrderedJson::List(vec![value]);
        if is_plain(&one) {
            return self.put(kept, "const", "enum", one);
        }
        descriptions.push(format!("always one of {}", one.text()));
        Ok(())
    }

    /// Rewrites `allOf` with one schema as that schema.
    fn all_of(
        &mut self,
        value: OrderedJson,
        kept: &mut Vec<(String, OrderedJson)>,
    ) -> Result<(), UnsupportedKeyword> {
        let unsupported = || UnsupportedKeyword { keyword: "allOf".to_owned(), at: self.at.clone() };
        let OrderedJson::List(mut schemas) = value else { return Err(unsupported()) };
        let (Some(mut only), true) = (schemas.pop(), schemas.is_empty()) else { return Err(unsupported()) };
        self.within("allOf", |reader| reader.within("0", |reader| reader.schema(&mut only)))?;
        self.changed = true;
        if let OrderedJson::Object(keywords) = only {
            keywords.into_iter().try_for_each(|(name, value)| self.put(kept, "allOf", &name, value))?;
        }
        Ok(())
    }

    /// Adds what the keyword `from` has become. If that is there already, both must hold: they are merged, or the keyword is
    /// refused.
    fn put(
        &mut self,
        kept: &mut Vec<(String, OrderedJson)>,
        from: &str,
        name: &str,
        value: OrderedJson,
    ) -> Result<(), UnsupportedKeyword> {
        let Some((_, there)) = kept.iter_mut().find(|(there, _)| there == name) else {
            kept.push((name.to_owned(), value));
            return Ok(());
        };
        self.changed = true;
        let is_merged = match (name, there, value) {
            (_, there, value) if *there == value => true,
            // The words beside `allOf` are more specific than those in it.
            ("title" | "description", there, words) => {
                if from != "allOf" {
                    *there = words;
                }
                true
            }
            ("properties" | "$defs", OrderedJson::Object(there), OrderedJson::Object(more)) => {
                merge_members(there, more)
            }
            ("required", OrderedJson::List(there), OrderedJson::List(more)) => {
                let more: Vec<_> = more.into_iter().filter(|name| !there.contains(name)).collect();
                there.extend(more);
                true
            }
            _ => false,
        };
        let unsupported = || UnsupportedKeyword { keyword: format!("{from}: {name}"), at: self.at.clone() };
        if is_merged { Ok(()) } else { Err(unsupported()) }
    }
}

/// Adds these members. False if one of them is there with another value.
fn merge_members(there: &mut Vec<(String, OrderedJson)>, more: Vec<(String, OrderedJson)>) -> bool {
    for (name, value) in more {
        match there.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if *known == value => {}
            Some(_) => return false,
            None => there.push((name, value)),
        }
    }
    true
}

/// True if the list has strings and numbers only.
fn is_plain(list: &OrderedJson) -> bool {
    let is_plain =
        |value: &OrderedJson| matches!(value, OrderedJson::Other(Value::String(_) | Value::Number(_)));
    matches!(list, OrderedJson::List(values) if values.iter().all(is_plain))
}

/// Appends words to the description.
fn describe(keywords: &mut Vec<(String, OrderedJson)>, words: &str) {
    let described = keywords.iter_mut().find(|(name, _)| name == "description");
    match described {
        Some((_, OrderedJson::Other(Value::String(text)))) => *text = format!("{text} ({words})"),
        _ => {
            keywords.push(("description".to_owned(), OrderedJson::Other(Value::String(format!("({words})")))))
        }
    }
}

/// JSON whose objects keep their order: models fill in properties in the order of their schema.
#[derive(Debug, Clone, PartialEq)]
enum OrderedJson {
    Object(Vec<(String, OrderedJson)>),
    List(Vec<OrderedJson>),
    Other(Value),
}

impl OrderedJson {
    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Serialize for OrderedJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Object(members) => {
                let mut map = serializer.serialize_map(Some(members.len()))?;
                for (name, value) in members {
                    map.serialize_entry(name, value)?;
                }
                map.end()
            }
            Self::List(items) => items.serialize(serializer),
            Self::Other(value) => value.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for OrderedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(OrderedJsonVisitor)
    }
}

struct OrderedJsonVisitor;

impl<'de> Visitor<'de> for OrderedJsonVisitor {
    type Value = OrderedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Other(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<OrderedJson, E> {
        Ok(OrderedJson::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<OrderedJson, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(OrderedJson::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<OrderedJson, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(OrderedJson::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subset(schema: &str) -> Result<String, String> {
        within_subset(schema.into(), "the schema").map(Cow::into_owned).map_err(|error| error.message)
    }

    #[track_caller]
    fn becomes(schema: &str, expected: &str) {
        assert_eq!(subset(schema).as_deref(), Ok(expected));
    }

    #[test]
    fn what_is_in_it_stays_as_it_is_written() {
        for schema in [
            "{}",
            r#"{ "type": "object", "required": ["b"], "properties": {"b": {"type": ["string", "null"]}, "a": {"minimum": 1.50}}}"#,
            r##"{"$defs":{"x":{"enum":["a",1]}},"properties":{"pattern":{"$ref":"#/$defs/x"}},"additionalProperties":false}"##,
            r#"{"type":"array","items":{"anyOf":[{"type":"string","format":"date"},true]},"maxItems":3}"#,
        ] {
            becomes(schema, schema);
        }
    }

    #[test]
    fn what_only_annotates_is_dropped() {
        becomes(
            r#"{"$schema":"x","type":"object","properties":{"b":{"type":"string","default":"q","examples":[1],"x-ui":1},"a":{}}}"#,
            r#"{"type":"object","properties":{"b":{"type":"string"},"a":{}}}"#,
        );
    }

    #[test]
    fn bounds_are_told_in_words() {
        becomes(
            r#"{"properties":{"a":{"type":"string","description":"A name.","pattern":"^a","maxLength":3}}}"#,
            r#"{"properties":{"a":{"type":"string","description":"A name. (pattern: \"^a\"; maxLength: 3)"}}}"#,
        );
        becomes(
            r#"{"type":"integer","exclusiveMinimum":0}"#,
            r#"{"type":"integer","description":"(exclusiveMinimum: 0)"}"#,
        );
    }

    #[test]
    fn what_can_be_said_otherwise_is() {
        becomes(r#"{"const":"a"}"#, r#"{"enum":["a"]}"#);
        becomes(r#"{"const":true}"#, r#"{"description":"(always one of [true])"}"#);
        becomes(r#"{"enum":["a",null]}"#, r#"{"description":"(one of [\"a\",null])"}"#);
        becomes(
            r##"{"definitions":{"x":{"const":1}},"properties":{"a":{"$ref":"#/definitions/x"}}}"##,
            r##"{"$defs":{"x":{"enum":[1]}},"properties":{"a":{"$ref":"#/$defs/x"}}}"##,
        );
        becomes(
            r##"{"description":"mine","allOf":[{"$ref":"#/$defs/x","description":"its"}]}"##,
            r##"{"description":"mine","$ref":"#/$defs/x"}"##,
        );
    }

    #[test]
    fn what_is_said_twice_is_sent_once() {
        becomes(r#"{"const":"a","enum":["a"]}"#, r#"{"enum":["a"]}"#);
        becomes(
            r#"{"allOf":[{"type":"string","title":"Its","description":"its"}],"type":"string","description":"mine"}"#,
            r#"{"type":"string","title":"Its","description":"mine"}"#,
        );
        becomes(
            r#"{"properties":{"a":{},"b":{}},"required":["b"],"allOf":[{"properties":{"b":{},"c":{}},"required":["c","b"]}]}"#,
            r#"{"properties":{"a":{},"b":{},"c":{}},"required":["b","c"]}"#,
        );
        becomes(r#"{"$defs":{"x":{}},"definitions":{"y":{},"x":{}}}"#, r#"{"$defs":{"x":{},"y":{}}}"#);
        becomes(r#"{"type":"string","type":"string"}"#, r#"{"type":"string"}"#);
    }

    #[test]
    fn what_cannot_is_refused_by_name() {
        for (schema, keyword, at) in [
            (r#"{"not":{}}"#, "not", ""),
            (r#"{"properties":{"a/b":{"items":{"if":{}}}}}"#, "if", "/properties/a~1b/items"),
            (r#"{"anyOf":[{},{"patternProperties":{}}]}"#, "patternProperties", "/anyOf/1"),
            (r#"{"allOf":[{},{}]}"#, "allOf", ""),
            (r#"{"allOf":[{"then":1}]}"#, "then", "/allOf/0"),
            (r#"{"type":"string","allOf":[{"type":"integer"}]}"#, "allOf: type", ""),
            (
                r#"{"properties":{"a":{}},"allOf":[{"properties":{"a":{"type":"null"}}}]}"#,
                "allOf: properties",
                "",
            ),
            (r#"{"items":{"enum":["a","b"],"const":"a"}}"#, "const: enum", "/items"),
            (r#"{"$defs":{"x":{}},"definitions":{"x":{"type":"null"}}}"#, "definitions: $defs", ""),
            (r#"{"$ref":"https://x.example/s"}"#, "$ref: https://x.example/s", ""),
            (r#"{"$defs":{"x":{"dependentSchemas":{}}}}"#, "dependentSchemas", "/$defs/x"),
        ] {
            let descriptions = format!(
                "the schema has {keyword:?} at \"{at}\", which Gemini does not take; say it in another way"
            );
            assert_eq!(subset(schema), Err(descriptions));
        }
        assert!(subset("{").unwrap_err().starts_with("the schema is not JSON"));
    }
}
