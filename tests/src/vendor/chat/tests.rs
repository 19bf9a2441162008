use serde_json::{Value, json};

use crate::vendor::testing::{Bench, elements, without};
use crate::vendor::{DUMMY_SIGNATURE, Format, Piece};

fn tools() -> Value {
    let parameters = json!({ "type": "object", "properties": {} });
    json!([{ "type": "function", "function": { "name": "ls", "parameters": parameters } }])
}

/// A question, two calls in answer to it, and their results.
fn round(bench: &mut Bench) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "hi" }], "tools": tools() });
    let pieces = [Piece::thought("it"), Piece::call("ls", json!({})), Piece::call("ls", json!({}))];
    let message = bench.answered(&body, pieces)["choices"][0]["message"].clone();
    let ids = [&message["tool_calls"][0]["id"], &message["tool_calls"][1]["id"]].map(Value::clone);
    elements(&mut body["messages"]).push(message);
    for id in ids {
        elements(&mut body["messages"]).push(json!({ "role": "tool", "tool_call_id": id, "content": "a" }));
    }
    bench.takes(&body);
    body
}

#[test]
fn google_wants_its_signature_where_it_gave_it() {
    let mut bench = Bench::of(Format::Chat, "gemini-3.8-flash");
    let body = round(&mut bench);
    let signature = |body: &mut Value| body["messages"][1]["tool_calls"][0]["extra_content"]["google"].take();
    bench.refuses(&body, |body| drop(signature(body)), "missing a thought_signature");
    let place = "/messages/1/tool_calls/0/extra_content/google/thought_signature";
    let set =
        |value: &'static str| move |body: &mut Value| *body.pointer_mut(place).expect("there") = json!(value);
    bench.refuses(&body, set("c29tZXRoaW5n"), "Corrupted");
    bench.takes_with(&body, set(DUMMY_SIGNATURE));
    let moves = |body: &mut Value| {
        let calls = &mut body["messages"][1]["tool_calls"];
        calls[1]["extra_content"] = calls[0]["extra_content"].clone();
        calls[0]["extra_content"]["google"]["thought_signature"] = json!(DUMMY_SIGNATURE);
    };
    bench.refuses(&body, moves, "Corrupted");
    bench.takes_with(&body, |body| {
        signature(body);
        elements(&mut body["messages"]).push(json!({ "role": "user", "content": "the next turn" }));
    });
    Bench::of(Format::Chat, "gemini-4-argon").refuses(&body, |body| body["x"] = json!(1), "Corrupted");
}

#[test]
fn deepseek_wants_its_reasoning() {
    let mut bench = Bench::of(Format::Chat, "deepseek-v4-pro");
    let body = round(&mut bench);
    bench.refuses(
        &body,
        |body| without(&mut body["messages"][1], "reasoning_content"),
        "must be passed back",
    );
    bench.refuses(
        &body,
        |body| body["messages"][1]["reasoning_content"] = json!("other"),
        "must be passed back",
    );
    bench.takes_with(&body, |body| body["messages"][1]["reasoning_content"] = json!(""));
}

#[test]
fn openrouter_wants_its_details_unchanged() {
    let mut bench = Bench::of(Format::Chat, "anthropic/claude-opus-5-5");
    let body = round(&mut bench);
    bench.refuses(&body, |body| without(&mut body["messages"][1], "reasoning_details"), "reasoning_details");
    let place = "/messages/1/reasoning_details/0/signature";
    bench.refuses(&body, |body| *body.pointer_mut(place).expect("there") = json!("x"), "reasoning_details");
}

#[test]
fn calls_and_results_go_together() {
    let mut bench = Bench::of(Format::Chat, "gpt-4o");
    let body = round(&mut bench);
    bench.refuses(
        &body,
        |body| drop(elements(&mut body["messages"]).pop()),
        "did not have response messages",
    );
    bench.refuses(&body, |body| drop(elements(&mut body["messages"]).remove(1)), "must be a response");
    bench.refuses(
        &body,
        |body| elements(&mut body["messages"]).insert(2, json!({ "role": "user", "content": "and?" })),
        "did not have response messages",
    );
}

#[test]
fn openai_refuses_what_its_models_do_not_take() {
    let body = json!({ "messages": [{ "role": "user", "content": "hi" }] });
    let with_tools = |effort: Option<&str>| {
        let mut body = body.clone();
        (body["tools"], body["reasoning_effort"]) = (tools(), json!(effort));
        body
    };
    let of = |model| Bench::of(Format::Chat, model);
    let not_here = "not supported for";
    for model in ["gpt-5.4", "gpt-5.5", "gpt-5.6", "gpt-6-luna"] {
        of(model).takes(&with_tools(Some("none")));
        of(model).refuses(&body, |body| *body = with_tools(Some("low")), not_here);
    }
    of("gpt-5.4").takes(&with_tools(None));
    of("gpt-5.2").takes(&with_tools(Some("low")));
    for model in ["gpt-5.5", "gpt-5.6", "gpt-6-astra", "gpt-6.1-sol"] {
        of(model).refuses(&body, |body| *body = with_tools(None), not_here);
    }
    of("gpt-6-astra").refuses(&body, |body| *body = with_tools(Some("none")), "does not support 'none'");
    for parameter in ["temperature", "top_p", "presence_penalty"] {
        of("gpt-5.5").refuses(&body, |body| body[parameter] = json!(0.5), "Unsupported parameter");
        of("gpt-4o").takes_with(&body, |body| body[parameter] = json!(0.5));
    }
    for parameter in ["max_tokens", "stop"] {
        of("gpt-6-sol").refuses(&body, |body| body[parameter] = json!(1), "Unsupported parameter");
    }
    of("gpt-6-sol").refuses(&body, |body| body["reasoning_effort"] = json!("max"), "Unsupported parameter");
    of("gpt-4o").refuses(&body, |body| body["top_k"] = json!(1), "Unrecognized request argument");
    let strict = |body: &mut Value| {
        body["tools"] = tools();
        body["tools"][0]["function"]["strict"] = json!(true);
    };
    of("gpt-4o").refuses(&body, strict, "additionalProperties");
}
