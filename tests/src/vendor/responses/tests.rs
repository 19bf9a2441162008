use serde_json::{Value, json};

use crate::vendor::testing::{Bench, elements, without};
use crate::vendor::{Format, Piece};

fn question() -> Value {
    let parameters = json!({ "type": "object", "properties": {} });
    json!({
        "store": false, "stream": true, "include": ["reasoning.encrypted_content"],
        "tools": [{ "type": "function", "name": "ls", "parameters": parameters, "strict": false }],
        "input": [{ "role": "user", "content": "hi" }],
    })
}

/// A question; a thought, words and a call in answer to it; and the call's result.
fn round(bench: &mut Bench) -> Value {
    let mut body = question();
    let pieces = [Piece::thought("it"), Piece::text("I look."), Piece::call("ls", json!({}))];
    let mut output = bench.answered(&body, pieces)["output"].clone();
    let call_id = output[2]["call_id"].clone();
    elements(&mut body["input"]).append(elements(&mut output));
    elements(&mut body["input"])
        .push(json!({ "type": "function_call_output", "call_id": call_id, "output": "a" }));
    bench.takes(&body);
    body
}

#[test]
fn reasoning_comes_back_whole_and_in_its_place() {
    let mut bench = Bench::of(Format::Responses, "gpt-6.1-sol");
    let body = round(&mut bench);
    bench.refuses(&body, |body| without(&mut body["input"][1], "encrypted_content"), "not found");
    bench.refuses(&body, |body| body["input"][1]["encrypted_content"] = json!("x"), "could not be verified");
    bench.refuses(&body, |body| body["input"][1]["summary"] = json!([]), "could not be verified");
    let leaves_message_out = |body: &mut Value| drop(elements(&mut body["input"]).remove(2));
    bench.refuses(&body, leaves_message_out, "without its required following item");
    bench.refuses(&body, |body| elements(&mut body["input"]).swap(1, 2), "'reasoning'");
    bench.refuses(
        &body,
        |body| drop(elements(&mut body["input"]).remove(1)),
        "without its required 'reasoning'",
    );
    let ids = |body: &mut Value| {
        for item in &mut elements(&mut body["input"])[1..4] {
            without(item, "id");
        }
    };
    bench.takes_with(&body, ids);
    bench.takes_with(&body, |body| {
        ids(body);
        elements(&mut body["input"]).remove(1);
    });
    let reference = json!({ "type": "item_reference", "id": body["input"][1]["id"] });
    bench.refuses(&body, |body| body["input"][1] = reference, "not persisted");
    bench.model("gpt-5.6").refuses(&body, |body| body["user"] = json!("ada"), "could not be verified");
}

#[test]
fn calls_and_results_go_together() {
    let mut bench = Bench::of(Format::Responses, "gpt-6.1-sol");
    let body = round(&mut bench);
    bench.refuses(&body, |body| drop(elements(&mut body["input"]).pop()), "No tool output found");
    bench.refuses(&body, |body| drop(elements(&mut body["input"]).drain(1..4)), "No tool call found");
    let long = "c".repeat(65);
    bench.refuses(&body, |body| body["input"][4]["call_id"] = json!(long), "1 to 64 characters");
}

#[test]
fn the_request_has_what_it_must_and_nothing_else() {
    let body = question();
    let bench = Bench::of(Format::Responses, "gpt-6.1-sol");
    bench.takes(&body);
    bench.refuses(&body, |body| body["store"] = json!(true), "'store' must be false");
    bench.refuses(&body, |body| without(body, "include"), "'include' must ask");
    bench.refuses(&body, |body| body["previous_response_id"] = json!("resp_1"), "Zero Data Retention");
    for unknown in ["stop", "seed", "max_tokens", "messages", "response_format"] {
        bench.refuses(&body, |body| body[unknown] = json!("x"), "Unknown parameter");
    }
    bench.refuses(&body, |body| body["temperature"] = json!(1), "Unsupported parameter");
    bench.refuses(&body, |body| body["reasoning"] = json!({ "effort": "none" }), "does not support 'none'");
    bench.refuses(&body, |body| without(&mut body["tools"][0], "strict"), "tools[0].strict");
    bench.refuses(&body, |body| body["tools"][0]["strict"] = json!(true), "Invalid schema");
    bench.refuses(
        &body,
        |body| body["input"][0]["phase"] = json!("commentary"),
        "only supported on assistant",
    );
    bench.refuses(&body, |body| body["input"] = json!([]), "'input'");
    let off = |body: &mut Value| {
        body["reasoning"] = json!({ "effort": "none" });
        body["temperature"] = json!(0.5);
    };
    Bench::of(Format::Responses, "gpt-5.6").takes_with(&body, off);
    Bench::of(Format::Responses, "gpt-4.1").takes_with(&body, |body| body["temperature"] = json!(0.5));
}
