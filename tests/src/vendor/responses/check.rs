//! The rules for requests of Responses.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::vendor::Asked;
use crate::vendor::issued::{Issued, Item};
use crate::vendor::openai::{check_effort, check_sampling};
use crate::vendor::refusal::{Refusal, bad, ensure};
use crate::vendor::request::{family, list, text};
use crate::vendor::schema;

/// Every field that a request may have.
const FIELDS: [&str; 30] = [
    "background",
    "context_management",
    "conversation",
    "include",
    "input",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "model",
    "parallel_tool_calls",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];
const CALL_ID_CHARACTERS_MAX: usize = 64;

pub(in crate::vendor) fn check(asked: &Asked, issued: &Issued) -> Result<(), Refusal> {
    fields(asked)?;
    let effort = asked.body["reasoning"]["effort"].as_str();
    let effort = check_effort(&asked.model, "reasoning.effort", effort)?;
    check_sampling(asked, effort)?;
    ensure(asked.body["store"] == false, || {
        bad("This test keeps nothing: 'store' must be false.").about("store")
    })?;
    let wants = asked.list("include").iter().any(|what| what == "reasoning.encrypted_content");
    ensure(wants || effort == "none", || {
        bad("Without 'store', 'include' must ask for 'reasoning.encrypted_content'.").about("include")
    })?;
    for (at, tool) in asked.list("tools").iter().enumerate() {
        declared(at, tool)?;
    }
    let input = asked.list("input");
    ensure(asked.body["input"].is_string() || !input.is_empty(), || {
        bad("Missing required parameter: 'input'.").about("input")
    })?;
    for (at, item) in input.iter().enumerate() {
        shaped(at, item)?;
        known(input, at, asked, issued)?;
    }
    paired(input)
}

fn fields(asked: &Asked) -> Result<(), Refusal> {
    if let Some(name) = asked.unknown(&FIELDS) {
        return Err(bad(format!("Unknown parameter: '{name}'.")).about(name).coded("unknown_parameter"));
    }
    let format = &asked.body["text"]["format"];
    if format["strict"] == true {
        schema::openai(&format["schema"], "text.format.schema")?;
    }
    ensure(!asked.has("previous_response_id"), || {
        bad("Previous response cannot be used for this organization due to Zero Data Retention.")
            .about("previous_response_id")
    })
}

fn declared(at: usize, tool: &Value) -> Result<(), Refusal> {
    if tool["type"] != "function" {
        return Ok(());
    }
    for field in ["name", "parameters", "strict"] {
        ensure(tool.get(field).is_some(), || {
            let param = format!("tools[{at}].{field}");
            bad(format!("Missing required parameter: '{param}'."))
                .about(param)
                .coded("missing_required_parameter")
        })?;
    }
    if tool["strict"] == true {
        return schema::openai(&tool["parameters"], &format!("tools[{at}].parameters"));
    }
    Ok(())
}

fn shaped(at: usize, item: &Value) -> Result<(), Refusal> {
    let call_id = match text(item, "type") {
        "function_call" | "function_call_output" => text(item, "call_id"),
        "" | "message" => {
            let user = item["role"] == "user" && item.get("phase").is_some();
            return ensure(!user, || bad("'phase' is only supported on assistant messages."));
        }
        "reasoning" => return Ok(()),
        "item_reference" => return Err(not_kept(text(item, "id"))),
        other => return Err(bad(format!("Invalid value: '{other}'.")).about(format!("input[{at}].type"))),
    };
    ensure((1..=CALL_ID_CHARACTERS_MAX).contains(&call_id.chars().count()), || {
        bad(format!(
            "Invalid 'input[{at}].call_id': expected a string of 1 to {CALL_ID_CHARACTERS_MAX} characters, got {call_id:?}."
        ))
        .about(format!("input[{at}].call_id"))
    })
}

fn not_kept(id: &str) -> Refusal {
    let message = format!(
        "Item with id '{id}' not found. Items are not persisted when `store` is set to false. Try again with `store` \
         set to true, or remove this item from your input."
    );
    Refusal::new(404, message).about("input")
}

/// State is the vendor's own, unchanged and in its place.
fn known(input: &[Value], at: usize, asked: &Asked, issued: &Issued) -> Result<(), Refusal> {
    let item = &input[at];
    let id = text(item, "id");
    if item["type"] == "reasoning" {
        let content = text(item, "encrypted_content");
        ensure(!content.is_empty(), || not_kept(id))?;
        let given = issued.items.values().find(|given| given.item["encrypted_content"] == content);
        let own = given
            .filter(|given| given.family == family(&asked.model) && given.item["summary"] == item["summary"]);
        let own = own.filter(|given| id.is_empty() || given.item["id"] == id);
        let Some(own) = own else { return Err(unverified(id)) };
        return followed(own, input.get(at + 1));
    }
    if !id.starts_with("fc_") && !id.starts_with("msg_") {
        return Ok(());
    }
    let Some(given) = issued.items.get(id) else { return Err(not_kept(id)) };
    let Some(reasoning) = &given.reasoning else { return Ok(()) };
    ensure(input[..at].iter().any(|before| before["id"] == *reasoning), || {
        bad(format!(
            "Item '{id}' of type '{}' was provided without its required 'reasoning' item: '{reasoning}'.",
            text(&given.item, "type")
        ))
        .about("input")
    })
}

fn unverified(id: &str) -> Refusal {
    let message = format!(
        "The encrypted content for item {id} could not be verified. Reason: Encrypted content could not be decrypted \
         or parsed."
    );
    bad(message).coded("invalid_encrypted_content")
}

/// Right after a thought comes the item that came after it before.
fn followed(own: &Item, next: Option<&Value>) -> Result<(), Refusal> {
    let Some(following) = &own.following else { return Ok(()) };
    let same = next.is_some_and(|next| match text(following, "type") {
        "function_call" => {
            ["call_id", "name", "arguments"].iter().all(|field| next[field] == following[field])
        }
        "reasoning" => next["encrypted_content"] == following["encrypted_content"],
        _ => next["role"] == "assistant" && said(next) == said(following),
    });
    ensure(same, || {
        let id = text(&own.item, "id");
        bad(format!("Item '{id}' of type 'reasoning' was provided without its required following item."))
            .about("input")
    })
}

/// The text of a message, in either form.
fn said(message: &Value) -> String {
    let parts = list(message, "content").iter().map(|part| text(part, "text"));
    message["content"].as_str().map_or_else(|| parts.collect(), str::to_owned)
}

fn paired(input: &[Value]) -> Result<(), Refusal> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for item in input {
        let id = text(item, "call_id");
        match text(item, "type") {
            "function_call" => {
                open.insert(id);
            }
            "function_call_output" => ensure(open.remove(id), || {
                bad(format!("No tool call found for function call output with call_id {id}.")).about("input")
            })?,
            _ => {}
        }
    }
    let left = open.first();
    ensure(left.is_none(), || {
        let id = left.copied().unwrap_or_default();
        bad(format!("No tool output found for function call {id}.")).about("input")
    })
}
