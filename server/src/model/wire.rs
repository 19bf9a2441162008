//! What both wire formats need: history that any provider accepts, and options merged into a request.
//!
//! A history is written by models and may hold anything: names that no provider allows, arguments that are no JSON,
//! ids of another provider. A provider that refuses such a message once refuses it for ever, so it is mended here.

use std::collections::{HashMap, HashSet};

use agentloop_core::agent::{ModelOptions, ResponseSchema};
use agentloop_core::limits::TOOL_NAME_BYTES_MAX;
use agentloop_core::tool::{Digest, ToolDeclaration};
use serde_json::{Map, Value, json};

use super::ModelError;

/// A tool's name as every provider accepts it: what is not allowed becomes `_`.
pub(super) fn tool_name(name: &str) -> String {
    match name.chars().map(allowed).take(TOOL_NAME_BYTES_MAX).collect::<String>() {
        empty if empty.is_empty() => "unnamed".to_owned(),
        name => name,
    }
}

fn allowed(c: char) -> char {
    if c.is_ascii_alphanumeric() || matches!(c, '_' | '-') { c } else { '_' }
}

/// Arguments that were no JSON object are wrapped, so that the model sees what it wrote.
pub(super) fn arguments_object(arguments: &str) -> Value {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(object)) => Value::Object(object),
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({ "_invalid": arguments }),
    }
}

/// As [`arguments_object`], as text, and byte for byte what the model wrote where that is an object.
pub(super) fn arguments_text(arguments: &str) -> String {
    match serde_json::from_str(arguments) {
        Ok(Value::Object(_)) => arguments.to_owned(),
        _ => arguments_object(arguments).to_string(),
    }
}

/// A tool's schema. Both large providers want `type` spelt out.
pub(super) fn tool_schema(tool: &ToolDeclaration) -> Result<Value, ModelError> {
    let mut schema = object(&tool.input_schema, || format!("the schema of tool {:?}", tool.name))?;
    schema.entry("type").or_insert_with(|| json!("object"));
    Ok(Value::Object(schema))
}

/// The schema that the answer must follow.
pub(super) fn response_schema(response: &ResponseSchema) -> Result<Value, ModelError> {
    object(&response.schema, || format!("response schema {:?}", response.name)).map(Value::Object)
}

/// Merges the caller's own options into a finished request as a JSON merge patch: objects are merged, null removes,
/// anything else replaces. Streaming alone cannot be turned off, since nothing else is understood here.
pub(super) fn merge_provider_options(request: &mut Value, options: &ModelOptions) -> Result<(), ModelError> {
    if let Some(text) = &options.provider_options {
        let patch = object(text, || "provider_options".to_owned())?;
        merge(request, Value::Object(patch));
        request["stream"] = json!(true);
    }
    Ok(())
}

fn object(text: &str, what: impl Fn() -> String) -> Result<Map<String, Value>, ModelError> {
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) => Err(ModelError::bad_request(format!("{} is not a JSON object", what()))),
        Err(e) => Err(ModelError::bad_request(format!("{} is not JSON: {e}", what()))),
    }
}

fn merge(target: &mut Value, patch: Value) {
    let Value::Object(patch) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    for (key, value) in patch {
        if value.is_null() {
            target.as_object_mut().expect("made one just above").remove(&key);
        } else {
            merge(&mut target[key], value);
        }
    }
}

/// Ids of tool calls as one provider accepts them: unique within the request, and within its alphabet and length.
///
/// A session may hold calls of several providers and runs, whose ids need not differ. The same history always gives
/// the same ids, and a longer one the same for what was there before, which keeps prompt caches warm.
#[derive(Debug, Default)]
pub(super) struct CallIds {
    max_bytes: Option<usize>,
    used: HashSet<String>,
    /// The least number that may tell the next call of an id from those before it.
    copies: HashMap<String, usize>,
    /// From the id in the history to the one sent, for the latest call of that id.
    sent: HashMap<String, String>,
}

impl CallIds {
    /// Ids as they are.
    pub(super) fn any() -> Self {
        Self::default()
    }

    /// Ids of at most `max_bytes` of letters, digits, `_` and `-`.
    pub(super) fn plain(max_bytes: usize) -> Self {
        Self { max_bytes: Some(max_bytes), ..Self::default() }
    }

