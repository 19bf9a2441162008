//! The rules for requests of `generateContent`.

use serde_json::Value;

use super::schema;
use crate::vendor::issued::Issued;
use crate::vendor::openai::starts;
use crate::vendor::refusal::{Refusal, bad, ensure};
use crate::vendor::request::{list, text};
use crate::vendor::{Asked, DUMMY_SIGNATURE, Format};

const FIELDS: [&str; 8] = [
    "contents",
    "tools",
    "toolConfig",
    "safetySettings",
    "systemInstruction",
    "generationConfig",
    "cachedContent",
    "labels",
];
const NAME_CHARACTERS_MAX: usize = 64;
/// Models that have no parameters of sampling.
const NO_SAMPLING: [&str; 4] =
    ["gemini-3.5-flash-lite", "gemini-3.6-flash", "gemini-3.7-flash", "gemini-3.8-flash"];
/// Models that cannot think as little as this.
const NOT_MINIMAL: [&str; 5] =
    ["gemini-3.1-pro", "gemini-3.7-flash", "gemini-3.8-flash", "gemini-4-argon", "gemini-4-carbon"];

pub(in crate::vendor) fn check(asked: &Asked, issued: &Issued) -> Result<(), Refusal> {
    ensure(asked.query.split('&').any(|pair| pair == "alt=sse"), || {
        bad("Without alt=sse the answer is no stream of events.")
    })?;
    let unknown = asked.unknown(&FIELDS);
    ensure(unknown.is_none(), || {
        let name = unknown.unwrap_or_default();
        bad(format!("Invalid JSON payload received. Unknown name \"{name}\": Cannot find field."))
    })?;
    configured(asked)?;
    let declared = asked.list("tools").iter().flat_map(|tool| list(tool, "functionDeclarations"));
    for (at, declaration) in declared.enumerate() {
        named(at, text(declaration, "name"))?;
        schema::check(at, declaration)?;
    }
    let contents = asked.list("contents");
    ensure(!contents.is_empty(), || bad("* GenerateContentRequest.contents: contents is not specified"))?;
    for (at, content) in contents.iter().enumerate() {
        shaped(at, content)?;
        paired(contents, at)?;
    }
    signed(contents, &asked.model, issued)
}

fn is_new(model: &str) -> bool {
    starts(model, &["gemini-3", "gemini-4"])
}

fn configured(asked: &Asked) -> Result<(), Refusal> {
    let model = asked.model.as_str();
    let config = &asked.body["generationConfig"];
    for parameter in ["temperature", "topP", "topK"] {
        ensure(config[parameter].is_null() || !starts(model, &NO_SAMPLING), || {
            bad(format!("{parameter} is not supported by models/{model}."))
        })?;
    }
    let json = !config["responseMimeType"].is_null() && !asked.list("tools").is_empty();
    ensure(!json || is_new(model), || {
        bad("Function calling with a response mime type: 'application/json' is unsupported")
    })?;
    let thinking = &config["thinkingConfig"];
    if thinking.is_null() {
        return Ok(());
    }
    let thinks = is_new(model) || model.starts_with("gemini-2.5");
    ensure(thinks, || bad("Thinking is not enabled for this model. Remove the thinking_config."))?;
    let (level, budget) = (&thinking["thinkingLevel"], &thinking["thinkingBudget"]);
    ensure(level.is_null() || budget.is_null(), || {
        bad("You can only set only one of thinking budget and thinking level.")
    })?;
    ensure(level.is_null() || is_new(model), || bad("Thinking level is not supported for this model."))?;
    ensure(!(level == "MINIMAL" && starts(model, &NOT_MINIMAL)), || {
        bad(format!("Thinking level MINIMAL is not supported for models/{model}."))
    })?;
    let known = ["MINIMAL", "LOW", "MEDIUM", "HIGH"];
    ensure(level.is_null() || known.iter().any(|known| level == known), || {
        bad(format!("Invalid value at 'generation_config.thinking_config.thinking_level': {level}"))
    })
}

fn named(at: usize, name: &str) -> Result<(), Refusal> {
    let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
    let fits = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.:".contains(&byte));
    ensure(begins && fits && name.len() <= NAME_CHARACTERS_MAX, || {
        bad(format!(
            "* GenerateContentRequest.tools[0].function_declarations[{at}].name: Invalid function name. Must start \
             with a letter or an underscore."
        ))
    })
}

