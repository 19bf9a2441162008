//! Messages: what is asked, and the pieces of an answer.

use bytes::Bytes;
use serde::Deserialize;

use super::{Asked, PIECE, Script, arguments, call_id, tool_name};
use crate::Failure;

#[derive(Deserialize)]
struct Request {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    content: Vec<Block>,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Block {
    Text { text: String },
    ToolUse {},
    ToolResult {},
}

pub(super) fn asked(body: &[u8]) -> Result<Asked, Failure> {
    let Request { messages } = serde_json::from_slice(body)?;
    let blocks: Vec<Block> = messages.into_iter().flat_map(|said| said.content).collect();
    // The model's own messages are none.
    let prompt = |block: &Block| match block {
        Block::Text { text } => Script::read(text),
        Block::ToolUse {} | Block::ToolResult {} => None,
    };
    let (at, script) = blocks
        .iter()
        .enumerate()
        .rev()
        .find_map(|(at, block)| Some((at, prompt(block)?)))
        .ok_or("no prompt of ours")?;
    let round = blocks[at..].iter().filter(|block| matches!(block, Block::ToolResult {})).count();
    Ok(Asked { script, round: u32::try_from(round)? })
}

pub(super) fn request(script: Script, round: u32) -> String {
    let says = |role: &str, block| serde_json::json!({ "role": role, "content": [block] });
    let mut messages = vec![says("user", serde_json::json!({ "type": "text", "text": script.prompt() }))];
    for round in 0..round {
        let (id, name, input) = (call_id(round), tool_name(script.tool), arguments(round));
        let said = input.to_string();
        let call = serde_json::json!({ "type": "tool_use", "id": id, "name": name, "input": input });
        let result = serde_json::json!({ "type": "tool_result", "tool_use_id": id, "content": said });
        messages.push(says("assistant", call));
        messages.push(says("user", result));
    }
    serde_json::json!({ "model": "m", "stream": true, "max_tokens": 4096, "messages": messages }).to_string()
}

pub(super) fn tool_call(script: Script, round: u32) -> Vec<Bytes> {
    let (id, name) = (call_id(round), tool_name(script.tool));
    let block = format!(r#"{{"type":"tool_use","id":"{id}","name":"{name}","input":{{}}}}"#);
    let arguments = serde_json::Value::from(arguments(round).to_string());
    let delta = format!(r#"{{"type":"input_json_delta","partial_json":{arguments}}}"#);
    answer(&block, [piece(&delta)], "tool_use")
}

pub(super) fn text(script: Script) -> Vec<Bytes> {
    let delta = piece(&format!(r#"{{"type":"text_delta","text":"{PIECE}"}}"#));
    answer(r#"{"type":"text","text":""}"#, (0..script.deltas).map(|_| delta.clone()), "end_turn")
}

/// A message of one block.
fn answer(block: &str, pieces: impl IntoIterator<Item = Bytes>, reason: &str) -> Vec<Bytes> {
    let message = r#"{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[],"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":100,"output_tokens":1}}"#;
    let start = event("message_start", &format!(r#""message":{message}"#));
    let block = event("content_block_start", &format!(r#""index":0,"content_block":{block}"#));
    let stop = event("content_block_stop", r#""index":0"#);
    let delta = format!(r#""delta":{{"stop_reason":"{reason}","stop_sequence":null}}"#);
    let end = event("message_delta", &format!(r#"{delta},"usage":{{"output_tokens":20}}"#));
    let mut answer = vec![Bytes::from([start, block].concat())];
    answer.extend(pieces);
    answer.push(Bytes::from([stop, end, event("message_stop", "")].concat()));
    answer
}

fn piece(delta: &str) -> Bytes {
    event("content_block_delta", &format!(r#""index":0,"delta":{delta}"#))
}

fn event(kind: &str, more: &str) -> Bytes {
    let comma = if more.is_empty() { "" } else { "," };
    Bytes::from(format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{comma}{more}}}\n\n"))
}
