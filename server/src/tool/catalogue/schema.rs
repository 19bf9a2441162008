//! JSON schemas of tools: compiled once, then applied to the arguments that models write.

use std::fmt::Write as _;

use agentloop_core::limits::TOOL_ARGUMENTS_BYTES_MAX;
use jsonschema::Validator;
use serde_json::Value;

use crate::schema::{self, check_depth, location, truncate};
use crate::tool::catalogue::arguments;

/// Faults that one message to the model lists.
const FAULTS_SHOWN_MAX: usize = 5;

/// The schema of a tool's arguments, ready to use.
#[derive(Debug)]
pub(in crate::tool) struct Schema {
    validator: Validator,
}

impl Schema {
    /// Parses a schema of arguments, checks its bounds and compiles it.
    ///
    /// # Errors
    /// The reason for the refusal, for the host's author.
    pub(in crate::tool) fn compile(text: &str) -> Result<Self, String> {
        let schema = schema::parse("input", text)?;
        if schema.get("type").and_then(Value::as_str) != Some("object") {
            return Err("the input schema must be an object with \"type\": \"object\"".to_owned());
        }
        schema::build("input", &schema).map(|validator| Self { validator })
    }

    /// As [`Self::compile`], for the schema of a typed output, which may be of any type.
    ///
    /// # Errors
    /// As [`Self::compile`].
    pub(in crate::tool) fn compile_output(text: &str) -> Result<Self, String> {
        let validator = schema::build("output", &schema::parse("output", text)?)?;
        Ok(Self { validator })
    }

    /// Checks a typed output, whose size the caller has checked.
    ///
    /// # Errors
    /// The faults and their JSON paths, for the model.
    pub(in crate::tool) fn check_output(&self, output: &str) -> Result<(), String> {
        let value = arguments::parse(output).map_err(|fault| format!("it is not valid JSON: {fault}"))?;
        check_depth(&value).map_err(|fault| format!("it is {fault}"))?;
        self.check_value("it does", &value)
    }

    /// Checks a call's arguments.
    ///
    /// # Errors
    /// The faults and their JSON paths, for the model.
    pub(in crate::tool) fn check(&self, arguments: &str) -> Result<(), String> {
        if arguments.len() > TOOL_ARGUMENTS_BYTES_MAX {
            return Err(format!("the arguments are larger than {TOOL_ARGUMENTS_BYTES_MAX} bytes"));
        }
        let value = arguments::parse(or_empty_object(arguments))
            .map_err(|fault| format!("the arguments are not valid JSON: {fault}"))?;
        if !value.is_object() {
            return Err("the arguments must be a JSON object".to_owned());
        }
        check_depth(&value).map_err(|fault| format!("the arguments are {fault}"))?;
        self.check_value("the arguments do", &value)
    }

    fn check_value(&self, they_do: &str, value: &Value) -> Result<(), String> {
        let mut message = String::new();
        let mut faults = self.validator.iter_errors(value);
        for fault in faults.by_ref().take(FAULTS_SHOWN_MAX) {
            let separator = if message.is_empty() { "" } else { "; " };
            let at = location(fault.instance_path().as_str());
            let what = truncate(fault.masked().to_string());
            // Writing to a string cannot fail.
            let _ = write!(message, "{separator}at {at}: {what}");
        }
        if message.is_empty() {
            return Ok(());
        }
        let more = if faults.next().is_some() { "; and more" } else { "" };
        Err(format!("{they_do} not follow the tool's schema: {message}{more}"))
    }
}

/// Replaces blank arguments by `{}`. Models write nothing for a tool without arguments.
pub(in crate::tool) fn or_empty_object(arguments: &str) -> &str {
    if arguments.trim().is_empty() { "{}" } else { arguments }
}

#[cfg(test)]
mod tests {
    use agentloop_core::limits::{JSON_DEPTH_MAX, TOOL_SCHEMA_BYTES_MAX};
    use serde_json::json;

    use super::*;

    fn compile(schema: &Value) -> Result<Schema, String> {
        Schema::compile(&schema.to_string())
    }

    #[track_caller]
    fn refused(schema: &Value, because: &str) {
        let reason = compile(schema).expect_err("refused");
        assert!(reason.contains(because), "{reason}");
    }

    fn weather() -> Schema {
        compile(&json!({
            "type": "object",
            "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1}},
            "required": ["city"],
            "additionalProperties": false
        }))
        .unwrap()
    }

