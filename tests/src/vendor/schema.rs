//! The parts of JSON Schema that OpenAI and Anthropic compile where a schema is strict.

use serde_json::Value;

use super::refusal::{Refusal, bad, ensure};
use super::request::list;

/// OpenAI's list of what its strict mode does not know.
const OPENAI_LACKS: [&str; 16] = [
    "allOf",
    "not",
    "if",
    "default",
    "minLength",
    "maxLength",
    "patternProperties",
    "propertyNames",
    "minProperties",
    "maxProperties",
    "unevaluatedProperties",
    "unevaluatedItems",
    "contains",
    "minContains",
    "maxContains",
    "uniqueItems",
];
/// All that Anthropic's knows.
const ANTHROPIC_KNOWS: [&str; 15] = [
    "type",
    "title",
    "description",
    "properties",
    "required",
    "additionalProperties",
    "enum",
    "const",
    "anyOf",
    "allOf",
    "$ref",
    "$defs",
    "items",
    "minItems",
    "format",
];

/// Refuses what OpenAI does not compile. The root is an object, every property is required, and there are no others.
pub(super) fn openai(schema: &Value, param: &str) -> Result<(), Refusal> {
    let invalid =
        |why: String| bad(format!("Invalid schema: {why}")).about(param).coded("invalid_json_schema");
    ensure(schema["type"] == "object" && schema["anyOf"].is_null(), || {
        invalid("schema must be a JSON Schema of 'type: \"object\"'".to_owned())
    })?;
    each(schema, &mut |schema| {
        let lacks = OPENAI_LACKS.iter().find(|keyword| schema.get(**keyword).is_some());
        ensure(lacks.is_none(), || invalid(format!("{lacks:?} is not permitted")))?;
        let Some(properties) = schema["properties"].as_object() else { return Ok(()) };
        let required = list(schema, "required");
        let missing = properties.keys().find(|name| !required.iter().any(|required| *required == **name));
        ensure(missing.is_none(), || {
            invalid(format!("'required' is required to include every key in properties. Missing {missing:?}"))
        })?;
        closed(schema, &invalid)
    })
}

/// Refuses what Anthropic does not compile. Objects have no properties but those that are named.
pub(super) fn anthropic(schema: &Value, place: &str) -> Result<(), Refusal> {
    let invalid = |why: String| bad(format!("{place}: {why}"));
    each(schema, &mut |schema| {
        let keywords = schema.as_object().into_iter().flat_map(|fields| fields.keys());
        let unknown = keywords.map(String::as_str).find(|keyword| !ANTHROPIC_KNOWS.contains(keyword));
        ensure(unknown.is_none(), || invalid(format!("property {unknown:?} is not supported")))?;
        if schema["type"] == "object" { closed(schema, &invalid) } else { Ok(()) }
    })
}

fn closed(schema: &Value, invalid: &dyn Fn(String) -> Refusal) -> Result<(), Refusal> {
    ensure(schema["additionalProperties"] == false, || {
        invalid("'additionalProperties' is required to be supplied and to be false".to_owned())
    })
}

/// A schema and all schemas in it.
fn each(schema: &Value, check: &mut dyn FnMut(&Value) -> Result<(), Refusal>) -> Result<(), Refusal> {
    check(schema)?;
    for named in ["properties", "$defs"] {
        for schema in schema[named].as_object().into_iter().flat_map(|schemas| schemas.values()) {
            each(schema, check)?;
        }
    }
    for several in ["anyOf", "allOf", "prefixItems"] {
        for schema in list(schema, several) {
            each(schema, check)?;
        }
    }
    if schema["items"].is_object() { each(&schema["items"], check) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(property: Value) -> Value {
        json!({
            "type": "object", "properties": { "p": property }, "required": ["p"], "additionalProperties": false,
        })
    }

    #[test]
    fn strict_schemas_have_the_keywords_that_are_compiled() {
        let good = [
            object(json!({ "type": "string" })),
            object(
                json!({ "anyOf": [{ "type": "null" }, { "type": "array", "items": { "type": "number" } }] }),
            ),
            object(object(json!({ "enum": ["a", "b"] }))),
        ];
        for schema in good {
            openai(&schema, "tools").expect("OpenAI takes it");
            anthropic(&schema, "tools").expect("Anthropic takes it");
        }
        let loose = json!({ "type": "object", "properties": { "p": { "type": "string" } } });
        let bad = [
            loose.clone(),
            object(loose),
            object(json!({ "type": "string", "maxLength": 3 })),
            object(json!({ "type": "array", "items": { "type": "string", "default": "x" } })),
        ];
        for schema in bad {
            openai(&schema, "tools").expect_err("OpenAI refuses it");
            anthropic(&schema, "tools").expect_err("Anthropic refuses it");
        }
        let optional = json!({ "type": "object", "properties": { "p": {} }, "additionalProperties": false });
        openai(&optional, "tools").expect_err("OpenAI wants every property");
        anthropic(&optional, "tools").expect("Anthropic does not");
        let bounded = object(json!({ "type": "integer", "minimum": 1 }));
        openai(&bounded, "tools").expect("OpenAI knows bounds of numbers");
        anthropic(&bounded, "tools").expect_err("Anthropic knows none");
        openai(&json!({ "anyOf": [] }), "tools").expect_err("the root is an object");
    }
}
