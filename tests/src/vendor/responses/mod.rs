//! A model server that speaks OpenAI's Responses API.

mod check;
mod stream;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub(super) use self::check::check;
pub(super) use self::stream::stream;
use super::issued::{Issued, Item};
use super::openai::starts;
use super::request::family;
use super::{Asked, Piece};

/// The whole answer, with what is given out noted.
pub(super) fn document(pieces: &[Piece], asked: &Asked, issued: &mut Issued) -> Value {
    let mut items = Vec::new();
    for piece in pieces {
        items.push(match piece {
            Piece::Thought(text) => reasoning(Some(text), issued),
            Piece::Hidden => reasoning(None, issued),
            Piece::Text(text) => message(text, pieces, asked, issued),
            Piece::Call(tool, arguments) => json!({
                "type": "function_call", "id": issued.item_id("fc_"), "call_id": issued.id("call_"),
                "name": tool, "arguments": arguments.to_string(), "status": "completed",
            }),
        });
    }
    note(&items, &asked.model, issued);
    json!({
        "id": issued.id("resp_"), "object": "response", "created_at": 1, "status": "completed", "model": asked.model,
        "error": null, "incomplete_details": null, "output": items, "store": false,
        "usage": {
            "input_tokens": 10, "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": 5, "output_tokens_details": { "reasoning_tokens": 3 }, "total_tokens": 15,
        },
    })
}

fn reasoning(text: Option<&String>, issued: &mut Issued) -> Value {
    let summary: Vec<Value> =
        text.iter().map(|text| json!({ "type": "summary_text", "text": text })).collect();
    json!({
        "type": "reasoning", "id": issued.item_id("rs_"), "summary": summary, "encrypted_content": issued.state(),
    })
}

fn message(text: &str, pieces: &[Piece], asked: &Asked, issued: &mut Issued) -> Value {
    let content = json!([{ "type": "output_text", "text": text, "annotations": [], "logprobs": [] }]);
    let mut message = json!({
        "type": "message", "id": issued.item_id("msg_"), "role": "assistant", "status": "completed",
        "content": content,
    });
    if starts(&asked.model, &["gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6"]) {
        let calls = pieces.iter().any(|piece| matches!(piece, Piece::Call(..)));
        message["phase"] = json!(if calls { "commentary" } else { "final_answer" });
    }
    message
}

/// Remembers each item with its neighbours.
fn note(items: &[Value], model: &str, issued: &mut Issued) {
    let mut reasoning = None;
    for (at, item) in items.iter().enumerate() {
        let id = item["id"].as_str().expect("items have ids").to_owned();
        let noted = Item {
            family: family(model).to_owned(),
            item: item.clone(),
            following: items.get(at + 1).cloned(),
            reasoning: reasoning.clone(),
        };
        if item["type"] == "reasoning" {
            reasoning = Some(id.clone());
        }
        issued.items.insert(id, noted);
    }
}
