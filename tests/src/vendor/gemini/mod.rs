//! A model server that speaks Google's `generateContent`.

mod check;
mod schema;
#[cfg(test)]
mod tests;

use serde_json::{Value, json};

pub(super) use self::check::check;
use super::issued::{Issued, Signed};
use super::request::list;
use super::stream::{Stream, halves};
use super::{Asked, Format, Piece};

/// The whole answer, with what is given out noted. Of several calls only the first is signed; an answer without calls has
/// its signature on an empty part at its end.
pub(super) fn document(pieces: &[Piece], asked: &Asked, issued: &mut Issued) -> Value {
    let (mut parts, mut thought, mut called) = (Vec::new(), false, false);
    for piece in pieces {
        match piece {
            Piece::Thought(text) => {
                thought = true;
                parts.push(json!({ "text": text, "thought": true }));
            }
            Piece::Hidden => thought = true,
            Piece::Text(text) => parts.push(json!({ "text": text })),
            Piece::Call(tool, arguments) => {
                let call = json!({ "id": issued.id("fc"), "name": tool, "args": arguments });
                let mut part = json!({ "functionCall": call });
                if !called {
                    sign(&mut part, call, issued);
                }
                called = true;
                parts.push(part);
            }
        }
    }
    if thought && !called {
        let mut last = json!({ "text": "" });
        sign(&mut last, json!(""), issued);
        parts.push(last);
    }
    json!({
        "candidates": [{ "content": { "role": "model", "parts": parts }, "finishReason": "STOP", "index": 0 }],
        "usageMetadata": {
            "promptTokenCount": 10, "candidatesTokenCount": 2, "thoughtsTokenCount": 3, "totalTokenCount": 15,
        },
        "modelVersion": asked.model, "responseId": "resp-1",
    })
}

fn sign(part: &mut Value, of: Value, issued: &mut Issued) {
    let signature = issued.state();
    part["thoughtSignature"] = json!(signature);
    issued.signatures.insert(signature, Signed { surface: Format::Gemini, of });
}

/// Each chunk is a whole answer with a few parts; the last one says why it ends.
pub(super) fn stream(document: &Value) -> Stream {
    let mut stream = Stream::default();
    let parts = list(&document["candidates"][0]["content"], "parts");
    let pieces: Vec<Value> = parts.iter().flat_map(split).collect();
    let (last, first) = pieces.split_last().map_or((None, &[][..]), |(last, first)| (Some(last), first));
    let chunk = |parts: &[Value]| {
        let mut chunk = document.clone();
        chunk["candidates"][0]["content"]["parts"] = json!(parts);
        chunk
    };
    for part in first {
        let mut event = chunk(std::slice::from_ref(part));
        event["candidates"][0].as_object_mut().expect("it is an object").remove("finishReason");
        stream.data(&event);
        if part["thought"] != true && part["text"].is_string() {
            stream.has_begun();
        }
    }
    stream.ends();
    stream.data(&chunk(last.map_or(&[], std::slice::from_ref)));
    stream
}

/// Text that is not signed comes in pieces.
fn split(part: &Value) -> Vec<Value> {
    match part["text"].as_str() {
        Some(text) if part.get("thoughtSignature").is_none() => {
            let piece = |half: &str| {
                let mut piece = part.clone();
                piece["text"] = json!(half);
                piece
            };
            halves(text).into_iter().map(piece).collect()
        }
        _ => vec![part.clone()],
    }
}
