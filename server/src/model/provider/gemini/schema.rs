//! JSON schemas in the subset that `generateContent` takes.
//!
//! What only annotates is dropped. Bounds that the API does not know are told to the model in the description: the server
//! checks arguments against the whole schema anyway. What changes the meaning and cannot be said otherwise is refused by
//! name. Source: `responseJsonSchema` under <https://ai.google.dev/api/generate-content>.

use std::borrow::Cow;
use std::fmt;

use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{SerializeMap as _, Serializer};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::model::ModelError;

/// Keywords that go as they are.
const TAKEN: [&str; 19] = [
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
/// Keywords that say nothing about what is valid.
const NOTES: [&str; 14] = [
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
/// Keywords that the model is told of in words.
const TOLD: [&str; 12] = [
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

/// A schema in the subset, whose text is unchanged where it is in it already. `what` is named in errors.
///
/// # Errors
/// When it has a keyword that cannot be said otherwise. The error names it and where it is, as a JSON pointer.
pub(super) fn within_subset<'a>(schema: Cow<'a, str>, what: &str) -> Result<Cow<'a, str>, ModelError> {
    let read = |e| ModelError::bad_request(format!("{what} is not JSON: {e}"));
    let mut tree: Json = serde_json::from_str(&schema).map_err(read)?;
    let mut reading = Reading { at: String::new(), changed: false };
    reading.schema(&mut tree).map_err(|fault| ModelError::bad_request(format!("{what} {fault}")))?;
    if !reading.changed {
        return Ok(schema);
    }
    serde_json::to_string(&tree).map(Cow::Owned).map_err(read)
}

/// A keyword that Gemini does not take.
#[derive(Debug, thiserror::Error)]
#[error("has {keyword:?} at \"{at}\", which Gemini does not take; say it in another way")]
struct Fault {
    keyword: String,
    at: String,
}

struct Reading {
    /// A JSON pointer.
    at: String,
    changed: bool,
}

impl Reading {
    fn within<T>(
        &mut self,
        step: &str,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let length = self.at.len();
        self.at.push('/');
        self.at.push_str(&step.replace('~', "~0").replace('/', "~1"));
        let value = read(self);
        self.at.truncate(length);
        value
    }

    fn schema(&mut self, schema: &mut Json) -> Result<(), Fault> {
        // `true` and `false` are schemas, too.
        let Json::Object(keywords) = schema else { return Ok(()) };
        let mut told = Vec::new();
        let mut kept = Vec::with_capacity(keywords.len());
        for (keyword, value) in std::mem::take(keywords) {
            self.keyword(keyword, value, &mut kept, &mut told)?;
        }
        if !told.is_empty() {
            tell(&mut kept, &told.join("; "));
        }
        *keywords = kept;
        Ok(())
    }

    fn keyword(
        &mut self,
        keyword: String,
        mut value: Json,
        kept: &mut Vec<(String, Json)>,
        told: &mut Vec<String>,
    ) -> Result<(), Fault> {
        match keyword.as_str() {
            "properties" | "$defs" | "definitions" => {
                self.within(&keyword, |reading| reading.each_member(&mut value))?;
                // The older name of the same.
                self.changed |= keyword == "definitions";
                let name = if keyword == "definitions" { "$defs" } else { &keyword };
                kept.push((name.to_owned(), value));
            }
            "items" | "additionalProperties" => {
                self.within(&keyword, |reading| reading.schema(&mut value))?;
                kept.push((keyword, value));
            }
            "anyOf" | "oneOf" | "prefixItems" => {
                self.within(&keyword, |reading| reading.each_item(&mut value))?;
                kept.push((keyword, value));
            }
            "$ref" => kept.push((keyword, self.reference(value)?)),
            "const" => self.constant(value, kept, told),
            "enum" if !is_plain(&value) => {
                self.changed = true;
                told.push(format!("one of {}", value.text()));
            }
            "allOf" => self.all_of(value, kept)?,
            taken if TAKEN.contains(&taken) => kept.push((keyword, value)),
            note if NOTES.contains(&note) || note.starts_with("x-") => self.changed = true,
            bound if TOLD.contains(&bound) => {
                self.changed = true;
                told.push(format!("{bound}: {}", value.text()));
            }
            _ => return Err(Fault { keyword, at: self.at.clone() }),
        }
        Ok(())
    }

    fn each_member(&mut self, members: &mut Json) -> Result<(), Fault> {
        let Json::Object(members) = members else { return Ok(()) };
        members.iter_mut().try_for_each(|(name, schema)| self.within(name, |reading| reading.schema(schema)))
    }

    fn each_item(&mut self, items: &mut Json) -> Result<(), Fault> {
        let Json::List(items) = items else { return Ok(()) };
        let mut numbered = items.iter_mut().enumerate();
        numbered.try_for_each(|(at, schema)| self.within(&at.to_string(), |reading| reading.schema(schema)))
    }

    /// Only what is in the same schema can be referred to.
    fn reference(&mut self, value: Json) -> Result<Json, Fault> {
        let Json::Other(Value::String(target)) = &value else { return Ok(value) };
        if !target.starts_with('#') {
            return Err(Fault { keyword: format!("$ref: {target}"), at: self.at.clone() });
        }
        match target.strip_prefix("#/definitions/") {
            Some(name) => {
                self.changed = true;
                Ok(Json::Other(Value::String(format!("#/$defs/{name}"))))
            }
            None => Ok(value),
        }
    }

    /// One value is a choice of one. There are choices of texts and numbers only.
    fn constant(&mut self, value: Json, kept: &mut Vec<(String, Json)>, told: &mut Vec<String>) {
        self.changed = true;
        let one = Json::List(vec![value]);
        if is_plain(&one) {
            kept.push(("enum".to_owned(), one));
        } else {
            told.push(format!("always one of {}", one.text()));
        }
    }

    /// All of one schema is that schema.
    fn all_of(&mut self, value: Json, kept: &mut Vec<(String, Json)>) -> Result<(), Fault> {
        let fault = || Fault { keyword: "allOf".to_owned(), at: self.at.clone() };
        let Json::List(mut schemas) = value else { return Err(fault()) };
        let (Some(mut only), true) = (schemas.pop(), schemas.is_empty()) else { return Err(fault()) };
        let names: Vec<String> = kept.iter().map(|(name, _)| name.clone()).collect();
        self.within("allOf", |reading| reading.within("0", |reading| reading.schema(&mut only)))?;
        self.changed = true;
        if let Json::Object(keywords) = only {
            kept.extend(keywords.into_iter().filter(|(name, _)| !names.contains(name)));
        }
        Ok(())
    }
}

/// Whether a list has texts and numbers alone.
fn is_plain(list: &Json) -> bool {
    let is_plain = |value: &Json| matches!(value, Json::Other(Value::String(_) | Value::Number(_)));
    matches!(list, Json::List(values) if values.iter().all(is_plain))
}

/// Adds words to a description.
fn tell(keywords: &mut Vec<(String, Json)>, words: &str) {
    let described = keywords.iter_mut().find(|(name, _)| name == "description");
    match described {
        Some((_, Json::Other(Value::String(text)))) => *text = format!("{text} ({words})"),
        _ => keywords.push(("description".to_owned(), Json::Other(Value::String(format!("({words})"))))),
    }
}

/// JSON whose objects keep their order: models fill in properties in the order of their schema.
#[derive(Debug, Clone)]
enum Json {
    Object(Vec<(String, Json)>),
    List(Vec<Json>),
    Other(Value),
}

impl Json {
    fn text(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }
}

impl Serialize for Json {
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

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Any)
    }
}

