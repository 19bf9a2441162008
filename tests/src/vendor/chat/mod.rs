//! Chat Completions, of OpenAI and of those who speak them too.

mod check;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub(super) use self::check::check;
pub(super) use self::stream::stream;
use super::issued::{Issued, Signed};
use super::openai::starts;
use super::{Asked, Format, Piece};

/// The maker of a model, known from the model's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flavour {
    OpenAi,
    /// Signs calls in `extra_content`, checks the signatures.
    Google,
    /// Wants its reasoning back as `reasoning_content`.
    DeepSeek,
    /// Wants its `reasoning_details` back.
    OpenRouter,
    /// Anyone else, who checks little.
    Other,
}

fn flavour(model: &str) -> Flavour {
    match model {
        m if m.contains('/') => Flavour::OpenRouter,
        m if starts(m, &["gemini-3", "gemini-4"]) => Flavour::Google,
        m if m.starts_with("deepseek") => Flavour::DeepSeek,
        m if starts(m, &["gpt-", "o1", "o3", "o4"]) => Flavour::OpenAi,
        _ => Flavour::Other,
    }
}

/// The whole answer, with what is given out noted.
pub(super) fn document(pieces: &[Piece], asked: &Asked, issued: &mut Issued) -> Value {
    let flavour = flavour(&asked.model);
    let mut message = json!({ "role": "assistant", "content": null });
    let (mut text, mut thoughts, mut details, mut calls) =
        (String::new(), String::new(), Vec::new(), Vec::new());
    for piece in pieces {
        match piece {
            Piece::Text(more) => text += more,
            Piece::Thought(thought) => {
                thoughts += thought;
                if flavour != Flavour::OpenRouter {
                    continue;
                }
                details.push(json!({
                    "type": "reasoning.text", "text": thought, "signature": issued.state(),
                    "id": null, "format": "anthropic-claude-v1", "index": details.len(),
                }));
            }
            Piece::Hidden if flavour == Flavour::OpenRouter => details.push(json!({
                "type": "reasoning.encrypted", "data": issued.state(),
                "id": issued.id("rs_"), "format": "openai-responses-v1", "index": details.len(),
            })),
            Piece::Hidden => {}
            Piece::Call(tool, arguments) => {
                let signs = flavour == Flavour::Google && calls.is_empty();
                calls.push(call(tool, arguments, signs, issued));
            }
        }
    }
    if !text.is_empty() {
        message["content"] = json!(text);
    }
    let first = calls.first().map_or("", |call| call["id"].as_str().expect("calls have ids")).to_owned();
    match flavour {
        Flavour::OpenRouter if !details.is_empty() => {
            message["reasoning"] = json!(thoughts);
            message["reasoning_details"] = json!(details);
            issued.details.insert(first, json!(details));
        }
        Flavour::DeepSeek if !thoughts.is_empty() => {
            message["reasoning_content"] = json!(thoughts);
            issued.reasoning.insert(first, thoughts);
        }
        Flavour::OpenRouter | Flavour::DeepSeek | Flavour::OpenAi | Flavour::Google | Flavour::Other => {}
    }
    let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
    if !calls.is_empty() {
        message["tool_calls"] = json!(calls);
    }
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": asked.model,
        "choices": [{ "index": 0, "message": message, "finish_reason": finish }],
        "usage": { "prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15 },
    })
}

fn call(tool: &str, arguments: &Value, signs: bool, issued: &mut Issued) -> Value {
    let function = json!({ "name": tool, "arguments": arguments.to_string() });
    let mut call = json!({ "id": issued.id("call_"), "type": "function", "function": function });
    if signs {
        let signature = issued.state();
        let signed = Signed { surface: Format::Chat, of: call["id"].clone() };
        issued.signatures.insert(signature.clone(), signed);
        call["extra_content"] = json!({ "google": { "thought_signature": signature } });
    }
    call
}