    #[test]
    fn schemas_that_cannot_be_taken() {
        assert!(Schema::compile("{").unwrap_err().contains("not JSON"));
        refused(&json!([]), "\"type\": \"object\"");
        refused(&json!({}), "\"type\": \"object\"");
        refused(&json!({"type": "string"}), "\"type\": \"object\"");
        refused(&json!({"type": "object", "required": "city"}), "not valid at /required");
        refused(&json!({"type": "object", "properties": {"a": {"pattern": "("}}}), "/properties/a/pattern");
        refused(&json!({"type": "object", "$ref": "https://example.com/s"}), "only \"#/…\"");
        refused(&json!({"type": "object", "$ref": "file:///etc/passwd"}), "only \"#/…\"");
        refused(&json!({"type": "object", "$ref": "#/$defs/no"}), "does not have");
        let output = Schema::compile_output(r##"{"$ref": "#/$defs/no"}"##).unwrap_err();
        assert!(output.starts_with("the output schema refers to"), "{output}");
        let long = json!({"type": "object", "description": "x".repeat(TOOL_SCHEMA_BYTES_MAX)});
        refused(&long, "larger than");
        let mut deep = json!({"type": "object"});
        for _ in 0..JSON_DEPTH_MAX {
            deep = json!({"type": "object", "not": deep});
        }
        refused(&deep, "nested deeper");
    }

    #[test]
    fn references_within_the_schema_work_also_in_circles() {
        let tree = compile(&json!({
            "type": "object",
            "properties": {"left": {"$ref": "#"}, "right": {"$ref": "#"}, "name": {"$ref": "#/$defs/name"}},
            "$defs": {"name": {"type": "string"}}
        }))
        .unwrap();
        assert_eq!(tree.check(r#"{"left": {"right": {"name": "leaf"}}}"#), Ok(()));
        let fault = tree.check(r#"{"left": {"right": {"name": 7}}}"#).unwrap_err();
        assert!(fault.contains("/left/right/name"), "{fault}");
        let endless = compile(&json!({"type": "object", "allOf": [{"$ref": "#"}]})).unwrap();
        assert_eq!(endless.check("{}"), Ok(()));
    }

    #[test]
    fn faults_name_their_place() {
        for (arguments, parts) in [
            (r#"{"city": 1}"#, vec!["at /city:", "string"]),
            ("{}", vec!["at the top level:", "city"]),
            (r#"{"city": "a", "days": 0}"#, vec!["at /days:"]),
            (r#"{"city": "a", "town": 0}"#, vec!["town"]),
            (r#"{"city": 1, "days": "x"}"#, vec!["at /city:", "at /days:"]),
            ("{", vec!["not valid JSON", "line 1"]),
            (r#"{"city": "Ulm", "city": "Rom"}"#, vec!["\"city\" appears twice"]),
            ("[]", vec!["must be a JSON object"]),
            ("\"x\"", vec!["must be a JSON object"]),
            ("", vec!["city"]),
        ] {
            let fault = weather().check(arguments).unwrap_err();
            for part in parts {
                assert!(fault.contains(part), "{arguments}: {fault}");
            }
        }
        assert_eq!(weather().check(r#"{"city": "Ulm", "days": 2}"#), Ok(()));
    }

    #[test]
    fn nothing_written_is_an_empty_object() {
        let schema = compile(&json!({"type": "object"})).unwrap();
        assert_eq!(schema.check(" \n"), Ok(()));
        assert_eq!(or_empty_object("  "), "{}");
        assert_eq!(or_empty_object(r#"{"a":1}"#), r#"{"a":1}"#);
    }

    #[test]
    fn faults_are_bounded_and_do_not_repeat_what_the_model_wrote() {
        let schema =
            compile(&json!({"type": "object", "additionalProperties": {"type": "integer"}})).unwrap();
        let secret = "s3cret".repeat(1_000);
        let fields: serde_json::Map<String, Value> =
            (0..100).map(|index| (format!("f{index}"), json!(secret))).collect();
        let fault = schema.check(&Value::Object(fields).to_string()).unwrap_err();
        assert!(fault.ends_with("and more") && fault.len() < 1_000, "{fault}");
        assert!(!fault.contains("s3cret"));
    }

    #[test]
    fn arguments_are_bounded() {
        let schema = compile(&json!({"type": "object"})).unwrap();
        let large = format!("{{\"a\":\"{}\"}}", "x".repeat(TOOL_ARGUMENTS_BYTES_MAX));
        assert!(schema.check(&large).unwrap_err().contains("larger than"));
        let deep = format!("{{\"a\":{}1{}}}", "[".repeat(JSON_DEPTH_MAX), "]".repeat(JSON_DEPTH_MAX));
        assert!(schema.check(&deep).unwrap_err().contains("nested deeper"));
        let bottomless = "[".repeat(100_000);
        assert!(schema.check(&bottomless).unwrap_err().contains("not valid JSON"));
    }

    #[test]
    fn a_costly_pattern_gives_up() {
        let schema = compile(&json!({
            "type": "object",
            "properties": {"a": {"type": "string", "pattern": "^(?=(a+)+$)(a+)+\\1$"}}
        }))
        .unwrap();
        let arguments = json!({"a": format!("{}b", "a".repeat(200))}).to_string();
        assert!(schema.check(&arguments).is_err());
    }

    #[test]
    fn other_drafts_work_when_they_are_named() {
        let schema = compile(&json!({
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"pair": {"type": "array", "items": [{"type": "string"}, {"type": "integer"}]}}
        }))
        .unwrap();
        assert_eq!(schema.check(r#"{"pair": ["a", 1]}"#), Ok(()));
        assert!(schema.check(r#"{"pair": [1, "a"]}"#).is_err());
    }
}