    /// The id to send for a call.
    pub(super) fn call(&mut self, id: &str) -> String {
        let base = self.fit(id);
        let mut unique = base.clone();
        if self.used.contains(&base) {
            // Some servers number the calls of each answer anew, so that a long session has one id very often.
            let mut copy = self.copies.get(&base).copied().unwrap_or(2);
            while self.used.contains(&unique) {
                unique = self.fit(&format!("{base}_{copy}"));
                copy += 1;
            }
            self.copies.insert(base, copy);
        }
        self.used.insert(unique.clone());
        self.sent.insert(id.to_owned(), unique.clone());
        unique
    }

    /// The id to send for the result of the latest call with this id.
    pub(super) fn result(&self, id: &str) -> String {
        self.sent.get(id).cloned().unwrap_or_else(|| self.fit(id))
    }

    fn fit(&self, id: &str) -> String {
        let Some(max) = self.max_bytes else { return id.to_owned() };
        let fits = !id.is_empty() && id.len() <= max && id.chars().all(|c| allowed(c) == c);
        if fits { id.to_owned() } else { format!("call_{}", Digest::of(&[id.as_bytes()])) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_every_provider() {
        assert_eq!(tool_name("get_weather-2"), "get_weather-2");
        assert_eq!(tool_name("functions.get weather"), "functions_get_weather");
        assert_eq!(tool_name("wetter_für"), "wetter_f_r");
        assert_eq!(tool_name(""), "unnamed");
        assert_eq!(tool_name(&"x".repeat(100)).len(), TOOL_NAME_BYTES_MAX);
    }

    #[test]
    fn arguments_are_objects() {
        assert_eq!(arguments_text("{ \"a\" : 1.0 }"), "{ \"a\" : 1.0 }");
        assert_eq!(arguments_text(""), "{}");
        assert_eq!(arguments_text("[1]"), r#"{"_invalid":"[1]"}"#);
        assert_eq!(arguments_text("{\"a\":"), r#"{"_invalid":"{\"a\":"}"#);
        assert_eq!(arguments_object("{\"a\":1}"), json!({"a": 1}));
        assert_eq!(arguments_object(&"[".repeat(10_000))["_invalid"].as_str().unwrap().len(), 10_000);
    }

    #[test]
    fn provider_options_are_merged_last() {
        let merged = |patch: &str| {
            let mut request = json!({"model": "m", "stream": true, "a": {"b": 1, "c": 2}});
            let options =
                ModelOptions { provider_options: Some(patch.to_owned()), ..ModelOptions::default() };
            merge_provider_options(&mut request, &options).map(|()| request).map_err(|e| e.message)
        };
        assert_eq!(
            merged(r#"{"a":{"b":null,"d":[3]},"x":{"y":null,"z":1},"model":"n","stream":false}"#),
            Ok(json!({"model": "n", "stream": true, "a": {"c": 2, "d": [3]}, "x": {"z": 1}}))
        );
        assert_eq!(merged("[]"), Err("provider_options is not a JSON object".to_owned()));
        assert!(merged("{").unwrap_err().starts_with("provider_options is not JSON"));
    }

    #[test]
    fn ids_stay_unless_they_must_not() {
        let mut ids = CallIds::any();
        assert_eq!(ids.call("functions.f:0"), "functions.f:0");
        assert_eq!(ids.call("functions.f:0"), "functions.f:0_2");
        assert_eq!(ids.result("functions.f:0"), "functions.f:0_2");
        assert_eq!(ids.call("functions.f:0_3"), "functions.f:0_3", "an id of its own");
        assert_eq!(ids.call("functions.f:0"), "functions.f:0_4");
        assert_eq!(ids.call("functions.f:0"), "functions.f:0_5");
        assert_eq!(ids.call("functions.f:0_3"), "functions.f:0_3_2");
        assert_eq!(ids.result("unknown"), "unknown");
    }

    #[test]
    fn ids_are_made_to_fit() {
        let mut ids = CallIds::plain(40);
        assert_eq!(ids.call("toolu_1"), "toolu_1");
        let odd = ids.call("functions.f:0");
        assert_eq!(odd.len(), 37);
        assert_ne!(ids.call("functions.f:1"), odd);
        assert_ne!(ids.call("functions.f:0"), odd);
        assert_eq!(ids.call(&"x".repeat(41)).len(), 37);
        assert!(ids.call("").starts_with("call_"));
        let long = "y".repeat(40);
        assert_eq!(ids.call(&long), long);
        assert_eq!(ids.call(&long).len(), 37);
    }
}
