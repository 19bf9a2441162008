use serde_json::{Value, json};

use crate::vendor::testing::{Bench, elements, without};
use crate::vendor::{DUMMY_SIGNATURE, Format, Piece, check};

fn question() -> Value {
    let schema = json!({ "type": "object", "properties": {} });
    json!({
        "contents": [{ "role": "user", "parts": [{ "text": "hi" }] }],
        "tools": [{ "functionDeclarations": [{ "name": "ls", "parametersJsonSchema": schema }] }],
    })
}

/// A question, two calls in answer to it, and their results.
fn round(bench: &mut Bench) -> Value {
    let mut body = question();
    let pieces = [Piece::call("ls", json!({ "p": 1 })), Piece::call("ls", json!({ "p": 2 }))];
    let content = bench.answered(&body, pieces)["candidates"][0]["content"].clone();
    let answer = |at: usize| {
        let id = &content["parts"][at]["functionCall"]["id"];
        json!({ "functionResponse": { "id": id, "name": "ls", "response": { "output": "a" } } })
    };
    let answers = json!({ "role": "user", "parts": [answer(0), answer(1)] });
    elements(&mut body["contents"]).extend([content, answers]);
    bench.takes(&body);
    body
}

#[test]
fn calls_keep_their_signatures() {
    let mut bench = Bench::of(Format::Gemini, "gemini-3.8-flash");
    let body = round(&mut bench);
    let leaves_out = |body: &mut Value| without(&mut body["contents"][1]["parts"][0], "thoughtSignature");
    bench.refuses(&body, leaves_out, "missing a thought_signature");
    let set = |value: &'static str| {
        move |body: &mut Value| body["contents"][1]["parts"][0]["thoughtSignature"] = json!(value)
    };
    bench.refuses(&body, set("c29tZXRoaW5n"), "Corrupted");
    bench.takes_with(&body, set(DUMMY_SIGNATURE));
    let moves = |body: &mut Value| {
        let parts = &mut body["contents"][1]["parts"];
        parts[1]["thoughtSignature"] = parts[0]["thoughtSignature"].clone();
        parts[0]["thoughtSignature"] = json!(DUMMY_SIGNATURE);
    };
    bench.refuses(&body, moves, "Corrupted");
    let args = |body: &mut Value| body["contents"][1]["parts"][0]["functionCall"]["args"] = json!({ "p": 3 });
    bench.refuses(&body, args, "Corrupted");
    bench.takes_with(&body, |body| {
        leaves_out(body);
        let next = json!({ "role": "user", "parts": [{ "text": "the next turn" }] });
        elements(&mut body["contents"]).push(next);
    });
    bench.model("gemini-2.5-flash").takes_with(&body, leaves_out);
    let other = Bench::of(Format::Gemini, "gemini-3.8-flash");
    other.refuses(&body, |body| body["labels"] = json!({}), "Corrupted");
}

#[test]
fn signatures_of_the_two_surfaces_are_not_the_same() {
    let mut bench = Bench::of(Format::Gemini, "gemini-3.8-flash");
    let body = round(&mut bench);
    let signature = body["contents"][1]["parts"][0]["thoughtSignature"].as_str().expect("text");
    let signed = bench.issued.signatures.get_mut(signature).expect("it was given out");
    signed.surface = Format::Chat;
    bench.refuses(&body, |body| body["labels"] = json!({}), "Corrupted");
}

#[test]
fn calls_and_results_go_together() {
    let mut bench = Bench::of(Format::Gemini, "gemini-3.8-flash");
    let body = round(&mut bench);
    let drops = |body: &mut Value| drop(elements(&mut body["contents"][2]["parts"]).pop());
    bench.refuses(&body, drops, "number of function response parts");
    bench.refuses(&body, |body| drop(elements(&mut body["contents"]).remove(1)), "comes immediately after");
    bench.refuses(&body, |body| drop(elements(&mut body["contents"]).remove(0)), "after a user turn");
    let renames =
        |body: &mut Value| body["contents"][2]["parts"][0]["functionResponse"]["name"] = json!("cat");
    bench.refuses(&body, renames, "match the function calls");
    let text =
        |body: &mut Value| body["contents"][2]["parts"][0]["functionResponse"]["response"] = json!("a");
    bench.refuses(&body, text, "is no object");
}

#[test]
fn models_take_what_they_take() {
    let body = question();
    let of = |model| Bench::of(Format::Gemini, model);
    let config = |field: &'static str, value: Value| {
        move |body: &mut Value| body["generationConfig"] = json!({ field: value })
    };
    for parameter in ["temperature", "topP", "topK"] {
        of("gemini-3.8-flash").refuses(&body, config(parameter, json!(1)), "is not supported");
        of("gemini-2.5-flash").takes_with(&body, config(parameter, json!(1)));
    }
    let level = |level: &str| config("thinkingConfig", json!({ "thinkingLevel": level }));
    of("gemini-4-argon").takes_with(&body, level("LOW"));
    of("gemini-4-argon").refuses(&body, level("MINIMAL"), "MINIMAL");
    of("gemini-4-argon").refuses(&body, level("low"), "Invalid value");
    of("gemini-2.5-flash").refuses(&body, level("LOW"), "level is not supported");
    of("gemini-2.0-flash").refuses(&body, config("thinkingConfig", json!({})), "not enabled");
    let both = config("thinkingConfig", json!({ "thinkingLevel": "LOW", "thinkingBudget": 1 }));
    of("gemini-3.8-flash").refuses(&body, both, "only one of");
    let json = config("responseMimeType", json!("application/json"));
    of("gemini-2.5-flash").refuses(&body, json.clone(), "unsupported");
    of("gemini-3.8-flash").takes_with(&body, json);
}

#[test]
fn the_request_is_of_known_fields_and_shapes() {
    let body = question();
    let bench = Bench::of(Format::Gemini, "gemini-3.8-flash");
    bench.takes(&body);
    bench.refuses(&body, |body| body["model"] = json!("x"), "Unknown name \"model\"");
    bench.refuses(&body, |body| body["contents"][0]["role"] = json!("assistant"), "valid role");
    bench.refuses(&body, |body| body["contents"][0]["parts"] = json!([]), "must not be empty");
    bench.refuses(&body, |body| body["contents"][0]["parts"][0] = json!({}), "one initialized");
    bench.refuses(&body, |body| body["contents"] = json!([]), "not specified");
    let declares = |field: &'static str, value: Value| {
        move |body: &mut Value| body["tools"][0]["functionDeclarations"][0][field] = value
    };
    bench.refuses(&body, declares("name", json!("1st")), "Invalid function name");
    bench.refuses(&body, declares("parameters", json!({ "type": "object" })), "only one of");
    let deep = json!({ "type": "object", "properties": { "p": { "const": 1 } } });
    bench.refuses(&body, declares("parametersJsonSchema", deep), "Unknown name \"const\"");
    let mut unstreamed = bench.asked(&body);
    unstreamed.query.clear();
    check(&unstreamed, &bench.issued).expect_err("alt=sse is required");
}
