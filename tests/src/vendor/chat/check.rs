//! The rules for requests of Chat Completions.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{Flavour, flavour};
use crate::vendor::issued::Issued;
use crate::vendor::openai::{check_effort, check_sampling, starts, unsupported};
use crate::vendor::refusal::{Refusal, bad, ensure};
use crate::vendor::request::{list, text};
use crate::vendor::schema;
use crate::vendor::{Asked, DUMMY_SIGNATURE, Format};

/// Every field that OpenAI knows.
const FIELDS: [&str; 36] = [
    "audio",
    "frequency_penalty",
    "function_call",
    "functions",
    "logit_bias",
    "logprobs",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "modalities",
    "model",
    "n",
    "parallel_tool_calls",
    "prediction",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_logprobs",
    "top_p",
    "user",
    "verbosity",
    "web_search_options",
];

pub(in crate::vendor) fn check(asked: &Asked, issued: &Issued) -> Result<(), Refusal> {
    let messages = asked.list("messages");
    ensure(!messages.is_empty(), || bad("Missing required parameter: 'messages'.").about("messages"))?;
    paired(messages)?;
    for tool in asked.list("tools") {
        ensure(tool["function"]["name"].is_string(), || {
            bad("Missing required parameter: 'tools[0].function'.").about("tools[0].function")
        })?;
    }
    match flavour(&asked.model) {
        Flavour::OpenAi => openai(asked),
        Flavour::Google => signatures(messages, issued),
        Flavour::DeepSeek => reasoning_content(messages, issued),
        Flavour::OpenRouter => reasoning_details(messages, issued),
        Flavour::Other => Ok(()),
    }
}

/// Every call is followed by its result, and every result follows its call.
fn paired(messages: &[Value]) -> Result<(), Refusal> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for message in messages {
        if message["role"] == "tool" {
            ensure(open.remove(text(message, "tool_call_id")), || {
                bad(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with \
                     'tool_calls'.",
                )
            })?;
            continue;
        }
        answered(&open)?;
        open.extend(list(message, "tool_calls").iter().map(|call| text(call, "id")));
    }
    answered(&open)
}

fn answered(open: &BTreeSet<&str>) -> Result<(), Refusal> {
    ensure(open.is_empty(), || {
        let ids = open.iter().copied().collect::<Vec<_>>().join(", ");
        bad(format!(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each \
             'tool_call_id'. The following tool_call_ids did not have response messages: {ids}"
        ))
    })
}

fn openai(asked: &Asked) -> Result<(), Refusal> {
    let model = asked.model.as_str();
    let unknown = asked.unknown(&FIELDS);
    ensure(unknown.is_none(), || bad(format!("Unrecognized request argument supplied: {unknown:?}")))?;
    strict(asked)?;
    let sent = asked.body["reasoning_effort"].as_str();
    let effort = check_effort(model, "reasoning_effort", sent)?;
    let counts_default = starts(model, &["gpt-5.5", "gpt-5.6", "gpt-6"]);
    let reasons = if counts_default { effort != "none" } else { sent.is_some_and(|effort| effort != "none") };
    let refuses_tools = counts_default || model.starts_with("gpt-5.4");
    ensure(!(refuses_tools && reasons && !asked.list("tools").is_empty()), || {
        bad(format!(
            "Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To use \
             function tools, use /v1/responses or set reasoning_effort to 'none'."
        ))
        .about("reasoning_effort")
    })?;
    ensure(sent != Some("max"), || unsupported("reasoning_effort"))?;
    if model.starts_with("gpt-6") {
        for param in ["max_tokens", "stop"] {
            ensure(!asked.has(param), || unsupported(param))?;
        }
    }
    check_sampling(asked, effort)
}

fn strict(asked: &Asked) -> Result<(), Refusal> {
    for (at, tool) in asked.list("tools").iter().enumerate() {
        let function = &tool["function"];
        if function["strict"] == true {
            schema::openai(&function["parameters"], &format!("tools[{at}].function.parameters"))?;
        }
    }
    let format = &asked.body["response_format"]["json_schema"];
    if format["strict"] == true { schema::openai(&format["schema"], "response_format") } else { Ok(()) }
}

/// Google's rule: in the current turn, the first call of each step has its signature or the dummy.
fn signatures(messages: &[Value], issued: &Issued) -> Result<(), Refusal> {
    let turn = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    for (at, message) in messages.iter().enumerate() {
        for (number, call) in list(message, "tool_calls").iter().enumerate() {
            let google = &call["extra_content"]["google"]["thought_signature"];
            match google.as_str() {
                Some(DUMMY_SIGNATURE) => {}
                Some(signature) => {
                    let signed = issued.signatures.get(signature);
                    let good =
                        signed.filter(|signed| signed.surface == Format::Chat && signed.of == call["id"]);
                    ensure(good.is_some(), || bad("Corrupted thought signature."))?;
                }
                None => ensure(at < turn || number > 0, || {
                    let name = text(&call["function"], "name");
                    bad(format!(
                        "Function call is missing a thought_signature in functionCall parts. This is required for \
                         tools to work correctly, and missing thought_signature may lead to degraded model \
                         performance. Additional data, function call `default_api:{name}` , position {at}."
                    ))
                })?,
            }
        }
    }
    Ok(())
}

/// DeepSeek's rule: a message with calls has the reasoning that led to them; an empty one where someone else made it.
fn reasoning_content(messages: &[Value], issued: &Issued) -> Result<(), Refusal> {
    for message in messages {
        let Some(first) = list(message, "tool_calls").first() else { continue };
        let given = message["reasoning_content"].as_str();
        let own = issued.reasoning.get(text(first, "id"));
        let good = given.is_some_and(|given| given.is_empty() || own.is_none_or(|own| own == given));
        ensure(good, || bad("The `reasoning_content` in the thinking mode must be passed back to the API."))?;
    }
    Ok(())
}

/// OpenRouter's rule: what came with calls goes back with them, in order and unchanged.
fn reasoning_details(messages: &[Value], issued: &Issued) -> Result<(), Refusal> {
    let turn = messages.iter().rposition(|message| message["role"] == "user").unwrap_or(0);
    for (at, message) in messages.iter().enumerate() {
        let first = list(message, "tool_calls").first().map_or("", |call| text(call, "id"));
        let given = &message["reasoning_details"];
        let own = issued.details.get(first).filter(|_| !first.is_empty());
        let good = match own {
            Some(own) => given == own || (given.is_null() && at < turn),
            None => given.is_null() || issued.details.values().any(|details| details == given),
        };
        ensure(good, || {
            bad(format!("messages.{at}: reasoning_details are not the ones that came with this message"))
        })?;
    }
    Ok(())
}
