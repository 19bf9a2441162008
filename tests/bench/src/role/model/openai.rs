//! Chat Completions: what is asked, and the pieces of an answer.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;

use super::{Asked, PIECE, Script, arguments, call_id, tool_name};
use crate::Failure;

#[derive(Deserialize)]
struct Request<'a> {
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: &'a str,
    #[serde(borrow, default)]
    content: Option<Cow<'a, str>>,
}

pub(super) fn asked(body: &[u8]) -> Result<Asked, Failure> {
    let Request { messages } = serde_json::from_slice(body)?;
    let user = messages.iter().rposition(|said| said.role == "user").ok_or("nobody asks anything")?;
    let prompt = messages[user].content.as_deref().unwrap_or_default();
    let script = Script::read(prompt).ok_or("not a prompt of ours")?;
    let round = messages[user..].iter().filter(|said| said.role == "tool").count();
    Ok(Asked { script, round: u32::try_from(round)? })
}

pub(super) fn request(script: Script, round: u32) -> String {
    let mut messages = vec![serde_json::json!({ "role": "user", "content": script.prompt() })];
    for round in 0..round {
        let (id, arguments) = (call_id(round), arguments(round).to_string());
        let function = serde_json::json!({ "name": tool_name(script.tool), "arguments": arguments });
        messages.push(serde_json::json!({
            "role": "assistant",
            "content": null,
            "tool_calls": [{ "id": id, "type": "function", "function": function }],
        }));
        messages.push(serde_json::json!({ "role": "tool", "tool_call_id": id, "content": arguments }));
    }
    serde_json::json!({ "model": "m", "stream": true, "messages": messages }).to_string()
}

pub(super) fn tool_call(script: Script, round: u32) -> Vec<Bytes> {
    let id = call_id(round);
    let arguments = serde_json::Value::from(arguments(round).to_string());
    let name = tool_name(script.tool);
    let call = format!(
        r#"{{"tool_calls":[{{"index":0,"id":"{id}","type":"function","function":{{"name":"{name}","arguments":{arguments}}}}}]}}"#
    );
    vec![piece(r#"{"role":"assistant","content":null}"#), piece(&call), end("tool_calls")]
}

pub(super) fn text(script: Script) -> Vec<Bytes> {
    let mut pieces = vec![piece(r#"{"role":"assistant","content":""}"#)];
    let delta = piece(&format!(r#"{{"content":"{PIECE}"}}"#));
    pieces.extend((0..script.deltas).map(|_| delta.clone()));
    pieces.push(end("stop"));
    pieces
}

fn piece(delta: &str) -> Bytes {
    chunk(&format!(r#"{{"index":0,"delta":{delta},"finish_reason":null}}"#), "")
}

fn end(reason: &str) -> Bytes {
    let usage = r#","usage":{"prompt_tokens":100,"completion_tokens":20,"total_tokens":120}"#;
    let last = chunk(&format!(r#"{{"index":0,"delta":{{}},"finish_reason":"{reason}"}}"#), usage);
    Bytes::from([&last[..], b"data: [DONE]\n\n"].concat())
}

fn chunk(choice: &str, more: &str) -> Bytes {
    let head = r#""id":"c-1","object":"chat.completion.chunk","created":1,"model":"m""#;
    Bytes::from(format!("data: {{{head},\"choices\":[{choice}]{more}}}\n\n"))
}
