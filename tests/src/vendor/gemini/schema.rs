//! The part of JSON Schema that Gemini knows.

use serde_json::Value;

use crate::vendor::refusal::{Refusal, bad, ensure};

/// Keywords allowed in `parametersJsonSchema`.
const JSON_SCHEMA: [&str; 22] = [
    "$id",
    "$defs",
    "$ref",
    "$anchor",
    "type",
    "format",
    "title",
    "description",
    "enum",
    "items",
    "prefixItems",
    "minItems",
    "maxItems",
    "minimum",
    "maximum",
    "anyOf",
    "oneOf",
    "properties",
    "additionalProperties",
    "required",
    "propertyOrdering",
    "default",
];
/// Keywords allowed in `parameters`.
const OPEN_API: [&str; 22] = [
    "type",
    "format",
    "title",
    "description",
    "nullable",
    "enum",
    "items",
    "properties",
    "required",
    "anyOf",
    "minItems",
    "maxItems",
    "minProperties",
    "maxProperties",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "pattern",
    "default",
    "example",
    "propertyOrdering",
];

/// Refuses a declaration of a function with keywords that are not known.
pub(super) fn check(at: usize, declaration: &Value) -> Result<(), Refusal> {
    let (old, new) = (&declaration["parameters"], &declaration["parametersJsonSchema"]);
    let place = format!("tools[0].function_declarations[{at}]");
    ensure(old.is_null() || new.is_null(), || {
        bad(format!("{place}: only one of parameters and parameters_json_schema can be set"))
    })?;
    known(old, &OPEN_API, &format!("{place}.parameters"))?;
    known(new, &JSON_SCHEMA, &format!("{place}.parameters_json_schema"))
}

fn known(schema: &Value, keywords: &[&str], place: &str) -> Result<(), Refusal> {
    let Some(fields) = schema.as_object() else { return Ok(()) };
    for (keyword, value) in fields {
        ensure(keywords.contains(&keyword.as_str()), || {
            bad(format!(
                "Invalid JSON payload received. Unknown name \"{keyword}\" at '{place}': Cannot find field."
            ))
        })?;
        match (keyword.as_str(), value) {
            ("properties" | "$defs", Value::Object(schemas)) => {
                for (name, schema) in schemas {
                    known(schema, keywords, &format!("{place}.{name}"))?;
                }
            }
            ("anyOf" | "oneOf" | "prefixItems", Value::Array(schemas)) => {
                for (at, schema) in schemas.iter().enumerate() {
                    known(schema, keywords, &format!("{place}.{keyword}[{at}]"))?;
                }
            }
            ("items" | "additionalProperties", schema) => {
                known(schema, keywords, &format!("{place}.{keyword}"))?;
            }
            _ => {}
        }
    }
    Ok(())
}
