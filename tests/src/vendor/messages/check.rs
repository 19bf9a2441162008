//! The rules for requests of Messages.

use serde_json::Value;

use super::prefix;
use super::traits::{self, Forced, Traits};
use crate::vendor::Asked;
use crate::vendor::issued::Issued;
use crate::vendor::refusal::{Refusal, bad, ensure};
use crate::vendor::request::{family, list, text};
use crate::vendor::schema;

const VERSIONS: [&str; 2] = ["2023-06-01", "2026-10-21"];
const SAMPLING: [&str; 3] = ["temperature", "top_p", "top_k"];
const BUDGET_TOKENS_MIN: u64 = 1024;
const FIELDS: [&str; 21] = [
    "cache_control",
    "container",
    "context_management",
    "inference_geo",
    "max_tokens",
    "mcp_servers",
    "messages",
    "metadata",
    "model",
    "output_config",
    "service_tier",
    "speed",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

pub(in crate::vendor) fn check(asked: &Asked, issued: &Issued) -> Result<(), Refusal> {
    let version = asked.headers.get("anthropic-version").map(String::as_str);
    let Some(version) = version else { return Err(bad("anthropic-version: header is required")) };
    ensure(VERSIONS.contains(&version), || {
        bad(format!("anthropic-version: \"{version}\" is not a valid version"))
    })?;
    ensure(asked.body["max_tokens"].is_u64(), || bad("max_tokens: Field required"))?;
    let unknown = asked.unknown(&FIELDS);
    ensure(unknown.is_none(), || {
        bad(format!("{}: Extra inputs are not permitted", unknown.unwrap_or_default()))
    })?;
    strict(asked)?;
    let traits = traits::of(&asked.model);
    thinking(asked, &traits)?;
    sampling(asked, &traits, version)?;
    let messages = prefix::merged(asked.list("messages"));
    ensure(!messages.is_empty(), || bad("messages: at least one message is required"))?;
    contents(&messages, version)?;
    paired(&messages)?;
    let last = messages.last().map(|message| text(message, "role"));
    ensure(traits.prefill || last == Some("user"), || {
        bad(
            "This model does not support assistant message prefill. The conversation must end with a user message.",
        )
    })?;
    thought_begins(asked, &messages)?;
    for (at, message) in messages.iter().enumerate() {
        for number in 0..list(message, "content").len() {
            thought(asked, &messages, at, number, traits.binds, issued)?;
        }
    }
    Ok(())
}

fn strict(asked: &Asked) -> Result<(), Refusal> {
    for (at, tool) in asked.list("tools").iter().enumerate() {
        if tool["strict"] == true {
            schema::anthropic(&tool["input_schema"], &format!("tools.{at}.custom.input_schema"))?;
        }
    }
    let format = &asked.body["output_config"]["format"];
    if format.is_null() {
        Ok(())
    } else {
        schema::anthropic(&format["schema"], "output_config.format.schema")
    }
}

fn thinking(asked: &Asked, traits: &Traits) -> Result<(), Refusal> {
    let thinking = &asked.body["thinking"];
    let kind = text(thinking, "type");
    if asked.has("thinking") {
        ensure(traits.thinking.contains(&kind), || {
            bad(format!(
                "thinking.type: \"{kind}\" is not supported for this model; use {:?}",
                traits.thinking
            ))
        })?;
    }
    if kind == "enabled" {
        let budget = thinking["budget_tokens"].as_u64().unwrap_or_default();
        ensure(budget >= BUDGET_TOKENS_MIN, || {
            bad("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        })?;
        ensure(asked.body["max_tokens"].as_u64() > Some(budget), || {
            bad("`max_tokens` must be greater than `thinking.budget_tokens`.")
        })?;
    }
    if let Some(effort) = asked.body["output_config"]["effort"].as_str() {
        ensure(traits.efforts.contains(&effort), || {
            bad(format!("output_config.effort: '{effort}' is not supported by this model"))
        })?;
    }
    let forced = matches!(text(&asked.body["tool_choice"], "type"), "any" | "tool");
    let may = match traits.forced {
        Forced::Always => true,
        Forced::WithoutBudget => kind != "enabled",
        Forced::Never => false,
    };
    ensure(!forced || may, || bad("Thinking may not be enabled when tool_choice forces tool use."))
}

fn sampling(asked: &Asked, traits: &Traits, version: &str) -> Result<(), Refusal> {
    let Some(parameter) = asked.first_of(&SAMPLING) else { return Ok(()) };
    ensure(traits.sampling && version == VERSIONS[0], || {
        bad(format!("`{parameter}` is not supported for this model."))
    })?;
    let both = asked.has("temperature") && asked.has("top_p");
    ensure(!(both && traits.efforts.is_empty()), || {
        bad("`temperature` and `top_p` cannot both be specified for this model. Please use only one.")
    })
}

fn contents(messages: &[Value], version: &str) -> Result<(), Refusal> {
    for (at, message) in messages.iter().enumerate() {
        let role = text(message, "role");
        ensure(matches!(role, "user" | "assistant" | "system"), || {
            bad(format!("messages.{at}.role: Input should be 'user' or 'assistant'"))
        })?;
        for (number, block) in list(message, "content").iter().enumerate() {
            let place = format!("messages.{at}.content.{number}");
            let kind = text(block, "type");
            ensure(kind != "text" || !text(block, "text").is_empty(), || {
                bad("messages: text content blocks must be non-empty")
            })?;
            ensure(kind != "tool_use" || block["input"].is_object(), || {
                bad(format!("{place}.tool_use.input: Input should be a valid dictionary"))
            })?;
            if version == VERSIONS[0] {
                continue;
            }
            ensure(!(kind == "document" && role == "assistant"), || {
                bad(format!("{place}: `document` blocks are not allowed in assistant messages"))
            })?;
            let cites = role == "user" && kind == "text" && !list(block, "citations").is_empty();
            ensure(!cites, || bad(format!("{place}: `citations` are not allowed in user text blocks")))?;
        }
    }
    Ok(())
}

/// All results of a message's calls are first in the next message.
fn paired(messages: &[Value]) -> Result<(), Refusal> {
    let ids = |message: Option<&Value>, kind: &str, field: &str| -> Vec<String> {
        let blocks = message.map_or(&[][..], |message| list(message, "content"));
        let of_kind = blocks.iter().filter(|block| block["type"] == kind);
        of_kind.map(|block| text(block, field).to_owned()).collect()
    };
    for (at, message) in messages.iter().enumerate() {
        let calls = ids(Some(message), "tool_use", "id");
        let next = messages.get(at + 1);
        let blocks = next.map_or(&[][..], |next| list(next, "content"));
        let first = blocks.iter().take_while(|block| block["type"] == "tool_result");
        let answered: Vec<&str> = first.map(|block| text(block, "tool_use_id")).collect();
        let missing: Vec<&str> =
            calls.iter().map(String::as_str).filter(|id| !answered.contains(id)).collect();
        ensure(missing.is_empty(), || {
            bad(format!(
                "messages.{at}: `tool_use` ids were found without `tool_result` blocks immediately after: {}. Each \
                 `tool_use` block must have a corresponding `tool_result` block in the next message.",
                missing.join(", ")
            ))
        })?;
        let results = ids(Some(message), "tool_result", "tool_use_id");
        let before = ids(at.checked_sub(1).map(|before| &messages[before]), "tool_use", "id");
        let orphan = results.iter().find(|id| !before.contains(id));
        ensure(orphan.is_none(), || {
            bad(format!("messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {orphan:?}"))
        })?;
    }
    Ok(())
}

/// With a budget to think, the model's message that is being answered begins with a thought.
fn thought_begins(asked: &Asked, messages: &[Value]) -> Result<(), Refusal> {
    if asked.body["thinking"]["type"] != "enabled" {
        return Ok(());
    }
    let at = messages.iter().rposition(|message| message["role"] == "assistant");
    let Some(at) = at else { return Ok(()) };
    let content = list(&messages[at], "content");
    let calls = content.iter().any(|block| block["type"] == "tool_use");
    let kind = content.first().map_or("", |block| text(block, "type"));
    ensure(!calls || matches!(kind, "thinking" | "redacted_thinking"), || {
        bad(format!(
            "messages.{at}.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When \
             `thinking` is enabled, a final `assistant` message must start with a thinking block."
        ))
    })
}

/// A thought is this vendor's and this model's, is unchanged, and stands where it stood.
fn thought(
    asked: &Asked,
    messages: &[Value],
    at: usize,
    number: usize,
    binds: bool,
    issued: &Issued,
) -> Result<(), Refusal> {
    let content = list(&messages[at], "content");
    let block = &content[number];
    let kind = text(block, "type");
    let (signature, said) = match kind {
        "thinking" => (text(block, "signature"), text(block, "thinking")),
        "redacted_thinking" => (text(block, "data"), text(block, "data")),
        _ => return Ok(()),
    };
    let given = issued.thoughts.get(signature);
    let own = given.filter(|given| given.text == said && given.family == family(&asked.model));
    let Some(own) = own else {
        return Err(bad(format!("messages.{at}.content.{number}: Invalid `signature` in `{kind}` block")));
    };
    let unchanged = own.prefix == prefix::of(asked, &messages[..at], &content[..number]);
    ensure(!binds || unchanged, || {
        bad(format!(
            "messages.{at}.content.{number}: `{kind}` block cannot be used here. The block is bound to a different \
             conversation"
        ))
    })
}