fn shaped(at: usize, content: &Value) -> Result<(), Refusal> {
    ensure(content["role"] == "user" || content["role"] == "model", || {
        bad("Please use a valid role: user, model.")
    })?;
    let parts = list(content, "parts");
    ensure(!parts.is_empty(), || {
        bad(format!("* GenerateContentRequest.contents[{at}].parts: contents.parts must not be empty."))
    })?;
    for part in parts {
        let data = ["text", "inlineData", "fileData", "functionCall", "functionResponse"];
        ensure(data.iter().filter(|field| part.get(**field).is_some()).count() == 1, || {
            bad(format!(
                "* GenerateContentRequest.contents[{at}].parts: required oneof field 'data' must have one initialized \
                 field"
            ))
        })?;
        let objects = [("functionCall", "args"), ("functionResponse", "response")];
        for (kind, field) in objects {
            let good = part.get(kind).is_none_or(|call| call[field].is_object());
            ensure(good, || {
                bad(format!("Invalid value at 'contents[{at}].parts': {kind}.{field} is no object"))
            })?;
        }
    }
    Ok(())
}

/// The parts of this kind.
fn of<'a>(content: Option<&'a Value>, kind: &'a str) -> Vec<&'a Value> {
    let parts = content.map_or(&[][..], |content| list(content, "parts"));
    parts.iter().filter_map(|part| part.get(kind)).collect()
}

/// Calls are directly followed by as many answers, each by its id or by name and order.
fn paired(contents: &[Value], at: usize) -> Result<(), Refusal> {
    let calls = of(Some(&contents[at]), "functionCall");
    let answers = of(contents.get(at + 1), "functionResponse");
    if !calls.is_empty() {
        ensure(calls.len() == answers.len(), || {
            bad(
                "Please ensure that the number of function response parts is equal to the number of function call \
                 parts of the function call turn.",
            )
        })?;
        for (number, answer) in answers.iter().enumerate() {
            let matches = match answer["id"].as_str() {
                Some(id) => calls.iter().any(|call| call["id"] == id && call["name"] == answer["name"]),
                None => calls[number]["name"] == answer["name"],
            };
            ensure(matches, || {
                bad("Please ensure that function responses match the function calls before them.")
            })?;
        }
        let follows = at > 0 && contents[at - 1]["role"] == "user";
        ensure(follows, || {
            bad(
                "Please ensure that function call turn comes immediately after a user turn or after a function \
                 response turn.",
            )
        })?;
    }
    let own = of(Some(&contents[at]), "functionResponse");
    let before = at.checked_sub(1).map(|before| of(contents.get(before), "functionCall"));
    ensure(own.is_empty() || before.is_some_and(|calls| !calls.is_empty()), || {
        bad("Please ensure that function response turn comes immediately after a function call turn.")
    })
}

/// Signatures are where they came; in the current turn, none of the first call of a step is missing.
fn signed(contents: &[Value], model: &str, issued: &Issued) -> Result<(), Refusal> {
    let asks = |content: &Value| {
        let says = list(content, "parts").iter().any(|part| part.get("functionResponse").is_none());
        content["role"] == "user" && says
    };
    let turn = contents.iter().rposition(asks).unwrap_or(0);
    for (at, content) in contents.iter().enumerate() {
        let mut calls = 0;
        for part in list(content, "parts") {
            let call = part.get("functionCall");
            match part["thoughtSignature"].as_str() {
                Some(DUMMY_SIGNATURE) => {}
                Some(signature) => {
                    let signed = issued.signatures.get(signature).filter(|s| s.surface == Format::Gemini);
                    let good = signed.is_some_and(|signed| is_same(&signed.of, part));
                    ensure(good, || bad("Corrupted thought signature."))?;
                }
                None => {
                    ensure(call.is_none() || calls > 0 || at < turn || !is_new(model), || missing(call, at))?
                }
            }
            calls += usize::from(call.is_some());
        }
    }
    Ok(())
}

fn is_same(signed: &Value, part: &Value) -> bool {
    match part.get("functionCall") {
        Some(call) => signed["name"] == call["name"] && signed["args"] == call["args"],
        None => *signed == part["text"],
    }
}

fn missing(call: Option<&Value>, at: usize) -> Refusal {
    let name = call.map_or("", |call| text(call, "name"));
    bad(format!(
        "Function call is missing a thought_signature in functionCall parts. This is required for tools to work \
         correctly, and missing thought_signature may lead to degraded model performance. Additional data, function \
         call `default_api:{name}` , position {at}. Please refer to \
         https://ai.google.dev/gemini-api/docs/thought-signatures for more details."
    ))
}
