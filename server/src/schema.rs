//! JSON schemas from outside: hosts, callers and the configuration send them.
//!
//! A schema may be hostile. So it may refer to nothing outside itself, and its regular expressions and the cost of applying it
//! are bounded.

use std::collections::HashMap;

use agentloop_core::limits::{JSON_DEPTH_MAX, TOOL_SCHEMA_BYTES_MAX};
use jsonschema::{PatternOptions, Validator};
use serde_json::Value;

/// Backtracking steps after which a regular expression gives up.
const BACKTRACKING_MAX: usize = 100_000;
/// Size limit of one compiled regular expression.
const PATTERN_BYTES_MAX: usize = 1024 * 1024;
/// References that one schema may contain.
const REFERENCES_MAX: usize = 512;
/// Schema nodes that may be visited when every reference is followed. Nested references can double this at each level.
const COST_MAX: u64 = 250_000;
/// Bytes of the text of one fault.
const FAULT_BYTES_MAX: usize = 300;

/// Checks the schema of a model's final message. The bounds are those of a tool's schema.
///
/// # Errors
/// The reason for the refusal, for whoever wrote the schema.
pub(crate) fn check_response_schema(text: &str) -> Result<(), String> {
    build("response", &parse("response", text)?).map(drop)
}

/// Reads the text of a schema. `what` names it in the reason for a refusal.
///
/// # Errors
/// The reason for the refusal.
pub(crate) fn parse(what: &str, text: &str) -> Result<Value, String> {
    if text.len() > TOOL_SCHEMA_BYTES_MAX {
        return Err(format!("the {what} schema is larger than {TOOL_SCHEMA_BYTES_MAX} bytes"));
    }
    serde_json::from_str(text).map_err(|fault| format!("the {what} schema is not JSON: {fault}"))
}

/// Checks the bounds of a schema and compiles it.
///
/// # Errors
/// The reason for the refusal.
pub(crate) fn build(what: &str, schema: &Value) -> Result<Validator, String> {
    check_depth(schema).map_err(|fault| format!("the {what} schema is {fault}"))?;
    check_references(what, schema)?;
    let patterns =
        PatternOptions::fancy_regex().backtrack_limit(BACKTRACKING_MAX).size_limit(PATTERN_BYTES_MAX);
    jsonschema::options().offline().with_pattern_options(patterns).build(schema).map_err(|fault| {
        format!(
            "the {what} schema is not valid at {}: {}",
            location(fault.instance_path().as_str()),
            truncate(fault.to_string())
        )
    })
}

/// The place of a fault, for people.
pub(crate) fn location(path: &str) -> &str {
    if path.is_empty() { "the top level" } else { path }
}

/// The text of a fault, cut where it is long.
pub(crate) fn truncate(mut text: String) -> String {
    if text.len() > FAULT_BYTES_MAX {
        text.truncate(text.floor_char_boundary(FAULT_BYTES_MAX));
        text.push('…');
    }
    text
}

/// Refuses deep nesting. The recursion is bounded because the parser has a limit of its own.
///
/// # Errors
/// The limit, for people.
pub(crate) fn check_depth(value: &Value) -> Result<(), String> {
    if depth(value) > JSON_DEPTH_MAX {
        return Err(format!("nested deeper than {JSON_DEPTH_MAX} levels"));
    }
    Ok(())
}

/// Levels of arrays and objects within each other; 0 for anything else.
pub(crate) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or_default(),
        Value::Object(fields) => 1 + fields.values().map(depth).max().unwrap_or_default(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

fn check_references(what: &str, schema: &Value) -> Result<(), String> {
    let mut references = References { root: schema, costs: HashMap::new(), followed: 0 };
    let cost = references.cost(schema).map_err(|fault| format!("the {what} schema {fault}"))?;
    if cost > COST_MAX {
        return Err(format!("the {what} schema is too costly to apply: its references multiply"));
    }
    Ok(())
}

/// Counts the nodes that applying a schema visits.
struct References<'a> {
    root: &'a Value,
    /// Cost by the address of a node; nodes do not move. A node whose sum is incomplete counts as one: a cycle back to
    /// it goes deeper into the instance, whose depth is bounded.
    costs: HashMap<*const Value, u64>,
    followed: usize,
}

impl<'a> References<'a> {
    fn cost(&mut self, node: &'a Value) -> Result<u64, String> {
        let key = std::ptr::from_ref(node);
        if let Some(known) = self.costs.get(&key) {
            return Ok(*known);
        }
        self.costs.insert(key, 1);
        let mut cost: u64 = 1;
        match node {
            Value::Array(items) => {
                for item in items {
                    cost = cost.saturating_add(self.cost(item)?);
                }
            }
            Value::Object(fields) => {
                for (name, value) in fields {
                    let target = self.target(name, value)?;
                    cost = cost.saturating_add(self.cost(target.unwrap_or(value))?);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        self.costs.insert(key, cost);
        Ok(cost)
    }

    fn target(&mut self, name: &str, value: &Value) -> Result<Option<&'a Value>, String> {
        let Some(reference) = value.as_str().filter(|_| name == "$ref" || name == "$dynamicRef") else {
            return Ok(None);
        };
        self.followed += 1;
        if self.followed > REFERENCES_MAX {
            return Err(format!("has more than {REFERENCES_MAX} references"));
        }
        let pointer = reference.strip_prefix('#').filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let pointer = pointer
            .ok_or_else(|| format!("refers to {reference:?}; only \"#/…\" within the schema is taken"))?;
        let target = self.root.pointer(pointer);
        target.map(Some).ok_or_else(|| format!("refers to {reference:?}, which it does not have"))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn refused(schema: &Value, because: &str) {
        let reason = check_response_schema(&schema.to_string()).expect_err("refused");
        assert!(reason.contains(because), "{reason}");
    }

    #[test]
    fn references_that_multiply_are_refused() {
        let mut defs = serde_json::Map::new();
        for level in 0..40 {
            let next = json!({"$ref": format!("#/$defs/d{}", level + 1)});
            defs.insert(format!("d{level}"), json!({"allOf": [next, next]}));
        }
        defs.insert("d40".into(), json!({"type": "object"}));
        refused(&json!({"type": "object", "$ref": "#/$defs/d0", "$defs": defs}), "multiply");
        let many: Vec<Value> = (0..=REFERENCES_MAX).map(|_| json!({"$ref": "#"})).collect();
        refused(&json!({"type": "object", "anyOf": many}), "references");
    }

    #[test]
    fn schemas_that_are_none_are_refused() {
        refused(&json!({"type": "list"}), "the response schema is not valid at /type");
        refused(&json!({"$ref": "#/$defs/no"}), "does not have");
        refused(&json!({"properties": {"a": {"pattern": "("}}}), "/properties/a/pattern");
        assert_eq!(check_response_schema(r#"{"anyOf": [{"type": "null"}, {"type": "object"}]}"#), Ok(()));
    }
}
