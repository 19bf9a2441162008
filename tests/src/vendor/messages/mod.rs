//! A model server that speaks Anthropic's Messages API.

mod check;
mod prefix;
mod stream;
#[cfg(test)]
mod tests;
mod traits;

use serde_json::{Value, json};

pub(super) use self::check::check;
pub(super) use self::stream::stream;
use super::issued::{Issued, Thought};
use super::request::family;
use super::{Asked, Piece};

/// The whole answer, with what is given out noted.
pub(super) fn document(pieces: &[Piece], asked: &Asked, issued: &mut Issued) -> Value {
    let traits = traits::of(&asked.model);
    let shown = !traits.hides_thoughts || asked.body["thinking"]["display"] == "summarized";
    let mut blocks: Vec<Value> = Vec::new();
    for piece in pieces {
        let block = match piece {
            Piece::Thought(text) => {
                let text = if shown { text.as_str() } else { "" };
                let signature = issued.state();
                give(issued, &signature, text, asked, &blocks);
                json!({ "type": "thinking", "thinking": text, "signature": signature })
            }
            Piece::Hidden => {
                let data = issued.state();
                give(issued, &data, &data, asked, &blocks);
                json!({ "type": "redacted_thinking", "data": data })
            }
            Piece::Text(text) => json!({ "type": "text", "text": text }),
            Piece::Call(tool, input) => {
                json!({ "type": "tool_use", "id": issued.id("toolu_"), "name": tool, "input": input })
            }
        };
        blocks.push(block);
    }
    let calls = pieces.iter().any(|piece| matches!(piece, Piece::Call(..)));
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": asked.model, "content": blocks,
        "stop_reason": if calls { "tool_use" } else { "end_turn" }, "stop_sequence": null,
        "usage": { "input_tokens": 10, "output_tokens": 5 },
    })
}

/// Notes a thought with all that stands before it.
fn give(issued: &mut Issued, signature: &str, text: &str, asked: &Asked, blocks: &[Value]) {
    let messages = prefix::merged(asked.list("messages"));
    let thought = Thought {
        family: family(&asked.model).to_owned(),
        text: text.to_owned(),
        prefix: prefix::of(asked, &messages, blocks),
    };
    issued.thoughts.insert(signature.to_owned(), thought);
}