struct Any;

impl<'de> Visitor<'de> for Any {
    type Value = Json;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_bool<E>(self, value: bool) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Json, E> {
        Ok(Json::Other(value.into()))
    }

    fn visit_unit<E>(self) -> Result<Json, E> {
        Ok(Json::Other(Value::Null))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Json, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Json::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Json, A::Error> {
        let mut object = Vec::new();
        while let Some(member) = members.next_entry()? {
            object.push(member);
        }
        Ok(Json::Object(object))
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
    fn what_cannot_is_refused_by_name() {
        for (schema, keyword, at) in [
            (r#"{"not":{}}"#, "not", ""),
            (r#"{"properties":{"a/b":{"items":{"if":{}}}}}"#, "if", "/properties/a~1b/items"),
            (r#"{"anyOf":[{},{"patternProperties":{}}]}"#, "patternProperties", "/anyOf/1"),
            (r#"{"allOf":[{},{}]}"#, "allOf", ""),
            (r#"{"allOf":[{"then":1}]}"#, "then", "/allOf/0"),
            (r#"{"$ref":"https://x.example/s"}"#, "$ref: https://x.example/s", ""),
            (r#"{"$defs":{"x":{"dependentSchemas":{}}}}"#, "dependentSchemas", "/$defs/x"),
        ] {
            let told = format!(
                "the schema has {keyword:?} at \"{at}\", which Gemini does not take; say it in another way"
            );
            assert_eq!(subset(schema), Err(told));
        }
        assert!(subset("{").unwrap_err().starts_with("the schema is not JSON"));
    }
}
